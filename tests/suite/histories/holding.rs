//! Locks and gates beside a naive model.
//!
//! The engine runs in this process, with a clock that is moved by hand. In a history several clients acquire, extend
//! and release places of one gate or lock, directly or from scripts, some of which fail. They wait, hang up, change the
//! limit, delete the key, and write under GUARD with every token ever issued. Some wait by BLOCK and others by ASYNC,
//! each client with any number of tickets, in one queue. Time passes, the clock is set, the server is killed. After
//! each step the holders, the answered clients and their replies must be those of the model. The waiting of each call
//! ends at a unique millisecond, so that no two things happen at once.

use std::collections::VecDeque;

use super::{Log, run};
use crate::coordination::{call, parts};
use crate::differential::generate::Dice;
use crate::differential::script::{Args, split_line};
use crate::in_process::{Bench, Told, script, words};

const CLIENTS: usize = 6;
/// Holder names: fewer than calls, so that some repeat.
const HOLDERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Steps of a history.
const LENGTH: i64 = 120;
/// A step of time, ms.
const STEP_MS: i64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Gate,
    Lock,
}

/// A place in use.
#[derive(Clone, Debug)]
struct Held {
    name: &'static str,
    token: u64,
    units: u64,
    until_ms: i64,
    depth: u64,
    shared: bool,
}

/// The lease in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    /// This many milliseconds from the grant.
    For(i64),
    /// Until this time, Unix ms.
    Until(i64),
}

impl Lease {
    /// A lease, in one of its forms. A lease given as a time ends at a unique millisecond, so that waiting for it does,
    /// too.
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
                // Already over.
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
    /// When waiting ends, by the steady clock; the inner `None`: never.
    wait: Option<Option<i64>>,
    /// For a call that waits beside its client: the ticket in the reply, or 0 if none was sent yet. `None`: it blocks
    /// the client.
    ticket: Option<i64>,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Came {
    Granted {
        token: u64,
        /// The depth of a lock, or the units in use of a gate.
        count: u64,
        lease_ms: i64,
    },
    Refused(&'static str),
    Error,
}

impl Came {
    /// Parses a reply of ACQUIRE.
    fn read(family: Family, reply: &str) -> Came {
        let words: Vec<&str> = reply.split(' ').collect();
        let number = |at: usize| words[at].parse::<i64>().unwrap_or_else(|_| panic!("{reply}"));
        match words[0] {
            "1" => Came::Granted {
                token: number(2) as u64,
                count: number(4) as u64,
                lease_ms: number(if family == Family::Lock { 6 } else { 8 }),
            },
            "0" => {
                let known = ["full", "held", "queue", "limit", "not-held", "timeout", "over"].into_iter();
                let known = known.into_iter().find(|reason| *reason == words[2]);
                Came::Refused(known.unwrap_or_else(|| panic!("{reply}")))
            }
            _ if reply.starts_with("-ERR") => Came::Error,
            _ => panic!("{reply}"),
        }
    }
}

/// An answer to a waiter: the client, the ticket of the call if it had one, and the result.
type Answered = (usize, Option<i64>, Came);

/// The naive model of one gate or lock, and of the writes under its tokens.
#[derive(Clone)]
struct Model {
    family: Family,
    held: Vec<Held>,
    queue: VecDeque<Ask>,
    own_limit: Option<u64>,
    last_token: u64,
    /// The last token in a reply.
    last_told: u64,
    now_ms: i64,
    /// The steady clock, which no client can set.
    steady_ms: i64,
    /// The count made while a lease was held.
    counted: u64,
    /// For each of a few requests that run once: the reply, and the time until which it is kept.
    once: [Option<(u64, i64)>; 3],
}

impl Model {
    fn in_use(&self) -> u64 {
        self.held.iter().map(|held| held.units).sum()
    }

    fn is_live(&self, token: u64) -> bool {
        self.held.iter().any(|held| held.token == token)
    }

    /// The reply to a holder whose request is granted.
    fn granted(&self, held: &Held) -> Came {
        let count = if self.family == Family::Lock { held.depth } else { self.in_use() };
        Came::Granted { token: held.token, count, lease_ms: (held.until_ms - self.now_ms).max(0) }
    }

    /// The result of a call whose turn it is, or that nothing precedes; `None` if there is no place for it.
    fn decide(&mut self, ask: &Ask, has_others_before: bool) -> Option<Came> {
        let until_ms = ask.lease.until_ms(self.now_ms);
        if let Some(own) = self.held.iter_mut().find(|held| held.name == ask.name) {
            if own.shared && !ask.shared {
                return Some(Came::Error);
            }
            own.until_ms = own.until_ms.max(until_ms);
            own.depth = own.depth.max(ask.depth);
            let own = own.clone();
            return Some(self.granted(&own));
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
            self.last_told = self.last_token;
            let (token, name, units, depth, shared) = (self.last_token, ask.name, ask.units, ask.depth, ask.shared);
            let held = Held { name, token, units, until_ms, depth, shared };
            self.held.push(held.clone());
            return Some(self.granted(&held));
        }
        let is_hopeless = self.family == Family::Gate && ask.units > limit && limit > 0;
        is_hopeless.then_some(Came::Refused("limit"))
    }

    /// A call arrives; `None` if it waits.
    fn ask(&mut self, ask: Ask) -> Option<Came> {
        let has_others_before = !self.queue.is_empty();
        match self.decide(&ask, has_others_before) {
            None if ask.wait.is_some() => {
                // A call never waits beyond the end of its lease.
                let last_ms = match ask.lease {
                    Lease::Until(ms) => Some(self.steady_ms + ms - self.now_ms),
                    Lease::For(_) => None,
                };
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

    /// Serves all waiters that can proceed, in order. Returns their answers.
    fn serve(&mut self) -> Vec<Answered> {
        let mut answered = Vec::new();
        while let Some(first) = self.queue.front().cloned() {
            let Some(came) = self.decide(&first, false) else { break };
            self.queue.pop_front();
            answered.push((first.client, first.ticket, came));
        }
        answered
    }

    /// The time until the next end of a lease or of a wait.
    fn next_event_in_ms(&self) -> Option<i64> {
        let leases = self.held.iter().map(|held| held.until_ms - self.now_ms);
        leases.chain(self.queue.iter().filter_map(|ask| ask.wait.flatten()).map(|at_ms| at_ms - self.steady_ms)).min()
    }

    fn end_leases(&mut self) {
        let now_ms = self.now_ms;
        self.held.retain(|held| held.until_ms > now_ms);
    }

    /// Lets this much time pass.
    fn pass(&mut self, ms: i64) -> Vec<Answered> {
        self.now_ms += ms;
        self.steady_ms += ms;
        self.end_leases();
        let steady_ms = self.steady_ms;
        let is_over = |ask: &Ask| ask.wait.flatten().is_some_and(|at_ms| at_ms <= steady_ms);
        let timed_out = self.queue.iter().filter(|ask| is_over(ask));
        let mut answered: Vec<_> = timed_out.map(|ask| (ask.client, ask.ticket, Came::Refused("timeout"))).collect();
        self.queue.retain(|ask| !is_over(ask));
        answered.extend(self.serve());
        answered
    }

    /// Counts under a token, once for a request. Returns the expected reply.
    fn guard(&mut self, token: u64, request: Option<(usize, i64)>) -> String {
        if !self.is_live(token) {
            return "-STALE".to_owned();
        }
        let kept = request.and_then(|(id, _)| self.once[id]).filter(|(_, until_ms)| *until_ms > self.now_ms);
        let count = kept.map_or(self.counted + 1, |(count, _)| count);
        if kept.is_none() {
            self.counted += 1;
            request.iter().for_each(|(id, for_ms)| self.once[*id] = Some((count, self.now_ms + for_ms)));
        }
        count.to_string()
    }
}

/// How a call reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Directly,
    FromScript,
    /// The script's effects are rolled back.
    FromFailingScript,
}

/// How often rare events have happened.
#[derive(Default)]
struct Seen {
    taken_back: u64,
    stale: u64,
    served: u64,
    pushed: u64,
    timed_out: u64,
    clock_set: u64,
}

/// A gate or lock, its model, and its journal.
struct World {
    family: Family,
    key: String,
    bench: Bench,
    log: Log,
    model: Model,
    trace: Vec<String>,
    /// Each client's output beside the replies to its calls, not yet checked.
    unread: Vec<Vec<String>>,
    last_ticket: i64,
    number: i64,
    /// Whether the clock was ever set: then waiters are served by the removal of ended leases.
    is_clock_set: bool,
    seen: Seen,
}

impl World {
    fn new(family: Family, seed: u64) -> World {
        let mut bench = Bench::new(CLIENTS + 1);
        let log = Log::of(&mut bench, Told::Everything);
        let model = Model {
            family,
            held: Vec::new(),
            queue: VecDeque::new(),
            own_limit: None,
            last_token: 0,
            last_told: 0,
            now_ms: bench.clock.now_ms(),
            steady_ms: bench.clock.steady_ms(),
            counted: 0,
            once: [None; 3],
        };
        let key = format!("{family:?}:{seed}");
        let unread = vec![Vec::new(); CLIENTS];
        let (trace, last_ticket, number, is_clock_set) = (Vec::new(), 0, 0, false);
        let seen = Seen::default();
        let mut world =
            World { family, key, bench, log, model, trace, unread, last_ticket, number, is_clock_set, seen };
        (0..CLIENTS).for_each(|client| world.connect(client));
        world
    }

    /// A client connects, and speaks RESP3.
    fn connect(&mut self, client: usize) {
        self.bench.reconnect(client);
        self.unread[client].clear();
        assert!(self.ask(client, &words(&["HELLO", "3"])).contains("proto 3"));
    }

    /// The reply to a call, which is empty while the client waits.
    fn ask(&mut self, client: usize, args: &Args) -> String {
        let mut parts = parts(&self.bench.call(client, args));
        let has_reply = parts.first().is_some_and(|part| !part.starts_with("ticket "));
        let pushed = parts.split_off(usize::from(has_reply));
        self.unread[client].extend(pushed);
        parts.pop().unwrap_or_default()
    }

    fn prefix(&self) -> &'static str {
        if self.family == Family::Gate { "GATE" } else { "LOCK" }
    }

    /// Makes a client call, in one of the ways. `model` gives the model's result. Fails if the server's result differs.
    fn call<T: PartialEq + std::fmt::Debug>(
        &mut self,
        (way, client): (Way, usize),
        line: &str,
        model: impl FnOnce(&mut Model) -> T,
        read: impl FnOnce(&str) -> T,
    ) -> Result<(), String> {
        self.trace.push(format!("[{client}] {way:?}: {line}"));
        let args = split_line(line).expect("plain words");
        if way == Way::FromFailingScript {
            self.ask(client, &script("fail", &[args]));
            self.seen.taken_back += 1;
            return Ok(());
        }
        let args: Args = match way {
            Way::FromScript => [words(&["EVAL", "return redis.pcall(unpack(ARGV))", "0"]), args].concat(),
            _ => args,
        };
        let wanted = model(&mut self.model);
        let reply = self.ask(client, &args);
        let got = read(&reply);
        if got == wanted { Ok(()) } else { Err(format!("wanted {wanted:?}, got {reply}")) }
    }

    fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        // Tokens issued to a failed script may be skipped, until the server is killed. A token in a reply is never
        // issued again.
        let last_token = self.bench.engine.ks.next_token().expect("there are tokens") - 1;
        let told = self.model.last_told;
        if last_token < told {
            return Err(format!("{told} was told, and {} comes next", last_token + 1));
        }
        self.model.last_token = last_token;
        let client = dice.below(CLIENTS);
        let is_waiting = self.model.queue.iter().any(|ask| ask.client == client && ask.ticket.is_none());
        let way = match dice.below(12) {
            0 => Way::FromFailingScript,
            1 | 2 => Way::FromScript,
            _ => Way::Directly,
        };
        match dice.below(27) {
            0..9 if !is_waiting => self.acquire((way, client), dice)?,
            9..11 if !is_waiting => self.prolong((way, client), dice)?,
            11..15 if !is_waiting => self.release((way, client), dice)?,
            15 if !is_waiting => self.free((way, client), dice)?,
            16 => {
                self.trace.push(format!("[{client}] hangs up"));
                self.connect(client);
                self.bench.engine.time_out_waits();
                self.model.queue.retain(|ask| ask.client != client);
            }
            17..20 if !is_waiting => self.guard((way, client), dice)?,
            20 => self.set_clock(dice),
            21 if dice.once_in(2) => {
                self.trace.push("the server is killed".to_owned());
                self.log.kill(&mut self.bench)?;
                self.model.queue.clear();
                self.last_ticket = 0;
                (0..CLIENTS).for_each(|client| self.connect(client));
            }
            22 if !is_waiting => self.give_up(client, dice)?,
            _ => self.pass(dice)?,
        }
        let answered = self.model.serve();
        self.compare_answers(&answered)?;
        self.compare_holders()?;
        self.log.follow(&mut self.bench).map(drop)
    }

    fn acquire(&mut self, from: (Way, usize), dice: &mut Dice) -> Result<(), String> {
        let (family, number) = (self.family, self.number);
        let name = *dice.pick(&HOLDERS);
        // A name always asks for the same number of units.
        let units = if family == Family::Gate { 1 + u64::from(name.as_bytes()[0]) % 3 } else { 1 };
        let (lease, lease_option) = Lease::some(dice, self.model.now_ms, number + 1);
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
        let line = format!("{}.ACQUIRE {} {name} {lease_option} {options}{option}", self.prefix(), self.key);
        let (way, client) = from;
        // A script never waits.
        let wait = wait.map(|ms| ms.map(|ms| self.model.steady_ms + ms)).filter(|_| way == Way::Directly);
        let ask = Ask { client, name, units, limit, lease, depth, shared, wait, ticket };
        let before = self.model.queue.len();
        let mut told = None;
        let queued = format!("waiting {before}");
        let read = |reply: &str| {
            // A reply that does not block the client: a ticket, and how many precede it.
            let said = reply.strip_prefix("0 reason queued ticket ").and_then(|said| said.split_once(' '));
            told = said.filter(|(_, rest)| *rest == queued).and_then(|(ticket, _)| ticket.parse().ok());
            if reply.is_empty() || told.is_some() { None } else { Some(Came::read(family, reply)) }
        };
        self.call(from, &line, |model| model.ask(ask), read)?;
        if self.model.queue.len() == before || ticket.is_none() {
            return Ok(());
        }
        let number = told.filter(|number| *number > self.last_ticket).ok_or("no new ticket was told")?;
        self.last_ticket = number;
        self.model.queue.back_mut().ok_or("it waits")?.ticket = Some(number);
        Ok(())
    }

    /// A client cancels one of its tickets, or an unknown one.
    fn give_up(&mut self, client: usize, dice: &mut Dice) -> Result<(), String> {
        let own = self.model.queue.iter().find(|ask| ask.client == client).and_then(|ask| ask.ticket);
        let ticket = own.unwrap_or(self.last_ticket + 1 + dice.below(3) as i64);
        let says = if own.is_some() { "1 waited-ms" } else { "0 reason no-ticket" };
        let model = |model: &mut Model| {
            model.queue.retain(|ask| own.is_none() || ask.ticket != own);
            true
        };
        self.call((Way::Directly, client), &format!("TICKET.CANCEL {ticket}"), model, |reply| reply.starts_with(says))?;
        self.bench.engine.time_out_waits();
        Ok(())
    }

    fn prolong(&mut self, from: (Way, usize), dice: &mut Dice) -> Result<(), String> {
        let verb = if self.family == Family::Gate { "RENEW" } else { "EXTEND" };
        let name = *dice.pick(&HOLDERS);
        let (lease, lease_option) = Lease::some(dice, self.model.now_ms, self.number + 1);
        let line = format!("{}.{verb} {} {name} {lease_option}", self.prefix(), self.key);
        let model = |model: &mut Model| {
            let until_ms = lease.until_ms(model.now_ms);
            let own = model.held.iter_mut().find(|held| held.name == name)?;
            own.until_ms = until_ms;
            let came = (own.token, (until_ms - model.now_ms).max(0));
            model.end_leases();
            Some(came)
        };
        self.call(from, &line, model, |reply| {
            let words: Vec<&str> = reply.split(' ').collect();
            let number = |at: usize| words[at].parse().unwrap_or_else(|_| panic!("{reply}"));
            (words[0] == "1").then(|| (number(2) as u64, number(words.len() - 1)))
        })
    }

    fn release(&mut self, from: (Way, usize), dice: &mut Dice) -> Result<(), String> {
        let depth = if self.family == Family::Lock && dice.once_in(3) { 2 } else { 1 };
        let option = if depth > 1 { format!(" DEPTH {depth}") } else { String::new() };
        let name = *dice.pick(&HOLDERS);
        let line = format!("{}.RELEASE {} {name}{option}", self.prefix(), self.key);
        let model = |model: &mut Model| {
            let at = model.held.iter().position(|held| held.name == name)?;
            let token = model.held[at].token;
            model.held[at].depth = model.held[at].depth.min(depth - 1);
            if model.held[at].depth == 0 {
                model.held.remove(at);
            }
            Some(token.to_string())
        };
        let token = |reply: &str| reply.strip_prefix("1 token ")?.split(' ').next().map(str::to_owned);
        self.call(from, &line, model, token)
    }

    /// Frees places in other ways: by another limit, by an operator, with the key.
    fn free(&mut self, from: (Way, usize), dice: &mut Dice) -> Result<(), String> {
        let key = self.key.clone();
        if dice.once_in(6) {
            return self.call(
                from,
                &format!("DEL {key}"),
                |model| {
                    let was_there = model.own_limit.is_some() || !model.held.is_empty();
                    (model.own_limit, model.held) = (None, Vec::new());
                    i64::from(was_there).to_string()
                },
                str::to_owned,
            );
        }
        let yes = |reply: &str| reply.starts_with('1');
        if self.family == Family::Lock {
            let name = Some(*dice.pick(&HOLDERS)).filter(|_| !dice.once_in(3));
            let line = format!("LOCK.BREAK {key} {}", name.unwrap_or_default());
            let model = |model: &mut Model| {
                let before = model.held.len();
                model.held.retain(|held| name.is_some_and(|name| name != held.name));
                model.held.len() < before
            };
            return self.call(from, line.trim_end(), model, yes);
        }
        let limit = Some(dice.below(6) as u64).filter(|_| !dice.once_in(3));
        let line = format!("GATE.LIMIT {key} {}", limit.map_or("NONE".to_owned(), |limit| limit.to_string()));
        let model = |model: &mut Model| {
            let had = std::mem::replace(&mut model.own_limit, limit);
            limit.is_some() || had.is_some()
        };
        self.call(from, &line, model, yes)
    }

    /// Writes with a current or an earlier token.
    fn guard(&mut self, from: (Way, usize), dice: &mut Dice) -> Result<(), String> {
        // One of the last few tokens, or one not issued yet.
        let token = (self.model.last_token + 2).saturating_sub(dice.below(8) as u64).max(1);
        let request = dice.once_in(2).then(|| (dice.below(3), STEP_MS * (1 + dice.below(9) as i64)));
        let once = request.map_or(String::new(), |(id, for_ms)| format!("ONCE id:{id} PX {for_ms} "));
        let line = format!("GUARD {} {token} {once}INCR counted", self.key);
        let short = |reply: &str| if reply.starts_with("-STALE") { "-STALE".to_owned() } else { reply.to_owned() };
        self.seen.stale += u64::from(!self.model.is_live(token));
        self.call(from, &line, |model| model.guard(token, request), short)
    }

    /// Sets the clock. Ended leases stay ended even if it is set back; the end of the others then moves.
    fn set_clock(&mut self, dice: &mut Dice) {
        // The wait for a lease with an end time is computed from the clock at the time of the call.
        if self.model.queue.iter().any(|ask| matches!(ask.lease, Lease::Until(_))) {
            return;
        }
        let by_ms = STEP_MS * (dice.below(5) as i64 - 2);
        self.trace.push(format!("the clock is set by {by_ms} ms"));
        self.is_clock_set = true;
        self.seen.clock_set += 1;
        self.bench.reclaim();
        self.bench.set_clock(by_ms);
        self.bench.reclaim();
        self.model.now_ms += by_ms;
        self.model.end_leases();
        let now_ms = self.model.now_ms - by_ms;
        self.model.once.iter_mut().for_each(|kept| *kept = kept.filter(|(_, until_ms)| *until_ms > now_ms));
    }

    fn pass(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.trace.push(format!("{STEP_MS} ms pass"));
        let mut left_ms = STEP_MS;
        while let Some(ms) = self.model.next_event_in_ms().filter(|ms| *ms < left_ms) {
            self.pass_by(ms)?;
            left_ms -= ms;
        }
        self.pass_by(left_ms)?;
        if dice.once_in(3) {
            self.bench.reclaim();
        }
        Ok(())
    }

    fn pass_by(&mut self, ms: i64) -> Result<(), String> {
        self.bench.pass(ms);
        if self.is_clock_set {
            self.bench.reclaim();
        }
        let answered = self.model.pass(ms);
        self.seen.timed_out += answered.iter().filter(|(.., came)| *came == Came::Refused("timeout")).count() as u64;
        self.compare_answers(&answered)
    }

    /// Checks that the waiters got these answers, each in this order, and other clients nothing.
    fn compare_answers(&mut self, expected: &[Answered]) -> Result<(), String> {
        for client in 0..CLIENTS {
            let later = parts(&self.bench.heard(client));
            let heard: Vec<String> = self.unread[client].drain(..).chain(later).collect();
            let told = |text: &String| match text.strip_prefix("ticket ").and_then(|rest| rest.split_once(' ')) {
                Some((ticket, reply)) => (client, ticket.parse().ok(), Came::read(self.family, reply)),
                None => (client, None, Came::read(self.family, text)),
            };
            let got: Vec<Answered> = heard.iter().map(told).collect();
            let wanted: Vec<Answered> = expected.iter().filter(|(to, ..)| *to == client).cloned().collect();
            let granted = |(_, _, came): &&Answered| matches!(came, Came::Granted { .. });
            self.seen.served += got.iter().filter(granted).count() as u64;
            self.seen.pushed += got.iter().filter(|(_, ticket, _)| ticket.is_some()).count() as u64;
            if got != wanted {
                let model = &self.model;
                return Err(format!(
                    "[{client}] wanted {wanted:?}, got {heard:?}\nheld {:?}\nwaiting {:?}",
                    model.held, model.queue
                ));
            }
        }
        Ok(())
    }

    /// Checks the holders, in order of arrival, and the count.
    fn compare_holders(&mut self) -> Result<(), String> {
        let (line, word) = match self.family {
            Family::Gate => (format!("GATE.HOLDERS {} 0", self.key), "holder"),
            Family::Lock => (format!("LOCK.INFO {}", self.key), "owner"),
        };
        let shown = call(&mut self.bench, CLIENTS, &line);
        let words: Vec<&str> = shown.split(' ').collect();
        let listed = words.windows(2).filter(|pair| pair[0] == word).map(|pair| pair[1]);
        if !listed.eq(self.model.held.iter().map(|held| held.name)) {
            return Err(format!("held by {:?}, but told {shown}", self.model.held));
        }
        let counted = call(&mut self.bench, CLIENTS, "GET counted");
        if counted == if self.model.counted == 0 { String::new() } else { self.model.counted.to_string() } {
            return Ok(());
        }
        Err(format!("{counted} were counted instead of {}", self.model.counted))
    }
}

fn histories(family: Family) {
    let rare = [
        "kills",
        "calls that were taken back",
        "writes with a token whose lease has ended",
        "grants to who has waited",
        "what tickets came to",
        "calls that waited in vain",
        "times that the clock was set",
    ];
    run(&format!("{family:?}"), 150, rare, |seed| {
        let dice = &mut Dice(seed);
        let mut world = World::new(family, seed);
        for number in 0..LENGTH {
            world.number = number;
            world.step(dice).map_err(|told| format!("{}\n{told}", world.trace.join("\n")))?;
        }
        let Seen { taken_back, stale, served, pushed, timed_out, clock_set } = world.seen;
        Ok([world.log.kills, taken_back, stale, served, pushed, timed_out, clock_set])
    });
}

#[test]
fn gates_behave_like_the_model() {
    histories(Family::Gate);
}

#[test]
fn locks_behave_like_the_model() {
    histories(Family::Lock);
}
