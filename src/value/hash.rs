//! The value of a hash key: fields, each with a value.
//!
//! A small hash is a [`Packed`] sequence of field, value, field, value, which the hash's one word points to. Beyond the
//! limits (too many fields, or a field or value too long) it becomes a [`DenseTable`] of entries and stays one. The
//! limits and the names of the encodings are those of Redis, since people tune them and look at them.
//!
//! An entry of the table holds field and value in one string, inline if they are short (see [`SmallBytes`]):
//!
//! ```text
//! length of the field, LEB128 (7 bits a byte, lowest first) | field | value
//! ```
//!
//! Fields that expire have their deadlines in [`Deadlines`], beside either form. The rules for expired elements given
//! there apply to every query here.

use crate::base::dense_table::DenseTable;
use crate::base::equal::equal;
use crate::base::hasher::hash_bytes;
use crate::base::sample::select;
use crate::base::split_table::PLACE_END;
use crate::value::block::{Block, InBlock};
use crate::value::deadlines::{DRAWS, Deadlines};
use crate::value::one_word::{Held, HeldMut, OneWord};
use crate::value::packed::{Item, Packed, Pos};
use crate::value::small_bytes::SmallBytes;

/// The bounds on a packed hash. A hash that exceeds them becomes a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashLimits {
    /// Fields (`hash-max-listpack-entries`).
    pub max_listpack_entries: usize,
    /// Bytes of the longest field or value (`hash-max-listpack-value`).
    pub max_listpack_value: usize,
}

impl Default for HashLimits {
    fn default() -> Self {
        HashLimits { max_listpack_entries: 128, max_listpack_value: 64 }
    }
}

/// Fields, each with a value; both are arbitrary bytes.
#[derive(Clone, Debug)]
pub struct Hash(OneWord<Full>);

/// The contents of a hash that is a table or has fields that expire.
#[derive(Clone, Debug)]
struct Full {
    form: Form,
    /// Present since a field first got a deadline.
    deadlines: Option<Deadlines>,
}

#[derive(Clone, Debug)]
enum Form {
    Packed(Packed),
    Table(Box<DenseTable<Entry>>),
}

/// The form, wherever it is stored.
enum Seen<'a> {
    Packed(&'a Packed),
    Table(&'a DenseTable<Entry>),
}

/// The form, for changing it.
enum SeenMut<'a> {
    Packed(&'a mut Packed),
    Table(&'a mut DenseTable<Entry>),
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl Hash {
    /// A hash without fields, and without allocation.
    pub const fn new() -> Hash {
        Hash(OneWord::new())
    }

    /// The block, if the hash is small.
    pub(crate) fn block(&self) -> Option<&Block> {
        self.0.as_small()
    }

    /// The block of a small hash, for moving it.
    pub(crate) fn block_mut(&mut self) -> Option<&mut Block> {
        self.0.as_small_mut()
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.stored_len() - self.deadlines().map_or(0, Deadlines::expired)
    }

    /// Number of fields, including expired ones.
    pub fn stored_len(&self) -> usize {
        match self.form() {
            Seen::Packed(packed) => packed.len() / 2,
            Seen::Table(table) => table.len(),
        }
    }

    /// Whether most fields have expired. Each random draw may then have to walk over all of them.
    pub fn is_mostly_dead(&self) -> bool {
        self.stored_len() / 2 > self.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `field`.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<Item<'_>> {
        if self.expired().is_some_and(|expired| expired.is_expired(field)) {
            return None;
        }
        self.stored(field)
    }

    /// Whether `field` exists.
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Like [`get`](Self::get), including expired fields.
    #[inline]
    pub fn stored(&self, field: &[u8]) -> Option<Item<'_>> {
        match self.form() {
            Seen::Packed(packed) => packed.at(packed.next(find(packed, field)?)),
            Seen::Table(table) => {
                table.find(hash_bytes(field), Entry::is(field)).map(|entry| Item::Bytes(entry.value()))
            }
        }
    }

    /// Bytes of the packed form; `None` if the hash is a table.
    pub fn compact_bytes(&self) -> Option<usize> {
        match self.form() {
            Seen::Packed(packed) => Some(packed.byte_len()),
            Seen::Table(_) => None,
        }
    }

    /// The length of the value of `field`, in bytes.
    pub fn value_len(&self, field: &[u8]) -> Option<usize> {
        self.get(field).map(|value| value.byte_len())
    }

    /// Sets the value of `field`, which must not have expired; its deadline stays. Returns whether the field is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8], limits: &HashLimits) -> bool {
        let packed = match self.form_mut() {
            SeenMut::Table(table) => return insert_entry(table, field, value),
            SeenMut::Packed(packed) => packed,
        };
        if field.len().max(value.len()) <= limits.max_listpack_value {
            let found = find(packed, field);
            if let Some(at) = found
                && packed.has_room_instead(value.len())
            {
                packed.replace(packed.next(at), value);
                return false;
            }
            let may_grow = found.is_none() && packed.len() / 2 < limits.max_listpack_entries;
            if may_grow && packed.has_room(2, field.len() + value.len()) {
                packed.push(field);
                packed.push(value);
                return true;
            }
        }
        let mut table = Box::new(to_table(packed));
        let new = insert_entry(&mut table, field, value);
        self.full_mut().form = Form::Table(table);
        new
    }

    /// Removes `field`, even an expired one. Returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        if let Some(deadlines) = self.deadlines_mut() {
            deadlines.remove(field);
        }
        match self.form_mut() {
            SeenMut::Packed(packed) => find(packed, field).map(|at| packed.remove(at, 2)).is_some(),
            SeenMut::Table(table) => table.remove(hash_bytes(field), Entry::is(field), Entry::hash).is_some(),
        }
    }

    /// The deadlines, if a field has ever had one.
    #[inline]
    pub fn deadlines(&self) -> Option<&Deadlines> {
        self.0.as_large()?.deadlines.as_ref()
    }

    /// Like [`deadlines`](Self::deadlines), for changing those of stored fields.
    pub fn deadlines_mut(&mut self) -> Option<&mut Deadlines> {
        self.0.as_large_mut()?.deadlines.as_mut()
    }

    /// Sets the deadline of a stored field, Unix ms.
    pub fn set_deadline(&mut self, field: &[u8], at_ms: i64) {
        self.full_mut().deadlines.get_or_insert_default().set(field, at_ms);
    }

    /// Frees the memory of deadlines if none are left. A packed hash keeps it, because its encoding shows that it had
    /// deadlines.
    pub fn drop_empty_deadlines(&mut self) {
        if let Some(full) = self.0.as_large_mut() {
            full.deadlines.take_if(|deadlines| deadlines.is_empty());
        }
    }

    #[inline]
    fn form(&self) -> Seen<'_> {
        match self.0.held() {
            Held::Small(block) => Seen::Packed(Packed::of(block)),
            Held::Large(Full { form: Form::Packed(packed), .. }) => Seen::Packed(packed),
            Held::Large(Full { form: Form::Table(table), .. }) => Seen::Table(table),
        }
    }

    #[inline]
    fn form_mut(&mut self) -> SeenMut<'_> {
        match self.0.held_mut() {
            HeldMut::Small(block) => SeenMut::Packed(Packed::of_mut(block)),
            HeldMut::Large(Full { form: Form::Packed(packed), .. }) => SeenMut::Packed(packed),
            HeldMut::Large(Full { form: Form::Table(table), .. }) => SeenMut::Table(table),
        }
    }

    fn full_mut(&mut self) -> &mut Full {
        self.0.make_large(|block| Full { form: Form::Packed(Packed::in_block(block)), deadlines: None })
    }

    /// The deadlines, if any field has expired.
    #[inline]
    fn expired(&self) -> Option<&Deadlines> {
        self.deadlines().filter(|deadlines| deadlines.expired() > 0)
    }

    /// All fields with their values: in the order of insertion while the hash is packed, later in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Item<'_>, Item<'_>)> {
        let expired = self.expired();
        self.iter_stored().filter(move |(field, _)| expired.is_none_or(|expired| !expired.is_expired_item(*field)))
    }

    /// Like [`iter`](Self::iter), including expired fields.
    pub fn iter_stored(&self) -> impl Iterator<Item = (Item<'_>, Item<'_>)> {
        let (packed, table) = match self.form() {
            Seen::Packed(packed) => (Some(packed), None),
            Seen::Table(table) => (None, Some(table)),
        };
        let packed = packed.into_iter().flat_map(packed_pairs);
        packed.chain(table.into_iter().flat_map(|table| table.iter().map(Entry::items)))
    }

    /// One step of HSCAN, like [`DenseTable::scan`]; a packed hash is emitted as a whole.
    pub fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(Item<'_>, Item<'_>)) -> u64 {
        let expired = self.expired();
        match self.form() {
            Seen::Packed(_) => {
                self.iter().for_each(|(field, value)| emit(field, value));
                0
            }
            Seen::Table(table) => table.scan(cursor, count, Entry::hash, |entry| {
                if expired.is_none_or(|expired| !expired.is_expired(entry.field())) {
                    emit(Item::Bytes(entry.field()), Item::Bytes(entry.value()));
                }
            }),
        }
    }

    /// Visits the fields of a table and their values, including expired ones, from `cursor` on until `visit` returns
    /// false. Returns the cursor of the rest; see [`DenseTable::walk`]. A packed hash has no cursors and is visited as
    /// a whole.
    pub fn walk(&self, cursor: u64, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> u64 {
        match self.form() {
            Seen::Table(table) => table.walk(cursor, Entry::hash, |entry| visit(entry.field(), entry.value())),
            Seen::Packed(packed) => {
                let (mut field_digits, mut value_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
                packed_pairs(packed).for_each(|(field, value)| {
                    visit(field.as_bytes(&mut field_digits), value.as_bytes(&mut value_digits));
                });
                PLACE_END
            }
        }
    }

    /// A random field with its value. `below(n)` draws a number in `0..n`.
    pub fn random(&self, mut below: impl FnMut(u64) -> u64) -> Option<(Item<'_>, Item<'_>)> {
        let Some(expired) = self.expired() else { return self.random_stored(below) };
        let mut draw = || self.random_stored(&mut below).filter(|(field, _)| !expired.is_expired_item(*field));
        (0..DRAWS).find_map(|_| draw()).or_else(|| select(self.iter(), self.len(), 1, below).next())
    }

    fn random_stored(&self, mut below: impl FnMut(u64) -> u64) -> Option<(Item<'_>, Item<'_>)> {
        match self.form() {
            Seen::Packed(packed) => {
                let field = packed.pos(below(self.stored_len() as u64) as usize * 2)?;
                Some((packed.at(field)?, packed.at(packed.next(field))?))
            }
            Seen::Table(table) => table.random(below).map(Entry::items),
        }
    }

    /// Emits `count` distinct random fields with their values, or all fields if there are fewer.
    pub fn sample<'h>(&'h self, count: usize, below: impl FnMut(u64) -> u64, mut emit: impl FnMut(Item<'h>, Item<'h>)) {
        match self.form() {
            Seen::Table(table) if self.expired().is_none() => table.sample(count, below, |entry| {
                let (field, value) = entry.items();
                emit(field, value);
            }),
            _ => select(self.iter(), self.len(), count, below).for_each(|(field, value)| emit(field, value)),
        }
    }

    /// The name of the form in OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        match self.form() {
            Seen::Packed(_) if self.deadlines().is_some() => "listpackex",
            Seen::Packed(_) => "listpack",
            Seen::Table(_) => "hashtable",
        }
    }

    /// Bytes allocated. For a table, the size is extrapolated from `samples` entries (0: all are measured).
    pub fn mem_bytes(&self, samples: usize) -> usize {
        let fields = match self.form() {
            Seen::Packed(packed) => packed.heap_bytes(),
            Seen::Table(table) => {
                size_of::<DenseTable<Entry>>() + table.mem_bytes() + table.sum_of(samples, |entry| entry.0.heap_bytes())
            }
        };
        let deadlines = self.deadlines().map_or(0, |deadlines| deadlines.mem_bytes(samples));
        fields + self.0.as_large().map_or(0, |_| size_of::<Full>()) + deadlines
    }
}

impl PartialEq for Hash {
    /// Whether both have equal fields and values, in whatever form.
    fn eq(&self, other: &Hash) -> bool {
        let mut scratch = (itoa::Buffer::new(), itoa::Buffer::new(), itoa::Buffer::new());
        self.len() == other.len()
            && self.iter().all(|(field, value)| {
                other
                    .get(field.as_bytes(&mut scratch.0))
                    .is_some_and(|found| found.as_bytes(&mut scratch.1) == value.as_bytes(&mut scratch.2))
            })
    }
}

impl Eq for Hash {}

fn find(packed: &Packed, field: &[u8]) -> Option<Pos> {
    packed.find::<2>(field)
}

fn packed_pairs(packed: &Packed) -> impl Iterator<Item = (Item<'_>, Item<'_>)> {
    let mut items = packed.iter();
    std::iter::from_fn(move || Some((items.next()?, items.next()?)))
}

fn to_table(packed: &Packed) -> DenseTable<Entry> {
    let mut table = DenseTable::new();
    let (mut field_digits, mut value_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
    for (field, value) in packed_pairs(packed) {
        insert_entry(&mut table, field.as_bytes(&mut field_digits), value.as_bytes(&mut value_digits));
    }
    table
}

fn insert_entry(table: &mut DenseTable<Entry>, field: &[u8], value: &[u8]) -> bool {
    let hash = hash_bytes(field);
    if let Some(entry) = table.find_mut(hash, Entry::is(field)) {
        entry.set_value(field, value);
        return false;
    }
    table.insert_unique(hash, Entry::new(field, value), Entry::hash);
    true
}

/// A field and its value in one string.
#[derive(Clone, Debug)]
struct Entry(SmallBytes<30>);

/// The most bytes that the LEB128 length can take.
const PREFIX_MAX: usize = 10;

impl Entry {
    fn new(field: &[u8], value: &[u8]) -> Entry {
        let mut prefix = [0; PREFIX_MAX];
        let mut len = 0;
        let mut left = field.len();
        while left >= 0x80 {
            prefix[len] = (left & 0x7f) as u8 | 0x80;
            left >>= 7;
            len += 1;
        }
        prefix[len] = left as u8;
        Entry(SmallBytes::concat(&[&prefix[..=len], field, value]))
    }

    /// The start and the end of the field.
    #[inline]
    fn bounds(bytes: &[u8]) -> (usize, usize) {
        let (mut start, mut len, mut shift) = (0, 0, 0);
        loop {
            len |= usize::from(bytes[start] & 0x7f) << shift;
            start += 1;
            if bytes[start - 1] & 0x80 == 0 {
                return (start, start + len);
            }
            shift += 7;
        }
    }

    #[inline]
    fn field(&self) -> &[u8] {
        let bytes = self.0.as_slice();
        let (start, end) = Self::bounds(bytes);
        &bytes[start..end]
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let bytes = self.0.as_slice();
        &bytes[Self::bounds(bytes).1..]
    }

    fn items(&self) -> (Item<'_>, Item<'_>) {
        (Item::Bytes(self.field()), Item::Bytes(self.value()))
    }

    fn set_value(&mut self, field: &[u8], value: &[u8]) {
        let bytes = self.0.as_mut_slice();
        let start = Self::bounds(bytes).1;
        match &mut bytes[start..] {
            old if old.len() == value.len() => old.copy_from_slice(value),
            _ => *self = Entry::new(field, value),
        }
    }

    fn hash(&self) -> u64 {
        hash_bytes(self.field())
    }

    #[inline]
    fn is(field: &[u8]) -> impl Fn(&Entry) -> bool {
        move |entry| equal(entry.field(), field)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::value::limits::COMPACT_MAX_ENTRIES;

    fn text(item: Item<'_>) -> Vec<u8> {
        item.to_vec()
    }

    fn contents(hash: &Hash) -> BTreeMap<Vec<u8>, Vec<u8>> {
        hash.iter().map(|(field, value)| (text(field), text(value))).collect()
    }

    #[test]
    fn converts_at_the_limits_and_never_back() {
        let limits = HashLimits { max_listpack_entries: 3, max_listpack_value: 5 };
        let filled = |n: usize| {
            let mut hash = Hash::new();
            (0..n).for_each(|i| assert!(hash.insert(format!("f{i}").as_bytes(), b"v", &limits)));
            hash
        };
        assert_eq!(filled(3).encoding(), "listpack");
        assert_eq!(filled(4).encoding(), "hashtable");
        for (field, value, encoding) in [
            (b"12345".as_slice(), b"12345".as_slice(), "listpack"),
            (b"123456", b"1", "hashtable"),
            (b"1", b"123456", "hashtable"),
            (b"f0", b"123456", "hashtable"),
        ] {
            let mut hash = filled(2);
            hash.insert(field, value, &limits);
            assert_eq!(hash.encoding(), encoding);
            assert_eq!(hash.get(field).map(text).as_deref(), Some(value));
        }
        let mut hash = filled(4);
        (0..4).for_each(|i| assert!(hash.remove(format!("f{i}").as_bytes())));
        assert!(hash.is_empty());
        assert_eq!(hash.encoding(), "hashtable");
    }

    #[test]
    fn a_full_hash_stays_packed_while_nothing_is_added() {
        let limits = HashLimits { max_listpack_entries: usize::MAX, max_listpack_value: 64 };
        let mut packed = Packed::new();
        (0..COMPACT_MAX_ENTRIES / 2).for_each(|i| {
            packed.push(&i.to_le_bytes());
            packed.push(b"v");
        });
        let mut hash = Hash(OneWord::small(packed.into_block()));
        assert!(!hash.insert(&0usize.to_le_bytes(), b"another value", &limits));
        assert_eq!(hash.encoding(), "listpack");
        assert!(hash.insert(b"one more", b"v", &limits));
        assert_eq!(hash.encoding(), "hashtable");
        assert_eq!(hash.get(&0usize.to_le_bytes()), Some(Item::Bytes(b"another value")));
    }

    fn take(hash: &mut Hash, field: &[u8]) -> Option<Vec<u8>> {
        let value = hash.get(field).map(text);
        assert_eq!(hash.remove(field), value.is_some());
        value
    }

    #[test]
    fn long_fields_and_values_in_a_table() {
        let limits = HashLimits { max_listpack_entries: 0, max_listpack_value: 0 };
        let mut hash = Hash::new();
        for n in [0, 1, 20, 21, 22, 127, 128, 16_383, 16_384, 70_000] {
            assert!(hash.insert(&vec![b'f'; n], &vec![b'v'; 70_000 - n], &limits));
            assert_eq!(hash.value_len(&vec![b'f'; n]), Some(70_000 - n));
            assert!(!hash.insert(&vec![b'f'; n], b"short", &limits));
            assert_eq!(take(&mut hash, &vec![b'f'; n]).as_deref(), Some(b"short".as_slice()));
        }
        assert!(hash.is_empty());
        assert_eq!(hash.encoding(), "hashtable");
    }

    #[test]
    fn samples_and_draws_are_members() {
        let mut state = 0u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n.max(1)
        };
        assert_eq!(Hash::new().random(&mut below), None);
        for n in [1, 100, 1000] {
            let mut hash = Hash::new();
            for i in 0..n {
                hash.insert(format!("f{i}").as_bytes(), i.to_string().as_bytes(), &HashLimits::default());
            }
            let mut drawn = BTreeMap::new();
            for _ in 0..n * 20 {
                let (field, value) = hash.random(&mut below).expect("not empty");
                drawn.insert(text(field), text(value));
            }
            assert_eq!(drawn, contents(&hash));
            for count in [0, 1, n / 2, n, n * 2] {
                let mut sample = BTreeMap::new();
                hash.sample(count, &mut below, |field, value| {
                    assert_eq!(sample.insert(text(field), text(value)), None);
                });
                assert_eq!(sample.len(), count.min(n));
                assert!(sample.iter().all(|(field, value)| drawn[field] == *value));
            }
        }
    }

    /// The guarantee of HSCAN, while the table grows and shrinks between the steps.
    #[test]
    fn a_walk_meets_everything_that_stays() {
        let field = |kind: &str, i: usize| format!("{kind}{i}").into_bytes();
        let limits = HashLimits::default();
        for (count, sizes) in [(1, [3000, 0, 1500]), (10, [0, 4000, 0]), (100, [10_000, 10, 20_000])] {
            let mut hash = Hash::new();
            (0..200).for_each(|i| _ = hash.insert(&field("stays", i), b"v", &limits));
            (0..500).for_each(|i| _ = hash.insert(&field("passes", i), b"v", &limits));
            let (mut size, mut met, mut cursor) = (500, BTreeMap::new(), 0);
            for step in 0.. {
                cursor = hash.scan(cursor, count, |field, value| _ = met.insert(text(field), text(value)));
                if cursor == 0 {
                    break;
                }
                let to = sizes[step % sizes.len()];
                if step < 50 {
                    (size..to).for_each(|i| assert!(hash.insert(&field("passes", i), b"w", &limits)));
                    (to..size).for_each(|i| assert!(hash.remove(&field("passes", i))));
                    size = to;
                }
            }
            assert!((0..200).all(|i| met.contains_key(&field("stays", i))));
        }
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (-40..40i64).prop_map(|i| i.to_string().into_bytes()),
            "[a-c]{0,3}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..30),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(
            entries in 0..40usize, value in 0..30usize,
            steps in proptest::collection::vec((bytes(), proptest::option::weighted(0.7, bytes())), 0..200),
        ) {
            let limits = HashLimits { max_listpack_entries: entries, max_listpack_value: value };
            let mut hash = Hash::new();
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for (field, value) in steps {
                prop_assert_eq!(hash.get(&field).map(text), model.get(&field).cloned());
                prop_assert_eq!(hash.value_len(&field), model.get(&field).map(Vec::len));
                match value {
                    Some(value) => {
                        prop_assert_eq!(hash.insert(&field, &value, &limits), model.insert(field, value).is_none());
                    }
                    None => prop_assert_eq!(take(&mut hash, &field), model.remove(&field)),
                }
                prop_assert_eq!(hash.len(), model.len());
            }
            prop_assert_eq!(&contents(&hash), &model);
            let mut scanned = BTreeMap::new();
            let mut cursor = 0;
            loop {
                cursor = hash.scan(cursor, 3, |field, value| { scanned.insert(text(field), text(value)); });
                if cursor == 0 {
                    break;
                }
            }
            prop_assert_eq!(scanned, model);
            prop_assert_eq!(&hash.clone(), &hash);
        }
    }
}
