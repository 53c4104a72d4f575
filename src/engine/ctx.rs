//! What a handler works with.

use super::Server;
use super::session::Session;
use super::table::Entry;
use crate::keyspace::{DbIndex, Keyspace};
use crate::resp::reply::Reply;

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client, directly.
    Client,
    /// A transaction.
    Exec,
    /// A script.
    Script,
    /// A call that waited and is dispatched again.
    Retry,
}

/// One call of one command.
pub struct Ctx<'a> {
    /// All keys.
    pub ks: &'a mut Keyspace,
    /// Everything else that the server holds.
    pub server: &'a mut Server,
    /// Whose call it is.
    pub session: &'a mut Session,
    /// Where the answer is written.
    pub reply: &'a mut Reply,
    /// Which command it is.
    pub entry: &'static Entry,
    /// Where the call comes from.
    pub origin: Origin,
}

impl Ctx<'_> {
    /// The selected database.
    #[inline]
    pub fn db(&self) -> DbIndex {
        self.session.db
    }

    /// The unit's time, Unix ms.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.ks.now_ms()
    }

    /// The command's full lower-case name, for error texts.
    pub fn name(&self) -> &'static str {
        &self.entry.full_name
    }

    /// Whether the call may wait for a key: in scripts and transactions it times out at once.
    pub fn may_wait(&self) -> bool {
        matches!(self.origin, Origin::Client | Origin::Retry)
    }

    /// Whether the call waited and a key of its was touched.
    pub fn is_retry(&self) -> bool {
        self.origin == Origin::Retry
    }
}
