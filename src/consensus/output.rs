//! The settings and the answers of a core.

use std::fmt;
use std::time::Duration;

use super::entries::LogError;
use super::fetch::Fetch;
use super::limits::VOTERS_MIN;
use super::message::{Message, Round};
use crate::base::lsn::Lsn;
use crate::log::replicated::block::Block;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::{MEMBERS_MAX, Members};
use crate::log::replicated::types::{Index, Position, Term};
use crate::log::replicated::write::Write;

/// How a core behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// For the random part of election timeouts, so that a run can be repeated.
    pub(crate) seed: u64,
    /// A leader whose disk has not finished a write for this long hands leadership over.
    pub(crate) disk_stuck_after: Duration,
    /// Bytes of entries kept in memory. Those that are not durable, committed and applied are kept in any case.
    pub(crate) memory_bytes: u64,
}

/// Why a node can't start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("a group needs at least {VOTERS_MIN} voters")]
    TooFewVoters,
    #[error("the log is damaged: {0}")]
    Log(LogError),
    #[error("consensus can't start: {0}")]
    Raft(#[from] raft::Error),
}

/// Why a message is refused. It comes from a faulty or foreign node, or this node has lost data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the message comes from another node than it says, or is for another one")]
    Address,
    #[error("the message contradicts itself or its sender's earlier ones")]
    Malformed,
    #[error(
        "the leader says that entry {committed} is here, but the log ends at {last}: this node has lost data; \
         remove it from the group, and let it join again with an empty directory and a new number"
    )]
    DataLost { committed: Index, last: Index },
    #[error(
        "entry {0} of the leader does not fit this node's log; one of the two has data that never was committed: \
         stop the group, and run `tidegate check` on both"
    )]
    Fork(Index),
}

/// Why a node does not want a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unwanted {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("it comes from an earlier term")]
    Outdated,
    #[error("everything in it is here already")]
    Covered,
    #[error("it does not know this node as a member of the group")]
    NoMember,
}

/// Why a change of the members is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChangeRefusal {
    #[error("this node does not lead")]
    NotLeader,
    #[error("another change is not finished")]
    Pending,
    #[error("the node is already a member")]
    Member,
    #[error("a group has at most {MEMBERS_MAX} members")]
    TooMany,
    #[error("the node is not a member")]
    NoMember,
    #[error("only a learner can be promoted")]
    NoLearner,
    #[error("the learner lacks too many entries; try again when it has caught up")]
    Behind,
    #[error("a leader can't remove itself; transfer leadership first")]
    Leader,
    #[error("a group needs at least {VOTERS_MIN} voters")]
    TooFewVoters,
}

/// An instruction to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Load the data as of this entry from the files, in place of all that is there.
    Load(Mark),
    /// Apply this block. If the engine has executed it itself, it is committed now.
    Apply { at: Position, block: Block },
    /// The members changed.
    Members { at: Position, members: Members },
    /// Begin to execute commands.
    Lead(Term),
    /// End the reign: close all clients, and forget what was executed and never applied.
    Deposed { term: Term, why: Why },
}

/// Why a reign ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// A block was refused.
    Refused,
    /// This node can't reach a quorum, or another node stands for election.
    Lost,
    /// Leadership was handed over on request.
    Transfer,
    /// The engine did not answer for too long.
    Stuck,
    /// The disk did not finish a write for too long.
    Disk,
    /// This node was removed from the group.
    Removed,
}

impl Why {
    pub(crate) const ALL: [Why; 6] = [Why::Refused, Why::Lost, Why::Transfer, Why::Stuck, Why::Disk, Why::Removed];

    /// Returns its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Why::Refused => "refused",
            Why::Lost => "lost",
            Why::Transfer => "transfer",
            Why::Stuck => "stuck",
            Why::Disk => "disk",
            Why::Removed => "removed",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Refused => "a block was refused",
            Why::Lost => "no quorum answers, or another node stands for election",
            Why::Transfer => "leadership is handed over",
            Why::Stuck => "the engine does not answer",
            Why::Disk => "the disk does not finish a write",
            Why::Removed => "it was removed",
        })
    }
}

/// The work to do after an input.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The time until which no other node can lead, if it is known: reads that end before it need no round.
    pub(crate) lease_until: Option<Duration>,
    /// The time as of which the engine's data is known to be complete, on a node that follows.
    pub(crate) fresh_at: Option<Duration>,
    pub(crate) messages: Vec<Message>,
    /// Snapshots to send: the file first, then the message, as it is. Each end of a transfer, a failed one too, must be
    /// [reported](super::core::Core::reported).
    pub(crate) streams: Vec<Message>,
    pub(crate) writes: Vec<Write>,
    /// Older entries to read. Each must be [answered](super::core::Core::fetched), in any order.
    pub(crate) fetches: Vec<Fetch>,
    /// Orders with their numbers.
    pub(crate) orders: Vec<(u64, Order)>,
    /// A reign and the last of its units that is committed.
    pub(crate) committed: Option<(Term, Lsn)>,
    /// A reign and the last unit that as many other nodes as [asked for](super::core::Core::want_copies) have on disk.
    pub(crate) copied: Option<(Term, Lsn)>,
    /// A round that was answered. It confirms all rounds of its reign before it.
    pub(crate) confirmed: Option<Round>,
    /// A node needs a newer snapshot than there is.
    pub(crate) wants_snapshot: bool,
}
