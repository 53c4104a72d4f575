//! A lock and a gate by the commands made for them: one owner at a time, never more units held than exist, tokens that
//! only grow, and nothing held when all grants have been given back.
//!
//! Each attempt has a name of its own, so that an attempt with an unknown outcome can be given back, whether it was
//! granted or not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::wire::{Args, words};
use super::{Keeper, Kept, Outcome, field, is_granted, locked};

const LOCK: &str = "keeper:command-lock";
const GATE: &str = "keeper:command-gate";
/// Units per holder: two holders would exceed the gate's places.
const UNITS: [&str; 4] = ["LIMIT", "3", "UNITS", "2"];
/// Lease, long enough that none ends in a run.
const LEASE_MS: &str = "86400000";
/// Maximum number of times that one name is given back before it holds nothing: it is granted once.
const RELEASES: usize = 2;

/// Grants held by the keepers' own account.
#[derive(Default)]
pub(super) struct Grants {
    inside: AtomicUsize,
    owners: AtomicUsize,
    largest: Mutex<i64>,
}

pub(super) fn work(keeper: &mut Keeper<'_>, kept: &Kept) {
    let mut attempts = 0;
    while keeper.goes_on() {
        attempts += 1;
        let name = format!("name-{}-{attempts}", keeper.number);
        let waits = keeper.dice.once_in(2);
        let held = &kept.grants;
        match keeper.dice.once_in(2) {
            true => turn(keeper, LOCK, acquire(LOCK, &name, &[], waits), &name, (&held.owners, 1), Some(&held.largest)),
            false => {
                turn(keeper, GATE, acquire(GATE, &name, &UNITS, waits), &name, (&held.inside, 1), None);
            }
        }
    }
}

fn command(key: &str, verb: &str) -> String {
    format!("{}.{verb}", if key == LOCK { "LOCK" } else { "GATE" })
}

fn acquire(key: &str, name: &str, units: &[&str], waits: bool) -> Args {
    let command = command(key, "ACQUIRE");
    let wait: &[&str] = if waits { &["BLOCK", "20"] } else { &[] };
    words(&[&[&*command, key, name], units, &["PX", LEASE_MS], wait].concat())
}

/// Asks for a grant, holds it for a moment if it is given, and gives it back in any case. `count`: how many surely hold
/// one, and how many may; `largest`: the largest token seen, where tokens are compared.
fn turn(
    keeper: &mut Keeper<'_>,
    key: &str,
    acquire: Args,
    name: &str,
    (count, most): (&AtomicUsize, usize),
    largest: Option<&Mutex<i64>>,
) {
    let before = largest.map_or(0, |largest| *locked(largest));
    if let Outcome::Answer(reply) = keeper.call(&acquire) {
        match (is_granted(&reply), field(&reply, "token")) {
            (Some(true), Some(token)) => {
                if count.fetch_add(1, Ordering::SeqCst) >= most {
                    keeper.fail(format!("more than {most} hold {key}"));
                }
                if token <= before {
                    keeper.fail(format!("token {token} of {key} was given after {before}"));
                }
                if let Some(largest) = largest {
                    let mut largest = locked(largest);
                    *largest = token.max(*largest);
                }
                std::thread::yield_now();
                count.fetch_sub(1, Ordering::SeqCst);
            }
            (Some(false), _) => {}
            _ => keeper.fail(format!("{key} was answered {reply:?}")),
        }
    }
    let release = command(key, "RELEASE");
    for _ in 0..RELEASES {
        match keeper.insist(&words(&[&release, key, name])).map(|reply| is_granted(&reply)) {
            Some(Some(true)) => {}
            Some(Some(false)) | None => return,
            Some(None) => keeper.fail(format!("{release} was not understood")),
        }
    }
    keeper.fail(format!("{name} has given back {key} {RELEASES} times and was granted it once"));
}

pub(super) fn check(keeper: &mut Keeper<'_>, _: &Kept) {
    for (info, key, held) in [("LOCK.INFO", LOCK, "holders"), ("GATE.INFO", GATE, "in-use")] {
        let Some(reply) = keeper.insist(&words(&[info, key])) else { return };
        if field(&reply, held) != Some(0) {
            keeper.fail(format!("all was given back, and {key} says {reply:?}"));
        }
    }
}
