//! The numbers and names of consensus.

use std::fmt;

use crate::base::lsn::Lsn;

/// A number that identifies a node for ever. A directory of data belongs to one node, and a new directory gets a new
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u64);

impl NodeId {
    /// Returns the node of this number; 0 is not one.
    pub(crate) fn new(number: u64) -> Option<NodeId> {
        (number != 0).then_some(NodeId(number))
    }

    /// Returns the number.
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

/// Returns the owner of the directories of tests.
#[cfg(test)]
pub(crate) fn some_owner() -> crate::log::identity::Owner {
    crate::log::identity::Owner::Node { group: GroupId(0), node: NodeId(1) }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a group of nodes. A process has one group so far; the number is in the bytes so that it can have more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u32);

/// The number of a reign. At most one node leads in each term, and it leads in no term twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of an entry in the replicated log. The first is 1; there are no gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Index(pub u64);

impl Index {
    /// Returns the position behind this one.
    pub(crate) fn next(self) -> Index {
        Index(self.0.saturating_add(1))
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The newest term that a node knows, and its vote in that term. It is durable before any message depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ballot {
    pub(crate) term: Term,
    pub(crate) vote: Option<NodeId>,
}

impl Ballot {
    /// Whether a node that has given `earlier` may give this: it votes once in a term, and no term comes back.
    pub(crate) fn may_follow(self, earlier: Ballot) -> bool {
        let is_same_vote = self.vote == earlier.vote || earlier.vote.is_none();
        self.term > earlier.term || self.term == earlier.term && is_same_vote
    }
}

/// The place in the chain of blocks that an entry ends at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// The last unit.
    pub(crate) lsn: Lsn,
    /// The checksum of the last block; 0 before the first one.
    pub(crate) crc: u32,
}

/// An entry of the log and the place in the chain of blocks behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) index: Index,
    pub(crate) term: Term,
    pub(crate) link: Link,
}
