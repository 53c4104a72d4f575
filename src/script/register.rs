//! `redis.register_function`, for libraries that are being loaded.
//!
//! While it is loaded, a library has no other globals than the `redis` table; it gets the rest afterwards (`sandbox`).
//! Its functions gather in the context. `Vm::load_library` takes them from there, or drops them if loading fails.

use std::ffi::c_int;
use std::sync::Arc;

use super::context::Ctx;
use super::convert;
use super::interrupt::library;
use super::library::{BAD_NAME, Function, check_name};
use super::lua::{Kind, Stack};
use super::program::Passing;
use super::redis::raise_error;
use super::store::ScriptFlags;

/// Puts `redis.register_function` into the table on top.
pub(super) fn add_to(stack: Stack<'_>, ctx: *mut Ctx) {
    let table = stack.top();
    convert::push_names(stack, ctx);
    stack.push_closure(register_function, convert::UPVALUES);
    stack.raw_set_field(table, b"register_function");
}

/// The parts of a registration. Numbers are stack indices, 0 for a missing part.
#[derive(Clone, Copy, Default)]
struct Parts {
    name: c_int,
    callback: c_int,
    description: c_int,
    flags: ScriptFlags,
}

library! {
    fn register_function(stack: Stack) -> c_int {
        let parts = match stack.top() {
            1 if stack.kind(1) == Kind::Table => named_parts(stack),
            1 => raise_error(
                stack,
                b"ERR calling redis.register_function with a single argument is only applicable to Lua table \
                  (representing named arguments).",
            ),
            2 => positional_parts(stack),
            _ => raise_error(stack, b"ERR wrong number of arguments to redis.register_function"),
        };
        // SAFETY: the context outlives the state, and nothing else uses it now.
        let is_loading = unsafe { (*stack.ctx()).loading.is_some() };
        if !is_loading {
            raise_error(stack, b"ERR redis.register_function can only be called on FUNCTION LOAD command");
        }
        let Some(name) = check_name(stack.bytes(parts.name)) else {
            raise_error(stack, BAD_NAME.as_bytes());
        };
        if is_registered(stack, name) {
            raise_error(stack, b"ERR Function already exists in the library");
        }
        stack.push_value(parts.callback);
        let reference = stack.refer();
        // SAFETY: the context outlives the state, and nothing else uses it here.
        let handle = unsafe { (*stack.ctx()).handle(reference, true) };
        let description = (parts.description != 0).then(|| stack.bytes(parts.description).into());
        let (name, flags) = (name.into(), parts.flags);
        let function = Function { name, description, flags, handle, passing: Passing::Arguments };
        // SAFETY: as above.
        if let Some(functions) = unsafe { &mut (*stack.ctx()).loading } {
            functions.push(Arc::new(function));
        }
        0
    }
}

fn is_registered(stack: Stack<'_>, name: &str) -> bool {
    // SAFETY: the context outlives the state, and nothing changes it during this call.
    let functions = unsafe { &(*stack.ctx()).loading };
    functions.iter().flatten().any(|function| function.name.eq_ignore_ascii_case(name))
}

/// `register_function(name, callback)`.
fn positional_parts(stack: Stack<'_>) -> Parts {
    if stack.text(1).is_none() {
        raise_error(stack, b"ERR first argument to redis.register_function must be a string");
    }
    if stack.kind(2) != Kind::Function {
        raise_error(stack, b"ERR second argument to redis.register_function must be a function");
    }
    Parts { name: 1, callback: 2, flags: ScriptFlags { declared: true, ..ScriptFlags::default() }, ..Parts::default() }
}

/// `register_function{function_name=..., callback=..., description=..., flags=...}`. Leaves the values on the stack.
fn named_parts(stack: Stack<'_>) -> Parts {
    // Slots for name, callback and description. Above them are the key and value of the current field.
    stack.set_top(4);
    let mut parts = Parts { flags: ScriptFlags { declared: true, ..ScriptFlags::default() }, ..Parts::default() };
    stack.push_nil();
    while stack.next(1) {
        if stack.kind(5) != Kind::String {
            // A number reads as a string, but is not the name of an argument.
            let error: &[u8] = match stack.kind(5) {
                Kind::Number => b"ERR unknown argument given to redis.register_function",
                _ => b"ERR named argument key given to redis.register_function is not a string",
            };
            raise_error(stack, error);
        }
        let key = stack.bytes(5);
        if key.eq_ignore_ascii_case(b"function_name") {
            if stack.text(6).is_none() {
                raise_error(stack, b"ERR function_name argument given to redis.register_function must be a string");
            }
            stack.push_value(6);
            stack.replace(2);
            parts.name = 2;
        } else if key.eq_ignore_ascii_case(b"description") {
            if stack.text(6).is_none() {
                raise_error(stack, b"ERR description argument given to redis.register_function must be a string");
            }
            stack.push_value(6);
            stack.replace(3);
            parts.description = 3;
        } else if key.eq_ignore_ascii_case(b"callback") {
            if stack.kind(6) != Kind::Function {
                raise_error(stack, b"ERR callback argument given to redis.register_function must be a function");
            }
            stack.push_value(6);
            stack.replace(4);
            parts.callback = 4;
        } else if key.eq_ignore_ascii_case(b"flags") {
            parts.flags = read_flags(stack, 6);
        } else {
            raise_error(stack, b"ERR unknown argument given to redis.register_function");
        }
        stack.set_top(5);
    }
    if parts.name == 0 {
        raise_error(stack, b"ERR redis.register_function must get a function name argument");
    }
    if parts.callback == 0 {
        raise_error(stack, b"ERR redis.register_function must get a callback argument");
    }
    parts
}

/// Reads the flags in the list at `i`, which ends at its first nil.
fn read_flags(stack: Stack<'_>, i: c_int) -> ScriptFlags {
    if stack.kind(i) != Kind::Table {
        raise_error(
            stack,
            b"ERR flags argument to redis.register_function must be a table representing function flags",
        );
    }
    let mut flags = ScriptFlags { declared: true, ..ScriptFlags::default() };
    for n in 1.. {
        stack.raw_get_at(i, n);
        match stack.kind(-1) {
            Kind::Nil => break,
            // In any case, unlike flags in a script's first line.
            Kind::String if flags.set_in_any_case(stack.bytes(-1)) => stack.pop(1),
            _ => raise_error(stack, b"ERR unknown flag given"),
        }
    }
    flags
}
