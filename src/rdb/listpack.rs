//! Listpacks: Redis' small sequences of strings and integers (Salvatore Sanfilippo, "Listpack specification").
//!
//! ```text
//! listpack = bytes in all (4), entries (2; 65,535: not known), entry*, 0xff          numbers little-endian
//! entry    = encoding and data, backward length
//!
//! 0nnnnnnn                     an integer from 0 to 127
//! 10llllll                     a string
//! 110nnnnn, 1 byte             an integer of 13 bits, most significant first
//! 1110llll, 1 byte             the length of a string, most significant first
//! 0xf0, 4 bytes                the length of a string
//! 0xf1 - 0xf4                  an integer of 2, 3, 4 or 8 bytes
//! ```
//!
//! The backward length has seven bits per byte, most significant first; all bytes except the first have their top bit
//! set.

use super::wire::Corrupt;
use crate::rdb::limits::RDB_PACKED_MAX_ITEMS;
use crate::value::packed::{Item, canonical_int};

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
/// The count of a listpack whose entries have to be counted.
const UNKNOWN_COUNT: u16 = u16::MAX;

/// The most bytes of a listpack that is written. Its length has 32 bits, as have those of its strings.
pub(super) const MAX_BYTES: usize = 1 << 30;

/// The longest text that is tried as an integer.
const INTEGER_MAX_BYTES: usize = 20;

/// A listpack without entries.
pub(super) const EMPTY: [u8; 7] = [7, 0, 0, 0, 0, 0, END];

/// All entries of a listpack. It must hold at least one.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Item<'_>>, Corrupt> {
    let (header, mut rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?;
    let [a, b, c, d, low, high] = *header;
    if u32::from_le_bytes([a, b, c, d]) as usize != bytes.len() {
        return Err(Corrupt);
    }
    let mut items = Vec::new();
    while *rest.first().ok_or(Corrupt)? != END {
        let (item, len) = entry(rest)?;
        let back = Back::of(len);
        if !rest[len..].starts_with(back.as_bytes()) {
            return Err(Corrupt);
        }
        rest = &rest[len + back.as_bytes().len()..];
        list(&mut items, item)?;
    }
    let count = u16::from_le_bytes([low, high]);
    let counted = count == UNKNOWN_COUNT || usize::from(count) == items.len();
    if rest.len() == 1 && counted && !items.is_empty() { Ok(items) } else { Err(Corrupt) }
}

/// Adds one more entry, up to [`RDB_PACKED_MAX_ITEMS`].
pub(super) fn list<'a>(items: &mut Vec<Item<'a>>, item: Item<'a>) -> Result<(), Corrupt> {
    if items.len() >= RDB_PACKED_MAX_ITEMS {
        return Err(Corrupt);
    }
    items.push(item);
    Ok(())
}

/// The entry at the start of `bytes`, and its size without the backward length.
fn entry(bytes: &[u8]) -> Result<(Item<'_>, usize), Corrupt> {
    let at = |index: usize| bytes.get(index).copied().ok_or(Corrupt);
    let string = |head: usize, len: usize| {
        let end = head.checked_add(len).ok_or(Corrupt)?;
        Ok((Item::Bytes(bytes.get(head..end).ok_or(Corrupt)?), end))
    };
    let first = at(0)?;
    match first {
        0..0x80 => Ok((Item::Int(i64::from(first)), 1)),
        0x80..0xc0 => string(1, usize::from(first & 0x3f)),
        0xc0..0xe0 => {
            let bits = i64::from(first & 0x1f) << 8 | i64::from(at(1)?);
            Ok((Item::Int(if bits >= 1 << 12 { bits - (1 << 13) } else { bits }), 2))
        }
        0xe0..0xf0 => string(2, usize::from(first & 0x0f) << 8 | usize::from(at(1)?)),
        0xf0 => {
            let len = bytes.get(1..).and_then(<[u8]>::first_chunk).ok_or(Corrupt)?;
            string(5, u32::from_le_bytes(*len) as usize)
        }
        0xf1..0xf5 => {
            let width = [2, 3, 4, 8][usize::from(first - 0xf1)];
            Ok((Item::Int(signed(bytes.get(1..1 + width).ok_or(Corrupt)?)), 1 + width))
        }
        _ => Err(Corrupt),
    }
}

/// The integer in up to eight bytes, least significant first.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let unsigned = bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let unused = 64 - 8 * bytes.len() as u32;
    ((unsigned << unused) as i64) >> unused
}

/// A listpack that is being written.
pub(super) struct Writer {
    bytes: Vec<u8>,
    count: usize,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { bytes: vec![0; HEADER_BYTES], count: 0 }
    }

    /// Bytes so far, without the end mark.
    pub(super) fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn push_item(&mut self, item: Item<'_>) {
        match item {
            Item::Int(value) => self.push_int(value),
            Item::Bytes(bytes) => self.push(bytes),
        }
    }

    /// Appends a string. A canonical integer is stored as a number.
    pub(super) fn push(&mut self, text: &[u8]) {
        if text.len() <= INTEGER_MAX_BYTES
            && let Some(value) = canonical_int(text)
        {
            return self.push_int(value);
        }
        let start = self.bytes.len();
        let len = text.len();
        match len {
            0..0x40 => self.bytes.push(0x80 | len as u8),
            0x40..0x1000 => self.bytes.extend_from_slice(&[0xe0 | (len >> 8) as u8, len as u8]),
            _ => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end_entry(start);
    }

    pub(super) fn push_int(&mut self, value: i64) {
        let start = self.bytes.len();
        match value {
            0..0x80 => self.bytes.push(value as u8),
            -0x1000..0x1000 => self.bytes.extend_from_slice(&[0xc0 | (value >> 8) as u8 & 0x1f, value as u8]),
            _ => {
                let (code, width) = match value {
                    -0x8000..0x8000 => (0xf1, 2),
                    -0x80_0000..0x80_0000 => (0xf2, 3),
                    -0x8000_0000..0x8000_0000 => (0xf3, 4),
                    _ => (0xf4, 8),
                };
                self.bytes.push(code);
                self.bytes.extend_from_slice(&value.to_le_bytes()[..width]);
            }
        }
        self.end_entry(start);
    }

    fn end_entry(&mut self, start: usize) {
        let back = Back::of(self.bytes.len() - start);
        self.bytes.extend_from_slice(back.as_bytes());
        self.count += 1;
    }

    /// Returns the whole listpack.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let total = (self.bytes.len() as u32).to_le_bytes();
        let count = u16::try_from(self.count).unwrap_or(UNKNOWN_COUNT).to_le_bytes();
        self.bytes[..4].copy_from_slice(&total);
        self.bytes[4..HEADER_BYTES].copy_from_slice(&count);
        self.bytes
    }
}

/// The backward length of an entry.
struct Back {
    bytes: [u8; 5],
    len: usize,
}

impl Back {
    fn of(entry_len: usize) -> Back {
        // A further byte becomes necessary one short of another seven bits, except for the first byte.
        let len = match entry_len {
            0..128 => 1,
            128..16_383 => 2,
            16_383..2_097_151 => 3,
            2_097_151..268_435_455 => 4,
            _ => 5,
        };
        let mut bytes = [0; 5];
        for (place, byte) in bytes[..len].iter_mut().rev().enumerate() {
            *byte = (entry_len >> (7 * place) & 0x7f) as u8 | 0x80;
        }
        bytes[0] &= 0x7f;
        Back { bytes, len }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_listpacks_read_back() {
        let mut texts: Vec<Vec<u8>> = [0, 63, 64, 126, 127, 128, 4095, 4096, 16_380, 16_381, 16_383, 70_000]
            .iter()
            .map(|len| vec![b'x'; *len])
            .collect();
        let edges = (0..63).flat_map(|bit| [1i64 << bit, (1 << bit) - 1, -(1 << bit), -(1 << bit) - 1]);
        texts.extend(edges.map(|value| value.to_string().into_bytes()));
        texts.extend([b"007".to_vec(), b"-0".to_vec()]);
        let mut writer = Writer::new();
        texts.iter().for_each(|text| writer.push(text));
        let bytes = writer.finish();
        let items = read(&bytes).expect("it was just written");
        assert_eq!(items.iter().map(Item::to_vec).collect::<Vec<_>>(), texts);
        for cut in (0..bytes.len()).step_by(97) {
            assert_eq!(read(&bytes[..cut]), Err(Corrupt));
        }
        assert_eq!(read(&Writer::new().finish()), Err(Corrupt), "a listpack without entries is refused");
    }

    /// An entry of two bytes, which a packed string can repeat for almost nothing, takes 24 bytes in the list.
    #[test]
    fn listed_entries_are_bounded() {
        let zeros = |count| {
            let mut bytes = vec![0; HEADER_BYTES];
            (0..count).for_each(|_| bytes.extend_from_slice(&[0, 1]));
            Writer { bytes, count }.finish()
        };
        assert_eq!(read(&zeros(RDB_PACKED_MAX_ITEMS)).map(|items| items.len()), Ok(RDB_PACKED_MAX_ITEMS));
        assert_eq!(read(&zeros(RDB_PACKED_MAX_ITEMS + 1)).map(|items| items.len()), Err(Corrupt));
    }
}
