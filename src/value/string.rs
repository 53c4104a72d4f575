//! A string value: what SET stores.
//!
//! A decimal integer is kept as a number, so that a counter costs no allocation and INCR no parsing. Up to 14 bytes stand
//! inline; longer strings are one thin allocation. A string that was edited in place (APPEND, SETRANGE, SETBIT) stays
//! growable and says `raw`, as it does in Redis.

use std::borrow::Cow;

use super::thin_bytes::ThinBytes;
use crate::base::num;

/// Longest string that lies inside its entry.
const INLINE_BYTES: usize = 14;

/// Longest string that OBJECT ENCODING calls `embstr`: Redis allocates it together with its header.
const EMBSTR_MAX_BYTES: usize = 44;

/// Longest text that can be an `i64`.
const INTEGER_MAX_BYTES: usize = 20;

/// A string value. See the module's header.
#[derive(Clone, Debug)]
pub enum StringValue {
    /// A canonical decimal integer.
    Int(i64),
    /// Up to 14 bytes.
    Inline {
        /// How many of `bytes` count.
        len: u8,
        /// The text, then zeroes.
        bytes: [u8; INLINE_BYTES],
    },
    /// Longer, written once.
    Heap(ThinBytes),
    /// Edited in place at least once.
    Raw(ThinBytes),
}

/// Room for the digits of a number that is read as text.
pub(crate) type Digits = itoa::Buffer;

impl StringValue {
    /// Copies `bytes`; a canonical integer becomes a number.
    #[inline]
    pub fn new(bytes: &[u8]) -> StringValue {
        if bytes.len() <= INTEGER_MAX_BYTES
            && let Some(value) = num::parse_i64(bytes)
        {
            return StringValue::Int(value);
        }
        StringValue::plain(bytes)
    }

    /// Copies `bytes` as they are, whatever they say.
    #[inline]
    pub fn plain(bytes: &[u8]) -> StringValue {
        if bytes.len() > INLINE_BYTES {
            return StringValue::Heap(ThinBytes::new(bytes));
        }
        let mut inline = [0; INLINE_BYTES];
        inline[..bytes.len()].copy_from_slice(bytes);
        StringValue::Inline { len: bytes.len() as u8, bytes: inline }
    }

    /// The text; `digits` holds it when the value is a number.
    #[inline]
    pub fn as_bytes<'a>(&'a self, digits: &'a mut Digits) -> &'a [u8] {
        match self {
            StringValue::Int(value) => digits.format(*value).as_bytes(),
            StringValue::Inline { len, bytes } => &bytes[..*len as usize],
            StringValue::Heap(bytes) | StringValue::Raw(bytes) => bytes,
        }
    }

    /// Length of the text in bytes.
    pub fn len(&self) -> usize {
        self.as_bytes(&mut Digits::new()).len()
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number it is, if it is a canonical integer.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            StringValue::Int(value) => Some(*value),
            other => num::parse_i64(other.as_bytes(&mut Digits::new())),
        }
    }

    /// The text as a growable buffer; the value says `raw` from now on.
    pub fn make_raw(&mut self) -> &mut ThinBytes {
        if let StringValue::Heap(bytes) = self {
            *self = StringValue::Raw(std::mem::take(bytes));
        } else if !matches!(self, StringValue::Raw(_)) {
            *self = StringValue::Raw(ThinBytes::new(self.as_bytes(&mut Digits::new())));
        }
        match self {
            StringValue::Raw(bytes) => bytes,
            _ => unreachable!("made raw above"),
        }
    }

    /// Gives a text the representation of one that was written once.
    pub fn make_plain(&mut self) {
        if let StringValue::Raw(bytes) = self {
            let bytes = std::mem::take(bytes);
            *self = if bytes.len() > INLINE_BYTES { StringValue::Heap(bytes) } else { StringValue::plain(&bytes) };
        }
    }

    /// Writes `bytes` from `offset` on, zeroes before when the text was shorter, and answers the new length. Without bytes
    /// it only grows to `offset`.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> usize {
        let text = self.make_raw();
        if text.len() < offset {
            text.reserve(offset - text.len() + bytes.len());
            text.append_zeroes(offset - text.len());
        }
        let inside = bytes.len().min(text.len() - offset);
        text[offset..][..inside].copy_from_slice(&bytes[..inside]);
        text.append(&bytes[inside..]);
        text.len()
    }

    /// Replaces `removed` bytes from `offset` on by others; answers false, and changes nothing, when there are not so many.
    pub fn splice(&mut self, offset: usize, removed: usize, bytes: &[u8]) -> bool {
        let len = self.len();
        let Some(tail) = offset.checked_add(removed).filter(|tail| *tail <= len) else { return false };
        let text = self.make_raw();
        let new_len = len - removed + bytes.len();
        text.append_zeroes(new_len.saturating_sub(len));
        text.copy_within(tail..len, offset + bytes.len());
        text.truncate(new_len);
        text[offset..][..bytes.len()].copy_from_slice(bytes);
        true
    }

    /// The text, borrowed unless the value is a number.
    pub fn text(&self) -> Cow<'_, [u8]> {
        match self {
            StringValue::Int(value) => Cow::Owned(Digits::new().format(*value).as_bytes().to_vec()),
            StringValue::Inline { len, bytes } => Cow::Borrowed(&bytes[..*len as usize]),
            StringValue::Heap(bytes) | StringValue::Raw(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// Redis' name of the representation: `int`, `embstr` or `raw`.
    pub fn encoding(&self) -> &'static str {
        match self {
            StringValue::Int(_) => "int",
            StringValue::Inline { .. } => "embstr",
            StringValue::Heap(bytes) if bytes.len() <= EMBSTR_MAX_BYTES => "embstr",
            StringValue::Heap(_) | StringValue::Raw(_) => "raw",
        }
    }

    /// Bytes held outside the entry.
    pub fn heap_bytes(&self) -> usize {
        match self {
            StringValue::Int(_) | StringValue::Inline { .. } => 0,
            StringValue::Heap(bytes) | StringValue::Raw(bytes) => bytes.heap_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn representation_follows_the_text() {
        let cases: [(&[u8], &str); 7] = [
            (b"123", "int"),
            (b"-9223372036854775808", "int"),
            (b"0123", "embstr"),
            (b"", "embstr"),
            (&[b'x'; 44], "embstr"),
            (&[b'x'; 45], "raw"),
            (b"99999999999999999999", "embstr"),
        ];
        for (bytes, encoding) in cases {
            let value = StringValue::new(bytes);
            assert_eq!(value.encoding(), encoding, "{bytes:?}");
            assert_eq!(value.as_bytes(&mut Digits::new()), bytes);
        }
    }

    #[test]
    fn writing_far_behind_the_end_fills_with_zeroes() {
        let mut value = StringValue::new(b"12");
        assert_eq!(value.write_at(100_000_000, b"xy"), 100_000_002);
        let text = value.text();
        assert!(text.starts_with(b"12\0") && text.ends_with(b"\0xy"));
        assert!(text[2..100_000_000].iter().all(|byte| *byte == 0));
        assert_eq!(value.write_at(1, b"zz"), 100_000_002);
        assert!(value.text().starts_with(b"1zz\0"));
    }

    #[test]
    fn editing_makes_it_raw_and_keeps_the_text() {
        let mut value = StringValue::new(b"12");
        value.make_raw().append(b"3");
        assert_eq!((value.encoding(), value.as_i64()), ("raw", Some(123)));
        assert_eq!(size_of::<StringValue>(), 16);
    }
}
