//! How old a follower's data is at most, without clocks that agree.
//!
//! A follower's answer to a heartbeat carries a *stamp*, a time of its own clock. The next heartbeat brings the stamp
//! back, together with the last entry that the leader knew to be committed. So once the follower has that entry, its
//! data holds everything that was committed at the time of the stamp, as far as that leader knew: one that is cut off
//! may lead on for an election timeout. A new leader brings no stamp back before an entry of its own is committed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::log::replicated::types::{Index, NodeId};

/// Points that are not reached. Of more than that, the newest ones count as one.
const POINTS_MAX: usize = 64;

/// A time of the clock of the node that made it, which no other node can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(pub u64);

/// See the file's header.
#[derive(Debug)]
pub(super) struct Freshness {
    /// Added to the clock, so that stamps of an earlier start of this node mean nothing to it.
    base: u64,
    /// As leader: the last stamp of each follower.
    stamps: BTreeMap<NodeId, Stamp>,
    /// As follower: entries, each with the time at which everything up to it was all that was committed.
    points: VecDeque<(Index, Duration)>,
    fresh_at: Option<Duration>,
}

impl Freshness {
    /// Begins to measure. `base` is a random number.
    pub(super) fn new(base: u64) -> Freshness {
        Freshness { base, stamps: BTreeMap::new(), points: VecDeque::new(), fresh_at: None }
    }

    /// Returns the stamp of a time.
    pub(super) fn stamp(&self, now: Duration) -> Stamp {
        Stamp(self.base.wrapping_add(nanoseconds(now)))
    }

    /// Notes the stamp that a follower has sent.
    pub(super) fn stamped(&mut self, follower: NodeId, stamp: Stamp) {
        self.stamps.insert(follower, stamp);
    }

    /// Returns the stamp to bring back to a follower.
    pub(super) fn stamp_of(&self, follower: NodeId) -> Stamp {
        self.stamps.get(&follower).copied().unwrap_or_default()
    }

    /// Notes that the leader knew `committed` to be committed at the time of the stamp, which this node had made.
    pub(super) fn told(&mut self, committed: Index, stamp: Stamp, now: Duration) {
        let age = nanoseconds(now).checked_sub(stamp.0.wrapping_sub(self.base));
        let Some(at) = age.map(|age| now.saturating_sub(Duration::from_nanos(age))) else { return };
        if self.points.back().is_some_and(|(_, last)| *last >= at) {
            return;
        }
        if self.points.len() == POINTS_MAX {
            self.points.pop_back();
        }
        self.points.push_back((committed, at));
    }

    /// Notes that the data has everything up to `applied`, and returns the time as of which it is complete.
    pub(super) fn reached(&mut self, applied: Index) -> Option<Duration> {
        while let Some((_, at)) = self.points.pop_front_if(|(index, _)| *index <= applied) {
            self.fresh_at = self.fresh_at.max(Some(at));
        }
        self.fresh_at
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn data_is_as_fresh_as_the_stamp_once_it_has_the_entry() {
        let mut freshness = Freshness::new(u64::MAX - 5);
        let stamps = [10, 20, 30].map(|ms| freshness.stamp(at(ms)));
        freshness.told(Index(7), stamps[0], at(15));
        assert_eq!(freshness.reached(Index(6)), None);
        assert_eq!(freshness.reached(Index(7)), Some(at(10)));
        freshness.told(Index(7), stamps[2], at(35));
        // An older message comes late.
        freshness.told(Index(9), stamps[1], at(36));
        assert_eq!(freshness.reached(Index(7)), Some(at(30)));
        assert_eq!(freshness.reached(Index(9)), Some(at(30)));
    }

    #[test]
    fn stamps_that_this_node_has_not_made_mean_nothing() {
        let mut freshness = Freshness::new(1 << 60);
        for stamp in [Stamp::default(), Stamp(77), freshness.stamp(at(50)), Stamp(u64::MAX)] {
            freshness.told(Index(1), stamp, at(49));
        }
        assert_eq!(freshness.reached(Index(9)), None);
    }

    #[test]
    fn a_follower_that_is_behind_keeps_few_points() {
        let mut freshness = Freshness::new(3);
        for ms in 1..=1_000 {
            let stamp = freshness.stamp(at(ms));
            freshness.told(Index(ms), stamp, at(ms));
        }
        assert!(freshness.points.len() <= POINTS_MAX);
        assert_eq!(freshness.reached(Index(10)), Some(at(10)));
        assert_eq!(freshness.reached(Index(999)), Some(at(63)), "the newest counts only when it is reached");
        assert_eq!(freshness.reached(Index(1_000)), Some(at(1_000)));
    }
}
