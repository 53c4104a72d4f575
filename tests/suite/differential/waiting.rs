//! Random calls of several clients that wait for each other: which change serves which client, with which reply, and
//! which clients keep waiting.
//!
//! Each client makes one call after the other, unless it waits. After every call both servers must report as many
//! waiting clients as before, or have sent equal answers to the same clients. No client waits for a time. Keys keep
//! their types, since Redis 8 treats a call differently whose list was replaced by another type while it waited. At the
//! end of a sequence the whole keyspace is compared.

use std::collections::BTreeMap;
use std::time::Duration;

use super::dump;
use super::generate::Dice;
use super::pair::{Link, Pair};
use super::rule::{Rule, Version, rule_for};
use super::script::{Args, show, split_line};
use super::search::{env_number, shrink};
use crate::harness::{Raw, Reply};
use crate::oracle::REDIS_SERVER_8;

const CLIENTS: usize = 5;
/// Steps of a sequence.
const LENGTH: usize = 80;
/// The time of one look at a client that may have a reply.
const LOOK: Duration = Duration::from_millis(1);
/// Looks before a reply counts as missing.
const LOOKS: usize = 20_000;

/// A client's step: one call, or a transaction.
type Step = (usize, Vec<Args>);

/// With 8.0 alone: 7.0 serves a client with several keys from the key that arrived first, not from the first one named.
#[test]
fn waiting_clients_behave_as_on_redis() {
    if REDIS_SERVER_8.is_missing() {
        return;
    }
    let version = Version::Eight;
    let first = env_number("SUITE_SEED").unwrap_or(20_260_101);
    let rounds = env_number("SUITE_ROUNDS").unwrap_or(40);
    let mut pair = Pair::start(version);
    let (mut calls, mut served, mut reports) = (0, 0, Vec::new());
    for seed in first..first.saturating_add(rounds) {
        let steps = sequence(&mut Dice(seed));
        calls += steps.iter().map(|(_, calls)| calls.len()).sum::<usize>();
        let resp3 = seed % 2 == 1;
        if let Err(told) = run(&mut pair, &steps, resp3, &mut served) {
            let least = shrink(steps, |part| run(&mut pair, part, resp3, &mut 0).is_err());
            let told = run(&mut pair, &least, resp3, &mut 0).err().unwrap_or(format!("once only: {told}"));
            let lines = least.iter().flat_map(|(client, calls)| calls.iter().map(move |args| (client, args)));
            let script: String = lines.map(|(client, args)| format!("[{client}] {}\n", show(args))).collect();
            reports.push(format!("SUITE_SEED={seed} SUITE_ROUNDS=1 repeats this\n{script}{told}"));
            if reports.len() == 5 {
                break;
            }
        }
    }
    eprintln!("clients that wait: {calls} calls, seeds from {first}, {served} replies to clients that had waited");
    assert!(reports.is_empty(), "{} sequences differ:\n{}", reports.len(), reports.join("\n\n"));
    assert!(served as u64 >= rounds, "only {served} replies to clients that had waited");
}

fn sequence(dice: &mut Dice) -> Vec<Step> {
    let mut number = 0;
    let step = |_| {
        let client = dice.below(CLIENTS);
        if dice.once_in(8) {
            let calls = (0..1 + dice.below(4)).map(|_| call(dice, &mut number));
            let words = [words("MULTI")].into_iter().chain(calls.collect::<Vec<_>>()).chain([words("EXEC")]);
            return (client, words.collect());
        }
        (client, vec![call(dice, &mut number)])
    };
    (0..LENGTH).map(step).collect()
}

fn words(line: &str) -> Args {
    split_line(line).expect("plain words")
}

/// A call; `number` keeps elements distinct and ids growing.
fn call(dice: &mut Dice, number: &mut u64) -> Args {
    *number += 1;
    let n = *number;
    let list = |dice: &mut Dice| *dice.pick(&["l0", "l1", "l2"]);
    let zset = |dice: &mut Dice| *dice.pick(&["z0", "z1"]);
    let end = |dice: &mut Dice| *dice.pick(&["LEFT", "RIGHT"]);
    let edge = |dice: &mut Dice| *dice.pick(&["MIN", "MAX"]);
    let (a, b, z, y, e, f, m) = (list(dice), list(dice), zset(dice), zset(dice), end(dice), end(dice), edge(dice));
    let line = match dice.below(42) {
        0..3 => format!("BLPOP {a} {b} 0"),
        3..5 => format!("BRPOP {a} {b} 0"),
        5..7 => format!("BLMOVE {a} {b} {e} {f} 0"),
        7 => format!("BRPOPLPUSH {a} {b} 0"),
        8..10 => format!("BLMPOP 0 2 {a} {b} {e} COUNT 2"),
        10..12 => format!("BZPOPMIN {z} {y} 0"),
        12 => format!("BZPOPMAX {z} {y} 0"),
        13 => format!("BZMPOP 0 2 {z} {y} {m} COUNT 2"),
        14 => "XREAD BLOCK 0 STREAMS s $".to_owned(),
        15..17 => format!("XREADGROUP GROUP g c{} BLOCK 0 STREAMS s >", dice.below(2)),
        17..20 => format!("RPUSH {a} e{n}"),
        20..22 => format!("LPUSH {a} e{n} f{n}"),
        22 => format!("RPUSH {a} e{n} f{n} g{n}"),
        23 => format!("LPOP {a}"),
        24 => format!("DEL {a} {z}"),
        25 => format!("RENAME {a} {b}"),
        26 => format!("COPY {a} {b} REPLACE"),
        27 => format!("LMOVE {a} {b} {e} {f}"),
        28 => format!("SORT {a} ALPHA STORE {b}"),
        29..31 => format!("ZADD {z} {n} e{n}"),
        31 => format!("ZADD {z} {n} e{n} 1 f{n}"),
        32 => format!("ZPOPMIN {z}"),
        33 => format!("ZUNIONSTORE {z} 1 {y}"),
        34..36 => format!("XADD s {n}-1 f {n}"),
        36 => "XGROUP CREATE s g $ MKSTREAM".to_owned(),
        37 => "XGROUP DESTROY s g".to_owned(),
        38 if dice.once_in(3) => "DEL s".to_owned(),
        39 => {
            format!("EVAL \"redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('LPOP', KEYS[2])\" 2 {a} {b} e{n}")
        }
        40 => format!("LTRIM {a} 1 -1"),
        _ => format!("LINSERT {a} BEFORE e{} x{n}", dice.below(n as usize)),
    };
    words(&line)
}

/// Runs a sequence from scratch; an error describes the difference.
fn run(pair: &mut Pair, steps: &[Step], resp3: bool, served: &mut usize) -> Result<(), String> {
    pair.reset();
    pair.wait_for_blocked(0).map_or(Ok(()), Err)?;
    let version = pair.version();
    let mut waiting: BTreeMap<usize, Args> = BTreeMap::new();
    for (client, calls) in steps {
        if waiting.contains_key(client) {
            continue;
        }
        let (last, before) = calls.split_last().expect("a step is a call at least");
        let told = |told: String| format!("[{client}] {}\n{told}", show(last));
        let name = client.to_string();
        for args in calls {
            let link = pair.link(&name, resp3);
            link.ours.send_command(args);
            link.theirs.send_command(args);
        }
        for args in before {
            pair.link(&name, resp3).compare_call(args, &rule_for(args)).map_or(Ok(()), |error| Err(told(error)))?;
        }
        if may_wait(last) {
            let [ours, theirs] = outcomes(pair, &name, resp3, waiting.len())?;
            compare(&rule_for(last), ours.as_ref(), theirs.as_ref(), version).map_err(told)?;
            if ours.is_none() {
                waiting.insert(*client, last.clone());
            }
        } else {
            pair.link(&name, resp3).compare_call(last, &rule_for(last)).map_or(Ok(()), |error| Err(told(error)))?;
        }
        *served += compare_served(pair, resp3, &mut waiting).map_err(told)?;
    }
    dump::compare(pair, resp3, true).map_or(Ok(()), Err)
}

/// Whether a call may wait, if nothing follows it on the connection; in a transaction no call waits.
fn may_wait(args: &Args) -> bool {
    args[0].starts_with(b"B") || args.iter().any(|arg| arg == b"BLOCK")
}

/// The number of waiting clients, by a server's INFO.
fn blocked(look: &mut Raw) -> usize {
    let info = look.command(&["INFO", "clients"]);
    let text = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
    let field = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    field.expect("INFO tells").trim().parse().expect("a number")
}

/// Both servers' replies to a call that may wait; `None` while it waits.
fn outcomes(pair: &mut Pair, name: &str, resp3: bool, waiting: usize) -> Result<[Option<Reply>; 2], String> {
    let mut found = Vec::new();
    for of in [ours as fn(&mut Link) -> &mut Raw, theirs] {
        let mut outcome = Err("neither waits nor is answered".to_owned());
        for _ in 0..LOOKS {
            if blocked(of(pair.link("look", resp3))) == waiting + 1 {
                outcome = Ok(None);
                break;
            }
            if let Ok(reply) = of(pair.link(name, resp3)).try_reply(LOOK) {
                outcome = Ok(Some(reply));
                break;
            }
        }
        found.push(outcome?);
    }
    let theirs = found.pop().expect("two");
    Ok([found.pop().expect("two"), theirs])
}

fn ours(link: &mut Link) -> &mut Raw {
    &mut link.ours
}

fn theirs(link: &mut Link) -> &mut Raw {
    &mut link.theirs
}

/// Reads and compares the replies to calls that had waited. Returns their number.
fn compare_served(pair: &mut Pair, resp3: bool, waiting: &mut BTreeMap<usize, Args>) -> Result<usize, String> {
    let version = pair.version();
    let look = pair.link("look", resp3);
    let (left, right) = (blocked(&mut look.ours), blocked(&mut look.theirs));
    if left != right || left > waiting.len() {
        return Err(format!("ours: {left} wait, redis: {right} wait, of {}", waiting.len()));
    }
    let served = waiting.len() - left;
    if served == 0 {
        return Ok(0);
    }
    let mut found = Vec::new();
    for of in [ours as fn(&mut Link) -> &mut Raw, theirs] {
        let mut replies = BTreeMap::new();
        for _ in 0..LOOKS {
            for client in waiting.keys().filter(|client| !replies.contains_key(*client)).copied().collect::<Vec<_>>() {
                if let Ok(reply) = of(pair.link(&client.to_string(), resp3)).try_reply(LOOK) {
                    replies.insert(client, reply);
                }
            }
            if replies.len() >= served {
                break;
            }
        }
        found.push(replies);
    }
    for (client, args) in waiting.iter() {
        let [ours, theirs] = [found[0].get(client), found[1].get(client)];
        compare(&rule_for(args), ours, theirs, version).map_err(|told| format!("[{client}] {} {told}", show(args)))?;
    }
    waiting.retain(|client, _| !found[0].contains_key(client));
    Ok(served)
}

fn compare(rule: &Rule, ours: Option<&Reply>, theirs: Option<&Reply>, version: Version) -> Result<(), String> {
    let text = |reply: Option<&Reply>| reply.map_or("waits".to_owned(), |reply| format!("{:?}", reply.value));
    let same = match (ours, theirs) {
        (None, None) => true,
        (Some(ours), Some(theirs)) => rule.same(ours, theirs, version),
        _ => false,
    };
    if same { Ok(()) } else { Err(format!("    ours:  {}\n    redis: {}", text(ours), text(theirs))) }
}
