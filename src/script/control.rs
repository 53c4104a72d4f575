//! Calls from C back into Lua: `pcall`, `xpcall` and coroutines, as C functions like those of Lua 5.1.
//!
//! LuaJIT's own are written in assembler. They do not bound the C stack, and do not count for the levels of `error` as
//! in Lua 5.1.

use std::ffi::c_int;

use super::interrupt::{kill, library};
use super::lua::{CFunction, Kind, Progress, Stack, ffi, upvalue};
use super::room::check_c_stack;
use crate::script::limits::SCRIPT_C_STACK_BYTES;

/// Global functions.
pub(super) const GLOBALS: &[(&[u8], CFunction)] = &[(b"pcall", pcall), (b"xpcall", xpcall)];

/// Our functions of `coroutine`. The others are LuaJIT's.
pub(super) const COROUTINE: &[(&[u8], CFunction)] =
    &[(b"create", create), (b"resume", resume), (b"status", status), (b"wrap", wrap)];

library! {
    /// As in Redis: an error table with a message arrives as the message.
    fn pcall(stack: Stack) -> c_int {
        check_c_stack(stack, SCRIPT_C_STACK_BYTES);
        if stack.top() == 0 {
            // Redis calls a value that it has put there for its own use.
            stack.push_boolean(false);
            stack.push_bytes(b"attempt to call a boolean value");
            return 2;
        }
        stack.push_boolean(true);
        stack.insert(1);
        if stack.protected_call(stack.top() - 2, 0) == ffi::LUA_OK {
            return stack.top();
        }
        end_if_dying(stack);
        stack.remove(1);
        if stack.kind(-1) == Kind::Table {
            stack.get_field(-1, b"err");
            if matches!(stack.kind(-1), Kind::String | Kind::Number) {
                stack.replace(-2);
            }
        }
        stack.push_boolean(false);
        stack.insert(1);
        stack.top()
    }

    fn xpcall(stack: Stack) -> c_int {
        check_c_stack(stack, SCRIPT_C_STACK_BYTES);
        stack.check_any(2);
        stack.set_top(2);
        // Upvalues of `handle`: the context and the handler.
        stack.push_light(stack.ctx().cast());
        stack.insert(2);
        stack.push_closure(handle, 2);
        stack.insert(1);
        let status = stack.protected_call(0, 1);
        end_if_dying(stack);
        stack.push_boolean(status == ffi::LUA_OK);
        stack.replace(1);
        stack.top()
    }

    /// Calls the script's message handler. The hook is off during the call, so the handler of a script that must die is
    /// not called.
    fn handle(stack: Stack) -> c_int {
        // SAFETY: the context outlives the state.
        if unsafe { (*stack.ctx()).is_dying() } {
            return 1;
        }
        stack.push_value(upvalue(2));
        stack.insert(1);
        stack.call(stack.top() - 1, 1);
        1
    }

    fn create(stack: Stack) -> c_int {
        push_coroutine(stack);
        1
    }

    fn wrap(stack: Stack) -> c_int {
        stack.push_light(stack.ctx().cast());
        push_coroutine(stack);
        stack.push_closure(resume_wrapped, 2);
        1
    }

    fn status(stack: Stack) -> c_int {
        let coroutine = coroutine_at(stack, 1);
        stack.push_bytes(coroutine.progress(stack).name());
        1
    }

    fn resume(stack: Stack) -> c_int {
        let coroutine = coroutine_at(stack, 1);
        match go_on(stack, coroutine, stack.top() - 1) {
            Some(results) => {
                stack.push_boolean(true);
                stack.insert(-results - 1);
                results + 1
            }
            None => {
                stack.push_boolean(false);
                stack.insert(-2);
                2
            }
        }
    }

    /// The function returned by `wrap`.
    fn resume_wrapped(stack: Stack) -> c_int {
        let Some(coroutine) = stack.thread(upvalue(2)) else { return 0 };
        if let Some(results) = go_on(stack, coroutine, stack.top()) {
            return results;
        }
        if matches!(stack.kind(-1), Kind::String | Kind::Number) {
            stack.push_where(1);
            stack.insert(-2);
            stack.concat(2);
        }
        stack.raise_top()
    }
}

/// Ends a script that must die, even if it has caught the error.
fn end_if_dying(stack: Stack<'_>) {
    // SAFETY: the context outlives the state.
    if unsafe { (*stack.ctx()).is_dying() } {
        kill(stack, stack.ctx());
    }
}

/// Pushes a coroutine for the function at 1. Raises unless that function is written in Lua.
fn push_coroutine(stack: Stack<'_>) {
    if stack.kind(1) != Kind::Function || stack.is_c_function(1) {
        stack.raise_argument(1, &[b"Lua function expected"]);
    }
    let coroutine = stack.new_thread();
    stack.push_value(1);
    stack.move_to(coroutine, 1);
}

fn coroutine_at(stack: Stack<'_>, i: c_int) -> Stack<'_> {
    match stack.thread(i) {
        Some(coroutine) => coroutine,
        None => stack.raise_argument(i, &[b"coroutine expected"]),
    }
}

/// Pops the topmost `args` values and resumes a coroutine with them. Pushes the values that it yields or returns, and
/// returns their number. Returns `None`, with the error on top, if it fails.
fn go_on(stack: Stack<'_>, coroutine: Stack<'_>, args: c_int) -> Option<c_int> {
    check_c_stack(stack, SCRIPT_C_STACK_BYTES);
    if !coroutine.reserve(args) {
        stack.raise(b"too many arguments to resume");
    }
    let progress = coroutine.progress(stack);
    if progress != Progress::Suspended {
        for part in [b"cannot resume ".as_slice(), progress.name(), b" coroutine"] {
            stack.push_bytes(part);
        }
        stack.concat(3);
        return None;
    }
    stack.move_to(coroutine, args);
    if !coroutine.resume(args) {
        end_if_dying(stack);
        coroutine.move_to(stack, 1);
        return None;
    }
    let results = coroutine.top();
    if !stack.reserve(results + 1) {
        stack.raise(b"too many results to resume");
    }
    coroutine.move_to(stack, results);
    Some(results)
}
