//! Entries of the replicated log.

use super::block::Block;
use super::members::MemberChange;
use super::types::{Index, Term};

/// An entry as it is stored and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) index: Index,
    pub(crate) term: Term,
    pub(crate) payload: Payload,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// The first entry of a reign. Once it is committed, everything before it is, too.
    Start,
    Block(Block),
    Change(MemberChange),
}
