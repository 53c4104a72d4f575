//! From a text to a function: LuaJIT compiles it, [`bytecode`] rewrites what it made, the sandbox gives it its globals.

use std::ffi::{CStr, c_int, c_void};

use super::bytecode::{self, Traits};
use super::lua::{Stack, c_bytes, ffi, native};
use super::raw;

/// The name of the chunk that every script is.
pub(super) const CHUNK_NAME: &CStr = c"@user_script";
/// The name of the chunk that every library is.
pub(super) const LIBRARY_CHUNK_NAME: &CStr = c"@user_function";

/// What LuaJIT skips where a text begins with it, as it does in files: a line that begins with `#`, and a byte order mark.
const SKIPPED: [&[u8]; 2] = [b"#", b"\xef\xbb\xbf"];

/// Compiles a text as a chunk of name `name` and pushes the function, whose environment is the one at `env`, or the one at
/// `guarded` if it assigns globals. Otherwise pushes the message and answers nothing. Bytecode is no text.
pub(super) fn load(stack: Stack<'_>, text: &[u8], name: &CStr, env: c_int, guarded: c_int) -> Option<Traits> {
    let ctx = stack.ctx();
    let traits;
    if text.first() == Some(&0x1b) {
        stack.push_bytes(b"unexpected symbol near '<\\27>'");
        return None;
    }
    // SAFETY: the text and the name outlive the call; the dump and its copy lie in buffers that only this function uses now.
    unsafe {
        let (dump, rewritten) = (&raw mut (*ctx).buffer, &raw mut (*ctx).args);
        let text = if SKIPPED.iter().any(|skipped| text.starts_with(skipped)) {
            (*dump).clear();
            (*dump).push(b' ');
            (*dump).extend_from_slice(text);
            &*dump
        } else {
            text
        };
        if ffi::luaL_loadbuffer(stack.raw(), text.as_ptr().cast(), text.len(), name.as_ptr()) != ffi::LUA_OK {
            return None;
        }
        (*dump).clear();
        ffi::lua_dump_(stack.raw(), write_dump, dump.cast());
        traits = match bytecode::rewrite(&*dump, &mut *rewritten) {
            Some(traits) => traits,
            None => {
                stack.push_bytes(b"unknown bytecode");
                return None;
            }
        };
        if traits.rewritten && (*ctx).rewrites {
            stack.pop(1);
            let len = (*rewritten).len();
            if ffi::luaL_loadbuffer(stack.raw(), (*rewritten).as_ptr().cast(), len, name.as_ptr()) != ffi::LUA_OK {
                return None;
            }
        }
    }
    if traits.has_cdata_literals {
        // Behind the `@` of its name.
        stack.push_bytes(name.to_bytes().get(1..).unwrap_or_default());
        stack.push_bytes(b":1: malformed number");
        stack.concat(2);
        return None;
    }
    stack.push_value(if traits.assigns_globals { guarded } else { env });
    stack.set_env(-2);
    Some(traits)
}

/// Appends a piece of a dump to the `Vec<u8>` at `out`.
unsafe extern "C-unwind" fn write_dump(
    _: *mut ffi::lua_State,
    piece: *const c_void,
    len: usize,
    out: *mut c_void,
) -> c_int {
    // SAFETY: `out` is the buffer that `lua_dump_` was given, the piece is `len` bytes of LuaJIT's.
    unsafe { (*out.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(piece.cast(), len)) };
    0
}

native! {
    /// Notes whether the built-in LuaJIT keeps values as `raw` reads them. Raises unless it compiles to the bytecode that
    /// `bytecode` knows: the sandbox depends on that.
    pub(super) fn check_luajit(stack: Stack) -> c_int {
        if !raw::is_known(stack) {
            tracing::debug!("this LuaJIT's values are unknown: scripts pass them through Lua's C interface");
            // SAFETY: the context outlives the state.
            unsafe { (*stack.ctx()).reads_raw = false };
        }
        for (source, opcodes) in bytecode::SAMPLES {
            // SAFETY: a constant chunk is loaded and dumped into a buffer of the context's.
            let known = unsafe {
                let ctx = stack.ctx();
                ffi::luaL_loadbuffer(stack.raw(), source.as_ptr().cast(), source.len(), c"=".as_ptr());
                (*ctx).buffer.clear();
                ffi::lua_dump_(stack.raw(), write_dump, (&raw mut (*ctx).buffer).cast());
                bytecode::matches(&(*ctx).buffer, opcodes)
            };
            if !known {
                stack.raise(b"this LuaJIT's bytecode is unknown");
            }
        }
        0
    }
}

/// Whether a function whose source the record tells (`S`) stands in a script, not in the sandbox.
pub(super) fn is_script(record: &ffi::lua_Debug) -> bool {
    // SAFETY: the source is a string of Lua's that lives as long as the function.
    unsafe { c_bytes(record.source) == CHUNK_NAME.to_bytes() }
}
