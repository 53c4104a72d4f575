//! `io-threads`: a client served by a thread beside the engine's notices no difference, except in INFO and CLIENT LIST.
//!
//! The whole suite runs against such a server, too, if `SUITE_SERVER` asks for it: see CONTRIBUTING.md.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::crowd::at_once;
use crate::harness::{Program, Raw, Server, Value, encode, until};

/// More bytes than can be under way between a client and the engine, in both sockets and in the threads' buffers.
const MUCH: usize = 24 * 1024 * 1024;

fn server(flags: &[&str]) -> Server {
    Server::start(Program::Tidegate, &[&["--io-threads", "4"], flags].concat())
}

fn text(value: Value) -> String {
    String::from_utf8_lossy(value.bytes().expect("text")).into_owned()
}

/// A number of INFO.
fn field(client: &mut Raw, section: &str, name: &str) -> u64 {
    let info = text(client.command(&["INFO", section]));
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {info}"))
}

/// Numbers behind `name=` in the lines of INFO's section about threads, one for each thread.
fn by_thread(client: &mut Raw, name: &str) -> Vec<u64> {
    let info = text(client.command(&["INFO", "threads"]));
    let of =
        |line: &str| line.split([':', ',']).find_map(|field| field.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    info.lines().filter(|line| line.starts_with("io_thread_")).map(|line| of(line).expect("a number")).collect()
}

#[test]
fn clients_are_spread_over_the_threads_and_listed() {
    let server = server(&[]);
    let mut clients: Vec<Raw> = (0..9).map(|_| server.raw()).collect();
    for client in &mut clients {
        assert_eq!(client.command(&["PING"]), Value::status("PONG"));
    }
    until(|| by_thread(&mut clients[0], "clients") == [0, 3, 3, 3], "the harness' own connection has left");
    assert!(by_thread(&mut clients[0], "reads")[1..].iter().all(|reads| *reads >= 3));
    // The count follows the write, so a client may see the reply first.
    until(|| by_thread(&mut clients[0], "writes")[1..].iter().all(|writes| *writes >= 3), "each thread has written");
    let list = text(clients[0].command(&["CLIENT", "LIST"]));
    for thread in 0..4 {
        let served = list.lines().filter(|line| line.contains(&format!(" io-thread={thread} "))).count();
        assert_eq!(served, if thread == 0 { 0 } else { 3 }, "{list}");
    }
    assert_eq!(field(&mut clients[0], "server", "io_threads_active"), 1);
    for name in ["io_threaded_reads_processed", "io_threaded_writes_processed"] {
        assert!(field(&mut clients[0], "stats", name) >= 9, "{name}");
    }
    let info = text(clients[0].command(&["INFO", "stats"]));
    let number = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    assert_eq!(number("total_reads_processed:"), number("io_threaded_reads_processed:"));
    clients[0].command(&["CONFIG", "RESETSTAT"]);
    assert!(by_thread(&mut clients[0], "reads").iter().sum::<u64>() < 9);
    drop(clients.split_off(1));
    until(|| by_thread(&mut clients[0], "clients").iter().sum::<u64>() == 1, "departed clients are not counted");
}

#[test]
fn replies_come_whole_and_in_order() {
    let server = server(&[]);
    at_once(&server, |number, _| {
        let mut client = server.raw();
        // Each pipeline has another length and is cut at other places.
        for round in 0..20 {
            let commands = (0..100 + number)
                .map(|at| encode(&["ECHO", &format!("{number}.{round}.{at}")]))
                .collect::<Vec<_>>()
                .concat();
            for piece in commands.chunks(977 + 31 * number) {
                client.send(piece);
            }
            for at in 0..100 + number {
                assert_eq!(client.reply().value, Value::bulk(&format!("{number}.{round}.{at}")));
            }
        }
    });
}

#[test]
fn large_strings_travel_both_ways() {
    let server = server(&[]);
    let mut client = server.raw();
    let large: Vec<u8> = (0..MUCH as u32).map(|at| (at % 251) as u8).collect();
    let mut reader = server.raw();
    std::thread::scope(|scope| {
        scope.spawn(|| client.send_command(&[&b"SET"[..], b"large", &large]));
        until(|| reader.command(&["EXISTS", "large"]) == Value::Integer(1), "the key is set");
    });
    assert_eq!(client.reply().value, Value::ok());
    for _ in 0..3 {
        // A reply that bypasses the outbox, and replies behind it.
        client.send(&[encode(&["PING"]), encode(&["GET", "large"]), encode(&["ECHO", "behind"])].concat());
        assert_eq!(client.reply().value, Value::status("PONG"));
        assert!(client.reply().value.bytes() == Some(&large));
        assert_eq!(client.reply().value, Value::bulk("behind"));
    }
}

#[test]
fn a_client_that_does_not_read_delays_only_itself() {
    let server = server(&[]);
    let (mut lazy, mut other) = (server.raw(), server.raw());
    other.command(&["SETRANGE", "large", "99999", "x"]);
    let requests = MUCH / 100_000;
    lazy.send(&encode(&["GET", "large"]).repeat(requests));
    for _ in 0..1_000 {
        assert_eq!(other.command(&["PING"]), Value::status("PONG"));
    }
    for _ in 0..requests {
        assert!(matches!(lazy.reply().value, Value::Bulk(bytes) if bytes.len() == 100_000));
    }
    assert_eq!(lazy.command(&["PING"]), Value::status("PONG"));
}

#[test]
fn replies_sent_before_a_close_arrive() {
    let server = server(&[]);
    server.raw().command(&["SETRANGE", "large", "99999", "x"]);
    for count in [0, 1, MUCH / 100_000] {
        let mut client = server.raw();
        client.send(&[encode(&["GET", "large"]).repeat(count), encode(&["QUIT"])].concat());
        for _ in 0..count {
            assert!(matches!(client.reply().value, Value::Bulk(bytes) if bytes.len() == 100_000));
        }
        assert_eq!(client.read_to_end(), b"+OK\r\n");
    }
}

#[test]
fn a_half_closed_connection_gets_all_its_replies() {
    let server = server(&[]);
    let mut client = server.raw();
    client.command(&["SET", "key", &"x".repeat(1_000)]);
    let reply = [b"$1000\r\n", "x".repeat(1_000).as_bytes(), b"\r\n"].concat();
    for requests in [1, 100, MUCH / 1_000] {
        let mut client = server.raw();
        client.send(&encode(&["GET", "key"]).repeat(requests));
        client.send_no_more();
        assert!(client.read_to_end() == reply.repeat(requests));
    }
}

#[test]
fn a_killed_client_is_closed_even_if_it_does_not_read() {
    let server = server(&[]);
    let mut other = server.raw();
    other.command(&["SETRANGE", "large", "99999", "x"]);
    until(|| by_thread(&mut other, "clients").iter().sum::<u64>() == 1, "only one client is left");
    let is_socket = |fd: std::io::Result<std::fs::DirEntry>| {
        let target = fd.and_then(|fd| std::fs::read_link(fd.path()));
        target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    let sockets = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
        all.map(is_socket).filter(|is_socket| *is_socket).count()
    };
    // The connection of the start-up check may be among them, so more than one must not stay.
    let before = sockets();
    for _ in 0..5 {
        let mut lazy = server.raw();
        let Value::Integer(id) = lazy.command(&["CLIENT", "ID"]) else { panic!("no number") };
        lazy.send(&encode(&["GET", "large"]).repeat(MUCH / 100_000));
        until(|| field(&mut other, "clients", "client_recent_max_output_buffer") > 0, "the client does not read");
        assert_eq!(other.command(&["CLIENT", "KILL", "ID", &id.to_string()]), Value::Integer(1));
        until(|| by_thread(&mut other, "clients").iter().sum::<u64>() == 1, "the killed client is gone");
        assert!(lazy.read_to_end().len() < MUCH);
    }
    until(|| sockets() <= before, "their descriptors are closed");
}

#[test]
fn a_flood_with_replies_off_does_not_starve_others() {
    let server = server(&[]);
    let (mut flood, mut other) = (server.raw(), server.raw());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            flood.send_command(&["CLIENT", "REPLY", "OFF"]);
            let some = encode(&["SET", "key", "value"]).repeat(10);
            while !is_over.load(Relaxed) {
                flood.send(&some);
            }
        });
        for _ in 0..1_000 {
            assert_eq!(other.command(&["PING"]), Value::status("PONG"));
        }
        is_over.store(true, Relaxed);
    });
    assert_eq!(other.command(&["GET", "key"]), Value::bulk("value"));
}

#[test]
fn messages_reach_all_subscribers_in_order() {
    let server = server(&[]);
    let mut readers: Vec<Raw> = (0..20).map(|_| server.raw()).collect();
    for reader in &mut readers {
        reader.command(&["SUBSCRIBE", "channel"]);
    }
    let mut writer = server.raw();
    writer.send(&(0..500).flat_map(|n: u32| encode(&["PUBLISH", "channel", &n.to_string()])).collect::<Vec<_>>());
    for reader in &mut readers {
        for n in 0..500 {
            let message = ["message", "channel", &n.to_string()].map(Value::bulk).to_vec();
            assert_eq!(reader.reply().value, Value::Array(message));
        }
    }
}

#[test]
fn scripts_can_be_debugged() {
    let server = server(&["--busy-reply-threshold", "0"]);
    let mut client = server.raw();
    assert_eq!(client.command(&["SCRIPT", "DEBUG", "YES"]), Value::ok());
    let shown = client.command(&["EVAL", "return 1", "0"]);
    assert!(format!("{shown:?}").contains("* Stopped at 1"), "{shown:?}");
    let Value::Array(lines) = client.command(&["continue"]) else { panic!("no screen") };
    assert!(lines.ends_with(&[Value::status("<endsession>")]), "{lines:?}");
    assert_eq!(client.reply().value, Value::Integer(1));
    assert_eq!(client.read_to_end(), b"");
}

#[test]
fn a_client_that_leaves_while_it_waits_is_noticed() {
    let server = server(&[]);
    let (mut waits, mut other) = (server.raw(), server.raw());
    waits.send_command(&["BLPOP", "none", "0"]);
    let blocked = |other: &mut Raw| text(other.command(&["INFO", "clients"])).contains("\r\nblocked_clients:1\r\n");
    until(|| blocked(&mut other), "the call waits");
    drop(waits);
    until(|| !blocked(&mut other), "the client has left");
}

#[test]
fn other_clients_are_answered_beside_a_busy_script() {
    let server = server(&["--busy-reply-threshold", "20"]);
    let (mut runs, mut other, mut leaves) = (server.raw(), server.raw(), server.raw());
    assert_eq!(leaves.command(&["PING"]), Value::status("PONG"));
    runs.send_command(&["EVAL", "while true do end", "0"]);
    until(|| matches!(other.command(&["PING"]), Value::Error(text) if text.starts_with(b"BUSY")), "the script is busy");
    // One client that came during this, and one that leaves.
    let mut newcomer = server.raw();
    assert!(matches!(newcomer.command(&["PING"]), Value::Error(text) if text.starts_with(b"BUSY")));
    drop(leaves);
    assert_eq!(other.command(&["SCRIPT", "KILL"]), Value::ok());
    assert!(matches!(runs.reply().value, Value::Error(_)));
    assert_eq!(newcomer.command(&["PING"]), Value::status("PONG"));
    until(|| by_thread(&mut other, "clients").iter().sum::<u64>() == 3, "the departed client is forgotten");
}

#[test]
fn replies_sent_before_the_server_ends_arrive() {
    let mut server = server(&[]);
    let (mut reader, mut other) = (server.raw(), server.raw());
    other.command(&["SETRANGE", "large", "99999", "x"]);
    let requests = MUCH / 100_000;
    // One of the two readers leaves by itself.
    let mut leaves = server.raw();
    leaves.send(&[encode(&["GET", "large"]).repeat(requests), encode(&["QUIT"])].concat());
    reader.send(&encode(&["GET", "large"]).repeat(requests));
    // Every request is answered, but most replies are not sent yet.
    let answered = |other: &mut Raw| {
        text(other.command(&["INFO", "commandstats"])).contains(&format!("cmdstat_get:calls={},", 2 * requests))
    };
    until(|| answered(&mut other), "the pipeline has run");
    other.send_command(&["SHUTDOWN", "NOSAVE"]);
    std::thread::scope(|scope| {
        for (mut reader, end) in [(reader, &b""[..]), (leaves, b"+OK\r\n")] {
            scope.spawn(move || {
                for _ in 0..requests {
                    assert!(matches!(reader.reply().value, Value::Bulk(bytes) if bytes.len() == 100_000));
                }
                assert!(reader.read_to_end() == end);
            });
        }
    });
    assert!(server.ends_well());
}

#[test]
fn reset_connections_are_closed() {
    let server = server(&[]);
    let mut other = server.raw();
    for _ in 0..50 {
        // It leaves with unread replies, so its system resets the connection.
        let mut client = server.raw();
        client.send(&encode(&["ECHO", &"x".repeat(1_000)]).repeat(100));
        let _ = client.reply();
        drop(client);
        let mut half = std::net::TcpStream::connect(("127.0.0.1", server.port())).expect("the server listens");
        half.write_all(b"*2\r\n$4\r\nECHO\r\n$100\r\nhalf").expect("there is room");
    }
    until(|| by_thread(&mut other, "clients").iter().sum::<u64>() == 1, "all clients but one have left");
}
