//! A disk that hangs, under a real server. Clients that read unchanged data are still served, and no client sees a
//! write that hangs, even if the server is killed then. `slow_disk.c` is loaded before the C library.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crate::harness::{Program, REPLY_DEADLINE, Raw, Server, Value, encode, until};
use crate::power_loss::compile;

/// A client that waits for the disk is silent for longer.
const SILENCE: Duration = Duration::from_millis(100);

/// A server whose disk takes 2 ms for each sync, and hangs on request.
struct SlowDisk {
    dir: tempfile::TempDir,
    server: Option<Server>,
}

impl SlowDisk {
    /// Waits until the server has noticed that the disk is slow.
    fn new() -> SlowDisk {
        let mut disk = SlowDisk { dir: tempfile::tempdir().expect("a folder"), server: None };
        disk.start();
        let mut c = disk.raw();
        assert_eq!(c.command(&["SET", "old", "v"]), Value::status("OK"));
        disk
    }

    fn start(&mut self) {
        let environment = environment(&self.switch());
        let flags = ["--appendonly", "yes", "--dir", self.dir.path().to_str().expect("a path of plain text")];
        self.server = Some(Server::start_in(&environment, Program::Tidegate, &flags));
    }

    fn switch(&self) -> PathBuf {
        self.dir.path().join("hangs")
    }

    fn hang(&self) {
        std::fs::write(self.switch(), "").expect("a file");
    }

    fn go_on(&self) {
        std::fs::remove_file(self.switch()).expect("the file is there");
    }

    fn raw(&self) -> Raw {
        self.server.as_ref().expect("it runs").raw()
    }

    fn kill(&mut self) {
        self.server = None;
    }
}

/// Makes the disk of a server slow, and hang while there is a file `switch`.
pub(crate) fn environment(switch: &Path) -> Vec<(&'static str, String)> {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let path = |path: &Path| path.to_str().expect("a path of plain text").to_owned();
    vec![
        ("LD_PRELOAD", path(LIBRARY.get_or_init(|| compile("slow_disk")))),
        ("SLOW_DISK_US", "2000".to_owned()),
        ("SLOW_DISK_HANGS", path(switch)),
    ]
}

fn is_silent(c: &mut Raw) -> bool {
    c.try_reply(SILENCE).is_err_and(|why| why.starts_with("silence"))
}

/// One client for each command whose reply shows the effects of `SET k v` and of publishing it.
fn curious(disk: &SlowDisk) -> Vec<Raw> {
    let asked: [&[&str]; 7] = [
        &["GET", "k"],
        &["DBSIZE"],
        &["SCAN", "0"],
        &["KEYS", "*"],
        &["EVAL", "return redis.call('EXISTS', 'k')", "0"],
        &["SETNX", "k", "w"],
        &["INFO"],
    ];
    asked
        .map(|command| {
            let mut c = disk.raw();
            c.send_command(command);
            c
        })
        .into()
}

#[test]
fn readers_of_other_keys_are_answered_while_the_disk_hangs() {
    let disk = SlowDisk::new();
    let (mut reader, mut writer, mut subscriber, mut blocked, mut leaver) =
        (disk.raw(), disk.raw(), disk.raw(), disk.raw(), disk.raw());
    let mut half_closed = disk.raw();
    subscriber.command(&["SUBSCRIBE", "news"]);
    blocked.send_command(&["BLPOP", "l", "0"]);
    until(|| format!("{:?}", reader.command(&["INFO", "clients"])).contains("blocked_clients:1"), "the call waits");
    disk.hang();
    writer.send_command(&["EVAL", "redis.call('SET','k','v') redis.call('PUBLISH','news','k')", "0"]);
    leaver.send(&[encode(&["RPUSH", "l", "a"]), encode(&["QUIT"])].concat());
    half_closed.send_command(&["SET", "h", "v"]);
    half_closed.send_no_more();
    assert!(is_silent(&mut writer));
    let mut curious = curious(&disk);
    for _ in 0..100 {
        assert_eq!(reader.command(&["GET", "old"]), Value::bulk("v"));
        assert_eq!(reader.command(&["MGET", "old", "nosuch"]), Value::Array(vec![Value::bulk("v"), Value::Null]));
    }
    assert_eq!(disk.raw().command(&["PING"]), Value::status("PONG"), "newcomers are served");
    for c in curious.iter_mut().chain([&mut writer, &mut subscriber, &mut blocked, &mut leaver, &mut half_closed]) {
        assert!(is_silent(c));
    }
    disk.go_on();
    for c in curious.iter_mut().chain([&mut writer, &mut subscriber, &mut blocked]) {
        c.try_reply(REPLY_DEADLINE).expect("the disk is done");
    }
    assert_eq!(half_closed.read_to_end(), b"+OK\r\n", "a half-closed client still gets its replies");
    assert_eq!(leaver.read_to_end(), b":1\r\n+OK\r\n", "a closing client gets its replies first");
}

#[test]
fn a_write_that_hangs_until_the_server_is_killed_is_never_shown() {
    let mut disk = SlowDisk::new();
    let mut writer = disk.raw();
    disk.hang();
    writer.send_command(&["SET", "k", "v"]);
    assert!(is_silent(&mut writer));
    let mut curious = curious(&disk);
    curious.iter_mut().for_each(|c| assert!(is_silent(c)));
    disk.kill();
    for c in curious.iter_mut().chain([&mut writer]) {
        assert_eq!(c.read_to_end(), b"", "no reply or message was sent");
    }
    disk.go_on();
    disk.start();
    assert_eq!(disk.raw().command(&["GET", "old"]), Value::bulk("v"));
}

#[test]
fn new_clients_are_served_while_a_lone_client_waits_for_the_disk() {
    let disk = SlowDisk::new();
    let mut writer = disk.raw();
    disk.hang();
    writer.send_command(&["SET", "k", "v"]);
    assert!(is_silent(&mut writer));
    assert_eq!(disk.raw().command(&["GET", "old"]), Value::bulk("v"));
    disk.go_on();
    assert_eq!(writer.try_reply(REPLY_DEADLINE).expect("the disk is done").value, Value::status("OK"));
}

/// Writes are synced only when a client asks for that, and no other client waits for it.
#[test]
fn waitaof_delays_no_other_client_under_any_policy() {
    let disk = SlowDisk::new();
    let (mut reader, mut asks) = (disk.raw(), disk.raw());
    for policy in ["everysec", "no"] {
        assert_eq!(asks.command(&["CONFIG", "SET", "appendfsync", policy]), Value::status("OK"));
        disk.hang();
        assert_eq!(asks.command(&["SET", "k", policy]), Value::status("OK"));
        asks.send_command(&["WAITAOF", "1", "0", "0"]);
        for _ in 0..100 {
            assert_eq!(reader.command(&["GET", "old"]), Value::bulk("v"));
        }
        assert!(is_silent(&mut asks));
        disk.go_on();
        let logged = asks.try_reply(REPLY_DEADLINE).expect("the disk is done").value;
        assert_eq!(logged, Value::Array(vec![Value::Integer(1), Value::Integer(0)]), "{policy}");
    }
}

#[test]
fn changing_the_journal_or_its_policy_delays_no_other_client() {
    let disk = SlowDisk::new();
    let (mut reader, mut asks) = (disk.raw(), disk.raw());
    assert_eq!(asks.command(&["CONFIG", "SET", "appendfsync", "everysec"]), Value::status("OK"));
    for (name, value, before) in [("appendfsync", "no", "everysec"), ("appendonly", "no", "yes")] {
        disk.hang();
        assert_eq!(asks.command(&["SET", "k", name]), Value::status("OK"));
        asks.send_command(&["CONFIG", "SET", name, value]);
        for _ in 0..100 {
            assert_eq!(reader.command(&["GET", "old"]), Value::bulk("v"));
        }
        assert!(is_silent(&mut asks), "{name}: earlier changes are not on disk");
        let now = reader.command(&["CONFIG", "GET", name]);
        assert_eq!(now, Value::Array(vec![Value::bulk(name), Value::bulk(before)]));
        disk.go_on();
        let said = asks.try_reply(REPLY_DEADLINE).expect("the disk is done").value;
        assert_eq!(said, Value::status("OK"), "{name}");
        let now = reader.command(&["CONFIG", "GET", name]);
        assert_eq!(now, Value::Array(vec![Value::bulk(name), Value::bulk(value)]));
    }
    // Nothing in a transaction waits: all of it is done at once, and no reply is sent before the disk is done.
    assert_eq!(asks.command(&["CONFIG", "SET", "appendonly", "yes"]), Value::status("OK"));
    until(
        || format!("{:?}", asks.command(&["INFO", "persistence"])).contains("aof_rewrite_in_progress:0"),
        "the journal begins",
    );
    assert_eq!(asks.command(&["CONFIG", "SET", "appendfsync", "everysec"]), Value::status("OK"));
    disk.hang();
    let change =
        [&["SET", "k", "w"][..], &["MULTI"], &["CONFIG", "SET", "appendonly", "no"], &["SET", "k", "v"], &["EXEC"]];
    asks.send(&change.map(encode).concat());
    assert!(is_silent(&mut asks));
    disk.go_on();
    let answers: Vec<Value> = (0..5).map(|_| asks.reply().value).collect();
    assert_eq!(answers[4], Value::Array(vec![Value::status("OK"), Value::status("OK")]));
}

#[test]
fn a_setting_that_waits_for_the_disk_is_dropped_with_its_client() {
    let disk = SlowDisk::new();
    let (mut other, mut asks) = (disk.raw(), disk.raw());
    assert_eq!(asks.command(&["CONFIG", "SET", "appendfsync", "everysec"]), Value::status("OK"));
    let Value::Integer(id) = asks.command(&["CLIENT", "ID"]) else { panic!("an id is a number") };
    disk.hang();
    assert_eq!(asks.command(&["SET", "k", "v"]), Value::status("OK"));
    asks.send_command(&["CONFIG", "SET", "appendonly", "no"]);
    assert!(is_silent(&mut asks));
    assert_eq!(other.command(&["CLIENT", "KILL", "ID", &id.to_string()]), Value::Integer(1));
    disk.go_on();
    let logged = other.command(&["WAITAOF", "1", "0", "0"]);
    assert_eq!(logged, Value::Array(vec![Value::Integer(1), Value::Integer(0)]));
    assert_eq!(
        other.command(&["CONFIG", "GET", "appendonly"]),
        Value::Array(["appendonly", "yes"].map(Value::bulk).into())
    );
    // Another client may change it.
    assert_eq!(other.command(&["CONFIG", "SET", "appendonly", "no"]), Value::status("OK"));
}

#[test]
fn the_latency_monitor_records_a_slow_disk() {
    let disk = SlowDisk::new();
    let mut c = disk.raw();
    assert_eq!(c.command(&["CONFIG", "SET", "latency-monitor-threshold", "2"]), Value::status("OK"));
    assert_eq!(c.command(&["SET", "k", "v"]), Value::status("OK"));
    let sees = |c: &mut Raw, event: &str| format!("{:?}", c.command(&["LATENCY", "LATEST"])).contains(event);
    until(|| sees(&mut c, "\"aof-fsync-always\""), "a sync of 2 ms is noted");
    assert!(!sees(&mut c, "\"aof-fsync\""), "the replies waited for the sync");
}
