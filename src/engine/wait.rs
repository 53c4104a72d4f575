//! Waiting: one mechanism for every command that blocks.
//!
//! A handler that can't answer yet says [`Wait`]: for which keys, for what in them, and until when. Its session is parked
//! with the whole command in a first-come-first-served queue per key. When a unit's effects touch such a key, the calls that
//! wait for what it now holds are dispatched again from the start, the longest waiting first, and each answers or waits on.
//! What such a call changes may wake others: that goes on until no touched key has anybody left to serve.
//!
//! In a script or EXEC nothing waits: the call times out at once. And nobody is served before the whole unit is over.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::error::Error;
use super::session::{Session, SessionKey};
use super::table::Entry;
use crate::base::fit::fit_map;
use crate::base::lsn::Lsn;
use crate::base::num;
use crate::keyspace::entry::{Entry as KeyEntry, Value};
use crate::keyspace::{DbIndex, Keyspace};
use crate::resp::reply::Reply;
use crate::resp::request::OwnedArgv;

/// Touched keys for which room is kept.
const READY_KEEP: usize = 1_024;

/// What a call waits to find under its keys. A call is not dispatched again while there is something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A list with an element.
    List,
    /// A sorted set with a member.
    ZSet,
    /// A stream, with entries or without.
    Stream,
    /// Any change: who reads for a consumer group must learn that stream or group is gone.
    Group,
}

impl Want {
    pub(super) const ALL: [Want; 4] = [Want::List, Want::ZSet, Want::Stream, Want::Group];

    /// Whether it makes sense to dispatch again who wants this.
    pub(super) fn is_met(self, ks: &Keyspace, db: DbIndex, key: &[u8]) -> bool {
        if self == Want::Group {
            return true;
        }
        // Between two units nothing may be removed, not even what has expired: no effect would tell of it.
        match ks.live(db, key).map(KeyEntry::value) {
            Some(Value::List(_)) => self == Want::List,
            Some(Value::ZSet(_)) => self == Want::ZSet,
            Some(Value::Stream(_)) => self == Want::Stream,
            _ => false,
        }
    }
}

/// Why a call can't be answered yet.
#[derive(Debug)]
pub struct Wait {
    /// What may end the waiting.
    pub want: Want,
    /// The keys of which any may.
    pub keys: OwnedArgv,
    /// When waiting ends without a result, Unix ms; `None`: never.
    pub deadline_ms: Option<i64>,
    /// When it makes sense to dispatch it again although no key was touched, Unix ms (XREADGROUP CLAIM: an entry has been idle
    /// for long enough). Later than now.
    pub retry_at_ms: Option<i64>,
    /// What is answered when waiting ends without a result.
    pub on_timeout: fn(&mut Reply),
    /// The command to dispatch again, when it is not the one that came (XREAD resolves `$` once).
    pub again: Option<OwnedArgv>,
}

impl Wait {
    /// For any of `keys`.
    pub fn new<'a>(
        want: Want,
        keys: impl Iterator<Item = &'a [u8]>,
        deadline_ms: Option<i64>,
        on_timeout: fn(&mut Reply),
    ) -> Wait {
        let mut owned = OwnedArgv::default();
        keys.for_each(|key| owned.push(key));
        Wait { want, keys: owned, deadline_ms, retry_at_ms: None, on_timeout, again: None }
    }

    /// For nothing but the time.
    pub fn until(deadline_ms: Option<i64>, on_timeout: fn(&mut Reply)) -> Wait {
        Wait::new(Want::Group, std::iter::empty(), deadline_ms, on_timeout)
    }
}

/// Reads a timeout in seconds, with fractions: the time at which it is over, Unix ms; `None` for 0, which means never.
pub(crate) fn deadline_after_seconds(text: &[u8], now_ms: i64) -> Result<Option<i64>, Error> {
    let seconds = num::parse_f64(text).ok_or(Error::TimeoutNotFloat)?;
    let timeout_ms = (seconds * 1_000.0).ceil();
    if timeout_ms >= i64::MAX as f64 {
        return Err(Error::text("ERR timeout is out of range"));
    }
    deadline(timeout_ms as i64, now_ms)
}

/// As [`deadline_after_seconds`], for whole milliseconds.
pub(crate) fn deadline_after_ms(text: &[u8], now_ms: i64) -> Result<Option<i64>, Error> {
    deadline(num::parse_i64(text).ok_or(Error::text("ERR timeout is not an integer or out of range"))?, now_ms)
}

fn deadline(timeout_ms: i64, now_ms: i64) -> Result<Option<i64>, Error> {
    match timeout_ms {
        ..0 => Err(Error::TimeoutNegative),
        0 => Ok(None),
        _ => now_ms.checked_add(timeout_ms).map(Some).ok_or(Error::text("ERR timeout is out of range")),
    }
}

/// A call that waits.
pub struct Parked {
    /// The command.
    pub entry: &'static Entry,
    /// Its arguments.
    pub argv: OwnedArgv,
    /// Its database.
    pub db: DbIndex,
    /// See [`Wait`].
    pub want: Want,
    /// See [`Wait`].
    pub keys: OwnedArgv,
    /// See [`Wait`].
    pub deadline_ms: Option<i64>,
    /// See [`Wait`].
    pub retry_at_ms: Option<i64>,
    /// See [`Wait`].
    pub on_timeout: fn(&mut Reply),
    /// The client does not want the reply (CLIENT REPLY).
    pub muted: bool,
    /// Its place in every queue: calls that came later have larger numbers. Set by [`Waits::park`].
    pub(super) ticket: u64,
}

impl Parked {
    /// When something is to be done about it whatever happens to its keys, Unix ms.
    fn due_ms(&self) -> Option<i64> {
        [self.deadline_ms, self.retry_at_ms].into_iter().flatten().min()
    }

    /// Whether its waiting is over at `now_ms`.
    pub(super) fn has_timed_out(&self, now_ms: i64) -> bool {
        self.deadline_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

/// Who waits for one key, by what they want. The four never compete for the same thing. Each queue is ordered by ticket, so
/// that a call leaves it from anywhere without a search, however many wait.
#[derive(Default)]
struct Queues {
    waiting: [BTreeMap<u64, SessionKey>; Want::ALL.len()],
    /// Whether the key stands in [`Waits::ready`].
    ready: bool,
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.waiting.iter().all(BTreeMap::is_empty)
    }
}

/// A key that was touched and has queues.
pub(super) struct Ready {
    pub db: DbIndex,
    pub key: Box<[u8]>,
}

/// Who waits for what.
#[derive(Default)]
pub struct Waits {
    /// By database, then key: a touched key is looked up without being copied.
    queues: HashMap<DbIndex, HashMap<Box<[u8]>, Queues>>,
    deadlines: BTreeSet<(i64, SessionKey)>,
    ready: VecDeque<Ready>,
    parked: usize,
    last_ticket: u64,
}

impl Waits {
    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parked == 0
    }

    /// How many calls wait.
    pub fn len(&self) -> usize {
        self.parked
    }

    /// Queues a call.
    pub(super) fn park(&mut self, session: SessionKey, parked: &mut Parked) {
        self.parked += 1;
        self.last_ticket += 1;
        parked.ticket = self.last_ticket;
        let queues = self.queues.entry(parked.db).or_default();
        for key in parked.keys.as_argv().iter() {
            // A key that is named twice counts once.
            queues.entry(key.into()).or_default().waiting[parked.want as usize].insert(parked.ticket, session);
        }
        if let Some(at_ms) = parked.due_ms() {
            self.deadlines.insert((at_ms, session));
        }
    }

    /// Takes a call out of all queues.
    pub(super) fn unpark(&mut self, session: SessionKey, parked: &Parked) {
        self.parked -= 1;
        // Also of those who wait for no key: WAIT.
        if let Some(at_ms) = parked.due_ms() {
            self.deadlines.remove(&(at_ms, session));
        }
        let Some(by_key) = self.queues.get_mut(&parked.db) else { return };
        for key in parked.keys.as_argv().iter() {
            let Some(queues) = by_key.get_mut(key) else { continue };
            queues.waiting[parked.want as usize].remove(&parked.ticket);
            if queues.is_empty() {
                by_key.remove(key);
            }
        }
        if by_key.is_empty() {
            self.queues.remove(&parked.db);
        } else {
            fit_map(by_key);
        }
    }

    /// Sets when a waiting call is dispatched again although no key was touched.
    pub(super) fn retry_at(&mut self, session: SessionKey, parked: &mut Parked, at_ms: Option<i64>) {
        if parked.retry_at_ms == at_ms {
            return;
        }
        if let Some(due_ms) = parked.due_ms() {
            self.deadlines.remove(&(due_ms, session));
        }
        parked.retry_at_ms = at_ms;
        if let Some(due_ms) = parked.due_ms() {
            self.deadlines.insert((due_ms, session));
        }
    }

    /// Notes that a key was touched.
    pub(super) fn touch(&mut self, db: DbIndex, key: &[u8]) {
        let Some(queues) = self.queues.get_mut(&db).and_then(|by_key| by_key.get_mut(key)) else { return };
        if !std::mem::replace(&mut queues.ready, true) {
            self.ready.push_back(Ready { db, key: key.into() });
        }
    }

    /// Notes that every key of a database may have changed.
    pub(super) fn touch_database(&mut self, db: DbIndex) {
        let Some(by_key) = self.queues.get_mut(&db) else { return };
        for (key, queues) in by_key {
            if !std::mem::replace(&mut queues.ready, true) {
                self.ready.push_back(Ready { db, key: key.clone() });
            }
        }
    }

    /// Takes the next touched key.
    pub(super) fn take_ready(&mut self) -> Option<Ready> {
        let ready = self.ready.pop_front()?;
        if self.ready.is_empty() && self.ready.capacity() > READY_KEEP {
            self.ready = VecDeque::new();
        }
        if let Some(queues) = self.queues.get_mut(&ready.db).and_then(|by_key| by_key.get_mut(&ready.key)) {
            queues.ready = false;
        }
        Some(ready)
    }

    /// The longest waiting call of a queue among those with a larger ticket than `ticket`, and its own.
    pub(super) fn next_after(&self, ready: &Ready, want: Want, ticket: u64) -> Option<(u64, SessionKey)> {
        let queue = &self.queues.get(&ready.db)?.get(&ready.key)?.waiting[want as usize];
        queue.range(ticket + 1..).next().map(|(ticket, session)| (*ticket, *session))
    }

    /// When the next call times out or is to be dispatched again, Unix ms.
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.first().map(|(at_ms, _)| *at_ms)
    }

    /// A call of which that time has come.
    pub(super) fn due(&self, now_ms: i64) -> Option<SessionKey> {
        self.deadlines.first().filter(|(at_ms, _)| *at_ms <= now_ms).map(|(_, session)| *session)
    }
}

impl Session {
    /// Sends what a call that waited is answered.
    pub(super) fn answer_parked(&mut self, parked: &Parked, reply: &Reply, fence: Lsn) {
        if parked.muted {
            self.outbox.wake();
        } else {
            self.outbox.push(reply.as_bytes(), fence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_become_deadlines() {
        let text = |result: Result<Option<i64>, Error>| result.map_err(|error| error.to_string());
        assert_eq!(text(deadline_after_seconds(b"0", 100)), Ok(None));
        assert_eq!(text(deadline_after_seconds(b"0.0011", 100)), Ok(Some(102)));
        assert_eq!(text(deadline_after_seconds(b"0.0000001", 100)), Ok(Some(101)));
        for (wrong, error) in [
            ("-1", "ERR timeout is negative"),
            ("", "ERR timeout is not a float or out of range"),
            ("nan", "ERR timeout is not a float or out of range"),
            ("1e300", "ERR timeout is out of range"),
            ("inf", "ERR timeout is out of range"),
            ("9223372036854775", "ERR timeout is out of range"),
        ] {
            assert_eq!(text(deadline_after_seconds(wrong.as_bytes(), 1_000)), Err(error.to_owned()), "{wrong}");
        }
        assert_eq!(text(deadline_after_ms(b"5", 100)), Ok(Some(105)));
        assert_eq!(text(deadline_after_ms(b"1.5", 1)), Err("ERR timeout is not an integer or out of range".to_owned()));
        assert_eq!(text(deadline_after_ms(b"9223372036854775807", 1)), Err("ERR timeout is out of range".to_owned()));
    }
}
