//! All or nothing: after a script that failed the keyspace is as if it had never run.
//!
//! Random calls of every command that the table declares, over few keys of all types: some run as they are, so that there is
//! something to change, the others run inside a script that ends in an error. The engine runs in this process, so that what
//! no client can see is compared, too: counters, effects, the order and form of each value.
//!
//! `SUITE_SEED` and `SUITE_ROUNDS` choose other scripts, and how many.

use std::fmt::Write as _;

use tidegate::base::clock::Clock;
use tidegate::base::rng::Rng;
use tidegate::command;
use tidegate::config::Config;
use tidegate::engine::Engine;
use tidegate::engine::session::{Peer, SessionKey};
use tidegate::keyspace::entry::{Entry, Value};
use tidegate::resp::reply::{Form, Reply};
use tidegate::resp::request::Decoder;

use crate::differential::declared;
use crate::differential::generate::{self, Dice};
use crate::differential::script::Args;

/// Runs a list of calls, each as the number of its words and the words; then fails, or not.
const SCRIPT: &str = "local at = 2 \
    while at <= #ARGV do \
        local words = tonumber(ARGV[at]) \
        redis.pcall(unpack(ARGV, at + 1, at + words)) \
        at = at + words + 1 \
    end \
    if ARGV[1] == 'fail' then error('it fails') end \
    if ARGV[1] == 'command' then redis.call('NOSUCH') end \
    return 'done'";

/// An engine with one client.
struct Bench {
    engine: Engine,
    client: SessionKey,
    decoder: Decoder,
}

impl Bench {
    fn new() -> Bench {
        let config = Config::default();
        let mut engine = Engine::new(config, command::table(), Clock::manual(1_800_000_000_000), Rng::seeded(7))
            .expect("memory for Lua");
        let client = engine.server.open_session(peer());
        let mut bench = Bench { engine, client, decoder: Decoder::new() };
        // Somebody watches, so that effects are recorded.
        let watcher = bench.engine.server.open_session(peer());
        let own = std::mem::replace(&mut bench.client, watcher);
        bench.call(&words(&["WATCH", "some key"]));
        bench.client = own;
        bench
    }

    fn call(&mut self, args: &Args) -> Vec<u8> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        let mut reply = Reply::new(Form::Resp2);
        self.decoder = Decoder::new();
        self.engine.feed(self.client, &mut self.decoder, &request, &mut reply);
        reply.as_bytes().to_vec()
    }

    fn script(&mut self, end: &str, calls: &[Args]) -> Vec<u8> {
        let mut args = words(&["EVAL", SCRIPT, "0", end]);
        for call in calls {
            args.push(call.len().to_string().into_bytes());
            args.extend_from_slice(call);
        }
        self.call(&args)
    }

    /// Bytes of all entries.
    fn bytes(&self) -> usize {
        let ks = &self.engine.ks;
        (0..ks.databases()).flat_map(|db| ks.entries(db)).map(|entry| entry.mem_bytes(0)).sum()
    }

    /// All that there is, as text.
    fn state(&self) -> String {
        let ks = &self.engine.ks;
        let mut all = format!("{} changes\n", ks.changes_by_commands());
        for number in 0..ks.databases() {
            let db = ks.db(number);
            if db.is_empty() {
                continue;
            }
            let mut entries: Vec<String> = ks.entries(number).map(entry_state).collect();
            entries.sort();
            let _ = writeln!(all, "db {number}: {} volatile, {} partly", db.volatile(), db.partly_volatile());
            entries.iter().for_each(|entry| all.push_str(entry));
        }
        all
    }
}

fn entry_state(entry: &Entry) -> String {
    let value = entry.value();
    let deadlines = value.deadlines().filter(|deadlines| !deadlines.is_empty());
    let content = match value {
        Value::String(text) => format!("{:?}", text.text()),
        Value::List(list) => format!("{:?}", list.iter().collect::<Vec<_>>()),
        Value::ZSet(zset) => format!("{:?}", zset.iter().collect::<Vec<_>>()),
        Value::Stream(stream) => without_capacities(&format!("{stream:?}")),
        Value::Set(set) => ordered(value, set.iter().map(|member| format!("{member:?}"))),
        Value::Hash(hash) => ordered(value, hash.iter().map(|pair| format!("{pair:?}"))),
    };
    let (key, kind, encoding) = (entry.key().escape_ascii(), value.type_name(), value.encoding());
    format!("{key}: {kind} {encoding} until {:?} {content} {deadlines:?}\n", entry.expires_at_ms())
}

/// Without the room that tables have to spare.
fn without_capacities(text: &str) -> String {
    let (first, others) = text.split_once(", cap: ").unwrap_or((text, ""));
    let others = others.split(", cap: ").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
    std::iter::once(first).chain(others).collect()
}

/// The elements in their order, if the form of the value has one.
fn ordered(value: &Value, elements: impl Iterator<Item = String>) -> String {
    let mut elements: Vec<String> = elements.collect();
    if value.encoding() == "hashtable" {
        elements.sort();
    }
    format!("{elements:?}")
}

fn words(words: &[&str]) -> Args {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn peer() -> Peer {
    Peer { address: "test:0".to_owned(), local_address: "test:1".to_owned(), fd: -1, is_local: true }
}

#[test]
fn a_script_that_fails_leaves_nothing() {
    let rounds = number("SUITE_ROUNDS").unwrap_or(3_000);
    let first = number("SUITE_SEED").unwrap_or(1);
    let commands = declared::all_commands();
    let (mut failed, mut changed) = (0, 0);
    let mut seed = first;
    let mut bench = Bench::new();
    while failed < rounds {
        let dice = &mut Dice(seed);
        let calls = generate::sequence(&commands, dice);
        bench.call(&words(&["FLUSHALL"]));
        let (thresholds, mut rest) = calls.split_first().expect("a sequence begins with thresholds");
        assert_eq!(bench.call(thresholds), b"+OK\r\n");
        while !rest.is_empty() && failed < rounds {
            let (now, later) = rest.split_at(rest.len().min(1 + dice.below(12)));
            rest = later;
            let (before, bytes_before) = (bench.state(), bench.bytes());
            let reply = bench.script(if dice.once_in(2) { "fail" } else { "command" }, now);
            assert!(reply.starts_with(b"-"), "it fails: {}", reply.escape_ascii());
            let after = bench.state();
            assert_eq!(before, after, "seed {seed}: {}", told(now));
            // A value that was changed in pieces may have kept some room.
            let bytes = bench.bytes();
            assert!(bytes <= bytes_before * 2 + 512, "seed {seed}: {bytes_before} then {bytes}: {}", told(now));
            assert!(bench.engine.ks.effects().is_empty(), "seed {seed}: {}", told(now));
            failed += 1;
            // The same calls with success: from what they leave the next ones start.
            let reply = bench.script("succeed", now);
            assert_eq!(reply, b"$4\r\ndone\r\n", "seed {seed}: {}", told(now));
            changed += u64::from(bench.state() != before);
        }
        seed += 1;
    }
    assert!(changed > rounds / 4, "many scripts change something: {changed} of {rounds}");
}

fn told(calls: &[Args]) -> String {
    let word = |arg: &Vec<u8>| arg.escape_ascii().to_string();
    calls.iter().map(|call| call.iter().map(word).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}
