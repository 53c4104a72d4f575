//! A gate of few places that many holders want, by the bundled scripts: never more holders than places, and none left
//! when all have given theirs back.
//!
//! A holder counts itself after it was admitted and until it leaves, so that the count is at most the number of true
//! holders.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::wire::{Args, Reply, words};
use super::{Keeper, Kept, Outcome};

const GATE: &str = "keeper:gate";
const PLACES: usize = 3;
/// Lease, long enough that none ends in a run.
const LEASE_MS: &str = "86400000";
const ACQUIRE: &str = include_str!("../../../lua/lease_gate_acquire.lua");
const RELEASE: &str = include_str!("../../../lua/lease_gate_release.lua");

#[derive(Default)]
pub(super) struct Gates {
    inside: AtomicUsize,
}

pub(super) fn work(keeper: &mut Keeper<'_>, kept: &Kept) {
    let mut jobs = 0;
    while keeper.goes_on() {
        jobs += 1;
        // Several holders of one keeper at a time, so that the gate is full.
        let holders: Vec<String> = (0..2).map(|n| format!("holder-{}-{jobs}-{n}", keeper.number)).collect();
        let inside = holders.iter().filter(|holder| enter(keeper, kept, holder)).count();
        std::thread::yield_now();
        kept.gates.inside.fetch_sub(inside, Ordering::SeqCst);
        // Releases all of them: a holder whose call was lost may be inside, too.
        for holder in &holders {
            let Some(reply) = keeper.insist(&release(holder)) else { return };
            if reply.items().and_then(|items| items[0].integer()).is_none() {
                keeper.fail(format!("a release was answered {reply:?}"));
            }
        }
    }
}

/// Asks for a place; returns whether it surely got one, and if so has counted itself.
fn enter(keeper: &mut Keeper<'_>, kept: &Kept, holder: &str) -> bool {
    let places = PLACES.to_string();
    let outcome = keeper.call(&words(&["EVAL", ACQUIRE, "1", GATE, holder, &places, LEASE_MS]));
    let Outcome::Answer(reply) = outcome else { return false };
    let numbers: Vec<i64> = reply.items().unwrap_or_default().iter().filter_map(Reply::integer).collect();
    match numbers[..] {
        [1, holders, _] if holders <= PLACES as i64 => {
            let inside = kept.gates.inside.fetch_add(1, Ordering::SeqCst) + 1;
            if inside > PLACES {
                keeper.fail(format!("{inside} holders are inside a gate of {PLACES} places"));
            }
            true
        }
        [0, ..] => false,
        _ => {
            keeper.fail(format!("a new holder was answered {reply:?}"));
            false
        }
    }
}

fn release(holder: &str) -> Args {
    words(&["EVAL", RELEASE, "1", GATE, holder])
}

pub(super) fn check(keeper: &mut Keeper<'_>, _: &Kept) {
    if let Some(reply) = keeper.insist(&words(&["ZCARD", GATE]))
        && reply != Reply::Integer(0)
    {
        keeper.fail(format!("all places were given back, and {reply:?} are taken"));
    }
}
