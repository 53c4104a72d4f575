//! Locks and gates: what a naive model says of random histories, and what callers rely on beside it.
//!
//! The engine runs in this process, with a clock that is moved by hand. In a history several clients take, prolong and give back places of
//! one gate or lock, wait for them, hang up, and change the limit, while time passes; after each step who holds what, who was answered, and
//! what, must be as the model says. Some wait by BLOCK, others by ASYNC, each client with as many tickets as come, in one queue. The waiting
//! of each call ends at a millisecond that is no one else's, so that no two things happen at once.
//! `SUITE_SEED` and `SUITE_ROUNDS` choose other histories.

use std::collections::VecDeque;

use crate::differential::generate::Dice;
use crate::differential::script::split_line;
use crate::differential::search::env_number;
use crate::harness::{self, Program, Server, Value};
use crate::in_process::{Bench, words};

const CLIENTS: usize = 6;
/// Names under which places are held: fewer than calls, so that some come again.
const HOLDERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Steps of a history.
const LENGTH: usize = 120;
/// A step of time, ms.
const STEP_MS: i64 = 1_000;

/// A reply by its strings and numbers, without the structure around them.
pub(crate) fn flat(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply).into_owned();
    let lines = text.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with(['*', '$', '%', '>']));
    lines.map(|line| line.trim_start_matches(':')).collect::<Vec<_>>().join(" ")
}

/// Runs a line as a client; answers the [`flat`] reply.
pub(crate) fn call(bench: &mut Bench, client: usize, line: &str) -> String {
    let reply = bench.call(client, &split_line(line).expect("plain words"));
    flat(&reply)
}

/// The replies and pushes among what a client that speaks RESP3 was sent, each [`flat`].
pub(crate) fn parts(mut sent: &[u8]) -> Vec<String> {
    let mut parts = Vec::new();
    while let Some((_, used)) = harness::decode(sent, true).expect("RESP3") {
        let (part, rest) = sent.split_at(used);
        parts.push(flat(part));
        sent = rest;
    }
    assert!(sent.is_empty(), "half a message");
    parts
}

/// What a client has been answered since that waited.
fn heard(bench: &mut Bench, client: usize) -> String {
    flat(&bench.heard(client))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Gate,
    Lock,
}

/// A place that somebody holds.
#[derive(Clone, Debug)]
struct Held {
    name: &'static str,
    token: u64,
    units: u64,
    until_ms: i64,
    depth: u64,
    shared: bool,
}

/// What a call says of a lease.
#[derive(Clone, Copy, Debug)]
enum Lease {
    /// So many milliseconds from when it is granted.
    For(i64),
    /// Until then, Unix ms.
    Until(i64),
}

impl Lease {
    /// A lease, in one of the ways to say it. One that is said as a time ends at a millisecond that is no one else's, so that waiting for it
    /// does, too.
    fn some(dice: &mut Dice, now_ms: i64, step: i64) -> (Lease, String) {
        let seconds = 1 + dice.below(12) as i64;
        let for_ms = STEP_MS * seconds;
        match dice.below(8) {
            0 => (Lease::For(for_ms), format!("EX {seconds}")),
            1 | 2 => {
                let until_ms = now_ms + for_ms + 7 * step + 3;
                (Lease::Until(until_ms), format!("PXAT {until_ms}"))
            }
            3 if dice.once_in(2) => {
                // Over.
                let until_s = now_ms / 1_000 - dice.below(3) as i64;
                (Lease::Until(until_s * 1_000), format!("EXAT {until_s}"))
            }
            _ => (Lease::For(for_ms), format!("PX {for_ms}")),
        }
    }

    fn until_ms(self, now_ms: i64) -> i64 {
        match self {
            Lease::For(ms) => now_ms + ms,
            Lease::Until(ms) => ms,
        }
    }
}

/// A call that asks for a place.
#[derive(Clone, Debug)]
struct Ask {
    client: usize,
    name: &'static str,
    units: u64,
    limit: u64,
    lease: Lease,
    depth: u64,
    shared: bool,
    /// When waiting ends; the inner `None`: never.
    wait: Option<Option<i64>>,
    /// It waits beside its client, which has been told this ticket, or 0 if it was not told yet; `None`: it blocks the client.
    ticket: Option<i64>,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Came {
    Granted(u64, u64),
    Refused(&'static str),
    Error,
}

/// What somebody was answered who waited: the client, the ticket of the call if it had one, and what it came to.
type Answered = (usize, Option<i64>, Came);

/// The naive model of one gate or lock.
struct Model {
    family: Family,
    held: Vec<Held>,
    queue: VecDeque<Ask>,
    own_limit: Option<u64>,
    last_token: u64,
    now_ms: i64,
}

impl Model {
    fn in_use(&self) -> u64 {
        self.held.iter().map(|held| held.units).sum()
    }

    /// What becomes of a call whose turn it is, or that waits for none; `None` if there is no place for it.
    fn decide(&mut self, ask: &Ask, has_others_before: bool) -> Option<Came> {
        let until_ms = ask.lease.until_ms(self.now_ms);
        if let Some(own) = self.held.iter_mut().find(|held| held.name == ask.name) {
            if own.shared && !ask.shared {
                return Some(Came::Error);
            }
            own.until_ms = own.until_ms.max(until_ms);
            own.depth = own.depth.max(ask.depth);
            return Some(Came::Granted(own.token, own.depth));
        }
        if ask.depth > 1 {
            return Some(Came::Refused("not-held"));
        }
        if until_ms <= self.now_ms {
            return Some(Came::Refused("over"));
        }
        let limit = self.own_limit.unwrap_or(ask.limit);
        let fits = match self.family {
            Family::Gate => self.in_use() + ask.units <= limit,
            Family::Lock => self.held.iter().all(|held| held.shared && ask.shared),
        };
        if fits && !has_others_before {
            self.last_token += 1;
            let (token, name, units, depth, shared) = (self.last_token, ask.name, ask.units, ask.depth, ask.shared);
            self.held.push(Held { name, token, units, until_ms, depth, shared });
            return Some(Came::Granted(token, depth));
        }
        let is_hopeless = self.family == Family::Gate && ask.units > limit && limit > 0;
        is_hopeless.then_some(Came::Refused("limit"))
    }

    /// A call comes; `None` if it waits.
    fn ask(&mut self, ask: Ask) -> Option<Came> {
        let has_others_before = !self.queue.is_empty();
        match self.decide(&ask, has_others_before) {
            None if ask.wait.is_some() => {
                // Nobody waits for a lease that would be over.
                let last_ms = if let Lease::Until(ms) = ask.lease { Some(ms) } else { None };
                let wait = ask.wait.map(|wait| wait.into_iter().chain(last_ms).min());
                self.queue.push_back(Ask { wait, ..ask });
                None
            }
            None => {
                let is_free = match self.family {
                    Family::Gate => has_others_before,
                    Family::Lock => self.held.iter().all(|held| held.shared && ask.shared),
                };
                let busy = if self.family == Family::Gate { "full" } else { "held" };
                Some(Came::Refused(if is_free { "queue" } else { busy }))
            }
            came => came,
        }
    }

    /// Lets those go on who wait and can, in their order. Answers who was answered what.
    fn serve(&mut self) -> Vec<Answered> {
        let mut answered = Vec::new();
        while let Some(first) = self.queue.front().cloned() {
            let Some(came) = self.decide(&first, false) else { break };
            self.queue.pop_front();
            answered.push((first.client, first.ticket, came));
        }
        answered
    }

    /// When a lease ends next, or somebody's waiting.
    fn next_event_ms(&self) -> Option<i64> {
        let leases = self.held.iter().map(|held| held.until_ms);
        leases.chain(self.queue.iter().filter_map(|ask| ask.wait.flatten())).min()
    }

    /// So much time passes.
    fn pass(&mut self, ms: i64) -> Vec<Answered> {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        self.held.retain(|held| held.until_ms > now_ms);
        let is_over = |ask: &Ask| ask.wait.flatten().is_some_and(|at_ms| at_ms <= now_ms);
        let timed_out = self.queue.iter().filter(|ask| is_over(ask));
        let mut answered: Vec<_> = timed_out.map(|ask| (ask.client, ask.ticket, Came::Refused("timeout"))).collect();
        self.queue.retain(|ask| !is_over(ask));
        answered.extend(self.serve());
        answered
    }
}

/// What a reply of ACQUIRE says.
fn came(family: Family, reply: &str) -> Came {
    let words: Vec<&str> = reply.split(' ').collect();
    let number = |at: usize| words[at].parse().unwrap_or_else(|_| panic!("{reply}"));
    match words[0] {
        "1" => Came::Granted(number(2), if family == Family::Lock { number(4) } else { 1 }),
        "0" => {
            let known = ["full", "held", "queue", "limit", "not-held", "timeout", "over"].into_iter();
            Came::Refused(known.into_iter().find(|reason| *reason == words[2]).unwrap_or_else(|| panic!("{reply}")))
        }
        _ if reply.starts_with("-ERR") => Came::Error,
        _ => panic!("{reply}"),
    }
}

/// The clients of a history, and what they were sent that nobody has looked at yet.
struct Callers<'a> {
    bench: &'a mut Bench,
    unread: Vec<Vec<String>>,
}

impl Callers<'_> {
    fn new(bench: &mut Bench) -> Callers<'_> {
        let mut callers = Callers { bench, unread: vec![Vec::new(); CLIENTS] };
        (0..CLIENTS).for_each(|client| callers.connect(client));
        callers
    }

    fn connect(&mut self, client: usize) {
        self.bench.reconnect(client);
        self.unread[client].clear();
        assert!(self.call(client, "HELLO 3").contains("proto 3"));
    }

    /// Runs a line as a client; answers the reply, which is empty while the client waits. What is pushed to it follows.
    fn call(&mut self, client: usize, line: &str) -> String {
        let sent = self.bench.call(client, &split_line(line).expect("plain words"));
        let mut parts = parts(&sent);
        let has_reply = parts.first().is_some_and(|part| !part.starts_with("ticket "));
        let pushed = parts.split_off(usize::from(has_reply));
        self.unread[client].extend(pushed);
        parts.pop().unwrap_or_default()
    }

    /// Whether those who waited have been answered this and nothing else, each in this order.
    fn compare(&mut self, family: Family, expected: &[Answered]) -> Result<(), String> {
        for client in 0..CLIENTS {
            let later = parts(&self.bench.heard(client));
            let heard: Vec<String> = self.unread[client].drain(..).chain(later).collect();
            let told = |text: &String| match text.strip_prefix("ticket ").and_then(|rest| rest.split_once(' ')) {
                Some((ticket, reply)) => (client, Some(ticket.parse().expect("a number")), came(family, reply)),
                None => (client, None, came(family, text)),
            };
            let got: Vec<Answered> = heard.iter().map(told).collect();
            let wanted: Vec<Answered> = expected.iter().filter(|(to, ..)| *to == client).cloned().collect();
            if got != wanted {
                return Err(format!("[{client}] wanted {wanted:?}, got {heard:?}"));
            }
        }
        Ok(())
    }
}

/// One history. Fails with what differs.
fn history(family: Family, seed: u64, bench: &mut Bench) -> Result<(), String> {
    let dice = &mut Dice(seed);
    let prefix = if family == Family::Gate { "GATE" } else { "LOCK" };
    let key = format!("{prefix}:{seed}");
    let now_ms = bench.engine.ks.now_ms();
    let last_token = bench.engine.ks.next_token().expect("there are tokens") - 1;
    let mut model = Model { family, held: Vec::new(), queue: VecDeque::new(), own_limit: None, last_token, now_ms };
    let mut trace: Vec<String> = Vec::new();
    let mut callers = Callers::new(bench);
    let mut last_ticket = 0;
    for number in 0..LENGTH as i64 {
        let client = dice.below(CLIENTS);
        let is_waiting = model.queue.iter().any(|ask| ask.client == client && ask.ticket.is_none());
        let name = *dice.pick(&HOLDERS);
        // A name always asks for as many.
        let units = if family == Family::Gate { 1 + name.as_bytes()[0] as u64 % 3 } else { 1 };
        let (lease, lease_option) = Lease::some(dice, model.now_ms, number + 1);
        let mut expected = Vec::new();
        match dice.below(21) {
            0..9 if !is_waiting => {
                let limit = 3 + dice.below(3) as u64;
                let wait = match dice.below(3) {
                    0 => None,
                    1 => Some(None),
                    _ => Some(Some(7 * (number + 1) + STEP_MS * dice.below(20) as i64)),
                };
                let shared = family == Family::Lock && dice.once_in(2);
                let depth = if family == Family::Lock && dice.once_in(4) { 2 } else { 1 };
                let options = match family {
                    Family::Gate => format!("LIMIT {limit} UNITS {units}"),
                    Family::Lock => format!("DEPTH {depth}{}", if shared { " SHARED" } else { "" }),
                };
                let ticket = dice.once_in(2).then_some(0);
                let how = if ticket.is_some() { "ASYNC" } else { "BLOCK" };
                let option = wait.map_or(String::new(), |ms| format!(" {how} {}", ms.unwrap_or(0)));
                let line = format!("{prefix}.ACQUIRE {key} {name} {lease_option} {options}{option}");
                trace.push(format!("[{client}] {line}"));
                let wait = wait.map(|ms| ms.map(|ms| model.now_ms + ms));
                let ask = Ask { client, name, units, limit, lease, depth, shared, wait, ticket };
                let before = model.queue.len();
                let (wanted, reply) = (model.ask(ask), callers.call(client, &line));
                if wanted.is_none() && ticket.is_some() {
                    let said = reply.strip_prefix("0 reason queued ticket ").and_then(|said| said.split_once(' '));
                    let told = said.and_then(|(ticket, rest)| Some((ticket.parse().ok()?, rest.to_owned())));
                    match told {
                        Some((number, rest)) if number > last_ticket && rest == format!("waiting {before}") => {
                            last_ticket = number;
                            model.queue.back_mut().expect("it waits").ticket = Some(number);
                        }
                        _ => return Err(format!("{}\nbehind {before}, told {reply}", trace.join("\n"))),
                    }
                } else {
                    let got = if reply.is_empty() { None } else { Some(came(family, &reply)) };
                    if got != wanted {
                        return Err(format!("{}\nwanted {wanted:?}, got {reply}", trace.join("\n")));
                    }
                }
            }
            9..11 if !is_waiting => {
                let verb = if family == Family::Gate { "RENEW" } else { "EXTEND" };
                let line = format!("{prefix}.{verb} {key} {name} {lease_option}");
                trace.push(format!("[{client}] {line}"));
                let own = model.held.iter_mut().find(|held| held.name == name);
                let wanted = own.map(|own| {
                    own.until_ms = lease.until_ms(model.now_ms);
                    own.token
                });
                let now_ms = model.now_ms;
                model.held.retain(|held| held.until_ms > now_ms);
                let reply = callers.call(client, &line);
                let says = wanted.map_or("0 reason not-held".to_owned(), |token| format!("1 token {token}"));
                if !format!("{reply} ").starts_with(&format!("{says} ")) {
                    return Err(format!("{}\nwanted {says}, got {reply}", trace.join("\n")));
                }
            }
            11..15 if !is_waiting => {
                let depth = if family == Family::Lock && dice.once_in(3) { 2 } else { 1 };
                let option = if depth > 1 { format!(" DEPTH {depth}") } else { String::new() };
                let line = format!("{prefix}.RELEASE {key} {name}{option}");
                trace.push(format!("[{client}] {line}"));
                let at = model.held.iter().position(|held| held.name == name);
                if let Some(at) = at {
                    model.held[at].depth = model.held[at].depth.min(depth - 1);
                    if model.held[at].depth == 0 {
                        model.held.remove(at);
                    }
                }
                let reply = callers.call(client, &line);
                if reply.starts_with('1') != at.is_some() {
                    return Err(format!("{}\ngot {reply}", trace.join("\n")));
                }
            }
            15 if !is_waiting && family == Family::Gate => {
                let limit = Some(dice.below(6) as u64).filter(|_| !dice.once_in(3));
                let text = limit.map_or("NONE".to_owned(), |limit| limit.to_string());
                let line = format!("GATE.LIMIT {key} {text}");
                trace.push(format!("[{client}] {line}"));
                callers.call(client, &line);
                model.own_limit = limit;
            }
            16 => {
                trace.push(format!("[{client}] hangs up"));
                callers.connect(client);
                callers.bench.engine.time_out_waits();
                model.queue.retain(|ask| ask.client != client);
            }
            17 if !is_waiting => {
                let own = model.queue.iter().find(|ask| ask.client == client).and_then(|ask| ask.ticket);
                let line = format!("TICKET.CANCEL {}", own.unwrap_or(1 + dice.below(last_ticket as usize + 2) as i64));
                trace.push(format!("[{client}] {line}"));
                let reply = callers.call(client, &line);
                callers.bench.engine.time_out_waits();
                model.queue.retain(|ask| own.is_none() || ask.ticket != own);
                let says = if own.is_some() { "1 waited-ms " } else { "0 reason no-ticket" };
                if !reply.starts_with(says) {
                    return Err(format!("{}\nwanted {says}, got {reply}", trace.join("\n")));
                }
            }
            _ => {
                trace.push(format!("{STEP_MS} ms pass"));
                let end_ms = model.now_ms + STEP_MS;
                while let Some(next_ms) = model.next_event_ms().filter(|at_ms| *at_ms < end_ms) {
                    callers.bench.pass(next_ms - model.now_ms);
                    let answered = model.pass(next_ms - model.now_ms);
                    callers
                        .compare(family, &answered)
                        .map_err(|told| format!("{}\nup to {next_ms}: {told}", trace.join("\n")))?;
                }
                callers.bench.pass(end_ms - model.now_ms);
                if dice.once_in(3) {
                    callers.bench.reclaim();
                }
                expected.extend(model.pass(end_ms - model.now_ms));
            }
        }
        expected.extend(model.serve());
        callers.compare(family, &expected).map_err(|told| {
            format!("{}\n{told}\nheld {:?}\nwaiting {:?}", trace.join("\n"), model.held, model.queue)
        })?;
        let shown = match family {
            Family::Gate => call(callers.bench, CLIENTS, &format!("GATE.HOLDERS {key} 0")),
            Family::Lock => call(callers.bench, CLIENTS, &format!("LOCK.INFO {key}")),
        };
        let names: Vec<&str> = model.held.iter().map(|held| held.name).collect();
        let word = if family == Family::Gate { "holder" } else { "owner" };
        let listed: Vec<String> = shown
            .split(' ')
            .collect::<Vec<_>>()
            .windows(2)
            .filter(|pair| pair[0] == word)
            .map(|pair| pair[1].to_owned())
            .collect();
        if listed != names {
            return Err(format!("{}\nheld by {names:?}, but told {shown}", trace.join("\n")));
        }
    }
    (0..CLIENTS).for_each(|client| callers.bench.reconnect(client));
    Ok(())
}

fn histories(family: Family) {
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let rounds = env_number("SUITE_ROUNDS").unwrap_or(400);
    let mut bench = Bench::new(CLIENTS + 1);
    for seed in first..first.saturating_add(rounds) {
        if let Err(told) = history(family, seed, &mut bench) {
            panic!("SUITE_SEED={seed} SUITE_ROUNDS=1 repeats this\n{told}");
        }
    }
}

#[test]
fn gates_are_as_a_model_says() {
    histories(Family::Gate);
}

#[test]
fn locks_are_as_a_model_says() {
    histories(Family::Lock);
}

/// A thousand wait for one lock: each gets it once, in the order of coming, and who has hung up delays nobody.
#[test]
fn a_lock_is_handed_on_in_the_order_of_coming() {
    const CROWD: usize = 1_000;
    let mut bench = Bench::new(CROWD + 1);
    assert!(call(&mut bench, CROWD, "LOCK.ACQUIRE l first PX 60000").starts_with("1 token"));
    for client in 0..CROWD {
        assert_eq!(call(&mut bench, client, &format!("LOCK.ACQUIRE l c{client} PX 60000 BLOCK 0")), "");
    }
    (0..CROWD).filter(|client| client % 10 == 3).for_each(|client| bench.reconnect(client));
    assert_eq!(call(&mut bench, CROWD, "LOCK.ACQUIRE l late PX 1"), "0 reason held waiting 900 retry-after-ms 60000");
    let mut holder = "first".to_owned();
    let mut last_token = 0;
    for client in (0..CROWD).filter(|client| client % 10 != 3) {
        assert!(call(&mut bench, CROWD, &format!("LOCK.RELEASE l {holder}")).starts_with("1 token"));
        let reply = heard(&mut bench, client);
        let token: u64 = reply.split(' ').nth(2).expect("a token").parse().expect("a number");
        assert!(reply.starts_with("1 token") && token > last_token, "{client}: {reply}");
        (holder, last_token) = (format!("c{client}"), token);
    }
    assert!((0..CROWD).all(|client| heard(&mut bench, client).is_empty()));
}

/// Those who wait cost nothing while nothing happens, and one place that gets free is looked at by one of them.
#[test]
fn many_who_wait_are_left_alone() {
    const CROWD: usize = 3_000;
    let mut bench = Bench::new(CROWD + 1);
    call(&mut bench, CROWD, "LOCK.ACQUIRE l first PX 100");
    for client in 0..CROWD {
        call(&mut bench, client, &format!("LOCK.ACQUIRE l c{client} PX 100 BLOCK 0"));
    }
    for client in 0..20 {
        bench.pass(99);
        assert!(bench.engine.server.next_deadline_ms().is_some(), "the first one looks when the lease ends");
        assert!(heard(&mut bench, client).is_empty());
        bench.pass(1);
        assert!(heard(&mut bench, client).starts_with("1 token"), "{client}");
    }
    assert_eq!(bench.engine.server.waits.len(), CROWD - 20);
}

/// Who shares a lock doesn't keep those out who want it alone.
#[test]
fn writers_are_not_starved_by_readers() {
    let mut bench = Bench::new(4);
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l r1 PX 1000 SHARED").starts_with("1 "));
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l r2 PX 1000 SHARED").starts_with("1 "));
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l w PX 1000 BLOCK 0"), "");
    assert_eq!(call(&mut bench, 0, "LOCK.ACQUIRE l r3 PX 1000 SHARED"), "0 reason queue waiting 1 retry-after-ms 1000");
    assert_eq!(call(&mut bench, 2, "LOCK.ACQUIRE l r3 PX 1000 SHARED BLOCK 0"), "");
    assert_eq!(call(&mut bench, 3, "LOCK.ACQUIRE l r4 PX 1000 SHARED BLOCK 0"), "");
    call(&mut bench, 0, "LOCK.RELEASE l r1");
    assert!(heard(&mut bench, 1).is_empty());
    call(&mut bench, 0, "LOCK.RELEASE l r2");
    assert!(heard(&mut bench, 1).starts_with("1 ") && heard(&mut bench, 2).is_empty());
    call(&mut bench, 0, "LOCK.RELEASE l w");
    assert!(heard(&mut bench, 2).starts_with("1 ") && heard(&mut bench, 3).starts_with("1 "));
}

/// A lease may be said as SET says a deadline. One that is over is not given, ends what is held, and nobody waits for it.
#[test]
fn a_lease_may_end_at_a_time() {
    let mut bench = Bench::new(2);
    let now_ms = bench.engine.ks.now_ms();
    let (at_ms, at_s) = (now_ms + 500, now_ms / 1_000 + 60);
    assert_eq!(call(&mut bench, 0, &format!("LOCK.ACQUIRE l a PXAT {at_ms}")), "1 token 1 depth 1 lease-ms 500");
    assert_eq!(call(&mut bench, 0, &format!("LOCK.EXTEND l a EXAT {at_s}")), "1 token 1 depth 1 lease-ms 60000");
    // Waiting ends with the lease that is waited for.
    assert_eq!(call(&mut bench, 1, &format!("LOCK.ACQUIRE l b PXAT {at_ms} BLOCK 0")), "");
    bench.pass(500);
    assert_eq!(heard(&mut bench, 1), "0 reason timeout");
    assert_eq!(call(&mut bench, 1, &format!("LOCK.ACQUIRE l b PXAT {at_ms} BLOCK 0")), "0 reason over");
    // A lease that is set to a time in the past ends at once, and the next one is served.
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0"), "");
    assert_eq!(call(&mut bench, 0, &format!("LOCK.EXTEND l a PXAT {at_ms}")), "1 token 1 depth 1 lease-ms 0");
    assert_eq!(heard(&mut bench, 1), "1 token 2 depth 1 lease-ms 1000");
    assert_eq!(call(&mut bench, 0, &format!("LOCK.EXTEND l a PXAT {at_ms}")), "0 reason not-held");
    // A retry with the same time after it is over keeps what a later call has got.
    assert_eq!(call(&mut bench, 1, &format!("LOCK.ACQUIRE l b PXAT {at_ms}")), "1 token 2 depth 1 lease-ms 1000");
    assert_eq!(call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 1 EXAT 1"), "0 reason over");
    assert_eq!(call(&mut bench, 0, "EXISTS g"), "0");
    let too_far_ms = now_ms + 500 + 366 * 24 * 60 * 60 * 1_000 + 1;
    for option in
        ["PXAT 0", "PXAT -1", "EXAT 0", "EX 0", "PX -5", "EXAT 9223372036854775807", &format!("PXAT {too_far_ms}")]
    {
        let reply = call(&mut bench, 0, &format!("GATE.ACQUIRE g a LIMIT 1 {option}"));
        assert_eq!(reply, "-ERR invalid expire time in 'gate.acquire' command", "{option}");
    }
    for options in ["PX 5 PX 5", "PX 5 EXAT 5", "PXAT"] {
        let reply = call(&mut bench, 0, &format!("GATE.ACQUIRE g a LIMIT 1 {options}"));
        assert_eq!(reply, "-ERR syntax error", "{options}");
    }
    assert_eq!(call(&mut bench, 0, "LOCK.EXTEND l b PXAT x"), "-ERR value is not an integer or out of range");
}

/// A script or a transaction neither waits nor overtakes, and one that fails has taken nothing.
#[test]
fn in_scripts_and_transactions_nothing_waits() {
    let mut bench = Bench::new(3);
    call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
    let refused = "0 reason held waiting 0 retry-after-ms 1000";
    let script = "EVAL \"return redis.call('lock.acquire', KEYS[1], 'b', 'px', 1000, 'block', 0)\" 1 l";
    assert_eq!(call(&mut bench, 1, script), refused);
    assert!(call(&mut bench, 1, "MULTI").contains("OK"));
    call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0");
    assert_eq!(call(&mut bench, 1, "EXEC"), refused);
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0"), "");
    // What releases and takes in one unit comes behind those who wait.
    let swap = "EVAL \"redis.call('lock.release', KEYS[1], 'a') return redis.call('lock.acquire', KEYS[1], 'c', 'px', 1000)\" 1 l";
    assert_eq!(call(&mut bench, 2, swap), "0 reason queue waiting 1 retry-after-ms -1");
    assert!(heard(&mut bench, 1).starts_with("1 token"));
    let fails = "EVAL \"redis.call('lock.release', KEYS[1], 'b') redis.call('gate.acquire', 'g', 'h', 'limit', 1, 'px', 9) error('no')\" 2 l g";
    assert!(call(&mut bench, 2, fails).starts_with('-'));
    assert!(call(&mut bench, 0, "LOCK.INFO l").contains("owner b") && call(&mut bench, 0, "EXISTS g") == "0");
}

/// What others do to the key of a lock counts for those who wait.
#[test]
fn waiting_ends_however_the_key_is_freed() {
    for (line, is_free) in [
        ("DEL l", true),
        ("UNLINK l", true),
        ("PEXPIRE l 0", true),
        ("RENAME l other", true),
        ("MOVE l 1", true),
        ("FLUSHDB", true),
        ("SWAPDB 0 1", true),
        ("LOCK.BREAK l", true),
        ("LOCK.BREAK l a", true),
        ("LOCK.BREAK l nobody", false),
        ("COPY l other", false),
        ("SET l v NX", false),
        ("LOCK.EXTEND l a PX 1", false),
    ] {
        let mut bench = Bench::new(2);
        call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
        call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0");
        call(&mut bench, 0, line);
        assert_eq!(heard(&mut bench, 1).starts_with("1 token"), is_free, "{line}");
    }
    let mut bench = Bench::new(2);
    call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
    call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0");
    call(&mut bench, 0, "DEL l");
    call(&mut bench, 0, "SET l v");
    call(&mut bench, 1, "LOCK.ACQUIRE l c PX 1000 BLOCK 0");
    call(&mut bench, 0, "RPUSH list x");
    call(&mut bench, 0, "RENAME list l");
    assert!(heard(&mut bench, 1).contains("WRONGTYPE"), "another type never becomes a lock by itself");
}

/// A lock of `SET NX PX` and one of LOCK exclude each other, and both end in time.
#[test]
fn strings_are_locks_too() {
    let mut bench = Bench::new(2);
    assert_eq!(call(&mut bench, 0, "SET l token NX PX 500"), "+OK");
    assert_eq!(call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000"), "0 reason held waiting 0 retry-after-ms 500");
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l a PX 1000 BLOCK 0"), "");
    bench.pass(500);
    assert!(heard(&mut bench, 1).starts_with("1 token"));
    assert_eq!(call(&mut bench, 0, "SET l token NX PX 500"), "");
    assert!(call(&mut bench, 0, "GET l").contains("WRONGTYPE"));
    call(&mut bench, 0, "LOCK.RELEASE l a");
    assert_eq!(call(&mut bench, 0, "SET l token NX PX 500"), "+OK");
}

/// What scripts have counted in a plain counter is not forgotten by the gate that takes its place.
#[test]
fn a_gate_takes_over_a_counter() {
    let mut bench = Bench::new(1);
    call(&mut bench, 0, "SET g 2 PX 500");
    assert_eq!(
        call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 2 PX 1000"),
        "0 reason full in-use 2 limit 2 waiting 0 retry-after-ms 500"
    );
    assert_eq!(call(&mut bench, 0, "TYPE g"), "+string");
    assert_eq!(call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 3 PX 1000"), "1 token 2 in-use 3 limit 3 lease-ms 1000");
    assert_eq!(call(&mut bench, 0, "TYPE g"), "+gate");
    assert_eq!(call(&mut bench, 0, "TTL g"), "-1");
    bench.pass(500);
    assert!(call(&mut bench, 0, "GATE.INFO g").starts_with("1 in-use 1 "));
    for (value, answer) in [("text", "-WRONGTYPE"), ("0", "1 token 3 in-use 1"), ("-5", "1 token 4 in-use 1")] {
        call(&mut bench, 0, &format!("SET g {value}"));
        let reply = call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 3 PX 1000");
        assert!(reply.starts_with(answer), "{value}: {reply}");
    }
}

/// Tokens grow whatever becomes of the key.
#[test]
fn tokens_are_never_given_twice() {
    let mut bench = Bench::new(1);
    let mut last = 0;
    for line in [
        "DEL l",
        "FLUSHALL",
        "FLUSHALL SYNC",
        "LOCK.RELEASE l a",
        "SWAPDB 0 1",
        "EVAL \"redis.call('flushall') error('x')\" 0",
    ] {
        let reply = call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
        let token: u64 = reply.split(' ').nth(2).expect("a token").parse().expect("a number");
        assert!(token > last, "{line}");
        last = token;
        call(&mut bench, 0, line);
    }
}

/// DUMP and RESTORE carry all of it; what is damaged is refused.
#[test]
fn grants_are_dumped_and_restored() {
    let mut bench = Bench::new(1);
    call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 3 PX 1000 NOTE why");
    call(&mut bench, 0, "GATE.ACQUIRE g b LIMIT 3 PX 2000");
    let payload = bench.call(0, &words(&["DUMP", "g"]));
    let start = payload.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
    let payload = &payload[start..payload.len() - 2];
    let restore = |bench: &mut Bench, payload: &[u8]| {
        let mut args = words(&["RESTORE", "copy", "0"]);
        args.push(payload.to_vec());
        flat(&bench.call(0, &args))
    };
    assert_eq!(restore(&mut bench, payload), "+OK");
    let told = |bench: &mut Bench, key: &str| call(bench, 0, &format!("GATE.HOLDERS {key} 0"));
    let (original, copy) = (told(&mut bench, "g"), told(&mut bench, "copy"));
    assert!(original == copy && original.contains("note why"), "{original}\n{copy}");
    assert_eq!(call(&mut bench, 0, "DEBUG DIGEST-VALUE g").len(), call(&mut bench, 0, "DEBUG DIGEST-VALUE copy").len());
    bench.pass(1500);
    assert!(call(&mut bench, 0, "GATE.INFO copy").starts_with("1 in-use 1 limit 3"));
    let mut damaged = payload.to_vec();
    damaged[3] ^= 1;
    assert!(restore(&mut bench, &damaged).starts_with('-'));
}

/// WATCH sees grants come and go, by expiry as well.
#[test]
fn a_watched_lock_changes_with_its_grants() {
    for (line, fails) in [
        ("LOCK.ACQUIRE l b PX 5", true),
        ("LOCK.RELEASE l a", true),
        ("LOCK.EXTEND l a PX 50", true),
        ("LOCK.RELEASE l b", false),
        ("LOCK.INFO l", false),
    ] {
        let mut bench = Bench::new(2);
        if line.contains("ACQUIRE") {
            call(&mut bench, 0, "LOCK.ACQUIRE other a PX 1000");
        } else {
            call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
        }
        call(&mut bench, 0, "WATCH l");
        call(&mut bench, 1, line);
        call(&mut bench, 0, "MULTI");
        call(&mut bench, 0, "PING");
        assert_eq!(call(&mut bench, 0, "EXEC") != "+PONG", fails, "{line}");
    }
}

/// What was granted is there after a crash, and no token is given twice.
#[test]
fn grants_outlive_a_crash() {
    let dir = tempfile::tempdir().expect("a folder");
    let flags = ["--dir", dir.path().to_str().expect("plain text"), "--appendonly", "yes"];
    let mut tokens = Vec::new();
    for round in 0..3 {
        let server = Server::start(Program::Tidegate, &flags);
        let mut c = server.raw();
        for key in ["g", "h"] {
            let reply =
                c.command(&["GATE.ACQUIRE", key, &format!("r{round}"), "LIMIT", "9", "PX", "600000", "NOTE", "n"]);
            let Value::Array(words) = &reply else { panic!("{reply:?}") };
            assert_eq!(words[..2], [Value::Integer(1), Value::bulk("token")]);
            let Value::Integer(token) = words[2] else { panic!("{reply:?}") };
            tokens.push(token);
        }
        // A retry after the crash is answered the same.
        let again = c.command(&["GATE.ACQUIRE", "g", "r0", "LIMIT", "9", "PX", "600000"]);
        assert!(format!("{again:?}").starts_with(&format!("[1, \"token\", {}", tokens[0])), "{again:?}");
        assert_eq!(c.command(&["DEL", "h"]), Value::Integer(1));
        if round == 1 {
            // The log is cut, and what it said of tokens with it.
            assert_eq!(c.command(&["SAVE"]), Value::ok());
        }
        // By SIGKILL.
        drop(server);
    }
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    let server = Server::start(Program::Tidegate, &flags);
    let mut c = server.raw();
    c.hello3();
    let info = format!("{:?}", c.command(&["GATE.INFO", "g"]));
    assert!(info.starts_with("[1, %{") && info.contains("\"in-use\": 3"), "{info}");
    let holders = format!("{:?}", c.command(&["GATE.HOLDERS", "g", "0", "COUNT", "2"]));
    assert!(holders.contains("\"note\": \"n\"") && !holders.starts_with("[\"0\""), "{holders}");
}
