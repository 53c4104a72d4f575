//! Waiting: one mechanism for every command that blocks.
//!
//! A handler that can't answer yet says [`Wait`]: for which keys and until when. Its session is parked with the whole
//! command in a first-come-first-served queue per key. When a unit's effects touch such a key, the parked call is
//! dispatched again from the start, and answers or waits on. In a script or EXEC nothing waits: the call times out at once.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::session::{Session, SessionKey};
use super::table::Entry;
use crate::keyspace::DbIndex;
use crate::resp::reply::Reply;
use crate::resp::request::OwnedArgv;

/// Why a call can't be answered yet.
#[derive(Debug)]
pub struct Wait {
    /// The keys of which any may end the waiting.
    pub keys: OwnedArgv,
    /// When waiting ends without a result, Unix ms; `None`: never.
    pub deadline_ms: Option<i64>,
    /// What is answered then.
    pub on_timeout: fn(&mut Reply),
    /// The command to dispatch again, when it is not the one that came (XREAD resolves `$` once).
    pub again: Option<OwnedArgv>,
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
    pub keys: OwnedArgv,
    /// See [`Wait`].
    pub deadline_ms: Option<i64>,
    /// See [`Wait`].
    pub on_timeout: fn(&mut Reply),
}

/// Who waits for what.
#[derive(Default)]
pub struct Waits {
    queues: HashMap<(DbIndex, Box<[u8]>), VecDeque<SessionKey>>,
    deadlines: BTreeMap<(i64, SessionKey), ()>,
    /// Keys that were touched and have a queue.
    ready: VecDeque<(DbIndex, Box<[u8]>)>,
    parked: usize,
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

    /// How many keys somebody waits for.
    pub fn keys(&self) -> usize {
        self.queues.len()
    }

    /// Queues a call.
    pub fn park(&mut self, session: SessionKey, parked: &Parked) {
        self.parked += 1;
        for key in parked.keys.as_argv().iter() {
            let queue = self.queues.entry((parked.db, key.into())).or_default();
            if !queue.contains(&session) {
                queue.push_back(session);
            }
        }
        if let Some(at_ms) = parked.deadline_ms {
            self.deadlines.insert((at_ms, session), ());
        }
    }

    /// Takes a call out of all queues.
    pub fn unpark(&mut self, session: SessionKey, parked: &Parked) {
        self.parked -= 1;
        for key in parked.keys.as_argv().iter() {
            let at = (parked.db, Box::from(key));
            if let Some(queue) = self.queues.get_mut(&at) {
                queue.retain(|waiting| *waiting != session);
                if queue.is_empty() {
                    self.queues.remove(&at);
                }
            }
        }
        if let Some(at_ms) = parked.deadline_ms {
            self.deadlines.remove(&(at_ms, session));
        }
    }

    /// Ends a session's waiting with an answer made by `answer`; false when it was not waiting.
    pub fn end(&mut self, session: &mut Session, answer: impl FnOnce(&Parked, &mut Reply)) -> bool {
        let Some(parked) = session.parked.take() else { return false };
        self.unpark(session.key, &parked);
        let mut reply = Reply::new(session.form());
        answer(&parked, &mut reply);
        session.outbox.push(reply.as_bytes());
        true
    }

    /// Notes that a key was touched.
    pub fn touch(&mut self, db: DbIndex, key: &[u8]) {
        let at = (db, Box::from(key));
        if self.queues.contains_key(&at) && !self.ready.contains(&at) {
            self.ready.push_back(at);
        }
    }

    /// Notes that every key of a database may have changed.
    pub fn touch_database(&mut self, db: DbIndex) {
        let keys: Vec<_> = self.queues.keys().filter(|(of, _)| *of == db).map(|(_, key)| key.clone()).collect();
        keys.iter().for_each(|key| self.touch(db, key));
    }

    /// Takes a touched key with those who wait for it, the longest waiting first.
    pub fn take_ready(&mut self) -> Option<Vec<SessionKey>> {
        loop {
            let at = self.ready.pop_front()?;
            if let Some(queue) = self.queues.get(&at) {
                return Some(queue.iter().copied().collect());
            }
        }
    }

    /// Whether a touched key is still to be looked at.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next call times out, Unix ms.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.keys().next().map(|(at_ms, _)| *at_ms)
    }

    /// A call that has timed out.
    pub fn due(&self, now_ms: i64) -> Option<SessionKey> {
        self.deadlines.keys().next().filter(|(at_ms, _)| *at_ms <= now_ms).map(|(_, session)| *session)
    }
}
