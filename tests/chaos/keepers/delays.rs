//! Delayed messages: each that was surely accepted becomes an entry, once, and none before its time.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use super::super::wire::{Reply, words};
use super::{Keeper, Kept, Outcome, locked};

const STREAM: &str = "keeper:delayed";
/// Maximum number of messages that each keeper sends: the stream keeps them all.
const MESSAGES: usize = 4_000;
/// How long the last messages may wait beyond their due time, in checks of the stream.
const LOOKS: usize = 2_000;

#[derive(Default)]
pub(super) struct Delays {
    surely: Mutex<HashSet<String>>,
}

pub(super) fn work(keeper: &mut Keeper<'_>, kept: &Kept) {
    let mut left = 0;
    while keeper.goes_on() {
        if left == MESSAGES {
            std::thread::sleep(super::PAUSE);
            continue;
        }
        left += 1;
        let name = format!("message-{}-{left}", keeper.number);
        let delay_ms = (1 + keeper.dice.below(200)).to_string();
        match keeper.call(&words(&["XADD", STREAM, "DELAY", &delay_ms, "*", "name", &name])) {
            Outcome::Answer(Reply::Bulk(_)) => drop(locked(&kept.delays.surely).insert(name)),
            Outcome::Answer(reply) => keeper.fail(format!("a delayed message was answered {reply:?}")),
            // Perhaps it was accepted, and perhaps not.
            Outcome::Refused | Outcome::Unknown => {}
        }
        std::thread::sleep(super::PAUSE);
    }
}

pub(super) fn check(keeper: &mut Keeper<'_>, kept: &Kept) {
    // Restarts timers that a bad client has stopped.
    keeper.insist(&words(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]));
    let surely = locked(&kept.delays.surely).clone();
    for look in 0.. {
        let Some(reply) = keeper.insist(&words(&["XRANGE", STREAM, "-", "+"])) else { return };
        let mut seen: HashMap<String, usize> = HashMap::new();
        names(&reply).for_each(|name| *seen.entry(name).or_default() += 1);
        if let Some((name, times)) = seen.iter().find(|(_, times)| **times > 1) {
            return keeper.fail(format!("{name} became {times} entries"));
        }
        let Some(missing) = surely.iter().find(|name| !seen.contains_key(*name)) else { return };
        if look == LOOKS {
            return keeper.fail(format!("{missing} was left, and is no entry"));
        }
        std::thread::sleep(super::PAUSE);
    }
}

fn names(entries: &Reply) -> impl Iterator<Item = String> + '_ {
    let entries = entries.items().unwrap_or_default().iter();
    entries.filter_map(|entry| entry.items()?.get(1)?.items()?.get(1)?.text())
}
