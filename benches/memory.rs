//! The memory a key takes, compared with peers: `cargo bench --bench memory`.
//!
//! A fresh server gets keys of one type through one connection. The bench reports the growth of its resident memory
//! (from /proc, once stable) divided by the number of keys: memory that the machine must have, be it for data, for
//! tables, or for the allocator's reserves. Each server is alone while it is measured, and has the machine's default of
//! huge pages.

mod figures;
mod peer;
mod requests;

use clap::Parser;

use figures::{Quantity, Recorder};
use peer::{Setup, connection::Connection, pin_self};
use requests::{NUMBER, encode};

/// Measures resident bytes per key, by type and number of keys. Takes some 65 minutes in full with two peers; memory
/// for 10 million collections, some 6 GiB.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
}

/// Numbers of keys at which the memory is read, in rising order.
const SIZES: [u64; 3] = [1_000_000, 4_000_000, 10_000_000];

/// No more streams than this: four million of them fill 18 GB on the peers.
const STREAMS: [u64; 1] = [1_000_000];

/// Gates, each held [`HOLDERS`] times.
const GATES: [u64; 1] = [100_000];
const HOLDERS: usize = 60;

/// Requests in flight while keys are stored.
const AT_ONCE: usize = 500;

/// A type of keys, and the requests that make key number [`NUMBER`].
struct Kind {
    name: &'static str,
    sizes: &'static [u64],
    requests: fn() -> Vec<Vec<u8>>,
    /// The requests that make it on peers, where they do not have the commands.
    on_peers: Option<fn() -> Vec<Vec<u8>>>,
}

const KINDS: [Kind; 10] = [
    Kind {
        name: "string of 10 bytes",
        sizes: &SIZES,
        requests: || vec![encode(&["SET", &key("key"), "0123456789"])],
        on_peers: None,
    },
    Kind {
        name: "counter with a deadline",
        sizes: &SIZES,
        requests: || vec![encode(&["INCR", &key("counter")]), encode(&["EXPIRE", &key("counter"), "86400"])],
        on_peers: None,
    },
    Kind {
        name: "lock of 37 bytes with a deadline",
        sizes: &SIZES,
        requests: || {
            let owner = format!("7f0b1a2-3d4e-4f5a-8b6c-{NUMBER}:1");
            vec![encode(&["SET", &key("lock"), &owner, "NX", "PX", "86400000"])]
        },
        on_peers: None,
    },
    Kind {
        name: "hash of 5 fields",
        sizes: &SIZES,
        requests: || {
            let value = format!("v:{NUMBER}");
            let fields = ["capacity", "left", "leaking_at", "rate", "account"].into_iter();
            vec![encode_all(["HSET", &key("hash")], fields.flat_map(|field| [field.to_owned(), value.clone()]))]
        },
        on_peers: None,
    },
    Kind {
        name: "set of 10",
        sizes: &SIZES,
        requests: || vec![encode_all(["SADD", &key("set")], elements())],
        on_peers: None,
    },
    Kind {
        name: "sorted set of 10",
        sizes: &SIZES,
        requests: || {
            let members = elements().enumerate().flat_map(|(score, member)| [(score * 1000).to_string(), member]);
            vec![encode_all(["ZADD", &key("zset")], members)]
        },
        on_peers: None,
    },
    Kind {
        name: "list of 10",
        sizes: &SIZES,
        requests: || vec![encode_all(["RPUSH", &key("list")], elements())],
        on_peers: None,
    },
    Kind {
        name: "stream of 10",
        sizes: &STREAMS,
        requests: || {
            let entry = |id: u64| {
                encode(&[
                    "XADD",
                    &key("stream"),
                    &format!("{}-1", 1_700_000_000_000 + id * 977),
                    "order",
                    &format!("o:{NUMBER}"),
                ])
            };
            (1..=10).map(entry).collect()
        },
        on_peers: None,
    },
    Kind {
        name: "held lock, owner of 36 bytes",
        sizes: &SIZES,
        requests: || vec![encode(&["LOCK.ACQUIRE", &key("lock"), &holder(0), "PX", LEASE_MS])],
        on_peers: Some(|| vec![encode(&["SET", &key("lock"), &holder(0), "NX", "PX", LEASE_MS])]),
    },
    Kind {
        name: "gate of 60 holders of 36 bytes",
        sizes: &GATES,
        requests: || {
            let place =
                |number| encode(&["GATE.ACQUIRE", &key("gate"), &holder(number), "LIMIT", "60", "PX", LEASE_MS]);
            (0..HOLDERS).map(place).collect()
        },
        // As the script of such a gate stores it: the end of each lease.
        on_peers: Some(|| {
            let place = |number| encode(&["ZADD", &key("gate"), "1800000000000", &holder(number)]);
            (0..HOLDERS).map(place).collect()
        }),
    },
];

/// Longer than the bench takes.
const LEASE_MS: &str = "86400000";

/// A name of 36 bytes, as long as a UUID, that no other holder has.
fn holder(number: usize) -> String {
    format!("7f0b1a2c-3d4e-4f5a-8b{number:02}-{NUMBER}")
}

fn key(kind: &str) -> String {
    format!("{kind}:{NUMBER}")
}

/// Ten elements of 10 bytes.
fn elements() -> impl Iterator<Item = String> {
    (0..10).map(|number| format!("element:{number:02}"))
}

fn encode_all(head: [&str; 2], rest: impl Iterator<Item = String>) -> Vec<u8> {
    let rest: Vec<String> = rest.collect();
    encode(&head.into_iter().chain(rest.iter().map(String::as_str)).collect::<Vec<_>>())
}

fn main() {
    let Options { setup } = Options::parse();
    pin_self(setup.client_core);
    let commands = setup.commands();
    let mut recorder = Recorder::new("memory", &setup);
    recorder.table("memory", "type, keys", [Quantity::less("bytes per key", 1)]);
    for kind in &KINDS {
        let requests = [kind.on_peers.unwrap_or(kind.requests)(), (kind.requests)()];
        let sizes: Vec<u64> = kind.sizes.iter().map(|&size| setup.scaled(size)).collect();
        let cases = sizes.iter().map(|size| (format!("{}, {size}", kind.name), None)).collect();
        recorder.cases(cases, |server| {
            let is_ours = server + 1 == commands.len();
            measure(&setup, &commands[server], &requests[usize::from(is_ours)], &sizes)
        });
    }
    recorder.finish();
}

/// Bytes per key at each of the sizes.
fn measure(setup: &Setup, command: &str, requests: &[Vec<u8>], sizes: &[u64]) -> Vec<[f64; 1]> {
    let server = setup.start(command);
    let mut connection = Connection::new(&server);
    // Memory that the server allocates once, for the first client and command, is not part of a key.
    connection.ask(&["PING"]);
    let empty = server.steady_bytes();
    let mut stored = 0;
    let mut bytes_per_key = |&size: &u64| {
        // Each request runs for all keys before the next one: a collection may grow while others do, too.
        for request in requests {
            connection.fill(stored..size, AT_ONCE, request);
        }
        stored = size;
        assert_eq!(connection.ask(&["DBSIZE"]), format!(":{size}"), "{command}");
        [server.steady_bytes().saturating_sub(empty) as f64 / size as f64]
    };
    sizes.iter().map(&mut bytes_per_key).collect()
}
