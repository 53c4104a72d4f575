//! The queues of waiting calls per key, with their deadlines. [`super`] explains waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::{Ticket, Want};
use crate::base::fit::{fit_map, fit_queue};
use crate::keyspace::DbIndex;
use crate::meters::coordination_stats::CountedWait;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::OwnedArgv;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// The number of touched keys for which memory is kept.
const READY_KEEP: usize = 1_024;

/// Bytes that a waiting call takes besides its own: its places in the tables here and in its session's, which are
/// assumed half full.
const PLACES_BYTES: usize = 128;

/// Bytes of waiting for a key without other waiters, besides the key's bytes: its queues, their place in their table,
/// and a leaf.
const QUEUES_BYTES: usize = 350;

/// The kind of the push with the result of a call with a ticket.
const PUSH: &[u8] = b"ticket";

/// How a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The call blocks its session.
    Blocking {
        /// The client does not want the reply (CLIENT REPLY).
        is_muted: bool,
    },
    /// The call waits beside its session, whose client knows the ticket.
    Beside,
}

/// A waiting call.
pub struct Parked {
    /// Its place in every queue.
    pub ticket: Ticket,
    /// The session that made the call.
    pub session: SessionKey,
    /// How the call waits.
    pub mode: Mode,
    /// The command.
    pub command: CommandId,
    /// Its arguments.
    pub argv: OwnedArgv,
    /// Its database. A session that is not blocked may have selected another one since.
    pub db: DbIndex,
    /// See [`Wait`](super::Wait).
    pub want: Want,
    /// See [`Wait`](super::Wait).
    pub keys: OwnedArgv,
    /// See [`Wait`](super::Wait); but by the [steady](crate::base::clock::Clock::steady_ms) clock, as is
    /// [`Parked::retry_at_ms`]: setting the wall clock does not change how long the call waits.
    pub deadline_ms: Option<i64>,
    /// See [`Wait`](super::Wait).
    pub retry_at_ms: Option<i64>,
    /// See [`Wait`](super::Wait).
    pub on_timeout: fn(&mut Reply),
    /// How its waiting is counted, if at all.
    pub(crate) counted: Option<CountedWait>,
    /// See [`Wait`](super::Wait).
    pub in_vain: &'static str,
    /// See [`Wait`](super::Wait).
    pub or_string: Option<Box<[u8]>>,
    /// Since when it waits, by the steady clock.
    pub(crate) since_ms: i64,
}

impl Parked {
    /// When the call needs attention even if its keys are not touched, by the steady clock.
    fn due_ms(&self) -> Option<i64> {
        [self.deadline_ms, self.retry_at_ms].into_iter().flatten().min()
    }

    /// The keys that the call waits for, each with the content to find there.
    pub(crate) fn wants(&self) -> impl Iterator<Item = (&[u8], Want)> {
        let keys = self.keys.as_argv().iter().map(|key| (key, self.want));
        keys.chain(self.or_string.iter().map(|key| (&key[..], Want::String)))
    }

    /// Whether the call has timed out at `now_ms`, by the steady clock.
    pub(crate) fn has_timed_out(&self, now_ms: i64) -> bool {
        self.deadline_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// The ticket that its client knows, if it has one.
    pub(crate) fn client_ticket(&self) -> Option<Ticket> {
        (self.mode == Mode::Beside).then_some(self.ticket)
    }

    /// Begins the final message to its client; the reply must be written after it.
    pub(crate) fn begin_answer(&self, form: Form) -> Reply {
        let mut answer = Reply::new(form);
        if self.mode == Mode::Beside {
            answer.push(3);
            answer.bulk(PUSH);
            answer.integer(self.ticket.number());
        }
        answer
    }

    /// Bytes that the call takes, if no other call waits for its keys.
    pub(crate) fn mem_bytes(&self) -> usize {
        let queues: usize = self.wants().map(|(key, _)| QUEUES_BYTES + key.len()).sum();
        let id = self.or_string.as_ref().map_or(0, |id| id.len());
        size_of::<Parked>() + PLACES_BYTES + self.argv.bytes() + self.keys.bytes() + id + queues
    }
}

/// The calls that wait for one key, by want. Calls of different wants never compete for the same thing. A call leaves
/// its queue from any position without a search, however many wait.
#[derive(Default)]
struct Queues {
    waiting: [BTreeSet<Ticket>; Want::ALL.len()],
    /// Whether the key is in [`Waits::ready`].
    ready: bool,
    /// Whether the key is in [`Waits::put_off`].
    put_off: bool,
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.waiting.iter().all(BTreeSet::is_empty)
    }
}

/// A key that was touched and has queues.
pub(crate) struct Ready {
    pub db: DbIndex,
    pub key: Box<[u8]>,
}

/// All waiting calls.
#[derive(Default)]
pub struct Waits {
    /// The calls, except those that were [taken](Self::take).
    calls: BTreeMap<Ticket, Box<Parked>>,
    /// By database, then key: a touched key is looked up without being copied.
    queues: HashMap<DbIndex, HashMap<Box<[u8]>, Queues>>,
    deadlines: BTreeSet<(i64, Ticket)>,
    ready: VecDeque<Ready>,
    /// Touched keys with calls left to serve, because one slice has served enough.
    put_off: VecDeque<Ready>,
    /// The number of calls.
    len: usize,
    /// The number of calls that block their sessions.
    blocking: usize,
    last: Option<Ticket>,
}

impl Waits {
    /// Whether no call waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of waiting calls.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of calls that block their sessions.
    pub fn blocking(&self) -> usize {
        self.blocking
    }

    /// The number of keys that calls wait for, and the number of those with a call that also waits for the key's end
    /// (XREADGROUP).
    pub fn keys(&self) -> (usize, usize) {
        let all = || self.queues.values().flat_map(HashMap::values);
        (all().count(), all().filter(|queues| !queues.waiting[Want::Group as usize].is_empty()).count())
    }

    /// The waiting calls, the longest waiting first.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Parked> {
        self.calls.values().map(|parked| &**parked)
    }

    /// A waiting call.
    pub fn get(&self, ticket: Ticket) -> Option<&Parked> {
        self.calls.get(&ticket).map(|parked| &**parked)
    }

    /// Issues the ticket of a call about to be queued, behind all present calls.
    pub(crate) fn issue(&mut self) -> Ticket {
        let ticket = self.last.map_or(Ticket::FIRST, Ticket::next);
        self.last = Some(ticket);
        ticket
    }

    /// Queues a call.
    pub(crate) fn add(&mut self, parked: Box<Parked>) {
        let ticket = parked.ticket;
        self.len += 1;
        self.blocking += usize::from(parked.mode != Mode::Beside);
        let queues = self.queues.entry(parked.db).or_default();
        for (key, want) in parked.wants() {
            // A key that is named twice counts once.
            queues.entry(key.into()).or_default().waiting[want as usize].insert(ticket);
        }
        if let Some(at_ms) = parked.due_ms() {
            self.deadlines.insert((at_ms, ticket));
        }
        self.calls.insert(ticket, parked);
    }

    /// Takes a call out, to dispatch it again or to reply. It keeps its places in the queues until it is
    /// [put](Self::put) back or [removed](Self::remove).
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Box<Parked>> {
        self.calls.remove(&ticket)
    }

    /// Puts back a taken call, which waits on.
    pub(crate) fn put(&mut self, parked: Box<Parked>) {
        self.calls.insert(parked.ticket, parked);
    }

    /// Removes a taken call from all queues.
    pub(crate) fn remove(&mut self, parked: &Parked) {
        self.len -= 1;
        self.blocking -= usize::from(parked.mode != Mode::Beside);
        // Also for calls that wait for no key: WAIT.
        if let Some(at_ms) = parked.due_ms() {
            self.deadlines.remove(&(at_ms, parked.ticket));
        }
        let Some(by_key) = self.queues.get_mut(&parked.db) else { return };
        for (key, want) in parked.wants() {
            let Some(queues) = by_key.get_mut(key) else { continue };
            queues.waiting[want as usize].remove(&parked.ticket);
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

    /// Sets when a waiting call is dispatched again although no key was touched, by the steady clock.
    pub(crate) fn retry_at(&mut self, ticket: Ticket, at_ms: Option<i64>) {
        let Some(parked) = self.calls.get_mut(&ticket).filter(|parked| parked.retry_at_ms != at_ms) else { return };
        if let Some(due_ms) = parked.due_ms() {
            self.deadlines.remove(&(due_ms, ticket));
        }
        parked.retry_at_ms = at_ms;
        if let Some(due_ms) = parked.due_ms() {
            self.deadlines.insert((due_ms, ticket));
        }
    }

    /// Lets a call wait for as long as it takes: its result is on its way.
    pub(crate) fn lift_deadline(&mut self, ticket: Ticket) {
        let Some(parked) = self.calls.get_mut(&ticket) else { return };
        if let Some(due_ms) = parked.due_ms() {
            self.deadlines.remove(&(due_ms, ticket));
        }
        parked.deadline_ms = None;
        if let Some(due_ms) = parked.due_ms() {
            self.deadlines.insert((due_ms, ticket));
        }
    }

    /// Whether a key with waiting calls was touched.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Notes that a key was touched.
    pub(crate) fn touch(&mut self, db: DbIndex, key: &[u8]) {
        let Some(queues) = self.queues.get_mut(&db).and_then(|by_key| by_key.get_mut(key)) else { return };
        if !std::mem::replace(&mut queues.ready, true) {
            self.ready.push_back(Ready { db, key: key.into() });
        }
    }

    /// Notes that every key of a database may have changed.
    pub(crate) fn touch_database(&mut self, db: DbIndex) {
        let Some(by_key) = self.queues.get_mut(&db) else { return };
        for (key, queues) in by_key {
            if !std::mem::replace(&mut queues.ready, true) {
                self.ready.push_back(Ready { db, key: key.clone() });
            }
        }
    }

    /// Takes the next touched key.
    pub(crate) fn take_ready(&mut self) -> Option<Ready> {
        let ready = self.ready.pop_front()?;
        if self.ready.is_empty() && self.ready.capacity() > READY_KEEP {
            self.ready = VecDeque::new();
        }
        if let Some(queues) = self.queues.get_mut(&ready.db).and_then(|by_key| by_key.get_mut(&ready.key)) {
            queues.ready = false;
        }
        Some(ready)
    }

    /// Frees memory kept for touched keys that were served.
    pub(crate) fn give_back(&mut self) {
        fit_queue(&mut self.ready);
        fit_queue(&mut self.put_off);
    }

    /// Leaves a [taken](Self::take_ready) key to a later slice.
    pub(crate) fn put_off(&mut self, ready: Ready) {
        let queues = self.queues.get_mut(&ready.db).and_then(|by_key| by_key.get_mut(&ready.key));
        if queues.is_some_and(|queues| !std::mem::replace(&mut queues.put_off, true)) {
            self.put_off.push_back(ready);
        }
    }

    /// Takes the next key that an earlier slice left.
    pub(crate) fn take_put_off(&mut self) -> Option<Ready> {
        let ready = self.put_off.pop_front()?;
        if self.put_off.is_empty() && self.put_off.capacity() > READY_KEEP {
            self.put_off = VecDeque::new();
        }
        if let Some(queues) = self.queues.get_mut(&ready.db).and_then(|by_key| by_key.get_mut(&ready.key)) {
            queues.put_off = false;
        }
        Some(ready)
    }

    /// Whether a touched key is left to serve, now or in a later slice.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_ready() || !self.put_off.is_empty()
    }

    /// Returns the longest waiting call of a queue; with `after`, among the calls that came later than `after`.
    pub(crate) fn next_after(&self, ready: &Ready, want: Want, after: Option<Ticket>) -> Option<Ticket> {
        let queue = self.queue(ready.db, &ready.key, want)?;
        let from = after.map_or(Ticket::FIRST, Ticket::next);
        queue.range(from..).next().copied()
    }

    /// How many calls of a queue wait for a key.
    pub(crate) fn waiting(&self, db: DbIndex, key: &[u8], want: Want) -> usize {
        self.queue(db, key, want).map_or(0, BTreeSet::len)
    }

    /// The calls of a queue that wait for a key, the longest waiting first.
    pub(crate) fn waiters(&self, db: DbIndex, key: &[u8], want: Want) -> impl Iterator<Item = &Parked> {
        self.queue(db, key, want).into_iter().flatten().filter_map(|ticket| self.get(*ticket))
    }

    /// The longest waiting call of a queue.
    pub(crate) fn first(&self, db: DbIndex, key: &[u8], want: Want) -> Option<Ticket> {
        self.queue(db, key, want)?.first().copied()
    }

    fn queue(&self, db: DbIndex, key: &[u8], want: Want) -> Option<&BTreeSet<Ticket>> {
        Some(&self.queues.get(&db)?.get(key)?.waiting[want as usize])
    }

    /// When the next call times out or must be dispatched again, by the steady clock.
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.first().map(|(at_ms, _)| *at_ms)
    }

    /// Returns a call whose time has come.
    pub(crate) fn due(&self, now_ms: i64) -> Option<Ticket> {
        self.deadlines.first().filter(|(at_ms, _)| *at_ms <= now_ms).map(|(_, ticket)| *ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_touched_keys_is_given_back_when_none_is_left() {
        let mut waits = Waits::default();
        let ready = |count: usize| (0..count).map(|_| Ready { db: 0, key: (*b"key").into() });
        waits.ready.extend(ready(READY_KEEP / 2));
        waits.put_off.extend(ready(READY_KEEP / 2));
        while waits.take_ready().is_some() {}
        waits.give_back();
        assert_eq!(waits.put_off.len(), READY_KEEP / 2);
        while waits.take_put_off().is_some() {}
        waits.give_back();
        let rooms = [&waits.ready, &waits.put_off].map(VecDeque::capacity);
        assert!(rooms.iter().all(|room| *room < 100), "{rooms:?}");
    }
}
