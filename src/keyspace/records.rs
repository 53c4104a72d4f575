//! The records of a database: each in a place of the [`arena`](super::arena) that has the size for it.
//!
//! A record keeps its slot until it must grow beyond its place: then it moves ([`Records::reserve`]), and whoever knows its slot has to
//! learn the new one. What gets smaller stays. Undo takes a move back by another one ([`Records::relocate`]), and a removal by
//! putting the record into a place of the size that it had ([`Records::restore`]); walking backwards, both find the slot of before.

use super::NEVER;
use super::arena::Arena;
use super::entry::{Key, Value};
use super::record::{NewValue, Record, RecordMut, bytes_needed};
use super::slab::Slot;

/// Records by slot. See the module's header.
#[derive(Default)]
pub(super) struct Records {
    /// What lies in each place that is taken is a record. Its owner is this.
    places: Arena,
}

/// A record that was taken out, to be put back.
pub(super) struct Removed {
    /// The key.
    pub(super) key: Key,
    /// The value.
    pub(super) value: Value,
    /// When it expires, [`NEVER`] for not at all.
    pub(super) expires_at_ms: i64,
    /// When it was last used, in seconds of the server's clock.
    pub(super) accessed_s: u32,
    /// Bytes of the place where it lay.
    place_bytes: usize,
}

impl Records {
    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The record at `slot`, if one is there.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<Record<'_>> {
        // SAFETY: a taken place holds a record, and nothing changes as long as all of them are borrowed.
        self.places.place(slot).map(|place| unsafe { Record::of(place) })
    }

    /// The record at `slot`, if one is there.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<RecordMut<'_>> {
        // SAFETY: a taken place holds a record, and all of them are borrowed.
        self.places.place(slot).map(|place| unsafe { RecordMut::of(place) })
    }

    /// Starts to bring the record at `slot` into the cache, without looking at it.
    #[inline]
    pub(super) fn prefetch(&self, slot: Slot) {
        self.places.prefetch(slot);
    }

    /// Adds a record. It expires at `expires_at_ms`, [`NEVER`] for not at all.
    #[inline]
    pub(super) fn insert(&mut self, key: &[u8], value: NewValue<'_>, expires_at_ms: i64, accessed_s: u32) -> Slot {
        self.insert_into(0, key, value, expires_at_ms, accessed_s)
    }

    /// Puts a record back, without a timer, into a place of the size that it had.
    pub(super) fn restore(&mut self, removed: Removed) -> Slot {
        let Removed { key, value, expires_at_ms, accessed_s, place_bytes } = removed;
        self.insert_into(place_bytes, &key, value.into(), expires_at_ms, accessed_s)
    }

    #[inline]
    fn insert_into(
        &mut self,
        place_bytes: usize,
        key: &[u8],
        value: NewValue<'_>,
        expires_at_ms: i64,
        accessed_s: u32,
    ) -> Slot {
        let needed = bytes_needed(key, &value, expires_at_ms != NEVER);
        let (slot, place) = self.places.allocate(needed.max(place_bytes));
        // SAFETY: the place has just been allocated.
        unsafe { RecordMut::write(place, key, value, expires_at_ms, accessed_s) };
        slot
    }

    /// Takes the record at `slot` out, for one who may put it back.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Removed> {
        let record = self.get(slot)?;
        let inside = record.value_inside();
        let (key, place_bytes) = (Key::new(record.key()), record.place_bytes());
        let (expires_at_ms, accessed_s) = (record.expires_at_ms(), record.accessed_s());
        let value = self.discard(slot).or(inside)?;
        Some(Removed { key, value, expires_at_ms, accessed_s, place_bytes })
    }

    /// Removes the record at `slot` for good. Answers its value if it lay outside of the record: it may take long to free.
    #[inline]
    pub(super) fn discard(&mut self, slot: Slot) -> Option<Value> {
        let record = self.get_mut(slot)?;
        // SAFETY: the place is freed next.
        let outside = unsafe { record.end() };
        self.places.free(slot);
        outside
    }

    /// Gives the record at `slot` a place of so many bytes at least, if its own is smaller. Answers where it is then.
    #[inline]
    #[must_use]
    pub(super) fn reserve(&mut self, slot: Slot, bytes: usize) -> Slot {
        match self.get(slot) {
            Some(record) if record.place_bytes() < bytes => self.relocate(slot, bytes),
            _ => slot,
        }
    }

    /// Moves the record at `slot` to a place for so many bytes, even if its own is large enough. Answers where it is then.
    ///
    /// # Panics
    /// Where it takes more bytes.
    #[cold]
    #[must_use]
    pub(super) fn relocate(&mut self, slot: Slot, bytes: usize) -> Slot {
        if self.get(slot).is_none() {
            return slot;
        }
        let (to, place) = self.places.allocate(bytes);
        if let Some(record) = self.get_mut(slot) {
            // SAFETY: the one place has just been allocated, the other is freed next.
            unsafe { record.move_to(place) };
        }
        self.places.free(slot);
        to
    }

    /// All of them, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, Record<'_>)> {
        // SAFETY: as in `get`.
        self.places.places().map(|(slot, place)| (slot, unsafe { Record::of(place) }))
    }

    /// Whether [`release`](Self::release) has anything to do.
    #[inline]
    pub(super) fn has_emptied(&self) -> bool {
        self.places.has_emptied()
    }

    /// Gives memory back that holds no record; see [`Arena::release`].
    pub(super) fn release(&mut self) {
        self.places.release();
    }

    /// Bytes allocated for records, without what they own.
    pub(super) fn mem_bytes(&self) -> usize {
        self.places.mem_bytes()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        for (_, place) in self.places.places() {
            // SAFETY: a taken place holds a record, and all places are given back after this.
            drop(unsafe { RecordMut::of(place).end() });
        }
    }
}

// What its records own may be sent, so that another thread may free a whole database.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<(Value, Records)>();
};

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::entry::{ValueMut, ValueRef};
    use crate::keyspace::record::TEXT_MAX_BYTES;
    use crate::value::Layout;
    use crate::value::hash::{Hash, HashLimits};
    use crate::value::list::{List, ListLimits};
    use crate::value::set::{Set, SetLimits};
    use crate::value::stream::Stream;
    use crate::value::string::{Digits, StringValue};
    use crate::value::zset::{ZSet, ZSetLimits};

    /// What a record should say.
    struct Expected {
        key: Vec<u8>,
        value: Value,
        expires_at_ms: i64,
        accessed_s: u32,
        is_armed: bool,
        sweep: bool,
    }

    /// All that clients can see of a value.
    fn shown(value: ValueRef<'_>) -> String {
        match value {
            ValueRef::String(string) => {
                let text = string.as_bytes(&mut Digits::new()).escape_ascii().to_string();
                format!("{} {text}", string.encoding())
            }
            ValueRef::List(list) => format!("{list:?}"),
            ValueRef::Set(set) => format!("{set:?}"),
            ValueRef::ZSet(zset) => format!("{:?}", zset.iter().collect::<Vec<_>>()),
            ValueRef::Hash(hash) => format!("{hash:?}"),
            ValueRef::Stream(stream) => format!("stream of {}", stream.len()),
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
            0..3 => Value::String(StringValue::Int(rng.below(u64::MAX) as i64)),
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
                Value::Hash(hash)
            }
            _ => Value::Stream(Box::new(Stream::new())),
        }
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
        }
    }

    fn release_all(records: &mut Records) {
        while records.has_emptied() {
            records.release();
        }
    }

    fn check(record: Record<'_>, expected: &Expected) {
        assert_eq!(record.key(), expected.key);
        assert_eq!(shown(record.value()), shown(expected.value.as_ref()));
        assert_eq!((record.expires_at_ms(), record.accessed_s()), (expected.expires_at_ms, expected.accessed_s));
        assert_eq!((record.armed_until_ms().is_some(), record.sweep()), (expected.is_armed, expected.sweep));
    }

    /// One step, on a record that is there.
    fn change(rng: &mut Rng, records: &mut Records, slot: Slot, expected: &mut Expected) -> Slot {
        let record = records.get(slot).expect("it is there");
        match rng.below(8) {
            0 => {
                let new = value(rng);
                let slot = records.reserve(slot, record.bytes_with_value(&new.clone().into()));
                let old = records.get_mut(slot).expect("it moved").replace_value(new.clone().into());
                assert_eq!(shown(old.as_ref()), shown(expected.value.as_ref()));
                expected.value = new;
                slot
            }
            1 => {
                let len = rng.below(300);
                let text = bytes(rng, len);
                let slot = records.reserve(slot, record.bytes_with_value(&NewValue::Text(&text)));
                let inside = records.get(slot).and_then(Record::value_inside).is_some();
                let outside = records.get_mut(slot).expect("it moved").set_value(NewValue::Text(&text));
                assert_eq!(outside.is_none(), inside);
                expected.value = Value::String(StringValue::plain(&text));
                slot
            }
            2 => {
                let at_ms = if rng.below(3) == 0 { NEVER } else { rng.below(1 << 40) as i64 };
                let slot = if at_ms == NEVER { slot } else { records.reserve(slot, record.bytes_with_deadline()) };
                let mut record = records.get_mut(slot).expect("it moved");
                let armed_until = record.as_ref().armed_until_ms();
                record.set_expiry(at_ms);
                assert!(at_ms != NEVER || record.as_ref().armed_until_ms() == armed_until);
                if at_ms != NEVER {
                    record.set_armed(true);
                    expected.is_armed = true;
                }
                expected.expires_at_ms = at_ms;
                slot
            }
            3 => {
                let mut record = records.get_mut(slot).expect("it is there");
                assert_eq!(record.set_integer(1), matches!(expected.value, Value::String(StringValue::Int(_))));
                match (record.value_mut(), &mut expected.value) {
                    (None, Value::String(StringValue::Int(integer))) => *integer = 1,
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
            4 => {
                let Value::String(string) = &mut expected.value else { return slot };
                string.make_raw().append(b"raw");
                let slot = records.reserve(slot, record.bytes_with_word());
                records.get_mut(slot).and_then(|mut r| r.make_raw().map(|text| text.append(b"raw"))).expect("a string");
                if rng.below(2) == 0 {
                    return slot;
                }
                assert!(string.take_layout(Layout::Compact));
                let slot = records.reserve(slot, records.get(slot).expect("it moved").bytes_as_plain());
                records.get_mut(slot).expect("it moved").make_plain();
                slot
            }
            5 => {
                let mut record = records.get_mut(slot).expect("it is there");
                (expected.accessed_s, expected.sweep, expected.is_armed) = (7, !expected.sweep, false);
                record.touch(7);
                record.set_sweep(expected.sweep);
                record.set_armed(false);
                slot
            }
            6 => {
                // There and back, as undo does.
                let bytes = record.place_bytes();
                let to = records.relocate(slot, bytes.max(bytes + 100).min(512));
                assert!(to != slot && records.get(slot).is_none());
                assert_eq!(records.relocate(to, bytes), slot);
                slot
            }
            _ => {
                let removed = records.remove(slot).expect("it is there");
                assert!(records.get(slot).is_none());
                assert_eq!(records.restore(removed), slot);
                (expected.is_armed, expected.sweep) = (false, false);
                slot
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 20 }))]
        #[test]
        fn follows_a_map(steps in proptest::collection::vec((any::<u32>(), 0..8u8, 1..300usize), 1..if cfg!(miri) { 20 } else { 60 })) {
            let mut records = Records::default();
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
                        let slot = records.insert(&key, value.clone().into(), expires_at_ms, seed);
                        let expected = Expected { key, value, expires_at_ms, accessed_s: seed, is_armed: false, sweep: false };
                        prop_assert!(model.insert(slot, expected).is_none());
                    },
                    3 => for slot in slots {
                        let is_inside = records.get(slot).and_then(Record::value_inside).is_some();
                        prop_assert_eq!(records.discard(slot).is_none(), is_inside);
                        model.remove(&slot);
                    },
                    4..7 => for slot in slots {
                        let mut expected = model.remove(&slot).expect("one of them");
                        let slot = change(rng, &mut records, slot, &mut expected);
                        prop_assert!(model.insert(slot, expected).is_none());
                    },
                    _ => release_all(&mut records),
                }
                prop_assert_eq!(records.len(), model.len());
                model.iter().for_each(|(slot, expected)| check(records.get(*slot).expect("it is there"), expected));
            }
        }
    }

    /// What keys of a coordination server take, without their share of the index: places, and what is allocated beside them.
    #[test]
    fn small_records_take_little() {
        let mut records = Records::default();
        let mut taken = |key_len: usize, value: NewValue<'_>, expires_at_ms: i64| {
            let slot = records.insert(&vec![b'k'; key_len], value, expires_at_ms, 0);
            records.get(slot).map(|record| record.mem_bytes(0))
        };
        assert_eq!(taken(12, NewValue::Text(b"ten bytes!"), NEVER), Some(32));
        assert_eq!(taken(15, NewValue::string(b"12345"), 1), Some(40));
        assert_eq!(taken(15, NewValue::Text(&[b'o'; 37]), 1), Some(72));
        assert_eq!(taken(12, Value::Hash(Hash::new()).into(), NEVER), Some(32));
        assert_eq!(taken(255, NewValue::Text(&[b't'; TEXT_MAX_BYTES]), 1), Some(512));
        assert_eq!(taken(256, NewValue::Text(&[b't'; 4]), NEVER), Some(32 + 256));
    }

    #[test]
    fn what_gets_smaller_stays_and_what_fits_does_not_move() {
        let mut records = Records::default();
        let slot = records.insert(b"key", NewValue::Text(&[b'v'; 100]), NEVER, 0);
        let mut set = |value: NewValue<'_>| {
            let needed = records.get(slot).expect("it is there").bytes_with_value(&value);
            let to = records.reserve(slot, needed);
            records.get_mut(to).expect("it moved").set_value(value);
            to
        };
        assert_eq!(set(NewValue::string(b"5")), slot);
        assert_eq!(set(NewValue::Text(&[b'w'; 101])), slot);
        assert_ne!(set(NewValue::Text(&[b'w'; 102])), slot);
        assert!(records.get(slot).is_none());
    }

    /// Under Miri, which finds what is never freed; and what is freed twice.
    #[test]
    fn records_free_what_they_own() {
        let mut records = Records::default();
        let rng = &mut Rng::seeded(3);
        let slots: Vec<Slot> = (0..60).map(|_| records.insert(&key(rng), value(rng).into(), NEVER, 0)).collect();
        for slot in slots.iter().step_by(3) {
            let new = NewValue::from(value(rng));
            let bytes = records.get(*slot).expect("it is there").bytes_with_value(&new);
            let slot = records.reserve(*slot, bytes);
            records.get_mut(slot).expect("it moved").set_value(new);
        }
        slots.iter().skip(1).step_by(3).for_each(|slot| _ = records.discard(*slot));
        std::thread::spawn(move || drop(records)).join().expect("dropping does not panic");
    }
}
