//! The metrics of grants: how many were given, refused and ended, and how many calls waited, by family and by the key
//! prefixes that `metrics-key-prefixes` names.

use crate::keyspace::effect::{Family, Tally, Turn};

/// The counters of one family, for the keys of one prefix.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// By [`Turn`].
    turns: [u64; Turn::ALL.len()],
    /// Calls, or rules of a call, that were refused.
    pub refusals: u64,
    /// Calls that began to wait.
    pub waits: u64,
    /// Calls that have waited.
    pub waits_ended: u64,
    /// For how long calls have waited, ms.
    pub waited_ms: u64,
}

impl Counts {
    /// How often grants took this turn.
    pub fn turns(&self, turn: Turn) -> u64 {
        self.turns[turn as usize]
    }
}

/// See the file's header.
#[derive(Debug, Default)]
pub struct CoordinationStats {
    /// By family, then by the group of keys, as far as anything was counted.
    counts: [Vec<Counts>; Family::ALL.len()],
    /// How often all counters were reset.
    epoch: u64,
}

/// Where the waiting of a call is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedWait {
    pub(crate) family: Family,
    group: usize,
    /// The epoch of its beginning. A wait that began in an earlier epoch is not counted when it ends.
    epoch: u64,
}

impl CoordinationStats {
    /// Resets all counters.
    pub(crate) fn reset(&mut self) {
        *self = CoordinationStats { epoch: self.epoch + 1, ..CoordinationStats::default() };
    }

    /// Counts a call that begins to wait for a place under a key of this group.
    pub(crate) fn begin_wait(&mut self, family: Family, group: usize) -> CountedWait {
        self.of(family, group).waits += 1;
        CountedWait { family, group, epoch: self.epoch }
    }

    /// Counts that a call waits no longer.
    pub(crate) fn end_wait(&mut self, CountedWait { family, group, epoch }: CountedWait, waited_ms: u64) {
        if epoch == self.epoch {
            let counts = self.of(family, group);
            counts.waits_ended += 1;
            counts.waited_ms += waited_ms;
        }
    }

    /// Adds the tallies of a unit.
    pub(crate) fn add_all(&mut self, tallies: impl Iterator<Item = Tally>) {
        for Tally { turn, family, group, count } in tallies {
            self.of(family, group).turns[turn as usize] += count;
        }
    }

    /// The counters of a family, for the keys of a group.
    pub(crate) fn of(&mut self, family: Family, group: usize) -> &mut Counts {
        let counts = &mut self.counts[family as usize];
        if counts.len() <= group {
            counts.resize(group + 1, Counts::default());
        }
        &mut counts[group]
    }

    /// Returns the counters of a family, for the keys of a group.
    pub fn get(&self, family: Family, group: usize) -> Counts {
        self.counts[family as usize].get(group).copied().unwrap_or_default()
    }
}
