//! Scripts in the style of the libraries that people run on Redis: reentrant locks, semaphores, rate limiters, job
//! queues whose arguments are packed with MessagePack, schedules, reliable fetch.
//!
//! Each file in `queues/` is one script. Its lines `--@ KEYS | ARGV` are the calls to try, as redis-cli would read
//! them; keys and times are chosen so that the scripts meet each other's data. The calls run in file order and in
//! random orders; replies and the whole keyspace must be equal on both servers. (No script fails after it has written:
//! this server would undo the writes, and Redis keeps them.)

use super::pair::Pair;
use super::script::{split_line, suite_folder};
use super::search::{Verdict, judge, search};
use super::{Args, Version, against_both};

/// Calls of one random sequence.
const LENGTH: usize = 200;

against_both!(scripts_of_libraries_in_order, scripts_of_libraries_at_random);

fn scripts_of_libraries_in_order(version: Version) {
    let calls = calls();
    let thrice: Vec<Args> = std::iter::repeat_n(calls, 3).flatten().collect();
    for resp3 in [false, true] {
        match judge(&mut Pair::start(version), &thrice, resp3) {
            Verdict::Same => {}
            Verdict::Race(told) => panic!("the difference does not repeat: {told}"),
            Verdict::Differs { report, .. } => panic!("{report}"),
        }
    }
}

fn scripts_of_libraries_at_random(version: Version) {
    let calls = calls();
    search(version, "scripts of libraries", 30, |dice| (0..LENGTH).map(|_| dice.pick(&calls).clone()).collect());
}

/// All calls of all files: EVAL, each with the whole script.
fn calls() -> Vec<Args> {
    let folder = suite_folder().join("queues");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(paths.len() >= 12, "only {} scripts", paths.len());
    let mut calls = Vec::new();
    for path in paths {
        let script = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let before = calls.len();
        for line in script.lines().filter_map(|line| line.strip_prefix("--@ ")) {
            let call = parse(&script, line).unwrap_or_else(|| panic!("{}: not a call: {line}", path.display()));
            calls.push(call);
        }
        assert!(calls.len() > before, "{} has no line that says how to call it", path.display());
    }
    calls
}

fn parse(script: &str, line: &str) -> Option<Args> {
    let (keys, args) = line.split_once(" | ")?;
    let (keys, args) = (split_line(keys)?, split_line(args)?);
    let head = [b"EVAL".to_vec(), script.as_bytes().to_vec(), keys.len().to_string().into_bytes()];
    Some(head.into_iter().chain(keys).chain(args).collect())
}
