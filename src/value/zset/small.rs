//! The small form of a sorted set: three columns in one [`Block`], in order.
//!
//! ```text
//! score of each member | end of each member | members
//! ```
//!
//! Scores are integers of 1, 2 or 4 bytes while all of them fit, and doubles of 8 bytes from then on. Ends take 1, 2 or
//! 4 bytes, as the last one requires. Both columns widen when they must, and never narrow. All numbers are
//! little-endian, and the block's kind gives the widths.
//!
//! This allows binary search by score, access by rank in O(1) and walking in either direction. A member is found by a
//! linear pass over at most a few KB, which compares lengths before bytes.

use std::ops::Range;

use crate::base::equal::equal;
use crate::value::block::{Block, InBlock};

/// The bounds on the small form of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZSetLimits {
    /// The most members of a small set (`zset-max-listpack-entries`).
    pub max_entries: usize,
    /// The longest member of a small set, in bytes (`zset-max-listpack-value`).
    pub max_value: usize,
}

impl Default for ZSetLimits {
    fn default() -> ZSetLimits {
        ZSetLimits { max_entries: 128, max_value: 64 }
    }
}

/// The small form.
#[derive(Clone, Debug, Default)]
#[repr(transparent)]
pub(super) struct Small(Block);

// SAFETY: the struct is transparent over one `Block`.
unsafe impl InBlock for Small {}

/// Bytes of the widest score and end.
const ENTRY_MAX: usize = size_of::<f64>() + size_of::<u32>();

/// The widths of the columns, as powers of two: a score has 1, 2, 4 or 8 bytes, an end 1, 2 or 4.
#[derive(Clone, Copy, Debug)]
struct Widths {
    score: u8,
    end: u8,
}

impl Widths {
    #[inline]
    fn of_kind(kind: u8) -> Widths {
        Widths { score: kind & 3, end: kind >> 2 }
    }

    fn kind(self) -> u8 {
        self.score | self.end << 2
    }

    /// Bytes of `count` scores.
    #[inline]
    fn scores(self, count: usize) -> usize {
        count << self.score
    }

    /// Bytes of `count` ends.
    #[inline]
    fn ends(self, count: usize) -> usize {
        count << self.end
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

    /// Heap bytes held.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// Whether `member` may be added: its length is within the limits, and a block can hold it however wide the columns
    /// become.
    #[inline]
    pub(super) fn has_room(&self, member: &[u8], limits: ZSetLimits) -> bool {
        let count = self.len() + 1;
        let columns = count * ENTRY_MAX;
        member.len() <= limits.max_value && Block::fits(self.bytes().saturating_add(columns + member.len()), count)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], f64)> {
        (index < self.len()).then(|| self.columns().get(index))
    }

    #[inline]
    pub(super) fn score(&self, index: usize) -> f64 {
        self.columns().score(index)
    }

    /// The members in a range of indexes, which must not extend past the end.
    #[inline]
    pub(super) fn range(&self, indexes: Range<usize>) -> Ranked<'_> {
        Ranked { columns: self.columns(), indexes }
    }

    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> Option<usize> {
        let Columns { widths, ends, members, .. } = self.columns();
        match widths.end {
            0 => find::<1>(ends, members, member),
            1 => find::<2>(ends, members, member),
            _ => find::<4>(ends, members, member),
        }
    }

    /// The number of members for which `before` is true; they must precede all others.
    pub(super) fn partition_by_member(&self, mut before: impl FnMut(&[u8]) -> bool) -> usize {
        let columns = self.columns();
        partition(self.len(), |index| before(columns.member(index)))
    }

    /// The number of members whose score is `before`; they must precede all others.
    #[inline]
    pub(super) fn partition_by_score(&self, mut before: impl FnMut(f64) -> bool) -> usize {
        let columns = self.columns();
        partition(self.len(), |index| before(columns.score(index)))
    }

    /// Sets the score of a member; `found` is its index if it is there. Returns its previous score.
    pub(super) fn insert(&mut self, found: Option<usize>, member: &[u8], score: f64) -> Option<f64> {
        let old = found.map(|index| self.score(index));
        if old == Some(score) {
            return old;
        }
        let columns = self.columns();
        let added = if found.is_some() { 0 } else { member.len() };
        let needed = Widths { score: score_width(score), end: end_width(columns.members.len() + added) };
        let index = partition(self.len(), |index| {
            let other = columns.score(index);
            other < score || (other == score && columns.member(index) < member)
        });
        if needed.score > columns.widths.score || needed.end > columns.widths.end {
            self.widen(needed);
        }
        match found {
            // Without the member itself, there is one fewer before the new place.
            Some(from) => self.carry(from, index - usize::from(from < index), score),
            None => self.add(index, member, score),
        }
        old
    }

    /// Adds a member. The columns must be wide enough.
    fn add(&mut self, index: usize, member: &[u8], score: f64) {
        let (len, bytes, columns) = (self.len(), self.bytes(), self.columns());
        let (widths, end) = (columns.widths, columns.start(index) + member.len());
        let start = bytes - columns.members.len() + columns.start(index);
        // The current places of its score and its end, and the distances by which the bytes behind them move.
        let (score_at, end_at) = (widths.scores(index), widths.scores(len) + widths.ends(index));
        let (one, both) = (widths.scores(1), widths.scores(1) + widths.ends(1));
        self.0.splice(start, 0, &[&[0; ENTRY_MAX][..both], member]);
        let all = self.0.bytes_mut();
        all.copy_within(end_at..start, end_at + both);
        all.copy_within(score_at..end_at, score_at + one);
        write_end(&mut all[end_at + one..], end, widths);
        write_score(&mut all[score_at..], score, widths);
        self.0.set_count(len + 1);
        self.shift_ends(index + 1..len + 1, member.len());
    }

    pub(super) fn remove(&mut self, index: usize) {
        let (len, bytes, columns) = (self.len(), self.bytes(), self.columns());
        let (widths, span) = (columns.widths, columns.span(index));
        let start = bytes - columns.members.len() + span.start;
        let (score_at, end_at) = (widths.scores(index), widths.scores(len) + widths.ends(index));
        let (one, both) = (widths.scores(1), widths.scores(1) + widths.ends(1));
        let all = self.0.bytes_mut();
        all.copy_within(score_at + one..end_at, score_at);
        all.copy_within(end_at + both - one..start, end_at - one);
        self.0.splice(start - both, both + span.len(), &[]);
        self.0.set_count(len - 1);
        self.shift_ends(index..len - 1, span.len().wrapping_neg());
    }

    /// Gives the member at `from` this score, which moves it to `to`. The columns must be wide enough.
    fn carry(&mut self, from: usize, to: usize, score: f64) {
        let columns = self.columns();
        let (widths, ends_at) = (columns.widths, columns.scores.len());
        let members_at = ends_at + columns.ends.len();
        let (low, high, carried) = (from.min(to), from.max(to), columns.span(from).len());
        let (start, end) = (columns.start(low), columns.end(high));
        let all = self.0.bytes_mut();
        let scores = widths.scores(low)..widths.scores(high + 1);
        let ends = ends_at + widths.ends(low)..ends_at + widths.ends(high + 1);
        let members = members_at + start..members_at + end;
        if from < to {
            all.copy_within(scores.start + widths.scores(1)..scores.end, scores.start);
            all.copy_within(ends.start + widths.ends(1)..ends.end, ends.start);
            all[members].rotate_left(carried);
            write_end(&mut all[ends_at + widths.ends(to)..], end, widths);
            self.shift_ends(low..high, carried.wrapping_neg());
        } else if to < from {
            all.copy_within(scores.start..scores.end - widths.scores(1), scores.start + widths.scores(1));
            all.copy_within(ends.start..ends.end - widths.ends(1), ends.start + widths.ends(1));
            all[members].rotate_right(carried);
            write_end(&mut all[ends_at + widths.ends(to)..], start + carried, widths);
            self.shift_ends(low + 1..high + 1, carried);
        }
        write_score(&mut self.0.bytes_mut()[widths.scores(to)..], score, widths);
    }

    /// Adds `by` to these ends, modulo 2^32.
    #[inline]
    fn shift_ends(&mut self, ends: Range<usize>, by: usize) {
        let (len, widths) = (self.len(), Widths::of_kind(self.0.kind()));
        let ends_at = widths.scores(len);
        let ends = &mut self.0.bytes_mut()[ends_at + widths.ends(ends.start)..ends_at + widths.ends(ends.end)];
        match widths.end {
            0 => shift::<1>(ends, by as u32),
            1 => shift::<2>(ends, by as u32),
            _ => shift::<4>(ends, by as u32),
        }
    }

    /// Makes the columns at least this wide.
    #[cold]
    fn widen(&mut self, needed: Widths) {
        let (len, old) = (self.len(), self.columns());
        let widths = Widths { score: needed.score.max(old.widths.score), end: needed.end.max(old.widths.end) };
        let mut wide = Small(Block::of_kind(widths.kind()));
        wide.0.resize(widths.scores(len) + widths.ends(len));
        let (scores, ends) = wide.0.bytes_mut().split_at_mut(widths.scores(len));
        for index in 0..len {
            write_score(&mut scores[widths.scores(index)..], old.score(index), widths);
            write_end(&mut ends[widths.ends(index)..], old.end(index), widths);
        }
        wide.0.splice(wide.bytes(), 0, &[old.members]);
        wide.0.set_count(len);
        *self = wide;
    }

    #[inline]
    fn columns(&self) -> Columns<'_> {
        let (len, widths) = (self.len(), Widths::of_kind(self.0.kind()));
        let (scores, others) = self.0.bytes().split_at(widths.scores(len));
        let (ends, members) = others.split_at(widths.ends(len));
        Columns { widths, scores, ends, members }
    }
}

/// The columns as they are stored in the block.
#[derive(Clone, Copy, Debug)]
struct Columns<'a> {
    widths: Widths,
    scores: &'a [u8],
    ends: &'a [u8],
    members: &'a [u8],
}

impl<'a> Columns<'a> {
    #[inline]
    fn get(&self, index: usize) -> (&'a [u8], f64) {
        (self.member(index), self.score(index))
    }

    #[inline(always)]
    fn member(&self, index: usize) -> &'a [u8] {
        &self.members[self.span(index)]
    }

    #[inline(always)]
    fn score(&self, index: usize) -> f64 {
        match self.widths.score {
            0 => f64::from(i8::from_le_bytes(chunks(self.scores)[index])),
            1 => f64::from(i16::from_le_bytes(chunks(self.scores)[index])),
            2 => f64::from(i32::from_le_bytes(chunks(self.scores)[index])),
            _ => f64::from_le_bytes(chunks(self.scores)[index]),
        }
    }

    #[inline(always)]
    fn span(&self, index: usize) -> Range<usize> {
        match self.widths.end {
            0 => span::<1>(self.ends, index),
            1 => span::<2>(self.ends, index),
            _ => span::<4>(self.ends, index),
        }
    }

    #[inline]
    fn end(&self, index: usize) -> usize {
        self.span(index).end
    }

    /// The start of the member, or the place where one would start if there is none yet.
    #[inline]
    fn start(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.end(index - 1) }
    }
}

/// A range of members, from either end.
#[derive(Clone)]
pub(super) struct Ranked<'a> {
    columns: Columns<'a>,
    indexes: Range<usize>,
}

impl<'a> Iterator for Ranked<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.indexes.next().map(|index| self.columns.get(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.indexes.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        self.indexes.nth(n).map(|index| self.columns.get(index))
    }
}

impl DoubleEndedIterator for Ranked<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.indexes.next_back().map(|index| self.columns.get(index))
    }

    fn nth_back(&mut self, n: usize) -> Option<Self::Item> {
        self.indexes.nth_back(n).map(|index| self.columns.get(index))
    }
}

#[inline]
fn partition(len: usize, mut before: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = (low + high) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[inline]
fn chunks<const W: usize>(column: &[u8]) -> &[[u8; W]] {
    column.as_chunks().0
}

#[inline]
fn number<const W: usize>(bytes: &[u8; W]) -> usize {
    let mut wide = [0; size_of::<u32>()];
    wide[..W].copy_from_slice(bytes);
    u32::from_le_bytes(wide) as usize
}

#[inline]
fn span<const W: usize>(ends: &[u8], index: usize) -> Range<usize> {
    let ends = chunks::<W>(ends);
    let end = number(&ends[index]);
    let start = if index == 0 { 0 } else { number(&ends[index - 1]) };
    start..end
}

#[inline]
fn find<const W: usize>(ends: &[u8], members: &[u8], member: &[u8]) -> Option<usize> {
    let mut start = 0;
    chunks::<W>(ends).iter().position(|end| {
        let end = number(end);
        let is_it = end - start == member.len() && equal(&members[start..end], member);
        start = end;
        is_it
    })
}

#[inline]
fn shift<const W: usize>(ends: &mut [u8], by: u32) {
    for end in ends.as_chunks_mut::<W>().0 {
        let shifted = (number(end) as u32).wrapping_add(by);
        end.copy_from_slice(&shifted.to_le_bytes()[..W]);
    }
}

#[inline]
fn write_score(to: &mut [u8], score: f64, widths: Widths) {
    match widths.score {
        0 => to[..1].copy_from_slice(&(score as i8).to_le_bytes()),
        1 => to[..2].copy_from_slice(&(score as i16).to_le_bytes()),
        2 => to[..4].copy_from_slice(&(score as i32).to_le_bytes()),
        _ => to[..8].copy_from_slice(&score.to_le_bytes()),
    }
}

#[inline]
fn write_end(to: &mut [u8], end: usize, widths: Widths) {
    match widths.end {
        0 => to[..1].copy_from_slice(&(end as u8).to_le_bytes()),
        1 => to[..2].copy_from_slice(&(end as u16).to_le_bytes()),
        _ => to[..4].copy_from_slice(&(end as u32).to_le_bytes()),
    }
}

/// The narrowest column that holds an end.
fn end_width(end: usize) -> u8 {
    match end {
        0..0x100 => 0,
        0x100..0x1_0000 => 1,
        _ => 2,
    }
}

/// The narrowest column that holds a score. Negative zero is not an integer.
#[inline]
fn score_width(score: f64) -> u8 {
    let int = score as i32;
    if f64::from(int).to_bits() != score.to_bits() {
        3
    } else if i8::try_from(int).is_ok() {
        0
    } else if i16::try_from(int).is_ok() {
        1
    } else {
        2
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
        /// The columns may need any widths, and may widen at any time.
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
                    let found = small.get(index).map(|(m, s)| (m, s.to_bits()));
                    prop_assert_eq!(found, Some((&member[..], score.to_bits())));
                }
                prop_assert_eq!(small.get(model.len()), None);
            }
        }
    }

    #[test]
    fn columns_take_little_memory() {
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
