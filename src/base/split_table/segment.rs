//! One segment of a [`SplitTable`](super::SplitTable): some hundreds of numbers, found by 16 bits of their hashes.
//!
//! A segment is an open-addressing table of **[lines](super::line)**. Each has the size of a cache line, with the
//! numbers and tags of up to ten entries. The tag, as a fraction of 2^16, selects the line that is the entry's *home*:
//! `tag * lines / 2^16`. If that one is full, the entry goes to the next one that is not, around the end if need be,
//! and every line on its way counts it as *passed*. So a lookup reads one line, and another only where a similar entry
//! has passed. A removal counts down, leaves no tombstone, and moves up an entry that has passed. (The idea comes from
//! Facebook's F14: "Open-sourcing F14 for faster, more memory-efficient hash tables", 2019. Here there are four counts,
//! for different tags, so that a lookup of an absent entry goes on half as often.)
//!
//! The tag alone says where an entry lies, and the tag is stored. So a segment grows and shrinks without asking for a
//! hash, which would cost a cache miss per entry. It can do so often, in small steps, and stays four fifths full. The
//! segment says when ([`has_room`](Segment::has_room), [`fewer_lines`](Segment::fewer_lines)); the table allocates.
//!
//! A segment records at which bit of the hash its tags begin. It is split by the next bit of its hashes, behind all
//! bits that they have in common. That bit also belongs to the tags, as long as few bits of the tags are *spent*, that
//! is, the same in the whole segment. Home is decided by the high bits, which are never spent. But each spent bit makes
//! it twice as likely that two entries of a line have the same tag, so that one is looked at in vain. This happens to
//! 1.3 % of the lookups that find nothing in a full segment, and with two bits spent to 5 %; to other lookups half as
//! often. So every third split of a segment needs hashes, to begin the tags anew. A merge needs none: the bits that the
//! tags then lack are in the segment's number.

use std::mem;

use super::line::{CELLS, Line, SPENT_MAX};
use super::lines::{Lines, POOLED_LINES_MAX, pooled_lines};
use crate::base::prefetch::prefetch;

/// Mean entries in a line for which a segment has room. In a full segment a lookup then reads 1.28 lines, and one that
/// finds nothing 2.7; if the segment could stay full for long while entries come and go, they would read 1.5 and 4.5.
/// But most segments are not full. An index of 10 million new entries is searched as fast as one with half an entry
/// less per line, to a few nanoseconds, and takes a twentieth less memory.
const LINE_LOAD: usize = 9;

/// Number of lines behind a removed entry in which an entry that could move up is looked for. Looking further gains
/// next to nothing.
const LOOK_BEHIND: usize = 2;

/// Number of lines up to which a power of two of them is aligned to its size: 4 KiB.
const ALIGNED_LINES: usize = 64;

/// Number of lines up to which a segment doesn't shrink, lest a lock that comes and goes cost an allocation.
const KEPT_LINES: usize = 2;

/// Numbers with their tags.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    lines: Lines,
    len: u32,
    /// The bit of the hashes at which tags begin. It is not behind the first bit that differs within the segment, and
    /// at most [`SPENT_MAX`] before it.
    tags_from: u32,
}

/// The bit by which the entries of a segment are divided when it splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitBit {
    /// This bit of their tags.
    OfTags(u16),
    /// A bit of their hashes, because the bit of the tags must not be spent.
    OfHashes,
}

impl Segment {
    /// Makes an empty segment, without allocation.
    pub(super) const fn new() -> Segment {
        Segment { lines: Lines::NONE, len: 0, tags_from: 0 }
    }

    /// Makes a segment of these numbers with their tags, which begin at this bit of the hashes. `lines` must be empty
    /// and have room.
    pub(super) fn of(lines: Lines, tags_from: u32, entries: impl IntoIterator<Item = (u16, u32)>) -> Segment {
        let mut segment = Segment { lines, len: 0, tags_from };
        entries.into_iter().for_each(|(tag, number)| segment.put_tagged(tag, number));
        segment
    }

    /// Returns the number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the bit of the hashes at which tags begin.
    pub(super) fn tags_from(&self) -> u32 {
        self.tags_from
    }

    /// Lets the tags of an empty segment begin at another bit.
    pub(super) fn begin_tags(&mut self, from: u32) {
        debug_assert_eq!(self.len, 0, "the tags of its entries begin elsewhere");
        self.tags_from = from;
    }

    /// Returns the tag of an entry with this hash.
    #[inline]
    pub(super) fn tag(&self, hash: u64) -> u16 {
        tag_at(self.tags_from, hash)
    }

    /// Returns how to divide a segment whose hashes have their lowest `depth` bits in common.
    pub(super) fn split_bit(&self, depth: u32) -> SplitBit {
        debug_assert!(self.tags_from <= depth, "the first bit that differs is part of the tags");
        let bit = depth - self.tags_from;
        if bit < SPENT_MAX { SplitBit::OfTags(1 << bit) } else { SplitBit::OfHashes }
    }

    /// Returns the entries with tags that begin at an earlier bit. As this is segment `index`, the missing bits are
    /// those of `index`.
    pub(super) fn retagged(&self, tags_from: u32, index: usize) -> impl Iterator<Item = (u16, u32)> {
        debug_assert!(tags_from <= self.tags_from, "later bits are not known");
        let missing = self.tags_from - tags_from;
        let low = tag_at(tags_from, index as u64) & ((1 << missing) - 1);
        self.entries().map(move |(tag, number)| (tag << missing | low, number))
    }

    /// Returns the number with this hash for which `eq` is true.
    #[inline]
    pub(super) fn find(&self, hash: u64, eq: impl FnMut(u32) -> bool) -> Option<u32> {
        self.locate(self.tag(hash), eq).map(|found| found.number)
    }

    /// Starts to fetch into the cache the line in which the search for this hash begins.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.prefetch_line(self.home(self.tag(hash)));
    }

    /// Does the same as [`find`](Self::find), to replace the number.
    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, eq: impl FnMut(u32) -> bool) -> Option<&mut u32> {
        let found = self.locate(self.tag(hash), eq)?;
        Some(&mut self.lines[found.line].numbers[found.cell])
    }

    /// Adds an entry, for which there must be room.
    #[inline]
    pub(super) fn put(&mut self, hash: u64, number: u32) {
        self.put_tagged(self.tag(hash), number);
    }

    #[inline]
    fn put_tagged(&mut self, tag: u16, number: u32) {
        debug_assert!(self.len() < self.cells(), "the caller makes room");
        let mut at = self.home(tag);
        while !self.lines[at].put(tag, number) {
            at = self.after(at);
        }
        self.len += 1;
    }

    /// Removes the number with this hash for which `eq` is true.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64, eq: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = self.tag(hash);
        let found = self.locate(tag, eq)?;
        self.lines[found.line].free(found.cell);
        self.len -= 1;
        self.forget_passed(tag, self.home(tag), found.line);
        if self.lines[found.line].was_passed_by_any() {
            self.fill(found.line);
        }
        Some(found.number)
    }

    /// Counts one passed entry less in the lines from `from` to before `until`.
    #[inline]
    fn forget_passed(&mut self, tag: u16, from: usize, until: usize) {
        let mut at = from;
        while at != until {
            self.lines[at].forget_passed(tag);
            at = self.after(at);
        }
    }

    /// Moves entries up that have passed a line which now has room. Otherwise more and more entries would stay away
    /// from their homes while entries come and go: in a full segment, lookups would come to read 1.7 lines, and 6 to
    /// find nothing. Some entries stay away all the same, because only the next lines are looked at.
    #[inline(never)]
    fn fill(&mut self, mut free: usize) {
        while let Some(Found { line, cell, number }) = self.passer(free) {
            let tag = self.lines[line].tags[cell];
            self.lines[line].free(cell);
            self.forget_passed(tag, free, line);
            self.lines[free].put(tag, number);
            free = line;
        }
    }

    /// Returns an entry close behind a line that it has passed.
    fn passer(&self, free: usize) -> Option<Found> {
        let mut at = free;
        for away in 1..=LOOK_BEHIND.min(self.lines.len() - 1) {
            if !self.lines[at].was_passed_by_any() {
                return None;
            }
            at = self.after(at);
            let line = &self.lines[at];
            let has_passed = |cell: &usize| self.distance(self.home(line.tags[*cell]), at) >= away;
            if let Some(cell) = line.taken().find(has_passed) {
                return Some(Found { line: at, cell, number: line.numbers[cell] });
            }
        }
        None
    }

    /// Returns how many lines `to` is behind `from`, around the end.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.lines.len() - from }
    }

    /// Whether there is room for one more entry.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len() < room_of(self.lines.len())
    }

    /// Returns how many lines the segment should have for one more entry, when there is no room.
    pub(super) fn more_lines(&self, memory: Memory) -> usize {
        lines_for(self.len() + 1, memory)
    }

    /// Returns how many lines the segment should have if it has too many after a removal. They leave room for half as
    /// many more entries, so that a segment whose size swings is not resized at each turn.
    #[inline]
    pub(super) fn fewer_lines(&self, memory: Memory) -> Option<usize> {
        let ample = lines_for(self.len() + self.len() / 2, memory);
        (self.lines() > KEPT_LINES && ample < self.lines()).then_some(ample)
    }

    /// Moves the entries to other lines, which are empty and have room. Returns the old lines.
    pub(super) fn move_to(&mut self, lines: Lines) -> Lines {
        let moved = Segment::of(lines, self.tags_from, self.entries());
        mem::replace(self, moved).lines
    }

    /// Returns the address of the first line.
    pub(super) fn first_line(&self) -> *const Line {
        self.lines.as_ptr()
    }

    /// Sets the lines to others with the same contents, after the lines have moved.
    pub(super) fn set_lines(&mut self, lines: Lines) {
        self.lines = lines;
    }

    /// Returns the lines of the segment.
    #[cfg(test)]
    pub(super) fn in_lines(&self) -> &Lines {
        &self.lines
    }

    /// Returns the lines of the segment, to give them back.
    pub(super) fn into_lines(self) -> Lines {
        self.lines
    }

    /// Returns all numbers, in no particular order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.entries().map(|(_, number)| number)
    }

    /// Collects [`numbers`](Self::numbers).
    pub(super) fn to_vec(&self) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(self.len());
        self.numbers().for_each(|number| numbers.push(number));
        numbers
    }

    /// Returns the number of cells, taken or free.
    pub(super) fn cells(&self) -> usize {
        self.lines.len() * CELLS
    }

    /// Returns the number of lines.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns the numbers in one line; none if there is no such line.
    pub(super) fn line(&self, at: usize) -> impl Iterator<Item = u32> {
        self.lines.get(at).into_iter().flat_map(Line::entries).map(|(_, number)| number)
    }

    /// Starts to fetch a line into the cache, if it exists.
    #[inline]
    pub(super) fn prefetch_line(&self, at: usize) {
        self.lines.get(at).into_iter().for_each(prefetch);
    }

    /// Returns the number in one of the [cells](Self::cells), if the cell is taken.
    pub(super) fn in_cell(&self, cell: usize) -> Option<u32> {
        let (line, cell) = (&self.lines[cell / CELLS], cell % CELLS);
        line.is_taken(cell).then(|| line.numbers[cell])
    }

    /// Returns the number of bytes allocated.
    pub(super) fn mem_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Locates the entry with this tag for which `eq` is true.
    #[inline]
    fn locate(&self, tag: u16, mut eq: impl FnMut(u32) -> bool) -> Option<Found> {
        let mut at = self.home(tag);
        for _ in 0..self.lines.len() {
            let line = &self.lines[at];
            for cell in line.matches(tag) {
                let number = line.numbers[cell];
                if eq(number) {
                    return Some(Found { line: at, cell, number });
                }
            }
            if !line.was_passed(tag) {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// Returns all tags and numbers, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u16, u32)> {
        self.lines.iter().flat_map(Line::entries)
    }

    /// Returns the line where the search for a tag begins.
    #[inline]
    fn home(&self, tag: u16) -> usize {
        (usize::from(tag) * self.lines.len()) >> u16::BITS
    }

    /// Returns the line after this one; the first after the last.
    #[inline]
    fn after(&self, line: usize) -> usize {
        if line + 1 == self.lines.len() { 0 } else { line + 1 }
    }
}

/// Returns the tag of an entry with this hash, if tags begin at this bit.
#[inline]
pub(super) fn tag_at(bit: u32, hash: u64) -> u16 {
    (hash >> bit) as u16
}

/// Returns the number of entries for which `lines` have room.
#[inline]
fn room_of(lines: usize) -> usize {
    lines * LINE_LOAD
}

/// Returns the number of lines with room for `entries`.
#[inline]
fn lines_needed(entries: usize) -> usize {
    entries.div_ceil(LINE_LOAD)
}

/// Where the lines of a segment are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// In a block from the allocator.
    Own,
    /// In the table's pool, unless there are too many.
    Pooled,
}

/// Returns the number of lines of a segment with room for `entries`.
#[inline]
pub(super) fn lines_for(entries: usize, memory: Memory) -> usize {
    let needed = lines_needed(entries);
    if needed <= 4 {
        return if needed == 0 { 0 } else { needed.next_power_of_two() };
    }
    if memory == Memory::Pooled && needed <= POOLED_LINES_MAX {
        return pooled_lines(needed);
    }
    // About four steps for each doubling, like the allocator's blocks. Most blocks lose a line to alignment.
    let in_block = (needed + 1).next_multiple_of(1 << (needed.ilog2() - 2)) - 1;
    let power = needed.next_power_of_two();
    if power <= ALIGNED_LINES && power - 1 <= in_block { power } else { in_block }
}

/// The location of an entry.
struct Found {
    line: usize,
    cell: usize,
    number: u32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::line::PASSED_MAX;
    use super::*;
    use crate::base::rng::Rng;

    impl Segment {
        /// Adds an entry, as a table does.
        fn insert(&mut self, tag: u16, number: u32) {
            if !self.has_room() {
                drop(self.move_to(Lines::own(self.more_lines(Memory::Own))));
            }
            self.put(tag.into(), number);
        }

        /// Returns the number of lines that a lookup reads.
        fn lines_read(&self, tag: u16, number: u32) -> usize {
            let mut at = self.home(tag);
            let mut read = 1;
            while !self.lines[at].entries().any(|entry| entry == (tag, number)) && self.lines[at].was_passed(tag) {
                at = self.after(at);
                read += 1;
            }
            read
        }

        fn room(&self) -> usize {
            room_of(self.lines.len())
        }

        /// Checks that every entry lies where a lookup passes, and that every line has counted the entries that have
        /// passed.
        fn check(&self) {
            let mut passed = vec![[0; 4]; self.lines.len()];
            for (at, line) in self.lines.iter().enumerate() {
                for (tag, number) in line.entries() {
                    let mut way = self.home(tag);
                    while way != at {
                        passed[way][(usize::from(tag) >> SPENT_MAX) % 4] += 1;
                        way = self.after(way);
                    }
                    assert_eq!(self.find(tag.into(), |other| other == number), Some(number));
                }
            }
            for (line, passed) in self.lines.iter().zip(passed) {
                for (count, passed) in (0..).zip(passed) {
                    let counted = line.passed_by(count << SPENT_MAX);
                    assert!(counted == passed.min(PASSED_MAX) || counted == PASSED_MAX, "{counted} of {passed}");
                }
            }
            assert_eq!(self.entries().count(), self.len());
            assert!(self.len() <= self.room());
        }
    }

    /// Returns tags like those of a good hash.
    fn spread(number: u32) -> u16 {
        (number.wrapping_mul(0x9e37_79b9) >> 16) as u16
    }

    fn filled(n: u32, tag: impl Fn(u32) -> u16) -> Segment {
        let mut segment = Segment::new();
        (0..n).for_each(|number| segment.insert(tag(number), number));
        segment
    }

    fn remove(segment: &mut Segment, tag: u16, number: u32) -> bool {
        let is_removed = segment.remove(tag.into(), |other| other == number).is_some();
        if let Some(lines) = segment.fewer_lines(Memory::Own) {
            drop(segment.move_to(Lines::own(lines)));
        }
        is_removed
    }

    #[test]
    fn a_segment_grows_and_shrinks_in_small_steps() {
        let mut segment = Segment::new();
        assert_eq!(segment.mem_bytes(), 0);
        // The bound: a quarter more than needed, and a part of the last line.
        let room_for = |len: usize| len + len / 4 + 2 * LINE_LOAD;
        for number in 0..3_000 {
            segment.insert(spread(number), number);
            let (room, len) = (segment.room(), segment.len());
            assert!(room <= room_for(len), "room for {room} with {len}");
        }
        segment.check();
        assert!(segment.mem_bytes() < 3_000 * 9);
        for number in 0..3_000 {
            assert!(remove(&mut segment, spread(number), number));
            let (room, len) = (segment.room(), segment.len());
            assert!(room <= room_for(len + len / 2), "room for {room} with {len}");
        }
        assert_eq!((segment.len(), segment.lines.len()), (0, KEPT_LINES));
    }

    /// A size that swings must not cost a resize at each turn.
    #[test]
    fn a_segment_is_not_resized_twice_for_one_entry() {
        for lines in [1, 2, 4, 8, 16, 32, 96] {
            let n = room_of(lines) as u32;
            let mut segment = filled(n + 1, spread);
            assert!(segment.lines.len() > lines);
            let lines = segment.lines.len();
            assert!(remove(&mut segment, spread(n), n));
            assert_eq!(segment.lines.len(), lines, "of {n}");
        }
    }

    #[test]
    fn only_entries_with_this_tag_are_compared() {
        let segment = filled(1_000, |number| (number * 65) as u16);
        for number in 0..1_000 {
            let mut compared = Vec::new();
            assert_eq!(
                segment.find(u64::from(number) * 65, |other| {
                    compared.push(other);
                    false
                }),
                None
            );
            assert_eq!(compared, [number]);
        }
        assert_eq!(segment.find(1, |_| panic!("nothing has this tag")), None);
    }

    /// Whatever the tags are, every entry must be found.
    #[test]
    fn lines_that_overflow_lose_nothing() {
        let tags: [fn(u32) -> u16; 5] = [
            |_| 0,
            // The way to a free line goes around the end.
            |_| u16::MAX,
            |number| if number % 2 == 0 { 0 } else { u16::MAX },
            |number| (number % 64) as u16,
            |number| (number % 3 * 0x4000) as u16,
        ];
        for tag in tags {
            for n in [9, 10, 12, 20, 300] {
                let mut segment = filled(n, tag);
                segment.check();
                // Removes entries in another order than they were inserted.
                for (removed, number) in (0..n).map(|i| i * 7919 % n).enumerate() {
                    assert!(remove(&mut segment, tag(number), number), "{number} of {n}");
                    assert!(!remove(&mut segment, tag(number), number));
                    assert_eq!(segment.len(), n as usize - removed - 1);
                    if removed % 16 == 0 {
                        segment.check();
                    }
                }
            }
        }
    }

    #[test]
    fn a_removal_moves_up_an_entry_that_had_passed() {
        let mut segment = filled(12, |_| 0);
        let counts = |segment: &Segment| -> Vec<_> {
            segment.lines.iter().map(|line| (line.taken().count(), line.passed_by(0))).collect()
        };
        assert_eq!(counts(&segment), [(10, 2), (2, 0)]);
        // An entry of the second line takes its place.
        assert!(remove(&mut segment, 0, 3));
        assert_eq!(counts(&segment), [(10, 1), (1, 0)]);
        segment.insert(0, 12);
        assert_eq!(counts(&segment), [(10, 2), (2, 0)]);
        assert!(remove(&mut segment, 0, 10) && remove(&mut segment, 0, 11));
        assert_eq!(counts(&segment), [(10, 0), (0, 0)]);
    }

    #[test]
    fn a_lookup_stops_at_a_line_that_no_similar_entry_has_passed() {
        let mut segment = filled(12, |_| 0);
        // A state that can't arise: the second line holds two entries that were never counted.
        segment.lines[0].set_passed(0, 0);
        let sees = |segment: &Segment, tag: u64| {
            let mut seen = 0;
            segment.find(tag, |_| {
                seen += 1;
                false
            });
            seen
        };
        assert_eq!(sees(&segment, 0), 10);
        // First counted for other tags, then for this one.
        segment.lines[0].set_passed(1 << SPENT_MAX, PASSED_MAX);
        assert_eq!(sees(&segment, 0), 10);
        segment.lines[0].set_passed(1 << SPENT_MAX, 0);
        segment.lines[0].set_passed(0, 1);
        assert_eq!(sees(&segment, 0), 12);
    }

    #[test]
    fn a_count_at_its_maximum_stays_there_until_a_resize() {
        let mut segment = filled(12, |_| 0);
        segment.lines[0].set_passed(0, PASSED_MAX - 1);
        (12..16).for_each(|number| segment.insert(0, number));
        assert_eq!(segment.lines[0].passed_by(0), PASSED_MAX);
        for number in 10..16 {
            assert!(remove(&mut segment, 0, number));
            assert_eq!(segment.lines[0].passed_by(0), PASSED_MAX);
            assert!((number + 1..16).all(|number| segment.find(0, |other| other == number).is_some()));
        }
        assert_eq!(segment.find(0, |_| false), None);
        let lines = segment.lines.len();
        (16..25).for_each(|number| segment.insert(0, number));
        assert!(segment.lines.len() > lines);
        assert_eq!(segment.lines[0].passed_by(0), 9, "counted anew");
        segment.check();
    }

    #[test]
    fn each_entry_is_in_one_cell() {
        let segment = filled(700, spread);
        let mut numbers: Vec<_> = (0..segment.cells()).filter_map(|cell| segment.in_cell(cell)).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..700));
    }

    /// Lookups should read few lines of a full segment, even after many entries have come and gone.
    #[test]
    #[cfg_attr(miri, ignore = "too slow for so many")]
    fn lookups_stay_short_where_entries_come_and_go() {
        const SEGMENTS: u32 = 8;
        let mut rng = Rng::seeded(3);
        // Lines read to find an entry, and to find none: before and after.
        let mut read = [[0.0; 2]; 2];
        for _ in 0..SEGMENTS {
            let lines = 80;
            let mut entries: Vec<_> =
                (0..room_of(lines) as u32).map(|number| (rng.next_u64() as u16, number)).collect();
            let mut segment = Segment::of(Lines::own(lines), 0, entries.iter().copied());
            for [found, missed] in &mut read {
                let mean = |of: &mut dyn Iterator<Item = (u16, u32)>| {
                    let read: Vec<_> = of.map(|(tag, number)| segment.lines_read(tag, number)).collect();
                    read.iter().sum::<usize>() as f64 / read.len() as f64 / f64::from(SEGMENTS)
                };
                *found += mean(&mut entries.iter().copied());
                *missed += mean(&mut (0..u16::MAX).step_by(16).map(|tag| (tag, u32::MAX)));
                for number in 0..200 * entries.len() as u32 {
                    let one = &mut entries[rng.below(lines as u64 * 8) as usize];
                    assert!(segment.remove(one.0.into(), |other| other == one.1).is_some());
                    *one = (rng.next_u64() as u16, 1_000 + number);
                    segment.put(one.0.into(), one.1);
                }
                segment.check();
            }
        }
        let [[found, missed], [found_then, missed_then]] = read;
        assert!(found < 1.4 && missed < 3.0, "{found} and {missed} lines");
        assert!(found_then < 1.6 && missed_then < 5.0, "{found_then} and {missed_then} lines");
    }

    /// Measures how often a lookup that finds nothing looks at an entry of a full segment in vain.
    #[test]
    #[cfg_attr(miri, ignore = "too slow for so many entries")]
    fn few_entries_are_compared_in_vain() {
        let mut rng = Rng::seeded(5);
        for (spent, expected) in [(0, 0.013), (1, 0.026), (SPENT_MAX, 0.05)] {
            let mut hash = || rng.next_u64() << spent;
            let (lookups, lines) = (200_000, 96);
            let segment =
                Segment::of(Lines::own(lines), 0, (0..room_of(lines) as u32).map(|number| (tag_at(0, hash()), number)));
            let mut seen = 0;
            for _ in 0..lookups {
                segment.find(hash(), |_| {
                    seen += 1;
                    false
                });
            }
            let share = f64::from(seen) / f64::from(lookups);
            assert!(share < expected * 1.3 && share > expected / 1.3, "{share} with {spent} spent");
        }
    }

    #[test]
    fn a_segment_is_split_by_tags_until_few_of_their_bits_are_left() {
        let mut segment = Segment::new();
        segment.begin_tags(7);
        let bits = [7, 8, 9, 10].map(|depth| segment.split_bit(depth));
        assert_eq!(bits, [SplitBit::OfTags(1), SplitBit::OfTags(2), SplitBit::OfHashes, SplitBit::OfHashes]);
    }

    #[test]
    fn tags_begin_at_an_earlier_bit_with_those_of_the_segments_number() {
        let hash = |number: u32| u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) << 9 | 0b1_0110_1011;
        let tags = |tags_from| (0..8).map(move |number| (tag_at(tags_from, hash(number)), number));
        let segment = Segment::of(Lines::own(2), 8, tags(8));
        for tags_from in 5..=8 {
            let mut entries: Vec<_> = segment.retagged(tags_from, 0b1_0110_1011).collect();
            entries.sort_unstable_by_key(|(_, number)| *number);
            assert!(entries.into_iter().eq(tags(tags_from)), "from bit {tags_from}");
        }
    }

    #[test]
    fn entries_move_to_other_lines() {
        let mut segment = filled(500, spread);
        let lines = segment.lines();
        let before = segment.move_to(Lines::own(2 * lines));
        segment.check();
        assert_eq!((segment.len(), segment.lines(), before.len()), (500, 2 * lines, lines));
    }

    /// A segment should cost nothing but its lines: no block may have room for another line.
    #[cfg(not(any(miri, sanitizer)))]
    #[test]
    fn the_allocator_has_blocks_of_just_these_sizes() {
        for entries in 1..2_000 {
            let lines = Lines::own(lines_for(entries, Memory::Own));
            // SAFETY: it is a block of the allocator.
            let usable = unsafe { libmimalloc_sys::mi_usable_size(lines.as_ptr().cast()) };
            let rest = usable - size_of_val(&lines[..]);
            assert!(rest <= size_of::<Line>(), "a rest of {rest} for {entries} in {}", lines.len());
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_list_of_pairs(
            // Tags from narrow to wide, so that some collide in all bits and some only in the line.
            bits in 0..=16u32,
            steps in proptest::collection::vec((any::<u16>(), any::<u32>(), 0..3u8), 0..600),
        ) {
            let mut segment = Segment::new();
            let mut model: Vec<(u16, u32)> = Vec::new();
            for (number, (tag, choice, step)) in steps.into_iter().enumerate() {
                if step == 0 && !model.is_empty() {
                    let (tag, number) = model.swap_remove(choice as usize % model.len());
                    prop_assert!(remove(&mut segment, tag, number));
                } else {
                    let tag = (u32::from(tag) >> (16 - bits)) as u16;
                    segment.insert(tag, number as u32);
                    model.push((tag, number as u32));
                }
            }
            segment.check();
            let mut entries: Vec<_> = segment.entries().collect();
            entries.sort_unstable();
            model.sort_unstable();
            prop_assert_eq!(entries, model);
        }
    }
}
