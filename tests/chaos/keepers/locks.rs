//! A lock with fencing tokens, by the bundled scripts: one owner at a time, and tokens that only grow.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::wire::{Reply, words};
use super::{Keeper, Kept, Outcome, locked};

const LOCK: &str = "keeper:lock";
const FENCE: &str = "keeper:lock:fence";
/// Lease, long enough that none ends in a run.
const LEASE_MS: &str = "86400000";
const ACQUIRE: &str = include_str!("../../../lua/lock_acquire.lua");
const RELEASE: &str = include_str!("../../../lua/lock_release.lua");

#[derive(Default)]
pub(super) struct Locks {
    owners: AtomicUsize,
    largest: Mutex<i64>,
}

pub(super) fn work(keeper: &mut Keeper<'_>, kept: &Kept) {
    let mut attempts = 0;
    while keeper.goes_on() {
        attempts += 1;
        let owner = format!("owner-{}-{attempts}", keeper.number);
        let before = *locked(&kept.locks.largest);
        if let Outcome::Answer(reply) = keeper.call(&words(&["EVAL", ACQUIRE, "2", LOCK, FENCE, &owner, LEASE_MS])) {
            let numbers: Vec<i64> = reply.items().unwrap_or_default().iter().filter_map(Reply::integer).collect();
            match numbers[..] {
                [1, token, _] => own(keeper, kept, before, token),
                [0, 0, _] => {}
                _ => keeper.fail(format!("lock_acquire was answered {reply:?}")),
            }
        }
        // Releases even where the outcome is unknown: a release by a non-owner changes nothing.
        keeper.insist(&words(&["EVAL", RELEASE, "1", LOCK, &owner]));
    }
}

/// Owns the lock for a moment. `before`: the largest token seen by any keeper when it asked.
fn own(keeper: &Keeper<'_>, kept: &Kept, before: i64, token: i64) {
    if token <= before {
        keeper.fail(format!("token {token} was given after {before}"));
    }
    if kept.locks.owners.fetch_add(1, Ordering::SeqCst) > 0 {
        keeper.fail("two own the lock".to_owned());
    }
    let mut largest = locked(&kept.locks.largest);
    *largest = token.max(*largest);
    drop(largest);
    std::thread::yield_now();
    kept.locks.owners.fetch_sub(1, Ordering::SeqCst);
}

pub(super) fn check(keeper: &mut Keeper<'_>, _: &Kept) {
    if let Some(reply) = keeper.insist(&words(&["EXISTS", LOCK]))
        && reply != Reply::Integer(0)
    {
        keeper.fail("all gave the lock back, and it is held".to_owned());
    }
}
