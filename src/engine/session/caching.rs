//! What a session with CLIENT TRACKING ON has asked for.

use std::collections::BTreeSet;

/// What a client with CLIENT TRACKING ON has asked for.
#[derive(Debug, Default)]
pub struct CachingClient {
    /// Is told of prefixes, and not of what it reads.
    pub broadcasts: bool,
    /// Which of its reads count.
    pub choice: Choice,
    /// Is not told of what it changes itself.
    pub is_noloop: bool,
    /// Who is told in its place.
    pub redirect: Option<u64>,
    /// That one was gone when it was to be told something.
    pub is_redirect_broken: bool,
    /// The prefixes that it is told of, if it `broadcasts`.
    pub prefixes: BTreeSet<Box<[u8]>>,
    /// CLIENT CACHING was called: the next command, or transaction, is an exception from what `choice` says.
    pub is_exception: bool,
}

/// The client that is told in place of the caller; 0 is the caller, -1 nobody.
pub(crate) fn redirect(client: Option<&CachingClient>) -> i64 {
    client.map_or(-1, |client| client.redirect.unwrap_or(0) as i64)
}

/// Which reads of a client count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// All.
    #[default]
    All,
    /// Those behind CLIENT CACHING YES.
    OptIn,
    /// All but those behind CLIENT CACHING NO.
    OptOut,
}

impl CachingClient {
    /// Whether what it reads now is to be remembered.
    pub(in crate::engine) fn caches(&self) -> bool {
        match self.choice {
            _ if self.broadcasts => false,
            Choice::All => true,
            Choice::OptIn => self.is_exception,
            Choice::OptOut => !self.is_exception,
        }
    }

    /// Bytes that it takes.
    pub(in crate::engine) fn mem_bytes(&self) -> usize {
        size_of::<CachingClient>()
            + self.prefixes.iter().map(|prefix| prefix.len() + size_of::<Box<[u8]>>()).sum::<usize>()
    }
}
