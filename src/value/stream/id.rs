//! The ids of entries: a time in ms and a number within it, written `ms-seq`.

use std::fmt;

/// The id of an entry: a time in ms and a number within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since the Unix epoch, if the server makes the ids.
    pub ms: u64,
    /// The number of the entry among those of one ms.
    pub seq: u64,
}

impl StreamId {
    /// `0-0`: before every entry; never the id of an entry.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The id right after, `None` after the highest.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The id right before, `None` before `0-0`.
    pub fn prev(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Reads `ms-seq`, or `ms` alone, which gets the sequence number that the caller's command implies.
    pub fn parse(text: &[u8], missing_seq: u64) -> Option<StreamId> {
        match text.iter().position(|&byte| byte == b'-') {
            None => Some(StreamId { ms: parse_u64(text)?, seq: missing_seq }),
            Some(dash) => Some(StreamId { ms: parse_u64(&text[..dash])?, seq: parse_u64(&text[dash + 1..])? }),
        }
    }

    /// Like [`StreamId::parse`]; also, `-` is the lowest id and `+` the highest.
    pub fn parse_or_edge(text: &[u8], missing_seq: u64) -> Option<StreamId> {
        match text {
            b"-" => Some(StreamId::MIN),
            b"+" => Some(StreamId::MAX),
            _ => StreamId::parse(text, missing_seq),
        }
    }

    /// One end of a range: like [`StreamId::parse_or_edge`], or `(id`, which excludes the id itself (then `true`; `-`
    /// and `+` cannot be excluded).
    pub fn parse_bound(text: &[u8], missing_seq: u64) -> Option<(StreamId, bool)> {
        match text.split_first() {
            Some((b'(', rest)) if !rest.is_empty() => Some((StreamId::parse(rest, missing_seq)?, true)),
            _ => Some((StreamId::parse_or_edge(text, missing_seq)?, false)),
        }
    }

    /// The id as text.
    pub fn to_text(self) -> IdText {
        let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (ms, seq) = (ms.format(self.ms).as_bytes(), seq.format(self.seq).as_bytes());
        let mut bytes = [0; ID_TEXT_MAX];
        bytes[..ms.len()].copy_from_slice(ms);
        bytes[ms.len()] = b'-';
        bytes[ms.len() + 1..][..seq.len()].copy_from_slice(seq);
        IdText { bytes, len: (ms.len() + 1 + seq.len()) as u8 }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
        f.write_str(ms.format(self.ms))?;
        f.write_str("-")?;
        f.write_str(seq.format(self.seq))
    }
}

const ID_TEXT_MAX: usize = 41;

/// An id as text, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct IdText {
    bytes: [u8; ID_TEXT_MAX],
    len: u8,
}

impl IdText {
    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Decimal; leading whitespace, zeros and a plus sign are allowed, as in Redis' ids.
fn parse_u64(text: &[u8]) -> Option<u64> {
    let spaces = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let text = &text[spaces..];
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// The id requested for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// `*`: the current time, or the id right after the last one if the clock is behind it.
    Auto,
    /// `ms-*`: the next sequence number within `ms`.
    AutoSeq(u64),
    /// Exactly this id.
    Exact(StreamId),
}

impl NewId {
    /// Reads `*`, `ms-*`, `ms-seq` or `ms` (which means `ms-0`).
    pub fn parse(text: &[u8]) -> Option<NewId> {
        if text == b"*" {
            return Some(NewId::Auto);
        }
        match text.strip_suffix(b"-*") {
            Some(ms) => parse_u64(ms).map(NewId::AutoSeq),
            None => StreamId::parse(text, 0).map(NewId::Exact),
        }
    }
}

/// A failure to assign an id to a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewIdError {
    /// The requested id, or every id that the request allows, is not above the last one.
    #[error("the id is not above the stream's last id")]
    NotAboveLast,
    /// The last id is the highest possible.
    #[error("the stream has used the highest id")]
    Exhausted,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn ids_are_read_and_written() {
        assert_eq!(StreamId::parse(b"5-7", 0), Some(id(5, 7)));
        assert_eq!(StreamId::parse(b"5", 9), Some(id(5, 9)));
        assert_eq!(StreamId::parse(b"007-01", 9), Some(id(7, 1)));
        assert_eq!(StreamId::parse(b"18446744073709551615-18446744073709551615", 0), Some(StreamId::MAX));
        for wrong in ["", "-", "+", "5-", "-5", "a", "5-6-7", "18446744073709551616", "5-*", "5 ", "*"] {
            assert_eq!(StreamId::parse(wrong.as_bytes(), 0), None, "{wrong}");
        }
        assert_eq!(StreamId::parse_bound(b"-", 0), Some((StreamId::MIN, false)));
        assert_eq!(StreamId::parse_bound(b"+", 0), Some((StreamId::MAX, false)));
        assert_eq!(StreamId::parse_bound(b"(5-1", 0), Some((id(5, 1), true)));
        assert_eq!(StreamId::parse_bound(b"(+", 0), None);
        assert_eq!(StreamId::parse_bound(b"(", 0), None);
        assert_eq!(NewId::parse(b"*"), Some(NewId::Auto));
        assert_eq!(NewId::parse(b"12-*"), Some(NewId::AutoSeq(12)));
        assert_eq!(NewId::parse(b"12"), Some(NewId::Exact(id(12, 0))));
        assert_eq!(NewId::parse(b"-*"), None);
        assert_eq!(StreamId::MAX.to_text().as_bytes(), b"18446744073709551615-18446744073709551615");
        assert_eq!(id(1, 2).to_text().as_bytes(), b"1-2");
    }

    #[test]
    fn neighbours_of_ids() {
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).prev(), Some(id(1, u64::MAX)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::MIN.prev(), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(
            text in proptest::collection::vec(prop_oneof![Just(b'-'), Just(b'9'), any::<u8>()], 0..45),
        ) {
            StreamId::parse_bound(&text, 0);
            NewId::parse(&text);
        }
    }
}
