//! Tidegate and peers side by side, in one run: `cargo bench --bench side_by_side`.
//!
//! All servers run at once, pinned to one core; this client is pinned to another. For every case they are measured in
//! turn, round after round, so that other activity of the machine affects all; each round starts from the same data.
//! Reported are medians:
//!
//! - requests per second, closed loop, 50 connections with P requests in flight each;
//! - CPU time of the server's process per request, from the kernel's books (all threads, user and system): valid even
//!   where the client, not the server, is the limit;
//! - how busy the client was. Above 90% its core was the limit, and the ratio of requests per second understates the
//!   difference: then the ratio of CPU times says more.

mod figures;
mod load;
mod peer;
mod requests;
mod scripts;

use clap::Parser;
use tokio::runtime::Runtime;

use figures::{Quantity, Recorder};
use load::{Judged, Load, Pace};
use peer::{Setup, pin_self};

/// Measures throughput and CPU time per request: by pipeline depth, command, script, value size, number of keys and
/// clients. Takes some 15 minutes in full with two peers.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.4)]
    seconds: f64,
}

const CONNECTIONS: usize = 50;

fn main() {
    let options = Options::parse();
    pin_self(options.setup.client_core);
    let recorder = Recorder::new("side_by_side", &options.setup);
    let judged = options.setup.commands().iter().map(|command| Judged::new(options.setup.start(command))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    let mut bench = Bench { recorder, options, judged, runtime };

    bench.table("pipeline", "command");
    for load in [&load::GET, &load::SET, &load::INCR] {
        for depth in [1, 16, 100] {
            bench.case(load, depth);
        }
    }
    bench.table("commands", "command");
    for load in [&load::XADD, &load::SADD, &load::ZADD, &load::HSET, &load::LPUSH, &load::XREADGROUP] {
        bench.case(load, 16);
    }
    for load in [&load::MSET, &load::LRANGE, &load::HGETALL, &load::ZRANGE] {
        bench.case(load, 16);
    }
    bench.table("scripts", "script");
    for (load, depth) in [
        (&load::GATE, 16),
        (&load::SECKILL, 16),
        (&load::EMPTY, 16),
        (&load::EMPTY, 100),
        (&load::SETS, 16),
        (&load::JSON, 16),
        (&load::LOOP, 16),
    ] {
        bench.case(load, depth);
    }
    for (table, load) in [("get_by_size", &load::GET), ("set_by_size", &load::SET)] {
        bench.table(table, "bytes of the value");
        for (value_len, keys) in [(10, 100_000), (100, 100_000), (1_024, 100_000), (4_096, 10_000), (65_536, 1_000)] {
            bench.point(value_len, &load.among(keys, value_len), 16, CONNECTIONS);
        }
    }
    for (table, load) in [("get_by_keys", &load::GET), ("set_by_keys", &load::SET)] {
        bench.table(table, "keys");
        for keys in [1_000, 10_000, 100_000, 1_000_000, 10_000_000].map(|keys| bench.options.setup.scaled(keys)) {
            bench.point(keys as usize, &load.among(keys, 10), 16, CONNECTIONS);
        }
    }
    bench.table("get_by_clients", "clients");
    for clients in [1, 10, 50, 200, 1_000] {
        bench.point(clients, &load::GET, 1, clients);
    }
    bench.recorder.finish();
}

struct Bench {
    recorder: Recorder,
    options: Options,
    judged: Vec<Judged>,
    runtime: Runtime,
}

impl Bench {
    fn table(&mut self, name: &str, cases: &str) {
        let client_busy = Quantity::neither("client busy %", 0);
        let quantities = [Quantity::more("requests/s", 0), Quantity::less("CPU us/op", 3), client_busy];
        self.recorder.table(name, cases, quantities);
    }

    fn case(&mut self, load: &Load, depth: usize) {
        self.measure(&format!("{}, P={depth}", load.name), None, load, depth, CONNECTIONS);
    }

    /// A case that is a point of a curve.
    fn point(&mut self, x: usize, load: &Load, depth: usize, connections: usize) {
        self.measure(&x.to_string(), Some(x as f64), load, depth, connections);
    }

    fn measure(&mut self, case: &str, x: Option<f64>, load: &Load, depth: usize, connections: usize) {
        let pace = Pace { connections, depth, length: self.options.setup.seconds(self.options.seconds) };
        self.recorder.case(case, x, |server| {
            let sample = self.runtime.block_on(self.judged[server].measure(load, pace));
            [sample.per_second, sample.server_us, 100.0 * sample.client_busy]
        });
    }
}
