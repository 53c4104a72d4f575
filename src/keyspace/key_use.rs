//! Notes and reads the use of keys, as described in [`usage`](super::usage).

use super::effect::Touch;
use super::entry::Entry;
use super::usage::{COUNTER_BITS, NEW_USES, Noting, TICK_BITS, Usage};
use super::{DbIndex, Keyspace, Slot};
use crate::base::hasher::hash_bytes;
use crate::keyspace::limits::EXPIRED_ELEMENTS_PER_LOOKUP;

impl Keyspace {
    /// Notes uses in this way from now on. Call only between units.
    pub fn set_usage(&mut self, usage: Usage) {
        if usage.policy != self.usage.policy {
            self.pool.clear();
        }
        self.usage = usage;
        self.noting = usage.noting();
        self.counts_uses = self.noting == Noting::Count;
    }

    /// Sets whether finding a key counts as using it.
    pub(super) fn note_uses(&mut self, notes: bool) {
        self.noting = if notes { self.usage.noting() } else { Noting::Nothing };
    }

    /// Uses a key even if finding it does not count as a use (TOUCH). Returns whether it exists.
    pub fn use_key(&mut self, db: DbIndex, key: &[u8]) -> bool {
        let noting = std::mem::replace(&mut self.noting, self.usage.noting());
        let is_there = self.look_up(db, key).is_some();
        self.noting = noting;
        is_there
    }

    /// Notes the keys that the unit has changed, as far as they were recorded. For policies that [rank by
    /// changes](crate::config::MaxmemoryPolicy::ranking).
    pub fn stamp_changes(&mut self) {
        let tick = self.tick();
        let Keyspace { dbs, effects, .. } = self;
        for touch in effects.touches() {
            if let Touch::Key { db, key, .. } = touch
                && let Some(database) = dbs.get_mut(db as usize)
                && let Some(slot) = database.find_hashed(hash_bytes(key), key)
            {
                database.touch(slot, tick);
            }
        }
    }

    /// Makes a key look unused for `seconds`, if idle times are kept. Does not count as a change.
    pub fn set_idle(&mut self, db: DbIndex, slot: Slot, seconds: i64) {
        if !self.counts_uses {
            let ticks = u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000).div_ceil(1 << TICK_BITS);
            let used = self.tick().wrapping_sub(u32::try_from(ticks).unwrap_or(u32::MAX));
            self.dbs[db as usize].touch(slot, used);
        }
    }

    /// Sets a key's use counter, if uses are counted. Does not count as a change.
    pub fn set_frequency(&mut self, db: DbIndex, slot: Slot, counter: u8) {
        if self.counts_uses {
            let used = self.minutes() << COUNTER_BITS | u32::from(counter);
            self.dbs[db as usize].touch(slot, used);
        }
    }

    /// How long an entry was not used, or changed, in ms. `None` if idle times are not kept.
    pub fn idle_ms(&self, entry: Entry<'_>) -> Option<i64> {
        (!self.counts_uses).then(|| i64::from(self.tick().wrapping_sub(entry.used())) << TICK_BITS)
    }

    /// The entry's use counter, or `None` if uses are not counted.
    pub fn frequency(&self, entry: Entry<'_>) -> Option<u8> {
        self.counts_uses.then(|| self.usage.counter(entry.used(), self.minutes()))
    }

    /// The use bits of a new key.
    #[inline]
    pub(super) fn new_use(&self) -> u32 {
        if self.counts_uses { self.minutes() << COUNTER_BITS | u32::from(NEW_USES) } else { self.tick() }
    }

    /// Notes that a key was used by a replacement of its value.
    #[inline]
    pub(super) fn note_overwritten(&mut self, db: DbIndex, slot: Slot) {
        if self.counts_uses {
            self.count_use(db, slot);
        } else {
            let tick = self.tick();
            self.dbs[db as usize].touch(slot, tick);
        }
    }

    /// As [`find`](Self::find), for any noting other than the time.
    #[inline(never)]
    pub(super) fn find_otherwise(&mut self, db: DbIndex, hash: u64, key: &[u8]) -> Option<Slot> {
        let now_ms = self.now_ms;
        let database = &mut self.dbs[db as usize];
        let slot = database.look_up(hash, key)?;
        if database.meet(slot, None, now_ms)? {
            self.fall_due(db, slot, EXPIRED_ELEMENTS_PER_LOOKUP)?;
        }
        if self.noting == Noting::Count {
            self.count_use(db, slot);
        }
        Some(slot)
    }

    #[cold]
    fn count_use(&mut self, db: DbIndex, slot: Slot) {
        let now_minutes = self.minutes();
        let database = &mut self.dbs[db as usize];
        let used = self.usage.counted(database.entry(slot).used(), now_minutes, &mut self.rng);
        database.touch(slot, used);
    }

    /// How good a victim an entry is by its use. Higher is better.
    pub(super) fn age(&self, entry: Entry<'_>) -> u32 {
        match self.frequency(entry) {
            Some(counter) => u32::from(u8::MAX - counter),
            None => self.tick().wrapping_sub(entry.used()),
        }
    }

    /// The time in ticks.
    #[inline]
    pub(super) fn tick(&self) -> u32 {
        (self.now_ms >> TICK_BITS) as u32
    }

    /// The time in minutes, in as many bits as are kept.
    fn minutes(&self) -> u32 {
        (self.now_ms / 60_000) as u32 & u32::MAX >> COUNTER_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::config::MaxmemoryPolicy;
    use crate::keyspace::UnitMode;
    use crate::keyspace::effect::Recording;

    const MINUTE_MS: i64 = 60_000;

    fn keyspace(policy: MaxmemoryPolicy) -> Keyspace {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        ks.set_usage(Usage { policy, log_factor: 10, decay_minutes: 1 });
        ks.begin_unit(1_000 * MINUTE_MS, Recording::Nothing);
        ks
    }

    fn at(ks: &mut Keyspace, now_ms: i64) {
        ks.begin_unit(now_ms, Recording::Nothing);
    }

    fn idle_ms(ks: &Keyspace) -> Option<i64> {
        ks.idle_ms(ks.live(0, b"k").expect("it is there"))
    }

    fn counter(ks: &Keyspace) -> Option<u8> {
        ks.frequency(ks.live(0, b"k").expect("it is there"))
    }

    #[test]
    fn a_use_is_noted_unless_turned_off() {
        let mut ks = keyspace(MaxmemoryPolicy::AllKeysLru);
        let start_ms = ks.now_ms();
        ks.put(0, b"k", b"v");
        assert_eq!((idle_ms(&ks), counter(&ks)), (Some(0), None));
        at(&mut ks, start_ms + 6_400);
        assert!(ks.peek(0, b"k").is_some());
        ks.begin_unit_in(UnitMode::NO_TOUCH, start_ms + 6_400, Recording::Nothing);
        assert!(ks.find(0, b"k").is_some());
        assert_eq!(idle_ms(&ks), Some(6_400));
        assert!(ks.use_key(0, b"k"));
        assert_eq!(idle_ms(&ks), Some(0));
        ks.end_unit();
        at(&mut ks, start_ms + 12_800);
        assert!(ks.read(0, b"k").is_some());
        assert_eq!(idle_ms(&ks), Some(0));
        at(&mut ks, start_ms + 19_200);
        ks.put(0, b"k", b"w");
        assert_eq!(idle_ms(&ks), Some(0));
    }

    #[test]
    fn ticks_wrap_around() {
        let mut ks = keyspace(MaxmemoryPolicy::NoEviction);
        at(&mut ks, (1 << (32 + TICK_BITS)) - 64);
        ks.put(0, b"k", b"v");
        at(&mut ks, (1 << (32 + TICK_BITS)) + 64);
        assert_eq!(idle_ms(&ks), Some(128));
        let slot = ks.find(0, b"k").expect("it is there");
        for seconds in [0, 1, 600, 86_400 * 365] {
            ks.set_idle(0, slot, seconds);
            assert_eq!(idle_ms(&ks).map(|ms| ms / 1_000), Some(seconds));
        }
        ks.set_idle(0, slot, i64::MAX);
        assert!(idle_ms(&ks) > Some(86_400_000 * 365 * 8));
        ks.set_idle(0, slot, -1);
        assert_eq!(idle_ms(&ks), Some(0));
    }

    #[test]
    fn a_counter_grows_with_the_logarithm_of_uses_and_shrinks_with_time() {
        let mut ks = keyspace(MaxmemoryPolicy::AllKeysLfu);
        let start_ms = ks.now_ms();
        ks.put(0, b"k", b"v");
        assert_eq!((counter(&ks), idle_ms(&ks)), (Some(NEW_USES), None));
        // Redis' documentation says 10 after 100, 18 after 1,000, and 142 after 100,000 uses.
        let mut grown = Vec::new();
        for uses in [100, 1_000, 100_000] {
            ks.put(0, b"k", b"v");
            let slot = ks.find(0, b"k").expect("it is there");
            ks.set_frequency(0, slot, NEW_USES);
            for _ in 0..uses {
                assert!(ks.read(0, b"k").is_some());
            }
            grown.push(counter(&ks).expect("it is kept"));
        }
        assert!(
            (6..=14).contains(&grown[0]) && (13..=24).contains(&grown[1]) && (120..=165).contains(&grown[2]),
            "{grown:?}"
        );
        let slot = ks.find(0, b"k").expect("it is there");
        ks.set_frequency(0, slot, 200);
        assert!(ks.peek(0, b"k").is_some());
        assert_eq!(counter(&ks), Some(200));
        at(&mut ks, start_ms + 50 * MINUTE_MS);
        assert_eq!(counter(&ks), Some(150));
        // Peeking changes nothing; a use keeps the decayed count.
        assert!(ks.read(0, b"k").is_some());
        assert!((150..=151).contains(&counter(&ks).expect("it is kept")));
        at(&mut ks, start_ms + 5_000 * MINUTE_MS);
        assert_eq!(counter(&ks), Some(0));
        ks.set_idle(0, slot, 10);
        assert_eq!(counter(&ks), Some(0), "the idle time is not kept");
    }

    #[test]
    fn only_changes_count_where_that_is_the_policy() {
        let mut ks = keyspace(MaxmemoryPolicy::AllKeysLrm);
        let start_ms = ks.now_ms();
        ks.put(0, b"k", b"v");
        at(&mut ks, start_ms + 6_400);
        assert!(ks.read(0, b"k").is_some() && ks.use_key(0, b"k"));
        assert_eq!(idle_ms(&ks), Some(6_400));
        ks.begin_unit(start_ms + 6_400, Recording::Keys);
        let slot = ks.find(0, b"k").expect("it is there");
        _ = ks.expire_at(0, slot, start_ms + 100_000);
        ks.put(0, b"gone", b"v");
        let gone = ks.find(0, b"gone").expect("just put");
        ks.remove(0, gone);
        assert_eq!(idle_ms(&ks), Some(6_400));
        ks.stamp_changes();
        assert_eq!(idle_ms(&ks), Some(0));
    }
}
