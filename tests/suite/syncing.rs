//! SYNC and PSYNC: a snapshot for any client that asks as a replica does, above all `redis-cli --rdb`.

use std::path::Path;
use std::process::Command;

use crate::harness::{Program, Raw, Server, Value, until};
use crate::moving::{assert_same, contents, every_type, fill, own_types, start, text};
use crate::oracle::{REDIS_CLI, REDIS_SERVER};

/// Makes `redis-cli` write the server's contents to a file.
fn fetch(server: &Server, flag: &str, to: &Path) {
    let output = Command::new("redis-cli").args(["-p", &server.port().to_string(), flag, text(to)]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn redis_cli_fetches_a_file_that_redis_loads() {
    if REDIS_SERVER.is_missing() || REDIS_CLI.is_missing() {
        return;
    }
    let server = Server::start(Program::Tidegate, &["--appendonly", "yes"]);
    fill(&mut server.raw(), &every_type());
    let wanted = contents(&server);
    // Types that Redis lacks are skipped and reported.
    fill(&mut server.raw(), &own_types());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump.rdb");
    fetch(&server, "--rdb", &file);
    let told = "left out of the RDB snapshot for a client: locks, gates and stocks, which Redis does not have keys=3";
    until(|| server.log().contains(told), told);
    let checked = Command::new("redis-check-rdb").arg(&file).output();
    if let Ok(checked) = checked {
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
    let redis = start(Program::Redis, dir.path(), &[]);
    assert_same(&wanted, &contents(&redis));

    // And back, at a start and by an import from the running server.
    let again = start(Program::Tidegate, dir.path(), &["--appendonly", "yes"]);
    assert_same(&wanted, &contents(&again));

    // Libraries alone.
    let libraries = tempfile::tempdir().unwrap();
    fetch(&server, "--functions-rdb", &libraries.path().join("dump.rdb"));
    let redis = start(Program::Redis, libraries.path(), &[]);
    assert_eq!(redis.raw().command(&["DBSIZE"]), Value::Integer(0));
    assert_eq!(redis.raw().command(&["FCALL", "answer", "0"]), Value::Integer(42));
}

#[test]
fn a_client_that_is_sent_a_snapshot_is_a_replica_in_client_list_and_kill() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let servers = [Program::Redis, Program::Tidegate].map(|program| Server::start(program, &[]));
    // More than the sockets hold, so that the transfer can't end, and nothing that is shorter when compressed.
    let mut state = 1_u64;
    let noise = (0..32 << 20).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let value: Vec<u8> = noise.collect();
    for server in &servers {
        let mut raw = server.raw();
        assert_eq!(raw.command(&[&b"SET"[..], b"key", &value]), Value::ok());
        let mut subscriber = server.raw();
        subscriber.command(&["SUBSCRIBE", "channel"]);
        let mut replica = server.raw();
        assert_eq!(replica.command(&["REPLCONF", "capa", "eof", "rdb-only", "1"]), Value::ok());
        replica.send_command(&["SYNC"]);
        let mut flags_of = |kind: &str| {
            let list = raw.command(&["CLIENT", "LIST", "TYPE", kind]);
            let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
            let flags = |line: &str| line.split("flags=").nth(1)?.split(' ').next().map(str::to_owned);
            list.lines().filter_map(flags).collect::<Vec<_>>()
        };
        until(|| flags_of("replica") == ["S"], "the transfer has begun");
        assert_eq!(["slave", "normal", "pubsub", "master"].map(&mut flags_of), [&["S"][..], &["N"], &["P"], &[]]);
        for (kind, killed) in [("master", 0), ("slave", 1), ("replica", 0), ("pubsub", 1), ("normal", 0)] {
            assert_eq!(raw.command(&["CLIENT", "KILL", "TYPE", kind]), Value::Integer(killed), "{kind}");
        }
        let refused = Value::error("ERR Unknown client type 'monitor'");
        assert_eq!(raw.command(&["CLIENT", "KILL", "TYPE", "monitor"]), refused);
    }
}

/// A line that ends with CRLF.
fn line(raw: &mut Raw) -> String {
    let reply = raw.reply();
    String::from_utf8_lossy(&reply.raw).trim_end().to_owned()
}

#[test]
fn a_replica_must_announce_its_capabilities() {
    let server = Server::start(Program::Tidegate, &[]);
    let error = |words: &[&str]| match server.raw().command(words) {
        Value::Error(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{words:?}: {other:?}"),
    };
    assert!(error(&["SYNC"]).contains("REPLCONF capa eof"));
    assert!(error(&["PSYNC", "?", "-1"]).contains("REPLCONF capa eof"));
    assert_eq!(error(&["REPLCONF", "capa"]), "ERR syntax error");
    assert_eq!(error(&["REPLCONF", "nosuch", "1"]), "ERR Unrecognized REPLCONF option: nosuch");
    assert_eq!(error(&["REPLCONF", "rdb-filter-only", "keys"]), "ERR Unsupported rdb-filter-only option: keys");
    assert_eq!(error(&["REPLCONF", "listening-port", "x"]), "ERR value is not an integer or out of range");
    let mut replica = server.raw();
    assert_eq!(replica.command(&["REPLCONF", "listening-port", "7000", "capa", "eof"]), Value::status("OK"));
    let refused = format!("{:?}", replica.command(&["PSYNC", "?", "-1"]));
    assert!(refused.contains("keep a replica in sync"), "{refused}");
    // A client that only wants the snapshot says so.
    assert_eq!(replica.command(&["REPLCONF", "rdb-only", "1"]), Value::status("OK"));
    replica.send_command(&["PSYNC", "?", "-1"]);
    let begun = line(&mut replica);
    let id = begun.strip_prefix("+FULLRESYNC ").and_then(|rest| rest.strip_suffix(" 0"));
    assert!(id.is_some_and(|id| id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit())), "{begun}");
    let sent = replica.read_to_end();
    assert!(
        sent.starts_with(b"$EOF:") && sent[47..].starts_with(b"REDIS0010"),
        "{:?}",
        sent.escape_ascii().to_string()
    );
    assert_eq!(sent[5..45], sent[sent.len() - 40..], "the mark is the end");
    let mut info = server.raw();
    let stats = info.command(&["INFO", "stats"]);
    assert!(String::from_utf8_lossy(stats.bytes().unwrap()).contains("sync_full:1\r\n"));
}

/// A slow reader makes the snapshot wait, but costs neither memory nor other clients' time.
#[test]
fn a_slow_reader_takes_no_memory() {
    const KEYS: usize = 2_000;
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let value = "v".repeat(20_000);
    (0..KEYS).for_each(|n| raw.send_command(&["SET", &format!("key:{n}"), &value]));
    (0..KEYS).for_each(|_| assert_eq!(raw.reply().value, Value::status("OK")));
    let mut reader = server.raw();
    assert_eq!(reader.command(&["REPLCONF", "capa", "eof"]), Value::status("OK"));
    reader.send_command(&["SYNC"]);
    let list = |raw: &mut Raw| String::from_utf8_lossy(raw.command(&["CLIENT", "LIST"]).bytes().unwrap()).into_owned();
    until(|| list(&mut raw).contains("cmd=sync"), "the client is connected");
    let unsent = |raw: &mut Raw| {
        let list = list(raw);
        let line = list.lines().find(|line| line.contains("cmd=sync")).expect("the client is connected").to_owned();
        line.split(' ').find_map(|field| field.strip_prefix("omem=")?.parse::<usize>().ok()).expect("a number")
    };
    // The walk stops when the socket accepts no more.
    let mut most = 0;
    for n in 0..3_000 {
        most = most.max(unsent(&mut raw));
        assert_eq!(raw.command(&["SET", "other", &n.to_string()]), Value::status("OK"));
    }
    assert!(most < 3 * 1024 * 1024, "{most} bytes are held for a reader that does not read");
    let sent = reader.read_to_end();
    assert!(sent.len() > KEYS * value.len(), "{} bytes", sent.len());
    assert_eq!(sent[5..45], sent[sent.len() - 40..], "the mark is the end");
    let keys = (0..KEYS).filter(|n| memchr::memmem::find(&sent, format!("key:{n}").as_bytes()).is_some()).count();
    assert_eq!(keys, KEYS);
}
