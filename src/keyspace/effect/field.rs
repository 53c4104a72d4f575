//! The fields of effects: how values are encoded, decoded and displayed.

use crate::value::Layout;
use crate::value::grants::Kind;
use crate::value::leb128::put_number;
use crate::value::stock::Memory;
use crate::value::stream::StreamId;

/// A value in an effect.
pub trait Field<'a>: Sized {
    /// Appends the encoded value.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes an encoded value off the front. Returns `None` if the bytes end or cannot be decoded.
    fn take(input: &mut &'a [u8]) -> Option<Self>;
    /// The value for display.
    fn shown(&self) -> Shown<'a>;
}

/// A field of an effect, for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown<'a> {
    /// A byte string.
    Bytes(&'a [u8]),
    /// A count, a time, or a boolean as 0 or 1.
    Integer(i64),
    /// A score.
    Double(f64),
    /// An ID of a stream entry.
    Id(StreamId),
    /// An absent value.
    Nothing,
}

impl<'a> Field<'a> for StreamId {
    fn put(&self, out: &mut Vec<u8>) {
        self.ms.put(out);
        self.seq.put(out);
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        Some(StreamId { ms: u64::take(input)?, seq: u64::take(input)? })
    }
    fn shown(&self) -> Shown<'a> {
        Shown::Id(*self)
    }
}

impl<'a> Field<'a> for Option<u64> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.unwrap_or(0).put(out);
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        let is_known = bool::take(input)?;
        let value = u64::take(input)?;
        Some(is_known.then_some(value))
    }
    fn shown(&self) -> Shown<'a> {
        self.map_or(Shown::Nothing, |value| value.shown())
    }
}

/// Pairs of byte strings inside one field, one after the other, each string with its length.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// Reads pairs written by [`put`](Self::put).
    pub fn new(encoded: &'a [u8]) -> Pairs<'a> {
        Pairs { rest: encoded }
    }

    /// Appends one pair.
    pub fn put(out: &mut Vec<u8>, first: &'a [u8], second: &'a [u8]) {
        first.put(out);
        second.put(out);
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((Field::take(&mut self.rest)?, Field::take(&mut self.rest)?))
    }
}

/// Byte strings inside one field, one after the other, each with its length.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a> {
    rest: &'a [u8],
}

impl<'a> Strings<'a> {
    /// Reads byte strings that were [put](Field::put) one after the other. Ends at the end of the bytes, or where they
    /// cannot be decoded.
    pub fn new(encoded: &'a [u8]) -> Strings<'a> {
        Strings { rest: encoded }
    }

    /// Whether no bytes remain. Bytes that remain after the iterator has ended cannot be decoded.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut rest = self.rest;
        let string = Field::take(&mut rest)?;
        self.rest = rest;
        Some(string)
    }
}

/// Strictly ascending numbers inside one field. Each is stored as the difference from the previous one, the first as
/// the difference from 0.
#[derive(Clone, Copy, Debug)]
pub struct Ascending<'a> {
    rest: &'a [u8],
    /// The previous number, `None` before the first.
    last: Option<u64>,
}

impl<'a> Ascending<'a> {
    /// Reads numbers written by [`encode`](Self::encode). Ends at the end of the bytes, or where they cannot be
    /// decoded.
    pub fn new(encoded: &'a [u8]) -> Ascending<'a> {
        Ascending { rest: encoded, last: None }
    }

    /// Encodes ascending numbers.
    pub fn encode(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let (mut out, mut last) = (Vec::new(), 0);
        for number in numbers {
            (number - last).put(&mut out);
            last = number;
        }
        out
    }

    /// Whether no bytes remain. Bytes that remain after the iterator has ended cannot be decoded.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

impl Iterator for Ascending<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let mut rest = self.rest;
        let more = u64::take(&mut rest)?;
        let number = match self.last {
            None => more,
            Some(last) => last.checked_add(more).filter(|_| more > 0)?,
        };
        (self.rest, self.last) = (rest, Some(number));
        Some(number)
    }
}

macro_rules! fixed_width {
    ($($type:ident as $shown:ident($as:ty)),*) => {$(
        impl<'a> Field<'a> for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn take(input: &mut &'a [u8]) -> Option<Self> {
                let (bytes, rest) = input.split_first_chunk()?;
                *input = rest;
                Some(<$type>::from_le_bytes(*bytes))
            }
            fn shown(&self) -> Shown<'a> {
                Shown::$shown(*self as $as)
            }
        }
    )*};
}
fixed_width!(u8 as Integer(i64), i64 as Integer(i64), f64 as Double(f64));

/// Seven bits per byte, least significant first; the top bit of a byte says that another byte follows.
impl<'a> Field<'a> for u64 {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_number(out, *self);
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = u8::take(input)?;
            let bits = u64::from(byte & 0x7f);
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // Each number has exactly one encoding: no bits beyond the 64th, and no redundant last byte.
                let is_canonical = value >> shift == bits && (byte != 0 || shift == 0);
                return is_canonical.then_some(value);
            }
        }
        None
    }
    fn shown(&self) -> Shown<'a> {
        Shown::Integer(*self as i64)
    }
}

macro_rules! narrow {
    ($($type:ident),*) => {$(
        impl<'a> Field<'a> for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                u64::from(*self).put(out);
            }
            fn take(input: &mut &'a [u8]) -> Option<Self> {
                u64::take(input)?.try_into().ok()
            }
            fn shown(&self) -> Shown<'a> {
                Shown::Integer(i64::from(*self))
            }
        }
    )*};
}
narrow!(u16, u32);

impl<'a> Field<'a> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        match u8::take(input)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn shown(&self) -> Shown<'a> {
        Shown::Integer(i64::from(*self))
    }
}

impl<'a> Field<'a> for &'a [u8] {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self);
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        let len = usize::try_from(u64::take(input)?).ok()?;
        let (bytes, rest) = input.split_at_checked(len)?;
        *input = rest;
        Some(bytes)
    }
    fn shown(&self) -> Shown<'a> {
        Shown::Bytes(self)
    }
}

/// A field with few possible values, each with its code and name.
macro_rules! choice {
    ($type:ident { $($code:literal $name:ident $shown:literal),* $(,)? }) => {
        impl<'a> Field<'a> for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $($type::$name => $code),* });
            }
            fn take(input: &mut &'a [u8]) -> Option<Self> {
                match u8::take(input)? {
                    $($code => Some($type::$name),)*
                    _ => None,
                }
            }
            fn shown(&self) -> Shown<'a> {
                Shown::Bytes(match self { $($type::$name => $shown),* })
            }
        }
    };
}

/// Why something was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A client or script asked for it.
    Command,
    /// Its time was over.
    Expiry,
    /// Memory was needed.
    Eviction,
}
choice!(Cause { 0 Command b"command", 1 Expiry b"expiry", 2 Eviction b"eviction" });
choice!(Kind { 0 Lock b"lock", 1 Gate b"gate", 2 Stock b"stock" });
choice!(Memory { 0 Refills b"refills", 1 Sales b"sales", 2 Buyers b"buyers" });
choice!(Layout { 0 Compact b"compact", 1 Integers b"integers", 2 Large b"large" });

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_have_one_encoding(
            value in any::<u64>(),
            shift in 0u32..64,
            bytes in proptest::collection::vec(any::<u8>(), 0..12),
        ) {
            let value = value >> shift;
            let mut encoded = Vec::new();
            value.put(&mut encoded);
            prop_assert_eq!(u64::take(&mut &encoded[..]), Some(value));
            let mut rest = &bytes[..];
            if let Some(value) = u64::take(&mut rest) {
                let mut encoded = Vec::new();
                value.put(&mut encoded);
                prop_assert_eq!(&encoded[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }

    #[test]
    fn ascending_numbers_are_encoded_by_their_differences() {
        for numbers in [&[][..], &[0], &[7], &[0, 1, 300, u64::MAX]] {
            let encoded = Ascending::encode(numbers.iter().copied());
            let mut read = Ascending::new(&encoded);
            assert_eq!((read.by_ref().collect::<Vec<_>>(), read.is_empty()), (numbers.to_vec(), true));
        }
        for (encoded, numbers) in [(&[1, 0][..], 1), (&[1, 0x80], 1), (&[&[1][..], &[0xff; 9], &[1]].concat(), 1)] {
            let mut read = Ascending::new(encoded);
            assert_eq!((read.by_ref().count(), read.is_empty()), (numbers, false), "{encoded:?}");
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let too_large = [&[0xff; 9][..], &[2]].concat();
        assert_eq!((u64::take(&mut &too_large[..]), u64::take(&mut &[0x80, 0][..])), (None, None));
        assert_eq!(u16::take(&mut &[0x80, 0x80, 4][..]), None, "65,536");
        assert_eq!((bool::take(&mut &[2][..]), Cause::take(&mut &[3][..])), (None, None));
        assert_eq!(<&[u8]>::take(&mut &[2, b'a'][..]), None);
    }
}
