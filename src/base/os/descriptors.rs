//! The number of descriptors that the system lets this process open, which limits the number of clients.

use crate::base::limits::DESCRIPTORS_RESERVED;

/// Raises the limit of open files, if necessary, to the number needed for `clients` sockets and the server's own files.
/// If the system forbids that, changes nothing and returns the number of clients that it would allow.
pub fn make_room(clients: u32) -> Result<(), u32> {
    // If the limit is unknown, only accepting will show it.
    let Some(mut limit) = limit() else { return Ok(()) };
    let wanted = u64::from(clients) + DESCRIPTORS_RESERVED;
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    let possible = |files: u64| u32::try_from(files.saturating_sub(DESCRIPTORS_RESERVED)).unwrap_or(u32::MAX);
    if wanted > limit.rlim_max {
        return Err(possible(limit.rlim_max));
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = wanted;
    // SAFETY: the call reads the struct that it is given.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(()),
        _ => Err(possible(before)),
    }
}

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct that it is given.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0).then_some(limit)
}

/// Returns how many files this process may open.
pub(crate) fn limit_of_files() -> Option<u64> {
    limit().map(|limit| limit.rlim_cur)
}

/// Returns how many files this process has open, as far as the system tells.
pub(crate) fn open_files() -> Option<usize> {
    // One of them is the folder itself.
    std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1))
}
