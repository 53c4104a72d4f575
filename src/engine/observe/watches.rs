//! The keys guarded by WATCH.
//!
//! A watched key is registered with the database and name it had; the observer of a unit's effects marks every session
//! that watches a touched key. Whether the key existed at WATCH tells whether emptying its database changed it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::base::fit::fit_map;
use crate::keyspace::{DbIndex, Keyspace};
use crate::session::{Session, Watched};
use crate::spec::session_key::SessionKey;

/// The number of watched keys for which a session keeps its memory.
const WATCHED_KEEP: usize = 64;

/// Approximate bytes held for a watched key besides its name: in the table and in the session.
const WATCHED_BYTES: usize = size_of::<Watched>() + size_of::<(Rc<[u8]>, Watchers)>() + 2 * size_of::<usize>();

/// The watchers of one key, each with whether the key existed at its WATCH.
type Watchers = BTreeMap<SessionKey, bool>;

/// The watchers of all keys.
#[derive(Default)]
pub struct Watches {
    /// By database, then key: a touched key is looked up without being copied.
    by_db: HashMap<DbIndex, HashMap<Rc<[u8]>, Watchers>>,
}

impl Watches {
    /// Whether no key is watched.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_db.is_empty()
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.by_db.values().map(HashMap::len).sum()
    }

    /// Makes a session watch a key of its database. Watching twice counts once.
    pub(in crate::engine) fn add(&mut self, session: &mut Session, key: &[u8], existed: bool) {
        let keys = self.by_db.entry(session.db).or_default();
        let key: Rc<[u8]> = match keys.get_key_value(key) {
            Some((known, _)) => known.clone(),
            None => key.into(),
        };
        let watchers = keys.entry(key.clone()).or_default();
        if let Entry::Vacant(place) = watchers.entry(session.key) {
            place.insert(existed);
            session.watched_bytes += WATCHED_BYTES + key.len();
            session.watched.push(Watched { db: session.db, key });
        }
    }

    /// Unwatches all keys of a session. Returns whether it watched any.
    pub(in crate::engine) fn clear(&mut self, session: &mut Session) -> bool {
        session.watch_dirty = false;
        if session.watched.is_empty() {
            return false;
        }
        session.watched_bytes = 0;
        for Watched { db, key } in session.watched.drain(..) {
            let Some(keys) = self.by_db.get_mut(&db) else { continue };
            let Some(watchers) = keys.get_mut(&key) else { continue };
            watchers.remove(&session.key);
            if watchers.is_empty() {
                keys.remove(&key);
                if keys.is_empty() {
                    self.by_db.remove(&db);
                } else {
                    fit_map(keys);
                }
            }
        }
        session.watched.shrink_to(WATCHED_KEEP);
        true
    }

    /// Returns the sessions whose transaction a change of this key aborts. A key that was absent at WATCH and is
    /// deleted now existed but was expired, so nothing has changed: a later creation would have been noted then.
    pub(in crate::engine) fn of(&self, db: DbIndex, key: &[u8], is_deletion: bool) -> impl Iterator<Item = SessionKey> {
        let watchers = self.by_db.get(&db).and_then(|keys| keys.get(key)).into_iter().flatten();
        watchers.filter(move |(_, existed)| **existed || !is_deletion).map(|(session, _)| *session)
    }

    /// Returns the sessions whose transaction aborts when all keys of a database are replaced: those that watch a key
    /// that existed, or that `exists` now.
    pub(in crate::engine) fn of_database(
        &self,
        db: DbIndex,
        exists: impl Fn(&[u8]) -> bool,
    ) -> impl Iterator<Item = SessionKey> {
        let keys = self.by_db.get(&db).into_iter().flatten();
        keys.flat_map(move |(key, watchers)| {
            let exists = exists(key);
            watchers.iter().filter(move |(_, existed)| **existed || exists).map(|(session, _)| *session)
        })
    }

    /// Whether time has changed a key that the session watches, without any effect yet: the key existed at WATCH and
    /// has expired since, or it is a stream with a due delayed message.
    pub fn any_overdue(&self, session: &Session, ks: &Keyspace) -> bool {
        session.watched.iter().any(|Watched { db, key }| {
            let existed = self.by_db.get(db).and_then(|keys| keys.get(key)?.get(&session.key));
            (existed == Some(&true) && ks.live(*db, key).is_none()) || ks.has_due_message(*db, key)
        })
    }
}
