//! What happens after a unit, in one written order: WATCH learns what was touched, then those who wait.
//!
//! Observers read the unit's effects and nothing else. While nobody watches or waits, the effects are not even recorded.

use super::Server;
use super::session::Session;
use crate::keyspace::effect::Effect;
use crate::keyspace::{DbIndex, Keyspace};

impl Server {
    /// Whether anybody would read the effects of the unit that begins.
    #[inline]
    pub(super) fn observes(&self) -> bool {
        !self.watches.is_empty() || !self.waits.is_empty()
    }

    /// Shows a finished unit's effects to the observers. `out` are the sessions that are out of the registry and
    /// must be told too.
    pub(super) fn observe(&mut self, ks: &Keyspace, out: &mut [&mut Session]) {
        for (db, effect) in ks.effects().iter().filter(|(_, effect)| effect.is_change()) {
            match effect.keys(db) {
                Some(keys) => {
                    let is_deletion = matches!(effect, Effect::Del { .. });
                    for (db, key) in keys.into_iter().flatten() {
                        self.touched(out, db, key, is_deletion);
                    }
                }
                None => {
                    self.touched_database(ks, out, db);
                    if let Effect::Swap { with_db } = effect {
                        self.touched_database(ks, out, with_db);
                    }
                }
            }
        }
    }

    fn touched(&mut self, out: &mut [&mut Session], db: DbIndex, key: &[u8], is_deletion: bool) {
        if !self.watches.is_empty() {
            for watcher in self.watches.of(db, key) {
                match self.sessions.get_mut(*watcher) {
                    Some(session) => session.watched_changed(db, key, is_deletion),
                    None => {
                        if let Some(session) = out.iter_mut().find(|session| session.key == *watcher) {
                            session.watched_changed(db, key, is_deletion);
                        }
                    }
                }
            }
        }
        if !self.waits.is_empty() {
            self.waits.touch(db, key);
        }
    }

    fn touched_database(&mut self, ks: &Keyspace, out: &mut [&mut Session], db: DbIndex) {
        let exists = |key: &[u8]| ks.is_live(db, key);
        self.sessions.iter_mut().for_each(|session| session.touch_database(db, exists));
        out.iter_mut().for_each(|session| session.touch_database(db, exists));
        self.waits.touch_database(db);
    }
}
