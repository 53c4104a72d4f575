//! A [`SplitTable`] for larger entries: the entries lie one behind the other, and the table holds their numbers.
//!
//! A hash table keeps some of its places free, and a free place costs the size of an entry. With 24-byte entries in the
//! table itself, a million of them took 77 MB (at the most unlucky size, just beyond a power of two). With 4-byte
//! numbers in the table, and the entries in chunks that are all full but the last, they take less than half. A lookup
//! touches one more place in memory. A random entry is one at a random number, and a walk goes through memory in order.
//!
//! The last entry replaces a removed one, so that there is never a hole. Growing adds a chunk and moves nothing.

use std::collections::HashSet;

use super::prefetch::prefetch;
use super::sample::select;
use super::split_table::{Hashes, SplitTable, Walk};

/// Largest size of a chunk in bytes: such blocks fill the allocator's pages of 64 KB with hardly a rest.
const CHUNK_BYTES: usize = 3072;

/// A set of entries found by hash. As with [`SplitTable`], the caller hashes and compares.
#[derive(Clone, Debug)]
pub(crate) struct DenseTable<T> {
    index: SplitTable,
    /// All chunks but the last are full, and none is empty.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for DenseTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> DenseTable<T> {
    /// Entries in a chunk, a power of two.
    const CHUNK: usize = 1 << (CHUNK_BYTES / size_of::<T>()).ilog2();

    /// Makes an empty table, without allocation.
    pub(crate) const fn new() -> Self {
        DenseTable { index: SplitTable::new(), chunks: Vec::new() }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the entry with this hash for which `eq` is true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut eq: impl FnMut(&T) -> bool) -> Option<&T> {
        self.index.find(hash, |number| eq(at(&self.chunks, number))).map(|number| at(&self.chunks, number))
    }

    /// Does the same as [`find`](Self::find), to change the entry. Its hash must not change.
    #[inline]
    pub(crate) fn find_mut(&mut self, hash: u64, mut eq: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let number = self.index.find(hash, |number| eq(at(&self.chunks, number)))?;
        Some(at_mut(&mut self.chunks, number))
    }

    /// Adds an entry that the caller knows to be absent. `rehash` returns the hash of entries that the index must move.
    #[inline]
    pub(crate) fn insert_unique(&mut self, hash: u64, value: T, rehash: impl Fn(&T) -> u64) {
        let number = self.len();
        assert!(number < u32::MAX as usize, "a table holds at most 2^32 - 1 entries");
        if number.is_multiple_of(Self::CHUNK) {
            // The first chunk grows like any vector, so that a small table stays small.
            self.chunks.push(if number == 0 { Vec::new() } else { Vec::with_capacity(Self::CHUNK) });
        }
        self.chunks.last_mut().expect("pushed above when the last was full").push(value);
        self.index.insert_unique(hash, number as u32, &Numbered { chunks: &self.chunks, hash_of: rehash });
    }

    /// Removes the entry with this hash for which `eq` is true. `rehash` returns the hash of entries that move.
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        mut eq: impl FnMut(&T) -> bool,
        rehash: impl Fn(&T) -> u64,
    ) -> Option<T> {
        let chunks = &self.chunks;
        let number = self.index.remove(hash, |number| eq(at(chunks, number)))?;
        // This is the number of the last entry, because the index already holds one entry less.
        let last = self.len() as u32;
        if number != last {
            let place = self.index.find_mut(rehash(at(chunks, last)), |other| other == last);
            *place.expect("every entry is in the index") = number;
        }
        let chunk = self.chunks.last_mut().expect("there was an entry");
        let moved = chunk.pop().expect("no chunk is empty");
        if chunk.is_empty() {
            self.chunks.pop();
        }
        let removed = if number == last { moved } else { std::mem::replace(at_mut(&mut self.chunks, number), moved) };
        Some(removed)
    }

    /// Does one step of a SCAN; see [`SplitTable::scan`].
    pub(crate) fn scan(&self, cursor: u64, count: usize, hash_of: impl Fn(&T) -> u64, mut emit: impl FnMut(&T)) -> u64 {
        let hashes = Numbered { chunks: &self.chunks, hash_of };
        self.index.scan(cursor, count, &hashes, |number| emit(at(&self.chunks, number)))
    }

    /// Passes the entries from `cursor` on to `visit` until it returns false, and then the others of the last one's
    /// place. Returns the cursor of the rest; see [`SplitTable::walk`].
    pub(crate) fn walk(&self, cursor: u64, hash_of: impl Fn(&T) -> u64, mut visit: impl FnMut(&T) -> bool) -> u64 {
        self.index.walk(cursor, &Numbered { chunks: &self.chunks, hash_of }, |together| {
            let mut goes_on = true;
            together.iter().for_each(|(_, number)| goes_on &= visit(at(&self.chunks, *number)));
            if goes_on { Walk::Continue } else { Walk::Stop }
        })
    }

    /// Draws an entry at random, each with the same chance. `below(n)` draws a number in `0..n`.
    pub(crate) fn random(&self, mut below: impl FnMut(u64) -> u64) -> Option<&T> {
        let last = self.len().checked_sub(1)?;
        Some(at(&self.chunks, (below(self.len() as u64) as usize).min(last) as u32))
    }

    /// Emits `count` different entries drawn at random (all, if there are fewer), each choice with the same chance.
    pub(crate) fn sample<'t>(&'t self, count: usize, mut below: impl FnMut(u64) -> u64, mut emit: impl FnMut(&'t T)) {
        if count > self.len() / 3 {
            // Most draws would repeat.
            return select(self.iter(), self.len(), count, below).for_each(emit);
        }
        let mut drawn: HashSet<*const T> = HashSet::with_capacity(count);
        while drawn.len() < count {
            let Some(entry) = self.random(&mut below) else { return };
            if drawn.insert(entry) {
                emit(entry);
            }
        }
    }

    /// Returns all entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Returns the number of allocated bytes, without this header and without allocations of the entries themselves.
    pub(crate) fn mem_bytes(&self) -> usize {
        let entries: usize = self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<T>()).sum();
        self.index.mem_bytes() + entries + self.chunks.capacity() * size_of::<Vec<T>>()
    }

    /// Returns the sum of `size_of` over all entries, estimated from the first `samples` of them (0: all).
    pub(crate) fn sum_of(&self, samples: usize, size_of: impl FnMut(&T) -> usize) -> usize {
        let measured = if samples == 0 { self.len() } else { samples.min(self.len()) };
        let sum: usize = self.iter().take(measured).map(size_of).sum();
        (sum as u128 * self.len() as u128 / measured.max(1) as u128) as usize
    }
}

/// The entries as the index sees them: their hashes, by their numbers.
struct Numbered<'t, T, H> {
    chunks: &'t [Vec<T>],
    hash_of: H,
}

impl<T, H: Fn(&T) -> u64> Hashes for Numbered<'_, T, H> {
    fn of(&self, number: u32) -> u64 {
        (self.hash_of)(at(self.chunks, number))
    }

    fn prefetch(&self, number: u32) {
        prefetch(at(self.chunks, number));
    }
}

#[inline]
fn at<T>(chunks: &[Vec<T>], number: u32) -> &T {
    &chunks[number as usize / DenseTable::<T>::CHUNK][number as usize % DenseTable::<T>::CHUNK]
}

#[inline]
fn at_mut<T>(chunks: &mut [Vec<T>], number: u32) -> &mut T {
    &mut chunks[number as usize / DenseTable::<T>::CHUNK][number as usize % DenseTable::<T>::CHUNK]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::base::hasher::hash_bytes;
    use crate::base::rng::Rng;

    fn hash_of(entry: &u32) -> u64 {
        hash_bytes(&entry.to_le_bytes())
    }

    fn add(table: &mut DenseTable<u32>, entry: u32) -> bool {
        let new = table.find(hash_of(&entry), |other| *other == entry).is_none();
        if new {
            table.insert_unique(hash_of(&entry), entry, hash_of);
        }
        new
    }

    fn take(table: &mut DenseTable<u32>, entry: u32) -> Option<u32> {
        table.remove(hash_of(&entry), |other| *other == entry, hash_of)
    }

    #[test]
    fn grows_shrinks_and_gives_memory_back() {
        let mut table = DenseTable::new();
        (0..100_000).for_each(|i| assert!(add(&mut table, i)));
        // This counts the entries, their numbers and the free places of the table, but no free entries.
        assert!((4 * 100_000..20 * 100_000).contains(&table.mem_bytes()), "{}", table.mem_bytes());
        assert!((0..100_000).all(|i| table.find(hash_of(&i), |other| *other == i) == Some(&i)));
        (0..99_990).for_each(|i| assert_eq!(take(&mut table, i), Some(i)));
        assert_eq!(table.iter().copied().collect::<BTreeSet<_>>(), (99_990..100_000).collect());
        assert!(table.mem_bytes() < 40_000, "{}", table.mem_bytes());
        (99_990..100_000).for_each(|i| assert_eq!(take(&mut table, i), Some(i)));
        assert!(table.len() == 0 && table.random(|_| 0).is_none() && take(&mut table, 1).is_none());
    }

    #[test]
    fn a_sample_has_no_entry_twice() {
        let mut rng = Rng::seeded(1);
        let mut table = DenseTable::new();
        (0..3000).for_each(|i| assert!(add(&mut table, i)));
        for count in [0, 1, 500, 1000, 1001, 2999, 3000, usize::MAX] {
            let mut seen = BTreeSet::new();
            table.sample(count, |n| rng.below(n), |entry| assert!(seen.insert(*entry)));
            assert_eq!(seen.len(), count.min(3000));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Compares runs of insertions and removals with a plain set, while a walk is in progress.
        #[test]
        fn equal_to_a_set(steps in proptest::collection::vec((any::<bool>(), 0..3000u32, 1..900u32), 0..40)) {
            let mut table = DenseTable::new();
            let mut model = BTreeSet::new();
            let (mut cursor, mut met, mut stayed) = (0, BTreeSet::new(), BTreeSet::new());
            let mut rng = Rng::seeded(3);
            for (adds, from, count) in steps {
                for entry in from..from + count {
                    match adds {
                        true => prop_assert_eq!(add(&mut table, entry), model.insert(entry)),
                        false => prop_assert_eq!(take(&mut table, entry).is_some(), model.remove(&entry)),
                    }
                }
                prop_assert_eq!(table.iter().copied().collect::<BTreeSet<_>>(), model.clone());
                prop_assert_eq!(table.random(|n| rng.below(n)).is_some(), !model.is_empty());
                let mut sample = BTreeSet::new();
                table.sample(50, |n| rng.below(n), |entry| assert!(sample.insert(*entry)));
                prop_assert!(sample.len() == model.len().min(50) && sample.is_subset(&model));
                stayed = if cursor == 0 { model.clone() } else { &stayed & &model };
                cursor = table.scan(cursor, 100, hash_of, |entry| {
                    assert!(met.insert(*entry) || !stayed.contains(entry));
                });
                if cursor == 0 {
                    prop_assert!(stayed.is_subset(&met));
                    met.clear();
                }
            }
        }
    }
}
