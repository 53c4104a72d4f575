//! The small shape of a sorted set: rows and members in one [`Block`], sorted.
//!
//! ```text
//! (score, where the member ends) for each member | the members
//! ```
//!
//! Scores are integers of 1, 2 or 4 bytes while all of them are, doubles of 8 bytes from then on; ends take 1, 2 or 4 bytes, as the
//! last one needs. Both become wider when they must, and never narrower. All is little-endian, and the block's kind says how wide
//! they are.
//!
//! So there is binary search by score, access by rank in O(1) and walking either way. A member is found by a linear pass that
//! compares lengths before bytes, over at most a few KB.

use std::ops::Range;

use crate::value::block::{Block, InBlock};

/// Up to where a sorted set stays in its small shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZSetLimits {
    /// Most members of a small set (`zset-max-listpack-entries`).
    pub max_entries: usize,
    /// Longest member of a small set, in bytes (`zset-max-listpack-value`).
    pub max_value: usize,
}

impl Default for ZSetLimits {
    fn default() -> ZSetLimits {
        ZSetLimits { max_entries: 128, max_value: 64 }
    }
}

/// The small shape.
#[derive(Clone, Debug, Default)]
#[repr(transparent)]
pub(super) struct Small(Block);

// SAFETY: it is one, transparently.
unsafe impl InBlock for Small {}

/// Bytes of a score, 1, 2, 4 or 8, and of an end, 1, 2 or 4.
#[derive(Clone, Copy, Debug)]
struct Widths {
    score: usize,
    end: usize,
}

impl Widths {
    #[inline]
    fn of_kind(kind: u8) -> Widths {
        Widths { score: 1 << (kind & 3), end: 1 << (kind >> 2) }
    }

    fn kind(self) -> u8 {
        (self.score.trailing_zeros() | self.end.trailing_zeros() << 2) as u8
    }

    #[inline]
    fn row(self) -> usize {
        self.score + self.end
    }
}

impl Small {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.count()
    }

    /// Bytes of the entries.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Bytes of the heap held.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// Whether `member` may be added: the limits allow it, and so does a block, however wide the rows become.
    #[inline]
    pub(super) fn has_room(&self, member: &[u8], limits: ZSetLimits) -> bool {
        let count = self.len() + 1;
        let rows = count * (size_of::<f64>() + size_of::<u32>());
        member.len() <= limits.max_value && Block::fits(self.bytes().saturating_add(rows + member.len()), count)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], f64)> {
        let rows = self.rows();
        (index < rows.len()).then(|| rows.get(index))
    }

    #[inline]
    pub(super) fn score(&self, index: usize) -> f64 {
        self.rows().score(index)
    }

    /// The members of a range of indexes, which must not go beyond the end.
    #[inline]
    pub(super) fn range(&self, indexes: Range<usize>) -> Ranked<'_> {
        Ranked { rows: self.rows(), indexes }
    }

    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> Option<usize> {
        let rows = self.rows();
        match rows.widths.end {
            1 => rows.find::<1>(member),
            2 => rows.find::<2>(member),
            _ => rows.find::<4>(member),
        }
    }

    #[inline]
    pub(super) fn partition(&self, mut before: impl FnMut(f64, &[u8]) -> bool) -> usize {
        let rows = self.rows();
        let (mut low, mut high) = (0, rows.len());
        while low < high {
            let middle = (low + high) / 2;
            let (member, score) = rows.get(middle);
            if before(score, member) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Gives the member, which was found there or not, this score. Answers the one that it had.
    pub(super) fn insert(&mut self, found: Option<usize>, member: &[u8], score: f64) -> Option<f64> {
        let old = found.map(|index| self.score(index));
        if old == Some(score) {
            return old;
        }
        let added = if found.is_some() { 0 } else { member.len() };
        let rows = self.rows();
        let needed = Widths { score: score_width(score), end: end_width(rows.members.len() + added) };
        if needed.score > rows.widths.score || needed.end > rows.widths.end {
            self.widen(needed);
        }
        let index = self.partition(|s, m| s < score || (s == score && m < member));
        match found {
            // Without itself, there is one fewer before it.
            Some(from) => self.carry(from, index - usize::from(from < index), score),
            None => self.add(index, member, score),
        }
        old
    }

    /// Adds a member; the widths are enough.
    fn add(&mut self, index: usize, member: &[u8], score: f64) {
        let Rows { widths, members, .. } = self.rows();
        let (len, row, bytes) = (self.len(), widths.row(), self.bytes());
        let start = bytes - members.len() + self.rows().start(index);
        self.0.resize(bytes + row + member.len());
        let all = self.0.bytes_mut();
        all.copy_within(start..bytes, start + row + member.len());
        all.copy_within(index * row..start, (index + 1) * row);
        all[start + row..start + row + member.len()].copy_from_slice(member);
        write_score(&mut all[index * row..], score, widths.score);
        let end = (start - len * row + member.len()) as u32;
        write_end(&mut all[index * row + widths.score..], end, widths.end);
        self.0.set_count(len + 1);
        self.shift_ends(index + 1..len + 1, member.len());
    }

    pub(super) fn remove(&mut self, index: usize) {
        let rows = self.rows();
        let (len, row, bytes, span) = (rows.len(), rows.widths.row(), self.bytes(), rows.span(index));
        let (start, end) = (len * row + span.start, len * row + span.end);
        let all = self.0.bytes_mut();
        all.copy_within((index + 1) * row..start, index * row);
        all.copy_within(end..bytes, start - row);
        self.0.resize(bytes - row - span.len());
        self.0.set_count(len - 1);
        self.shift_ends(index..len - 1, span.len().wrapping_neg());
    }

    /// Gives the member at `from` this score, with which it comes to be at `to`; the widths are enough.
    fn carry(&mut self, from: usize, to: usize, score: f64) {
        let rows = self.rows();
        let (widths, row, members_at) = (rows.widths, rows.widths.row(), rows.len() * rows.widths.row());
        let (low, high) = (from.min(to), from.max(to));
        let (start, end, carried) = (rows.start(low), rows.end(high), rows.span(from).len());
        let all = self.0.bytes_mut();
        if from < to {
            all[low * row..(high + 1) * row].rotate_left(row);
            all[members_at + start..members_at + end].rotate_left(carried);
            self.shift_ends(low..high, carried.wrapping_neg());
        } else if to < from {
            all[low * row..(high + 1) * row].rotate_right(row);
            all[members_at + start..members_at + end].rotate_right(carried);
            self.shift_ends(low + 1..high + 1, carried);
        }
        let all = self.0.bytes_mut();
        write_score(&mut all[to * row..], score, widths.score);
        let its_end = if from < to { end } else { start + carried };
        write_end(&mut all[to * row + widths.score..], its_end as u32, widths.end);
    }

    /// Adds to the ends of these rows, modulo 2^32.
    #[inline]
    fn shift_ends(&mut self, rows: Range<usize>, by: usize) {
        let widths = Widths::of_kind(self.0.kind());
        let rows = &mut self.0.bytes_mut()[rows.start * widths.row()..rows.end * widths.row()];
        match widths.end {
            1 => shift::<1>(rows, widths, by as u32),
            2 => shift::<2>(rows, widths, by as u32),
            _ => shift::<4>(rows, widths, by as u32),
        }
    }

    /// Makes the rows at least so wide.
    #[cold]
    fn widen(&mut self, needed: Widths) {
        let old = self.rows();
        let len = old.len();
        let widths = Widths { score: needed.score.max(old.widths.score), end: needed.end.max(old.widths.end) };
        let mut wide = Small(Block::of_kind(widths.kind()));
        wide.0.resize(len * widths.row());
        for (index, row) in wide.0.bytes_mut().chunks_exact_mut(widths.row()).enumerate() {
            write_score(row, old.score(index), widths.score);
            write_end(&mut row[widths.score..], old.end(index) as u32, widths.end);
        }
        wide.0.splice(len * widths.row(), 0, &[old.members]);
        wide.0.set_count(len);
        *self = wide;
    }

    #[inline]
    fn rows(&self) -> Rows<'_> {
        let widths = Widths::of_kind(self.0.kind());
        let (rows, members) = self.0.bytes().split_at(self.len() * widths.row());
        Rows { len: self.len(), widths, rows, members }
    }
}

/// The rows and members as they lie in the block.
#[derive(Clone, Debug)]
struct Rows<'a> {
    len: usize,
    widths: Widths,
    rows: &'a [u8],
    members: &'a [u8],
}

impl<'a> Rows<'a> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn get(&self, index: usize) -> (&'a [u8], f64) {
        (&self.members[self.span(index)], self.score(index))
    }

    #[inline]
    fn score(&self, index: usize) -> f64 {
        let row = &self.rows[index * self.widths.row()..];
        match self.widths.score {
            1 => f64::from(i8::from_le_bytes(first(row))),
            2 => f64::from(i16::from_le_bytes(first(row))),
            4 => f64::from(i32::from_le_bytes(first(row))),
            _ => f64::from_le_bytes(first(row)),
        }
    }

    #[inline]
    fn end(&self, index: usize) -> usize {
        let end = &self.rows[index * self.widths.row() + self.widths.score..];
        match self.widths.end {
            1 => number::<1>(first(end)),
            2 => number::<2>(first(end)),
            _ => number::<4>(first(end)),
        }
    }

    #[inline]
    fn start(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.end(index - 1) }
    }

    #[inline]
    fn span(&self, index: usize) -> Range<usize> {
        self.start(index)..self.end(index)
    }

    #[inline]
    fn find<const W: usize>(&self, member: &[u8]) -> Option<usize> {
        let mut start = 0;
        self.rows.chunks_exact(self.widths.score + W).position(|row| {
            let end = number::<W>(first(&row[row.len() - W..]));
            let is_it = end - start == member.len() && self.members[start..end] == *member;
            start = end;
            is_it
        })
    }
}

/// A range of the members, from either end.
#[derive(Clone)]
pub(super) struct Ranked<'a> {
    rows: Rows<'a>,
    indexes: Range<usize>,
}

impl<'a> Iterator for Ranked<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.indexes.next().map(|index| self.rows.get(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.indexes.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        self.indexes.nth(n).map(|index| self.rows.get(index))
    }
}

impl DoubleEndedIterator for Ranked<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.indexes.next_back().map(|index| self.rows.get(index))
    }

    fn nth_back(&mut self, n: usize) -> Option<Self::Item> {
        self.indexes.nth_back(n).map(|index| self.rows.get(index))
    }
}

/// The first bytes, which are there.
#[inline]
fn first<const W: usize>(bytes: &[u8]) -> [u8; W] {
    let mut first = [0; W];
    first.copy_from_slice(&bytes[..W]);
    first
}

#[inline]
fn number<const W: usize>(bytes: [u8; W]) -> usize {
    let mut wide = [0; size_of::<u32>()];
    wide[..W].copy_from_slice(&bytes);
    u32::from_le_bytes(wide) as usize
}

#[inline]
fn write_score(to: &mut [u8], score: f64, width: usize) {
    match width {
        1 => to[..1].copy_from_slice(&(score as i8).to_le_bytes()),
        2 => to[..2].copy_from_slice(&(score as i16).to_le_bytes()),
        4 => to[..4].copy_from_slice(&(score as i32).to_le_bytes()),
        _ => to[..8].copy_from_slice(&score.to_le_bytes()),
    }
}

#[inline]
fn write_end(to: &mut [u8], end: u32, width: usize) {
    match width {
        1 => to[..1].copy_from_slice(&end.to_le_bytes()[..1]),
        2 => to[..2].copy_from_slice(&end.to_le_bytes()[..2]),
        _ => to[..4].copy_from_slice(&end.to_le_bytes()),
    }
}

#[inline]
fn shift<const W: usize>(rows: &mut [u8], widths: Widths, by: u32) {
    for row in rows.chunks_exact_mut(widths.score + W) {
        let end = &mut row[widths.score..];
        let shifted = (number::<W>(first(end)) as u32).wrapping_add(by);
        end.copy_from_slice(&shifted.to_le_bytes()[..W]);
    }
}

fn end_width(end: usize) -> usize {
    match end {
        0..0x100 => 1,
        0x100..0x1_0000 => 2,
        _ => 4,
    }
}

/// The fewest bytes that hold a score. Minus zero is no integer.
fn score_width(score: f64) -> usize {
    let int = score as i32;
    if f64::from(int).to_bits() != score.to_bits() {
        8
    } else if i8::try_from(int).is_ok() {
        1
    } else if i16::try_from(int).is_ok() {
        2
    } else {
        4
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn score() -> impl Strategy<Value = f64> {
        let whole = |bits: u32| (-(1i64 << bits)..=1 << bits).prop_map(|int| int as f64);
        prop_oneof![
            4 => whole(3),
            2 => whole(7),
            1 => whole(15),
            1 => whole(31),
            1 => prop_oneof![any::<i64>().prop_map(|int| int as f64), -2.0..2.0f64],
            1 => proptest::sample::select(vec![-0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE]),
        ]
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0..9u8).prop_map(|n| vec![n]),
            4 => proptest::collection::vec(0..3u8, 0..64),
            1 => (0..3usize, any::<u8>()).prop_map(|(n, byte)| vec![byte; n * 30_000]),
        ]
    }

    proptest! {
        /// Whatever widths the columns need, and whenever they become wider.
        #[test]
        fn follows_a_sorted_vector(
            steps in proptest::collection::vec((member(), score(), 0..4u8, any::<usize>()), 0..80),
        ) {
            let mut small = Small::default();
            let mut model: Vec<(Vec<u8>, f64)> = Vec::new();
            for (member, score, step, index) in steps {
                let found = model.iter().position(|(other, _)| *other == member);
                prop_assert_eq!(small.find(&member), found);
                if step > 0 {
                    let old = found.map(|index| model[index].1);
                    prop_assert_eq!(small.insert(found, &member, score).map(f64::to_bits), old.map(f64::to_bits));
                    if old != Some(score) {
                        found.map(|index| model.remove(index));
                        let place = model.partition_point(|(m, s)| *s < score || (*s == score && *m < member));
                        model.insert(place, (member, score));
                    }
                } else if !model.is_empty() {
                    let index = index % model.len();
                    small.remove(index);
                    model.remove(index);
                }
                prop_assert_eq!(small.len(), model.len());
                for (index, (member, score)) in model.iter().enumerate() {
                    prop_assert_eq!(small.get(index).map(|(m, s)| (m, s.to_bits())), Some((&member[..], score.to_bits())));
                }
                prop_assert_eq!(small.get(model.len()), None);
            }
        }
    }

    #[test]
    fn it_takes_little_more_than_its_members() {
        let bytes = |scores: [f64; 3]| {
            let mut small = Small::default();
            for (member, score) in [b"a", b"b", b"c"].into_iter().zip(scores) {
                small.insert(None, member, score);
            }
            small.bytes()
        };
        assert_eq!(bytes([1.0, -128.0, 127.0]), 3 * (1 + 1 + 1));
        assert_eq!(bytes([1.0, 128.0, 3.0]), 3 * (2 + 1 + 1));
        assert_eq!(bytes([1_700_000_000.0, 2.0, 3.0]), 3 * (4 + 1 + 1));
        assert_eq!(bytes([1.0, 2.0, 2_147_483_648.0]), 3 * (8 + 1 + 1));
        assert_eq!(bytes([1.0, 2.0, -0.0]), 3 * (8 + 1 + 1));
    }
}
