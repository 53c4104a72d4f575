//! Transparent huge pages: memory that the system hands out, unasked or because the allocator asks, in pages of 2 MiB.
//!
//! The first touch of a page waits until the system has cleared it. For one of 4 KiB that takes a microsecond, for one of 2 MiB a
//! quarter of a millisecond; in a virtual machine whose host has to find the memory first, about 5 ms, during which the engine's
//! thread serves nobody. Once they are there, large pages make the look-ups of a large keyspace cheaper. docs/performance.md has
//! both sides measured.

use std::io;

use libc::c_ulong;

/// What the system wants to see in the places of arguments that it does not use.
const NONE: c_ulong = 0;

/// Has this process get no more huge pages, for good. Those that it has got stay.
pub fn disable() -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1 as c_ulong, NONE, NONE, NONE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
