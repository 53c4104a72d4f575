//! One database: the entries, the index that finds them by key, and the timers of those that expire.

use super::any_value::{Value, ValueMut};
use super::arena::{Slot, place_bytes};
use super::entries::{Entries, Removed};
use super::entry::{Entry, EntryMut, HEADER_BYTES, NEVER, NewValue};
use super::expiry::{Timers, Turn};
use crate::base::equal::equal;
use crate::base::hasher::hash_bytes;
use crate::base::limits::{EVICTION_DRAWS, EXPECTED_KEYS_MAX};
use crate::base::rng::Rng;
use crate::base::split_table::{Hashes, LinePlace, SplitTable, Walk};
use crate::value::thin_bytes::ThinBytes;

/// A database number.
pub type DbIndex = u16;

/// One database. Knows nothing of effects, and of time only what it is told.
pub struct Db {
    entries: Entries,
    /// The numbers of the slots.
    index: SplitTable,
    /// Where the key lives that was looked up last or came last, and its hash: whoever has found a key asks for its hash again, and
    /// a script for the key. Forgotten when anything leaves its slot.
    last: Option<(Slot, u64)>,
    /// Where the key may live that is looked up next. Stays until then.
    hint: Option<Slot>,
    timers: Timers,
    /// How many entries expire some day.
    volatile: usize,
    /// How many entries have elements that do.
    partly_volatile: usize,
    ahead: Ahead,
}

/// What will be drawn next. In a large database a line of the index is not in the cache, nor are the entries that it leads to. So a line
/// is fetched while the entries of the one before are, and both are looked at when they are there. By then a slot may have lost its entry,
/// or hold another one, which is as good.
#[derive(Default)]
struct Ahead {
    line: Option<LinePlace>,
    /// The slots of the line before.
    slots: Vec<Slot>,
}

/// Whether there is an entry at `slot`, of all or of those that expire.
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
                sum = sum.saturating_add(at.saturating_sub(now_ms).max(0));
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
        self.index.find(hash, |slot| self.is_at(Slot(slot), key)).map(Slot)
    }

    /// As [`find_hashed`](Self::find_hashed), for one who goes on with the key. Looks where it is [hinted](Self::hint) to be, or
    /// where the last one was, before it goes through the index.
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

    /// Has the next [`look_up`](Self::look_up) begin at this slot, which need not be the right one, nor taken.
    #[inline]
    pub(super) fn hint(&mut self, slot: Slot) {
        self.hint = Some(slot);
    }

    /// Whether this key lives there.
    #[inline(always)]
    fn is_at(&self, slot: Slot, key: &[u8]) -> bool {
        self.entries.get(slot).is_some_and(|entry| equal(entry.key(), key))
    }

    /// The hash of the key at `slot`, which must be there.
    #[inline]
    pub(super) fn hash_at(&self, slot: Slot) -> u64 {
        let hash = match self.last {
            Some((last, hash)) if last == slot => hash,
            _ => self.entries.of(slot.0),
        };
        debug_assert_eq!(hash, self.entries.of(slot.0), "it is the hash of another key");
        hash
    }

    /// Starts to bring what [`find_hashed`](Self::find_hashed) will look at first into the cache.
    #[inline]
    pub(super) fn warm_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Starts to bring the entry into the cache that [`find_hashed`](Self::find_hashed) will look at. Waits for the index, which
    /// [`warm_index`](Self::warm_index) brings. Answers where that entry is, of which the key has not been compared.
    #[inline]
    pub(super) fn warm_entry(&self, hash: u64) -> Option<Slot> {
        let slot = self.index.find(hash, |_| true).map(Slot)?;
        self.entries.prefetch(slot);
        Some(slot)
    }

    /// Makes room for about so many keys, if there is none yet: see [`SplitTable::expect`].
    pub(super) fn expect(&mut self, keys: usize) {
        self.index.expect(keys.min(EXPECTED_KEYS_MAX));
    }

    /// Gives room back that keys have not taken which were [expected](Self::expect).
    pub(super) fn fit(&mut self) {
        self.index.fit();
    }

    /// The entry at `slot`, if one is there.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<Entry<'_>> {
        self.entries.get(slot)
    }

    /// The entry at `slot`, which must be there.
    #[inline]
    pub(super) fn entry(&self, slot: Slot) -> Entry<'_> {
        self.get(slot).expect("a slot is used only while its entry lives")
    }

    /// Notes when the entry at `slot`, if one is there, is used. Answers whether it, or an element of it, may have expired by
    /// `now_ms`.
    #[inline]
    pub(super) fn meet(&mut self, slot: Slot, used: Option<u32>, now_ms: i64) -> Option<bool> {
        let mut entry = self.entries.get_mut(slot)?;
        if let Some(used) = used {
            entry.touch(used);
        }
        Some(entry.as_ref().is_due(now_ms))
    }

    /// Sets when an entry was last used, or how often.
    #[inline]
    pub(super) fn touch(&mut self, slot: Slot, used: u32) {
        self.entry_mut(slot).touch(used);
    }

    /// The value at `slot`, to change it in place; `None` for a string that is not raw. What changes the deadlines of elements
    /// is [followed](Self::follow_elements).
    #[inline]
    pub(super) fn value_mut(&mut self, slot: Slot) -> Option<ValueMut<'_>> {
        self.entry_mut(slot).into_value_mut()
    }

    /// Makes a string raw, and answers its text; `None` for another value. It has [room](Entry::bytes_with_word) for that.
    pub(super) fn make_raw(&mut self, slot: Slot) -> Option<&mut ThinBytes> {
        self.entry_mut(slot).make_raw()
    }

    /// Gives a number another value, in place. False, with nothing changed, for what is no number, or has not the bytes for that one.
    #[inline]
    pub(super) fn set_integer(&mut self, slot: Slot, value: i64) -> bool {
        self.entry_mut(slot).set_integer(value)
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, slot: Slot) -> EntryMut<'_> {
        self.entries.get_mut(slot).expect("a slot is used only while its entry lives")
    }

    /// Adds a key that is not there yet and expires at `expires_at_ms`, `NEVER` for not at all.
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

    /// Puts an entry back that [`remove`](Self::remove) took out. If nothing else came or went since, it gets its slot.
    pub(super) fn restore(&mut self, removed: Removed) -> Slot {
        let hash = hash_bytes(&removed.key);
        let slot = self.entries.restore(removed);
        self.link(hash, slot);
        slot
    }

    /// An entry has come: it gets its place in the index, and a timer if it needs one.
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

    /// Takes an entry out, for one who may [put it back](Self::restore). Memory that is free then is kept until
    /// [`release`](Self::release).
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Removed> {
        let was_armed = self.unlink(slot)?;
        let removed = self.entries.remove(slot);
        if was_armed {
            self.sweep_timers();
        }
        removed
    }

    /// Removes an entry for good, if one is there. Answers its value if it lay outside of the entry: it may take long to free. Memory
    /// is kept as by [`remove`](Self::remove).
    #[inline]
    pub(super) fn discard(&mut self, slot: Slot) -> Option<Value> {
        let was_armed = self.unlink(slot)?;
        let outside = self.entries.discard(slot);
        if was_armed {
            self.sweep_timers();
        }
        outside
    }

    /// An entry is about to go: it leaves the index. Answers whether a timer comes for it.
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

    /// Gives some of the memory back that is free since entries were removed. Not for the middle of a unit that may have to
    /// be undone: entries would not come back to their slots.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.entries.has_emptied() {
            self.entries.release();
        }
    }

    /// Gives all of it back.
    pub(super) fn release_all(&mut self) {
        while self.entries.has_emptied() {
            self.entries.release();
        }
    }

    /// Gives back what is kept for keys to come, too. After [`release_all`](Self::release_all).
    pub(super) fn release_spare(&mut self) {
        self.entries.release_spare();
    }

    /// Moves an entry, which must be there, to a place for so many bytes. Answers where it is then.
    #[cold]
    #[must_use]
    pub(super) fn relocate(&mut self, from: Slot, bytes: usize) -> Slot {
        let hash = self.hash_at(from);
        let to = self.entries.relocate(from, bytes);
        self.last = Some((to, hash));
        let slot = self.index.find_mut(hash, |slot| slot == from.0);
        *slot.expect("every entry is in the index") = to.0;
        if self.entry(to).is_mortal() {
            // The timer of its old slot is stale.
            self.rearm(to);
        }
        to
    }

    /// Gives the entry at `slot`, if one is there, the place that it needs: with its collection embedded, if that `is_new` and may be.
    /// Answers whether it has moved.
    pub(super) fn settle(&mut self, slot: Slot, is_new: bool) -> bool {
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

    /// Gives an entry, which must be there and has [room](Entry::bytes_with), another value and another time at which it expires.
    /// Answers the old value if it lay outside of the entry.
    pub(super) fn set_value(&mut self, slot: Slot, value: NewValue<'_>, expires_at_ms: i64) -> Option<Value> {
        self.exchange(slot, expires_at_ms, |entry, expires| entry.set_value(value, expires))
    }

    /// As [`set_value`](Self::set_value), but answers the old value wherever it lay.
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

    /// An entry has got another value, and is about to expire at `expires_at_ms`. Before, it expired or did not, and so did its elements.
    fn follow_exchange(&mut self, slot: Slot, expired: bool, elements_expired: bool, expires_at_ms: i64) {
        self.follow_elements(slot, elements_expired);
        self.volatile -= usize::from(expired && expires_at_ms == NEVER);
        self.set_expiry(slot, expires_at_ms);
    }

    /// Keeps count and timer in step after an entry's value or the deadlines of its elements changed; `before` is whether any
    /// element expired.
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

    /// Looks at the next timer, if it comes at `now_ms` at the latest.
    pub(super) fn next_timer(&mut self, now_ms: i64) -> Turn {
        self.timers.turn(now_ms, &mut self.entries)
    }

    /// Adds the timer that an entry needs which has none, or whose timer has come.
    pub(super) fn rearm(&mut self, slot: Slot) {
        let Some(mut entry) = self.entries.get_mut(slot) else { return };
        if entry.as_ref().due_at_ms() == NEVER {
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

    /// Changes when an entry expires; `NEVER` for not at all. It has [room](Entry::bytes_with_deadline) for that.
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

    /// Shows the entries from `cursor` on to `visit`, those of one place together; see [`SplitTable::walk`].
    pub(super) fn walk(&self, cursor: u64, mut visit: impl FnMut(&[Entry<'_>]) -> Walk) -> u64 {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        self.index.walk(cursor, &self.entries, |together| {
            entries.clear();
            entries.extend(together.iter().filter_map(|(_, slot)| self.get(Slot(*slot))));
            visit(&entries)
        })
    }

    /// Draws slots that lie together in the index, and are of no keys that have anything to do with each other: of all, or only of
    /// those that expire. There may be none.
    pub(super) fn draw_line(&mut self, rng: &mut Rng, is_volatile: bool, drawn: &mut Vec<Slot>) {
        let Db { entries, ahead, .. } = self;
        drawn.extend(ahead.slots.iter().filter(|slot| may_go(entries, **slot, is_volatile)));
        self.draw_ahead(rng);
    }

    /// Draws one slot, of all keys or of those that expire. Each has the same chance, but those of a line are drawn one after the other.
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

    /// Looks into the line that was drawn last, and draws another.
    fn draw_ahead(&mut self, rng: &mut Rng) {
        let Db { index, entries, ahead, .. } = self;
        ahead.slots.clear();
        ahead.slots.extend(ahead.line.into_iter().flat_map(|line| index.in_line(line)).map(Slot));
        ahead.slots.iter().for_each(|slot| entries.prefetch(*slot));
        ahead.line = index.random_line(|n| rng.below(n));
    }

    /// Draws slots of keys that expire, whose timers lie together.
    pub(super) fn draw_timers(&self, rng: &mut Rng, drawn: &mut Vec<Slot>) {
        let block = self.timers.random_block(rng);
        block.iter().for_each(|slot| self.entries.prefetch(*slot));
        drawn.extend(block.iter().filter(|slot| self.get(**slot).is_some_and(Entry::expires)));
    }

    /// Draws slots of keys that are among the next to expire.
    pub(super) fn draw_nearest(&mut self, drawn: &mut Vec<Slot>) {
        self.timers.nearest(&mut self.entries, drawn);
    }

    /// Whether [`Db::draw_nearest`] is about to learn which are the next.
    #[inline]
    pub(super) fn is_ordering_timers(&self) -> bool {
        self.timers.is_moving()
    }

    /// A key, or one that expires, if there is one.
    pub(super) fn first_that_may_go(&self, is_volatile: bool) -> Option<Slot> {
        if !is_volatile {
            return self.slots().next();
        }
        self.timers.iter().find(|slot| self.get(*slot).is_some_and(Entry::expires))
    }

    pub(super) fn random(&self, rng: &mut Rng) -> Option<Slot> {
        self.index.random(|n| rng.below(n)).map(Slot)
    }

    /// Every slot, in no order that means anything.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.index.iter().map(Slot)
    }

    #[cfg(test)]
    pub(super) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Bytes of the index from hash to entry. Takes time in proportion to its segments.
    pub fn index_bytes(&self) -> usize {
        self.index.mem_bytes()
    }

    /// Bytes of what the entries say of themselves, beside key, value and deadline.
    pub fn header_bytes(&self) -> usize {
        self.len() * HEADER_BYTES
    }

    /// Bytes of the deadlines of keys, and of all timers.
    pub fn expiry_bytes(&self) -> usize {
        self.volatile * size_of::<i64>() + self.timers.mem_bytes()
    }

    /// Bytes that are allocated for entries and hold none. Takes time in proportion to the chunks of entries.
    pub fn vacant_bytes(&self) -> usize {
        self.entries.vacant_bytes()
    }

    /// Bytes of the tables, without keys and values that lie outside them.
    pub fn overhead_bytes(&self) -> usize {
        self.entries.mem_bytes() + self.index.mem_bytes() + self.timers.mem_bytes()
    }
}

/// By the numbers of their slots.
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
                    // The next one begins where that was.
                    keys.iter().for_each(|(key, slot)| check(db, key, *slot));
                }
            }
        };
        check_all(&mut db, [(b"a", Some(a)), (b"b", Some(b)), (b"c", None), (b"d", None)]);
        // One moves, and another takes a slot that was free.
        let moved = db.relocate(b, 100);
        let taken = db.insert(b"d", NewValue::Text(b""), NEVER, 0);
        assert!(moved != b && [b, gone].contains(&taken));
        check_all(&mut db, [(b"a", Some(a)), (b"b", Some(moved)), (b"c", None), (b"d", Some(taken))]);
    }

    #[test]
    fn the_hash_at_a_slot_is_that_of_the_key_that_lives_there() {
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
        // One that moves takes it along.
        let moved = db.relocate(a, 100);
        assert_eq!(
            [a, moved, b].map(|slot| db.get(slot).map(|_| db.hash_at(slot))),
            [None, Some(hash_a), Some(hash_b)]
        );
    }
}
