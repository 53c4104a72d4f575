//! One key with its value, expiry and bookkeeping, in as few bytes as possible.
//!
//! ```text
//! | header | deadline i64 | word | key | text |
//!
//! header: | use u32             | key's length u8 | text's length u8 | kind u8 | flags u8 |
//! ```
//!
//! - The *deadline* exists once the key has had one, and stays while there is room. So a lock does not move when it is
//!   renewed or when its expiry is removed.
//! - The *word* exists unless the value is a short text. It is a large integer, or the pointer of a collection or a
//!   long string.
//! - A *key* of more than 255 bytes lies in an allocation of its own, with pointer and length in its place.
//! - The *text* is a string of up to [`TEXT_MAX_BYTES`] that was written in one go. Compared with a separate
//!   allocation, it saves 24 bytes, the allocator's rounding, and a cache miss per access. A string that is edited in
//!   place lies outside. A 32-bit integer lies here too, in four bytes. So do the bytes of a small collection that was
//!   written in one unit, until it is changed ([`EntryMut::embed`]); its word then says what the bytes mean.
//!
//! So key, value and expiry alone determine the most bytes that an entry takes. They also determine the bytes with its
//! collection outside, which are fewer. Undo relies on that: an entry that comes back has its collection outside, and
//! fits its old place.
//!
//! An entry lies in a [`Place`] of the [`arena`](super::arena), which may be larger. An entry that shrinks stays where
//! it is, unless it holds a collection ([`settle`](super::settle)). An entry that outgrows its place has to move
//! *before* it changes; see [`Keyspace::reserve`](super::Keyspace::reserve). It may be moved bytewise, since it is the
//! only owner of everything it points to.

use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use super::any_value::{Value, ValueMut, ValueRef};
use super::arena::{FREE_BIT, PLACE_MAX_BYTES, Place};
use crate::base::num;
use crate::base::split_table::ENTRY_SHARE_BYTES;
use crate::value::grants::Grants;
use crate::value::hash::Hash;
use crate::value::list::List;
use crate::value::set::Set;
use crate::value::small_bytes::SmallBytes;
use crate::value::stream::Stream;
use crate::value::string::{Digits, StringRef, StringValue};
use crate::value::thin_bytes::ThinBytes;
use crate::value::zset::ZSet;

/// The deadline of keys that never expire.
pub const NEVER: i64 = i64::MAX;

/// A key outside of a database.
pub type Key = SmallBytes;

/// The longest string inside an entry. With the longest inside key and a deadline, it fills the largest place.
pub(super) const TEXT_MAX_BYTES: usize = 240;

/// The most bytes of a collection inside an entry. The entry then fits the largest place, whatever precedes them.
const EMBEDDED_MAX_BYTES: usize = TEXT_MAX_BYTES - WORD;

/// The fewest entries of a block to be embedded, where fields and values of a hash count separately. Smaller
/// collections are mostly queues and locks, which come and go. The block of a set of integers counts no entries, so it
/// stays outside.
const EMBEDDED_MIN_ENTRIES: usize = 4;

/// The longest key inside an entry.
const KEY_MAX_BYTES: usize = u8::MAX as usize;

/// Bytes of the header, of a deadline, and of the word.
const WORD: usize = 8;

/// Bytes of an entry in addition to its key, value and deadline.
pub(super) const HEADER_BYTES: usize = WORD;

/// The first bytes of an entry.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Header {
    /// The use bits; see [`usage`](super::usage).
    used: u32,
    /// 0 for a key outside the entry.
    key_len: u8,
    /// 0 if there is nothing at the end.
    text_len: u8,
    kind: Kind,
    flags: u8,
}

/// The kind of the value.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// A string whose text lies at the end.
    Text,
    /// An integer in four bytes at the end, little-endian.
    SmallInt,
    /// An integer in the word. All following kinds have a word, too.
    Int,
    Heap,
    Raw,
    List,
    Set,
    ZSet,
    Hash,
    Stream,
    Grants,
}

/// There is room for a deadline.
const HAS_DEADLINE: u8 = 1 << 0;
/// There is a word.
const HAS_WORD: u8 = 1 << 1;
/// The key lies outside the entry.
const LONG_KEY: u8 = 1 << 2;
/// The key expires at its deadline.
const EXPIRES: u8 = 1 << 3;
/// A timer fires no later than the deadline, whether or not the key still expires.
const ARMED: u8 = 1 << 4;
/// The mark of the last sweep that kept the entry's timer.
const MARK: u8 = 1 << 5;
/// An element expires. A timer fires for it; see [`ValueRef::timer_ms`].
const ELEMENTS_EXPIRE: u8 = 1 << 6;

const _: () = {
    assert!(size_of::<Header>() == WORD && mem::offset_of!(Header, flags) == 7);
    assert!((HAS_DEADLINE | HAS_WORD | LONG_KEY | EXPIRES | ARMED | MARK | ELEMENTS_EXPIRE) & FREE_BIT == 0);
    // The places of word and key are computed from these flags.
    assert!(HAS_DEADLINE == 1 && HAS_WORD == 2);
    // Each of these fits the word; a long key takes two.
    assert!(size_of::<List>() == WORD && size_of::<Set>() == WORD && size_of::<ZSet>() == WORD);
    assert!(size_of::<Hash>() == WORD && size_of::<Box<Stream>>() == WORD && size_of::<ThinBytes>() == WORD);
    assert!(size_of::<Grants>() == WORD);
    assert!(size_of::<Box<[u8]>>() == 2 * WORD);
    assert!(2 * WORD + KEY_MAX_BYTES + TEXT_MAX_BYTES <= PLACE_MAX_BYTES);
    assert!(3 * WORD + KEY_MAX_BYTES + EMBEDDED_MAX_BYTES <= PLACE_MAX_BYTES);
    assert!(TEXT_MAX_BYTES <= u8::MAX as usize);
};

/// A value on its way into an entry.
pub(super) enum NewValue<'a> {
    /// A string, even if it looks like a number.
    Text(&'a [u8]),
    /// A 32-bit number, little-endian.
    SmallInt([u8; 4]),
    /// Any other value.
    Owned(Value),
}

impl<'a> NewValue<'a> {
    /// Whether the value may be [embedded](EntryMut::embed) later.
    #[inline]
    pub(super) fn is_collection(&self) -> bool {
        matches!(self, NewValue::Owned(Value::List(_) | Value::Set(_) | Value::ZSet(_) | Value::Hash(_)))
    }

    /// A string as SET stores it: a canonical integer becomes a number.
    #[inline]
    pub(super) fn string(bytes: &'a [u8]) -> NewValue<'a> {
        match num::parse_i64(bytes) {
            Some(integer) => NewValue::integer(integer),
            None => NewValue::Text(bytes),
        }
    }

    /// A number.
    #[inline]
    pub(super) fn integer(value: i64) -> NewValue<'a> {
        match i32::try_from(value) {
            Ok(small) => NewValue::SmallInt(small.to_le_bytes()),
            Err(_) => NewValue::Owned(Value::String(StringValue::Int(value))),
        }
    }

    /// The bytes at the end of the entry, if the value is a short text or a 32-bit number.
    #[inline]
    fn short_text(&self) -> Option<&[u8]> {
        let text = match self {
            NewValue::Text(text) => text,
            NewValue::SmallInt(bytes) => &bytes[..],
            NewValue::Owned(Value::String(StringValue::Inline { len, bytes })) => &bytes[..usize::from(*len)],
            NewValue::Owned(Value::String(StringValue::Heap(bytes))) => &bytes[..],
            NewValue::Owned(_) => return None,
        };
        (text.len() <= TEXT_MAX_BYTES).then_some(text)
    }
}

impl From<Value> for NewValue<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::String(StringValue::Int(integer)) => NewValue::integer(integer),
            value => NewValue::Owned(value),
        }
    }
}

/// Everything that determines the positions of an entry's parts and its size.
#[derive(Clone, Copy)]
struct Shape {
    /// Includes flags that are not part of the shape.
    flags: u8,
    key_len: u8,
    text_len: u8,
}

impl Shape {
    fn new(key: &[u8], value: &NewValue<'_>, has_deadline: bool) -> Shape {
        let (flags, key_len) = if key.len() > KEY_MAX_BYTES { (LONG_KEY, 0) } else { (0, key.len() as u8) };
        let shape = Shape { flags, key_len, text_len: 0 }.with_value(value);
        if has_deadline { shape.with_deadline() } else { shape }
    }

    /// The shape with another value.
    #[inline]
    fn with_value(self, value: &NewValue<'_>) -> Shape {
        match value.short_text() {
            Some(text) => Shape { flags: self.flags & !HAS_WORD, text_len: text.len() as u8, ..self },
            None => self.with_word(),
        }
    }

    /// The shape with a value in a word.
    #[inline]
    fn with_word(self) -> Shape {
        Shape { flags: self.flags | HAS_WORD, text_len: 0, ..self }
    }

    /// The shape with room for a deadline.
    #[inline]
    fn with_deadline(self) -> Shape {
        Shape { flags: self.flags | HAS_DEADLINE, ..self }
    }

    /// The shape without a deadline and its flags.
    #[inline]
    fn without_deadline(self) -> Shape {
        Shape { flags: self.flags & !(HAS_DEADLINE | EXPIRES | ARMED), ..self }
    }

    /// Where the word begins, if there is one.
    #[inline]
    fn word_at(self) -> usize {
        WORD + WORD * usize::from(self.flags & HAS_DEADLINE)
    }

    /// Where the key begins.
    #[inline]
    fn key_at(self) -> usize {
        self.word_at() + WORD / 2 * usize::from(self.flags & HAS_WORD)
    }

    /// Bytes in the place of the key.
    #[inline]
    fn key_bytes(self) -> usize {
        if self.flags & LONG_KEY == 0 { usize::from(self.key_len) } else { size_of::<Box<[u8]>>() }
    }

    /// Where the text begins, if there is one.
    #[inline]
    fn text_at(self) -> usize {
        self.key_at() + self.key_bytes()
    }

    /// Total bytes.
    #[inline]
    fn bytes(self) -> usize {
        self.text_at() + usize::from(self.text_len)
    }
}

/// Bytes of an entry.
#[inline]
pub(super) fn bytes_needed(key: &[u8], value: &NewValue<'_>, expires: bool) -> usize {
    Shape::new(key, value, expires).bytes()
}

/// A key and its data, borrowed for reading in place.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    place: Place,
    lives: PhantomData<&'a Value>,
}

/// An entry, for changing.
pub(super) struct EntryMut<'a> {
    place: Place,
    lives: PhantomData<&'a mut Value>,
}

impl<'a> Entry<'a> {
    /// Reads the entry in a place.
    ///
    /// # Safety
    /// The place holds an entry, which stays there unchanged during `'a`.
    #[inline]
    pub(super) unsafe fn of(place: Place) -> Entry<'a> {
        Entry { place, lives: PhantomData }
    }

    /// The key.
    #[inline]
    pub fn key(self) -> &'a [u8] {
        let shape = self.shape();
        if shape.flags & LONG_KEY != 0 {
            // SAFETY: a long key's place holds a box, which lives as long as the entry.
            return unsafe { self.place.start.byte_add(shape.key_at()).cast::<Box<[u8]>>().as_ref() };
        }
        // SAFETY: these bytes of the entry are written.
        unsafe { bytes_at(self.place, shape.key_at(), shape.key_len) }
    }

    /// The value.
    #[inline(always)]
    pub fn value(self) -> ValueRef<'a> {
        let shape = self.shape();
        match self.header().kind {
            Kind::Text => {
                // SAFETY: these bytes are the text, which lives as long as the entry.
                let text = unsafe { bytes_at(self.place, shape.text_at(), shape.text_len) };
                ValueRef::String(StringRef::Short(text))
            }
            Kind::SmallInt => {
                // SAFETY: an entry of this kind has four bytes there.
                let integer = unsafe { self.place.start.byte_add(shape.text_at()).cast::<i32>().read_unaligned() };
                ValueRef::String(StringRef::Int(i32::from_le(integer).into()))
            }
            kind => self.value_in_word(kind),
        }
    }

    /// The value, if it lies in the word.
    #[inline]
    fn value_in_word(self, kind: Kind) -> ValueRef<'a> {
        let word = self.word();
        // SAFETY: the kind says what the word holds. It lives as long as the entry.
        unsafe {
            match kind {
                Kind::Text | Kind::SmallInt => unreachable!("it lies at the end"),
                Kind::Int => ValueRef::String(StringRef::Int(word.cast::<i64>().read())),
                Kind::Heap => ValueRef::String(StringRef::Heap(word.cast().as_ref())),
                Kind::Raw => ValueRef::String(StringRef::Raw(word.cast().as_ref())),
                Kind::List => ValueRef::List(word.cast().as_ref()),
                Kind::Set => ValueRef::Set(word.cast().as_ref()),
                Kind::ZSet => ValueRef::ZSet(word.cast().as_ref()),
                Kind::Hash => ValueRef::Hash(word.cast().as_ref()),
                Kind::Stream => ValueRef::Stream(word.cast::<Box<Stream>>().as_ref()),
                Kind::Grants => ValueRef::Grants(word.cast().as_ref()),
            }
        }
    }

    /// A copy of a value inside the entry: a number, a short text, or an embedded collection.
    pub(super) fn value_inside(self) -> Option<Value> {
        match self.value() {
            value @ ValueRef::String(StringRef::Int(_) | StringRef::Short(_)) => Some(value.into()),
            value if self.has_embedded() => Some(value.into()),
            _ => None,
        }
    }

    /// Whether the value is a collection whose bytes lie at the end.
    #[inline]
    pub(super) fn has_embedded(self) -> bool {
        let Header { flags, text_len, .. } = self.header();
        text_len > 0 && flags & HAS_WORD != 0
    }

    /// Bytes of the entry with its collection embedded, or `None` if the collection stays outside.
    pub(super) fn bytes_embedded(self) -> Option<usize> {
        let block = self.value().block()?;
        let is_embedded =
            block.heap_bytes() > 0 && block.count() >= EMBEDDED_MIN_ENTRIES && block.len() <= EMBEDDED_MAX_BYTES;
        is_embedded.then(|| Shape { text_len: block.len() as u8, ..self.shape() }.bytes())
    }

    /// Bytes of the entry as it is.
    pub(super) fn bytes(self) -> usize {
        self.shape().bytes()
    }

    /// When it expires, in Unix milliseconds, or `None` if it never does.
    pub fn expires_at_ms(self) -> Option<i64> {
        self.has(EXPIRES).then(|| self.deadline_field())
    }

    /// When it expires, in Unix milliseconds; [`NEVER`] for not at all.
    #[inline]
    pub(super) fn deadline_ms(self) -> i64 {
        if self.has(EXPIRES) { self.deadline_field() } else { NEVER }
    }

    /// Whether it expires.
    #[inline]
    pub(super) fn expires(self) -> bool {
        self.has(EXPIRES)
    }

    /// Whether any element expires, as of the last [`follow_elements`](EntryMut::follow_elements).
    #[inline]
    pub(super) fn elements_expire(self) -> bool {
        self.has(ELEMENTS_EXPIRE)
    }

    /// Whether the entry or any element expires.
    #[inline]
    pub(super) fn is_mortal(self) -> bool {
        self.has(EXPIRES | ELEMENTS_EXPIRE)
    }

    /// Whether the entry is live at this time: neither the key nor all of its elements have expired.
    #[inline]
    pub(super) fn is_live(self, now_ms: i64) -> bool {
        !self.is_mortal() || (self.deadline_ms() > now_ms && !self.value().all_expired(now_ms))
    }

    /// Quick test of whether the entry or an element may have expired by then.
    #[inline]
    pub(super) fn is_due(self, now_ms: i64) -> bool {
        self.is_mortal() && (self.deadline_ms() <= now_ms || self.elements_are_due(now_ms))
    }

    fn elements_are_due(self, now_ms: i64) -> bool {
        self.value().timer_ms().is_some_and(|timer_ms| timer_ms <= now_ms)
    }

    /// The latest time for a timer: the deadline of the key or of its first element; [`NEVER`] if neither expires.
    #[inline]
    pub(super) fn due_at_ms(self) -> i64 {
        let deadline_ms = self.deadline_ms();
        if !self.elements_expire() {
            return deadline_ms;
        }
        deadline_ms.min(self.value().first_due_ms().unwrap_or(NEVER))
    }

    /// Whether it has a timer.
    #[inline]
    pub(super) fn is_armed(self) -> bool {
        self.has(ARMED | ELEMENTS_EXPIRE)
    }

    /// Whether an element expires before the timer fires.
    pub(super) fn elements_need_timer(self) -> bool {
        self.value().needs_timer()
    }

    /// The mark set by [`EntryMut::arm`].
    #[inline]
    pub(super) fn mark(self) -> bool {
        self.has(MARK)
    }

    /// The use bits; see [`usage`](super::usage).
    #[inline]
    pub fn used(self) -> u32 {
        self.header().used
    }

    /// Its address.
    pub fn address(self) -> *const () {
        self.place.start.as_ptr().cast_const().cast()
    }

    /// Approximate bytes it occupies: its place, its share of the index, and what lies outside. See
    /// [`ValueRef::heap_bytes`] for `samples`.
    pub fn mem_bytes(self, samples: usize) -> usize {
        let long_key = if self.has(LONG_KEY) { self.key().len() } else { 0 };
        self.place.size + ENTRY_SHARE_BYTES + long_key + self.value().heap_bytes(samples)
    }

    /// Bytes of the entry with this value instead of its own, expiring or not.
    #[inline]
    pub(super) fn bytes_with(self, value: &NewValue<'_>, expires: bool) -> usize {
        let shape = self.shape().with_value(value);
        if expires { shape.with_deadline().bytes() } else { shape.without_deadline().bytes() }
    }

    /// Bytes of the entry with a value in a word, such as a string that can grow.
    #[inline]
    pub(super) fn bytes_with_word(self) -> usize {
        self.shape().with_word().bytes()
    }

    /// Bytes of the entry when the key expires.
    #[inline]
    pub(super) fn bytes_with_deadline(self) -> usize {
        self.shape().with_deadline().bytes()
    }

    /// Bytes of its place.
    #[inline]
    pub(super) fn place_bytes(self) -> usize {
        self.place.size
    }

    /// Whether the entry may take `bytes` bytes in its place. In debug builds, entries with keys of odd length have no
    /// spare room, so that tests find code that goes on with the slot of an entry that has moved.
    #[inline]
    pub(super) fn has_room(self, bytes: usize) -> bool {
        let is_tight = cfg!(debug_assertions) && self.key().len() % 2 == 1;
        bytes <= if is_tight { self.shape().bytes() } else { self.place.size }
    }

    /// Whether the entry can be moved to a place of `bytes` bytes.
    pub(super) fn fits(self, bytes: usize) -> bool {
        self.moved_shape().bytes() <= bytes
    }

    /// The shape of the entry after a move.
    fn moved_shape(self) -> Shape {
        if self.has(EXPIRES) { self.shape() } else { self.shape().without_deadline() }
    }

    /// Whether any of these flags is set.
    #[inline]
    fn has(self, flags: u8) -> bool {
        self.header().flags & flags != 0
    }

    #[inline]
    fn header(self) -> Header {
        // SAFETY: an entry begins with its header.
        unsafe { self.place.start.cast::<Header>().read() }
    }

    #[inline]
    fn shape(self) -> Shape {
        let Header { flags, key_len, text_len, .. } = self.header();
        Shape { flags, key_len, text_len }
    }

    /// The position of the word, present or not.
    #[inline]
    fn word(self) -> NonNull<u8> {
        // SAFETY: a place has at least as many bytes as the header and a deadline, so the position is inside or right
        // behind it.
        unsafe { self.place.start.byte_add(self.shape().word_at()) }
    }

    /// The stored deadline, which must exist.
    #[inline]
    fn deadline_field(self) -> i64 {
        debug_assert!(self.has(HAS_DEADLINE), "an entry that expires or is armed has a deadline");
        // SAFETY: a place has at least two words, and a flag says that the second one is written.
        unsafe { self.place.start.byte_add(WORD).cast::<i64>().read() }
    }
}

impl<'a> EntryMut<'a> {
    /// Borrows the entry in a place for changing.
    ///
    /// # Safety
    /// The place holds an entry, which nobody else uses during `'a`.
    #[inline]
    pub(super) unsafe fn of(place: Place) -> EntryMut<'a> {
        EntryMut { place, lives: PhantomData }
    }

    /// Writes a new entry into a place. It expires at `expires_at_ms`, [`NEVER`] for not at all.
    ///
    /// # Safety
    /// Nobody else uses the place during `'a`, and its former content is not used any more.
    ///
    /// # Panics
    /// If the entry takes more bytes than the place has; see [`bytes_needed`].
    #[inline]
    pub(super) unsafe fn write(
        place: Place,
        key: &[u8],
        value: NewValue<'_>,
        expires_at_ms: i64,
        used: u32,
    ) -> EntryMut<'a> {
        let expires = expires_at_ms != NEVER;
        let mut shape = Shape::new(key, &value, expires);
        if expires {
            shape.flags |= EXPIRES;
        }
        assert!(shape.bytes() <= place.size, "the caller has asked for the size of the entry");
        let mut entry = EntryMut { place, lives: PhantomData };
        let key_at = entry.at(shape.key_at());
        // SAFETY: the place has that many bytes.
        unsafe {
            if shape.flags & LONG_KEY != 0 {
                key_at.cast::<Box<[u8]>>().write(key.into());
            } else {
                key_at.copy_from_nonoverlapping(NonNull::from_ref(key).cast(), key.len());
            }
            if expires {
                entry.at(WORD).cast::<i64>().write(expires_at_ms);
            }
        }
        entry.write_value(shape, value, used);
        entry
    }

    /// Borrows the entry for reading.
    #[inline]
    pub(super) fn as_ref(&self) -> Entry<'_> {
        Entry { place: self.place, lives: PhantomData }
    }

    #[inline]
    fn reborrow(&mut self) -> EntryMut<'_> {
        EntryMut { place: self.place, lives: PhantomData }
    }

    /// Sets the use bits.
    #[inline]
    pub(super) fn touch(&mut self, used: u32) {
        self.header_mut().used = used;
    }

    /// The value, for changing in place, or `None` for a string that is not raw.
    #[inline]
    pub(super) fn into_value_mut(mut self) -> Option<ValueMut<'a>> {
        if self.as_ref().has_embedded() {
            self.unembed();
        }
        // SAFETY: the value is no longer embedded.
        unsafe { self.into_value_in_word() }
    }

    /// Makes a collection that is about to be [embedded](Self::embed) as short as possible.
    pub(super) fn pack(self) {
        if let Some(ValueMut::List(list)) = self.into_value_mut() {
            list.pack();
        }
    }

    /// Moves the bytes of a collection to the end of the entry, where they are read-only. The entry must have
    /// [room](Entry::bytes_embedded).
    pub(super) fn embed(mut self) {
        let shape = self.as_ref().shape();
        let distance = shape.text_at() - shape.word_at();
        let place_bytes = self.place.size;
        let Some(block) = self.reborrow().into_value_mut().and_then(ValueMut::block) else { return };
        let len = block.len();
        assert!(len <= EMBEDDED_MAX_BYTES && shape.text_at() + len <= place_bytes, "an entry moves before it grows");
        // SAFETY: there is room for them, in a place of the arena, which exposes its chunks. The bytes move together
        // with the word. `unembed` or `has_embedded` is called before the word is used to change or drop anything.
        let is_embedded = unsafe { block.embed(distance as u16) }.is_some();
        if is_embedded {
            self.header_mut().text_len = len as u8;
        }
    }

    /// Gives an embedded collection an allocation of its own. The entry then takes fewer bytes.
    pub(super) fn unembed(&mut self) {
        // SAFETY: the collection is moved out.
        if let Some(block) = unsafe { self.reborrow().into_value_in_word() }.and_then(ValueMut::block) {
            block.move_out();
        }
        self.header_mut().text_len = 0;
    }

    /// As [`into_value_mut`](Self::into_value_mut), for a caller that knows where the value lies.
    ///
    /// # Safety
    /// An embedded value must not be changed, dropped or put elsewhere, only moved out of its entry.
    #[inline]
    pub(super) unsafe fn into_value_in_word(self) -> Option<ValueMut<'a>> {
        let word = self.as_ref().word();
        // SAFETY: the kind says what the word holds, and the entry is borrowed for that long.
        unsafe {
            Some(match self.as_ref().header().kind {
                Kind::Text | Kind::SmallInt | Kind::Int | Kind::Heap => return None,
                Kind::Raw => ValueMut::Raw(word.cast().as_mut()),
                Kind::List => ValueMut::List(word.cast().as_mut()),
                Kind::Set => ValueMut::Set(word.cast().as_mut()),
                Kind::ZSet => ValueMut::ZSet(word.cast().as_mut()),
                Kind::Hash => ValueMut::Hash(word.cast().as_mut()),
                Kind::Stream => ValueMut::Stream(word.cast::<Box<Stream>>().as_mut()),
                Kind::Grants => ValueMut::Grants(word.cast().as_mut()),
            })
        }
    }

    /// Changes a number in place. Returns false, with nothing changed, if the value is not a number or has too few
    /// bytes for the new one.
    #[inline]
    pub(super) fn set_integer(&mut self, value: i64) -> bool {
        let entry = self.as_ref();
        match entry.header().kind {
            Kind::SmallInt => {
                let Ok(small) = i32::try_from(value) else { return false };
                // SAFETY: an entry of this kind has four bytes there, and is borrowed.
                unsafe { self.at(entry.shape().text_at()).cast::<i32>().write_unaligned(small.to_le()) };
            }
            // SAFETY: the word is an integer.
            Kind::Int => unsafe { entry.word().cast().write(value) },
            _ => return false,
        }
        true
    }

    /// Replaces the value. The expiry is then set by [`set_expiry`](Self::set_expiry), or is never. Returns the old
    /// value if it lay outside; a number or a short text is dropped.
    ///
    /// # Panics
    /// If the place is too small; see [`Entry::bytes_with`].
    #[inline(always)]
    pub(super) fn set_value(&mut self, value: NewValue<'_>, expires: bool) -> Option<Value> {
        let old = self.as_ref().shape();
        let mut new = old.with_value(&value);
        if expires {
            new = new.with_deadline();
        } else if new.bytes() <= self.place.size {
            new.flags &= !EXPIRES;
        } else {
            new = new.without_deadline();
        }
        assert!(new.bytes() <= self.place.size, "an entry moves before it grows");
        // SAFETY: the word is overwritten below, or no longer exists.
        let outside = unsafe { self.take_outside() };
        if old.key_at() != new.key_at() {
            // SAFETY: the key lies inside the place, before and after.
            unsafe { self.at(new.key_at()).copy_from(self.at(old.key_at()), old.key_bytes()) };
        }
        self.write_value(new, value, self.as_ref().used());
        outside
    }

    /// As [`set_value`](Self::set_value), but returns the old value wherever it lay.
    ///
    /// # Panics
    /// As for [`set_value`](Self::set_value).
    pub(super) fn replace_value(&mut self, value: NewValue<'_>, expires: bool) -> Value {
        let inside = self.as_ref().value_inside();
        let outside = self.set_value(value, expires);
        inside.or(outside).expect("a value lies inside or outside")
    }

    /// Turns a string into a buffer that can grow; its encoding is `raw` from now on. Returns `None` if the value is
    /// not a string.
    ///
    /// # Panics
    /// If the place is too small; see [`Entry::bytes_with_word`].
    pub(super) fn make_raw(mut self) -> Option<&'a mut ThinBytes> {
        match self.as_ref().value() {
            ValueRef::String(StringRef::Raw(_)) => {}
            ValueRef::String(StringRef::Heap(_)) => self.header_mut().kind = Kind::Raw,
            ValueRef::String(string) => {
                let raw = ThinBytes::new(string.as_bytes(&mut Digits::new()));
                let expires = self.as_ref().has(EXPIRES);
                self.set_value(NewValue::Owned(Value::String(StringValue::Raw(raw))), expires);
            }
            _ => return None,
        }
        match self.into_value_mut() {
            Some(ValueMut::Raw(text)) => Some(text),
            _ => unreachable!("made raw above"),
        }
    }

    /// Changes when the entry expires, in Unix milliseconds; [`NEVER`] for not at all. Returns whether the entry needs
    /// a timer. A removed deadline stays as the bound of the existing timer, so that a later deadline needs no new one.
    ///
    /// # Panics
    /// If the place is too small; see [`Entry::bytes_with_deadline`].
    #[inline]
    #[must_use]
    pub(super) fn set_expiry(&mut self, at_ms: i64) -> bool {
        if at_ms == NEVER {
            self.set_flag(EXPIRES, false);
            return false;
        }
        let shape = self.as_ref().shape();
        if shape.flags & HAS_DEADLINE == 0 {
            assert!(shape.with_deadline().bytes() <= self.place.size, "an entry moves before it grows");
            // SAFETY: everything behind the header moves, and stays inside the place.
            unsafe { self.at(2 * WORD).copy_from(self.at(WORD), shape.bytes() - WORD) };
        }
        let comes_in_time = shape.flags & ARMED != 0 && self.as_ref().deadline_field() <= at_ms;
        self.header_mut().flags |= HAS_DEADLINE | EXPIRES;
        // SAFETY: there is room for it.
        unsafe { self.at(WORD).cast::<i64>().write(at_ms) };
        !comes_in_time
    }

    /// Updates the flag for expiring elements, and returns it.
    pub(super) fn follow_elements(&mut self) -> bool {
        let expire = self.as_ref().value().elements_expire();
        self.set_flag(ELEMENTS_EXPIRE, expire);
        expire
    }

    /// Notes that a timer fires when the entry is [due](Entry::due_at_ms). A sweep with this mark keeps no other timer
    /// of the entry.
    pub(super) fn arm(&mut self, due_at_ms: i64, mark: bool) {
        let entry = self.as_ref();
        let (expires, elements_expire) = (entry.has(EXPIRES), entry.elements_expire());
        self.set_flag(ARMED, expires);
        self.set_flag(MARK, mark);
        if elements_expire {
            self.set_timer_of_elements(Some(due_at_ms));
        }
    }

    /// Notes that no timer fires.
    pub(super) fn disarm(&mut self) {
        self.set_flag(ARMED, false);
        self.set_timer_of_elements(None);
    }

    fn set_timer_of_elements(&mut self, at_ms: Option<i64>) {
        // SAFETY: an embedded value has no deadlines, and nothing else is changed.
        let value = unsafe { self.reborrow().into_value_in_word() };
        if let Some(value) = value {
            value.set_timer_ms(at_ms);
        }
    }

    /// Moves the entry to another place, with all that it owns. Its timer stays behind, because it knows only the old
    /// place, and so does a deadline that was only the timer's bound.
    ///
    /// # Safety
    /// Nobody uses the other place, and the content of this one is no entry afterwards.
    ///
    /// # Panics
    /// If the entry does not [fit](Entry::fits).
    pub(super) unsafe fn move_to(mut self, place: Place) {
        self.disarm();
        let (old, new) = (self.as_ref().shape(), self.as_ref().moved_shape());
        assert!(new.bytes() <= place.size, "an entry moves to where there is room");
        self.header_mut().flags = new.flags;
        let behind_deadline = old.word_at();
        // SAFETY: both places have that many bytes, and they are distinct. Padding between the parts may be unwritten:
        // bytes are copied as they are.
        unsafe {
            place.start.copy_from_nonoverlapping(self.place.start, new.word_at());
            let rest = place.start.byte_add(new.word_at());
            rest.copy_from_nonoverlapping(self.at(behind_deadline), old.bytes() - behind_deadline);
        }
    }

    /// Ends the entry: frees its key, and returns the value if it lies outside.
    ///
    /// # Safety
    /// The content of the place is no entry afterwards.
    pub(super) unsafe fn end(mut self) -> Option<Value> {
        let shape = self.as_ref().shape();
        if shape.flags & LONG_KEY != 0 {
            // SAFETY: a long key's place holds a box, which is not used afterwards.
            drop(unsafe { self.at(shape.key_at()).cast::<Box<[u8]>>().read() });
        }
        // SAFETY: the word is not used afterwards.
        unsafe { self.take_outside() }
    }

    /// Takes the value if it lies outside.
    ///
    /// # Safety
    /// The word is not used afterwards.
    #[inline]
    unsafe fn take_outside(&mut self) -> Option<Value> {
        if self.as_ref().has_embedded() {
            return None;
        }
        let word = self.as_ref().word();
        // SAFETY: the kind says what the word holds, and nothing else uses it.
        unsafe {
            Some(match self.as_ref().header().kind {
                Kind::Text | Kind::SmallInt | Kind::Int => return None,
                Kind::Heap => Value::String(StringValue::Heap(word.cast().read())),
                Kind::Raw => Value::String(StringValue::Raw(word.cast().read())),
                Kind::List => Value::List(word.cast().read()),
                Kind::Set => Value::Set(word.cast().read()),
                Kind::ZSet => Value::ZSet(word.cast().read()),
                Kind::Hash => Value::Hash(word.cast().read()),
                Kind::Stream => Value::Stream(word.cast().read()),
                Kind::Grants => Value::Grants(word.cast().read()),
            })
        }
    }

    /// Writes the value and the header of an entry of this shape. Forgets the old value, and the timer that a new value
    /// may have had elsewhere.
    #[inline(always)]
    fn write_value(&mut self, shape: Shape, value: NewValue<'_>, used: u32) {
        let kind = match value.short_text() {
            Some(text) => {
                let text_at = self.at(shape.text_at());
                // SAFETY: the shape has room for that many bytes, and they do not overlap the text, which would have to
                // be borrowed from the entry.
                unsafe { text_at.copy_from_nonoverlapping(NonNull::from_ref(text).cast(), text.len()) };
                if matches!(value, NewValue::SmallInt(_)) { Kind::SmallInt } else { Kind::Text }
            }
            None => self.write_word(shape, value),
        };
        let Shape { flags, key_len, text_len } = shape;
        let flags = flags & !ELEMENTS_EXPIRE;
        // SAFETY: a place has room for a header, is aligned for it, and is borrowed exclusively.
        unsafe { self.place.start.cast().write(Header { used, key_len, text_len, kind, flags }) };
        if matches!(kind, Kind::Hash | Kind::Set | Kind::Stream | Kind::Grants) && self.follow_elements() {
            self.set_timer_of_elements(None);
        }
    }

    /// Writes a value into the word, and returns its kind.
    #[inline]
    fn write_word(&mut self, shape: Shape, value: NewValue<'_>) -> Kind {
        let word = self.at(shape.word_at());
        let value = match value {
            NewValue::Text(text) => Value::String(StringValue::Heap(ThinBytes::new(text))),
            NewValue::SmallInt(_) => unreachable!("it lies at the end"),
            NewValue::Owned(value) => value,
        };
        // SAFETY: the shape has a word, and each of these values has its size.
        unsafe {
            match value {
                Value::String(StringValue::Int(integer)) => {
                    word.cast().write(integer);
                    Kind::Int
                }
                Value::String(StringValue::Heap(bytes)) => {
                    word.cast().write(bytes);
                    Kind::Heap
                }
                Value::String(StringValue::Raw(bytes)) => {
                    word.cast().write(bytes);
                    Kind::Raw
                }
                Value::String(StringValue::Inline { .. }) => unreachable!("a short text lies inside"),
                Value::List(list) => {
                    word.cast().write(list);
                    Kind::List
                }
                Value::Set(set) => {
                    word.cast().write(set);
                    Kind::Set
                }
                Value::ZSet(zset) => {
                    word.cast().write(zset);
                    Kind::ZSet
                }
                Value::Hash(hash) => {
                    word.cast().write(hash);
                    Kind::Hash
                }
                Value::Stream(stream) => {
                    word.cast().write(stream);
                    Kind::Stream
                }
                Value::Grants(grants) => {
                    word.cast().write(grants);
                    Kind::Grants
                }
            }
        }
    }

    #[inline]
    fn set_flag(&mut self, flag: u8, to: bool) {
        let header = self.header_mut();
        header.flags = if to { header.flags | flag } else { header.flags & !flag };
    }

    #[inline]
    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: an entry begins with its header, and is borrowed.
        unsafe { self.place.start.cast().as_mut() }
    }

    /// The address `offset` bytes behind the entry's beginning.
    #[inline]
    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.place.size);
        // SAFETY: the caller stays inside the place.
        unsafe { self.place.start.byte_add(offset) }
    }
}

/// # Safety
/// The place has these bytes, which are written and stay unchanged during `'a`.
#[inline]
unsafe fn bytes_at<'a>(place: Place, at: usize, len: u8) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(place.start.byte_add(at).as_ptr(), len.into()) }
}
