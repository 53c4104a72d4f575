//! The failure of a script: the error and its position, as Redis words them.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use super::lua::{Kind, Stack, c_bytes, ffi, until_nul};

/// An error, as found by the message handler.
#[derive(Default)]
pub(super) struct Failure {
    pub(super) text: Vec<u8>,
    /// The chunk's name and line; empty when the error arose nowhere in a script.
    pub(super) source: Vec<u8>,
    pub(super) line: c_int,
    /// The error is the reply of a command.
    pub(super) of_command: bool,
}

impl Failure {
    /// Notes the error passed to the message handler, at index 1, and its position. Leaves a value above it.
    pub(super) fn note(&mut self, stack: Stack<'_>) {
        self.text.clear();
        self.source.clear();
        self.of_command = is_of_command(stack, 1);
        match stack.kind(1) {
            Kind::Table => {
                stack.raw_get_field(1, b"err");
                match stack.text(-1) {
                    Some(text) => self.text.extend_from_slice(until_nul(text)),
                    None => self.text.extend_from_slice(b"ERR unknown error"),
                }
            }
            _ => {
                self.text.extend_from_slice(b"ERR ");
                stack.push_as_text(1);
                self.text.extend_from_slice(until_nul(stack.bytes(-1)));
            }
        }
        locate(stack, self);
    }
}

/// Whether the value at `i` is an error reply of a command.
pub(super) fn is_of_command(stack: Stack<'_>, i: c_int) -> bool {
    if stack.kind(i) != Kind::Table {
        return false;
    }
    stack.raw_get_field(i, b"ignore_error_stats_update");
    let is = stack.boolean(-1);
    stack.pop(1);
    is
}

pub(super) fn set_text(failure: &mut Failure, text: &[u8]) {
    failure.text.clear();
    failure.text.extend_from_slice(text);
    failure.source.clear();
}

/// Notes the position of the error: in the innermost function, or in its caller if that function is written in C.
fn locate(stack: Stack<'_>, failure: &mut Failure) {
    let mut c_functions = 0;
    for level in 1.. {
        // SAFETY: the record is filled by `lua_getstack` and `lua_getinfo` before it is read; its strings are Lua's.
        unsafe {
            let mut record = MaybeUninit::<ffi::lua_Debug>::zeroed();
            if ffi::lua_getstack(stack.raw(), level, record.as_mut_ptr()) == 0
                || ffi::lua_getinfo(stack.raw(), c"Sl".as_ptr(), record.as_mut_ptr()) == 0
            {
                return;
            }
            let record = record.assume_init();
            if c_bytes(record.what) == b"C" {
                c_functions += 1;
                if c_functions == 2 {
                    return;
                }
                continue;
            }
            failure.source.clear();
            failure.source.extend_from_slice(c_bytes(record.source));
            failure.line = record.currentline;
        }
        return;
    }
}
