//! The CLIENT TRACKING options of a session.

use std::collections::BTreeSet;

/// The options of a client with CLIENT TRACKING ON.
#[derive(Debug, Default)]
pub struct CachingClient {
    /// Whether it gets the invalidations of whole prefixes, not of the keys that it reads (BCAST).
    pub broadcasts: bool,
    /// The reads that are tracked.
    pub choice: Choice,
    /// Whether it gets no invalidations of its own changes.
    pub is_noloop: bool,
    /// The client that gets the invalidations in its place.
    pub redirect: Option<u64>,
    /// Whether the redirect client was gone when an invalidation was due.
    pub is_redirect_broken: bool,
    /// The prefixes for which it gets invalidations, if it `broadcasts`.
    pub prefixes: BTreeSet<Box<[u8]>>,
    /// CLIENT CACHING was called: the next command, or transaction, is an exception to `choice`.
    pub is_exception: bool,
}

/// The client that gets the invalidations in place of the caller; 0 for the caller itself, -1 without tracking.
pub(crate) fn redirect(client: Option<&CachingClient>) -> i64 {
    client.map_or(-1, |client| client.redirect.unwrap_or(0) as i64)
}

/// The reads of a client that are tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// All reads.
    #[default]
    All,
    /// Reads after CLIENT CACHING YES.
    OptIn,
    /// All reads except those after CLIENT CACHING NO.
    OptOut,
}

impl CachingClient {
    /// Whether the client's current reads are tracked.
    pub(crate) fn caches(&self) -> bool {
        match self.choice {
            _ if self.broadcasts => false,
            Choice::All => true,
            Choice::OptIn => self.is_exception,
            Choice::OptOut => !self.is_exception,
        }
    }

    /// Bytes that the options take.
    pub(crate) fn mem_bytes(&self) -> usize {
        size_of::<CachingClient>()
            + self.prefixes.iter().map(|prefix| prefix.len() + size_of::<Box<[u8]>>()).sum::<usize>()
    }
}
