//! What WATCH guards.
//!
//! A watched key is registered with the database and name it had; the observer of a unit's effects marks every session that
//! watches a touched key. Whether the key existed at WATCH tells whether emptying its database changed it.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::base::fit::fit_map;
use crate::engine::session::{Session, Watched};
use crate::keyspace::{DbIndex, Keyspace};
use crate::spec::session_key::SessionKey;

/// Watched keys for which a session keeps room.
const WATCHED_KEEP: usize = 64;

/// Bytes that it takes to watch a key beside its name, about: who watches it, and what the session knows of it.
const WATCHED_BYTES: usize = size_of::<Watched>() + size_of::<(Rc<[u8]>, Watchers)>() + 2 * size_of::<usize>();

/// Who watches one key, and whether it existed when they began.
type Watchers = BTreeMap<SessionKey, bool>;

/// Who watches what.
#[derive(Default)]
pub struct Watches {
    /// By database, then key: a touched key is looked up without being copied.
    by_db: HashMap<DbIndex, HashMap<Rc<[u8]>, Watchers>>,
}

impl Watches {
    /// Whether nobody watches anything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_db.is_empty()
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.by_db.values().map(HashMap::len).sum()
    }

    /// Lets a session watch a key of its database. Watching twice counts once.
    pub(in crate::engine) fn add(&mut self, session: &mut Session, key: &[u8], existed: bool) {
        let keys = self.by_db.entry(session.db).or_default();
        let key: Rc<[u8]> = match keys.get_key_value(key) {
            Some((known, _)) => known.clone(),
            None => key.into(),
        };
        let watchers = keys.entry(key.clone()).or_default();
        if let Place::Vacant(place) = watchers.entry(session.key) {
            place.insert(existed);
            session.watched_bytes += WATCHED_BYTES + key.len();
            session.watched.push(Watched { db: session.db, key });
        }
    }

    /// Ends all watching of a session. Answers whether it watched anything.
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

    /// Whose transaction a change of this key ends. A key that was absent at WATCH and now is deleted was there but expired,
    /// so that nothing has changed: had it been created since, it would have been noted then.
    pub(in crate::engine) fn of(&self, db: DbIndex, key: &[u8], is_deletion: bool) -> impl Iterator<Item = SessionKey> {
        let watchers = self.by_db.get(&db).and_then(|keys| keys.get(key)).into_iter().flatten();
        watchers.filter(move |(_, existed)| **existed || !is_deletion).map(|(session, _)| *session)
    }

    /// Whose transaction ends when all keys of a database are replaced: who watches one that existed, or `exists` now.
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

    /// Whether time has changed a key that the session watches, and nobody has met that: it was there at WATCH and has expired since, or
    /// it is a stream of which a delayed message is due.
    pub fn any_overdue(&self, session: &Session, ks: &Keyspace) -> bool {
        session.watched.iter().any(|Watched { db, key }| {
            let existed = self.by_db.get(db).and_then(|keys| keys.get(key)?.get(&session.key));
            (existed == Some(&true) && ks.live(*db, key).is_none()) || ks.has_due_message(*db, key)
        })
    }
}
