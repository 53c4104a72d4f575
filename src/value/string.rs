//! A string value, as SET stores it.
//!
//! A decimal integer is stored as a number, so that a counter needs no allocation and INCR no parsing. A short text is
//! stored inside the value: in its entry or, up to 14 bytes, in an owned value. A longer text is one thin allocation. A
//! string that was edited in place (APPEND, SETRANGE, SETBIT) stays growable and reports `raw`, as in Redis.

use std::borrow::Cow;

use super::Layout;
use super::thin_bytes::ThinBytes;
use crate::base::num;

/// The longest text that lies inside an owned value.
const INLINE_BYTES: usize = 14;

/// The longest string that OBJECT ENCODING calls `embstr`: Redis allocates it together with its header.
const EMBSTR_MAX_BYTES: usize = 44;

/// The longest text that can be an `i64`.
const INTEGER_MAX_BYTES: usize = 20;

/// A string value. See the module's header.
#[derive(Clone, Debug)]
pub enum StringValue {
    /// A canonical decimal integer.
    Int(i64),
    /// A text of up to 14 bytes.
    Inline {
        /// The number of `bytes` in use.
        len: u8,
        /// The text, then zeros.
        bytes: [u8; INLINE_BYTES],
    },
    /// A longer text, written once.
    Heap(ThinBytes),
    /// A text edited in place at least once.
    Raw(ThinBytes),
}

/// A string value as it is read, wherever it is stored.
#[derive(Clone, Copy, Debug)]
pub enum StringRef<'a> {
    /// A canonical decimal integer.
    Int(i64),
    /// A short text, stored inside the value.
    Short(&'a [u8]),
    /// A longer text, written once.
    Heap(&'a ThinBytes),
    /// A text edited in place at least once.
    Raw(&'a ThinBytes),
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

    /// Copies `bytes` unchanged, even if they are an integer.
    #[inline]
    pub fn plain(bytes: &[u8]) -> StringValue {
        if bytes.len() > INLINE_BYTES {
            return StringValue::Heap(ThinBytes::new(bytes));
        }
        let mut inline = [0; INLINE_BYTES];
        inline[..bytes.len()].copy_from_slice(bytes);
        StringValue::Inline { len: bytes.len() as u8, bytes: inline }
    }

    /// The value, for reading.
    #[inline]
    pub fn as_ref(&self) -> StringRef<'_> {
        match self {
            StringValue::Int(value) => StringRef::Int(*value),
            StringValue::Inline { len, bytes } => StringRef::Short(&bytes[..*len as usize]),
            StringValue::Heap(bytes) => StringRef::Heap(bytes),
            StringValue::Raw(bytes) => StringRef::Raw(bytes),
        }
    }

    /// The text as a growable buffer. From now on the value reports `raw`.
    pub fn make_raw(&mut self) -> &mut ThinBytes {
        if let StringValue::Heap(bytes) = self {
            *self = StringValue::Raw(std::mem::take(bytes));
        } else if !matches!(self, StringValue::Raw(_)) {
            *self = StringValue::Raw(ThinBytes::new(self.as_ref().as_bytes(&mut Digits::new())));
        }
        match self {
            StringValue::Raw(bytes) => bytes,
            _ => unreachable!("made raw above"),
        }
    }

    /// Changes the layout. Returns false if a string cannot have this layout.
    pub fn take_layout(&mut self, layout: Layout) -> bool {
        match (layout, &mut *self) {
            (Layout::Integers, _) => return false,
            (Layout::Large, _) => _ = self.make_raw(),
            (Layout::Compact, StringValue::Raw(bytes)) if bytes.len() > INLINE_BYTES => {
                *self = StringValue::Heap(std::mem::take(bytes));
            }
            (Layout::Compact, StringValue::Raw(bytes)) => *self = StringValue::plain(bytes),
            (Layout::Compact, _) => {}
        }
        true
    }
}

impl From<StringRef<'_>> for StringValue {
    fn from(string: StringRef<'_>) -> StringValue {
        match string {
            StringRef::Int(value) => StringValue::Int(value),
            StringRef::Short(bytes) => StringValue::plain(bytes),
            StringRef::Heap(bytes) => StringValue::Heap(bytes.clone()),
            StringRef::Raw(bytes) => StringValue::Raw(bytes.clone()),
        }
    }
}

impl<'a> StringRef<'a> {
    /// The text; `digits` holds it when the value is a number.
    #[inline]
    pub fn as_bytes<'d>(self, digits: &'d mut Digits) -> &'d [u8]
    where
        'a: 'd,
    {
        match self {
            StringRef::Int(value) => digits.format(value).as_bytes(),
            StringRef::Short(bytes) => bytes,
            StringRef::Heap(bytes) | StringRef::Raw(bytes) => bytes,
        }
    }

    /// The text, borrowed unless the value is a number.
    pub fn text(self) -> Cow<'a, [u8]> {
        match self {
            StringRef::Int(value) => Cow::Owned(Digits::new().format(value).as_bytes().to_vec()),
            StringRef::Short(bytes) => Cow::Borrowed(bytes),
            StringRef::Heap(bytes) | StringRef::Raw(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// Length of the text in bytes.
    pub fn len(self) -> usize {
        self.as_bytes(&mut Digits::new()).len()
    }

    /// Whether the text is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value as a number, if it is a canonical integer.
    #[inline]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            StringRef::Int(value) => Some(value),
            other => num::parse_i64(other.as_bytes(&mut Digits::new())),
        }
    }

    /// Redis' name of the representation: `int`, `embstr` or `raw`.
    pub fn encoding(self) -> &'static str {
        match self {
            StringRef::Int(_) => "int",
            StringRef::Short(_) | StringRef::Heap(_) if self.len() <= EMBSTR_MAX_BYTES => "embstr",
            StringRef::Short(_) | StringRef::Heap(_) | StringRef::Raw(_) => "raw",
        }
    }

    /// The layout: a text that was edited in place is not compact.
    pub fn layout(self) -> Layout {
        if let StringRef::Raw(_) = self { Layout::Large } else { Layout::Compact }
    }

    /// Bytes held outside the value's own place.
    pub fn heap_bytes(self) -> usize {
        match self {
            StringRef::Int(_) | StringRef::Short(_) => 0,
            StringRef::Heap(bytes) | StringRef::Raw(bytes) => bytes.heap_bytes(),
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
            assert_eq!(value.as_ref().encoding(), encoding, "{bytes:?}");
            assert_eq!(value.as_ref().as_bytes(&mut Digits::new()), bytes);
        }
    }

    #[test]
    fn editing_makes_a_string_raw_and_keeps_the_text() {
        let mut value = StringValue::new(b"12");
        value.make_raw().append(b"3");
        assert_eq!((value.as_ref().encoding(), value.as_ref().as_i64()), ("raw", Some(123)));
        assert_eq!(size_of::<StringValue>(), 16);
    }
}
