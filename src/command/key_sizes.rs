//! INFO keysizes: how many keys of each type have how many bytes or elements, by powers of two.
//!
//! Redis keeps these counts with every write. Here a write pays nothing: the keys are walked when somebody asks, a bounded number of
//! them. A database's table has its keys by their hashes, so its first ones are a random sample, and beyond the bound the counts of a
//! sample stand for all.

use crate::base::limits::KEY_SIZES_MAX_KEYS;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace};

/// The types in Redis' order, by the names of their lines.
const LINES: [&str; 5] = [
    "distrib_strings_sizes",
    "distrib_lists_items",
    "distrib_sets_items",
    "distrib_zsets_items",
    "distrib_hashes_items",
];

/// Powers of two that a length can have, and a place for 0 before them.
const BINS: usize = 1 + u64::BITS as usize;

/// The lines of all databases.
pub(super) fn lines(ks: &Keyspace) -> Vec<String> {
    let all: usize = (0..ks.databases()).map(|db| ks.db(db).len()).sum();
    (0..ks.databases()).flat_map(|db| lines_of(ks, db, budget(ks.db(db).len(), all))).collect()
}

/// How many of a database's keys are looked at: all, or its share of the bound.
fn budget(keys: usize, all: usize) -> usize {
    match all {
        0..=KEY_SIZES_MAX_KEYS => keys,
        _ => (keys as u128 * KEY_SIZES_MAX_KEYS as u128 / all as u128) as usize + usize::from(keys > 0),
    }
}

fn lines_of(ks: &Keyspace, db: DbIndex, budget: usize) -> impl Iterator<Item = String> {
    let mut counts = [[0_u64; BINS]; LINES.len()];
    for entry in ks.stored_entries(db).take(budget) {
        if let Some((of_type, len)) = size(entry.value()) {
            counts[of_type][bin(len)] += 1;
        }
    }
    let keys = ks.db(db).len();
    LINES.into_iter().zip(counts).filter_map(move |(name, counts)| {
        let counted = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let fields: Vec<String> =
            counted.map(|(bin, count)| format!("{}={}", label(bin), for_all(*count, keys, budget))).collect();
        (!fields.is_empty()).then(|| format!("db{db}_{name}:{}", fields.join(",")))
    })
}

/// The place of a value's type among [`LINES`], and how long it is: bytes, or elements as they are stored. Streams, locks, gates and stocks have none.
fn size(value: ValueRef<'_>) -> Option<(usize, usize)> {
    Some(match value {
        ValueRef::String(string) => (0, string.len()),
        ValueRef::List(list) => (1, list.len()),
        ValueRef::Set(set) => (2, set.stored_len()),
        ValueRef::ZSet(zset) => (3, zset.len()),
        ValueRef::Hash(hash) => (4, hash.stored_len()),
        ValueRef::Stream(_) | ValueRef::Grants(_) => return None,
    })
}

/// 0 for nothing, and for anything else 1 more than the largest power of two in it.
fn bin(len: usize) -> usize {
    (usize::BITS - len.leading_zeros()) as usize
}

/// The smallest length of a bin, as Redis abbreviates it.
fn label(bin: usize) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let Some(power) = bin.checked_sub(1) else { return "0".to_owned() };
    format!("{}{}", 1 << (power % 10), UNITS[power / 10])
}

/// What a count among `seen` keys stands for among `keys`, rounded.
fn for_all(count: u64, keys: usize, seen: usize) -> u64 {
    let (keys, seen) = (keys as u128, seen.max(1) as u128);
    if seen >= keys { count } else { ((u128::from(count) * keys + seen / 2) / seen) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_by_powers_of_two() {
        let labels = |lens: &[usize]| lens.iter().map(|len| label(bin(*len))).collect::<Vec<_>>();
        assert_eq!(labels(&[0, 1, 2, 3, 4, 7, 8]), ["0", "1", "2", "2", "4", "4", "8"]);
        assert_eq!(labels(&[1_023, 1_024, 2_047, 1 << 20, 3 << 30, 1 << 62]), ["512", "1K", "1K", "1M", "2G", "4E"]);
        assert_eq!(bin(usize::MAX), BINS - 1);
        assert_eq!(label(BINS - 1), "8E");
    }

    #[test]
    fn a_sample_stands_for_all() {
        assert_eq!((budget(0, 10), budget(10, 10)), (0, 10));
        let all = 10 * KEY_SIZES_MAX_KEYS;
        assert_eq!((budget(0, all), budget(1, all), budget(all - 1, all)), (0, 1, KEY_SIZES_MAX_KEYS));
        assert_eq!((for_all(3, 10, 10), for_all(3, 10, 12), for_all(3, 100, 10), for_all(1, 14, 10)), (3, 3, 30, 1));
    }
}
