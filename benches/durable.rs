//! The cost of durability, compared with peers in one run: `cargo bench --bench durable`.
//!
//! Every server keeps a journal and syncs it before it answers (`--appendonly yes --appendfsync always`), or every
//! second (`everysec`). All run at once, pinned to one core; this client is pinned to another. For every case they are
//! measured in turn, round after round, each time from the same data. Reported are medians of the rounds: requests per
//! second, the 99th percentile of the time for a batch of P requests, and the CPU time of the server's process per
//! request.
//!
//! Then come two further tables:
//!
//! - Tidegate with every OK on disk, compared with the peers **without** persistence;
//! - Tidegate on a disk whose syncs take 2 ms each: half of the connections change keys, the others read unchanged
//!   keys. Readers should not wait for the disk. The library that makes the disk slow is compiled from
//!   `tests/suite/slow_disk.c` by `cc`.
//!
//! The journals go to a temporary folder (`TMPDIR`), which should be on a disk and not in memory.

mod figures;
mod load;
mod peer;
mod requests;
mod scripts;

use std::path::Path;
use std::process::Command;

use clap::Parser;
use tokio::runtime::Runtime;

use figures::{Quantity, Recorder};
use load::{Judged, Load, Pace, Sample};
use peer::{Server, Setup, UNLOGGED, pin_self};

/// Compares durable servers. Takes some 3 minutes in full with two peers.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

/// Replies are sent only after the disk has the change. Rewrites are off, since one in between would hit one server and
/// not another.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];

/// The last second may be lost.
const EVERY_SECOND: &[&str] =
    &["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"];

/// How long a sync of the slow disk takes, in microseconds.
const SLOW_SYNC_US: &str = "2000";

/// A load, the depth of its pipelines, and its number of connections.
struct Case {
    load: &'static Load,
    depth: usize,
    connections: usize,
}

const fn case(load: &'static Load, depth: usize, connections: usize) -> Case {
    Case { load, depth, connections }
}

static CASES: [Case; 6] = [
    case(&load::INCR, 16, 50),
    case(&load::INCR, 16, 500),
    case(&load::INCR, 1, 50),
    case(&load::INCR, 1, 500),
    case(&load::GATE, 16, 50),
    case(&load::SECKILL, 16, 50),
];

/// Cases that are also compared with peers in memory, and with a sync every second.
static FEW_CASES: [Case; 2] = [case(&load::INCR, 16, 50), case(&load::GATE, 16, 50)];

/// On the slow disk: connections of each kind.
const SLOW_CONNECTIONS: usize = 25;

fn main() {
    let options = Options::parse();
    pin_self(options.setup.client_core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    let recorder = Recorder::new("durable", &options.setup);
    let mut bench = Bench { recorder, options, runtime };
    let ours = bench.options.setup.server.clone();
    bench.table("durable", DURABLE, DURABLE, &CASES);
    bench.table("every_second", EVERY_SECOND, EVERY_SECOND, &FEW_CASES);
    bench.table("against_memory", UNLOGGED, DURABLE, &FEW_CASES);
    bench.slow_disk(&ours);
    bench.recorder.finish();
}

struct Bench {
    recorder: Recorder,
    options: Options,
    runtime: Runtime,
}

impl Bench {
    fn quantities() -> [Quantity; 3] {
        [Quantity::more("requests/s", 0), Quantity::less("p99 ms", 3), Quantity::less("CPU us/op", 3)]
    }

    fn of(sample: &Sample) -> [f64; 3] {
        [sample.per_second, sample.p99_ms, sample.server_us]
    }

    /// Makes a table of these cases, with these flags for peers and for our server.
    fn table(&mut self, name: &str, peers: &[&str], ours: &[&str], cases: &[Case]) {
        self.recorder.table(name, "command", Self::quantities());
        let setup = &self.options.setup;
        let core = setup.server_core.to_string();
        let start = |command: &String, flags| Judged::new(Server::start_with(command, &core, flags, &[]));
        let mut judged: Vec<Judged> = setup.peers().iter().map(|command| start(command, peers)).collect();
        judged.push(start(&setup.server, ours));
        for &Case { load, depth, connections } in cases {
            let pace = Pace { connections, depth, length: setup.seconds(self.options.seconds) };
            let case = format!("{}, P={depth}, {connections} clients", load.name);
            let measure = |server: usize| Self::of(&self.runtime.block_on(judged[server].measure(load, pace)));
            self.recorder.case(&case, None, measure);
        }
    }

    /// Measures readers alongside writers while each sync takes long.
    fn slow_disk(&mut self, command: &str) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let Some(library) = slow_disk(folder.path()) else {
            return eprintln!("cc can't compile what makes a disk slow");
        };
        let environment = [("LD_PRELOAD", library.as_str()), ("SLOW_DISK_US", SLOW_SYNC_US)];
        let setup = &self.options.setup;
        let server = Server::start_with(command, &setup.server_core.to_string(), DURABLE, &environment);
        let name = server.version();
        let judged = Judged::new(server);
        let pace = Pace { connections: SLOW_CONNECTIONS, depth: 1, length: setup.seconds(self.options.seconds) };
        self.recorder.table_of("slow_disk", "command", vec![name], Self::quantities());
        let cases = ["INCR", "GET of other keys, beside them"].map(|case| (case.to_owned(), None)).to_vec();
        self.recorder.cases(cases, |_| {
            let both = self.runtime.block_on(judged.measure_together([&load::INCR, &load::GET], pace));
            both.iter().map(Self::of).collect()
        });
    }
}

/// The path of the library that makes syncs slow; `None` without a compiler.
fn slow_disk(folder: &Path) -> Option<String> {
    let library = folder.join("slow_disk.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/slow_disk.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    built.is_ok_and(|status| status.success()).then(|| library.display().to_string())
}
