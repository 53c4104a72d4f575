//! Policies of consumer groups: random [histories](crate::histories) of deliveries compared with a naive model, and the
//! effects on other clients. Replies of all kinds are in `transcripts/queues.txt`.

use std::collections::{BTreeMap, BTreeSet};

use crate::differential::generate::Dice;
use crate::harness::{Program, Raw, Server, Value, decode, until};
use crate::histories::{Log, run};
use crate::in_process::{Bench, START_MS, Told, script, words};
use crate::replica::Snapshotted;

/// An id, as numbers.
pub(crate) type Id = (u64, u64);

/// A pending entry of the model.
#[derive(Clone, Debug, PartialEq)]
struct Delivery {
    /// The consumer that holds it; `None`: it was given back.
    consumer: Option<&'static str>,
    /// The time of delivery, or the end of the hold.
    time_ms: i64,
    deliveries: i64,
}

#[derive(Clone, Copy, Debug)]
struct Policy {
    idle_ms: i64,
    most: i64,
    base_ms: i64,
    longest_ms: i64,
}

/// A stream `s` with a group `g`, and its dead letters under `d`.
#[derive(Clone, Default)]
struct Model {
    now_ms: i64,
    entries: BTreeMap<Id, String>,
    last_id: Id,
    delivered: Id,
    pending: BTreeMap<Id, Delivery>,
    policy: Option<Policy>,
    /// Payload, id, consumer, deliveries, time.
    dead: BTreeMap<Id, (String, Id, &'static str, i64, i64)>,
    last_dead: Id,
    /// The key for dead letters holds another type.
    is_stuck: bool,
    /// Finished messages: acknowledged, deleted, or given up with their consumer.
    done: BTreeSet<String>,
}

pub(crate) fn next_id(now_ms: i64, last: Id) -> Id {
    if now_ms as u64 > last.0 { (now_ms as u64, 0) } else { (last.0, last.1 + 1) }
}

impl Model {
    fn backoff_ms(policy: &Policy, deliveries: i64) -> i64 {
        let mut wait = policy.base_ms;
        for _ in 1..deliveries.min(40) {
            wait = (2 * wait).min(policy.longest_ms);
        }
        if deliveries == 0 { 0 } else { wait.min(policy.longest_ms) }
    }

    fn due_ms(&self, policy: &Policy, delivery: &Delivery) -> i64 {
        match delivery.consumer {
            None => delivery.time_ms,
            Some(_) => delivery.time_ms + policy.idle_ms + Model::backoff_ms(policy, delivery.deliveries),
        }
    }

    /// Entries that are due, in order: for another delivery, or exhausted.
    fn due(&self, exhausted: bool) -> Vec<Id> {
        let Some(policy) = self.policy else { return Vec::new() };
        let is_exhausted = |delivery: &Delivery| policy.most > 0 && delivery.deliveries >= policy.most;
        let mut due: Vec<(i64, Id)> = self
            .pending
            .iter()
            .filter(|(_, delivery)| is_exhausted(delivery) == exhausted)
            .map(|(id, delivery)| (self.due_ms(&policy, delivery), *id))
            .filter(|(due_ms, _)| *due_ms <= self.now_ms)
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).collect()
    }

    fn add(&mut self, payload: &str) {
        self.last_id = next_id(self.now_ms, self.last_id);
        self.entries.insert(self.last_id, payload.to_owned());
    }

    /// Entries given to a consumer.
    fn read(&mut self, consumer: &'static str, count: usize) -> Vec<(Id, String)> {
        let mut given = Vec::new();
        for id in self.due(false) {
            if given.len() == count {
                break;
            }
            match self.entries.get(&id) {
                Some(payload) => given.push((id, payload.clone())),
                None => _ = self.pending.remove(&id),
            }
        }
        let new: Vec<_> = self.entries.range((self.delivered.0, self.delivered.1 + 1)..).collect();
        let new: Vec<_> = new.into_iter().take(count - given.len()).map(|(id, text)| (*id, text.clone())).collect();
        if let Some((last, _)) = new.last() {
            self.delivered = *last;
        }
        given.extend(new);
        for (id, _) in &given {
            let deliveries = self.pending.get(id).map_or(0, |delivery| delivery.deliveries).saturating_add(1);
            self.pending.insert(*id, Delivery { consumer: Some(consumer), time_ms: self.now_ms, deliveries });
        }
        given
    }

    /// Changes that the server makes by itself.
    fn bury(&mut self) {
        if self.is_stuck {
            return;
        }
        for id in self.due(true) {
            let Some(delivery) = self.pending.remove(&id) else { continue };
            let Some(payload) = self.entries.get(&id) else { continue };
            self.last_dead = next_id(self.now_ms, self.last_dead);
            let letter = (payload.clone(), id, delivery.consumer.unwrap_or(""), delivery.deliveries, self.now_ms);
            self.dead.insert(self.last_dead, letter);
        }
    }

    /// Asserts that every message is in one place, and only there.
    fn check(&self, sent: usize) {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let undelivered = self.entries.iter().filter(|(id, _)| **id > self.delivered).map(|(_, text)| text);
        let pending = self.pending.keys().filter_map(|id| self.entries.get(id));
        let dead = self.dead.values().map(|(text, ..)| text);
        undelivered.chain(pending).chain(dead).chain(&self.done).for_each(|text| {
            *places.entry(text).or_default() += 1;
        });
        assert!(places.values().all(|places| *places == 1) && places.len() == sent, "{places:?} of {sent}");
    }
}

pub(crate) fn value(reply: &[u8]) -> Value {
    decode(reply, false).expect("a reply").expect("a whole reply").0
}

pub(crate) fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

pub(crate) fn id_of(value: &Value) -> Id {
    let text = text(value);
    let (ms, seq) = text.split_once('-').unwrap_or_else(|| panic!("{text} is no id"));
    (ms.parse().expect("a number"), seq.parse().expect("a number"))
}

pub(crate) fn id_text(id: Id) -> String {
    format!("{}-{}", id.0, id.1)
}

pub(crate) fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(elements) => elements,
        Value::Null => Vec::new(),
        other => panic!("{other:?} is no array"),
    }
}

/// Entries with all their fields and values.
pub(crate) fn entries(value: Value) -> Vec<(Id, Vec<String>)> {
    let entry = |entry: Value| {
        let parts = array(entry);
        (id_of(&parts[0]), array(parts[1].clone()).iter().map(text).collect())
    };
    array(value).into_iter().map(entry).collect()
}

/// The reply of XREADGROUP for its one stream.
pub(crate) fn delivered(reply: &[u8]) -> Vec<(Id, String)> {
    let Some(stream) = array(value(reply)).pop() else { return Vec::new() };
    let all = entries(array(stream).pop().expect("the entries"));
    all.into_iter().map(|(id, pairs)| (id, pairs[1].clone())).collect()
}

const CONSUMERS: [&str; 3] = ["ann", "bob", "eve"];

/// A server beside the model. Client 1 may wait.
struct Pair {
    bench: Bench,
    model: Model,
    sent: usize,
    waiting: bool,
    /// The time at which stuck entries may be tried again.
    stuck_until_ms: i64,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            bench: Bench::new(2),
            model: Model { now_ms: START_MS, ..Model::default() },
            sent: 0,
            waiting: false,
            stuck_until_ms: 0,
        }
    }

    fn create(&mut self) {
        assert_eq!(self.call(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]), Value::ok());
    }

    fn call(&mut self, args: &[&str]) -> Value {
        value(&self.bench.call(0, &words(args)))
    }

    fn pass(&mut self, ms: i64) {
        self.bench.pass(ms);
        self.model.now_ms += ms;
    }

    fn step(&mut self, dice: &mut Dice) {
        let consumer = *dice.pick(&CONSUMERS);
        let ids: Vec<Id> = self.model.pending.keys().copied().collect();
        let id = if ids.is_empty() { (1, 1) } else { *dice.pick(&ids) };
        let named = id_text(id);
        match dice.below(24) {
            0..5 => {
                let payload = format!("m{}", self.sent);
                self.sent += 1;
                self.model.add(&payload);
                let id = self.call(&["XADD", "s", "*", "n", &payload]);
                assert_eq!(id_of(&id), self.model.last_id);
            }
            5..10 => {
                let count = 1 + dice.below(3);
                let given = self.model.read(consumer, count);
                let (count, call) = (count.to_string(), ["XREADGROUP", "GROUP", "g", consumer, "COUNT"]);
                let reply = self.bench.call(0, &words(&[&call[..], &[&count, "STREAMS", "s", ">"]].concat()));
                assert_eq!(delivered(&reply), given, "by {consumer}");
            }
            10 | 11 => {
                let was_pending = self.model.pending.remove(&id).is_some();
                if was_pending && let Some(payload) = self.model.entries.get(&id) {
                    self.model.done.insert(payload.clone());
                }
                assert_eq!(self.call(&["XACK", "s", "g", &named]), Value::Integer(was_pending.into()));
            }
            12 | 13 => self.give_back(dice, id, &named),
            14 => {
                let idle = *dice.pick(&[0, 30, 5_000]);
                let is_there = self.model.entries.contains_key(&id);
                let now_ms = self.model.now_ms;
                if let Some(delivery) = self.model.pending.get_mut(&id) {
                    *delivery = Delivery {
                        consumer: Some(consumer),
                        time_ms: now_ms - idle,
                        deliveries: delivery.deliveries.saturating_add(1),
                    };
                    if !is_there {
                        self.model.pending.remove(&id);
                    }
                }
                self.call(&["XCLAIM", "s", "g", consumer, "0", &named, "IDLE", &idle.to_string()]);
            }
            // Stuck entries may be tried again at any time: a message without content must not be among them.
            15 if !self.model.is_stuck => {
                if let Some(payload) = self.model.entries.remove(&id) {
                    self.model.done.insert(payload);
                }
                self.call(&["XDEL", "s", &named]);
            }
            16 if dice.once_in(3) => {
                let has = |delivery: &Delivery| delivery.consumer == Some(consumer);
                let (entries, done) = (&self.model.entries, &mut self.model.done);
                let own = self.model.pending.iter().filter(|(_, delivery)| has(delivery));
                done.extend(own.filter_map(|(id, _)| entries.get(id).cloned()));
                self.model.pending.retain(|_, delivery| !has(delivery));
                self.call(&["XGROUP", "DELCONSUMER", "s", "g", consumer]);
            }
            17 => self.set_policy(dice),
            18 if dice.once_in(2) => self.redrive(dice),
            19 if dice.once_in(2) => self.hinder(),
            20 if !self.waiting => {
                let given = self.model.read("bob", 2);
                let call = "XREADGROUP GROUP g bob COUNT 2 BLOCK 0 STREAMS s >";
                let reply = self.bench.call(1, &words(&call.split(' ').collect::<Vec<_>>()));
                self.waiting = given.is_empty();
                assert_eq!(if self.waiting { Vec::new() } else { delivered(&reply) }, given);
            }
            21 if !self.waiting && !self.model.is_stuck => {
                // A letter that could not be moved is postponed by the same clock.
                let by_ms = (*dice.pick(&[-3_000, -40, 25, 4_000])).max(self.stuck_until_ms - self.model.now_ms);
                self.bench.set_clock(by_ms);
                self.model.now_ms += by_ms;
            }
            22 => self.fail_in_a_script(dice, &named),
            _ => self.pass(*dice.pick(&[1, 20, 100, 400, 3_000])),
        }
        self.run_timers_and_compare();
    }

    fn give_back(&mut self, dice: &mut Dice, id: Id, named: &str) {
        let mode = *dice.pick(&["SILENT", "FAIL", "FAIL", "FATAL"]);
        let (policy, now_ms) = (self.model.policy, self.model.now_ms);
        if let Some(delivery) = self.model.pending.get_mut(&id) {
            let deliveries = match mode {
                "SILENT" => (delivery.deliveries - 1).max(0),
                "FAIL" => delivery.deliveries,
                _ => i64::MAX,
            };
            let held = policy.filter(|policy| policy.most == 0 || deliveries < policy.most);
            let wait_ms = held.map_or(0, |policy| Model::backoff_ms(&policy, deliveries));
            let is_held = mode != "SILENT" && wait_ms > 0;
            *delivery = Delivery { consumer: None, time_ms: if is_held { now_ms + wait_ms } else { 0 }, deliveries };
        }
        self.call(&["XNACK", "s", "g", mode, "IDS", "1", named]);
    }

    fn set_policy(&mut self, dice: &mut Dice) {
        let (idle_ms, most) = (*dice.pick(&[20, 100, 1_000]), *dice.pick(&[0, 1, 2, 3]));
        let (base_ms, longest_ms) = *dice.pick(&[(0, 0), (10, 70), (500, 500)]);
        let times = [idle_ms, most, base_ms, longest_ms].map(|number| number.to_string());
        let mut call = vec!["XGROUP", "SETPOLICY", "s", "g"];
        let is_set = !dice.once_in(6);
        if is_set {
            call.extend(["IDLE", &times[0], "BACKOFF", &times[2], &times[3]]);
            if most > 0 {
                call.extend(["MAXDELIVERIES", &times[1], "DLQ", "d"]);
            }
        } else {
            // Without a policy nothing is held.
            self.model.pending.values_mut().filter(|own| own.consumer.is_none()).for_each(|own| own.time_ms = 0);
        }
        self.model.policy = is_set.then_some(Policy { idle_ms, most, base_ms, longest_ms });
        assert_eq!(self.call(&call), Value::ok());
    }

    fn redrive(&mut self, dice: &mut Dice) {
        if self.model.is_stuck {
            return;
        }
        let count = 1 + dice.below(3);
        let back: Vec<_> = self.model.dead.keys().copied().take(count).collect();
        for id in &back {
            let (payload, ..) = self.model.dead.remove(id).expect("it is there");
            // Where it was, it is just an acknowledged entry.
            self.model.entries.retain(|_, text| *text != payload);
            self.model.add(&payload);
        }
        let reply = array(self.call(&["XDLQ.REDRIVE", "d", "s", "COUNT", &count.to_string()]));
        let next = self.model.dead.keys().next().map_or((0, 0), |id| *id);
        let wanted = (Value::Integer((!back.is_empty()).into()), Value::Integer(back.len() as i64), next);
        assert_eq!((reply[0].clone(), reply[2].clone(), id_of(&reply[4])), wanted);
    }

    /// Puts another type at the key for dead letters, or removes it again.
    fn hinder(&mut self) {
        if self.model.is_stuck {
            self.call(&["DEL", "d"]);
            self.call(&["RENAME", "aside", "d"]);
            self.model.is_stuck = false;
            self.pass((self.stuck_until_ms - self.model.now_ms).max(0));
        } else if !self.model.dead.is_empty() && self.model.pending.keys().all(|id| self.model.entries.contains_key(id))
        {
            self.call(&["RENAME", "d", "aside"]);
            self.call(&["SET", "d", "text"]);
            self.model.is_stuck = true;
        }
    }

    /// A failed script is undone.
    fn fail_in_a_script(&mut self, dice: &mut Dice, named: &str) {
        let calls = [
            "XREADGROUP GROUP g ann STREAMS s >".to_owned(),
            format!("XNACK s g FAIL IDS 1 {named}"),
            format!("XCLAIM s g eve 0 {named}"),
            format!("XACK s g {named}"),
            "XGROUP SETPOLICY s g IDLE 7 MAXDELIVERIES 1 DLQ d".to_owned(),
            "XGROUP SETPOLICY s g".to_owned(),
            "XDLQ.REDRIVE d s".to_owned(),
            "XGROUP DESTROY s g".to_owned(),
            "DEL s".to_owned(),
        ];
        let some: Vec<_> = (0..1 + dice.below(5)).map(|_| dice.pick(&calls).clone()).collect();
        let some: Vec<_> = some.iter().map(|call| words(&call.split(' ').collect::<Vec<_>>())).collect();
        self.bench.call(0, &script("fail", &some));
    }

    /// Runs the timers after a step; then server and model must be equal.
    fn run_timers_and_compare(&mut self) {
        if self.waiting {
            let given = self.model.read("bob", 2);
            let heard = self.bench.heard(1);
            let heard = if heard.is_empty() { Vec::new() } else { delivered(&heard) };
            assert_eq!(heard, given, "client 1 waits");
            self.waiting = given.is_empty();
        }
        self.model.bury();
        self.bench.reclaim();
        if self.model.is_stuck {
            self.stuck_until_ms = self.stuck_until_ms.max(self.model.now_ms + 1_000);
        }
        let rows = array(self.call(&["XPENDING", "s", "g", "-", "+", "1000"]));
        let row = |row: Value| {
            let parts = array(row);
            let (Value::Integer(idle_ms), Value::Integer(deliveries)) = (&parts[2], &parts[3]) else {
                panic!("{parts:?}")
            };
            (id_of(&parts[0]), text(&parts[1]), *idle_ms, *deliveries)
        };
        let wanted = self.model.pending.iter().map(|(id, delivery)| match delivery.consumer {
            None => (*id, String::new(), -1, delivery.deliveries),
            Some(name) => {
                let idle_ms = (self.model.now_ms - delivery.time_ms).max(0);
                (*id, name.to_owned(), idle_ms, delivery.deliveries)
            }
        });
        assert_eq!(rows.into_iter().map(row).collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
        let letters = entries(self.call(&["XRANGE", if self.model.is_stuck { "aside" } else { "d" }, "-", "+"]));
        let wanted = self.model.dead.iter().map(|(at, (payload, id, consumer, deliveries, time_ms))| {
            let history = [
                ("n", payload.clone()),
                ("dlq-stream", "s".to_owned()),
                ("dlq-group", "g".to_owned()),
                ("dlq-id", id_text(*id)),
                ("dlq-consumer", (*consumer).to_owned()),
                ("dlq-deliveries", deliveries.to_string()),
                ("dlq-time", time_ms.to_string()),
                ("dlq-hops", "1".to_owned()),
            ];
            (*at, history.into_iter().flat_map(|(field, value)| [field.to_owned(), value]).collect::<Vec<_>>())
        });
        assert_eq!(letters, wanted.collect::<Vec<_>>());
        self.model.check(self.sent);
    }
}

/// One history. The units describe exactly the changes made: a server that starts again from them has the same data,
/// and so has a snapshot.
fn history(seed: u64, pair: &mut Pair, log: &mut Log) -> Result<u64, String> {
    let dice = &mut Dice(seed);
    let (mut snapshot, mut snapshots) = (None, 0);
    pair.set_policy(dice);
    for _ in 0..80 {
        pair.step(dice);
        let units = log.follow(&mut pair.bench)?;
        let one = snapshot.get_or_insert_with(|| Snapshotted::begin(&mut pair.bench, 0));
        units.iter().try_for_each(|(_, unit)| one.follow(unit))?;
        if one.slice(&mut pair.bench, *dice.pick(&[1, 100, 1_000]))? {
            snapshots += 1;
            snapshot = None;
        }
        if dice.once_in(40) {
            log.kill(&mut pair.bench)?;
            // The waiting client hangs up.
            (snapshot, pair.waiting) = (None, false);
        }
    }
    Ok(snapshots)
}

#[test]
fn queues_behave_like_the_model() {
    run("queues", 80, ["dead letters", "snapshots", "kills"], |seed| {
        let mut pair = Pair::new();
        let mut log = Log::of(&mut pair.bench, Told::Seen);
        pair.create();
        let snapshots = history(seed, &mut pair, &mut log)?;
        Ok([pair.model.dead.len() as u64, snapshots, log.kills])
    });
}

pub(crate) fn line(raw: &mut Raw, call: &str) -> Value {
    raw.command(&call.split(' ').collect::<Vec<_>>())
}

/// Of several waiters, the one that has waited longest gets the due entry, and each gets one before any gets a second.
#[test]
fn the_longest_waiter_is_served_first() {
    const CLIENTS: usize = 5;
    let mut bench = Bench::new(CLIENTS + 1);
    let call =
        |bench: &mut Bench, client: usize, call: &str| bench.call(client, &words(&call.split(' ').collect::<Vec<_>>()));
    let first = CLIENTS;
    call(&mut bench, first, "XGROUP CREATE s g $ MKSTREAM");
    call(&mut bench, first, "XGROUP SETPOLICY s g IDLE 100");
    for n in 0..CLIENTS {
        call(&mut bench, first, &format!("XADD s * n {n}"));
        // They are due one after the other.
        call(&mut bench, first, "XREADGROUP GROUP g first STREAMS s >");
        bench.pass(10);
    }
    // In an order that differs from that of their connections.
    let order = [3, 0, 4, 1, 2];
    for client in order {
        call(&mut bench, client, &format!("XREADGROUP GROUP g c{client} COUNT 1 BLOCK 0 STREAMS s >"));
    }
    for (n, client) in order.into_iter().enumerate() {
        bench.pass(if n == 0 { 49 } else { 9 });
        assert!(bench.is_suspended(client), "{n} is not due");
        bench.pass(1);
        let given = delivered(&bench.heard(client));
        assert_eq!(given.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>(), [n.to_string()], "client {client}");
        assert!(order[n + 1..].iter().all(|other| bench.is_suspended(*other)));
    }
}

/// A call that waits and hangs up takes nothing.
#[test]
fn a_waiter_that_hangs_up_takes_nothing() {
    let mut bench = Bench::new(3);
    let call = |bench: &mut Bench, client: usize, call: &str| {
        value(&bench.call(client, &words(&call.split(' ').collect::<Vec<_>>())))
    };
    call(&mut bench, 0, "XGROUP CREATE s g $ MKSTREAM");
    call(&mut bench, 0, "XGROUP SETPOLICY s g IDLE 100");
    call(&mut bench, 0, "XADD s 1-1 n 1");
    call(&mut bench, 0, "XREADGROUP GROUP g ann STREAMS s >");
    for client in [1, 2] {
        let read = words(&["XREADGROUP", "GROUP", "g", "bob", "BLOCK", "0", "STREAMS", "s", ">"]);
        bench.call(client, &read);
    }
    bench.reconnect(1);
    bench.pass(100);
    assert_eq!(delivered(&bench.heard(2)), [((1, 1), "1".to_owned())]);
    assert_eq!(array(array(call(&mut bench, 0, "XPENDING s g - + 9"))[0].clone())[3], Value::Integer(2));
}

#[test]
fn other_clients_see_the_changes() {
    let server = Server::start(Program::Tidegate, &["--notify-keyspace-events", "KEA"]);
    let (mut raw, mut watcher, mut listener) = (server.raw(), server.raw(), server.raw());
    line(&mut raw, "XGROUP CREATE s g $ MKSTREAM");
    let is_touched = |watcher: &mut Raw, key: &str, change: &mut dyn FnMut()| {
        assert_eq!(line(watcher, &format!("WATCH {key}")), Value::ok());
        change();
        line(watcher, "MULTI");
        line(watcher, "PING");
        line(watcher, "EXEC") == Value::Null
    };
    // Setting the current policy again changes nothing; nor does a delivery.
    assert!(is_touched(&mut watcher, "s", &mut || assert_eq!(
        line(&mut raw, "XGROUP SETPOLICY s g IDLE 1"),
        Value::ok()
    )));
    assert!(!is_touched(&mut watcher, "s", &mut || _ = line(&mut raw, "XGROUP SETPOLICY s g IDLE 1")));
    line(&mut raw, "XADD s 1-1 n 1");
    assert_eq!(array(line(&mut raw, "XREADGROUP GROUP g ann STREAMS s >")).len(), 1);
    assert!(!is_touched(&mut watcher, "s", &mut || {
        until(|| line(&mut raw, "XREADGROUP GROUP g bob STREAMS s >") != Value::Null, "the message is delivered again");
    }));
    // A dead letter touches the stream it goes to, and no other key.
    listener.command(&["PSUBSCRIBE", "__keyevent*"]);
    let mut waiting = server.raw();
    waiting.send_command(&["XREAD", "BLOCK", "0", "STREAMS", "d", "$"]);
    until(|| text(&line(&mut raw, "INFO clients")).contains("blocked_clients:1"), "the client waits");
    line(&mut watcher, "WATCH d");
    line(&mut raw, "XGROUP SETPOLICY s g IDLE 1 MAXDELIVERIES 1 DLQ d");
    assert_ne!(waiting.reply().value, Value::Null);
    line(&mut watcher, "MULTI");
    assert_eq!(line(&mut watcher, "EXEC"), Value::Null, "a letter has come");
    let Value::Array(told) = listener.reply().value else { panic!("a message") };
    assert_eq!((&told[2], &told[3]), (&Value::bulk("__keyevent@0__:xadd"), &Value::bulk("d")));
    assert_eq!(line(&mut raw, "XPENDING s g - + 9"), Value::Array(Vec::new()));
}

#[test]
fn a_policy_needs_rights_to_both_keys() {
    let (server, mut admin) = Server::with_client(Program::Tidegate);
    line(&mut admin, "XGROUP CREATE own:s g $ MKSTREAM");
    line(&mut admin, "ACL SETUSER app on nopass +@stream ~own:* %R~seen:*");
    let mut app = server.raw();
    line(&mut app, "AUTH app x");
    assert_eq!(line(&mut app, "XGROUP SETPOLICY own:s g IDLE 5 MAXDELIVERIES 1 DLQ own:d"), Value::ok());
    assert_eq!(array(line(&mut app, "XDLQ.REDRIVE own:d own:s"))[0], Value::Integer(0));
    for refused in [
        "XGROUP SETPOLICY own:s g IDLE 5 MAXDELIVERIES 1 DLQ other",
        "XGROUP SETPOLICY own:s g IDLE 5 MAXDELIVERIES 1 DLQ seen:d",
        "XGROUP SETPOLICY other g IDLE 5",
        "XDLQ.REDRIVE own:d other",
        "XDLQ.REDRIVE seen:d own:s",
    ] {
        let reply = line(&mut app, refused);
        assert!(reply.bytes().is_some_and(|text| text.starts_with(b"NOPERM")), "{refused}: {reply:?}");
    }
    line(&mut admin, "ACL SETUSER app -@coordination");
    let reply = line(&mut app, "XDLQ.REDRIVE own:d own:s");
    assert!(reply.bytes().is_some_and(|text| text.starts_with(b"NOPERM")), "{reply:?}");
    assert_eq!(line(&mut app, "XGROUP SETPOLICY own:s g"), Value::ok());
}

/// Entries that fell due while the server was down are due after the restart; some state goes with the stream, and some
/// stays.
#[test]
fn policies_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = || {
        let flags = ["--dir", dir.path().to_str().expect("plain text"), "--appendonly", "yes"];
        Server::start(Program::Tidegate, &flags)
    };
    for way in ["log", "snapshot"] {
        let server = start();
        let mut raw = server.raw();
        line(&mut raw, "FLUSHALL");
        line(&mut raw, "XGROUP CREATE s g $ MKSTREAM");
        line(&mut raw, "XADD s 1-1 n 1");
        line(&mut raw, "XADD s 2-1 n 2");
        assert_eq!(array(line(&mut raw, "XREADGROUP GROUP g ann STREAMS s >")).len(), 1);
        line(&mut raw, "XACK s g 2-1");
        line(&mut raw, "XCLAIM s g ann 0 1-1 IDLE 3600000 RETRYCOUNT 3");
        line(&mut raw, "XGROUP SETPOLICY s g IDLE 3700000 MAXDELIVERIES 3 DLQ d");
        if way == "snapshot" {
            assert_eq!(line(&mut raw, "SAVE"), Value::ok());
        }
        drop(server);
        let server = start();
        let mut raw = server.raw();
        let groups = format!("{:?}", line(&mut raw, "XINFO GROUPS s"));
        assert!(groups.contains("\"idle\", 3700000") && groups.contains("\"exhausted\", 1"), "{way}: {groups}");
        assert_eq!(line(&mut raw, "EXISTS d"), Value::Integer(0));
        // Now it is due, and no client reads.
        line(&mut raw, "XGROUP SETPOLICY s g IDLE 3600000 MAXDELIVERIES 3 DLQ d");
        until(|| line(&mut raw, "XLEN d") == Value::Integer(1), "the message has moved");
        line(&mut raw, "XGROUP DESTROY s g");
        line(&mut raw, "DEL s");
        let back = array(line(&mut raw, "XDLQ.REDRIVE d s"));
        assert_eq!(back[..3], [Value::Integer(1), Value::bulk("redriven"), Value::Integer(1)]);
        let entries = entries(line(&mut raw, "XRANGE s - +"));
        assert_eq!(entries.iter().map(|(_, pairs)| pairs.clone()).collect::<Vec<_>>(), [["n", "1"]], "{way}");
    }
}

/// More dead letters than one slice moves, several of them large.
#[test]
fn many_dead_letters_move_in_slices() {
    const LETTERS: usize = 700;
    let mut bench = Bench::new(1);
    let call = |bench: &mut Bench, args: &[&str]| value(&bench.call(0, &words(args)));
    call(&mut bench, &["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
    call(&mut bench, &["XGROUP", "SETPOLICY", "s", "g", "IDLE", "100", "MAXDELIVERIES", "1", "DLQ", "d"]);
    let long = "x".repeat(600_000);
    for n in 0..LETTERS {
        let text = if n < 5 { &long } else { "short" };
        call(&mut bench, &["XADD", "s", "*", "n", &n.to_string(), "text", text]);
    }
    bench.call(0, &words(&["XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">"]));
    bench.pass(99);
    bench.reclaim();
    assert_eq!(call(&mut bench, &["EXISTS", "d"]), Value::Integer(0));
    bench.pass(1);
    bench.keep_units();
    bench.reclaim();
    let slices = bench.take_units().len();
    assert!((4..20).contains(&slices), "{slices} slices");
    assert_eq!(call(&mut bench, &["XLEN", "d"]), Value::Integer(LETTERS as i64));
    assert_eq!(array(call(&mut bench, &["XPENDING", "s", "g", "-", "+", "9"])).len(), 0);
    // They go back in their order.
    let back = array(call(&mut bench, &["XDLQ.REDRIVE", "d", "s", "COUNT", "1000"]));
    assert_eq!(back[2], Value::Integer(LETTERS as i64));
    let all = entries(call(&mut bench, &["XREVRANGE", "s", "+", "-", "COUNT", &LETTERS.to_string()]));
    assert!(all.iter().rev().enumerate().all(|(n, (_, pairs))| pairs[1] == n.to_string()));
}

fn xlen(bench: &mut Bench, key: &str) -> Value {
    value(&bench.call(0, &words(&["XLEN", key])))
}

/// Returns how many entries are pending in group `g` of stream `s`.
fn pending(bench: &mut Bench) -> Value {
    array(value(&bench.call(0, &words(&["XPENDING", "s", "g"])))).swap_remove(0)
}

/// RENAME may give a stream the name of its own dead letters: these stay pending until it has another one.
#[test]
fn a_stream_receives_none_of_its_own_dead_letters() {
    let mut bench = Bench::new(1);
    let call = |bench: &mut Bench, args: &[&str]| value(&bench.call(0, &words(args)));
    call(&mut bench, &["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
    call(&mut bench, &["XGROUP", "SETPOLICY", "s", "g", "IDLE", "100", "MAXDELIVERIES", "1", "DLQ", "d"]);
    call(&mut bench, &["XADD", "s", "1-1", "n", "1"]);
    call(&mut bench, &["XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">"]);
    call(&mut bench, &["RENAME", "s", "d"]);
    for _ in 0..3 {
        bench.pass(1_000);
        bench.reclaim();
        assert_eq!(xlen(&mut bench, "d"), Value::Integer(1));
    }
    call(&mut bench, &["RENAME", "d", "s"]);
    assert_eq!(pending(&mut bench), Value::Integer(1));
    bench.pass(1_000);
    bench.reclaim();
    assert_eq!((xlen(&mut bench, "d"), pending(&mut bench)), (Value::Integer(1), Value::Integer(0)));
}

/// However many pending entries were deleted, one call finds a bounded number of them; a waiter goes on by itself.
#[test]
fn a_read_detects_a_bounded_number_of_deleted_entries() {
    for options in [&[][..], &["CLAIM", "100"]] {
        let mut bench = Bench::new(2);
        let call = |bench: &mut Bench, args: &[&str]| value(&bench.call(0, &words(args)));
        let read =
            |options: &[&str]| words(&[&["XREADGROUP", "GROUP", "g", "ann"], options, &["STREAMS", "s", ">"]].concat());
        call(&mut bench, &["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
        if options.is_empty() {
            call(&mut bench, &["XGROUP", "SETPOLICY", "s", "g", "IDLE", "100"]);
        }
        for _ in 0..3_500 {
            call(&mut bench, &["XADD", "s", "*", "n", "1"]);
        }
        bench.call(0, &read(&[]));
        call(&mut bench, &["XTRIM", "s", "MAXLEN", "0"]);
        call(&mut bench, &["XADD", "s", "*", "n", "new"]);
        bench.pass(100);
        assert_eq!(pending(&mut bench), Value::Integer(3_500));
        // New entries do not wait for the rest.
        assert_eq!(array(value(&bench.call(0, &read(options)))).len(), 1);
        assert_eq!(pending(&mut bench), Value::Integer(2_501));
        assert_eq!(value(&bench.call(0, &read(options))), Value::Null);
        assert_eq!(pending(&mut bench), Value::Integer(1_501));
        assert!(bench.call(1, &read(&[&["BLOCK", "0"], options].concat())).is_empty());
        assert_eq!(pending(&mut bench), Value::Integer(501));
        bench.pass(1);
        assert_eq!(pending(&mut bench), Value::Integer(1));
        bench.pass(99);
        assert!(!bench.heard(1).is_empty(), "the last entry is there");
    }
}

/// Of several waiters, only one that gets an entry leaves a record when the entries are searched.
#[test]
fn searching_on_behalf_of_waiters_is_not_recorded() {
    let mut bench = Bench::new(3);
    let read = |name: &str| words(&["XREADGROUP", "GROUP", "g", name, "BLOCK", "0", "STREAMS", "s", ">"]);
    for call in ["XGROUP CREATE s g $ MKSTREAM", "XGROUP SETPOLICY s g IDLE 100", "XADD s 1-1 n 1"] {
        bench.call(0, &words(&call.split(' ').collect::<Vec<_>>()));
    }
    assert_eq!(delivered(&bench.call(0, &read("ann"))).len(), 1);
    assert!(bench.call(1, &read("bob")).is_empty() && bench.call(2, &read("cho")).is_empty());
    bench.keep_units();
    bench.pass(100);
    assert_eq!(delivered(&bench.heard(1)).len(), 1);
    assert!(bench.is_suspended(2));
    assert_eq!(bench.take_units().len(), 1);
}
