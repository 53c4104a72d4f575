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
    prefixes: KeyPrefixes,
    tallies: Vec<Tally>,
}

impl Tallies {
    /// Adds to what was counted behind the first `kept`, which may not change: so there are no more than kinds of tallies for each mark.
    pub(super) fn add(&mut self, turn: Turn, family: Family, key: &[u8], count: u64, kept: usize) {
        let (group, kept) = (self.prefixes.group_of(key), kept.min(self.tallies.len()));
        let same = |tally: &&mut Tally| (tally.turn, tally.family, tally.group) == (turn, family, group);
        match self.tallies[kept..].iter_mut().rfind(same) {
            Some(tally) => tally.count += count,
            None => self.tallies.push(Tally { turn, family, group, count }),
        }
    }

    /// Counts by other prefixes from here on. What the unit has counted already is told of no prefix.
    pub(super) fn count_by(&mut self, prefixes: KeyPrefixes) {
        let other = prefixes.groups() - 1;
        self.tallies.iter_mut().for_each(|tally| tally.group = other);
        self.prefixes = prefixes;
    }

    pub(super) fn prefixes(&self) -> &KeyPrefixes {
        &self.prefixes
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_are_few_and_those_before_a_mark_stay() {
        let mut tallies = Tallies::default();
        tallies.count_by(KeyPrefixes::new([&b"a:"[..]].into_iter()));
        tallies.add(Turn::Granted, Family::Lock, b"a:1", 1, 0);
        let kept = tallies.len();
        for _ in 0..1_000 {
            tallies.add(Turn::Granted, Family::Lock, b"a:2", 1, kept);
            tallies.add(Turn::Released, Family::Gate, b"b", 2, kept);
        }
        let counts = |tallies: &Tallies| tallies.iter().map(|tally| (tally.group, tally.count)).collect::<Vec<_>>();
        assert_eq!(counts(&tallies), [(0, 1), (0, 1_000), (1, 2_000)]);
        tallies.truncate(kept);
        assert_eq!(counts(&tallies), [(0, 1)]);
        tallies.count_by(KeyPrefixes::default());
        tallies.add(Turn::Granted, Family::Lock, b"a:1", 5, 0);
        assert_eq!(counts(&tallies), [(0, 6)], "of no prefix any more");
    }
}
