//! From a text to a function: LuaJIT compiles it, the sandbox gives it its globals.

use std::ffi::{CStr, c_int};

use super::lua::{Stack, c_bytes, ffi};
use super::luajit::Traits;

/// The name of the chunk that every script is.
pub(super) const CHUNK_NAME: &CStr = c"@user_script";
/// The name of the chunk that every library is.
pub(super) const LIBRARY_CHUNK_NAME: &CStr = c"@user_function";

/// Compiles a text as a chunk of name `name` and pushes the function, whose environment is the one at `env`, or the one at
/// `guarded` if it assigns globals. Otherwise pushes the message and answers nothing. Bytecode is no text.
pub(super) fn load(stack: Stack<'_>, text: &[u8], name: &CStr, env: c_int, guarded: c_int) -> Option<Traits> {
    if text.first() == Some(&0x1b) {
        stack.push_bytes(b"unexpected symbol near '<\\27>'");
        return None;
    }
    // SAFETY: the text and the name outlive the call.
    let status = unsafe { ffi::luaL_loadbuffer(stack.raw(), text.as_ptr().cast(), text.len(), name.as_ptr()) };
    if status != ffi::LUA_OK {
        return None;
    }
    let traits = Traits::of_last_chunk(stack);
    stack.push_value(if traits.assigns_globals() { guarded } else { env });
    stack.set_env(-2);
    Some(traits)
}

/// Whether a function whose source the record tells (`S`) stands in a script, not in the sandbox.
pub(super) fn is_script(record: &ffi::lua_Debug) -> bool {
    // SAFETY: the source is a string of Lua's that lives as long as the function.
    unsafe { c_bytes(record.source) == CHUNK_NAME.to_bytes() }
}
