//! The same commands to the server under test and to Redis 7.0.15, the same replies.
//!
//! Three sources of commands, over RESP2 and over RESP3: `corpus/*.txt`, written by hand, family by family (its lines may
//! use several connections, wait for blocked clients, read pushes); random sequences of the corpus' plain lines; random
//! calls made from the declared syntax of the commands. In the random ones some calls are broken on purpose.
//!
//! Replies must be equal byte by byte, or equal after the command's [`Rule`] (an unordered reply, a clock, a double that
//! Redis 8 prints shorter). A random sequence that differs is run again, to leave out races with the clock, then shrunk by
//! delta debugging and printed as a script for redis-cli, with its seed. `SUITE_SEED` and `SUITE_ROUNDS` choose others.
//!
//! Commands that the server does not have yet stand in `missing.txt`; they are sent to neither side. A test there sees
//! that each is really unknown, so the list cannot outlive its reason.
//!
//! A corpus line is a command as redis-cli reads it, optionally after `[name]`, the connection (a when absent), or:
//! ```text
//! # comment            ~ COMMAND   only the kind of the reply is compared, for what is meant to differ
//! & COMMAND  sent, its reply read by a later  ?   (one more frame from this connection, e.g. a pushed message)
//! !sleep MS            !blocked N  waits until so many clients are blocked, on both servers
//! @2 LINE              only over RESP2
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidegate::engine::spec::{Flags, Group};
use tidegate::engine::syntax;
use tidegate::engine::table::Entry;

use crate::generate::{self, Declared};
use crate::harness::{Program, REPLY_DEADLINE, Raw, Reply, Server, Value, sorted};

/// A command: its name and its arguments.
pub type Args = Vec<Vec<u8>>;

#[test]
fn corpus_resp2() {
    run_corpus(false);
}

#[test]
fn corpus_resp3() {
    run_corpus(true);
}

fn run_corpus(resp3: bool) {
    let wanted = std::env::var("SUITE_CORPUS").ok();
    let missing = missing_commands();
    let mut differences = Vec::new();
    let mut lines = 0;
    for path in corpus_files() {
        let name = path.file_stem().expect("a file has a stem").to_string_lossy().into_owned();
        if wanted.as_ref().is_some_and(|w| *w != name) {
            continue;
        }
        let mut pair = Pair::start(&[], &[]);
        for (number, step) in read_corpus(&path) {
            if resp3 && step.resp2_only {
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

#[test]
fn random_sequences() {
    let missing = missing_commands();
    let lines = plain_lines(&missing);
    search(|dice| generate(&lines, dice, 150));
}

#[test]
fn random_calls_from_the_declarations() {
    let missing = missing_commands();
    let commands: Vec<Declared> =
        declared_commands().into_iter().filter(|c| !is_missing(&words_of(c), &missing)).collect();
    search(|dice| {
        // A sequence keeps to a few commands, most of one family, which then meet each other's data.
        let family = dice.pick(&commands).family.clone();
        let relatives: Vec<&Declared> = commands.iter().filter(|command| command.family == family).collect();
        let mut theme: Vec<&Declared> = (0..10).map(|_| *dice.pick(&relatives)).collect();
        theme.extend((0..4).map(|_| dice.pick(&commands)));
        let mut fit_call = |_| loop {
            let args = generate::call(theme[dice.below(theme.len())], dice);
            if is_fit(&args) {
                return perhaps_break(args, dice);
            }
        };
        (0..150).map(&mut fit_call).collect()
    });
}

/// Runs sequences from one seed after the other until one differs.
fn search(mut sequence: impl FnMut(&mut Dice) -> Vec<Args>) {
    let seed = env_number("SUITE_SEED").unwrap_or(20_260_101);
    let rounds = env_number("SUITE_ROUNDS").unwrap_or(60);
    let mut pair = Pair::start(&[], &[]);
    for round in 0..rounds {
        let round_seed = seed + round;
        let calls = sequence(&mut Dice(round_seed));
        if let Some(report) = judge(&mut pair, &calls, round_seed % 2 == 1) {
            panic!("SUITE_SEED={round_seed} SUITE_ROUNDS=1 repeats this\n{report}");
        }
    }
}

fn words_of(command: &Declared) -> Args {
    command.words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// All commands of the table whose effect and reply are fixed, with the syntax that they declare.
fn declared_commands() -> Vec<Declared> {
    let entries = tidegate::command::table().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.sub));
    entries.filter_map(declared).collect()
}

/// A command to make calls of; `None` when its replies can't be compared.
fn declared(entry: &Entry) -> Option<Declared> {
    const UNFIT: [&str; 19] = [
        // They choose what they answer.
        "spop",
        "srandmember",
        "hrandfield",
        "zrandmember",
        "randomkey",
        // Without meaning where scores differ; the corpus has them where scores are equal.
        "zlexcount",
        "zrangebylex",
        "zrevrangebylex",
        "zremrangebylex",
        // Since 7.2, who claims or reads becomes a consumer even if there was nothing to get.
        "xgroup|createconsumer",
        "xinfo|consumers",
        // Since 7.2 it minds the largest id that was deleted.
        "xsetid",
        // Small sets and lists are listpacks since 7.2; the corpus knows which.
        "object|encoding",
        // A set, or a sorted set with equal weights, is answered in the order of a hash table; and once it has met a number
        // out of range, Redis 7.0 takes no number any more. The corpus knows better cases.
        "sort",
        "sort_ro",
        // What a payload holds stands in tests of its own.
        "dump",
        "restore",
        "migrate",
        // Not of Redis.
        "cl.throttle",
    ];
    let command = entry.command;
    let family = match command.group {
        Group::Hyperloglog => "hll",
        Group::String | Group::Bitmap => "string",
        Group::Hash => "hash",
        Group::List => "list",
        Group::Set => "set",
        Group::SortedSet => "zset",
        Group::Geo => "geo",
        Group::Stream => "stream",
        Group::Generic => generate::ANY_FAMILY,
        // About the server, connections, messages or scripts, not about data: the corpus and other tests are for them.
        _ => return None,
    };
    if is_newer(command.since) {
        return None;
    }
    let is_container = !entry.sub.is_empty();
    // With the word BLOCK waiting is a choice, which these calls don't make; see `is_fit`.
    let waits = command.flags.has(Flags::BLOCKING) && !command.syntax.contains("[BLOCK ");
    let administers = command.flags.has(Flags::ADMIN);
    // The transcripts have what came later.
    let is_later = !command.since.starts_with(['1', '2', '3', '4', '5', '6']) && !command.since.starts_with("7.0");
    if is_container
        || is_later
        || waits
        || administers
        || command.name == "help"
        || UNFIT.contains(&entry.full_name.as_str())
    {
        return None;
    }
    let syntax = syntax::parse(command.syntax).unwrap_or_else(|e| panic!("{}: {e}", entry.full_name));
    let words = entry.full_name.to_ascii_uppercase().split('|').map(str::to_owned).collect();
    Some(Declared { words, family: family.to_owned(), syntax })
}

/// Whether a command came after Redis 7.0; its replies stand in `transcripts`.
fn is_newer(since: &str) -> bool {
    let mut version = since.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (version.next(), version.next()) > (Some(7), Some(0))
}

/// Whether a random call has one answer, and the same in Redis 7.0.15: it neither waits nor asks for a clock's id, and
/// does not use an option that came later.
fn is_fit(args: &Args) -> bool {
    const LATER: [(&str, &[&str]); 10] = [
        ("BITOP", &["DIFF", "DIFF1", "ANDOR", "ONE"]),
        ("HSCAN", &["NOVALUES"]),
        ("ZRANK", &["WITHSCORE"]),
        ("ZREVRANK", &["WITHSCORE"]),
        ("LPOS", &["-9223372036854775808"]),
        ("SET", &["IFEQ", "IFNE", "IFDEQ", "IFDNE"]),
        ("XADD", &["*", "KEEPREF", "DELREF", "ACKED", "IDMP", "IDMPAUTO"]),
        ("XREAD", &["+"]),
        ("XREADGROUP", &["+", "CLAIM"]),
        ("XTRIM", &["KEEPREF", "DELREF", "ACKED"]),
    ];
    let holds = |word: &str| args[1..].iter().any(|arg| arg == word.as_bytes());
    let is_later = LATER.iter().any(|(name, words)| args[0] == name.as_bytes() && words.iter().any(|word| holds(word)));
    !is_later && !holds("BLOCK") && !holds("BYLEX")
}

#[test]
fn the_declarations_cover_every_family() {
    let declared = declared_commands();
    let count = |family: &str| declared.iter().filter(|command| command.family == family).count();
    for (family, least) in
        [("string", 20), ("hash", 12), ("list", 12), ("set", 10), ("zset", 18), ("stream", 15), ("", 15)]
    {
        assert!(count(family) >= least, "only {} commands of family {family:?}", count(family));
    }
}

/// The machine must find what is there to find: a planted difference comes out, shrunk to the commands that matter.
#[test]
fn finds_and_shrinks_a_planted_difference() {
    let mut pair = Pair {
        ours: Server::start(Program::Redis, &["--set-max-intset-entries", "1"]),
        theirs: Server::start(Program::Redis, &[]),
        links: BTreeMap::new(),
        broken: false,
    };
    let mut sequence: Vec<Args> = (0..100).map(|i| split_line(&format!("SET k{i} v")).expect("plain words")).collect();
    sequence.insert(20, split_line("SADD s 1").expect("plain words"));
    sequence.insert(50, split_line("SADD s 2").expect("plain words"));
    sequence.insert(80, split_line("OBJECT ENCODING s").expect("plain words"));
    let report = judge(&mut pair, &sequence, false).expect("the encodings differ");
    assert!(report.contains("SADD s 1\nSADD s 2\nOBJECT ENCODING s\n"), "{report}");
    assert_eq!(report.lines().filter(|l| l.starts_with("SET")).count(), 0, "{report}");
}

#[test]
fn missing_commands_are_really_missing() {
    if std::env::var("SUITE_SERVER").is_ok() {
        return; // The list is about the server of this build.
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

/// Two servers and their connections, by name.
struct Pair {
    ours: Server,
    theirs: Server,
    links: BTreeMap<String, Link>,
    broken: bool,
}

/// The same client's connection to both.
struct Link {
    ours: Raw,
    theirs: Raw,
}

impl Pair {
    fn start(ours: &[&str], theirs: &[&str]) -> Pair {
        const ENABLE: [&str; 2] = ["--enable-debug-command", "yes"];
        Pair {
            ours: Server::start(Program::Tidegate, &[&ENABLE, ours].concat()),
            theirs: Server::start(Program::Redis, &[&ENABLE, theirs].concat()),
            links: BTreeMap::new(),
            broken: false,
        }
    }

    fn link(&mut self, name: &str, resp3: bool) -> &mut Link {
        let (ours, theirs) = (&self.ours, &self.theirs);
        self.links.entry(name.to_owned()).or_insert_with(|| {
            let mut link = Link { ours: ours.raw(), theirs: theirs.raw() };
            if resp3 {
                link.ours.hello3();
                link.theirs.hello3();
            }
            link
        })
    }

    /// After a hang-up or a lost reply on one side nothing further can be compared.
    fn is_broken(&self) -> bool {
        self.broken
    }

    fn step(&mut self, step: &Step, resp3: bool, missing: &BTreeSet<String>) -> Option<String> {
        let (shown, rule, count) = match &step.action {
            Action::Sleep(time) => {
                std::thread::sleep(*time);
                return None;
            }
            Action::Blocked(wanted) => return self.wait_for_blocked(*wanted),
            Action::Run { args, .. } if is_missing(args, missing) => return None,
            Action::Run { args, wait, loose } => {
                let scan = scan_position(args).filter(|&at| args.get(at).is_some_and(|c| c == b"0"));
                let link = self.link(&step.connection, resp3);
                if let Some(at) = scan {
                    return link.compare_scans(args, at).map(|d| format!("{}\n{d}", show(args)));
                }
                link.ours.send_command(args);
                link.theirs.send_command(args);
                let rule = if *loose { Rule::Kind } else { rule_for(args) };
                (show(args), rule, if *wait { reply_count(args) } else { 0 })
            }
            Action::Read => ("?".to_owned(), Rule::Exact, 1),
        };
        let link = self.link(&step.connection, resp3);
        let difference = (0..count).find_map(|_| link.compare_next(rule)).map(|d| format!("{shown}\n{d}"));
        if shown == "RESET" {
            link.ours.back_to_resp2();
            link.theirs.back_to_resp2();
        } else if shown == "QUIT" {
            self.links.remove(&step.connection);
        }
        self.broken = difference.as_ref().is_some_and(|d| d.contains(NO_REPLY));
        difference
    }

    fn wait_for_blocked(&mut self, wanted: usize) -> Option<String> {
        let deadline = Instant::now() + REPLY_DEADLINE;
        let field = format!("blocked_clients:{wanted}\r");
        for (who, server) in [("ours", &self.ours), ("redis", &self.theirs)] {
            let mut raw = server.raw();
            loop {
                let info = raw.command(&["INFO", "clients"]);
                if String::from_utf8_lossy(info.bytes().unwrap_or_default()).contains(&field) {
                    break;
                }
                if Instant::now() > deadline {
                    return Some(format!("!blocked {wanted}: {who}: {info:?}"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        None
    }

    /// Frames that nobody has read, on either side.
    fn leftovers(&mut self, resp3: bool) -> Vec<String> {
        if self.broken {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (name, link) in &mut self.links {
            for (who, raw) in [("ours", &mut link.ours), ("redis", &mut link.theirs)] {
                raw.send_command(&["RESET"]);
                let mut extra = Vec::new();
                loop {
                    match raw.try_reply(REPLY_DEADLINE) {
                        Ok(reply) if reply.value == Value::status("RESET") => break,
                        Ok(reply) => extra.push(format!("{:?}", reply.value)),
                        Err(why) => {
                            extra.push(why);
                            break;
                        }
                    }
                }
                if !extra.is_empty() {
                    found.push(format!("[{name}] RESP{} {who}: unread: {}", 2 + u8::from(resp3), extra.join(" ")));
                }
            }
        }
        found
    }

    /// Empties both servers and forgets all connections.
    fn reset(&mut self) {
        self.links.clear();
        self.broken = false;
        for server in [&self.ours, &self.theirs] {
            let mut raw = server.raw();
            raw.command(&["FLUSHALL"]);
            raw.command(&["SCRIPT", "FLUSH"]);
        }
    }

    /// Runs a sequence from scratch; gives the index of the first difference, and what differs.
    fn run(&mut self, sequence: &[Args], resp3: bool) -> Option<(usize, String)> {
        self.reset();
        let none = BTreeSet::new();
        sequence.iter().enumerate().find_map(|(i, args)| {
            let step = Step::run("a", args.clone());
            self.step(&step, resp3, &none).map(|difference| (i, difference))
        })
    }
}

const NO_REPLY: &str = "no reply: ";

impl Link {
    fn compare_next(&mut self, rule: Rule) -> Option<String> {
        let (ours, theirs) = (self.ours.try_reply(REPLY_DEADLINE), self.theirs.try_reply(REPLY_DEADLINE));
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) if rule.same(&ours, &theirs) => None,
            (Ok(ours), Ok(theirs)) => Some(describe(&ours, &theirs)),
            (ours, theirs) => {
                let tell = |r: Result<Reply, String>| match r {
                    Ok(reply) => clip(&format!("{:?}", reply.value)),
                    Err(why) => format!("{NO_REPLY}{}", clip(&why)),
                };
                Some(format!("    ours:  {}\n    redis: {}", tell(ours), tell(theirs)))
            }
        }
    }

    /// A whole scan from cursor 0 on each side: the same elements, whatever the cursors and their order.
    fn compare_scans(&mut self, args: &Args, at: usize) -> Option<String> {
        let mut answers = Vec::new();
        for raw in [&mut self.ours, &mut self.theirs] {
            let mut args = args.clone();
            let mut seen = BTreeSet::new();
            let outcome = loop {
                match raw.command(&args) {
                    Value::Array(parts) if parts.len() == 2 => {
                        let Value::Array(items) = &parts[1] else {
                            break format!("{:?}", parts[1]);
                        };
                        seen.extend(scanned(&args[0], items));
                        let Some(cursor) = parts[0].bytes() else {
                            break format!("cursor {:?}", parts[0]);
                        };
                        if cursor == b"0" {
                            break format!("{seen:?}");
                        }
                        args[at] = cursor.to_vec();
                    }
                    other => break format!("{other:?}"),
                }
            };
            answers.push(outcome);
        }
        (answers[0] != answers[1])
            .then(|| format!("    ours:  {}\n    redis: {}", clip(&answers[0]), clip(&answers[1])))
    }
}

/// The elements of a scan's reply; scores as numbers, which Redis 8 writes shorter.
fn scanned(command: &[u8], items: &[Value]) -> Vec<String> {
    match command.to_ascii_uppercase().as_slice() {
        b"HSCAN" => items.chunks(2).map(|pair| format!("{pair:?}")).collect(),
        b"ZSCAN" => {
            let score = |pair: &[Value]| pair.get(1).and_then(double_of);
            items.chunks(2).map(|pair| format!("{:?} {:?}", pair[0], score(pair))).collect()
        }
        _ => items.iter().map(|item| format!("{item:?}")).collect(),
    }
}

fn double_of(value: &Value) -> Option<f64> {
    std::str::from_utf8(value.bytes()?).ok()?.parse().ok()
}

fn describe(ours: &Reply, theirs: &Reply) -> String {
    let (mut left, mut right) = (format!("{:?}", ours.value), format!("{:?}", theirs.value));
    if left == right {
        (left, right) = (ours.raw.escape_ascii().to_string(), theirs.raw.escape_ascii().to_string());
    }
    format!("    ours:  {}\n    redis: {}", clip(&left), clip(&right))
}

fn clip(text: &str) -> String {
    const SHOWN: usize = 600;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// How two replies to one command are compared, when their bytes differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// Byte by byte, but for the order inside RESP3 sets and maps, and for doubles written differently.
    Exact,
    /// The elements of an array in any order.
    Unordered,
    /// Pairs of a flat array in any order (HGETALL in RESP2).
    Pairs,
    /// Integers that are times in milliseconds or seconds: equal within the time that a slow machine takes.
    Clock(i64),
    /// Strings that are equal as doubles are equal.
    Doubles,
    /// Integers and strings may differ, the shape may not.
    Kind,
}

/// The rule of a command; a new command with a reply that is not fixed gets its line here.
fn rule_for(args: &Args) -> Rule {
    let word = |i: usize| args.get(i).map(|a| String::from_utf8_lossy(a).to_ascii_uppercase()).unwrap_or_default();
    match (word(0).as_str(), word(1).as_str()) {
        ("SMEMBERS" | "KEYS" | "SINTER" | "SUNION" | "SDIFF" | "HKEYS" | "HVALS" | "SPOP", _) => Rule::Unordered,
        ("PUBSUB", "CHANNELS") | ("COMMAND", "LIST") | ("CONFIG", "HELP") => Rule::Unordered,
        ("HGETALL", _) | ("CONFIG", "GET") | ("PUBSUB", "NUMSUB") => Rule::Pairs,
        ("TTL" | "EXPIRETIME", _) => Rule::Clock(5),
        ("PTTL" | "PEXPIRETIME", _) => Rule::Clock(5_000),
        (
            "ZADD" | "ZINCRBY" | "ZSCORE" | "ZMSCORE" | "ZRANGE" | "ZREVRANGE" | "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE",
            _,
        )
        | ("ZPOPMIN" | "ZPOPMAX" | "BZPOPMIN" | "BZPOPMAX" | "ZMPOP" | "BZMPOP" | "ZUNION" | "ZINTER" | "ZDIFF", _)
        | ("ZRANK" | "ZREVRANK" | "GEOPOS" | "GEODIST" | "GEOSEARCH" | "GEORADIUS" | "GEORADIUSBYMEMBER", _)
        | ("GEORADIUS_RO" | "GEORADIUSBYMEMBER_RO" | "INCRBYFLOAT" | "HINCRBYFLOAT", _) => Rule::Doubles,
        ("TIME" | "RANDOMKEY" | "SRANDMEMBER" | "HRANDFIELD" | "ZRANDMEMBER" | "INFO" | "LASTSAVE" | "LOLWUT", _)
        | ("CLIENT", "ID" | "INFO" | "LIST")
        | ("MEMORY", "USAGE" | "STATS" | "DOCTOR")
        | ("OBJECT", "IDLETIME" | "FREQ" | "REFCOUNT")
        | ("SCRIPT" | "FUNCTION" | "COMMAND" | "HELLO" | "XINFO" | "ACL", "HELP") => Rule::Kind,
        ("HELLO", _) | ("XPENDING", _) | ("XINFO", _) => Rule::Kind,
        ("SCAN" | "SSCAN" | "HSCAN" | "ZSCAN", _) => Rule::Kind,
        _ => Rule::Exact,
    }
}

/// Where the cursor of a scanning command stands.
fn scan_position(args: &Args) -> Option<usize> {
    let name = args.first()?.to_ascii_uppercase();
    match name.as_slice() {
        b"SCAN" => Some(1),
        b"SSCAN" | b"HSCAN" | b"ZSCAN" => Some(2),
        _ => None,
    }
}

/// How many frames a command is answered with: the subscribing ones answer once for each channel.
fn reply_count(args: &Args) -> usize {
    match args[0].to_ascii_uppercase().as_slice() {
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE" => {
            (args.len() - 1).max(1)
        }
        _ => 1,
    }
}

impl Rule {
    fn same(self, ours: &Reply, theirs: &Reply) -> bool {
        if ours.raw == theirs.raw {
            return true;
        }
        // Null of an array and null of a string decode to the same value in RESP2; clients tell them apart.
        let null_arrays = |reply: &Reply| reply.raw.windows(5).filter(|w| w == b"*-1\r\n").count();
        null_arrays(ours) == null_arrays(theirs) && self.same_value(&ours.value, &theirs.value)
    }

    fn same_value(self, ours: &Value, theirs: &Value) -> bool {
        use Value::*;
        let all = |rule: Rule, a: &[Value], b: &[Value]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| rule.same_value(a, b))
        };
        match (self, ours, theirs) {
            (_, Error(a), Error(b)) => a == b,
            (Rule::Unordered, Array(a), Array(b)) => sorted(a.clone()) == sorted(b.clone()),
            (Rule::Pairs, Array(a), Array(b)) => as_pairs(a) == as_pairs(b),
            (Rule::Clock(slack), Integer(a), Integer(b)) => {
                (*a < 0) == (*b < 0) && (a == b || (*a >= 0 && a.abs_diff(*b) <= slack as u64))
            }
            (Rule::Doubles, Bulk(a), Bulk(b)) => a == b || same_double(a, b),
            (Rule::Kind, Array(a), Array(b)) | (Rule::Kind, Push(a), Push(b)) => {
                a.is_empty() == b.is_empty() && a.first().zip(b.first()).is_none_or(|(a, b)| self.same_value(a, b))
            }
            (Rule::Kind, a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
            (_, Double(a), Double(b)) => a == b || (a.is_nan() && b.is_nan()),
            (rule, Array(a), Array(b)) | (rule, Push(a), Push(b)) | (rule, Set(a), Set(b)) => all(rule, a, b),
            (rule, Map(a), Map(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && rule.same_value(&a.1, &b.1))
            }
            (_, a, b) => a == b,
        }
    }
}

fn as_pairs(flat: &[Value]) -> Vec<Value> {
    sorted(flat.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect())
}

fn same_double(a: &[u8], b: &[u8]) -> bool {
    let parse = |text: &[u8]| double_of(&Value::Bulk(text.to_vec()));
    matches!((parse(a), parse(b)), (Some(a), Some(b)) if a == b)
}

/// One line of a corpus.
struct Step {
    connection: String,
    action: Action,
    resp2_only: bool,
}

enum Action {
    Run { args: Args, wait: bool, loose: bool },
    Read,
    Sleep(Duration),
    Blocked(usize),
}

impl Step {
    fn run(connection: &str, args: Args) -> Step {
        Step {
            connection: connection.to_owned(),
            action: Action::Run { args, wait: true, loose: false },
            resp2_only: false,
        }
    }
}

fn suite_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite")
}

fn corpus_files() -> Vec<PathBuf> {
    let folder = suite_folder().join("corpus");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("a readable folder").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    files.sort();
    files
}

fn read_corpus(path: &Path) -> Vec<(usize, Step)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let step =
                parse_line(line).unwrap_or_else(|| panic!("{}:{number}: not a corpus line: {line}", path.display()));
            (number, step)
        })
        .collect()
}

fn parse_line(line: &str) -> Option<Step> {
    let (resp2_only, line) = match line.strip_prefix("@2 ") {
        Some(rest) => (true, rest.trim()),
        None => (false, line),
    };
    let (connection, rest) = match line.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("a", line),
    };
    let rest = rest.trim();
    let action = if let Some(ms) = rest.strip_prefix("!sleep ") {
        Action::Sleep(Duration::from_millis(ms.parse().ok()?))
    } else if let Some(count) = rest.strip_prefix("!blocked ") {
        Action::Blocked(count.parse().ok()?)
    } else if rest == "?" {
        Action::Read
    } else if let Some(command) = rest.strip_prefix("& ") {
        Action::Run { args: split_line(command)?, wait: false, loose: false }
    } else if let Some(command) = rest.strip_prefix("~ ") {
        Action::Run { args: split_line(command)?, wait: true, loose: true }
    } else {
        Action::Run { args: split_line(rest)?, wait: true, loose: false }
    };
    Some(Step { connection: connection.to_owned(), action, resp2_only })
}

/// Splits a line as redis-cli does: words, "double quotes" with escapes, 'single quotes'. None when quotes don't match.
pub fn split_line(line: &str) -> Option<Args> {
    let mut args = Args::new();
    let mut rest = line.as_bytes();
    loop {
        rest = rest.trim_ascii_start();
        let Some(&first) = rest.first() else {
            return Some(args);
        };
        let mut arg = Vec::new();
        match first {
            b'"' => {
                rest = &rest[1..];
                loop {
                    let (&byte, tail) = rest.split_first()?;
                    rest = tail;
                    match byte {
                        b'"' => break,
                        b'\\' => rest = unescape(rest, &mut arg)?,
                        byte => arg.push(byte),
                    }
                }
            }
            b'\'' => {
                rest = &rest[1..];
                loop {
                    match rest {
                        [b'\\', b'\'', tail @ ..] => {
                            arg.push(b'\'');
                            rest = tail;
                        }
                        [b'\'', tail @ ..] => {
                            rest = tail;
                            break;
                        }
                        [byte, tail @ ..] => {
                            arg.push(*byte);
                            rest = tail;
                        }
                        [] => return None,
                    }
                }
            }
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                arg.extend_from_slice(&rest[..end]);
                rest = &rest[end..];
            }
        }
        args.push(arg);
    }
}

/// What a backslash in double quotes stands for; gives what follows it.
fn unescape<'a>(rest: &'a [u8], arg: &mut Vec<u8>) -> Option<&'a [u8]> {
    if let [b'x', high, low, tail @ ..] = rest
        && let (Some(high), Some(low)) = ((*high as char).to_digit(16), (*low as char).to_digit(16))
    {
        arg.push((high * 16 + low) as u8);
        return Some(tail);
    }
    let (&byte, tail) = rest.split_first()?;
    arg.push(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        byte => byte,
    });
    Some(tail)
}

/// A command as a line that redis-cli reads back.
fn show(args: &Args) -> String {
    let word = |arg: &Vec<u8>| {
        let plain = !arg.is_empty() && arg.iter().all(|b| b.is_ascii_graphic() && !b"\"'\\#".contains(b));
        if plain { String::from_utf8_lossy(arg).into_owned() } else { format!("\"{}\"", redis_escape(arg)) }
    };
    args.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn redis_escape(bytes: &[u8]) -> String {
    let escape = |&b: &u8| match b {
        b'"' | b'\\' => format!("\\{}", b as char),
        b' '..=b'~' => (b as char).to_string(),
        b => format!("\\x{b:02x}"),
    };
    bytes.iter().map(escape).collect()
}

fn missing_commands() -> BTreeSet<String> {
    if std::env::var("SUITE_SERVER").is_ok() {
        return BTreeSet::new();
    }
    let path = suite_folder().join("missing.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_ascii_uppercase).collect()
}

fn is_missing(args: &Args, missing: &BTreeSet<String>) -> bool {
    let name = String::from_utf8_lossy(&args[0]).to_ascii_uppercase();
    let with_sub = args.get(1).map(|sub| format!("{name} {}", String::from_utf8_lossy(sub).to_ascii_uppercase()));
    missing.contains(&name) || with_sub.is_some_and(|n| missing.contains(&n))
}

/// A small generator of its own (splitmix64): a seed must give the same sequence for ever.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// The corpus lines that make sense alone, on one connection, at any time, with the same effect on both servers.
fn plain_lines(missing: &BTreeSet<String>) -> Vec<Args> {
    let fits = |args: &Args| {
        let name = args[0].to_ascii_uppercase();
        let unfit: [&[u8]; 41] = [
            b"OBJECT",
            b"SPOP",
            b"SHUTDOWN",
            b"DEBUG",
            b"CLIENT",
            b"SUBSCRIBE",
            b"PSUBSCRIBE",
            b"UNSUBSCRIBE",
            b"PUNSUBSCRIBE",
            b"MONITOR",
            b"BLPOP",
            b"BRPOP",
            b"BLMOVE",
            b"BRPOPLPUSH",
            b"BLMPOP",
            b"BZPOPMIN",
            b"BZPOPMAX",
            b"BZMPOP",
            b"XREAD",
            b"XREADGROUP",
            b"WAIT",
            b"CONFIG",
            b"QUIT",
            b"RESET",
            b"HELLO",
            b"AUTH",
            b"SCRIPT",
            b"FUNCTION",
            b"EVAL",
            b"EVALSHA",
            b"EVAL_RO",
            b"EVALSHA_RO",
            b"SELECT",
            b"SWAPDB",
            b"COMMAND",
            b"MULTI",
            b"SORT",
            b"SORT_RO",
            b"DUMP",
            b"RESTORE",
            b"MIGRATE",
        ];
        !unfit.contains(&name.as_slice()) && !is_missing(args, missing)
    };
    let steps = corpus_files().into_iter().flat_map(|path| read_corpus(&path));
    let lines: Vec<Args> = steps
        .filter_map(|(_, step)| match step.action {
            Action::Run { args, wait: true, loose: false } if step.connection == "a" && fits(&args) => Some(args),
            _ => None,
        })
        .collect();
    assert!(lines.len() > 100, "the corpus is there to draw from");
    lines
}

/// A random sequence of corpus lines.
fn generate(lines: &[Args], dice: &mut Dice, length: usize) -> Vec<Args> {
    // A few lines dominate a sequence, so that they meet each other's data.
    let theme: Vec<&Args> = (0..40).map(|_| dice.pick(lines)).collect();
    let mut sequence = Vec::with_capacity(length);
    for _ in 0..length {
        let mut args = if dice.below(4) == 0 { dice.pick(lines).clone() } else { (*dice.pick(&theme)).clone() };
        if args.len() > 1
            && dice.below(10) == 0
            && let Some(key) = dice.pick(lines).get(1)
        {
            args[1] = key.clone();
        }
        let args = perhaps_break(args, dice);
        // A stream id made by the server is its clock.
        if !(args[0].eq_ignore_ascii_case(b"XADD") && args.iter().any(|arg| arg.contains(&b'*'))) {
            sequence.push(args);
        }
    }
    sequence
}

/// Breaks one call in five: a strange argument in the place of another, or the last one missing.
fn perhaps_break(mut args: Args, dice: &mut Dice) -> Args {
    // No count between 100 and 2^63: a server may then rightly set aside gigabytes.
    const STRANGE: [&str; 24] = [
        "",
        " ",
        "0",
        "-1",
        "1",
        "2",
        "3",
        "10",
        "100",
        "-0",
        "01",
        "+1",
        " 1",
        "1.5",
        "1e2",
        "inf",
        "-inf",
        "nan",
        "abc",
        "0x10",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "18446744073709551616",
    ];
    match dice.below(10) {
        0 if args.len() > 1 => {
            let at = 1 + dice.below(args.len() - 1);
            args[at] = dice.pick(&STRANGE).as_bytes().to_vec();
        }
        1 if args.len() > 2 => {
            args.pop();
        }
        _ => {}
    }
    args
}

/// Runs a sequence; a difference that comes again is shrunk and told.
fn judge(pair: &mut Pair, sequence: &[Args], resp3: bool) -> Option<String> {
    let (at, _) = pair.run(sequence, resp3)?;
    let suspects = &sequence[..=at];
    // A difference that does not come again was a race with the clock (a key that expired between the two servers).
    pair.run(suspects, resp3)?;
    let least = shrink(suspects.to_vec(), |part| pair.run(part, resp3).is_some());
    let (_, difference) = pair.run(&least, resp3)?;
    let script: String = least.iter().map(|args| show(args) + "\n").collect();
    Some(format!(
        "RESP{}; after FLUSHALL, in redis-cli:\n{script}the last one differs: {difference}",
        2 + u8::from(resp3)
    ))
}

/// Delta debugging (Zeller and Hildebrandt 2002, the complement half): drops ever smaller chunks while it still fails.
fn shrink<T: Clone>(mut items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
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

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

#[test]
fn shrinks_to_what_matters() {
    let least = shrink((0..1000).collect(), |part: &[i32]| part.contains(&17) && part.contains(&800));
    assert_eq!(least, [17, 800]);
}

#[test]
fn splits_lines_as_redis_cli_does() {
    let split = |line| {
        split_line(line)
            .map(|args| args.into_iter().map(|a| String::from_utf8_lossy(&a).into_owned()).collect::<Vec<_>>())
    };
    assert_eq!(
        split(r#"SET "a b" 'c\'d' "\x41\n""#).as_deref(),
        Some(["SET", "a b", "c'd", "A\n"].map(String::from).as_slice())
    );
    assert_eq!(split("SET \"open"), None);
    let args: Args = vec![b"ECHO".to_vec(), b"a\"\\\xff \n".to_vec(), Vec::new()];
    assert_eq!(split_line(&show(&args)), Some(args));
}
