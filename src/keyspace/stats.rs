//! Counters of the keyspace, for INFO.

/// Counts since the server started or since CONFIG RESETSTAT.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyspaceStats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that missed their key.
    pub misses: u64,
    /// Keys removed because they expired.
    pub expired: u64,
    /// Fields of hashes and members of sets removed because they expired.
    pub expired_elements: u64,
    /// Keys removed because memory was full.
    pub evicted: u64,
}
