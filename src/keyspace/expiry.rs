//! Timers: which entry expires next.
//!
//! A heap of deadlines with at most one live timer per entry. Renewing an expiry (the common case: a lock that is extended,
//! a gate that is used) touches only the entry; the timer that fires too early is armed again for the entry's real
//! deadline. Only an *earlier* deadline adds a timer, and the one it replaces is recognised as dead when it fires. So
//! expired keys are reclaimed in the order of their deadlines, without sampling and without a scan.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::NEVER;
use super::entry::Entry;
use super::slab::Slot;

/// How many timers [`Timers::sample`] gives at most.
const SAMPLE: usize = 64;

/// One deadline of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) at_ms: i64,
    pub(super) slot: Slot,
    pub(super) version: u32,
}

/// The timers of one database.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
}

impl Timers {
    /// Makes sure that a timer fires at or before the entry's deadline.
    #[inline]
    pub(super) fn arm(&mut self, slot: Slot, entry: &mut Entry) {
        let at_ms = entry.expires_at_ms;
        if at_ms == NEVER {
            return;
        }
        if at_ms < entry.armed_at_ms {
            entry.armed_at_ms = at_ms;
            self.heap.push(Reverse(Timer { at_ms, slot, version: entry.version }));
        }
    }

    /// Takes the front timer if it is due.
    pub(super) fn pop_due(&mut self, now_ms: i64) -> Option<Timer> {
        let due = self.heap.peek().is_some_and(|Reverse(timer)| timer.at_ms <= now_ms);
        if due { self.heap.pop().map(|Reverse(timer)| timer) } else { None }
    }

    /// A few timers, the nearest ones among them.
    pub(super) fn sample(&self) -> impl Iterator<Item = &Timer> {
        self.heap.iter().take(SAMPLE).map(|Reverse(timer)| timer)
    }
}

impl Timer {
    /// Whether this is the entry's live timer, not one that an earlier deadline replaced or that was left by an entry that
    /// lived in the same slot before.
    pub(super) fn is_live(&self, entry: &Entry) -> bool {
        self.version == entry.version && self.at_ms == entry.armed_at_ms
    }
}
