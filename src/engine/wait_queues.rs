//! Who waits for which key, in which order, and until when. What waiting is says [`super::wait`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::session::SessionKey;
use super::wait::{Parked, Want};
use crate::base::fit::fit_map;
use crate::keyspace::DbIndex;

/// Touched keys for which room is kept.
const READY_KEEP: usize = 1_024;

/// Who waits for one key, by what they want. They never compete for the same thing. Each queue is ordered by ticket, so
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

    /// How many keys are waited for, and for how many of them by calls that mind if the key goes (XREADGROUP).
    pub fn keys(&self) -> (usize, usize) {
        let all = || self.queues.values().flat_map(HashMap::values);
        (all().count(), all().filter(|queues| !queues.waiting[Want::Group as usize].is_empty()).count())
    }

    /// Queues a call.
    pub(super) fn park(&mut self, session: SessionKey, parked: &mut Parked) {
        self.parked += 1;
        self.last_ticket += 1;
        parked.ticket = self.last_ticket;
        let queues = self.queues.entry(parked.db).or_default();
        for (key, want) in parked.wants() {
            // A key that is named twice counts once.
            queues.entry(key.into()).or_default().waiting[want as usize].insert(parked.ticket, session);
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

    /// Whether a key was touched for which somebody waits.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
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

    /// How many calls of a queue wait for a key.
    pub(crate) fn waiting(&self, db: DbIndex, key: &[u8], want: Want) -> usize {
        self.queue(db, key, want).map_or(0, BTreeMap::len)
    }

    /// Whose calls of a queue wait for a key, the longest waiting first.
    pub(crate) fn waiters(&self, db: DbIndex, key: &[u8], want: Want) -> impl Iterator<Item = SessionKey> {
        self.queue(db, key, want).into_iter().flat_map(BTreeMap::values).copied()
    }

    /// The longest waiting call of a queue.
    pub(super) fn first(&self, db: DbIndex, key: &[u8], want: Want) -> Option<SessionKey> {
        self.queue(db, key, want)?.first_key_value().map(|(_, session)| *session)
    }

    fn queue(&self, db: DbIndex, key: &[u8], want: Want) -> Option<&BTreeMap<u64, SessionKey>> {
        Some(&self.queues.get(&db)?.get(key)?.waiting[want as usize])
    }

    /// When the next call times out or is to be dispatched again, by the steady clock.
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.first().map(|(at_ms, _)| *at_ms)
    }

    /// A call of which that time has come.
    pub(super) fn due(&self, now_ms: i64) -> Option<SessionKey> {
        self.deadlines.first().filter(|(at_ms, _)| *at_ms <= now_ms).map(|(_, session)| *session)
    }
}
