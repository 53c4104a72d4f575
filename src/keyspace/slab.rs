//! Where entries live: chunks of fixed size that never move.
//!
//! A [`Slot`] is a 32-bit index, so that the table of keys holds 4 bytes per entry and a handler can come back to an entry
//! without a second lookup. Growing adds a chunk and copies nothing: no pause, whatever the number of keys.
//!
//! Free places form a list, the last freed first. A script's undo relies on that order: walking its notes backwards, an
//! entry that comes back gets the slot that it had (see [`undo`](super::undo)). Chunks without entries are therefore given
//! back only when [`Slab::release`] is called, never inside of a script. The list is linked both ways, so that the places
//! of one chunk can leave it without a walk through all others.
//!
//! A free place between entries that live stays allocated and waits for the next key. It is no more in use than a free
//! block inside of the allocator's pages, and like that one it does not count as allocated ([`set_aside`]).
//!
//! **Versions.** Each entry gets a version that is one above that of the entry which had its place before. Slot and
//! version together tell an entry from others for as long as the chunk is there: a single unit can't use the same place
//! 2^32 times.

use super::entry::Entry;
use crate::base::allocated::set_aside;
use crate::base::limits::SLAB_KEEP_PLACES;
use crate::base::prefetch::prefetch;

/// The place of an entry in its database. Valid until that entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(super) u32);

/// Entries per chunk. A chunk of 64-byte entries is 64 KiB.
const CHUNK: usize = 1024;

/// An end of the list of free places. No place has this number, see [`Slab::insert_with`].
const NONE: u32 = u32::MAX;

enum Place {
    Taken(Entry),
    Free {
        next: u32,
        prev: u32,
        /// Of the entry that was here last.
        version: u32,
    },
}

const _: () = assert!(size_of::<Place>() == size_of::<Entry>(), "a place costs no more than its entry");

#[derive(Default)]
struct Chunk {
    /// Without memory while the chunk is given back.
    places: Vec<Place>,
    /// How many of the places hold an entry.
    taken: usize,
    /// Whether it stands in [`Slab::emptied`].
    is_listed: bool,
}

/// A growable array with stable indices. See the module's header.
#[derive(Default)]
pub(super) struct Slab {
    chunks: Vec<Chunk>,
    first_free: Option<Slot>,
    len: usize,
    /// How many places are free.
    free: usize,
    /// The chunk that new places are added to.
    open: usize,
    /// Chunks that were given back.
    vacant: Vec<u32>,
    /// Chunks that have lost their last entry and were not looked at since.
    emptied: Vec<u32>,
    /// The one chunk without entries that is kept, so that a database whose size swings does not allocate at each turn.
    spare: Option<u32>,
}

impl Slab {
    /// How many entries there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The entry at `slot`, if one is there.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        let index = slot.0 as usize;
        match self.chunks.get(index / CHUNK)?.places.get(index % CHUNK)? {
            Place::Taken(entry) => Some(entry),
            Place::Free { .. } => None,
        }
    }

    /// The entry at `slot`, if one is there.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        let index = slot.0 as usize;
        match self.chunks.get_mut(index / CHUNK)?.places.get_mut(index % CHUNK)? {
            Place::Taken(entry) => Some(entry),
            Place::Free { .. } => None,
        }
    }

    /// Starts to bring the entry at `slot` into the cache, without looking at it.
    #[inline]
    pub(super) fn prefetch(&self, slot: Slot) {
        let index = slot.0 as usize;
        if let Some(place) = self.chunks.get(index / CHUNK).and_then(|chunk| chunk.places.get(index % CHUNK)) {
            prefetch(place);
        }
    }

    /// Stores the entry that `make` makes of its version.
    pub(super) fn insert_with(&mut self, make: impl FnOnce(u32) -> Entry) -> Slot {
        self.len += 1;
        if let Some(slot) = self.first_free {
            let place = self.place_mut(slot.0);
            if let Place::Free { next, version, .. } = *place {
                *place = Place::Taken(make(version.wrapping_add(1)));
                self.relink_head(next);
                self.free -= 1;
                set_aside(-(size_of::<Place>() as isize));
            }
            self.chunks[slot.0 as usize / CHUNK].taken += 1;
            return slot;
        }
        if self.chunks.get(self.open).is_none_or(|chunk| chunk.places.len() == CHUNK || chunk.places.is_empty()) {
            self.open_chunk();
        }
        let chunk = &mut self.chunks[self.open];
        let index = self.open * CHUNK + chunk.places.len();
        assert!(index < NONE as usize, "a database holds at most 2^32 - 1 keys");
        chunk.places.push(Place::Taken(make(1)));
        chunk.taken += 1;
        Slot(index as u32)
    }

    /// Takes the entry at `slot` out.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let version = self.get(slot)?.version;
        let next = self.first_free.map_or(NONE, |first| first.0);
        let chunk = &mut self.chunks[slot.0 as usize / CHUNK];
        let free = Place::Free { next, prev: NONE, version };
        let Place::Taken(entry) = std::mem::replace(&mut chunk.places[slot.0 as usize % CHUNK], free) else {
            return None;
        };
        chunk.taken -= 1;
        // The only chunk, as long as it is small, stays: a lock that comes and goes costs no look at what could be given back.
        if chunk.taken == 0 && !chunk.is_listed && (chunk.places.capacity() > SLAB_KEEP_PLACES || self.chunks.len() > 1)
        {
            self.list_emptied(slot);
        }
        self.set_prev(next, slot.0);
        self.first_free = Some(slot);
        self.len -= 1;
        self.free += 1;
        set_aside(size_of::<Place>() as isize);
        Some(entry)
    }

    #[cold]
    fn list_emptied(&mut self, slot: Slot) {
        self.chunks[slot.0 as usize / CHUNK].is_listed = true;
        self.emptied.push(slot.0 / CHUNK as u32);
    }

    /// Whether [`release`](Self::release) has anything to do.
    #[inline]
    pub(super) fn has_emptied(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// Gives one chunk back that holds no entry, but for a spare one; all, when there is no entry left. The free places are
    /// in another order afterwards.
    #[cold]
    pub(super) fn release(&mut self) {
        if self.len == 0 {
            let places: usize = self.chunks.iter().map(|chunk| chunk.places.capacity()).sum();
            if places > SLAB_KEEP_PLACES {
                *self = Slab::default();
                return;
            }
        }
        let Some(number) = self.emptied.pop() else { return };
        let chunk = &mut self.chunks[number as usize];
        chunk.is_listed = false;
        if chunk.taken > 0 {
            return;
        }
        let is_empty = |number: u32| self.chunks[number as usize].taken == 0;
        if self.spare.is_none_or(|spare| spare == number || !is_empty(spare)) {
            self.spare = Some(number);
            return;
        }
        self.drop_chunk(number);
    }

    /// Bytes allocated for entries, without what they own.
    pub(super) fn mem_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.places.capacity() * size_of::<Place>()).sum()
    }

    /// Makes room for new places.
    fn open_chunk(&mut self) {
        // The first chunk grows like any vector, so that a database of a few keys stays small.
        let places = if self.chunks.is_empty() { Vec::new() } else { Vec::with_capacity(CHUNK) };
        let chunk = Chunk { places, ..Chunk::default() };
        self.open = match self.vacant.pop() {
            Some(number) => {
                self.chunks[number as usize] = chunk;
                number as usize
            }
            None => {
                self.chunks.push(chunk);
                self.chunks.len() - 1
            }
        };
    }

    /// Gives a chunk back that holds no entry.
    fn drop_chunk(&mut self, number: u32) {
        let places = std::mem::take(&mut self.chunks[number as usize].places);
        let first = number * CHUNK as u32;
        let is_inside = |index: u32| (first..first + CHUNK as u32).contains(&index);
        for place in &places {
            let &Place::Free { next, prev, .. } = place else { continue };
            // Of a run of places in this chunk only the two ends have a neighbour outside of it.
            if prev != NONE && is_inside(prev) {
                continue;
            }
            let mut after = next;
            while after != NONE && is_inside(after) {
                let Place::Free { next, .. } = places[(after - first) as usize] else { break };
                after = next;
            }
            if prev == NONE {
                self.relink_head(after);
            } else {
                self.set_next(prev, after);
                self.set_prev(after, prev);
            }
        }
        self.free -= places.len();
        set_aside(-((places.len() * size_of::<Place>()) as isize));
        self.vacant.push(number);
    }

    #[inline]
    fn place_mut(&mut self, index: u32) -> &mut Place {
        &mut self.chunks[index as usize / CHUNK].places[index as usize % CHUNK]
    }

    /// Lets the list of free places begin with this one.
    #[inline]
    fn relink_head(&mut self, first: u32) {
        self.first_free = (first != NONE).then_some(Slot(first));
        self.set_prev(first, NONE);
    }

    #[inline]
    fn set_prev(&mut self, index: u32, to: u32) {
        if index != NONE
            && let Place::Free { prev, .. } = self.place_mut(index)
        {
            *prev = to;
        }
    }

    #[inline]
    fn set_next(&mut self, index: u32, to: u32) {
        if let Place::Free { next, .. } = self.place_mut(index) {
            *next = to;
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        set_aside(-((self.free * size_of::<Place>()) as isize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::entry::{Key, Lifetime, Value};
    use crate::value::string::StringValue;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn insert(slab: &mut Slab, number: i64) -> Slot {
        slab.insert_with(|version| Entry {
            key: Key::new(b""),
            value: Value::String(StringValue::Int(number)),
            lifetime: Lifetime::default(),
            version,
            accessed_s: 0,
        })
    }

    fn number(entry: &Entry) -> i64 {
        match entry.value {
            Value::String(StringValue::Int(number)) => number,
            _ => panic!("not what was inserted"),
        }
    }

    fn release_all(slab: &mut Slab) {
        while slab.has_emptied() {
            slab.release();
        }
    }

    #[test]
    fn places_are_reused_and_stay_put() {
        let mut slab = Slab::default();
        let slots: Vec<Slot> = (0..3000).map(|i| insert(&mut slab, i)).collect();
        for slot in slots.iter().step_by(2) {
            assert!(slab.remove(*slot).is_some() && slab.remove(*slot).is_none());
        }
        assert_eq!(slab.len(), 1500);
        let stays = |slot: &Slot| slab.get(*slot).is_some_and(|entry| number(entry) == i64::from(slot.0));
        assert!(slots.iter().skip(1).step_by(2).all(stays));
        let again: Vec<Slot> = (0..1500).map(|i| insert(&mut slab, i)).collect();
        assert!(again.iter().all(|slot| slot.0 < 3000));
        assert!(slab.get(Slot(3000)).is_none() && slab.get(Slot(u32::MAX)).is_none());
    }

    #[test]
    fn what_is_removed_last_comes_back_first() {
        let mut slab = Slab::default();
        let slots: Vec<Slot> = (0..5000).map(|i| insert(&mut slab, i)).collect();
        slots.iter().for_each(|slot| _ = slab.remove(*slot));
        assert!(slots.iter().rev().all(|slot| insert(&mut slab, 0) == *slot));
    }

    #[test]
    fn no_two_entries_of_a_place_have_the_same_version() {
        let mut slab = Slab::default();
        let slot = insert(&mut slab, 0);
        let first = slab.get(slot).map(|entry| entry.version);
        slab.remove(slot);
        assert_eq!(insert(&mut slab, 1), slot);
        assert_ne!(slab.get(slot).map(|entry| entry.version), first);
    }

    #[test]
    fn a_slab_that_was_large_gives_its_memory_back() {
        let mut slab = Slab::default();
        let slots: Vec<Slot> = (0..100_000).map(|i| insert(&mut slab, i)).collect();
        let chunk_bytes = CHUNK * size_of::<Place>();
        for (i, slot) in slots.iter().enumerate().filter(|(i, _)| i % 50_000 != 0) {
            slab.remove(*slot);
            release_all(&mut slab);
            assert!(i < 90_000 || slab.mem_bytes() <= 16 * chunk_bytes);
        }
        // Two chunks hold an entry, and one is spare.
        assert_eq!((slab.len(), slab.mem_bytes()), (2, 3 * chunk_bytes));
        [slots[0], slots[50_000]].iter().for_each(|slot| _ = slab.remove(*slot));
        release_all(&mut slab);
        assert_eq!((slab.mem_bytes(), slab.free), (0, 0));
        // A few places are kept: a single lock that comes and goes allocates nothing.
        let slot = insert(&mut slab, 0);
        slab.remove(slot);
        release_all(&mut slab);
        assert!(slab.mem_bytes() > 0 && insert(&mut slab, 0) == slot);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn follows_a_map(steps in proptest::collection::vec((any::<u32>(), 0..3u8, 1..1500usize), 1..40)) {
            let mut slab = Slab::default();
            let mut model: HashMap<Slot, i64> = HashMap::new();
            let mut next = 0;
            for (seed, step, count) in steps {
                match step {
                    0 => for _ in 0..count {
                        next += 1;
                        let slot = insert(&mut slab, next);
                        prop_assert_eq!(model.insert(slot, next), None);
                    },
                    1 => {
                        let mut slots: Vec<Slot> = model.keys().copied().collect();
                        slots.sort_by_key(|slot| slot.0.wrapping_mul(seed | 1));
                        for slot in slots.into_iter().take(count) {
                            prop_assert_eq!(slab.remove(slot).map(|entry| number(&entry)), model.remove(&slot));
                        }
                    }
                    _ => release_all(&mut slab),
                }
                prop_assert_eq!(slab.len(), model.len());
                prop_assert!(model.iter().all(|(slot, kept)| slab.get(*slot).is_some_and(|entry| number(entry) == *kept)));
                let places: usize = slab.chunks.iter().map(|chunk| chunk.places.len()).sum();
                prop_assert_eq!(slab.free, places - model.len());
                // The list holds each free place once, and is linked both ways.
                let (mut at, mut before, mut listed) = (slab.first_free.map_or(NONE, |slot| slot.0), NONE, 0);
                while at != NONE {
                    let Place::Free { next, prev, .. } = *slab.place_mut(at) else { panic!("a place that is taken") };
                    prop_assert_eq!(prev, before);
                    (before, at) = (at, next);
                    listed += 1;
                    prop_assert!(listed <= slab.free);
                }
                prop_assert_eq!(listed, slab.free);
            }
        }
    }
}
