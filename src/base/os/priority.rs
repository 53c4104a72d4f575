//! Which threads go first where there are fewer processors than work.

/// By how much a thread that gives way is nicer than it was: the system gives it a tenth of what it gives others.
#[cfg(target_os = "linux")]
const NICER: libc::c_int = 10;

/// Has the calling thread leave the processor to those that serve clients. Only on Linux, where threads have priorities of their own:
/// elsewhere the whole process would give way.
pub(crate) fn give_way() {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes no pointers. Where it fails, the priority stays.
    unsafe {
        libc::nice(NICER);
    }
}

/// Has the calling thread take next to nothing of a processor that other threads want: for work that nobody waits for, and that goes on for
/// milliseconds once it has begun. Only on Linux.
pub(crate) fn run_when_idle() {
    #[cfg(target_os = "linux")]
    // SAFETY: the struct outlives the call.
    unsafe {
        let none = libc::sched_param { sched_priority: 0 };
        if libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) == 0 {
            // A new thread has the processor already, and would keep it until the scheduler looks again.
            libc::sched_yield();
        } else {
            give_way();
        }
    }
}

/// How nice the calling thread is: from -20 to 19, more is less of the processor.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn niceness() -> libc::c_int {
    // SAFETY: the call takes no pointers; 0 stands for the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it has no call for that")]
    fn a_thread_that_runs_when_idle_is_the_least_of_all() {
        let policy_and_niceness = || {
            run_when_idle();
            // SAFETY: the call takes no pointers; 0 stands for the calling thread.
            (unsafe { libc::sched_getscheduler(0) }, niceness())
        };
        let (policy, niceness) = std::thread::spawn(policy_and_niceness).join().expect("it does not panic");
        // A system may forbid the one, but hardly the other.
        assert!(policy == libc::SCHED_IDLE || niceness == NICER, "policy {policy}, nice {niceness}");
    }
}
