//! One database: the entries, the index that finds them by key, and the timers of those that expire.

use super::NEVER;
use super::entry::{Entry, Key, Lifetime, Value};
use super::expiry::{Timers, Turn};
use super::slab::{Slab, Slot};
use crate::base::hasher::hash_bytes;
use crate::base::limits::EXPECTED_KEYS_MAX;
use crate::base::rng::Rng;
use crate::base::split_table::{SplitTable, Walk};

/// One database. Knows nothing of effects, and of time only what it is told.
pub struct Db {
    entries: Slab,
    index: SplitTable<Slot>,
    timers: Timers,
    /// How many entries expire some day.
    volatile: usize,
    /// How many entries have elements that do.
    partly_volatile: usize,
}

impl Db {
    pub(super) fn new() -> Db {
        Db {
            entries: Slab::default(),
            index: SplitTable::new(),
            timers: Timers::default(),
            volatile: 0,
            partly_volatile: 0,
        }
    }

    /// How many keys there are, expired but unreclaimed ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of the keys expire some day.
    pub fn volatile(&self) -> usize {
        self.volatile
    }

    /// How many of the keys have elements that expire some day.
    pub fn partly_volatile(&self) -> usize {
        self.partly_volatile
    }

    /// Mean time to live of the keys that expire, in ms, from a bounded sample of them; 0 when none does.
    pub fn average_ttl_ms(&self, now_ms: i64) -> i64 {
        let (mut sum, mut n) = (0i64, 0);
        for slot in self.timers.sample() {
            if let Some(at) = self.entries.get(slot).and_then(Entry::expires_at_ms) {
                sum = sum.saturating_add((at - now_ms).max(0));
                n += 1;
            }
        }
        if n == 0 { 0 } else { sum / n }
    }

    /// Whether there is such a key, expired or not.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<Slot> {
        self.find_hashed(hash_bytes(key), key)
    }

    /// As [`find`](Self::find), for a key whose hash is known.
    #[inline]
    pub(super) fn find_hashed(&self, hash: u64, key: &[u8]) -> Option<Slot> {
        self.index.find(hash, |slot| self.entries.get(*slot).is_some_and(|e| *e.key == *key)).copied()
    }

    /// Starts to bring what [`find_hashed`](Self::find_hashed) will look at into the cache. Done for several keys in a row, their cache
    /// misses overlap: the processor goes on to the next key while it waits for the first one's index.
    #[inline]
    pub(super) fn warm_hashed(&self, hash: u64) {
        self.index.find(hash, |slot| {
            self.entries.prefetch(*slot);
            true
        });
    }

    /// Makes room for about so many keys, if there is none yet: see [`SplitTable::expect`].
    pub(super) fn expect(&mut self, keys: usize) {
        self.index.expect(keys.min(EXPECTED_KEYS_MAX));
    }

    /// Gives room back that keys have not taken which were [expected](Self::expect).
    pub(super) fn fit(&mut self) {
        let Db { index, entries, .. } = self;
        index.fit(|slot| hash_of(entries, slot));
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot)
    }

    /// Adds a key that is not there yet.
    pub(super) fn insert(&mut self, key: &[u8], value: Value, accessed_s: u32) -> Slot {
        self.insert_hashed(hash_bytes(key), Key::new(key), value, accessed_s)
    }

    /// As [`insert`](Self::insert), for a key whose hash is known.
    #[inline]
    pub(super) fn insert_hashed(&mut self, hash: u64, key: Key, value: Value, accessed_s: u32) -> Slot {
        let mortal = value.elements_expire();
        let slot = self.entries.insert_with(|version| Entry {
            key,
            value,
            lifetime: Lifetime::default(),
            version,
            accessed_s,
        });
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |slot| hash_of(entries, slot));
        if mortal {
            // A timer that the value had is that of another entry.
            self.entries.get_mut(slot).into_iter().for_each(Entry::disarm_elements);
            self.follow_elements(slot, false);
        }
        slot
    }

    /// Takes an entry out. Memory that is free then is kept until [`release`](Self::release).
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let hash = hash_bytes(&self.entries.get(slot)?.key);
        let entries = &self.entries;
        self.index.remove(hash, |other| *other == slot, |slot| hash_of(entries, slot));
        let entry = self.entries.remove(slot)?;
        self.volatile -= usize::from(entry.deadline_ms() != NEVER);
        self.partly_volatile -= usize::from(entry.value.elements_expire());
        if entry.is_armed() {
            self.sweep_timers();
        }
        Some(entry)
    }

    /// Gives some of the memory back that is free since entries were removed. Not for the middle of a unit that may have to
    /// be undone: entries would not come back to their slots.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.entries.has_emptied() {
            self.entries.release();
        }
    }

    /// Puts an entry back that [`remove`](Self::remove) took out. If nothing else came or went since, it gets its slot.
    pub(super) fn reinsert(&mut self, mut entry: Entry) -> Slot {
        // Its timer may have come and found nothing, or have been swept out.
        entry.disarm();
        entry.follow_elements();
        self.volatile += usize::from(entry.deadline_ms() != NEVER);
        self.partly_volatile += usize::from(entry.value.elements_expire());
        let hash = hash_bytes(&entry.key);
        let slot = self.entries.insert_with(|version| Entry { version, ..entry });
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |slot| hash_of(entries, slot));
        self.rearm(slot);
        slot
    }

    /// Gives all of it back.
    pub(super) fn release_all(&mut self) {
        while self.entries.has_emptied() {
            self.entries.release();
        }
    }

    /// Gives an entry, which must be there, another value; answers the old one, and when the key expires.
    #[inline]
    pub(super) fn replace_value(&mut self, slot: Slot, value: Value) -> (Value, i64) {
        let entry = self.entries.get_mut(slot).expect("a slot is used only while its entry lives");
        let expires_at_ms = entry.deadline_ms();
        let old = std::mem::replace(&mut entry.value, value);
        if old.elements_expire() || entry.value.elements_expire() {
            entry.disarm_elements();
            self.follow_elements(slot, old.elements_expire());
        }
        (old, expires_at_ms)
    }

    /// Keeps count and timer in step after an entry's value or the deadlines of its elements changed; `before` is whether any
    /// element expired.
    pub(super) fn follow_elements(&mut self, slot: Slot, before: bool) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let after = entry.follow_elements();
        if before || after {
            self.partly_volatile -= usize::from(before);
            self.partly_volatile += usize::from(after);
            if entry.elements_need_timer() {
                self.timers.arm(slot, entry);
            }
            self.sweep_timers();
        }
    }

    /// Looks at the next timer, if it comes at `now_ms` at the latest.
    pub(super) fn next_timer(&mut self, now_ms: i64) -> Turn {
        self.timers.turn(now_ms, &mut self.entries)
    }

    /// Adds the timer that an entry needs which has none, or whose timer has come.
    pub(super) fn rearm(&mut self, slot: Slot) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if entry.due_at_ms() == NEVER {
            entry.disarm();
        } else {
            self.timers.arm(slot, entry);
        }
        self.sweep_timers();
    }

    /// Goes on with throwing out stale timers, if that is worth it.
    #[inline]
    fn sweep_timers(&mut self) {
        if self.timers.needs_sweep(self.volatile + self.partly_volatile) {
            self.timers.sweep_some(&mut self.entries);
        }
    }

    /// Changes when an entry expires; `NEVER` for not at all.
    pub(super) fn set_expiry(&mut self, slot: Slot, at_ms: i64) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        self.volatile -= usize::from(entry.deadline_ms() != NEVER);
        self.volatile += usize::from(at_ms != NEVER);
        if entry.set_deadline(at_ms) {
            self.timers.arm(slot, entry);
        }
        self.sweep_timers();
    }

    /// Walks the index; see [`SplitTable::scan`].
    pub(super) fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(Slot)) -> u64 {
        self.index.scan(cursor, count, |slot| hash_of(&self.entries, slot), |slot| emit(*slot))
    }

    /// Shows the entries from `cursor` on to `visit`, those of one place together; see [`SplitTable::walk`].
    pub(super) fn walk(&self, cursor: u64, mut visit: impl FnMut(&[&Entry]) -> Walk) -> u64 {
        let mut entries: Vec<&Entry> = Vec::new();
        self.index.walk(
            cursor,
            |slot| hash_of(&self.entries, slot),
            |together| {
                entries.clear();
                entries.extend(together.iter().filter_map(|(_, slot)| self.entries.get(**slot)));
                visit(&entries)
            },
        )
    }

    pub(super) fn random(&self, rng: &mut Rng) -> Option<Slot> {
        self.index.random(|n| rng.below(n)).copied()
    }

    /// Every slot, in no order that means anything.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.index.iter().copied()
    }

    #[cfg(test)]
    pub(super) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Bytes of the tables, without keys and values that lie outside them.
    pub fn overhead_bytes(&self) -> usize {
        self.entries.mem_bytes() + self.index.mem_bytes() + self.timers.mem_bytes()
    }
}

fn hash_of(entries: &Slab, slot: &Slot) -> u64 {
    entries.get(*slot).map_or(0, |entry| hash_bytes(&entry.key))
}
