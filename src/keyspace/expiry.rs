//! Timers: which entry expires next.
//!
//! A timer is just a slot in a [wheel](super::wheel). The deadline is in the entry, and so is a flag that says whether
//! the entry is *armed*, which means that a timer fires no later than its deadline. The common case is a renewed
//! expiry: a lock is extended, or a gate is used. It touches only the entry, and a timer that fires too early is pushed
//! again for the entry's real deadline. Only an *earlier* deadline adds a timer. So expired keys are reclaimed in the
//! order of their deadlines, without sampling and without a scan. A removed expiry leaves its deadline as a bound, so
//! the next expiry adds no timer if it is later.
//!
//! Elements that expire have a bound of their own, next to their deadlines. A timer that fires serves the key and its
//! elements, and a timer is pushed for the nearer of the two.
//!
//! **Stale timers.** A timer becomes stale when an earlier deadline replaces it, or when its entry is removed. It
//! cannot be told from a timer that is needed. When it fires, its entry is gone or never expires, and the timer is
//! dropped; or an entry that needs one adopts it. A lock that is taken and deleted over and over leaves one stale timer
//! each time. So when there are more than twice as many timers as entries that expire, timers are swept: a few for each
//! timer armed, and for each removed entry with a timer. Only these make timers stale, so every sweep is paid for. A
//! sweep sets the wheel aside and moves timers to a fresh one, at most one for each entry, which then carries a mark.
//! Until all have moved, the next timer is the nearer of the two wheels' next ones. A wheel that was large and whose
//! memory is mostly free is shrunk in the same way.
//!
//! Let `volatile` be the number of entries that expire. There are at most `max(SWEEP_MIN, 2 * volatile)` timers. During
//! a sweep, there are at most `volatile`, plus those not looked at yet, plus one for each `TIMER_SWEEP_STEP` looked at.

use super::arena::Slot;
use super::entries::Entries;
use super::entry::{EntryMut, NEVER};
use super::wheel::{Taken, Wheel};
use crate::base::rng::Rng;
use crate::keyspace::limits::TIMER_SWEEP_STEP;

/// The most timers that [`Timers::sample`] returns of each wheel.
const SAMPLE: usize = 64;

/// How many of the next timers [`Timers::nearest`] looks at in one round.
const NEAREST: usize = 15;

/// How many rounds [`Timers::nearest`] makes if none of these timers belongs to a key that expires.
const NEAREST_ROUNDS: usize = 8;

/// Below this number of timers, stale ones are never swept.
const SWEEP_MIN: usize = 1_024;

/// The outcome of a look at the next timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// No timer is due.
    Nothing,
    /// A timer was due, and has been dealt with.
    Passed,
    /// The deadline of this entry or of some of its elements has come. If the entry stays, it must be
    /// [rearmed](super::db::Db::rearm).
    Due(Slot),
}

/// The timers of one database.
#[derive(Default)]
pub(super) struct Timers {
    wheel: Wheel,
    /// Timers at which the current sweep has not looked yet.
    unswept: Wheel,
    /// The mark of the last sweep. All armed entries carry it, except those whose timers are unswept.
    mark: bool,
    /// The number of timers at the start of the last sweep.
    #[cfg(test)]
    swept_from: usize,
}

impl Timers {
    /// Makes sure that a timer fires at the deadline of the entry or of its first element. One of them must have a
    /// deadline.
    #[inline(never)]
    pub(super) fn arm(&mut self, slot: Slot, mut entry: EntryMut<'_>) {
        let due_at_ms = entry.as_ref().due_at_ms();
        self.wheel.push(slot, due_at_ms);
        entry.arm(due_at_ms, self.mark);
    }

    /// Whether a sweep is in progress or worthwhile, given `volatile` entries that expire.
    #[inline]
    pub(super) fn needs_sweep(&self, volatile: usize) -> bool {
        !self.unswept.is_empty()
            || (self.wheel.len() >= SWEEP_MIN && self.wheel.len() / 2 > volatile)
            || self.wheel.is_mostly_free()
    }

    /// Looks at a few timers and drops those that no entry needs.
    #[cold]
    pub(super) fn sweep_some(&mut self, entries: &mut Entries) {
        if self.unswept.is_empty() {
            std::mem::swap(&mut self.wheel, &mut self.unswept);
            self.mark = !self.mark;
            #[cfg(test)]
            {
                self.swept_from = self.unswept.len();
            }
        }
        for _ in 0..TIMER_SWEEP_STEP {
            let Some(taken) = self.unswept.take(NEVER) else { return };
            prefetch(entries, &self.unswept);
            if let Some(entry) = self.entry_of(taken.slot(), true, entries) {
                self.arm(taken.slot(), entry);
            }
        }
    }

    /// The number of timers, including stale ones.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.wheel.len() + self.unswept.len()
    }

    /// Bytes allocated.
    pub(super) fn mem_bytes(&self) -> usize {
        self.wheel.mem_bytes() + self.unswept.mem_bytes()
    }

    /// Looks at the next timer, if it is due at `now_ms`.
    pub(super) fn turn(&mut self, now_ms: i64, entries: &mut Entries) -> Turn {
        let is_unswept = self.is_unswept_next();
        let wheel = if is_unswept { &mut self.unswept } else { &mut self.wheel };
        let Some(taken) = wheel.take(now_ms) else { return Turn::Nothing };
        prefetch(entries, wheel);
        let Some(entry) = self.entry_of(taken.slot(), is_unswept, entries) else { return Turn::Passed };
        match taken {
            // A timer of a later deadline is pushed again even if that deadline has passed, too: it must wait for its
            // turn.
            Taken::Due { slot, at_ms } if entry.as_ref().due_at_ms() <= at_ms => Turn::Due(slot),
            _ => {
                self.arm(taken.slot(), entry);
                Turn::Passed
            }
        }
    }

    /// The slots of a few timers, including near ones.
    pub(super) fn sample(&self) -> impl Iterator<Item = Slot> {
        self.wheel.iter().take(SAMPLE).chain(self.unswept.iter().take(SAMPLE))
    }

    /// All timers, including stale ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.wheel.iter().chain(self.unswept.iter())
    }

    /// Some timers that lie together, including stale ones.
    pub(super) fn random_block(&self, rng: &mut Rng) -> &[Slot] {
        let wheel = if self.unswept.len() > self.wheel.len() { &self.unswept } else { &self.wheel };
        wheel.random_block(rng)
    }

    /// Whether timers are still being sorted.
    #[inline]
    pub(super) fn is_moving(&self) -> bool {
        self.wheel.is_moving()
    }

    /// Draws slots of keys that expire from the timers that would fire next, whatever the time. Drops stale timers and
    /// pushes early ones again, so that neither hides the others. A bucket with many timers is moved as if its time had
    /// come, a few timers with each call.
    pub(super) fn nearest(&mut self, entries: &mut Entries, drawn: &mut Vec<Slot>) {
        let mut taken = Vec::with_capacity(2 * NEAREST);
        for _ in 0..NEAREST_ROUNDS {
            let is_unswept = self.is_unswept_next();
            let wheel = if is_unswept { &mut self.unswept } else { &mut self.wheel };
            taken.extend(std::iter::from_fn(|| wheel.take_moving()).take(NEAREST).map(|slot| (slot, NEVER)));
            prefetch(entries, wheel);
            taken.extend(std::iter::from_fn(|| wheel.take_near()).take(NEAREST));
            for (slot, until_ms) in taken.drain(..) {
                let Some(entry) = self.entry_of(slot, is_unswept, entries) else { continue };
                if entry.as_ref().deadline_ms() <= until_ms && entry.as_ref().expires() {
                    drawn.push(slot);
                }
                self.arm(slot, entry);
            }
            if !drawn.is_empty() {
                return;
            }
        }
    }

    /// Whether the next timer is one at which the sweep has not looked yet.
    #[inline]
    fn is_unswept_next(&self) -> bool {
        match (self.unswept.next_ms(), self.wheel.next_ms()) {
            (Some(unswept), Some(swept)) => unswept < swept,
            (unswept, _) => unswept.is_some(),
        }
    }

    /// Returns the entry for which a taken timer must be pushed again.
    #[inline]
    fn entry_of<'a>(&self, slot: Slot, is_unswept: bool, entries: &'a mut Entries) -> Option<EntryMut<'a>> {
        let mut entry = entries.get_mut(slot)?;
        if is_unswept && entry.as_ref().mark() == self.mark {
            // There is another timer in the wheel, or none is needed.
            return None;
        }
        if entry.as_ref().due_at_ms() == NEVER {
            entry.disarm();
            return None;
        }
        Some(entry)
    }
}

/// Prefetches the entries of all timers in a block when a wheel begins with the block. The timers of a bucket belong to
/// arbitrary entries, and each look would otherwise wait for memory.
#[inline]
fn prefetch(entries: &Entries, wheel: &Wheel) {
    if let Some(slots) = wheel.next_block() {
        slots.iter().for_each(|slot| entries.prefetch(*slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::Keyspace;
    use crate::keyspace::effect::{Cause, Effect, Recording};
    use crate::keyspace::limits::{EXPIRY_SLICE_TIMERS, EXPIRY_STEP};
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

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

    /// The keys that expired in this unit, in order.
    fn expired_keys(ks: &Keyspace) -> Vec<Vec<u8>> {
        let expired = |(_, effect)| match effect {
            Effect::Del { key, cause: Cause::Expiry } => Some(key.to_vec()),
            _ => None,
        };
        ks.effects().iter().filter_map(expired).collect()
    }

    /// Takes and deletes a lock `times` times.
    fn churn(ks: &mut Keyspace, times: usize, until_ms: i64) {
        for _ in 0..times {
            put_until(ks, b"churn", until_ms);
            let slot = ks.db(0).find(b"churn").expect("just put");
            ks.remove(0, slot);
        }
    }

    /// Checks that every entry that needs a timer has one, and that there are no more timers than the module header
    /// says.
    fn check_timers(ks: &Keyspace) {
        let db = ks.db(0);
        let timers = db.timers();
        let all: HashSet<Slot> = timers.wheel.iter().chain(timers.unswept.iter()).collect();
        for slot in db.slots() {
            assert!(db.get(slot).is_none_or(|entry| entry.due_at_ms() == NEVER || all.contains(&slot)));
        }
        let volatile = db.volatile() + db.partly_volatile();
        let seen = timers.swept_from - timers.unswept.len();
        let bound = match timers.unswept.is_empty() {
            true => SWEEP_MIN.max(2 * volatile + 1),
            false => volatile + timers.unswept.len() + seen / TIMER_SWEEP_STEP,
        };
        assert!(timers.len() <= bound, "{} timers, {volatile} entries, {} unswept", timers.len(), timers.unswept.len());
    }

    #[test]
    fn an_expired_key_is_gone_for_every_reader() {
        let mut ks = keyspace(1_000);
        put_until(&mut ks, b"k", 2_000);
        at(&mut ks, 1_999);
        assert!(ks.find(0, b"k").is_some() && ks.entries(0).count() == 1);
        at(&mut ks, 2_000);
        // A walk in one go skips the key and leaves it there; a lookup removes it.
        assert_eq!((ks.entries(0).count(), ks.db(0).len()), (0, 1));
        assert!(ks.read(0, b"k").is_none());
        assert_eq!((ks.db(0).len(), ks.db(0).volatile(), ks.stats.expired, ks.stats.misses), (0, 0, 1, 1));
        assert!(ks.effects().iter().eq([(0, Effect::Del { key: b"k", cause: Cause::Expiry })]));
        // The leftover timer finds nothing, nor does it match another key in that slot.
        put_until(&mut ks, b"other", 9_000);
        assert!(!ks.reclaim_expired(10));
        assert!(ks.find(0, b"other").is_some() && ks.stats.expired == 1);
        // So does a walk by a cursor.
        at(&mut ks, 9_000);
        let mut seen = 0;
        assert_eq!((ks.scan(0, 0, 10, |_| seen += 1), seen, ks.db(0).len(), ks.stats.expired), (0, 0, 0, 2));
    }

    #[test]
    fn a_scan_step_removes_at_most_a_slice_of_active_expiry() {
        let mut ks = keyspace(1_000);
        let keys = 2 * EXPIRY_SLICE_TIMERS;
        (0..keys).for_each(|i| put_until(&mut ks, format!("k{i}").as_bytes(), 2_000));
        at(&mut ks, 2_000);
        assert_eq!(ks.scan(0, 0, usize::MAX, |_| panic!("all have expired")), 0);
        assert_eq!(ks.db(0).len(), keys - EXPIRY_SLICE_TIMERS);
    }

    #[test]
    fn a_slice_ends_when_it_has_no_more_time() {
        let mut ks = keyspace(1_000);
        let keys = 3 * EXPIRY_STEP;
        (0..keys).for_each(|i| put_until(&mut ks, format!("k{i}").as_bytes(), 2_000));
        at(&mut ks, 2_000);
        assert!(ks.reclaim_expired_while(EXPIRY_SLICE_TIMERS, || false));
        assert_eq!(ks.db(0).len(), keys - EXPIRY_STEP);
        assert!(!ks.reclaim_expired_while(EXPIRY_SLICE_TIMERS, || true));
        assert_eq!(ks.db(0).len(), 0);
    }

    #[test]
    fn random_keys_are_never_expired() {
        let mut ks = keyspace(0);
        (0..50u8).for_each(|i| put_until(&mut ks, &[i], 10));
        ks.put(0, b"stays", b"");
        at(&mut ks, 10);
        assert_eq!(ks.random_key(0).map(|entry| entry.key().to_vec()), Some(b"stays".to_vec()));
    }

    #[test]
    fn timers_follow_the_fate_of_a_key() {
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
    fn expired_keys_are_reclaimed_in_slices() {
        let mut ks = keyspace(0);
        (0..100u8).for_each(|i| put_until(&mut ks, &[i], 10 + i64::from(i % 2)));
        at(&mut ks, 10);
        assert!(ks.reclaim_expired(30));
        assert_eq!(ks.db(0).len(), 70);
        assert!(!ks.reclaim_expired(30));
        assert_eq!((ks.db(0).len(), ks.db(0).volatile()), (50, 50));
    }

    #[test]
    fn a_lock_taken_over_and_over_leaves_few_stale_timers() {
        let mut ks = keyspace(0);
        (0..10u8).for_each(|i| put_until(&mut ks, &[i], 1_000_000));
        // Removed expiries leave timers, too.
        for i in 0..2_000u16 {
            put_until(&mut ks, &i.to_be_bytes(), 1_000_000);
            ks.put(0, &i.to_be_bytes(), b"");
        }
        for now_ms in 0..20_000 {
            at(&mut ks, now_ms);
            put_until(&mut ks, b"lock", now_ms + 600_000);
            let slot = ks.find(0, b"lock").expect("just put");
            ks.remove(0, slot);
            assert!(ks.db(0).timers().len() <= SWEEP_MIN);
        }
        at(&mut ks, 1_000_000);
        assert!(!ks.reclaim_expired(100_000));
        assert_eq!(ks.db(0).len(), 2_000);
    }

    #[test]
    fn a_sweep_runs_in_slices_and_delays_nothing() {
        const KEYS: u32 = 100_000;
        let mut ks = keyspace(0);
        for i in 0..KEYS {
            put_until(&mut ks, &i.to_be_bytes(), 1_000 + i64::from(i));
        }
        // Half of the keys are deleted, which makes their timers stale.
        for i in (0..KEYS).filter(|i| i % 2 != 0) {
            let slot = ks.find(0, &i.to_be_bytes()).expect("put above");
            ks.remove(0, slot);
        }
        assert_eq!(ks.db(0).timers().len(), KEYS as usize);
        // With one more, there are more stale timers than live ones.
        let slot = ks.find(0, &(KEYS - 2).to_be_bytes()).expect("put above");
        ks.remove(0, slot);
        let (mut armed, mut gone) = (0, 0);
        while ks.db(0).timers().len() > ks.db(0).volatile() + 100 {
            let before = ks.db(0).timers().len();
            put_until(&mut ks, &(KEYS + armed).to_be_bytes(), 1_000_000);
            armed += 1;
            assert!(before < ks.db(0).timers().len() + TIMER_SWEEP_STEP, "one command sweeps a few timers");
            // A timer due in the middle of a sweep fires on time and in order.
            if armed % 1_000 == 0 {
                at(&mut ks, 1_000 + i64::from(armed));
                assert!(!ks.reclaim_expired(usize::MAX));
                gone = 1 + armed / 2;
                assert_eq!(ks.stats.expired, u64::from(gone));
            }
        }
        assert!(gone > 0 && armed <= KEYS / TIMER_SWEEP_STEP as u32 + 1, "swept in proportion to armed timers");
        at(&mut ks, 1_000_000);
        assert!(!ks.reclaim_expired(usize::MAX));
        assert_eq!((ks.db(0).len(), ks.db(0).timers().len()), (0, 0));
    }

    #[test]
    fn keys_that_expire_together_are_removed_in_slices() {
        const KEYS: u32 = 20_000;
        // In one millisecond, and in one bucket of a high level.
        for spread_ms in [1, 1_000_000] {
            let mut ks = keyspace(0);
            let first_ms = 1 << 40;
            (0..KEYS).for_each(|i| put_until(&mut ks, &i.to_be_bytes(), first_ms + i64::from(i) * 7_919 % spread_ms));
            at(&mut ks, first_ms + spread_ms);
            let mut slices = 1;
            loop {
                let (len, timers) = (ks.db(0).len(), ks.db(0).timers().len());
                if !ks.reclaim_expired(100) {
                    break;
                }
                assert!(len - ks.db(0).len() <= 100 && timers - ks.db(0).timers().len() <= 100);
                slices += 1;
            }
            let looks = slices * 100 / KEYS;
            assert!(looks <= 1 + spread_ms.ilog2() / 6 + 1, "{looks} looks at each timer");
            assert_eq!(expired_keys(&ks).len(), KEYS as usize);
            assert_eq!((ks.db(0).len(), ks.db(0).timers().len(), ks.stats.expired), (0, 0, u64::from(KEYS)));
        }
    }

    #[test]
    fn the_clock_may_be_set() {
        const YEAR_MS: i64 = 365 * 24 * 3_600_000;
        let mut ks = keyspace(50 * YEAR_MS);
        put_until(&mut ks, b"later", 50 * YEAR_MS + 10);
        at(&mut ks, 50 * YEAR_MS + 9);
        assert!(!ks.reclaim_expired(10));
        // Back by years: keys put then expire when they should.
        at(&mut ks, 20 * YEAR_MS);
        assert!(!ks.reclaim_expired(10));
        put_until(&mut ks, b"sooner", 20 * YEAR_MS + 10);
        at(&mut ks, 20 * YEAR_MS + 10);
        while ks.reclaim_expired(10) {}
        assert_eq!((expired_keys(&ks), ks.db(0).len()), (vec![b"sooner".to_vec()], 1));
        // Forward by years: removing the expired keys takes a few looks.
        at(&mut ks, 2_000 * YEAR_MS);
        assert!(!ks.reclaim_expired(12));
        assert_eq!((expired_keys(&ks), ks.db(0).len()), (vec![b"later".to_vec()], 0));
    }

    #[test]
    fn a_large_wheel_shrinks() {
        let mut ks = keyspace(0);
        for i in 0..200_000u32 {
            put_until(&mut ks, &i.to_be_bytes(), if i % 100 == 0 { 1_000_000 } else { 10 });
        }
        assert!(ks.db(0).timers().mem_bytes() > 200_000 * 4);
        at(&mut ks, 10);
        while ks.reclaim_expired(1_000) {}
        assert_eq!((ks.db(0).len(), ks.db(0).timers().len()), (2_000, 2_000));
        assert!(ks.db(0).timers().mem_bytes() < 4 * 64 * 1024, "{} bytes", ks.db(0).timers().mem_bytes());
    }

    #[test]
    fn deleted_keys_leave_no_timers() {
        let mut ks = keyspace(0);
        for _ in 0..2 {
            (0..50_000u32).for_each(|i| put_until(&mut ks, &i.to_be_bytes(), 1_000_000));
            for i in 0..50_000u32 {
                let slot = ks.find(0, &i.to_be_bytes()).expect("put above");
                let before = ks.db(0).timers().len();
                ks.remove(0, slot);
                assert!(before <= ks.db(0).timers().len() + TIMER_SWEEP_STEP, "one command sweeps a few timers");
            }
            assert!(ks.db(0).timers().len() <= SWEEP_MIN, "{} timers", ks.db(0).timers().len());
            assert!(ks.db(0).overhead_bytes() < 64 * 1024);
        }
    }

    proptest! {
        /// Compared with a map of deadlines, reclaiming leaves the right keys, whatever is done to lifetimes and
        /// however the clock runs. Keys are reclaimed in the order of their deadlines, and timers stay few.
        #[test]
        fn equal_to_a_map_of_deadlines(ops in proptest::collection::vec((0..8u8, 0..10u8, 0..40i64), 0..120)) {
            let mut ks = keyspace(0);
            let mut model: HashMap<u8, i64> = HashMap::new();
            let mut now_ms = 0;
            for (key, op, ms) in ops {
                at(&mut ks, now_ms);
                // An expired key stays until it is next looked up.
                if model.get(&key).is_some_and(|at_ms| *at_ms <= now_ms) {
                    model.remove(&key);
                }
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
                        // Near and far: up to some 36 years.
                        let far = if op == 2 { ms } else { 1 << ms };
                        _ = ks.expire_at(0, slot, now_ms + far);
                        model.insert(key, now_ms + far);
                    }
                    (4, Some(slot)) => {
                        _ = ks.expire_at(0, slot, NEVER);
                        model.insert(key, NEVER);
                    }
                    (5 | 6, _) => {
                        now_ms += if op == 5 { ms } else { 1 << ms };
                        at(&mut ks, now_ms);
                        while ks.reclaim_expired(1 + usize::from(key)) {}
                        let gone: Vec<i64> = expired_keys(&ks).iter().map(|key| model[&key[0]]).collect();
                        prop_assert!(gone.is_sorted(), "{gone:?}");
                        model.retain(|_, at_ms| *at_ms > now_ms);
                        prop_assert_eq!(ks.db(0).len(), model.len());
                        prop_assert_eq!(ks.db(0).volatile(), model.values().filter(|at_ms| **at_ms != NEVER).count());
                    }
                    // Set back: keys that nobody has looked up in time live again.
                    (7, _) => now_ms -= if ms < 20 { ms } else { 1 << (ms - 20) },
                    (8, _) => churn(&mut ks, 20 * ms as usize, now_ms + (1 << ms)),
                    // An entry that grows moves, and its timer finds nothing.
                    (9, Some(slot)) => _ = ks.replace(0, slot, &vec![b'x'; 6 * ms as usize]),
                    _ => {}
                }
                check_timers(&ks);
            }
        }

        /// As above, for hashes whose fields or whose keys expire, or both: a sweep loses no timer of either.
        #[test]
        fn fields_and_keys_have_their_timers(ops in proptest::collection::vec((0..4u8, 0..8u8, 0..40i64), 0..80)) {
            let mut ks = keyspace(0);
            let mut now_ms = 0;
            for (key, op, ms) in ops {
                at(&mut ks, now_ms);
                let slot = ks.find(0, &[key]);
                match (op, slot) {
                    (0 | 1, slot) => {
                        let (slot, _) = ks.hash_set(0, &[key], slot, &[op], b"v").expect("a hash");
                        ks.expire_element_at(0, slot, &[op], now_ms + 1 + ms);
                    }
                    (2, Some(slot)) => _ = ks.expire_at(0, slot, now_ms + 1 + ms),
                    (3, Some(slot)) => _ = ks.expire_at(0, slot, NEVER),
                    (4, Some(slot)) => _ = ks.expire_element_at(0, slot, &[0], NEVER),
                    (5, Some(slot)) => ks.rename(0, slot, &[(key + 1) % 4]),
                    (6, _) => churn(&mut ks, 20 * ms as usize, now_ms + ms),
                    (7, _) => {
                        now_ms += ms;
                        at(&mut ks, now_ms);
                        while ks.reclaim_expired(1 + usize::from(key)) {}
                        for entry in ks.db(0).slots().filter_map(|slot| ks.db(0).get(slot)) {
                            prop_assert!(entry.due_at_ms() > now_ms);
                        }
                    }
                    _ => {}
                }
                check_timers(&ks);
            }
            at(&mut ks, now_ms + 1_000);
            while ks.reclaim_expired(10) {}
            prop_assert_eq!((ks.db(0).volatile(), ks.db(0).partly_volatile()), (0, 0));
        }
    }
}
