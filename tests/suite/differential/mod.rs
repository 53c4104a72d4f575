//! Identical commands to the server under test and to Redis 7.0.15 and 8.0, with comparison of replies and data.
//!
//! Four sources of commands, over RESP2 and over RESP3: `corpus/*.txt`, written by hand, family by family (its lines
//! may use several connections, wait for blocked clients, read pushes); random sequences of the corpus' plain lines;
//! random calls made from the declared syntax of the commands ([`generate`]), valid, at the edge, and broken; random
//! libraries of functions ([`functions`]).
//!
//! Others are scripts in the style of well-known libraries ([`queues`]), and clients that wait for each other
//! ([`waiting`]).
//!
//! Replies are compared by the [`rule`] of their command. Random sequences go out in pipelines; between them the whole
//! keyspace is compared ([`dump`]). A sequence that differs is run again, to rule out races with the clock, then shrunk
//! and printed as a script for redis-cli, with its seed ([`search`]). Events and invalidations sent to other clients
//! are compared as well ([`heard`]). `SUITE_SEED` and `SUITE_ROUNDS` choose other sequences: `SUITE_ROUNDS=0` goes on
//! until something differs.
//!
//! Where the two versions of Redis differ, 8.0 is right: a [`rule`] knows the answers of 7.0 that differ. Commands and
//! words that a version lacks are left out automatically. Commands that the server does not have yet are listed in
//! `missing.txt`; they are sent to neither side. A test there checks that each is really unknown, so the list cannot
//! outlive its reason.
//!
//! A corpus line is a command as redis-cli reads it, optionally after `[name]`, the connection (a when absent), or:
//! ```text
//! # comment            ~ COMMAND   only the kind of the reply is compared, for intended differences
//! & COMMAND  sent, its reply read by a later  ?   (one more frame from this connection, e.g. a pushed message)
//! !sleep MS            !blocked N  waits until N clients are blocked, on both servers
//! @2 LINE              only over RESP2
//! @8 LINE              only against Redis 8.0, since 7.0 answers differently; likewise @7
//! ```

pub(crate) mod declared;
mod dump;
mod events;
pub(crate) mod functions;
pub(crate) mod generate;
mod heard;
mod pair;
mod queues;
mod rule;
pub(crate) mod script;
pub(crate) mod search;
mod waiting;

use std::collections::BTreeSet;

use declared::Declared;
use generate::Dice;
use pair::{Pair, is_missing};
pub(crate) use rule::{Version, unordered};
pub(crate) use script::split_line;
use script::{Action, Args, corpus_files, read_corpus, suite_folder};
use search::{Verdict, judge, search, search_with};

use crate::harness::{Program, Server};
use crate::oracle::{REDIS_SERVER, REDIS_SERVER_8};

/// Makes a test of each function for each version of Redis.
macro_rules! against_both {
    ($($name:ident),+ $(,)?) => {
        mod redis_7 {
            $( #[test] fn $name() {
                if !$crate::oracle::REDIS_SERVER.is_missing() {
                    super::$name(super::Version::Seven)
                }
            } )+
        }
        mod redis_8 {
            $( #[test] fn $name() {
                if !$crate::oracle::REDIS_SERVER_8.is_missing() {
                    super::$name(super::Version::Eight)
                }
            } )+
        }
    };
}
use against_both;

against_both!(corpus_resp2, corpus_resp3, random_sequences_of_the_corpus, random_calls_from_the_declarations,);

fn corpus_resp2(version: Version) {
    run_corpus(version, false);
}

fn corpus_resp3(version: Version) {
    run_corpus(version, true);
}

fn run_corpus(version: Version, resp3: bool) {
    let wanted = std::env::var("SUITE_CORPUS").ok();
    let missing = missing_commands();
    let mut differences = Vec::new();
    let mut lines = 0;
    for path in corpus_files() {
        let name = path.file_stem().expect("a file has a stem").to_string_lossy().into_owned();
        if wanted.as_ref().is_some_and(|w| *w != name) {
            continue;
        }
        let mut pair = Pair::start(version);
        for (number, step) in read_corpus(&path) {
            if resp3 && step.resp2_only || step.only.is_some_and(|only| only != version) {
                continue;
            }
            lines += 1;
            if let Some(difference) = pair.step(&step, resp3, &missing) {
                differences.push(format!("{name}.txt:{number}: {difference}"));
                if pair.is_broken() {
                    break;
                }
            }
        }
        differences.extend(pair.leftovers(resp3).into_iter().map(|d| format!("{name}.txt: at the end: {d}")));
    }
    assert!(lines > 0, "no corpus line was run");
    let count = differences.len();
    assert!(count == 0, "{count} of {lines} lines differ (RESP{}):\n{}", 2 + u8::from(resp3), differences.join("\n"));
}

fn random_sequences_of_the_corpus(version: Version) {
    let lines = plain_lines(&commands(version), version);
    search(version, "random lines", 60, |dice| shuffled(&lines, dice, 150, version));
}

/// With 7.0 alone: FUNCTION FLUSH makes 8.0.6 crash after some of these.
#[test]
fn random_libraries_behave_as_on_redis() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let version = Version::Seven;
    search(version, "random libraries", 150, functions::sequence);
}

fn random_calls_from_the_declarations(version: Version) {
    let commands = commands(version);
    search(version, "random calls", 100, |dice| generate::sequence(version, &commands, dice));
}

/// Messages to other clients: with 8.0 alone, since this server's events are those of 8.0.
#[test]
fn random_calls_send_the_messages_of_redis() {
    if REDIS_SERVER_8.is_missing() {
        return;
    }
    let version = Version::Eight;
    let commands = commands(version);
    search_with(Pair::start_heard(version), "random calls told", 60, |dice| {
        let mut calls = generate::sequence(version, &commands, dice);
        // After SWAPDB this server invalidates tracking clients; Redis does not. The other commands find expired keys
        // by chance, before they have read their arguments, or, on this server, whatever the pattern.
        const LEFT_OUT: [&[u8]; 5] = [b"SWAPDB", b"RANDOMKEY", b"XAUTOCLAIM", b"XCLAIM", b"SCAN"];
        calls.retain(|args| !LEFT_OUT.contains(&args[0].as_slice()));
        calls
    });
}

/// The commands that both servers have.
fn commands(version: Version) -> Vec<Declared> {
    let missing = missing_commands();
    let words = |command: &Declared| command.words.iter().map(|word| word.as_bytes().to_vec()).collect::<Args>();
    let mut commands = declared::commands(&mut Server::start(version.program(), &[]).raw());
    commands.retain(|command| !is_missing(&words(command), &missing));
    commands
}

#[test]
fn the_declarations_cover_every_family() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let commands = commands(Version::Seven);
    let count = |family: &str| commands.iter().filter(|command| command.family == family).count();
    for (family, least) in [("string", 28), ("hash", 15), ("list", 20), ("set", 15), ("zset", 28), ("geo", 9)] {
        assert!(count(family) >= least, "only {} commands of family {family:?}", count(family));
    }
    for (family, least) in [("stream", 18), (declared::ANY_FAMILY, 18), (declared::LEX, 4), (declared::SESSION, 6)] {
        assert!(count(family) >= least, "only {} commands of family {family:?}", count(family));
    }
}

/// The search must find real differences: a planted one comes out, shrunk to the commands that matter, whether it is in
/// a reply or only in the data.
#[test]
fn finds_and_shrinks_a_planted_difference() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let planted = Server::start(Program::Redis, &["--set-max-intset-entries", "1", "--hash-max-listpack-entries", "1"]);
    let mut pair = Pair::of(planted, Server::start(Program::Redis, &[]), Version::Seven);
    let line = |text: &str| split_line(text).expect("plain words");
    for (number, told) in
        [("OBJECT ENCODING s", "OBJECT ENCODING s\n"), ("HSET h a 1 b 2", "(the dump) OBJECT ENCODING h\n")]
    {
        let mut sequence: Vec<Args> = (0..100).map(|i| line(&format!("SET k{i} v"))).collect();
        if number.starts_with("OBJECT") {
            sequence.insert(20, line("SADD s 1"));
            sequence.insert(50, line("SADD s 2"));
        }
        sequence.insert(80, line(number));
        let Verdict::Differs { report, .. } = judge(&mut pair, &sequence, false) else {
            panic!("the encodings differ");
        };
        assert!(report.contains(told), "{report}");
        assert_eq!(report.lines().filter(|l| l.starts_with("SET")).count(), 0, "{report}");
    }
}

#[test]
fn missing_commands_are_really_missing() {
    if std::env::var("SUITE_SERVER").is_ok() {
        return; // The list describes the server of this build.
    }
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    for name in missing_commands() {
        let value = raw.command(&name.split(' ').collect::<Vec<_>>());
        let text = String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned();
        let unknown = text.starts_with("ERR unknown command") || text.starts_with("ERR unknown subcommand");
        assert!(unknown, "{name} exists now (it answers {value:?}): take it out of missing.txt");
    }
}

fn missing_commands() -> BTreeSet<String> {
    if std::env::var("SUITE_SERVER").is_ok() {
        return BTreeSet::new();
    }
    let path = suite_folder().join("missing.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_ascii_uppercase).collect()
}

/// The corpus lines that work on their own, on one connection, at any time, with equal effects on both servers.
fn plain_lines(commands: &[Declared], version: Version) -> Vec<Args> {
    let is_declared = |args: &Args| {
        let begins = |command: &Declared| {
            command.words.iter().zip(args).all(|(word, arg)| arg.eq_ignore_ascii_case(word.as_bytes()))
        };
        commands.iter().any(|command| command.family != declared::SESSION && begins(command))
    };
    let steps = corpus_files().into_iter().flat_map(|path| read_corpus(&path));
    let lines: Vec<Args> = steps
        .filter(|(_, step)| step.only.is_none_or(|only| only == version))
        .filter_map(|(_, step)| match step.action {
            Action::Run { args, wait: true, loose: false } if step.connection == "a" => Some(args),
            _ => None,
        })
        // After a number out of range (1e400), SORT of Redis 7.0 accepts no number any more.
        .filter(|args| {
            is_declared(args)
                && generate::is_fit(args, false, version)
                && !args[0].to_ascii_uppercase().starts_with(b"SORT")
        })
        .collect();
    assert!(lines.len() > 100, "the corpus is there to draw from");
    lines
}

/// A random sequence of corpus lines.
fn shuffled(lines: &[Args], dice: &mut Dice, length: usize, version: Version) -> Vec<Args> {
    // A few lines dominate a sequence, so that they meet each other's data.
    let theme: Vec<&Args> = (0..40).map(|_| dice.pick(lines)).collect();
    let mut sequence = Vec::with_capacity(length);
    while sequence.len() < length {
        let mut args = if dice.once_in(4) { dice.pick(lines).clone() } else { (*dice.pick(&theme)).clone() };
        if args.len() > 1
            && dice.once_in(10)
            && let Some(key) = dice.pick(lines).get(1)
        {
            args[1] = key.clone();
        }
        let args = generate::perhaps_break(args, dice);
        if generate::is_fit(&args, false, version) {
            sequence.push(args);
        }
    }
    sequence
}
