//! The state of a node's log at some place of the journal, which a reader must know to read on from there.

use super::mark::Mark;
use super::types::{Ballot, Index, Link, Position};
use crate::log::block::{Contents, Damage, Frame, Record};

/// See the module's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The last entry.
    pub(crate) at: Position,
    /// The newest ballot.
    pub(crate) ballot: Ballot,
    /// The last entry known to be committed.
    pub(crate) committed: Index,
}

impl Standing {
    /// Returns the state behind a snapshot. The ballot outlives the log that the snapshot replaces, but no log is newer
    /// than its ballot.
    pub(in crate::log) fn behind(snapshot: &Mark, mut ballot: Ballot) -> Standing {
        if ballot.term < snapshot.at.term {
            ballot = Ballot { term: snapshot.at.term, vote: None };
        }
        Standing { at: snapshot.at, ballot, committed: snapshot.at.index }
    }

    /// Returns the state behind a block that was read here.
    pub(in crate::log) fn after(self, frame: &Frame, contents: &Contents) -> Result<Standing, Damage> {
        let mut next = self;
        let term = match contents.record {
            Record::Ballot(ballot) => {
                next.ballot = ballot;
                None
            }
            Record::Block { term, previous } if previous == self.at.link.crc => {
                next.at.link = Link { lsn: contents.end().previous(), crc: frame.body_crc };
                Some(term)
            }
            Record::Entry { term } => Some(term),
            Record::Block { .. } | Record::Units => return Err(Damage::History),
        };
        if let Some(term) = term {
            (next.at.index, next.at.term) = (self.at.index.next(), term);
        }
        // A single server's frame does not say what is committed.
        next.committed = next.committed.max(frame.committed.ok_or(Damage::History)?);
        let is_sound = next.ballot.may_follow(self.ballot)
            && next.at.term >= self.at.term
            && next.at.term <= next.ballot.term
            && next.at.link.lsn.next() == contents.end()
            && next.committed <= next.at.index;
        is_sound.then_some(next).ok_or(Damage::History)
    }
}
