//! IDs: each is given once, and later requests get larger ones.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::super::wire::words;
use super::{Keeper, Kept, Outcome, field, locked};

const IDS: &str = "keeper:ids";
/// Ranges that are remembered, and compared with each new one.
const REMEMBERED: usize = 10_000;

/// The last of each range, by its first.
#[derive(Default)]
pub(super) struct Ids {
    ranges: Mutex<BTreeMap<i64, i64>>,
}

pub(super) fn work(keeper: &mut Keeper<'_>, kept: &Kept) {
    while keeper.goes_on() {
        let count = 1 + keeper.dice.below(5);
        let largest = locked(&kept.ids.ranges).last_key_value().map_or(0, |(_, last)| *last);
        let ask = words(&["ID.NEXT", IDS, "COUNT", &count.to_string(), "SHAPE", "COUNTER"]);
        let Outcome::Answer(reply) = keeper.call(&ask) else { continue };
        let (Some(first), Some(last)) = (field(&reply, "first"), field(&reply, "last")) else {
            return keeper.fail(format!("{reply:?} is answered to {count} IDs"));
        };
        if first <= largest || last - first + 1 != count as i64 {
            keeper.fail(format!("{count} IDs are {first} to {last}, after {largest}"));
        }
        let mut ranges = locked(&kept.ids.ranges);
        if let Some((other, end)) = ranges.range(..=last).next_back().filter(|(_, end)| **end >= first) {
            keeper.fail(format!("IDs {first} to {last} were given, and {other} to {end}"));
        }
        ranges.insert(first, last);
        if ranges.len() > REMEMBERED {
            ranges.pop_first();
        }
    }
}
