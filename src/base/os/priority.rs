//! Priorities of threads, for times with more work than processors.

/// Niceness added to a thread that gives way: the system then gives it a tenth of the time of other threads.
#[cfg(target_os = "linux")]
const NICER: libc::c_int = 10;

/// Makes the calling thread leave the processor to threads that serve clients. Only on Linux, where threads have
/// priorities of their own: elsewhere the whole process would give way.
pub(crate) fn give_way() {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes no pointers. If it fails, the priority stays.
    unsafe {
        libc::nice(NICER);
    }
}

/// Makes the calling thread take next to nothing of a processor that other threads want. For work that can wait, and
/// that goes on for milliseconds once it has begun. Only on Linux.
pub(crate) fn run_when_idle() {
    #[cfg(target_os = "linux")]
    // SAFETY: the struct outlives the call.
    unsafe {
        let none = libc::sched_param { sched_priority: 0 };
        if libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) == 0 {
            // A new thread already has the processor, and would keep it until the scheduler looks again.
            libc::sched_yield();
        } else {
            give_way();
        }
    }
}

/// Returns the niceness of the calling thread, from -20 to 19. A nicer thread gets less of the processor.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn niceness() -> libc::c_int {
    // SAFETY: the call takes no pointers; 0 stands for the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri lacks this call")]
    fn an_idle_thread_has_the_lowest_priority() {
        let policy_and_niceness = || {
            run_when_idle();
            // SAFETY: the call takes no pointers; 0 stands for the calling thread.
            (unsafe { libc::sched_getscheduler(0) }, niceness())
        };
        let (policy, niceness) = std::thread::spawn(policy_and_niceness).join().expect("it does not panic");
        // A system may forbid the idle policy, but hardly the niceness.
        assert!(policy == libc::SCHED_IDLE || niceness == NICER, "policy {policy}, nice {niceness}");
    }
}
