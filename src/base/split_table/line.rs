//! One line of a segment, which has the size of a cache line: some numbers, with their tags of 16 bits from the hash.
//!
//! ```text
//! | 10 tags of 2 bytes | which cells are taken, 2 bytes | 4 counts of 4 bits | 10 numbers of 4 bytes |   = 64 bytes
//! ```
//!
//! The taken cells and the counts form one number. They are read together, and a processor that reads more bytes than
//! it has just written waits until those are in the cache: when a segment moved to other lines, it spent a fifth of the
//! time on that.

/// Cells of a line, each of which holds the tag and the number of one entry.
pub(super) const CELLS: usize = 10;

/// How many of a tag's low bits may be the same in all of a segment.
pub(super) const SPENT_MAX: u32 = 2;

/// See the module's header.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line {
    pub(super) tags: [u16; CELLS],
    /// The lower half has a bit for each cell, set if the cell is taken. The upper half has four counts of
    /// [`PASSED_BITS`]: of entries that lie behind this line although their home is this line or one before it, by the
    /// lowest two bits of their tags that are never [spent](SPENT_MAX). A count that has reached [`PASSED_MAX`] stays
    /// there until the segment is resized, because the real number is unknown.
    state: u32,
    pub(super) numbers: [u32; CELLS],
}

const PASSED_BITS: u32 = 4;
pub(super) const PASSED_MAX: u32 = (1 << PASSED_BITS) - 1;

/// Bit of a line's state at which the counts begin.
const COUNTS_FROM: u32 = u16::BITS;

const _: () = assert!(size_of::<Line>() == 64 && CELLS < COUNTS_FROM as usize);

impl Line {
    pub(super) const EMPTY: Line = Line { tags: [0; CELLS], state: 0, numbers: [0; CELLS] };

    /// Adds an entry. If no cell is free, counts it as passed and returns false.
    #[inline]
    pub(super) fn put(&mut self, tag: u16, number: u32) -> bool {
        let cell = self.state.trailing_ones() as usize;
        if cell >= CELLS {
            if self.passed_by(tag) < PASSED_MAX {
                self.state += 1 << count_of(tag);
            }
            return false;
        }
        self.state |= 1 << cell;
        self.tags[cell] = tag;
        self.numbers[cell] = number;
        true
    }

    /// Returns the cells that are taken.
    #[inline]
    pub(super) fn taken(&self) -> Cells {
        Cells(self.state as u16)
    }

    /// Whether a cell is taken.
    #[inline]
    pub(super) fn is_taken(&self, cell: usize) -> bool {
        self.state & 1 << cell != 0
    }

    /// Frees a cell.
    #[inline]
    pub(super) fn free(&mut self, cell: usize) {
        self.state &= !(1 << cell);
    }

    /// Whether any entry may have passed.
    #[inline]
    pub(super) fn was_passed_by_any(&self) -> bool {
        self.state >> COUNTS_FROM != 0
    }

    /// Counts down for an entry with this tag that had passed and is removed.
    #[inline]
    pub(super) fn forget_passed(&mut self, tag: u16) {
        if self.passed_by(tag) < PASSED_MAX {
            self.state -= 1 << count_of(tag);
        }
    }

    /// Whether an entry with this tag may have passed.
    #[inline]
    pub(super) fn was_passed(&self, tag: u16) -> bool {
        self.passed_by(tag) > 0
    }

    /// Returns the count of passed entries that covers this tag.
    #[inline]
    pub(super) fn passed_by(&self, tag: u16) -> u32 {
        self.state >> count_of(tag) & PASSED_MAX
    }

    /// Returns the taken cells with this tag.
    #[inline]
    pub(super) fn matches(&self, tag: u16) -> Cells {
        Cells(self.equal_tags(tag) & self.taken().0)
    }

    /// Returns the cells with this tag, taken or not.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    fn equal_tags(&self, tag: u16) -> u16 {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
        };
        const _: () = assert!(size_of::<Line>() >= 2 * size_of::<__m128i>() && CELLS <= 16);
        let start = std::ptr::from_ref(self).cast::<__m128i>();
        // SAFETY: every x86_64 has SSE2. The first 32 bytes of a line are read; the line is aligned to 64, and any
        // bytes are valid.
        unsafe {
            let wanted = _mm_set1_epi16(tag as i16);
            let first = _mm_cmpeq_epi16(_mm_load_si128(start), wanted);
            let second = _mm_cmpeq_epi16(_mm_load_si128(start.add(1)), wanted);
            // Bits past the cells belong to other fields; no such cell is ever taken.
            _mm_movemask_epi8(_mm_packs_epi16(first, second)) as u16
        }
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    #[inline]
    fn equal_tags(&self, tag: u16) -> u16 {
        self.equal_tags_one_by_one(tag)
    }

    /// Does the same as `equal_tags`, on any processor.
    #[cfg(any(test, miri, not(target_arch = "x86_64")))]
    #[inline]
    fn equal_tags_one_by_one(&self, tag: u16) -> u16 {
        (0..CELLS).fold(0, |cells, cell| cells | u16::from(self.tags[cell] == tag) << cell)
    }

    /// Returns all tags and numbers.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u16, u32)> {
        self.taken().map(|cell| (self.tags[cell], self.numbers[cell]))
    }
}

/// Returns the bit of a line's state at which the count for this tag begins.
#[inline]
fn count_of(tag: u16) -> u32 {
    COUNTS_FROM + (u32::from(tag) >> SPENT_MAX) % (u16::BITS / PASSED_BITS) * PASSED_BITS
}

/// Some cells of a line, with a bit for each.
#[derive(Clone, Copy)]
pub(super) struct Cells(pub u16);

impl Iterator for Cells {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let cell = self.0.trailing_zeros() as usize;
        if cell >= CELLS {
            return None;
        }
        self.0 &= self.0 - 1;
        Some(cell)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Line {
        /// Sets the count for this tag.
        pub(in crate::base::split_table) fn set_passed(&mut self, tag: u16, count: u32) {
            self.state = self.state & !(PASSED_MAX << count_of(tag)) | count << count_of(tag);
        }
    }

    proptest! {
        #[test]
        fn tags_are_compared_alike_on_all_processors(
            tags in proptest::array::uniform10(0..4u16),
            state in any::<u32>(),
            number in 0..4u32,
            tag in 0..4u16,
        ) {
            let state = state & !(u32::from(u16::MAX) & u32::MAX << CELLS);
            let line = Line { tags, state, numbers: [number; CELLS] };
            let expected = line.equal_tags_one_by_one(tag) & state as u16;
            prop_assert_eq!(line.matches(tag).0, expected);
            prop_assert_eq!(line.matches(tag).count() as u32, expected.count_ones());
        }
    }
}
