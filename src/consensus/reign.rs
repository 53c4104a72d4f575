//! The reign of a leader: from its election until the first sign that it might not lead any more.

use std::collections::VecDeque;
use std::time::Duration;

use super::limits::LEASE;
use super::message::Round;
use crate::base::lsn::Lsn;
use crate::log::replicated::types::{Index, Term};

/// Where a node stands in its own reign.
#[derive(Debug)]
pub(super) enum Reign {
    /// It does not lead, or its reign is closed.
    None,
    /// It was elected. Its engine leads once the entry `start`, the first of the reign, is committed and applied.
    Coming { term: Term, start: Index },
    /// Its engine leads.
    Open(Open),
    /// It hands leadership over, and takes no block any more.
    Leaving { term: Term },
}

impl Reign {
    /// Returns the term of the reign.
    pub(super) fn term(&self) -> Option<Term> {
        match self {
            Reign::None => None,
            Reign::Coming { term, .. } | Reign::Leaving { term } => Some(*term),
            Reign::Open(open) => Some(open.term),
        }
    }

    /// Returns the open reign.
    pub(super) fn open(&mut self) -> Option<&mut Open> {
        match self {
            Reign::Open(open) => Some(open),
            _ => None,
        }
    }
}

/// An open reign.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) term: Term,
    /// Blocks of this reign that are not committed: the index of each, and its last unit.
    blocks: VecDeque<(Index, Lsn)>,
    /// The last unit that was published as copied.
    copied: Lsn,
    rounds: Rounds,
}

impl Open {
    pub(super) fn new(term: Term) -> Open {
        Open { term, blocks: VecDeque::new(), copied: Lsn::NONE, rounds: Rounds::default() }
    }

    /// Notes a block that was proposed.
    pub(super) fn push(&mut self, index: Index, last: Lsn) {
        self.blocks.push_back((index, last));
    }

    /// Takes the blocks up to the entry `committed`, and returns the index and the last unit of the last of them.
    pub(super) fn take_committed(&mut self, committed: Index) -> Option<(Index, Lsn)> {
        let mut last = None;
        while self.blocks.front().is_some_and(|(index, _)| *index <= committed) {
            last = self.blocks.pop_front();
        }
        last
    }

    /// Notes the last unit that enough other nodes have on disk. Returns whether it is further than before.
    pub(super) fn copied(&mut self, lsn: Lsn) -> bool {
        let is_further = lsn > self.copied;
        self.copied = self.copied.max(lsn);
        is_further
    }

    /// Forgets how far other nodes have the units, because another number of them counts now.
    pub(super) fn count_copies_anew(&mut self) {
        self.copied = Lsn::NONE;
    }

    /// Asks for a confirmation that this node still leads; see [`next_round`](Self::next_round).
    pub(super) fn ask(&mut self, number: u64) {
        self.rounds.asked = self.rounds.asked.max(number);
    }

    /// Ends a round that a quorum has answered. Returns whether it was on its way.
    pub(super) fn confirmed(&mut self, number: u64) -> bool {
        self.rounds.confirmed(number)
    }

    /// Returns the round to begin now, if one was asked for since the last one began.
    pub(super) fn next_round(&mut self, now: Duration) -> Option<Round> {
        let number = self.rounds.next(now)?;
        Some(Round { term: self.term, number })
    }

    /// Returns the time until which no other node can lead.
    pub(super) fn lease_until(&self) -> Option<Duration> {
        self.rounds.lease_until
    }
}

/// Rounds of questions to the followers, one at a time. A round that is asked for in the meantime begins after that, so
/// that a loaded leader sends as few messages as an idle one.
#[derive(Debug, Default)]
struct Rounds {
    /// The greatest number asked for, and the last one confirmed.
    asked: u64,
    confirmed: u64,
    /// The round on its way, and when it began.
    running: Option<(u64, Duration)>,
    lease_until: Option<Duration>,
}

impl Rounds {
    fn confirmed(&mut self, number: u64) -> bool {
        let Some((_, began)) = self.running.take_if(|(running, _)| *running == number) else { return false };
        self.confirmed = number;
        self.lease_until = Some(began + LEASE);
        true
    }

    fn next(&mut self, now: Duration) -> Option<u64> {
        if self.running.is_some() || self.asked <= self.confirmed {
            return None;
        }
        self.running = Some((self.asked, now));
        Some(self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_runs_at_a_time_and_the_lease_counts_from_its_begin() {
        let at = Duration::from_millis;
        let round = |number| Some(Round { term: Term(3), number });
        let mut open = Open::new(Term(3));
        assert_eq!(open.next_round(at(99)), None, "nobody has asked");
        open.ask(1);
        assert_eq!(open.next_round(at(100)), round(1));
        for number in [2, 3] {
            open.ask(number);
            assert_eq!(open.next_round(at(101)), None);
        }
        assert!(!open.confirmed(2), "a round that never began");
        assert_eq!(open.lease_until(), None);
        assert!(open.confirmed(1) && !open.confirmed(1));
        assert_eq!(open.lease_until(), Some(at(100) + LEASE));
        assert_eq!(open.next_round(at(104)), round(3), "one round for both that waited");
        assert!(open.confirmed(3));
        assert_eq!((open.next_round(at(110)), open.lease_until()), (None, Some(at(104) + LEASE)));
    }

    #[test]
    fn blocks_are_taken_as_far_as_they_are_committed() {
        let mut open = Open::new(Term(3));
        open.push(Index(5), Lsn::new(50));
        open.push(Index(6), Lsn::new(61));
        assert_eq!(open.take_committed(Index(4)), None);
        assert_eq!(open.take_committed(Index(9)), Some((Index(6), Lsn::new(61))));
        assert_eq!(open.take_committed(Index(9)), None);
    }
}
