//! Memory: [`limit`] applies `maxmemory` to commands, [`evict`] removes keys if the policy says so.

pub(crate) mod evict;
pub(crate) mod limit;

use crate::base::os::allocator::Freed;

/// The state of memory, besides the keyspace's own.
#[derive(Default)]
pub struct Memory {
    /// Bytes allocated when the server was made, without those of scripts.
    pub startup_bytes: u64,
    /// Most bytes allocated at any tick, and at any INFO.
    pub peak_bytes: u64,
    /// Memory freed since some was last returned to the system.
    pub(in crate::engine) freed: Freed,
    /// Whether more than `maxmemory` was allocated when the running client command began.
    is_full: bool,
    /// Whether more must be evicted than one command has waited for.
    eviction_is_behind: bool,
}

impl Memory {
    /// Makes the state at the start, when this many bytes are allocated.
    pub(super) fn new(startup_bytes: u64) -> Memory {
        Memory { startup_bytes, ..Memory::default() }
    }
}
