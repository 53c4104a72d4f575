//! The tape: a command's reply to a script. It is a flat sequence of tagged tokens that is cheaper to write and to read
//! than RESP: numbers are not formatted, lengths have a fixed width, and nothing is searched for.
//!
//! A token is one tag byte followed by nothing, by an 8-byte little-endian number or count, or by an 8-byte length and
//! that many bytes. An aggregate's elements follow it; a map's alternate between keys and values.

/// One token. The elements of an aggregate are the tokens that follow it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// A missing value.
    Null,
    /// A missing array, which RESP2 distinguishes from a missing value.
    NullArray,
    /// An integer.
    Integer(i64),
    /// A byte string.
    Bulk(&'a [u8]),
    /// A status such as `OK`.
    Status(&'a [u8]),
    /// An error, beginning with its code.
    Error(&'a [u8]),
    /// This many elements follow.
    Array(usize),
    /// This many pairs follow.
    Map(usize),
    /// This many members follow.
    Set(usize),
    /// A double.
    Double(f64),
    /// A boolean.
    Boolean(bool),
    /// An integer too large for 64 bits, in decimal.
    BigNumber(&'a [u8]),
    /// A text with its three-letter format.
    Verbatim(&'a [u8], &'a [u8]),
}

#[repr(u8)]
#[derive(Clone, Copy)]
enum Tag {
    Null,
    NullArray,
    Integer,
    Bulk,
    Status,
    Error,
    Array,
    Map,
    Set,
    Double,
    False,
    True,
    BigNumber,
    Verbatim,
}

/// Appends one token to a tape.
#[inline]
pub(crate) fn write(tape: &mut Vec<u8>, token: Token<'_>) {
    match token {
        Token::Null => tape.push(Tag::Null as u8),
        Token::NullArray => tape.push(Tag::NullArray as u8),
        Token::Integer(value) => number(tape, Tag::Integer, value.to_le_bytes()),
        Token::Bulk(bytes) => text(tape, Tag::Bulk, bytes),
        Token::Status(bytes) => text(tape, Tag::Status, bytes),
        Token::Error(bytes) => text(tape, Tag::Error, bytes),
        Token::Array(n) => count(tape, Tag::Array, n),
        Token::Map(n) => count(tape, Tag::Map, n),
        Token::Set(n) => count(tape, Tag::Set, n),
        Token::Double(value) => number(tape, Tag::Double, value.to_le_bytes()),
        Token::Boolean(value) => tape.push(if value { Tag::True } else { Tag::False } as u8),
        Token::BigNumber(digits) => text(tape, Tag::BigNumber, digits),
        Token::Verbatim(format, bytes) => {
            count(tape, Tag::Verbatim, bytes.len() + 3);
            tape.extend_from_slice(format);
            tape.extend_from_slice(bytes);
        }
    }
}

#[inline]
fn number(tape: &mut Vec<u8>, tag: Tag, bytes: [u8; 8]) {
    tape.push(tag as u8);
    tape.extend_from_slice(&bytes);
}

#[inline]
fn count(tape: &mut Vec<u8>, tag: Tag, n: usize) {
    number(tape, tag, (n as u64).to_le_bytes());
}

#[inline]
fn text(tape: &mut Vec<u8>, tag: Tag, bytes: &[u8]) {
    count(tape, tag, bytes.len());
    tape.extend_from_slice(bytes);
}

/// The text of the error that a tape begins with, if there is one.
pub(crate) fn error_in(tape: &[u8]) -> Option<&[u8]> {
    match TapeReader::new(tape).next() {
        Some(Token::Error(text)) => Some(text),
        _ => None,
    }
}

/// Whether a tape is exactly one whole value that can be written as a reply in any form. For tapes from places that
/// clients can write to.
pub(crate) fn is_one_value(tape: &[u8]) -> bool {
    let mut reader = TapeReader::new(tape);
    // The number of values still to come.
    let mut open = 1_usize;
    while open > 0 {
        let elements = match reader.next() {
            None => return false,
            Some(Token::Array(n) | Token::Set(n)) => Some(n),
            Some(Token::Map(pairs)) => pairs.checked_mul(2),
            Some(Token::Status(text)) if text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) => None,
            Some(_) => Some(0),
        };
        // Each takes at least one byte.
        let Some(left) = elements.and_then(|n| (open - 1).checked_add(n)).filter(|left| *left <= reader.rest.len())
        else {
            return false;
        };
        open = left;
    }
    reader.rest.is_empty()
}

/// Reads a tape from its start. Ends at the first thing that is not a whole token; a tape written here has no such
/// thing.
#[derive(Clone, Debug)]
pub(crate) struct TapeReader<'a> {
    rest: &'a [u8],
}

impl<'a> TapeReader<'a> {
    /// Reads `tape` from its start.
    #[inline]
    pub(crate) fn new(tape: &'a [u8]) -> TapeReader<'a> {
        TapeReader { rest: tape }
    }

    #[inline]
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn number(&mut self) -> Option<[u8; 8]> {
        self.take(8)?.try_into().ok()
    }

    #[inline]
    fn count(&mut self) -> Option<usize> {
        Some(u64::from_le_bytes(self.number()?) as usize)
    }

    #[inline]
    fn text(&mut self) -> Option<&'a [u8]> {
        let n = self.count()?;
        self.take(n)
    }
}

impl<'a> Iterator for TapeReader<'a> {
    type Item = Token<'a>;

    #[inline]
    fn next(&mut self) -> Option<Token<'a>> {
        const NULL: u8 = Tag::Null as u8;
        const NULL_ARRAY: u8 = Tag::NullArray as u8;
        const INTEGER: u8 = Tag::Integer as u8;
        const BULK: u8 = Tag::Bulk as u8;
        const STATUS: u8 = Tag::Status as u8;
        const ERROR: u8 = Tag::Error as u8;
        const ARRAY: u8 = Tag::Array as u8;
        const MAP: u8 = Tag::Map as u8;
        const SET: u8 = Tag::Set as u8;
        const DOUBLE: u8 = Tag::Double as u8;
        const FALSE: u8 = Tag::False as u8;
        const TRUE: u8 = Tag::True as u8;
        const BIG_NUMBER: u8 = Tag::BigNumber as u8;
        const VERBATIM: u8 = Tag::Verbatim as u8;
        Some(match self.take(1)?[0] {
            NULL => Token::Null,
            NULL_ARRAY => Token::NullArray,
            INTEGER => Token::Integer(i64::from_le_bytes(self.number()?)),
            BULK => Token::Bulk(self.text()?),
            STATUS => Token::Status(self.text()?),
            ERROR => Token::Error(self.text()?),
            ARRAY => Token::Array(self.count()?),
            MAP => Token::Map(self.count()?),
            SET => Token::Set(self.count()?),
            DOUBLE => Token::Double(f64::from_le_bytes(self.number()?)),
            FALSE => Token::Boolean(false),
            TRUE => Token::Boolean(true),
            BIG_NUMBER => Token::BigNumber(self.text()?),
            VERBATIM => {
                let (format, bytes) = self.text()?.split_at_checked(3)?;
                Token::Verbatim(format, bytes)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_lengths_have_64_bits() {
        let mut tape = Vec::new();
        write(&mut tape, Token::Array((1 << 32) + 1));
        assert_eq!(TapeReader::new(&tape).next(), Some(Token::Array((1 << 32) + 1)));
    }

    #[test]
    fn only_one_whole_value_is_accepted() {
        let tape = |tokens: &[Token<'_>]| {
            let mut tape = Vec::new();
            tokens.iter().for_each(|token| write(&mut tape, *token));
            tape
        };
        let map = [Token::Map(1), Token::Status(b"k"), Token::Set(2), Token::Null, Token::Boolean(true)];
        for tokens in [&[Token::NullArray][..], &[Token::Array(0)], &[Token::Array(2), Token::Null, Token::Null], &map]
        {
            let whole = tape(tokens);
            assert!(is_one_value(&whole), "{tokens:?}");
            for cut in 0..whole.len() {
                assert!(!is_one_value(&whole[..cut]), "{tokens:?} up to {cut}");
            }
            assert!(!is_one_value(&[&whole[..], &[0]].concat()), "{tokens:?} and more");
        }
        for tokens in [
            &[Token::Array(usize::MAX), Token::Null][..],
            &[Token::Map(usize::MAX / 2 + 1)],
            &[Token::Array(2), Token::Array(usize::MAX), Token::Null],
            &[Token::Status(b"OK\r\n+OK")],
        ] {
            assert!(!is_one_value(&tape(tokens)), "{tokens:?}");
        }
        assert!(!is_one_value(&[200]));
    }

    #[test]
    fn every_token_reads_back() {
        let tokens = [
            Token::Array(3),
            Token::Null,
            Token::NullArray,
            Token::Integer(i64::MIN),
            Token::Bulk(b"a\0b"),
            Token::Status(b"OK"),
            Token::Error(b"ERR no"),
            Token::Map(1),
            Token::Set(2),
            Token::Double(-0.5),
            Token::Boolean(true),
            Token::Boolean(false),
            Token::BigNumber(b"123456789012345678901234567890"),
            Token::Verbatim(b"txt", b"hello"),
        ];
        let mut tape = Vec::new();
        tokens.iter().for_each(|token| write(&mut tape, *token));
        assert_eq!(TapeReader::new(&tape).collect::<Vec<_>>(), tokens);
        assert!(TapeReader::new(&tape[..tape.len() - 1]).count() == tokens.len() - 1);
    }
}
