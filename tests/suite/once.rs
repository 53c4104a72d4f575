//! ONCE: random [histories](crate::histories) of calls compared with a naive model, and the effects on other clients.
//! Replies of all kinds are in `transcripts/once.txt`; crashes also in [`kills`](crate::kills) and, with effects, in
//! [`replica`](crate::replica).

use std::collections::BTreeMap;

use crate::differential::generate::Dice;
use crate::differential::script::Args;
use crate::harness::{Program, Raw, Server, Value, decode, until};
use crate::histories::{Log, run};
use crate::in_process::{Bench, START_MS, Told, script, words};

/// The state of the model: lists, counters, and by id the reply that was kept with the time at which it expires.
#[derive(Clone, Default)]
struct Model {
    lists: BTreeMap<String, Vec<String>>,
    counters: BTreeMap<String, i64>,
    kept: BTreeMap<String, (Value, i64)>,
}

/// The ways in which the inner command can fail.
enum Failure {
    /// It replies with an error.
    Answered(Value),
    /// It is a script, and an error ends it.
    Ended(Value),
}

/// A script that counts and then returns an error, or fails.
const COUNT_AND_ANSWER: &str = "redis.call('INCR', KEYS[1]) return redis.error_reply('SOLD out')";
const COUNT_AND_FAIL: &str = "redis.call('INCR', KEYS[1]) redis.call('INCR', KEYS[2])";

const NOT_A_LIST: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Model {
    fn run(&mut self, command: &[&str]) -> Result<Value, Failure> {
        match *command {
            ["INCR", key] if key.starts_with('l') => Err(Failure::Answered(Value::error(NOT_A_LIST))),
            ["INCR", key] => {
                let counter = self.counters.entry(key.to_owned()).or_default();
                *counter += 1;
                Ok(Value::Integer(*counter))
            }
            ["RPUSH", key, element] => {
                let list = self.lists.entry(key.to_owned()).or_default();
                list.push(element.to_owned());
                Ok(Value::Integer(list.len() as i64))
            }
            ["LPOP", "missing"] => Ok(Value::Null),
            ["LRANGE", key, ..] => {
                let list = self.lists.get(key).cloned().unwrap_or_default();
                Ok(Value::Array(list.iter().map(|element| Value::bulk(element)).collect()))
            }
            ["EVAL", COUNT_AND_ANSWER, _, key] => {
                self.run(&["INCR", key])?;
                Err(Failure::Answered(Value::error("SOLD out")))
            }
            ["EVAL", ..] => Err(Failure::Ended(Value::error(NOT_A_LIST))),
            _ => unreachable!("{command:?} is not among those that are made"),
        }
    }

    fn once(&mut self, id: &str, until_ms: i64, keeps_errors: bool, command: &[&str], now_ms: i64) -> Value {
        if let Some((reply, _)) = self.kept.get(id).filter(|(_, until_ms)| now_ms < *until_ms) {
            return reply.clone();
        }
        self.kept.remove(id);
        let mut tried = self.clone();
        let reply = match tried.run(command) {
            Err(Failure::Answered(error)) if keeps_errors => error,
            Err(Failure::Answered(error) | Failure::Ended(error)) => return error,
            Ok(reply) => reply,
        };
        *self = tried;
        self.kept.insert(id.to_owned(), (reply.clone(), until_ms));
        reply
    }
}

fn command(dice: &mut Dice) -> Vec<&'static str> {
    match dice.below(10) {
        0..3 => vec!["INCR", *dice.pick(&["n0", "n1"])],
        3 => vec!["INCR", "l0"],
        4 | 5 => vec!["RPUSH", *dice.pick(&["l0", "l1"]), *dice.pick(&["a", "b", "c"])],
        6 => vec!["LPOP", "missing"],
        7 => vec!["LRANGE", *dice.pick(&["l0", "l1"]), "0", "-1"],
        8 => vec!["EVAL", COUNT_AND_ANSWER, "1", "n0"],
        _ => vec!["EVAL", COUNT_AND_FAIL, "2", "n0", "l0"],
    }
}

/// Ways in which the call reaches the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Directly,
    InExec,
    FromScript,
    /// It is undone.
    FromFailingScript,
}

fn call(bench: &mut Bench, way: Way, args: &Args) -> Value {
    let value = |reply: Vec<u8>| decode(&reply, false).expect("a reply").expect("a whole reply").0;
    match way {
        Way::Directly => value(bench.call(0, args)),
        Way::InExec => {
            bench.call(0, &words(&["MULTI"]));
            bench.call(0, args);
            match value(bench.call(0, &words(&["EXEC"]))) {
                Value::Array(mut replies) => replies.pop().expect("of one command"),
                other => panic!("{other:?}"),
            }
        }
        Way::FromScript | Way::FromFailingScript => {
            let script = words(&["EVAL", "return redis.pcall(unpack(ARGV))", "0"]);
            value(bench.call(0, &[script, args.clone()].concat()))
        }
    }
}

/// A server, its journal, and the model of it.
struct Pair {
    bench: Bench,
    log: Log,
    model: Model,
    now_ms: i64,
    /// Repetitions, and how many of them repeated an error.
    repeated: [u64; 2],
}

impl Pair {
    fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        match dice.below(24) {
            0..4 => {
                let ms = *dice.pick(&[1, 20, 400]);
                self.bench.pass(ms);
                self.now_ms += ms;
            }
            4 => self.set_clock_back(dice),
            5 => self.log.kill(&mut self.bench)?,
            _ => {}
        }
        let inner = command(dice);
        let ways = [Way::Directly, Way::Directly, Way::InExec, Way::FromScript, Way::FromFailingScript];
        let way = *dice.pick(&ways);
        // A script cannot run another one.
        let is_nested = matches!(way, Way::FromScript | Way::FromFailingScript) && inner[0] == "EVAL";
        let inner = if is_nested { vec!["INCR", "n0"] } else { inner };
        self.make_lists();
        self.once(way, dice, &inner)?;
        self.compare()?;
        self.log.follow(&mut self.bench).map(drop)
    }

    /// Expired replies are removed; kept ones are kept for longer.
    fn set_clock_back(&mut self, dice: &mut Dice) {
        self.bench.reclaim();
        self.model.kept.retain(|_, (_, until_ms)| self.now_ms < *until_ms);
        let ms = *dice.pick(&[1, 25, 500]);
        self.bench.set_clock(-ms);
        self.now_ms -= ms;
    }

    /// Makes sure that the keys used as lists are lists.
    fn make_lists(&mut self) {
        for list in ["l0", "l1"] {
            if !self.model.lists.contains_key(list) {
                let push = ["RPUSH", list, "first"];
                assert_eq!(call(&mut self.bench, Way::Directly, &words(&push)), Value::Integer(1));
                _ = self.model.run(&push);
            }
        }
    }

    fn once(&mut self, way: Way, dice: &mut Dice, inner: &[&str]) -> Result<(), String> {
        let (id, ttl_ms, now_ms) = (format!("id:{}", dice.below(4)), *dice.pick(&[1, 30, 1_000]), self.now_ms);
        let keeps_errors = dice.once_in(2);
        let was_there = self.model.kept.get(&id).is_some_and(|(_, until_ms)| now_ms < *until_ms);
        let ttl = ttl_ms.to_string();
        let mut args = words(&["ONCE", &id, "PX", &ttl]);
        args.extend(words(if keeps_errors { &["KEEPERR"] } else { &[] }));
        args.extend(words(inner));
        if way == Way::FromFailingScript {
            self.bench.call(0, &script("fail", &[args]));
            return Ok(());
        }
        let wanted = self.model.once(&id, now_ms + ttl_ms, keeps_errors, inner, now_ms);
        let answered = call(&mut self.bench, way, &args);
        let fits = match (&answered, &wanted) {
            // An error that ends a script names the line.
            (Value::Error(text), Value::Error(wanted)) => text.starts_with(wanted),
            _ => answered == wanted,
        };
        self.repeated[0] += u64::from(was_there);
        self.repeated[1] += u64::from(was_there && matches!(answered, Value::Error(_)));
        if fits { Ok(()) } else { Err(format!("{id} {inner:?} {way:?}: {answered:?}, not {wanted:?}")) }
    }

    /// Asserts that the server's contents equal the model's.
    fn compare(&mut self) -> Result<(), String> {
        let mut expected: Vec<(Vec<&str>, Value)> = Vec::new();
        for (key, count) in &self.model.counters {
            expected.push((vec!["GET", key], Value::bulk(&count.to_string())));
        }
        for (key, list) in &self.model.lists {
            let elements = list.iter().map(|element| Value::bulk(element)).collect();
            expected.push((vec!["LRANGE", key, "0", "-1"], Value::Array(elements)));
        }
        for id in ["id:0", "id:1", "id:2", "id:3"] {
            let is_kept = self.model.kept.get(id).is_some_and(|(_, until_ms)| self.now_ms < *until_ms);
            expected.push((vec!["EXISTS", id], Value::Integer(is_kept.into())));
        }
        for (command, wanted) in expected {
            let found = call(&mut self.bench, Way::Directly, &words(&command));
            if found != wanted {
                return Err(format!("{command:?}: {found:?}, not {wanted:?}"));
            }
        }
        Ok(())
    }
}

#[test]
fn once_behaves_like_the_model() {
    run("ONCE", 150, ["repetitions", "repeated errors", "kills"], |seed| {
        let (dice, mut bench) = (&mut Dice(seed), Bench::new(1));
        let log = Log::of(&mut bench, Told::Everything);
        let mut pair = Pair { bench, log, model: Model::default(), now_ms: START_MS, repeated: [0; 2] };
        for step in 0..60 {
            pair.step(dice).map_err(|told| format!("step {step}: {told}"))?;
        }
        let [repeated, errors] = pair.repeated;
        // One error in five calls is enough.
        Ok([repeated, 5 * errors, pair.log.kills])
    });
}

/// Builds a second server from the same units.
#[test]
fn the_reply_and_its_effects_are_one_unit() {
    let (mut original, mut copy) = (Bench::new(1), Bench::new(1));
    original.keep_units();
    let once =
        words(&["ONCE", "id", "PX", "100000", "EVAL", "redis.call('SET', 'a', 1) return redis.call('INCR', 'n')", "0"]);
    assert_eq!(original.call(0, &once), b":1\r\n");
    let units = original.take_units();
    assert_eq!(units.len(), 1, "one unit");
    copy.repeat(&units[0]).expect("it fits");
    copy.view_at(START_MS);
    assert_eq!(copy.state(Told::Seen), original.state(Told::Seen));
    assert_eq!(original.call(0, &once), b":1\r\n");
    assert!(original.take_units().is_empty(), "a repetition changes nothing");
}

fn stat(raw: &mut Raw, section: &str, field: &str) -> String {
    let info = raw.command(&["INFO", section]);
    let info = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
    let line = info.lines().find_map(|line| line.strip_prefix(field).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {field} in {info}"))
}

#[test]
fn a_reply_that_is_too_long_undoes_the_command() {
    let (_server, mut raw) = Server::with_client(Program::Tidegate);
    let long = "x".repeat(1024 * 1024);
    raw.command(&["SET", "long", &long]);
    raw.command(&["RPUSH", "jobs", "first", &long]);
    let too_long = Value::error("ERR The reply exceeds the 1 MB that ONCE can keep, so the command was undone");
    assert_eq!(raw.command(&["ONCE", "id", "PX", "60000", "GETDEL", "long"]), too_long);
    assert_eq!(raw.command(&["ONCE", "id", "PX", "60000", "GET", "long"]), too_long);
    assert_eq!(raw.command(&["ONCE", "id", "PX", "60000", "LPOP", "jobs", "2"]), too_long);
    let counts = "redis.call('INCR', 'n') return redis.call('GET', 'long')";
    assert_eq!(raw.command(&["ONCE", "id", "PX", "60000", "EVAL", counts, "0"]), too_long);
    assert_eq!(raw.command(&["STRLEN", "long"]), Value::Integer(1024 * 1024));
    assert_eq!(raw.command(&["LLEN", "jobs"]), Value::Integer(2));
    assert_eq!(raw.command(&["EXISTS", "id", "n"]), Value::Integer(0));
    // In a script, which goes on after the error.
    let script = "redis.call('INCR', 'n') \
        local reply = redis.pcall('ONCE', 'id', 'PX', 60000, 'GETDEL', 'long') \
        redis.call('INCR', 'n') \
        return reply.err";
    let Value::Bulk(text) = raw.command(&["EVAL", script, "0"]) else { panic!("the error") };
    assert!(text.starts_with(b"ERR The reply exceeds"), "{}", text.escape_ascii());
    assert_eq!(raw.command(&["STRLEN", "long"]), Value::Integer(1024 * 1024));
    assert_eq!(raw.command(&["GET", "n"]), Value::bulk("2"));
    // A reply just below the limit is kept.
    raw.command(&["SETRANGE", "long", "0", ""]);
    raw.command(&["SET", "fits", &long[..1024 * 1024 - 9]]);
    let Value::Bulk(first) = raw.command(&["ONCE", "id", "PX", "60000", "GETDEL", "fits"]) else { panic!("a string") };
    assert_eq!(first.len(), 1024 * 1024 - 9);
    assert_eq!(raw.command(&["ONCE", "id", "PX", "60000", "GETDEL", "fits"]), Value::Bulk(first));
    assert_eq!(raw.command(&["EXISTS", "fits"]), Value::Integer(0));
}

#[test]
fn a_user_needs_the_rights_for_once_and_for_its_command() {
    let (server, mut admin) = Server::with_client(Program::Tidegate);
    admin.command(&[
        "ACL", "SETUSER", "app", "on", "nopass", "+once", "+get", "+incr", "+eval", "+acl", "+multi", "+exec", "~id:*",
        "~n:*", "%R~r:*",
    ]);
    let mut app = server.raw();
    assert_eq!(app.command(&["AUTH", "app", "x"]), Value::ok());
    let once = |command: &[&'static str]| [&["ONCE", "id:1", "PX", "60000"], command].concat();
    let refused = |value: Value, why: &str| {
        let text = String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned();
        assert!(text.contains(why), "{text}, not {why}");
    };
    refused(app.command(&once(&["SET", "n:1", "1"])), "NOPERM User app has no permissions to run the 'set' command");
    refused(app.command(&once(&["INCR", "other"])), "NOPERM No permissions to access a key");
    refused(app.command(&once(&["INCR", "r:1"])), "NOPERM No permissions to access a key");
    refused(app.command(&["ONCE", "other", "PX", "60000", "INCR", "n:1"]), "NOPERM No permissions to access a key");
    for (command, why) in [
        (once(&["INCR", "n:1"]), "OK"),
        (once(&["SET", "n:1", "1"]), "User app has no permissions to run the 'set' command"),
        (once(&["INCR", "other"]), "User app has no permissions to access the 'other' key"),
        (once(&["GET", "r:1"]), "OK"),
    ] {
        refused(admin.command(&[&["ACL", "DRYRUN", "app"], &command[..]].concat()), why);
    }
    assert_eq!(admin.command(&["EXISTS", "id:1"]), Value::Integer(0), "no reply is kept");
    // In a script, in a transaction.
    let script = "return redis.call('ONCE', 'id:1', 'PX', 60000, 'SET', 'n:1', 1)";
    refused(app.command(&["EVAL", script, "0"]), "ACL failure in script");
    app.command(&["MULTI"]);
    app.command(&once(&["INCR", "n:1"]));
    admin.command(&["ACL", "SETUSER", "app", "-incr"]);
    let Value::Array(replies) = app.command(&["EXEC"]) else { panic!("an array") };
    refused(replies[0].clone(), "no permission to execute the command");
    admin.command(&["ACL", "SETUSER", "app", "+incr"]);
    assert_eq!(app.command(&once(&["INCR", "n:1"])), Value::Integer(1));
    assert_eq!(app.command(&once(&["INCR", "n:1"])), Value::Integer(1));
    // One category covers all commands of this kind.
    admin.command(&["ACL", "SETUSER", "app", "-@coordination"]);
    refused(app.command(&once(&["INCR", "n:1"])), "NOPERM User app has no permissions to run the 'once' command");
}

#[test]
fn other_clients_see_the_command_that_once_runs() {
    let server = Server::start(Program::Tidegate, &["--notify-keyspace-events", "KEA"]);
    let (mut raw, mut watcher, mut monitor, mut listener) = (server.raw(), server.raw(), server.raw(), server.raw());
    raw.hello3();
    assert_eq!(raw.command(&["CLIENT", "TRACKING", "ON", "NOLOOP"]), Value::ok());
    listener.command(&["PSUBSCRIBE", "__keyevent*"]);
    watcher.command(&["WATCH", "n", "id:1"]);
    monitor.command(&["MONITOR"]);
    let calls =
        |raw: &mut Raw| assert_eq!(raw.command(&["ONCE", "id:1", "PX", "60000", "INCR", "n"]), Value::Integer(1));
    calls(&mut raw);
    calls(&mut raw);
    // The command below the call, and only where it ran.
    for shown in
        [r#""ONCE" "id:1" "PX" "60000" "INCR" "n""#, r#""INCR" "n""#, r#""ONCE" "id:1" "PX" "60000" "INCR" "n""#]
    {
        let line = monitor.reply().value;
        let line = String::from_utf8_lossy(line.bytes().unwrap_or_default()).into_owned();
        assert!(line.ends_with(&format!("] {shown}")), "{line}, not {shown}");
    }
    for (event, key) in [("incrby", "n"), ("set", "id:1"), ("expire", "id:1")] {
        let Value::Array(told) = listener.reply().value else { panic!("a message") };
        assert_eq!((&told[2], &told[3]), (&Value::bulk(&format!("__keyevent@0__:{event}")), &Value::bulk(key)));
    }
    watcher.command(&["MULTI"]);
    assert_eq!(watcher.command(&["EXEC"]), Value::Null, "the watched key has changed");
    let calls = |raw: &mut Raw, name| stat(raw, "commandstats", &format!("cmdstat_{name}:calls="));
    assert!(calls(&mut raw, "once").starts_with("2,") && calls(&mut raw, "incr").starts_with("1,"));
    // Keys that it reads are cached, and changes by others are reported.
    assert_eq!(raw.command(&["ONCE", "id:2", "PX", "60000", "GET", "n"]), Value::bulk("1"));
    watcher.command(&["SET", "n", "7"]);
    raw.send_command(&["PING"]);
    let told: Vec<Value> = (0..2).map(|_| raw.reply().value).collect();
    let invalidation = Value::Push(vec![Value::bulk("invalidate"), Value::Array(vec![Value::bulk("n")])]);
    assert!(told.contains(&invalidation), "{told:?}");
    // The call is slow, not the command that it runs.
    raw.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    raw.command(&["SLOWLOG", "RESET"]);
    raw.command(&["ONCE", "id:3", "PX", "60000", "INCR", "n"]);
    raw.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    let slow = format!("{:?}", raw.command(&["SLOWLOG", "GET"]));
    assert_eq!((slow.matches("\"ONCE\"").count(), slow.matches("[\"INCR\"").count()), (1, 0), "{slow}");
}

/// GUARD around ONCE: the rights, keys and secrets of all three commands count, MONITOR shows all three, and a reply is
/// repeated only while the lease is held.
#[test]
fn a_guarded_call_runs_once() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut admin, mut app, mut monitor) = (server.raw(), server.raw(), server.raw());
    admin.command(&["ACL", "SETUSER", "app", "on", "nopass", "+guard", "+once", "+incr", "%R~lock", "~id", "~n"]);
    assert_eq!(app.command(&["AUTH", "app", "x"]), Value::ok());
    admin.command(&["LOCK.ACQUIRE", "lock", "o", "PX", "600000"]);
    let guarded = |id, command: &[&'static str]| [&["GUARD", "lock", "1", "ONCE", id, "EX", "60"], command].concat();
    for (call, why) in [
        (guarded("id", &["INCR", "other"]), "NOPERM No permissions to access a key"),
        (guarded("other", &["INCR", "n"]), "NOPERM No permissions to access a key"),
        (guarded("id", &["GET", "n"]), "NOPERM User app has no permissions to run the 'get' command"),
    ] {
        assert_eq!(app.command(&call), Value::error(why), "{call:?}");
    }
    admin.command(&["ACL", "SETUSER", "app", "-once"]);
    let refused = "NOPERM User app has no permissions to run the 'once' command";
    assert_eq!(app.command(&guarded("id", &["INCR", "n"])), Value::error(refused));
    admin.command(&["ACL", "SETUSER", "app", "+once"]);
    monitor.command(&["MONITOR"]);
    assert_eq!(app.command(&guarded("id", &["INCR", "n"])), Value::Integer(1));
    for shown in [
        r#""GUARD" "lock" "1" "ONCE" "id" "EX" "60" "INCR" "n""#,
        r#""ONCE" "id" "EX" "60" "INCR" "n""#,
        r#""INCR" "n""#,
    ] {
        let line = monitor.reply().value;
        let line = String::from_utf8_lossy(line.bytes().unwrap_or_default()).into_owned();
        assert!(line.ends_with(&format!("] {shown}")), "{line}, not {shown}");
    }
    assert_eq!(app.command(&guarded("id", &["INCR", "n"])), Value::Integer(1));
    // A waiter inside is served once, and another waiter with the same id gets the same reply.
    admin.command(&["ACL", "SETUSER", "app", "+blpop", "~queue", "~id:q"]);
    let mut other = server.raw();
    other.command(&["AUTH", "app", "x"]);
    for raw in [&mut app, &mut other] {
        raw.send_command(&guarded("id:q", &["BLPOP", "queue", "0"]));
    }
    until(|| stat(&mut admin, "clients", "blocked_clients:") == "2", "both calls wait");
    admin.command(&["RPUSH", "queue", "x", "y"]);
    let element = Value::Array(vec![Value::bulk("queue"), Value::bulk("x")]);
    assert_eq!((app.reply().value, other.reply().value), (element.clone(), element));
    assert_eq!(admin.command(&["LLEN", "queue"]), Value::Integer(1));
    // An element that is waited for under a lease is not taken after the lease ends.
    app.send_command(&guarded("id", &["BLPOP", "queue", "0"]));
    assert_eq!(app.reply().value, Value::Integer(1), "the id has a reply already");
    admin.command(&["ACL", "SETUSER", "app", "~id:s"]);
    let refused = Value::error("NOPERM No permissions to access a key");
    assert_eq!(app.command(&guarded("id:s", &["BLPOP", "queue2", "0"])), refused);
    admin.command(&["ACL", "SETUSER", "app", "~queue2"]);
    app.send_command(&guarded("id:s", &["BLPOP", "queue2", "0"]));
    until(|| stat(&mut admin, "clients", "blocked_clients:") == "1", "the call waits");
    admin.command(&["LOCK.BREAK", "lock"]);
    admin.command(&["RPUSH", "queue2", "z"]);
    let stale = "STALE The lease of this fencing token has ended, so the command was not run";
    assert_eq!(app.reply().value, Value::error(stale));
    assert_eq!(app.command(&guarded("id", &["INCR", "n"])), Value::error(stale), "not even a kept reply is returned");
    assert_eq!(admin.command(&["EXISTS", "id:s"]), Value::Integer(0));
    // A command that runs another one has its secrets, at every depth.
    admin.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    admin.command(&["GUARD", "lock", "1", "ONCE", "id", "EX", "60", "AUTH", "hidden"]);
    admin.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    let slow = format!("{:?}", admin.command(&["SLOWLOG", "GET"]));
    assert!(slow.contains("(redacted)") && !slow.contains("hidden"), "{slow}");
}

#[test]
fn secrets_of_the_inner_command_are_not_shown() {
    let (server, mut raw) = Server::with_client(Program::Tidegate);
    let mut monitor = server.raw();
    monitor.command(&["MONITOR"]);
    let refused = raw.command(&["ONCE", "id", "PX", "60000", "AUTH", "word"]);
    assert!(matches!(refused, Value::Error(_)), "{refused:?}");
    let line = format!("{:?}", monitor.reply().value);
    assert!(line.contains("AUTH") && line.contains("(redacted)") && !line.contains("word"), "{line}");
}

#[test]
fn no_reply_is_kept_for_a_call_that_could_not_run() {
    let (server, mut raw) = Server::with_client(Program::Tidegate);
    // Memory is full.
    raw.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = raw.command(&["ONCE", "id", "PX", "60000", "KEEPERR", "INCR", "n"]);
    assert!(matches!(&refused, Value::Error(text) if text.starts_with(b"OOM")), "{refused:?}");
    raw.command(&["CONFIG", "SET", "maxmemory", "0"]);
    // A script that was killed from outside after it had written.
    raw.command(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    raw.send_command(&[
        "ONCE",
        "id",
        "PX",
        "60000",
        "KEEPERR",
        "EVAL",
        "redis.call('INCR', 'n') while true do end",
        "0",
    ]);
    let mut other = server.raw();
    until(|| other.command(&["SCRIPT", "KILL"]) == Value::ok(), "the script can be ended");
    let killed = raw.reply().value;
    assert!(matches!(&killed, Value::Error(text) if text.starts_with(b"ERR Script killed by user")), "{killed:?}");
    assert_eq!(raw.command(&["EXISTS", "id", "n"]), Value::Integer(0));
    assert_eq!(raw.command(&["ONCE", "id", "PX", "60000", "INCR", "n"]), Value::Integer(1));
}

#[test]
fn a_script_sent_by_eval_stays_cached_though_the_call_fails() {
    let mut original = Bench::new(1);
    let mut copy = Bench::new(1);
    original.keep_units();
    original.call(0, &words(&["CONFIG", "SET", "script-cache-max-bytes", "100"]));
    // Each pushes out the previous reply, which the copy must have had.
    for n in 0..20 {
        let body = format!("redis.call('INCR', 'n') error('no {n} {}')", "x".repeat(60));
        let reply = original.call(0, &words(&["ONCE", "id", "PX", "1000", "EVAL", &body, "0"]));
        assert!(reply.starts_with(b"-"), "{}", reply.escape_ascii());
    }
    original.take_units().iter().for_each(|unit| copy.repeat(unit).expect("it fits"));
    assert_eq!(copy.programs(), original.programs());
}

/// A reply is kept in the shape of one protocol; a client of the other gets as much of it as that protocol can express.
#[test]
fn a_repeated_reply_keeps_the_shape_of_the_first_protocol() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut two, mut three) = (server.raw(), server.raw());
    three.hello3();
    two.command(&["ZADD", "z", "1.5", "m"]);
    two.command(&["HSET", "h", "f", "v"]);
    let range = |id: &'static str| ["ONCE", id, "PX", "60000", "ZRANGE", "z", "0", "-1", "WITHSCORES"];
    let flat = Value::Array(vec![Value::bulk("m"), Value::bulk("1.5")]);
    assert_eq!(two.command(&range("2")), flat);
    assert_eq!(three.command(&range("2")), flat);
    let pair = |score| Value::Array(vec![Value::Array(vec![Value::bulk("m"), score])]);
    assert_eq!(three.command(&range("3")), pair(Value::Double(1.5)));
    assert_eq!(two.command(&range("3")), pair(Value::bulk("1.5")));
    let all = |id: &'static str| ["ONCE", id, "PX", "60000", "HGETALL", "h"];
    assert_eq!(three.command(&all("4")), Value::Map(vec![(Value::bulk("f"), Value::bulk("v"))]));
    assert_eq!(two.command(&all("4")), Value::Array(vec![Value::bulk("f"), Value::bulk("v")]));
}

/// A waiter for the same id hangs up, times out or is unblocked: the others wait on.
#[test]
fn a_waiter_that_leaves_does_not_hold_up_others_with_its_id() {
    let server = Server::start(Program::Tidegate, &[]);
    let once = ["ONCE", "id", "PX", "60000", "BLPOP", "jobs", "0"];
    let (mut first, mut second, mut other) = (server.raw(), server.raw(), server.raw());
    let mut raw = server.raw();
    let waiting =
        |raw: &mut Raw, many: &str| until(|| stat(raw, "clients", "blocked_clients:") == many, "the calls wait");
    first.send_command(&once);
    waiting(&mut raw, "1");
    second.send_command(&once);
    waiting(&mut raw, "2");
    other.send_command(&["BLPOP", "jobs", "0"]);
    waiting(&mut raw, "3");
    drop(first);
    waiting(&mut raw, "2");
    raw.command(&["RPUSH", "jobs", "a", "b"]);
    let served = |job: &str| Value::Array(vec![Value::bulk("jobs"), Value::bulk(job)]);
    assert_eq!(second.reply().value, served("a"));
    assert_eq!(other.reply().value, served("b"));
    // Rights that were taken away in between.
    raw.command(&["ACL", "SETUSER", "app", "on", "nopass", "+@all", "~*"]);
    second.command(&["AUTH", "app", "x"]);
    second.send_command(&["ONCE", "id:2", "PX", "60000", "BLPOP", "jobs", "0"]);
    waiting(&mut raw, "1");
    raw.command(&["ACL", "SETUSER", "app", "-blpop"]);
    raw.command(&["RPUSH", "jobs", "c"]);
    let refused = second.reply().value;
    assert!(matches!(&refused, Value::Error(text) if text.starts_with(b"NOPERM")), "{refused:?}");
    assert_eq!(raw.command(&["LRANGE", "jobs", "0", "-1"]), Value::Array(vec![Value::bulk("c")]));
    assert_eq!(raw.command(&["EXISTS", "id:2"]), Value::Integer(0));
}

/// With PXAT a call stops waiting at that time; with PX the term begins when the call has run.
#[test]
fn a_wait_ends_when_its_reply_would_expire() {
    let at_ms = (START_MS + 100).to_string();
    for (term, text, waits) in [("PXAT", at_ms.as_str(), false), ("PX", "100", true)] {
        let mut bench = Bench::new(2);
        bench.call(0, &words(&["ONCE", "id", term, text, "BLPOP", "jobs", "3"]));
        bench.pass(99);
        assert!(bench.is_suspended(0), "{term}");
        bench.pass(1);
        assert_eq!(bench.is_suspended(0), waits, "{term}");
        bench.call(1, &words(&["RPUSH", "jobs", "a"]));
        let wanted: &[u8] = if waits { b"*2\r\n$4\r\njobs\r\n$1\r\na\r\n" } else { b"*-1\r\n" };
        assert_eq!(bench.heard(0).escape_ascii().to_string(), wanted.escape_ascii().to_string(), "{term}");
    }
}

/// Of many clients that try the same id, however they connect, one runs it.
#[test]
fn one_of_many_simultaneous_calls_runs() {
    const CLIENTS: usize = 16;
    let server = Server::start(Program::Tidegate, &[]);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut raw = server.raw();
            scope.spawn(move || {
                for n in 1..=200 {
                    let id = format!("request:{n}");
                    let Value::Integer(order) = raw.command(&["ONCE", &id, "PX", "600000", "INCR", "orders"]) else {
                        panic!("a number")
                    };
                    // Whichever runs it first, all get the same reply.
                    let again = raw.command(&["ONCE", &id, "PX", "600000", "INCR", "orders"]);
                    assert_eq!(again, Value::Integer(order));
                }
            });
        }
    });
    assert_eq!(server.raw().command(&["GET", "orders"]), Value::bulk("200"));
}
