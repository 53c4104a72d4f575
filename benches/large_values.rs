//! Values of a million elements, compared with peers: `cargo bench --bench large_values`.
//!
//! For each type all servers get the same value. Reported are
//!
//! - resident memory per element: the growth of the process when it got a second such value, divided by the number of
//!   elements (the first value also pays one-off costs, and for huge pages that are not full yet);
//! - for a point read, an insert, a range of ten from the middle and a deletion: the 99th percentile of the time from
//!   request to reply, and how busy the server was in the meantime; and CPU time of the server's process per request,
//!   from pipelined requests, as the median of the rounds;
//! - the longest wait of another client while the whole value is deleted.
//!
//! The 99th percentile is measured with many clients: 50 connections, each of which always has one request underway and
//! sends the next when the reply arrives. With one request at a time the server would sleep in between, and only the
//! kernel's wake-ups would be measured. So the wait is for the server, on its one core, and this client never sleeps:
//! it polls continuously (epoll) for replies, notes the time once for all of them, and only then reads them.
//!
//! The servers take turns, round after round.

mod figures;
mod peer;
mod requests;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use clap::Parser;

use figures::{Quantity, Recorder};
use peer::{Server, Setup, connection::Connection, pin_self};
use requests::encode;

/// Measures values of many elements. Takes some 10 minutes in full with two peers.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Elements of each value.
    #[arg(long, default_value_t = 1_000_000)]
    elements: u64,
    /// Requests per round: this many from all connections together, and as many pipelined.
    #[arg(long, default_value_t = 4_000)]
    requests: u64,
}

/// Connections with a request underway.
const CONNECTIONS: usize = 50;
const KEY: &str = "big";

/// A type of values: the command that adds element `i`, and the requests measured. `n` is a number out of the whole
/// range and `i` one that no other request has.
struct Kind {
    name: &'static str,
    fill: fn(i: u64) -> Vec<String>,
    asks: [(&'static str, Ask); 4],
}

type Ask = fn(n: u64, i: u64) -> Vec<String>;

/// Makes a command on the key from words with numbers in them.
macro_rules! ask {
    ($verb:literal $(, $word:expr)*) => { vec![$verb.to_owned(), KEY.to_owned() $(, $word.to_string())*] };
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "hash",
        fill: |i| ask!("HSET", element(i), format!("value:{i:07}")),
        asks: [
            ("HGET", |n, _| ask!("HGET", element(n))),
            ("HSET of a new field", |_, i| ask!("HSET", format!("new:{i:09}"), "value")),
            ("HSCAN of ten", |n, _| ask!("HSCAN", n * 7919, "COUNT", 10)),
            ("HDEL", |n, _| ask!("HDEL", element(n))),
        ],
    },
    Kind {
        name: "list",
        fill: |i| ask!("RPUSH", element(i)),
        asks: [
            ("LINDEX near an end", |n, _| ask!("LINDEX", n % 1000)),
            ("RPUSH", |_, i| ask!("RPUSH", element(i))),
            ("LRANGE of ten in the middle", |n, _| ask!("LRANGE", 400_000 + n % 100_000, 400_009 + n % 100_000)),
            ("LPOP", |_, _| ask!("LPOP")),
        ],
    },
    Kind {
        name: "set",
        fill: |i| ask!("SADD", element(i)),
        asks: [
            ("SISMEMBER", |n, _| ask!("SISMEMBER", element(n))),
            ("SADD of a new member", |_, i| ask!("SADD", format!("new:{i:09}"))),
            ("SSCAN of ten", |n, _| ask!("SSCAN", n * 7919, "COUNT", 10)),
            ("SREM", |n, _| ask!("SREM", element(n))),
        ],
    },
    Kind {
        name: "sorted set",
        fill: |i| ask!("ZADD", i.wrapping_mul(7919) % 1_000_003, element(i)),
        asks: [
            ("ZSCORE", |n, _| ask!("ZSCORE", element(n))),
            ("ZADD of a new member", |n, i| ask!("ZADD", n, format!("new:{i:09}"))),
            ("ZRANGE of ten in the middle", |n, _| ask!("ZRANGE", 400_000 + n % 100_000, 400_009 + n % 100_000)),
            ("ZREM", |n, _| ask!("ZREM", element(n))),
        ],
    },
    Kind {
        name: "stream",
        fill: |i| ask!("XADD", format!("{}-1", i + 1), "field", format!("value:{i:07}")),
        asks: [
            ("XRANGE of one", |n, _| ask!("XRANGE", format!("{}-1", n + 1), format!("{}-1", n + 1))),
            // Connections overtake each other, so the server must choose the id.
            ("XADD", |_, _| ask!("XADD", "*", "field", "value")),
            ("XRANGE of ten in the middle", |n, _| ask!("XRANGE", format!("{n}-0"), "+", "COUNT", 10)),
            ("XDEL", |n, _| ask!("XDEL", format!("{}-1", n + 1))),
        ],
    },
];

fn element(i: u64) -> String {
    format!("element:{i:07}")
}

fn main() {
    let mut options = Options::parse();
    options.elements = options.setup.scaled(options.elements);
    pin_self(options.setup.client_core);
    let commands = options.setup.commands();
    let mut recorder = Recorder::new("large_values", &options.setup);
    let start = |number: usize| options.setup.start(&commands[number]);

    recorder.table("large_memory", &format!("{} elements", options.elements), [Quantity::less("bytes each", 1)]);
    for kind in &KINDS {
        recorder.case(kind.name, None, |server| [grown_by_each(&start(server), kind, options.elements)]);
    }
    let busy = Quantity::neither("server busy %", 0);
    recorder.table("large_requests", "request", [Quantity::less("p99 us", 1), Quantity::less("CPU us/op", 3), busy]);
    for kind in &KINDS {
        let asks = kind.asks.map(|(name, ask)| (format!("{name} ({})", kind.name), ask));
        if !asks.iter().any(|(case, _)| recorder.wants(case)) {
            continue;
        }
        let servers: Vec<Server> = (0..commands.len()).map(start).collect();
        servers.iter().for_each(|server| fill(server, kind, options.elements));
        let mut crowds: Vec<Crowd> = servers.iter().map(Crowd::new).collect();
        for (number, (case, ask)) in asks.into_iter().enumerate() {
            let mut rounds = vec![0; servers.len()];
            recorder.case(&case, None, |server| {
                let first = (number * options.setup.rounds + rounds[server]) as u64 * options.requests * 2;
                rounds[server] += 1;
                cost(&servers[server], &mut crowds[server], ask, first, &options)
            });
        }
    }
    recorder.table("large_deletion", "deleted value", [Quantity::less("longest wait of others, ms", 2)]);
    for kind in &KINDS {
        recorder.case(kind.name, None, |server| {
            let server = start(server);
            fill(&server, kind, options.elements);
            [longest_wait_ms(&server)]
        });
    }
    recorder.finish();
}

/// Fills the value twice. Returns the process's growth in bytes per element during the second fill.
fn grown_by_each(server: &Server, kind: &Kind, elements: u64) -> f64 {
    fill(server, kind, elements);
    Connection::new(server).ask(&["RENAME", KEY, "first"]);
    let before = server.steady_bytes();
    fill(server, kind, elements);
    server.steady_bytes().saturating_sub(before) as f64 / elements as f64
}

fn fill(server: &Server, kind: &Kind, elements: u64) {
    const AT_ONCE: u64 = 500;
    let mut connection = Connection::new(server);
    for start in (0..elements).step_by(AT_ONCE as usize) {
        let end = (start + AT_ONCE).min(elements);
        let batch: Vec<u8> = (start..end).flat_map(|i| command(&(kind.fill)(i))).collect();
        connection.pipeline(&batch, end - start);
    }
}

/// The cost of one kind of request: the p99 in us, CPU time in us, and the share of time for which the server was busy,
/// in percent. Takes the numbers from `first` on: the same for all servers, and no element twice.
fn cost(server: &Server, crowd: &mut Crowd, ask: Ask, first: u64, options: &Options) -> [f64; 3] {
    // Multiples of a prime run through the whole range.
    let requests: Vec<Vec<u8>> = (first..first + options.requests * 2)
        .map(|i| command(&ask(i.wrapping_mul(611_953) % options.elements, i)))
        .collect();
    let (single, pipelined) = requests.split_at(options.requests as usize);
    let (start, before) = (Instant::now(), server.cpu_seconds());
    let mut times_us = crowd.ask(single);
    let busy = (server.cpu_seconds() - before) / start.elapsed().as_secs_f64();
    let before = server.cpu_seconds();
    pipelined.chunks(50).for_each(|batch| crowd.clients[0].pipeline(&batch.concat(), batch.len() as u64));
    let cpu_us = (server.cpu_seconds() - before) * 1e6 / pipelined.len() as f64;
    times_us.sort_by(f64::total_cmp);
    [times_us[times_us.len() * 99 / 100], cpu_us, 100.0 * busy]
}

/// Deletes the value while another client sends requests without pause. Returns its longest wait in ms.
fn longest_wait_ms(server: &Server) -> f64 {
    let (mut deleter, mut other, ping) = (Connection::new(server), Connection::new(server), encode(&["PING"]));
    deleter.send(&encode(&["DEL", KEY]));
    let (mut longest, begin) = (0f64, Instant::now());
    while begin.elapsed() < Duration::from_millis(1_200) {
        let start = Instant::now();
        other.pipeline(&ping, 1);
        longest = longest.max(start.elapsed().as_secs_f64() * 1e3);
    }
    deleter.receive(1);
    longest
}

fn command(words: &[String]) -> Vec<u8> {
    encode(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Connections of one server, each with a request underway.
struct Crowd {
    clients: Vec<Connection>,
    /// Reports the connections that have replies.
    epoll: OwnedFd,
}

impl Crowd {
    fn new(server: &Server) -> Crowd {
        let clients: Vec<Connection> = (0..CONNECTIONS).map(|_| Connection::new(server)).collect();
        // SAFETY: takes no pointer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor was just made, and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        for (number, client) in clients.iter().enumerate() {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
            // SAFETY: the event is read before the call returns; both descriptors are open.
            let added = unsafe {
                libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, client.stream.as_raw_fd(), &raw mut event)
            };
            assert_eq!(added, 0, "{}", std::io::Error::last_os_error());
        }
        Crowd { clients, epoll }
    }

    /// Sends all requests. Returns the microseconds from request to reply while every connection had a request
    /// underway: neither those of the first request of each, nor those at the end, when no request is left to send.
    fn ask(&mut self, requests: &[Vec<u8>]) -> Vec<f64> {
        let (mut requests, mut times_us) = (requests.iter(), Vec::new());
        let mut sent = vec![None; self.clients.len()];
        let mut underway = 0;
        for (client, request) in self.clients.iter_mut().zip(requests.by_ref()) {
            client.send(request);
            underway += 1;
        }
        while underway > 0 {
            let (ready, now) = self.ready();
            for number in ready {
                let client = &mut self.clients[number];
                client.receive(1);
                let Some(request) = requests.next() else {
                    underway -= 1;
                    continue;
                };
                let sent = sent[number].replace(Instant::now());
                times_us.extend(sent.map(|sent: Instant| (now - sent).as_secs_f64() * 1e6));
                client.send(request);
            }
        }
        times_us
    }

    /// The connections that have a reply, and since when that is known. Waits without sleeping.
    fn ready(&self) -> (impl Iterator<Item = usize> + use<>, Instant) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; CONNECTIONS];
        loop {
            // SAFETY: at most as many events are written as the buffer holds.
            let ready = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), CONNECTIONS as i32, 0) };
            if ready > 0 {
                return (events.into_iter().take(ready as usize).map(|event| event.u64 as usize), Instant::now());
            }
        }
    }
}
