//! A hierarchical timing wheel: slots by deadline, at four bytes each.
//!
//! A deadline is a number of eleven digits in base 64. Level `n` has a bucket for each value of digit `n`, and a timer
//! lies at the level of the *highest* digit in which its deadline differs from the wheel's time. So the levels follow
//! each other in time, and so do the buckets of one level. The next bucket to come due is the first one of the lowest
//! level that has any. Two bitmaps find it, however far away it is.
//!
//! ```text
//! level 0   64 buckets of 1 ms        the current 64 ms
//! level 1   64 buckets of 64 ms       the current 4 s
//! level 2   64 buckets of 4 s         the current 4.4 min
//! ...
//! ```
//!
//! When the time reaches a bucket of level 0, its timers are due, to the millisecond. A bucket of a higher level is
//! *moving* from then on. Its timers are given out one after another, and their owner pushes those that are still
//! needed again, which puts them into a lower level. No step looks at more than one timer, so a bucket may hold any
//! number of them.
//!
//! No timer lies before the wheel's time. An earlier deadline sets the wheel back. All timers in the levels below the
//! highest digit that changes share their digits from there on upwards, so all of them go into one bucket.
//!
//! The method is that of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987), scheme 7.
//!
//! A bucket is a [`Chain`] of blocks. A block has 31 slots and a link in two cache lines; blocks lie in chunks that
//! never move.

use super::arena::Slot;
use crate::base::rng::Rng;
use crate::keyspace::limits::TIMERS_KEEP_BLOCKS;

/// Bits of a digit.
const DIGIT: u32 = 6;

/// Buckets in a level.
const BUCKETS: usize = 1 << DIGIT;

/// A timer taken from its wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The deadline with which it was pushed, `at_ms`, has come.
    Due { slot: Slot, at_ms: i64 },
    /// The deadline has come nearer. To go on, the timer must be pushed again.
    Nearer { slot: Slot },
}

impl Taken {
    /// The slot of the timer.
    #[inline]
    pub(super) fn slot(self) -> Slot {
        let (Taken::Due { slot, .. } | Taken::Nearer { slot }) = self;
        slot
    }
}

/// Timers by deadline, Unix ms. See the module header.
#[derive(Default)]
pub(super) struct Wheel {
    /// No deadline is earlier.
    time: Time,
    /// From the lowest level to the highest one needed so far.
    levels: Vec<Level>,
    /// One bit for each level that has timers.
    occupied: u16,
    /// The remaining timers of the higher-level bucket that the time has reached.
    moving: Chain,
    len: usize,
    blocks: Blocks,
}

impl Wheel {
    /// The number of timers.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether most of the memory is unused.
    #[inline]
    pub(super) fn is_mostly_free(&self) -> bool {
        self.blocks.is_mostly_free()
    }

    /// Bytes allocated.
    pub(super) fn mem_bytes(&self) -> usize {
        self.levels.capacity() * size_of::<Level>() + self.blocks.mem_bytes()
    }

    /// Adds a timer.
    pub(super) fn push(&mut self, slot: Slot, at_ms: i64) {
        let at = Time::from_ms(at_ms);
        if self.is_empty() {
            // Timers that arrive together tend to have similar deadlines.
            self.time = at;
        } else if at < self.time {
            self.set_back(at);
        }
        let level = self.time.level_of(at);
        let bucket = at.digit(level);
        self.occupy(level, bucket);
        self.blocks.push(&mut self.levels[level].buckets[bucket], slot);
        self.len += 1;
    }

    /// When the next timer fires, Unix ms, or `None` if there is none.
    #[inline]
    pub(super) fn next_ms(&self) -> Option<i64> {
        let next = if self.moving.is_empty() { self.first()?.2 } else { self.time };
        Some(next.to_ms())
    }

    /// Takes a timer from the next bucket, if that bucket begins no later than `until_ms`. Otherwise advances the time
    /// to `until_ms`, unless it is later already.
    pub(super) fn take(&mut self, until_ms: i64) -> Option<Taken> {
        let until = Time::from_ms(until_ms);
        if self.moving.is_empty() {
            let Some((level, bucket, start)) = self.first().filter(|(_, _, start)| *start <= until) else {
                self.time = self.time.max(until);
                return None;
            };
            self.time = start;
            if level == 0 {
                let slot = self.blocks.pop(&mut self.levels[0].buckets[bucket])?;
                if self.levels[0].buckets[bucket].is_empty() {
                    self.vacate(0, bucket);
                }
                self.has_lost_one();
                return Some(Taken::Due { slot, at_ms: start.to_ms() });
            }
            self.moving = self.vacate(level, bucket);
        } else if self.time > until {
            return None;
        }
        let slot = self.blocks.pop(&mut self.moving)?;
        self.has_lost_one();
        Some(Taken::Nearer { slot })
    }

    /// Whether a bucket still has timers to be given out.
    #[inline]
    pub(super) fn is_moving(&self) -> bool {
        !self.moving.is_empty()
    }

    /// Takes a timer from the moving bucket. If none is moving, starts moving the next bucket, whatever the time,
    /// provided it is of a higher level and has more than one block. To go on, the timer must be pushed again.
    pub(super) fn take_moving(&mut self) -> Option<Slot> {
        if self.moving.is_empty() {
            let (level, bucket, start) = self.first().filter(|(level, ..)| *level > 0)?;
            if !self.blocks.has_many(self.levels[level].buckets[bucket]) {
                return None;
            }
            self.time = start;
            self.moving = self.vacate(level, bucket);
        }
        let slot = self.blocks.pop(&mut self.moving)?;
        self.has_lost_one();
        Some(slot)
    }

    /// Takes a timer from the next bucket that is not moving, whatever the time, and returns the end of the bucket,
    /// Unix ms. To go on, the timer must be pushed again.
    pub(super) fn take_near(&mut self) -> Option<(Slot, i64)> {
        let (level, bucket, start) = self.first()?;
        let slot = self.blocks.pop(&mut self.levels[level].buckets[bucket])?;
        if self.levels[level].buckets[bucket].is_empty() {
            self.vacate(level, bucket);
        }
        self.has_lost_one();
        Some((slot, start.end_of(level).to_ms()))
    }

    /// Slots that lie together. Some of their timers may be gone.
    pub(super) fn random_block(&self, rng: &mut Rng) -> &[Slot] {
        let blocks = self.blocks.len;
        if blocks == 0 { &[] } else { &self.blocks.block(rng.below(blocks as u64) as u32).slots }
    }

    /// The block of timers to be moved next, if none of its timers has been moved yet.
    #[inline]
    pub(super) fn next_block(&self) -> Option<&[Slot]> {
        (self.moving.len as usize == BLOCK).then(|| self.blocks.open_slots(self.moving))
    }

    /// All timers, roughly the nearest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        let buckets = self.levels.iter().flat_map(|level| &level.buckets);
        [&self.moving].into_iter().chain(buckets).flat_map(|chain| self.blocks.iter(*chain))
    }

    /// The next bucket: level, number, and beginning.
    #[inline]
    fn first(&self) -> Option<(usize, usize, Time)> {
        if self.occupied == 0 {
            return None;
        }
        let level = self.occupied.trailing_zeros() as usize;
        let bucket = self.levels[level].occupied.trailing_zeros() as usize;
        Some((level, bucket, self.time.with_digit(level, bucket)))
    }

    /// Notes that a bucket is about to get timers.
    fn occupy(&mut self, level: usize, bucket: usize) {
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Level::default);
        }
        self.occupied |= 1 << level;
        self.levels[level].occupied |= 1 << bucket;
    }

    /// Takes all timers out of a bucket.
    fn vacate(&mut self, level: usize, bucket: usize) -> Chain {
        let from = &mut self.levels[level];
        from.occupied &= !(1 << bucket);
        if from.occupied == 0 {
            self.occupied &= !(1 << level);
        }
        std::mem::take(&mut from.buckets[bucket])
    }

    /// Sets the wheel back to an earlier time. Moving timers go on, and are pushed again under the new time.
    #[cold]
    fn set_back(&mut self, time: Time) {
        let top = time.level_of(self.time);
        let mut below = Chain::default();
        while let Some((level, bucket, _)) = self.first().filter(|(level, ..)| *level < top) {
            let chain = self.vacate(level, bucket);
            self.blocks.append(&mut below, chain);
        }
        if !below.is_empty() {
            // No timer of the top level has the old time's digit.
            let bucket = self.time.digit(top);
            self.occupy(top, bucket);
            self.levels[top].buckets[bucket] = below;
        }
        self.time = time;
    }

    #[inline]
    fn has_lost_one(&mut self) {
        self.len -= 1;
        if self.len == 0 {
            self.blocks.give_back();
        }
    }
}

/// A time as an unsigned number in the original order: Unix ms, counted from `i64::MIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Time(u64);

impl Time {
    #[inline]
    fn from_ms(ms: i64) -> Time {
        Time(ms as u64 ^ 1 << 63)
    }

    #[inline]
    fn to_ms(self) -> i64 {
        (self.0 ^ 1 << 63) as i64
    }

    #[inline]
    fn digit(self, level: usize) -> usize {
        (self.0 >> (DIGIT * level as u32)) as usize % BUCKETS
    }

    /// Keeps the digits above this one, replaces this digit, and clears those below.
    #[inline]
    fn with_digit(self, level: usize, digit: usize) -> Time {
        let shift = DIGIT * level as u32;
        Time((self.0 >> shift & !(BUCKETS as u64 - 1) | digit as u64) << shift)
    }

    /// The last time that has the same digits from this level on upwards.
    fn end_of(self, level: usize) -> Time {
        Time(self.0 | ((1 << (DIGIT * level as u32)) - 1))
    }

    /// The highest digit in which two times differ, the lowest one if they are equal.
    #[inline]
    fn level_of(self, other: Time) -> usize {
        (((self.0 ^ other.0) | 1).ilog2() / DIGIT) as usize
    }
}

struct Level {
    /// One bit for each bucket that has timers.
    occupied: u64,
    buckets: [Chain; BUCKETS],
}

impl Default for Level {
    fn default() -> Level {
        Level { occupied: 0, buckets: [Chain::default(); BUCKETS] }
    }
}

/// Slots in a block, which with a link fills two cache lines.
const BLOCK: usize = 31;

/// Blocks in a chunk: 64 KiB.
const CHUNK: usize = 512;

#[derive(Clone, Copy)]
struct Block {
    slots: [Slot; BLOCK],
    next: u32,
}

/// Slots in blocks, linked to a circle, so that two chains can be joined without a walk to an end. All blocks are full
/// except the open one, where slots come and go.
#[derive(Clone, Copy, Default)]
struct Chain {
    /// The open block. Has no meaning in an empty chain.
    open: u32,
    /// Slots in the open block; 0 only if the chain is empty.
    len: u32,
}

impl Chain {
    #[inline]
    fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// The blocks of all chains of a wheel.
#[derive(Default)]
struct Blocks {
    /// All are full except the last one.
    chunks: Vec<Vec<Block>>,
    /// The number of blocks, including free ones.
    len: usize,
    /// The first of `free` linked blocks that no chain uses.
    first_free: u32,
    free: usize,
}

impl Blocks {
    fn push(&mut self, chain: &mut Chain, slot: Slot) {
        if chain.is_empty() || chain.len as usize == BLOCK {
            let new = self.allocate();
            if chain.is_empty() {
                self.block_mut(new).next = new;
            } else {
                self.block_mut(new).next = std::mem::replace(&mut self.block_mut(chain.open).next, new);
            }
            *chain = Chain { open: new, len: 0 };
        }
        self.block_mut(chain.open).slots[chain.len as usize] = slot;
        chain.len += 1;
    }

    fn pop(&mut self, chain: &mut Chain) -> Option<Slot> {
        chain.len = chain.len.checked_sub(1)?;
        let block = self.block(chain.open);
        let slot = block.slots[chain.len as usize];
        if chain.is_empty() && block.next != chain.open {
            // The open block takes the place of the next one, so its predecessor need not be found.
            let behind = block.next;
            *self.block_mut(chain.open) = *self.block(behind);
            self.free(behind);
            chain.len = BLOCK as u32;
        } else if chain.is_empty() {
            self.free(chain.open);
        }
        Some(slot)
    }

    /// Appends a whole chain to another, in constant time.
    fn append(&mut self, to: &mut Chain, mut more: Chain) {
        if more.len as usize != BLOCK {
            for _ in 0..more.len {
                if let Some(slot) = self.pop(&mut more) {
                    self.push(to, slot);
                }
            }
        }
        // Now all blocks of `more` are full.
        if to.is_empty() {
            *to = more;
        } else if !more.is_empty() {
            let (behind_to, behind_more) = (self.block(to.open).next, self.block(more.open).next);
            self.block_mut(to.open).next = behind_more;
            self.block_mut(more.open).next = behind_to;
        }
    }

    /// Whether a chain has more than one block.
    #[inline]
    fn has_many(&self, chain: Chain) -> bool {
        !chain.is_empty() && self.block(chain.open).next != chain.open
    }

    #[inline]
    fn open_slots(&self, chain: Chain) -> &[Slot] {
        if chain.is_empty() { &[] } else { &self.block(chain.open).slots[..chain.len as usize] }
    }

    fn iter(&self, chain: Chain) -> impl Iterator<Item = Slot> + '_ {
        let behind = move |at: &u32| Some(self.block(*at).next).filter(|next| *next != chain.open);
        let open = (!chain.is_empty()).then_some(chain.open);
        let full = std::iter::successors(open.as_ref().and_then(behind), behind);
        self.open_slots(chain).iter().chain(full.flat_map(|at| &self.block(at).slots)).copied()
    }

    fn mem_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<Block>()).sum()
    }

    #[inline]
    fn is_mostly_free(&self) -> bool {
        self.len > CHUNK && self.free > self.len / 4 * 3
    }

    /// Gives back all but a little memory. No chain may have blocks.
    fn give_back(&mut self) {
        if self.len > TIMERS_KEEP_BLOCKS {
            *self = Blocks::default();
        }
    }

    /// Returns an unused block, whose content has no meaning.
    fn allocate(&mut self) -> u32 {
        if self.free > 0 {
            self.free -= 1;
            let block = self.first_free;
            self.first_free = self.block(block).next;
            return block;
        }
        let chunk = self.len / CHUNK;
        if chunk == self.chunks.len() {
            // The first chunk grows like any vector, since most databases have few timers.
            self.chunks.push(if chunk == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
        self.chunks[chunk].push(Block { slots: [Slot(0); BLOCK], next: 0 });
        self.len += 1;
        // The number fits: there are far fewer blocks than timers, and fewer than three timers for each of the 2^32
        // slots.
        (self.len - 1) as u32
    }

    fn free(&mut self, block: u32) {
        self.block_mut(block).next = self.first_free;
        self.first_free = block;
        self.free += 1;
    }

    #[inline]
    fn block(&self, block: u32) -> &Block {
        &self.chunks[block as usize / CHUNK][block as usize % CHUNK]
    }

    #[inline]
    fn block_mut(&mut self, block: u32) -> &mut Block {
        &mut self.chunks[block as usize / CHUNK][block as usize % CHUNK]
    }
}

const _: () = assert!(size_of::<Block>() == 128, "a block is two cache lines");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slots(wheel: &Wheel) -> Vec<u32> {
        let mut slots: Vec<u32> = wheel.iter().map(|slot| slot.0).collect();
        slots.sort();
        slots
    }

    /// Takes all timers due by `until_ms`, and pushes timers again that have only come nearer.
    fn drain(wheel: &mut Wheel, until_ms: i64, at_ms: impl Fn(Slot) -> i64) -> Vec<Slot> {
        let (mut due, mut looks) = (Vec::new(), 0);
        let (len, levels) = (wheel.len(), 11);
        while let Some(taken) = wheel.take(until_ms) {
            match taken {
                Taken::Due { slot, at_ms: now_ms } => {
                    assert_eq!(now_ms, at_ms(slot));
                    due.push(slot);
                }
                Taken::Nearer { slot } => wheel.push(slot, at_ms(slot)),
            }
            looks += 1;
            assert!(looks <= len * levels, "no timer is looked at more than once in a level");
        }
        due
    }

    /// Checks that the blocks of chains and the free ones make up all blocks, and that the bits show which buckets have
    /// timers.
    fn check(wheel: &Wheel) {
        let chains = wheel.levels.iter().flat_map(|level| level.buckets).chain([wheel.moving]);
        let held: usize = chains.map(|chain| wheel.blocks.iter(chain).count().div_ceil(BLOCK)).sum();
        assert_eq!(held + wheel.blocks.free, wheel.blocks.len);
        for (number, level) in wheel.levels.iter().enumerate() {
            assert_eq!(level.occupied != 0, wheel.occupied & 1 << number != 0);
            assert!((0..BUCKETS).all(|at| level.buckets[at].is_empty() == (level.occupied & 1 << at == 0)));
        }
    }

    fn time() -> impl Strategy<Value = i64> {
        prop_oneof![
            6 => 0..300i64,
            2 => -5_000..5_000i64,
            1 => (0..60u32).prop_map(|n| 1 << n),
            1 => i64::MIN..i64::MAX,
        ]
    }

    proptest! {
        /// Whatever is pushed, and whenever, all timers due by some time are given out in the order of their deadlines.
        #[test]
        fn gives_the_nearest_first(steps in proptest::collection::vec((0..6u8, time(), 1..40usize), 0..80)) {
            let mut wheel = Wheel::default();
            let mut deadlines: Vec<i64> = Vec::new();
            let mut waiting: Vec<u32> = Vec::new();
            for (step, at_ms, count) in steps {
                if step == 0 {
                    let due = drain(&mut wheel, at_ms, |slot| deadlines[slot.0 as usize]);
                    let due_at: Vec<i64> = due.iter().map(|slot| deadlines[slot.0 as usize]).collect();
                    prop_assert!(due_at.is_sorted(), "{due_at:?}");
                    let mut left = waiting.clone();
                    left.retain(|slot| deadlines[*slot as usize] > at_ms);
                    prop_assert_eq!(due.len(), waiting.len() - left.len());
                    prop_assert!(due_at.last().is_none_or(|last_ms| *last_ms <= at_ms));
                    waiting = left;
                } else {
                    for _ in 0..count {
                        let slot = deadlines.len() as u32;
                        deadlines.push(at_ms);
                        waiting.push(slot);
                        wheel.push(Slot(slot), at_ms);
                    }
                }
                // A bucket may be moving.
                match step {
                    1 => {
                        if let Some(taken) = wheel.take(at_ms) {
                            wheel.push(taken.slot(), deadlines[taken.slot().0 as usize]);
                        }
                    }
                    // As eviction does, whatever the time.
                    4 => {
                        let moved: Vec<Slot> = std::iter::from_fn(|| wheel.take_moving()).take(count).collect();
                        moved.iter().for_each(|slot| wheel.push(*slot, deadlines[slot.0 as usize]));
                    }
                    5 => {
                        if let Some((slot, until_ms)) = wheel.take_near() {
                            prop_assert!(deadlines[slot.0 as usize] <= until_ms);
                            wheel.push(slot, deadlines[slot.0 as usize]);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(slots(&wheel), waiting.clone());
                prop_assert_eq!(wheel.len(), waiting.len());
                let mut due = waiting.iter().map(|slot| deadlines[*slot as usize]);
                prop_assert!(wheel.next_ms().is_none_or(|next_ms| due.all(|at_ms| at_ms >= next_ms)));
                check(&wheel);
            }
        }
    }

    #[test]
    fn a_timer_takes_little_more_than_four_bytes() {
        const TIMERS: u32 = if cfg!(miri) { 5_000 } else { 200_000 };
        let orders: [fn(i64) -> i64; 3] = [|i| i * 7, |i| -i * 7, |i| i * 7_919 % 100_000];
        for order in orders {
            let mut wheel = Wheel::default();
            (0..TIMERS).for_each(|i| wheel.push(Slot(i), order(i64::from(i))));
            let fixed = 8 * size_of::<Level>() + 8 * BUCKETS * size_of::<Block>() + CHUNK * size_of::<Block>();
            let bytes = (wheel.mem_bytes() - wheel.mem_bytes().min(fixed)) as f64 / f64::from(TIMERS);
            assert!(bytes <= 64.0 / 15.0, "{bytes} bytes per timer");
            drain(&mut wheel, i64::MAX, |slot| order(i64::from(slot.0)));
            let kept = 16 * size_of::<Level>() + TIMERS_KEEP_BLOCKS * size_of::<Block>();
            assert!(wheel.mem_bytes() <= kept, "{} bytes stay", wheel.mem_bytes());
        }
        assert_eq!(Wheel::default().mem_bytes(), 0);
    }
}
