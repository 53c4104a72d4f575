//! Fuses: checks of rules that no input may break. A fuse that blows ends the process before anything wrong is
//! written or sent, in release builds too. A node that is down costs a quorum nothing; one that goes on could lose an
//! acknowledged write.

use std::fmt;

/// A rule that no input may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fuse {
    /// A proposal is the next entry of the log, in the term of its reign.
    Proposal,
    /// Every block in the log names the term of its entry and follows the block before it.
    Chain,
    /// Proposals are never sent to another node.
    Forwarding,
    /// No committed or applied entry is cut off the end of the log.
    Cut,
    /// The engine is given every block once, in order.
    Apply,
    /// A published position never falls.
    Publish,
    /// The term never falls, and the log has no entry of a term that the ballot does not know.
    Term,
    /// A message leaves only when everything it states is durable.
    Durable,
    /// A snapshot that is sent holds nothing but committed entries.
    Snapshot,
    /// Entries that are needed at once are in memory.
    Memory,
}

impl fmt::Display for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fuse::Proposal => "a proposal is not the next entry of its reign",
            Fuse::Chain => "a block does not continue the log",
            Fuse::Forwarding => "a proposal is about to be forwarded",
            Fuse::Cut => "a committed entry is about to be cut off",
            Fuse::Apply => "a block is about to be applied out of order",
            Fuse::Publish => "a published position would fall",
            Fuse::Term => "the term would fall",
            Fuse::Durable => "a message states what is not durable",
            Fuse::Snapshot => "a snapshot holds entries that are not committed",
            Fuse::Memory => "an entry left memory too early",
        })
    }
}

/// Ends the process unless `holds`. `detail` says what was found.
pub(super) fn check(fuse: Fuse, holds: bool, detail: impl FnOnce() -> String) {
    if !holds {
        blow(fuse, &detail());
    }
}

/// Ends the process. Tests see a panic instead.
pub(super) fn blow(fuse: Fuse, detail: &str) -> ! {
    tracing::error!("consensus stopped this node to protect its data: {fuse} ({detail}); please report this");
    if cfg!(test) {
        panic!("fuse {fuse:?}: {detail}");
    }
    std::process::abort();
}
