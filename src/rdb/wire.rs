//! The elements of all RDB data: lengths and strings.
//!
//! ```text
//! 00 nnnnnn                    a length of 6 bits
//! 01 nnnnnn nnnnnnnn           of 14 bits, most significant first
//! 1000 0000, 4 bytes           of 32 bits, most significant first
//! 1000 0001, 8 bytes           of 64 bits, most significant first
//! 11 00 0000, 1 byte           instead of a string: an integer of 8 bits, signed
//! 11 00 0001, 2 bytes          of 16 bits, least significant first
//! 11 00 0010, 4 bytes          of 32 bits, least significant first
//! 11 00 0011, packed, whole    instead of a string: lengths, then bytes packed by LZF
//!
//! string = length, bytes
//! ```

use std::borrow::Cow;

use super::lzf;
use crate::base::num::parse_i64;

const BITS_14: u8 = 0x40;
const BITS_32: u8 = 0x80;
const BITS_64: u8 = 0x81;
const INT_8: u8 = 0xc0;
const INT_16: u8 = 0xc1;
const INT_32: u8 = 0xc2;
const LZF: u8 = 0xc3;

/// The longest text of an integer that is written as one.
const INTEGER_MAX_BYTES: usize = 11;

/// The bytes are not RDB, or are incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data is damaged or of an unknown kind")]
pub struct Corrupt;

/// The meaning of a length, or of the beginning of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// A length.
    Number(u64),
    /// An integer of this many bytes in place of a string.
    Integer(u64),
    /// Two lengths and packed bytes in place of a string.
    Packed,
}

impl Head {
    /// Reads a first byte and the [bytes that belong to it](bytes_behind).
    pub(crate) fn of(bytes: &[u8]) -> Option<Head> {
        match *bytes.first()? {
            INT_8 => Some(Head::Integer(1)),
            INT_16 => Some(Head::Integer(2)),
            INT_32 => Some(Head::Integer(4)),
            LZF => Some(Head::Packed),
            _ => Input::new(bytes, 0).number().ok().map(Head::Number),
        }
    }
}

/// The number of bytes that follow the first byte of a length, or of the beginning of a string.
pub(crate) fn bytes_behind(first: u8) -> Option<usize> {
    match first {
        0..BITS_14 | INT_8..=LZF => Some(0),
        BITS_14..BITS_32 => Some(1),
        BITS_32 => Some(4),
        BITS_64 => Some(8),
        _ => None,
    }
}

/// Bytes that are read from their start.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
    /// The number of bytes that packed strings may still unpack to.
    unpacked_left: usize,
}

impl<'a> Input<'a> {
    /// Reads `bytes`. The packed strings among them may unpack to `unpacked_max` bytes in all.
    pub(crate) fn new(bytes: &'a [u8], unpacked_max: usize) -> Input<'a> {
        Input { rest: bytes, unpacked_left: unpacked_max }
    }

    /// Whether everything has been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes that have not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Result<u8, Corrupt> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Corrupt)?;
        self.rest = rest;
        Ok(*array)
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Corrupt)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A count, such as of elements: any 64-bit number.
    pub(crate) fn number(&mut self) -> Result<u64, Corrupt> {
        let first = self.byte()?;
        self.number_behind(first)
    }

    /// A count that must fit the rest of the input: each counted element takes at least one byte.
    pub(crate) fn count(&mut self) -> Result<usize, Corrupt> {
        let count = self.number()?;
        usize::try_from(count).ok().filter(|count| *count <= self.rest.len()).ok_or(Corrupt)
    }

    /// Counts bytes that result from unpacking a few.
    pub(crate) fn unpack(&mut self, bytes: usize) -> Result<(), Corrupt> {
        self.unpacked_left = self.unpacked_left.checked_sub(bytes).ok_or(Corrupt)?;
        Ok(())
    }

    /// A string.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, [u8]>, Corrupt> {
        let integer = match self.byte()? {
            INT_8 => i64::from(i8::from_le_bytes(self.array()?)),
            INT_16 => i64::from(i16::from_le_bytes(self.array()?)),
            INT_32 => i64::from(i32::from_le_bytes(self.array()?)),
            LZF => return self.packed().map(Cow::Owned),
            first => {
                let len = self.number_behind(first)?;
                return self.take(usize::try_from(len).map_err(|_| Corrupt)?).map(Cow::Borrowed);
            }
        };
        Ok(Cow::Owned(itoa::Buffer::new().format(integer).as_bytes().to_vec()))
    }

    fn number_behind(&mut self, first: u8) -> Result<u64, Corrupt> {
        match first {
            0..BITS_14 => Ok(u64::from(first)),
            BITS_14..BITS_32 => Ok(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            BITS_32 => Ok(u64::from(u32::from_be_bytes(self.array()?))),
            BITS_64 => Ok(u64::from_be_bytes(self.array()?)),
            _ => Err(Corrupt),
        }
    }

    fn packed(&mut self) -> Result<Vec<u8>, Corrupt> {
        let (packed, whole) = (self.number()?, self.number()?);
        let packed = self.take(usize::try_from(packed).map_err(|_| Corrupt)?)?;
        let whole = usize::try_from(whole).map_err(|_| Corrupt)?;
        self.unpack(whole)?;
        lzf::unpack(packed, whole).ok_or(Corrupt)
    }
}

/// Appends a length.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u64) {
    if number < 1 << 6 {
        out.push(number as u8);
    } else if number < 1 << 14 {
        out.extend_from_slice(&(number as u16 | u16::from(BITS_14) << 8).to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        out.push(BITS_32);
        out.extend_from_slice(&number.to_be_bytes());
    } else {
        out.push(BITS_64);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// Appends a string. A text that is an integer of 32 bits is written as one.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    let integer = if text.len() <= INTEGER_MAX_BYTES { parse_i64(text) } else { None };
    match integer.and_then(|integer| i32::try_from(integer).ok()) {
        Some(integer) => put_integer(out, integer),
        None => put_bytes(out, text),
    }
}

/// Appends a string unchanged.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_integer(out: &mut Vec<u8>, integer: i32) {
    if let Ok(integer) = i8::try_from(integer) {
        out.push(INT_8);
        out.extend_from_slice(&integer.to_le_bytes());
    } else if let Ok(integer) = i16::try_from(integer) {
        out.push(INT_16);
        out.extend_from_slice(&integer.to_le_bytes());
    } else {
        out.push(INT_32);
        out.extend_from_slice(&integer.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_strings_read_back() {
        for number in [0, 63, 64, 16_383, 16_384, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(Input::new(&out, 0).number(), Ok(number));
            (0..out.len()).for_each(|cut| assert_eq!(Input::new(&out[..cut], 0).number(), Err(Corrupt)));
        }
        let texts = ["", "0", "-1", "127", "-129", "32768", "2147483647", "2147483648", "-2147483648", "007", "text"];
        for text in texts {
            let mut out = Vec::new();
            put_string(&mut out, text.as_bytes());
            let mut input = Input::new(&out, 0);
            assert_eq!(input.string().as_deref(), Ok(text.as_bytes()));
            assert!(input.is_empty());
            (0..out.len()).for_each(|cut| assert_eq!(Input::new(&out[..cut], 0).string(), Err(Corrupt)));
        }
    }

    #[test]
    fn packed_strings_stay_within_their_budget() {
        // Three literal "a", then eight more by looking back one byte.
        let packed = b"\xc3\x06\x0b\x02aaa\xc0\x00";
        let whole = |budget| Input::new(packed, budget).string().map(|text| text.len());
        assert_eq!(whole(11), Ok(11));
        assert_eq!(whole(10), Err(Corrupt));
        let bomb = b"\xc3\x03\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00a\x00";
        assert_eq!(Input::new(bomb, usize::MAX).string(), Err(Corrupt));
    }
}
