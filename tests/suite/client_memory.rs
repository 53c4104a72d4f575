//! Limits on the memory of all clients together: which clients are closed, and which stay. The same tests run against
//! Redis.

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value, encode, until};

on_both!(
    a_client_that_holds_too_much_memory_is_closed,
    the_largest_clients_are_closed_first,
    protected_clients_are_not_closed,
    the_limit_can_be_a_percentage_of_maxmemory,
);

const LIMIT: usize = 2_000_000;

fn start(program: Program) -> (Server, Raw) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    assert_eq!(raw.command(&["CLIENT", "NO-EVICT", "ON"]), Value::status("OK"));
    set(&mut raw, &LIMIT.to_string());
    (server, raw)
}

fn set(raw: &mut Raw, limit: &str) {
    assert_eq!(raw.command(&["CONFIG", "SET", "maxmemory-clients", limit]), Value::status("OK"));
}

fn evicted(raw: &mut Raw) -> u64 {
    let info = raw.command(&["INFO", "stats"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    info.lines().find_map(|line| line.strip_prefix("evicted_clients:")).expect("INFO tells").parse().expect("a number")
}

/// The names of the connected clients.
fn names(raw: &mut Raw) -> Vec<String> {
    let list = raw.command(&["CLIENT", "LIST"]);
    let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
    let name = |line: &str| line.split(' ').find_map(|word| word.strip_prefix("name=")).unwrap_or_default().to_owned();
    let mut names: Vec<String> = list.lines().map(name).filter(|name| !name.is_empty()).collect();
    names.sort();
    names
}

/// A client that has sent this many bytes of an incomplete argument.
fn sends_in_part(server: &Server, name: &str, bytes: usize) -> Raw {
    let mut client = server.raw();
    assert_eq!(client.command(&["CLIENT", "SETNAME", name]), Value::status("OK"));
    client.send(format!("*2\r\n${}\r\n", bytes + 1).as_bytes());
    client.send(&vec![b'x'; bytes]);
    client
}

/// The ways for a client to hold much memory.
type Way<'a> = &'a dyn Fn(&mut Raw);

fn a_client_that_holds_too_much_memory_is_closed(program: Program) {
    let (server, mut raw) = start(program);
    raw.command(&["SET", "large", &"x".repeat(200_000)]);
    let hoards: [(&str, Way<'_>); 6] = [
        ("an argument", &|client| client.send(&encode(&["ECHO", &"x".repeat(2 * LIMIT)]))),
        ("a queue", &|client| {
            client.send(&encode(&["MULTI"]));
            (0..40).for_each(|_| client.send(&encode(&["SET", "k", &"x".repeat(LIMIT / 20)])));
        }),
        ("unread replies", &|client| (0..300).for_each(|_| client.send(&encode(&["GET", "large"])))),
        ("watched keys", &|client| {
            for part in 0..100 {
                let keys: Vec<String> = (0..500).map(|n| format!("a key that has some name {part} {n}")).collect();
                let words = std::iter::once("WATCH").chain(keys.iter().map(String::as_str));
                client.send(&encode(&words.collect::<Vec<_>>()));
            }
        }),
        ("channels", &|client| {
            for part in 0..100 {
                let names: Vec<String> = (0..500).map(|n| format!("a channel that has some name {part} {n}")).collect();
                let words = std::iter::once("SUBSCRIBE").chain(names.iter().map(String::as_str));
                client.send(&encode(&words.collect::<Vec<_>>()));
            }
        }),
        ("messages", &|client| client.send(&encode(&["SUBSCRIBE", "news"]))),
    ];
    for (number, (what, hoard)) in hoards.iter().enumerate() {
        let mut client = server.raw();
        assert_eq!(client.command(&["CLIENT", "SETNAME", "hoarder"]), Value::status("OK"));
        hoard(&mut client);
        until(
            || {
                if *what == "messages" {
                    raw.command(&["PUBLISH", "news", &"x".repeat(100_000)]);
                }
                evicted(&mut raw) == number as u64 + 1
            },
            what,
        );
        until(|| names(&mut raw).is_empty(), what);
    }
    assert_eq!(raw.command(&["GET", "k"]), Value::Null, "the queued commands never ran");
}

fn the_largest_clients_are_closed_first(program: Program) {
    let (server, mut raw) = start(program);
    let sizes = [20_000, 100_000, 500_000];
    let mut clients = Vec::new();
    for (number, bytes) in sizes.iter().enumerate() {
        (0..2).for_each(|_| clients.push(sends_in_part(&server, &number.to_string(), *bytes)));
    }
    until(|| names(&mut raw).len() == 6, "the clients are connected");
    until(
        || {
            let list = raw.command(&["CLIENT", "LIST"]);
            let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
            let qbuf = |word: &str| word.strip_prefix("qbuf=")?.parse::<usize>().ok();
            list.split_whitespace().filter_map(qbuf).sum::<usize>() >= 2 * sizes.iter().sum::<usize>()
        },
        "all bytes have arrived",
    );
    assert_eq!(evicted(&mut raw), 0);
    set(&mut raw, "800000");
    until(|| evicted(&mut raw) >= 1, "a large client is closed");
    assert!(names(&mut raw).iter().filter(|name| *name != "2").count() == 4, "{:?}", names(&mut raw));
    set(&mut raw, "200000");
    until(|| evicted(&mut raw) >= 3, "other clients are closed");
    assert_eq!(names(&mut raw).iter().filter(|name| *name == "0").count(), 2);
}

fn protected_clients_are_not_closed(program: Program) {
    let (server, mut raw) = start(program);
    let mut client = server.raw();
    assert_eq!(client.command(&["CLIENT", "NO-EVICT", "ON"]), Value::status("OK"));
    assert_eq!(client.command(&["ECHO", &"x".repeat(2 * LIMIT)]), Value::bulk(&"x".repeat(2 * LIMIT)));
    // A protected client's memory still counts, so there is no room for another client.
    client.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 2 * LIMIT).as_bytes());
    client.send(&vec![b'x'; 2 * LIMIT - 1]);
    let mut other = server.raw();
    other.send(&encode(&["PING"]));
    until(|| evicted(&mut raw) >= 1, "the other client is closed");
    client.send(b"x\r\n");
    assert_eq!(client.reply().value, Value::bulk(&"x".repeat(2 * LIMIT)));
    assert_eq!(client.command(&["CLIENT", "NO-EVICT", "OFF"]), Value::status("OK"));
    client.send(&encode(&["ECHO", &"x".repeat(2 * LIMIT)]));
    until(|| evicted(&mut raw) >= 2, "the client is no longer protected");
}

fn the_limit_can_be_a_percentage_of_maxmemory(program: Program) {
    let (server, mut raw) = start(program);
    for (wrong, error) in
        [("-1%", "argument must be a memory or percent value"), ("x", "argument must be a memory or percent value")]
    {
        let text = format!("ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - {error}");
        assert_eq!(raw.command(&["CONFIG", "SET", "maxmemory-clients", wrong]), Value::error(&text));
    }
    set(&mut raw, "10%");
    let get = raw.command(&["CONFIG", "GET", "maxmemory-clients"]);
    assert_eq!(get, Value::Array(vec![Value::bulk("maxmemory-clients"), Value::bulk("10%")]));
    // A percentage of an unset `maxmemory` means no limit.
    let _first = sends_in_part(&server, "first", LIMIT);
    until(|| names(&mut raw) == ["first"], "the client is connected");
    assert_eq!(evicted(&mut raw), 0);
    assert_eq!(raw.command(&["CONFIG", "SET", "maxmemory", "10mb"]), Value::status("OK"));
    let _second = sends_in_part(&server, "second", 900_000);
    until(|| evicted(&mut raw) >= 1, "one of the clients is closed");
}
