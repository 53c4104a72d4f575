//! How parts of the server that keep no sessions name one.

/// Names a session. A slot that another connection uses by now does not match: its id differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The client id that CLIENT ID returns. Never reused.
    pub id: u64,
    /// Where the session is kept, which is reused.
    pub(crate) slot: usize,
}
