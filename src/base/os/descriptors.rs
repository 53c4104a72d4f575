//! The number of descriptors that the system lets this process open, which limits the number of clients.

use crate::base::limits::DESCRIPTORS_RESERVED;

/// Raises the limit of open files, if necessary, to the number needed for `clients` sockets and the server's own files.
/// If the system forbids that, changes nothing and returns the number of clients that it would allow.
pub fn make_room(clients: u32) -> Result<(), u32> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct that it is given.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        // The limit is unknown, so only accepting will show it.
        return Ok(());
    }
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
