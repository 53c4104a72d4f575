//! A hash table that never stops for a resize, and that SCAN can walk while it changes. It holds numbers of entries
//! that lie elsewhere.
//!
//! One large open-addressing table copies itself when it is full. With ten million entries that takes seconds, during
//! which a single-threaded server serves no client. Here the numbers live in many small tables (*segments*, some
//! hundreds of entries each). The number of segments follows the number of entries by **linear hashing** (W. Litwin,
//! "Linear hashing: a new tool for file and table addressing", VLDB 1980): segments split in a fixed order, one after
//! the other, no matter which of them is full. One insert splits at most one segment, and one remove merges at most one
//! pair, so the longest pause is that of moving about a thousand entries. Between two splits a segment grows by itself,
//! in small steps ([`Segment`]).
//!
//! With `n` segments and `2^d >= n` the smallest such power, an entry is in segment `s = hash mod 2^d` or, if that one
//! is not split off yet (`s >= n`), in `s mod 2^(d-1)`. So all hashes of a segment end alike, and a split divides them
//! by the next bit. In its segment an entry is found by its *tag*, 16 bits of the hash, of which at most the first two
//! are the same in the whole segment. So two of three splits and all merges use only the tags, without a look at the
//! entries.
//!
//! ```text
//! bit 63 ............................................ 0
//!             | tag, 16 bits      |
//!                            | the segment, d bits  |
//! ```
//!
//! Segment 0 lies in the table itself. So a table with a single segment (up to `SEGMENT_LOAD` entries) allocates no
//! header, and an empty one allocates nothing. The other segments' headers lie in chunks, because a single vector of
//! them would itself have to be copied when it grows.
//!
//! # SCAN
//! The place of an entry is the low 48 bits of its hash **reversed** (`place`). A segment holds the entries whose
//! hashes *end* alike, so their places *begin* alike: every segment is one interval of places, a split cuts an interval
//! in two, and a merge joins two neighbours. The place of an entry never changes. A cursor is the first place not yet
//! visited. One step returns the entries with the lowest places from there on, including all that share the last one.
//! Hence an entry that is present from the first step to the last is returned exactly once, however the table grows or
//! shrinks in between; Redis promises at least once. Other entries are returned once or not at all, and again only if
//! they were removed and came back.
//!
//! The hash must be good (all bits used) and secret: a client that can choose the entries of one segment can make it
//! large.

mod line;
mod lines;
mod segment;

use std::mem;

use line::CELLS;
use lines::{Lines, Moved, Pool};
use segment::{Memory, Segment, SplitBit, lines_for, tag_at};

/// Average size of a table for each of its entries, in bytes.
pub(crate) const ENTRY_SHARE_BYTES: usize = 8;

/// Mean entries per segment at which one more segment is split off. While a level is being split, segments hold between
/// half and twice this number. A larger number would make splits longer, and also steps of a SCAN.
const SEGMENT_LOAD: usize = 400;

/// Mean entries per segment below which one segment is merged away. It is far from [`SEGMENT_LOAD`], lest a table whose
/// size swings split and merge at each turn.
const MERGE_LOAD: usize = SEGMENT_LOAD / 4;

/// Number of segments from which the table keeps their lines in a pool. In the pool of a smaller table, too large a
/// share would be free. Tests have small tables.
const POOL_MIN_SEGMENTS: usize = if cfg!(test) { 4 } else { 512 };

/// Segment headers per chunk, as a power of two.
const CHUNK_BITS: u32 = 8;

/// Number of bits of a place: the lowest bits of a hash.
const PLACE_BITS: u32 = 48;

/// One past the last place.
pub(crate) const PLACE_END: u64 = 1 << PLACE_BITS;

/// Number of cells in the largest segment, given a good hash: the range in which [`SplitTable::random`] draws. Twice
/// the load plus five standard deviations are 941 entries, for which a segment has 127 lines.
const MOST_CELLS: usize = 1270;

/// Draws of [`SplitTable::random`] before it stops drawing and takes the next entry that it finds.
const DRAWS: usize = 200;

/// Number of entries that are prefetched ahead of the one being hashed.
const AHEAD: usize = 16;

const _: () = assert!(MERGE_LOAD * 2 < SEGMENT_LOAD, "a merge must not be followed by a split");

/// Hashes of the entries whose numbers a table holds.
pub(crate) trait Hashes {
    /// Returns the hash of entry `number`.
    fn of(&self, number: u32) -> u64;

    /// Starts to fetch into the cache the memory that [`of`](Self::of) will read. It is called for many entries in a
    /// row, so that the processor waits for all of them at once.
    fn prefetch(&self, number: u32);
}

/// Decides after some entries how a [walk](SplitTable::walk) goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// The walk goes on.
    Continue,
    /// The walk ends with these entries.
    Stop,
}

/// The place of a line in a segment. It is valid as long as the table has that segment with the same number of lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinePlace {
    segment: usize,
    line: usize,
}

/// A set of entries, represented by their numbers and found by hash. It stores neither keys nor hashes: the caller
/// hashes, compares and, when some segments split, hashes again.
#[derive(Debug)]
pub(crate) struct SplitTable {
    first: Segment,
    /// Segments 1 and up, 2^[`CHUNK_BITS`] to a chunk, all chunks but the last one full.
    chunks: Vec<Vec<Segment>>,
    segments: usize,
    /// The smallest 2^d - 1 that is at least `segments - 1`.
    mask: u64,
    len: usize,
    /// Holds the lines of most segments, if there are many.
    pool: Option<Box<Pool>>,
}

/// The lines of a copy lie in blocks from the allocator until they are resized.
impl Clone for SplitTable {
    fn clone(&self) -> Self {
        let SplitTable { first, chunks, segments, mask, len, pool: _ } = self;
        SplitTable {
            first: first.clone(),
            chunks: chunks.clone(),
            segments: *segments,
            mask: *mask,
            len: *len,
            pool: None,
        }
    }
}

impl Default for SplitTable {
    fn default() -> Self {
        Self::new()
    }
}

impl SplitTable {
    /// Makes an empty table, without allocation.
    pub(crate) const fn new() -> Self {
        SplitTable { first: Segment::new(), chunks: Vec::new(), segments: 1, mask: 0, len: 0, pool: None }
    }

    /// Makes segments for about this many entries, if the table is empty, so that none has to be split as it fills. An
    /// overestimate costs a header for each [`SEGMENT_LOAD`] entries that don't come, and a line of 64 bytes for each
    /// entry that comes, until [`fit`](Self::fit) is called.
    pub(crate) fn expect(&mut self, entries: usize) {
        if self.is_empty() {
            while self.segments < entries.div_ceil(SEGMENT_LOAD) {
                self.push_segment(Segment::new());
            }
            let depth = self.segments.ilog2();
            self.all_segments_mut().for_each(|segment| segment.begin_tags(depth));
        }
    }

    /// Merges segments that were made for entries that have not come, until the remaining ones are half full. For use
    /// when all [expected](Self::expect) entries have come. Takes time in proportion to the number expected.
    pub(crate) fn fit(&mut self) {
        while self.segments > 1 && self.len < self.segments * (SEGMENT_LOAD / 2) {
            self.merge();
        }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the entry with this hash for which `eq` is true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, eq: impl FnMut(u32) -> bool) -> Option<u32> {
        self.segment(self.index(hash)).find(hash, eq)
    }

    /// Starts to fetch into the cache the memory that [`find`](Self::find) will look at first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.segment(self.index(hash)).prefetch(hash);
    }

    /// Does the same as [`find`](Self::find), to give the entry another number. Its hash must not change.
    #[inline]
    pub(crate) fn find_mut(&mut self, hash: u64, eq: impl FnMut(u32) -> bool) -> Option<&mut u32> {
        let index = self.index(hash);
        self.segment_mut(index).find_mut(hash, eq)
    }

    /// Adds an entry that the caller knows to be absent. `hashes` returns the hashes of others, if a segment must be
    /// split by them.
    #[inline]
    pub(crate) fn insert_unique(&mut self, hash: u64, number: u32, hashes: &impl Hashes) {
        if self.len >= self.segments * SEGMENT_LOAD {
            self.split(hashes);
        }
        let index = self.index(hash);
        self.len += 1;
        let segment = self.segment_mut(index);
        if segment.has_room() {
            segment.put(hash, number);
        } else {
            let lines = self.segment(index).more_lines(self.memory());
            self.resize(index, lines);
            self.segment_mut(index).put(hash, number);
        }
    }

    /// Removes the entry with this hash for which `eq` is true.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, eq: impl FnMut(u32) -> bool) -> Option<u32> {
        let index = self.index(hash);
        let number = self.segment_mut(index).remove(hash, eq)?;
        if let Some(lines) = self.segment(index).fewer_lines(self.memory()) {
            self.resize(index, lines);
        }
        self.len -= 1;
        if self.segments > 1 && self.len < self.segments * MERGE_LOAD {
            self.merge();
        }
        Some(number)
    }

    /// Does one step of a SCAN: emits at least `count` entries (at least one) from `cursor` on, unless fewer are left.
    /// Returns the cursor of the next step, 0 after the last. A walk starts with cursor 0. Any other number is safe,
    /// and one that no step returned only skips entries. Takes time in proportion to one segment, or to `count` if that
    /// is larger.
    pub(crate) fn scan(&self, cursor: u64, count: usize, hashes: &impl Hashes, mut emit: impl FnMut(u32)) -> u64 {
        let mut cursor = cursor;
        let mut wanted = count.max(1);
        while cursor < PLACE_END {
            let (mut found, end) = self.entries_from(cursor, hashes);
            if found.len() <= wanted {
                found.iter().for_each(|(_, number)| emit(*number));
                wanted -= found.len();
                cursor = end;
                if wanted == 0 {
                    break;
                }
                continue;
            }
            let (_, &mut (last, _), _) = found.select_nth_unstable_by_key(wanted - 1, |(place, _)| *place);
            found.iter().filter(|(place, _)| *place <= last).for_each(|(_, number)| emit(*number));
            cursor = last + 1;
            break;
        }
        if cursor < PLACE_END { cursor } else { 0 }
    }

    /// Passes the entries from `cursor` on to `visit` in the order of their places, those of one place together, until
    /// `visit` stops the walk. Returns the cursor of the rest, [`PLACE_END`] if nothing is left. However the table
    /// changes, places before a returned cursor have been visited and others have not. Each call looks at whole
    /// segments, but may pass on only a few of their entries.
    pub(crate) fn walk(&self, cursor: u64, hashes: &impl Hashes, mut visit: impl FnMut(&[(u64, u32)]) -> Walk) -> u64 {
        let mut cursor = cursor;
        while cursor < PLACE_END {
            let (mut found, end) = self.entries_from(cursor, hashes);
            found.sort_unstable_by_key(|(place, _)| *place);
            for together in found.chunk_by(|(one, _), (other, _)| one == other) {
                match visit(together) {
                    Walk::Continue => {}
                    Walk::Stop => return together[0].0 + 1,
                }
            }
            cursor = end;
        }
        PLACE_END
    }

    /// Draws an entry at random, each with the same chance (with a good hash). `below(n)` draws a number in `0..n`.
    ///
    /// Draws a segment and a cell until it hits an entry: usually two to five times, and about thirteen times just
    /// before a table that has shrunk is merged.
    pub(crate) fn random(&self, mut below: impl FnMut(u64) -> u64) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        for _ in 0..DRAWS {
            let segment = self.segment(self.draw(self.segments, &mut below));
            // With several segments, all draw in the same range, so that a small one is not preferred.
            let range = if self.segments == 1 { segment.cells() } else { segment.cells().max(MOST_CELLS) };
            let cell = self.draw(range, &mut below);
            if cell < segment.cells()
                && let Some(number) = segment.in_cell(cell)
            {
                return Some(number);
            }
        }
        let start = self.draw(self.segments, &mut below);
        let segment = (start..self.segments).chain(0..start).map(|i| self.segment(i)).find(|s| s.len() > 0)?;
        segment.numbers().nth(self.draw(segment.len(), &mut below))
    }

    /// Draws a line of a segment as [`random`](Self::random) does, and starts to fetch it into the cache, so that a
    /// later look at it need not wait. Returns `None` if the table is empty, or nearly so for its size.
    pub(crate) fn random_line(&self, mut below: impl FnMut(u64) -> u64) -> Option<LinePlace> {
        let draws = if self.is_empty() { 0 } else { DRAWS };
        let place = (0..draws).find_map(|_| {
            let segment = self.draw(self.segments, &mut below);
            let lines = self.segment(segment).lines();
            let range = if self.segments == 1 { lines } else { lines.max(MOST_CELLS / CELLS) };
            let line = self.draw(range, &mut below);
            (line < lines).then_some(LinePlace { segment, line })
        })?;
        self.segment(place.segment).prefetch_line(place.line);
        Some(place)
    }

    /// Returns the entries in a line: several for the cost of one, or none. They are unrelated, except that some bits
    /// of their hashes are the same.
    pub(crate) fn in_line(&self, place: LinePlace) -> impl Iterator<Item = u32> {
        let segment = (place.segment < self.segments).then(|| self.segment(place.segment));
        segment.into_iter().flat_map(move |segment| segment.line(place.line))
    }

    /// Returns all entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.all_segments().flat_map(Segment::numbers)
    }

    /// Returns the number of bytes allocated for the table, without this header. Takes time in proportion to the
    /// segments.
    pub(crate) fn mem_bytes(&self) -> usize {
        let headers: usize = self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<Segment>()).sum();
        let chunks = self.chunks.capacity() * size_of::<Vec<Segment>>();
        chunks
            + headers
            + self.pool.as_ref().map_or(0, |pool| size_of::<Pool>() + pool.mem_bytes())
            + self.all_segments().map(Segment::mem_bytes).sum::<usize>()
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        let index = (hash & self.mask) as usize;
        let before_split = (hash & (self.mask >> 1)) as usize;
        if index < self.segments { index } else { before_split }
    }

    #[inline]
    fn segment(&self, index: usize) -> &Segment {
        match index.checked_sub(1) {
            None => &self.first,
            Some(i) => &self.chunks[i >> CHUNK_BITS][i & CHUNK_MASK],
        }
    }

    #[inline]
    fn segment_mut(&mut self, index: usize) -> &mut Segment {
        match index.checked_sub(1) {
            None => &mut self.first,
            Some(i) => &mut self.chunks[i >> CHUNK_BITS][i & CHUNK_MASK],
        }
    }

    fn all_segments(&self) -> impl Iterator<Item = &Segment> {
        std::iter::once(&self.first).chain(self.chunks.iter().flatten())
    }

    fn all_segments_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        std::iter::once(&mut self.first).chain(self.chunks.iter_mut().flatten())
    }

    /// Returns the places and numbers, from `cursor` on, of the segment whose interval contains `cursor`, and the end
    /// of that interval.
    fn entries_from(&self, cursor: u64, hashes: &impl Hashes) -> (Vec<(u64, u32)>, u64) {
        // Reversing is its own inverse, so this is a hash with that place.
        let index = self.index((cursor << (u64::BITS - PLACE_BITS)).reverse_bits());
        let width = 1u64 << (PLACE_BITS - self.depth(index));
        let numbers = self.segment(index).to_vec();
        let places = hash_all(&numbers, hashes).map(|(hash, number)| (place(hash), number));
        (places.filter(|(place, _)| *place >= cursor).collect(), (cursor | (width - 1)) + 1)
    }

    /// Returns how many bits a segment's hashes have in common.
    fn depth(&self, index: usize) -> u32 {
        let half = (self.mask as usize).div_ceil(2);
        let split = index >= half || index + half < self.segments;
        if split { self.mask.count_ones() } else { self.mask.count_ones() - 1 }
    }

    fn draw(&self, n: usize, below: &mut impl FnMut(u64) -> u64) -> usize {
        let n = n.max(1);
        (below(n as u64) as usize).min(n - 1)
    }

    /// Appends one segment and moves its entries to it, all from one other segment.
    #[cold]
    #[inline(never)]
    fn split(&mut self, hashes: &impl Hashes) {
        let new = self.segments;
        let depth = new.ilog2();
        let old = new - (1 << depth);
        let segment = self.segment(old);
        let (tags_from, moving, staying) = match segment.split_bit(depth) {
            SplitBit::OfTags(bit) => {
                let (moving, staying): (Vec<_>, Vec<_>) = segment.entries().partition(|(tag, _)| tag & bit != 0);
                (segment.tags_from(), moving, staying)
            }
            SplitBit::OfHashes => {
                let numbers = segment.to_vec();
                let (moving, staying): (Vec<_>, Vec<_>) =
                    hash_all(&numbers, hashes).partition(|(hash, _)| hash & 1 << depth != 0);
                let tags_from = depth + 1;
                let tagged = |entries: Vec<(u64, u32)>| {
                    entries.into_iter().map(|(hash, number)| (tag_at(tags_from, hash), number)).collect()
                };
                (tags_from, tagged(moving), tagged(staying))
            }
        };
        self.push_segment(Segment::new());
        self.refill(new, tags_from, moving);
        self.refill(old, tags_from, staying);
    }

    /// Drops the last segment and moves its entries back to the one that it was split from.
    #[cold]
    #[inline(never)]
    fn merge(&mut self) {
        let last = self.pop_segment();
        let depth = self.segments.ilog2();
        let into = self.segments - (1 << depth);
        let stays = self.segment(into);
        let tags_from = depth.min(stays.tags_from()).min(last.tags_from());
        let entries = stays.retagged(tags_from, into).chain(last.retagged(tags_from, self.segments)).collect();
        self.give_back(last.into_lines());
        self.refill(into, tags_from, entries);
    }

    /// Moves a segment to a new set of lines.
    #[cold]
    #[inline(never)]
    fn resize(&mut self, index: usize, lines: usize) {
        let lines = self.take_lines(index, lines);
        let before = self.segment_mut(index).move_to(lines);
        self.give_back(before);
    }

    /// Replaces the entries of a segment by these, with tags that begin at this bit.
    fn refill(&mut self, index: usize, tags_from: u32, entries: Vec<(u16, u32)>) {
        let lines = self.take_lines(index, lines_for(entries.len(), self.memory()));
        let before = mem::replace(self.segment_mut(index), Segment::of(lines, tags_from, entries));
        self.give_back(before.into_lines());
    }

    /// Returns empty lines for a segment.
    fn take_lines(&mut self, index: usize, lines: usize) -> Lines {
        match self.memory() {
            Memory::Own => Lines::own(lines),
            Memory::Pooled => self.pool.get_or_insert_default().take(lines, index),
        }
    }

    /// Gives back lines that no segment uses any more.
    fn give_back(&mut self, lines: Lines) {
        let Some(pool) = &mut self.pool else { return };
        if let Some(Moved { owner, from, lines }) = pool.give_back(lines) {
            debug_assert_eq!(self.segment(owner).first_line(), from, "these are another segment's lines");
            self.segment_mut(owner).set_lines(lines);
        } else if pool.is_empty() {
            self.pool = None;
        }
    }

    /// Returns where resized segments get their lines from.
    #[inline]
    fn memory(&self) -> Memory {
        if self.segments >= POOL_MIN_SEGMENTS { Memory::Pooled } else { Memory::Own }
    }

    fn push_segment(&mut self, segment: Segment) {
        let chunk = (self.segments - 1) >> CHUNK_BITS;
        if chunk == self.chunks.len() {
            // The first chunk grows step by step: most tables with several segments have few.
            self.chunks.push(if chunk == 0 { Vec::new() } else { Vec::with_capacity(1 << CHUNK_BITS) });
        }
        self.chunks[chunk].push(segment);
        self.segments += 1;
        self.mask = self.segments.next_power_of_two() as u64 - 1;
    }

    fn pop_segment(&mut self) -> Segment {
        let chunk = self.chunks.last_mut().expect("called with more than one segment");
        let segment = chunk.pop().expect("a chunk is removed with its last segment");
        if chunk.is_empty() {
            self.chunks.pop();
        }
        self.segments -= 1;
        self.mask = self.segments.next_power_of_two() as u64 - 1;
        segment
    }
}

const CHUNK_MASK: usize = (1 << CHUNK_BITS) - 1;

/// Hashes all these entries, and prefetches each before it is needed.
fn hash_all<'n>(numbers: &'n [u32], hashes: &'n impl Hashes) -> impl Iterator<Item = (u64, u32)> + 'n {
    numbers.iter().take(AHEAD).for_each(|number| hashes.prefetch(*number));
    numbers.iter().enumerate().map(|(i, number)| {
        if let Some(ahead) = numbers.get(i + AHEAD) {
            hashes.prefetch(*ahead);
        }
        (hashes.of(*number), *number)
    })
}

/// Returns the place at which the walk of SCAN meets an entry with this hash.
#[inline]
pub(crate) fn place(hash: u64) -> u64 {
    hash.reverse_bits() >> (u64::BITS - PLACE_BITS)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::line::SPENT_MAX;
    use super::*;
    use crate::base::os::allocated::{apart, apart_bytes};

    impl<F: Fn(u32) -> u64> Hashes for F {
        fn of(&self, number: u32) -> u64 {
            self(number)
        }

        fn prefetch(&self, _: u32) {}
    }

    /// SplitMix64's finalizer: all bits of the hash depend on all of the key.
    fn mix(key: u64) -> u64 {
        let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hash(key: u32) -> u64 {
        mix(key.into())
    }

    fn insert(table: &mut SplitTable, key: u32) -> bool {
        let absent = table.find(hash(key), |k| k == key).is_none();
        if absent {
            table.insert_unique(hash(key), key, &hash);
        }
        absent
    }

    fn remove(table: &mut SplitTable, key: u32) -> bool {
        table.remove(hash(key), |k| k == key).is_some()
    }

    fn filled(n: u32) -> SplitTable {
        let mut table = SplitTable::new();
        (0..n).for_each(|key| assert!(insert(&mut table, key)));
        table
    }

    /// Checks that each entry is in the segment of its hash, that each segment's lines belong to it, and that the
    /// counts agree.
    fn check(table: &SplitTable) {
        let (mut len, mut pooled) = (0, 0);
        for i in 0..table.segments {
            let owner = table.pool.as_ref().and_then(|pool| pool.owner_of(table.segment(i).in_lines()));
            assert!(owner.is_none_or(|owner| owner == i));
            pooled += usize::from(owner.is_some());
            table.segment(i).entries().for_each(|(tag, key)| {
                assert_eq!((table.index(hash(key)), table.segment(i).tag(hash(key))), (i, tag));
            });
            let spent = table.depth(i).checked_sub(table.segment(i).tags_from());
            assert!(spent.is_some_and(|spent| spent <= SPENT_MAX), "{spent:?}");
            len += table.segment(i).len();
        }
        assert_eq!(len, table.len());
        assert_eq!(pooled, table.pool.as_ref().map_or(0, |pool| pool.blocks()));
        assert_eq!(table.chunks.iter().map(Vec::len).sum::<usize>() + 1, table.segments);
    }

    #[test]
    fn an_empty_table_allocates_nothing() {
        let table = SplitTable::new();
        assert_eq!(table.mem_bytes(), 0);
        assert_eq!(table.scan(0, 10, &hash, |_| panic!("no entry")), 0);
        assert!(table.random(|_| 0).is_none());
    }

    #[test]
    fn an_entry_takes_the_stated_memory() {
        for n in [3_000, 40_000, 500_000] {
            let each = filled(n).mem_bytes() as f64 / f64::from(n);
            assert!((each - ENTRY_SHARE_BYTES as f64).abs() < 1.0, "{n}: {each}");
        }
    }

    #[test]
    fn a_table_with_a_known_number_of_entries_never_splits() {
        for n in [SEGMENT_LOAD as u32 + 1, 5_000, 100_000] {
            let mut table = SplitTable::new();
            table.expect(n as usize);
            let segments = table.segments;
            assert_eq!(table.iter().count(), 0);
            assert!(segments > 1 && table.mem_bytes() < n as usize, "so far only the headers take memory");
            (0..n).for_each(|key| assert!(insert(&mut table, key)));
            assert_eq!(table.segments, segments);
            check(&table);
            assert!(table.mem_bytes() <= filled(n).mem_bytes() * 5 / 4, "{n}");
            (0..n).for_each(|key| assert!(remove(&mut table, key)));
            assert_eq!((table.segments, table.len()), (1, 0));
        }
        let mut table = filled(10);
        table.expect(5_000);
        assert_eq!(table.segments, 1, "only an empty segment");
    }

    #[test]
    fn a_table_that_expected_more_may_expect_again() {
        for again in [5_000, 60_000, 200_000] {
            let mut table = SplitTable::new();
            table.expect(100_000);
            (0..100).for_each(|key| assert!(insert(&mut table, key)));
            (0..100).for_each(|key| assert!(remove(&mut table, key)));
            assert!(table.is_empty() && table.segments > 100);
            table.expect(again);
            (0..300_000).for_each(|key| assert!(insert(&mut table, key)));
            check(&table);
            (0..300_000).for_each(|key| assert!(remove(&mut table, key)));
            check(&table);
        }
    }

    #[test]
    fn a_table_that_expected_more_is_walked_and_drawn_from() {
        let mut table = SplitTable::new();
        table.expect(100_000);
        (0..1_000).for_each(|key| assert!(insert(&mut table, key)));
        let (mut cursor, mut seen) = (0, Vec::new());
        loop {
            cursor = table.scan(cursor, 10, &hash, |key| seen.push(key));
            if cursor == 0 {
                break;
            }
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1_000));
        assert!(table.random(|n| n / 2).is_some());
        assert!(remove(&mut table, 7));
        check(&table);
    }

    /// The maker of a file can claim any number of keys.
    #[test]
    fn a_table_that_expected_more_costs_only_the_entries_that_came() {
        for n in [0, 1, 1_000, 30_000, 200_000] {
            let mut table = SplitTable::new();
            table.expect(10_000_000);
            (0..n).for_each(|key| assert!(insert(&mut table, key)));
            let segments = table.segments;
            let headers = segments * size_of::<Segment>();
            let (while_it_fills, as_it_grows) = (table.mem_bytes(), filled(n).mem_bytes());
            assert!(while_it_fills < 2 * headers + 100 * n as usize + as_it_grows, "{n}: {while_it_fills}");
            table.fit();
            check(&table);
            assert_eq!(table.len(), n as usize);
            // The segments that a SCAN has to walk through.
            assert!(table.segments <= (n as usize / (SEGMENT_LOAD / 2)).max(1), "{n}: {} segments", table.segments);
            assert!(table.mem_bytes() <= as_it_grows * 3 / 2 + 16 * 1024, "{n}: {} bytes", table.mem_bytes());
            assert!((0..n).all(|key| !insert(&mut table, key)));
        }
        let mut table = filled(5_000);
        let segments = table.segments;
        table.fit();
        assert_eq!(table.segments, segments, "nothing was expected");
    }

    #[test]
    fn a_small_table_is_one_segment() {
        assert_eq!(filled(SEGMENT_LOAD as u32).segments, 1);
        assert_eq!(filled(SEGMENT_LOAD as u32 + 1).segments, 2);
    }

    #[test]
    fn segments_follow_the_entries() {
        let n = 300_000u32;
        let mut table = filled(n);
        check(&table);
        assert_eq!(table.segments, n as usize / SEGMENT_LOAD);
        let largest = (0..table.segments).map(|i| table.segment(i).len()).max();
        assert!(largest < Some(SEGMENT_LOAD * 5 / 2), "{largest:?}");
        let full = table.mem_bytes();
        for key in 0..n {
            assert!(remove(&mut table, key));
        }
        check(&table);
        assert_eq!(table.segments, 1);
        assert!(table.mem_bytes() * 100 < full, "{} of {full} bytes stay", table.mem_bytes());
    }

    /// Lines move within the pool whenever another segment outgrows its own. Allocated bytes count, except those that
    /// the pool sets aside.
    #[test]
    fn lines_stay_with_their_segments_while_a_table_grows_and_shrinks() {
        let n = if cfg!(miri) { 10_000 } else { 200_000u32 };
        let is_there = |table: &SplitTable, key| table.find(hash(key), |k| k == key).is_some();
        std::thread::spawn(move || {
            apart(|| {
                let mut table = SplitTable::new();
                for key in 0..n {
                    assert!(insert(&mut table, key));
                    if key % (n / 50) == 0 {
                        assert_eq!(apart_bytes(), table.mem_bytes() as isize);
                        check(&table);
                        assert!((0..=key).step_by(97).all(|key| is_there(&table, key)));
                    }
                }
                assert!(table.pool.as_ref().map_or(0, |pool| pool.blocks()) > table.segments / 2);
                let mut copy = table.clone();
                for key in 0..n {
                    assert!(remove(&mut table, key));
                    if key % (n / 50) == 0 {
                        check(&table);
                        assert!((key + 1..n).step_by(97).all(|key| is_there(&table, key)));
                    }
                }
                assert_eq!((table.len(), table.pool.is_none()), (0, true));
                drop(table);
                assert_eq!(apart_bytes(), copy.mem_bytes() as isize);
                (n..2 * n).for_each(|key| assert!(insert(&mut copy, key)));
                (0..n).step_by(2).for_each(|key| assert!(remove(&mut copy, key)));
                check(&copy);
                assert!((1..n).step_by(2).chain(n..2 * n).all(|key| is_there(&copy, key)));
                drop(copy);
                assert_eq!(apart_bytes(), 0);
            });
        })
        .join()
        .expect("all holds");
    }

    #[test]
    fn any_cursor_is_safe() {
        for n in [0, 1, 5, 1000, 5000] {
            let table = filled(n);
            for shift in 0..64 {
                for cursor in [1u64 << shift, (1 << shift) - 1, u64::MAX << shift, u64::MAX >> shift] {
                    for count in [0, 1, usize::MAX] {
                        let next = table.scan(cursor, count, &hash, |_| ());
                        assert!(next == 0 || (next > cursor && next < PLACE_END));
                    }
                }
            }
        }
    }

    /// A caller that hashes many entries should wait for the memory of all of them at once.
    #[test]
    fn entries_are_prefetched_before_they_are_hashed() {
        #[derive(Default)]
        struct Watched(RefCell<HashSet<u32>>);
        impl Hashes for Watched {
            fn of(&self, number: u32) -> u64 {
                assert!(self.0.borrow_mut().remove(&number), "{number} was not prefetched, or is hashed again");
                hash(number)
            }
            fn prefetch(&self, number: u32) {
                self.0.borrow_mut().insert(number);
                assert!(self.0.borrow().len() <= AHEAD + 1, "more than the processor can wait for");
            }
        }
        let watched = Watched::default();
        let mut table = SplitTable::new();
        (0..5_000).for_each(|key| table.insert_unique(hash(key), key, &watched));
        let mut seen = 0;
        assert_eq!(table.scan(0, usize::MAX, &watched, |_| seen += 1), 0);
        assert_eq!((seen, table.segments > 1), (5_000, true));
    }

    /// Two of three splits need no hashes.
    #[test]
    fn entries_are_seldom_hashed_again() {
        struct Counted(Cell<usize>);
        impl Hashes for Counted {
            fn of(&self, number: u32) -> u64 {
                self.0.set(self.0.get() + 1);
                hash(number)
            }
            fn prefetch(&self, _: u32) {}
        }
        let counted = Counted(Cell::new(0));
        let mut table = SplitTable::new();
        let mut hashed = Vec::new();
        for doubling in 0..8 {
            let n = (SEGMENT_LOAD as u32) << doubling;
            (table.len() as u32..n).for_each(|key| table.insert_unique(hash(key), key, &counted));
            hashed.push(counted.0.take().div_ceil(n as usize));
        }
        // From one segment to two, to four, to eight, ...
        assert_eq!(hashed, [0, 0, 0, 1, 0, 0, 1, 0]);
    }

    #[test]
    fn entries_of_one_place_stay_together() {
        let mut table = SplitTable::new();
        let hash = |_| 7 << 4;
        (0..50).for_each(|key| table.insert_unique(hash(key), key, &hash));
        let mut seen = 0;
        assert_eq!(table.scan(0, 10, &hash, |_| seen += 1), place(7 << 4) + 1);
        assert_eq!(seen, 50);
    }

    /// Checks entries on both sides of every border between segments, which random hashes practically never hit.
    #[test]
    fn a_scan_crosses_segment_borders_without_a_gap() {
        let places: Vec<u64> = (0..4096).flat_map(|i| [i << 36, (i << 36) + 1, ((i + 1) << 36) - 1]).collect();
        let hash_of = |number: u32| {
            let at = places[number as usize];
            (at << (u64::BITS - PLACE_BITS)).reverse_bits()
        };
        let mut table = SplitTable::new();
        (0..places.len() as u32).for_each(|number| table.insert_unique(hash_of(number), number, &hash_of));
        assert!(table.segments > 16);
        for count in [1, 2, 7, 500, usize::MAX] {
            let mut seen = Vec::new();
            let mut cursor = 0;
            loop {
                cursor = table.scan(cursor, count, &hash_of, |number| seen.push(number));
                if cursor == 0 {
                    break;
                }
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..places.len() as u32));
        }
    }

    /// A walk must continue where it stopped, and meet all entries in the order of their places.
    #[test]
    fn a_walk_continues_where_it_stopped() {
        for n in [0, 1, 50, 5_000] {
            let table = filled(n);
            let mut seen = Vec::new();
            let (mut cursor, mut turn) = (0, 0);
            while cursor < PLACE_END {
                cursor = table.walk(cursor, &hash, |together| {
                    turn += 1;
                    seen.extend(together.iter().map(|(place, _)| *place));
                    if turn % 3 == 0 { Walk::Stop } else { Walk::Continue }
                });
            }
            assert!(seen.is_sorted() && seen.len() == n as usize);
        }
    }

    #[test]
    fn random_draws_evenly() {
        let mut state = 1u64;
        let mut below = |n: u64| {
            state = state.wrapping_add(1);
            mix(state) % n
        };
        for n in [1, 10, 700, 2100] {
            let table = filled(n);
            let mut drawn: HashMap<u32, u32> = HashMap::new();
            for _ in 0..n * 100 {
                *drawn.entry(table.random(&mut below).expect("not empty")).or_default() += 1;
            }
            assert_eq!(drawn.len() as u32, n);
            // Expected are 100, with a standard deviation of 10.
            assert!(drawn.values().all(|count| (40..170).contains(count)), "of {n}: {:?}", drawn.values().max());
        }
        // Draws that never hit must still find an entry.
        assert!(filled(10).random(|_| u64::MAX).is_some());
        assert!(filled(2000).random(|_| 0).is_some());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u32, u32),
        Remove(u32, u32),
        Scan(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..12_000u32, 1..6_000u32).prop_map(|(from, n)| Step::Insert(from, n)),
            (0..12_000u32, 1..9_000u32).prop_map(|(from, n)| Step::Remove(from, n)),
            (1..1_500usize).prop_map(Step::Scan),
        ];
        proptest::collection::vec(step, 1..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Compares the table with a `HashSet`. A SCAN woven into the changes must return all entries that stayed, and
        /// none of them twice.
        #[test]
        fn behaves_as_a_set(steps in steps()) {
            let mut table = SplitTable::new();
            let mut model: HashSet<u32> = HashSet::new();
            let mut cursor = 0;
            let mut stayed: Option<HashSet<u32>> = None;
            let mut seen: HashMap<u32, u32> = HashMap::new();
            for step in steps.into_iter().chain([Step::Scan(usize::MAX)]) {
                match step {
                    Step::Insert(from, n) => (from..from + n).for_each(|key| {
                        assert_eq!(insert(&mut table, key), model.insert(key));
                    }),
                    Step::Remove(from, n) => (from..from + n).for_each(|key| {
                        assert_eq!(remove(&mut table, key), model.remove(&key));
                        if let Some(stayed) = &mut stayed {
                            stayed.remove(&key);
                        }
                    }),
                    Step::Scan(count) => {
                        stayed.get_or_insert_with(|| model.clone());
                        cursor = table.scan(cursor, count, &hash, |key| {
                            assert!(model.contains(&key));
                            *seen.entry(key).or_default() += 1;
                        });
                        if cursor == 0 {
                            for key in stayed.take().expect("set above") {
                                prop_assert_eq!(seen.get(&key), Some(&1));
                            }
                            seen.clear();
                        }
                    }
                }
                check(&table);
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.iter().count(), model.len());
            }
            for key in 0..21_000 {
                prop_assert_eq!(table.find(hash(key), |k| k == key).is_some(), model.contains(&key));
            }
        }
    }
}
