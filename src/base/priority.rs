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

/// Has the calling thread run only when no other wants the processor, or nearly so: for work that nobody waits for, and of which a moment
/// may be long. Only on Linux.
pub(crate) fn run_when_idle() {
    #[cfg(target_os = "linux")]
    // SAFETY: the struct outlives the call; where it fails, the priority stays.
    unsafe {
        let none = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none);
        // A thread has the processor when it begins: it would keep it until the system looks again.
        libc::sched_yield();
    }
}

/// How nice the calling thread is: from -20 to 19, more is less of the processor.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn niceness() -> libc::c_int {
    // SAFETY: the call takes no pointers; 0 stands for the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}
