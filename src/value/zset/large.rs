//! The large form of a sorted set. Each member is stored once, in a slab of slots. A hash table of slot numbers finds
//! it by name, and a sequence of (score, slot number) keeps the order.

use std::ops::Range;

use super::sequence::{Key, Sequence};
use crate::base::equal::equal;
use crate::base::hasher::hash_bytes;
use crate::base::prefetch::prefetch;
use crate::base::split_table::{Hashes, SplitTable, Walk};
use crate::value::small_bytes::SmallBytes;

/// The large form. `names`, `order` and `slots` contain exactly the same members.
#[derive(Clone, Default)]
pub(super) struct Large {
    slots: Slots,
    names: SplitTable,
    order: Sequence,
}

impl Large {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.find(member).map(|slot| self.slots.at(slot).score)
    }

    /// The members in a range of ranks, which must not extend past the end.
    pub(super) fn range(&self, ranks: Range<usize>) -> Ranked<'_> {
        Ranked { set: self, ranks, front: &[], back: &[] }
    }

    /// The number of members for which `before` is true; they must precede all others.
    pub(super) fn partition(&self, mut before: impl FnMut(f64, &[u8]) -> bool) -> usize {
        self.order.partition(|key| before(key.score, self.slots.at(key.slot).member.as_slice()))
    }

    /// See [`ZSet::scan`](super::ZSet::scan).
    pub(super) fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(&[u8], f64)) -> u64 {
        self.names.scan(cursor, count, &self.slots, |slot| {
            let slot = self.slots.at(slot);
            emit(slot.member.as_slice(), slot.score);
        })
    }

    /// See [`ZSet::walk`](super::ZSet::walk).
    pub(super) fn walk(&self, cursor: u64, mut visit: impl FnMut(&[u8], f64) -> bool) -> u64 {
        self.names.walk(cursor, &self.slots, |together| {
            let mut goes_on = true;
            for (_, slot) in together {
                let slot = self.slots.at(*slot);
                goes_on &= visit(slot.member.as_slice(), slot.score);
            }
            if goes_on { Walk::Continue } else { Walk::Stop }
        })
    }

    /// See [`ZSet::mem_bytes`](super::ZSet::mem_bytes).
    pub(super) fn mem_bytes(&self, samples: usize) -> usize {
        let len = self.len().max(1);
        let taken = if samples == 0 { len } else { samples.min(len) };
        let sampled: usize = self.slots.iter().take(taken).map(|slot| slot.member.heap_bytes()).sum();
        let members = sampled / taken * len;
        size_of::<Large>() + members + self.slots.mem_bytes() + self.order.mem_bytes() + self.names.mem_bytes()
    }

    fn find(&self, member: &[u8]) -> Option<u32> {
        self.names.find(hash_bytes(member), |slot| equal(self.slots.at(slot).member.as_slice(), member))
    }

    /// The member and score of a key.
    fn resolve(&self, key: Key) -> (&[u8], f64) {
        (self.slots.at(key.slot).member.as_slice(), key.score)
    }

    /// The rank that `member` has, or would have, with this score.
    pub(super) fn position(&self, score: f64, member: &[u8]) -> usize {
        self.partition(|s, m| s < score || (s == score && m < member))
    }

    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        if let Some(slot) = self.find(member) {
            let old = self.slots.at(slot).score;
            if old != score {
                self.order.remove(self.position(old, member));
                self.order.insert(self.position(score, member), Key { score, slot });
                self.slots.at_mut(slot).score = score;
            }
            return Some(old);
        }
        let rank = self.position(score, member);
        let slot = self.slots.add(Slot { score, member: SmallBytes::concat(&[member]) });
        self.order.insert(rank, Key { score, slot });
        self.names.insert_unique(hash_bytes(member), slot, &self.slots);
        None
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let slot = self.find(member)?;
        let score = self.slots.at(slot).score;
        let rank = self.position(score, member);
        self.remove_rank(rank).map(|(_, score)| score)
    }

    pub(super) fn remove_rank(&mut self, rank: usize) -> Option<(SmallBytes, f64)> {
        if rank >= self.order.len() {
            return None;
        }
        let key = self.order.remove(rank);
        self.names.remove(self.slots.of(key.slot), |slot| slot == key.slot);
        let slot = self.slots.take(key.slot);
        Some((slot.member, slot.score))
    }
}

/// A range of members, from either end.
///
/// Holds the current leaf at either end and descends the tree again for the next one: a descent per leaf needs no stack
/// and no links between leaves.
#[derive(Clone)]
pub(super) struct Ranked<'a> {
    set: &'a Large,
    ranks: Range<usize>,
    /// The keys of the front leaf from the first rank on, possibly beyond the last rank; empty until needed.
    front: &'a [Key],
    /// The keys of the back leaf up to the last rank, possibly from before the first rank; empty until needed.
    back: &'a [Key],
}

impl<'a> Iterator for Ranked<'a> {
    type Item = (&'a [u8], f64);

    fn next(&mut self) -> Option<Self::Item> {
        let rank = self.ranks.next()?;
        if self.front.is_empty() {
            let (leaf, at) = self.set.order.leaf(rank)?;
            self.front = leaf.get(at..)?;
        }
        let (key, rest) = self.front.split_first()?;
        self.front = rest;
        Some(self.set.resolve(*key))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        let skipped = n.min(self.ranks.len());
        self.ranks.start += skipped;
        self.front = self.front.get(skipped..).unwrap_or(&[]);
        self.next()
    }
}

impl DoubleEndedIterator for Ranked<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let rank = self.ranks.next_back()?;
        if self.back.is_empty() {
            let (leaf, at) = self.set.order.leaf(rank)?;
            self.back = leaf.get(..=at)?;
        }
        let (key, rest) = self.back.split_last()?;
        self.back = rest;
        Some(self.set.resolve(*key))
    }

    fn nth_back(&mut self, n: usize) -> Option<Self::Item> {
        let skipped = n.min(self.ranks.len());
        self.ranks.end -= skipped;
        self.back = self.back.get(..self.back.len().saturating_sub(skipped)).unwrap_or(&[]);
        self.next_back()
    }
}

/// A member and its score.
#[derive(Clone, Debug)]
struct Slot {
    score: f64,
    member: SmallBytes,
}

/// Slots by number, in chunks, so that growing never moves existing slots. Free slots are reused first.
#[derive(Clone, Debug, Default)]
struct Slots {
    chunks: Vec<Vec<Slot>>,
    free: Vec<u32>,
}

const SLOTS_PER_CHUNK: usize = 512;

impl Slots {
    /// All slots: those in use, and the free ones, which hold no member.
    fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flatten()
    }

    fn at(&self, slot: u32) -> &Slot {
        &self.chunks[slot as usize / SLOTS_PER_CHUNK][slot as usize % SLOTS_PER_CHUNK]
    }

    fn at_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.chunks[slot as usize / SLOTS_PER_CHUNK][slot as usize % SLOTS_PER_CHUNK]
    }

    fn add(&mut self, slot: Slot) -> u32 {
        if let Some(number) = self.free.pop() {
            *self.at_mut(number) = slot;
            return number;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == SLOTS_PER_CHUNK) {
            self.chunks.push(Vec::new());
        }
        let chunk = self.chunks.len() - 1;
        let number = chunk * SLOTS_PER_CHUNK + self.chunks[chunk].len();
        self.chunks[chunk].push(slot);
        u32::try_from(number).expect("2^32 members take more than 200 GB, past every memory limit")
    }

    fn take(&mut self, number: u32) -> Slot {
        self.free.push(number);
        std::mem::replace(self.at_mut(number), Slot { score: 0.0, member: SmallBytes::concat(&[]) })
    }

    fn mem_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<Slot>>()
            + self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<Slot>()).sum::<usize>()
            + self.free.capacity() * size_of::<u32>()
    }
}

/// The hashes of the members.
impl Hashes for Slots {
    fn of(&self, slot: u32) -> u64 {
        hash_bytes(self.at(slot).member.as_slice())
    }

    fn prefetch(&self, slot: u32) {
        prefetch(self.at(slot));
    }
}
