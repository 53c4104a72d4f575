//! Where entries live: chunks of fixed size that never move.
//!
//! A [`Slot`] is a 32-bit index, so that the table of keys holds 4 bytes per entry and a handler can come back to an entry
//! without a second lookup. Growing adds a chunk and copies nothing: no pause, whatever the number of keys.

use crate::base::prefetch::prefetch;

/// The place of an entry in its database. Valid until that entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(super) u32);

/// Entries per chunk. A chunk of 64-byte entries is 64 KiB.
const CHUNK: usize = 1024;

/// The end of the list of free places.
const NONE: u32 = u32::MAX;

enum Place<T> {
    Taken(T),
    Free { next: u32 },
}

/// A growable array with stable indices. See the module's header.
pub struct Slab<T> {
    chunks: Vec<Vec<Place<T>>>,
    first_free: u32,
    len: usize,
}

impl<T> Slab<T> {
    /// An empty slab, without allocation.
    pub const fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), first_free: NONE, len: 0 }
    }

    /// How many entries there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The entry at `slot`, if one is there.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&T> {
        let index = slot.0 as usize;
        match self.chunks.get(index / CHUNK)?.get(index % CHUNK)? {
            Place::Taken(entry) => Some(entry),
            Place::Free { .. } => None,
        }
    }

    /// The entry at `slot`, if one is there.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let index = slot.0 as usize;
        match self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)? {
            Place::Taken(entry) => Some(entry),
            Place::Free { .. } => None,
        }
    }

    /// Starts to bring the entry at `slot` into the cache, without looking at it.
    #[inline]
    pub fn prefetch(&self, slot: Slot) {
        let index = slot.0 as usize;
        if let Some(place) = self.chunks.get(index / CHUNK).and_then(|chunk| chunk.get(index % CHUNK)) {
            prefetch(place);
        }
    }

    /// Stores an entry.
    pub fn insert(&mut self, entry: T) -> Slot {
        self.len += 1;
        if self.first_free != NONE {
            let index = self.first_free as usize;
            let place = &mut self.chunks[index / CHUNK][index % CHUNK];
            if let Place::Free { next } = *place {
                self.first_free = next;
            }
            *place = Place::Taken(entry);
            return Slot(index as u32);
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows like any vector, so that a database of a few keys stays small.
            self.chunks.push(if self.chunks.is_empty() { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
        let index = (self.chunks.len() - 1) * CHUNK + self.chunks[self.chunks.len() - 1].len();
        assert!(index < NONE as usize, "a database holds at most 2^32 - 1 keys");
        let chunk = self.chunks.last_mut().expect("pushed above when there was none with room");
        chunk.push(Place::Taken(entry));
        Slot(index as u32)
    }

    /// Takes the entry at `slot` out.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let index = slot.0 as usize;
        let place = self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)?;
        if matches!(place, Place::Free { .. }) {
            return None;
        }
        let Place::Taken(entry) = std::mem::replace(place, Place::Free { next: self.first_free }) else { return None };
        self.first_free = slot.0;
        self.len -= 1;
        Some(entry)
    }

    /// Bytes allocated for entries, without what they own.
    pub fn mem_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<Place<T>>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_reused_and_stay_put() {
        let mut slab = Slab::new();
        let slots: Vec<Slot> = (0..3000).map(|i| slab.insert(i)).collect();
        for slot in slots.iter().step_by(2) {
            assert!(slab.remove(*slot).is_some() && slab.remove(*slot).is_none());
        }
        assert_eq!(slab.len(), 1500);
        assert!(slots.iter().skip(1).step_by(2).all(|slot| slab.get(*slot) == Some(&slot.0)));
        let again: Vec<Slot> = (0..1500).map(|i| slab.insert(i)).collect();
        assert!(again.iter().all(|slot| slot.0 < 3000));
        assert!(slab.get(Slot(3000)).is_none() && slab.get(Slot(u32::MAX)).is_none());
    }
}
