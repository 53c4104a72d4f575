//! One database: the entries, the index that finds them by key, and the timers of those that expire.

use super::NEVER;
use super::entry::{Entry, Key, Value};
use super::expiry::Timers;
use super::slab::{Slab, Slot};
use crate::base::hasher::hash_bytes;
use crate::base::limits::EXPECTED_KEYS_MAX;
use crate::base::rng::Rng;
use crate::base::split_table::{SplitTable, Walk};

/// One database. Knows nothing of effects, and of time only what it is told.
pub struct Db {
    entries: Slab,
    index: SplitTable<Slot>,
    /// Where the key lives that was looked up last or came last, and its hash: whoever has found a key asks for its hash again.
    /// Forgotten when anything leaves its slot.
    last: Option<(Slot, u64)>,
    pub(super) timers: Timers,
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
            last: None,
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
        for timer in self.timers.sample() {
            if let Some(at) = self.entries.get(timer.slot).and_then(Entry::expires_at_ms) {
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

    /// As [`find_hashed`](Self::find_hashed), for one who goes on with the key.
    #[inline]
    pub(super) fn look_up(&mut self, hash: u64, key: &[u8]) -> Option<Slot> {
        let slot = self.find_hashed(hash, key)?;
        self.last = Some((slot, hash));
        Some(slot)
    }

    /// The hash of the key at `slot`, which must be there.
    #[inline]
    pub(super) fn hash_at(&self, slot: Slot) -> u64 {
        let hash = match self.last {
            Some((last, hash)) if last == slot => hash,
            _ => hash_of(&self.entries, &slot),
        };
        debug_assert_eq!(hash, hash_of(&self.entries, &slot), "it is the hash of another key");
        hash
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
            expires_at_ms: NEVER,
            version,
            armed_at_ms: NEVER,
            accessed_s,
        });
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |slot| hash_of(entries, slot));
        self.last = Some((slot, hash));
        if mortal {
            self.follow_elements(slot, false);
        }
        slot
    }

    /// Takes an entry out. Memory that is free then is kept until [`release`](Self::release).
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        self.entries.get(slot)?;
        let hash = self.hash_at(slot);
        self.last = None;
        let entries = &self.entries;
        self.index.remove(hash, |other| *other == slot, |slot| hash_of(entries, slot));
        let entry = self.entries.remove(slot)?;
        self.volatile -= usize::from(entry.expires_at_ms != NEVER);
        self.partly_volatile -= usize::from(entry.value.elements_expire());
        if entry.armed_at_ms != NEVER {
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
        // Its timer may have been swept out; one that was not is stale from here on, or a key that is removed and comes back
        // again and again would gather live ones.
        entry.armed_at_ms = NEVER;
        self.volatile += usize::from(entry.expires_at_ms != NEVER);
        self.partly_volatile += usize::from(entry.value.elements_expire());
        let hash = hash_bytes(&entry.key);
        let slot = self.entries.insert_with(|version| Entry { version, ..entry });
        self.last = Some((slot, hash));
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |slot| hash_of(entries, slot));
        self.arm(slot);
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
        let expires_at_ms = entry.expires_at_ms;
        let old = std::mem::replace(&mut entry.value, value);
        if old.elements_expire() || entry.value.elements_expire() {
            self.follow_elements(slot, old.elements_expire());
        }
        (old, expires_at_ms)
    }

    /// Keeps count and timer in step after an entry's value or the deadlines of its elements changed; `before` is whether any
    /// element expired.
    pub(super) fn follow_elements(&mut self, slot: Slot, before: bool) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let after = entry.value.elements_expire();
        if before || after {
            self.partly_volatile -= usize::from(before);
            self.partly_volatile += usize::from(after);
            self.arm(slot);
        }
    }

    /// Arms an entry's timer anew, after it fired or may have.
    pub(super) fn rearm(&mut self, slot: Slot) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        entry.armed_at_ms = NEVER;
        self.arm(slot);
    }

    fn arm(&mut self, slot: Slot) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        self.timers.arm(slot, entry);
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
        self.volatile -= usize::from(entry.expires_at_ms != NEVER);
        self.volatile += usize::from(at_ms != NEVER);
        entry.expires_at_ms = at_ms;
        self.arm(slot);
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

    /// Bytes of the tables, without keys and values that lie outside them.
    pub fn overhead_bytes(&self) -> usize {
        self.entries.mem_bytes() + self.index.mem_bytes() + self.timers.mem_bytes()
    }
}

fn hash_of(entries: &Slab, slot: &Slot) -> u64 {
    entries.get(*slot).map_or(0, |entry| hash_bytes(&entry.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::string::StringValue;

    #[test]
    fn the_hash_at_a_slot_is_that_of_the_key_that_lives_there() {
        let mut db = Db::new();
        let add = |db: &mut Db, key: &[u8]| db.insert(key, Value::String(StringValue::new(b"")), 0);
        let (a, b) = (add(&mut db, b"a"), add(&mut db, b"b"));
        let hashes = |db: &Db| [a, b].map(|slot| db.hash_at(slot));
        let [hash_a, hash_b, hash_c] = [b"a", b"b", b"c"].map(|key| hash_bytes(key));
        assert_eq!(hashes(&db), [hash_a, hash_b]);
        assert_eq!(db.look_up(hash_a, b"a"), Some(a));
        assert_eq!(hashes(&db), [hash_a, hash_b]);
        // Another key gets the slot, and then the first one comes back to it.
        let entry = db.remove(a).expect("it is there");
        assert_eq!(add(&mut db, b"c"), a);
        assert_eq!(hashes(&db), [hash_c, hash_b]);
        db.remove(a);
        assert_eq!(db.reinsert(entry), a);
        assert_eq!(hashes(&db), [hash_a, hash_b]);
    }
}
