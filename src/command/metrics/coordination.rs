//! Metrics of grants: how many were given, refused and ended, how many are held, and who waits for them.

use std::borrow::Cow;

use crate::base::key_prefixes::KeyPrefixes;
use crate::command::limits::METRICS_MAX_KEYS;
use crate::engine::Ctx;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::effect::{Family, Turn};
use crate::meters::coordination_stats::Counts;
use crate::meters::exposition::{head, sample};

/// The families with holders.
const HOLDING: [Family; 3] = [Family::Lock, Family::Gate, Family::Stock];

/// The ways in which grants end.
const ENDS: [Turn; 5] = [Turn::Released, Turn::Expired, Turn::Broken, Turn::Removed, Turn::Sold];

/// Writes grants, refusals and waits, including zeroes: a counter that appears with its first event shows no increase.
pub(super) fn write(text: &mut String, ctx: &Ctx<'_>) {
    let prefixes = ctx.ks.counted_prefixes();
    let prefix = |group: usize| prefix_of(prefixes, group);
    let stats = &ctx.server.meters.stats.coordination;
    let of_each = |text: &mut String, metric: &str, help: &str, of: &[Family], value: &dyn Fn(Counts) -> f64| {
        head(text, metric, "counter", help);
        for (family, group) in of.iter().flat_map(|family| (0..prefixes.groups()).map(move |group| (*family, group))) {
            let labels = [("family", family.name()), ("prefix", &*prefix(group))];
            sample(text, metric, &labels, value(stats.get(family, group)));
        }
    };
    let refusing = [Family::Lock, Family::Gate, Family::Stock, Family::Limit];
    let waiting = [Family::Lock, Family::Gate];
    let help = "Locks, places of gates and holds on stocks granted, and calls admitted by limits.";
    of_each(text, "tidegate_grants_total", help, &refusing, &|counts| counts.turns(Turn::Granted) as f64);
    let help = "Calls refused a lock, a place or units, or refused by a limit.";
    of_each(text, "tidegate_refusals_total", help, &refusing, &|counts| counts.refusals as f64);
    let help = "Calls that began to wait for a lock or a place of a gate.";
    of_each(text, "tidegate_waits_total", help, &waiting, &|counts| counts.waits as f64);
    let help = "Calls that have stopped waiting for a lock or a place of a gate.";
    of_each(text, "tidegate_waits_ended_total", help, &waiting, &|counts| counts.waits_ended as f64);
    let help = "Seconds waited for a lock or a place of a gate, by calls that have stopped waiting.";
    of_each(text, "tidegate_waited_seconds_total", help, &waiting, &|counts| counts.waited_ms as f64 / 1_000.0);
    head(
        text,
        "tidegate_grant_ends_total",
        "counter",
        "Locks, places and holds that have ended, by the way they ended.",
    );
    for (family, group) in
        HOLDING.into_iter().flat_map(|family| (0..prefixes.groups()).map(move |group| (family, group)))
    {
        for turn in ENDS.into_iter().filter(|turn| *turn != Turn::Sold || family == Family::Stock) {
            let labels = [("family", family.name()), ("prefix", &*prefix(group)), ("end", turn.name())];
            sample(text, "tidegate_grant_ends_total", &labels, stats.get(family, group).turns(turn));
        }
    }
    dead_letters(text, ctx);
    waiters(text, ctx);
    held(text, ctx);
}

/// Writes counts of messages that nobody could handle.
fn dead_letters(text: &mut String, ctx: &Ctx<'_>) {
    let (prefixes, stats) = (ctx.ks.counted_prefixes(), &ctx.server.meters.stats.coordination);
    let of_messages = [
        (
            "tidegate_dead_letters_total",
            Turn::DeadLettered,
            "Messages that became dead letters, by the key of their stream.",
        ),
        (
            "tidegate_dead_letters_stayed_total",
            Turn::DeadLetterStays,
            "Dead letters that stayed in a stream because they had moved between streams too often.",
        ),
    ];
    for (metric, turn, help) in of_messages {
        head(text, metric, "counter", help);
        for group in 0..prefixes.groups() {
            sample(
                text,
                metric,
                &[("prefix", &*prefix_of(prefixes, group))],
                stats.get(Family::Queue, group).turns(turn),
            );
        }
    }
}

/// Writes how many calls wait for a lock or a place of a gate now.
fn waiters(text: &mut String, ctx: &Ctx<'_>) {
    let prefixes = ctx.ks.counted_prefixes();
    let mut waiting = vec![[0_u64; Family::ALL.len()]; prefixes.groups()];
    for parked in ctx.server.waits.calls() {
        if let (Some(counted), Some(key)) = (parked.counted, parked.keys.as_argv().iter().next()) {
            waiting[prefixes.group_of(key)][counted.family as usize] += 1;
        }
    }
    let help = "Calls that wait for a lock or a place of a gate.";
    by_family(text, "tidegate_waiters", help, prefixes, &[Family::Lock, Family::Gate], &|family, group| {
        waiting[group][family as usize]
    });
}

/// Writes how many grants are held. The keys are walked up to a bound, and the rest is judged by those.
fn held(text: &mut String, ctx: &Ctx<'_>) {
    let prefixes = ctx.ks.counted_prefixes();
    let mut held = vec![[0_u64; Family::ALL.len()]; prefixes.groups()];
    let all: usize = (0..ctx.ks.databases()).map(|db| ctx.ks.db_unfenced(db).len()).sum();
    for db in 0..ctx.ks.databases() {
        let keys = ctx.ks.db_unfenced(db).len();
        let seen = share(keys, all);
        let mut found = vec![[0_u64; Family::ALL.len()]; prefixes.groups()];
        for entry in ctx.ks.stored_entries_unfenced(db).take(seen) {
            if let ValueRef::Grants(grants) = entry.value() {
                found[prefixes.group_of(entry.key())][Family::from(grants.kind()) as usize] += grants.len() as u64;
            }
        }
        for (sum, found) in held.iter_mut().flatten().zip(found.iter().flatten()) {
            *sum += (u128::from(*found) * keys as u128 / seen.max(1) as u128) as u64;
        }
    }
    let help = "Locks, places of gates and holds on stocks held now; an estimate with more than 16,384 keys.";
    by_family(text, "tidegate_grants_held", help, prefixes, &HOLDING, &|family, group| held[group][family as usize]);
}

/// Returns how many of the keys of a database to look at: all, or its share of the bound.
fn share(keys: usize, all: usize) -> usize {
    if all <= METRICS_MAX_KEYS {
        keys
    } else {
        (keys as u128 * METRICS_MAX_KEYS as u128).div_ceil(all as u128) as usize
    }
}

/// Writes a gauge of each of these families and each prefix.
fn by_family(
    text: &mut String,
    metric: &str,
    help: &str,
    prefixes: &KeyPrefixes,
    families: &[Family],
    value: &dyn Fn(Family, usize) -> u64,
) {
    head(text, metric, "gauge", help);
    for (family, group) in families.iter().flat_map(|family| (0..prefixes.groups()).map(move |group| (*family, group)))
    {
        let labels = [("family", family.name()), ("prefix", &*prefix_of(prefixes, group))];
        sample(text, metric, &labels, value(family, group));
    }
}

fn prefix_of(prefixes: &KeyPrefixes, group: usize) -> Cow<'_, str> {
    String::from_utf8_lossy(prefixes.prefix(group))
}
