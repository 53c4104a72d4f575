//! Snapshots, as consensus knows them.

use super::members::Members;
use super::types::{Index, Link, Position, Term};

/// All data, as of an entry of the log: a snapshot, or one and the log behind it. The files stay outside the core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: Position,
    /// The members as of that entry.
    pub(crate) members: Members,
    /// The number by which a node finds the snapshot among its own; drawn when that was made.
    pub(crate) serial: u64,
}

/// The entry in whose place a group starts. A node that knows of no later one is new.
pub(crate) const FOUNDING: Index = Index(1);

impl Mark {
    /// Returns the start of a new group: its members, and no data. It takes the place of the first entry, so that a
    /// node without anything gets the members with a snapshot.
    pub(crate) fn first(members: Members) -> Mark {
        Mark { at: Position { index: FOUNDING, term: Term(1), link: Link::default() }, members, serial: 0 }
    }
}
