//! Bugs that tests plant to show that the simulation finds them. A server has none of them: outside tests, `is` always
//! returns false.

/// A bug, described by the step that is left out or done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The writer does not sync the blocks that it has written.
    NoSync,
    /// A frame is accepted even if it states another segment.
    NoSegmentNumber,
    /// Recovery takes every block that it has read for durable.
    NoCopyOfTheTail,
    /// Replies leave before the journal has the changes that they show.
    NoFence,
    /// Invalidations for caching clients leave before the journal has the changes.
    NoFenceOfInvalidations,
    /// Events of keys leave before the journal has the changes.
    NoFenceOnEvents,
    /// A snapshot gets its name before its bytes are synced.
    NoSyncOfTheSnapshot,
    /// The journal is cut before the name of the snapshot that replaces it is durable.
    CutBeforeTheSnapshot,
    /// Segments behind a cut are used again before the cut is durable.
    NoSyncOfTheCut,
    /// A frame does not say what is committed.
    NothingCommitted,
    /// The header of a new segment does not say how this node has voted.
    NoBallotInTheHeader,
    /// Consensus: a block is taken whatever its reign.
    NoTermCheck,
    /// Consensus: a block is proposed by a node that does not lead.
    ProposeAnywhere,
    /// Consensus: blocks are taken after one was refused.
    OnAfterRefusal,
    /// Consensus: a deposed engine keeps what it has executed.
    NoReload,
    /// Consensus: replies leave before their blocks are committed.
    ReplyBeforeCommit,
    /// Consensus: a reply is released by what another reign has committed.
    ReplyOfAnotherReign,
    /// Consensus: a read is answered without a confirmation that the node leads.
    NoRound,
    /// Consensus: the engine leads before the first entry of its reign is committed.
    LeadBeforeStart,
    /// Consensus: messages leave before the disk has what they state.
    SendBeforePersist,
    /// Consensus: votes leave before they are durable.
    VoteBeforeDurable,
    /// Consensus: entries are acknowledged before they are durable.
    AckBeforePersist,
    /// Consensus: heartbeats are answered in a term that is not durable.
    UndurableHeartbeat,
    /// Consensus: answers to heartbeats wait for the disk.
    LateHeartbeat,
    /// Consensus: votes are given within a leader's lease.
    NoVotingPause,
    /// Consensus: a node stands for election before its engine has its data.
    StandWhileLoading,
    /// Consensus: a snapshot takes the place of a log that has more.
    InstallOverNewerLog,
    /// Consensus: a follower removes what has expired by its own clock.
    FollowerExpires,
    /// Consensus: entries leave memory before they are durable, committed and applied.
    TrimTooEarly,
    /// Consensus: entries that were fetched answer any request.
    FetchedForAnyRequest,
    /// Consensus: a leader does not note that entries are gone from its files.
    GoneIsForgotten,
    /// Consensus: a node that has lost its disk keeps its number.
    WipedNodeKeepsId,
    /// Group: a start reads the first block behind its snapshot whether the snapshot has it or not.
    FirstBlockTwice,
    /// Group: a deposed engine takes what it has executed and not proposed for committed.
    KeepsUnproposed,
    /// Group: a snapshot is complete before the group has committed all of it.
    SnapshotBeforeCommit,
    /// Group: a node that does not lead keeps the scripts that its clients run.
    FollowerKeepsScripts,
    /// Group: the fencing tokens of changes that are forgotten stay.
    KeepsTokens,
}

#[cfg(not(test))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}

#[cfg(test)]
pub use planting::*;

#[cfg(test)]
mod planting {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Plants a bug, or none, in everything that this thread does from now on.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}
