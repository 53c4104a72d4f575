//! The predecessors of listpacks: ziplists (up to Redis 6) and zipmaps (up to Redis 2.4). They are only read.
//!
//! ```text
//! ziplist = bytes in all (4), offset of the last entry (4), entries (2; 65,535: not known), entry*, 0xff
//! entry   = bytes of the entry before (1; or 0xfe and 4), encoding and data           numbers little-endian
//!
//! 00 llllll                    a string
//! 01 llllll, 1 byte            the length of a string, most significant first
//! 0x80, 4 bytes                the length of a string, most significant first
//! 0xc0, 0xd0, 0xe0             an integer of 2, 4 or 8 bytes
//! 0xf0, 0xfe                   an integer of 3 bytes, or 1
//! 0xf1 - 0xfd                  the integers from 0 to 12
//!
//! zipmap = pairs (1; 254 and more: not known), (length, field, length, unused (1), value, unused bytes)*, 0xff
//! length = 1 byte, or 0xfe and 4 bytes
//! ```

use super::listpack::{list, signed};
use super::wire::Corrupt;
use crate::value::packed::Item;

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
/// Announces a length of four bytes.
const LONG: u8 = 0xfe;

/// A ziplist without entries.
pub(super) const EMPTY: [u8; 11] = [11, 0, 0, 0, 10, 0, 0, 0, 0, 0, END];

/// All entries of a ziplist. It must hold at least one.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Item<'_>>, Corrupt> {
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?;
    let [a, b, c, d, e, f, g, h, low, high] = *header;
    if u32::from_le_bytes([a, b, c, d]) as usize != bytes.len() {
        return Err(Corrupt);
    }
    let mut items = Vec::new();
    let (mut at, mut last) = (HEADER_BYTES, HEADER_BYTES);
    while *bytes.get(at).ok_or(Corrupt)? != END {
        let (before, start) = length(bytes, at)?;
        if before != at - last {
            return Err(Corrupt);
        }
        let (item, end) = entry(bytes, start)?;
        list(&mut items, item)?;
        (last, at) = (at, end);
    }
    let count = u16::from_le_bytes([low, high]);
    let counted = count == u16::MAX || usize::from(count) == items.len();
    let ends = at + 1 == bytes.len() && u32::from_le_bytes([e, f, g, h]) as usize == last;
    if ends && counted && !items.is_empty() { Ok(items) } else { Err(Corrupt) }
}

/// The entry whose encoding begins at `at`, and the start of the next one.
fn entry(bytes: &[u8], at: usize) -> Result<(Item<'_>, usize), Corrupt> {
    let rest = bytes.get(at..).ok_or(Corrupt)?;
    let string = |head: usize, len: usize| {
        let end = head.checked_add(len).ok_or(Corrupt)?;
        Ok((Item::Bytes(rest.get(head..end).ok_or(Corrupt)?), at + end))
    };
    let first = *rest.first().ok_or(Corrupt)?;
    let width = match first {
        0..0x40 => return string(1, usize::from(first)),
        0x40..0x80 => {
            return string(2, usize::from(first & 0x3f) << 8 | usize::from(*rest.get(1).ok_or(Corrupt)?));
        }
        0x80 => {
            let len = rest.get(1..).and_then(<[u8]>::first_chunk).ok_or(Corrupt)?;
            return string(5, u32::from_be_bytes(*len) as usize);
        }
        0xf1..0xfe => return Ok((Item::Int(i64::from(first - 0xf1)), at + 1)),
        0xc0 => 2,
        0xd0 => 4,
        0xe0 => 8,
        0xf0 => 3,
        0xfe => 1,
        _ => return Err(Corrupt),
    };
    Ok((Item::Int(signed(rest.get(1..1 + width).ok_or(Corrupt)?)), at + 1 + width))
}

/// The length at `at`, and the position behind it.
fn length(bytes: &[u8], at: usize) -> Result<(usize, usize), Corrupt> {
    match *bytes.get(at).ok_or(Corrupt)? {
        LONG => {
            let len = bytes.get(at + 1..).and_then(<[u8]>::first_chunk).ok_or(Corrupt)?;
            Ok((u32::from_le_bytes(*len) as usize, at + 5))
        }
        END => Err(Corrupt),
        len => Ok((usize::from(len), at + 1)),
    }
}

/// All fields of a zipmap, each followed by its value.
pub(super) fn read_zipmap(bytes: &[u8]) -> Result<Vec<Item<'_>>, Corrupt> {
    let count = *bytes.first().ok_or(Corrupt)?;
    let mut items = Vec::new();
    let mut at = 1;
    while *bytes.get(at).ok_or(Corrupt)? != END {
        let (len, start) = length(bytes, at)?;
        let end = start.checked_add(len).ok_or(Corrupt)?;
        list(&mut items, Item::Bytes(bytes.get(start..end).ok_or(Corrupt)?))?;
        let (len, unused_at) = length(bytes, end)?;
        let unused = usize::from(*bytes.get(unused_at).ok_or(Corrupt)?);
        let (start, end) = (unused_at + 1, (unused_at + 1).checked_add(len).ok_or(Corrupt)?);
        list(&mut items, Item::Bytes(bytes.get(start..end).ok_or(Corrupt)?))?;
        at = end + unused;
    }
    let counted = count >= LONG || usize::from(count) == items.len() / 2;
    if at + 1 == bytes.len() && counted && !items.is_empty() { Ok(items) } else { Err(Corrupt) }
}
