//! Values of a million elements, Tidegate beside redis-server: `cargo bench --bench large_values`.
//!
//! For each type both servers get the same value; told are, as Markdown tables,
//!
//! - resident memory per element: what the process grew by when it got a second such value, over the number of elements (the
//!   first one also pays what is needed once, and for huge pages that are not full yet);
//! - for a point read, an insert, a range of ten from the middle and a deletion: the 99th percentile of the time from
//!   request to reply, and how busy the server was meanwhile; and CPU time of the server's process per request, from
//!   requests that are pipelined, as the median of the rounds;
//! - the longest that another client waits while the whole value is deleted.
//!
//! The 99th percentile is what many clients see: 50 connections, of which each has always one request underway and sends the
//! next when the reply is there. With one request at a time the server sleeps in between, and the kernel's wake-ups would be
//! all that is measured. So the server, on its one core, is what is waited for, and this client never sleeps: it asks without
//! pause (epoll) which replies are there, notes the time once for all of them, and only then reads them. Times of all rounds
//! are taken together: one percentile of 7 times 4,000 requests says more than the median of seven of 4,000 each.
//!
//! The two servers take turns, round after round.

mod peer;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use clap::Parser;

use peer::{Server, Setup, cpu_model, encode, median, pin_self};

/// Measures values of many elements on Tidegate beside redis-server.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Elements of each value.
    #[arg(long, default_value_t = 1_000_000)]
    elements: u64,
    /// Requests of each round: so many of the connections together, and so many that are pipelined.
    #[arg(long, default_value_t = 4_000)]
    requests: u64,
}

/// Connections with a request underway.
const CONNECTIONS: usize = 50;
const KEY: &str = "big";

/// A type of values: how element `i` gets in, and what is asked, `n` being a number out of the whole range and `i` one that
/// no other request has.
struct Kind {
    name: &'static str,
    fill: fn(i: u64) -> Vec<String>,
    asks: [(&'static str, Ask); 4],
}

type Ask = fn(n: u64, i: u64) -> Vec<String>;

/// A command on the key from words with numbers in them.
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
            // Connections overtake each other, so that the server has to choose the id.
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
    let options = Options::parse();
    pin_self(options.setup.client_core);
    let mut memory = String::new();
    let mut times = String::new();
    let mut stalls = String::new();
    for kind in KINDS.iter().filter(|kind| kind.name.contains(&options.setup.only)) {
        eprintln!("{} ...", kind.name);
        let servers = options.setup.start();
        if memory.is_empty() {
            println!("Tidegate: {}; peer: {}; {}\n", servers[1].version(), servers[0].version(), cpu_model());
        }
        let [theirs, ours] = servers.each_ref().map(|server| fill(server, kind, options.elements));
        writeln!(memory, "| {} | {theirs:.1} | {ours:.1} | {:.2} |", kind.name, ours / theirs).expect("a string");
        for (number, (name, ask)) in kind.asks.into_iter().enumerate() {
            let [theirs, ours] = compare(&servers, ask, number as u64, &options);
            writeln!(
                times,
                "| {name} | {:.1} | {:.1} | {:.2} | {:.0}% / {:.0}% | {:.2} | {:.2} | {:.2} |",
                theirs.p99_us,
                ours.p99_us,
                ours.p99_us / theirs.p99_us,
                100.0 * theirs.busy,
                100.0 * ours.busy,
                theirs.cpu_us,
                ours.cpu_us,
                ours.cpu_us / theirs.cpu_us,
            )
            .expect("a string");
        }
        let [theirs, ours] = servers.each_ref().map(stall_of_deletion);
        writeln!(stalls, "| {} | {theirs:.2} | {ours:.2} |", kind.name).expect("a string");
    }
    println!("| {} elements | Redis bytes each | Tidegate bytes each | ratio |\n|---|--:|--:|--:|", options.elements);
    println!("{memory}");
    println!(
        "| request | Redis p99 us | Tidegate p99 us | ratio | server busy (R / T) | Redis CPU us/op | Tidegate CPU us/op | ratio |\n\
        |---|--:|--:|--:|--:|--:|--:|--:|"
    );
    println!("{times}");
    println!("| longest wait of others during DEL | Redis ms | Tidegate ms |\n|---|--:|--:|\n{stalls}");
}

/// Fills the value, twice; answers how many bytes the process grew by for each element the second time.
fn fill(server: &Server, kind: &Kind, elements: u64) -> f64 {
    fill_once(server, kind, elements);
    Client::new(server).pipeline(&[encode(&["RENAME", KEY, "first"])]);
    let grown = fill_once(server, kind, elements);
    Client::new(server).pipeline(&[encode(&["DEL", "first"])]);
    grown
}

fn fill_once(server: &Server, kind: &Kind, elements: u64) -> f64 {
    const AT_ONCE: u64 = 500;
    let before = server.resident_bytes();
    let mut client = Client::new(server);
    for start in (0..elements).step_by(AT_ONCE as usize) {
        let batch: Vec<Vec<u8>> = (start..(start + AT_ONCE).min(elements)).map(|i| command(&(kind.fill)(i))).collect();
        client.pipeline(&batch);
    }
    server.resident_bytes().saturating_sub(before) as f64 / elements as f64
}

/// What one kind of request costs.
struct Cost {
    p99_us: f64,
    /// Share of the time for which the server's process ran while that was measured.
    busy: f64,
    cpu_us: f64,
}

/// What was measured on one server: of each request among many, and of each round.
#[derive(Default)]
struct Samples {
    times_us: Vec<f64>,
    busy: Vec<f64>,
    cpu_us: Vec<f64>,
}

fn compare(servers: &[Server; 2], ask: Ask, number: u64, options: &Options) -> [Cost; 2] {
    let mut crowds = servers.each_ref().map(Crowd::new);
    let mut samples: [Samples; 2] = Default::default();
    for round in 0..options.setup.rounds {
        for which in Setup::turns(round) {
            let (server, crowd, samples) = (&servers[which], &mut crowds[which], &mut samples[which]);
            // The same for both servers, and no element twice: a prime times a number runs through the whole range.
            let first = (number * options.setup.rounds + round) * options.requests * 2;
            let requests: Vec<Vec<u8>> = (first..first + options.requests * 2)
                .map(|i| command(&ask(i.wrapping_mul(611_953) % options.elements, i)))
                .collect();
            let (single, pipelined) = requests.split_at(options.requests as usize);
            let (start, before) = (Instant::now(), server.cpu_seconds());
            crowd.ask(single, &mut samples.times_us);
            samples.busy.push((server.cpu_seconds() - before) / start.elapsed().as_secs_f64());
            let before = server.cpu_seconds();
            pipelined.chunks(50).for_each(|batch| crowd.clients[0].pipeline(batch));
            samples.cpu_us.push((server.cpu_seconds() - before) * 1e6 / pipelined.len() as f64);
        }
    }
    samples.map(|Samples { mut times_us, busy, cpu_us }| {
        times_us.sort_by(f64::total_cmp);
        Cost { p99_us: times_us[times_us.len() * 99 / 100], busy: median(busy), cpu_us: median(cpu_us) }
    })
}

/// Deletes the value while another client asks without pause; answers its longest wait in ms.
fn stall_of_deletion(server: &Server) -> f64 {
    let mut other = Client::new(server);
    let ping = encode(&["PING"]);
    let mut deleter = Client::new(server);
    let mut longest = 0f64;
    let begin = Instant::now();
    let mut sent = false;
    while begin.elapsed() < Duration::from_millis(1500) {
        if !sent && begin.elapsed() > Duration::from_millis(300) {
            deleter.send(&encode(&["DEL", KEY]));
            sent = true;
            longest = 0.0;
        }
        longest = longest.max(other.time(&ping));
    }
    deleter.receive(1);
    longest / 1000.0
}

fn command(words: &[String]) -> Vec<u8> {
    encode(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Clients of one server, each of which has a request underway.
struct Crowd {
    clients: Vec<Client>,
    /// Tells whose replies are there.
    epoll: OwnedFd,
}

impl Crowd {
    fn new(server: &Server) -> Crowd {
        let clients: Vec<Client> = (0..CONNECTIONS).map(|_| Client::new(server)).collect();
        // SAFETY: takes no pointer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: a descriptor that was just made, and that nobody else owns.
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

    /// Asks all this, and appends the microseconds from request to reply where everybody had a request underway: not
    /// those of the first request of each, nor what comes when there is none left to send.
    fn ask(&mut self, requests: &[Vec<u8>], times_us: &mut Vec<f64>) {
        let mut requests = requests.iter();
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
    }

    /// Who has a reply, and since when this is known. Waits without sleeping.
    fn ready(&self) -> (impl Iterator<Item = usize> + use<>, Instant) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; CONNECTIONS];
        loop {
            // SAFETY: as many events may be written as there are.
            let ready = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), CONNECTIONS as i32, 0) };
            if ready > 0 {
                return (events.into_iter().take(ready as usize).map(|event| event.u64 as usize), Instant::now());
            }
        }
    }
}

/// A connection that reads whole replies.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    fn new(server: &Server) -> Client {
        Client { stream: server.connect(), buffer: Vec::new() }
    }

    /// Microseconds from request to reply.
    fn time(&mut self, request: &[u8]) -> f64 {
        let start = Instant::now();
        self.send(request);
        self.receive(1);
        start.elapsed().as_secs_f64() * 1e6
    }

    fn pipeline(&mut self, requests: &[Vec<u8>]) {
        self.send(&requests.concat());
        self.receive(requests.len());
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Reads so many replies, none of which may be an error.
    fn receive(&mut self, mut replies: usize) {
        self.buffer.clear();
        let mut at = 0;
        let mut piece = [0; 4 * 1024];
        while replies > 0 {
            match reply_end(&self.buffer, at) {
                Some(end) => {
                    let reply = &self.buffer[at..end];
                    assert!(reply[0] != b'-', "{}", String::from_utf8_lossy(reply));
                    at = end;
                    replies -= 1;
                }
                None => {
                    let n = self.stream.read(&mut piece).expect("the server answers");
                    assert!(n > 0, "the server hung up");
                    self.buffer.extend_from_slice(&piece[..n]);
                }
            }
        }
    }
}

/// Where the RESP2 reply that begins at `at` ends, if all of it is there.
fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let line = at + bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    let number = || std::str::from_utf8(&bytes[at + 1..line]).ok()?.parse::<i64>().ok();
    match bytes[at] {
        b'$' => {
            let end = usize::try_from(number()?).map_or(line + 2, |len| line + 2 + len + 2);
            (end <= bytes.len()).then_some(end)
        }
        b'*' => (0..number()?.max(0)).try_fold(line + 2, |end, _| reply_end(bytes, end)),
        _ => Some(line + 2),
    }
}
