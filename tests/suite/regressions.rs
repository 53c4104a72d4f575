//! Faults that were found once and must not come back: each test says what went wrong.

use std::time::{Duration, Instant};

use crate::harness::{Program, Raw, Server, Value};

/// How long to wait for something that must happen soon.
const SOON: Duration = Duration::from_secs(20);

fn start(flags: &[&str]) -> Server {
    Server::start(Program::Tidegate, flags)
}

/// Asks again and again until the answer is as wanted.
fn until(mut holds: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < SOON, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn info(raw: &mut Raw, field: &str) -> u64 {
    let text = raw.command(&["INFO", "everything"]);
    let text = String::from_utf8_lossy(text.bytes().expect("INFO answers text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect("the field is there");
    line.parse().expect("a number")
}

#[test]
fn watch_sees_what_a_woken_call_of_another_client_changes() {
    let server = start(&[]);
    let (mut watcher, mut waiter) = (server.raw(), server.raw());
    waiter.send_command(&["BLMOVE", "queue", "watched", "LEFT", "RIGHT", "0"]);
    until(|| info(&mut watcher, "blocked_clients") == 1, "the client blocks");
    watcher.command(&["WATCH", "watched"]);
    // This push wakes the other client, whose move changes the watched key before anything else runs.
    assert_eq!(watcher.command(&["LPUSH", "queue", "x"]), Value::Integer(1));
    watcher.command(&["MULTI"]);
    watcher.command(&["PING"]);
    assert_eq!(watcher.command(&["EXEC"]), Value::Null);
}

#[test]
fn a_waiting_client_that_leaves_takes_nothing() {
    let server = start(&[]);
    let mut other = server.raw();
    let mut leaver = server.raw();
    leaver.send_command(&["BLPOP", "queue", "0"]);
    until(|| info(&mut other, "blocked_clients") == 1, "the client blocks");
    // More than is read at once: the end of the connection lies behind it.
    leaver.send("PING\r\n".repeat(40_000).as_bytes());
    drop(leaver);
    until(|| info(&mut other, "blocked_clients") == 0, "its leaving is noticed");
    assert_eq!(other.command(&["RPUSH", "queue", "x"]), Value::Integer(1));
    assert_eq!(other.command(&["LLEN", "queue"]), Value::Integer(1));
}

#[test]
fn a_signal_ends_an_endless_script() {
    let mut server = start(&["--busy-reply-threshold", "50"]);
    let (mut runner, mut other) = (server.raw(), server.raw());
    runner.send_command(&["EVAL", "while true do end", "0"]);
    until(|| matches!(other.command(&["PING"]), Value::Error(_)), "the script is busy");
    let pid = i32::try_from(server.pid()).expect("a process id");
    // SAFETY: a signal to a process that this test has started.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    until(|| server.has_ended(), "the server ends");
}

#[test]
fn ordinary_clients_are_held_to_their_output_limit() {
    let server = start(&["--client-output-buffer-limit", "normal", "1mb", "0", "0"]);
    let mut other = server.raw();
    other.command(&["SETRANGE", "big", "1000000", "x"]);
    let mut greedy = server.raw();
    greedy.send("GET big\r\n".repeat(60).as_bytes());
    until(|| info(&mut other, "client_output_buffer_limit_disconnections") == 1, "who does not read is closed");
}

#[test]
fn a_broken_transaction_keeps_no_commands() {
    let server = start(&[]);
    let mut raw = server.raw();
    raw.command(&["MULTI"]);
    raw.command(&["NOSUCH"]);
    let long = "x".repeat(100_000);
    for _ in 0..50 {
        assert_eq!(raw.command(&["SET", "k", &long]), Value::status("QUEUED"));
    }
    let mut other = server.raw();
    let list = other.command(&["CLIENT", "LIST"]);
    let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
    let held = list.split(" multi-mem=").skip(1).filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(held.max().expect("the field is there") < 10_000, "{list}");
}
