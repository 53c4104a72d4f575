//! A load in a closed loop, shared by the benches that measure throughput: connections with some requests in flight each, random keys,
//! and what came of it.
//!
//! The client is written here because redis-benchmark costs 0.18 us a request at P=100, as much as a fast server: requests
//! are encoded before the clock starts, replies are only counted. An error reply ends the run: errors are fast, too.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::peer::{Server, cpu_seconds, encode};
use crate::scripts;

/// Keys that are there, and counters that are counted up.
const KEYS: u64 = 100_000;

/// What is asked, again and again, with random numbers in it.
#[derive(Clone, Copy)]
pub(crate) enum Load {
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
pub(crate) enum Own {
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

/// SHA1 of each script, when there is one.
#[derive(Default)]
pub(crate) struct Scripts {
    gate: Option<String>,
    seckill: Option<String>,
    own: Vec<String>,
}

/// How much is asked at a time, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub connections: usize,
    /// Requests in flight on each.
    pub depth: usize,
    pub length: Duration,
}

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub per_second: f64,
    /// From the sending of a batch to its last reply: 99 of 100 took no longer.
    pub p99_ms: f64,
    /// CPU time of the server for each request, all threads.
    pub server_us: f64,
    /// How much of the time the client's process was busy.
    pub client_busy: f64,
}

/// A server with what its cases need.
pub(crate) struct Judged {
    pub server: Server,
    scripts: Scripts,
}

impl Judged {
    /// Loads the scripts of `folder`, those that are there, and our own.
    pub(crate) async fn new(server: Server, folder: &Path) -> Judged {
        let mut judged = Judged { server, scripts: Scripts::default() };
        judged.load_scripts(folder).await;
        judged
    }

    /// Whether there is the script that it needs.
    pub(crate) fn can_run(&self, load: Load) -> bool {
        self.requests(load, 1, 0).is_some()
    }

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

    /// Measures one load, from the same data each time.
    pub(crate) async fn measure(&self, load: Load, pace: Pace) -> Sample {
        let [sample] = self.measure_together([load], pace).await;
        sample
    }

    /// As [`Judged::measure`], for loads that go on beside each other, with so many connections each. The CPU times are of all.
    pub(crate) async fn measure_together<const N: usize>(&self, loads: [Load; N], pace: Pace) -> [Sample; N] {
        self.prepare().await;
        let warm_up = Duration::from_millis(200);
        let begin = Instant::now() + warm_up;
        let end = begin + pace.length;
        let tasks = loads.map(|load| -> Vec<_> {
            (0..pace.connections)
                .map(|connection| tokio::spawn(self.connection(load, pace, connection, begin..end)))
                .collect()
        });
        tokio::time::sleep_until(begin.into()).await;
        let (server, client) = (self.server.cpu_seconds(), cpu_seconds(std::process::id()));
        let started = Instant::now();
        tokio::time::sleep_until(end.into()).await;
        let wall = started.elapsed().as_secs_f64();
        let (server, client) = (self.server.cpu_seconds() - server, cpu_seconds(std::process::id()) - client);
        let mut times_ms = [const { Vec::<f64>::new() }; N];
        for (times_ms, tasks) in times_ms.iter_mut().zip(tasks) {
            for task in tasks {
                times_ms.extend(task.await.expect("a connection's task does not panic"));
            }
            times_ms.sort_by(f64::total_cmp);
        }
        let all = times_ms.iter().map(|times| times.len() * pace.depth).sum::<usize>() as f64;
        assert!(times_ms.iter().all(|times| !times.is_empty()), "nothing was answered in time: measure for longer");
        times_ms.map(|times| Sample {
            per_second: (times.len() * pace.depth) as f64 / wall,
            p99_ms: times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN),
            server_us: server * 1e6 / all,
            client_busy: client / wall,
        })
    }

    /// What one connection does.
    fn connection(
        &self,
        load: Load,
        pace: Pace,
        connection: usize,
        span: Range<Instant>,
    ) -> impl Future<Output = Vec<f64>> + use<> {
        // Enough different batches that the keys cover the key space, few enough to stay in the cache.
        let variants = (20_000 / pace.connections / pace.depth).max(8) as u64;
        let seed = |i| 1 + connection as u64 * variants + i;
        let batches: Vec<Vec<u8>> = (0..variants).filter_map(|i| self.requests(load, pace.depth, seed(i))).collect();
        drive(self.server.port, batches, self.fresh_users(load, pace.depth, connection), pace.depth as u64, span)
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

/// One connection: a batch out, its replies in, until the end. Gives the times in ms of the batches that were answered in this span.
async fn drive(
    port: u16,
    batches: Vec<Vec<u8>>,
    mut fresh: Option<Fresh>,
    depth: u64,
    span: Range<Instant>,
) -> Vec<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server accepts");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let mut counter = Counter::default();
    let (mut times_ms, mut turn) = (Vec::new(), 0);
    let mut sent = Instant::now();
    loop {
        let batch = match &mut fresh {
            Some(fresh) => fresh.batch(),
            None => &batches[turn % batches.len()],
        };
        stream.write_all(batch).await.expect("the server reads");
        counter.read(&mut stream, depth).await;
        turn += 1;
        let now = Instant::now();
        if now >= span.end {
            return times_ms;
        }
        if now >= span.start {
            times_ms.push((now - sent).as_secs_f64() * 1e3);
        }
        sent = now;
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
