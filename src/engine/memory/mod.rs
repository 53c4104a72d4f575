//! Memory: [`limit`] holds commands to `maxmemory`, [`evict`] removes keys where the policy says so.

pub(crate) mod evict;
pub(crate) mod limit;

use crate::base::os::allocator::Freed;

/// Memory, beside the keyspace's own.
#[derive(Default)]
pub struct Memory {
    /// Bytes that were allocated when the server was made, without those of scripts.
    pub startup_bytes: u64,
    /// Most bytes allocated at any tick, and at any INFO.
    pub peak_bytes: u64,
    /// Memory that was freed since some was last returned to the system.
    pub(in crate::engine) freed: Freed,
    /// More than `maxmemory` was allocated when the running command of a client began.
    pub(in crate::engine) is_full: bool,
    /// More must be evicted than one command has waited for.
    pub(in crate::engine) eviction_is_behind: bool,
}
