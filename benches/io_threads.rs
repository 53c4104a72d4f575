//! I/O threads in addition to the thread that runs the commands: `cargo bench --bench io_threads`.
//!
//! Each server is measured with one thread and with several (`--io-threads`), on cores that no other server uses in the
//! meantime. 200 connections run in a closed loop, from a client with as many threads as it has cores. Without
//! `--server-cores` and `--client-cores` each side has half of the machine's cores: meaningful results need a machine
//! of eight or more.

mod figures;
mod load;
mod peer;
mod requests;
mod scripts;

use clap::Parser;

use figures::{Quantity, Recorder};
use load::{Judged, Load, Pace};
use peer::{Server, Setup, UNLOGGED, pin_self_to};

/// Measures the benefit of I/O threads. Takes some 2 minutes in full with two peers.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Threads of each server, including the one that runs the commands; half of the machine's cores if not given.
    #[arg(long)]
    io_threads: Option<usize>,
    /// Cores of the servers, as in "0-7".
    #[arg(long)]
    server_cores: Option<String>,
    /// Cores of the client.
    #[arg(long)]
    client_cores: Option<String>,
}

const CONNECTIONS: usize = 200;

fn main() {
    let options = Options::parse();
    // Half of the cores for each side, and as many threads for the client.
    let half = std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
    let server_cores = options.server_cores.clone().unwrap_or_else(|| format!("0-{}", half - 1));
    let client_cores = options.client_cores.clone().unwrap_or_else(|| format!("{half}-{}", 2 * half - 1));
    pin_self_to(&client_cores);
    let mut recorder = Recorder::new("io_threads", &options.setup);
    let quantities = [
        Quantity::more("requests/s", 0),
        Quantity::less("CPU us/op", 2),
        Quantity::less("p99 ms", 2),
        Quantity::neither("client busy %", 0),
    ];
    recorder.table("io_threads", "command, threads", quantities);
    for threads in [1, options.io_threads.unwrap_or(half.max(2))] {
        let number = threads.to_string();
        let flags = [UNLOGGED, &["--io-threads", &number]].concat();
        let start = |command: &String| Judged::new(Server::start_with(command, &server_cores, &flags, &[]));
        let judged: Vec<Judged> = options.setup.commands().iter().map(start).collect();
        judged.iter().for_each(|judged| judged.server.pause());
        for (load, depth) in LOADS {
            let pace = Pace { connections: CONNECTIONS, depth, length: options.setup.seconds(options.seconds) };
            recorder.case(&format!("{}, P={depth}, {threads}", load.name), None, |server| {
                let judged = &judged[server];
                judged.server.go_on();
                let sample = judged.measure_by(half, load, pace);
                judged.server.pause();
                [sample.per_second, sample.server_us, sample.p99_ms, 100.0 * sample.client_busy]
            });
        }
    }
    recorder.finish();
}

const LOADS: [(&Load, usize); 6] =
    [(&load::GET, 1), (&load::SET, 1), (&load::GATE, 1), (&load::GET, 16), (&load::SET, 16), (&load::GATE, 16)];
