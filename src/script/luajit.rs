//! Functions of our LuaJIT beyond Lua's C interface: those of `luajit/interface.c`, which is compiled with it.
//!
//! No Rust code knows how LuaJIT lays out its values and frames.
//!
//! **What [`gather`] saves**, in the case "script, 50 SET" of `benches/instructions.rs`, where a SET of three arguments
//! as a statement takes about 1,680 instructions: without it, reading the arguments through Lua's C interface takes
//! about 300 more per call. Converting the reply, which a statement drops, takes about 800 more.

use std::ffi::{c_char, c_int};

use super::lua::{Kind, Stack, ffi};
use crate::resp::request::Span;

/// Facts about the functions of a chunk that matter to the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits(c_int);

impl Traits {
    /// The traits of the chunk compiled last on the state of `stack`.
    pub(super) fn of_last_chunk(stack: Stack<'_>) -> Traits {
        // SAFETY: the state is live.
        Traits(unsafe { tide_notes(stack.raw()) })
    }

    /// Whether it assigns a global variable.
    pub(super) fn assigns_globals(self) -> bool {
        self.0 & SETS_GLOBALS != 0
    }

    /// Whether it might change or keep the tables KEYS and ARGV.
    pub(super) fn may_keep_lists(self) -> bool {
        self.0 & KEEPS_LISTS != 0
    }
}

/// The kind of code that requests memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// An instruction of a function written in Lua.
    Lua,
    /// A C function.
    C,
    /// One of LuaJIT's *fast functions*, written in assembler. It must not raise here, because it keeps no record of
    /// the top of the Lua stack, and the message would be written into a live frame.
    Assembler,
}

/// The kind of the running function of the state to which `state` belongs.
///
/// # Safety
/// The state must be live.
pub(super) unsafe fn caller(state: *mut ffi::lua_State) -> Caller {
    // SAFETY: the caller's promise.
    match unsafe { tide_caller(state) } {
        LUA => Caller::Lua,
        C => Caller::C,
        _ => Caller::Assembler,
    }
}

/// Pops a table of tables of functions, keyed by names of globals and then by names of fields. From here on, compiled
/// chunks load such a function in one step where they name it so.
pub(super) fn set_constant_functions(stack: Stack<'_>) {
    // SAFETY: the table is on top of a live state.
    unsafe { tide_set_constfuncs(stack.raw()) }
}

/// Chooses whether chunks themselves load [constant functions](set_constant_functions), or only the functions inside
/// them.
pub(super) fn let_chunks_load_constant_functions(stack: Stack<'_>, whole_chunks: bool) {
    // SAFETY: the state is live.
    unsafe { tide_set_inneronly(stack.raw(), c_int::from(!whole_chunks)) }
}

/// The result of [`gather`].
pub(super) struct Gathered {
    /// Number of arguments left. The first of them needs special treatment.
    pub(super) left: usize,
    /// The address of the text of the first argument, if that is a string.
    pub(super) name: Option<usize>,
    /// The call is a statement: its results are dropped.
    pub(super) is_statement: bool,
}

/// Copies arguments of the running C function, from the first one without a span. Stops at an argument that is neither
/// a string nor a small natural number, or that does not fit: into `most` bytes in all, or into the capacity of the
/// vectors. Never raises.
///
/// Through Lua's C interface each argument takes two calls, and each of them resolves the index again.
#[inline(always)]
pub(super) fn gather(stack: Stack<'_>, bytes: &mut Vec<u8>, spans: &mut Vec<Span>, most: usize) -> Gathered {
    let mut raw = RawGathered {
        bytes: bytes.as_mut_ptr(),
        len: bytes.len(),
        room: bytes.capacity().min(most),
        spans: spans.as_mut_ptr(),
        spans_len: spans.len(),
        span_room: spans.capacity(),
        name: std::ptr::null(),
        is_statement: 0,
    };
    // SAFETY: a C function of a live state runs. `tide_gather` writes within the capacity of both vectors, and their
    // new lengths cover the written part.
    unsafe {
        let left = tide_gather(stack.raw(), &mut raw) as usize;
        bytes.set_len(raw.len);
        spans.set_len(raw.spans_len);
        let name = (!raw.name.is_null()).then_some(raw.name as usize);
        Gathered { left, name, is_statement: raw.is_statement != 0 }
    }
}

/// A walk through a table that nothing changes during the walk, in the order of `next`. It goes by position, while
/// Lua's own interface looks up the previous key at each step.
#[derive(Clone, Copy, Default)]
pub(super) struct Walk {
    position: u32,
}

impl Walk {
    /// Pushes the next key and value of the table on top, and returns the kind of the key. Returns `None` at the end,
    /// with nothing pushed. May raise for lack of memory.
    #[inline(always)]
    pub(super) fn next(&mut self, stack: Stack<'_>) -> Option<Kind> {
        // SAFETY: a table is on top of a live state.
        let kind = Kind::of_type(unsafe { tide_next(stack.raw(), &raw mut self.position) });
        (kind != Kind::Nil).then_some(kind)
    }
}

/// `tide_Gathered`.
#[repr(C)]
struct RawGathered {
    bytes: *mut u8,
    len: usize,
    room: usize,
    spans: *mut Span,
    spans_len: usize,
    span_room: usize,
    name: *const c_char,
    is_statement: c_int,
}

// As in `luajit/interface.h`.
const SETS_GLOBALS: c_int = 1;
const KEEPS_LISTS: c_int = 2;
const LUA: c_int = 0;
const C: c_int = 1;

unsafe extern "C" {
    fn tide_notes(state: *mut ffi::lua_State) -> c_int;
    fn tide_set_constfuncs(state: *mut ffi::lua_State);
    fn tide_set_inneronly(state: *mut ffi::lua_State, inner_only: c_int);
    fn tide_caller(state: *mut ffi::lua_State) -> c_int;
    fn tide_gather(state: *mut ffi::lua_State, gathered: *mut RawGathered) -> c_int;
    fn tide_next(state: *mut ffi::lua_State, position: *mut u32) -> c_int;
}
