//! Delayed messages of streams: random histories compared with a naive model, and the effects on other clients. Replies
//! of all kinds are in `transcripts/delay.txt`.
//!
//! `SUITE_SEED` and `SUITE_ROUNDS` choose other histories, and how many.

use std::collections::{BTreeMap, BTreeSet};

use crate::differential::generate::Dice;
use crate::differential::search::env_number;
use crate::harness::{Program, Raw, Server, Value, until};
use crate::in_process::{Bench, START_MS, Told, script, words};
use crate::queues_policy::{Id, array, delivered, entries, id_of, id_text, line, next_id, text, value};
use crate::replica::Snapshotted;

/// A stream `s` with a group `g`.
#[derive(Clone, Default)]
struct Model {
    now_ms: i64,
    entries: BTreeMap<Id, String>,
    delayed: BTreeMap<Id, String>,
    last_id: Id,
    max_deleted: Id,
    tickets: u64,
    delivered: Id,
    /// Messages that are neither delayed nor entries: cancelled, deleted, or gone with the stream.
    gone: BTreeSet<String>,
}

impl Model {
    /// Messages that are due become entries, in order.
    fn release(&mut self) {
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 as i64 <= self.now_ms) {
            let (id, payload) = first.remove_entry();
            self.last_id = if id > self.last_id { id } else { (self.last_id.0, self.last_id.1 + 1) };
            self.entries.insert(self.last_id, payload);
        }
    }

    fn add(&mut self, payload: &str) -> Id {
        let id = next_id(self.now_ms, self.last_id);
        // Skips the ids of delayed messages.
        let told = self.delayed.range(id..=(id.0, u64::MAX)).next_back();
        self.last_id = told.map_or(id, |(told, _)| (told.0, told.1 + 1));
        self.entries.insert(self.last_id, payload.to_owned());
        self.last_id
    }

    fn delay(&mut self, due_ms: i64, payload: &str) -> Id {
        if due_ms <= self.now_ms {
            return self.add(payload);
        }
        self.tickets += 1;
        let id = (due_ms as u64, self.tickets);
        self.delayed.insert(id, payload.to_owned());
        id
    }

    fn behind(&self, id: Id, most: usize) -> Vec<(Id, String)> {
        let behind = self.entries.iter().filter(|(own, _)| **own > id);
        behind.take(most).map(|(id, payload)| (*id, payload.clone())).collect()
    }

    /// Entries given to the group, two at a time.
    fn read(&mut self) -> Vec<(Id, String)> {
        let given = self.behind(self.delivered, 2);
        self.delivered = given.last().map_or(self.delivered, |(id, _)| *id);
        given
    }

    /// Asserts that every message is in one place, and that none became an entry before its time.
    fn check(&self, sent: usize) {
        let all: Vec<&String> = self.entries.values().chain(self.delayed.values()).chain(&self.gone).collect();
        assert_eq!(all.len(), sent);
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), sent);
        assert!(self.delayed.keys().all(|id| id.0 as i64 > self.now_ms));
    }
}

/// Ways to read the group.
const XREADGROUP: [&str; 6] = ["XREADGROUP", "GROUP", "g", "ann", "NOACK", "COUNT"];

/// A server beside the model. Client 1 may wait with XREAD, client 2 with XREADGROUP.
struct Pair {
    bench: Bench,
    model: Model,
    sent: usize,
    /// The id after which client 1 waits.
    reads_from: Option<Id>,
    waits_for_group: bool,
}

impl Pair {
    fn new() -> Pair {
        let mut bench = Bench::new(3);
        bench.keep_units();
        bench.call(0, &words(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]));
        let model = Model { now_ms: START_MS, ..Model::default() };
        Pair { bench, model, sent: 0, reads_from: None, waits_for_group: false }
    }

    fn call(&mut self, args: &[&str]) -> Value {
        value(&self.bench.call(0, &words(args)))
    }

    fn payload(&mut self) -> String {
        self.sent += 1;
        format!("m{}", self.sent)
    }

    fn step(&mut self, dice: &mut Dice) {
        let due: Vec<Id> = self.model.delayed.keys().copied().collect();
        let some_due = if due.is_empty() || dice.once_in(5) { (START_MS as u64 + 7, 3) } else { *dice.pick(&due) };
        let there: Vec<Id> = self.model.entries.keys().copied().collect();
        match dice.below(28) {
            0..3 => {
                let payload = self.payload();
                let wanted = self.model.add(&payload);
                assert_eq!(id_of(&self.call(&["XADD", "s", "*", "n", &payload])), wanted);
            }
            3..10 => {
                let delay_ms = *dice.pick(&[0, 1, 5, 5, 40, 40, 300, 5_000]);
                let payload = self.payload();
                let wanted = self.model.delay(self.model.now_ms + delay_ms, &payload);
                let reply = self.call(&["XADD", "s", "DELAY", &delay_ms.to_string(), "*", "n", &payload]);
                assert_eq!(id_of(&reply), wanted);
            }
            10 => {
                let at_ms = self.model.now_ms + *dice.pick(&[-1_000, 0, 1, 40]);
                let payload = self.payload();
                let wanted = self.model.delay(at_ms, &payload);
                let reply = self.call(&["XADD", "s", "NOMKSTREAM", "AT", &at_ms.to_string(), "*", "n", &payload]);
                assert_eq!(id_of(&reply), wanted);
            }
            11 | 12 => {
                let cancelled = self.model.delayed.remove(&some_due);
                let reply = self.call(&["XDELAY.CANCEL", "s", &id_text(some_due), "1-1"]);
                assert_eq!(reply, Value::Integer(cancelled.is_some().into()));
                self.model.gone.extend(cancelled);
            }
            13 if !there.is_empty() => {
                let id = *dice.pick(&there);
                self.model.gone.extend(self.model.entries.remove(&id));
                self.model.max_deleted = self.model.max_deleted.max(id);
                assert_eq!(self.call(&["XDEL", "s", &id_text(id)]), Value::Integer(1));
            }
            14 => {
                let most = dice.below(8);
                while self.model.entries.len() > most {
                    self.model.gone.extend(self.model.entries.pop_first().map(|(_, payload)| payload));
                }
                self.call(&["XTRIM", "s", "MAXLEN", &most.to_string()]);
            }
            15 => {
                // Ids that are ahead of the clock: delayed messages get others when they are due.
                let payload = self.payload();
                let id = (self.model.last_id.0.max(self.model.now_ms as u64) + dice.below(60) as u64 + 1, 0);
                self.model.last_id = id;
                self.model.entries.insert(id, payload.clone());
                assert_eq!(id_of(&self.call(&["XADD", "s", &id_text(id), "n", &payload])), id);
            }
            16 => {
                let top = self.model.entries.last_key_value().map_or((0, 0), |(id, _)| *id).max(self.model.max_deleted);
                let id = *dice.pick(&[top, (top.0 + 30, 4), self.model.last_id]);
                self.model.last_id = id;
                assert_eq!(self.call(&["XSETID", "s", &id_text(id)]), Value::ok());
            }
            17 => self.move_about(dice),
            18 if dice.once_in(4) && !self.waits_for_group => {
                let Model { entries, delayed, gone, .. } = &mut self.model;
                gone.extend(entries.values().chain(delayed.values()).cloned());
                let gone = std::mem::take(gone);
                self.model = Model { now_ms: self.model.now_ms, gone, ..Model::default() };
                self.call(&["DEL", "s"]);
                assert_eq!(self.call(&["XADD", "s", "NOMKSTREAM", "DELAY", "5", "*", "n", "1"]), Value::Null);
                self.call(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
            }
            19 if self.reads_from.is_none() => {
                self.reads_from = Some(self.model.last_id);
                let reply = self.bench.call(1, &words(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]));
                assert!(reply.is_empty(), "no entry follows the last one");
            }
            20 if !self.waits_for_group => {
                let given = self.model.read();
                let call = [&XREADGROUP[..], &["2", "BLOCK", "0", "STREAMS", "s", ">"]].concat();
                let reply = self.bench.call(2, &words(&call));
                self.waits_for_group = given.is_empty();
                assert_eq!(if given.is_empty() { Vec::new() } else { delivered(&reply) }, given);
            }
            21 => {
                let by_ms = *dice.pick(&[-3_000, -40, 25, 4_000]);
                self.bench.set_clock(by_ms);
                self.model.now_ms += by_ms;
                // A call has checked since then, and by that clock none will check again.
                self.model.release();
            }
            22 | 23 => self.fail_in_a_script(dice, &id_text(some_due)),
            _ => {
                let ms = *dice.pick(&[1, 4, 5, 40, 100, 400]);
                self.model.now_ms += ms;
                self.bench.pass(ms);
            }
        }
        self.run_timers_and_compare(dice);
    }

    /// The stream keeps its contents, wherever it moves. A client that waits for a group learns that it has gone.
    fn move_about(&mut self, dice: &mut Dice) {
        match dice.below(3) {
            0 => {
                assert_eq!(self.call(&["COPY", "s", "t", "REPLACE"]), Value::Integer(1));
                assert_eq!(self.call(&["RENAME", "t", "s"]), Value::ok());
            }
            1 if !self.waits_for_group => {
                assert_eq!(self.call(&["MOVE", "s", "1"]), Value::Integer(1));
                let back = "redis.call('SELECT', 1) redis.call('MOVE', 's', 0) redis.call('SELECT', 0)";
                self.call(&["EVAL", back, "0"]);
            }
            _ => {
                let restore =
                    "local p = redis.call('DUMP', KEYS[1]) return redis.call('RESTORE', KEYS[1], 0, p, 'REPLACE')";
                assert_eq!(self.call(&["EVAL", restore, "1", "s"]), Value::ok());
                if self.model.delayed.is_empty() {
                    self.model.tickets = 0;
                }
            }
        }
    }

    /// A failed script is undone.
    fn fail_in_a_script(&mut self, dice: &mut Dice, some_due: &str) {
        let calls = [
            "XADD s DELAY 30 * n lost".to_owned(),
            "XADD s AT 1 * n lost".to_owned(),
            format!("XDELAY.CANCEL s {some_due}"),
            "XRANGE s - +".to_owned(),
            "XSETID s 18446744073709551615-18446744073709551615".to_owned(),
            "XTRIM s MAXLEN 0".to_owned(),
            "XADD new DELAY 5 * n lost".to_owned(),
            "RENAME s other".to_owned(),
            "COPY s other".to_owned(),
            "DEL s".to_owned(),
        ];
        let some: Vec<_> = (0..1 + dice.below(5)).map(|_| dice.pick(&calls).clone()).collect();
        let some: Vec<_> = some.iter().map(|call| words(&call.split(' ').collect::<Vec<_>>())).collect();
        self.bench.call(0, &script("fail", &some));
    }

    /// Runs the timers after a step; then server and model must be equal.
    fn run_timers_and_compare(&mut self, dice: &mut Dice) {
        self.model.release();
        if dice.once_in(2) {
            self.bench.reclaim();
        }
        let wanted: Vec<_> = self.model.delayed.iter().map(|(id, payload)| (*id, payload.clone())).collect();
        assert_eq!(self.listed(dice), wanted);
        let there = entries(self.call(&["XRANGE", "s", "-", "+"]));
        let there = there.into_iter().map(|(id, pairs)| (id, pairs[1].clone()));
        assert_eq!(there.collect::<BTreeMap<_, _>>(), self.model.entries);
        assert_eq!(self.call(&["XLEN", "s"]), Value::Integer(self.model.entries.len() as i64));
        if let Some(from) = self.reads_from {
            let behind = self.model.behind(from, usize::MAX);
            let heard = self.bench.heard(1);
            assert_eq!(if heard.is_empty() { Vec::new() } else { delivered(&heard) }, behind, "client 1 reads");
            self.reads_from = self.reads_from.filter(|_| behind.is_empty());
        }
        if self.waits_for_group {
            let given = self.model.read();
            let heard = self.bench.heard(2);
            assert_eq!(
                if heard.is_empty() { Vec::new() } else { delivered(&heard) },
                given,
                "client 2 waits for the group"
            );
            self.waits_for_group = given.is_empty();
        }
        self.model.check(self.sent);
    }

    /// All delayed messages, page by page.
    fn listed(&mut self, dice: &mut Dice) -> Vec<(Id, String)> {
        let (mut all, mut start) = (Vec::new(), "0-0".to_owned());
        let count = (1 + dice.below(4)).to_string();
        loop {
            let page = array(self.call(&["XDELAY.LIST", "s", "START", &start, "COUNT", &count]));
            for message in array(page[1].clone()) {
                let parts = array(message);
                let id = id_of(&parts[1]);
                assert_eq!(parts[3], Value::Integer(id.0 as i64 - self.model.now_ms));
                all.push((id, text(&array(parts[5].clone())[1])));
            }
            start = text(&page[0]);
            if start == "0-0" {
                return all;
            }
        }
    }
}

#[test]
fn random_histories_match_the_model() {
    let rounds = env_number("SUITE_ROUNDS").unwrap_or(10);
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let (mut renamed, mut snapshots) = (0, 0);
    for seed in first..first + rounds {
        let dice = &mut Dice(seed);
        let mut pair = Pair::new();
        let mut at = 0;
        // The units describe exactly the changes made: a server that starts again from them has the same data, and so
        // has a snapshot.
        let (mut copy, mut snapshot) = (Bench::new(1), None);
        let run = std::panic::AssertUnwindSafe(|| {
            for step in 0..100 {
                at = step;
                pair.step(dice);
                let units = pair.bench.take_units();
                units.iter().for_each(|unit| copy.repeat(unit).expect("it fits"));
                let one = snapshot.get_or_insert_with(|| Snapshotted::begin(&mut pair.bench, 0));
                units.iter().for_each(|unit| one.follow(unit).expect("it fits"));
                if one.slice(&mut pair.bench, *dice.pick(&[1, 40, 100, 1_000])).expect("it is the same") {
                    snapshots += 1;
                    snapshot = None;
                }
            }
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}, step {at}");
            std::panic::resume_unwind(panic);
        }
        renamed += pair.model.entries.keys().filter(|id| id.1 > 0).count();
        copy.view_at(pair.model.now_ms);
        assert_eq!(copy.state(Told::Seen), pair.bench.state(Told::Seen), "seed {seed}");
    }
    assert!(renamed as u64 > rounds && snapshots > rounds, "{renamed} renamed, {snapshots} snapshots");
}

/// A client's call, with words divided by spaces.
fn say(bench: &mut Bench, client: usize, call: &str) -> Value {
    value(&bench.call(client, &words(&call.split(' ').collect::<Vec<_>>())))
}

/// A waiter hears of a message in the millisecond in which it is due, and of one that is due sooner than the waiter
/// knew.
#[test]
fn a_waiter_is_woken_when_a_message_is_due() {
    let reads = ["XREAD BLOCK 0 STREAMS s $", "XREADGROUP GROUP g ann BLOCK 0 STREAMS s >"];
    let mut bench = Bench::new(3);
    say(&mut bench, 0, "XGROUP CREATE s g $ MKSTREAM");
    say(&mut bench, 0, "XADD s DELAY 500 * n late");
    for (client, call) in [1, 2].into_iter().zip(reads) {
        assert!(bench.call(client, &words(&call.split(' ').collect::<Vec<_>>())).is_empty());
    }
    let soon = say(&mut bench, 0, "XADD s DELAY 100 * n soon");
    bench.pass(99);
    assert!(bench.is_suspended(1) && bench.is_suspended(2), "the message is not due");
    bench.pass(1);
    for client in [1, 2] {
        assert_eq!(delivered(&bench.heard(client)), [(id_of(&soon), "soon".to_owned())], "client {client}");
    }
    // A cancelled message wakes no client, and a clock that is set forward releases the rest at once.
    let late = say(&mut bench, 0, "XDELAY.LIST s");
    let late = text(&array(array(array(late)[1].clone())[0].clone())[1]);
    assert!(bench.call(1, &words(&reads[0].split(' ').collect::<Vec<_>>())).is_empty());
    assert_eq!(say(&mut bench, 0, &format!("XDELAY.CANCEL s {late}")), Value::Integer(1));
    bench.pass(400);
    assert!(bench.is_suspended(1));
    say(&mut bench, 0, "XADD s DELAY 5000 * n next");
    bench.set_clock(5_000);
    bench.reclaim();
    assert_eq!(delivered(&bench.heard(1))[0].1, "next");
}

/// A waiting call hears of messages that its own pass has left for later.
#[test]
fn a_waiter_receives_all_due_messages() {
    const MESSAGES: u64 = 1_500;
    let mut bench = Bench::new(2);
    let mut last = (0, 0);
    say(&mut bench, 0, "XGROUP CREATE s g $ MKSTREAM");
    for n in 1..=MESSAGES {
        last = id_of(&say(&mut bench, 0, &format!("XADD s DELAY 100 * n {n}")));
    }
    // One pass does not get so far.
    say(&mut bench, 0, &format!("XGROUP SETID s g {}", id_text((last.0, MESSAGES - 100))));
    bench.pass(100);
    let call = format!("{} {MESSAGES} BLOCK 0 STREAMS s >", XREADGROUP.join(" "));
    assert!(bench.call(1, &words(&call.split(' ').collect::<Vec<_>>())).is_empty());
    bench.reclaim();
    let heard = delivered(&bench.heard(1));
    assert!(heard.iter().map(|(id, _)| *id).eq((MESSAGES - 99..=MESSAGES).map(|seq| (last.0, seq))));
}

/// New entries are appended after all messages that are due, and no id is returned twice.
#[test]
fn new_entries_follow_all_due_messages() {
    const MESSAGES: u64 = 2_500;
    let appends: [(&[&str], &[&str]); 3] = [
        (&[], &["XADD s * n last"]),
        (
            &[
                "XADD d * n last",
                "XGROUP CREATE d g 0",
                "XGROUP SETPOLICY d g MAXDELIVERIES 1 IDLE 10 DLQ s",
                "XREADGROUP GROUP g ann STREAMS d >",
            ],
            &[],
        ),
        (&["STOCK.SET stock 10 STREAM s", "STOCK.RESERVE stock order PX 60000"], &["STOCK.CANCEL stock order"]),
    ];
    for (before, after) in appends {
        let mut bench = Bench::new(1);
        // Its timer comes after those of others.
        say(&mut bench, 0, "XADD s DELAY 1000 * n 0");
        before.iter().for_each(|call| assert!(!matches!(say(&mut bench, 0, call), Value::Error(_)), "{call}"));
        let mut told = BTreeSet::new();
        for n in 1..=MESSAGES {
            told.insert(id_of(&say(&mut bench, 0, &format!("XADD s DELAY 100 * n {n}"))));
        }
        bench.pass(100);
        after.iter().for_each(|call| assert!(!matches!(say(&mut bench, 0, call), Value::Error(_)), "{call}"));
        bench.reclaim();
        let all = entries(say(&mut bench, 0, "XRANGE s - +"));
        let ids: Vec<Id> = all.into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len() as u64, MESSAGES + 1, "{before:?} {after:?}");
        assert!(ids.iter().take(MESSAGES as usize).eq(&told), "{before:?} {after:?}");
    }
}

/// However many are due at once, one pass turns a bounded number of them into entries, in their order.
#[test]
fn many_due_messages_are_released_in_slices() {
    const MESSAGES: usize = 3_500;
    let mut bench = Bench::new(1);
    for n in 0..MESSAGES {
        say(&mut bench, 0, &format!("XADD s DELAY 100 * n {n}"));
    }
    bench.pass(100);
    assert_eq!(say(&mut bench, 0, "XLEN s"), Value::Integer(1_000));
    bench.keep_units();
    bench.reclaim();
    let slices = bench.take_units().len();
    assert!((3..6).contains(&slices), "{slices} slices");
    let all = entries(say(&mut bench, 0, "XRANGE s - +"));
    assert!(all.iter().enumerate().all(|(n, (id, pairs))| id.1 == n as u64 + 1 && pairs[1] == n.to_string()));
    assert_eq!(all.len(), MESSAGES);
    // Long ones are bounded, too.
    let long = "x".repeat(600_000);
    (0..5).for_each(|_| _ = say(&mut bench, 0, &format!("XADD long DELAY 100 * n {long}")));
    bench.pass(100);
    assert_eq!(say(&mut bench, 0, "XLEN long"), Value::Integer(2));
    bench.reclaim();
    assert_eq!(say(&mut bench, 0, "XLEN long"), Value::Integer(5));
}

/// A stream without a further id keeps its due messages, and no timer checks it in vain.
#[test]
fn a_message_that_can_get_no_id_stays_delayed() {
    const LAST: &str = "18446744073709551615-18446744073709551615";
    let mut bench = Bench::new(2);
    let id = text(&say(&mut bench, 0, "XADD s DELAY 100 * n 1"));
    say(&mut bench, 0, &format!("XSETID s {LAST}"));
    assert!(bench.call(1, &words(&["XREAD", "BLOCK", "0", "STREAMS", "s", "0"])).is_empty());
    bench.pass(200);
    assert!(!bench.engine.reclaim_expired(), "there is nothing more to do");
    let exhausted = say(&mut bench, 0, "XADD s DELAY 5 * n 2");
    assert!(matches!(&exhausted, Value::Error(why) if why.starts_with(b"ERR The stream has exhausted")));
    assert_eq!(array(array(say(&mut bench, 0, "XDELAY.LIST s"))[1].clone()).len(), 1);
    say(&mut bench, 0, "XSETID s 1-1");
    bench.reclaim();
    assert_eq!(delivered(&bench.heard(1)), [(id_of(&Value::bulk(&id)), "1".to_owned())]);
}

/// A transaction is not run if a key that it watches changed by time alone, before any call noticed.
#[test]
fn a_watched_stream_changes_when_a_message_is_due() {
    let mut bench = Bench::new(2);
    for passes_ms in [99, 100] {
        say(&mut bench, 0, "DEL s");
        say(&mut bench, 0, "XADD s DELAY 100 * n 1");
        say(&mut bench, 1, "WATCH s");
        bench.pass(passes_ms);
        say(&mut bench, 1, "MULTI");
        say(&mut bench, 1, "XLEN s");
        let wanted = if passes_ms < 100 { Value::Array(vec![Value::Integer(0)]) } else { Value::Null };
        assert_eq!(say(&mut bench, 1, "EXEC"), wanted, "after {passes_ms} ms");
    }
    // A message that was due before is not a change, whether or not a call has noticed it.
    say(&mut bench, 0, "XADD s DELAY 100 * n 2");
    bench.pass(100);
    for call in ["WATCH s", "MULTI", "XLEN s"] {
        say(&mut bench, 1, call);
    }
    assert_eq!(say(&mut bench, 1, "EXEC"), Value::Array(vec![Value::Integer(2)]));
}

/// While writing is paused nothing changes; afterwards all is as without the pause.
#[test]
fn a_pause_keeps_due_messages_delayed() {
    let mut bench = Bench::new(1);
    let id = say(&mut bench, 0, "XADD s DELAY 100 * n 1");
    say(&mut bench, 0, "CLIENT PAUSE 500 WRITE");
    bench.pass(200);
    bench.reclaim();
    assert_eq!(say(&mut bench, 0, "XLEN s"), Value::Integer(0));
    bench.pass(300);
    assert_eq!(entries(say(&mut bench, 0, "XRANGE s - +"))[0].0, id_of(&id));
}

/// A request that is repeated while its message waits, or later, delays no second message.
#[test]
fn a_repeated_request_delays_one_message() {
    let mut bench = Bench::new(1);
    let send = "XADD s IDMP producer request DELAY 100 * n 1";
    let id = say(&mut bench, 0, send);
    assert_eq!(say(&mut bench, 0, send), id);
    bench.pass(150);
    assert_eq!(say(&mut bench, 0, send), id);
    assert_eq!(say(&mut bench, 0, "XLEN s"), Value::Integer(1));
    assert_eq!(array(array(say(&mut bench, 0, "XDELAY.LIST s"))[1].clone()).len(), 0);
}

/// Dead letters that go to a stream come after its due messages, and a stream may have both kinds of timers.
#[test]
fn policies_and_delays_work_together() {
    let mut bench = Bench::new(1);
    for call in [
        "XGROUP CREATE s g $ MKSTREAM",
        "XGROUP SETPOLICY s g IDLE 200 MAXDELIVERIES 1 DLQ d",
        "XADD s * n 1",
        "XREADGROUP GROUP g ann STREAMS s >",
        "XADD s DELAY 100 * n 2",
        "XADD d DELAY 150 * n 3",
        "XADD s DELAY 300 * n 4",
    ] {
        say(&mut bench, 0, call);
    }
    for (passes_ms, in_stream, dead) in [(100, 2, 0), (99, 2, 1), (1, 2, 2), (99, 2, 2), (1, 3, 2)] {
        bench.pass(passes_ms);
        bench.reclaim();
        assert_eq!(say(&mut bench, 0, "XLEN s"), Value::Integer(in_stream));
        assert_eq!(say(&mut bench, 0, "XLEN d"), Value::Integer(dead));
    }
    let letters = entries(say(&mut bench, 0, "XRANGE d - +"));
    assert_eq!((letters[0].1[1].as_str(), letters[1].1[1].as_str()), ("3", "1"));
    let back = array(say(&mut bench, 0, "XDLQ.REDRIVE d s"));
    assert_eq!(back[2], Value::Integer(1));
    say(&mut bench, 0, "XGROUP SETPOLICY s g");
    say(&mut bench, 0, "XADD s DELAY 50 * n 5");
    bench.pass(50);
    bench.reclaim();
    assert_eq!(say(&mut bench, 0, "XLEN s"), Value::Integer(5));
}

fn next_event(listener: &mut Raw) -> (String, String) {
    let Value::Array(told) = listener.reply().value else { panic!("a message") };
    (text(&told[2]), text(&told[3]))
}

#[test]
fn other_clients_see_the_changes() {
    let server = Server::start(Program::Tidegate, &["--notify-keyspace-events", "KEA"]);
    let (mut raw, mut watcher, mut listener) = (server.raw(), server.raw(), server.raw());
    listener.command(&["PSUBSCRIBE", "__keyevent*"]);
    let mut is_touched = |change: &mut dyn FnMut()| {
        line(&mut watcher, "WATCH s");
        change();
        line(&mut watcher, "MULTI");
        line(&mut watcher, "PING");
        line(&mut watcher, "EXEC") == Value::Null
    };
    let mut id = String::new();
    assert!(is_touched(&mut || id = text(&line(&mut raw, "XADD s DELAY 60000 * n 1"))));
    assert!(is_touched(&mut || _ = line(&mut raw, &format!("XDELAY.CANCEL s {id}"))));
    assert!(!is_touched(&mut || _ = line(&mut raw, &format!("XDELAY.CANCEL s {id}"))));
    // It becomes an entry whether a call checks or not.
    line(&mut raw, "XADD s DELAY 1 * n 1");
    let events = ["xdelay", "xdelay-cancel", "xdelay", "xadd"];
    for event in events {
        assert_eq!(next_event(&mut listener), (format!("__keyevent@0__:{event}"), "s".to_owned()));
    }
    assert_eq!(line(&mut raw, "XLEN s"), Value::Integer(1));
}

#[test]
fn delaying_needs_rights_to_the_key() {
    let (server, mut admin) = Server::with_client(Program::Tidegate);
    line(&mut admin, "ACL SETUSER app on nopass +@stream ~own:* %R~seen:*");
    let mut app = server.raw();
    line(&mut app, "AUTH app x");
    let id = text(&line(&mut app, "XADD own:s DELAY 60000 * n 1"));
    line(&mut admin, "XADD seen:s DELAY 60000 * n 1");
    assert_eq!(array(array(line(&mut app, "XDELAY.LIST seen:s"))[1].clone()).len(), 1);
    let cancel = format!("XDELAY.CANCEL seen:s {id}");
    for refused in ["XADD seen:s DELAY 5 * n 1", "XADD other AT 5 * n 1", "XDELAY.LIST other", &cancel] {
        let reply = line(&mut app, refused);
        assert!(reply.bytes().is_some_and(|text| text.starts_with(b"NOPERM")), "{refused}: {reply:?}");
    }
    assert_eq!(line(&mut app, &format!("XDELAY.CANCEL own:s {id}")), Value::Integer(1));
    line(&mut admin, "ACL SETUSER app -@coordination");
    let reply = line(&mut app, "XDELAY.LIST own:s");
    assert!(reply.bytes().is_some_and(|text| text.starts_with(b"NOPERM")), "{reply:?}");
}

/// A message that fell due while the server was down is there after the restart, by its id; the rest waits on.
#[test]
fn delayed_messages_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = || {
        let flags = ["--dir", dir.path().to_str().expect("plain text"), "--appendonly", "yes"];
        Server::start(Program::Tidegate, &flags)
    };
    for way in ["log", "snapshot"] {
        let server = start();
        let mut raw = server.raw();
        line(&mut raw, "FLUSHALL");
        let late = text(&line(&mut raw, "XADD s DELAY 3600000 * n late"));
        let (mut soon, mut tries) = (Value::Null, 0);
        // The server must be down before the message is due, which is not guaranteed.
        while tries < 8 {
            soon = line(&mut raw, &format!("XADD s DELAY {} * n soon", 250 << tries));
            if way == "snapshot" {
                assert_eq!(line(&mut raw, "SAVE"), Value::ok());
            }
            if line(&mut raw, "XLEN s") == Value::Integer(0) {
                break;
            }
            line(&mut raw, "XTRIM s MAXLEN 0");
            tries += 1;
        }
        drop(server);
        let server = start();
        let mut raw = server.raw();
        until(|| line(&mut raw, "XLEN s") == Value::Integer(1), "the message is due");
        assert_eq!(entries(line(&mut raw, "XRANGE s - +")), [(id_of(&soon), vec!["n".to_owned(), "soon".to_owned()])]);
        let info = format!("{:?}", line(&mut raw, "XINFO STREAM s"));
        assert!(info.contains("\"delayed\", 1"), "{way}: {info}");
        assert_eq!(line(&mut raw, &format!("XDELAY.CANCEL s {late}")), Value::Integer(1), "{way}");
        // Its ticket is not issued again.
        let next = text(&line(&mut raw, "XADD s DELAY 3600000 * n next"));
        assert!(id_of(&Value::bulk(&next)).1 > id_of(&Value::bulk(&late)).1 + 1, "{way}: {next} behind {late}");
    }
}

/// Waiting messages are counted as memory, and go with the key.
#[test]
fn delayed_messages_count_as_memory() {
    let mut bench = Bench::new(1);
    let usage = |bench: &mut Bench| match say(bench, 0, "MEMORY USAGE s") {
        Value::Integer(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    say(&mut bench, 0, "XGROUP CREATE s g $ MKSTREAM");
    let empty = usage(&mut bench);
    let long = "x".repeat(10_000);
    (0..10).for_each(|_| _ = say(&mut bench, 0, &format!("XADD s DELAY 5000 * n {long}")));
    assert!(usage(&mut bench) > empty + 100_000);
    say(&mut bench, 0, "PEXPIRE s 1000");
    bench.pass(1_000);
    assert_eq!(say(&mut bench, 0, "EXISTS s"), Value::Integer(0));
    bench.pass(9_000);
    bench.reclaim();
    assert_eq!(say(&mut bench, 0, "DBSIZE"), Value::Integer(0));
}
