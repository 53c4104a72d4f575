//! The memory and the disk that one of each thing takes, so that a server can be planned: `cargo bench --bench sizing`.
//!
//! | Table | What is measured |
//! |---|---|
//! | `sizing` | bytes of memory and of a snapshot for each key, grant, limit, id or message |
//! | `journal` | bytes that one change adds to the journal, if it is written alone, and among [`AT_ONCE`] others |
//!
//! `docs/production.md` shows both tables, rounded, and a test compares it with the figures kept beside it. Each row of
//! `sizing` fills an empty server. Used memory is what `maxmemory` limits; resident memory is what the machine must
//! have, from /proc, once stable.

mod figures;
mod peer;
mod requests;

use clap::Parser;

use figures::{Quantity, Recorder};
use peer::{Server, Setup, connection::Connection, pin_self};
use requests::{NUMBER, encode};

/// Measures the bytes of each thing. Takes a minute or two in full; memory for a million keys, some 300 MB.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
}

/// How many things are measured.
const COUNT: u64 = 1_000_000;

/// How many changes of each kind are written to the journal.
const CHANGES: u64 = 20_000;

/// Requests in flight at a time, where they are not sent one by one.
const AT_ONCE: usize = 100;

/// Longer than the bench takes.
const LEASE_MS: &str = "86400000";

/// Makes the requests for one number.
type Requests = fn() -> Vec<Vec<u8>>;

/// A thing, and the requests that make one of number [`NUMBER`].
struct Thing {
    name: &'static str,
    /// Requests before it, whose memory does not count.
    before: &'static [&'static str],
    /// Requests for each number. Each runs for all numbers before the next one.
    requests: Requests,
    /// How many things the requests of one number make.
    each: u64,
}

impl Thing {
    const fn of(name: &'static str, requests: Requests) -> Thing {
        Thing { name, before: &[], requests, each: 1 }
    }
}

const THINGS: [Thing; 16] = [
    Thing::of("key with a string of 10 bytes", || vec![encode(&["SET", &key("key"), "0123456789"])]),
    Thing::of("key with a string of 10 bytes and a deadline", || {
        vec![encode(&["SET", &key("key"), "0123456789", "PX", LEASE_MS])]
    }),
    Thing::of("held lock", || vec![lock()]),
    Thing::of("gate with 1 holder", || vec![place(0)]),
    Thing { each: 60, ..Thing::of("holder of a gate with 60", || (0..60).map(place).collect()) },
    Thing::of("holder of a gate with all of them", || {
        vec![encode(&["GATE.ACQUIRE", "gate", &holder(0), "LIMIT", "1000000", "PX", LEASE_MS])]
    }),
    Thing::of("stock without holds", || vec![encode(&["STOCK.SET", &key("stock"), "100"])]),
    Thing {
        before: &["STOCK.SET stock 1000000"],
        ..Thing::of("hold on one stock", || {
            vec![encode(&["STOCK.RESERVE", "stock", &holder(0), "UNITS", "1", "PX", LEASE_MS])]
        })
    },
    Thing::of("bucket of LIMIT, GCRA", || vec![limit(&["GCRA", "10", LEASE_MS, "10"])]),
    Thing::of("bucket of LIMIT, FIXED or CALENDAR", || vec![limit(&["FIXED", "10", LEASE_MS])]),
    Thing::of("bucket of LIMIT, SLIDING", || vec![limit(&["SLIDING", "10", LEASE_MS])]),
    Thing { each: 10, ..Thing::of("unit of LIMIT, EXACT, 10 to a bucket", || vec![exact(); 10]) },
    Thing::of("id of ONCE with the reply of INCR", || {
        vec![encode(&["ONCE", &key("once"), "PX", LEASE_MS, "INCR", "counter"])]
    }),
    Thing::of("entry of a stream", || vec![entry(&[])]),
    Thing::of("entry of a stream, delivered and not acknowledged", || {
        vec![entry(&[]), encode(&["XREADGROUP", "GROUP", "workers", "ann", "COUNT", "1", "STREAMS", "jobs", ">"])]
    }),
    Thing::of("delayed message", || vec![entry(&["DELAY", LEASE_MS])]),
];

/// Changes that programs make often.
const JOURNALED: [(&str, Requests); 7] = [
    ("SET of 10 bytes", || vec![encode(&["SET", &key("key"), "0123456789"])]),
    ("INCR", || vec![encode(&["INCR", "counter"])]),
    ("LOCK.ACQUIRE and LOCK.RELEASE", || vec![lock(), encode(&["LOCK.RELEASE", &key("lock"), &holder(0)])]),
    ("GATE.ACQUIRE and GATE.RELEASE", || vec![place(0), encode(&["GATE.RELEASE", &key("gate"), &holder(0)])]),
    ("STOCK.RESERVE and STOCK.COMMIT", || {
        let reserve = encode(&["STOCK.RESERVE", "stock", &holder(0), "UNITS", "1", "PX", LEASE_MS]);
        vec![reserve, encode(&["STOCK.COMMIT", "stock", &holder(0)])]
    }),
    ("LIMIT.TAKE of one GCRA rule", || vec![limit(&["GCRA", "10", LEASE_MS, "10"])]),
    ("XADD of one field", || vec![entry(&[])]),
];

fn key(kind: &str) -> String {
    format!("{kind}:{NUMBER}")
}

/// A name of 36 bytes, as long as a UUID, that no other holder has.
fn holder(number: usize) -> String {
    format!("7f0b1a2c-3d4e-4f5a-8b{number:02}-{NUMBER}")
}

fn lock() -> Vec<u8> {
    encode(&["LOCK.ACQUIRE", &key("lock"), &holder(0), "PX", LEASE_MS])
}

fn place(number: usize) -> Vec<u8> {
    encode(&["GATE.ACQUIRE", &key("gate"), &holder(number), "LIMIT", "60", "PX", LEASE_MS])
}

fn limit(rule: &[&str]) -> Vec<u8> {
    encode(&[&["LIMIT.TAKE", "RULES", "1", &key("limit")], rule].concat())
}

fn exact() -> Vec<u8> {
    limit(&["EXACT", "10", LEASE_MS])
}

/// An entry of a stream whose field has some 40 bytes.
fn entry(options: &[&str]) -> Vec<u8> {
    encode(&[&["XADD", "jobs"], options, &["*", "order", &holder(0)]].concat())
}

fn main() {
    let Options { setup } = Options::parse();
    pin_self(setup.client_core);
    let mut recorder = Recorder::new("sizing", &setup);
    let own = || vec!["bytes".to_owned()];
    let quantities = ["used memory", "resident memory", "snapshot"].map(|name| Quantity::neither(name, 1));
    recorder.table_of("sizing", "one", own(), quantities);
    for thing in &THINGS {
        recorder.case(thing.name, None, |_| measure(&setup, thing));
    }
    let quantities = ["alone", "among 100"].map(|name| Quantity::neither(name, 1));
    recorder.table_of("journal", "change", own(), quantities);
    for (name, requests) in JOURNALED {
        recorder.case(name, None, |_| [1, AT_ONCE].map(|at_once| journal_bytes(&setup, &requests(), at_once)));
    }
    recorder.finish();
}

/// A server whose journal is cut by SAVE alone. How often it is synced does not change its bytes.
fn start(setup: &Setup) -> Server {
    const FLAGS: &[&str] = &["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];
    Server::start_with(&setup.server, &setup.server_core.to_string(), FLAGS, &[])
}

/// Used, resident and snapshot bytes of one thing.
fn measure(setup: &Setup, thing: &Thing) -> [f64; 3] {
    let server = start(setup);
    let mut connection = Connection::new(&server);
    connection.ask(&["XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM"]);
    for request in thing.before {
        connection.ask(&request.split(' ').collect::<Vec<_>>());
    }
    // Memory that the server allocates once, for its first snapshot, does not count.
    let before = bytes(&server, &mut connection);
    let count = setup.scaled(COUNT / thing.each);
    for request in (thing.requests)() {
        connection.fill(0..count, AT_ONCE, &request);
    }
    let after = bytes(&server, &mut connection);
    let things = (count * thing.each) as f64;
    [0, 1, 2].map(|quantity| (after[quantity] - before[quantity]) / things)
}

/// Used memory, resident memory, and the size of a snapshot made now.
fn bytes(server: &Server, connection: &mut Connection) -> [f64; 3] {
    connection.ask(&["SAVE"]);
    let resident = server.steady_bytes() as f64;
    [field(connection, "memory", "used_memory"), resident, field(connection, "persistence", "aof_base_size")]
}

/// Bytes that the requests of one number add to the journal, if so many are sent at once.
fn journal_bytes(setup: &Setup, requests: &[Vec<u8>], at_once: usize) -> f64 {
    let server = start(setup);
    let mut connection = Connection::new(&server);
    connection.ask(&["STOCK.SET", "stock", "1000000"]);
    let before = field(&mut connection, "persistence", "aof_current_size");
    let count = setup.scaled(CHANGES);
    for request in requests {
        connection.fill(0..count, at_once, request);
    }
    (field(&mut connection, "persistence", "aof_current_size") - before) / count as f64
}

/// A number of INFO.
fn field(connection: &mut Connection, section: &str, name: &str) -> f64 {
    let info = connection.ask(&["INFO", section]);
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("INFO has it");
    value.trim().parse().expect("a number")
}
