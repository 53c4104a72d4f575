//! How many grants the unit that is underway has given and ended, by family and by the [prefix](KeyPrefixes) of their keys.
//!
//! As [`GrantTurns`](super::grant_turns::GrantTurns) this stands beside the effects. There each turn is told with its names, and of very many
//! some are left out; here all are counted.

use super::family::Family;
use super::grant_turns::Turn;
use crate::base::key_prefixes::KeyPrefixes;

/// So many grants of a family of which the same has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// What has become of them.
    pub turn: Turn,
    /// Of which family.
    pub family: Family,
    /// The group of their keys.
    pub group: usize,
    /// How many.
    pub count: u64,
}

/// All of the unit that is underway.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) prefixes: KeyPrefixes,
    tallies: Vec<Tally>,
}

impl Tallies {
    pub(super) fn add(&mut self, turn: Turn, family: Family, key: &[u8], count: u64) {
        let group = self.prefixes.group_of(key);
        self.tallies.push(Tally { turn, family, group, count });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Tally> {
        self.tallies.iter().copied()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.tallies.len()
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.tallies.truncate(len);
    }

    pub(super) fn give_back(&mut self) {
        self.tallies = Vec::new();
    }
}
