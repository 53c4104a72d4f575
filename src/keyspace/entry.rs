//! One key with its value, expiry and bookkeeping: one cache line.

use super::NEVER;
use crate::base::limits::{COMPACT_MAX_ENTRIES, UNDO_COPY_MAX_BYTES};
use crate::value::Layout;
use crate::value::deadlines::Deadlines;
use crate::value::hash::Hash;
use crate::value::list::List;
use crate::value::set::Set;
use crate::value::small_bytes::SmallBytes;
use crate::value::stream::Stream;
use crate::value::string::{StringRef, StringValue};
use crate::value::thin_bytes::ThinBytes;
use crate::value::zset::ZSet;

/// A key. Up to 22 bytes lie inside the entry.
pub type Key = SmallBytes;

/// What a key holds.
#[derive(Clone)]
pub enum Value {
    /// Bytes or a counter.
    String(StringValue),
    /// Elements in order.
    List(List),
    /// Members.
    Set(Set),
    /// Members by score.
    ZSet(ZSet),
    /// Fields and values.
    Hash(Hash),
    /// Entries by time.
    Stream(Box<Stream>),
}

/// A value as it is read, wherever it lies.
#[derive(Clone, Copy)]
pub enum ValueRef<'a> {
    /// Bytes or a counter.
    String(StringRef<'a>),
    /// Elements in order.
    List(&'a List),
    /// Members.
    Set(&'a Set),
    /// Members by score.
    ZSet(&'a ZSet),
    /// Fields and values.
    Hash(&'a Hash),
    /// Entries by time.
    Stream(&'a Stream),
}

impl Value {
    /// The value, to read it.
    #[inline]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::String(string) => ValueRef::String(string.as_ref()),
            Value::List(list) => ValueRef::List(list),
            Value::Set(set) => ValueRef::Set(set),
            Value::ZSet(zset) => ValueRef::ZSet(zset),
            Value::Hash(hash) => ValueRef::Hash(hash),
            Value::Stream(stream) => ValueRef::Stream(stream),
        }
    }

    /// The value, to change it in place; `None` for a string that is not raw.
    #[inline]
    pub(super) fn as_mut(&mut self) -> Option<ValueMut<'_>> {
        Some(match self {
            Value::String(StringValue::Raw(text)) => ValueMut::Raw(text),
            Value::String(_) => return None,
            Value::List(list) => ValueMut::List(list),
            Value::Set(set) => ValueMut::Set(set),
            Value::ZSet(zset) => ValueMut::ZSet(zset),
            Value::Hash(hash) => ValueMut::Hash(hash),
            Value::Stream(stream) => ValueMut::Stream(stream),
        })
    }

    /// Lays it out [as nearly](ValueRef::nearest_layout) like this as it can be, whatever the limits; false where a value can't be, or is
    /// so only as it grows.
    pub(super) fn take_layout(&mut self, layout: Layout) -> bool {
        let layout = self.as_ref().nearest_layout(layout);
        if let Value::String(string) = self {
            return string.take_layout(layout);
        }
        self.as_ref().layout() == layout || self.as_mut().is_some_and(|value| value.take_layout(layout))
    }
}

/// A value as it is changed in place. A string is only when it was made raw before; else it is replaced as a whole.
pub(super) enum ValueMut<'a> {
    Raw(&'a mut ThinBytes),
    List(&'a mut List),
    Set(&'a mut Set),
    ZSet(&'a mut ZSet),
    Hash(&'a mut Hash),
    Stream(&'a mut Stream),
}

impl<'a> ValueMut<'a> {
    /// Gives it a layout that is not its own: see [`Value::take_layout`].
    pub(super) fn take_layout(self, layout: Layout) -> bool {
        match self {
            ValueMut::List(list) if layout != Layout::Integers => list.take_form(layout == Layout::Compact),
            ValueMut::Set(set) => return set.take_layout(layout),
            _ => return false,
        }
        true
    }

    /// As [`ValueRef::deadlines`], to change those of elements that are there.
    pub(super) fn deadlines_mut(self) -> Option<&'a mut Deadlines> {
        match self {
            ValueMut::Hash(hash) => hash.deadlines_mut(),
            ValueMut::Set(set) => set.deadlines_mut(),
            _ => None,
        }
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Value {
        match value {
            ValueRef::String(string) => Value::String(string.into()),
            ValueRef::List(list) => Value::List(list.clone()),
            ValueRef::Set(set) => Value::Set(set.clone()),
            ValueRef::ZSet(zset) => Value::ZSet(zset.clone()),
            ValueRef::Hash(hash) => Value::Hash(hash.clone()),
            ValueRef::Stream(stream) => Value::Stream(Box::new(stream.clone())),
        }
    }
}

impl<'a> ValueRef<'a> {
    /// Redis' name of the type, as TYPE answers it.
    pub fn type_name(self) -> &'static str {
        match self {
            ValueRef::String(_) => "string",
            ValueRef::List(_) => "list",
            ValueRef::Set(_) => "set",
            ValueRef::ZSet(_) => "zset",
            ValueRef::Hash(_) => "hash",
            ValueRef::Stream(_) => "stream",
        }
    }

    /// Redis' name of the representation, as OBJECT ENCODING answers it.
    pub fn encoding(self) -> &'static str {
        match self {
            ValueRef::String(string) => string.encoding(),
            ValueRef::List(list) => list.encoding(),
            ValueRef::Set(set) => set.encoding(),
            ValueRef::ZSet(zset) => zset.encoding(),
            ValueRef::Hash(hash) => hash.encoding(),
            ValueRef::Stream(_) => "stream",
        }
    }

    /// How it is laid out.
    pub(super) fn layout(self) -> Layout {
        let is_compact = match self {
            ValueRef::String(string) => return string.layout(),
            ValueRef::Set(set) => return set.layout(),
            ValueRef::List(list) => list.is_compact(),
            ValueRef::ZSet(zset) => zset.compact_bytes().is_some(),
            ValueRef::Hash(hash) => hash.compact_bytes().is_some(),
            ValueRef::Stream(_) => true,
        };
        if is_compact { Layout::Compact } else { Layout::Large }
    }

    /// The layout that it gets when it is to have this one. Earlier versions had compact values that no block counts the entries of: these
    /// become large. A list that is compact may have nodes as well.
    pub(super) fn nearest_layout(self, layout: Layout) -> Layout {
        let entries = match self {
            ValueRef::Hash(hash) => hash.stored_len() * 2,
            ValueRef::Set(set) => set.stored_len(),
            ValueRef::ZSet(zset) => zset.len(),
            ValueRef::String(_) | ValueRef::List(_) | ValueRef::Stream(_) => 0,
        };
        if layout == Layout::Compact && entries > COMPACT_MAX_ENTRIES { Layout::Large } else { layout }
    }

    /// When its elements expire, once one of them did.
    #[inline]
    pub fn deadlines(self) -> Option<&'a Deadlines> {
        match self {
            ValueRef::Hash(hash) => hash.deadlines(),
            ValueRef::Set(set) => set.deadlines(),
            _ => None,
        }
    }

    /// Whether an element of it expires some day.
    #[inline]
    pub(super) fn elements_expire(self) -> bool {
        self.deadlines().is_some_and(|deadlines| !deadlines.is_empty())
    }

    /// Whether every element of it has expired by then.
    fn all_expired(self, now_ms: i64) -> bool {
        let stored = match self {
            ValueRef::Hash(hash) => hash.stored_len(),
            ValueRef::Set(set) => set.stored_len(),
            _ => return false,
        };
        let spent = |deadlines: &Deadlines| deadlines.len() == stored && deadlines.last_ms() <= Some(now_ms);
        self.deadlines().is_some_and(spent)
    }

    /// Bytes to copy for a copy of it; `None` when it is not one small block.
    pub(super) fn compact_bytes(self) -> Option<usize> {
        let deadlines = self.deadlines().map_or(0, |deadlines| deadlines.mem_bytes(1));
        let bytes = match self {
            ValueRef::String(string) => Some(string.heap_bytes()),
            ValueRef::List(list) => list.compact_bytes(),
            ValueRef::Set(set) => set.compact_bytes(),
            ValueRef::ZSet(zset) => zset.compact_bytes(),
            ValueRef::Hash(hash) => hash.compact_bytes(),
            ValueRef::Stream(_) => None,
        };
        bytes.map(|bytes| bytes + deadlines)
    }

    /// Whether a copy of it costs no more than a few notes of what changes in it.
    pub(super) fn is_small(self) -> bool {
        self.compact_bytes().is_some_and(|bytes| bytes <= UNDO_COPY_MAX_BYTES)
    }

    /// Bytes held outside the entry, approximately: a large collection is judged by `samples` of its elements, 0 for all.
    pub fn heap_bytes(self, samples: usize) -> usize {
        match self {
            ValueRef::String(string) => string.heap_bytes(),
            ValueRef::List(list) => list.mem_bytes(),
            ValueRef::Set(set) => set.mem_bytes(samples),
            ValueRef::ZSet(zset) => zset.mem_bytes(samples),
            ValueRef::Hash(hash) => hash.mem_bytes(samples),
            ValueRef::Stream(stream) => size_of::<Stream>() + stream.mem_bytes(),
        }
    }
}

/// Bytes that an entry takes, or has room for, beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Room(usize);

impl Room {
    /// For this value, and the time at which the key expires unless that is `NEVER`.
    #[inline]
    pub(super) fn of(value: ValueRef<'_>, expires_at_ms: i64) -> Room {
        match value {
            ValueRef::String(StringRef::Short(bytes)) => Room::new(bytes.len(), expires_at_ms),
            _ => Room::of_raw(expires_at_ms),
        }
    }

    /// For a string that is raw.
    #[inline]
    pub(super) fn of_raw(expires_at_ms: i64) -> Room {
        Room::new(WORD, expires_at_ms)
    }

    #[inline]
    fn new(value_bytes: usize, expires_at_ms: i64) -> Room {
        Room(value_bytes + if expires_at_ms == NEVER { 0 } else { size_of::<i64>() })
    }
}

/// Bytes of any value but a short string: a number, or the address of what holds it.
const WORD: usize = size_of::<u64>();

/// A key and what belongs to it, outside of a database.
pub(super) struct OwnedEntry {
    pub(super) key: Key,
    pub(super) value: Value,
    /// When it expires, `NEVER` for not at all.
    pub(super) expires_at_ms: i64,
    /// When it was last used, in seconds of the server's clock.
    pub(super) accessed_s: u32,
    /// The room that it had. What it held before may have taken all of it, and come back.
    pub(super) room: Room,
}

/// An entry where it lives: see [`slab`](super::slab).
pub(super) struct StoredEntry {
    pub(super) key: Key,
    pub(super) value: Value,
    pub(super) lifetime: Lifetime,
    /// Tells this entry from others that lived in the same slot before or after.
    pub(super) version: u32,
    /// When it was last used, in seconds of the server's clock.
    pub(super) accessed_s: u32,
    /// The room that it was given: see [`StoredEntry::room`].
    #[cfg(debug_assertions)]
    pub(super) room: Room,
}

/// When an entry expires, and what it knows of its timers; see [`expiry`](super::expiry).
#[derive(Clone, Copy, Default)]
pub(super) struct Lifetime {
    /// When the key expires, Unix ms. If it does not, and is armed: when a timer comes, at the latest.
    deadline_ms: i64,
    flags: u8,
}

impl Lifetime {
    /// The key expires.
    const EXPIRES: u8 = 1;
    /// An element of it does. A timer comes for that; [`Deadlines::timer_ms`] tells when.
    const ELEMENTS_EXPIRE: u8 = 1 << 1;
    /// A timer comes no later than the deadline.
    const ARMED: u8 = 1 << 2;
    /// See [`Entry::mark`].
    const MARK: u8 = 1 << 3;

    /// Whether it has any of these.
    #[inline]
    fn has(self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    #[inline]
    fn set(&mut self, flag: u8, to: bool) {
        self.flags = if to { self.flags | flag } else { self.flags & !flag };
    }
}

impl StoredEntry {
    /// An entry that has no timer.
    pub(super) fn new(entry: OwnedEntry, version: u32) -> StoredEntry {
        let OwnedEntry { key, value, expires_at_ms, accessed_s, room } = entry;
        let _ = room;
        let mut stored = StoredEntry {
            key,
            value,
            lifetime: Lifetime::default(),
            version,
            accessed_s,
            #[cfg(debug_assertions)]
            room,
        };
        _ = stored.set_deadline(expires_at_ms);
        if stored.follow_elements() {
            // A timer that the value had is that of another entry.
            stored.disarm_elements();
        }
        stored
    }

    /// The room that it has. An entry of fixed size holds anything. That nobody relies on it is seen in debug builds, in which it has no
    /// more room than it was given.
    #[inline]
    pub(super) fn room(&self) -> Room {
        #[cfg(debug_assertions)]
        return self.room;
        #[cfg(not(debug_assertions))]
        Room::of(self.value.as_ref(), self.deadline_ms())
    }

    /// When it expires, in Unix milliseconds; `None`: never.
    pub(super) fn expires_at_ms(&self) -> Option<i64> {
        self.lifetime.has(Lifetime::EXPIRES).then_some(self.lifetime.deadline_ms)
    }

    /// The same; `NEVER` for never.
    #[inline]
    pub(super) fn deadline_ms(&self) -> i64 {
        if self.lifetime.has(Lifetime::EXPIRES) { self.lifetime.deadline_ms } else { NEVER }
    }

    /// Sets when it expires; `NEVER` for never. Answers whether it needs a timer for that.
    #[inline]
    #[must_use]
    pub(super) fn set_deadline(&mut self, at_ms: i64) -> bool {
        let lifetime = &mut self.lifetime;
        if at_ms == NEVER {
            lifetime.flags &= !Lifetime::EXPIRES;
            return false;
        }
        let comes_in_time = lifetime.has(Lifetime::ARMED) && lifetime.deadline_ms <= at_ms;
        lifetime.deadline_ms = at_ms;
        lifetime.flags |= Lifetime::EXPIRES;
        !comes_in_time
    }

    /// Takes note of whether its elements expire, and answers that.
    pub(super) fn follow_elements(&mut self) -> bool {
        let expire = self.value.as_ref().elements_expire();
        self.lifetime.set(Lifetime::ELEMENTS_EXPIRE, expire);
        expire
    }

    /// Whether an element expires before a timer comes for it.
    pub(super) fn elements_need_timer(&self) -> bool {
        self.value.as_ref().deadlines().is_some_and(Deadlines::need_timer)
    }

    /// Whether a timer comes for it.
    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        self.lifetime.has(Lifetime::ARMED | Lifetime::ELEMENTS_EXPIRE)
    }

    /// A timer comes when it is [due](Self::due_at_ms): the only one that the sweep with this mark leaves.
    pub(super) fn arm(&mut self, due_at_ms: i64, mark: bool) {
        self.lifetime.set(Lifetime::ARMED, self.lifetime.has(Lifetime::EXPIRES));
        self.lifetime.set(Lifetime::MARK, mark);
        if self.lifetime.has(Lifetime::ELEMENTS_EXPIRE)
            && let Some(deadlines) = self.value.as_mut().and_then(ValueMut::deadlines_mut)
        {
            deadlines.set_timer_ms(Some(due_at_ms));
        }
    }

    /// No timer comes.
    pub(super) fn disarm(&mut self) {
        self.lifetime.set(Lifetime::ARMED, false);
        self.disarm_elements();
    }

    /// No timer comes for its elements.
    pub(super) fn disarm_elements(&mut self) {
        if let Some(deadlines) = self.value.as_mut().and_then(ValueMut::deadlines_mut) {
            deadlines.set_timer_ms(None);
        }
    }

    /// The mark of the last sweep that left its timer.
    #[inline]
    pub(super) fn mark(&self) -> bool {
        self.lifetime.has(Lifetime::MARK)
    }

    /// Whether it is there at this time: neither the key has expired, nor every element of it.
    #[inline]
    pub(super) fn is_live(&self, now_ms: i64) -> bool {
        !self.is_mortal() || (self.deadline_ms() > now_ms && !self.value.as_ref().all_expired(now_ms))
    }

    /// Whether the key expires, or elements of it.
    #[inline]
    fn is_mortal(&self) -> bool {
        self.lifetime.has(Lifetime::EXPIRES | Lifetime::ELEMENTS_EXPIRE)
    }

    /// Whether it, or an element of it, may have expired by then: a quick test.
    #[inline]
    pub(super) fn is_due(&self, now_ms: i64) -> bool {
        self.is_mortal() && (self.deadline_ms() <= now_ms || self.elements_are_due(now_ms))
    }

    fn elements_are_due(&self, now_ms: i64) -> bool {
        let timer_ms = self.value.as_ref().deadlines().and_then(Deadlines::timer_ms);
        timer_ms.is_some_and(|timer_ms| timer_ms <= now_ms)
    }

    /// When a timer must have come: at the key's deadline or the first of an element; `NEVER` for neither.
    #[inline]
    pub(super) fn due_at_ms(&self) -> i64 {
        let deadline_ms = self.deadline_ms();
        if !self.lifetime.has(Lifetime::ELEMENTS_EXPIRE) {
            return deadline_ms;
        }
        deadline_ms.min(self.value.as_ref().deadlines().and_then(Deadlines::first_ms).unwrap_or(NEVER))
    }
}

/// A key and what belongs to it, to read it where it lives.
#[derive(Clone, Copy)]
pub struct Entry<'a>(&'a StoredEntry);

impl<'a> Entry<'a> {
    #[inline]
    pub(super) fn new(stored: &'a StoredEntry) -> Entry<'a> {
        Entry(stored)
    }

    /// The key.
    #[inline]
    pub fn key(self) -> &'a [u8] {
        &self.0.key
    }

    /// The value.
    #[inline]
    pub fn value(self) -> ValueRef<'a> {
        self.0.value.as_ref()
    }

    /// When it expires, in Unix milliseconds; `None`: never.
    pub fn expires_at_ms(self) -> Option<i64> {
        self.0.expires_at_ms()
    }

    /// When it expires, in Unix milliseconds; `NEVER` for not at all.
    #[inline]
    pub(super) fn deadline_ms(self) -> i64 {
        self.0.deadline_ms()
    }

    /// Whether it is there at this time: neither the key has expired, nor every element of it.
    #[inline]
    pub(super) fn is_live(self, now_ms: i64) -> bool {
        self.0.is_live(now_ms)
    }

    /// When a timer must have come: at the key's deadline or the first of an element; `NEVER` for neither.
    #[cfg(test)]
    pub(super) fn due_at_ms(self) -> i64 {
        self.0.due_at_ms()
    }

    /// The room that it has.
    #[inline]
    pub(super) fn room(self) -> Room {
        self.0.room()
    }

    /// When it was last used, in Unix seconds.
    pub fn accessed_s(self) -> u32 {
        self.0.accessed_s
    }

    /// Where it lies.
    pub fn address(self) -> *const () {
        std::ptr::from_ref(self.0).cast()
    }

    /// Bytes it occupies, approximately: the entry, its key, its value and its share of the index.
    /// See [`ValueRef::heap_bytes`] for `samples`.
    pub fn mem_bytes(self, samples: usize) -> usize {
        size_of::<StoredEntry>() + size_of::<u32>() + self.0.key.heap_bytes() + self.value().heap_bytes(samples)
    }
}

const _: () = {
    // A lookup that hits touches exactly one line of the entry's chunk.
    assert!(size_of::<StoredEntry>() <= 64 || cfg!(debug_assertions));
    assert!(size_of::<Value>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::hash::HashLimits;
    use crate::value::list::ListLimits;
    use crate::value::set::SetLimits;
    use crate::value::zset::ZSetLimits;

    /// What small collections allocate, as the allocator has it: their bytes, one more for each, scores, and eight in front.
    #[test]
    fn small_collections_take_little() {
        let element = |i: usize| format!("member-{i:03}").into_bytes();
        let (mut hash, mut set, mut zset, mut list) = (Hash::new(), Set::new(), ZSet::new(), List::new());
        let mut ints = Set::new();
        for i in 0..10 {
            hash.insert(&element(i), &element(i), &HashLimits::default());
            set.insert(&element(i), &SetLimits::default());
            ints.insert((1000 * i).to_string().as_bytes(), &SetLimits::default());
            zset.insert(&element(i), i as f64, ZSetLimits::default());
            list.push_back(&element(i), ListLimits::default());
        }
        let values = [Value::Hash(hash), Value::Set(set), Value::Set(ints), Value::ZSet(zset), Value::List(list)];
        assert_eq!(values.map(|value| value.as_ref().heap_bytes(0)), [256, 128, 32, 128, 128]);
        let empty =
            [Value::Hash(Hash::new()), Value::Set(Set::new()), Value::ZSet(ZSet::new()), Value::List(List::new())];
        assert_eq!(empty.map(|value| value.as_ref().heap_bytes(0)), [0; 4]);
    }

    #[test]
    fn what_no_block_counts_stays_large() {
        let (mut hash, mut set, mut zset) = (Hash::new(), Set::new(), ZSet::new());
        let (no_hash, no_set) = (HashLimits { max_listpack_entries: 0, ..HashLimits::default() }, SetLimits::default());
        (0..=COMPACT_MAX_ENTRIES).for_each(|i| {
            let member = format!("m{i}").into_bytes();
            hash.insert(&member, b"v", &no_hash);
            set.insert(&member, &no_set);
            zset.insert(&member, 1.0, ZSetLimits::default());
        });
        for mut value in [Value::Hash(hash), Value::Set(set), Value::ZSet(zset)] {
            assert!(value.take_layout(Layout::Compact), "it was compact in earlier versions");
            assert_eq!(value.as_ref().layout(), Layout::Large);
        }
        let mut few = Hash::new();
        few.insert(b"f", b"v", &no_hash);
        assert!(!Value::Hash(few).take_layout(Layout::Compact));
    }
}
