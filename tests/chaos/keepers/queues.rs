//! A queue whose elements are moved to a worker's own list and removed when they are done: each element pushed comes
//! out once.
//!
//! A push whose connection was lost may have happened or not. A move whose connection was lost leaves its element in
//! the worker's list, where the worker looks first.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use super::super::wire::words;
use super::{Keeper, Kept, Outcome, locked};

const QUEUE: &str = "keeper:queue";
/// Approximate maximum of waiting elements: more would only fill the memory.
const WAITING: i64 = 500;

#[derive(Default)]
pub(super) struct Queues {
    pushed: Mutex<Pushed>,
    /// The number of times that each element came out.
    popped: Mutex<HashMap<String, usize>>,
}

#[derive(Default)]
struct Pushed {
    surely: HashSet<String>,
    perhaps: HashSet<String>,
}

pub(super) fn work(keeper: &mut Keeper<'_>, kept: &Kept) {
    let mut pushes = 0;
    while keeper.goes_on() {
        if keeper.number.is_multiple_of(2) {
            push(keeper, kept, &mut pushes);
        }
        for _ in 0..2 {
            work_off(keeper, kept, "0.02");
        }
    }
}

fn push(keeper: &mut Keeper<'_>, kept: &Kept, pushes: &mut usize) {
    for _ in 0..4 {
        *pushes += 1;
        let element = format!("element-{}-{pushes}", keeper.number);
        let outcome = keeper.call(&words(&["RPUSH", QUEUE, &element]));
        let mut pushed = locked(&kept.queues.pushed);
        match outcome {
            Outcome::Answer(reply) => {
                pushed.surely.insert(element);
                drop(pushed);
                if reply.integer().is_none_or(|len| len > WAITING) {
                    work_off(keeper, kept, "0.02");
                    return;
                }
            }
            Outcome::Unknown => drop(pushed.perhaps.insert(element)),
            Outcome::Refused => {}
        }
    }
}

/// Notes the elements in the worker's own list and removes them; if it is empty, waits for an element.
fn work_off(keeper: &mut Keeper<'_>, kept: &Kept, wait_s: &str) {
    let own = format!("keeper:queue:worker:{}", keeper.number);
    let Some(reply) = keeper.insist(&words(&["LRANGE", &own, "0", "-1"])) else { return };
    let elements: Vec<String> = reply.items().unwrap_or_default().iter().filter_map(|item| item.text()).collect();
    if elements.is_empty() {
        keeper.call(&words(&["BLMOVE", QUEUE, &own, "LEFT", "RIGHT", wait_s]));
        return;
    }
    for element in elements {
        *locked(&kept.queues.popped).entry(element.clone()).or_default() += 1;
        keeper.insist(&words(&["LREM", &own, "0", &element]));
    }
}

pub(super) fn check(keeper: &mut Keeper<'_>, kept: &Kept) {
    loop {
        work_off(keeper, kept, "0.02");
        let own = format!("keeper:queue:worker:{}", keeper.number);
        let left = keeper.insist(&words(&["EXISTS", QUEUE, &own]));
        if left.is_none_or(|left| left.integer() == Some(0)) {
            break;
        }
    }
    // The last keeper finds the queue empty and all lists finished.
    if keeper.number + 1 < keeper.world.options.keepers {
        return;
    }
    let (pushed, popped) = (locked(&kept.queues.pushed), locked(&kept.queues.popped));
    let lost: Vec<&String> = pushed.surely.iter().filter(|element| !popped.contains_key(*element)).collect();
    let doubled: Vec<&String> = popped.iter().filter(|(_, times)| **times > 1).map(|(element, _)| element).collect();
    let is_known = |element: &&String| pushed.surely.contains(*element) || pushed.perhaps.contains(*element);
    let strange: Vec<&String> = popped.keys().filter(|element| !is_known(element)).collect();
    if !lost.is_empty() || !doubled.is_empty() || !strange.is_empty() {
        keeper.fail(format!("lost: {lost:?}, twice: {doubled:?}, never pushed: {strange:?}"));
    }
}
