//! Coordination commands, compared with scripts that do the same on peers: `cargo bench --bench coordination`.
//!
//! | Table | What is measured |
//! |---|---|
//! | `coordination` | requests per second and CPU time of the server for each, 50 connections with 16 in flight each |
//! | `hand_over` | [`WAITERS`] clients that all want one lock: how often it changes hands in a second |
//! | `wake_up` | how long a waiter takes to get the resource that another client gave up |
//!
//! Here every grant is on disk before it is reported; the peers keep nothing. All servers run at once, pinned to one
//! core; this client is pinned to another. They are measured in turn, round after round, from the same data.
//!
//! In `wake_up` one client waits and another gives, in turn, on an otherwise idle server. On peers, the waiter uses
//! BLPOP and the giver RPUSH. The time runs from when the giver sends its command. For Tidegate two numbers are
//! reported: with a journal, to which the grant must be written first, and without.
//!
//! A client waiting for the lock waits on Tidegate itself (`LOCK.ACQUIRE ... BLOCK 0`). On peers it works like the most
//! widely used client library for locks: it subscribes to the lock's channel, and tries again whenever a release is
//! published.

mod figures;
mod load;
mod peer;
mod requests;
mod scripts;

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use figures::{Quantity, Recorder};
use load::coordination::{self, Pair};
use load::{Judged, Pace};
use peer::connection::{Connection, Replies};
use peer::{Server, Setup, UNLOGGED, pin_self};
use requests::encode;

/// Compares coordination commands with scripts. Takes some 2 minutes in full with two peers.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

/// Replies are sent only after the disk has the change.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

const CONNECTIONS: usize = 50;
const DEPTH: usize = 16;
const WAITERS: usize = 200;
const HAND_OVER_S: f64 = 2.0;
/// The number of wake-ups measured.
const WAKE_UPS: u64 = 20_000;

fn main() {
    let options = Options::parse();
    pin_self(options.setup.client_core);
    let recorder = Recorder::new("coordination", &options.setup);
    let setup = &options.setup;
    let core = setup.server_core.to_string();
    let start = |command: &String, flags| Judged::new(Server::start_with(command, &core, flags, &[]));
    let mut judged: Vec<Judged> = setup.peers().iter().map(|command| start(command, UNLOGGED)).collect();
    judged.push(start(&setup.server, DURABLE));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    let mut bench = Bench { recorder, options, judged, runtime };
    bench.commands();
    bench.hand_over();
    bench.wake_up();
    bench.recorder.finish();
}

struct Bench {
    recorder: Recorder,
    options: Options,
    /// Peers first, the server under test last.
    judged: Vec<Judged>,
    runtime: Runtime,
}

impl Bench {
    fn commands(&mut self) {
        let quantities = [Quantity::more("requests/s", 0), Quantity::less("CPU us/op", 3)];
        self.recorder.table("coordination", "operation", quantities);
        let length = self.options.setup.seconds(self.options.seconds);
        let pace = Pace { connections: CONNECTIONS, depth: DEPTH, length };
        let pairs = [
            &coordination::LOCK,
            &coordination::GATE,
            &coordination::STOCK_CANCEL,
            &coordination::STOCK_COMMIT,
            &coordination::LIMITS,
            &coordination::ONCE,
        ];
        for pair in pairs {
            let Pair { name, command, scripts } = pair;
            self.recorder.case(name, None, |server| {
                let is_ours = server + 1 == self.judged.len();
                let load = if is_ours { command } else { scripts };
                let sample = self.runtime.block_on(self.judged[server].measure(load, pace));
                [sample.per_second, sample.server_us]
            });
        }
    }

    fn hand_over(&mut self) {
        let quantities = [Quantity::more("hand-overs/s", 0), Quantity::less("CPU us/hand-over", 1)];
        self.recorder.table("hand_over", "clients", quantities);
        let length = self.options.setup.seconds(HAND_OVER_S);
        self.recorder.case(&WAITERS.to_string(), None, |server| {
            let is_ours = server + 1 == self.judged.len();
            let server = &self.judged[server].server;
            // The holder of the lock from the last round is gone.
            Connection::new(server).ask(&["FLUSHALL"]);
            let (before, begin) = (server.cpu_seconds(), Instant::now());
            let count = if is_ours {
                self.runtime.block_on(contend(length, |number, count| wait_on_server(server.port, number, count)))
            } else {
                let mut connection = Connection::new(server);
                let shas = [scripts::TOLD_LOCK, scripts::TOLD_UNLOCK]
                    .map(|script| connection.ask(&["SCRIPT", "LOAD", script]));
                self.runtime.block_on(contend(length, |number, count| {
                    wait_for_message(server.port, shas.clone(), number, count)
                }))
            };
            let (seconds, cpu) = (begin.elapsed().as_secs_f64(), server.cpu_seconds() - before);
            [count as f64 / seconds, cpu * 1e6 / count as f64]
        });
    }
}

impl Bench {
    fn wake_up(&mut self) {
        let peers = self.judged.len() - 1;
        let setup = &self.options.setup;
        let unlogged = setup.start(&setup.server);
        let mut names = setup.names();
        let own = names.pop().expect("the one to judge");
        names.extend([format!("{own} without a journal"), own]);
        let [p50, p99, longest] = ["p50 us", "p99 us", "longest us"].map(|name| Quantity::less(name, 0));
        self.recorder.table_of("wake_up", "woken client", names, [p50, p99, longest]);
        let rounds = setup.scaled(WAKE_UPS);
        let judged = &self.judged;
        self.recorder.case("a single waiting client", None, |number| {
            let mut waits = match number {
                _ if number < peers => wake_ups(&judged[number].server, rounds, Waiting::Blpop),
                _ if number == peers => wake_ups(&unlogged, rounds, Waiting::Lock),
                _ => wake_ups(&judged[peers].server, rounds, Waiting::Lock),
            };
            waits.sort_by(f64::total_cmp);
            [0.5, 0.99, 1.0].map(|share| waits[((waits.len() as f64 * share).ceil() as usize).max(1) - 1])
        });
    }
}

/// The way in which the woken client waits.
#[derive(Clone, Copy)]
enum Waiting {
    Blpop,
    Lock,
}

/// Lets two clients wait for each other's lock, or for elements of a list, `rounds` times. Returns the wait of each, in
/// us.
fn wake_ups(server: &Server, rounds: u64, waiting: Waiting) -> Vec<f64> {
    let mut control = Connection::new(server);
    control.ask(&["FLUSHALL"]);
    let (mut one, mut other) = (Connection::new(server), Connection::new(server));
    let owners = ["7d9f3a52-1c4e-4b8a-9f60-2e5d8c7b1a34", "0b1c2d3e-4f50-4617-8283-94a5b6c7d8e9"];
    let [acquire, release] = [0, 1].map(|request| {
        owners.map(|owner| match (waiting, request) {
            (Waiting::Lock, 0) => encode(&["LOCK.ACQUIRE", LOCK, owner, "PX", LEASE_MS, "BLOCK", "0"]),
            (Waiting::Lock, _) => encode(&["LOCK.RELEASE", LOCK, owner]),
            (Waiting::Blpop, 0) => encode(&["BLPOP", "queue", "0"]),
            (Waiting::Blpop, _) => encode(&["RPUSH", "queue", owner]),
        })
    });
    if let Waiting::Lock = waiting {
        one.pipeline(&acquire[0], 1);
    }
    let wait = |round: u64| {
        let (giver, taker) = if round.is_multiple_of(2) { (0, 1) } else { (1, 0) };
        let (giving, taking) = if giver == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        taking.send(&acquire[taker]);
        // Once both of these are answered, the client waits.
        control.ask(&["PING"]);
        control.ask(&["PING"]);
        let begin = Instant::now();
        giving.send(&release[giver]);
        taking.receive(1);
        let took_us = begin.elapsed().as_secs_f64() * 1e6;
        giving.receive(1);
        took_us
    };
    (0..rounds).map(wait).collect()
}

/// Lets [`WAITERS`] clients run for `length`. Returns how often one of them was given the lock. Each client gets its
/// number.
async fn contend<F: Future<Output = ()> + 'static>(
    length: Duration,
    client: impl Fn(usize, Rc<Cell<u64>>) -> F,
) -> u64 {
    let count = Rc::new(Cell::new(0));
    let clients = LocalSet::new();
    for number in 0..WAITERS {
        clients.spawn_local(client(number, Rc::clone(&count)));
    }
    // Clients still waiting end with the set.
    clients.run_until(tokio::time::sleep(length)).await;
    count.get()
}

const LOCK: &str = "contended";
const CHANNEL: &str = "contended:free";
const LEASE_MS: &str = "30000";

async fn wait_on_server(port: u16, number: usize, count: Rc<Cell<u64>>) {
    let owner = format!("owner:{number:012}");
    let acquire = encode(&["LOCK.ACQUIRE", LOCK, &owner, "PX", LEASE_MS, "BLOCK", "0"]);
    let release = encode(&["LOCK.RELEASE", LOCK, &owner]);
    let mut client = Client::connect(port).await;
    loop {
        client.ask(&acquire).await;
        count.set(count.get() + 1);
        client.ask(&release).await;
    }
}

async fn wait_for_message(port: u16, shas: [String; 2], number: usize, count: Rc<Cell<u64>>) {
    let owner = format!("owner:{number:012}");
    let acquire = encode(&["EVALSHA", &shas[0], "1", LOCK, &owner, LEASE_MS]);
    let release = encode(&["EVALSHA", &shas[1], "2", LOCK, CHANNEL, &owner, LEASE_MS]);
    let (mut client, mut listener) = (Client::connect(port).await, Client::connect(port).await);
    listener.ask(&encode(&["SUBSCRIBE", CHANNEL])).await;
    loop {
        while !client.ask(&acquire).await.starts_with(b"$-1") {
            listener.receive().await;
        }
        count.set(count.get() + 1);
        client.ask(&release).await;
    }
}

/// A connection with one request at a time.
struct Client {
    stream: TcpStream,
    replies: Replies,
    read: Vec<u8>,
}

impl Client {
    async fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server accepts");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Client { stream, replies: Replies::default(), read: Vec::new() }
    }

    /// Sends a request and returns its reply as received.
    async fn ask(&mut self, request: &[u8]) -> &[u8] {
        self.stream.write_all(request).await.expect("the server reads");
        self.receive().await
    }

    /// Receives up to at least the end of a reply or message.
    async fn receive(&mut self) -> &[u8] {
        self.read.clear();
        self.replies.complete = 0;
        while self.replies.complete == 0 {
            let start = self.read.len();
            let n = self.stream.read_buf(&mut self.read).await.expect("the server answers");
            assert!(n > 0, "the server hung up");
            self.replies.feed(&self.read[start..]);
        }
        &self.read
    }
}
