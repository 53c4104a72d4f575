//! Transparent huge pages: memory that the system hands out, unasked or at the allocator's request, in pages of 2 MiB.
//!
//! The first touch of a page waits until the system has cleared it. That takes a microsecond for a page of 4 KiB, and a
//! quarter of a millisecond for one of 2 MiB. In a virtual machine whose host has to find the memory first, it takes
//! about 5 ms, during which the engine's thread serves no client. Once they exist, large pages make the look-ups of a
//! large keyspace cheaper. docs/performance.md has measurements of both effects.

use std::io;

use libc::c_ulong;

/// Value that the system requires for unused arguments.
const NONE: c_ulong = 0;

/// Stops the system from giving this process more huge pages, for good. It keeps those that it has.
pub fn disable() -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1 as c_ulong, NONE, NONE, NONE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
