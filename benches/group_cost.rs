//! What a group of three nodes costs beside a single durable server, and beside other servers that copy each change to
//! another node before they acknowledge it: `cargo bench --bench group_cost`.
//!
//! All nodes share this machine, so a group has no more than the cores of a single server: the throughput says little
//! about three machines, and the CPU time of each process per request says what each of them would have to do. All run
//! at once, and in each round they are measured in turn.
//!
//! | Table | Compared |
//! |---|---|
//! | `group` | one node and three, 50 clients |
//! | `group_alone` | one node and three, one client with one request at a time, beside a sync of the same disk |
//! | `beside_redis` | two Redis, of which one follows, and three nodes; see `SET_AND_WAIT` in `load` |
//! | `beside_etcd` | three etcd, by their own client in Go, and three nodes, with as many writes in flight |
//!
//! The last two are left out without redis-server (WAITAOF needs 7.2), or without etcd and go. No process is pinned to
//! a core. The data goes to a temporary folder (`TMPDIR`), which should be on a disk.

mod etcd;
mod figures;
mod load;
mod nodes;
mod peer;
mod requests;
mod scripts;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use clap::Parser;
use tokio::runtime::Runtime;

use etcd::Etcd;
use figures::{Quantity, Recorder};
use load::{Judged, Load, Pace, Sample};
use nodes::Group;
use peer::{Server, Setup, connection::Connection};

/// Measures what a group costs. Takes some 3 minutes in full.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// Rewrites are off, since one in between would hit one server and not another.
const NO_REWRITES: &[&str] = &["--auto-aof-rewrite-percentage", "0"];

const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];

/// A load, the depth of its pipelines, and its number of connections.
struct Case {
    name: &'static str,
    load: Load,
    depth: usize,
    connections: usize,
}

fn cases() -> [Case; 3] {
    [
        Case { name: "INCR, P=16", load: load::INCR, depth: 16, connections: 50 },
        Case { name: "gate of 60, P=16", load: load::coordination::GATE.command, depth: 16, connections: 50 },
        Case { name: "SET of 64 KB", load: load::SET.among(1_000, 65_536), depth: 1, connections: 50 },
    ]
}

/// Bytes of the values in the comparison with other servers.
const VALUE_LEN: usize = 100;

/// In that comparison: connections, and requests in flight on each.
const CONNECTIONS: usize = 50;
const DEPTH: usize = load::BEFORE_WAIT;

/// Syncs of the disk in each round.
const SYNCS: usize = 100;

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    let recorder = Recorder::new("group_cost", &options.setup);
    let three = three(&options.setup.server);
    let mut bench = Bench { recorder, options, runtime, three };
    bench.beside_one_node();
    bench.beside_redis();
    bench.beside_etcd();
    bench.recorder.finish();
}

struct Bench {
    recorder: Recorder,
    options: Options,
    runtime: Runtime,
    /// A group of three nodes.
    three: Judged,
}

/// Starts a group.
fn three(command: &str) -> Judged {
    let (leader, followers) = Group::start(command, NO_REWRITES).into_servers();
    Judged::with_followers(leader, followers)
}

impl Bench {
    fn pace(&self, connections: usize, depth: usize) -> Pace {
        Pace { connections, depth, length: self.options.setup.seconds(self.options.seconds) }
    }

    fn beside_one_node(&mut self) {
        let one = Judged::new(start_in_temporary(&self.options.setup.server, DURABLE));
        let servers = ["one node", "three nodes"].map(str::to_owned).to_vec();
        let quantities = [
            Quantity::more("requests/s", 0),
            Quantity::less("p99 ms", 2),
            Quantity::less("CPU us/op", 3),
            Quantity::neither("follower, CPU us/op", 3),
        ];
        self.recorder.table_of("group", "command", servers.clone(), quantities);
        for Case { name, load, depth, connections } in cases() {
            let pace = self.pace(connections, depth);
            self.recorder.case(name, None, |server| {
                let judged = if server == 0 { &one } else { &self.three };
                let sample = self.runtime.block_on(judged.measure(&load, pace));
                [sample.per_second, sample.p99_ms, sample.server_us, sample.follower_us]
            });
        }
        let quantities = [Quantity::less("p50 ms", 3), Quantity::less("p99 ms", 3), Quantity::neither("sync ms", 3)];
        self.recorder.table_of("group_alone", "one client", servers, quantities);
        let pace = self.pace(1, 1);
        self.recorder.case("INCR", None, |server| {
            let sync_ms = sync_ms();
            let judged = if server == 0 { &one } else { &self.three };
            let sample = self.runtime.block_on(judged.measure(&load::INCR, pace));
            [sample.p50_ms, sample.p99_ms, sync_ms]
        });
    }

    fn beside_redis(&mut self) {
        let peers = self.options.setup.peers();
        let Some(command) = peers.iter().find(|command| command.contains("redis-server")) else {
            return eprintln!("redis-server is not there");
        };
        let (in_memory, on_disk) = (with_replica(command, peer::UNLOGGED), with_replica(command, DURABLE));
        let version = in_memory.server.version();
        let servers = vec![format!("{version}, WAIT 1"), format!("{version}, WAITAOF 1 1"), self.recorder.own_name()];
        self.recorder.table_of("beside_redis", "command", servers, quantities_beside());
        let (waiting, ours) = (self.pace(CONNECTIONS, 1), self.pace(CONNECTIONS, DEPTH));
        self.recorder.case("SET of 100 bytes", None, |server| match server {
            0 => beside(&self.runtime.block_on(in_memory.measure(&load::SET_AND_WAIT, waiting)), DEPTH),
            1 => beside(&self.runtime.block_on(on_disk.measure(&load::SET_AND_WAITAOF, waiting)), DEPTH),
            _ => beside(&self.runtime.block_on(self.three.measure(&load::SET.among(100_000, VALUE_LEN), ours)), 1),
        });
    }

    fn beside_etcd(&mut self) {
        let etcd = match Etcd::start() {
            Ok(etcd) => etcd,
            Err(reason) => return eprintln!("etcd is left out: {reason}"),
        };
        let servers = vec![etcd.version(), self.recorder.own_name()];
        self.recorder.table_of("beside_etcd", "command", servers, quantities_beside());
        let pace = self.pace(CONNECTIONS, DEPTH);
        self.recorder.case("SET of 100 bytes", None, |server| match server {
            0 => etcd.measure(CONNECTIONS, DEPTH, VALUE_LEN, pace.length),
            _ => beside(&self.runtime.block_on(self.three.measure(&load::SET.among(100_000, VALUE_LEN), pace)), 1),
        });
    }
}

/// The quantities of a comparison with other servers.
fn quantities_beside() -> [Quantity; 3] {
    [Quantity::more("requests/s", 0), Quantity::less("CPU us/op", 2), Quantity::less("follower, CPU us/op", 2)]
}

/// Returns these quantities of a sample whose requests stand for `each` writes.
fn beside(sample: &Sample, each: usize) -> [f64; 3] {
    let each = each as f64;
    [sample.per_second * each, sample.server_us / each, sample.follower_us / each]
}

/// Starts a server in a temporary folder, on all cores.
fn start_in_temporary(command: &str, flags: &[&str]) -> Server {
    let dir = tempfile::tempdir().expect("a temporary folder");
    Server::start_in(dir.path(), command, flags, &[]).keeping(dir)
}

/// Starts two Redis, and waits until one follows the other.
fn with_replica(command: &str, flags: &[&str]) -> Judged {
    let (primary, replica) = (start_in_temporary(command, flags), start_in_temporary(command, flags));
    Connection::new(&replica).ask(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
    while !Connection::new(&replica).ask(&["INFO", "replication"]).contains("master_link_status:up") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Judged::with_followers(primary, vec![replica])
}

/// Returns how long a write and sync of 512 bytes takes in the folder for temporary files, in ms: the median.
fn sync_ms() -> f64 {
    let mut file = tempfile::tempfile().expect("a temporary file");
    // As in the journal, a sync must not have to write the file's length.
    file.write_all(&vec![0; 512 * SYNCS]).and_then(|()| file.sync_all()).expect("space for a small file");
    let sync = |number: usize| {
        let begin = Instant::now();
        file.write_all_at(&[1; 512], 512 * number as u64).and_then(|()| file.sync_data()).expect("a disk that works");
        begin.elapsed().as_secs_f64() * 1e3
    };
    peer::median((0..SYNCS).map(sync).collect())
}
