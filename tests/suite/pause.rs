//! CLIENT PAUSE: which calls wait for its end and which do not. It must not change any client's order, and the data
//! must stand still. The same tests run against Redis, except for behaviour introduced in 7.2.

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value, until};

on_both!(
    writes_wait_and_reads_do_not,
    scripts_wait_unless_they_declare_that_they_only_read,
    a_transaction_waits_only_if_a_command_in_it_would,
    a_paused_pipeline_continues_where_it_stopped,
    postponed_calls_run_in_order_of_arrival,
    a_pause_ends_by_itself,
    nothing_expires_during_a_pause,
    arguments_are_checked,
);

fn pause(raw: &mut Raw, mode: &str) {
    assert_eq!(raw.command(&["CLIENT", "PAUSE", "60000", mode]), Value::ok());
}

fn unpause(raw: &mut Raw) {
    assert_eq!(raw.command(&["CLIENT", "UNPAUSE"]), Value::ok());
}

fn blocked(raw: &mut Raw) -> u64 {
    field(raw, "clients", "blocked_clients:")
}

fn field(raw: &mut Raw, section: &str, name: &str) -> u64 {
    let info = raw.command(&["INFO", section]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    info.lines().find_map(|line| line.strip_prefix(name)).expect("INFO tells").parse().expect("a number")
}

fn until_blocked(raw: &mut Raw, number: u64) {
    until(|| blocked(raw) == number, "the clients are postponed");
}

fn writes_wait_and_reads_do_not(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    let mut other = server.raw();
    raw.command(&["SET", "k", "v"]);
    pause(&mut raw, "WRITE");
    for command in [&["GET", "k"][..], &["PING"], &["CONFIG", "GET", "port"], &["SUBSCRIBE", "c"], &["UNSUBSCRIBE"]] {
        assert!(!matches!(other.command(command), Value::Error(_)), "{command:?}");
    }
    // An unknown command is refused at once.
    assert!(matches!(other.command(&["SET", "k"]), Value::Error(_)));
    for command in [&["SET", "k", "w"][..], &["PFCOUNT", "hll"], &["PUBLISH", "c", "m"], &["DEL", "k"], &["FLUSHALL"]] {
        let mut writer = server.raw();
        writer.send_command(command);
        until_blocked(&mut raw, 1);
        unpause(&mut raw);
        assert!(!matches!(writer.reply().value, Value::Error(_)), "{command:?}");
        pause(&mut raw, "WRITE");
    }
    let mut list = server.raw();
    list.send_command(&["SET", "k", "w"]);
    until_blocked(&mut raw, 1);
    let clients = raw.command(&["CLIENT", "LIST"]);
    assert!(String::from_utf8_lossy(clients.bytes().expect("text")).contains(" flags=b "));
    // A client that leaves is forgotten.
    drop(list);
    until_blocked(&mut raw, 0);
    unpause(&mut raw);
    assert_eq!(raw.command(&["GET", "k"]), Value::Null);
}

fn scripts_wait_unless_they_declare_that_they_only_read(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    let mut other = server.raw();
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)\n\
                   redis.register_function{function_name='g', callback=function() return 2 end, flags={'no-writes'}}";
    raw.command(&["FUNCTION", "LOAD", library]);
    let reader = "#!lua flags=no-writes\nreturn 3";
    let Value::Bulk(sha) = raw.command(&["SCRIPT", "LOAD", reader]) else { panic!("no SHA1") };
    let sha = String::from_utf8(sha).expect("text");
    pause(&mut raw, "WRITE");
    for (command, reply) in [
        (&["EVAL", reader, "0"][..], 3),
        (&["EVALSHA", &sha, "0"], 3),
        (&["FCALL", "g", "0"], 2),
        (&["EVAL_RO", "return 4", "0"], 4),
    ] {
        assert_eq!(other.command(command), Value::Integer(reply));
    }
    for (command, reply) in
        [(&["EVAL", "return 5", "0"][..], 5), (&["EVAL", "#!lua\nreturn 6", "0"], 6), (&["FCALL", "f", "0"], 1)]
    {
        other.send_command(command);
        until_blocked(&mut raw, 1);
        unpause(&mut raw);
        assert_eq!(other.reply().value, Value::Integer(reply));
        pause(&mut raw, "WRITE");
    }
}

fn a_transaction_waits_only_if_a_command_in_it_would(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    let (mut reader, mut writer) = (server.raw(), server.raw());
    for (client, command) in [(&mut reader, &["GET", "k"][..]), (&mut writer, &["SET", "k", "v"])] {
        assert_eq!(client.command(&["MULTI"]), Value::ok());
        assert_eq!(client.command(command), Value::status("QUEUED"));
    }
    pause(&mut raw, "WRITE");
    assert_eq!(reader.command(&["EXEC"]), Value::Array(vec![Value::Null]));
    writer.send_command(&["EXEC"]);
    until_blocked(&mut raw, 1);
    assert_eq!(raw.command(&["GET", "k"]), Value::Null);
    unpause(&mut raw);
    assert_eq!(writer.reply().value, Value::Array(vec![Value::ok()]));
    // A pause that begins in a transaction takes effect after it.
    for command in [&["MULTI"][..], &["SET", "a", "1"], &["CLIENT", "PAUSE", "60000", "WRITE"], &["SET", "b", "2"]] {
        raw.command(command);
    }
    assert_eq!(raw.command(&["EXEC"]), Value::Array(vec![Value::ok(), Value::ok(), Value::ok()]));
    writer.send_command(&["SET", "c", "3"]);
    until_blocked(&mut raw, 1);
    let all = Value::Array(vec![Value::bulk("1"), Value::bulk("2"), Value::Null]);
    assert_eq!(raw.command(&["MGET", "a", "b", "c"]), all);
    // QUIT is not held up.
    assert_eq!(reader.command(&["MULTI"]), Value::ok());
    assert_eq!(reader.command(&["DISCARD"]), Value::ok());
}

fn a_paused_pipeline_continues_where_it_stopped(program: Program) {
    const COMMANDS: i64 = 1_000;
    let (server, mut raw) = Server::with_client(program);
    let mut other = server.raw();
    // The pause begins in the middle of one read.
    let mut pipeline = Vec::new();
    for n in 0..COMMANDS {
        if n == COMMANDS / 2 {
            pipeline.extend(crate::harness::encode(&["CLIENT", "PAUSE", "60000", "WRITE"]));
        }
        pipeline.extend(crate::harness::encode(&["INCR", "n"]));
        pipeline.extend(crate::harness::encode(&["GET", "n"]));
    }
    other.send(&pipeline);
    let expect = |from: i64, to: i64, other: &mut Raw| {
        for n in from..to {
            assert_eq!(other.reply().value, Value::Integer(n + 1));
            assert_eq!(other.reply().value, Value::bulk(&(n + 1).to_string()));
        }
    };
    expect(0, COMMANDS / 2, &mut other);
    assert_eq!(other.reply().value, Value::ok());
    until_blocked(&mut raw, 1);
    assert_eq!(raw.command(&["GET", "n"]), Value::bulk(&(COMMANDS / 2).to_string()));
    // A reply that a client has turned off stays off after the pause.
    let mut quiet = server.raw();
    quiet.send_command(&["CLIENT", "REPLY", "SKIP"]);
    quiet.send_command(&["SET", "quiet", "1"]);
    quiet.send_command(&["GET", "quiet"]);
    until_blocked(&mut raw, 2);
    unpause(&mut raw);
    expect(COMMANDS / 2, COMMANDS, &mut other);
    assert_eq!(quiet.reply().value, Value::bulk("1"));
}

fn postponed_calls_run_in_order_of_arrival(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    pause(&mut raw, "WRITE");
    let mut clients: Vec<Raw> = (0..20).map(|_| server.raw()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send_command(&["RPUSH", "list", &number.to_string()]);
        until_blocked(&mut raw, number as u64 + 1);
    }
    unpause(&mut raw);
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply().value, Value::Integer(number as i64 + 1));
    }
    assert_eq!(blocked(&mut raw), 0);
}

fn a_pause_ends_by_itself(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    let mut other = server.raw();
    assert_eq!(raw.command(&["CLIENT", "PAUSE", "1", "ALL"]), Value::ok());
    assert_eq!(other.command(&["SET", "k", "v"]), Value::ok());
    // This one waits for its own end; a shorter, milder pause changes nothing.
    assert_eq!(raw.command(&["CLIENT", "PAUSE", "100"]), Value::ok());
    assert_eq!(raw.command(&["CLIENT", "PAUSE", "1", "WRITE"]), Value::ok());
    assert_eq!(other.command(&["GET", "k"]), Value::bulk("v"));
    assert_eq!(other.command(&["CLIENT", "PAUSE", "0"]), Value::ok());
    assert_eq!(other.command(&["SET", "k", "w"]), Value::ok());
}

fn nothing_expires_during_a_pause(program: Program) {
    let (_server, mut raw) = Server::with_client(program);
    for command in [
        &["MULTI"][..],
        &["SET", "k", "v", "PX", "1"],
        &["SET", "l", "v", "PX", "1"],
        &["CLIENT", "PAUSE", "60000", "WRITE"],
        &["EXEC"],
    ] {
        raw.command(command);
    }
    until(|| raw.command(&["GET", "k"]) == Value::Null, "readers see no key");
    assert_eq!(raw.command(&["EXISTS", "k", "l"]), Value::Integer(0));
    assert_eq!(raw.command(&["DBSIZE"]), Value::Integer(2));
    assert_eq!(field(&mut raw, "stats", "expired_keys:"), 0);
    if program == Program::Tidegate {
        // No key is alive, and yet one is returned: Redis 7.0 would search forever.
        assert!(matches!(raw.command(&["RANDOMKEY"]), Value::Bulk(_)));
    }
    unpause(&mut raw);
    until(|| field(&mut raw, "stats", "expired_keys:") == 2, "the keys expire");
    assert_eq!(raw.command(&["RANDOMKEY"]), Value::Null);
}

#[test]
fn blocked_clients_stay_blocked_during_a_pause() {
    let (server, mut raw) = Server::with_client(Program::Tidegate);
    let mut blocks = server.raw();
    let Value::Integer(id) = blocks.command(&["CLIENT", "ID"]) else { panic!("no number") };
    // The element it waits for comes with the pause.
    blocks.send_command(&["BLPOP", "list", "0"]);
    until_blocked(&mut raw, 1);
    for command in [&["MULTI"][..], &["CLIENT", "PAUSE", "60000", "WRITE"], &["RPUSH", "list", "a"], &["EXEC"]] {
        raw.command(command);
    }
    assert_eq!(raw.command(&["LLEN", "list"]), Value::Integer(1));
    assert_eq!(blocked(&mut raw), 1);
    unpause(&mut raw);
    assert_eq!(blocks.reply().value, Value::Array(vec![Value::bulk("list"), Value::bulk("a")]));
    // A postponed call cannot be unblocked.
    pause(&mut raw, "WRITE");
    blocks.send_command(&["BLPOP", "list", "0"]);
    until_blocked(&mut raw, 1);
    assert_eq!(raw.command(&["CLIENT", "UNBLOCK", &id.to_string()]), Value::Integer(0));
    unpause(&mut raw);
    until(|| raw.command(&["CLIENT", "UNBLOCK", &id.to_string()]) == Value::Integer(1), "the call waits for the list");
    assert!(matches!(blocks.reply().value, Value::Null));
}

fn arguments_are_checked(program: Program) {
    let (_server, mut raw) = Server::with_client(program);
    for (command, error) in [
        (&["CLIENT", "PAUSE", "x"][..], "ERR timeout is not an integer or out of range"),
        (&["CLIENT", "PAUSE", "-1"], "ERR timeout is negative"),
        (&["CLIENT", "PAUSE", "x", "READ"], "ERR CLIENT PAUSE mode must be WRITE or ALL"),
    ] {
        assert_eq!(raw.command(command), Value::error(error), "{command:?}");
    }
    if program == Program::Tidegate {
        let command = ["CLIENT", "PAUSE", "9223372036854775807"];
        assert_eq!(raw.command(&command), Value::error("ERR timeout is out of range"));
    }
    assert_eq!(raw.command(&["SET", "k", "v"]), Value::ok());
}
