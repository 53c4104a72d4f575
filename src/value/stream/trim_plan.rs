//! The aim of a trim, and the entries that it removes. [`trim`](super::trim) makes plans and carries them out.

use super::id::StreamId;

/// The entries that a trim keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// This many of the newest entries (`MAXLEN`).
    Newest(u64),
    /// The entries from this id on (`MINID`).
    From(StreamId),
}

/// The entries to remove in a trim that spares those that groups need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckedTrim {
    /// All entries up to and including this id.
    pub through: Option<StreamId>,
    /// Single entries behind `through`, between entries that stay.
    pub single: Vec<StreamId>,
}
