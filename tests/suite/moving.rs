//! Moving in from Redis and out again: files, append-only folders, a running server that is followed under load, and
//! the file that an export writes. Where a test compares with Redis, Redis is asked for a DUMP of each key.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::{Program, Raw, Server, Value, encode, free_port, launch_command, until};
use crate::oracle::REDIS_SERVER;

/// A subcommand of the program under test that does not start a server.
fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(&launch_command(Program::Tidegate)[0]);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end. `Ok` is its standard output, `Err` its message about the failure.
pub(crate) fn run(args: &[&str]) -> Result<String, String> {
    let output = tidegate(args).output().expect("the program that the other tests start");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

pub(crate) fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

pub(crate) fn import(source: &str, into: &Server, flags: &[&str]) -> Result<String, String> {
    run(&[&["import", source, "--into", &url(into)], flags].concat())
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain text")
}

pub(crate) fn start(program: Program, dir: &Path, flags: &[&str]) -> Server {
    Server::start(program, &[&["--dir", text(dir)], flags].concat())
}

/// Sends commands as one pipeline; none may fail.
pub(crate) fn fill(raw: &mut Raw, commands: &[Vec<String>]) {
    raw.send(&commands.iter().flat_map(|command| encode(command)).collect::<Vec<u8>>());
    for command in commands {
        let reply = raw.reply().value;
        assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
    }
}

/// Commands that make keys of every type, small and large, in three databases.
pub(crate) fn every_type() -> Vec<Vec<String>> {
    let line = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let mut commands: Vec<Vec<String>> = [
        "SET text hello",
        "SET number -12345",
        "SET expires soon PXAT 4102444800000",
        "SETBIT bits 99 1",
        "PFADD visitors a b c",
        "RPUSH list a 1 b 2",
        "SADD set a b c",
        "SADD integers 1 2 300000",
        "ZADD zset 1 a 2.5 b -inf c inf d",
        "HSET hash a 1 b two",
        "XADD stream 1-1 field value",
        "XADD stream 2-1 field value other 5",
        "XADD stream 3-1 x y",
        "XDEL stream 1-1",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
        "SELECT 3",
        "SET elsewhere 1",
        "SELECT 9",
        "RPUSH queue a b c",
        "SELECT 0",
    ]
    .iter()
    .map(|text| line(text))
    .collect();
    commands.push(["SET", "long", &"a".repeat(5000)].map(str::to_owned).to_vec());
    commands.push(["RPUSH", "plain", &"q".repeat(100_000), "b"].map(str::to_owned).to_vec());
    for i in 0..600 {
        commands.push(line(&format!("RPUSH many:list value-{i}-{}", "x".repeat(i % 50))));
        commands.push(line(&format!("HSET many:hash field{i} value{i}")));
        commands.push(line(&format!("SADD many:set member{i}")));
        commands.push(line(&format!("SADD many:integers {i}")));
        commands.push(line(&format!("ZADD many:zset {i}.25 member{i}")));
        commands.push(line(&format!("XADD many:stream {}-0 n {i} user ann", i + 1)));
    }
    let library = "#!lua name=moved\nredis.register_function('answer', function() return 42 end)";
    commands.push(["FUNCTION", "LOAD", "REPLACE", library].map(str::to_owned).to_vec());
    commands
}

/// Commands that make a key of each type that Redis lacks.
pub(crate) fn own_types() -> Vec<Vec<String>> {
    let lines =
        ["LOCK.ACQUIRE own:lock o PX 600000", "GATE.ACQUIRE own:gate h LIMIT 5 PX 600000", "STOCK.SET own:stock 5"];
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).to_vec()
}

/// The contents of all keys as clients read them, by database and name.
pub(crate) fn contents(server: &Server) -> BTreeMap<String, String> {
    let mut raw = server.raw();
    let mut seen = BTreeMap::new();
    for db in ["0", "3", "9"] {
        raw.command(&["SELECT", db]);
        let Value::Array(keys) = raw.command(&["KEYS", "*"]) else { panic!("KEYS answers an array") };
        for key in keys {
            let key = String::from_utf8(key.bytes().expect("a name").to_vec()).expect("plain names");
            let kind = raw.command(&["TYPE", &key]);
            let reads: &[&[&str]] = match kind.bytes() {
                Some(b"string") => &[&["GET", &key]],
                Some(b"list") => &[&["LRANGE", &key, "0", "-1"]],
                Some(b"set") => &[&["SMEMBERS", &key]],
                Some(b"zset") => &[&["ZRANGE", &key, "0", "-1", "WITHSCORES"]],
                Some(b"hash") => &[&["HGETALL", &key]],
                _ => &[&["XRANGE", &key, "-", "+"], &["XINFO", "GROUPS", &key]],
            };
            let mut said = format!("{:?} {kind:?}", raw.command(&["PEXPIRETIME", &key]));
            for read in reads {
                let value = raw.command(read);
                // Replies without an order are sorted before they are compared.
                let value = match (kind.bytes(), value) {
                    (Some(b"set"), Value::Array(items)) => Value::Array(crate::harness::sorted(items)),
                    (Some(b"hash"), Value::Array(items)) => {
                        let pairs = items.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect();
                        Value::Array(crate::harness::sorted(pairs))
                    }
                    (_, value) => value,
                };
                said.push_str(&format!(" {value:?}"));
            }
            seen.insert(format!("{db}:{key}"), said);
        }
    }
    seen.insert("library".to_owned(), format!("{:?}", raw.command(&["FCALL", "answer", "0"])));
    seen
}

pub(crate) fn assert_same(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) {
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    one.iter().for_each(|(key, value)| assert_eq!(Some(value), other.get(key), "{key}"));
}

#[test]
fn redis_data_can_be_imported_in_every_way_and_exported_again() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let redis = start(Program::Redis, dir.path(), &["--appendonly", "yes", "--repl-diskless-sync-delay", "0"]);
    fill(&mut redis.raw(), &every_type());
    assert_eq!(redis.raw().command(&["SAVE"]), Value::status("OK"));
    let wanted = contents(&redis);

    let (dump, aof) = (dir.path().join("dump.rdb"), dir.path().join("appendonlydir"));
    let mut last = None;
    for source in [text(&dump), text(&aof), &url(&redis)] {
        let tidegate = Server::start(Program::Tidegate, &[]);
        let said = import(source, &tidegate, &[]).unwrap_or_else(|why| panic!("{source}: {why}"));
        assert!(said.starts_with("imported: "), "{said}");
        let mut seen = contents(&tidegate);
        if source == text(&aof) {
            // Redis repeats groups by XCLAIM, which does not carry the number of entries they had read. Everything else
            // is equal.
            let known = |said: &str| said.split_once("entries-read").map(|(before, _)| before.to_owned());
            assert!(known(&wanted["0:stream"]).is_some(), "{}", wanted["0:stream"]);
            assert_eq!(known(&seen["0:stream"]), known(&wanted["0:stream"]));
            seen.insert("0:stream".to_owned(), wanted["0:stream"].clone());
        }
        assert_same(&wanted, &seen);
        last = Some(tidegate);
    }

    // With both present, it is undecided which is newer.
    let tidegate = Server::start(Program::Tidegate, &[]);
    let refused = import(text(dir.path()), &tidegate, &[]).unwrap_err();
    assert!(refused.contains("name one of them"), "{refused}");

    // Now out again: the same Redis reads the export, and returns the same for every key.
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("dump.rdb");
    let from = url(last.as_ref().expect("the last one"));
    let said = run(&["export", text(&file), "--from", &from]).unwrap_or_else(|why| panic!("{why}"));
    assert!(said.contains("as RDB 10"), "{said}");
    assert!(run(&["export", text(&file), "--from", &from]).unwrap_err().contains("--replace"), "the file is there");
    let again = start(Program::Redis, out.path(), &[]);
    assert_same(&wanted, &contents(&again));
    for key in ["text", "number", "bits", "visitors", "list", "zset", "hash", "integers", "many:zset"] {
        let dumps = [&redis, &again].map(|server| server.raw().command(&["DUMP", key]));
        assert_eq!(dumps[0], dumps[1], "{key}");
    }
}

#[test]
fn a_file_saved_for_redis_equals_the_data() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = start(Program::Tidegate, dir.path(), &["--rdb-export", "yes"]);
    fill(&mut server.raw(), &every_type());
    assert_eq!(server.raw().command(&["SAVE"]), Value::status("OK"));
    let wanted = contents(&server);
    let mut check = Command::new("redis-check-rdb");
    let checked =
        check.arg(dir.path().join("dump.rdb")).output().expect("redis-check-rdb is there, as redis-server is");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    // Tidegate does not compress payloads.
    let redis = start(Program::Redis, dir.path(), &["--rdbcompression", "no"]);
    assert_same(&wanted, &contents(&redis));
    for db in ["0", "3", "9"] {
        let (mut ours, mut theirs) = (server.raw(), redis.raw());
        for raw in [&mut ours, &mut theirs] {
            assert_eq!(raw.command(&["SELECT", db]), Value::status("OK"));
        }
        let Value::Array(keys) = theirs.command(&["KEYS", "*"]) else { panic!("KEYS answers an array") };
        for key in keys {
            let key = String::from_utf8(key.bytes().unwrap().to_vec()).unwrap();
            // Unordered values, and streams, which count the entries read, are compared above.
            if !["set", "many:set", "many:integers", "many:hash"].contains(&&*key) && !key.ends_with("stream") {
                assert_eq!(ours.command(&["DUMP", &key]), theirs.command(&["DUMP", &key]), "{db}: {key}");
            }
        }
    }
    // CONFIG SET turns it off.
    drop(redis);
    let before = std::fs::read(dir.path().join("dump.rdb")).unwrap();
    assert_eq!(server.raw().command(&["CONFIG", "SET", "rdb-export", "no"]), Value::status("OK"));
    assert_eq!(server.raw().command(&["SET", "text", "later"]), Value::status("OK"));
    assert_eq!(server.raw().command(&["SAVE"]), Value::status("OK"));
    assert_eq!(std::fs::read(dir.path().join("dump.rdb")).unwrap(), before);
}

#[test]
fn nothing_is_overwritten_without_replace() {
    let (from, into) = (Server::start(Program::Tidegate, &[]), Server::start(Program::Tidegate, &[]));
    from.raw().command(&["SET", "key", "new"]);
    into.raw().command(&["SET", "key", "old"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.rdb");
    run(&["export", text(&file), "--from", &url(&from)]).unwrap();
    let refused = import(text(&file), &into, &[]).unwrap_err();
    assert!(refused.contains("\"key\"") && refused.contains("--replace"), "{refused}");
    assert_eq!(into.raw().command(&["GET", "key"]), Value::bulk("old"));
    import(text(&file), &into, &["--replace"]).unwrap();
    assert_eq!(into.raw().command(&["GET", "key"]), Value::bulk("new"));
}

#[test]
fn fields_that_expire_decide_the_version_of_an_export() {
    let (from, into) = (Server::start(Program::Tidegate, &[]), Server::start(Program::Tidegate, &[]));
    from.raw().command(&["HSET", "hash", "f", "v", "g", "w"]);
    from.raw().command(&["HPEXPIREAT", "hash", "4102444800000", "FIELDS", "1", "f"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.rdb");
    let said = run(&["export", text(&file), "--from", &url(&from)]).unwrap();
    assert!(said.contains("as RDB 12"), "{said}");
    import(text(&file), &into, &[]).unwrap();
    let times = into.raw().command(&["HPEXPIRETIME", "hash", "FIELDS", "2", "f", "g"]);
    assert_eq!(times, Value::Array(vec![Value::Integer(4_102_444_800_000), Value::Integer(-1)]));
}

/// Writes an append-only file in the form of its folder: each element is a command, as one line.
fn append_only(dir: &Path, name: &str, lines: &[&str]) -> PathBuf {
    let mut bytes = Vec::new();
    for line in lines {
        if line.starts_with('#') {
            bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
        } else {
            bytes.extend_from_slice(&encode(&line.split(' ').collect::<Vec<_>>()));
        }
    }
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn append_only_files_are_applied_in_whole_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let lines = ["#TS:1700000000", "SELECT 2", "SET a 1", "MULTI", "SET b 1", "SET c 1", "EXEC", "MULTI", "SET d 1"];
    let path = append_only(dir.path(), "one.aof", &lines);
    let server = Server::start(Program::Tidegate, &[]);
    let said = import(text(&path), &server, &[]).unwrap();
    assert!(said.contains("3 commands") && said.contains("left out: the end of"), "{said}");
    let keys = |server: &Server| {
        let mut raw = server.raw();
        raw.command(&["SELECT", "2"]);
        format!("{:?}", raw.command(&["MGET", "a", "b", "c", "d"]))
    };
    assert_eq!(keys(&server), "[\"1\", \"1\", \"1\", (nil)]");

    // Cut off at every byte of its last command, which is then ignored.
    let whole = std::fs::read(append_only(dir.path(), "two.aof", &["SELECT 2", "SET a 1", "SET a 22"])).unwrap();
    let last = whole.len() - encode(&["SET", "a", "22"]).len();
    for cut in [last + 1, last + 9, whole.len() - 1] {
        let server = Server::start(Program::Tidegate, &[]);
        std::fs::write(&path, &whole[..cut]).unwrap();
        let said = import(text(&path), &server, &[]).unwrap();
        assert!(said.contains(&format!("offset {last}")), "{cut}: {said}");
        assert_eq!(keys(&server), "[\"1\", (nil), (nil), (nil)]");
    }

    // A file that is cut off is damaged if other files follow it.
    std::fs::write(dir.path().join("x.manifest"), "file one.aof seq 1 type b\nfile two.aof seq 1 type i\n").unwrap();
    let refused = import(text(dir.path()), &Server::start(Program::Tidegate, &[]), &[]).unwrap_err();
    assert!(refused.contains("one.aof") && refused.contains("cut off"), "{refused}");

    // Input that is not the protocol is refused with its position.
    std::fs::write(&path, [&whole[..], b"*1\r\n!oops\r\n"].concat()).unwrap();
    let refused = import(text(&path), &Server::start(Program::Tidegate, &[]), &[]).unwrap_err();
    assert!(refused.contains(&format!("offset {}", whole.len())), "{refused}");
}

#[test]
fn replayed_keys_do_not_expire_before_the_end_of_the_file() {
    let lines = [
        "SET s v PXAT 1000",
        "APPEND s w",
        "PEXPIREAT s 4102444800000",
        "SET gone v PXAT 1000",
        "HSET h f v g w",
        "HPEXPIREAT h 1000 FIELDS 2 f g",
        "HPEXPIREAT h 4102444800000 FIELDS 1 f",
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = append_only(dir.path(), "appendonly.aof", &lines);
    let told = Server::start(Program::Tidegate, &[]);
    let said = import(text(&path), &told, &[]).unwrap();
    assert!(said.contains("7 commands"), "{said}");
    let started = start(Program::Tidegate, dir.path(), &["--appendonly", "yes"]);
    for server in [told, started] {
        let mut raw = server.raw();
        assert_eq!(raw.command(&["GET", "s"]), Value::bulk("vw"));
        assert_eq!(raw.command(&["PEXPIRETIME", "s"]), Value::Integer(4_102_444_800_000));
        assert_eq!(raw.command(&["EXISTS", "gone"]), Value::Integer(0));
        assert_eq!(raw.command(&["HKEYS", "h"]), Value::Array(vec![Value::bulk("f")]));
        until(|| raw.command(&["DBSIZE"]) == Value::Integer(2), "overdue keys are removed");
    }
}

#[test]
fn unknown_commands_end_an_import_unless_they_may_be_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = append_only(dir.path(), "a.aof", &["SET a 1", "MULTI", "SET b 1", "BF.ADD x y", "EXEC", "SET c 1"]);
    let server = Server::start(Program::Tidegate, &[]);
    let refused = import(text(&path), &server, &[]).unwrap_err();
    assert!(refused.contains("BF.ADD") && refused.contains("--skip-unknown"), "{refused}");
    assert_eq!(server.raw().command(&["EXISTS", "b", "c"]), Value::Integer(0), "a transaction is applied whole or not");
    let said = import(text(&path), &server, &["--skip-unknown", "--replace"]).unwrap();
    assert!(said.contains("left out: the command BF.ADD"), "{said}");
    assert_eq!(server.raw().command(&["EXISTS", "a", "b", "c"]), Value::Integer(3));

    // A known command that fails is reported, with the outcome of the others.
    let path = append_only(dir.path(), "b.aof", &["SET n 1", "LPUSH n x", "SET m 1"]);
    let refused = import(text(&path), &server, &["--replace"]).unwrap_err();
    assert!(refused.contains("WRONGTYPE") && refused.contains("\"LPUSH n x\""), "{refused}");
}

/// The writer of the file does not command the server: commands that change no data are skipped and counted.
#[test]
fn an_import_runs_only_commands_that_change_data() {
    let lines = [
        "SELECT 1",
        "SET a 1",
        "ACL SETUSER mallory on nopass ~* &* +@all",
        "CONFIG SET maxmemory 1mb",
        "CONFIG SET maxmemory 2mb",
        "CLIENT PAUSE 100000000",
        "DEBUG SLEEP 100000",
        "SHUTDOWN NOSAVE",
        "SUBSCRIBE c",
        "WATCH a",
        "MIGRATE 203.0.113.77 9 a 0 1",
        "GET a",
        "MULTI",
        "SET dropped 1",
        "DISCARD",
        "MULTI",
        "SET dropped 1",
        "RESET",
        "MULTI",
        "SET b 1",
        "EXEC",
        "PUBLISH c m",
        "SPUBLISH c m",
        "XGROUP CREATE s g $ MKSTREAM",
        "XINFO STREAM s",
        "PFADD p x",
        "PFCOUNT p",
        "SCRIPT LOAD return(1)",
        "SCRIPT FLUSH",
        "EVAL redis.call('SET','c','1') 0",
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = append_only(dir.path(), "appendonly.aof", &lines);
    let told = Server::start(Program::Tidegate, &[]);
    let said = import(text(&path), &told, &[]).unwrap();
    let started = start(Program::Tidegate, dir.path(), &["--appendonly", "yes"]);
    until(|| started.log().contains("Ready to accept connections"), "all earlier lines are in the log");
    for (server, said) in [(&told, said), (&started, started.log())] {
        let mut raw = server.raw();
        assert_eq!(raw.command(&["ACL", "USERS"]), Value::Array(vec![Value::bulk("default")]));
        let limit = Value::Array(vec![Value::bulk("maxmemory"), Value::bulk("0")]);
        assert_eq!(raw.command(&["CONFIG", "GET", "maxmemory"]), limit);
        assert_eq!(raw.command(&["SELECT", "1"]), Value::status("OK"));
        assert_eq!(raw.command(&["EXISTS", "a", "b", "c", "s", "p"]), Value::Integer(5), "{said}");
        assert_eq!(raw.command(&["EXISTS", "dropped"]), Value::Integer(0));
        assert_eq!(raw.command(&["SET", "later", "1"]), Value::status("OK"), "no client is paused");
        assert_eq!(
            raw.command(&["SCRIPT", "EXISTS", "930269f31393d0be681588b6ab08dccee7d6bb67"]),
            Value::Array(vec![Value::Integer(1)])
        );
        assert!(said.contains("left out 2 times: the command CONFIG SET"), "{said}");
        for name in
            ["ACL SETUSER", "CLIENT PAUSE", "DEBUG", "SHUTDOWN", "MIGRATE", "DISCARD", "RESET", "GET", "SCRIPT FLUSH"]
        {
            assert!(said.contains(&format!("left out: the command {name}, ")), "{name}: {said}");
        }
    }
}

/// A script without an end is stopped, and the import says why.
#[test]
fn an_endless_script_ends_an_import() {
    let dir = tempfile::tempdir().unwrap();
    let path = append_only(dir.path(), "appendonly.aof", &["SET a 1", "EVAL while(1)do\tend 0", "SET b 1"]);
    let server = Server::start(Program::Tidegate, &["--script-time-limit", "50"]);
    let refused = import(text(&path), &server, &[]).unwrap_err();
    assert!(refused.contains("script-time-limit") && refused.contains("EVAL while(1)do"), "{refused}");
    let refused = crate::durable::refusal_with(dir.path(), &["--script-time-limit", "50"]);
    assert!(refused.contains("script-time-limit") && refused.contains("EVAL while(1)do"), "{refused}");
}

#[test]
fn a_start_in_a_redis_folder_imports_once() {
    let from = Server::start(Program::Tidegate, &[]);
    fill(&mut from.raw(), &every_type());
    let wanted = contents(&from);
    let dir = tempfile::tempdir().unwrap();
    run(&["export", text(&dir.path().join("dump.rdb")), "--from", &url(&from)]).unwrap();
    let durable = || start(Program::Tidegate, dir.path(), &["--appendonly", "yes"]);
    let server = durable();
    assert_same(&wanted, &contents(&server));
    server.raw().command(&["SET", "text", "changed since"]);
    drop(server);
    let server = durable();
    assert_eq!(server.raw().command(&["GET", "text"]), Value::bulk("changed since"));
    drop(server);

    // Without the data the files are imported again. A folder that was only created holds no data.
    std::fs::remove_dir_all(dir.path().join("tidegate-data")).unwrap();
    std::fs::create_dir(dir.path().join("tidegate-data")).unwrap();
    assert_same(&wanted, &contents(&durable()));
}

/// A server killed at any point during an import leaves nothing that the next start would mistake for data.
#[test]
fn a_killed_start_imports_from_the_beginning() {
    const KEYS: usize = 150_000;
    let dir = tempfile::tempdir().unwrap();
    let mut entries = Vec::new();
    for n in 0..KEYS {
        let key = format!("key:{n:08}");
        let value = format!("value:{:030}", n * 7_919 % 1_000_003);
        entries.extend_from_slice(&[0, key.len() as u8]);
        entries.extend_from_slice(key.as_bytes());
        entries.push(value.len() as u8);
        entries.extend_from_slice(value.as_bytes());
    }
    std::fs::write(dir.path().join("dump.rdb"), snapshot(&entries)).unwrap();
    let data = dir.path().join("tidegate-data");
    let files = |ending: &str| {
        let entries = std::fs::read_dir(&data).into_iter().flatten().flatten();
        let of_kind = entries.filter(|entry| entry.path().to_string_lossy().ends_with(ending));
        of_kind.map(|entry| entry.metadata().map_or(0, |file| file.len())).collect::<Vec<u64>>()
    };
    let mut killed_half_way = 0;
    for bytes in [1, 200_000, 600_000, 1_000_000] {
        let port = free_port().to_string();
        let mut child = tidegate(&["--port", &port, "--bind", "127.0.0.1", "--appendonly", "yes", "--dir"])
            .arg(dir.path())
            .spawn()
            .unwrap();
        until(|| files(".tmp").iter().any(|len| *len >= bytes) || !files(".snap").is_empty(), "the import runs");
        child.kill().unwrap();
        child.wait().unwrap();
        if files(".snap").is_empty() {
            killed_half_way += 1;
        } else {
            std::fs::remove_dir_all(&data).unwrap();
        }
    }
    assert!(killed_half_way > 0, "too fast to be killed");
    let durable = || start(Program::Tidegate, dir.path(), &["--appendonly", "yes"]);
    let server = durable();
    assert!(files(".tmp").is_empty(), "the remains of the killed import are removed");
    let mut raw = server.raw();
    assert_eq!(raw.command(&["DBSIZE"]), Value::Integer(KEYS as i64));
    assert_eq!(raw.command(&["GET", "key:00000007"]), Value::bulk(&format!("value:{:030}", 7 * 7_919)));
    assert_eq!(raw.command(&["FLUSHALL"]), Value::status("OK"));
    drop((raw, server));
    assert_eq!(durable().raw().command(&["DBSIZE"]), Value::Integer(0), "the data is not imported a second time");
}

#[test]
fn commands_in_files_require_an_empty_target() {
    let dir = tempfile::tempdir().unwrap();
    let path = append_only(dir.path(), "a.aof", &["SET n 1", "INCR n"]);
    let server = Server::start(Program::Tidegate, &[]);
    import(text(&path), &server, &[]).unwrap();
    server.raw().command(&["INCR", "n"]);
    let refused = import(text(&path), &server, &[]).unwrap_err();
    assert!(refused.contains("already holds keys") && refused.contains("--replace"), "{refused}");
    assert_eq!(server.raw().command(&["GET", "n"]), Value::bulk("3"));
    // Commands may also follow keys.
    let both = dir.path().join("both.rdb");
    let keys = snapshot(b"\x00\x01k\x01v");
    std::fs::write(&both, [keys, std::fs::read(&path).unwrap()].concat()).unwrap();
    let refused = import(text(&both), &server, &[]).unwrap_err();
    assert!(refused.contains("already holds keys"), "{refused}");
    assert_eq!(server.raw().command(&["GET", "n"]), Value::bulk("3"));
    import(text(&path), &server, &["--replace"]).unwrap();
    assert_eq!(server.raw().command(&["GET", "n"]), Value::bulk("2"));
}

#[test]
fn inline_commands_in_a_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = append_only(dir.path(), "a.aof", &["SET a 1"]);
    let whole = std::fs::read(&path).unwrap();
    for tail in [&b"FLUSHALL\r\n"[..], b"SET b", &[0; 32]] {
        let server = Server::start(Program::Tidegate, &[]);
        std::fs::write(&path, [&whole[..], tail].concat()).unwrap();
        let refused = import(text(&path), &server, &[]).unwrap_err();
        let place = format!("offset {}: Bad file format reading the append only file", whole.len());
        assert!(refused.contains(&place), "{refused}");
    }
}

#[test]
fn a_long_transaction_is_sent_while_its_replies_are_read() {
    // More replies than all buffers on the way hold.
    const COMMANDS: usize = 1_500_000;
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = encode(&["MULTI"]);
    bytes.extend(encode(&["INCR", "n"]).repeat(COMMANDS));
    bytes.extend(encode(&["EXEC"]));
    let path = dir.path().join("long.aof");
    std::fs::write(&path, bytes).unwrap();
    let server = Server::start(Program::Tidegate, &[]);
    import(text(&path), &server, &[]).unwrap();
    assert_eq!(server.raw().command(&["GET", "n"]), Value::bulk(&COMMANDS.to_string()));
}

/// An RDB file with these entries and no checksum.
fn snapshot(entries: &[u8]) -> Vec<u8> {
    [b"REDIS0011", entries, &[0xff], &[0; 8]].concat()
}

#[test]
fn keys_of_an_unsupported_database_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (keys, commands) = (dir.path().join("a.rdb"), dir.path().join("a.aof"));
    std::fs::write(&keys, snapshot(b"\x00\x01a\x01v\xfe\x28\x00\x01b\x01v")).unwrap();
    append_only(dir.path(), "a.aof", &["SET a 1", "SELECT 40", "SET b 1"]);
    for path in [keys, commands] {
        let server = Server::start(Program::Tidegate, &[]);
        let refused = import(text(&path), &server, &[]).unwrap_err();
        assert!(refused.contains("refused database 40"), "{refused}");
        assert_eq!(server.raw().command(&["EXISTS", "b"]), Value::Integer(0));
    }
}

#[test]
fn empty_collections_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rdb");
    let entries = [
        &b"\x01\x01l\x00"[..],
        b"\x02\x01s\x00",
        b"\x04\x01h\x00",
        b"\x0b\x01i\x08\x02\0\0\0\0\0\0\0",
        b"\x10\x01p\x07\x07\0\0\0\0\0\xff",
        b"\x0e\x01q\x01\x0b\x0b\0\0\0\x0a\0\0\0\0\0\xff",
        b"\x12\x01r\x02\x02\x07\x07\0\0\0\0\0\xff\x02\x07\x07\0\0\0\0\0\xff",
        // One element behind an empty node.
        b"\x12\x01f\x02\x02\x07\x07\0\0\0\0\0\xff\x01\x01v",
        b"\x0e\x01g\x02\x0b\x0b\0\0\0\x0a\0\0\0\0\0\xff\x0e\x0e\0\0\0\x0a\0\0\0\x01\0\0\x01v\xff",
        b"\x00\x01k\x01v",
    ];
    std::fs::write(&path, snapshot(&entries.concat())).unwrap();
    let server = Server::start(Program::Tidegate, &[]);
    let said = import(text(&path), &server, &[]).unwrap();
    assert!(said.contains("3 keys") && said.contains("left out 7 times: an empty key"), "{said}");
    for list in ["f", "g"] {
        let elements = server.raw().command(&["LRANGE", list, "0", "-1"]);
        assert_eq!(elements, Value::Array(vec![Value::bulk("v")]), "{list}");
    }
}

#[test]
fn an_existing_library_is_named_in_the_refusal() {
    let server = Server::start(Program::Tidegate, &[]);
    let library = "#!lua name=mine\nredis.register_function('f', function() return 1 end)";
    server.raw().command(&["FUNCTION", "LOAD", library]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rdb");
    run(&["export", text(&path), "--from", &url(&server)]).unwrap();
    let refused = import(text(&path), &server, &[]).unwrap_err();
    assert!(refused.contains("the library mine"), "{refused}");
    import(text(&path), &server, &["--replace"]).unwrap();
}

#[test]
fn passwords_can_come_from_the_environment() {
    let server = Server::start(Program::Tidegate, &["--requirepass", "secret"]);
    let ping = |password: Option<&str>| {
        let mut command = tidegate(&["ping", "--url", &url(&server)]);
        password.map(|password| command.env("TIDEGATE_AUTH", password));
        let output = command.output().expect("the program that the other tests start");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert!(ping(None).contains("NOAUTH"));
    assert!(ping(Some("wrong")).contains("WRONGPASS"));
    assert_eq!(ping(Some("secret")), "PONG\n");
}

/// A primary with an empty snapshot, whose stream may grow.
#[derive(Clone, Default)]
struct Primary {
    stream: Arc<Mutex<Vec<u8>>>,
}

impl Primary {
    /// Listens until the test ends. Returns the address.
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("it is bound"));
        let primary = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let primary = primary.clone();
                // It ends with an error when the import hangs up.
                std::thread::spawn(move || primary.serve(stream));
            }
        });
        url
    }

    fn say(&self, lines: &[&str]) {
        let commands = lines.iter().flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>()));
        self.stream.lock().unwrap().extend(commands);
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut requests = BufReader::new(stream.try_clone()?);
        let mut line = || -> std::io::Result<String> {
            let mut line = String::new();
            match requests.read_line(&mut line)? {
                0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(line.trim_end().to_owned()),
            }
        };
        loop {
            let count: usize = line()?[1..].parse().expect("an array");
            let mut words = Vec::new();
            for _ in 0..count {
                line()?;
                words.push(line()?);
            }
            match words[0].as_str() {
                "PING" => stream.write_all(b"+PONG\r\n")?,
                "FEED" => stream.write_all(b"-ERR unknown command 'FEED', with args beginning with: 'STATE' \r\n")?,
                "REPLCONF" => stream.write_all(b"+OK\r\n")?,
                "INFO" => {
                    let said = format!("master_repl_offset:{}\r\n", self.stream.lock().unwrap().len());
                    stream.write_all(format!("${}\r\n{said}\r\n", said.len()).as_bytes())?;
                }
                "PSYNC" => {
                    let next: i64 = words[2].parse().expect("an offset");
                    if next < 0 {
                        let snapshot = snapshot(b"");
                        write!(stream, "+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), snapshot.len())?;
                        stream.write_all(&snapshot)?;
                    } else {
                        stream.write_all(b"+CONTINUE\r\n")?;
                    }
                    let mut sent = next.max(1) as usize - 1;
                    loop {
                        let more = self.stream.lock().unwrap()[sent..].to_vec();
                        stream.write_all(&more)?;
                        sent += more.len();
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                }
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_refused_command_is_not_skipped_by_the_next_run() {
    let (primary, into) = (Primary::default(), Server::start(Program::Tidegate, &[]));
    primary.say(&["SELECT 0", "SET n 1", "SET n 2", "LPUSH n x", "SET m 1"]);
    let from = primary.start();
    let args = ["import", "--follow", &from, "--into", &url(&into)];
    for _ in 0..2 {
        let refused = run(&args).unwrap_err();
        assert!(refused.contains("\"LPUSH n x\"") && refused.contains("WRONGTYPE"), "{refused}");
        assert!(refused.contains("its transaction was not applied; everything before it was"), "{refused}");
    }
    // No part of the refused transaction was applied.
    let mut target = into.raw();
    let held = |target: &mut Raw| target.command(&["MGET", "n", "m"]);
    assert_eq!(held(&mut target), Value::Array(vec![Value::Null, Value::Null]));
}

#[test]
fn two_imports_at_once_apply_nothing_twice() {
    let (primary, into) = (Primary::default(), Server::start(Program::Tidegate, &[]));
    primary.say(&["SELECT 0", "INCR n"]);
    let from = primary.start();
    let follow = || {
        let args = ["import", "--follow", &from, "--into", &url(&into)];
        Follower(tidegate(&args).spawn().expect("the program that the other tests start"))
    };
    let n = || into.raw().command(&["GET", "n"]);
    let one = follow();
    until(|| n() == Value::bulk("1"), "the first import follows");
    let mut other = follow();
    // Both wait for the next command, unless the second is slow; then it finds the command applied.
    until(
        || {
            into.raw()
                .command(&["CLIENT", "LIST"])
                .bytes()
                .is_some_and(|list| String::from_utf8_lossy(list).matches("cmd=hgetall").count() == 1)
        },
        "the second import has read the checkpoint",
    );
    primary.say(&["INCR n"]);
    let mut one = one;
    until(
        || [&mut one, &mut other].iter_mut().any(|f| f.0.try_wait().expect("our child").is_some()),
        "one of the imports ends",
    );
    assert_eq!(n(), Value::bulk("2"));
    let ended = if one.0.try_wait().expect("our child").is_some() { one } else { other };
    let said = ended.said();
    assert!(said.contains("another import is running"), "{said}");
}

#[test]
fn swapdb_does_not_move_the_checkpoint() {
    let (primary, into) = (Primary::default(), Server::start(Program::Tidegate, &[]));
    primary.say(&["SELECT 0", "SET a 1", "SELECT 3", "SET b 1"]);
    let from = primary.start();
    let args = ["import", "--follow", &from, "--into", &url(&into)];
    let follower = Follower(tidegate(&args).spawn().expect("the program that the other tests start"));
    let keys = |db: &str| {
        let mut raw = into.raw();
        raw.command(&["SELECT", db]);
        format!("{:?}", raw.command(&["KEYS", "*"]))
    };
    until(|| keys("3") == "[\"b\"]", "the import follows");
    primary.say(&["SWAPDB 0 3"]);
    until(|| keys("3") == "[\"a\"]", "the databases are swapped");
    follower.end();
    assert_eq!([keys("0"), keys("3")], ["[\"b\"]", "[\"a\"]"]);
}

/// A running `import --follow`.
struct Follower(Child);

impl Follower {
    fn start(from: &Server, into: &Server) -> Follower {
        let args = ["import", "--follow", &url(from), "--into", &url(into)];
        Follower(tidegate(&args).spawn().expect("the program that the other tests start"))
    }

    /// Ends it as Ctrl-C does. Returns its last output.
    fn end(mut self) -> String {
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) }, 0);
        let output = std::mem::replace(&mut self.0, never()).wait_with_output().expect("our own child");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    /// Returns its output, once it has ended by itself.
    fn said(mut self) -> String {
        let output = std::mem::replace(&mut self.0, never()).wait_with_output().expect("our own child");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// An idle child process, which takes the place of one that is waited for.
fn never() -> Child {
    Command::new("true").spawn().expect("a shell's tools")
}

impl Drop for Follower {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the connection of an import is open.
fn has_import(server: &Server) -> bool {
    let list = server.raw().command(&["CLIENT", "LIST"]);
    let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
    list.split_whitespace().any(|field| field.strip_prefix("flags=").is_some_and(|flags| flags.contains('I')))
}

/// The sum of some counters, which INCR has counted up.
fn sum(server: &Server, counters: usize) -> i64 {
    let mut raw = server.raw();
    let names: Vec<String> = (0..counters).map(|counter| format!("counter:{counter}")).collect();
    let Value::Array(values) = raw.command(&[vec!["MGET".to_owned()], names].concat()) else { panic!("an array") };
    let number = |value: &Value| value.bytes().map_or(0, |text| String::from_utf8_lossy(text).parse().unwrap_or(0));
    values.iter().map(number).sum::<i64>()
}

#[test]
fn a_cut_over_under_load_neither_loses_nor_repeats_increments() {
    const KEYS: usize = 100_000;
    const COUNTERS: usize = 500;
    if REDIS_SERVER.is_missing() {
        return;
    }
    let flags = ["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "256mb"];
    let (redis, into) = (Server::start(Program::Redis, &flags), Server::start(Program::Tidegate, &[]));
    let keys: Vec<Vec<String>> =
        (0..KEYS).map(|i| ["SET".to_owned(), format!("key:{i}"), format!("value:{i}")].to_vec()).collect();
    keys.chunks(10_000).for_each(|some| fill(&mut redis.raw(), some));
    let (is_over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (is_over, acknowledged) = (Arc::clone(&is_over), Arc::clone(&acknowledged));
            let mut raw = redis.raw();
            std::thread::spawn(move || {
                let mut step = writer;
                while !is_over.load(Ordering::Relaxed) {
                    let counters: [String; 4] =
                        std::array::from_fn(|i| format!("counter:{}", (step * 7 + i) % COUNTERS));
                    // Two alone, and two in a transaction.
                    let mut request = Vec::new();
                    for command in [&["INCR", &counters[0]][..], &["INCR", &counters[1]], &["MULTI"]] {
                        request.extend(encode(command));
                    }
                    for command in [&["INCR", &counters[2]][..], &["INCR", &counters[3]], &["EXEC"]] {
                        request.extend(encode(command));
                    }
                    raw.send(&request);
                    (0..6).for_each(|_| drop(raw.reply()));
                    acknowledged.fetch_add(4, Ordering::Relaxed);
                    step += 1;
                }
            })
        })
        .collect();

    let grown = |server: &Server, by: i64| {
        let before = sum(server, COUNTERS);
        until(|| sum(server, COUNTERS) >= before + by, "the imported data grows");
    };
    let follower = Follower::start(&redis, &into);
    let snapshot = || into.raw().command(&["HGET", "tidegate:import", "snapshot"]);
    until(|| snapshot() == Value::bulk("whole"), "the snapshot is there");
    grown(&into, 2_000);
    // The import is killed at random moments after the snapshot, and restarted; then its link breaks.
    drop(follower);
    // Commands it had sent may still be on their way. An import that begins before they are applied reports that
    // another is at work, and ends.
    until(|| !has_import(&into), "its connection is closed");
    let follower = Follower::start(&redis, &into);
    grown(&into, 2_000);
    redis.raw().command(&["CLIENT", "KILL", "TYPE", "replica"]);
    grown(&into, 2_000);

    is_over.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("a writer that was answered"));
    let said = follower.end();
    assert!(said.contains("continues at offset") && said.contains("the link broke"), "{said}");
    assert_eq!(sum(&redis, COUNTERS) as u64, acknowledged.load(Ordering::Relaxed));
    assert_eq!(sum(&into, COUNTERS), sum(&redis, COUNTERS));
    let sizes = [&redis, &into].map(|server| server.raw().command(&["DBSIZE"]));
    assert_eq!(sizes[0], sizes[1], "the mark of the import is gone, too");
}

#[test]
fn a_lagging_follower_keeps_keys_whose_deadline_was_extended() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let flags = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    let (redis, into) = (Server::start(Program::Redis, &flags), Server::start(Program::Tidegate, &[]));
    let mut raw = redis.raw();
    raw.command(&["SET", "a", "1"]);
    let follower = Follower::start(&redis, &into);
    until(|| into.raw().command(&["GET", "a"]) == Value::bulk("1"), "the snapshot is there");
    // Time stands still within a transaction; by the time it is sent to replicas, the first deadline has passed.
    for line in ["MULTI", "SET s v PX 1", "DEBUG SLEEP 0.05", "PEXPIRE s 1000000000", "EXEC", "SET a 2"] {
        raw.command(&line.split(' ').collect::<Vec<_>>());
    }
    until(|| into.raw().command(&["GET", "a"]) == Value::bulk("2"), "the import has caught up");
    assert_eq!(into.raw().command(&["GET", "s"]), Value::bulk("v"));
    assert_eq!(into.raw().command(&["PEXPIRETIME", "s"]), raw.command(&["PEXPIRETIME", "s"]));
    follower.end();
    assert_eq!(into.raw().command(&["GET", "s"]), Value::bulk("v"));
}

/// Without either server there is nothing to wait for.
#[test]
fn a_follower_ends_when_both_servers_are_gone() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let redis = Server::start(Program::Redis, &["--repl-diskless-sync-delay", "0"]);
    let into = Server::start(Program::Tidegate, &[]);
    redis.raw().command(&["SET", "a", "1"]);
    let follower = Follower::start(&redis, &into);
    until(|| into.raw().command(&["GET", "a"]) == Value::bulk("1"), "the snapshot is there");
    let target = url(&into);
    drop((redis, into));
    let said = follower.said();
    assert!(said.contains(&target["redis://".len()..]), "{said}");
}

#[test]
fn a_follower_that_cannot_resume_says_why() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let (redis, into) =
        (Server::start(Program::Redis, &["--repl-diskless-sync-delay", "0"]), Server::start(Program::Tidegate, &[]));
    redis.raw().command(&["SET", "a", "1"]);
    let args = ["import", "--follow", &url(&redis), "--into", &url(&into)];
    let mark = |id: &str, snapshot: &str| {
        let fields = ["source", "redis://old", "id", id, "offset", "5", "db", "0", "snapshot", snapshot];
        into.raw().command(&[&["HSET", "tidegate:import"], &fields[..]].concat());
    };
    mark(&"0".repeat(40), "whole");
    let refused = run(&args).unwrap_err();
    assert!(refused.contains("can't continue at offset 5") && refused.contains("FLUSHALL"), "{refused}");
    mark(&"0".repeat(40), "under way");
    let refused = run(&args).unwrap_err();
    assert!(refused.contains("in the middle of the snapshot"), "{refused}");
    into.raw().command(&["FLUSHALL"]);
    into.raw().command(&["SET", "mine", "1"]);
    let refused = run(&args).unwrap_err();
    assert!(refused.contains("already holds keys"), "{refused}");
    let refused = run(&["import", "--follow", "/tmp", "--into", &url(&into)]).unwrap_err();
    assert!(refused.contains("only a running server"), "{refused}");
}
