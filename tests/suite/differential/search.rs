//! Searches sequence after sequence until one differs: runs it in pipelines, compares the whole keyspace now and then,
//! runs it again, shrinks it, and prints it as a script for redis-cli.

use std::collections::BTreeSet;

use super::dump;
use super::generate::Dice;
use super::pair::{CALLER, Pair};
use super::rule::{Rule, Version, rule_for};
use super::script::{Args, show};

/// Calls in one pipeline.
const PIPELINE: usize = 64;
/// Pipelines from one dump of the keyspace to the next.
const PIPELINES_PER_DUMP: usize = 2;
/// Differing sequences before the search ends: one fault often hides another.
const REPORTS: usize = 5;

/// Commands whose changes reach watching and tracking clients on this server but not on Redis: changes of groups, and
/// of a string that only grows. Also commands refused for the number of keys that they name, after which the two
/// servers count different keys as read.
const TELL_MORE: [&[u8]; 10] = [
    b"XGROUP",
    b"XREADGROUP",
    b"XSETID",
    b"BITFIELD",
    b"XREAD",
    b"ZUNION",
    b"ZINTER",
    b"ZDIFF",
    b"ZINTERCARD",
    b"SINTERCARD",
];

/// Sequences between two progress lines.
const ROUNDS_PER_SIGN: u64 = 1000;

/// Runs sequences from one seed after the other. `SUITE_SEED` is the first, `SUITE_ROUNDS` their number, 0 without end.
pub(super) fn search(version: Version, name: &str, rounds: u64, sequence: impl FnMut(&mut Dice) -> Vec<Args>) {
    search_with(Pair::start(version), name, rounds, sequence);
}

/// Like [`search`], on these two servers.
pub(super) fn search_with(mut pair: Pair, name: &str, rounds: u64, mut sequence: impl FnMut(&mut Dice) -> Vec<Args>) {
    let first = env_number("SUITE_SEED").unwrap_or(20_260_101);
    let last = match env_number("SUITE_ROUNDS").unwrap_or(rounds) {
        0 => u64::MAX,
        rounds => first.saturating_add(rounds),
    };
    let (mut calls, mut races, mut reports, mut told) = (0, 0, Vec::new(), BTreeSet::new());
    for seed in first..last {
        let sequence = sequence(&mut Dice(seed));
        calls += sequence.len();
        match judge(&mut pair, &sequence, seed % 2 == 1) {
            Verdict::Same => {}
            Verdict::Race(difference) => {
                races += 1;
                eprintln!("{name}: once only, with SUITE_SEED={seed}: {difference}");
            }
            Verdict::Differs { report, kind } => {
                // A second difference in one command is not news.
                if told.insert(kind) {
                    reports.push(format!("SUITE_SEED={seed} SUITE_ROUNDS=1 repeats this\n{report}"));
                    eprintln!("{name}: {}", reports[reports.len() - 1]);
                }
            }
        }
        if (seed - first + 1).is_multiple_of(ROUNDS_PER_SIGN) {
            eprintln!("{name}: {calls} calls so far, the last seed was {seed}");
        }
        if reports.len() == REPORTS {
            break;
        }
    }
    eprintln!("{name}: {calls} calls, seeds from {first}, {races} differences that did not come again");
    assert!(reports.is_empty(), "{} sequences differ:\n{}", reports.len(), reports.join("\n\n"));
}

/// The result of a sequence.
pub(super) enum Verdict {
    /// All replies and all data are equal.
    Same,
    /// It differed once and not again: a race with the clock (a key that expired between the two servers).
    Race(String),
    /// It differs.
    Differs {
        /// The shortest script that shows it.
        report: String,
        /// The command whose reply differs.
        kind: String,
    },
}

/// Runs a sequence; a repeatable difference is shrunk and reported.
pub(super) fn judge(pair: &mut Pair, sequence: &[Args], resp3: bool) -> Verdict {
    let Some((at, difference)) = run(pair, sequence, resp3) else {
        return Verdict::Same;
    };
    let suspects = &sequence[..at];
    if run(pair, suspects, resp3).is_none() {
        return Verdict::Race(difference);
    }
    let least = shrink(suspects.to_vec(), |part| run(pair, part, resp3).is_some());
    let Some((_, difference)) = run(pair, &least, resp3) else {
        return Verdict::Race(difference);
    };
    let script: String = least.iter().flat_map(sent).map(|args| show(&args) + "\n").collect();
    let protocol = 2 + u8::from(resp3);
    let report = format!("RESP{protocol}; after FLUSHALL, in redis-cli:\n{script}this differs: {difference}");
    Verdict::Differs { report, kind: difference.split_whitespace().take(3).collect() }
}

/// Runs a sequence from scratch; returns the number of calls up to the first difference, and the difference.
fn run(pair: &mut Pair, sequence: &[Args], resp3: bool) -> Option<(usize, String)> {
    pair.reset();
    // These commands invalidate keys for clients that Redis leaves alone: only events are compared then.
    let has_vague = sequence.iter().any(|args| TELL_MORE.contains(&args[0].as_slice()));
    let sorted = sequence.iter().any(|args| args[0].to_ascii_uppercase().starts_with(b"SORT"));
    let mut done = 0;
    for (number, pipeline) in sequence.chunks(PIPELINE).enumerate() {
        let numbered = pipeline.iter().enumerate().flat_map(|(i, args)| sent(args).map(move |args| (i, args)));
        let (places, calls): (Vec<usize>, Vec<(Args, Rule)>) =
            numbered.map(|(i, args)| (i, (args.clone(), rule_for(&args)))).unzip();
        if let Some((at, told)) = pair.compare(CALLER, resp3, &calls) {
            return Some((done + places[at] + 1, told));
        }
        done += pipeline.len();
        if let Some(told) = pair.compare_heard(has_vague) {
            return Some((done, told));
        }
        if ((number + 1) % PIPELINES_PER_DUMP == 0 || done == sequence.len())
            && let Some(told) = dump::compare(pair, resp3, sorted)
        {
            return Some((done, told));
        }
    }
    None
}

/// A call as sent: one that takes members at random is followed by a DEL, so that both servers continue with equal
/// data.
fn sent(args: &Args) -> impl Iterator<Item = Args> + use<> {
    let realign = args[0].eq_ignore_ascii_case(b"SPOP").then(|| args.get(1)).flatten();
    let realign = realign.map(|key| vec![b"DEL".to_vec(), key.clone()]);
    std::iter::once(args.clone()).chain(realign)
}

/// The smallest part that still fails. Delta debugging (Zeller and Hildebrandt 2002, the complement half): drops ever
/// smaller chunks while it still fails.
pub(crate) fn shrink<T: Clone>(mut items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut chunk = items.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < items.len() {
            let without: Vec<T> = items[..at].iter().chain(&items[(at + chunk).min(items.len())..]).cloned().collect();
            if !without.is_empty() && fails(&without) {
                items = without;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    items
}

/// The number in an environment variable.
pub(crate) fn env_number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

#[test]
fn shrinks_to_the_relevant_steps() {
    let least = shrink((0..1000).collect(), |part: &[i32]| part.contains(&17) && part.contains(&800));
    assert_eq!(least, [17, 800]);
}
