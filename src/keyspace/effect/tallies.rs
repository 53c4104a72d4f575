//! Counts the grants given and ended in the current unit, by family and by the [prefix](KeyPrefixes) of their keys.
//!
//! Like [`GrantTurns`](super::grant_turns::GrantTurns), the counts lie beside the effects. `GrantTurns` holds each turn
//! with its names and leaves some out if there are very many; the counts here cover all of them.

use super::family::Family;
use super::grant_turns::Turn;
use crate::base::key_prefixes::KeyPrefixes;

/// A number of grants of a family that met one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Their fate.
    pub turn: Turn,
    /// Their family.
    pub family: Family,
    /// The group of their keys.
    pub group: usize,
    /// The number of grants.
    pub count: u64,
}

/// The counts of the current unit.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    prefixes: KeyPrefixes,
    tallies: Vec<Tally>,
}

impl Tallies {
    /// Adds to the counts behind the first `kept`, which must not change. So each mark has at most one entry per kind
    /// of tally.
    pub(super) fn add(&mut self, turn: Turn, family: Family, key: &[u8], count: u64, kept: usize) {
        let (group, kept) = (self.prefixes.group_of(key), kept.min(self.tallies.len()));
        let same = |tally: &&mut Tally| (tally.turn, tally.family, tally.group) == (turn, family, group);
        match self.tallies[kept..].iter_mut().rfind(same) {
            Some(tally) => tally.count += count,
            None => self.tallies.push(Tally { turn, family, group, count }),
        }
    }

    /// Counts by other prefixes from here on. Grants that the unit has already counted lose their prefixes.
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
