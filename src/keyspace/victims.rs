//! The pool of candidates for [eviction](super::eviction).

use super::arena::Slot;
use super::db::DbIndex;
use crate::keyspace::limits::EVICTION_POOL;

/// A key that may be evicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Higher is better.
    pub(super) score: u64,
    pub(super) slot: Slot,
    pub(super) used: u32,
    pub(super) db: DbIndex,
}

/// The best candidates seen so far, the best one last.
#[derive(Debug, Default)]
pub(super) struct Pool {
    candidates: Vec<Candidate>,
}

impl Pool {
    pub(super) fn clear(&mut self) {
        self.candidates.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Adds a candidate if there is room, or if it is better than the worst one. Forgets an earlier candidate in its
    /// slot.
    pub(super) fn add(&mut self, candidate: Candidate) {
        self.candidates.retain(|known| known.slot != candidate.slot || known.db != candidate.db);
        let is_full = self.candidates.len() >= EVICTION_POOL;
        if is_full && self.candidates.first().is_some_and(|worst| worst.score >= candidate.score) {
            return;
        }
        if is_full {
            self.candidates.remove(0);
        }
        let at = self.candidates.partition_point(|known| known.score < candidate.score);
        self.candidates.insert(at, candidate);
    }

    pub(super) fn take_best(&mut self) -> Option<Candidate> {
        self.candidates.pop()
    }
}
