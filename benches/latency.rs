//! How long a light client waits under a heavy load: `cargo bench --bench latency`.
//!
//! The client sends a thousand requests per second in an open loop (see `probe`). Its waits at a busy server are
//! reported next to those of an idle one, which belong to the machine: a virtual machine that its host stops for 3 ms
//! delays every client.
//!
//! | Table | Load in the meantime |
//! |---|---|
//! | `latency` | none; 50 connections in a closed loop, with one or 16 requests in flight |
//! | `growth` | insertion of 20 million keys, as fast as the server answers |
//! | `expiry` | the deadlines of a million keys pass in one second |
//! | `leases` | the same for a million leases, of locks and of places in gates |
//! | `deletion` | a set of 10 million members is deleted |
//! | `huge_pages` | insertion of 3 million keys, with and without huge pages |
//!
//! The server has one core, with all its threads; the load and the probe share the other, on which the load gives way.

mod figures;
mod load;
mod peer;
mod probe;
mod requests;
mod scripts;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;

use figures::{Quantity, Recorder};
use load::{Judged, Pace};
use peer::{Server, Setup, UNLOGGED, connection::Connection, pin_self};
use probe::{Waits, give_way, probe_while};
use requests::{NUMBER, Requests, encode};

/// Measures the waits of a light client under a heavy load. Takes some 55 minutes in full with two peers; memory for
/// 20 million keys, some 2 GiB.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
}

/// Keys to which a server grows.
const GROWN_KEYS: u64 = 20_000_000;

/// Keys that expire in one second.
const EXPIRING_KEYS: u64 = 1_000_000;

/// Members of the deleted set.
const DELETED_MEMBERS: u64 = 10_000_000;

/// Keys inserted with and without huge pages.
const HUGE_PAGE_KEYS: u64 = 3_000_000;

/// How long each case of the table `latency` is observed, in seconds; 20,000 requests show the longest wait of 10,000.
const LATENCY_S: f64 = 20.0;

/// As [`LATENCY_S`], for an idle server beside the other tables.
const IDLE_S: f64 = 5.0;

/// Connections that insert, and the size of their pipelines.
const INSERTERS: u64 = 8;
const INSERTED_AT_ONCE: usize = 16;

/// A longer wait is called a stall, in ms.
const STALL_MS: f64 = 2.0;

/// Memory counts as returned when at most this share of the growth is left.
const LEFT_OVER: f64 = 0.1;

/// Longest time to wait for memory to come back, in seconds.
const MEMORY_PATIENCE_S: f64 = 15.0;

fn main() {
    let Options { setup } = Options::parse();
    pin_self(setup.client_core);
    let commands = setup.commands();
    let mut recorder = Recorder::new("latency", &setup);
    beside_load(&mut recorder, &setup, &commands);
    growth(&mut recorder, &setup, &commands);
    expiry(&mut recorder, &setup, &commands);
    leases(&mut recorder, &setup);
    deletion(&mut recorder, &setup, &commands);
    huge_pages(&mut recorder, &setup);
    recorder.finish();
}

fn beside_load(recorder: &mut Recorder, setup: &Setup, commands: &[String]) {
    let percentiles = ["p50 ms", "p99 ms", "p99.9 ms", "p99.99 ms", "longest ms"].map(|name| Quantity::less(name, 3));
    recorder.table("latency", "load beside the probe", percentiles);
    let of = |waits: &Waits| [50.0, 99.0, 99.9, 99.99, 100.0].map(|percent| waits.percentile(percent));
    let length = setup.seconds(LATENCY_S);
    recorder.case("none", None, |server| of(&idle(&setup.start(&commands[server]), length)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    for (load, depth) in [(&load::GET, 1), (&load::SET, 1), (&load::SET, 16), (&load::GATE, 16)] {
        recorder.case(&format!("{}, P={depth}, 50 connections", load.name), None, |server| {
            let judged = Judged::new(setup.start(&commands[server]));
            let (waits, _) = probe_while(&judged.server, || {
                runtime.block_on(judged.measure(load, Pace { connections: 50, depth, length }))
            });
            of(&waits)
        });
    }
}

/// The waits of a probe on an idle server.
fn idle(server: &Server, length: Duration) -> Waits {
    probe_while(server, || std::thread::sleep(length)).0
}

fn growth(recorder: &mut Recorder, setup: &Setup, commands: &[String]) {
    let keys = setup.scaled(GROWN_KEYS);
    recorder.table(
        "growth",
        "load",
        [
            Quantity::more("keys/s", 0),
            Quantity::less("CPU us/key", 3),
            Quantity::less("p99 ms", 3),
            Quantity::less("p99.9 ms", 3),
            Quantity::less("p99.99 ms", 3),
            Quantity::less("longest ms", 3),
            stalls(),
        ],
    );
    let of = |waits: &Waits, keys_per_s: f64, cpu_us: f64| {
        let [p99, p999, p9999] = [99.0, 99.9, 99.99].map(|percent| waits.percentile(percent));
        [keys_per_s, cpu_us, p99, p999, p9999, waits.longest(), waits.per_mille_beyond(STALL_MS)]
    };
    let cases = vec![("nothing".to_owned(), None), (format!("insertion of {keys} keys"), None)];
    recorder.cases(cases, |number| {
        let server = setup.start(&commands[number]);
        let (cpu, begin) = (server.cpu_seconds(), Instant::now());
        let (growing, ()) = probe_while(&server, || insert(&server, keys));
        let (cpu, length) = (server.cpu_seconds() - cpu, begin.elapsed());
        drop(server);
        // The longest wait grows with the time observed, so the idle server is observed for as long.
        let idle = idle(&setup.start(&commands[number]), length);
        vec![of(&idle, 0.0, 0.0), of(&growing, keys as f64 / length.as_secs_f64(), cpu * 1e6 / keys as f64)]
    });
}

/// How many waits were stalls.
fn stalls() -> Quantity {
    Quantity::less(&format!("of 1,000 beyond {STALL_MS} ms"), 2)
}

/// Stores strings of 10 bytes through several connections, as fast as the server answers.
fn insert(server: &Server, keys: u64) {
    const STEP: u64 = INSERTED_AT_ONCE as u64;
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..INSERTERS {
            scope.spawn(|| {
                let mut connection = Connection::new(server);
                let mut requests =
                    Requests::new(&encode(&["SET", &format!("key:{NUMBER}"), "0123456789"]), INSERTED_AT_ONCE);
                give_way();
                loop {
                    let first = next.fetch_add(STEP, Ordering::Relaxed);
                    if first >= keys {
                        return;
                    }
                    connection.pipeline(requests.numbered(first), STEP);
                }
            });
        }
    });
}

fn expiry(recorder: &mut Recorder, setup: &Setup, commands: &[String]) {
    let keys = setup.scaled(EXPIRING_KEYS);
    recorder.table(
        "expiry",
        "passing in one second",
        [
            Quantity::less("s until no key is left", 2),
            Quantity::less("s until the memory is back", 2),
            Quantity::less("idle, p99 ms", 3),
            Quantity::less("meanwhile, p99 ms", 3),
            Quantity::less("idle, longest ms", 3),
            Quantity::less("meanwhile, longest ms", 3),
        ],
    );
    recorder.case(&format!("the deadlines of {keys} keys"), None, |server| {
        let server = setup.start(&commands[server]);
        let idle = idle(&server, setup.seconds(IDLE_S));
        let before = server.steady_bytes();
        let mut control = Connection::new(&server);
        let passing = Passing::stored(&mut control, keys, |at_ms| {
            encode(&["SET", &format!("key:{NUMBER}"), "0123456789", "PXAT", at_ms])
        });
        let memory = MemoryBack { server: &server, before, full: server.resident_bytes() };
        assert_eq!(control.ask(&["DBSIZE"]), format!(":{keys}"), "keys expired too early, or not all are there");
        passing.wait_for_first();
        let (waits, gone_after) = probe_while(&server, || {
            passing.wait_for_last();
            let last = Instant::now();
            while control.ask(&["DBSIZE"]) != ":0" {
                std::thread::sleep(Duration::from_millis(20));
            }
            last
        });
        let (last, gone) = (gone_after, gone_after.elapsed().as_secs_f64());
        let back = memory.seconds_until_back(last);
        [gone, back, idle.percentile(99.0), waits.percentile(99.0), idle.longest(), waits.longest()]
    });
}

/// Only for the server under test: peers have no leases.
fn leases(recorder: &mut Recorder, setup: &Setup) {
    let many = setup.scaled(EXPIRING_KEYS);
    recorder.table_of(
        "leases",
        "ending in one second",
        setup.names().pop().into_iter().collect(),
        [
            Quantity::less("s until none is left", 2),
            Quantity::less("idle, p99 ms", 3),
            Quantity::less("meanwhile, p99 ms", 3),
            Quantity::less("idle, longest ms", 3),
            Quantity::less("meanwhile, longest ms", 3),
            stalls(),
        ],
    );
    // Each lock is a key of its own.
    let lock = |at_ms: &str| encode(&["LOCK.ACQUIRE", &format!("lock:{NUMBER}"), LEASE_OWNER, "PXAT", at_ms]);
    let gate = |at_ms: &str| {
        encode(&["GATE.ACQUIRE", "gate", &format!("holder:{NUMBER}"), "LIMIT", "4000000000", "PXAT", at_ms])
    };
    let cases: [(&str, Request); 2] = [("leases of locks", lock), ("places of one gate", gate)];
    for (name, request) in cases {
        recorder.case(&format!("{many} {name}"), None, |_| {
            let server = setup.start(&setup.server);
            let idle = idle(&server, setup.seconds(IDLE_S));
            let mut control = Connection::new(&server);
            let passing = Passing::stored(&mut control, many, request);
            passing.wait_for_first();
            let (waits, last) = probe_while(&server, || {
                passing.wait_for_last();
                let last = Instant::now();
                while control.ask(&["DBSIZE"]) != ":0" {
                    std::thread::sleep(Duration::from_millis(20));
                }
                last
            });
            let gone = last.elapsed().as_secs_f64();
            let [idle_p99, p99] = [&idle, &waits].map(|waits| waits.percentile(99.0));
            [gone, idle_p99, p99, idle.longest(), waits.longest(), waits.per_mille_beyond(STALL_MS)]
        });
    }
}

/// Makes a request for each number, for something that expires at this time, Unix ms.
type Request = fn(&str) -> Vec<u8>;

/// As long as a UUID.
const LEASE_OWNER: &str = "7f0b1a2c-3d4e-4f5a-8b6c-9d0e1f2a3b4c";

/// A second in which deadlines pass, in ms since 1970.
struct Passing(Range<u64>);

impl Passing {
    /// Stores keys whose deadlines are spread over one second that begins only after the last is stored.
    fn stored(connection: &mut Connection, keys: u64, request: Request) -> Passing {
        // Storing 100,000 keys per second is fast enough. A machine busy with other work may take longer.
        let mut patience_ms = 2_000 + keys / 100;
        loop {
            let first = unix_ms() + patience_ms;
            let passing = Passing(first..first + 1_000);
            if passing.store(connection, keys, request) {
                return passing;
            }
            connection.ask(&["FLUSHALL"]);
            patience_ms *= 2;
        }
    }

    /// Returns whether all were stored in time.
    fn store(&self, connection: &mut Connection, keys: u64, request: Request) -> bool {
        const STEP: u64 = 500;
        for first in (0..keys).step_by(STEP as usize) {
            let at = self.0.start + first * 1_000 / keys;
            connection.fill(first..(first + STEP).min(keys), STEP as usize, &request(&at.to_string()));
        }
        unix_ms() < self.0.start
    }

    fn wait_for_first(&self) {
        std::thread::sleep(Duration::from_millis(self.0.start.saturating_sub(unix_ms())));
    }

    fn wait_for_last(&self) {
        std::thread::sleep(Duration::from_millis(self.0.end.saturating_sub(unix_ms())));
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set").as_millis() as u64
}

/// Memory expected to be returned.
struct MemoryBack<'a> {
    server: &'a Server,
    /// Resident bytes before the growth.
    before: u64,
    /// Resident bytes after the growth.
    full: u64,
}

impl MemoryBack<'_> {
    /// Seconds from `since` until the memory is returned; [`MEMORY_PATIENCE_S`] where it takes longer.
    fn seconds_until_back(&self, since: Instant) -> f64 {
        let enough = self.before + (self.full.saturating_sub(self.before) as f64 * LEFT_OVER) as u64;
        while self.server.resident_bytes() > enough && since.elapsed().as_secs_f64() < MEMORY_PATIENCE_S {
            std::thread::sleep(Duration::from_millis(10));
        }
        since.elapsed().as_secs_f64().min(MEMORY_PATIENCE_S)
    }
}

fn deletion(recorder: &mut Recorder, setup: &Setup, commands: &[String]) {
    let members = setup.scaled(DELETED_MEMBERS);
    recorder.table(
        "deletion",
        "deleted value",
        [
            Quantity::less("DEL ms", 2),
            Quantity::less("s until the memory is back", 2),
            Quantity::less("idle, p99.9 ms", 3),
            Quantity::less("meanwhile, p99.9 ms", 3),
            Quantity::less("idle, longest ms", 3),
            Quantity::less("meanwhile, longest ms", 3),
        ],
    );
    recorder.case(&format!("a set of {members}"), None, |server| {
        let server = setup.start(&commands[server]);
        let idle = idle(&server, setup.seconds(IDLE_S));
        let before = server.steady_bytes();
        let mut control = Connection::new(&server);
        control.fill(0..members, 500, &encode(&["SADD", "big", &format!("member:{NUMBER}")]));
        let memory = MemoryBack { server: &server, before, full: server.steady_bytes() };
        let (waits, (took_ms, back)) = probe_while(&server, || {
            let begin = Instant::now();
            assert_eq!(control.ask(&["DEL", "big"]), ":1");
            (begin.elapsed().as_secs_f64() * 1e3, memory.seconds_until_back(begin))
        });
        [took_ms, back, idle.percentile(99.9), waits.percentile(99.9), idle.longest(), waits.longest()]
    });
}

/// Only for the server under test: the cost and benefit of its default.
fn huge_pages(recorder: &mut Recorder, setup: &Setup) {
    let settings = ["yes", "no"];
    recorder.table_of(
        "huge_pages",
        "inserted data",
        settings.map(|setting| format!("disable-thp {setting}")).to_vec(),
        [
            stalls(),
            Quantity::less("longest ms", 3),
            Quantity::less("bytes per key", 1),
            Quantity::less("CPU us for each GET, P=16", 3),
        ],
    );
    let keys = setup.scaled(HUGE_PAGE_KEYS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    recorder.case(&format!("{keys} keys"), None, |number| {
        let flags = [UNLOGGED, &["--disable-thp", settings[number]]].concat();
        let server = Server::start_with(&setup.server, &setup.server_core.to_string(), &flags, &[]);
        let before = server.steady_bytes();
        let (waits, ()) = probe_while(&server, || insert(&server, keys));
        let bytes_per_key = server.steady_bytes().saturating_sub(before) as f64 / keys as f64;
        let pace = Pace { connections: 50, depth: 16, length: setup.seconds(1.0) };
        let sample = runtime.block_on(Judged::new(server).measure(&load::GET.among(keys, 10), pace));
        [waits.per_mille_beyond(STALL_MS), waits.longest(), bytes_per_key, sample.server_us]
    });
}
