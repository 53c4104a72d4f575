//! INFO keysizes: the number of keys of each type by length in bytes or elements, in powers of two.
//!
//! Redis updates these counts on every write. Here writes pay nothing: INFO walks the keys when asked, up to a bound. A
//! table orders its keys by hash, so the first ones are a random sample; beyond the bound the counts are extrapolated
//! from that sample.

use crate::command::limits::KEY_SIZES_MAX_KEYS;
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

/// The powers of two in a length, and one bin before them for 0.
const BINS: usize = 1 + u64::BITS as usize;

/// Returns the lines of all databases.
pub(super) fn lines(ks: &Keyspace) -> Vec<String> {
    let all: usize = (0..ks.databases()).map(|db| ks.db(db).len()).sum();
    (0..ks.databases()).flat_map(|db| lines_of(ks, db, budget(ks.db(db).len(), all))).collect()
}

/// The number of keys to look at in a database: all of them, or its share of the bound.
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

/// Returns the index of the value's type in [`LINES`] and the length: bytes, or stored elements. `None` for streams,
/// locks, gates and stocks.
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

/// The bin of a length: 0 for 0, else one more than the exponent of its largest power of two.
fn bin(len: usize) -> usize {
    (usize::BITS - len.leading_zeros()) as usize
}

/// The smallest length of a bin, abbreviated as in Redis.
fn label(bin: usize) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let Some(power) = bin.checked_sub(1) else { return "0".to_owned() };
    format!("{}{}", 1 << (power % 10), UNITS[power / 10])
}

/// Scales a count among `seen` keys to all `keys`, rounded.
fn for_all(count: u64, keys: usize, seen: usize) -> u64 {
    let (keys, seen) = (keys as u128, seen.max(1) as u128);
    if seen >= keys { count } else { ((u128::from(count) * keys + seen / 2) / seen) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_grouped_by_powers_of_two() {
        let labels = |lens: &[usize]| lens.iter().map(|len| label(bin(*len))).collect::<Vec<_>>();
        assert_eq!(labels(&[0, 1, 2, 3, 4, 7, 8]), ["0", "1", "2", "2", "4", "4", "8"]);
        assert_eq!(labels(&[1_023, 1_024, 2_047, 1 << 20, 3 << 30, 1 << 62]), ["512", "1K", "1K", "1M", "2G", "4E"]);
        assert_eq!(bin(usize::MAX), BINS - 1);
        assert_eq!(label(BINS - 1), "8E");
    }

    #[test]
    fn sampled_counts_are_scaled_to_all_keys() {
        assert_eq!((budget(0, 10), budget(10, 10)), (0, 10));
        let all = 10 * KEY_SIZES_MAX_KEYS;
        assert_eq!((budget(0, all), budget(1, all), budget(all - 1, all)), (0, 1, KEY_SIZES_MAX_KEYS));
        assert_eq!((for_all(3, 10, 10), for_all(3, 10, 12), for_all(3, 100, 10), for_all(1, 14, 10)), (3, 3, 30, 1));
    }
}
