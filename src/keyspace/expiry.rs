//! Timers: which entry expires next.
//!
//! A heap of deadlines with at most one live timer per entry. Renewing an expiry (the common case: a lock that is extended,
//! a gate that is used) touches only the entry; the timer that fires too early is armed again for the entry's real
//! deadline. Only an *earlier* deadline adds a timer, and the one it replaces is recognised as stale when it fires. So
//! expired keys are reclaimed in the order of their deadlines, without sampling and without a scan.
//!
//! A lock that is taken and deleted again and again leaves a stale timer each time, which would stand in the heap until its
//! deadline. So when stale timers outnumber the live ones they are swept out, a few for each timer that is armed and for each
//! entry with a timer that is removed: these are what makes timers stale, so a sweep is always paid for. The heap
//! is set aside, and from its end, where taking one leaves a heap, what still lives moves into a fresh one. Until all have
//! moved, the next timer to fire is the nearer of two.

use super::NEVER;
use super::entry::StoredEntry as Entry;
use super::slab::{Slab, Slot};
use crate::base::limits::{TIMER_SWEEP_STEP, TIMERS_KEEP};

/// How many timers [`Timers::sample`] gives at most.
const SAMPLE: usize = 64;

/// Fewer timers than this are never swept.
const SWEEP_MIN: usize = 1_024;

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
    heap: Heap,
    /// What the sweep that is underway has not looked at.
    unswept: Heap,
}

impl Timers {
    /// Makes sure that a timer fires at or before the entry's deadline, or the first of its elements'.
    #[inline]
    pub(super) fn arm(&mut self, slot: Slot, entry: &mut Entry) {
        let at_ms = entry.due_at_ms();
        if at_ms == NEVER {
            return;
        }
        if at_ms < entry.armed_at_ms {
            entry.armed_at_ms = at_ms;
            self.heap.push(Timer { at_ms, slot, version: entry.version });
        }
    }

    /// Whether a sweep is underway, or stale timers outnumber the entries that expire, of which there are `volatile`.
    #[inline]
    pub(super) fn needs_sweep(&self, volatile: usize) -> bool {
        !self.unswept.is_empty() || (self.heap.len() >= SWEEP_MIN && self.heap.len() / 2 > volatile)
    }

    /// Looks at a few timers and throws out those that no entry needs. Answers how many it looked at.
    #[cold]
    pub(super) fn sweep_some(&mut self, entries: &mut Slab) -> usize {
        if self.unswept.is_empty() {
            self.unswept = std::mem::take(&mut self.heap);
        }
        for looked_at in 0..TIMER_SWEEP_STEP {
            let Some(timer) = self.unswept.take_last() else {
                self.unswept = Heap::default();
                return looked_at;
            };
            let Some(entry) = entries.get_mut(timer.slot).filter(|entry| timer.is_live(entry)) else { continue };
            if entry.due_at_ms() == NEVER {
                entry.armed_at_ms = NEVER;
            } else {
                self.heap.push(timer);
            }
        }
        TIMER_SWEEP_STEP
    }

    /// How many timers there are, stale ones included.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len() + self.unswept.len()
    }

    /// Bytes allocated.
    pub(super) fn mem_bytes(&self) -> usize {
        self.heap.mem_bytes() + self.unswept.mem_bytes()
    }

    /// Takes the front timer if it is due.
    pub(super) fn pop_due(&mut self, now_ms: i64) -> Option<Timer> {
        let heap = match (self.heap.first(), self.unswept.first()) {
            (Some(swept), Some(unswept)) if unswept < swept => &mut self.unswept,
            (None, Some(_)) => &mut self.unswept,
            _ => &mut self.heap,
        };
        heap.first().is_some_and(|timer| timer.at_ms <= now_ms).then(|| heap.pop())?
    }

    /// A few timers, the nearest ones among them.
    pub(super) fn sample(&self) -> impl Iterator<Item = &Timer> {
        self.heap.iter().take(SAMPLE).chain(self.unswept.iter().take(SAMPLE))
    }
}

/// Timers in one chunk of a heap: 64 KiB.
const CHUNK: usize = 4_096;

/// A binary heap with the nearest deadline first. The standard library's does not give its last element. It lies in chunks,
/// so that it grows and shrinks without copying.
#[derive(Default)]
struct Heap {
    /// No timer is nearer than its parent, which stands at `(i - 1) / 2`. All chunks but the last that holds a timer are full;
    /// behind it there is at most one that is empty.
    chunks: Vec<Vec<Timer>>,
    len: usize,
}

impl Heap {
    fn len(&self) -> usize {
        self.len
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn mem_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<Timer>()).sum()
    }

    fn iter(&self) -> impl Iterator<Item = &Timer> {
        self.chunks.iter().flatten()
    }

    /// The nearest timer.
    fn first(&self) -> Option<&Timer> {
        self.chunks.first()?.first()
    }

    fn push(&mut self, timer: Timer) {
        let mut at = self.len;
        self.push_last(timer);
        while at > 0 {
            let parent = (at - 1) / 2;
            if *self.at(parent) <= timer {
                break;
            }
            self.set(at, *self.at(parent));
            at = parent;
        }
        self.set(at, timer);
    }

    /// Takes the nearest timer.
    fn pop(&mut self) -> Option<Timer> {
        let last = self.take_last()?;
        if self.is_empty() {
            return Some(last);
        }
        let nearest = *self.at(0);
        let mut at = 0;
        loop {
            let mut child = at * 2 + 1;
            if child + 1 < self.len && *self.at(child + 1) < *self.at(child) {
                child += 1;
            }
            if child >= self.len || last <= *self.at(child) {
                self.set(at, last);
                return Some(nearest);
            }
            self.set(at, *self.at(child));
            at = child;
        }
    }

    #[inline]
    fn at(&self, index: usize) -> &Timer {
        &self.chunks[index / CHUNK][index % CHUNK]
    }

    #[inline]
    fn set(&mut self, index: usize, timer: Timer) {
        self.chunks[index / CHUNK][index % CHUNK] = timer;
    }

    fn push_last(&mut self, timer: Timer) {
        let chunk = self.len / CHUNK;
        if chunk == self.chunks.len() {
            // The first chunk grows like any vector: most databases have few timers.
            self.chunks.push(if chunk == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
        self.chunks[chunk].push(timer);
        self.len += 1;
    }

    /// Takes a timer that is no other's parent.
    fn take_last(&mut self) -> Option<Timer> {
        let last = self.len.checked_sub(1)?;
        let timer = self.chunks[last / CHUNK].pop();
        self.len = last;
        self.chunks.truncate(last / CHUNK + 2);
        if last == 0 && self.chunks[0].capacity() > TIMERS_KEEP {
            self.chunks = Vec::new();
        }
        timer
    }
}

impl Timer {
    /// Whether this is the entry's live timer, not one that an earlier deadline replaced or that was left by an entry that
    /// lived in the same slot before.
    pub(super) fn is_live(&self, entry: &Entry) -> bool {
        self.version == entry.version && self.at_ms == entry.armed_at_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::EXPIRY_SLICE_TIMERS;
    use crate::base::rng::Rng;
    use crate::keyspace::Keyspace;
    use crate::keyspace::effect::{Cause, Effect, Recording};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn at(ks: &mut Keyspace, now_ms: i64) {
        ks.begin_unit(now_ms, Recording::Full);
    }

    fn keyspace(now_ms: i64) -> Keyspace {
        let mut ks = Keyspace::new(2, Rng::seeded(1));
        at(&mut ks, now_ms);
        ks
    }

    fn put_until(ks: &mut Keyspace, key: &[u8], at_ms: i64) {
        let slot = ks.put(0, key, b"v");
        _ = ks.expire_at(0, slot, at_ms);
    }

    #[test]
    fn an_expired_key_is_gone_for_every_reader() {
        let mut ks = keyspace(1_000);
        put_until(&mut ks, b"k", 2_000);
        at(&mut ks, 1_999);
        assert!(ks.find(0, b"k").is_some() && ks.entries(0).count() == 1);
        at(&mut ks, 2_000);
        // A walk in one go leaves it out and leaves it there, a look-up removes it.
        assert_eq!((ks.entries(0).count(), ks.db(0).len()), (0, 1));
        assert!(ks.read(0, b"k").is_none());
        assert_eq!((ks.db(0).len(), ks.db(0).volatile(), ks.stats.expired, ks.stats.misses), (0, 0, 1, 1));
        assert!(ks.effects().iter().eq([(0, Effect::Del { key: b"k", cause: Cause::Expiry })]));
        // The timer that was left finds nothing; neither does it find another key in the same slot.
        put_until(&mut ks, b"other", 9_000);
        assert!(!ks.reclaim_expired(10));
        assert!(ks.find(0, b"other").is_some() && ks.stats.expired == 1);
        // So does a walk by a cursor.
        at(&mut ks, 9_000);
        let mut seen = 0;
        assert_eq!((ks.scan(0, 0, 10, |_| seen += 1), seen, ks.db(0).len(), ks.stats.expired), (0, 0, 0, 2));
    }

    #[test]
    fn a_walk_by_a_cursor_removes_no_more_than_active_expiry_does_at_once() {
        let mut ks = keyspace(1_000);
        let keys = 2 * EXPIRY_SLICE_TIMERS;
        (0..keys).for_each(|i| put_until(&mut ks, format!("k{i}").as_bytes(), 2_000));
        at(&mut ks, 2_000);
        assert_eq!(ks.scan(0, 0, usize::MAX, |_| panic!("all have expired")), 0);
        assert_eq!(ks.db(0).len(), keys - EXPIRY_SLICE_TIMERS);
    }

    #[test]
    fn random_keys_are_never_expired_ones() {
        let mut ks = keyspace(0);
        (0..50u8).for_each(|i| put_until(&mut ks, &[i], 10));
        ks.put(0, b"stays", b"");
        at(&mut ks, 10);
        assert_eq!(ks.random_key(0).map(|entry| entry.key().to_vec()), Some(b"stays".to_vec()));
    }

    #[test]
    fn timers_follow_what_becomes_of_a_key() {
        let mut ks = keyspace(0);
        put_until(&mut ks, b"later", 100);
        put_until(&mut ks, b"sooner", 100);
        put_until(&mut ks, b"lifted", 100);
        put_until(&mut ks, b"stored", 100);
        put_until(&mut ks, b"moved", 100);
        put_until(&mut ks, b"renamed", 100);
        let mut to = |key: &[u8], at_ms| {
            let slot = ks.find(0, key).expect("put above");
            _ = ks.expire_at(0, slot, at_ms);
        };
        to(b"later", 300);
        to(b"sooner", 50);
        to(b"lifted", NEVER);
        ks.put(0, b"stored", b"again");
        let moved = ks.find(0, b"moved").expect("put above");
        ks.move_to(0, moved, 1);
        let renamed = ks.find(0, b"renamed").expect("put above");
        ks.rename(0, renamed, b"new");
        let gone = |ks: &mut Keyspace, now_ms| {
            at(ks, now_ms);
            assert!(!ks.reclaim_expired(100));
            let name = |(db, effect): (u16, Effect<'_>)| match effect {
                Effect::Del { key, .. } => (db, String::from_utf8_lossy(key).into_owned()),
                other => panic!("{other:?}"),
            };
            let mut gone: Vec<_> = ks.effects().iter().map(name).collect();
            gone.sort();
            gone
        };
        assert_eq!(gone(&mut ks, 49), []);
        assert_eq!(gone(&mut ks, 50), [(0, "sooner".to_owned())]);
        assert_eq!(gone(&mut ks, 299), [(0, "new".to_owned()), (1, "moved".to_owned())]);
        assert_eq!(gone(&mut ks, 300), [(0, "later".to_owned())]);
        assert_eq!((ks.db(0).len(), ks.db(0).volatile(), ks.db(1).len()), (2, 0, 0));
    }

    #[test]
    fn reclaiming_goes_in_slices() {
        let mut ks = keyspace(0);
        (0..100u8).for_each(|i| put_until(&mut ks, &[i], 10 + i64::from(i % 2)));
        at(&mut ks, 10);
        assert!(ks.reclaim_expired(30));
        assert_eq!(ks.db(0).len(), 70);
        assert!(!ks.reclaim_expired(30));
        assert_eq!((ks.db(0).len(), ks.db(0).volatile()), (50, 50));
    }

    #[test]
    fn a_lock_taken_over_and_over_leaves_no_heap_of_dead_timers() {
        let mut ks = keyspace(0);
        (0..10u8).for_each(|i| put_until(&mut ks, &[i], 1_000_000));
        // Lifted expiries leave timers, too.
        for i in 0..2_000u16 {
            put_until(&mut ks, &i.to_be_bytes(), 1_000_000);
            ks.put(0, &i.to_be_bytes(), b"");
        }
        for now_ms in 0..20_000 {
            at(&mut ks, now_ms);
            put_until(&mut ks, b"lock", now_ms + 600_000);
            let slot = ks.find(0, b"lock").expect("just put");
            ks.remove(0, slot);
            assert!(ks.db(0).timers.len() <= SWEEP_MIN);
        }
        at(&mut ks, 1_000_000);
        assert!(!ks.reclaim_expired(100_000));
        assert_eq!(ks.db(0).len(), 2_000);
    }

    #[test]
    fn a_sweep_goes_in_slices_and_holds_nothing_up() {
        const KEYS: u32 = 100_000;
        let mut ks = keyspace(0);
        for i in 0..KEYS {
            put_until(&mut ks, &i.to_be_bytes(), 1_000 + i64::from(i));
        }
        // Half of them are deleted: their timers are stale.
        for i in (0..KEYS).filter(|i| i % 2 != 0) {
            let slot = ks.find(0, &i.to_be_bytes()).expect("put above");
            ks.remove(0, slot);
        }
        assert_eq!(ks.db(0).timers.len(), KEYS as usize);
        // One more, and there are more of these than of live ones.
        let slot = ks.find(0, &(KEYS - 2).to_be_bytes()).expect("put above");
        ks.remove(0, slot);
        let (mut armed, mut gone) = (0, 0);
        while ks.db(0).timers.len() > ks.db(0).volatile() + 100 {
            let before = ks.db(0).timers.len();
            put_until(&mut ks, &(KEYS + armed).to_be_bytes(), 1_000_000);
            armed += 1;
            assert!(before < ks.db(0).timers.len() + TIMER_SWEEP_STEP, "one command sweeps a few timers");
            // What is due in the middle of a sweep fires on time and in order.
            if armed % 1_000 == 0 {
                at(&mut ks, 1_000 + i64::from(armed));
                assert!(!ks.reclaim_expired(usize::MAX));
                gone = 1 + armed / 2;
                assert_eq!(ks.stats.expired, u64::from(gone));
            }
        }
        assert!(gone > 0 && armed <= KEYS / TIMER_SWEEP_STEP as u32 + 1, "swept in proportion to what is armed");
        at(&mut ks, 1_000_000);
        assert!(!ks.reclaim_expired(usize::MAX));
        assert_eq!((ks.db(0).len(), ks.db(0).timers.len()), (0, 0));
    }

    #[test]
    fn keys_that_are_deleted_leave_no_timers() {
        let mut ks = keyspace(0);
        for _ in 0..2 {
            (0..50_000u32).for_each(|i| put_until(&mut ks, &i.to_be_bytes(), 1_000_000));
            for i in 0..50_000u32 {
                let slot = ks.find(0, &i.to_be_bytes()).expect("put above");
                let before = ks.db(0).timers.len();
                ks.remove(0, slot);
                assert!(before <= ks.db(0).timers.len() + TIMER_SWEEP_STEP, "one command sweeps a few timers");
            }
            assert!(ks.db(0).timers.len() <= SWEEP_MIN, "{} timers", ks.db(0).timers.len());
            assert!(ks.db(0).overhead_bytes() < 2 * CHUNK * size_of::<Timer>());
        }
    }

    proptest! {
        #[test]
        fn the_heap_gives_the_nearest_first(ops in proptest::collection::vec((0..3u8, 0..50i64), 0..200)) {
            let mut heap = Heap::default();
            let mut model: Vec<i64> = Vec::new();
            for (op, at_ms) in ops {
                match op {
                    0 => {
                        let least = model.iter().min().copied();
                        prop_assert_eq!(heap.pop().map(|timer| timer.at_ms), least);
                        model.iter().position(|at_ms| Some(*at_ms) == least).map(|at| model.remove(at));
                    }
                    1 if model.len() > 20 => {
                        let last = heap.take_last().map(|timer| timer.at_ms);
                        model.iter().position(|at_ms| Some(*at_ms) == last).map(|at| model.remove(at));
                    }
                    _ => {
                        heap.push(Timer { at_ms, slot: Slot(0), version: 0 });
                        model.push(at_ms);
                    }
                }
                prop_assert_eq!(heap.len(), model.len());
            }
        }

        /// Whatever is done to lifetimes, what reclaiming leaves is what a map of deadlines says.
        #[test]
        fn equal_to_a_map_of_deadlines(ops in proptest::collection::vec((0..8u8, 0..6u8, 0..40i64), 0..120)) {
            let mut ks = keyspace(0);
            let mut model: HashMap<u8, i64> = HashMap::new();
            let mut now_ms = 0;
            for (key, op, ms) in ops {
                at(&mut ks, now_ms);
                model.retain(|_, at_ms| *at_ms > now_ms);
                let slot = ks.find(0, &[key]);
                prop_assert_eq!(slot.is_some(), model.contains_key(&key));
                match (op, slot) {
                    (0, _) => {
                        ks.put(0, &[key], b"");
                        model.insert(key, NEVER);
                    }
                    (1, Some(slot)) => {
                        ks.remove(0, slot);
                        model.remove(&key);
                    }
                    (2 | 3, Some(slot)) => {
                        _ = ks.expire_at(0, slot, now_ms + ms);
                        model.insert(key, now_ms + ms);
                    }
                    (4, Some(slot)) => {
                        _ = ks.expire_at(0, slot, NEVER);
                        model.insert(key, NEVER);
                    }
                    (5, _) => {
                        now_ms += ms;
                        at(&mut ks, now_ms);
                        ks.reclaim_expired(usize::MAX);
                        model.retain(|_, at_ms| *at_ms > now_ms);
                        prop_assert_eq!(ks.db(0).len(), model.len());
                        prop_assert_eq!(ks.db(0).volatile(), model.values().filter(|at_ms| **at_ms != NEVER).count());
                    }
                    _ => {}
                }
            }
        }
    }
}
