//! How a running script is interrupted and ended.
//!
//! Every few milliseconds a clock (`alarm`) makes the running script ask the engine whether it may go on. It asks at
//! its next instruction, from a hook, or in the current C function, at its next step or its end. The engine serves
//! other clients and may return [`Verdict::Kill`]. Then an error is raised, and a hook is set for every instruction: a
//! script that catches the error dies at its next instruction, in any coroutine.

use super::alarm::{self, interrupt};
use super::context::Ctx;
use super::host::Verdict;
use super::lua::{REGISTRY, Stack, ffi};

/// Defines C functions as [`native`](super::lua::native) does, for libraries: at its end, each function asks the engine
/// whether the script may go on, if that is due. So any series of calls can be ended, even where C makes the calls and
/// no hook runs.
macro_rules! library {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($stack:ident: Stack) -> c_int $body:block)*) => {
        $crate::script::lua::native! {$(
            $(#[$meta])*
            $vis fn $name($stack: Stack) -> c_int {
                #[inline(always)]
                fn body($stack: $crate::script::lua::Stack<'_>) -> std::ffi::c_int $body
                let results = body($stack);
                $stack.tick();
                results
            }
        )*}
    };
}
pub(super) use library;

/// The address under which the registry holds the context, for the hook, which has no upvalues.
pub(super) static HOOK_KEY: [u8; 1] = [0];

/// Lua calls this at the instruction after a tick of the clock or a shortage of memory, and at every instruction of a
/// script that must die.
pub(super) unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua calls this with a live state; the registry holds the context, which outlives it.
    unsafe {
        let stack = Stack::new(state);
        let ctx = hook_context(stack);
        if ctx.is_null() {
            return;
        }
        if !(*ctx).is_dying() {
            // Removed before asking: a tick or a shortage during the call sets the hook again.
            alarm::change_hook(state, None, 0, 0);
            (*ctx).memory.collect_if_due();
            if (*ctx).ask() == Verdict::Continue {
                return;
            }
        }
        kill(stack, ctx)
    }
}

/// Finds the context for a hook. Null before there is one.
#[inline]
pub(super) fn hook_context(stack: Stack<'_>) -> *mut Ctx {
    stack.push_light(HOOK_KEY.as_ptr().cast_mut().cast());
    stack.raw_get(REGISTRY);
    // SAFETY: the registry holds the context under this key, or nothing.
    let ctx = unsafe { ffi::lua_touserdata(stack.raw(), -1).cast() };
    stack.pop(1);
    ctx
}

impl Stack<'_> {
    /// To be called at each step of long work in a C function, where no hook runs: if the clock has ticked, asks the
    /// engine whether the script may go on, and raises if not.
    #[inline(always)]
    pub(super) fn tick(self) {
        if alarm::is_due() {
            ask_or_die(self);
        }
    }
}

/// Asks the engine, inside a C function, whether the script may go on, and ends it if not.
#[cold]
fn ask_or_die(stack: Stack<'_>) {
    let ctx = stack.ctx();
    // SAFETY: the context outlives the state; the engine does not come back into the VM.
    if unsafe { (*ctx).is_dying() || (*ctx).ask() != Verdict::Continue } {
        // The values pushed by the function may fill the stack.
        stack.set_top(0);
        kill(stack, ctx);
    }
}

/// Raises the error with which a killed script ends. Catching it does not help the script.
pub(super) fn kill(stack: Stack<'_>, ctx: *mut Ctx) -> ! {
    // SAFETY: the context outlives the state, which is live.
    unsafe {
        (*ctx).killed = true;
        (*ctx).memory.end();
    }
    interrupt(stack.raw());
    stack.new_table(0, 1);
    stack.push_bytes(b"err");
    // SAFETY: as above.
    stack.push_bytes(unsafe { (*ctx).last_words() });
    stack.raw_set(-3);
    stack.raise_top()
}
