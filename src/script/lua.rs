//! A thin layer over Lua's C interface: [`Stack`] is one Lua thread's stack seen from a C function.
//!
//! All unsafe calls of the interface are here, so that the libraries read as plain Rust. This file knows nothing of the
//! server's scripts: methods that need the shared state of C functions are added by `context`, `interrupt` and `room`.
//!
//! **The rule.** A Lua error leaves a C function without returning from it. Functions that can raise say so; they must
//! be called while no value is alive whose destructor matters. So hold only `Copy` values and borrowed bytes, and build
//! text in the VM's [`Buffer`](super::room::Buffer), which outlives the call. Values borrowed from the stack
//! ([`Stack::bytes`]) live as long as they stay on it.
//!
//! **Panics** must not happen in C functions. If one does, the server ends before anything is unwound (`main.rs`). In a
//! test LuaJIT turns it into a Lua error, because the functions are `extern "C-unwind"`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;

pub(super) use mlua::ffi;

use super::integer::truncate;

/// Defines a C function. Its body is a function of a [`Stack`] and returns the number of results that it pushed.
macro_rules! native {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($stack:ident: Stack) -> c_int $body:block)*) => {$(
        $(#[$meta])*
        $vis unsafe extern "C-unwind" fn $name(state: *mut $crate::script::lua::ffi::lua_State) -> std::ffi::c_int {
            #[inline(always)]
            fn body($stack: $crate::script::lua::Stack<'_>) -> std::ffi::c_int $body
            // SAFETY: Lua calls this with a live state, whose stack frame lasts until the function ends.
            body(unsafe { $crate::script::lua::Stack::new(state) })
        }
    )*};
}
pub(super) use native;

/// A C function as Lua takes it.
pub(super) type CFunction = ffi::lua_CFunction;

/// The kind of a Lua value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No value: past the top of the stack.
    None,
    Nil,
    Boolean,
    LightUserdata,
    Number,
    String,
    Table,
    Function,
    /// Userdata, threads and other kinds that our functions do not handle.
    Other,
}

impl Kind {
    /// Converts the number of a Lua type.
    #[inline(always)]
    pub(super) fn of_type(number: c_int) -> Kind {
        match number {
            ffi::LUA_TNONE => Kind::None,
            ffi::LUA_TNIL => Kind::Nil,
            ffi::LUA_TBOOLEAN => Kind::Boolean,
            ffi::LUA_TLIGHTUSERDATA => Kind::LightUserdata,
            ffi::LUA_TNUMBER => Kind::Number,
            ffi::LUA_TSTRING => Kind::String,
            ffi::LUA_TTABLE => Kind::Table,
            ffi::LUA_TFUNCTION => Kind::Function,
            _ => Kind::Other,
        }
    }
}

/// Pseudo-index of the C function's `i`th upvalue, from 1.
pub(super) const fn upvalue(i: c_int) -> c_int {
    ffi::lua_upvalueindex(i)
}

/// Pseudo-index of the registry.
pub(super) const REGISTRY: c_int = ffi::LUA_REGISTRYINDEX;

/// The status of a coroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Running,
    Suspended,
    /// It has resumed another coroutine and waits for it.
    Normal,
    Dead,
}

impl Progress {
    /// The result of `coroutine.status`.
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Progress::Running => b"running",
            Progress::Suspended => b"suspended",
            Progress::Normal => b"normal",
            Progress::Dead => b"dead",
        }
    }
}

/// One Lua thread's stack, as a C function sees it: index 1 is its first argument, -1 the top.
#[derive(Clone, Copy)]
pub(super) struct Stack<'a> {
    state: *mut ffi::lua_State,
    frame: PhantomData<&'a ()>,
}

// SAFETY of every block below: `state` is live (the contract of `new`), indices are within the frame or pseudo-indices,
// and each push is preceded by a check of the stack where more than Lua's guaranteed 20 slots may be needed.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one reason for all, above")]
impl<'a> Stack<'a> {
    /// # Safety
    /// `state` must be a live Lua state, and `'a` must not outlast the C function's frame.
    #[inline(always)]
    pub(super) unsafe fn new(state: *mut ffi::lua_State) -> Stack<'a> {
        Stack { state, frame: PhantomData }
    }

    #[inline(always)]
    pub(super) fn raw(self) -> *mut ffi::lua_State {
        self.state
    }

    #[inline(always)]
    pub(super) fn top(self) -> c_int {
        unsafe { ffi::lua_gettop(self.state) }
    }

    #[inline(always)]
    pub(super) fn set_top(self, top: c_int) {
        unsafe { ffi::lua_settop(self.state, top) }
    }

    #[inline(always)]
    pub(super) fn pop(self, n: c_int) {
        self.set_top(-n - 1);
    }

    /// Makes room for `n` more values. Returns false if Lua's stack would grow past its limit.
    #[inline(always)]
    pub(super) fn reserve(self, n: c_int) -> bool {
        unsafe { ffi::lua_checkstack(self.state, n) != 0 }
    }

    #[inline(always)]
    pub(super) fn kind(self, i: c_int) -> Kind {
        Kind::of_type(unsafe { ffi::lua_type(self.state, i) })
    }

    /// The type's name as in Lua's own messages.
    pub(super) fn kind_name(self, i: c_int) -> &'static str {
        // SAFETY: Lua's type names are static ASCII strings.
        unsafe { CStr::from_ptr(ffi::luaL_typename(self.state, i)).to_str().unwrap_or("?") }
    }

    /// The bytes of the string at `i`. Only for strings: a number there would be changed in place.
    #[inline(always)]
    pub(super) fn bytes(self, i: c_int) -> &'a [u8] {
        let mut len = 0;
        unsafe {
            let start = ffi::lua_tolstring(self.state, i, &mut len);
            if start.is_null() { &[] } else { std::slice::from_raw_parts(start.cast(), len) }
        }
    }

    /// The string or number at `i` as bytes; `None` for other kinds. A number is changed into a string in place. May
    /// raise for lack of memory.
    #[inline]
    pub(super) fn text(self, i: c_int) -> Option<&'a [u8]> {
        matches!(self.kind(i), Kind::String | Kind::Number).then(|| self.bytes(i))
    }

    /// The number at `i`, or the number that a string there reads as; 0 for anything else.
    #[inline(always)]
    pub(super) fn number(self, i: c_int) -> f64 {
        unsafe { ffi::lua_tonumber(self.state, i) }
    }

    /// Whether the value at `i` is a number, or a string that reads as one.
    #[inline(always)]
    pub(super) fn is_number(self, i: c_int) -> bool {
        unsafe { ffi::lua_isnumber(self.state, i) != 0 }
    }

    #[inline(always)]
    pub(super) fn boolean(self, i: c_int) -> bool {
        unsafe { ffi::lua_toboolean(self.state, i) != 0 }
    }

    #[inline(always)]
    pub(super) fn pointer(self, i: c_int) -> *const c_void {
        unsafe { ffi::lua_topointer(self.state, i) }
    }

    /// Length of a table's array part or of a string, without metamethods.
    #[inline(always)]
    pub(super) fn raw_len(self, i: c_int) -> usize {
        unsafe { ffi::lua_objlen(self.state, i) }
    }

    #[inline(always)]
    pub(super) fn push_nil(self) {
        unsafe { ffi::lua_pushnil(self.state) }
    }

    #[inline(always)]
    pub(super) fn push_boolean(self, value: bool) {
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(value)) }
    }

    #[inline(always)]
    pub(super) fn push_number(self, value: f64) {
        unsafe { ffi::lua_pushnumber(self.state, value) }
    }

    /// Pushes a string. May raise for lack of memory.
    #[inline(always)]
    pub(super) fn push_bytes(self, bytes: &[u8]) {
        unsafe { ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len()) }
    }

    #[inline(always)]
    pub(super) fn push_light(self, pointer: *mut c_void) {
        unsafe { ffi::lua_pushlightuserdata(self.state, pointer) }
    }

    #[inline(always)]
    pub(super) fn push_value(self, i: c_int) {
        unsafe { ffi::lua_pushvalue(self.state, i) }
    }

    /// Pushes the value at `i` as text, without calling a script's metamethods. May raise for lack of memory.
    pub(super) fn push_as_text(self, i: c_int) {
        match self.kind(i) {
            Kind::String | Kind::Number => {
                self.push_value(i);
                self.text(-1);
            }
            Kind::None | Kind::Nil => self.push_bytes(b"nil"),
            Kind::Boolean => self.push_bytes(if self.boolean(i) { b"true" } else { b"false" }),
            _ => {
                let mut address = [0u8; 16];
                let mut value = self.pointer(i) as usize;
                for digit in address.iter_mut().rev() {
                    *digit = b"0123456789abcdef"[value & 15];
                    value >>= 4;
                }
                self.push_bytes(self.kind_name(i).as_bytes());
                self.push_bytes(b": 0x");
                self.push_bytes(&address);
                self.concat(3);
            }
        }
    }

    /// Pushes a C function with the topmost `n` values, which it pops, as upvalues. May raise for lack of memory.
    pub(super) fn push_closure(self, function: CFunction, n: c_int) {
        unsafe { ffi::lua_pushcclosure(self.state, function, n) }
    }

    #[inline(always)]
    pub(super) fn insert(self, i: c_int) {
        unsafe { ffi::lua_insert(self.state, i) }
    }

    #[inline(always)]
    pub(super) fn remove(self, i: c_int) {
        unsafe { ffi::lua_remove(self.state, i) }
    }

    #[inline(always)]
    pub(super) fn replace(self, i: c_int) {
        unsafe { ffi::lua_replace(self.state, i) }
    }

    /// Pushes an empty table with room for this many elements and fields. May raise for lack of memory.
    #[inline(always)]
    pub(super) fn new_table(self, elements: usize, fields: usize) {
        let clamp = |n: usize| n.min(1 << 24) as c_int;
        unsafe { ffi::lua_createtable(self.state, clamp(elements), clamp(fields)) }
    }

    /// Replaces the key on top by its value in the table at `i`, without metamethods.
    #[inline(always)]
    pub(super) fn raw_get(self, i: c_int) {
        unsafe { ffi::lua_rawget_(self.state, i) }
    }

    /// Replaces the key on top by its value in the value at `i`, with metamethods. May raise.
    pub(super) fn get(self, i: c_int) {
        unsafe { ffi::lua_gettable_(self.state, i) }
    }

    /// Pops a value and the key below it into the table at `i`, without metamethods. May raise.
    #[inline(always)]
    pub(super) fn raw_set(self, i: c_int) {
        unsafe { ffi::lua_rawset(self.state, i) }
    }

    /// Pushes element `n` of the table at `i`.
    #[inline(always)]
    pub(super) fn raw_get_at(self, i: c_int, n: c_int) {
        unsafe { ffi::lua_rawgeti_(self.state, i, n) }
    }

    /// Pops a value into element `n` of the table at `i`. May raise for lack of memory.
    #[inline(always)]
    pub(super) fn raw_set_at(self, i: c_int, n: c_int) {
        unsafe { ffi::lua_rawseti_(self.state, i, n) }
    }

    /// Pops a value into the field `name` of the table at `i` (an absolute or a pseudo-index). May raise for lack of
    /// memory.
    pub(super) fn raw_set_field(self, i: c_int, name: &[u8]) {
        self.push_bytes(name);
        self.insert(-2);
        self.raw_set(i);
    }

    /// Pushes the field `name` of the table at `i` (an absolute or a pseudo-index). May raise for lack of memory.
    pub(super) fn raw_get_field(self, i: c_int, name: &[u8]) {
        self.push_bytes(name);
        self.raw_get(i);
    }

    /// Replaces the key on top by the next key and value of the table at `i`. Returns false at the end, with nothing
    /// pushed. Raises if the key is not in the table. If nothing changes the table during a walk,
    /// [`Walk`](super::luajit::Walk) is cheaper.
    #[inline(always)]
    pub(super) fn next(self, i: c_int) -> bool {
        unsafe { ffi::lua_next(self.state, i) != 0 }
    }

    /// Pushes the metatable of the value at `i`. Returns false, with nothing pushed, if it has none.
    #[inline(always)]
    pub(super) fn push_metatable(self, i: c_int) -> bool {
        unsafe { ffi::lua_getmetatable(self.state, i) != 0 }
    }

    /// Pops a table or nil and makes it the metatable of the value at `i`.
    pub(super) fn set_metatable(self, i: c_int) {
        unsafe {
            ffi::lua_setmetatable(self.state, i);
        }
    }

    /// Pops a table and makes it the environment of the function at `i`.
    pub(super) fn set_env(self, i: c_int) {
        unsafe {
            ffi::lua_setfenv(self.state, i);
        }
    }

    /// Calls the function below its `args` arguments. Raises its errors.
    #[inline(always)]
    pub(super) fn call(self, args: c_int, results: c_int) {
        unsafe { ffi::lua_call(self.state, args, results) }
    }

    /// Calls the function below its `args` arguments and pushes all its results, or the error. `handler` is the index
    /// of the message handler, or 0. Returns Lua's status.
    pub(super) fn protected_call(self, args: c_int, handler: c_int) -> c_int {
        unsafe { ffi::lua_pcall(self.state, args, ffi::LUA_MULTRET, handler) }
    }

    /// Whether the value at `i` is a C function.
    pub(super) fn is_c_function(self, i: c_int) -> bool {
        unsafe { ffi::lua_iscfunction(self.state, i) != 0 }
    }

    /// Pushes a new coroutine, which has no function yet. May raise for lack of memory.
    pub(super) fn new_thread(self) -> Stack<'a> {
        Stack { state: unsafe { ffi::lua_newthread(self.state) }, frame: PhantomData }
    }

    /// The stack of the coroutine at `i`, which must stay alive during its use.
    pub(super) fn thread(self, i: c_int) -> Option<Stack<'a>> {
        let state = unsafe { ffi::lua_tothread(self.state, i) };
        (!state.is_null()).then_some(Stack { state, frame: PhantomData })
    }

    /// Pops the topmost `n` values and pushes them to another coroutine of the same state.
    pub(super) fn move_to(self, other: Stack<'_>, n: c_int) {
        if self.state != other.state {
            unsafe { ffi::lua_xmove(self.state, other.state, n) }
        }
    }

    /// The status of this coroutine, as seen by the running one.
    pub(super) fn progress(self, running: Stack<'_>) -> Progress {
        if self.state == running.state {
            return Progress::Running;
        }
        let has_frames = || {
            let mut record = std::mem::MaybeUninit::<ffi::lua_Debug>::zeroed();
            unsafe { ffi::lua_getstack(self.state, 0, record.as_mut_ptr()) > 0 }
        };
        match unsafe { ffi::lua_status(self.state) } {
            ffi::LUA_YIELD => Progress::Suspended,
            ffi::LUA_OK if has_frames() => Progress::Normal,
            ffi::LUA_OK if self.top() > 0 => Progress::Suspended,
            _ => Progress::Dead,
        }
    }

    /// Resumes this coroutine with its topmost `args` values. Returns true if it yielded or returned, with its results
    /// as its whole stack. Otherwise its error is on top of its stack.
    pub(super) fn resume(self, args: c_int) -> bool {
        let mut results = 0;
        let status = unsafe { ffi::lua_resume(self.state, std::ptr::null_mut(), args, &mut results) };
        matches!(status, ffi::LUA_OK | ffi::LUA_YIELD)
    }

    /// Pushes the field `name` of the value at `i` (from the top), with metamethods. Raises their errors.
    pub(super) fn get_field(self, i: c_int, name: &[u8]) {
        self.push_bytes(name);
        unsafe { ffi::lua_gettable(self.state, i - 1) };
    }

    /// Joins the topmost `n` strings or numbers. May raise.
    pub(super) fn concat(self, n: c_int) {
        unsafe { ffi::lua_concat(self.state, n) }
    }

    /// Pushes the current position of the function at `level`, as `user_script:3: `, or an empty string. May raise for
    /// lack of memory.
    pub(super) fn push_where(self, level: c_int) {
        unsafe { ffi::luaL_where(self.state, level) }
    }

    /// Raises the value on top.
    pub(super) fn raise_top(self) -> ! {
        unsafe { ffi::lua_error(self.state) }
    }

    /// Raises a message, preceded by the position in the calling script.
    #[cold]
    pub(super) fn raise(self, message: &[u8]) -> ! {
        self.push_where(1);
        self.push_bytes(message);
        self.concat(2);
        self.raise_top()
    }

    /// Raises a message given in parts, preceded by the position in the calling script.
    #[cold]
    pub(super) fn raise_parts(self, parts: &[&[u8]]) -> ! {
        self.push_where(1);
        parts.iter().for_each(|part| self.push_bytes(part));
        self.concat(parts.len() as c_int + 1);
        self.raise_top()
    }

    /// Raises `bad argument #i to 'function' (message)`.
    #[cold]
    pub(super) fn raise_argument(self, i: c_int, parts: &[&[u8]]) -> ! {
        parts.iter().for_each(|part| self.push_bytes(part));
        self.concat(parts.len() as c_int);
        let mut len = 0;
        unsafe {
            let message = ffi::lua_tolstring(self.state, -1, &mut len);
            ffi::luaL_argerror(self.state, i, message);
        }
        self.raise_top()
    }

    /// Argument `i`, which must be a string or a number. Raises otherwise.
    pub(super) fn check_bytes(self, i: c_int) -> &'a [u8] {
        let mut len = 0;
        unsafe {
            let start = ffi::luaL_checklstring(self.state, i, &mut len);
            std::slice::from_raw_parts(start.cast(), len)
        }
    }

    /// Argument `i`, which must be a number or read as one. Raises otherwise.
    pub(super) fn check_number(self, i: c_int) -> f64 {
        unsafe { ffi::luaL_checknumber(self.state, i) }
    }

    /// Argument `i` as an integer: it must be a number or read as one. The least integer if 64 bits can't hold it.
    /// Raises otherwise.
    pub(super) fn check_integer(self, i: c_int) -> i64 {
        truncate(self.check_number(i))
    }

    /// Argument `i` as a C `int`, from its low bits: it must be a number or read as one. Raises otherwise.
    pub(super) fn check_c_int(self, i: c_int) -> c_int {
        self.check_integer(i) as c_int
    }

    /// Like [`check_integer`](Self::check_integer), with a default for none and nil.
    pub(super) fn opt_integer(self, i: c_int, default: i64) -> i64 {
        match self.kind(i) {
            Kind::None | Kind::Nil => default,
            _ => self.check_integer(i),
        }
    }

    /// Like [`check_c_int`](Self::check_c_int), with a default for none and nil.
    pub(super) fn opt_c_int(self, i: c_int, default: c_int) -> c_int {
        match self.kind(i) {
            Kind::None | Kind::Nil => default,
            _ => self.check_c_int(i),
        }
    }

    /// Raises unless argument `i` is a table.
    pub(super) fn check_table(self, i: c_int) {
        unsafe { ffi::luaL_checktype(self.state, i, ffi::LUA_TTABLE) }
    }

    /// Raises unless argument `i` is a function.
    pub(super) fn check_function(self, i: c_int) {
        unsafe { ffi::luaL_checktype(self.state, i, ffi::LUA_TFUNCTION) }
    }

    /// Raises unless there is an argument `i`, which may be nil.
    pub(super) fn check_any(self, i: c_int) {
        unsafe { ffi::luaL_checkany(self.state, i) }
    }
}

/// A text up to its first NUL byte, if it has one, as C reads it.
pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(0, text).unwrap_or(text.len())]
}

/// # Safety
/// `text` must be null or a C string that outlives the result.
pub(super) unsafe fn c_bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}
