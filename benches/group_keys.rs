//! A group of three nodes with many keys, in which a node begins, comes back, or has to forget:
//! `cargo bench --bench group_keys`.
//!
//! The group is filled, and each node makes a snapshot; from then on snapshots are made only where the table says so.
//! All the time a client writes at a steady pace to keys that exist, which changes neither their number nor their
//! sizes. Then one node after the other has something to catch up with:
//!
//! - **Nothing**: a few seconds pass.
//! - **A new node**: a fourth node is added. It gets the leader's snapshot, and loads it.
//! - **A follower, log kept**: SIGSTOP, half as many writes as there are keys, SIGCONT.
//! - **A follower, log cut**: the same, but the leader makes a snapshot, and keeps no log for nodes that were away.
//! - **A deposed leader**: all others are killed; it executes writes that reach none of them, and stands still until
//!   they are back and one of them leads. It drops its data and loads that of the group.
//!
//! Each case ends when the node has loaded its data and has caught up.
//!
//! Reported are how long that takes, and of that until the node begins to load; how long the leader keeps a client
//! waiting that sends one SET per millisecond (see `probe`); and the largest memory of the leader, of the node that
//! catches up, and of the others, from the beginning of the case on, as a multiple of the leader's memory at rest with
//! these keys.
//!
//! No process is pinned to a core. The data goes to a temporary folder (`TMPDIR`), which should be on a disk.

mod figures;
mod nodes;
mod peer;
mod probe;
mod requests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use figures::{Quantity, Recorder};
use nodes::{FOUNDERS, Group};
use peer::{Server, Setup, connection::Connection};
use probe::probe_by;
use requests::{NUMBER, Random, Requests, encode};

/// Measures how nodes catch up. Takes some 5 minutes in full, and space for ten times the data.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Keys, each a string of 18 bytes.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// Writes per second while nodes catch up.
    #[arg(long, default_value_t = 10_000)]
    writes_per_s: u64,
    /// For how long the load is measured alone.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
}

/// Snapshots are made when the bench asks for them, and the log before one goes at once.
const FLAGS: &[&str] = &["--auto-aof-rewrite-percentage", "0", "--replication-log-keep", "1mb"];

/// Writes in flight while the keys are stored.
const FILL_AT_ONCE: u64 = 1_000;

/// Writes that the steady load sends at once.
const LOAD_AT_ONCE: u64 = 50;

/// Writes of a leader that reach no other node.
const LOST_WRITES: usize = 1_000;

fn main() {
    let options = Options::parse();
    let keys = options.setup.scaled(options.keys).max(10_000);
    let mut recorder = Recorder::new("group_keys", &options.setup);
    let name = recorder.own_name();
    let quantities = [
        Quantity::less("s", 1),
        Quantity::neither("until it loads, s", 1),
        Quantity::less("p99 ms", 1),
        Quantity::less("longest ms", 1),
        Quantity::less("memory of the leader", 2),
        Quantity::less("of the node", 2),
        Quantity::less("of the others", 2),
    ];
    recorder.table_of("catching_up", &format!("{keys} keys, what catches up"), vec![name], quantities);
    let cases = ["nothing", "a new node", "a follower, log kept", "a follower, log cut", "a deposed leader"];
    recorder.cases(cases.map(|case| (case.to_owned(), None)).to_vec(), |_| {
        let mut bench = Bench::begin(&options, keys);
        vec![
            bench.nothing(options.setup.seconds(options.seconds)),
            bench.new_node(),
            bench.late_follower(false),
            bench.late_follower(true),
            bench.deposed_leader(),
        ]
    });
    recorder.finish();
}

struct Bench {
    group: Group,
    keys: u64,
    writes_per_s: u64,
    /// Memory of the leader at rest.
    rest_bytes: f64,
}

impl Bench {
    /// Starts a group and gives it the keys.
    fn begin(options: &Options, keys: u64) -> Bench {
        let group = Group::start(&options.setup.server, FLAGS);
        group.fill(0..keys, FILL_AT_ONCE, &write());
        group.await_all();
        let leader = group.leader();
        (0..FOUNDERS).for_each(|place| save(&group, place));
        let rest_bytes = group.server(leader).steady_bytes() as f64;
        Bench { group, keys, writes_per_s: options.writes_per_s, rest_bytes }
    }

    fn nothing(&self, length: Duration) -> [f64; 7] {
        self.forget_peaks();
        let leader = self.group.leader();
        self.observe(leader, leader, || {
            std::thread::sleep(length);
            0.0
        })
    }

    fn new_node(&mut self) -> [f64; 7] {
        let node = self.group.launch_another();
        self.forget_peaks();
        self.observe(self.group.leader(), node, || {
            self.group.await_that("a node is added", |group| group.admin("ADD", node));
            self.await_back(node, false)
        })
    }

    /// Lets a follower be away while the others write. The log that it lacks is cut, or else kept.
    fn late_follower(&self, log_is_cut: bool) -> [f64; 7] {
        self.forget_peaks();
        let node = (self.group.leader() + 1) % FOUNDERS;
        self.group.server(node).pause();
        self.group.fill(0..self.keys / 2, FILL_AT_ONCE, &write());
        let leader = self.group.leader();
        if log_is_cut {
            save(&self.group, leader);
        }
        self.observe(leader, node, || {
            self.group.server(node).go_on();
            self.await_back(node, false)
        })
    }

    /// Deposes a leader that has executed what the group never accepts.
    fn deposed_leader(&mut self) -> [f64; 7] {
        self.forget_peaks();
        let old = self.group.leader();
        let others = || (0..FOUNDERS + 1).filter(|place| *place != old);
        let mut lost = Connection::new(self.group.server(old));
        // A process takes its time to die, and the leader gives up sooner. What waits in the sockets dies with it.
        others().for_each(|place| self.group.server(place).pause());
        lost.send(&encode(&["SET", "lost", "x"]).repeat(LOST_WRITES));
        std::thread::sleep(Duration::from_millis(50));
        self.group.server(old).pause();
        others().for_each(|place| self.group.kill(place));
        others().for_each(|place| self.group.launch(place));
        let leader = self.group.leader_but(old);
        self.group.await_that("the others are back", |group| {
            others().all(|place| place == leader || group.has_caught_up_with(place, leader))
        });
        self.observe(leader, old, || {
            self.group.server(old).go_on();
            self.await_back(old, true)
        })
    }

    fn forget_peaks(&self) {
        self.group.servers().for_each(Server::forget_peak);
    }

    /// Waits until a node follows and has caught up. A node that has more than the group seems to have caught up before
    /// it knows, so it `must_load`. Returns the seconds until it begins to load; 0 if it does not.
    fn await_back(&self, node: usize, must_load: bool) -> f64 {
        let (begin, mut loads_after_s) = (Instant::now(), None);
        self.group.await_that("a node is back", |group| {
            let Some(info) = group.info(node) else { return false };
            let loads = !info.leads() && info.has("loading", "1");
            if loads && loads_after_s.is_none() {
                loads_after_s = Some(begin.elapsed().as_secs_f64());
            }
            !loads && (loads_after_s.is_some() || !must_load) && group.has_caught_up(node)
        });
        loads_after_s.unwrap_or(0.0)
    }

    /// Observes the group under the load while `catch_up` lets `node` do so; it returns the seconds until it loads.
    fn observe(&self, leader: usize, node: usize, catch_up: impl FnOnce() -> f64) -> [f64; 7] {
        let server = self.group.server(leader);
        let (waits, (seconds, loads_after_s)) = probe_by(&["SET", "probe", "value"], server, || {
            under_load(server, self.keys, self.writes_per_s, || {
                let begin = Instant::now();
                let loads_after_s = catch_up();
                (begin.elapsed().as_secs_f64(), loads_after_s)
            })
        });
        let peak = |place: usize| self.group.server(place).peak_bytes() as f64 / self.rest_bytes;
        let others = (0..self.group.len()).filter(|place| ![leader, node].contains(place));
        let others = others.map(peak).fold(0.0, f64::max);
        [seconds, loads_after_s, waits.percentile(99.0), waits.longest(), peak(leader), peak(node), others]
    }
}

/// A write to the key of a number. A key has the same value at all times.
fn write() -> Vec<u8> {
    encode(&["SET", &format!("key:{NUMBER}"), &format!("value:{NUMBER}")])
}

/// Writes to random keys at a steady pace for as long as `meanwhile` runs. Returns its result.
fn under_load<T>(server: &Server, keys: u64, writes_per_s: u64, meanwhile: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let pause = Duration::from_secs_f64(LOAD_AT_ONCE as f64 / writes_per_s as f64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut connection, mut random) = (Connection::new(server), Random::new(1));
            let mut requests = Requests::new(&write(), LOAD_AT_ONCE as usize);
            let mut next = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                connection.pipeline(requests.numbered(random.below(keys - LOAD_AT_ONCE)), LOAD_AT_ONCE);
                next += pause;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        let result = meanwhile();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Has a node make a snapshot, and waits for its end.
fn save(group: &Group, place: usize) {
    let done = |group: &Group| group.info(place).map_or(0, |info| info.snapshots());
    let before = done(group);
    Connection::new(group.server(place)).ask(&["BGSAVE"]);
    group.await_that("a snapshot is made", |group| done(group) > before);
}
