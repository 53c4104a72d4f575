//! The clock of running scripts: while a run lasts, the engine is asked at every [tick](SCRIPT_ALARM_TICK) whether it
//! may go on.
//!
//! A thread, the watch, reads the count of runs once a tick. If it sees the same run again, it sends a signal to the
//! engine's thread. The signal's handler ([`ring`]) does two things:
//!
//! 1. It sets a flag, [`is_due`]. Every C function that scripts can call reads the flag at its end, `redis.call`
//!    included; functions that may take long also read it on the way. So the engine is asked between any two calls,
//!    even where C calls C and no Lua instruction runs in between, as in `table.sort(t, redis.call)`.
//! 2. It sets a hook, which LuaJIT calls at the script's next instruction. The hook removes itself, then asks. While a
//!    hook is set, LuaJIT's interpreter checks it at every instruction, which makes a loop take half as long again; so
//!    none is set while a script simply runs. LuaJIT's own program stops a script at Ctrl-C in this way, too: a signal
//!    handler may call `lua_sethook` on its own thread.
//!
//! A run that spends long inside one of LuaJIT's own functions is checked at the next instruction, after that function.
//!
//! **When hook and handler meet.** The signal may arrive while the engine's thread itself changes the hook. The engine
//! does that only through [`change_hook`], during which the handler sets no hook. LuaJIT, too, changes its record of
//! the hook when it calls one, and may overwrite the handler's change. The next signal, a tick later, sets the
//! hook again.
//!
//! **The signal** is SIGURG, which is ignored by default. It interrupts system calls. The system restarts reads and
//! writes without a timeout (`SA_RESTART`); code that polls or has a timeout must go on after `EINTR` until its own
//! deadline, as MIGRATE and the debugger do.
//!
//! **Waking the watch.** While no script runs, the watch reads the count only once per [`SCRIPT_ALARM_IDLE_TICK`], and
//! asks the next run to wake it. Both sides use relaxed loads and stores, so that a run pays for no fence. The engine
//! counts its run, then reads whether the watch is asleep; the watch notes that it is asleep, then reads the count. A
//! processor may let each side read the old value, and then the watch is not woken. That is rare and costs at most one
//! idle tick: stores become visible to other threads in finite time, and the watch, which never sleeps without a
//! timeout, then sees the run.

use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::lua::ffi;
use crate::script::limits::{SCRIPT_ALARM_IDLE_AFTER_TICKS, SCRIPT_ALARM_IDLE_TICK, SCRIPT_ALARM_TICK};

thread_local! {
    /// The state that runs on this thread, for the signal's handler. It needs neither initialization nor drop: a read
    /// is one load.
    static RUNNING: AtomicPtr<ffi::lua_State> = const { AtomicPtr::new(null_mut()) };
    /// The hook that asks: the one that was given to this thread's [`Alarm`].
    static HOOK: Cell<Option<ffi::lua_Hook>> = const { Cell::new(None) };
    /// The engine is due to be asked whether the script on this thread may go on.
    static IS_DUE: AtomicBool = const { AtomicBool::new(false) };
}

/// Whether the engine is due to be asked about the running script. One load: cheap enough for any loop.
#[inline(always)]
pub(super) fn is_due() -> bool {
    IS_DUE.with(|is_due| is_due.load(Ordering::Relaxed))
}

/// Makes the engine due to be asked, as soon as possible.
pub(super) fn note_due() {
    IS_DUE.with(|is_due| is_due.store(true, Ordering::Relaxed));
}

/// Notes that the engine is being asked, or that a script begins.
#[inline]
pub(super) fn note_asked() {
    IS_DUE.with(|is_due| is_due.store(false, Ordering::Relaxed));
    #[cfg(test)]
    tests::ring_if_always();
}

/// Changes LuaJIT's hook, and keeps the signal's handler from changing it at the same time.
///
/// # Safety
/// The state must be live, and this thread's.
pub(super) unsafe fn change_hook(state: *mut ffi::lua_State, hook: Option<ffi::lua_Hook>, mask: c_int, count: c_int) {
    RUNNING.with(|running| {
        let before = running.load(Ordering::Relaxed);
        running.store(null_mut(), Ordering::Relaxed);
        // The handler runs on this thread, so program order is enough.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the caller's promise; setting the hook raises nothing.
        unsafe { ffi::lua_sethook(state, hook, mask, count) };
        compiler_fence(Ordering::SeqCst);
        running.store(before, Ordering::Relaxed);
    });
}

/// Makes LuaJIT call the hook at the next instruction and at each one after it. May be called inside an allocation.
pub(super) fn interrupt(state: *mut ffi::lua_State) {
    // SAFETY: the state is live, because it runs or allocates.
    unsafe {
        // A hook of the debugger stays in place.
        let hook = ffi::lua_gethook(state).or(HOOK.get());
        change_hook(state, hook, ffi::lua_gethookmask(state) | ffi::LUA_MASKCOUNT, 1);
    }
}

/// The alarm of one Lua state, on the thread that runs it.
pub(super) struct Alarm {
    runs: Arc<Runs>,
    watch: Option<JoinHandle<()>>,
}

/// State shared by the engine's thread and the watch.
#[derive(Default)]
struct Runs {
    /// Counts beginnings and ends of runs: odd during a run. Written by the engine's thread only.
    turns: AtomicU64,
    /// The next run must wake the watch.
    is_asleep: AtomicBool,
    is_closing: AtomicBool,
}

impl Alarm {
    /// Returns the alarm of a state that this thread runs. `hook` asks the engine; a thread has one such hook.
    pub(super) fn new(hook: ffi::lua_Hook) -> io::Result<Alarm> {
        HOOK.set(Some(hook));
        static IS_HANDLED: Mutex<bool> = Mutex::new(false);
        let mut is_handled = IS_HANDLED.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_handled {
            // SAFETY: the handler does only things that a signal handler may do: see `ring`.
            unsafe { signal_hook::low_level::register(libc::SIGURG, ring)? };
            *is_handled = true;
        }
        drop(is_handled);
        let_through(libc::SIGURG)?;
        let runs = Arc::<Runs>::default();
        // SAFETY: `pthread_self` has no preconditions.
        let engine = unsafe { libc::pthread_self() };
        let watched = runs.clone();
        let watch =
            thread::Builder::new().name("script-alarm".to_owned()).spawn(move || watched.watch(|| signal(engine)))?;
        Ok(Alarm { runs, watch: Some(watch) })
    }

    /// Notes that a run of `state` begins.
    #[inline]
    pub(super) fn begin(&self, state: *mut ffi::lua_State) {
        note_asked();
        RUNNING.with(|running| running.store(state, Ordering::Relaxed));
        self.runs.turn();
        // Without a fence: see the module's header.
        if self.runs.is_asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Notes that the run is over. From here on no hook is set.
    #[inline]
    pub(super) fn end(&self) {
        let state = RUNNING.with(|running| {
            let state = running.load(Ordering::Relaxed);
            running.store(null_mut(), Ordering::Relaxed);
            state
        });
        self.runs.turn();
        // The handler runs on this thread: it either ran before the state was removed, or finds none.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: a run begins and ends with a live state.
        unsafe {
            // The mask can't be tested, since LuaJIT may have overwritten it: see the module's header.
            if ffi::lua_gethook(state).is_some() {
                ffi::lua_sethook(state, None, 0, 0);
            }
        }
    }

    #[cold]
    fn wake(&self) {
        self.runs.is_asleep.store(false, Ordering::Relaxed);
        if let Some(watch) = &self.watch {
            watch.thread().unpark();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.runs.is_closing.store(true, Ordering::Relaxed);
        self.wake();
        // Waits, so that no signal is sent to a thread that may be gone.
        self.watch.take().map(JoinHandle::join);
    }
}

impl Runs {
    #[inline]
    fn turn(&self) {
        // There is one writer, so the addition need not be atomic.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The watch: calls `ring` once a tick while one run lasts.
    fn watch(&self, ring: impl Fn()) {
        let (mut seen, mut idle_ticks) = (0, 0);
        while !self.is_closing.load(Ordering::Relaxed) {
            let is_asleep = self.is_asleep.load(Ordering::Relaxed);
            thread::park_timeout(if is_asleep { SCRIPT_ALARM_IDLE_TICK } else { SCRIPT_ALARM_TICK });
            let turns = self.turns.load(Ordering::Relaxed);
            let is_under_way = turns % 2 == 1;
            if turns != seen {
                self.is_asleep.store(false, Ordering::Relaxed);
                (seen, idle_ticks) = (turns, 0);
            } else if is_under_way {
                ring();
            } else {
                idle_ticks = (idle_ticks + 1).min(SCRIPT_ALARM_IDLE_AFTER_TICKS);
                self.is_asleep.store(idle_ticks == SCRIPT_ALARM_IDLE_AFTER_TICKS, Ordering::Relaxed);
            }
        }
    }
}

/// Unblocks a signal on this thread: the parent process may have blocked it.
fn let_through(signal: libc::c_int) -> io::Result<()> {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: the set is emptied before it is used.
    let error = unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, signals.as_ptr(), null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Sends the signal to the engine's thread, which joins the watch before it ends.
fn signal(engine: libc::pthread_t) {
    // SAFETY: the thread is alive, see above.
    unsafe { libc::pthread_kill(engine, libc::SIGURG) };
}

/// The signal's handler: sets the flag, and the hook of the state that runs on this thread, if there is one. Allocates
/// and locks nothing. An existing hook, of the debugger or of a script that must die, stays: it asks the engine, too.
fn ring() {
    #[cfg(test)]
    if tests::is_silent() {
        return;
    }
    note_due();
    let state = RUNNING.with(|running| running.load(Ordering::Relaxed));
    // SAFETY: a running state is live, and on this thread.
    unsafe {
        if !state.is_null() && ffi::lua_gethookmask(state) == 0 {
            ffi::lua_sethook(state, HOOK.get(), ffi::LUA_MASKCOUNT, 1);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    thread_local! {
        static ALWAYS: Cell<bool> = const { Cell::new(false) };
        static SILENT: Cell<bool> = const { Cell::new(false) };
        static HOOKED: Cell<bool> = const { Cell::new(false) };
    }

    /// Stops the clock on this thread during `run`, whose results must not depend on its duration.
    pub(crate) fn without_alarm<A>(run: impl FnOnce() -> A) -> A {
        SILENT.set(true);
        let answer = run();
        SILENT.set(false);
        answer
    }

    pub(super) fn is_silent() -> bool {
        SILENT.get()
    }

    /// Makes the clock tick now.
    pub(in super::super) fn ring_now() {
        note_due();
    }

    /// During `run`, makes the clock tick each time a script on this thread has been asked: every check of the clock
    /// asks.
    pub(in super::super) fn ring_always<A>(run: impl FnOnce() -> A) -> A {
        ALWAYS.set(true);
        let answer = run();
        ALWAYS.set(false);
        answer
    }

    /// As [`ring_always`], with the hook set for the next instruction, too.
    pub(in super::super) fn hook_always<A>(run: impl FnOnce() -> A) -> A {
        HOOKED.set(true);
        let answer = run();
        HOOKED.set(false);
        answer
    }

    pub(super) fn ring_if_always() {
        if ALWAYS.get() {
            ring_now();
        }
        if HOOKED.get() {
            ring();
        }
    }

    /// Starts a watch. Returns its thread and its rings.
    fn watched(runs: &Arc<Runs>) -> (JoinHandle<()>, Receiver<()>) {
        let (rung, rings) = channel();
        let runs = runs.clone();
        // A receiver that is gone has seen enough.
        (thread::spawn(move || runs.watch(|| rung.send(()).unwrap_or(()))), rings)
    }

    fn wait_until_asleep(runs: &Runs) {
        while !runs.is_asleep.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }

    fn close(runs: &Runs, watch: JoinHandle<()>) {
        runs.is_closing.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        watch.join().expect("the watch ends");
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn the_alarm_rings_until_a_run_ends() {
        let runs = Arc::<Runs>::default();
        let (watch, rings) = watched(&runs);
        for _ in 0..3 {
            runs.turn();
            runs.is_asleep.store(false, Ordering::Relaxed);
            watch.thread().unpark();
            for _ in 0..10 {
                rings.recv_timeout(PATIENCE).expect("a ring");
            }
            runs.turn();
            wait_until_asleep(&runs);
            rings.try_iter().for_each(drop);
            thread::sleep(SCRIPT_ALARM_TICK * 3);
            assert!(rings.try_recv().is_err(), "nothing runs");
        }
        close(&runs, watch);
    }

    #[test]
    fn the_alarm_rings_for_a_run_that_did_not_wake_the_watch() {
        let runs = Arc::<Runs>::default();
        let (watch, rings) = watched(&runs);
        wait_until_asleep(&runs);
        // As if the engine had read the old value of `is_asleep`.
        runs.turn();
        rings.recv_timeout(PATIENCE).expect("a ring");
        close(&runs, watch);
    }

    #[test]
    fn blocked_signals_are_delivered() {
        let mut signals = MaybeUninit::uninit();
        // SAFETY: the set is emptied before it is used.
        unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            libc::sigaddset(signals.as_mut_ptr(), libc::SIGURG);
            libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), null_mut());
        }
        gets_its_hook();
    }

    #[test]
    fn a_run_that_is_long_gets_a_hook_until_it_ends() {
        gets_its_hook();
    }

    unsafe extern "C-unwind" fn ask_nobody(_: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {}

    fn gets_its_hook() {
        let alarm = Alarm::new(ask_nobody).expect("a thread");
        let lua = mlua::Lua::new();
        // SAFETY: nothing in the closure raises.
        let done = unsafe {
            lua.exec_raw::<()>((), |state| {
                for _ in 0..3 {
                    alarm.begin(state);
                    let begun = Instant::now();
                    while ffi::lua_gethookmask(state) == 0 {
                        assert!(begun.elapsed() < Duration::from_secs(60), "no signal comes");
                        thread::sleep(Duration::from_millis(1));
                    }
                    alarm.end();
                    assert_eq!(ffi::lua_gethookmask(state), 0);
                }
            })
        };
        done.expect("nothing raises");
    }
}
