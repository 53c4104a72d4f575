//! Frees memory that a collection has reserved but does not use.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

use dashmap::DashMap;
use hashbrown::HashTable;
use slab::Slab;

/// Entries for which a collection may keep room, however few it has.
const KEEP: usize = 32;

/// A collection with room for this many times its entries frees some of it.
const SLACK: usize = 8;

/// Moves the items to an allocation of their size, if they will not grow any more. `shrink_to_fit` would ask the
/// allocator to resize, which leaves the block in place as long as half of it is used.
pub(crate) fn fit<T: Clone>(items: &mut Vec<T>) {
    if items.len() < items.capacity() {
        *items = items.as_slice().to_vec();
    }
}

/// Frees the unused memory of a map that has lost most of its entries, by moving the others. Called after each removal,
/// it costs no more than the insertions did.
pub fn fit_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_slack(map.len(), map.capacity()) {
        map.shrink_to(map.len() * 2);
    }
}

/// Gives back the room of a table that has lost most of its entries; `hash` returns the hash of an entry.
pub(crate) fn fit_table<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    if is_slack(table.len(), table.capacity()) {
        table.shrink_to(table.len() * 2, hash);
    }
}

/// Gives back the room of a map that threads share, if it has lost most of its entries. This locks each of its parts,
/// so it should not follow every removal.
pub(crate) fn fit_shared_map<K: Eq + Hash, V, S: BuildHasher + Clone>(map: &DashMap<K, V, S>) {
    if is_slack(map.len(), map.capacity()) {
        map.shrink_to_fit();
    }
}

/// Gives back the room of a queue that has become short.
pub(crate) fn fit_queue<T>(queue: &mut VecDeque<T>) {
    if is_slack(queue.len(), queue.capacity()) {
        queue.shrink_to(queue.len() * 2);
    }
}

/// Frees the memory behind the last entry of a slab that has lost most of its entries. This visits each place before
/// that entry, so it should not follow every removal.
pub(crate) fn fit_slab<T>(slab: &mut Slab<T>) {
    if is_slack(slab.len(), slab.capacity()) {
        slab.shrink_to_fit();
    }
}

fn is_slack(len: usize, capacity: usize) -> bool {
    capacity > KEEP && len * SLACK < capacity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_was_large_gives_its_memory_back() {
        let mut map: HashMap<u32, u32> = (0..100_000).map(|i| (i, i)).collect();
        for i in 10..100_000 {
            map.remove(&i);
            fit_map(&mut map);
        }
        assert!(map.len() == 10 && map.capacity() <= 2 * KEEP && map[&7] == 7);
    }
}
