//! The feed (docs/feed.md): the data as of a snapshot and all changes behind it, as a reader outside the server gets
//! them. The judge is a second engine, in this process, that is given nothing else.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::differential::generate::Dice;
use crate::group::{Group, PORT};
use crate::harness::{Program, REPLY_DEADLINE, Raw, Server, Value, encode, until};
use crate::in_process::{Bench, words};

/// Bytes before the effects of a unit, the last four of which say how many bytes the effects have.
const UNIT_HEAD_BYTES: usize = 8;

/// Connections that may read the feed at a time.
const READERS_MAX: usize = 8;

fn start(dir: &Path) -> Server {
    start_with(dir, &[])
}

fn start_with(dir: &Path, flags: &[&str]) -> Server {
    let dir = dir.to_str().expect("a path of plain text");
    let own = ["--dir", dir, "--appendonly", "yes", "--enable-debug-command", "yes"];
    Server::start(Program::Tidegate, &[&own, flags].concat())
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Integer(number) => u64::try_from(*number).expect("it is not negative"),
        other => panic!("no number: {other:?}"),
    }
}

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

/// Returns the history and the last change, as FEED STATE gives them.
fn state(raw: &mut Raw) -> (String, u64) {
    state_of(raw.command(&["FEED", "STATE"]))
}

fn state_of(reply: Value) -> (String, u64) {
    let fields = match reply {
        Value::Map(pairs) => pairs.into_iter().flat_map(|(name, value)| [name, value]).collect(),
        flat => array(flat),
    };
    let [name, history, last, lsn] = &fields[..] else { panic!("{fields:?}") };
    assert_eq!([name, last].map(|name| name.bytes()), [Some(&b"history"[..]), Some(&b"last"[..])]);
    (String::from_utf8(history.bytes().expect("a name").to_vec()).expect("text"), number(lsn))
}

/// Splits units that lie one behind the other into the effects of each.
fn split(mut units: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while !units.is_empty() {
        let (head, rest) = units.split_at(UNIT_HEAD_BYTES);
        assert_eq!(head[0], 1, "the format of the effects");
        assert_eq!(head[2..4], [0, 0]);
        let bytes = u32::from_le_bytes(head[4..].try_into().expect("four bytes")) as usize;
        let (effects, rest) = rest.split_at(bytes);
        all.push(effects);
        units = rest;
    }
    all
}

/// A reader of the feed, with the data that it has made of it.
struct Reader {
    raw: Raw,
    data: Bench,
    /// The last change in the data.
    lsn: u64,
    /// All units read behind the snapshot, by Lsn.
    units: BTreeMap<u64, Vec<u8>>,
}

impl Reader {
    fn new(raw: Raw) -> Reader {
        Reader { raw, data: Bench::new(1), lsn: 0, units: BTreeMap::new() }
    }

    /// Begins with the newest snapshot, if there is one.
    fn begin(&mut self) {
        self.begin_unless_closed().expect("the server does not hang up");
    }

    /// As [`begin`](Self::begin); `None`, and without data, if the server hangs up.
    fn begin_unless_closed(&mut self) -> Option<()> {
        self.units.clear();
        (self.data, self.lsn) = (Bench::new(1), 0);
        let lsn = self.load_snapshot();
        match lsn {
            Some(lsn) => self.lsn = lsn,
            None => self.data = Bench::new(1),
        }
        lsn.map(|_| ())
    }

    /// Returns the Lsn of the snapshot, 0 if there is none.
    fn load_snapshot(&mut self) -> Option<u64> {
        self.raw.send_command(&["FEED", "SNAPSHOT"]);
        let (lsn, bytes) = match self.raw.reply_unless_closed()? {
            Value::Null => return Some(0),
            reply => match &array(reply)[..] {
                [lsn, begun_ms, bytes] if number(begun_ms) > 1_700_000_000_000 => (number(lsn), number(bytes)),
                other => panic!("{other:?}"),
            },
        };
        let mut read_before = 0;
        loop {
            self.raw.send_command(&["FEED", "PART"]);
            let part = array(self.raw.reply_unless_closed()?);
            let [read, units] = &part[..] else { panic!("{part:?}") };
            let read = number(read);
            assert!(read_before < read && read <= bytes, "{read} of {bytes} bytes behind {read_before}");
            read_before = read;
            match units {
                Value::Null => {
                    assert_eq!(read, bytes);
                    return Some(lsn);
                }
                units => self.apply(units.bytes().expect("units")),
            }
        }
    }

    fn apply(&mut self, units: &[u8]) {
        for effects in split(units) {
            self.data.take_in(effects).expect("the effects fit the data");
        }
    }

    /// Reads changes behind those read so far, and applies them. Returns false, and begins anew, if they are gone.
    fn read(&mut self, options: &[&str]) -> bool {
        self.read_unless_closed(options).expect("the server does not hang up")
    }

    /// As [`read`](Self::read); `None` if the server hangs up.
    fn read_unless_closed(&mut self, options: &[&str]) -> Option<bool> {
        let lsn = self.lsn.to_string();
        self.raw.send_command(&[&["FEED", "READ", &lsn], options].concat());
        let blocks = match self.raw.reply_unless_closed()? {
            Value::Null => return Some(true),
            Value::Error(error) if error.starts_with(b"GONE ") => {
                self.begin_unless_closed()?;
                return Some(false);
            }
            Value::Array(reply) => match <[Value; 2]>::try_from(reply) {
                Ok([last, blocks]) => {
                    let blocks = array(blocks);
                    assert!(number(&last) > self.lsn && !blocks.is_empty(), "a reply has units");
                    blocks
                }
                Err(other) => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        for block in blocks {
            let block = array(block);
            let [first, time_ms, units] = &block[..] else { panic!("{block:?}") };
            assert_eq!(number(first), self.lsn + 1, "units come in order, none twice");
            assert!(number(time_ms) > 1_700_000_000_000);
            let units = units.bytes().expect("units");
            self.apply(units);
            for effects in split(units) {
                self.lsn += 1;
                self.units.insert(self.lsn, effects.to_vec());
            }
        }
        Some(true)
    }

    /// Reads until the feed shows nothing more.
    fn read_all(&mut self) {
        while state(&mut self.raw).1 > self.lsn {
            self.read(&["COUNT", "100000"]);
        }
    }

    /// Compares the data with that of the server, which nobody changes.
    fn compare(&mut self) {
        assert_eq!(self.data.digest(), digest(&mut self.raw));
    }
}

/// The last change of a server, whether or not it is on disk.
fn last_lsn(raw: &mut Raw) -> u64 {
    let info = raw.command(&["INFO", "persistence"]);
    let info = String::from_utf8(info.bytes().expect("text").to_vec()).expect("text");
    let last = info.lines().find_map(|line| line.strip_prefix("log_last_lsn:")).expect("there is a journal");
    last.parse().expect("a number")
}

/// The digest of all data of a server.
fn digest(raw: &mut Raw) -> String {
    let digest = raw.command(&["DEBUG", "DIGEST"]);
    String::from_utf8(digest.bytes().expect("a digest").to_vec()).expect("text")
}

/// Makes a random change, none of which depends on the time.
fn change(raw: &mut Raw, dice: &mut Dice) {
    let (key, value) = (format!("key:{}", dice.below(40)), dice.below(1_000_000).to_string());
    let long = "x".repeat(dice.below(20_000));
    let script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1])";
    let calls: &[&[&str]] = &[
        &["SET", &key, &value],
        &["SET", &format!("long:{key}"), &long],
        &["RPUSH", &format!("list:{key}"), &value, &value],
        &["LPOP", &format!("list:{key}")],
        &["HSET", &format!("hash:{key}"), &value, &key],
        &["ZADD", &format!("zset:{key}"), &value, &key],
        &["XADD", &format!("stream:{key}"), "*", "field", &value],
        &["DEL", &key, &format!("list:{key}")],
        &["PEXPIREAT", &key, "4000000000000"],
        &["EVAL", script, "2", &key, &format!("other:{key}"), &value],
        &["SADD", &format!("set:{key}"), &value],
        &["STOCK.SET", &format!("stock:{key}"), &value],
    ];
    let call = *dice.pick(calls);
    let reply = raw.command(call);
    assert!(!matches!(reply, Value::Error(_)), "{call:?}: {reply:?}");
    if dice.once_in(50) {
        for call in [&["MULTI"][..], &["INCR", "counter"], &["LPUSH", "list", "one"], &["EXEC"]] {
            raw.command(call);
        }
    }
    if dice.once_in(400) {
        raw.command(&["FLUSHALL"]);
    }
}

#[test]
fn snapshot_and_changes_rebuild_the_data_while_it_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let (mut raw, mut dice) = (server.raw(), Dice(7));
            for round in 0..1_500 {
                change(&mut raw, &mut dice);
                if round % 700 == 300 {
                    raw.command(&["BGSAVE"]);
                }
            }
        });
        let (mut reader, mut dice, mut gone) = (Reader::new(server.raw()), Dice(8), 0);
        reader.begin();
        loop {
            let was_over = writing.is_finished();
            let count = [1, 3_000, 1_000_000][dice.below(3)].to_string();
            let options: &[&str] = if dice.once_in(2) { &["BLOCK", "5", "COUNT", &count] } else { &["COUNT", &count] };
            gone += u64::from(!reader.read(options));
            if dice.once_in(20) {
                // Every question could as well be the first one of a connection.
                reader.raw = server.raw();
                if dice.once_in(2) {
                    reader.raw.hello3();
                }
            }
            if was_over && reader.lsn == state(&mut reader.raw).1 {
                break;
            }
        }
        println!("{} changes, {gone} times gone", reader.lsn);
        reader.compare();
        // From the newest snapshot on, another reader gets to the same.
        let mut other = Reader::new(server.raw());
        other.begin();
        other.read_all();
        assert_eq!(other.lsn, reader.lsn);
        other.compare();
    });
}

#[test]
fn a_reader_that_waits_is_woken_by_a_change_and_else_gets_null() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    let (mut writer, mut reader) = (server.raw(), Reader::new(server.raw()));
    reader.begin();
    writer.command(&["SET", "key", "first"]);
    reader.read_all();
    for round in 0..20 {
        if round == 10 {
            reader.raw.hello3();
        }
        let lsn = reader.lsn.to_string();
        for timeout in [&[][..], &["BLOCK", "1"]] {
            reader.raw.send_command(&[&["FEED", "READ", &lsn], timeout].concat());
            let null = reader.raw.reply().raw;
            assert_eq!(null, if round < 10 { &b"*-1\r\n"[..] } else { b"_\r\n" });
        }
        reader.raw.send_command(&["FEED", "READ", &lsn, "BLOCK", "0"]);
        if round % 2 == 0 {
            until(|| info(&mut writer, "blocked_clients") == "1", "the reader waits");
        }
        writer.command(&["SET", "key", &round.to_string()]);
        let reply = array(reader.raw.reply().value);
        assert_eq!(number(&reply[0]), reader.lsn + 1);
        reader.read_all();
    }
    // A reader may change something itself, just before it waits, and send its questions ahead.
    for _ in 0..20 {
        let (lsn, next) = (reader.lsn.to_string(), (reader.lsn + 1).to_string());
        let calls: [&[&str]; 4] = [
            &["INCR", "count"],
            &["FEED", "READ", &lsn, "BLOCK", "0"],
            &["FEED", "READ", &next, "BLOCK", "1"],
            &["FEED", "READ", &lsn],
        ];
        reader.raw.send(&calls.map(encode).concat());
        let replies = calls.map(|_| reader.raw.reply().value);
        assert_eq!((&replies[1], &replies[2]), (&replies[3], &Value::Null));
        reader.read_all();
    }
    reader.compare();
}

fn info(raw: &mut Raw, field: &str) -> String {
    let info = raw.command(&["INFO"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned));
    line.unwrap_or_else(|| panic!("INFO has no {field}"))
}

/// Saves the data, so that the journal before it is cut, and fills it so that the segments move on.
fn cut(raw: &mut Raw) {
    let value = "x".repeat(300_000);
    for round in 0..10 {
        raw.command(&["SET", &format!("big:{}", round % 3), &value]);
    }
    assert_eq!(raw.command(&["SAVE"]), Value::ok());
}

#[test]
fn changes_that_a_snapshot_has_taken_the_place_of_are_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    let (mut writer, mut reader) = (server.raw(), Reader::new(server.raw()));
    writer.command(&["SET", "key", "value"]);
    assert_eq!(reader.raw.command(&["FEED", "SNAPSHOT"]), Value::Null);
    reader.read_all();
    assert_eq!(reader.lsn, state(&mut writer).1);
    // One reader has the segment open, the other comes later.
    let mut late = server.raw();
    until(
        || {
            cut(&mut writer);
            matches!(late.command(&["FEED", "READ", "1"]), Value::Error(error) if error.starts_with(b"GONE "))
        },
        "the journal is cut",
    );
    let Value::Error(error) = reader.raw.command(&["FEED", "READ", &reader.lsn.to_string()]) else {
        panic!("it is not gone")
    };
    let error = String::from_utf8(error).expect("text");
    let covered: u64 =
        error.split_whitespace().find_map(|word| word.trim_end_matches(':').parse().ok()).expect("an Lsn");
    assert_eq!(
        error,
        format!("GONE a snapshot has taken the place of the changes up to {covered}: begin with FEED SNAPSHOT")
    );
    assert!(covered > reader.lsn);
    assert!(matches!(late.command(&["FEED", "READ", &covered.to_string()]), Value::Array(_) | Value::Null));
    reader.begin();
    assert!(reader.lsn >= covered);
    reader.read_all();
    reader.compare();
}

/// A snapshot that is being read stays whole, although a newer one takes its place.
#[test]
fn a_snapshot_is_read_to_its_end_although_newer_ones_come() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    let (mut writer, mut raw) = (server.raw(), server.raw());
    for number in 0..60 {
        writer.command(&["SET", &format!("key:{number}"), &format!("{number:>30000}")]);
    }
    assert_eq!(writer.command(&["SAVE"]), Value::ok());
    let mut data = Bench::new(1);
    let snapshot = array(raw.command(&["FEED", "SNAPSHOT"]));
    let digest = digest(&mut writer);
    let mut parts = 0;
    loop {
        let part = array(raw.command(&["FEED", "PART"]));
        let Some(units) = part[1].bytes() else { break assert_eq!(part[0], snapshot[2]) };
        split(units).into_iter().for_each(|effects| data.take_in(effects).expect("the effects fit"));
        parts += 1;
        writer.command(&["FLUSHALL"]);
        assert_eq!(writer.command(&["SAVE"]), Value::ok());
    }
    assert!(parts > 2, "{parts}");
    assert_eq!(data.digest(), digest);
    let refusal = Value::error("ERR no snapshot is being read: FEED SNAPSHOT begins with one");
    assert_eq!(raw.command(&["FEED", "PART"]), refusal);
}

#[test]
fn what_can_not_be_read_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    let mut raw = server.raw();
    raw.command(&["SET", "key", "value"]);
    let last = state(&mut raw).1;
    let ahead = (last + 1).to_string();
    let behind = format!("AHEAD the last change is {last}: what is after {ahead} was not written here");
    let count = "ERR COUNT is a number of bytes from 1 to 8388608";
    let cases: &[(&[&str], &str)] = &[
        (&["READ", &ahead], &behind),
        (&["READ", &ahead, "BLOCK", "0"], &behind),
        (&["READ", "0", "COUNT", "0"], count),
        (&["READ", "0", "COUNT", "8388609"], count),
        (&["READ", "0", "COUNT", "-1"], count),
        (&["READ", "0", "COUNT", "many"], "ERR value is not an integer or out of range"),
        (&["READ", "-1"], "ERR value is not an integer or out of range"),
        (&["READ", "first"], "ERR value is not an integer or out of range"),
        (&["READ", "0", "BLOCK", "-1"], "ERR timeout is negative"),
        (&["READ", "0", "BLOCK", "soon"], "ERR timeout is not an integer or out of range"),
        (&["READ", "0", "BLOCK"], "ERR syntax error"),
        (&["READ", "0", "NOW"], "ERR syntax error"),
        (&["READ"], "ERR wrong number of arguments for 'feed|read' command"),
        (&["STATE", "all"], "ERR wrong number of arguments for 'feed|state' command"),
        (&["PART"], "ERR no snapshot is being read: FEED SNAPSHOT begins with one"),
    ];
    for (args, error) in cases {
        let call = [&["FEED"], *args].concat();
        assert_eq!(raw.command(&call), Value::error(error), "{args:?}");
    }
    // Neither a script nor a transaction can wait.
    for call in [&["FEED", "READ", "0"][..], &["FEED", "STATE"], &["FEED", "SNAPSHOT"]] {
        raw.command(&["MULTI"]);
        let refusal = raw.command(call);
        assert!(
            matches!(&refusal, Value::Error(error) if error.starts_with(b"ERR Command not allowed")),
            "{refusal:?}"
        );
        raw.command(&["DISCARD"]);
        let words: Vec<String> = call.iter().map(|word| format!("'{word}'")).collect();
        let refusal = raw.command(&["EVAL", &format!("return redis.call({})", words.join(",")), "0"]);
        assert!(matches!(&refusal, Value::Error(error) if error.starts_with(b"ERR This Redis")), "{refusal:?}");
    }
    let refusal = raw.command(&["ONCE", "id", "PX", "60000", "FEED", "READ", "0"]);
    assert!(matches!(&refusal, Value::Error(error) if error.starts_with(b"ERR 'feed|read' can't run")), "{refusal:?}");
    // The feed shows all keys.
    raw.command(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-@replication"]);
    raw.command(&["ACL", "SETUSER", "backup", "on", ">secret", "+feed"]);
    assert_eq!(raw.command(&["AUTH", "app", "secret"]), Value::ok());
    let refusal = raw.command(&["FEED", "READ", "0"]);
    assert!(matches!(&refusal, Value::Error(error) if error.starts_with(b"NOPERM ")), "{refusal:?}");
    assert_eq!(raw.command(&["AUTH", "backup", "secret"]), Value::ok());
    assert!(matches!(raw.command(&["FEED", "READ", "0"]), Value::Array(_)));
}

#[test]
fn without_a_journal_there_is_no_feed() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let refusal = Value::error("ERR the feed is read from the journal: set appendonly yes");
    for call in [&["STATE"][..], &["SNAPSHOT"], &["PART"], &["READ", "0"], &["READ", "0", "BLOCK", "0"]] {
        assert_eq!(raw.command(&[&["FEED"], call].concat()), refusal);
    }
}

#[test]
fn readers_are_answered_when_the_journal_ends_and_find_the_next_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    let (mut writer, mut reader) = (server.raw(), Reader::new(server.raw()));
    writer.command(&["SET", "key", "value"]);
    reader.read_all();
    let lsn = reader.lsn.to_string();
    for round in 0..3 {
        let mut waiting = server.raw();
        waiting.send_command(&["FEED", "READ", &state(&mut writer).1.to_string(), "BLOCK", "0"]);
        until(|| info(&mut writer, "blocked_clients") == "1", "a reader waits");
        assert_eq!(writer.command(&["CONFIG", "SET", "appendonly", "no"]), Value::ok());
        let refusal = Value::error("ERR the feed is read from the journal: set appendonly yes");
        assert_eq!(waiting.reply().value, refusal);
        assert_eq!(waiting.command(&["FEED", "STATE"]), refusal);
        // The feed will not show this change: a snapshot has it.
        writer.command(&["SET", &format!("key:{round}"), "other"]);
        assert_eq!(writer.command(&["CONFIG", "SET", "appendonly", "yes"]), Value::ok());
        until(|| !matches!(writer.command(&["FEED", "STATE"]), Value::Error(_)), "the next journal begins");
        let reply = reader.raw.command(&["FEED", "READ", &lsn]);
        assert!(matches!(&reply, Value::Error(error) if error.starts_with(b"GONE ")), "{reply:?}");
        reader.begin();
        writer.command(&["SET", "key", &round.to_string()]);
        reader.read_all();
        reader.compare();
    }
}

#[test]
fn what_waits_is_shown_once_it_is_on_disk_whatever_the_policy() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start_with(dir.path(), &["--appendfsync", "no"]);
    let (mut writer, mut reader) = (server.raw(), Reader::new(server.raw()));
    for policy in ["no", "everysec", "no"] {
        assert_eq!(writer.command(&["CONFIG", "SET", "appendfsync", policy]), Value::ok());
        reader.read_all();
        for round in 0..2 {
            let number = round.to_string();
            reader.raw.send_command(&["FEED", "READ", &reader.lsn.to_string(), "BLOCK", "0"]);
            until(|| info(&mut writer, "blocked_clients") == "1", "the reader waits");
            writer.command(&["SET", "key", &number]);
            assert!(matches!(reader.raw.reply().value, Value::Array(_)));
            until(
                || {
                    reader.read(&[]);
                    reader.data.call(0, &words(&["GET", "key"])).ends_with(format!("{number}\r\n").as_bytes())
                },
                "a reader that only looks sees the change, too",
            );
        }
    }
    reader.compare();
}

#[test]
fn so_many_connections_can_read_and_each_gives_its_place_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    let mut raw = server.raw();
    raw.command(&["SET", "key", "value"]);
    let last = state(&mut raw).1.to_string();
    let mut readers: Vec<(Raw, String)> = (0..READERS_MAX)
        .map(|_| {
            let mut reader = server.raw();
            let id = number(&reader.command(&["CLIENT", "ID"])).to_string();
            reader.send_command(&["FEED", "READ", &last, "BLOCK", "0"]);
            (reader, id)
        })
        .collect();
    let waiting = |raw: &mut Raw, count: usize| until(|| info(raw, "blocked_clients") == count.to_string(), "all wait");
    waiting(&mut raw, READERS_MAX);
    let refusal = Value::error("CROWDED no more than 8 connections can read the feed at a time");
    assert_eq!(raw.command(&["FEED", "READ", &last, "BLOCK", "0"]), refusal);
    // One hangs up, another is killed: their places are free.
    drop(readers.pop());
    waiting(&mut raw, READERS_MAX - 1);
    let mut next = server.raw();
    assert_eq!(next.command(&["FEED", "READ", &last]), Value::Null);
    assert_eq!(server.raw().command(&["FEED", "SNAPSHOT"]), refusal);
    let (mut victim, id) = readers.pop().expect("there are some");
    assert_eq!(raw.command(&["CLIENT", "KILL", "ID", &id]), Value::Integer(1));
    assert!(victim.try_reply(REPLY_DEADLINE).is_err());
    assert_eq!(server.raw().command(&["FEED", "SNAPSHOT"]), Value::Null);
    // A call that was unblocked gets no second reply.
    let (unblocked, id) = &mut readers[0];
    assert_eq!(raw.command(&["CLIENT", "UNBLOCK", id]), Value::Integer(1));
    assert_eq!(unblocked.reply().value, Value::Null);
    raw.command(&["SET", "key", "value"]);
    for (reader, _) in &mut readers[1..] {
        assert!(matches!(reader.reply().value, Value::Array(_)));
    }
    let last = state(&mut raw).1.to_string();
    for (reader, _) in &mut readers {
        assert_eq!(reader.command(&["FEED", "READ", &last]), Value::Null);
        assert_eq!(reader.command(&["PING"]), Value::status("PONG"));
    }
}

/// What was shown to a reader is what the next start finds, and every change that was acknowledged is shown.
#[test]
fn a_reader_goes_on_after_kill_9_where_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut known, mut dice, mut acknowledged) = (None::<Reader>, Dice(3), 0);
    for round in 0..6 {
        let server = start(dir.path());
        let reader = known.get_or_insert_with(|| Reader::new(server.raw()));
        reader.raw = server.raw();
        // A start is a change, too, and nobody has waited for it.
        until(|| state(&mut reader.raw).1 == last_lsn(&mut reader.raw), "the start is on disk");
        reader.read_all();
        reader.compare();
        let mut all = Reader::new(server.raw());
        all.read_all();
        assert!(all.units == reader.units, "round {round}: another history");
        let count = String::from_utf8(reader.data.call(0, &words(&["INCRBY", "count", "0"]))).expect("text");
        let count: u64 = count.trim_start_matches(':').trim_end().parse().expect("a number");
        assert!(count >= acknowledged, "{count} of {acknowledged} acknowledged changes");
        let mut writer = server.raw();
        let writing = thread::spawn(move || {
            loop {
                writer.send_command(&["INCR", "count"]);
                match writer.try_reply(REPLY_DEADLINE) {
                    Ok(reply) => acknowledged = number(&reply.value),
                    Err(_) => return acknowledged,
                }
            }
        });
        for _ in 0..20 + dice.below(100) {
            reader.read(&["BLOCK", "20"]);
        }
        // It is killed.
        drop(server);
        acknowledged = writing.join().expect("it has ended");
    }
}

/// All nodes of a group show the same units, also those that a deposed leader has had alone are shown by none.
#[test]
fn each_node_of_a_group_shows_the_same_changes_whoever_leads() {
    let mut group = Group::with(&[], false);
    let mut readers: Vec<Reader> = Vec::new();
    let mut histories = Vec::new();
    group.increment();
    for node in 1..=3 {
        let (raw, history) = ready(&group, node);
        histories.push(history);
        readers.push(Reader::new(raw));
    }
    assert!(histories[0].len() == 40 && histories.iter().all(|history| *history == histories[0]), "{histories:?}");
    for round in 0..4 {
        let (mut leader, mut value) = (0, 0);
        for _ in 0..20 {
            (leader, value) = group.increment();
        }
        // A follower may be behind another node: what it will show is not refused.
        let follower = leader % 3;
        let ahead = (readers[follower].lsn + 1_000_000).to_string();
        let asks = || match group.ask(follower + 1, &["FEED", "READ", &ahead, "BLOCK", "10"]) {
            // It may lead by now.
            Some(Value::Error(error)) if error.starts_with(b"AHEAD ") => {
                let role = group.ask(follower + 1, &["ROLE"]);
                assert!(!matches!(role, Some(Value::Array(said)) if said[0] == Value::bulk("slave")), "it is refused");
                true
            }
            reply => reply == Some(Value::Null),
        };
        until(asks, "a follower waits");
        for (node, reader) in (1..).zip(&mut readers) {
            let counter = format!("${}\r\n{value}\r\n", value.to_string().len()).into_bytes();
            until(
                || {
                    // A node closes its connections when it no longer leads, or has to begin with a snapshot.
                    if reader.read_unless_closed(&["BLOCK", "100"]).is_none() {
                        reader.raw = ready(&group, node).0;
                    }
                    reader.data.call(0, &words(&["GET", "counter"])) == counter
                },
                "the node shows the last change",
            );
        }
        assert!(readers.iter().all(|reader| reader.lsn == readers[0].lsn && reader.units == readers[0].units));
        // It waits in vain for a leader that is gone, and goes on.
        group.end(leader, if round % 2 == 0 { libc::SIGKILL } else { libc::SIGTERM });
        let (next, _) = group.increment();
        assert_ne!(next, leader);
        group.start(leader);
        for (node, reader) in (1..).zip(&mut readers) {
            reader.raw = ready(&group, node).0;
        }
    }
}

/// Connects to a node once it serves the feed. Returns the history that it tells, too.
fn ready(group: &Group, node: usize) -> (Raw, String) {
    let begun = Instant::now();
    loop {
        let refused = match TcpStream::connect((group.host(node), PORT)) {
            Err(error) => error.to_string(),
            Ok(stream) => {
                let mut raw = Raw::over(stream);
                raw.send_command(&["FEED", "STATE"]);
                match raw.reply_unless_closed() {
                    Some(Value::Error(error)) => error.escape_ascii().to_string(),
                    Some(state) => return (raw, state_of(state).0),
                    None => "it hangs up".to_owned(),
                }
            }
        };
        assert!(begun.elapsed() < REPLY_DEADLINE, "node {node} serves no feed: {refused}\n{}", group.logs());
        thread::sleep(Duration::from_millis(5));
    }
}
