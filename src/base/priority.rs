//! Which threads go first where there are fewer processors than work.

/// The system's measure, from -20 to 19: the more, the longer a thread waits.
const NICENESS: libc::c_int = 10;

/// Has the calling thread, and no other, leave the processor to those that serve clients.
pub(crate) fn give_way() {
    // SAFETY: the call takes no pointers. 0 is the calling thread; where the call fails, its priority stays.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}
