//! Transfers between counters, by scripts and by transactions, and members moved between sets. The totals stay the
//! same, whatever is refused, killed, or lost on its way. Some scripts take long between the two halves, or fail after
//! them.

use super::super::wire::{Args, words};
use super::{Keeper, Kept, Outcome};

const COUNTERS: usize = 8;
const START: i64 = 1_000_000;
const SETS: usize = 3;
const MEMBERS: usize = 200;

/// Moves ARGV[1] from KEYS[1] to KEYS[2], with ARGV[2] reads between the halves, during which it may be killed.
const TRANSFER: &str = "redis.call('DECRBY', KEYS[1], ARGV[1]) \
    for i = 1, ARGV[2] do redis.call('GET', KEYS[1]) end \
    redis.call('INCRBY', KEYS[2], ARGV[1]) \
    return 1";

/// Fails between the two halves; the total holds because the first is undone.
const FAILING: &str = "redis.call('DECRBY', KEYS[1], ARGV[1]) error('keeper fails on purpose')";

fn counter(n: usize) -> String {
    format!("keeper:sum:{n}")
}

fn set(n: usize) -> String {
    format!("keeper:set:{n}")
}

pub(super) fn set_up(keeper: &mut Keeper<'_>) {
    (0..COUNTERS).for_each(|n| drop(keeper.insist(&words(&["SET", &counter(n), &START.to_string()]))));
    let members: Vec<String> = (0..MEMBERS).map(|n| format!("member-{n}")).collect();
    let mut call = words(&["SADD", &set(0)]);
    call.extend(members.into_iter().map(String::into_bytes));
    keeper.insist(&call);
}

pub(super) fn work(keeper: &mut Keeper<'_>, _: &Kept) {
    while keeper.goes_on() {
        let (from, to) = (counter(keeper.dice.below(COUNTERS)), counter(keeper.dice.below(COUNTERS)));
        let amount = keeper.dice.below(1_000).to_string();
        match keeper.dice.below(8) {
            0..3 => {
                let turns = if keeper.dice.once_in(20) { "100000" } else { "1" };
                keeper.call(&words(&["EVAL", TRANSFER, "2", &from, &to, &amount, turns]));
            }
            3 => drop(keeper.call(&words(&["EVAL", FAILING, "1", &from, &amount]))),
            4..6 => transfer_by_transaction(keeper, &from, &to, &amount),
            6 => {
                let (from, to) = (set(keeper.dice.below(SETS)), set(keeper.dice.below(SETS)));
                let member = format!("member-{}", keeper.dice.below(MEMBERS));
                keeper.call(&words(&["SMOVE", &from, &to, &member]));
            }
            _ => check_totals(keeper),
        }
    }
}

/// Waits for the reply to MULTI: a server that is busy then and free a moment later would run the rest without it.
fn transfer_by_transaction(keeper: &mut Keeper<'_>, from: &str, to: &str, amount: &str) {
    if matches!(keeper.call(&words(&["MULTI"])), Outcome::Answer(_)) {
        let rest: [Args; 3] = [words(&["DECRBY", from, amount]), words(&["INCRBY", to, amount]), words(&["EXEC"])];
        keeper.calls_of_this_connection(&rest);
    }
}

fn check_totals(keeper: &mut Keeper<'_>) {
    let mut call = words(&["MGET"]);
    call.extend((0..COUNTERS).map(|n| counter(n).into_bytes()));
    if let Outcome::Answer(reply) = keeper.call(&call) {
        let values = reply.items().unwrap_or_default().iter().filter_map(|value| value.text()?.parse::<i64>().ok());
        let total: i64 = values.sum();
        if total != START * COUNTERS as i64 {
            keeper.fail(format!("the counters' total is {total} instead of {}: {reply:?}", START * COUNTERS as i64));
        }
    }
    let (one, two, three) = (set(0), set(1), set(2));
    let call = words(&[
        "EVAL",
        "local n = 0 for _, key in ipairs(KEYS) do n = n + redis.call('SCARD', key) end return n",
        "3",
        &one,
        &two,
        &three,
    ]);
    if let Outcome::Answer(reply) = keeper.call(&call)
        && reply.integer() != Some(MEMBERS as i64)
    {
        let counts = [&one, &two, &three].map(|set| keeper.call(&words(&["SCARD", set])));
        let again = keeper.call(&call);
        keeper
            .fail(format!("the sets have {reply:?} members instead of {MEMBERS}; asked again: {counts:?}, {again:?}"));
    }
}

pub(super) fn check(keeper: &mut Keeper<'_>, _: &Kept) {
    check_totals(keeper);
}
