//! The stream of effects is the data: a second engine to which it is applied, unit by unit, holds the same keys, scripts and
//! libraries as the first, which got the calls.
//!
//! Two worlds of random calls: of every command that the table declares, on few small values of all types; and of those
//! that change large ones. Some run in transactions, in functions, in scripts that succeed, and in scripts that fail. Clients wait,
//! are woken and time out, for the clock is moved by hand; so keys and elements expire, met by a call or reclaimed.
//! Scripts and libraries come and go, thresholds move.
//!
//! `SUITE_SEED` and `SUITE_ROUNDS` choose other sequences, as in [`differential`](crate::differential); one that differs is shrunk.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};

use tidegate::keyspace::effect::Shown;

use crate::differential::declared::{self, Declared};
use crate::differential::functions;
use crate::differential::generate::{self, Dice, Time};
use crate::differential::script::{Args, show, split_line};
use crate::differential::search::{env_number, shrink};
use crate::in_process::{Bench, ENDS, START_MS, Told, Unit, script, words};
use crate::rollback;

/// What of the keys is compared. NOT COMPARED YET: the forms of values (encodings, the order of packed elements, the nodes of
/// streams). Some changes of form are in no effect, and the thresholds that decide others are in none either.
const COMPARED: Told = Told::Content;

/// Clients of the engine.
const CLIENTS: usize = 3;
/// Steps of a sequence after which the two engines are compared.
const STRIDE: usize = 16;

#[test]
fn small_values_of_all_types() {
    let commands = declared::all_commands();
    search("small values", 40, |dice| small_world(&commands, dice));
}

#[test]
fn large_values() {
    search("large values", 12, large_world);
}

/// Runs sequences from one seed after the other.
fn search(name: &str, rounds: u64, mut sequence: impl FnMut(&mut Dice) -> Vec<Step>) {
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let last = match env_number("SUITE_ROUNDS").unwrap_or(rounds) {
        0 => u64::MAX,
        rounds => first.saturating_add(rounds),
    };
    let (mut steps, mut units) = (0, 0);
    for seed in first..last {
        let sequence = sequence(&mut Dice(seed));
        steps += sequence.len();
        match run(&sequence, STRIDE) {
            Ok(changed) => units += changed,
            Err(_) => panic!("SUITE_SEED={seed} SUITE_ROUNDS=1 repeats this\n{}", report(&sequence)),
        }
    }
    eprintln!("{name}: {steps} steps, {units} units that changed something, seeds from {first}");
    assert!(units > steps / 8, "of {steps} steps only {units} changed something");
}

/// The least sequence that still differs, with its last unit and what differs first.
fn report(sequence: &[Step]) -> String {
    let least = shrink(sequence.to_vec(), |part| run(part, 1).is_err());
    let told = run(&least, 1).err().unwrap_or_else(|| "only in the whole sequence".to_owned());
    least.iter().fold(String::new(), |list, step| list + &step.to_string() + "\n") + &told
}

/// Runs a sequence on a new engine and repeats what it changes on another. Compares them after so many steps each time, and at
/// the end. Answers how many units changed something; fails with the first difference.
fn run(sequence: &[Step], stride: usize) -> Result<usize, String> {
    let (mut original, mut copy) = (Bench::new(CLIENTS), Bench::new(0));
    original.keep_units();
    let mut changed = 0;
    for (number, step) in sequence.iter().enumerate() {
        step.run(&mut original);
        let units = original.take_units();
        changed += units.len();
        let told = |what: String| format!("after {step}\n{}{what}", units.iter().map(effects).collect::<String>());
        units.iter().try_for_each(|unit| copy.repeat(unit)).map_err(told)?;
        if (number + 1) % stride == 0 || number + 1 == sequence.len() {
            compare(&mut original, &mut copy).map_err(told)?;
        }
    }
    Ok(changed)
}

/// Fails with the first difference.
fn compare(original: &mut Bench, copy: &mut Bench) -> Result<(), String> {
    let lines = |bench: &mut Bench, now_ms: i64| {
        bench.look_at(now_ms);
        let mut lines: Vec<String> = bench.state(COMPARED).lines().map(str::to_owned).collect();
        lines.extend(bench.programs());
        lines
    };
    let now_ms = original.clock.now_ms();
    let (ours, theirs) = (lines(original, now_ms), lines(copy, now_ms));
    let Some(at) = (0..ours.len().max(theirs.len())).find(|&at| ours.get(at) != theirs.get(at)) else { return Ok(()) };
    let line = |lines: &[String]| lines.get(at).map_or("nothing".to_owned(), |line| line.clone());
    Err(format!("the original has:\n    {}\nthe copy has:\n    {}", line(&ours), line(&theirs)))
}

fn effects(unit: &Unit) -> String {
    unit.effects().fold("a unit:\n".to_owned(), |mut list, (db, effect)| {
        let (name, fields) = effect.describe();
        let _ = write!(list, "    db {db} {name}");
        for (field, shown) in fields {
            let _ = match shown {
                Shown::Bytes(bytes) => write!(list, " {field}={}", bytes.escape_ascii()),
                Shown::Integer(number) => write!(list, " {field}={number}"),
                other => write!(list, " {field}={other:?}"),
            };
        }
        list + "\n"
    })
}

/// One step of a sequence.
#[derive(Clone)]
enum Step {
    /// A client calls a command; another client, if this one waits.
    Call { client: usize, args: Args },
    /// Time passes.
    Pass { ms: i64 },
    /// What has expired is removed.
    Reclaim,
}

impl Step {
    fn run(&self, bench: &mut Bench) {
        match self {
            Step::Call { client, args } => {
                let ready = (0..CLIENTS).map(|i| (client + i) % CLIENTS).find(|&client| !bench.is_suspended(client));
                let client = ready.unwrap_or_else(|| {
                    bench.reconnect(*client);
                    *client
                });
                bench.call(client, args);
            }
            Step::Pass { ms } => bench.pass(*ms),
            Step::Reclaim => bench.reclaim(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call { client, args } => write!(f, "[{client}] {}", show(args)),
            Step::Pass { ms } => write!(f, "!pass {ms}"),
            Step::Reclaim => write!(f, "!reclaim"),
        }
    }
}

/// Random calls of all commands on small values, mixed with what else may happen.
fn small_world(commands: &[Declared], dice: &mut Dice) -> Vec<Step> {
    let mut calls: VecDeque<Args> = generate::sequence_in(Time::ByHand(START_MS), commands, dice).into();
    let (mut steps, mut client) = (Vec::new(), 0);
    while !calls.is_empty() {
        if dice.once_in(4) {
            client = dice.below(CLIENTS);
        }
        match dice.below(48) {
            0..4 => steps.push(passing(dice)),
            4 => steps.push(Step::Reclaim),
            5 => steps.push(Step::Call { client, args: generate::thresholds(dice) }),
            6 | 7 => steps.push(Step::Call { client, args: functions::call(dice) }),
            8..11 => steps.push(Step::Call { client, args: other_call(dice) }),
            11..15 => {
                let some = calls.len().min(1 + dice.below(6));
                let inside: Vec<Args> = calls.drain(..some).collect();
                steps.push(Step::Call { client, args: script(ENDS[dice.below(ENDS.len())], &inside) });
            }
            _ => {
                // A transaction is one client's.
                let opens = calls[0] == [b"MULTI"];
                let ends = |call: &Args| call == &[b"EXEC"] || call == &[b"DISCARD"];
                let len = if opens { calls.iter().position(ends).map_or(1, |at| at + 1) } else { 1 };
                steps.extend(calls.drain(..len).map(|args| Step::Call { client, args }));
            }
        }
    }
    steps
}

/// Calls that change large values.
fn large_world(dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut passed_ms = 0;
    for _ in 0..12 {
        steps.push(Step::Call { client: 0, args: words(&["EVAL", rollback::MAKE, "0"]) });
        for (name, values) in rollback::THRESHOLDS {
            steps.push(Step::Call { client: 0, args: words(&["CONFIG", "SET", name, values[dice.below(2)]]) });
        }
        let most_ms = if dice.once_in(10) { 2_000 } else { 60 };
        let ms = dice.below(most_ms) as i64;
        passed_ms += ms;
        steps.push(Step::Pass { ms });
        let calls: Vec<Args> =
            (0..1 + dice.below(60)).map(|_| rollback::large_call(dice, START_MS + passed_ms)).collect();
        match dice.below(4) {
            0 => steps.push(Step::Call { client: 0, args: script(ENDS[dice.below(ENDS.len())], &calls) }),
            _ => steps.extend(calls.into_iter().map(|args| Step::Call { client: 0, args })),
        }
        if dice.once_in(3) {
            steps.push(Step::Reclaim);
        }
    }
    steps
}

fn passing(dice: &mut Dice) -> Step {
    Step::Pass { ms: *dice.pick(&[1, 1, 5, 20, 60, 500, 1_000, 3_000, 20_000]) }
}

/// A call that no random one of [`generate`] is: of scripts and of databases, of values as bytes.
fn other_call(dice: &mut Dice) -> Args {
    const CALLS: [&str; 17] = [
        "FLUSHALL",
        "FLUSHDB ASYNC",
        "SWAPDB 0 1",
        "SELECT n",
        "EVAL \"return n\" 0",
        "EVAL \"return n\" 0",
        "EVAL \"redis.call('SET', 'kn', n) return nonsense()\" 0",
        "EVAL \"syntax error n\" 0",
        "SCRIPT LOAD \"return n\"",
        "SCRIPT LOAD \"#!lua flags=no-writes\\nreturn n\"",
        "SCRIPT FLUSH",
        "CONFIG SET script-cache-max-bytes n",
        "CONFIG SET script-cache-max-bytes 1000",
        "EVAL \"redis.call('RESTORE', 'kn', n * 100, redis.call('DUMP', 'kN'), 'REPLACE')\" 0",
        "EVAL \"redis.call('RESTORE', 'kn', 0, redis.call('DUMP', 'kN'), 'REPLACE') redis.call('DEL', 'kN')\" 0",
        "COPY kn kN DB 1 REPLACE",
        "CLIENT UNBLOCK n",
    ];
    let digit = |dice: &mut Dice| char::from(b"01234567"[dice.below(8)]);
    let (small, large) = (digit(dice).to_string(), digit(dice).to_string());
    let fill = |line: &str| {
        let mut filled = String::new();
        for (at, c) in line.char_indices() {
            // Not the n of a word.
            let is_alone = !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() && c != 'k')
                && !line[at + 1..].starts_with(|c: char| c.is_ascii_alphanumeric());
            match c {
                'n' if is_alone && !line[..at].ends_with('\\') => filled.push_str(&small),
                'N' if is_alone => filled.push_str(&large),
                c => filled.push(c),
            }
        }
        filled
    };
    split_line(&fill(CALLS[dice.below(CALLS.len())])).expect("plain words")
}
