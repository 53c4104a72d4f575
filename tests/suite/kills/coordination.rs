//! Coordinating clients while servers are killed: 32 clients, where all of one kind compete for one thing.
//!
//! Each request may be repeated: a client without an answer before the kill sends it again. The replies over time must
//! never contradict the promises of the commands, and the data after a kill must match the replies, except for requests
//! under way:
//!
//! - a lock never has two holders, and a gate never more than its limit;
//! - a fencing token is larger than every one known when it was requested, also across a kill, and a stale one writes
//!   nothing;
//! - units of a limit are taken once and given back once, and never exceed the limit;
//! - a request runs once, and all clients that make it get one and the same reply;
//! - IDs never repeat, and never go back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tidegate::base::rng::Rng;

use super::{End, FAR_MS, Link, Snapshots, WRITERS, Writer, items, number, outlive, text};
use crate::harness::{REPLY_DEADLINE, Value};

/// Kills in the default run.
const KILLS: u64 = 4;
/// Losses of power in the default run.
const POWER_LOSSES: u64 = 2;

/// A lease that never ends within a run of this test, ms.
const LEASE_MS: &str = "86400000";

/// Clients that compete for one lock.
const LOCKERS: usize = 8;
/// Clients that compete for places of one gate.
const PASSERS: usize = 7;
/// Clients that share limits.
const TAKERS: usize = 6;
/// Clients that race to make equal requests.
const RACERS: usize = 5;
/// Clients that request IDs; one further client requests snapshots.
const NUMBERERS: usize = WRITERS - LOCKERS - PASSERS - TAKERS - RACERS - 1;

/// Places of the gate.
const PLACES: i64 = 3;
/// Units of each limit.
const UNITS: i64 = 12;

/// The fields of an answer, by name, and whether it is a yes.
fn outcome(answer: Value) -> (bool, BTreeMap<String, Value>) {
    let answer = items(answer);
    let fields = answer[1..].chunks_exact(2).map(|pair| (text(&pair[0]), pair[1].clone()));
    (number(&answer[0]) == 1, fields.collect())
}

/// Sends a command that must be refused with an error that begins like this. `None`: the server is gone.
fn refused(link: &mut Link, command: &[&str], error: &str) -> Option<()> {
    link.0.send_command(command);
    match link.0.try_reply(REPLY_DEADLINE) {
        Ok(reply) => {
            let is_refused = matches!(&reply.value, Value::Error(text) if text.starts_with(error.as_bytes()));
            assert!(is_refused, "{command:?}: {:?}", reply.value);
            Some(())
        }
        Err(why) if why.starts_with("hung up") => None,
        Err(why) => panic!("{command:?}: {why}"),
    }
}

/// Tokens in replies to clients.
#[derive(Default)]
struct Tokens {
    all: BTreeSet<i64>,
}

impl Tokens {
    fn last(&self) -> i64 {
        self.all.last().copied().unwrap_or(0)
    }

    /// Records a new token, requested when `floor` was the last one.
    fn note(&mut self, token: i64, floor: i64) {
        assert!(token > floor, "{token} came after {floor}");
        assert!(self.all.insert(token), "{token} came twice");
    }
}

/// A client's progress with the place that it wants. Each state is a request under way, which is repeated after a kill.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    /// It requests a place; this was the last token at that time.
    Asks { floor: i64 },
    /// It holds a place with this token.
    Inside { token: i64 },
    /// It releases its place.
    Leaves { token: i64 },
}

/// Acquires one lock, alone, and writes under its token.
struct Locker {
    name: String,
    at: At,
    /// Writes of this client, by number; the last one is under way.
    writes: i64,
    all: Arc<Mutex<Lock>>,
}

#[derive(Default)]
struct Lock {
    tokens: Tokens,
    inside: Option<String>,
    /// Acknowledged writes, and sent ones.
    written: i64,
    sent: i64,
}

impl Locker {
    fn enter(&mut self, link: &mut Link, floor: i64) -> Option<()> {
        let answer = link.ask(&["LOCK.ACQUIRE", "lock", &self.name, "PX", LEASE_MS, "BLOCK", "0"])?;
        let (is_granted, fields) = outcome(answer);
        assert!(is_granted, "{fields:?}");
        let token = number(&fields["token"]);
        let mut all = self.all.lock().unwrap();
        all.tokens.note(token, floor);
        let before = all.inside.replace(self.name.clone());
        assert_eq!(before, None, "{} holds the lock as well", self.name);
        all.sent += 1;
        self.writes += 1;
        self.at = At::Inside { token };
        Some(())
    }

    /// Writes once, however often this is tried; a write under an earlier token is refused.
    fn write(&mut self, link: &mut Link, token: i64) -> Option<()> {
        let (request, far_ms) = (format!("write:{}:{}", self.name, self.writes), FAR_MS.to_string());
        let token_text = token.to_string();
        let guarded = ["GUARD", "lock", &token_text, "ONCE", &request, "PXAT", &far_ms, "INCR", "written"];
        let count = number(&link.ask(&guarded)?);
        if token > 1 {
            refused(link, &["GUARD", "lock", &(token - 1).to_string(), "SET", "stale", "1"], "STALE")?;
        }
        let mut all = self.all.lock().unwrap();
        all.written += 1;
        assert_eq!(count, all.written, "each write is there once");
        all.inside = None;
        self.at = At::Leaves { token };
        Some(())
    }
}

impl Writer for Locker {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        match self.at {
            At::Asks { floor } => self.enter(link, floor),
            At::Inside { token } => self.write(link, token),
            At::Leaves { token } => {
                let (was_held, fields) = outcome(link.ask(&["LOCK.RELEASE", "lock", &self.name])?);
                assert!(!was_held || number(&fields["token"]) == token, "{fields:?}");
                self.at = At::Asks { floor: self.all.lock().unwrap().tokens.last() };
                Some(())
            }
        }
    }

    fn check(&mut self, link: &mut Link) {
        let (_, info) = outcome(link.see(&["LOCK.INFO", "lock"]));
        let owners = items(info["owners"].clone());
        assert!(owners.len() <= 1, "{owners:?}");
        let owner = owners.into_iter().next().map(|owner| {
            let fields = items(owner);
            (text(&fields[1]), number(&fields[3]))
        });
        let is_own = owner.as_ref().is_some_and(|(name, _)| *name == self.name);
        match self.at {
            // It may hold the requested place without knowing.
            At::Asks { floor } => assert!(!is_own || owner.is_some_and(|(_, token)| token > floor)),
            At::Inside { token } => assert_eq!(owner, Some((self.name.clone(), token))),
            At::Leaves { token } => assert!(!is_own || owner == Some((self.name.clone(), token))),
        }
        let all = self.all.lock().unwrap();
        let found = link.number(&["GET", "written"]);
        assert!((all.written..=all.sent).contains(&found), "{found} of {} to {}", all.written, all.sent);
        assert_eq!(link.number(&["EXISTS", "stale"]), 0);
    }
}

/// Passes a gate of a few places.
struct Passer {
    name: String,
    at: At,
    all: Arc<Mutex<Gate>>,
}

#[derive(Default)]
struct Gate {
    tokens: Tokens,
    /// Clients that are surely inside.
    inside: BTreeSet<String>,
    /// Clients that may be inside.
    perhaps: BTreeSet<String>,
}

impl Writer for Passer {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        match self.at {
            At::Asks { floor } => {
                self.all.lock().unwrap().perhaps.insert(self.name.clone());
                let limit = PLACES.to_string();
                let acquire = ["GATE.ACQUIRE", "gate", &self.name, "LIMIT", &limit, "PX", LEASE_MS, "BLOCK", "0"];
                let (is_granted, fields) = outcome(link.ask(&acquire)?);
                assert!(is_granted && (1..=PLACES).contains(&number(&fields["in-use"])), "{fields:?}");
                let token = number(&fields["token"]);
                let mut all = self.all.lock().unwrap();
                all.tokens.note(token, floor);
                all.perhaps.remove(&self.name);
                all.inside.insert(self.name.clone());
                assert!(all.inside.len() as i64 <= PLACES, "{:?}", all.inside);
                self.at = At::Inside { token };
            }
            At::Inside { token } => {
                let mut all = self.all.lock().unwrap();
                all.inside.remove(&self.name);
                all.perhaps.insert(self.name.clone());
                self.at = At::Leaves { token };
            }
            At::Leaves { token } => {
                let (was_held, fields) = outcome(link.ask(&["GATE.RELEASE", "gate", &self.name])?);
                assert!(!was_held || number(&fields["token"]) == token, "{fields:?}");
                let mut all = self.all.lock().unwrap();
                all.perhaps.remove(&self.name);
                self.at = At::Asks { floor: all.tokens.last() };
            }
        }
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let all = self.all.lock().unwrap();
        let page = link.list(&["GATE.HOLDERS", "gate", "0", "COUNT", "1000"]);
        let fields = items(page[1].clone()).into_iter().map(items);
        let holders: BTreeMap<String, i64> = fields.map(|fields| (text(&fields[1]), number(&fields[3]))).collect();
        assert!(holders.len() as i64 <= PLACES, "{holders:?}");
        assert!(all.inside.iter().all(|name| holders.contains_key(name)), "{holders:?}, not {:?}", all.inside);
        let is_known = |name: &&String| all.inside.contains(*name) || all.perhaps.contains(*name);
        assert!(holders.keys().all(|name| is_known(&name)), "{holders:?} among {:?}", all.perhaps);
        match self.at {
            At::Asks { floor } => assert!(holders.get(&self.name).is_none_or(|token| *token > floor)),
            At::Inside { token } => assert_eq!(holders.get(&self.name), Some(&token)),
            At::Leaves { token } => assert!(holders.get(&self.name).is_none_or(|held| *held == token)),
        }
    }
}

/// Takes units of three limits at once, and gives them back.
struct Taker {
    client: usize,
    /// Its requests, by number; the last one is under way.
    requests: i64,
    units: i64,
    stage: Stage,
    /// Whether the units are given back by a settlement, or by a refund.
    is_settled: bool,
    rng: Rng,
    all: Arc<Mutex<Ledger>>,
}

/// The action of a request.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Take,
    GiveBack,
}

/// Units by request.
#[derive(Default)]
struct Ledger {
    taken: BTreeMap<String, i64>,
    perhaps: BTreeMap<String, i64>,
}

const LIMITS: [&str; 3] = ["limit:fixed", "limit:exact", "limit:places"];

impl Taker {
    fn request(&self) -> String {
        format!("take:{}:{}", self.client, self.requests)
    }

    fn take(&mut self, link: &mut Link) -> Option<()> {
        let (request, units, max) = (self.request(), self.units.to_string(), UNITS.to_string());
        self.all.lock().unwrap().perhaps.insert(request.clone(), self.units);
        let head = ["LIMIT.TAKE", "ID", &request, "UNITS", &units, "RULES", "3"].into_iter();
        let rules = ["FIXED", "EXACT", "CONCURRENCY"].iter().zip(LIMITS);
        let rules = rules.flat_map(|(kind, key)| [key, kind, &max, LEASE_MS]);
        let (is_granted, fields) = outcome(link.ask(&head.chain(rules).collect::<Vec<_>>())?);
        let mut all = self.all.lock().unwrap();
        all.perhaps.remove(&request);
        if is_granted {
            all.taken.insert(request, self.units);
            assert!(all.taken.values().sum::<i64>() <= UNITS, "{:?}", all.taken);
        } else {
            assert_eq!(number(&fields["repeated"]), 0, "a granted request is never refused: {fields:?}");
        }
        drop(all);
        match is_granted {
            true => self.stage = Stage::GiveBack,
            false => self.begin_next(),
        }
        Some(())
    }

    fn give_back(&mut self, link: &mut Link) -> Option<()> {
        let request = self.request();
        let mut all = self.all.lock().unwrap();
        if let Some(units) = all.taken.remove(&request) {
            all.perhaps.insert(request.clone(), units);
        }
        drop(all);
        if self.is_settled {
            self.settle(link, &request)?
        } else {
            self.refund(link, &request)?
        }
        self.all.lock().unwrap().perhaps.remove(&request);
        self.begin_next();
        Some(())
    }

    /// Says that nothing was used. All units return, once, and each repetition is told the same.
    fn settle(&self, link: &mut Link, request: &str) -> Option<()> {
        for attempt in 0..2 {
            let (is_known, fields) = outcome(link.ask(&[&["LIMIT.SETTLE", request, "0"][..], &LIMITS].concat())?);
            assert!(is_known, "{request} was granted");
            assert!(attempt == 0 || number(&fields["repeated"]) == 1, "{request} was settled twice");
            let changes = items(fields["rules"].clone()).into_iter().map(|rule| number(&items(rule)[3]));
            assert!(changes.clone().all(|change| change == -self.units), "{:?}", changes.collect::<Vec<_>>());
        }
        Some(())
    }

    fn refund(&self, link: &mut Link, request: &str) -> Option<()> {
        let refund = [&["LIMIT.REFUND", request][..], &LIMITS].concat();
        let (was_taken, fields) = outcome(link.ask(&refund)?);
        if was_taken {
            let refunded = items(fields["rules"].clone()).into_iter().map(|rule| number(&items(rule)[3]));
            assert!(refunded.clone().all(|units| units == self.units), "{:?}", refunded.collect::<Vec<_>>());
        }
        let (is_taken_twice, _) = outcome(link.ask(&refund)?);
        assert!(!is_taken_twice, "{request} was given back twice");
        Some(())
    }

    fn begin_next(&mut self) {
        self.requests += 1;
        self.units = 1 + self.rng.below(5) as i64;
        self.is_settled = self.rng.below(2) == 0;
        self.stage = Stage::Take;
    }
}

impl Writer for Taker {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        match self.stage {
            Stage::Take => self.take(link),
            Stage::GiveBack => self.give_back(link),
        }
    }

    fn check(&mut self, link: &mut Link) {
        let all = self.all.lock().unwrap();
        let sum = |units: &BTreeMap<String, i64>| units.values().sum::<i64>();
        let (known, perhaps) = (sum(&all.taken), sum(&all.perhaps));
        let max = UNITS.to_string();
        for (kind, key) in ["FIXED", "EXACT", "CONCURRENCY"].iter().zip(LIMITS) {
            let asks = ["LIMIT.TAKE", "DRYRUN", "RULES", "1", key, kind, &max, LEASE_MS];
            let (_, fields) = outcome(link.see(&asks));
            let rule = items(items(fields["rules"].clone()).remove(0));
            let remaining =
                rule.iter().position(|word| *word == Value::bulk("remaining")).expect("a field of the reply");
            let used = UNITS - number(&rule[remaining + 1]);
            let wanted = known..=(known + perhaps).min(UNITS);
            assert!(wanted.contains(&used), "{key}: {used} units, not {wanted:?}");
        }
    }
}

/// Makes the same requests as other clients, at the same time.
struct Racer {
    next: i64,
    all: Arc<Mutex<Orders>>,
}

#[derive(Default)]
struct Orders {
    /// The known reply to each request.
    known: BTreeMap<i64, i64>,
    /// The last request made by any client.
    sent: i64,
}

const ORDER: &str = "local order = redis.call('INCR', 'race') redis.call('RPUSH', 'raced', ARGV[1]) return order";

impl Writer for Racer {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let mut all = self.all.lock().unwrap();
        all.sent = all.sent.max(self.next);
        drop(all);
        let (id, n, far_ms) = (format!("race:{}", self.next), self.next.to_string(), FAR_MS.to_string());
        let order = number(&link.ask(&["ONCE", &id, "PXAT", &far_ms, "EVAL", ORDER, "0", &n])?);
        let mut all = self.all.lock().unwrap();
        let known = *all.known.entry(self.next).or_insert(order);
        assert_eq!(order, known, "all clients get one reply to request {}", self.next);
        self.next += 1;
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let all = self.all.lock().unwrap();
        let raced: Vec<i64> = link.list(&["LRANGE", "raced", "0", "-1"]).iter().map(number).collect();
        assert_eq!(link.number(&["GET", "race"]), raced.len() as i64);
        let once: BTreeSet<i64> = raced.iter().copied().collect();
        assert_eq!(once.len(), raced.len(), "a request has run twice");
        assert!(all.known.iter().all(|(request, order)| raced.get(*order as usize - 1) == Some(request)));
        assert!(once.iter().all(|request| (1..=all.sent).contains(request)));
    }
}

/// Requests blocks of IDs, from a key that other clients use as well.
struct Numberer {
    rng: Rng,
    all: Arc<Mutex<Ids>>,
}

/// All blocks for each kind of IDs: the last ID by the first.
#[derive(Default)]
struct Ids([BTreeMap<i64, i64>; 2]);

const IDS: [(&str, &str); 2] = [("ids:time", "SNOWFLAKE"), ("ids:count", "COUNTER")];

impl Ids {
    fn last(&self, kind: usize) -> i64 {
        self.0[kind].values().next_back().copied().unwrap_or(0)
    }
}

impl Writer for Numberer {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let (kind, count) = (self.rng.below(2) as usize, 1 + self.rng.below(1_000) as i64);
        let floor = self.all.lock().unwrap().last(kind);
        let (key, shape) = IDS[kind];
        let (_, fields) = outcome(link.ask(&["ID.NEXT", key, "COUNT", &count.to_string(), "SHAPE", shape])?);
        let [first, last] = ["first", "last"].map(|name| number(&fields[name]));
        assert!(first > floor && last == first + count - 1, "{first} to {last}, behind {floor}");
        let blocks = &mut self.all.lock().unwrap().0[kind];
        let before = blocks.range(..=last).next_back();
        assert!(before.is_none_or(|(_, end)| *end < first), "{first} to {last}, and {before:?} as well");
        blocks.insert(first, last);
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let all = self.all.lock().unwrap();
        for (kind, (key, _)) in IDS.into_iter().enumerate() {
            let found = link.number(&["GET", key]);
            assert!(found >= all.last(kind), "{key}: {found} after {}", all.last(kind));
        }
    }
}

fn writers(_: End, seed: u64) -> Vec<Box<dyn Writer>> {
    let (lock, gate, ledger) = (Arc::default(), Arc::default(), Arc::default());
    let (orders, ids) = (Arc::default(), Arc::default());
    let mut all: Vec<Box<dyn Writer>> = Vec::new();
    let asks = At::Asks { floor: 0 };
    for n in 0..LOCKERS {
        all.push(Box::new(Locker { name: format!("locker:{n}"), at: asks, writes: 0, all: Arc::clone(&lock) }));
    }
    for n in 0..PASSERS {
        all.push(Box::new(Passer { name: format!("passer:{n}"), at: asks, all: Arc::clone(&gate) }));
    }
    for client in 0..TAKERS {
        let (rng, all_of_them) = (Rng::seeded(seed + client as u64), Arc::clone(&ledger));
        all.push(Box::new(Taker {
            client,
            requests: 1,
            units: 1,
            stage: Stage::Take,
            is_settled: false,
            rng,
            all: all_of_them,
        }));
    }
    all.extend((0..RACERS).map(|_| Box::new(Racer { next: 1, all: Arc::clone(&orders) }) as Box<dyn Writer>));
    for n in 0..NUMBERERS {
        all.push(Box::new(Numberer { rng: Rng::seeded(seed + 100 + n as u64), all: Arc::clone(&ids) }));
    }
    all.push(Box::new(Snapshots(Rng::seeded(seed + 3))));
    assert_eq!(all.len(), WRITERS);
    all
}

#[test]
fn coordination_survives_kill_9() {
    outlive(End::Kill, KILLS, writers);
}

#[test]
fn coordination_survives_a_loss_of_power() {
    outlive(End::PowerLoss, POWER_LOSSES, writers);
}
