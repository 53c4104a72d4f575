//! One database: the entries, the index that finds them by key, and the timers of those that expire.

use super::NEVER;
use super::entry::{Entry, Key, OwnedEntry, Room, StoredEntry, Value, ValueMut};
use super::expiry::{Timers, Turn};
use super::slab::{Slab, Slot};
use crate::base::hasher::hash_bytes;
use crate::base::limits::EXPECTED_KEYS_MAX;
use crate::base::rng::Rng;
use crate::base::split_table::{SplitTable, Walk};
use crate::value::string::StringValue;
use crate::value::thin_bytes::ThinBytes;

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
            if let Some(at) = self.get(slot).and_then(Entry::expires_at_ms) {
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

    /// The entry at `slot`, if one is there.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<Entry<'_>> {
        self.entries.get(slot).map(Entry::new)
    }

    /// The entry at `slot`, which must be there.
    #[inline]
    pub(super) fn entry(&self, slot: Slot) -> Entry<'_> {
        self.get(slot).expect("a slot is used only while its entry lives")
    }

    /// Notes when the entry at `slot`, if one is there, is used. Answers whether its timer should have come by `now_ms`.
    #[inline]
    pub(super) fn meet(&mut self, slot: Slot, accessed_s: Option<u32>, now_ms: i64) -> Option<bool> {
        let stored = self.entries.get_mut(slot)?;
        if let Some(accessed_s) = accessed_s {
            stored.accessed_s = accessed_s;
        }
        Some(stored.is_due(now_ms))
    }

    /// Sets when an entry was last used, in seconds of the server's clock.
    #[inline]
    pub(super) fn touch(&mut self, slot: Slot, accessed_s: u32) {
        self.stored_mut(slot).accessed_s = accessed_s;
    }

    /// The value at `slot`, to change it in place; `None` for a string that is not raw. What changes the deadlines of elements
    /// is [followed](Self::follow_elements).
    #[inline]
    pub(super) fn value_mut(&mut self, slot: Slot) -> Option<ValueMut<'_>> {
        self.stored_mut(slot).value.as_mut()
    }

    /// Makes a string raw, and answers its text; `None` for another value. It has [room](Self::reserve) for that.
    pub(super) fn make_raw(&mut self, slot: Slot) -> Option<&mut ThinBytes> {
        let stored = self.stored_mut(slot);
        debug_assert!(stored.room() >= Room::of_raw(stored.deadline_ms()), "room is made first");
        match &mut stored.value {
            Value::String(string) => Some(string.make_raw()),
            _ => None,
        }
    }

    /// Gives a number another value, in place. False, with nothing changed, for what is no number.
    #[inline]
    pub(super) fn set_integer(&mut self, slot: Slot, value: i64) -> bool {
        match &mut self.stored_mut(slot).value {
            Value::String(StringValue::Int(counter)) => *counter = value,
            _ => return false,
        }
        true
    }

    #[inline]
    fn stored_mut(&mut self, slot: Slot) -> &mut StoredEntry {
        self.entries.get_mut(slot).expect("a slot is used only while its entry lives")
    }

    /// Adds a key that is not there yet and expires at `expires_at_ms`, `NEVER` for not at all.
    pub(super) fn insert(&mut self, key: &[u8], value: Value, expires_at_ms: i64, accessed_s: u32) -> Slot {
        self.insert_hashed(hash_bytes(key), key, value, expires_at_ms, accessed_s)
    }

    /// As [`insert`](Self::insert), for a key whose hash is known.
    #[inline]
    pub(super) fn insert_hashed(
        &mut self,
        hash: u64,
        key: &[u8],
        value: Value,
        expires_at_ms: i64,
        accessed_s: u32,
    ) -> Slot {
        let room = Room::of(value.as_ref(), expires_at_ms);
        self.add(hash, OwnedEntry { key: Key::new(key), value, expires_at_ms, accessed_s, room })
    }

    #[inline]
    fn add(&mut self, hash: u64, entry: OwnedEntry) -> Slot {
        let expires = entry.expires_at_ms != NEVER;
        let elements_expire = entry.value.as_ref().elements_expire();
        let slot = self.entries.insert_with(|version| StoredEntry::new(entry, version));
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |slot| hash_of(entries, slot));
        if expires || elements_expire {
            self.volatile += usize::from(expires);
            self.partly_volatile += usize::from(elements_expire);
            self.rearm(slot);
        }
        slot
    }

    /// Takes an entry out. Memory that is free then is kept until [`release`](Self::release).
    pub(super) fn remove(&mut self, slot: Slot) -> Option<OwnedEntry> {
        let hash = hash_bytes(&self.entries.get(slot)?.key);
        let entries = &self.entries;
        self.index.remove(hash, |other| *other == slot, |slot| hash_of(entries, slot));
        let stored = self.entries.remove(slot)?;
        let (room, expires_at_ms, is_armed) = (stored.room(), stored.deadline_ms(), stored.is_armed());
        let StoredEntry { key, value, accessed_s, .. } = stored;
        self.volatile -= usize::from(expires_at_ms != NEVER);
        self.partly_volatile -= usize::from(value.as_ref().elements_expire());
        if is_armed {
            self.sweep_timers();
        }
        Some(OwnedEntry { key, value, expires_at_ms, accessed_s, room })
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
    pub(super) fn reinsert(&mut self, entry: OwnedEntry) -> Slot {
        // Its timer may have come and found nothing, or have been swept out: it gets a new one.
        self.add(hash_bytes(&entry.key), entry)
    }

    /// Gives all of it back.
    pub(super) fn release_all(&mut self) {
        while self.entries.has_emptied() {
            self.entries.release();
        }
    }

    /// Makes sure that an entry, which must be there, has this room beside its key. Answers its slot, which is another one if it had
    /// to move for that.
    #[inline]
    #[must_use]
    pub(super) fn reserve(&mut self, slot: Slot, room: Room) -> Slot {
        if cfg!(debug_assertions) && self.entry(slot).room() < room { self.move_entry(slot, room) } else { slot }
    }

    /// Gives an entry another place, with this room, and answers which.
    #[cold]
    pub(super) fn move_entry(&mut self, from: Slot, room: Room) -> Slot {
        // The new place is taken before the old one is free. When it moves back, the old one was freed last.
        let nothing = Value::String(StringValue::Int(0));
        let nothing = OwnedEntry { key: Key::new(b""), value: nothing, expires_at_ms: NEVER, accessed_s: 0, room };
        let to = self.entries.insert_with(|version| StoredEntry::new(nothing, version));
        let moved = self.entries.remove(from).expect("a slot is used only while its entry lives");
        let (expires_at_ms, is_armed) = (moved.deadline_ms(), moved.is_armed());
        let StoredEntry { key, value, accessed_s, .. } = moved;
        if let Some(slot) = self.index.find_mut(hash_bytes(&key), |slot| *slot == from) {
            *slot = to;
        }
        let stored = self.stored_mut(to);
        *stored = StoredEntry::new(OwnedEntry { key, value, expires_at_ms, accessed_s, room }, stored.version);
        if is_armed {
            // The timer of its old place is stale.
            self.rearm(to);
        }
        to
    }

    /// Gives an entry, which must be there, another value and another time at which it expires; answers the old ones. It has
    /// [room](Self::reserve) for them.
    #[inline]
    pub(super) fn replace(&mut self, slot: Slot, value: Value, expires_at_ms: i64) -> (Value, i64) {
        let stored = self.stored_mut(slot);
        debug_assert!(stored.room() >= Room::of(value.as_ref(), expires_at_ms), "room is made first");
        let old = std::mem::replace(&mut stored.value, value);
        let expired_at_ms = stored.deadline_ms();
        let before = old.as_ref().elements_expire();
        if before || stored.value.as_ref().elements_expire() {
            stored.disarm_elements();
            self.follow_elements(slot, before);
        }
        if expired_at_ms != expires_at_ms {
            self.set_expiry(slot, expires_at_ms);
        }
        (old, expired_at_ms)
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

    /// Changes when an entry expires; `NEVER` for not at all. It has [room](Self::reserve) for that.
    pub(super) fn set_expiry(&mut self, slot: Slot, at_ms: i64) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        debug_assert!(entry.room() >= Room::of(entry.value.as_ref(), at_ms), "room is made first");
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
    pub(super) fn walk(&self, cursor: u64, mut visit: impl FnMut(&[Entry<'_>]) -> Walk) -> u64 {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        self.index.walk(
            cursor,
            |slot| hash_of(&self.entries, slot),
            |together| {
                entries.clear();
                entries.extend(together.iter().filter_map(|(_, slot)| self.get(**slot)));
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
