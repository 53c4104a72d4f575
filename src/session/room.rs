//! Room for unsent replies: how much all clients together may leave unread.
//!
//! Above [`OUTBOX_TOTAL_PAUSE_BYTES`] two rules keep the unsent bytes from growing. The server reads nothing more from
//! a client that holds more than its share. And a read-only command whose reply would exceed a client's least share is
//! withdrawn: it runs again when there is room. Other commands are answered in the meantime.
//!
//! A client that waits for room depends on other clients to read. The clients that hold most do not stay for ever: one
//! of them is closed each time [`ROOM_PATIENCE`] is over and there still is no room. Replies of commands that write,
//! EXEC and scripts can't be withdrawn; if they go beyond [`OUTBOX_TOTAL_MAX_BYTES`], nobody waits.

use super::Session;
use super::clients::Clients;
use crate::meters::stats::Stats;
use crate::persist::fences::Reach;
use crate::session::limits::{
    OUTBOX_LEAST_SHARE_BYTES, OUTBOX_TOTAL_MAX_BYTES, OUTBOX_TOTAL_PAUSE_BYTES, ROOM_PATIENCE,
};
use crate::spec::session_key::SessionKey;

impl Clients {
    pub(crate) fn recount_unsent(&mut self, counted: usize, held: usize) {
        let was_full = self.room.is_full();
        self.room.held = self.room.held - counted + held;
        if was_full && !self.room.is_full() {
            self.room.missed_since_ms = None;
            for session in self.sessions.iter_mut() {
                // Clients that had to wait may be read from again, or run the command that was withdrawn.
                if session.end_wait_for_room() || !session.outbox.is_empty() {
                    session.outbox.wake();
                }
            }
        }
    }

    /// Whether a client whose outbox holds this much must read some of it first, because all clients together hold too
    /// much.
    #[inline]
    pub fn is_over_share(&self, held: usize) -> bool {
        let share = || OUTBOX_LEAST_SHARE_BYTES.max(OUTBOX_TOTAL_PAUSE_BYTES / self.sessions.len().max(1));
        self.room.is_full() && held > share()
    }

    /// Updates the sum over all clients by the current size of a session's outbox. Called whenever the outbox may have
    /// become large, or was large.
    #[inline]
    pub fn count_unsent(&mut self, stats: &mut Stats, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let held = session.outbox.held();
        let counted = std::mem::replace(&mut session.counted_unsent, held);
        if held != counted {
            self.recount_unsent(counted, held);
        }
        self.weigh(stats, key);
    }

    /// Notes that the last call found no room for its reply and must run again.
    #[cold]
    pub(crate) fn note_no_room(&mut self, steady_ms: i64) {
        self.room.must_rerun = true;
        self.room.missed_since_ms.get_or_insert(steady_ms);
    }

    /// Whether there is no room for the next part of a client's transfer. The client is woken once there is room.
    pub fn has_no_room_for(&mut self, steady_ms: i64, key: SessionKey) -> bool {
        if !self.room.is_full() {
            return false;
        }
        self.room.missed_since_ms.get_or_insert(steady_ms);
        if let Some(session) = self.sessions.get_mut(key) {
            session.wait_for_room();
        }
        true
    }

    /// Closes clients that do not read: the one that holds most if others have waited too long for room, and as many as
    /// it takes if all together hold too much.
    pub(crate) fn make_room(&mut self, stats: &mut Stats, reach: Reach, steady_ms: i64) {
        let is_over = |since_ms| steady_ms - since_ms > ROOM_PATIENCE.as_millis() as i64;
        if self.room.missed_since_ms.is_some_and(is_over) {
            self.room.missed_since_ms = Some(steady_ms);
            self.close_the_largest(stats, reach, |_| true, "others wait for the memory");
        }
        if self.room.held > OUTBOX_TOTAL_MAX_BYTES {
            // Messages pushed to a subscriber are subject only to the limit of its class.
            let asks = |session: &Session| session.subscriptions.is_empty() && !session.is_monitor;
            // The bytes of a closed client count until its connection is gone.
            let open = self.sessions.iter_mut().filter(|session| asks(session) && !session.is_killed());
            // Room that a buffer has reserved beyond its bytes takes no memory yet.
            let mut held: usize = open.map(|session| session.outbox.len()).sum();
            while held > OUTBOX_TOTAL_MAX_BYTES {
                let freed = self.close_the_largest(stats, reach, asks, "all together hold too much");
                let Some(freed) = freed else { break };
                held -= freed;
            }
        }
    }

    /// Of the clients that could read some of their bytes, closes the one that holds most. Returns the bytes that it
    /// held.
    fn close_the_largest(
        &mut self,
        stats: &mut Stats,
        reach: Reach,
        may_close: impl Fn(&Session) -> bool,
        why: &str,
    ) -> Option<usize> {
        let can_read = |session: &mut Session| !session.is_killed() && session.outbox.unread(reach) > 0;
        let readers = self.sessions.iter_mut().filter_map(|session| can_read(session).then_some(session));
        let most = readers.filter(|session| may_close(session)).max_by_key(|session| session.outbox.len())?;
        let unsent = most.outbox.len();
        tracing::warn!(client = most.key.id, unsent, "closed: does not read its output, and {why}");
        most.kill();
        stats.output_limit_disconnections += 1;
        Some(unsent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;
    use crate::base::lsn::Lsn;
    use crate::base::rng::Rng;
    use crate::config::Config;
    use crate::engine::{CommandTable, Engine};
    use crate::session::Peer;

    #[test]
    fn patience_does_not_follow_the_wall_clock() {
        const HOUR_MS: i64 = 3_600_000;
        let (clock, table) = (Clock::manual(1_000_000), Box::leak(Box::new(CommandTable::new(&[]))));
        let mut engine = Engine::new(Config::default(), table, clock.clone(), Rng::seeded(1)).expect("memory for Lua");
        let key = engine.server.open_session(Peer::default());
        let mut is_closed = |wall_ms: i64, ms: i64| {
            clock.set_wall_by_ms(wall_ms);
            clock.advance_ms(ms);
            engine.server.clients.room.held = OUTBOX_TOTAL_PAUSE_BYTES + 1;
            assert!(engine.server.clients.has_no_room_for(engine.server.time.clock.steady_ms(), key));
            engine.server.clients.sessions.get_mut(key).expect("it is connected").outbox.push(b"unread", Lsn::NONE);
            engine.tick();
            engine.server.clients.sessions.get_mut(key).expect("its task has not run").is_killed()
        };
        let patience_ms = ROOM_PATIENCE.as_millis() as i64;
        assert!(!is_closed(0, 0));
        assert!(!is_closed(HOUR_MS, patience_ms));
        assert!(is_closed(-2 * HOUR_MS, 1));
    }

    #[test]
    fn the_largest_are_closed_at_once_if_all_hold_too_much_together() {
        let (clock, table) = (Clock::manual(1_000_000), Box::leak(Box::new(CommandTable::new(&[]))));
        let mut engine = Engine::new(Config::default(), table, clock, Rng::seeded(1)).expect("memory for Lua");
        let shares = [1, 5, 2, 4, 3].map(|tenths| OUTBOX_TOTAL_MAX_BYTES / 10 * tenths);
        let keys = shares.map(|share| {
            let key = engine.server.open_session(Peer::default());
            let session = engine.server.clients.sessions.get_mut(key).expect("it is connected");
            session.outbox.append(&mut vec![0; share]);
            engine.server.clients.count_unsent(&mut engine.server.meters.stats, key);
            key
        });
        let mut closed = || {
            engine.tick();
            keys.map(|key| engine.server.clients.sessions.get_mut(key).expect("its task has not run").is_killed())
        };
        // They hold 15 tenths; without the largest, 10.
        assert_eq!(closed(), [false, true, false, false, false]);
        assert_eq!(closed(), [false, true, false, false, false]);
    }
}
