//! Shutdown of the server: which clients are still served, which output is still sent, and how the shutdown is
//! cancelled.

use std::time::{Duration, Instant};

use crate::harness::{Program, Raw, Server, Value, encode, until};

fn start(flags: &[&str]) -> (Server, Raw) {
    let server = Server::start(Program::Tidegate, flags);
    let raw = server.raw();
    (server, raw)
}

fn info(raw: &mut Raw, section: &str, name: &str) -> Option<u64> {
    let info = raw.command(&["INFO", section]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    info.lines().find_map(|line| line.strip_prefix(name)?.parse().ok())
}

fn signal(server: &Server, number: i32) {
    // SAFETY: the process was started by this test and has not been waited for.
    assert_eq!(unsafe { libc::kill(server.pid() as i32, number) }, 0);
}

fn is_ending(raw: &mut Raw) -> bool {
    info(raw, "server", "shutdown_in_milliseconds:").is_some()
}

/// A server whose snapshot takes some seconds, or as long as configured.
fn slow_to_save(keys: usize, more: &[&str]) -> (Server, Raw) {
    let (server, mut raw) = start(&[&["--save", "3600 1", "--rdb-key-save-delay", "200000"], more].concat());
    for key in 0..keys {
        raw.command(&["SET", &format!("key:{key}"), "value"]);
    }
    (server, raw)
}

const FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

#[test]
fn until_everything_is_saved_reads_are_served_and_writes_wait() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().to_str().expect("a plain path");
    let (mut server, mut raw) = slow_to_save(20, &["--dir", dir]);
    let (mut asks, mut asks_too, mut writes, mut waits) = (server.raw(), server.raw(), server.raw(), server.raw());
    waits.send_command(&["BLPOP", "list", "0"]);
    assert_eq!(raw.command(&["SHUTDOWN", "ABORT"]), Value::error("ERR No shutdown in progress."));
    asks.send_command(&["SHUTDOWN"]);
    until(|| is_ending(&mut raw), "the shutdown has begun");
    asks_too.send_command(&["SHUTDOWN"]);
    writes.send_command(&["INCR", "counter"]);
    until(|| info(&mut raw, "clients", "blocked_clients:") == Some(4), "four calls wait");
    assert_eq!(raw.command(&["GET", "key:0"]), Value::bulk("value"));
    assert_eq!(raw.command(&["GET", "counter"]), Value::Null);
    // Cancelled: everything continues.
    assert_eq!(raw.command(&["SHUTDOWN", "ABORT"]), Value::status("OK"));
    for client in [&mut asks, &mut asks_too] {
        assert_eq!(client.reply().value, Value::error(FAILED));
        assert_eq!(client.command(&["PING"]), Value::status("PONG"));
    }
    assert_eq!(writes.reply().value, Value::Integer(1));
    assert!(!is_ending(&mut raw));
    // The shutdown's own snapshot needs nothing from the other one.
    assert_eq!(raw.command(&["CONFIG", "SET", "rdb-key-save-delay", "0"]), Value::status("OK"));
    asks.send_command(&["SHUTDOWN"]);
    assert!(server.ends_well());
    for client in [&mut asks, &mut writes, &mut waits] {
        assert_eq!(client.read_to_end(), b"", "clients see nothing but the closed connection");
    }
    let (_server, mut raw) = start(&["--dir", dir]);
    assert_eq!(raw.command(&["GET", "counter"]), Value::bulk("1"));
    assert_eq!(raw.command(&["DBSIZE"]), Value::Integer(21));
}

#[test]
fn a_second_signal_or_nosave_ends_the_server_at_once() {
    for second in ["signal", "NOSAVE", "BGSAVE CANCEL"] {
        let (mut server, mut raw) = slow_to_save(200, &[]);
        signal(&server, libc::SIGTERM);
        until(|| is_ending(&mut raw), "the shutdown has begun");
        let began = Instant::now();
        match second {
            "signal" => signal(&server, libc::SIGINT),
            "NOSAVE" => raw.send_command(&["SHUTDOWN", "NOSAVE"]),
            _ => {
                // The shutdown does not finish without its snapshot.
                raw.command(&["BGSAVE", "CANCEL"]);
                until(|| !is_ending(&mut raw), "the shutdown is cancelled");
                assert_eq!(raw.command(&["SET", "k", "v"]), Value::status("OK"));
                raw.send_command(&["SHUTDOWN", "NOSAVE"]);
            }
        }
        assert!(server.ends_well());
        assert!(began.elapsed() < Duration::from_secs(20), "{second}");
    }
}

#[test]
fn signals_follow_their_configured_options() {
    let (mut server, mut raw) = slow_to_save(200, &["--shutdown-on-sigterm", "nosave now"]);
    let get = raw.command(&["CONFIG", "GET", "shutdown-on-sig*"]);
    let words = ["shutdown-on-sigint", "default", "shutdown-on-sigterm", "nosave now"];
    assert_eq!(get, Value::Array(words.map(Value::bulk).to_vec()));
    for (wrong, error) in [
        ("save nosave", "shutdown options SAVE and NOSAVE can't be used simultaneously"),
        ("later", "argument(s) must be one of the following: default, save, nosave, now, force"),
    ] {
        let text = format!("ERR CONFIG SET failed (possibly related to argument 'shutdown-on-sigint') - {error}");
        assert_eq!(raw.command(&["CONFIG", "SET", "shutdown-on-sigint", wrong]), Value::error(&text));
    }
    signal(&server, libc::SIGTERM);
    assert!(server.ends_well());
}

/// A client that reads gets all of its replies; a client that does not read delays nothing.
#[test]
fn pending_replies_are_sent_before_the_server_ends() {
    const REPLIES: usize = 40;
    let (mut server, mut raw) = start(&[]);
    let large = "x".repeat(1 << 20);
    raw.command(&["SET", "large", &large]);
    let (mut reads, mut sleeps) = (server.raw(), server.raw());
    for client in [&mut reads, &mut sleeps] {
        (0..REPLIES).for_each(|_| client.send(&encode(&["GET", "large"])));
    }
    until(
        || {
            let list = raw.command(&["CLIENT", "LIST"]);
            let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
            let unsent = |line: &&str| {
                line.split(' ').any(|word| word.starts_with("omem=") && word.len() > "omem=9999999".len())
            };
            let stats = raw.command(&["INFO", "commandstats"]);
            let stats = String::from_utf8_lossy(stats.bytes().expect("text")).into_owned();
            let all_ran = stats.contains(&format!("cmdstat_get:calls={},", 2 * REPLIES));
            list.lines().filter(unsent).count() == 2 && all_ran
        },
        "both clients have unread replies",
    );
    raw.send_command(&["SHUTDOWN"]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..REPLIES {
                assert_eq!(reads.reply().value.bytes().map(<[u8]>::len), Some(1 << 20));
            }
        });
    });
    let began = Instant::now();
    assert!(server.ends_well());
    assert!(began.elapsed() < Duration::from_secs(30));
    let told = "some clients did not read all of their replies";
    until(|| server.log().contains(told), told);
    drop(sleeps);
}
