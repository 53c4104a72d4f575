//! A stream with a group: every entry is delivered to one of its consumers, once, and acknowledged.
//!
//! A delivery whose connection was lost stays pending; its consumer checks its pending entries first.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use super::super::wire::{Reply, words};
use super::{Keeper, Kept, Outcome, locked};

const STREAM: &str = "keeper:stream";

#[derive(Default)]
pub(super) struct Streams {
    /// Ids of entries that were surely added.
    added: Mutex<HashSet<String>>,
    /// The consumer to which each entry was delivered.
    delivered: Mutex<HashMap<String, usize>>,
}

pub(super) fn set_up(keeper: &mut Keeper<'_>) {
    keeper.insist(&words(&["XGROUP", "CREATE", STREAM, "workers", "0", "MKSTREAM"]));
}

pub(super) fn work(keeper: &mut Keeper<'_>, kept: &Kept) {
    let mut added = 0;
    while keeper.goes_on() {
        for _ in 0..3 {
            added += 1;
            let job = format!("{}-{added}", keeper.number);
            if let Outcome::Answer(reply) = keeper.call(&words(&["XADD", STREAM, "*", "job", &job])) {
                match reply.text() {
                    Some(id) => drop(locked(&kept.streams.added).insert(id)),
                    None => keeper.fail(format!("XADD was answered {reply:?}")),
                }
            }
        }
        deliver(keeper, kept);
        // Entries that all have acknowledged may go: only old ones, none of them pending.
        if keeper.number == 0 && keeper.dice.once_in(50) {
            trim(keeper);
        }
    }
}

/// Takes pending entries, or else new ones; returns how many.
fn deliver(keeper: &mut Keeper<'_>, kept: &Kept) -> usize {
    let consumer = format!("consumer-{}", keeper.number);
    let mut taken = 0;
    for from in ["0", ">"] {
        let call = ["XREADGROUP", "GROUP", "workers", &consumer, "COUNT", "10", "BLOCK", "20", "STREAMS", STREAM, from];
        let Outcome::Answer(reply) = keeper.call(&words(&call)) else { return taken };
        let Some(ids) = ids(&reply) else { return keeper_cannot_read(keeper, &reply) };
        taken += ids.len();
        for id in ids {
            let before = locked(&kept.streams.delivered).insert(id.clone(), keeper.number);
            if before.is_some_and(|other| other != keeper.number || from == ">") {
                keeper.fail(format!("{id} was delivered to {before:?} and to {}", keeper.number));
            }
            keeper.insist(&words(&["XACK", STREAM, "workers", &id]));
        }
    }
    taken
}

fn keeper_cannot_read(keeper: &Keeper<'_>, reply: &Reply) -> usize {
    keeper.fail(format!("XREADGROUP was answered {reply:?}"));
    0
}

/// Returns the ids in a reply of XREADGROUP; none when nothing came.
fn ids(reply: &Reply) -> Option<Vec<String>> {
    if *reply == Reply::Null {
        return Some(Vec::new());
    }
    let entries = reply.items()?.first()?.items()?.get(1)?.items()?;
    entries.iter().map(|entry| entry.items()?.first()?.text()).collect()
}

/// Keeps the stream short: removes only entries before the oldest pending one and the group's last, so no undelivered
/// entry goes.
fn trim(keeper: &mut Keeper<'_>) {
    let script = "local groups = redis.call('XINFO', 'GROUPS', KEYS[1])[1] \
        local last = '' for i = 1, #groups, 2 do if groups[i] == 'last-delivered-id' then last = groups[i + 1] end end \
        local pending = redis.call('XPENDING', KEYS[1], 'workers') \
        return redis.call('XTRIM', KEYS[1], 'MINID', pending[2] or last)";
    keeper.call(&words(&["EVAL", script, "1", STREAM]));
}

pub(super) fn check(keeper: &mut Keeper<'_>, kept: &Kept) {
    while !keeper.world.has_failed() && deliver(keeper, kept) > 0 {}
    if keeper.number + 1 < keeper.world.options.keepers {
        return;
    }
    if let Some(pending) = keeper.insist(&words(&["XPENDING", STREAM, "workers"]))
        && pending.items().and_then(|items| items.first()) != Some(&Reply::Integer(0))
    {
        keeper.fail(format!("all was acknowledged, and is pending: {pending:?}"));
    }
    let (added, delivered) = (locked(&kept.streams.added), locked(&kept.streams.delivered));
    let lost: Vec<&String> = added.iter().filter(|id| !delivered.contains_key(*id)).collect();
    if !lost.is_empty() {
        keeper.fail(format!("never delivered: {lost:?}"));
    }
}
