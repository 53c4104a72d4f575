//! Instructions per operation, counted by callgrind; normally run only by `.ci/instructions`.
//!
//! Time varies with the machine, but the number of instructions hardly does. So a change that makes the hot path longer
//! shows in CI, where times are worthless. Each case runs in a process of its own. It sets up, runs its operations once
//! to warm up (caches filled, scripts compiled) and once more inside [`measured`], which callgrind is told to count.
//! Setting up is not counted, nor is the calibration of the processor's clock, which varies at random.
//!
//! The commands go through [`Engine::feed`] as a connection calls it, without a socket. The hashes, the random numbers
//! and the clocks are fixed. In "sent" cases the replies leave as they do from a connection, which is when a journal is
//! written: to a disk in memory, whose syncs take as long as the case says. "Logged" cases have a disk so quick that
//! the engine's thread writes; "handed over" cases have a slow one, so that the work of the journal's thread is counted
//! as well. The difference from "sent" without a journal is the cost of the journal.
//!
//! `instructions CASE COUNT` runs a case; without arguments the names are listed.

mod memory_disk;
mod scripts;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use memory_disk::MemoryDisk;
use tidegate::base::clock::Clock;
use tidegate::base::hasher;
use tidegate::base::rng::Rng;
use tidegate::command;
use tidegate::config::Config;
use tidegate::engine::Engine;
use tidegate::log::directory::{Directory, DirectoryId};
use tidegate::log::disk::{Clock as LogClock, RealClock};
use tidegate::log::platform::Platform;
use tidegate::resp::reply::{Form, Reply};
use tidegate::resp::request::{Decoder, RequestLimits};
use tidegate::script::bundled::Bundled;
use tidegate::session::Peer;
use tidegate::spec::session_key::SessionKey;

/// A named workload: sets up, then runs `count` operations twice, counting the second time.
type Case = (&'static str, fn(count: usize));

const CASES: &[Case] = &[
    ("calibration", calibration),
    ("decode GET", |count| decode("*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n", count)),
    ("decode SET", |count| decode("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$3\r\nxxx\r\n", count)),
    ("GET", |count| Client::connect().with_keys().pipelined(count, |i| encode(&["GET", &key(i)]))),
    ("GET, alone", |count| one_by_one(count, |i| encode(&["GET", &key(i)]))),
    ("SET", |count| Client::connect().with_keys().pipelined(count, |i| encode(&["SET", &key(i), "value-of-the-key"]))),
    ("INCR", |count| {
        Client::connect().with_keys().pipelined(count, |i| encode(&["INCR", &format!("counter:{}", i % KEYS)]))
    }),
    ("SET PX", |count| {
        Client::connect().with_keys().pipelined(count, |i| encode(&["SET", &key(i), "value-of-the-key", "PX", "30000"]))
    }),
    ("lock comes and goes", |count| {
        let turn = |i| encode(&["SET", &at("lock", i), OWNER, "NX", "PX", "30000"]) + &encode(&["DEL", &at("lock", i)]);
        Client::connect().pipelined(count, turn)
    }),
    ("HGET, small", |count| small(count, |i| vec![encode(&["HGET", &at("hash", i), &element(i)])])),
    ("HSET, small", |count| small(count, |i| vec![encode(&["HSET", &at("hash", i), &element(i), &element(i + 1)])])),
    ("SISMEMBER, small", |count| small(count, |i| vec![encode(&["SISMEMBER", &at("set", i), &element(i)])])),
    ("SADD and SREM, small", |count| small(count, |i| coming_and_going("SADD", &at("set", i), &["new"], "SREM"))),
    ("ZSCORE, small", |count| small(count, |i| vec![encode(&["ZSCORE", &at("zset", i), &element(i)])])),
    ("ZADD, small", |count| {
        small(count, |i| vec![encode(&["ZADD", &at("zset", i), &(i % 97).to_string(), &element(i)])])
    }),
    ("ZADD and ZREM, small", |count| small(count, |i| coming_and_going("ZADD", &at("zset", i), &["5", "new"], "ZREM"))),
    ("ZRANGE, small", |count| small(count, |i| vec![encode(&["ZRANGE", &at("zset", i), "0", "-1"])])),
    ("ZRANGE BYSCORE, small", |count| small(count, |i| vec![encode(&["ZRANGE", &at("zset", i), "3", "6", "BYSCORE"])])),
    ("LPUSH and RPOP, small", |count| {
        small(count, |i| vec![encode(&["LPUSH", &at("list", i), &element(i)]), encode(&["RPOP", &at("list", i)])])
    }),
    ("LRANGE, small", |count| small(count, |i| vec![encode(&["LRANGE", &at("list", i), "0", "-1"])])),
    ("hash comes and goes", |count| {
        small(count, |i| {
            let mut fill = vec!["HSET".to_owned(), "order".to_owned()];
            (0..5).for_each(|field| fill.extend([element(field), element(i + field)]));
            vec![encode(&fill.iter().map(String::as_str).collect::<Vec<_>>()), encode(&["UNLINK", "order"])]
        })
    }),
    ("GET, tracked", |count| {
        with_setting(&["CLIENT", "TRACKING", "ON"], true).pipelined(count, |i| encode(&["GET", &key(i)]))
    }),
    ("SET, tracked in prefixes", |count| {
        with_setting(&["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "other:", "NOLOOP"], true)
            .pipelined(count, |i| encode(&["SET", &key(i), "value-of-the-key"]))
    }),
    ("SET, with events", |count| {
        with_setting(&["CONFIG", "SET", "notify-keyspace-events", "KEA"], false)
            .pipelined(count, |i| encode(&["SET", &key(i), "value-of-the-key"]))
    }),
    ("GET, with events", |count| {
        with_setting(&["CONFIG", "SET", "notify-keyspace-events", "KEA"], false)
            .pipelined(count, |i| encode(&["GET", &key(i)]))
    }),
    ("GET, limited user", |count| limited().pipelined(count, |i| encode(&["GET", &key(i)]))),
    ("SET, limited user", |count| limited().pipelined(count, |i| encode(&["SET", &key(i), "value-of-the-key"]))),
    ("GET, sent", |count| Client::sending().with_keys().pipelined(count, |i| encode(&["GET", &key(i)]))),
    ("SET, sent", |count| {
        Client::sending().with_keys().pipelined(count, |i| encode(&["SET", &key(i), "value-of-the-key"]))
    }),
    ("INCR, sent", |count| {
        Client::sending().with_keys().pipelined(count, |i| encode(&["INCR", &format!("counter:{}", i % KEYS)]))
    }),
    ("GET, logged", |count| Client::logged().with_keys().pipelined(count, |i| encode(&["GET", &key(i)]))),
    ("SET, logged", |count| {
        Client::logged().with_keys().pipelined(count, |i| encode(&["SET", &key(i), "value-of-the-key"]))
    }),
    ("INCR, logged", |count| {
        Client::logged().with_keys().pipelined(count, |i| encode(&["INCR", &format!("counter:{}", i % KEYS)]))
    }),
    ("SET, handed over", |count| {
        Client::handing_over().with_keys().pipelined(count, |i| encode(&["SET", &key(i), "value-of-the-key"]))
    }),
    ("INCR, handed over", |count| {
        Client::handing_over().with_keys().pipelined(count, |i| encode(&["INCR", &format!("counter:{}", i % KEYS)]))
    }),
    ("gate, granted", |count| gate(Client::connect(), count, "1000000000")),
    ("gate, refused", |count| gate(Client::connect(), count, "60")),
    ("gate, granted, sent", |count| gate(Client::sending(), count, "1000000000")),
    ("gate, granted, logged", |count| gate(Client::logged(), count, "1000000000")),
    ("gate, granted, handed over", |count| gate(Client::handing_over(), count, "1000000000")),
    ("gate, bundled", bundled_gate),
    ("LOCK.ACQUIRE and RELEASE", |count| {
        rounds(Client::connect(), count, |i| {
            let key = at("lock", i);
            [encode(&["LOCK.ACQUIRE", &key, OWNER, "PX", "30000"]), encode(&["LOCK.RELEASE", &key, OWNER])]
        });
    }),
    ("GATE.ACQUIRE and RELEASE", |count| {
        rounds(Client::connect().with_gates(), count, |i| {
            let key = at("gate", i);
            let acquire = encode(&["GATE.ACQUIRE", &key, OWNER, "LIMIT", "60", "PX", "30000"]);
            [acquire, encode(&["GATE.RELEASE", &key, OWNER])]
        });
    }),
    ("STOCK.RESERVE and CANCEL", |count| {
        rounds(Client::connect().with_stocks(), count, |i| {
            let key = at("stock", i);
            [encode(&["STOCK.RESERVE", &key, OWNER, "PX", "30000"]), encode(&["STOCK.CANCEL", &key, OWNER])]
        });
    }),
    ("three limits, granted", |count| Client::connect().pipelined(count, |i| three_limits(i, "1000000000"))),
    ("three limits, refused", |count| Client::connect().pipelined(count, |i| three_limits(i, "0"))),
    ("ID.NEXT", |count| Client::connect().pipelined(count, |i| encode(&["ID.NEXT", &at("ids", i)]))),
    ("seckill", seckill),
    ("script, empty", |count| script(scripts::EMPTY, "xxx", count)),
    ("script, 50 SET", |count| script(scripts::SETS, "xxx", count)),
    ("script, cjson", |count| script(scripts::JSON, &scripts::an_order(), count)),
];

/// The holder of a lock, gate or stock, as long as those of real clients: a UUID with a number.
const OWNER: &str = "0e9d1a7c-52b4-4c6f-9b1d-3f3a5f0c7e21:7";

/// Few enough to lie in the processor's cache.
const KEYS: usize = 1000;

/// Small collections of each kind, with [`ELEMENTS`] elements each. The numbers have no common factor, so each
/// collection is asked for every element.
const COLLECTIONS: usize = 99;
const ELEMENTS: usize = 10;

/// Commands in one read.
const PIPELINE: usize = 16;

fn main() {
    // `cargo bench` itself passes --bench: then there is nothing to count, and the list does no harm.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [name, count] = args.as_slice() else {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        return;
    };
    let (_, run) = CASES.iter().find(|(case, _)| case == name).unwrap_or_else(|| panic!("no case is called {name}"));
    assert!(hasher::seed(1), "nothing was hashed before");
    run(count.parse().expect("the number of operations"));
}

/// The function in which callgrind counts, found by its name.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
    // Without code after it the call would be a jump, and its end could not be seen.
    black_box(());
}

/// Formatting a number: code of the standard library alone. The count moves only with the toolchain, and then tells
/// that a shift of the other cases may have the same reason.
fn calibration(count: usize) {
    measured(&mut || {
        for i in 0..count {
            black_box(black_box(i % 1000 + 1000).to_string());
        }
    });
}

/// One operation is one request of a pipeline, as a connection sees it.
fn decode(request: &str, count: usize) {
    const LIMITS: RequestLimits = RequestLimits { bulk_bytes: 512 << 20, unauthenticated: false };
    let pipeline = request.repeat(PIPELINE);
    let mut decoder = Decoder::new();
    let mut spans = Vec::new();
    let mut pass = || {
        for _ in 0..count / PIPELINE {
            spans.clear();
            let input = black_box(pipeline.as_bytes());
            while decoder.decode_short(input, &LIMITS, &mut spans) {
                black_box(&spans);
            }
            assert_eq!(decoder.position(), input.len());
            decoder.rebase();
        }
    };
    pass();
    measured(&mut pass);
}

/// Runs commands that arrive one at a time, over existing keys.
fn one_by_one(count: usize, command: impl Fn(usize) -> String) {
    let reads: Vec<String> = (0..count).map(command).collect();
    Client::connect().with_keys().measure(&reads, &reads);
}

/// Runs the operations that `commands` gives, in pipelines, over keys with collections of ten elements.
fn small(count: usize, commands: impl Fn(usize) -> Vec<String>) {
    let reads: Vec<Vec<String>> = (0..count).map(commands).collect();
    let reads: Vec<String> = reads.concat().chunks(PIPELINE).map(<[String]>::concat).collect();
    Client::connect().with_collections().measure(&reads, &reads);
}

/// The collection of this kind for operation `i`.
fn at(kind: &str, i: usize) -> String {
    format!("{kind}:{}", i % COLLECTIONS)
}

/// An element of each collection.
fn element(i: usize) -> String {
    format!("element:{}", i % ELEMENTS)
}

/// Adds and removes an element.
fn coming_and_going(add: &str, key: &str, added: &[&str], remove: &str) -> Vec<String> {
    let member = added.last().expect("something is added");
    vec![encode(&[&[add, key], added].concat()), encode(&[remove, key, member])]
}

/// A client after a command that changes how the server treats it, or all clients.
fn with_setting(command: &[&str], is_resp3: bool) -> Client {
    let mut client = Client::connect().with_keys();
    if is_resp3 {
        client.feed(&encode(&["HELLO", "3"]));
    }
    client.feed(&encode(command));
    client
}

/// A client whose user may call some commands on some keys.
fn limited() -> Client {
    let mut client = Client::connect().with_keys();
    client.feed(&encode(&["ACL", "SETUSER", "worker", "on", ">secret", "+@read", "+@write", "~key:*", "~counter:*"]));
    client.feed(&encode(&["AUTH", "worker", "secret"]));
    client
}

/// One operation takes something and gives it back, so that each finds what the last one found.
fn rounds(mut client: Client, count: usize, commands: impl Fn(usize) -> [String; 2]) {
    for command in commands(0) {
        client.feed(&command);
        let reply = client.out.as_bytes();
        assert_eq!(reply.split(|&byte| byte == b'\n').nth(1), Some(&b":1\r"[..]), "{}", reply.escape_ascii());
    }
    client.pipelined(count, |i| commands(i).concat());
}

/// A rate, a window and a daily quota.
fn three_limits(i: usize, quota: &str) -> String {
    let (rate, window, day) = (at("rate", i), at("window", i), at("day", i));
    let rate = ["LIMIT.TAKE", "RULES", "3", &rate, "GCRA", "1000000", "1000", "1000000"];
    encode(&[&rate[..], &[&window, "FIXED", "1000000", "60000", &day, "CALENDAR", quota, "day", "60"]].concat())
}

fn gate(mut client: Client, count: usize, limit: &str) {
    let sha = client.load(scripts::GATE);
    client.feed(&encode(&["SET", "gate:printer", "60"]));
    let reads = vec![encode(&["EVALSHA", &sha, "1", "gate:printer", limit]); count];
    client.measure(&reads, &reads);
}

/// Runs a script with a key and an argument.
fn script(body: &str, argument: &str, count: usize) {
    let mut client = Client::connect();
    let sha = client.load(body);
    let reads: Vec<String> = (0..count).map(|i| encode(&["EVALSHA", &sha, "1", &key(i), argument])).collect();
    client.measure(&reads, &reads);
}

/// One operation is a grant of the bundled gate and its release.
fn bundled_gate(count: usize) {
    let sha = |name| Bundled::named(name).expect("it is bundled").sha1().escape_ascii().to_string();
    let acquire = encode(&["EVALSHA", &sha("gate_acquire"), "1", "gate:printer", "60"]);
    let release = encode(&["EVALSHA", &sha("gate_release"), "1", "gate:printer"]);
    let reads: Vec<String> =
        (0..2 * count).map(|i| if i % 2 == 0 { acquire.clone() } else { release.clone() }).collect();
    Client::connect().measure(&reads, &reads);
}

/// One operation is an order by a new buyer.
fn seckill(count: usize) {
    let mut client = Client::connect();
    let sha = client.load(scripts::SECKILL);
    client.feed(&encode(&["SET", "seckill:stock:11", "1000000000"]));
    let order =
        |i: usize| encode(&["EVALSHA", &sha, "0", "11", &(1000 + i).to_string(), &(90_071_992_547 + i).to_string()]);
    let (first, second): (Vec<String>, Vec<String>) =
        ((0..count).map(order).collect(), (count..2 * count).map(order).collect());
    client.measure(&first, &second);
}

fn key(i: usize) -> String {
    format!("key:{:012}", i % KEYS)
}

fn encode(args: &[&str]) -> String {
    let bulks: String = args.iter().map(|arg| format!("${}\r\n{arg}\r\n", arg.len())).collect();
    format!("*{}\r\n{bulks}", args.len())
}

/// The journal's clock. A sync's time passes between two looks at it; looking costs as much as looking at the real one.
struct SyncClock {
    real: RealClock,
    sync_ns: u64,
    now_ns: AtomicU64,
}

impl LogClock for SyncClock {
    fn monotonic(&self) -> Duration {
        black_box(self.real.monotonic());
        Duration::from_nanos(self.now_ns.fetch_add(self.sync_ns, Ordering::Relaxed))
    }
}

/// A connection without a socket.
struct Client {
    engine: Engine,
    session: SessionKey,
    decoder: Decoder,
    out: Reply,
    /// Whether replies leave and a journal, if any, is written.
    sends: bool,
}

impl Client {
    fn connect() -> Client {
        let clock = Clock::manual(1_700_000_000_000);
        // Every script is slow under callgrind; as anywhere else, none must count as slow.
        let config = Config { script_slow_threshold_us: 60_000_000, ..Config::default() };
        let mut engine = Engine::new(config, command::table(), clock, Rng::seeded(1)).expect("a fresh engine");
        let address = "127.0.0.1:1".to_owned();
        let peer = Peer { address: address.clone(), local_address: address, fd: -1, is_local: true, ..Peer::default() };
        let session = engine.server.open_session(peer);
        Client { engine, session, decoder: Decoder::new(), out: Reply::new(Form::Resp2), sends: false }
    }

    /// A client whose replies leave.
    fn sending() -> Client {
        Client { sends: true, ..Client::connect() }
    }

    /// A sending client with a journal that the engine's thread writes.
    fn logged() -> Client {
        Client::on_disk(1_000)
    }

    /// A sending client with a journal that its own thread would write.
    fn handing_over() -> Client {
        Client::on_disk(10_000_000)
    }

    /// A sending client with a journal on a disk whose syncs take `sync_ns` nanoseconds. There are no threads: their
    /// work is done in between.
    fn on_disk(sync_ns: u64) -> Client {
        let mut client = Client::sending();
        let disk = Arc::<MemoryDisk>::default();
        let clock = Arc::new(SyncClock { real: RealClock::default(), sync_ns, now_ns: AtomicU64::new(0) });
        client.engine.server.persistence.saving.runs_on(Platform { clock, has_threads: false, ..Platform::default() });
        let directory = Directory::open(disk, Path::new("data"), DirectoryId::new([1; 16])).expect("it is empty");
        client.engine.recover(directory, Box::new(|| {})).expect("it is empty");
        client
    }

    fn with_keys(mut self) -> Client {
        for i in 0..KEYS {
            self.feed(&encode(&["SET", &key(i), "value-of-the-key"]));
            self.feed(&encode(&["SET", &format!("counter:{i}"), "1000"]));
        }
        self
    }

    /// Collections of each kind. The scores of a sorted set are small integers.
    fn with_collections(mut self) -> Client {
        for i in 0..COLLECTIONS {
            for number in 0..ELEMENTS {
                let element = element(number);
                self.feed(&encode(&["HSET", &at("hash", i), &element, "value"]));
                self.feed(&encode(&["SADD", &at("set", i), &element]));
                self.feed(&encode(&["ZADD", &at("zset", i), &number.to_string(), &element]));
                self.feed(&encode(&["RPUSH", &at("list", i), &element]));
            }
        }
        self
    }

    /// Gates with [`ELEMENTS`] holders each.
    fn with_gates(mut self) -> Client {
        for i in 0..COLLECTIONS {
            for number in 0..ELEMENTS {
                self.feed(&encode(&["GATE.ACQUIRE", &at("gate", i), &element(number), "LIMIT", "60", "EX", "3600"]));
            }
        }
        self
    }

    /// Stocks of which [`ELEMENTS`] orders hold units.
    fn with_stocks(mut self) -> Client {
        for i in 0..COLLECTIONS {
            self.feed(&encode(&["STOCK.SET", &at("stock", i), "1000000"]));
            for number in 0..ELEMENTS {
                self.feed(&encode(&["STOCK.RESERVE", &at("stock", i), &element(number), "EX", "3600"]));
            }
        }
        self
    }

    /// Measures commands in pipelines.
    fn pipelined(mut self, count: usize, command: impl Fn(usize) -> String) {
        let reads: Vec<String> =
            (0..count / PIPELINE).map(|read| (0..PIPELINE).map(|i| command(read * PIPELINE + i)).collect()).collect();
        self.measure(&reads, &reads);
    }

    /// Loads a script. Returns its SHA1.
    fn load(&mut self, script: &str) -> String {
        self.feed(&encode(&["SCRIPT", "LOAD", script]));
        let reply = String::from_utf8_lossy(self.out.as_bytes()).into_owned();
        reply.lines().nth(1).expect("a bulk string").to_owned()
    }

    /// Feeds one read and checks that no command fails.
    fn feed(&mut self, read: &str) {
        self.out.truncate(0);
        self.engine.feed(self.session, &mut self.decoder, black_box(read.as_bytes()), &mut self.out);
        self.decoder.rebase();
        let reply = black_box(self.out.as_bytes());
        assert!(reply.first().is_some_and(|&kind| kind != b'-'), "{}", reply.escape_ascii());
    }

    /// Lets the replies leave as a connection does.
    fn send(&mut self) {
        let server = &mut self.engine.server;
        let session = server.clients.sessions.get_mut(self.session).expect("it is connected");
        session.reply(&mut self.out);
        loop {
            let free = server.sendable(self.session);
            let session = server.clients.sessions.get_mut(self.session).expect("it is connected");
            if !session.has_unsent() {
                break;
            }
            let sent = black_box(session.unsent(free)).len();
            session.sent(sent);
            if sent == 0 {
                server.maintain_journal();
            }
        }
    }

    fn measure(&mut self, warm_up: &[String], reads: &[String]) {
        if self.sends {
            let mut turn = |read: &String| {
                self.feed(read);
                self.send();
            };
            warm_up.iter().for_each(&mut turn);
            measured(&mut || reads.iter().for_each(&mut turn));
        } else {
            warm_up.iter().for_each(|read| self.feed(read));
            measured(&mut || reads.iter().for_each(|read| self.feed(read)));
        }
    }
}
