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
//!
//! The client is written here because redis-benchmark costs 0.18 us a request at P=100, as much as a fast server: requests
//! are encoded before the clock starts, replies are only counted. An error reply ends the run: errors are fast, too.

mod peer;
mod scripts;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use peer::{Server, Setup, cpu_model, cpu_seconds, encode, median, pin_self};

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
const KEYS: u64 = 100_000;

/// What is asked, again and again, with random numbers in it.
#[derive(Clone, Copy)]
enum Load {
    Set,
    Get,
    Incr,
    /// One of 10,000 gates, with room: GET, INCR, EXPIRE.
    Gate,
    /// A buyer who has not bought: GET, SISMEMBER, INCRBY, SADD, XADD.
    Seckill,
    /// A script of our own, with one key and one argument.
    Own(Own),
}

/// Scripts that stress one thing each.
#[derive(Clone, Copy)]
enum Own {
    Empty,
    Sets,
    Json,
    Loop,
}

impl Own {
    const ALL: [Own; 4] = [Own::Empty, Own::Sets, Own::Json, Own::Loop];

    fn body(self) -> &'static str {
        match self {
            Own::Empty => scripts::EMPTY,
            Own::Sets => scripts::SETS,
            Own::Json => scripts::JSON,
            Own::Loop => scripts::LOOP,
        }
    }

    fn argument(self) -> String {
        match self {
            Own::Json => scripts::an_order(),
            _ => "xxx".to_owned(),
        }
    }
}

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

/// SHA1 of each script, when there is one.
#[derive(Default)]
struct Scripts {
    gate: Option<String>,
    seckill: Option<String>,
    own: Vec<String>,
}

#[derive(Clone, Copy)]
struct Sample {
    per_second: f64,
    server_us: f64,
    client_busy: f64,
}

fn main() {
    let options = Options::parse();
    pin_self(options.setup.client_core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    runtime.block_on(compare(&options));
}

async fn compare(options: &Options) {
    let mut judged = options.setup.start().map(|server| Judged { server, scripts: Scripts::default() });
    for judged in &mut judged {
        judged.load_scripts(&options.scripts).await;
    }
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
        if ours.requests(load, depth, 0).is_none() {
            eprintln!("{name}: no scripts in {} (--scripts)", options.scripts.display());
            continue;
        }
        let mut samples = [const { Vec::new() }; 2];
        for round in 0..options.setup.rounds {
            for which in Setup::turns(round) {
                let length = Duration::from_secs_f64(options.seconds);
                samples[which].push(judged[which].measure(load, depth, length).await);
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

/// A server with what its cases need.
struct Judged {
    server: Server,
    scripts: Scripts,
}

impl Judged {
    /// One command, one reply, as text.
    async fn ask(&self, args: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port)).await.expect("the server accepts");
        stream.write_all(&encode(args)).await.expect("the server reads");
        let (mut answer, mut counter) = (Vec::new(), Counter::default());
        while counter.replies == 0 {
            let from = answer.len();
            assert!(stream.read_buf(&mut answer).await.expect("the server answers") > 0, "the server hung up");
            counter.feed(&answer[from..]);
        }
        String::from_utf8_lossy(&answer).trim_end().to_owned()
    }

    async fn load_scripts(&mut self, folder: &Path) {
        for (name, slot) in [("gate_acquire.lua", 0), ("seckill_v2.lua", 1)] {
            let Ok(text) = std::fs::read_to_string(folder.join(name)) else {
                continue;
            };
            *[&mut self.scripts.gate, &mut self.scripts.seckill][slot] = Some(self.load_script(&text).await);
        }
        for own in Own::ALL {
            let sha = self.load_script(own.body()).await;
            self.scripts.own.push(sha);
        }
    }

    async fn load_script(&self, text: &str) -> String {
        let answer = self.ask(&["SCRIPT", "LOAD", text]).await;
        answer.lines().nth(1).unwrap_or_else(|| panic!("SCRIPT LOAD {text}: {answer}")).to_owned()
    }

    /// `depth` encoded requests, different for each `seed`; None when the case needs a script that is not there.
    fn requests(&self, load: Load, depth: usize, seed: u64) -> Option<Vec<u8>> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % n
        };
        let mut bytes = Vec::new();
        for _ in 0..depth {
            let key = format!("key:{:012}", below(KEYS));
            bytes.extend(match load {
                Load::Set => encode(&["SET", &key, "xxx"]),
                Load::Get => encode(&["GET", &key]),
                Load::Incr => encode(&["INCR", &format!("counter:{:012}", below(KEYS))]),
                Load::Gate => encode(&[
                    "EVALSHA",
                    self.scripts.gate.as_ref()?,
                    "1",
                    &format!("gate:{:06}", below(10_000)),
                    "1000000000",
                ]),
                Load::Seckill => {
                    let (user, order) = (below(1 << 40).to_string(), below(1 << 40).to_string());
                    encode(&["EVALSHA", self.scripts.seckill.as_ref()?, "0", "7", &user, &order])
                }
                Load::Own(own) => encode(&["EVALSHA", &self.scripts.own[own as usize], "1", &key, &own.argument()]),
            });
        }
        Some(bytes)
    }

    async fn prepare(&self) {
        self.ask(&["FLUSHALL"]).await;
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port)).await.expect("the server accepts");
        for from in (0..KEYS).step_by(1000) {
            let batch: Vec<u8> =
                (from..from + 1000).flat_map(|i| encode(&["SET", &format!("key:{i:012}"), "xxx"])).collect();
            stream.write_all(&batch).await.expect("the server reads");
            Counter::default().read(&mut stream, 1000).await;
        }
        self.ask(&["SET", "seckill:stock:7", "1000000000000"]).await;
    }

    async fn measure(&self, load: Load, depth: usize, length: Duration) -> Sample {
        self.prepare().await;
        let warm_up = Duration::from_millis(200);
        let begin = Instant::now() + warm_up;
        let end = begin + length;
        let tasks: Vec<_> = (0..CONNECTIONS)
            .map(|connection| {
                // Enough different batches that the keys cover the key space, few enough to stay in the cache.
                let variants = (20_000 / CONNECTIONS / depth).max(8) as u64;
                let seed = |i| 1 + connection as u64 * variants + i;
                let batches: Vec<Vec<u8>> = (0..variants).filter_map(|i| self.requests(load, depth, seed(i))).collect();
                tokio::spawn(drive(
                    self.server.port,
                    batches,
                    self.fresh_users(load, depth, connection),
                    depth as u64,
                    begin,
                    end,
                ))
            })
            .collect();
        tokio::time::sleep_until(begin.into()).await;
        let (server, client) = (self.server.cpu_seconds(), cpu_seconds(std::process::id()));
        let started = Instant::now();
        tokio::time::sleep_until(end.into()).await;
        let wall = started.elapsed().as_secs_f64();
        let (server, client) = (self.server.cpu_seconds() - server, cpu_seconds(std::process::id()) - client);
        let mut done = 0;
        for task in tasks {
            done += task.await.expect("a connection's task does not panic");
        }
        Sample { per_second: done as f64 / wall, server_us: server * 1e6 / done as f64, client_busy: client / wall }
    }

    /// Where a batch holds numbers that must not repeat, how to write fresh ones into it.
    fn fresh_users(&self, load: Load, depth: usize, connection: usize) -> Option<Fresh> {
        let sha = self.scripts.seckill.as_ref()?;
        matches!(load, Load::Seckill).then(|| Fresh::new(sha, depth, connection))
    }
}

/// A batch of seckill requests whose user and order are numbers of fixed width, counted up in place before each sending.
struct Fresh {
    batch: Vec<u8>,
    /// Where each request's user and order begin.
    places: Vec<(usize, usize)>,
    next: u64,
}

impl Fresh {
    const WIDTH: usize = 12;

    fn new(sha: &str, depth: usize, connection: usize) -> Fresh {
        let (mut batch, mut places) = (Vec::new(), Vec::new());
        let zeros = "0".repeat(Self::WIDTH);
        for _ in 0..depth {
            batch.extend(encode(&["EVALSHA", sha, "0", "7", &zeros, &zeros]));
            let order = batch.len() - 2 - Self::WIDTH;
            // "<user>\r\n$12\r\n<order>\r\n"
            places.push((order - 7 - Self::WIDTH, order));
        }
        Fresh { batch, places, next: connection as u64 * 1_000_000_000 + 1 }
    }

    fn batch(&mut self) -> &[u8] {
        for &(user, order) in &self.places {
            for at in [user, order] {
                let mut rest = self.next;
                for digit in self.batch[at..at + Self::WIDTH].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
            self.next += 1;
        }
        &self.batch
    }
}

/// One connection: a batch out, its replies in, until the end. Gives the replies that came between `begin` and `end`.
async fn drive(
    port: u16,
    batches: Vec<Vec<u8>>,
    mut fresh: Option<Fresh>,
    depth: u64,
    begin: Instant,
    end: Instant,
) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server accepts");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let mut counter = Counter::default();
    let (mut counted, mut turn) = (0, 0);
    loop {
        let batch = match &mut fresh {
            Some(fresh) => fresh.batch(),
            None => &batches[turn % batches.len()],
        };
        stream.write_all(batch).await.expect("the server reads");
        counter.read(&mut stream, depth).await;
        turn += 1;
        let now = Instant::now();
        if now >= end {
            return counted;
        }
        if now >= begin {
            counted += depth;
        }
    }
}

/// Counts replies in a stream of bytes: simple lines and bulk strings, and no more than that.
#[derive(Default)]
struct Counter {
    replies: u64,
    /// Bytes of a bulk string, its line end included, still to come.
    skip: usize,
    /// The head of a reply whose line end has not come yet.
    head: Vec<u8>,
}

impl Counter {
    /// Reads until `wanted` replies have come.
    async fn read(&mut self, stream: &mut TcpStream, wanted: u64) {
        let target = self.replies + wanted;
        let mut buf = [0u8; 16384];
        while self.replies < target {
            let n = stream.read(&mut buf).await.expect("the server answers");
            assert!(n > 0, "the server hung up");
            self.feed(&buf[..n]);
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if skipped > 0 && self.skip == 0 {
                self.replies += 1;
            }
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                break;
            };
            if self.head.is_empty() {
                self.line(&bytes[..end]);
            } else {
                let mut line = std::mem::take(&mut self.head);
                line.extend_from_slice(&bytes[..end]);
                self.line(&line);
            }
            bytes = &bytes[end + 1..];
        }
        self.head.extend_from_slice(bytes);
    }

    fn line(&mut self, line: &[u8]) {
        match line.first() {
            Some(b'+' | b':') => self.replies += 1,
            Some(b'$') if line.starts_with(b"$-") => self.replies += 1,
            Some(b'$') => {
                let digits = line[1..].iter().take_while(|b| b.is_ascii_digit());
                self.skip = 2 + digits.fold(0, |n, b| n * 10 + usize::from(b - b'0'));
            }
            _ => panic!("the server answered: {}", line.escape_ascii()),
        }
    }
}
