//! Makes the hook come to scripts that run for long, and to no others.
//!
//! While a hook is set, LuaJIT's interpreter goes through it with every instruction, which makes a loop take half as long
//! again. So no hook is set when a script begins. A thread looks at the count of runs once a [tick](SCRIPT_ALARM_TICK): when it
//! sees one run twice it sends the engine's thread a signal, whose handler sets the hook. The run's end takes it away. This is
//! how LuaJIT's own program stops a script at Ctrl-C: its `lua_sethook` may be called by a signal handler of the same thread.
//!
//! The signal is SIGURG, which nobody minds who does not wait for it. It comes [`RINGS`] times for one run, for LuaJIT may
//! overwrite what the first has set, and no more, for a signal interrupts whatever system call the script is in. While no
//! scripts run, the thread sleeps for good.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::lua::ffi;
use super::vm::set_hook;
use crate::base::limits::{SCRIPT_ALARM_IDLE_TICKS, SCRIPT_ALARM_TICK};

thread_local! {
    /// The state that runs on this thread, for the signal's handler. Nothing to initialize or drop: reading it is one load.
    static RUNNING: AtomicPtr<ffi::lua_State> = const { AtomicPtr::new(null_mut()) };
}

/// How often a run is signalled.
const RINGS: u32 = 3;

/// The alarm of one Lua state, on the thread that runs it.
pub(super) struct Alarm {
    runs: Arc<Runs>,
    watch: Option<JoinHandle<()>>,
}

/// What the engine's thread and the watch know of each other.
#[derive(Default)]
struct Runs {
    /// How many runs have begun, and how many have ended: odd while one is under way. Written by the engine's thread only.
    turns: AtomicU64,
    /// The watch must be woken when a run begins.
    is_asleep: AtomicBool,
    is_closing: AtomicBool,
}

impl Alarm {
    /// The alarm of a state that this thread runs.
    pub(super) fn new() -> io::Result<Alarm> {
        static IS_HANDLED: Mutex<bool> = Mutex::new(false);
        let mut is_handled = IS_HANDLED.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_handled {
            // SAFETY: the handler only does what a signal handler may: see `ring`.
            unsafe { signal_hook::low_level::register(libc::SIGURG, ring)? };
            *is_handled = true;
        }
        drop(is_handled);
        let_through(libc::SIGURG)?;
        let runs = Arc::<Runs>::default();
        // SAFETY: asking for one's own thread has no conditions.
        let engine = unsafe { libc::pthread_self() };
        let watched = runs.clone();
        let watch =
            thread::Builder::new().name("script-alarm".to_owned()).spawn(move || watched.watch(|| signal(engine)))?;
        Ok(Alarm { runs, watch: Some(watch) })
    }

    /// A run of `state` begins.
    #[inline]
    pub(super) fn begin(&self, state: *mut ffi::lua_State) {
        RUNNING.with(|running| running.store(state, Ordering::Relaxed));
        self.runs.turn();
        // The watch relies on this order, see there.
        compiler_fence(Ordering::SeqCst);
        if self.runs.is_asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// The run is over. From here on no hook is set.
    #[inline]
    pub(super) fn end(&self) {
        let state = RUNNING.with(|running| {
            let state = running.load(Ordering::Relaxed);
            running.store(null_mut(), Ordering::Relaxed);
            state
        });
        self.runs.turn();
        // The handler runs on this thread: either it came before the state was taken away, or it finds none.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: a run begins and ends with a live state.
        unsafe {
            if ffi::lua_gethookmask(state) != 0 {
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
        // Nothing signals a thread that may be gone.
        self.watch.take().map(JoinHandle::join);
    }
}

impl Runs {
    #[inline]
    fn turn(&self) {
        // One writer: no need for a locked addition.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Calls `ring` a few times for each run that it sees twice.
    fn watch(&self, ring: impl Fn()) {
        let (mut seen, mut rings, mut idle_ticks) = (0, 0, 0);
        while !self.is_closing.load(Ordering::Relaxed) {
            thread::park_timeout(SCRIPT_ALARM_TICK);
            let turns = self.turns.load(Ordering::Relaxed);
            let is_under_way = turns % 2 == 1;
            if turns != seen {
                self.is_asleep.store(false, Ordering::Relaxed);
                (seen, rings, idle_ticks) = (turns, 0, 0);
            } else if is_under_way {
                if rings < RINGS {
                    rings += 1;
                    ring();
                }
            } else if self.is_asleep.load(Ordering::Relaxed) {
                // A whole tick ago the engine was told to wake this thread: a run whose begin did not see that would have
                // been seen here by now. So the engine needs no fence.
                while self.is_asleep.load(Ordering::Relaxed) && !self.is_closing.load(Ordering::Relaxed) {
                    thread::park();
                }
                idle_ticks = 0;
            } else {
                idle_ticks += 1;
                self.is_asleep.store(idle_ticks == SCRIPT_ALARM_IDLE_TICKS, Ordering::Relaxed);
            }
        }
    }
}

/// Sees to it that a signal reaches this thread: who started the program may have had it blocked.
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

/// Signals the engine's thread, which joins the watch before it ends.
fn signal(engine: libc::pthread_t) {
    // SAFETY: the thread is alive, see above.
    unsafe { libc::pthread_kill(engine, libc::SIGURG) };
}

/// The signal's handler: sets the hook of the state that runs on this thread, if one does. Allocates and locks nothing. A hook
/// that is there, the debugger's or that of a script which is to die, stays: it asks the engine, too.
fn ring() {
    let state = RUNNING.with(|running| running.load(Ordering::Relaxed));
    // SAFETY: a state that runs is live, and on this thread.
    unsafe {
        if !state.is_null() && ffi::lua_gethookmask(state) == 0 {
            set_hook(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    #[test]
    fn rings_a_few_times_for_a_run_that_goes_on() {
        let runs = Arc::<Runs>::default();
        let (rung, rings) = channel();
        let watched = runs.clone();
        let watch = thread::spawn(move || watched.watch(|| rung.send(()).expect("the test listens")));
        for _ in 0..3 {
            runs.turn();
            runs.is_asleep.store(false, Ordering::Relaxed);
            watch.thread().unpark();
            for _ in 0..RINGS {
                rings.recv_timeout(Duration::from_secs(60)).expect("a ring");
            }
            thread::sleep(SCRIPT_ALARM_TICK * 5);
            assert!(rings.try_recv().is_err(), "no more than that");
            runs.turn();
            while !runs.is_asleep.load(Ordering::Relaxed) {
                thread::sleep(SCRIPT_ALARM_TICK);
            }
            assert!(rings.try_recv().is_err(), "nothing runs");
        }
        runs.is_closing.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        watch.join().expect("the watch ends");
    }

    #[test]
    fn signals_that_were_blocked_come_through() {
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

    fn gets_its_hook() {
        let alarm = Alarm::new().expect("a thread");
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
