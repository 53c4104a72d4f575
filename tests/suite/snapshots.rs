//! Snapshots as clients see them: on request, automatic, with a journal and without one, and the state after a failure.
//!
//! [`kills`](crate::kills) shows that nothing acknowledged is lost while they are made, whenever the server dies.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::durable::{info, limit_files, refusal};
use crate::harness::{Program, Raw, Server, Value, free_port, launch_command, sorted, until};

fn start(dir: &Path, flags: &[&str]) -> Server {
    let dir = dir.to_str().expect("a path of plain text");
    Server::start(Program::Tidegate, &[&["--dir", dir], flags].concat())
}

fn ok(c: &mut Raw, words: &[&str]) {
    assert_eq!(c.command(words), Value::status("OK"), "{words:?}");
}

fn number(c: &mut Raw, field: &str) -> i64 {
    info(c, field).parse().unwrap_or_else(|_| panic!("{field} is a number"))
}

/// The names of the files in the data folder.
fn names(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir.join("tidegate-data")).expect("the folder of the data");
    files.map(|file| file.expect("a file").file_name().into_string().expect("plain text")).collect()
}

fn snapshots(dir: &Path) -> usize {
    names(dir).iter().filter(|name| name.ends_with(".snap")).count()
}

/// Waits until no snapshot is in progress or requested.
fn until_quiet(c: &mut Raw) {
    until(
        || {
            ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"]
                .iter()
                .all(|f| info(c, f) == "0")
        },
        "no snapshot is made",
    );
}

/// Values of every type and layout, with deadlines, groups, scripts and libraries.
fn fill(c: &mut Raw) {
    let long = "x".repeat(200);
    let mut lines: Vec<String> = [
        "SET string text",
        "SET number 12345",
        "SET deadline soon PXAT 4000000000123",
        "APPEND raw some",
        "APPEND raw more",
        "SETBIT bits 70000 1",
        "PFADD sketch a b c d",
        "RPUSH list a b c 1 2 3",
        "LPOP list",
        "HSET hash a 1 b 2 c 3",
        "HPEXPIREAT hash 4000000000456 FIELDS 1 b",
        "SADD integers 3 1 2",
        "SADD set a b c 1",
        "ZADD zset 1.5 a -inf b 3 c",
        "GEOADD places 13.361389 38.115556 Palermo",
        "XADD stream 5-1 f v g w",
        "XADD stream 6-1 f v",
        "XADD stream 7-1 h v",
        "XDEL stream 6-1",
        "XGROUP CREATE stream readers 0",
        "XREADGROUP GROUP readers alice COUNT 1 STREAMS stream >",
        "XGROUP CREATECONSUMER stream readers bob",
        "XADD empty 1-1 f v",
        "XTRIM empty MAXLEN 0",
        "SELECT 3",
        "SET elsewhere v EX 100000",
        "SELECT 0",
    ]
    .map(str::to_owned)
    .to_vec();
    for n in 0..600 {
        lines.push(format!("HSET large:hash f{n} {long}"));
        lines.push(format!("SADD large:set m{n}"));
        lines.push(format!("ZADD large:zset {n}.25 m{n}"));
        lines.push(format!("RPUSH large:list {n} {long}"));
        lines.push(format!("XADD large:stream {}-1 n {n}", n + 1));
        lines.push(format!("SET key:{n} {n}"));
    }
    for line in lines {
        let answer = c.command(&line.split(' ').collect::<Vec<_>>());
        assert!(!matches!(answer, Value::Error(_)), "{line}: {answer:?}");
    }
    let library = "#!lua name=lasting\nredis.register_function('lasting', function() return 'it is there' end)";
    assert_eq!(c.command(&["FUNCTION", "LOAD", library]), Value::bulk("lasting"));
    c.command(&["SCRIPT", "LOAD", "return 'loaded'"]);
    c.command(&["EVAL", "return 'evaluated'", "0"]);
}

/// The complete data as clients can read it, as text.
fn picture(c: &mut Raw) -> Vec<String> {
    let mut all = Vec::new();
    for db in ["0", "3"] {
        ok(c, &["SELECT", db]);
        let Value::Array(mut keys) = c.command(&["KEYS", "*"]) else { panic!("a list of keys") };
        keys.sort_by_key(|key| format!("{key:?}"));
        for key in keys {
            let key = String::from_utf8(key.bytes().expect("a key").to_vec()).expect("plain text");
            let mut seen = format!("{db} {key}");
            for words in [&["TYPE"][..], &["OBJECT", "ENCODING"], &["PEXPIRETIME"]] {
                let words: Vec<&str> = words.iter().copied().chain([key.as_str()]).collect();
                seen += &format!(" {:?}", c.command(&words));
            }
            // Unordered values are sorted first. Each value is compared by its hash, which keeps failure messages
            // short.
            let value = match c.command(&["TYPE", &key]) {
                Value::Status(kind) if kind == b"hash" => pairs(c.command(&["HGETALL", &key])),
                Value::Status(kind) if kind == b"set" => sorted(items(c.command(&["SMEMBERS", &key]))),
                _ => vec![c.command(&["DUMP", &key])],
            };
            seen += &format!(" {}", redis::Script::new(&format!("{value:?}")).get_hash());
            match key.as_str() {
                "hash" => seen += &format!(" {:?}", c.command(&["HPEXPIRETIME", "hash", "FIELDS", "2", "a", "b"])),
                "stream" => {
                    seen += &format!(" {:?}", c.command(&["XINFO", "GROUPS", "stream"]));
                    seen += &format!(" {:?}", c.command(&["XPENDING", "stream", "readers"]));
                }
                _ => {}
            }
            all.push(seen);
        }
    }
    ok(c, &["SELECT", "0"]);
    all.push(format!("{:?}", c.command(&["FUNCTION", "LIST", "WITHCODE"])));
    all.push(format!("{:?}", c.command(&["FCALL", "lasting", "0"])));
    let scripts = ["return 'loaded'", "return 'evaluated'", "return 'never'"]
        .map(|text| redis::Script::new(text).get_hash().to_owned());
    all.push(format!("{:?}", c.command(&["SCRIPT", "EXISTS", &scripts[0], &scripts[1], &scripts[2]])));
    all
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("not a list: {other:?}"),
    }
}

/// Fields with their values, sorted.
fn pairs(value: Value) -> Vec<Value> {
    sorted(items(value).chunks(2).map(|pair| Value::Array(pair.to_vec())).collect())
}

fn assert_same(before: &[String], after: &[String]) {
    let differs = before.iter().zip(after).find(|(before, after)| before != after);
    assert!(differs.is_none(), "{differs:?}");
    assert_eq!(before.len(), after.len());
}

#[test]
fn without_a_journal_the_data_is_that_of_the_last_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "no"]);
    let mut c = server.raw();
    fill(&mut c);
    let before = picture(&mut c);
    let started_s = match c.command(&["LASTSAVE"]) {
        Value::Integer(seconds) => seconds,
        other => panic!("a time: {other:?}"),
    };
    assert!(number(&mut c, "rdb_changes_since_last_save") > 1000);
    ok(&mut c, &["SAVE"]);
    assert_eq!((info(&mut c, "rdb_changes_since_last_save"), info(&mut c, "rdb_saves")), ("0".into(), "1".into()));
    assert!(matches!(c.command(&["LASTSAVE"]), Value::Integer(seconds) if seconds >= started_s));
    ok(&mut c, &["SET", "string", "lost"]);
    assert_eq!(info(&mut c, "rdb_changes_since_last_save"), "1");
    drop(server);
    for _ in 0..2 {
        let server = start(dir.path(), &["--appendonly", "no"]);
        assert_same(&before, &picture(&mut server.raw()));
    }
    // A journal begins after it, and the next server without one begins with that snapshot.
    let server = start(dir.path(), &["--appendonly", "yes"]);
    assert_same(&before, &picture(&mut server.raw()));
    ok(&mut server.raw(), &["SET", "string", "logged"]);
    drop(server);
    let server = start(dir.path(), &["--appendonly", "no"]);
    assert_eq!(server.raw().command(&["GET", "string"]), Value::bulk("logged"));
    ok(&mut server.raw(), &["SET", "string", "saved"]);
    ok(&mut server.raw(), &["SAVE"]);
    drop(server);
    let server = start(dir.path(), &["--appendonly", "yes"]);
    assert_eq!(server.raw().command(&["GET", "string"]), Value::bulk("saved"));
}

#[test]
fn a_snapshot_under_load_and_its_journal_hold_all_data() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "yes"]);
    let mut c = server.raw();
    fill(&mut c);
    let stop = AtomicBool::new(false);
    let counts: Vec<i64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (mut c, stop) = (server.raw(), &stop);
                scope.spawn(move || {
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        n += 1;
                        // Both keys, or neither; one is old, one is new, and they move.
                        let script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('HINCRBY', KEYS[2], KEYS[1], 1)
                            redis.call('RPUSH', KEYS[3], ARGV[1]) redis.call('RENAME', KEYS[3], KEYS[4])
                            return redis.call('RENAME', KEYS[4], KEYS[3])";
                        let keys = [
                            format!("w{writer}:{n}"),
                            "large:hash".into(),
                            format!("w{writer}:list"),
                            format!("moved:{writer}"),
                        ];
                        let [a, b, l, m] = &keys;
                        let answer = c.command(&["EVAL", script, "4", a, b, l, m, &n.to_string()]);
                        assert_eq!(answer, Value::status("OK"));
                    }
                    n
                })
            })
            .collect();
        for _ in 0..5 {
            let begun = c.command(&["BGSAVE"]);
            assert_eq!(begun, Value::status("Background saving started"));
            until(|| info(&mut c, "rdb_bgsave_in_progress") == "0", "the snapshot is complete");
            assert_eq!(info(&mut c, "rdb_last_bgsave_status"), "ok");
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("it wrote")).collect()
    });
    assert_eq!(snapshots(dir.path()), 1, "the newest snapshot replaces the others: {:?}", names(dir.path()));
    let before = picture(&mut c);
    drop(server);
    let server = start(dir.path(), &["--appendonly", "yes"]);
    let mut c = server.raw();
    assert_same(&before, &picture(&mut c));
    for (writer, count) in counts.iter().enumerate() {
        assert_eq!(c.command(&["LLEN", &format!("w{writer}:list")]), Value::Integer(*count));
    }
}

#[test]
fn snapshot_commands_reply_as_in_redis() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "yes"]);
    let mut c = server.raw();
    fill(&mut c);
    until_quiet(&mut c);
    // Commands that arrive together get their replies before a snapshot begins.
    let pipeline: &[(&[&str], &str)] = &[
        (&["BGSAVE", "CANCEL"], "-ERR Background saving is currently not in progress or scheduled"),
        (&["BGSAVE", "NOW"], "-ERR syntax error"),
        (&["BGSAVE"], "+Background saving started"),
        (&["BGSAVE"], "-ERR Background save already in progress"),
        (&["SAVE"], "-ERR Background save already in progress"),
        (&["BGREWRITEAOF"], "+Background append only file rewriting scheduled"),
        (&["BGSAVE", "CANCEL"], "+Background saving cancelled"),
        (&["BGREWRITEAOF"], "+Background append only file rewriting started"),
        (&["BGREWRITEAOF"], "-ERR Background append only file rewriting already in progress"),
        (
            &["BGSAVE"],
            "-ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to \
             schedule a BGSAVE whenever possible.",
        ),
        (&["BGSAVE", "SCHEDULE"], "+Background saving scheduled"),
        (&["BGSAVE", "CANCEL"], "+Scheduled background saving cancelled"),
        (&["BGSAVE", "SCHEDULE"], "+Background saving scheduled"),
    ];
    let bytes: Vec<u8> = pipeline.iter().flat_map(|(words, _)| crate::harness::encode(words)).collect();
    c.send(&bytes);
    for (words, expected) in pipeline {
        let raw = c.reply().raw;
        assert_eq!(String::from_utf8_lossy(&raw).trim_end(), *expected, "{words:?}");
    }
    until(|| number(&mut c, "rdb_saves") == 1, "the scheduled snapshot is made");
    assert_eq!((number(&mut c, "aof_rewrites"), info(&mut c, "aof_last_bgrewrite_status")), (1, "ok".into()));
    until_quiet(&mut c);
    ok(&mut c, &["MULTI"]);
    for words in [&["BGSAVE"][..], &["SET", "k", "v"], &["BGREWRITEAOF"]] {
        assert_eq!(c.command(words), Value::status("QUEUED"));
    }
    let scheduled = ["Background saving scheduled", "OK", "Background append only file rewriting scheduled"];
    assert_eq!(c.command(&["EXEC"]), Value::Array(scheduled.map(Value::status).to_vec()));
    until(|| (number(&mut c, "rdb_saves"), number(&mut c, "aof_rewrites")) == (2, 2), "both snapshots are made");
    ok(&mut c, &["MULTI"]);
    assert_eq!(c.command(&["SAVE"]), Value::error("ERR Command not allowed inside a transaction"));
}

#[test]
fn a_snapshot_pauses_at_each_key_if_configured() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "yes"]);
    let mut c = server.raw();
    for n in 0..50 {
        ok(&mut c, &["SET", &format!("k{n}"), "v"]);
    }
    ok(&mut c, &["CONFIG", "SET", "rdb-key-save-delay", "10000000"]);
    assert_eq!(c.command(&["BGSAVE"]), Value::status("Background saving started"));
    until(|| number(&mut c, "current_save_keys_processed") == 1, "the snapshot pauses after the first key");
    assert_eq!(info(&mut c, "rdb_bgsave_in_progress"), "1");
    ok(&mut c, &["SET", "k51", "meanwhile"]);
    assert_eq!(c.command(&["BGSAVE", "CANCEL"]), Value::status("Background saving cancelled"));
    for delay in ["100", "-10"] {
        ok(&mut c, &["CONFIG", "SET", "rdb-key-save-delay", delay]);
        ok(&mut c, &["SAVE"]);
    }
    drop(server);
    let server = start(dir.path(), &["--appendonly", "yes"]);
    assert_eq!(server.raw().command(&["DBSIZE"]), Value::Integer(51));
}

#[test]
fn other_clients_are_served_while_one_waits_for_save() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "no"]);
    let (mut c, mut other) = (server.raw(), server.raw());
    let fill = "for i = 1, 200000 do redis.call('SET', 'key:' .. i, i) end";
    c.command(&["EVAL", fill, "0"]);
    ok(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "1000"]);
    c.send_command(&["SAVE"]);
    let mut answered = 0;
    while info(&mut other, "rdb_saves") == "0" {
        answered += 1;
        if answered == 2 {
            ok(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
        }
        ok(&mut other, &["SET", "meanwhile", &answered.to_string()]);
    }
    assert_eq!(c.reply().value, Value::status("OK"));
    assert!(answered > 1, "{answered}");
    drop(server);
    let server = start(dir.path(), &["--appendonly", "no"]);
    assert_eq!(server.raw().command(&["DBSIZE"]), Value::Integer(200_001));
}

#[test]
fn save_points_trigger_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "no", "--save", "1 3"]);
    let mut c = server.raw();
    for n in 0..2 {
        ok(&mut c, &["SET", &format!("key:{n}"), "v"]);
    }
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(info(&mut c, "rdb_saves"), "0", "two changes trigger no snapshot");
    ok(&mut c, &["SET", "key:2", "v"]);
    until(|| info(&mut c, "rdb_saves") == "1", "three changes trigger a snapshot");
    ok(&mut c, &["CONFIG", "SET", "save", ""]);
    for n in 3..10 {
        ok(&mut c, &["SET", &format!("key:{n}"), "v"]);
    }
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(info(&mut c, "rdb_saves"), "1", "no save point is set any more");
    drop(server);
    let mut server = start(dir.path(), &["--appendonly", "no", "--save", "3600 1"]);
    let mut c = server.raw();
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(3));
    // With a save point in `save`, a shutdown takes a snapshot, too.
    ok(&mut c, &["SET", "last", "v"]);
    c.send_command(&["SHUTDOWN"]);
    c.read_to_end();
    assert!(server.ends_well());
    let mut server = start(dir.path(), &["--appendonly", "no", "--save", "3600 1"]);
    let mut c = server.raw();
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(4));
    ok(&mut c, &["SET", "by signal", "v"]);
    // SAFETY: a signal to a child of this process, which has not been waited for.
    assert_eq!(unsafe { libc::kill(server.pid() as libc::pid_t, libc::SIGTERM) }, 0);
    assert!(server.ends_well());
    for (how, keys) in [(&["SHUTDOWN", "NOSAVE"][..], 5), (&["SHUTDOWN", "SAVE"], 6)] {
        let mut server = start(dir.path(), &["--appendonly", "no"]);
        let mut c = server.raw();
        assert_eq!(c.command(&["DBSIZE"]), Value::Integer(5), "{how:?}");
        ok(&mut c, &["SET", "sixth", "v"]);
        c.send_command(how);
        c.read_to_end();
        assert!(server.ends_well());
        let server = start(dir.path(), &["--appendonly", "no"]);
        assert_eq!(server.raw().command(&["DBSIZE"]), Value::Integer(keys), "{how:?}");
    }
}

#[test]
fn a_log_that_has_grown_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-min-size", "1mb"];
    let server = start(dir.path(), &flags);
    let mut c = server.raw();
    let value = "v".repeat(1_000);
    let mut written = 0;
    while number(&mut c, "aof_rewrites") < 2 {
        for n in 0..100 {
            ok(&mut c, &["SET", &format!("key:{n}"), &value]);
        }
        written += 1;
        assert!(written < 500, "50 MB are enough");
    }
    assert!(written > 10, "the rewrite began below 1 MB: {written}");
    until(|| number(&mut c, "aof_current_size") < 1 << 20, "the journal is short again");
    ok(&mut c, &["CONFIG", "SET", "auto-aof-rewrite-percentage", "0"]);
    until_quiet(&mut c);
    assert_eq!(snapshots(dir.path()), 1);
    let before = number(&mut c, "aof_rewrites");
    for _ in 0..20 {
        for n in 0..100 {
            ok(&mut c, &["SET", &format!("key:{n}"), &value]);
        }
    }
    assert_eq!(number(&mut c, "aof_rewrites"), before);
    let size = number(&mut c, "aof_current_size");
    assert!(size > 2_000_000);
    drop(server);
    // The next server knows its length.
    let server = start(dir.path(), &[&flags[..], &["--auto-aof-rewrite-percentage", "0"]].concat());
    let mut c = server.raw();
    assert!((size - number(&mut c, "aof_current_size")).abs() < size / 10, "{size}");
    ok(&mut c, &["CONFIG", "SET", "auto-aof-rewrite-percentage", "100"]);
    until(|| number(&mut c, "aof_rewrites") == 1, "the journal is long enough");
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(100));
}

#[test]
fn debug_reload_and_loadaof_restore_the_same_data() {
    for flags in [["--appendonly", "yes"], ["--appendonly", "no"]] {
        let dir = tempfile::tempdir().unwrap();
        let server = start(dir.path(), &[&flags[..], &["--enable-debug-command", "yes"]].concat());
        let (mut c, mut waiting) = (server.raw(), server.raw());
        fill(&mut c);
        waiting.send_command(&["BLPOP", "jobs", "0"]);
        let before = picture(&mut c);
        let digest = c.command(&["DEBUG", "DIGEST"]);
        ok(&mut c, &["DEBUG", "RELOAD"]);
        assert_eq!(c.command(&["DEBUG", "DIGEST"]), digest);
        assert_same(&before, &picture(&mut c));
        // Unsaved changes are forgotten; the earlier data stays, on demand.
        ok(&mut c, &["SET", "later", "v"]);
        if flags[1] == "no" {
            ok(&mut c, &["DEBUG", "RELOAD", "NOSAVE"]);
            assert_same(&before, &picture(&mut c));
            ok(&mut c, &["SET", "later", "v"]);
            ok(&mut c, &["SET", "string", "changed"]);
            ok(&mut c, &["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH", "MERGE"]);
            assert_eq!(
                c.command(&["MGET", "later", "string"]),
                Value::Array(vec![Value::bulk("v"), Value::bulk("text")])
            );
        } else {
            ok(&mut c, &["DEBUG", "LOADAOF"]);
            assert_eq!(c.command(&["GET", "later"]), Value::bulk("v"));
        }
        c.command(&["DEL", "later"]);
        assert_same(&before, &picture(&mut c));
        let refused = c.command(&["DEBUG", "RELOAD", "NOFLUSH"]);
        assert_eq!(refused, Value::error("ERR Error trying to load the RDB dump, check server logs"));
        assert_same(&before, &picture(&mut c));
        // Waiters go on waiting, and others see the changes.
        c.command(&["RPUSH", "jobs", "job"]);
        assert_eq!(waiting.reply().value, Value::Array(vec![Value::bulk("jobs"), Value::bulk("job")]));
    }
}

#[test]
fn debug_populate_makes_many_keys_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "yes", "--enable-debug-command", "yes"]);
    let mut c = server.raw();
    ok(&mut c, &["SET", "key:1", "was here"]);
    ok(&mut c, &["DEBUG", "POPULATE", "3"]);
    ok(&mut c, &["DEBUG", "POPULATE", "2", "cut", "3"]);
    ok(&mut c, &["DEBUG", "POPULATE", "2", "long", "10"]);
    ok(&mut c, &["DEBUG", "POPULATE", "0"]);
    let before = picture(&mut c);
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(7));
    let wanted = [
        ("key:0", "value:0"),
        ("key:1", "was here"),
        ("key:2", "value:2"),
        ("cut:1", "val"),
        ("long:1", "value:1\0\0\0"),
    ];
    for (key, value) in wanted {
        assert_eq!(c.command(&["GET", key]), Value::bulk(value), "{key}");
    }
    for wrong in [&["-1"][..], &["x"], &["1", "key", "-1"]] {
        let refused = c.command(&[&["DEBUG", "POPULATE"], wrong].concat());
        assert_eq!(refused, Value::error("ERR value is out of range, must be positive"), "{wrong:?}");
    }
    let too_many =
        format!("{:?}", c.command(&["DEBUG", "POPULATE", "9223372036854775807", "key", "9223372036854775807"]));
    assert!(too_many.contains("at once"), "{too_many}");
    drop(server);
    let server = start(dir.path(), &["--appendonly", "yes"]);
    assert_same(&before, &picture(&mut server.raw()));
}

#[test]
fn a_start_pauses_at_each_key_if_configured() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--rdb-export", "yes", "--enable-debug-command", "yes"]);
    ok(&mut server.raw(), &["DEBUG", "POPULATE", "500"]);
    ok(&mut server.raw(), &["SAVE"]);
    drop(server);
    // From its own data, then from Redis'.
    for own in [true, false] {
        if !own {
            std::fs::remove_dir_all(dir.path().join("tidegate-data")).unwrap();
        }
        let server = Plain::start(dir.path(), &["--key-load-delay", "10000000"]);
        let mut c = Raw::connect(server.1);
        until(|| info(&mut c, "loading") == "1", "the start pauses");
        ok(&mut c, &["CONFIG", "SET", "key-load-delay", "-10"]);
        until(|| c.command(&["DBSIZE"]) == Value::Integer(500), "the start continues at once");
        assert_eq!(info(&mut c, "loading"), "0");
    }
}

#[test]
fn a_failed_snapshot_keeps_the_old_one_and_stops_writes_if_configured() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "no"]);
    let mut c = server.raw();
    ok(&mut c, &["SET", "small", "v"]);
    ok(&mut c, &["SAVE"]);
    let noise = "local t = {} for i = 1, 3000 do t[i] = redis.sha1hex(i .. ARGV[1]) end \
                 redis.call('SET', KEYS[1], table.concat(t))";
    for n in 0..10 {
        let n = n.to_string();
        c.command(&["EVAL", noise, "1", &n, &n]);
    }
    limit_files(server.pid(), 300_000);
    let mut tries = 0;
    let mut fail = |c: &mut Raw| {
        assert_eq!(c.command(&["BGSAVE"]), Value::status("Background saving started"));
        until(|| info(c, "rdb_bgsave_in_progress") == "0", "the snapshot has failed");
        assert_eq!((info(c, "rdb_last_bgsave_status"), info(c, "rdb_saves")), ("err".into(), "1".into()));
        tries += 1;
    };
    fail(&mut c);
    until(
        || server.log().contains("no snapshot was made: ") && server.log().contains("File too large"),
        "the server reports it",
    );
    assert!(names(dir.path()).iter().all(|name| !name.ends_with(".tmp")), "{:?}", names(dir.path()));
    let Value::Error(why) = c.command(&["SAVE"]) else { panic!("it can't be saved") };
    assert!(String::from_utf8_lossy(&why).contains("File too large"), "{}", why.escape_ascii());
    ok(&mut c, &["SET", "small", "still"]);
    // A server that is configured to save reports that it cannot.
    ok(&mut c, &["CONFIG", "SET", "save", "3600 1"]);
    let refused = c.command(&["SET", "small", "no"]);
    let misconf = b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.";
    assert!(matches!(&refused, Value::Error(text) if text.starts_with(misconf)), "{refused:?}");
    assert!(matches!(server.raw().command(&["EVAL", "return redis.call('SET', 'a', 1)", "1", "a"]), Value::Error(_)));
    assert_eq!(c.command(&["GET", "small"]), Value::bulk("still"));
    assert_eq!(c.command(&["SHUTDOWN"]), Value::error("ERR Errors trying to SHUTDOWN. Check logs."));
    ok(&mut c, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    ok(&mut c, &["SET", "small", "again"]);
    ok(&mut c, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]);
    assert_eq!(c.command(&["SET", "small", "no"]), refused);
    // With room again snapshots succeed.
    ok(&mut c, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    for n in 1..10 {
        c.command(&["DEL", &n.to_string()]);
    }
    ok(&mut c, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]);
    ok(&mut c, &["SAVE"]);
    ok(&mut c, &["SET", "small", "lost"]);
    drop(server);
    let server = start(dir.path(), &["--appendonly", "no"]);
    assert_eq!(server.raw().command(&["GET", "small"]), Value::bulk("again"));
}

#[test]
fn the_journal_can_be_turned_on_and_off_at_run_time() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &["--appendonly", "no"]);
    let mut c = server.raw();
    fill(&mut c);
    ok(&mut c, &["CONFIG", "SET", "appendonly", "yes"]);
    // Changes go on from now until it has begun.
    for n in 0..100 {
        ok(&mut c, &["SET", "meanwhile", &n.to_string()]);
    }
    until(|| info(&mut c, "aof_rewrite_in_progress") == "0", "the journal has begun");
    assert_eq!(info(&mut c, "aof_enabled"), "1");
    assert_eq!(c.command(&["WAITAOF", "1", "0", "0"]), Value::Array(vec![Value::Integer(1), Value::Integer(0)]));
    ok(&mut c, &["SET", "logged", "v"]);
    let before = picture(&mut c);
    drop(server);
    let server = start(dir.path(), &["--appendonly", "yes"]);
    let mut c = server.raw();
    assert_same(&before, &picture(&mut c));
    assert_eq!(c.command(&["GET", "meanwhile"]), Value::bulk("99"));
    for n in 0..3 {
        ok(&mut c, &["SET", "logged", &n.to_string()]);
        ok(&mut c, &["CONFIG", "SET", "appendonly", "no"]);
        assert_eq!(info(&mut c, "aof_enabled"), "0");
        ok(&mut c, &["SET", "not logged", &n.to_string()]);
        // All in one piece, and switched off and on again while it begins.
        c.send(
            &[&["yes"][..], &["no"], &["yes"]]
                .map(|value| crate::harness::encode(&["CONFIG", "SET", "appendonly", value[0]]))
                .concat(),
        );
        (0..3).for_each(|_| assert_eq!(c.reply().value, Value::status("OK")));
        until(|| info(&mut c, "aof_rewrite_in_progress") == "0", "the journal has begun again");
    }
    ok(&mut c, &["CONFIG", "SET", "appendonly", "no"]);
    ok(&mut c, &["SET", "lost", "v"]);
    drop(server);
    let server = start(dir.path(), &["--appendonly", "yes"]);
    let mut c = server.raw();
    let found = c.command(&["MGET", "logged", "not logged", "lost"]);
    assert_eq!(found, Value::Array(vec![Value::bulk("2"), Value::bulk("2"), Value::Null]));
}

#[test]
fn a_directory_serves_one_server_with_or_without_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path(), &["--appendonly", "no"]);
    ok(&mut first.raw(), &["SET", "k", "v"]);
    ok(&mut first.raw(), &["SAVE"]);
    let said = refusal(dir.path());
    assert!(said.contains("tidegate-data: another server is using this directory"), "{said}");
    // A server that started while the folder was empty is refused when it wants to save.
    let other = tempfile::tempdir().unwrap();
    let (one, two) = (start(other.path(), &["--appendonly", "no"]), start(other.path(), &["--appendonly", "no"]));
    ok(&mut one.raw(), &["SET", "k", "one"]);
    ok(&mut one.raw(), &["SAVE"]);
    let refused = two.raw().command(&["SAVE"]);
    assert!(format!("{refused:?}").contains("another server is using this directory"), "{refused:?}");
    drop(one);
    let refused = two.raw().command(&["SAVE"]);
    assert!(format!("{refused:?}").contains("holds the data of another server"), "{refused:?}");
    drop(two);
    assert_eq!(start(other.path(), &["--appendonly", "no"]).raw().command(&["GET", "k"]), Value::bulk("one"));
}

/// Starts a server with only its folder and the given options; it may not be ready yet.
struct Plain(Child, u16);

impl Plain {
    fn start(dir: &Path, flags: &[&str]) -> Plain {
        let (command_line, port) = (launch_command(Program::Tidegate), free_port());
        let child = Command::new(&command_line[0])
            .args(&command_line[1..])
            .args(["--port", &port.to_string(), "--dir"])
            .arg(dir)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server that has started before");
        until(|| TcpStream::connect(("127.0.0.1", port)).is_ok(), "the server listens");
        Plain(child, port)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // Both fail only when the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn by_default_acknowledged_data_is_durable_and_loading_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let server = Plain::start(dir.path(), &[]);
    let mut c = Raw::connect(server.1);
    until(|| c.command(&["PING"]) == Value::status("PONG"), "the server is ready");
    let fill = "for i = 1, 300000 do redis.call('SET', 'key:' .. i, i) end";
    c.command(&["EVAL", fill, "0"]);
    ok(&mut c, &["SAVE"]);
    ok(&mut c, &["SET", "last", "v"]);
    drop(server);
    // Slows the walk down as if the data were far larger.
    let server = Plain::start(dir.path(), &["--key-load-delay", "1000"]);
    let mut c = Raw::connect(server.1);
    let loading = Value::error("LOADING Redis is loading the dataset in memory");
    let mut told = 0;
    loop {
        let answer = c.command(&["GET", "last"]);
        if answer != loading {
            assert_eq!(answer, Value::bulk("v"));
            break;
        }
        told += 1;
        if told == 3 {
            ok(&mut c, &["CONFIG", "SET", "key-load-delay", "0"]);
        }
        // In one piece: the data may be there before the next check.
        let all = [&["MULTI"][..], &["GET", "last"], &["EXEC"], &["INFO", "persistence"]].map(crate::harness::encode);
        c.send(&all.concat());
        let answers: Vec<Value> = (0..4).map(|_| c.reply().value).collect();
        if answers[1] == loading {
            assert_eq!(answers[2], Value::error("EXECABORT Transaction discarded because of previous errors."));
            let told_of = String::from_utf8_lossy(answers[3].bytes().expect("a text")).into_owned();
            for field in ["loading:1", "loading_total_bytes:", "loading_loaded_perc:", "loading_eta_seconds:"] {
                assert!(told_of.contains(field), "{field}: {told_of}");
            }
        }
    }
    assert!(told >= 3, "{told}");
    assert_eq!(info(&mut c, "loading"), "0");
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(300_001));
    assert_eq!(info(&mut c, "rdb_last_load_keys_loaded"), "300001");
}
