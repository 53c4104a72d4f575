//! How well and how fast a full cache chooses keys to evict: `cargo bench --bench eviction`.
//!
//! All servers may use the same memory beyond that of an empty server: about enough for a quarter of the keys. A client
//! reads keys by Zipf's law (the n-th most popular key is read 1/n times as often as the first), 100 at a time, and
//! sets missing keys, as programs do with a cache. Reported for the second half of the requests are
//!
//! - the share of hits, and the number of keys held in the end: a server whose keys take less memory holds more of
//!   them;
//! - requests per second overall, counting GETs and the SETs that follow misses;
//!
//! and then how many new keys are set per second, 100 at a time, each evicting another key.
//!
//! Where a policy evicts only keys with a deadline, all keys have one, far away. The order of popularity is not that of
//! the numbers in the keys' names. Each round and each policy begins with an empty server; the servers take turns.

mod figures;
mod peer;
mod requests;

use std::io::Read;
use std::time::Instant;

use clap::Parser;

use figures::{Quantity, Recorder};
use peer::{Server, Setup, UNLOGGED, connection::Connection, pin_self};
use requests::{NUMBER, Random, encode};

/// Measures full caches. Takes some 20 minutes in full with two peers.
#[derive(Parser)]
struct Options {
    /// Keys, each a string of 100 bytes.
    #[arg(long, default_value_t = 2_000_000)]
    keys: u64,
    /// Requests per key.
    #[arg(long, default_value_t = 3)]
    requests: u64,
    #[command(flatten)]
    setup: Setup,
}

/// Requests in flight.
const PIPELINE: usize = 100;
const VALUE_BYTES: usize = 100;
/// Memory that the servers may use per key in the whole key space: about a quarter of a key's size.
const BYTES_PER_KEY: u64 = 40;

const POLICIES: [&str; 6] =
    ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-ttl"];

fn main() {
    let Options { keys, requests, setup } = Options::parse();
    let keys = setup.scaled(keys);
    pin_self(setup.client_core);
    let (commands, zipf) = (setup.commands(), Zipf::new(keys));
    let mut recorder = Recorder::new("eviction", &setup);
    let quantities = [
        Quantity::more("% found", 1),
        Quantity::neither("keys held", 0),
        Quantity::more("requests/s", 0),
        Quantity::more("new keys/s", 0),
    ];
    recorder.table("eviction", &format!("of {keys} keys"), quantities);
    for policy in POLICIES {
        recorder.case(policy, None, |server| measure(&setup, &commands[server], policy, &zipf, requests * keys));
    }
    recorder.finish();
}

/// Measures one server, from empty to the end.
fn measure(setup: &Setup, command: &str, policy: &str, zipf: &Zipf, requests: u64) -> [f64; 4] {
    let flags = [UNLOGGED, &["--maxmemory-policy", policy]].concat();
    let server = Server::start_with(command, &setup.server_core.to_string(), &flags, &[]);
    let mut connection = Connection::new(&server);
    let limit = field(&mut connection, "memory", "used_memory:") + zipf.keys() * BYTES_PER_KEY;
    assert_eq!(connection.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()]), "+OK");
    let mut cache = Cache { connection, random: Random::new(7), expires: policy.starts_with("volatile") };
    cache.ask(zipf, requests / 2);
    let begun = Instant::now();
    let found = cache.ask(zipf, requests / 2);
    let asked_per_s = (requests / 2) as f64 / begun.elapsed().as_secs_f64();
    let held = field(&mut cache.connection, "keyspace", "db0:keys=");
    let begun = Instant::now();
    cache.fill(zipf.keys() / 2);
    let set_per_s = (zipf.keys() / 2) as f64 / begun.elapsed().as_secs_f64();
    assert!(field(&mut cache.connection, "stats", "evicted_keys:") > 0, "{command} evicts nothing");
    [found as f64 * 100.0 / (requests / 2) as f64, held as f64, asked_per_s, set_per_s]
}

/// Reads a field from a section of INFO.
fn field(connection: &mut Connection, section: &str, name: &str) -> u64 {
    let info = connection.ask(&["INFO", section]);
    let value = info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {info}"));
    value.split(',').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// A program that uses a server as its cache.
struct Cache {
    connection: Connection,
    random: Random,
    expires: bool,
}

impl Cache {
    /// Reads `requests` keys, and sets the missing ones. Returns the number of hits.
    fn ask(&mut self, zipf: &Zipf, requests: u64) -> u64 {
        let (mut found, mut left) = (0, requests);
        while left > 0 {
            let count = left.min(PIPELINE as u64);
            left -= count;
            let keys: Vec<u64> = (0..count).map(|_| zipf.draw(&mut self.random)).collect();
            let request: Vec<u8> = keys.iter().flat_map(|key| encode(&["GET", &name(*key)])).collect();
            self.connection.send(&request);
            let missing: Vec<u64> = keys.into_iter().filter(|_| !self.is_there()).collect();
            found += count - missing.len() as u64;
            let request: Vec<u8> = missing.iter().flat_map(|key| self.set(&name(*key))).collect();
            self.connection.pipeline(&request, missing.len() as u64);
        }
        found
    }

    /// Reads one reply to a GET. Returns whether the key was there.
    fn is_there(&mut self) -> bool {
        let mut head = [0; "$-1\r\n".len()];
        self.connection.stream.read_exact(&mut head).expect("the server answers");
        if &head == b"$-1\r\n" {
            return false;
        }
        assert_eq!(&head, b"$100\r");
        let mut rest = [0; "\n".len() + VALUE_BYTES + "\r\n".len()];
        self.connection.stream.read_exact(&mut rest).expect("the server answers");
        true
    }

    fn set(&mut self, name: &str) -> Vec<u8> {
        let value = "x".repeat(VALUE_BYTES);
        match self.expires {
            true => encode(&["SET", name, &value, "EX", &(10_000 + self.random.below(10_000)).to_string()]),
            false => encode(&["SET", name, &value]),
        }
    }

    /// Sets `keys` new keys.
    fn fill(&mut self, keys: u64) {
        let request = self.set(&format!("new:{NUMBER}"));
        self.connection.fill(0..keys, PIPELINE, &request);
    }
}

fn name(key: u64) -> String {
    format!("key:{key:08}")
}

/// Draws numbers below `keys` by Zipf's law.
struct Zipf {
    /// The sum of the weights up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: u64) -> Zipf {
        let weights = (1..=keys).map(|rank| 1.0 / rank as f64);
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Zipf { sums: sums.collect() }
    }

    fn keys(&self) -> u64 {
        self.sums.len() as u64
    }

    fn draw(&self, random: &mut Random) -> u64 {
        const STEPS: u64 = 1 << 52;
        let all = self.sums.last().copied().unwrap_or_default();
        let at = all * random.below(STEPS) as f64 / STEPS as f64;
        let rank = self.sums.partition_point(|sum| *sum <= at) as u64;
        // A prime larger than any number of keys scatters the ranks.
        rank * 2_147_483_647 % self.keys()
    }
}
