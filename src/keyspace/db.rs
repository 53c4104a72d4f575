//! One database: the entries, the index that finds them by key, and the timers of entries that expire.

use super::any_value::{Value, ValueMut};
use super::arena::{Slot, place_bytes};
use super::entries::{Entries, Removed};
use super::entry::{Entry, EntryMut, HEADER_BYTES, NEVER, NewValue};
use super::expiry::{Timers, Turn};
use crate::base::equal::equal;
use crate::base::hasher::hash_bytes;
use crate::base::rng::Rng;
use crate::base::split_table::{Hashes, LinePlace, SplitTable, Walk};
use crate::keyspace::limits::{EVICTION_DRAWS, EXPECTED_KEYS_MAX};
use crate::value::thin_bytes::ThinBytes;

/// A database number.
pub type DbIndex = u16;

/// One database. It knows nothing of effects, and takes the time as an argument.
pub struct Db {
    entries: Entries,
    /// Slots by hash.
    index: SplitTable,
    /// The slot and hash of the key that was looked up or added last. Cached because a caller that has found a key asks
    /// for its hash again, and a script for the key. Cleared when any entry leaves its slot.
    last: Option<(Slot, u64)>,
    /// The slot where the next key to be looked up may live. Stays until the lookup.
    hint: Option<Slot>,
    timers: Timers,
    /// The number of entries that expire.
    volatile: usize,
    /// The number of entries with elements that expire.
    partly_volatile: usize,
    ahead: Ahead,
}

/// Slots to be drawn next. In a large database, neither a line of the index nor the entries it leads to are in the
/// cache. So a line is fetched while the entries of the previous line are, and both are looked at once they have
/// arrived. By then a slot may be empty or hold another entry, which serves as well.
#[derive(Default)]
struct Ahead {
    line: Option<LinePlace>,
    /// The slots of the previous line.
    slots: Vec<Slot>,
}

/// Whether there is an entry at `slot`, among all entries or among those that expire.
#[inline]
fn may_go(entries: &Entries, slot: Slot, is_volatile: bool) -> bool {
    entries.get(slot).is_some_and(|entry| !is_volatile || entry.expires())
}

impl Db {
    pub(super) fn new() -> Db {
        Db {
            entries: Entries::default(),
            index: SplitTable::new(),
            last: None,
            hint: None,
            timers: Timers::default(),
            volatile: 0,
            partly_volatile: 0,
            ahead: Ahead::default(),
        }
    }

    /// The number of keys, including expired ones not yet removed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of keys that expire.
    pub fn volatile(&self) -> usize {
        self.volatile
    }

    /// The number of keys with elements that expire.
    pub fn partly_volatile(&self) -> usize {
        self.partly_volatile
    }

    /// Mean time to live of the keys that expire, in ms, from a bounded sample. 0 if there are none.
    pub fn average_ttl_ms(&self, now_ms: i64) -> i64 {
        let (mut sum, mut n) = (0i64, 0);
        for slot in self.timers.sample() {
            if let Some(at) = self.get(slot).and_then(Entry::expires_at_ms) {
                sum = sum.saturating_add(at.saturating_sub(now_ms).max(0));
                n += 1;
            }
        }
        if n == 0 { 0 } else { sum / n }
    }

    /// Whether the key exists, expired or not.
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
        self.index.find(hash, |slot| self.is_at(Slot(slot), key)).map(Slot)
    }

    /// As [`find_hashed`](Self::find_hashed), for a caller that goes on with the key. Tries the [hinted](Self::hint)
    /// slot and the last one before the index.
    #[inline]
    pub(super) fn look_up(&mut self, hash: u64, key: &[u8]) -> Option<Slot> {
        let last = self.last.and_then(|(slot, of)| (of == hash).then_some(slot));
        let slot = match self.hint.take().or(last) {
            Some(slot) if self.is_at(slot, key) => slot,
            _ => self.find_hashed(hash, key)?,
        };
        self.last = Some((slot, hash));
        Some(slot)
    }

    /// Makes the next [`look_up`](Self::look_up) try this slot first. The slot may be wrong or even empty.
    #[inline]
    pub(super) fn hint(&mut self, slot: Slot) {
        self.hint = Some(slot);
    }

    /// Whether this key lives at that slot.
    #[inline(always)]
    fn is_at(&self, slot: Slot, key: &[u8]) -> bool {
        self.entries.get(slot).is_some_and(|entry| equal(entry.key(), key))
    }

    /// The hash of the key at `slot`, which must exist.
    #[inline]
    pub(super) fn hash_at(&self, slot: Slot) -> u64 {
        let hash = match self.last {
            Some((last, hash)) if last == slot => hash,
            _ => self.entries.of(slot.0),
        };
        debug_assert_eq!(hash, self.entries.of(slot.0), "it is the hash of another key");
        hash
    }

    /// Prefetches what [`find_hashed`](Self::find_hashed) will look at first.
    #[inline]
    pub(super) fn warm_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the entry at which [`find_hashed`](Self::find_hashed) will look. Waits for the index line that
    /// [`warm_index`](Self::warm_index) fetches. Returns the slot of the entry, whose key has not been compared.
    #[inline]
    pub(super) fn warm_entry(&self, hash: u64) -> Option<Slot> {
        let slot = self.index.find(hash, |_| true).map(Slot)?;
        self.entries.prefetch(slot);
        Some(slot)
    }

    /// Makes room for about `keys` keys, if there is none yet; see [`SplitTable::expect`].
    pub(super) fn expect(&mut self, keys: usize) {
        self.index.expect(keys.min(EXPECTED_KEYS_MAX));
    }

    /// Gives back spare room after all [expected](Self::expect) keys have arrived.
    pub(super) fn fit(&mut self) {
        self.index.fit();
    }

    /// The entry at `slot`, if there is one.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<Entry<'_>> {
        self.entries.get(slot)
    }

    /// The entry at `slot`, which must exist.
    #[inline]
    pub(super) fn entry(&self, slot: Slot) -> Entry<'_> {
        self.get(slot).expect("a slot is used only while its entry lives")
    }

    /// Notes the use of the entry at `slot`, if there is one. Returns whether the entry or an element of it may have
    /// expired by `now_ms`.
    #[inline]
    pub(super) fn meet(&mut self, slot: Slot, used: Option<u32>, now_ms: i64) -> Option<bool> {
        let mut entry = self.entries.get_mut(slot)?;
        if let Some(used) = used {
            entry.touch(used);
        }
        Some(entry.as_ref().is_due(now_ms))
    }

    /// Sets an entry's use bits.
    #[inline]
    pub(super) fn touch(&mut self, slot: Slot, used: u32) {
        self.entry_mut(slot).touch(used);
    }

    /// The value at `slot`, for changing in place, or `None` for a string that is not raw. After a change of element
    /// deadlines, call [`follow_elements`](Self::follow_elements).
    #[inline]
    pub(super) fn value_mut(&mut self, slot: Slot) -> Option<ValueMut<'_>> {
        self.entry_mut(slot).into_value_mut()
    }

    /// Makes a string raw and returns its text, or `None` for any other value. The entry must have
    /// [room](Entry::bytes_with_word).
    pub(super) fn make_raw(&mut self, slot: Slot) -> Option<&mut ThinBytes> {
        self.entry_mut(slot).make_raw()
    }

    /// Changes a number in place. Returns false, with nothing changed, if the value is not a number or has too few
    /// bytes for the new one.
    #[inline]
    pub(super) fn set_integer(&mut self, slot: Slot, value: i64) -> bool {
        self.entry_mut(slot).set_integer(value)
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, slot: Slot) -> EntryMut<'_> {
        self.entries.get_mut(slot).expect("a slot is used only while its entry lives")
    }

    /// Adds a key that does not exist yet and expires at `expires_at_ms`, `NEVER` for not at all.
    pub(super) fn insert(&mut self, key: &[u8], value: NewValue<'_>, expires_at_ms: i64, used: u32) -> Slot {
        self.insert_hashed(hash_bytes(key), key, value, expires_at_ms, used)
    }

    /// As [`insert`](Self::insert), for a key whose hash is known.
    #[inline]
    pub(super) fn insert_hashed(
        &mut self,
        hash: u64,
        key: &[u8],
        value: NewValue<'_>,
        expires_at_ms: i64,
        used: u32,
    ) -> Slot {
        let slot = self.entries.insert(key, value, expires_at_ms, used);
        self.link(hash, slot);
        slot
    }

    /// Puts back an entry that [`remove`](Self::remove) took out. It gets its old slot if no other entry has come or
    /// gone since.
    pub(super) fn restore(&mut self, removed: Removed) -> Slot {
        let hash = hash_bytes(&removed.key);
        let slot = self.entries.restore(removed);
        self.link(hash, slot);
        slot
    }

    /// Gives a new entry its place in the index, and a timer if it needs one.
    #[inline]
    fn link(&mut self, hash: u64, slot: Slot) {
        self.index.insert_unique(hash, slot.0, &self.entries);
        self.last = Some((slot, hash));
        let entry = self.entry(slot);
        if entry.is_mortal() {
            let (expires, elements_expire) = (entry.expires(), entry.elements_expire());
            self.volatile += usize::from(expires);
            self.partly_volatile += usize::from(elements_expire);
            self.rearm(slot);
        }
    }

    /// Takes an entry out so that it can be [put back](Self::restore). Freed memory is kept until
    /// [`release`](Self::release).
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Removed> {
        let was_armed = self.unlink(slot)?;
        let removed = self.entries.remove(slot);
        if was_armed {
            self.sweep_timers();
        }
        removed
    }

    /// Removes an entry for good, if there is one. Returns a value that lay outside the entry, since freeing it may
    /// take long. Freed memory is kept until [`release`](Self::release).
    #[inline]
    pub(super) fn discard(&mut self, slot: Slot) -> Option<Value> {
        let was_armed = self.unlink(slot)?;
        let outside = self.entries.discard(slot);
        if was_armed {
            self.sweep_timers();
        }
        outside
    }

    /// Removes an entry that is about to go from the index. Returns whether the entry has a timer.
    #[inline]
    fn unlink(&mut self, slot: Slot) -> Option<bool> {
        let entry = self.entries.get(slot)?;
        self.volatile -= usize::from(entry.expires());
        self.partly_volatile -= usize::from(entry.elements_expire());
        let (hash, is_armed) = (self.hash_at(slot), entry.is_armed());
        self.last = None;
        self.index.remove(hash, |other| other == slot.0);
        Some(is_armed)
    }

    /// Gives back some of the memory of removed entries. Not while undo is on, since entries could not come back to
    /// their slots.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.entries.has_emptied() {
            self.entries.release();
        }
    }

    /// Gives back all memory of removed entries.
    pub(super) fn release_all(&mut self) {
        while self.entries.has_emptied() {
            self.entries.release();
        }
    }

    /// Gives back memory kept for future keys as well. Call after [`release_all`](Self::release_all).
    pub(super) fn release_spare(&mut self) {
        self.entries.release_spare();
    }

    /// Moves an entry, which must exist, to a place of at least `bytes` bytes. Returns its new slot.
    #[cold]
    #[must_use]
    pub(super) fn relocate(&mut self, from: Slot, bytes: usize) -> Slot {
        let hash = self.hash_at(from);
        let to = self.entries.relocate(from, bytes);
        self.last = Some((to, hash));
        let slot = self.index.find_mut(hash, |slot| slot == from.0);
        *slot.expect("every entry is in the index") = to.0;
        if self.entry(to).is_mortal() {
            // The timer of the old slot is stale.
            self.rearm(to);
        }
        to
    }

    /// Moves the entry at `slot`, if there is one, to the place it needs. Embeds its collection if the collection
    /// `is_new` and may be embedded. Returns whether the entry has moved.
    pub(super) fn settle_entry(&mut self, slot: Slot, is_new: bool) -> bool {
        let Some(entry) = self.get(slot) else { return false };
        if is_new && entry.bytes_embedded().is_some() {
            self.entry_mut(slot).pack();
        }
        let entry = self.entry(slot);
        let embedded = entry.bytes_embedded().filter(|_| is_new);
        let bytes = embedded.unwrap_or(entry.bytes());
        let moves = place_bytes(bytes) != entry.place_bytes();
        let slot = if moves { self.relocate(slot, bytes) } else { slot };
        if embedded.is_some() {
            self.entry_mut(slot).embed();
        }
        moves
    }

    /// Gives an existing entry with [room](Entry::bytes_with) another value and expiry. Returns the old value if it lay
    /// outside the entry.
    pub(super) fn set_value(&mut self, slot: Slot, value: NewValue<'_>, expires_at_ms: i64) -> Option<Value> {
        self.exchange(slot, expires_at_ms, |entry, expires| entry.set_value(value, expires))
    }

    /// As [`set_value`](Self::set_value), but returns the old value wherever it lay.
    pub(super) fn replace_value(&mut self, slot: Slot, value: NewValue<'_>, expires_at_ms: i64) -> Value {
        self.exchange(slot, expires_at_ms, |entry, expires| entry.replace_value(value, expires))
    }

    #[inline(always)]
    fn exchange<Old>(
        &mut self,
        slot: Slot,
        expires_at_ms: i64,
        exchange: impl FnOnce(&mut EntryMut<'_>, bool) -> Old,
    ) -> Old {
        let mut entry = self.entries.get_mut(slot).expect("a slot is used only while its entry lives");
        let was_mortal = entry.as_ref().is_mortal();
        let (expired, elements_expired) = (entry.as_ref().expires(), entry.as_ref().elements_expire());
        let old = exchange(&mut entry, expires_at_ms != NEVER);
        if was_mortal || entry.as_ref().elements_expire() || expires_at_ms != NEVER {
            self.follow_exchange(slot, expired, elements_expired, expires_at_ms);
        }
        old
    }

    /// Updates counts and timer after an entry got another value, and before it expires at `expires_at_ms`. The flags
    /// say whether the entry and its elements expired before.
    fn follow_exchange(&mut self, slot: Slot, expired: bool, elements_expired: bool, expires_at_ms: i64) {
        self.follow_elements(slot, elements_expired);
        self.volatile -= usize::from(expired && expires_at_ms == NEVER);
        self.set_expiry(slot, expires_at_ms);
    }

    /// Updates count and timer after a change of an entry's value or of its elements' deadlines. `before` says whether
    /// any element expired.
    pub(super) fn follow_elements(&mut self, slot: Slot, before: bool) {
        let Some(mut entry) = self.entries.get_mut(slot) else { return };
        let after = entry.follow_elements();
        if before || after {
            self.partly_volatile -= usize::from(before);
            self.partly_volatile += usize::from(after);
            if entry.as_ref().elements_need_timer() {
                self.timers.arm(slot, entry);
            }
            self.sweep_timers();
        }
    }

    /// Looks at the next timer, if it is due at `now_ms`.
    pub(super) fn next_timer(&mut self, now_ms: i64) -> Turn {
        self.timers.turn(now_ms, &mut self.entries)
    }

    /// Adds a timer for an entry that needs one and has none, or whose timer has fired.
    pub(super) fn rearm(&mut self, slot: Slot) {
        let Some(mut entry) = self.entries.get_mut(slot) else { return };
        if entry.as_ref().due_at_ms() == NEVER {
            entry.disarm();
        } else {
            self.timers.arm(slot, entry);
        }
        self.sweep_timers();
    }

    /// Continues the sweep of stale timers if it is worth it.
    #[inline]
    fn sweep_timers(&mut self) {
        if self.timers.needs_sweep(self.volatile + self.partly_volatile) {
            self.timers.sweep_some(&mut self.entries);
        }
    }

    /// Changes when an entry expires; `NEVER` for not at all. The entry must have [room](Entry::bytes_with_deadline).
    pub(super) fn set_expiry(&mut self, slot: Slot, at_ms: i64) {
        let Some(mut entry) = self.entries.get_mut(slot) else { return };
        self.volatile -= usize::from(entry.as_ref().expires());
        self.volatile += usize::from(at_ms != NEVER);
        if entry.set_expiry(at_ms) {
            self.timers.arm(slot, entry);
        }
        self.sweep_timers();
    }

    /// Walks the index; see [`SplitTable::scan`].
    pub(super) fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(Slot)) -> u64 {
        self.index.scan(cursor, count, &self.entries, |slot| emit(Slot(slot)))
    }

    /// Passes the entries from `cursor` on to `visit`, those of one place together; see [`SplitTable::walk`].
    pub(super) fn walk(&self, cursor: u64, mut visit: impl FnMut(&[Entry<'_>]) -> Walk) -> u64 {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        self.index.walk(cursor, &self.entries, |together| {
            entries.clear();
            entries.extend(together.iter().filter_map(|(_, slot)| self.get(Slot(*slot))));
            visit(&entries)
        })
    }

    /// Draws slots that lie together in the index, so their keys are unrelated: slots of all keys, or only of those
    /// that expire. There may be none.
    pub(super) fn draw_line(&mut self, rng: &mut Rng, is_volatile: bool, drawn: &mut Vec<Slot>) {
        let Db { entries, ahead, .. } = self;
        drawn.extend(ahead.slots.iter().filter(|slot| may_go(entries, **slot, is_volatile)));
        self.draw_ahead(rng);
    }

    /// Draws one slot, of all keys or of those that expire. All slots are equally likely, but slots of one line are
    /// drawn one after the other.
    pub(super) fn draw_one(&mut self, rng: &mut Rng, is_volatile: bool) -> Option<Slot> {
        for _ in 0..EVICTION_DRAWS {
            while let Some(slot) = self.ahead.slots.pop() {
                if may_go(&self.entries, slot, is_volatile) {
                    return Some(slot);
                }
            }
            self.draw_ahead(rng);
        }
        None
    }

    /// Looks at the line that was drawn last, and draws another.
    fn draw_ahead(&mut self, rng: &mut Rng) {
        let Db { index, entries, ahead, .. } = self;
        ahead.slots.clear();
        ahead.slots.extend(ahead.line.into_iter().flat_map(|line| index.in_line(line)).map(Slot));
        ahead.slots.iter().for_each(|slot| entries.prefetch(*slot));
        ahead.line = index.random_line(|n| rng.below(n));
    }

    /// Draws slots of expiring keys whose timers lie together.
    pub(super) fn draw_timers(&self, rng: &mut Rng, drawn: &mut Vec<Slot>) {
        let block = self.timers.random_block(rng);
        block.iter().for_each(|slot| self.entries.prefetch(*slot));
        drawn.extend(block.iter().filter(|slot| self.get(**slot).is_some_and(Entry::expires)));
    }

    /// Draws slots of keys that are among the next to expire.
    pub(super) fn draw_nearest(&mut self, drawn: &mut Vec<Slot>) {
        self.timers.nearest(&mut self.entries, drawn);
    }

    /// Whether [`Db::draw_nearest`] is still sorting the next timers.
    #[inline]
    pub(super) fn is_ordering_timers(&self) -> bool {
        self.timers.is_moving()
    }

    /// Returns any key, or any that expires, if there is one.
    pub(super) fn first_that_may_go(&self, is_volatile: bool) -> Option<Slot> {
        if !is_volatile {
            return self.slots().next();
        }
        self.timers.iter().find(|slot| self.get(*slot).is_some_and(Entry::expires))
    }

    pub(super) fn random(&self, rng: &mut Rng) -> Option<Slot> {
        self.index.random(|n| rng.below(n)).map(Slot)
    }

    /// Every slot, in no particular order.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.index.iter().map(Slot)
    }

    #[cfg(test)]
    pub(super) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Bytes of the index from hash to entry. Takes time proportional to its segments.
    pub fn index_bytes(&self) -> usize {
        self.index.mem_bytes()
    }

    /// Bytes of the entries' headers.
    pub fn header_bytes(&self) -> usize {
        self.len() * HEADER_BYTES
    }

    /// Bytes of the deadlines of keys, and of all timers.
    pub fn expiry_bytes(&self) -> usize {
        self.volatile * size_of::<i64>() + self.timers.mem_bytes()
    }

    /// Bytes allocated for entries but unused. Takes time proportional to the chunks of entries.
    pub fn vacant_bytes(&self) -> usize {
        self.entries.vacant_bytes()
    }

    /// Bytes of the tables, without keys and values outside them.
    pub fn overhead_bytes(&self) -> usize {
        self.entries.mem_bytes() + self.index.mem_bytes() + self.timers.mem_bytes()
    }
}

/// Hashes by slot number.
impl Hashes for Entries {
    #[inline]
    fn of(&self, slot: u32) -> u64 {
        self.get(Slot(slot)).map_or(0, |entry| hash_bytes(entry.key()))
    }

    #[inline]
    fn prefetch(&self, slot: u32) {
        self.prefetch(Slot(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_need_not_be_right() {
        let mut db = Db::new();
        let [a, b, gone] = [b"a", b"b", b"c"].map(|key| db.insert(key, NewValue::Text(b""), NEVER, 0));
        db.remove(gone);
        let nowhere = Slot(u32::MAX - 1);
        let hints = [None, Some(a), Some(b), Some(gone), Some(nowhere)];
        let check = |db: &mut Db, key: &[u8], slot: Option<Slot>| {
            assert_eq!(db.look_up(hash_bytes(key), key), slot);
            assert_eq!(slot.map(|slot| db.hash_at(slot)), slot.map(|_| hash_bytes(key)));
        };
        let check_all = |db: &mut Db, keys: [(&[u8], Option<Slot>); 4]| {
            for hint in hints {
                for (key, slot) in keys {
                    hint.into_iter().for_each(|slot| db.hint(slot));
                    check(db, key, slot);
                    // Each of these lookups starts at the previous key.
                    keys.iter().for_each(|(key, slot)| check(db, key, *slot));
                }
            }
        };
        check_all(&mut db, [(b"a", Some(a)), (b"b", Some(b)), (b"c", None), (b"d", None)]);
        // One entry moves, and another takes a free slot.
        let moved = db.relocate(b, 100);
        let taken = db.insert(b"d", NewValue::Text(b""), NEVER, 0);
        assert!(moved != b && [b, gone].contains(&taken));
        check_all(&mut db, [(b"a", Some(a)), (b"b", Some(moved)), (b"c", None), (b"d", Some(taken))]);
    }

    #[test]
    fn the_hash_at_a_slot_belongs_to_its_key() {
        let mut db = Db::new();
        let add = |db: &mut Db, key: &[u8]| db.insert(key, NewValue::Text(b""), NEVER, 0);
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
        assert_eq!(db.restore(entry), a);
        assert_eq!(hashes(&db), [hash_a, hash_b]);
        // A key that moves keeps its hash cached.
        let moved = db.relocate(a, 100);
        assert_eq!(
            [a, moved, b].map(|slot| db.get(slot).map(|_| db.hash_at(slot))),
            [None, Some(hash_a), Some(hash_b)]
        );
    }
}
