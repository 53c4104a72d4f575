//! What a BGSAVE costs those who go on writing, Tidegate beside peers: `cargo bench --bench saving -- --peer-redis PATH
//! --peer-valkey PATH`.
//!
//! Each server is started alone and filled: once with many small strings, once with one hash of as many fields. Then some
//! connections overwrite random ones of these, pipelined, as fast as the server answers. After a while without a snapshot comes one
//! with BGSAVE, from the command until INFO says that it has ended. Told are, as a Markdown table, for the time without and with it:
//!
//! - writes in a second;
//! - how long the server keeps another client waiting that sends a PING every millisecond: the 99th percentile and the longest;
//!
//! and of the snapshot: how long it took, and by how much memory grew for it at most. That is the resident memory of the server, and
//! what a process that it has forked holds beside it, above the most that the server had before.
//!
//! Server and client share all the cores that they are given, for what saves has to run somewhere, be it a thread or a process. On
//! few cores a wait would then be as long as the system lets those run who make the load. So these give way to the server, and the
//! one that sends PINGs comes before all others, if the system lets it (real-time priority: for root).
//! Snapshots go to a temporary folder (`TMPDIR`).

#[allow(dead_code, reason = "other benches let two servers take turns")]
mod peer;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use peer::{Contestants, Server, cpu_model, encode};

/// Measures what BGSAVE costs under full load of writes, on Tidegate and on peers.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    contestants: Contestants,
    /// Keys, and fields of the hash.
    #[arg(long, default_value_t = 5_000_000)]
    keys: u64,
    /// Connections that write.
    #[arg(long, default_value_t = 8)]
    connections: u64,
    /// Writes that each of them sends at a time.
    #[arg(long, default_value_t = 16)]
    depth: u64,
    /// For how long the load is measured without a snapshot.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Only what has this in its name: strings or hash.
    #[arg(long, default_value = "")]
    only: String,
    /// Cores of the servers, as taskset takes them.
    #[arg(long, default_value = "0,1")]
    cores: String,
}

/// How number `n` is written, and the reply to a write of one that is there.
struct Kind {
    name: &'static str,
    write: fn(n: u64) -> Vec<u8>,
    reply: &'static [u8],
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "strings",
        write: |n| encode(&["SET", &format!("key:{n:012}"), &format!("value:{n:07}")]),
        reply: b"+OK\r\n",
    },
    Kind {
        name: "hash",
        write: |n| encode(&["HSET", "hash", &format!("field:{n:010}"), &format!("value:{n:07}")]),
        reply: b":0\r\n",
    },
];

/// Longer than any snapshot takes that is not stuck.
const SAVE_MAX: Duration = Duration::from_secs(900);

/// What was measured while the load went on.
struct Span {
    writes_per_s: f64,
    /// Times of PING in ms, in rising order.
    pings_ms: Vec<f64>,
    /// The most memory of the server and its children, in bytes.
    peak_bytes: u64,
    length: Duration,
}

impl Span {
    fn p99_ms(&self) -> f64 {
        self.pings_ms.get(self.pings_ms.len() * 99 / 100).copied().unwrap_or(f64::NAN)
    }

    fn longest_ms(&self) -> f64 {
        self.pings_ms.last().copied().unwrap_or(f64::NAN)
    }
}

fn main() {
    let options = Options::parse();
    let Contestants { server, .. } = &options.contestants;
    let servers: Vec<&str> = options.contestants.peers().map(|(_, command)| command).chain([server.as_str()]).collect();
    println!(
        "{} keys or fields; {} connections with {} writes at a time; cores {}; {}\n",
        options.keys,
        options.connections,
        options.depth,
        options.cores,
        cpu_model()
    );
    println!(
        "| value | server | writes/s | p99 ms | longest ms | writes/s, saving | p99 ms | longest ms | save s | memory MiB | more, saving |\n\
        |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    for kind in KINDS.iter().filter(|kind| kind.name.contains(&options.only)) {
        for command in &servers {
            measure(command, kind, &options);
        }
    }
}

fn measure(command: &str, kind: &Kind, options: &Options) {
    let server = Server::start_on(command, &options.cores);
    fill(&server, kind, options.keys);
    let load = Load::default();
    let ready = Barrier::new(options.connections as usize + 1);
    let (without, with) = std::thread::scope(|scope| {
        for connection in 0..options.connections {
            let (server, load, ready) = (&server, &load, &ready);
            scope.spawn(move || {
                let batches = batches(kind, options, connection);
                ready.wait();
                load.write(server, kind, &batches, options.depth);
            });
        }
        ready.wait();
        // What grows once grows now.
        std::thread::sleep(Duration::from_secs(1));
        let begin = Instant::now();
        let without = load.observe(&server, || begin.elapsed().as_secs_f64() < options.seconds);
        let mut control = server.connect();
        let reply = ask(&mut control, &["BGSAVE"]);
        assert!(reply.starts_with('+'), "BGSAVE: {reply}");
        let with = load.observe(&server, || is_saving(&mut control));
        load.is_over.store(true, Ordering::Relaxed);
        (without, with)
    });
    let info = ask(&mut server.connect(), &["INFO", "persistence"]);
    assert!(info.contains("rdb_last_bgsave_status:ok"), "{command}: {info}");
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "| {} | {} | {:.0} | {:.2} | {:.2} | {:.0} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} |",
        kind.name,
        server.version(),
        without.writes_per_s,
        without.p99_ms(),
        without.longest_ms(),
        with.writes_per_s,
        with.p99_ms(),
        with.longest_ms(),
        with.length.as_secs_f64(),
        mib(without.peak_bytes),
        mib(with.peak_bytes.saturating_sub(without.peak_bytes)),
    );
}

fn fill(server: &Server, kind: &Kind, keys: u64) {
    const AT_ONCE: u64 = 1_000;
    let mut stream = server.connect();
    let mut replies = Vec::new();
    for start in (0..keys).step_by(AT_ONCE as usize) {
        let end = (start + AT_ONCE).min(keys);
        let batch: Vec<u8> = (start..end).flat_map(kind.write).collect();
        stream.write_all(&batch).expect("the server reads");
        replies.resize((end - start) as usize * kind.reply.len(), 0);
        stream.read_exact(&mut replies).expect("the server answers");
        assert!(replies[0] != b'-', "{}", replies.escape_ascii());
    }
}

/// One command, one reply, as text.
fn ask(stream: &mut TcpStream, args: &[&str]) -> String {
    stream.write_all(&encode(args)).expect("the server reads");
    let (mut reply, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut piece).expect("the server answers");
        assert!(n > 0, "the server hung up");
        reply.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&reply);
        let Some((head, body)) = text.split_once("\r\n") else { continue };
        let len = head.strip_prefix('$').map_or(0, |len| len.parse::<usize>().expect("a length") + 2);
        if body.len() >= len {
            return text.into_owned();
        }
    }
}

fn is_saving(control: &mut TcpStream) -> bool {
    ask(control, &["INFO", "persistence"]).contains("rdb_bgsave_in_progress:1")
}

/// What one connection sends, encoded before: writes of random numbers, enough of them to meet every page of memory.
fn batches(kind: &Kind, options: &Options, connection: u64) -> Vec<Vec<u8>> {
    let mut state = (connection + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % n
    };
    let mut batch = || (0..options.depth).flat_map(|_| (kind.write)(below(options.keys))).collect();
    (0..8_000).map(|_| batch()).collect()
}

/// The load, shared by the connections that make it.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    writes: AtomicU64,
}

impl Load {
    /// One connection: batches out, their replies in, until the end.
    fn write(&self, server: &Server, kind: &Kind, batches: &[Vec<u8>], depth: u64) {
        let expected = kind.reply.repeat(depth as usize);
        let mut replies = vec![0; expected.len()];
        let mut stream = server.connect();
        give_way();
        for batch in batches.iter().cycle() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            stream.write_all(batch).expect("the server reads");
            stream.read_exact(&mut replies).expect("the server answers");
            assert!(replies == expected, "{}", replies.escape_ascii());
            self.writes.fetch_add(depth, Ordering::Relaxed);
        }
    }

    /// Looks at the server from another connection for as long as `goes_on`, which is asked 20 times a second.
    fn observe(&self, server: &Server, mut goes_on: impl FnMut() -> bool) -> Span {
        let (begin, before) = (Instant::now(), self.writes.load(Ordering::Relaxed));
        let has_ended = AtomicBool::new(false);
        let (mut pings_ms, peak_bytes) = std::thread::scope(|scope| {
            let pings = scope.spawn(|| ping(server, &has_ended));
            let mut peak_bytes = server.memory_bytes();
            while goes_on() {
                std::thread::sleep(Duration::from_millis(50));
                peak_bytes = peak_bytes.max(server.memory_bytes());
                assert!(begin.elapsed() < SAVE_MAX, "it does not end");
            }
            has_ended.store(true, Ordering::Relaxed);
            (pings.join().expect("no panic"), peak_bytes)
        });
        pings_ms.sort_by(f64::total_cmp);
        let length = begin.elapsed();
        let writes = self.writes.load(Ordering::Relaxed) - before;
        Span { writes_per_s: writes as f64 / length.as_secs_f64(), pings_ms, peak_bytes, length }
    }
}

/// Sends a PING every millisecond, or as soon as the last one is answered. Answers how long each took, in ms.
fn ping(server: &Server, has_ended: &AtomicBool) -> Vec<f64> {
    let mut stream = server.connect();
    let request = encode(&["PING"]);
    let (mut reply, mut times) = ([0; 7], Vec::new());
    come_first();
    while !has_ended.load(Ordering::Relaxed) {
        let begin = Instant::now();
        stream.write_all(&request).expect("the server reads");
        stream.read_exact(&mut reply).expect("the server answers");
        let took = begin.elapsed();
        times.push(took.as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_millis(1).saturating_sub(took));
    }
    times
}

/// Has this thread run when the server needs no core, as clients on other machines would.
fn give_way() {
    // SAFETY: the call takes no pointers. Where it fails, the priority stays.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// Has this thread run as soon as it has something to do.
fn come_first() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads the struct that it is given. Where it is not allowed, the priority stays.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
}
