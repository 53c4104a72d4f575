//! Limits on connections: descriptors, places under `maxclients`, and memory for unread replies, also while a script is
//! busy. Connections that end give all of it back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::console;
use crate::crowd::on_both;
use crate::harness::{Program, REPLY_DEADLINE, Raw, Server, Value, encode};

on_both!(
    a_thousand_connections_come_and_go_while_a_script_is_busy,
    connections_are_closed_while_a_script_is_busy,
    disconnected_clients_leave_nothing_behind,
    waiters_are_served_in_order_of_arrival_though_others_leave,
);

/// How long to wait for something that must happen soon.
const SOON: Duration = Duration::from_secs(20);

const MIB: u64 = 1024 * 1024;

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

/// A number from a command's line of INFO commandstats.
fn command_stat(raw: &mut Raw, command: &str, field: &str) -> u64 {
    let text = raw.command(&["INFO", "commandstats"]);
    let text = String::from_utf8_lossy(text.bytes().expect("INFO answers text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(command)?.strip_prefix(':'));
    let mut stats = line.expect("the command was called").split(',');
    let value = stats.find_map(|stat| stat.strip_prefix(field)?.strip_prefix('=')).expect("the field is there");
    value.parse().expect("a number")
}

/// Sets a process' limits of open files: soft and hard.
fn limit_files(server: &Server, soft: u64, hard: u64) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    let pid = i32::try_from(server.pid()).expect("a process id");
    // SAFETY: the call reads the struct passed to it, and acts on a process that this test has started.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "the limit of our own child can be lowered");
}

/// Starts an endless script, and waits until other clients get -BUSY.
fn keep_busy(server: &Server) -> Raw {
    let (mut runner, mut other) = (server.raw(), server.raw());
    runner.send_command(&["EVAL", "while true do end", "0"]);
    until(|| is_busy(&other.command(&["PING"])), "the script is busy");
    runner
}

fn is_busy(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"BUSY"))
}

fn kill_script(server: &Server, runner: &mut Raw) {
    assert_eq!(server.raw().command(&["SCRIPT", "KILL"]), Value::status("OK"));
    assert!(matches!(runner.reply().value, Value::Error(_)));
}

#[test]
fn the_console_has_descriptors_of_its_own() {
    let (server, _) = console::start(&["--maxclients", "100"]);
    limit_files(&server, 1_024, 5_000);
    let mut raw = server.raw();
    assert!(matches!(raw.command(&["CONFIG", "SET", "maxclients", "4000"]), Value::Error(_)));
    assert_eq!(raw.command(&["CONFIG", "SET", "maxclients", "3800"]), Value::status("OK"));
}

fn a_thousand_connections_come_and_go_while_a_script_is_busy(program: Program) {
    let server = Server::start(program, &["--maxclients", "50", "--busy-reply-threshold", "20"]);
    limit_files(&server, 100, 100);
    let mut runner = keep_busy(&server);
    for _ in 0..1_000 {
        assert!(is_busy(&server.raw().command(&["PING"])));
    }
    // Also when clients fill all places and leave at once.
    for _ in 0..5 {
        let mut crowd: Vec<Raw> = (0..40).map(|_| server.raw()).collect();
        assert!(crowd.iter_mut().all(|client| is_busy(&client.command(&["PING"]))));
        drop(crowd);
        until(|| is_busy(&server.raw().command(&["PING"])), "connections are accepted again");
    }
    until(|| server.raw().command(&["SCRIPT", "KILL"]) == Value::status("OK"), "a client can end the script");
    assert!(matches!(runner.reply().value, Value::Error(_)));
    until(|| info(&mut runner, "connected_clients") == 1, "the others have left");
}

fn connections_are_closed_while_a_script_is_busy(program: Program) {
    let server = Server::start(program, &["--busy-reply-threshold", "20"]);
    let (mut quits, mut breaks) = (server.raw(), server.raw());
    let mut runner = keep_busy(&server);
    let mut later = server.raw();
    for raw in [&mut quits, &mut later] {
        raw.send(b"QUIT\r\n");
        assert_eq!(raw.read_to_end(), b"+OK\r\n");
    }
    breaks.send(b"*1\r\n!\r\n");
    let error = breaks.read_to_end();
    assert!(error.starts_with(b"-ERR Protocol error"), "{}", error.escape_ascii());
    kill_script(&server, &mut runner);
    until(|| info(&mut runner, "connected_clients") == 1, "the others have left");
}

/// Lets connections end in every state that a connection can be in.
fn come_and_go(server: &Server) {
    let mut other = server.raw();
    let last_words: [&[u8]; 9] = [
        b"",
        b"*3\r\n$3\r\nSET\r\n$100\r\nabc",
        b"*1000000\r\n",
        b"MULTI\r\nSET key value\r\n",
        b"WATCH key\r\n",
        b"SUBSCRIBE channel\r\nPSUBSCRIBE p*\r\n",
        b"BLPOP list 0\r\nPING\r\n",
        b"CLIENT REPLY OFF\r\nPING\r\n",
        b"GET big\r\nGET big\r\nGET big\r\nGET big\r\nGET big\r\nGET big\r\nGET big\r\nGET big\r\nGET big\r\n\
          GET big\r\n",
    ];
    for words in last_words.repeat(10) {
        let mut raw = server.raw();
        raw.send(words);
        // The server has read it, or will find it behind later input.
        drop(other.command(&["PING"]));
        drop(raw);
    }
}

fn disconnected_clients_leave_nothing_behind(program: Program) {
    let server = Server::start(program, &["--busy-reply-threshold", "20"]);
    let mut own = server.raw();
    own.command(&["SETRANGE", "big", "3000000", "x"]);
    let names = ["connected_clients", "blocked_clients", "pubsub_channels", "pubsub_patterns"];
    let counts = |own: &mut Raw| names.map(|name| info(own, name));
    let before = counts(&mut own);
    come_and_go(&server);
    until(|| counts(&mut own) == before, "all clients have left");
    // In a busy server, too: earlier clients and new ones.
    let mut waits = server.raw();
    waits.send_command(&["BLPOP", "list", "0"]);
    until(|| info(&mut own, "blocked_clients") == 1, "the client blocks");
    let mut runner = keep_busy(&server);
    drop(waits);
    come_and_go(&server);
    kill_script(&server, &mut runner);
    drop(runner);
    until(|| counts(&mut own) == before, "all clients have left");
    let list = own.command(&["CLIENT", "LIST"]);
    assert_eq!(list.bytes().expect("text").iter().filter(|&&byte| byte == b'\n').count(), 1);
    assert_eq!(own.command(&["RPUSH", "list", "x"]), Value::Integer(1));
}

fn waiters_are_served_in_order_of_arrival_though_others_leave(program: Program) {
    let server = Server::start(program, &[]);
    let mut own = server.raw();
    let mut waiters: Vec<Raw> = Vec::new();
    for number in 1..=12 {
        let mut waiter = server.raw();
        // Some wait for two keys, or name one twice.
        waiter.send_command(if number % 3 == 0 {
            &["BLPOP", "b", "a", "a", "0"]
        } else {
            &["BLPOP", "a", "c", "0"][..]
        });
        waiters.push(waiter);
        until(|| info(&mut own, "blocked_clients") == number, "the client blocks");
    }
    // The first, a middle one and the last leave; another one is unblocked.
    for at in [11, 5, 0] {
        drop(waiters.remove(at));
    }
    until(|| info(&mut own, "blocked_clients") == 9, "the clients have left");
    let mut unblocked = waiters.remove(4);
    let list = own.command(&["CLIENT", "LIST"]);
    let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
    let blocked = list.lines().filter(|line| line.contains(" cmd=blpop "));
    let mut ids: Vec<u64> =
        blocked.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok()).collect();
    // Redis rotates its list of clients.
    ids.sort_unstable();
    let id = ids[4].to_string();
    assert_eq!(own.command(&["CLIENT", "UNBLOCK", &id]), Value::Integer(1));
    assert_eq!(own.command(&["CLIENT", "UNBLOCK", &id]), Value::Integer(0));
    assert_eq!(unblocked.reply().value, Value::Null);
    let elements: Vec<String> = (0..8).map(|at| at.to_string()).collect();
    let push: Vec<&str> = ["RPUSH", "a"].into_iter().chain(elements.iter().map(String::as_str)).collect();
    own.command(&push);
    for (waiter, element) in waiters.iter_mut().zip(&elements) {
        assert_eq!(waiter.reply().value, Value::Array(vec![Value::bulk("a"), Value::bulk(element)]));
    }
    assert_eq!(own.command(&["EXISTS", "a"]), Value::Integer(0));
}

#[test]
fn commands_are_not_charged_with_the_time_of_a_busy_script() {
    let server = Server::start(Program::Tidegate, &["--busy-reply-threshold", "50"]);
    let mut other = server.raw();
    let mut runner = keep_busy(&server);
    assert_eq!(other.command(&["AUTH", "default", "any"]), Value::status("OK"));
    kill_script(&server, &mut runner);
    let script = command_stat(&mut other, "eval", "usec");
    assert!(script >= 50_000, "{script}");
    for command in ["auth", "script|kill"] {
        let took = command_stat(&mut other, command, "usec");
        assert!(took < script / 2, "{command} took {took} us of {script}");
    }
}

#[test]
fn maxclients_cannot_exceed_the_systems_limit() {
    let server = Server::start(Program::Tidegate, &["--maxclients", "100"]);
    let mut raw = server.raw();
    let set = |raw: &mut Raw, value: &str| raw.command(&["CONFIG", "SET", "maxclients", value]);
    let value = |raw: &mut Raw| raw.command(&["CONFIG", "GET", "maxclients"]);
    let is = |count| Value::Array(vec![Value::bulk("maxclients"), Value::bulk(count)]);
    limit_files(&server, 140, 300);
    let refused = "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not \
                   able to handle the specified number of clients, try with 268";
    assert_eq!(set(&mut raw, "5000"), Value::error(refused));
    assert_eq!(raw.command(&["CONFIG", "SET", "hz", "20", "maxclients", "5000"]), Value::error(refused));
    assert_eq!(value(&mut raw), is("100"), "nothing has changed");
    let hz = raw.command(&["CONFIG", "GET", "hz"]);
    assert_eq!(hz, Value::Array(vec![Value::bulk("hz"), Value::bulk("10")]));
    assert_eq!(set(&mut raw, "268"), Value::status("OK"));
    // This many fit now.
    let mut crowd: Vec<Raw> = (0..267).map(|_| server.raw()).collect();
    assert!(crowd.iter_mut().all(|client| client.command(&["PING"]) == Value::status("PONG")));
    let refused = server.raw().read_to_end();
    assert_eq!(refused, b"-ERR max number of clients reached\r\n");
}

#[test]
fn queued_scripts_do_not_delay_the_shutdown() {
    let mut server = Server::start(Program::Tidegate, &["--busy-reply-threshold", "20"]);
    let endless = encode(&["EVAL", "while true do end", "0"]).repeat(1_000);
    let mut crowd: Vec<Raw> = (0..30).map(|_| server.raw()).collect();
    crowd.iter_mut().for_each(|client| client.send(&endless));
    until(|| is_busy(&server.raw().command(&["PING"])), "a script is busy");
    let pid = i32::try_from(server.pid()).expect("a process id");
    // SAFETY: a signal to a process that this test has started.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    until(|| server.has_ended(), "the server ends");
    // The running script is ended. The scripts queued behind it never begin: their clients got -BUSY.
    let ended = |text: Vec<u8>| text.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"-ERR")).count();
    let ended: usize = crowd.iter_mut().map(|client| ended(client.read_to_end())).sum();
    assert!(ended < 500, "{ended} scripts began after the signal");
}

/// Sends a request many times, from a thread, since the server stops reading.
fn ask(server: &Server, request: &[u8], times: usize) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server accepts a connection");
    stream.set_read_timeout(Some(REPLY_DEADLINE)).expect("a read deadline on a fresh socket");
    let mut writer = stream.try_clone().expect("a second handle");
    let requests = request.repeat(times);
    std::thread::spawn(move || writer.write_all(&requests));
    stream
}

/// The most memory that the server uses while it answers this many commands.
fn most_used(raw: &mut Raw, commands: usize) -> u64 {
    (0..commands).map(|_| info(raw, "used_memory")).max().unwrap_or(0)
}

fn read_bytes(stream: &mut TcpStream, count: usize) {
    let mut left = count;
    let mut chunk = vec![0; 1 << 20];
    while left > 0 {
        let wanted = left.min(chunk.len());
        let n = stream.read(&mut chunk[..wanted]).expect("replies come while they are read");
        assert!(n > 0, "the server has hung up with {left} of {count} bytes to come");
        left -= n;
    }
}

#[test]
fn one_client_that_does_not_read_makes_the_server_hold_64_mib_at_most() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    raw.command(&["SET", "key", &"x".repeat(1_000)]);
    let before = info(&mut raw, "used_memory");
    let (request, times, reply) = (encode(&["GET", "key"]), 150_000, "$1000\r\n".len() + 1_000 + 2);
    let mut slow = ask(&server, &request, times);
    until(|| info(&mut raw, "used_memory") > before + 56 * MIB, "the outbox fills");
    let held = most_used(&mut raw, 100) - before;
    assert!(held < 72 * MIB, "{held} bytes");
    read_bytes(&mut slow, times * reply);
    until(|| info(&mut raw, "used_memory") < before + 8 * MIB, "the outbox is freed");
}

#[test]
fn all_clients_that_do_not_read_make_the_server_hold_256_mib_at_most() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    raw.command(&["SETRANGE", "key", "999999", "x"]);
    let before = info(&mut raw, "used_memory");
    let (request, times, reply) = (encode(&["GET", "key"]), 40, "$1000000\r\n".len() + 1_000_000 + 2);
    let mut slow: Vec<TcpStream> = (0..24).map(|_| ask(&server, &request, times)).collect();
    until(|| info(&mut raw, "used_memory") > before + 256 * MIB, "the outboxes fill");
    let held = most_used(&mut raw, 100) - before;
    assert!(held < (256 + 24 * 5) * MIB, "{held} bytes");
    // A client that reads is served even if others do not; and the others are served once they read.
    let mut eager = ask(&server, &request, times);
    read_bytes(&mut eager, times * reply);
    slow.iter_mut().for_each(|stream| read_bytes(stream, times * reply));
    until(|| info(&mut raw, "used_memory") < before + 8 * MIB, "the outboxes are freed");
    // They stay connected. Replies that they have read no longer count: a client that sends everything before it reads
    // is served.
    send_all_then_read(&server);
}

#[test]
fn large_replies_wait_for_room() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    raw.command(&["SETRANGE", "key", "9999999", "x"]);
    let before = info(&mut raw, "used_memory");
    let (request, reply) = (encode(&["GET", "key"]), "$10000000\r\n".len() + 10_000_000 + 2);
    let slow: Vec<TcpStream> = (0..60).map(|_| ask(&server, &request, 2)).collect();
    until(|| info(&mut raw, "used_memory") > before + 256 * MIB, "the outboxes fill");
    let held = most_used(&mut raw, 100) - before;
    assert!(held < 280 * MIB, "{held} bytes");
    let mut patient = ask(&server, &request, 2);
    drop(slow);
    read_bytes(&mut patient, 2 * reply);
    assert_eq!(command_stat(&mut raw, "get", "failed_calls"), 0);
}

/// Memory held for clients that do not read never delays a client that holds little, though it sends everything before
/// it reads.
#[test]
fn clients_that_hold_little_do_not_wait_for_those_that_hold_much() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    raw.command(&["SETRANGE", "key", "59999999", "x"]);
    let before = info(&mut raw, "used_memory");
    let slow: Vec<TcpStream> = (0..6).map(|_| ask(&server, &encode(&["GET", "key"]), 1)).collect();
    until(|| info(&mut raw, "used_memory") > before + 256 * MIB, "the outboxes fill");
    send_all_then_read(&server);
    drop(slow);
}

/// Sends so much that neither the requests nor the replies fit the sockets, then reads.
fn send_all_then_read(server: &Server) {
    let mut patient = server.raw();
    let text = "x".repeat(1_000);
    let command = encode(&["ECHO", &text]);
    let times = 20_000;
    patient.send(&command.repeat(times));
    (0..times).for_each(|_| assert_eq!(patient.reply().value, Value::bulk(&text)));
}
