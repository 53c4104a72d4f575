//! The data that the disk of a node is given, and that it gives back after a start.

use super::entry::Entry;
use super::mark::Mark;
use super::types::{Ballot, Index, Position};

/// Changes of what is on the disk, all of them in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The number to report when this write and all before it are durable. The numbers grow.
    pub(crate) number: u64,
    pub(crate) ballot: Option<Ballot>,
    /// This snapshot takes the place of the whole log.
    pub(crate) install: Option<Mark>,
    /// Entries to append. If the first of them is not behind the end of the log, the log is cut there.
    pub(crate) entries: Vec<Entry>,
    /// The last entry known to be committed, in the log that this write leaves. It need not be durable, but if it is,
    /// then together with this write and not before: the log that is cut here may have other entries up to it.
    pub(crate) committed: Index,
}

/// The data that a node finds on its disk when it starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) ballot: Ballot,
    /// The newest snapshot. A new group starts at [`Mark::first`]; a node that joins a group starts at the default,
    /// without anything.
    pub(crate) snapshot: Mark,
    /// The last entry that is known to be committed, up to which the engine loads the snapshot and the log. It may be
    /// older than the truth.
    pub(crate) committed: Mark,
    /// The log up to that entry, which is not read into memory: the entry before the first one in the files, and the
    /// first one of each later term. Empty if the snapshot takes the place of the whole log.
    pub(crate) covered: Vec<Position>,
    /// The entries behind it.
    pub(crate) entries: Vec<Entry>,
}

impl Recovered {
    /// Returns what a node finds that has a snapshot, and nothing behind it.
    pub(crate) fn at(snapshot: Mark, ballot: Ballot) -> Recovered {
        Recovered { ballot, committed: snapshot.clone(), snapshot, covered: Vec::new(), entries: Vec::new() }
    }
}
