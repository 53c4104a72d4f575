//! Tidegate beside redis-server, in one run: `cargo bench --bench side_by_side`.
//!
//! Both servers run at once, pinned to one core; this client is pinned to another. For every case the two are measured in
//! turn, round after round, so that what the machine does besides hits both; each round starts from the same data. Told
//! are medians, as a Markdown table; a ratio is the median of the rounds' ratios, for a machine that is shared may be half as
//! fast from one minute to the next:
//!
//! - requests per second, closed loop, 50 connections with P requests in flight each;
//! - CPU time of the server's process per request, from the kernel's books (all threads, user and system): this holds
//!   even where the client, not the server, is the limit;
//! - how busy the client was. Above 90% its core was the limit, and the throughput ratio is too small: the last column
//!   then says more, the throughput that one core's worth of server time would allow (1 / CPU per request).

#[allow(dead_code, reason = "other benches measure two loads beside each other")]
mod load;
mod peer;
mod scripts;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use load::{Judged, Load, Own, Pace, Sample};
use peer::{Setup, cpu_model, median, pin_self};

/// Measures Tidegate beside redis-server and prints a Markdown table.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Folder with gate_acquire.lua and seckill_v2.lua; without it the script cases are left out.
    #[arg(long, default_value = "../shared/scenarios")]
    scripts: PathBuf,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.4)]
    seconds: f64,
}

const CONNECTIONS: usize = 50;

const CASES: [(&str, Load, usize); 14] = [
    ("SET, P=1", Load::Set, 1),
    ("GET, P=1", Load::Get, 1),
    ("INCR, P=1", Load::Incr, 1),
    ("SET, P=16", Load::Set, 16),
    ("GET, P=16", Load::Get, 16),
    ("INCR, P=16", Load::Incr, 16),
    ("GET, P=100", Load::Get, 100),
    ("EVALSHA gate_acquire.lua, P=16", Load::Gate, 16),
    ("EVALSHA seckill_v2.lua, P=16", Load::Seckill, 16),
    ("EVALSHA of an empty script, P=16", Load::Own(Own::Empty), 16),
    ("EVALSHA of an empty script, P=100", Load::Own(Own::Empty), 100),
    ("EVALSHA of 50 SET, P=16", Load::Own(Own::Sets), 16),
    ("EVALSHA of cjson with 2 KB, P=16", Load::Own(Own::Json), 16),
    ("EVALSHA of a loop in Lua, P=16", Load::Own(Own::Loop), 16),
];

fn main() {
    let options = Options::parse();
    pin_self(options.setup.client_core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    runtime.block_on(compare(&options));
}

async fn compare(options: &Options) {
    let [theirs, ours] = options.setup.start();
    let judged = [Judged::new(theirs, &options.scripts).await, Judged::new(ours, &options.scripts).await];
    let [theirs, ours] = &judged;
    println!("Tidegate: {}; peer: {}", ours.server.version(), theirs.server.version());
    println!(
        "{} connections; server on core {}, client on core {}; medians of {} rounds of {} s; {}\n",
        CONNECTIONS,
        options.setup.server_core,
        options.setup.client_core,
        options.setup.rounds,
        options.seconds,
        cpu_model()
    );
    println!(
        "| case | Redis rps | Tidegate rps | ratio | Redis CPU us/op | Tidegate CPU us/op | ratio | client busy (R / T) | ratio by CPU |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (name, load, depth) in CASES {
        if !name.contains(&options.setup.only) {
            continue;
        }
        if !ours.can_run(load) {
            eprintln!("{name}: no scripts in {} (--scripts)", options.scripts.display());
            continue;
        }
        let mut samples = [const { Vec::new() }; 2];
        for round in 0..options.setup.rounds {
            for which in Setup::turns(round) {
                let length = Duration::from_secs_f64(options.seconds);
                let pace = Pace { connections: CONNECTIONS, depth, length };
                samples[which].push(judged[which].measure(load, pace).await);
            }
        }
        let [theirs, ours] = &samples;
        print_row(name, ours, theirs);
    }
}

fn print_row(name: &str, ours: &[Sample], theirs: &[Sample]) {
    let of = |samples: &[Sample], field: fn(&Sample) -> f64| median(samples.iter().map(field).collect());
    let ratio = |field: fn(&Sample) -> f64| median(ours.iter().zip(theirs).map(|(o, t)| field(o) / field(t)).collect());
    let (fast, peer_fast) = (of(ours, |s| s.per_second), of(theirs, |s| s.per_second));
    let (cost, peer_cost) = (of(ours, |s| s.server_us), of(theirs, |s| s.server_us));
    let (faster, cost_ratio) = (ratio(|s| s.per_second), ratio(|s| s.server_us));
    println!(
        "| {name} | {peer_fast:.0} | {fast:.0} | {faster:.2} | {peer_cost:.3} | {cost:.3} | {cost_ratio:.2} | {:.0}% / {:.0}% | {:.2} |",
        100.0 * of(theirs, |s| s.client_busy),
        100.0 * of(ours, |s| s.client_busy),
        1.0 / cost_ratio,
    );
}
