//! The entries of a database. Each lies in a place of the [`arena`](super::arena) of suitable size.
//!
//! An entry keeps its slot until it grows beyond its place. It then moves ([`Entries::relocate`]), and all holders of
//! its slot must learn the new one. An entry that shrinks stays, unless it holds a collection
//! ([`settle`](super::settle)). Undo reverses a move by another move, and a removal by putting the entry into a place
//! of its old size ([`Entries::restore`]). In the backward walk, both find the earlier slot.

use super::any_value::Value;
use super::arena::{Arena, Slot};
use super::entry::{Entry, EntryMut, Key, NEVER, NewValue, bytes_needed};
use crate::value::string::StringValue;

/// Entries by slot. See the module header.
#[derive(Default)]
pub(super) struct Entries {
    /// Every taken place holds an entry, owned by this struct.
    places: Arena,
}

/// An entry that was taken out and may be put back.
pub(super) struct Removed {
    pub(super) key: Key,
    pub(super) value: Value,
    /// When it expires, [`NEVER`] for not at all.
    pub(super) expires_at_ms: i64,
    /// Its use bits.
    pub(super) used: u32,
    /// Bytes of its former place.
    place_bytes: usize,
}

impl Removed {
    /// Takes the value out. The entry still fits into its former place.
    pub(super) fn take_value(&mut self) -> Value {
        std::mem::replace(&mut self.value, Value::String(StringValue::plain(b"")))
    }

    /// A copy without the value.
    pub(super) fn shell(&self) -> Removed {
        Removed { key: self.key.clone(), value: Value::String(StringValue::plain(b"")), ..*self }
    }
}

impl Entries {
    /// The number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The entry at `slot`, if there is one.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<Entry<'_>> {
        // SAFETY: a taken place holds an entry, and nothing changes while `self` is borrowed.
        self.places.place(slot).map(|place| unsafe { Entry::of(place) })
    }

    /// The entry at `slot`, for changing, if there is one.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<EntryMut<'_>> {
        // SAFETY: a taken place holds an entry, and `self` is borrowed exclusively.
        self.places.place(slot).map(|place| unsafe { EntryMut::of(place) })
    }

    /// Prefetches the entry at `slot` without looking at it.
    #[inline]
    pub(super) fn prefetch(&self, slot: Slot) {
        self.places.prefetch(slot);
    }

    /// Adds an entry without a timer. It expires at `expires_at_ms`, [`NEVER`] for not at all.
    #[inline]
    pub(super) fn insert(&mut self, key: &[u8], value: NewValue<'_>, expires_at_ms: i64, used: u32) -> Slot {
        self.insert_into(0, key, value, expires_at_ms, used)
    }

    /// Puts an entry back, without a timer, into a place of its former size.
    pub(super) fn restore(&mut self, removed: Removed) -> Slot {
        let Removed { key, value, expires_at_ms, used, place_bytes } = removed;
        self.insert_into(place_bytes, &key, value.into(), expires_at_ms, used)
    }

    #[inline]
    fn insert_into(
        &mut self,
        place_bytes: usize,
        key: &[u8],
        value: NewValue<'_>,
        expires_at_ms: i64,
        used: u32,
    ) -> Slot {
        let needed = bytes_needed(key, &value, expires_at_ms != NEVER);
        let (slot, place) = self.places.allocate(needed.max(place_bytes));
        // SAFETY: the place has just been allocated.
        unsafe { EntryMut::write(place, key, value, expires_at_ms, used) };
        slot
    }

    /// Takes the entry at `slot` out so that it can be put back.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Removed> {
        let entry = self.get(slot)?;
        let inside = entry.value_inside();
        let (key, place_bytes) = (Key::new(entry.key()), entry.place_bytes());
        let (expires_at_ms, used) = (entry.deadline_ms(), entry.used());
        let value = self.discard(slot).or(inside)?;
        Some(Removed { key, value, expires_at_ms, used, place_bytes })
    }

    /// Removes the entry at `slot` for good. Returns a value that lay outside the entry, since freeing it may take
    /// long.
    #[inline]
    pub(super) fn discard(&mut self, slot: Slot) -> Option<Value> {
        let entry = self.get_mut(slot)?;
        // SAFETY: the place is freed next.
        let outside = unsafe { entry.end() };
        self.places.free(slot);
        outside
    }

    /// Moves the entry at `slot`, which must exist, to a place of at least `bytes` bytes, without its timer. Returns
    /// its new slot.
    ///
    /// # Panics
    /// If the entry does not [fit](Entry::fits).
    #[must_use]
    pub(super) fn relocate(&mut self, slot: Slot, bytes: usize) -> Slot {
        // Takes the new place before freeing the old one, so that the old one is first in the free list when the entry
        // moves back.
        let (to, place) = self.places.allocate(bytes);
        let entry = self.get_mut(slot).expect("a slot is used only while its entry lives");
        // SAFETY: the new place has just been allocated, and the old one is freed next.
        unsafe { entry.move_to(place) };
        self.places.free(slot);
        to
    }

    /// Whether [`release`](Self::release) has anything to do.
    #[inline]
    pub(super) fn has_emptied(&self) -> bool {
        self.places.has_emptied()
    }

    /// Gives back memory that holds no entry; see [`Arena::release`].
    pub(super) fn release(&mut self) {
        self.places.release();
    }

    /// Gives back the memory that [`release`](Self::release) keeps for future entries; see [`Arena::release_spare`].
    pub(super) fn release_spare(&mut self) {
        self.places.release_spare();
    }

    /// Bytes allocated but not taken by entries.
    pub(super) fn vacant_bytes(&self) -> usize {
        self.places.vacant_bytes()
    }

    /// Bytes allocated for entries, without the memory that they own.
    pub(super) fn mem_bytes(&self) -> usize {
        self.places.mem_bytes()
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        for (_, place) in self.places.places() {
            // SAFETY: a taken place holds an entry, and all places are given back after this.
            drop(unsafe { EntryMut::of(place).end() });
        }
    }
}

// All that entries own may be sent, so another thread may free a whole database.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<(Value, Entries)>();
};

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::any_value::{ValueMut, ValueRef};
    use crate::keyspace::entry::TEXT_MAX_BYTES;
    use crate::value::grants::{Grant, Grants, Kind};
    use crate::value::hash::{Hash, HashLimits};
    use crate::value::list::{List, ListLimits};
    use crate::value::set::{Set, SetLimits};
    use crate::value::stream::Stream;
    use crate::value::string::{Digits, StringValue};
    use crate::value::zset::{ZSet, ZSetLimits};

    /// The expected content of an entry.
    struct Expected {
        key: Vec<u8>,
        value: Value,
        expires_at_ms: i64,
        used: u32,
        is_armed: bool,
        mark: bool,
    }

    /// All that clients can see of a value.
    fn shown(value: ValueRef<'_>) -> String {
        match value {
            ValueRef::String(string) => {
                let text = string.as_bytes(&mut Digits::new()).escape_ascii().to_string();
                format!("{} {text}", string.encoding())
            }
            ValueRef::List(list) => format!("{:?}", list.iter().collect::<Vec<_>>()),
            ValueRef::Set(set) => format!("{set:?}"),
            ValueRef::ZSet(zset) => format!("{:?}", zset.iter().collect::<Vec<_>>()),
            ValueRef::Hash(hash) => format!("{hash:?}"),
            ValueRef::Stream(stream) => format!("stream of {}", stream.len()),
            ValueRef::Grants(grants) => format!("{grants:?}"),
        }
    }

    fn bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
        (0..len).map(|_| b'a' + rng.below(26) as u8).collect()
    }

    fn key(rng: &mut Rng) -> Vec<u8> {
        let len = match rng.below(8) {
            0 => rng.below(600),
            _ => rng.below(40),
        };
        bytes(rng, len)
    }

    fn value(rng: &mut Rng) -> Value {
        let kind = rng.below(20);
        let mut few = |add: &mut dyn FnMut(&[u8])| (0..kind).for_each(|_| add(&bytes(rng, 5)));
        match kind {
            0..3 => Value::String(StringValue::Int(rng.below(u64::MAX) as i64 >> rng.below(64))),
            3..9 => {
                let len = rng.below([15, 60, 300, 2_000][kind as usize % 4]);
                Value::String(StringValue::plain(&bytes(rng, len)))
            }
            9 => {
                let mut string = StringValue::plain(b"");
                string.make_raw().append(&bytes(rng, 9));
                Value::String(string)
            }
            10..12 => {
                let mut list = List::new();
                few(&mut |element| list.push_back(element, ListLimits::default()));
                Value::List(list)
            }
            12..14 => {
                let mut set = Set::new();
                few(&mut |member| _ = set.insert(member, &SetLimits::default()));
                Value::Set(set)
            }
            14..16 => {
                let mut zset = ZSet::new();
                few(&mut |member| _ = zset.insert(member, 1.0, ZSetLimits::default()));
                Value::ZSet(zset)
            }
            16..18 => {
                let mut hash = Hash::new();
                few(&mut |field| _ = hash.insert(field, field, &HashLimits::default()));
                hash.insert(b"field", b"value", &HashLimits::default());
                if kind == 17 {
                    hash.set_deadline(b"field", 5_000);
                }
                Value::Hash(hash)
            }
            18 => Value::Grants(grants(&bytes(rng, 5))),
            _ => Value::Stream(Box::new(Stream::new())),
        }
    }

    /// A gate with one holder.
    fn grants(holder: &[u8]) -> Grants {
        let mut grants = Grants::new(Kind::Gate, 2, false);
        let (since_ms, until_ms, note) = (1, 5_000, &b""[..]);
        assert!(grants.set(Grant { holder, token: 1, units: 1, since_ms, until_ms, entered: 1, shared: false, note }));
        grants
    }

    /// Adds an element.
    fn edit(value: ValueMut<'_>) {
        match value {
            ValueMut::Raw(text) => text.append(b"more"),
            ValueMut::List(list) => list.push_back(b"element", ListLimits::default()),
            ValueMut::Set(set) => _ = set.insert(b"member", &SetLimits::default()),
            ValueMut::ZSet(zset) => _ = zset.insert(b"member", 2.0, ZSetLimits::default()),
            ValueMut::Hash(hash) => _ = hash.insert(b"field", b"value", &HashLimits::default()),
            ValueMut::Stream(stream) => *stream = Stream::new(),
            ValueMut::Grants(held) => *held = grants(b"other"),
        }
    }

    fn release_all(entries: &mut Entries) {
        while entries.has_emptied() {
            entries.release();
        }
    }

    fn check(entry: Entry<'_>, expected: &Expected) {
        assert_eq!(entry.key(), expected.key);
        assert_eq!(shown(entry.value()), shown(expected.value.as_ref()));
        assert_eq!((entry.deadline_ms(), entry.used()), (expected.expires_at_ms, expected.used));
        let elements_expire = expected.value.as_ref().elements_expire();
        assert_eq!(entry.elements_expire(), elements_expire);
        assert_eq!(entry.is_armed(), expected.is_armed || elements_expire);
        assert!(!expected.is_armed || entry.mark() == expected.mark);
    }

    /// Moves an entry, without its timer, if it has no room for `bytes` bytes.
    fn reserve(entries: &mut Entries, slot: Slot, bytes: usize, expected: &mut Expected) -> Slot {
        if entries.get(slot).expect("it is there").has_room(bytes) {
            return slot;
        }
        let to = entries.relocate(slot, bytes);
        assert!(to != slot && entries.get(slot).is_none());
        expected.is_armed = false;
        to
    }

    /// One step, on an existing entry.
    fn change(rng: &mut Rng, entries: &mut Entries, slot: Slot, expected: &mut Expected) -> Slot {
        let entry = entries.get(slot).expect("it is there");
        let expires = expected.expires_at_ms != NEVER;
        match rng.below(8) {
            0 => {
                let new = value(rng);
                let bytes = entry.bytes_with(&new.clone().into(), expires);
                let slot = reserve(entries, slot, bytes, expected);
                let mut entry = entries.get_mut(slot).expect("it moved");
                let old = entry.replace_value(new.clone().into(), expires);
                assert_eq!(shown(old.as_ref()), shown(expected.value.as_ref()));
                expected.value = new;
                // The entry may have dropped its timer's bound to make room.
                expected.is_armed &= expires || entry.as_ref().is_armed();
                slot
            }
            1 => {
                let len = rng.below(300);
                let text = bytes(rng, len);
                let bytes = entry.bytes_with(&NewValue::Text(&text), expires);
                let slot = reserve(entries, slot, bytes, expected);
                let mut entry = entries.get_mut(slot).expect("it moved");
                let inside = entry.as_ref().value_inside().is_some();
                assert_eq!(entry.set_value(NewValue::Text(&text), expires).is_none(), inside);
                expected.value = Value::String(StringValue::plain(&text));
                expected.is_armed &= expires || entry.as_ref().is_armed();
                slot
            }
            2 => {
                let at_ms = rng.below(1 << 40) as i64;
                let slot = reserve(entries, slot, entry.bytes_with_deadline(), expected);
                let mut entry = entries.get_mut(slot).expect("it moved");
                let comes_in_time = !entry.set_expiry(at_ms);
                assert!(expected.is_armed || !comes_in_time);
                (expected.expires_at_ms, expected.is_armed, expected.mark) = (at_ms, true, !expected.mark);
                entry.arm(at_ms, expected.mark);
                // A removed deadline stays as a bound.
                if rng.below(2) == 0 {
                    assert!(!entry.set_expiry(NEVER) && entry.set_expiry(at_ms - 1) && !entry.set_expiry(at_ms));
                    assert!(!entry.set_expiry(NEVER));
                    expected.expires_at_ms = NEVER;
                }
                slot
            }
            3 => {
                let mut entry = entries.get_mut(slot).expect("it is there");
                let old = match expected.value {
                    Value::String(StringValue::Int(old)) => Some(old),
                    _ => None,
                };
                // A small number has no room for a large one.
                let new = if old.is_some_and(|old| i32::try_from(old).is_err()) { i64::MIN } else { -1 };
                assert!(new == i64::MIN || !entry.set_integer(i64::from(i32::MAX) + 1));
                assert_eq!(entry.set_integer(new), old.is_some());
                match (entry.into_value_mut(), &mut expected.value) {
                    (None, Value::String(StringValue::Int(integer))) => *integer = new,
                    (None, value) => {
                        assert!(matches!(value, Value::String(StringValue::Inline { .. } | StringValue::Heap(_))))
                    }
                    (Some(value), other) => {
                        edit(value);
                        edit(other.as_mut().expect("it can be changed in place, too"));
                    }
                }
                slot
            }
            4 if entry.bytes_embedded().is_some() => {
                let bytes = entry.bytes_embedded().expect("asked above");
                let slot = reserve(entries, slot, bytes, expected);
                entries.get_mut(slot).expect("it moved").pack();
                entries.get_mut(slot).expect("it moved").embed();
                let entry = entries.get(slot).expect("it moved");
                assert!(entry.has_embedded() && entry.bytes() <= bytes && entry.value().heap_bytes(0) == 0);
                assert!(entry.bytes_embedded().is_none(), "it is");
                slot
            }
            4 => {
                let bytes = entry.bytes_with_word();
                let Value::String(string) = &mut expected.value else { return slot };
                string.make_raw().append(b"raw");
                let slot = reserve(entries, slot, bytes, expected);
                let text = entries.get_mut(slot).expect("it moved").make_raw();
                text.expect("a string").append(b"raw");
                expected.is_armed &= expires || entries.get(slot).is_some_and(Entry::is_armed);
                slot
            }
            5 => {
                let mut entry = entries.get_mut(slot).expect("it is there");
                (expected.used, expected.is_armed) = (7, false);
                entry.touch(7);
                entry.disarm();
                slot
            }
            6 => {
                // There and back, as undo does.
                let bytes = entry.place_bytes();
                let to = entries.relocate(slot, (bytes + 100).min(512));
                assert!(to != slot && entries.get(slot).is_none());
                assert_eq!(entries.relocate(to, bytes), slot);
                expected.is_armed = false;
                slot
            }
            _ => {
                let removed = entries.remove(slot).expect("it is there");
                assert!(entries.get(slot).is_none());
                assert_eq!(entries.restore(removed), slot);
                expected.is_armed = false;
                slot
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 20 }))]
        #[test]
        fn follows_a_map(
            steps in proptest::collection::vec(
                (any::<u32>(), 0..8u8, 1..300usize),
                1..if cfg!(miri) { 8 } else { 60 },
            ),
        ) {
            let mut entries = Entries::default();
            let mut model: HashMap<Slot, Expected> = HashMap::new();
            for (seed, step, count) in steps {
                let rng = &mut Rng::seeded(seed.into());
                let count = if cfg!(miri) { count / 60 } else { count };
                let mut slots: Vec<Slot> = model.keys().copied().collect();
                slots.sort_by_key(|slot| slot.0.wrapping_mul(seed | 1));
                slots.truncate(count);
                match step {
                    0..3 => for _ in 0..count {
                        let (key, value) = (key(rng), value(rng));
                        let expires_at_ms = if rng.below(2) == 0 { NEVER } else { rng.below(1 << 40) as i64 };
                        let slot = entries.insert(&key, value.clone().into(), expires_at_ms, seed);
                        let expected = Expected { key, value, expires_at_ms, used: seed, is_armed: false, mark: false };
                        prop_assert!(model.insert(slot, expected).is_none());
                    },
                    3 => for slot in slots {
                        let is_inside = entries.get(slot).and_then(Entry::value_inside).is_some();
                        prop_assert_eq!(entries.discard(slot).is_none(), is_inside);
                        model.remove(&slot);
                    },
                    4..7 => for slot in slots {
                        let mut expected = model.remove(&slot).expect("one of them");
                        let slot = change(rng, &mut entries, slot, &mut expected);
                        prop_assert!(model.insert(slot, expected).is_none());
                    },
                    _ => release_all(&mut entries),
                }
                prop_assert_eq!(entries.len(), model.len());
                model.iter().for_each(|(slot, expected)| check(entries.get(*slot).expect("it is there"), expected));
            }
        }
    }

    /// Bytes of typical keys of a coordination server: places, their share of the index, and further allocations.
    #[test]
    fn small_entries_take_little() {
        use crate::base::split_table::ENTRY_SHARE_BYTES as SHARE;

        let mut entries = Entries::default();
        let mut taken = |key_len: usize, value: NewValue<'_>, expires_at_ms: i64| {
            let slot = entries.insert(&vec![b'k'; key_len], value, expires_at_ms, 0);
            entries.get(slot).map(|entry| entry.mem_bytes(0))
        };
        assert_eq!(taken(12, NewValue::Text(b"ten bytes!"), NEVER), Some(32 + SHARE));
        assert_eq!(taken(15, NewValue::string(b"12345"), 1), Some(40 + SHARE));
        assert_eq!(taken(15, NewValue::Text(&[b'o'; 37]), 1), Some(72 + SHARE));
        assert_eq!(taken(12, Value::Hash(Hash::new()).into(), NEVER), Some(32 + SHARE));
        assert_eq!(taken(255, NewValue::Text(&[b't'; TEXT_MAX_BYTES]), 1), Some(512 + SHARE));
        assert_eq!(taken(256, NewValue::Text(&[b't'; 4]), NEVER), Some(32 + SHARE + 256));
    }

    #[test]
    fn entries_that_shrink_or_fit_do_not_move() {
        let mut entries = Entries::default();
        let slot = entries.insert(b"even", NewValue::Text(&[b'v'; 100]), NEVER, 0);
        let mut set = |value: NewValue<'_>| {
            let mut entry = entries.get_mut(slot).expect("it is there");
            let bytes = entry.as_ref().bytes_with(&value, false);
            let fits = entry.as_ref().has_room(bytes);
            if fits {
                entry.set_value(value, false);
            }
            fits
        };
        assert!(set(NewValue::string(b"5")) && set(NewValue::Text(&[b'w'; 100])) && !set(NewValue::Text(&[b'w'; 101])));
        // A shorter value fits again.
        assert!(set(NewValue::string(b"5")));
        let mut entry = entries.get_mut(slot).expect("it is there");
        assert!(entry.set_expiry(1_000));
        entry.arm(1_000, false);
        entry.set_value(NewValue::Text(&[b'x'; 92]), true);
        assert_eq!((entry.as_ref().deadline_ms(), entry.as_ref().is_armed()), (1_000, true));
    }

    #[test]
    fn an_unneeded_deadline_makes_room() {
        let mut entries = Entries::default();
        let slot = entries.insert(b"even", NewValue::Text(&[b'v'; 84]), 1_000, 0);
        let mut entry = entries.get_mut(slot).expect("it is there");
        entry.arm(1_000, false);
        assert!(!entry.set_expiry(NEVER));
        let mut set = |len: usize| {
            entry.set_value(NewValue::Text(&vec![b'x'; len]), false);
            assert_eq!(entry.as_ref().key(), b"even");
            entry.as_ref().is_armed()
        };
        // An unneeded deadline stays while there is room, but claims no room of its own.
        assert_eq!((set(84), set(85), set(84)), (true, false, false));
        assert!(entry.set_expiry(500) && entry.as_ref().deadline_ms() == 500);
    }

    /// Run under Miri, which finds leaks and double frees.
    #[test]
    fn entries_free_the_memory_that_they_own() {
        let mut entries = Entries::default();
        let rng = &mut Rng::seeded(3);
        let slots: Vec<Slot> = (0..30).map(|_| entries.insert(&key(rng), value(rng).into(), NEVER, 0)).collect();
        for slot in slots.iter().step_by(3) {
            let new = NewValue::from(value(rng));
            let bytes = entries.get(*slot).expect("it is there").bytes_with(&new, false);
            let slot = entries.relocate(*slot, bytes.max(entries.get(*slot).map_or(0, Entry::place_bytes)));
            entries.get_mut(slot).expect("it moved").set_value(new, false);
        }
        slots.iter().skip(1).step_by(3).for_each(|slot| _ = entries.discard(*slot));
        std::thread::spawn(move || drop(entries)).join().expect("dropping does not panic");
    }
}
