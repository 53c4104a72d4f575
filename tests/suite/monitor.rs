//! MONITOR: which commands, transactions and scripts it shows, to which clients and when, and which it shows to no
//! client.

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value, encode};

on_both!(
    commands_are_shown_as_they_were_called,
    calls_of_transactions_and_scripts_are_shown_in_order,
    secrets_are_never_shown,
    a_monitor_counts_as_a_replica_until_reset,
    a_monitor_that_does_not_read_is_disconnected,
);

/// A client that runs MONITOR.
fn start_monitor(server: &Server) -> Raw {
    let mut raw = server.raw();
    assert_eq!(raw.command(&["MONITOR"]), Value::status("OK"));
    raw
}

/// Returns the next lines, without the time, up to the one that shows `PING end`, which this sends.
fn lines(monitor: &mut Raw, by: &mut Raw) -> Vec<String> {
    by.command(&["PING", "end"]);
    let mut lines = Vec::new();
    loop {
        let line = line(monitor);
        if line.ends_with("\"PING\" \"end\"") {
            return lines;
        }
        lines.push(line);
    }
}

/// One line: database, whether a script called, arguments.
fn line(monitor: &mut Raw) -> String {
    let Value::Status(line) = monitor.reply().value else { panic!("a line is a status") };
    let line = String::from_utf8(line).expect("bytes beyond ASCII are escaped");
    let (time, rest) = line.split_once(" [").expect("the time");
    let (seconds, micros) = time.split_once('.').expect("seconds and microseconds");
    assert!(seconds.parse::<u64>().is_ok_and(|seconds| seconds > 1_700_000_000) && micros.len() == 6, "{line}");
    let (caller, args) = rest.split_once("] ").expect("the caller");
    let (db, address) = caller.split_once(' ').expect("the database");
    let who = if address == "lua" { "lua" } else { "client" };
    assert!(address == "lua" || address.starts_with("127.0.0.1:"), "{line}");
    format!("{db} {who} {args}")
}

fn commands_are_shown_as_they_were_called(program: Program) {
    let server = Server::start(program, &[]);
    let (mut monitor, mut client, mut other) = (start_monitor(&server), server.raw(), server.raw());
    let mut late = start_monitor(&server);
    client.command(&[b"set".as_slice(), b"a\r\n\"\\", b"\x00\xff~ \t"]);
    client.command(&["GeT", "a"]);
    // A command that never ran is not shown; a failed one is.
    client.command(&["GET"]);
    client.command(&["NOSUCH", "x"]);
    client.command(&["LPUSH", "list", "x"]);
    client.command(&["INCR", "list"]);
    client.command(&["SELECT", "7"]);
    // Commands of administrators are never shown.
    client.command(&["CONFIG", "GET", "maxmemory"]);
    client.command(&["CLIENT", "LIST"]);
    client.command(&["CLIENT", "GETNAME"]);
    // A waiting call is shown once.
    client.send_command(&["BLPOP", "queue", "0"]);
    while !String::from_utf8_lossy(other.command(&["CLIENT", "LIST"]).bytes().expect("text")).contains("flags=b") {}
    other.command(&["SELECT", "7"]);
    other.command(&["RPUSH", "queue", "x"]);
    assert!(matches!(client.reply().value, Value::Array(_)));
    let expected = [
        r#"0 client "set" "a\r\n\"\\" "\x00\xff~ \t""#,
        r#"0 client "GeT" "a""#,
        r#"0 client "LPUSH" "list" "x""#,
        r#"0 client "INCR" "list""#,
        r#"7 client "SELECT" "7""#,
        r#"7 client "CLIENT" "GETNAME""#,
        r#"7 client "BLPOP" "queue" "0""#,
        r#"7 client "SELECT" "7""#,
        r#"7 client "RPUSH" "queue" "x""#,
    ];
    assert_eq!(lines(&mut monitor, &mut client), expected);
    for line in expected {
        assert_eq!(self::line(&mut late), line);
    }
}

fn calls_of_transactions_and_scripts_are_shown_in_order(program: Program) {
    let server = Server::start(program, &[]);
    let (mut monitor, mut client) = (start_monitor(&server), server.raw());
    for command in
        [&["MULTI"][..], &["SET", "a", "1"], &["EVAL", "redis.call('incr', 'a')", "0"], &["GET", "a"], &["EXEC"]]
    {
        client.command(command);
    }
    // A refused transaction is over, too.
    for command in [&["MULTI"][..], &["NOSUCH"], &["EXEC"]] {
        client.command(command);
    }
    let failing = "redis.call('select', 3) redis.call('set', 'a', 'x') redis.call('nosuch') return 1";
    client.command(&["EVAL", failing, "0"]);
    client.command(&[
        "FUNCTION",
        "LOAD",
        "#!lua name=l\nredis.register_function('f', function(k) return redis.call('get', k[1]) end)",
    ]);
    client.command(&["FCALL", "f", "1", "a"]);
    let eval = |text: &str| format!("0 client \"EVAL\" \"{text}\" \"0\"");
    let expected = [
        r#"0 client "MULTI""#.to_owned(),
        r#"0 client "SET" "a" "1""#.to_owned(),
        eval("redis.call('incr', 'a')"),
        r#"0 lua "incr" "a""#.to_owned(),
        r#"0 client "GET" "a""#.to_owned(),
        r#"0 client "EXEC""#.to_owned(),
        r#"0 client "MULTI""#.to_owned(),
        r#"0 client "EXEC""#.to_owned(),
        eval(failing),
        r#"3 lua "select" "3""#.to_owned(),
        r#"3 lua "set" "a" "x""#.to_owned(),
        r#"0 client "FUNCTION" "LOAD" "#.to_owned()
            + r##""#!lua name=l\nredis.register_function('f', function(k) return redis.call('get', k[1]) end)""##,
        r#"0 client "FCALL" "f" "1" "a""#.to_owned(),
        r#"0 lua "get" "a""#.to_owned(),
    ];
    assert_eq!(lines(&mut monitor, &mut client), expected);
}

/// Every command that takes secrets, with `SECRET` in their places.
const WITH_SECRETS: &[&str] = &[
    "AUTH SECRET",
    "AUTH user SECRET",
    "HELLO 2 AUTH user SECRET SETNAME name",
    "MIGRATE 127.0.0.1 1 key 0 10 AUTH SECRET",
    "MIGRATE 127.0.0.1 1 key 0 10 AUTH2 user SECRET",
    "ACL SETUSER somebody on >SECRET",
    "CONFIG SET requirepass SECRET",
    "CONFIG SET requirepass ",
];

/// Commands that are asked about, written as an option of another command, or misspelt.
#[test]
fn a_command_that_does_not_run_shows_no_secret() {
    let server = Server::start(Program::Tidegate, &["--slowlog-log-slower-than", "0"]);
    let (mut monitor, mut client) = (start_monitor(&server), server.raw());
    for line in [
        "COMMAND GETKEYS MIGRATE 127.0.0.1 1 key 0 10 AUTH SECRET",
        "COMMAND GETKEYSANDFLAGS MIGRATE 127.0.0.1 1 key 0 10 AUTH2 user SECRET",
        "COMMAND GETKEYS ONCE id EX 5 MIGRATE 127.0.0.1 1 key 0 10 AUTH SECRET",
        "SCRIPT TRACE AUTH SECRET 0",
        "ONCE id 1000 CONFIG SET requirepass SECRET",
        "ONCE id AUTH SECRET",
        "ONCE id EX 5 AUHT SECRET",
        "ONCE id EX 5 CONFIG SETT requirepass SECRET",
        "COMMAND GETKEYS AUHT SECRET",
        "CONFIG SET primaryauth SECRET",
        "CONFIG SET maxmemory requirepass SECRET",
        "HELLO AUTH user SECRET",
    ] {
        client.command(&line.split(' ').collect::<Vec<_>>());
    }
    let shown = lines(&mut monitor, &mut client).concat();
    let slow = format!("{:?}", client.command(&["SLOWLOG", "GET", "-1"]));
    assert!(!shown.contains("SECRET") && slow.contains("(redacted)") && !slow.contains("SECRET"), "{shown}\n{slow}");
}

fn secrets_are_never_shown(program: Program) {
    let server = Server::start(program, &["--slowlog-log-slower-than", "0"]);
    let (mut monitor, mut client) = (start_monitor(&server), server.raw());
    client.command(&["AUTH", "SECRET"]);
    for line in WITH_SECRETS {
        client.command(&line.split(' ').collect::<Vec<_>>());
    }
    let shown = lines(&mut monitor, &mut client);
    assert!(shown.iter().filter(|line| line.contains("(redacted)")).count() >= 5, "{shown:?}");
    assert!(!shown.concat().contains("SECRET"), "{shown:?}");
    let slow = format!("{:?}", client.command(&["SLOWLOG", "GET", "-1"]));
    assert!(slow.contains("(redacted)") && !slow.contains("SECRET"), "{slow}");
    let clients = format!("{:?}", client.command(&["CLIENT", "LIST"]));
    assert!(!clients.contains("SECRET"), "{clients}");
    let refused = format!("{:?}", client.command(&["ACL", "LOG"]));
    assert!(refused.contains("auth") && !refused.contains("SECRET"), "{refused}");
    assert!(!server.log().contains("SECRET"));
}

fn a_monitor_counts_as_a_replica_until_reset(program: Program) {
    let server = Server::start(program, &[]);
    let (mut monitor, mut client) = (start_monitor(&server), server.raw());
    let flags = |client: &mut Raw| {
        let list = client.command(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
        String::from_utf8_lossy(list.bytes().expect("text")).matches("flags=O").count()
    };
    assert_eq!(flags(&mut client), 1);
    let refused = Value::error("ERR Replica can't interact with the keyspace");
    for command in [&["GET", "a"][..], &["SET", "a", "1"], &["PUBLISH", "c", "m"], &["EVAL", "return 1", "0"]] {
        assert_eq!(monitor.command(command), refused, "{command:?}");
    }
    // The name that it gives itself is shown behind the reply.
    assert_eq!(monitor.command(&["PING", "self"]), Value::bulk("self"));
    assert_eq!(line(&mut monitor), r#"0 client "PING" "self""#);
    // Not in a transaction, whose end it could not see.
    client.command(&["MULTI"]);
    client.command(&["MONITOR"]);
    let Value::Array(replies) = client.command(&["EXEC"]) else { panic!("EXEC answers an array") };
    assert_eq!(replies, [Value::error("ERR MONITOR isn't allowed for DENY BLOCKING client")]);
    assert_eq!([line(&mut monitor), line(&mut monitor)], [r#"0 client "MULTI""#, r#"0 client "EXEC""#]);
    assert_eq!(monitor.command(&["RESET"]), Value::status("RESET"));
    assert_eq!(flags(&mut client), 0);
    client.command(&["SET", "a", "1"]);
    assert_eq!(monitor.command(&["GET", "a"]), Value::bulk("1"));
    // A monitor that disconnects without a word leaves no observer behind.
    let mut monitor = start_monitor(&server);
    monitor.send_command(&["QUIT"]);
    monitor.read_to_end();
    while flags(&mut client) > 0 {}
    assert_eq!(client.command(&["GET", "a"]), Value::bulk("1"));
}

fn a_monitor_that_does_not_read_is_disconnected(program: Program) {
    let server = Server::start(program, &["--client-output-buffer-limit", "normal 1000000 0 0"]);
    let (_monitor, mut client) = (start_monitor(&server), server.raw());
    let value = "x".repeat(100_000);
    let is_there = |client: &mut Raw| {
        let list = client.command(&["CLIENT", "LIST"]);
        String::from_utf8_lossy(list.bytes().expect("text")).contains("flags=O")
    };
    // The sockets hold some megabytes.
    let mut sent = 0;
    while is_there(&mut client) {
        assert!(sent < 1_000, "the monitor is still connected");
        client.command(&["SET", "key", &value]);
        sent += 1;
    }
}

/// The limit for replicas holds where ordinary clients have no limit.
#[test]
fn a_monitor_has_the_output_limit_of_replicas() {
    let server = Server::start(Program::Tidegate, &["--client-output-buffer-limit", "replica 1000000 0 0"]);
    let (_monitor, mut client) = (start_monitor(&server), server.raw());
    let value = "x".repeat(100_000);
    let is_closed = (0..1_000).any(|_| {
        client.command(&["SET", "key", &value]);
        let list = client.command(&["CLIENT", "LIST"]);
        !String::from_utf8_lossy(list.bytes().expect("text")).contains("flags=O")
    });
    assert!(is_closed);
}

/// With a journal, lines come when the effects they show are written. This also holds for scripts and transactions,
/// whether they succeed or fail.
#[test]
fn lines_wait_for_the_journal() {
    let server = Server::start(Program::Tidegate, &["--appendonly", "yes"]);
    let (mut monitor, mut client) = (start_monitor(&server), server.raw());
    let failing = "redis.call('set', 'a', '2') error('x')";
    let commands = [
        &["SET", "a", "1"][..],
        &["MULTI"],
        &["INCR", "a"],
        &["EVAL", failing, "0"],
        &["EXEC"],
        &["EVAL", failing, "0"],
    ];
    client.send(&commands.iter().flat_map(|command| encode(command)).collect::<Vec<_>>());
    commands.iter().for_each(|_| drop(client.reply()));
    let eval = format!("0 client \"EVAL\" \"{failing}\" \"0\"");
    let expected = [
        r#"0 client "SET" "a" "1""#,
        r#"0 client "MULTI""#,
        r#"0 client "INCR" "a""#,
        &eval,
        r#"0 lua "set" "a" "2""#,
        r#"0 client "EXEC""#,
        &eval,
        r#"0 lua "set" "a" "2""#,
    ];
    assert_eq!(lines(&mut monitor, &mut client), expected);
}

/// A monitor is served beside a busy script, and sees which script is busy.
#[test]
fn a_monitor_sees_commands_served_beside_a_busy_script() {
    let server = Server::start(Program::Tidegate, &["--busy-reply-threshold", "20"]);
    let (mut monitor, mut client, mut runner) = (start_monitor(&server), server.raw(), server.raw());
    runner.send_command(&["EVAL", "while true do end", "0"]);
    assert_eq!(line(&mut monitor), r#"0 client "EVAL" "while true do end" "0""#);
    let is_busy = |reply: &Value| matches!(reply, Value::Error(text) if text.starts_with(b"BUSY"));
    while !is_busy(&client.command(&["PING"])) {}
    assert!(matches!(client.command(&["AUTH", "x"]), Value::Error(_)));
    assert_eq!(line(&mut monitor), r#"0 client "AUTH" "(redacted)""#);
    // Lines of its own commands follow their replies.
    assert!(matches!(monitor.command(&["HELLO"]), Value::Array(_)));
    assert_eq!(line(&mut monitor), r#"0 client "HELLO""#);
    assert_eq!(monitor.command(&["RESET"]), Value::status("RESET"));
    client.command(&["SCRIPT", "KILL"]);
    assert!(matches!(runner.reply().value, Value::Error(_)));
    assert_eq!(monitor.command(&["GET", "a"]), Value::Null);
}
