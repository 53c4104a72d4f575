//! Entries of a list in a buffer, each readable from either end.
//!
//! ```text
//! entry = length, bytes, backward length      (lengths are LEB128)
//! ```
//!
//! Elements are stored as the bytes that came in, so that reading one is a borrow.
//!
//! A few entries that are only read can do without the length at the end ([`Ending::None`]). They are then read from
//! the front.

use crate::value::leb128::{Reader, bytes_len, number_before, number_len, write_number};

/// Bytes of an entry.
pub(super) fn entry_len(value: &[u8]) -> usize {
    bytes_len(value) + number_len(value.len() as u64)
}

/// The entry that begins at `place`, and the start of the next one.
#[inline]
pub(super) fn entry_at(bytes: &[u8], place: usize) -> (&[u8], usize) {
    let mut reader = Reader { bytes, at: place };
    let value = reader.bytes();
    (value, reader.at + number_len(value.len() as u64))
}

/// The entry that ends at `place`, and its start.
#[inline]
pub(super) fn entry_before(bytes: &[u8], place: usize) -> (&[u8], usize) {
    let size = number_before(bytes, place);
    let end = place - number_len(size);
    let begin = end - size as usize;
    (&bytes[begin..end], begin - number_len(size))
}

/// The part of an entry behind its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The length, backwards.
    Length,
    None,
}

/// Like [`entry_at`], for an entry with this ending.
#[inline]
pub(super) fn entry_with_ending_at(bytes: &[u8], place: usize, ending: Ending) -> (&[u8], usize) {
    match ending {
        Ending::Length => entry_at(bytes, place),
        Ending::None => {
            let mut reader = Reader { bytes, at: place };
            (reader.bytes(), reader.at)
        }
    }
}

/// The length as written in front of the bytes of an entry, and backwards behind them.
pub(super) struct Ends {
    before: [u8; LENGTH_MAX],
    behind: [u8; LENGTH_MAX],
    len: usize,
}

/// Bytes of the longest length.
const LENGTH_MAX: usize = 10;

impl Ends {
    #[inline]
    pub(super) fn of(value: &[u8]) -> Ends {
        let size = value.len() as u64;
        let mut before = [0; LENGTH_MAX];
        let len = number_len(size);
        write_number(&mut before[..len], size);
        let mut behind = before;
        behind[..len].reverse();
        Ends { before, behind, len }
    }

    #[inline]
    pub(super) fn before(&self) -> &[u8] {
        &self.before[..self.len]
    }

    #[inline]
    pub(super) fn behind(&self) -> &[u8] {
        &self.behind[..self.len]
    }
}

/// Consecutive elements in a buffer. Can be taken from both ends.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    bytes: &'a [u8],
    /// The start of the first element.
    front: usize,
    /// The end of the last element.
    back: usize,
    left: usize,
    ending: Ending,
}

impl<'a> Run<'a> {
    /// `elements` elements, from the start of the first to the end of the last.
    pub(super) fn new(bytes: &'a [u8], front: usize, back: usize, elements: usize) -> Run<'a> {
        Run { bytes, front, back, left: elements, ending: Ending::Length }
    }

    /// `elements` elements from the start of the first, in entries without endings.
    pub(super) fn without_endings(bytes: &'a [u8], front: usize, elements: usize) -> Run<'a> {
        Run { bytes, front, back: bytes.len(), left: elements, ending: Ending::None }
    }

    /// The last element that is left, in entries without endings.
    #[cold]
    fn last_without_ending(&self) -> &'a [u8] {
        let next = |place, _| entry_with_ending_at(self.bytes, place, Ending::None).1;
        entry_with_ending_at(self.bytes, (0..self.left).fold(self.front, next), Ending::None).0
    }
}

impl<'a> Iterator for Run<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (value, next) = entry_with_ending_at(self.bytes, self.front, self.ending);
        self.front = next;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Run<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        if self.ending == Ending::None {
            return Some(self.last_without_ending());
        }
        let (value, begin) = entry_before(self.bytes, self.back);
        self.back = begin;
        Some(value)
    }
}

impl ExactSizeIterator for Run<'_> {}
