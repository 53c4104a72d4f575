//! What a key takes, beside peers: `cargo bench --bench memory`.
//!
//! A fresh server gets keys of one type through one connection. Told is by how much its resident memory (of /proc, when it no longer
//! changes) grew, over the number of keys: what the machine has to have, be it for data, for tables, or for what the allocator
//! keeps. Each server is alone while it is measured, and has the machine's default of huge pages.

mod figures;
mod peer;
mod requests;

use clap::Parser;

use figures::{Quantity, Recorder};
use peer::{Setup, connection::Connection, pin_self};
use requests::{NUMBER, encode};

/// Measures resident bytes for each key, by type and number of keys. Takes some 65 minutes in full with two peers; memory for 10
/// million collections, some 6 GiB.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
}

/// Numbers of keys at which the memory is read, in rising order.
const SIZES: [u64; 3] = [1_000_000, 4_000_000, 10_000_000];

/// So many streams and no more: of four million, the peers' fill 18 GB.
const STREAMS: [u64; 1] = [1_000_000];

/// Requests in flight while keys are stored.
const AT_ONCE: usize = 500;

/// A type of keys, and what makes number [`NUMBER`] of them.
struct Kind {
    name: &'static str,
    sizes: &'static [u64],
    requests: fn() -> Vec<Vec<u8>>,
}

const KINDS: [Kind; 8] = [
    Kind { name: "string of 10 bytes", sizes: &SIZES, requests: || vec![encode(&["SET", &key("key"), "0123456789"])] },
    Kind {
        name: "counter with a deadline",
        sizes: &SIZES,
        requests: || vec![encode(&["INCR", &key("counter")]), encode(&["EXPIRE", &key("counter"), "86400"])],
    },
    Kind {
        name: "lock of 37 bytes with a deadline",
        sizes: &SIZES,
        requests: || {
            let owner = format!("7f0b1a2-3d4e-4f5a-8b6c-{NUMBER}:1");
            vec![encode(&["SET", &key("lock"), &owner, "NX", "PX", "86400000"])]
        },
    },
    Kind {
        name: "hash of 5 fields",
        sizes: &SIZES,
        requests: || {
            let value = format!("v:{NUMBER}");
            let fields = ["capacity", "left", "leaking_at", "rate", "account"].into_iter();
            vec![encode_all(["HSET", &key("hash")], fields.flat_map(|field| [field.to_owned(), value.clone()]))]
        },
    },
    Kind { name: "set of 10", sizes: &SIZES, requests: || vec![encode_all(["SADD", &key("set")], elements())] },
    Kind {
        name: "sorted set of 10",
        sizes: &SIZES,
        requests: || {
            let members = elements().enumerate().flat_map(|(score, member)| [(score * 1000).to_string(), member]);
            vec![encode_all(["ZADD", &key("zset")], members)]
        },
    },
    Kind { name: "list of 10", sizes: &SIZES, requests: || vec![encode_all(["RPUSH", &key("list")], elements())] },
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
    },
];

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
        let requests = (kind.requests)();
        let sizes: Vec<u64> = kind.sizes.iter().map(|&size| setup.scaled(size)).collect();
        let cases = sizes.iter().map(|size| (format!("{}, {size}", kind.name), None)).collect();
        recorder.cases(cases, |server| measure(&setup, &commands[server], &requests, &sizes));
    }
    recorder.finish();
}

/// Bytes per key at each of the sizes.
fn measure(setup: &Setup, command: &str, requests: &[Vec<u8>], sizes: &[u64]) -> Vec<[f64; 1]> {
    let server = setup.start(command);
    let mut connection = Connection::new(&server);
    // What the server allocates once, for the first client and command, is no part of a key.
    connection.ask(&["PING"]);
    let empty = server.settled_bytes();
    let mut stored = 0;
    let mut bytes_per_key = |&size: &u64| {
        // One request of each key after the other: a collection may grow while others do, too.
        for request in requests {
            connection.fill(stored..size, AT_ONCE, request);
        }
        stored = size;
        assert_eq!(connection.ask(&["DBSIZE"]), format!(":{size}"), "{command}");
        [server.settled_bytes().saturating_sub(empty) as f64 / size as f64]
    };
    sizes.iter().map(&mut bytes_per_key).collect()
}
