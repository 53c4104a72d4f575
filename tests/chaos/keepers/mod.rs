//! Well-behaved clients beside the chaos: each kind maintains an invariant, on keys of its own that start with
//! `keeper:`, which random calls never name.
//!
//! A keeper gets a correct reply or one of the errors that it knows ([`REFUSALS`]), which means that nothing was done.
//! When its connection is lost, the outcome of its last call is unknown; so every call can be repeated, or identifies
//! its effect by an id.

mod delays;
mod gates;
mod grants;
mod ids;
mod locks;
mod queues;
mod stocks;
mod streams;
mod sums;

use std::sync::Mutex;
use std::time::Duration;

use super::dice::Dice;
use super::wire::{Args, Connection, Reply, encode, show};
use super::world::World;

/// Beginnings of errors that a well-behaved client may get here. After any of them nothing has been done.
const REFUSALS: [&str; 11] = [
    "BUSY ",
    "OOM ",
    "EXECABORT ",
    "UNBLOCKED ",
    "ERR max number of clients reached",
    "ERR Script killed by user",
    "ERR Script ran longer than script-time-limit",
    "ERR Script used more than script-memory-limit",
    "ERR Script changed more than could be undone",
    "ERR Compiling the script takes more than script-memory-limit",
    "ERR user_script:1: keeper fails on purpose",
];
/// Time that a single reply may take while the watchdog gets its replies.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before a refused call is repeated.
const PAUSE: Duration = Duration::from_millis(5);
/// Number of times that a call that must succeed is repeated, once the chaos is over. With [`PAUSE`]: half a minute.
const ATTEMPTS: usize = 6_000;

/// The records of all keepers of a run, by kind.
#[derive(Default)]
pub(crate) struct Kept {
    delays: delays::Delays,
    gates: gates::Gates,
    grants: grants::Grants,
    ids: ids::Ids,
    locks: locks::Locks,
    queues: queues::Queues,
    stocks: stocks::Stocks,
    streams: streams::Streams,
}

/// The kinds: how each is set up, works, and is checked when all have ended.
type Kind = (&'static str, fn(&mut Keeper<'_>), fn(&mut Keeper<'_>, &Kept), fn(&mut Keeper<'_>, &Kept));

pub(crate) const KINDS: [Kind; 9] = [
    ("sums", sums::set_up, sums::work, sums::check),
    ("gates", |_| {}, gates::work, gates::check),
    ("queues", |_| {}, queues::work, queues::check),
    ("streams", streams::set_up, streams::work, streams::check),
    ("locks", |_| {}, locks::work, locks::check),
    ("grants", |_| {}, grants::work, grants::check),
    ("stocks", stocks::set_up, stocks::work, stocks::check),
    ("ids", |_| {}, ids::work, |_, _| {}),
    ("delays", |_| {}, delays::work, delays::check),
];

/// The outcome of a call.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answer(Reply),
    /// Nothing was done.
    Refused,
    /// The connection was lost.
    Unknown,
}

/// One keeper with its connection.
pub(crate) struct Keeper<'a> {
    pub world: &'a World,
    /// The keeper's number among the keepers of its kind.
    pub number: usize,
    pub dice: Dice,
    kind: &'static str,
    connection: Option<Connection>,
}

impl<'a> Keeper<'a> {
    pub(crate) fn new(world: &'a World, kind: &'static str, number: usize) -> Keeper<'a> {
        let of_kind = KINDS.iter().position(|other| other.0 == kind).unwrap_or_default();
        let dice = Dice::new(world.options.seed, (1_000 + of_kind * 100 + number) as u64);
        Keeper { world, number, dice, kind, connection: None }
    }

    /// Whether the keeper continues to work.
    pub(crate) fn goes_on(&self) -> bool {
        !self.world.are_bad_clients_gone() && !self.world.has_failed()
    }

    /// One call.
    pub(crate) fn call(&mut self, args: &Args) -> Outcome {
        self.calls(std::slice::from_ref(args)).pop().unwrap_or(Outcome::Unknown)
    }

    /// Calls sent together. Returns one outcome for each.
    pub(crate) fn calls(&mut self, calls: &[Args]) -> Vec<Outcome> {
        if self.connection.is_none() {
            self.connection = Connection::open(self.world.port).ok();
        }
        self.calls_of_this_connection(calls)
    }

    /// Like [`calls`](Self::calls), but sends nothing if the connection was lost, because the calls would mean
    /// something else on a new one.
    pub(crate) fn calls_of_this_connection(&mut self, calls: &[Args]) -> Vec<Outcome> {
        let mut bytes = Vec::new();
        calls.iter().for_each(|args| encode(args, &mut bytes));
        if self.connection.as_mut().is_none_or(|connection| connection.send(&bytes).is_err()) {
            self.connection = None;
        }
        let outcomes: Vec<Outcome> = calls.iter().map(|args| self.outcome(args)).collect();
        if !outcomes.iter().all(|outcome| matches!(outcome, Outcome::Answer(_))) {
            self.world.stats.refused.add(1);
            std::thread::sleep(PAUSE);
        }
        outcomes
    }

    fn outcome(&mut self, args: &Args) -> Outcome {
        let Some(connection) = &mut self.connection else { return Outcome::Unknown };
        match connection.reply(PATIENCE) {
            Ok(Some(Reply::Error(text))) if REFUSALS.iter().any(|refusal| text.starts_with(refusal)) => {
                Outcome::Refused
            }
            Ok(Some(Reply::Error(text))) => {
                self.fail(format!("was answered {text:?} to {}", show(args)));
                Outcome::Refused
            }
            Ok(Some(reply)) => {
                self.world.stats.kept.add(1);
                Outcome::Answer(reply)
            }
            Ok(None) => {
                self.fail(format!("got no reply within {PATIENCE:?} to {}", show(args)));
                self.connection = None;
                Outcome::Unknown
            }
            Err(error) => {
                if error.kind() == std::io::ErrorKind::InvalidData {
                    self.fail(format!("read what is no RESP: {error}"));
                }
                self.connection = None;
                Outcome::Unknown
            }
        }
    }

    /// Repeats a repeatable call until it gets a reply. `None`: the run has failed.
    pub(crate) fn insist(&mut self, args: &Args) -> Option<Reply> {
        let mut attempts = 0;
        while !self.world.has_failed() {
            if let Outcome::Answer(reply) = self.call(args) {
                return Some(reply);
            }
            attempts += usize::from(self.world.are_bad_clients_gone());
            if attempts > ATTEMPTS {
                self.fail(format!("is refused for good: {}", show(args)));
            }
        }
        None
    }

    /// Reports a broken invariant.
    pub(crate) fn fail(&self, why: String) {
        self.world.fail(format!("keeper of {} {}: {why}", self.kind, self.number));
    }
}

/// Whether a coordination command did its work; `None`: the reply has another shape.
fn is_granted(reply: &Reply) -> Option<bool> {
    match reply.items()?.first()? {
        Reply::Integer(done) => Some(*done == 1),
        _ => None,
    }
}

/// The number under a name in such a command's reply, after its first item.
fn field(reply: &Reply, name: &str) -> Option<i64> {
    let pairs = reply.items()?.get(1..)?;
    let [_, value] = pairs.chunks_exact(2).find(|pair| pair[0].text().as_deref() == Some(name))? else { return None };
    value.integer().or_else(|| value.text()?.parse().ok())
}

/// The value behind a lock, even if a thread panicked while it held the lock.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
