//! Turns a text into a function: LuaJIT compiles it, and it gets the sandbox's globals.

use std::ffi::{CStr, c_int};

use super::lua::{Stack, c_bytes, ffi};
use super::luajit::Traits;

/// The chunk name of every script.
pub(super) const CHUNK_NAME: &CStr = c"@user_script";
/// The chunk name of every library.
pub(super) const LIBRARY_CHUNK_NAME: &CStr = c"@user_function";

/// Compiles a text as a chunk called `name` and pushes the function. Its environment is the table at `env`, or the one
/// at `guarded` if it assigns globals. On failure pushes the message and returns `None`. Bytecode is refused.
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

/// Whether the function of a record with its source (`S`) belongs to a script, not to the sandbox.
pub(super) fn is_script(record: &ffi::lua_Debug) -> bool {
    // SAFETY: the source is a Lua string that lives as long as the function.
    unsafe { c_bytes(record.source) == CHUNK_NAME.to_bytes() }
}
