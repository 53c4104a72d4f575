//! Clients that never read, wherever the server writes: replies, messages, the output of MONITOR, invalidations,
//! snapshots, the script debugger, events, delayed elements, metrics, and the TLS handshake. Some of each stay for a
//! while, beside all others.

use std::collections::VecDeque;
use std::time::Duration;

use super::dice::Dice;
use super::ending::ask;
use super::wire::{Args, Connection, encode, words};
use super::world::World;

/// Number of clients that stay at a time.
const STAY: usize = 16;
/// Pause between two arrivals.
const PAUSE: Duration = Duration::from_millis(15);
const CHANNEL: &str = "deaf-channel";
const LIST: &str = "chaos:list:deaf";
/// A ClientHello that ends within its header.
const HELLO_CUT_SHORT: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

/// Connects and stays, again and again, until the bad clients must stop.
pub(crate) fn run(world: &World) {
    let mut dice = Dice::new(world.options.seed, 3_000);
    let mut staying = VecDeque::new();
    while !world.is_over() {
        if let Some(connection) = come(world, &mut dice) {
            staying.push_back(connection);
        }
        if staying.len() > STAY
            && let Some(connection) = staying.pop_front()
            && dice.once_in(2)
        {
            connection.reset();
        }
        feed(world, &mut dice);
        std::thread::sleep(PAUSE);
    }
}

/// Connects one more client and sends its request.
fn come(world: &World, dice: &mut Dice) -> Option<Connection> {
    let (port, bytes) = match dice.below(26) {
        0..3 => (world.port, calls(&[&["EVAL", "return string.rep('z', 500000)", "0"][..]; 40])),
        3..6 => (world.port, calls(&[&["SUBSCRIBE", CHANNEL]])),
        6..8 => (world.port, calls(&[&["MONITOR"]])),
        8..11 => (world.port, calls(&[&["HELLO", "3"], &["CLIENT", "TRACKING", "ON", "BCAST"]])),
        11 => (world.port, calls(&[&["SYNC"]])),
        12 => (world.port, calls(&[&["PSYNC", "?", "-1"]])),
        13 => {
            let script = "for i = 1, 1000 do redis.debug(string.rep('x', 1000)) end return 1";
            (world.port, calls(&[&["SCRIPT", "DEBUG", "YES"], &["EVAL", script, "0"], &["c"]]))
        }
        14..16 => (world.port, calls(&[&["PSUBSCRIBE", "__key*__:*"]])),
        16..18 => (world.port, calls(&[&["BLPOP", LIST, "0"][..]; 20])),
        18 => (
            world.port,
            calls(&[
                &["CONFIG", "SET", "import-mode", "yes"],
                &["CLIENT", "IMPORT-SOURCE", "ON"],
                &["SET", "chaos:string:1", "x", "PX", "1"],
            ]),
        ),
        19 => {
            let asks: &[&str] = &["LOCK.ACQUIRE", "chaos:lock:1", "deaf", "PX", "20", "ASYNC", "5000"];
            (world.port, [calls(&[&["HELLO", "3"]]), calls(&[asks; 200])].concat())
        }
        20..22 => (world.doors.metrics, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n".repeat(300)),
        22 => (world.doors.metrics, b"GET /hea".to_vec()),
        23 => (world.doors.tls, HELLO_CUT_SHORT.to_vec()),
        24 => (world.doors.tls, calls(&[&["PING"][..]; 100])),
        _ => (world.doors.tls, Vec::new()),
    };
    let mut connection = Connection::open(port).ok()?;
    // Gives up if the bytes are not accepted.
    connection.send(&bytes).ok()?;
    Some(connection)
}

/// Gives the clients that stay something to read.
fn feed(world: &World, dice: &mut Dice) {
    let long = "m".repeat(100_000);
    let call: &[&str] = match dice.below(4) {
        0 => &["PUBLISH", CHANNEL, &long],
        1 => &["RPUSH", LIST, &long],
        2 => &["CONFIG", "SET", "notify-keyspace-events", "KEA"],
        _ => &["SET", "chaos:string:2", &long],
    };
    // Refused or not.
    let _ = ask(world.port, call);
}

fn calls(calls: &[&[&str]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for call in calls {
        let args: Args = words(call);
        encode(&args, &mut bytes);
    }
    bytes
}
