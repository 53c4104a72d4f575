//! How a script that runs is interrupted and ended.
//!
//! Every few milliseconds a clock (`alarm`) has the script that runs ask the engine whether it may go on: at its next
//! instruction, from a hook, or at the next step or end of the C function that it is in. The engine serves other clients and
//! may say [`Verdict::Kill`]. Then an error is raised, and a hook is set that fires at each instruction, so that a script that
//! catches the error dies at its next step, in whatever coroutine.

use super::alarm::{self, interrupt};
use super::context::Ctx;
use super::host::Verdict;
use super::lua::{REGISTRY, Stack, ffi};

/// Defines C functions as [`native`](super::lua::native) does, for libraries: when the function is done, the script is asked
/// whether it may go on, if that is due. So every run of calls can be ended, even where C calls them and no hook comes.
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

/// Lua calls this at the instruction after a tick of the clock, or after memory has run short, and at each one once the script
/// is to die.
pub(super) unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua calls this with a live state; the registry holds the context, which outlives it.
    unsafe {
        let stack = Stack::new(state);
        let ctx = hook_context(stack);
        if ctx.is_null() {
            return;
        }
        if !(*ctx).is_dying() {
            // Before it asks: what comes meanwhile sets it again.
            alarm::change_hook(state, None, 0, 0);
            (*ctx).memory.collect_if_due();
            if (*ctx).ask() == Verdict::Continue {
                return;
            }
        }
        kill(stack, ctx)
    }
}

/// The context, as a hook finds it; null before there is one.
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
    /// One step of something long in a C function, where no hook comes: if the clock has ticked, asks the engine whether the
    /// script may go on, and raises if not.
    #[inline(always)]
    pub(super) fn tick(self) {
        if alarm::is_due() {
            ask_or_die(self);
        }
    }
}

/// Asks the engine, from inside a C function, whether the script may go on, and ends it if not.
#[cold]
fn ask_or_die(stack: Stack<'_>) {
    let ctx = stack.ctx();
    // SAFETY: the context outlives the state; the engine does not come back into the VM.
    if unsafe { (*ctx).is_dying() || (*ctx).ask() != Verdict::Continue } {
        // What the function has pushed may fill the stack.
        stack.set_top(0);
        kill(stack, ctx);
    }
}

/// Raises the error that a killed script ends with, and sees to it that catching it is of no use.
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
