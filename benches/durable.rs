//! What durability costs, beside peers and in one run: `cargo bench --bench durable -- --peer-redis PATH --peer-valkey PATH`.
//!
//! Every server keeps a log and syncs it before it answers (`--appendonly yes --appendfsync always`). All run at once, pinned to one
//! core; this client is pinned to another. For every case they are measured in turn, round after round, each time from the same
//! data. Told are medians of the rounds: requests per second, the 99th percentile of the time that a batch of P requests
//! takes, and the CPU time of the server's process per request. The ratio is that to the better of the peers, in requests per second, the
//! median of the rounds' ratios.
//!
//! Then come two further tables:
//!
//! - Tidegate with every OK on disk beside the peers **without** persistence;
//! - Tidegate on a disk of which each sync takes 2 ms: half of the connections change keys, the others read keys that nobody changes.
//!   Readers should not wait for the disk. The library that makes the disk slow is compiled from `tests/suite/slow_disk.c` by `cc`.
//!
//! Logs go to a temporary folder (`TMPDIR`), which should be on a disk and not in memory.

#[allow(dead_code, reason = "other benches have loads of their own")]
mod load;
#[allow(dead_code, reason = "not every bench asks for everything")]
mod peer;
mod scripts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use load::{Judged, Load, Pace, Sample};
use peer::{Contestants, Server, cpu_model, median, pin_self};

/// Measures durable servers beside each other and prints Markdown tables.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    contestants: Contestants,
    /// Folder with gate_acquire.lua and seckill_v2.lua; without it the script cases are left out.
    #[arg(long, default_value = "../shared/scenarios")]
    scripts: PathBuf,
    /// Rounds in which the servers take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Only what has this in its name.
    #[arg(long, default_value = "")]
    only: String,
    /// Core of the servers.
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Core of the client.
    #[arg(long, default_value_t = 1)]
    client_core: usize,
}

/// Nobody is answered before the disk has it. A log that is made anew in between would hit one server and not another.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];

const IN_MEMORY: &[&str] = &["--appendonly", "no"];

/// How long a sync of the slow disk takes, in microseconds.
const SLOW_SYNC_US: &str = "2000";

/// A load, and how much of it at a time.
struct Case {
    name: &'static str,
    load: Load,
    depth: usize,
    connections: usize,
}

const fn case(name: &'static str, load: Load, depth: usize, connections: usize) -> Case {
    Case { name, load, depth, connections }
}

const CASES: [Case; 6] = [
    case("INCR, P=16, c=50", Load::Incr, 16, 50),
    case("INCR, P=16, c=500", Load::Incr, 16, 500),
    case("INCR, P=1, c=50", Load::Incr, 1, 50),
    case("INCR, P=1, c=500", Load::Incr, 1, 500),
    case("gate_acquire.lua, P=16, c=50", Load::Gate, 16, 50),
    case("seckill_v2.lua, P=16, c=50", Load::Seckill, 16, 50),
];

/// Those that are also held against peers in memory.
const AGAINST_MEMORY: [usize; 2] = [0, 4];

/// On the slow disk: connections of each kind.
const SLOW_CONNECTIONS: usize = 25;

fn main() {
    let options = Options::parse();
    pin_self(options.client_core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    runtime.block_on(compare(&options));
}

async fn compare(options: &Options) {
    let ours = options.start(&options.contestants.server, DURABLE, &[]).await;
    let (mut durable, mut in_memory, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (name, command) in options.contestants.peers() {
        names.push(name);
        durable.push(options.start(command, DURABLE, &[]).await);
        in_memory.push(options.start(command, IN_MEMORY, &[]).await);
    }
    names.push("Tidegate");
    let versions: Vec<String> = durable.iter().chain([&ours]).map(|judged| judged.server.version()).collect();
    println!("{}", versions.join("; "));
    println!(
        "servers on core {}, client on core {}; medians of {} rounds of {} s; {}",
        options.server_core,
        options.client_core,
        options.rounds,
        options.seconds,
        cpu_model()
    );
    println!("\nEvery OK on disk:\n");
    head(&names);
    for case in &CASES {
        options.measure(case, &durable, &ours).await;
    }
    if !in_memory.is_empty() {
        println!("\nTidegate with every OK on disk, the peers without persistence:\n");
        head(&names);
        for case in AGAINST_MEMORY.map(|index| &CASES[index]) {
            options.measure(case, &in_memory, &ours).await;
        }
    }
    drop((durable, in_memory, ours));
    options.measure_slow_disk().await;
}

fn head(names: &[&str]) {
    let each = |what: &str| names.iter().map(|name| format!(" {name} {what} |")).collect::<String>();
    println!("| case |{} ratio |{}{}", each("rps"), each("p99 ms"), each("CPU us/op"));
    println!("|---|{}", "--:|".repeat(3 * names.len() + 1));
}

impl Options {
    async fn start(&self, command: &str, flags: &[&str], environment: &[(&str, &str)]) -> Judged {
        let server = Server::start_with(command, &self.server_core.to_string(), flags, environment);
        Judged::new(server, &self.scripts).await
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// One row: the peers, then ours.
    async fn measure(&self, case: &Case, peers: &[Judged], ours: &Judged) {
        let Case { name, load, depth, connections } = *case;
        if !name.contains(&self.only) {
            return;
        }
        if !ours.can_run(load) {
            return eprintln!("{name}: no scripts in {} (--scripts)", self.scripts.display());
        }
        let pace = Pace { connections, depth, length: self.length() };
        let judged: Vec<&Judged> = peers.iter().chain([ours]).collect();
        let mut samples = vec![Vec::new(); judged.len()];
        for round in 0..self.rounds {
            // Who begins changes, so that a machine that heats up favours nobody.
            for turn in 0..judged.len() {
                let which = (round + turn) % judged.len();
                samples[which].push(judged[which].measure(load, pace).await);
            }
        }
        print_row(name, &samples);
    }

    /// Readers beside writers, while each sync takes long.
    async fn measure_slow_disk(&self) {
        const NAME: &str = "slow disk";
        if !NAME.contains(&self.only) {
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let Some(library) = slow_disk(folder.path()) else { return eprintln!("{NAME}: cc can't compile it") };
        let environment = [("LD_PRELOAD", library.as_str()), ("SLOW_DISK_US", SLOW_SYNC_US)];
        let server = self.start(&self.contestants.server, DURABLE, &environment).await;
        let pace = Pace { connections: SLOW_CONNECTIONS, depth: 1, length: self.length() };
        let mut samples = [const { Vec::new() }; 2];
        for _ in 0..self.rounds {
            let both = server.measure_together([Load::Incr, Load::Get], pace).await;
            samples.iter_mut().zip(both).for_each(|(samples, sample)| samples.push(sample));
        }
        let [writers, readers] = &samples;
        let ratios = readers.iter().zip(writers).map(|(reader, writer)| reader.p99_ms / writer.p99_ms).collect();
        println!("\nTidegate, each sync of {SLOW_SYNC_US} us, P=1, {SLOW_CONNECTIONS} connections of each kind:\n");
        println!("| | requests/s | p99 ms |\n|---|--:|--:|");
        for (name, samples) in [("INCR", writers), ("GET of other keys", readers)] {
            let of = |field: fn(&Sample) -> f64| median(samples.iter().map(field).collect());
            println!("| {name} | {:.0} | {:.3} |", of(|s| s.per_second), of(|s| s.p99_ms));
        }
        println!("\nReaders' p99 to writers': {:.3}", median(ratios));
    }
}

/// Prints what the peers' samples and, last, ours come to.
fn print_row(name: &str, samples: &[Vec<Sample>]) {
    let each = |field: fn(&Sample) -> f64, digits: usize| {
        let of = |samples: &Vec<Sample>| median(samples.iter().map(field).collect());
        samples.iter().map(|samples| format!(" {:.digits$} |", of(samples))).collect::<String>()
    };
    let ratio = match samples.split_last() {
        Some((ours, peers)) if !peers.is_empty() => {
            let best = |round: usize| peers.iter().map(|peer| peer[round].per_second).fold(0.0, f64::max);
            let ratios = ours.iter().enumerate().map(|(round, sample)| sample.per_second / best(round)).collect();
            format!("{:.2}", median(ratios))
        }
        _ => String::new(),
    };
    let (fast, late, busy) = (each(|s| s.per_second, 0), each(|s| s.p99_ms, 3), each(|s| s.server_us, 3));
    println!("| {name} |{fast} {ratio} |{late}{busy}");
}

/// The library that makes syncs slow, as a path; `None` without a compiler.
fn slow_disk(folder: &Path) -> Option<String> {
    let library = folder.join("slow_disk.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/slow_disk.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    built.is_ok_and(|status| status.success()).then(|| library.display().to_string())
}
