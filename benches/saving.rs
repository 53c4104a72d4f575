//! The cost of a BGSAVE to clients that go on writing, compared with peers: `cargo bench --bench saving`.
//!
//! Each server is started alone and filled: once with many small strings, once with one hash of as many fields. Then
//! some connections overwrite random ones of these, pipelined, as fast as the server answers. A span without a snapshot
//! is followed by one with BGSAVE, from the command until INFO says that it has ended. Reported are, for both spans:
//!
//! - writes per second;
//! - how long the server keeps a light client waiting (see `probe`): the 99th percentile and the longest wait, beside
//!   the longest without any load, which belongs to the machine;
//!
//! and for the snapshot, how long it took, and the largest growth of memory during it. That is the resident memory of
//! the server, plus memory held only by a forked process, less the server's own peak before the snapshot.
//!
//! Server and client share all the cores that they are given, for saving needs a core, be it for a thread or a process.
//! On few cores, a wait would then last as long as the system lets the load's threads run. So these give way to the
//! server. Snapshots go to a temporary folder (`TMPDIR`).

mod figures;
mod peer;
mod probe;
mod requests;

use std::io::{Read, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use figures::{Quantity, Recorder};
use peer::{Server, Setup, connection::Connection};
use probe::{Waits, give_way, probe_while};
use requests::{NUMBER, Random, encode};

/// Measures the cost of BGSAVE under a full load of writes. Takes some 10 minutes in full with two peers.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Number of keys, and of fields of the hash.
    #[arg(long, default_value_t = 5_000_000)]
    keys: u64,
    /// Connections that write.
    #[arg(long, default_value_t = 8)]
    connections: u64,
    /// Writes in flight on each connection.
    #[arg(long, default_value_t = 16)]
    depth: u64,
    /// For how long the load is measured without a snapshot.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Cores of the servers, as taskset takes them.
    #[arg(long, default_value = "0,1")]
    cores: String,
}

/// How a number is written, and the reply when its key or field exists.
struct Kind {
    name: &'static str,
    write: fn(number: &str) -> Vec<u8>,
    reply: &'static [u8],
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "strings",
        write: |number| encode(&["SET", &format!("key:{number}"), "value:0123456"]),
        reply: b"+OK\r\n",
    },
    Kind {
        name: "hash",
        write: |number| encode(&["HSET", "hash", &format!("field:{number}"), "value:0123456"]),
        reply: b":0\r\n",
    },
];

/// Longer than any snapshot takes unless it is stuck.
const SAVE_MAX: Duration = Duration::from_secs(900);

/// Measurements taken while the load ran.
struct Span {
    writes_per_s: f64,
    waits: Waits,
    /// The peak memory of the server and its children, in bytes.
    peak_bytes: u64,
    length: Duration,
}

fn main() {
    let mut options = Options::parse();
    options.keys = options.setup.scaled(options.keys);
    let commands = options.setup.commands();
    let mut recorder = Recorder::new("saving", &options.setup);
    recorder.table(
        "saving",
        "overwritten data",
        [
            Quantity::less("idle, longest ms", 2),
            Quantity::more("writes/s", 0),
            Quantity::less("p99 ms", 2),
            Quantity::less("longest ms", 2),
            Quantity::more("saving, writes/s", 0),
            Quantity::less("saving, p99 ms", 2),
            Quantity::less("saving, longest ms", 2),
            Quantity::less("save s", 2),
            Quantity::less("MiB", 0),
            Quantity::less("saving, more MiB", 0),
        ],
    );
    for kind in &KINDS {
        let case = format!("{} {}", options.keys, kind.name);
        recorder.case(&case, None, |server| measure(&commands[server], kind, &options));
    }
    recorder.finish();
}

fn measure(command: &str, kind: &Kind, options: &Options) -> [f64; 10] {
    let server = Server::start_on(command, &options.cores);
    let mut control = Connection::new(&server);
    control.fill(0..options.keys, 1_000, &(kind.write)(NUMBER));
    let (idle, ()) = probe_while(&server, || std::thread::sleep(options.setup.seconds(options.seconds)));
    let load = Load::default();
    let ready = Barrier::new(options.connections as usize + 1);
    let (without, with) = std::thread::scope(|scope| {
        for connection in 0..options.connections {
            let (server, load, ready) = (&server, &load, &ready);
            scope.spawn(move || {
                let batches = batches(kind, options, connection);
                ready.wait();
                load.write(server, kind, &batches, options.depth);
            });
        }
        ready.wait();
        // Lets one-off growth happen before the measurement.
        std::thread::sleep(Duration::from_secs(1));
        let (begin, length) = (Instant::now(), options.setup.seconds(options.seconds));
        let without = load.observe(&server, || begin.elapsed() < length);
        control.ask(&["BGSAVE"]);
        let with = load.observe(&server, || is_saving(&mut control));
        load.is_over.store(true, Ordering::Relaxed);
        (without, with)
    });
    let info = control.ask(&["INFO", "persistence"]);
    assert!(info.contains("rdb_last_bgsave_status:ok"), "{command}: {info}");
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    [
        idle.longest(),
        without.writes_per_s,
        without.waits.percentile(99.0),
        without.waits.longest(),
        with.writes_per_s,
        with.waits.percentile(99.0),
        with.waits.longest(),
        with.length.as_secs_f64(),
        mib(without.peak_bytes),
        mib(with.peak_bytes.saturating_sub(without.peak_bytes)),
    ]
}

fn is_saving(control: &mut Connection) -> bool {
    control.ask(&["INFO", "persistence"]).contains("rdb_bgsave_in_progress:1")
}

/// The batches of one connection, encoded in advance: writes of random numbers, enough of them to touch every page of
/// memory.
fn batches(kind: &Kind, options: &Options, connection: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(connection);
    let mut write = || (kind.write)(&format!("{:012}", random.below(options.keys)));
    (0..8_000).map(|_| (0..options.depth).flat_map(|_| write()).collect()).collect()
}

/// The load, shared by the connections that make it.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    writes: AtomicU64,
}

impl Load {
    /// Runs one connection: sends batches and reads their replies, until the end.
    fn write(&self, server: &Server, kind: &Kind, batches: &[Vec<u8>], depth: u64) {
        let expected = kind.reply.repeat(depth as usize);
        let mut replies = vec![0; expected.len()];
        let mut stream = Connection::new(server).stream;
        give_way();
        for batch in batches.iter().cycle() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            stream.write_all(batch).expect("the server reads");
            stream.read_exact(&mut replies).expect("the server answers");
            assert!(replies == expected, "{}", replies.escape_ascii());
            self.writes.fetch_add(depth, Ordering::Relaxed);
        }
    }

    /// Observes the server from another connection for as long as `goes_on` returns true; it is called 20 times a
    /// second.
    fn observe(&self, server: &Server, mut goes_on: impl FnMut() -> bool) -> Span {
        let (begin, before) = (Instant::now(), self.writes.load(Ordering::Relaxed));
        let (waits, peak_bytes) = probe_while(server, || {
            let mut peak_bytes = server.memory_bytes();
            while goes_on() {
                std::thread::sleep(Duration::from_millis(50));
                peak_bytes = peak_bytes.max(server.memory_bytes());
                assert!(begin.elapsed() < SAVE_MAX, "the snapshot does not end");
            }
            peak_bytes
        });
        let length = begin.elapsed();
        let writes = self.writes.load(Ordering::Relaxed) - before;
        Span { writes_per_s: writes as f64 / length.as_secs_f64(), waits, peak_bytes, length }
    }
}
