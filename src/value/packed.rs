//! A sequence of short byte strings in one allocation. Small hashes and sets are made of it: a table costs some 50
//! bytes per element, a packed sequence one.
//!
//! # Layout
//! Entries lie one after another in a [`Block`], which counts them.
//!
//! ```text
//! entry = head payload
//!
//! head          payload           meaning
//! 0x00 - 0x7f   head bytes        a string of `head` bytes
//! 0x80 - 0xbf   none              the integer head - 0x80
//! s as few bytes as hold it => as few bytes as possible
//! s then as many bytes => then that many bytes
//! ```
//!
//! A string that is an integer in canonical form (`-12`, not `+12`, `012` or `1.0`) is stored as one, and each value
//! has exactly one encoding. Entries can therefore be compared by their encoded bytes, and the needle of a search is
//! encoded only once.
//!
//! # Use
//! An entry is addressed by a [`Pos`], found by walking from the first entry ([`Packed::pos`], [`Packed::find`],
//! [`Packed::next`]). A change invalidates all positions behind it. Entries are read as [`Item`]: an integer or bytes.
//! Every operation except appending takes time in proportion to the bytes, so owners bound both entries and bytes, and
//! change to another form beyond these bounds.
//!
//! ```
//! use tidegate::value::packed::{Item, Packed};
//!
//! let mut pairs = Packed::new();
//! for bytes in [b"stock".as_slice(), b"17", b"owner", b"ann"] {
//!     pairs.push(bytes);
//! }
//! let field = pairs.find::<2>(b"stock").expect("just pushed");
//! let value = pairs.next(field);
//! assert_eq!(pairs.at(value), Some(Item::Int(17)));
//! pairs.replace(value, b"16");
//! pairs.remove(field, 2);
//! assert_eq!(pairs.len(), 2);
//! ```

use crate::base::equal::equal;
use crate::base::num::parse_i64;
use crate::value::block::{Block, InBlock};

/// The smallest head of an inline integer, and the number of inline values.
const SMALL_INT: u8 = 0x80;
const SMALL_INTS: i64 = 0x40;
const INT: u8 = 0xc0;
const LONG: u8 = 0xe0;

/// The longest head with its fixed part: the tag and eight bytes.
const HEAD_MAX: usize = 1 + WORD;

/// Bytes in a word.
const WORD: usize = size_of::<u64>();

/// An element as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// Bytes that are a canonical decimal integer.
    Int(i64),
    /// Anything else, or an integer as text if the element comes from a form that stores only text.
    Bytes(&'a [u8]),
}

impl<'a> Item<'a> {
    /// The item for these bytes: [`Item::Int`] if they are a canonical integer.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Item<'a> {
        match canonical_int(bytes) {
            Some(value) => Item::Int(value),
            None => Item::Bytes(bytes),
        }
    }

    /// The element as a client sees it. `scratch` holds the digits of an integer.
    #[inline]
    pub fn as_bytes<'s>(&self, scratch: &'s mut itoa::Buffer) -> &'s [u8]
    where
        'a: 's,
    {
        match *self {
            Item::Int(value) => scratch.format(value).as_bytes(),
            Item::Bytes(bytes) => bytes,
        }
    }

    /// The element as a client sees it, owned.
    pub fn to_vec(&self) -> Vec<u8> {
        self.as_bytes(&mut itoa::Buffer::new()).to_vec()
    }

    /// The value of an element that is a canonical integer.
    #[inline]
    pub fn as_int(&self) -> Option<i64> {
        match *self {
            Item::Int(value) => Some(value),
            Item::Bytes(bytes) => canonical_int(bytes),
        }
    }

    /// The element's length in bytes, as a client sees it.
    pub fn byte_len(&self) -> usize {
        match *self {
            Item::Int(value) => int_digits(value),
            Item::Bytes(bytes) => bytes.len(),
        }
    }
}

/// The position of an entry in a [`Packed`], or the end. Valid until an entry at or before it changes; using a stale
/// position reads garbage or panics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pos(usize);

/// A sequence of byte strings in one allocation.
#[derive(Clone, Default, Debug)]
#[repr(transparent)]
pub struct Packed(Block);

// SAFETY: the struct is transparent over one `Block`.
unsafe impl InBlock for Packed {}

impl Packed {
    /// An empty sequence, without allocation.
    pub const fn new() -> Packed {
        Packed(Block::new())
    }

    /// The sequence in a block. The caller knows that the block holds one.
    pub(crate) fn in_block(block: Block) -> Packed {
        Packed(block)
    }

    /// The block that holds the sequence.
    pub(crate) fn into_block(self) -> Block {
        self.0
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.count()
    }

    /// Whether there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all encoded entries.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.0.len()
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// Bytes that an entry with this value would add to [`byte_len`](Self::byte_len).
    pub fn encoded_len(value: &[u8]) -> usize {
        Encoded::of(value).len()
    }

    /// Whether `entries` more entries fit, with values of `bytes` bytes in all.
    #[inline]
    pub fn has_room(&self, entries: usize, bytes: usize) -> bool {
        // An entry never takes more than a head and its text.
        Block::fits(self.byte_len().saturating_add(entries * HEAD_MAX).saturating_add(bytes), self.len() + entries)
    }

    /// Whether a value of `bytes` bytes can replace an entry.
    #[inline]
    pub fn has_room_instead(&self, bytes: usize) -> bool {
        self.has_room(0, HEAD_MAX.saturating_add(bytes))
    }

    /// The first entry, or the end if there is none.
    #[inline]
    pub fn first(&self) -> Pos {
        Pos(0)
    }

    /// The entry with this index.
    pub fn pos(&self, index: usize) -> Option<Pos> {
        (index < self.len()).then(|| (0..index).fold(self.first(), |pos, _| self.next(pos)))
    }

    /// The position behind the entry at `pos`. At the end, returns the end again.
    #[inline]
    pub fn next(&self, pos: Pos) -> Pos {
        Pos(skip(self.0.bytes(), pos.0))
    }

    /// The entry at `pos`; `None` at the end.
    #[inline]
    pub fn at(&self, pos: Pos) -> Option<Item<'_>> {
        let bytes = self.0.bytes();
        (pos.0 < bytes.len()).then(|| read(bytes, pos.0))
    }

    /// The entry with this index.
    pub fn get(&self, index: usize) -> Option<Item<'_>> {
        self.pos(index).and_then(|pos| self.at(pos))
    }

    /// The first entry equal to `needle` among every `STRIDE`-th entry, beginning with the first. With a stride of 2,
    /// these are the fields of a sequence of fields and values.
    #[inline]
    pub fn find<const STRIDE: usize>(&self, needle: &[u8]) -> Option<Pos> {
        let needle = Encoded::of(needle);
        let bytes = self.0.bytes();
        // Elements of a collection often have equal lengths and a common beginning ("user:17"). A short needle fits
        // into one word. For a longer one, the last word is compared first, because that is where the elements differ.
        // Comparing only the last byte would match one entry in ten by chance, and the processor would mispredict those
        // branches.
        match needle.short() {
            Some((word, mask)) => search::<STRIDE>(bytes, &needle, |rest, entry| match rest.first_chunk() {
                Some(first) => u64::from_le_bytes(*first) & mask == word,
                None => needle.is(entry),
            }),
            None => {
                let end = needle.end();
                search::<STRIDE>(bytes, &needle, |_, entry| entry.last_chunk() == Some(end) && needle.is(entry))
            }
        }
    }

    /// All entries.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter { bytes: self.0.bytes(), at: 0 }
    }

    /// Appends an entry. The sequence must [have room](Self::has_room).
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        let encoded = Encoded::of(value);
        self.0.append(&[encoded.head(), encoded.payload]);
    }

    /// Changes the entry at `pos`, which must not be the end. The sequence must [have room](Self::has_room_instead).
    #[inline]
    pub fn replace(&mut self, pos: Pos, value: &[u8]) {
        let encoded = Encoded::of(value);
        let old_len = skip(self.0.bytes(), pos.0) - pos.0;
        self.0.splice(pos.0, old_len, &[encoded.head(), encoded.payload]);
    }

    /// Removes up to `count` entries from `pos` on and returns how many there were. `pos` then points to the next
    /// entry.
    pub fn remove(&mut self, pos: Pos, count: usize) -> usize {
        let bytes = self.0.bytes();
        let mut end = pos.0;
        let mut removed = 0;
        while removed < count && end < bytes.len() {
            end = skip(bytes, end);
            removed += 1;
        }
        self.0.splice(pos.0, end - pos.0, &[]);
        self.0.set_count(self.len() - removed);
        removed
    }
}

impl<'a> IntoIterator for &'a Packed {
    type Item = Item<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The entries of a [`Packed`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let item = read(self.bytes, self.at);
        self.at = skip(self.bytes, self.at);
        Some(item)
    }
}

/// A value in its encoded form: a head and a payload. The head of an integer includes its bytes.
struct Encoded<'a> {
    head: [u8; HEAD_MAX],
    head_len: usize,
    payload: &'a [u8],
}

impl<'a> Encoded<'a> {
    #[inline]
    fn of(value: &'a [u8]) -> Encoded<'a> {
        match Item::of(value) {
            Item::Int(value) => Self::of_int(value),
            Item::Bytes(value) => Self::of_bytes(value),
        }
    }

    fn of_int(value: i64) -> Encoded<'a> {
        let mut head = [0; HEAD_MAX];
        if (0..SMALL_INTS).contains(&value) {
            head[0] = SMALL_INT + value as u8;
            return Encoded { head, head_len: 1, payload: &[] };
        }
        // The bits below the sign, plus the sign.
        let bits = 65 - (value ^ (value >> 63)).leading_zeros() as usize;
        let width = bits.div_ceil(8);
        head[0] = INT + width as u8;
        head[1..=width].copy_from_slice(&value.to_le_bytes()[..width]);
        Encoded { head, head_len: 1 + width, payload: &[] }
    }

    #[inline]
    fn of_bytes(payload: &'a [u8]) -> Encoded<'a> {
        let mut head = [0; HEAD_MAX];
        let len = payload.len();
        let width = match len {
            0..0x80 => {
                head[0] = len as u8;
                return Encoded { head, head_len: 1, payload };
            }
            0x80..0x1_0000 => 2,
            0x1_0000..0x1_0000_0000 => 4,
            _ => 8,
        };
        head[0] = LONG + width as u8;
        head[1..=width].copy_from_slice(&(len as u64).to_le_bytes()[..width]);
        Encoded { head, head_len: 1 + width, payload }
    }

    #[inline]
    fn len(&self) -> usize {
        self.head_len + self.payload.len()
    }

    #[inline]
    fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// Whether the first byte of the head determines the length of the entry.
    #[inline]
    fn head_has_len(&self) -> bool {
        self.head[0] < LONG
    }

    /// An encoding of up to eight bytes as a little-endian word, with the mask of the bits in use.
    #[inline]
    fn short(&self) -> Option<(u64, u64)> {
        let unused = WORD.checked_sub(self.len())?;
        let bytes = self.head().iter().chain(self.payload).rev();
        Some((bytes.fold(0, |word, &byte| word << 8 | u64::from(byte)), u64::MAX >> (8 * unused)))
    }

    /// The last eight bytes of an encoding longer than that.
    #[inline]
    fn end(&self) -> &[u8; WORD] {
        // A head this long belongs to an integer, which has no payload.
        self.payload.last_chunk().or(self.head.last_chunk()).expect("a head has room for a word behind the tag")
    }

    /// Whether `entry`, which has the same number of bytes, is equal.
    #[inline]
    fn is(&self, entry: &[u8]) -> bool {
        let (head, payload) = entry.split_at(self.head_len);
        equal(head, self.head()) && equal(payload, self.payload)
    }
}

/// The first entry, among every `STRIDE`-th, whose head begins like the needle's and for which `is` returns true. `is`
/// gets the bytes from the entry to the end, and the entry's first bytes, as many as the needle has.
#[inline]
fn search<const STRIDE: usize>(bytes: &[u8], needle: &Encoded<'_>, is: impl Fn(&[u8], &[u8]) -> bool) -> Option<Pos> {
    const { assert!(STRIDE > 0) }
    let (head, len, head_has_len) = (needle.head[0], needle.len(), needle.head_has_len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest[0] != head {
            for _ in 0..STRIDE {
                at = skip(bytes, at);
            }
            continue;
        }
        if rest.get(..len).is_some_and(|entry| is(rest, entry)) {
            return Some(Pos(at));
        }
        // Adding a length that is already known lets the processor go on to the next entry before it has loaded this
        // one's head.
        at = if head_has_len { at + len } else { skip(bytes, at) };
        for _ in 1..STRIDE {
            at = skip(bytes, at);
        }
    }
    None
}

#[inline]
fn read(bytes: &[u8], at: usize) -> Item<'_> {
    match bytes[at] {
        head @ 0..SMALL_INT => Item::Bytes(&bytes[at + 1..at + 1 + usize::from(head)]),
        head @ SMALL_INT..INT => Item::Int(i64::from(head - SMALL_INT)),
        head @ INT..LONG => {
            let width = u32::from(head - INT);
            let unused = 64 - 8 * width;
            let value = little_endian(&bytes[at + 1..], width as usize);
            Item::Int(((value << unused) as i64) >> unused)
        }
        head => {
            let width = usize::from(head - LONG);
            let len = little_endian(&bytes[at + 1..], width) as usize;
            Item::Bytes(&bytes[at + 1 + width..at + 1 + width + len])
        }
    }
}

/// The position behind the entry at `at`. At the end, returns the end.
#[inline]
fn skip(bytes: &[u8], at: usize) -> usize {
    let Some(&head) = bytes.get(at) else { return at };
    at + 1
        + match head {
            0..SMALL_INT => usize::from(head),
            SMALL_INT..INT => 0,
            INT..LONG => usize::from(head - INT),
            _ => {
                let width = usize::from(head - LONG);
                width + little_endian(&bytes[at + 1..], width) as usize
            }
        }
}

#[inline]
fn little_endian(bytes: &[u8], width: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(&bytes[..width]);
    u64::from_le_bytes(wide)
}

/// The value of a canonical decimal integer. Most elements are not integers, which their first byte shows.
#[inline]
pub(crate) fn canonical_int(bytes: &[u8]) -> Option<i64> {
    match bytes {
        [b'0'..=b'9' | b'-', ..] if bytes.len() <= 20 => parse_i64(bytes),
        _ => None,
    }
}

fn int_digits(value: i64) -> usize {
    let digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(value < 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value::limits::COMPACT_MAX_ENTRIES;

    fn texts(packed: &Packed) -> Vec<Vec<u8>> {
        packed.iter().map(|item| item.to_vec()).collect()
    }

    #[test]
    fn every_kind_of_entry_reads_back() {
        let lengths = [0, 1, 63, 126, 127, 128, 129, 16_381, 16_382, 16_383, 16_384, 65_535, 65_536, 2_200_000];
        let strings = lengths.iter().map(|&n| vec![b'x'; n]);
        let ints = (0..64).flat_map(|shift| {
            let edge = 1i64.wrapping_shl(shift);
            [edge.wrapping_sub(1), edge, -edge.max(-i64::MAX), i64::MIN, i64::MAX, -1, 63, 64]
        });
        let odd = ["-0", "00", "+1", "1 ", "-", "9223372036854775808", "-9223372036854775809", "1.0"];
        let mut values: Vec<Vec<u8>> = strings.chain(ints.map(|i| i.to_string().into_bytes())).collect();
        values.extend(odd.map(|text| text.as_bytes().to_vec()));

        let mut packed = Packed::new();
        for value in &values {
            let before = packed.byte_len();
            assert!(packed.has_room(1, value.len()));
            packed.push(value);
            assert_eq!(packed.byte_len() - before, Packed::encoded_len(value));
        }
        assert_eq!(texts(&packed), values);
        for (i, value) in values.iter().enumerate() {
            let found = packed.find::<1>(value).expect("is there");
            assert_eq!(packed.at(found).map(|item| item.to_vec()).as_ref(), Some(value));
            assert_eq!(packed.get(i), Some(Item::of(value)));
            assert_eq!(Item::of(value).byte_len(), value.len());
        }
    }

    #[test]
    fn short_entries_cost_a_byte_more_than_their_text() {
        assert_eq!(Packed::encoded_len(b""), 1);
        assert_eq!(Packed::encoded_len(b"abc"), 4);
        assert_eq!(Packed::encoded_len(b"7"), 1);
        assert_eq!(Packed::encoded_len(b"127"), 2);
        assert_eq!(Packed::encoded_len(b"128"), 3);
        assert_eq!(Packed::encoded_len(b"-128"), 2);
        assert_eq!(Packed::encoded_len(i64::MIN.to_string().as_bytes()), 9);
    }

    #[test]
    fn there_is_room_while_all_can_be_counted() {
        let mut packed = Packed::new();
        (0..COMPACT_MAX_ENTRIES - 1).for_each(|_| packed.push(b"1"));
        assert!(packed.has_room(1, 64) && !packed.has_room(2, 64) && !packed.has_room(1, Block::MAX_BYTES));
    }

    #[test]
    fn a_search_with_a_stride_sees_fields_only() {
        let mut packed = Packed::new();
        [b"a".as_slice(), b"b", b"b", b"c"].iter().for_each(|bytes| packed.push(bytes));
        let b = packed.find::<2>(b"b").expect("a field");
        assert_eq!(Some(b), packed.pos(2));
        assert_eq!(packed.find::<2>(b"c"), None);
    }

    #[test]
    fn a_search_compares_every_byte() {
        let of_len = |len: usize| (b'a'..=b'z').cycle().take(len).collect::<Vec<u8>>();
        // Miri is too slow for all of them.
        let lens =
            if cfg!(miri) { vec![0, 3, 7, 8, 9, 17] } else { (0..40).chain([126, 127, 128, 129, 300]).collect() };
        let texts = lens.into_iter().map(of_len);
        let ints = [17, 100, -100, 70_000, 1 << 50, i64::MAX, i64::MIN].map(|int: i64| int.to_string().into_bytes());
        for value in texts.chain(ints) {
            // Either as many bytes as the longest needle may follow, or none.
            for (before, behind) in [(0, 0), (0, 3), (3, 0), (3, 3)] {
                let others = [b"-5".to_vec(), of_len(if cfg!(miri) { 40 } else { 400 }), b"u".to_vec()];
                let (mut one, mut two) = (Packed::new(), Packed::new());
                for entry in others[..before].iter().chain([&value]).chain(&others[..behind]) {
                    one.push(entry);
                    two.push(entry);
                    two.push(&value);
                }
                let first = |needle: &[u8]| {
                    let same = |entry: &&[u8]| *entry == needle;
                    let all = others[..before].iter().chain([&value]).chain(&others[..behind]);
                    all.map(Vec::as_slice).collect::<Vec<_>>().iter().position(same)
                };
                let check = |needle: &[u8]| {
                    let index = first(needle);
                    assert_eq!(one.find::<1>(needle), index.and_then(|at| one.pos(at)), "{needle:?} for {value:?}");
                    assert_eq!(two.find::<2>(needle), index.and_then(|at| two.pos(2 * at)), "{needle:?} for {value:?}");
                };
                check(&value);
                check(&[&value[..], b"x"].concat());
                check(&[&value[..], b"0"].concat());
                for at in 0..value.len() {
                    check(&value[..at]);
                    let mut unlike = value.clone();
                    // Another letter or digit.
                    unlike[at] ^= 1;
                    check(&unlike);
                }
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(Vec<u8>),
        Replace(usize, Vec<u8>),
        Remove(usize, usize),
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(|i| i.to_string().into_bytes()),
            (-200..200i64).prop_map(|i| i.to_string().into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..200),
            "[0-9]{0,22}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_vector(steps in proptest::collection::vec(prop_oneof![
            3 => value().prop_map(Step::Push),
            1 => (any::<usize>(), value()).prop_map(|(i, v)| Step::Replace(i, v)),
            1 => (any::<usize>(), 0..5usize).prop_map(|(i, n)| Step::Remove(i, n)),
        ], 0..60)) {
            let mut packed = Packed::new();
            let mut model: Vec<Vec<u8>> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(value) => {
                        packed.push(&value);
                        model.push(value);
                    }
                    Step::Replace(i, value) if !model.is_empty() => {
                        let i = i % model.len();
                        packed.replace(packed.pos(i).expect("it is there"), &value);
                        model[i] = value;
                    }
                    Step::Replace(..) => {}
                    Step::Remove(i, n) => {
                        let i = i % (model.len() + 1);
                        let end = (i + n).min(model.len());
                        prop_assert_eq!(packed.remove(packed.pos(i).unwrap_or(Pos(packed.byte_len())), n), end - i);
                        model.drain(i..end);
                    }
                }
                prop_assert_eq!(packed.len(), model.len());
                prop_assert_eq!(texts(&packed), &model[..]);
                for (i, value) in model.iter().enumerate() {
                    let first = model.iter().position(|other| other == value);
                    prop_assert_eq!(packed.find::<1>(value), first.and_then(|i| packed.pos(i)));
                    prop_assert_eq!(packed.get(i), Some(Item::of(value)));
                }
            }
        }
    }
}
