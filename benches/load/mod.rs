//! A load in a closed loop, shared by the benches that measure throughput: connections with some requests in flight
//! each, random keys, and the results.
//!
//! The client is written here because redis-benchmark costs 0.18 us a request at P=100, as much as a fast server.
//! Requests are encoded before the clock starts, and replies are only counted. An error reply ends the run: errors are
//! fast, too.

#![allow(dead_code, reason = "each bench takes what it needs")]

pub(crate) mod coordination;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::peer::{Server, connection::Connection, connection::Replies, cpu_seconds};
use crate::requests::{NUMBER, Random, Requests, encode};
use crate::scripts;

/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(200);

/// Requests sent again and again, with random numbers in them.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub name: &'static str,
    /// The number of existing strings, and the length of their values.
    keys: u64,
    value_len: usize,
    /// Other existing data: requests, each run for this many numbers from 0.
    data: fn() -> Vec<(Vec<u8>, u64)>,
    /// Scripts that are loaded first.
    scripts: &'static [&'static str],
    /// One request. A request with a [`NUMBER`] differs only in that number, and no number comes twice.
    request: fn(&mut Draw) -> Vec<u8>,
    /// The number of replies to one request.
    replies: u64,
    /// Whether the load keeps adding data, so that the data must be made anew for each measurement.
    grows: bool,
}

impl Load {
    /// The same load among `keys` strings, with values of `value_len` bytes.
    pub(crate) fn among(&self, keys: u64, value_len: usize) -> Load {
        Load { keys, value_len, ..*self }
    }
}

/// The common part of most loads.
const PLAIN: Load = Load {
    name: "",
    keys: 100_000,
    value_len: 3,
    data: Vec::new,
    scripts: &[],
    request: |_| Vec::new(),
    replies: 1,
    grows: false,
};

/// Keys of each of the other types.
const COLLECTIONS: u64 = 1_000;

pub(crate) static SET: Load =
    Load { name: "SET", request: |draw| encode(&["SET", &draw.key(), &draw.value()]), ..PLAIN };
/// Writes before each WAIT.
pub(crate) const BEFORE_WAIT: usize = 16;
/// Writes of 100 bytes, and a wait until another server has them.
pub(crate) static SET_AND_WAIT: Load =
    Load { name: "16 SET, WAIT", request: |draw| sets_and(draw, &["WAIT", "1", "0"]), ..SETS_AND_WAIT };
/// The same, until both servers have them on disk.
pub(crate) static SET_AND_WAITAOF: Load =
    Load { name: "16 SET, WAITAOF", request: |draw| sets_and(draw, &["WAITAOF", "1", "1", "0"]), ..SETS_AND_WAIT };
pub(crate) static GET: Load = Load { name: "GET", request: |draw| encode(&["GET", &draw.key()]), ..PLAIN };
pub(crate) static INCR: Load =
    Load { name: "INCR", request: |draw| encode(&["INCR", &draw.one_of("counter", 100_000)]), ..PLAIN };
pub(crate) static MSET: Load = Load {
    name: "MSET of 10",
    request: |draw| {
        let words: Vec<String> = (0..10).flat_map(|_| [draw.key(), draw.value()]).collect();
        encode(&["MSET"].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>())
    },
    ..PLAIN
};
pub(crate) static XADD: Load = Load {
    name: "XADD",
    request: |draw| encode(&["XADD", &draw.one_of("stream", COLLECTIONS), "*", "order", "0123456789"]),
    grows: true,
    ..PLAIN
};
pub(crate) static SADD: Load = Load {
    name: "SADD",
    request: |draw| encode(&["SADD", &draw.one_of("set", COLLECTIONS), &draw.element()]),
    ..PLAIN
};
pub(crate) static ZADD: Load = Load {
    name: "ZADD",
    request: |draw| {
        let score = draw.random.below(1_000_000).to_string();
        encode(&["ZADD", &draw.one_of("zset", COLLECTIONS), &score, &draw.element()])
    },
    ..PLAIN
};
pub(crate) static HSET: Load = Load {
    name: "HSET",
    request: |draw| encode(&["HSET", &draw.one_of("hash", COLLECTIONS), &draw.element(), "0123456789"]),
    ..PLAIN
};
pub(crate) static LPUSH: Load = Load {
    name: "LPUSH",
    request: |draw| encode(&["LPUSH", &draw.one_of("list", COLLECTIONS), "0123456789"]),
    grows: true,
    ..PLAIN
};
/// An order is queued, read by the only worker of its queue, and acknowledged.
pub(crate) static XREADGROUP: Load = Load {
    name: "XADD+XREADGROUP+XACK",
    data: || vec![(encode(&["XGROUP", "CREATE", &format!("queue:{NUMBER}"), "workers", "$", "MKSTREAM"]), COLLECTIONS)],
    request: |draw| {
        let (queue, id) = (format!("queue:{:012}", draw.connection), format!("{NUMBER}-1"));
        let read = ["XREADGROUP", "GROUP", "workers", "worker", "COUNT", "1", "STREAMS", &queue, ">"];
        [
            encode(&["XADD", &queue, &id, "order", "0123456789"]),
            encode(&read),
            encode(&["XACK", &queue, "workers", &id]),
        ]
        .concat()
    },
    replies: 3,
    grows: true,
    ..PLAIN
};
pub(crate) static LRANGE: Load = Load {
    name: "LRANGE of 100",
    data: || hundred_elements("RPUSH", "list", |element| vec![element]),
    request: |draw| encode(&["LRANGE", &draw.one_of("list", COLLECTIONS), "0", "99"]),
    ..PLAIN
};
pub(crate) static HGETALL: Load = Load {
    name: "HGETALL of 100",
    data: || hundred_elements("HSET", "hash", |element| vec![element, "0123456789".to_owned()]),
    request: |draw| encode(&["HGETALL", &draw.one_of("hash", COLLECTIONS)]),
    ..PLAIN
};
pub(crate) static ZRANGE: Load = Load {
    name: "ZRANGE of 100",
    data: || hundred_elements("ZADD", "zset", |element| vec![element[8..].to_owned(), element]),
    request: |draw| encode(&["ZRANGE", &draw.one_of("zset", COLLECTIONS), "0", "99"]),
    ..PLAIN
};
/// One of 10,000 gates, with room: GET, INCR, EXPIRE.
pub(crate) static GATE: Load = Load {
    name: "EVALSHA of the users' gate",
    scripts: &[scripts::GATE],
    request: |draw| encode(&["EVALSHA", &draw.sha(0), "1", &draw.one_of("gate", 10_000), "1000000000"]),
    ..PLAIN
};
/// An order by a new buyer: GET, SISMEMBER, INCRBY, SADD, XADD.
pub(crate) static SECKILL: Load = Load {
    name: "EVALSHA of the users' seckill",
    scripts: &[scripts::SECKILL],
    data: || vec![(encode(&["SET", "seckill:stock:7", "1000000000000"]), 1)],
    request: |draw| encode(&["EVALSHA", &draw.sha(0), "0", "7", NUMBER, NUMBER]),
    grows: true,
    ..PLAIN
};
pub(crate) static EMPTY: Load = Load { name: "EVALSHA of an empty script", scripts: &[scripts::EMPTY], ..SCRIPT };
pub(crate) static SETS: Load = Load { name: "EVALSHA of 50 SET", scripts: &[scripts::SETS], ..SCRIPT };
pub(crate) static LOOP: Load = Load { name: "EVALSHA of a loop in Lua", scripts: &[scripts::LOOP], ..SCRIPT };
pub(crate) static JSON: Load = Load {
    name: "EVALSHA of cjson with 2 KB",
    request: |draw| encode(&["EVALSHA", &draw.sha(0), "1", &draw.key(), &scripts::an_order()]),
    scripts: &[scripts::JSON],
    ..PLAIN
};

/// The common part of loads that wait for another server.
const SETS_AND_WAIT: Load = Load { value_len: 100, replies: BEFORE_WAIT as u64 + 1, ..PLAIN };

fn sets_and(draw: &mut Draw, wait: &[&str]) -> Vec<u8> {
    let sets = (0..BEFORE_WAIT).flat_map(|_| encode(&["SET", &draw.key(), &draw.value()]));
    sets.chain(encode(wait)).collect()
}

/// A script with one key and one argument.
const SCRIPT: Load = Load { request: |draw| encode(&["EVALSHA", &draw.sha(0), "1", &draw.key(), "xxx"]), ..PLAIN };

/// Collections of a hundred elements, each written with the words that `words` gives.
fn hundred_elements(command: &str, kind: &str, words: fn(String) -> Vec<String>) -> Vec<(Vec<u8>, u64)> {
    let mut request = vec![command.to_owned(), format!("{kind}:{NUMBER}")];
    request.extend((0..Draw::ELEMENTS).flat_map(|number| words(Draw::element_of(number))));
    vec![(encode(&request.iter().map(String::as_str).collect::<Vec<_>>()), COLLECTIONS)]
}

/// Draws the parts of requests: a random sequence that depends on the seed alone, so that all servers get the same.
struct Draw {
    random: Random,
    connection: usize,
    keys: u64,
    value_len: usize,
    /// SHA1 of each of the load's scripts.
    shas: Vec<String>,
}

impl Draw {
    /// Elements per collection.
    const ELEMENTS: u64 = 100;

    fn one_of(&mut self, kind: &str, count: u64) -> String {
        format!("{kind}:{:012}", self.random.below(count))
    }

    /// SHA1 of one of the load's scripts.
    fn sha(&self, script: usize) -> String {
        self.shas[script].clone()
    }

    fn key(&mut self) -> String {
        self.one_of("key", self.keys)
    }

    fn value(&self) -> String {
        "x".repeat(self.value_len)
    }

    fn element(&mut self) -> String {
        let number = self.random.below(Self::ELEMENTS);
        Self::element_of(number)
    }

    fn element_of(number: u64) -> String {
        format!("element:{number:02}")
    }
}

/// How many requests are in flight, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub connections: usize,
    /// Requests in flight on each connection.
    pub depth: usize,
    pub length: Duration,
}

/// The results of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub per_second: f64,
    /// Time from sending a batch to its last reply: median and 99th percentile.
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// CPU time of the server per request, all threads.
    pub server_us: f64,
    /// CPU time per request of the follower that used most, all threads.
    pub follower_us: f64,
    /// The share of time that the client's process was busy.
    pub client_busy: f64,
}

impl Sample {
    /// `all`: the batches of all loads that ran at the time.
    fn new(mut times_ms: Vec<f64>, all: usize, depth: usize, wall: f64, cpu: Cpu) -> Sample {
        times_ms.sort_by(f64::total_cmp);
        Sample {
            per_second: (times_ms.len() * depth) as f64 / wall,
            p50_ms: times_ms[times_ms.len() / 2],
            p99_ms: times_ms[times_ms.len() * 99 / 100],
            server_us: cpu.server * 1e6 / (all * depth) as f64,
            follower_us: cpu.follower * 1e6 / (all * depth) as f64,
            client_busy: cpu.client / wall,
        }
    }
}

/// CPU times in seconds that processes have taken so far: a server, its followers, and this one.
struct Cpus {
    server: f64,
    followers: Vec<f64>,
    client: f64,
}

impl Cpus {
    /// Returns what they have taken since.
    fn since(&self, before: &Cpus) -> Cpu {
        let followers = self.followers.iter().zip(&before.followers).map(|(now, before)| now - before);
        Cpu {
            server: self.server - before.server,
            follower: followers.fold(0.0, f64::max),
            client: self.client - before.client,
        }
    }
}

/// CPU times in seconds: of a server, of its busiest follower, and of this process.
#[derive(Clone, Copy)]
struct Cpu {
    server: f64,
    follower: f64,
    client: f64,
}

/// A server, those that follow it, and the data they hold.
pub(crate) struct Judged {
    pub server: Server,
    followers: Vec<Server>,
    prepared: RefCell<Option<Prepared>>,
}

/// The load whose data the server holds.
#[derive(Clone)]
struct Prepared {
    name: &'static str,
    keys: u64,
    value_len: usize,
    shas: Vec<String>,
}

impl Judged {
    pub(crate) fn new(server: Server) -> Judged {
        Judged::with_followers(server, Vec::new())
    }

    pub(crate) fn with_followers(server: Server, followers: Vec<Server>) -> Judged {
        Judged { server, followers, prepared: RefCell::default() }
    }

    /// CPU times since their processes began.
    fn cpu(&self) -> Cpus {
        let followers = self.followers.iter().map(Server::cpu_seconds).collect();
        Cpus { server: self.server.cpu_seconds(), followers, client: cpu_seconds(std::process::id()) }
    }

    /// Gives the server the load's initial data and its scripts.
    fn prepare(&self, load: &Load) {
        let Load { name, keys, value_len, .. } = *load;
        let mut prepared = self.prepared.borrow_mut();
        let has_it = |held: &&Prepared| (held.name, held.keys, held.value_len) == (name, keys, value_len);
        if !load.grows && prepared.as_ref().filter(has_it).is_some() {
            return;
        }
        let mut connection = Connection::new(&self.server);
        connection.ask(&["FLUSHALL"]);
        let at_once = (1 << 20) / (64 + value_len);
        connection.fill(
            0..keys,
            at_once.min(1_000),
            &encode(&["SET", &format!("key:{NUMBER}"), &"x".repeat(value_len)]),
        );
        for (request, count) in (load.data)() {
            connection.fill(0..count, 100, &request);
        }
        let shas = load.scripts.iter().map(|script| connection.ask(&["SCRIPT", "LOAD", script])).collect();
        *prepared = Some(Prepared { name, keys, value_len, shas });
    }

    /// Measures one load, from the same data each time.
    pub(crate) async fn measure(&self, load: &Load, pace: Pace) -> Sample {
        let [sample] = self.measure_together([load], pace).await;
        sample
    }

    /// As [`Judged::measure`], for loads that run side by side, with the pace's connections for each. The data is
    /// that of the first load, the CPU times are of all.
    pub(crate) async fn measure_together<const N: usize>(&self, loads: [&Load; N], pace: Pace) -> [Sample; N] {
        self.prepare(loads[0]);
        let counts: [Arc<Count>; N] = std::array::from_fn(|_| Arc::default());
        // All requests are encoded here; the tasks begin at the first wait.
        let tasks: [Vec<JoinHandle<Vec<f64>>>; N] = std::array::from_fn(|number| {
            let (load, count) = (loads[number], &counts[number]);
            let replies = load.replies * pace.depth as u64;
            let drive =
                |connection| drive(self.server.port, self.source(load, pace, connection), replies, Arc::clone(count));
            (0..pace.connections).map(|connection| tokio::spawn(drive(connection))).collect()
        });
        tokio::time::sleep(WARM_UP).await;
        let before = self.cpu();
        let begin = Instant::now();
        counts.iter().for_each(|count| count.begin());
        tokio::time::sleep(pace.length).await;
        // A machine busy with other work may not have let any client be answered yet.
        while counts.iter().any(|count| count.is_empty()) {
            tokio::time::sleep(pace.length).await;
        }
        counts.iter().for_each(|count| count.end());
        let wall = begin.elapsed().as_secs_f64();
        let cpu = self.cpu().since(&before);
        let mut times_ms = [const { Vec::<f64>::new() }; N];
        for (times_ms, tasks) in times_ms.iter_mut().zip(tasks) {
            for task in tasks {
                times_ms.extend(task.await.expect("a connection's task does not panic"));
            }
        }
        let all = times_ms.iter().map(Vec::len).sum::<usize>();
        let sample = |times| Sample::new(times, all, pace.depth, wall, cpu);
        times_ms.map(sample)
    }

    /// As [`Judged::measure`], by a client with `threads` threads, each of which has its share of the connections.
    pub(crate) fn measure_by(&self, threads: usize, load: &Load, pace: Pace) -> Sample {
        self.prepare(load);
        let (count, port, replies) = (Arc::<Count>::default(), self.server.port, load.replies * pace.depth as u64);
        let clients: Vec<std::thread::JoinHandle<Vec<f64>>> = (0..threads)
            .map(|thread| {
                let own = (thread..pace.connections).step_by(threads);
                let sources: Vec<Source> = own.map(|connection| self.source(load, pace, connection)).collect();
                let count = Arc::clone(&count);
                std::thread::spawn(move || drive_all(port, sources, replies, &count))
            })
            .collect();
        std::thread::sleep(WARM_UP);
        let before = self.cpu();
        let begin = Instant::now();
        count.begin();
        std::thread::sleep(pace.length);
        count.end();
        let wall = begin.elapsed().as_secs_f64();
        let cpu = self.cpu().since(&before);
        let times_ms: Vec<f64> =
            clients.into_iter().flat_map(|client| client.join().expect("a client does not panic")).collect();
        let all = times_ms.len();
        Sample::new(times_ms, all, pace.depth, wall, cpu)
    }

    /// The batches that one connection sends.
    fn source(&self, load: &Load, pace: Pace, connection: usize) -> Source {
        let shas = self.prepared.borrow().as_ref().map(|prepared| prepared.shas.clone()).unwrap_or_default();
        let mut draw = Draw {
            random: Random::new(connection as u64),
            connection,
            keys: load.keys,
            value_len: load.value_len,
            shas,
        };
        let mut request = || (load.request)(&mut draw);
        let one = request();
        if memchr::memmem::find(&one, NUMBER.as_bytes()).is_some() {
            let first = connection as u64 * 1_000_000_000 + 1;
            Source::Numbered { requests: Requests::new(&one, pace.depth), next: first, step: pace.depth as u64 }
        } else {
            // Enough different batches to cover the key space, few enough to stay in the cache.
            let variants =
                (20_000 / pace.connections / pace.depth).min((64 << 20) / pace.connections / one.len()).max(8);
            Source::Drawn((0..variants).map(|_| (0..pace.depth).flat_map(|_| request()).collect()).collect())
        }
    }
}

/// The source of a connection's batches.
enum Source {
    /// Encoded in advance, sent in turn.
    Drawn(Vec<Vec<u8>>),
    /// Requests encoded one by one, each with the next numbers.
    Numbered { requests: Requests, next: u64, step: u64 },
}

impl Source {
    fn batch(&mut self, turn: usize) -> &[u8] {
        match self {
            Source::Drawn(batches) => &batches[turn % batches.len()],
            Source::Numbered { requests, next, step } => {
                *next += *step;
                requests.numbered(*next - *step)
            }
        }
    }
}

/// Says when batches count, and how many did. The measuring code opens and closes the span, rather than a fixed time:
/// it may come too late to read the servers' books at a fixed time, and would divide the work of one span by the length
/// of another.
#[derive(Default)]
struct Count {
    has_begun: AtomicBool,
    is_over: AtomicBool,
    batches: AtomicU64,
}

impl Count {
    fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.batches.load(Ordering::Relaxed) == 0
    }

    /// Returns whether a batch that was just answered counts.
    fn add(&self) -> bool {
        let counts = self.has_begun.load(Ordering::Relaxed) && !self.is_over();
        self.batches.fetch_add(u64::from(counts), Ordering::Relaxed);
        counts
    }
}

/// Runs one thread of a client: all of its connections, until the end.
fn drive_all(port: u16, sources: Vec<Source>, replies: u64, count: &Arc<Count>) -> Vec<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    runtime.block_on(async {
        let drive = |source| tokio::spawn(drive(port, source, replies, Arc::clone(count)));
        let tasks: Vec<JoinHandle<Vec<f64>>> = sources.into_iter().map(drive).collect();
        let mut times_ms = Vec::new();
        for task in tasks {
            times_ms.extend(task.await.expect("a connection's task does not panic"));
        }
        times_ms
    })
}

/// Runs one connection: sends a batch, reads its replies, until the end. Returns the times in ms of the batches that
/// count.
async fn drive(port: u16, mut source: Source, replies: u64, count: Arc<Count>) -> Vec<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server accepts");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let (mut counter, mut buf) = (Replies::default(), vec![0u8; 16384]);
    let mut times_ms = Vec::new();
    let mut sent = Instant::now();
    for turn in 0.. {
        stream.write_all(source.batch(turn)).await.expect("the server reads");
        while counter.complete < replies {
            let n = stream.read(&mut buf).await.expect("the server answers");
            assert!(n > 0, "the server hung up");
            counter.feed(&buf[..n]);
        }
        counter.complete -= replies;
        let now = Instant::now();
        if count.add() {
            times_ms.push((now - sent).as_secs_f64() * 1e3);
        }
        if count.is_over() {
            break;
        }
        sent = now;
    }
    times_ms
}
