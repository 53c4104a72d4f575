//! The state shared by all C functions. Each of them reaches it through its first upvalue.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::alarm::{self, Alarm};
use super::cjson::settings::Settings;
use super::debug::Debugger;
use super::failure::Failure;
use super::frame::Frame;
use super::host::{Host, LogLevel, UNDO_IS_FULL, Verdict};
use super::library::Function;
use super::list_state::ListState;
use super::lua::{CFunction, REGISTRY, Stack, ffi, upvalue};
use super::memory::Memory;
use super::names::Names;
use super::program::{Handle, Invocation, Outcome};
use super::random::Lrand48;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Span;

/// State that C functions need besides the Lua state.
pub(super) struct Ctx {
    /// The engine, while a script runs.
    pub(super) host: Option<NonNull<dyn Host>>,
    /// The current run.
    pub(super) run: Option<Run>,
    /// The state of the shared tables of KEYS and ARGV.
    pub(super) lists: [ListState; 2],
    /// The arguments of a command: their bytes, and the span of each.
    pub(super) args: Vec<u8>,
    pub(super) spans: Vec<Span>,
    /// Known names of commands, which need no look-up.
    pub(super) names: Names,
    /// The reply of the last command.
    pub(super) tape: Reply,
    /// Whether the script chose `redis.setresp(3)`.
    pub(super) resp3: bool,
    /// Scratch memory of the libraries.
    pub(super) buffer: Vec<u8>,
    pub(super) frames: Vec<Frame>,
    pub(super) random: Lrand48,
    /// The settings of the global `cjson`.
    pub(super) cjson: *mut Settings,
    pub(super) altered: Altered,
    /// The address of the C stack where the script began.
    pub(super) c_base: usize,
    /// Functions registered so far by the library being loaded.
    pub(super) loading: Option<Vec<Arc<Function>>>,
    /// Number of handles given out.
    pub(super) handles: u32,
    /// The debugger, while a script runs under it.
    pub(super) debugger: Option<NonNull<Debugger<'static>>>,
    /// The error of a script that must die, if it does not follow from the verdict.
    pub(super) own_last_words: Option<&'static str>,
    /// Sets the hook in a long run.
    pub(super) alarm: Alarm,
    /// The account of the state's memory.
    pub(super) memory: Rc<Memory>,
    /// The script must end; the verdict says why.
    pub(super) killed: bool,
    pub(super) verdict: Verdict,
    pub(super) failure: Failure,
    pub(super) outcome: Outcome,
}

/// Shared state that a script has changed. It is restored after the run.
#[derive(Default)]
pub(super) struct Altered {
    /// Whether the settings of the global `cjson` were changed.
    pub(super) cjson: bool,
    /// The generator of `math.random` as it was before `math.randomseed`.
    pub(super) random: Option<Lrand48>,
}

/// The input and output of `enter`, borrowed from the caller of `Vm::run` until that returns.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) invocation: Invocation<'static>,
    pub(super) reply: NonNull<Reply>,
}

impl Ctx {
    /// Returns a handle of the function that the registry holds under `reference`.
    pub(super) fn handle(&mut self, reference: c_int, may_keep_lists: bool) -> Handle {
        self.handles = self.handles.wrapping_add(1);
        Handle { reference, serial: self.handles, may_keep_lists }
    }

    pub(super) fn log(&mut self, level: LogLevel) {
        if let Some(mut host) = self.host {
            let message = &self.buffer;
            // SAFETY: `Vm::run` has borrowed the host and has not returned.
            unsafe { host.as_mut() }.log(level, message);
        }
    }

    pub(super) fn set_resp(&mut self, version: u8) {
        self.resp3 = version == 3;
        self.tape.set_form(if self.resp3 { Form::Tape3 } else { Form::Tape2 });
        if let Some(mut host) = self.host {
            // SAFETY: as in `log`.
            unsafe { host.as_mut() }.set_resp(version);
        }
    }

    /// Asks the engine whether the script may go on.
    pub(super) fn ask(&mut self) -> Verdict {
        alarm::note_asked();
        let Some(mut host) = self.host else { return Verdict::Continue };
        // SAFETY: as in `log`.
        self.verdict = unsafe { host.as_mut() }.interrupted();
        self.verdict
    }

    /// Whether the script must die, even if it catches errors.
    #[inline]
    pub(super) fn is_dying(&self) -> bool {
        self.killed || self.memory.is_exhausted()
    }

    /// The error reply of a script that dies.
    pub(super) fn last_words(&self) -> &'static [u8] {
        if self.memory.is_exhausted() {
            return b"ERR Script used more than script-memory-limit. Let it hold less at a time, or raise the limit by \
                     CONFIG SET";
        }
        if let Some(words) = self.own_last_words {
            return words.as_bytes();
        }
        match self.verdict {
            _ if self.loading.is_some() => b"ERR FUNCTION LOAD timeout",
            Verdict::OutOfTime => {
                b"ERR Script ran longer than script-time-limit. Split its work into several calls, or raise the limit \
                  by CONFIG SET"
            }
            Verdict::OutOfTimeInImport => {
                b"ERR Script ran longer than 30 s in an import. To let it run, set script-time-limit to more by CONFIG \
                  SET"
            }
            Verdict::UndoIsFull => UNDO_IS_FULL.as_bytes(),
            _ => b"ERR Script killed by user with SCRIPT KILL...",
        }
    }
}

impl<'a> Stack<'a> {
    /// The shared state: upvalue 1 of each of our C functions.
    #[inline(always)]
    pub(super) fn ctx(self) -> *mut Ctx {
        // SAFETY: the state is live; upvalue 1 is a light userdata in every C function of ours.
        unsafe { ffi::lua_touserdata(self.raw(), upvalue(1)).cast() }
    }

    /// The account of the state's memory.
    #[inline(always)]
    pub(super) fn memory(self) -> &'a Memory {
        // SAFETY: the context outlives the state.
        unsafe { &*Rc::as_ptr(&(*self.ctx()).memory) }
    }

    /// Pushes a C function whose only upvalue is the VM's context. May raise for lack of memory.
    pub(super) fn push_function(self, ctx: *mut Ctx, function: CFunction) {
        self.push_light(ctx.cast());
        self.push_closure(function, 1);
    }

    /// Pops a value and keeps it in the registry. Returns its reference there.
    pub(super) fn refer(self) -> c_int {
        // SAFETY: the state is live, and there is a value on top.
        self.memory().granted(|| unsafe { ffi::luaL_ref(self.raw(), REGISTRY) })
    }
}
