//! Entries that have left memory: their terms, and the wishes for those that followers lack.
//!
//! The crate asks for entries in the middle of a step, and the core has no file. So it notes a wish and answers that
//! the entries are not at hand. When they were read, the crate is told, and asks again.

use std::collections::VecDeque;

use raft::GetEntriesContext;

use super::fetch::Fetch;
use super::limits::{FETCHES_MAX, MESSAGE_BYTES};
use crate::log::replicated::members::MEMBERS_MAX;
use crate::log::replicated::types::{Index, Position, Term};

/// The terms of the entries that have left memory.
pub(super) struct Older {
    /// The first entry of each term, oldest first, from the last entry that was cut off on.
    runs: VecDeque<(Index, Term)>,
    /// The last entry that the files no longer have. It may still be in memory.
    cut: Index,
}

impl Older {
    /// Knows of the entry `at`, and of none before it.
    pub(super) fn new(at: Position) -> Older {
        Older { runs: VecDeque::from([(at.index, at.term)]), cut: at.index }
    }

    /// Notes the next entry that has left memory.
    pub(super) fn push(&mut self, at: Position) {
        if self.runs.back().is_none_or(|(_, term)| *term != at.term) {
            self.runs.push_back((at.index, at.term));
        }
        self.forget();
    }

    /// Notes that the files no longer have the entries up to `index`.
    pub(super) fn cut(&mut self, index: Index) {
        self.cut = self.cut.max(index);
        self.forget();
    }

    /// Forgets the terms that end before the last entry that was cut off.
    fn forget(&mut self) {
        while self.runs.get(1).is_some_and(|(first, _)| *first <= self.cut) {
            self.runs.pop_front();
        }
    }

    /// Returns the last entry that the files no longer have.
    pub(super) fn cut_off(&self) -> Index {
        self.cut
    }

    /// Returns the term of an entry that has left memory and can still be read, or was the last one to be cut off.
    pub(super) fn term(&self, index: Index) -> Option<Term> {
        let run = self.runs.partition_point(|(first, _)| *first <= index).checked_sub(1)?;
        self.runs.get(run).map(|(_, term)| *term)
    }
}

/// A fetch, and the requests of the crate that wait for it. The crate does not show for which follower it asks, so a
/// follower may be among them several times.
pub(super) struct Wish {
    pub(super) fetch: Fetch,
    pub(super) waiting: Vec<GetEntriesContext>,
}

/// The wishes that are not answered.
#[derive(Default)]
pub(super) struct Wishes {
    open: Vec<Wish>,
    /// Fetches that nobody has begun.
    new: Vec<Fetch>,
    issued: u64,
}

impl Wishes {
    /// Notes that the crate wants entries after `after`, up to `last` at most. Of too many wishes the newest is
    /// dropped: the crate asks again when its follower answers a heartbeat.
    pub(super) fn note(&mut self, after: Index, last: Index, context: GetEntriesContext) {
        if let Some(wish) = self.open.iter_mut().find(|wish| wish.fetch.after == after) {
            if wish.waiting.len() < MEMBERS_MAX {
                wish.waiting.push(context);
            }
        } else if self.open.len() < FETCHES_MAX {
            self.issued += 1;
            let fetch = Fetch { number: self.issued, after, last, bytes: MESSAGE_BYTES };
            self.new.push(fetch);
            self.open.push(Wish { fetch, waiting: vec![context] });
        }
    }

    /// Takes the fetches to begin.
    pub(super) fn take_new(&mut self) -> Vec<Fetch> {
        std::mem::take(&mut self.new)
    }

    /// Takes the wish of this number, if it was not given up.
    pub(super) fn take(&mut self, number: u64) -> Option<Wish> {
        let at = self.open.iter().position(|wish| wish.fetch.number == number)?;
        Some(self.open.swap_remove(at))
    }

    /// Gives all wishes up.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.new.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64, term: u64) -> Position {
        Position { index: Index(index), term: Term(term), ..Position::default() }
    }

    #[test]
    fn terms_are_known_back_to_the_cut() {
        let mut older = Older::new(at(5, 1));
        for (index, term) in [(6, 1), (7, 2), (8, 2), (9, 4), (10, 4)] {
            older.push(at(index, term));
        }
        let terms = |older: &Older| (5..=10).map(|index| older.term(Index(index)).map_or(0, |term| term.0)).collect();
        let found: Vec<u64> = terms(&older);
        assert_eq!((found, older.term(Index(4))), (vec![1, 1, 2, 2, 4, 4], None));
        older.cut(Index(8));
        let found: Vec<u64> = terms(&older);
        assert_eq!(found, [0, 0, 2, 2, 4, 4]);
        // Behind a cut of what is still in memory, only the last one counts.
        older.cut(Index(20));
        older.push(at(11, 5));
        assert_eq!((older.term(Index(11)), older.runs.len()), (Some(Term(5)), 1));
    }

    #[test]
    fn wishes_are_bounded() {
        let mut wishes = Wishes::default();
        for after in 0..2 * FETCHES_MAX as u64 {
            for _ in 0..2 * MEMBERS_MAX {
                wishes.note(Index(after), Index(1000), GetEntriesContext::empty(true));
            }
        }
        assert_eq!((wishes.open.len(), wishes.take_new().len()), (FETCHES_MAX, FETCHES_MAX));
        let wish = wishes.take(1).unwrap();
        assert_eq!((wish.fetch.after, wish.waiting.len()), (Index(0), MEMBERS_MAX));
        assert!(wishes.take(1).is_none() && wishes.take_new().is_empty());
        wishes.note(Index(0), Index(9), GetEntriesContext::empty(true));
        assert_eq!(wishes.take_new()[0].number, FETCHES_MAX as u64 + 1);
    }
}
