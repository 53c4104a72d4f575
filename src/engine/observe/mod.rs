//! The observers of a unit, in one written order: the journal takes its effects, then a running snapshot; then WATCH
//! learns the touched keys, then waiting calls, then caching clients.
//!
//! Observers read what the unit recorded and nothing else. Without a reader of whole effects a unit records only the
//! keys that it touched, and nothing while no client watches, waits or caches.

pub(crate) mod audience;
pub(crate) mod events;
pub(crate) mod group_events;
pub(crate) mod group_watch;
pub(crate) mod history;
pub(crate) mod invalidate;
pub(crate) mod monitor;
pub(crate) mod notify;
pub(crate) mod publish;
pub(crate) mod pubsub;
pub(crate) mod readers;
pub(crate) mod remember;
pub(crate) mod tracking;
pub(crate) mod watches;

use self::readers::Readers;
use crate::base::lsn::Lsn;
use crate::engine::observe::audience::Audience;
use crate::engine::state::ServerState;
use crate::keyspace::effect::Touch;
use crate::keyspace::{DbIndex, Keyspace};
use crate::log::limits::LOG_MERGE_MAX_BYTES;
use crate::persist::tail::UnitOrigin;
use crate::session::{Session, Sessions};
use crate::spec::session_key::SessionKey;
use crate::wait::wait_queues::Waits;

impl Audience {
    #[inline(never)]
    fn notify_touched(&mut self, sessions: &mut Sessions, waits: &mut Waits, ks: &Keyspace, out: &mut [&mut Session]) {
        for touch in ks.effects().touches() {
            match touch {
                Touch::Key { db, key, is_deletion, wakes } => {
                    self.touched(sessions, out, db, key, is_deletion);
                    if wakes && self.readers.intersects(Readers::WAIT) {
                        waits.touch(db, key);
                    }
                }
                Touch::Database(db) => self.touched_database(sessions, waits, ks, out, db),
            }
        }
    }

    fn touched(
        &mut self,
        sessions: &mut Sessions,
        out: &mut [&mut Session],
        db: DbIndex,
        key: &[u8],
        is_deletion: bool,
    ) {
        if self.readers.intersects(Readers::WATCH) {
            for watcher in self.watches.of(db, key, is_deletion) {
                mark_dirty(sessions, out, watcher);
            }
        }
    }

    fn touched_database(
        &mut self,
        sessions: &mut Sessions,
        waits: &mut Waits,
        ks: &Keyspace,
        out: &mut [&mut Session],
        db: DbIndex,
    ) {
        for watcher in self.watches.of_database(db, |key| ks.live(db, key).is_some()) {
            mark_dirty(sessions, out, watcher);
        }
        waits.touch_database(db);
    }
}

impl ServerState {
    /// Shows a finished unit's effects to the observers. `out` are the sessions that are out of the registry and must
    /// be notified too.
    #[inline(always)]
    pub(in crate::engine) fn observe(&mut self, origin: UnitOrigin, ks: &mut Keyspace, out: &mut [&mut Session]) {
        self.audience.assert_readers_are_known(&self.config, &self.persistence, &self.waits);
        let readers = self.audience.readers;
        if ks.effects().has_tallies() {
            self.audience.remember_grants(&mut self.meters.stats, origin, ks, out);
        }
        if !ks.effects().has_changes() {
            // Nothing has changed, but there are events to publish.
            return self.delivery().publish_events(ks, out);
        }
        let (mut is_long, mut fence) = (false, Lsn::NONE);
        match (&mut self.persistence.tail, &self.persistence.journal) {
            (Some(tail), journal) => {
                tail.append(origin, ks.effects().as_bytes(), ks.now_ms());
                is_long = tail.bytes.len() >= LOG_MERGE_MAX_BYTES;
                // There may be a tail before the journal begins, and no reply waits for it.
                if let Some(journal) = journal {
                    fence = journal.lsn_of(tail);
                    ks.mark_in_flight(fence);
                }
            }
            // The group has committed the unit before.
            (None, Some(journal)) if journal.is_follower() => {}
            // The journal failed during the unit: nothing will reach this Lsn.
            (None, Some(_)) => {
                fence = Lsn::MAX;
                ks.mark_in_flight(fence);
            }
            (None, None) => {}
        }
        if readers.intersects(Readers::SNAPSHOT) {
            self.persistence.saving.follow(origin, ks);
        }
        if readers.intersects(Readers::WATCH_OR_WAIT) {
            self.audience.notify_touched(&mut self.clients.sessions, &mut self.waits, ks, out);
        }
        if readers.intersects(Readers::TRACKING) {
            self.delivery().invalidate(ks, origin, fence, out);
        }
        if readers.intersects(Readers::USAGE) {
            ks.stamp_changes();
        }
        if readers.intersects(Readers::EVENTS) {
            self.delivery().publish_events(ks, out);
        }
        if is_long {
            // The block could not take much more.
            self.commit_units();
        }
    }
}

/// Makes a session's next EXEC fail, wherever the session is.
fn mark_dirty(sessions: &mut Sessions, out: &mut [&mut Session], key: SessionKey) {
    match sessions.get_mut(key) {
        Some(session) => session.watch_dirty = true,
        None => out.iter_mut().filter(|session| session.key == key).for_each(|session| session.watch_dirty = true),
    }
}
