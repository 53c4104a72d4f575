//! What our LuaJIT offers beyond Lua's C interface: the functions of `luajit/interface.c`, which is compiled with it.
//!
//! Nothing here, nor elsewhere in Rust, knows how LuaJIT lays out its values and frames.

use std::ffi::{c_char, c_int};

use super::lua::{Kind, Stack, ffi};
use crate::resp::request::Span;

/// What the functions of a chunk do, as far as the sandbox must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits(c_int);

impl Traits {
    /// Those of the chunk that was compiled last on the state of `stack`.
    pub(super) fn of_last_chunk(stack: Stack<'_>) -> Traits {
        // SAFETY: the state is live.
        Traits(unsafe { tide_notes(stack.raw()) })
    }

    /// Assigns a global variable.
    pub(super) fn assigns_globals(self) -> bool {
        self.0 & SETS_GLOBALS != 0
    }

    /// Might change the tables KEYS and ARGV, or keep them.
    pub(super) fn may_keep_lists(self) -> bool {
        self.0 & KEEPS_LISTS != 0
    }
}

/// The kind of code that asks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// An instruction of a function written in Lua.
    Lua,
    /// A C function.
    C,
    /// A *fast function* of LuaJIT's, written in assembler: nothing may be raised here, because it keeps no record of the top of
    /// the Lua stack, and the message would be written into a live frame.
    Assembler,
}

/// The function that runs on the state to which `state` belongs.
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

/// Pops a table of tables of functions: by the names of globals, and those of their fields. From here on compiled chunks load
/// such a function in one step where they name it so.
pub(super) fn set_constant_functions(stack: Stack<'_>) {
    // SAFETY: the table is on top of a live state.
    unsafe { tide_set_constfuncs(stack.raw()) }
}

/// Whether chunks themselves load [constant functions](set_constant_functions), or just the functions inside of them.
pub(super) fn let_chunks_load_constant_functions(stack: Stack<'_>, whole_chunks: bool) {
    // SAFETY: the state is live.
    unsafe { tide_set_inneronly(stack.raw(), c_int::from(!whole_chunks)) }
}

/// What [`gather`] found.
pub(super) struct Gathered {
    /// Arguments that are left: the first of them needs a look.
    pub(super) left: usize,
    /// The address of the text of the first argument, if that is a string.
    pub(super) name: Option<usize>,
    /// The call is a statement: its results are lost, whatever they are.
    pub(super) is_statement: bool,
}

/// Copies arguments of the C function whose stack this is: from the first one on that has no span, up to one that is neither a
/// string nor a small natural number, or for which there is no room. They get at most `most` bytes in all, and no more than both vectors
/// have room for. Raises nothing.
///
/// Through Lua's C interface each argument takes two calls, and each of them finds its index anew.
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
    // SAFETY: a C function of a live state runs. What is written lies within the room of both vectors, and their new lengths cover
    // what is written.
    unsafe {
        let left = tide_gather(stack.raw(), &mut raw) as usize;
        bytes.set_len(raw.len);
        spans.set_len(raw.spans_len);
        let name = (!raw.name.is_null()).then_some(raw.name as usize);
        Gathered { left, name, is_statement: raw.is_statement != 0 }
    }
}

/// A walk through a table that nothing changes meanwhile, in the order of `next`. It goes by position; Lua's own interface looks up
/// the key before at each step.
#[derive(Clone, Copy, Default)]
pub(super) struct Walk {
    position: u32,
}

impl Walk {
    /// Pushes the next key and value of the table on top and answers of what kind the key is; `None` at the end, with nothing pushed.
    /// May raise for lack of memory.
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

// The values of these are those of `luajit/interface.h`.
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
