//! Transactions: what MULTI queues and what WATCH guards.
//!
//! A watched key is registered with the database and name it had; the observer of a unit's effects marks every session that
//! watches a touched key. Whether the key existed at WATCH tells whether emptying its database changed it.

use std::collections::HashMap;

use super::Server;
use super::session::{Gate, Session, SessionKey, Watched};
use super::table::Entry;
use crate::keyspace::{DbIndex, Keyspace};
use crate::resp::request::{Argv, OwnedArgv};

/// Commands queued since MULTI.
#[derive(Default)]
pub struct Transaction {
    /// The queue.
    pub commands: Vec<(&'static Entry, OwnedArgv)>,
    /// A command was refused when it was queued: EXEC will abort.
    pub broken: bool,
    bytes: usize,
}

impl Transaction {
    /// Queues a command. Once the transaction is broken nothing of it will run, so nothing is kept.
    pub fn push(&mut self, entry: &'static Entry, argv: Argv<'_>) {
        if !self.broken {
            let argv = OwnedArgv::from_argv(argv);
            self.bytes += argv.bytes();
            self.commands.push((entry, argv));
        }
    }

    /// Bytes held by the queue.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Who watches what.
#[derive(Default)]
pub struct Watches {
    by_key: HashMap<(DbIndex, Box<[u8]>), Vec<SessionKey>>,
}

impl Watches {
    /// Whether nobody watches anything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Lets a session watch a key of its database. Watching twice counts once.
    pub fn add(&mut self, session: &mut Session, key: &[u8], existed: bool) {
        let db = session.db;
        if session.watched.iter().any(|watched| watched.db == db && *watched.key == *key) {
            return;
        }
        self.by_key.entry((db, key.into())).or_default().push(session.key);
        session.watched.push(Watched { db, key: key.into(), existed });
    }

    /// Ends all watching of a session.
    pub fn clear(&mut self, session: &mut Session) {
        session.watch_dirty = false;
        for watched in session.watched.drain(..) {
            let at = (watched.db, watched.key);
            if let Some(watchers) = self.by_key.get_mut(&at) {
                watchers.retain(|watcher| *watcher != session.key);
                if watchers.is_empty() {
                    self.by_key.remove(&at);
                }
            }
        }
    }

    /// Who watches this key.
    pub fn of(&self, db: DbIndex, key: &[u8]) -> &[SessionKey] {
        // Boxing the key for the lookup costs an allocation, but only while somebody watches something.
        self.by_key.get(&(db, Box::from(key))).map_or(&[], Vec::as_slice)
    }
}

impl Server {
    /// Drops what a session has queued and watched.
    pub fn discard(&mut self, session: &mut Session) {
        session.transaction = None;
        session.gate.set(Gate::QUEUEING, false);
        self.watches.clear(session);
    }
}

impl Session {
    /// Notes that a key it watches has changed. A key that was absent at WATCH and now is deleted was there but expired, so
    /// that nothing has changed: had it been created since, it would have been noted then.
    pub(super) fn watched_changed(&mut self, db: DbIndex, key: &[u8], is_deletion: bool) {
        let was_absent = |watched: &Watched| watched.db == db && *watched.key == *key && !watched.existed;
        if !(is_deletion && self.watched.iter().any(was_absent)) {
            self.watch_dirty = true;
        }
    }

    /// Whether a watched key was there at WATCH and has expired since.
    pub fn watched_key_expired(&self, ks: &mut Keyspace) -> bool {
        self.watched.iter().any(|watched| watched.existed && ks.find_untouched(watched.db, &watched.key).is_none())
    }

    /// Marks the transaction as changed under the session's feet if it watches a key of `db` that existed, or exists now.
    pub(super) fn touch_database(&mut self, db: DbIndex, exists: impl Fn(&[u8]) -> bool) {
        self.watch_dirty |=
            self.watched.iter().any(|watched| watched.db == db && (watched.existed || exists(&watched.key)));
    }
}
