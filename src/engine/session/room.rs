//! Room for unsent replies: what all clients together may leave unread.
//!
//! Beyond [`OUTBOX_TOTAL_PAUSE_BYTES`] two things keep what is held from growing. Of a client that holds more than its share
//! nothing more is read. And a command that only reads, and would answer more than a client's least share, is taken back: it
//! runs again when there is room. Others are answered meanwhile.
//!
//! Who waits so depends on others to read. Those who hold most do not stay for ever: one of them is closed each time
//! [`ROOM_PATIENCE`] is over and there still is no room.

use super::{Restrictions, Session};
use crate::base::limits::{OUTBOX_LEAST_SHARE_BYTES, OUTBOX_TOTAL_PAUSE_BYTES, ROOM_PATIENCE};
use crate::engine::state::{Entry, Origin, ServerState};
use crate::spec::Flags;
use crate::spec::session_key::SessionKey;

/// The unsent bytes of all clients together, and since when a client waits for room.
#[derive(Debug, Default)]
pub(in crate::engine) struct Room {
    /// Bytes that the outboxes of all sessions hold, as far as [`ServerState::count_unsent`] was told.
    pub(in crate::engine) held: usize,
    /// The command that has just run is to run again.
    pub(in crate::engine) takes_back: bool,
    /// Since when somebody waits, by the steady clock.
    pub(in crate::engine) missed_since_ms: Option<i64>,
}

impl Room {
    #[inline]
    pub(in crate::engine) fn is_full(&self) -> bool {
        self.held > OUTBOX_TOTAL_PAUSE_BYTES
    }

    /// Whether the command that has just run was taken back. Asked once.
    #[inline]
    pub(in crate::engine) fn has_taken_back(&mut self) -> bool {
        std::mem::take(&mut self.takes_back)
    }
}

impl ServerState {
    /// The most bytes that a call may answer now, if it is one that can be taken back.
    #[inline]
    pub(in crate::engine) fn room_for(&self, entry: &Entry, origin: Origin, session: &Session) -> Option<usize> {
        if !self.clients.room.is_full() {
            return None;
        }
        let flags = entry.command.flags;
        let only_reads = flags.has(Flags::READONLY) && !flags.has(Flags::NOSCRIPT | Flags::BLOCKING);
        let can_run_again = origin == Origin::Client && only_reads && !session.restrictions.has(Restrictions::MUTED);
        can_run_again.then_some(OUTBOX_LEAST_SHARE_BYTES)
    }

    /// The call that has just run found no room for its answer, and is to run again.
    #[cold]
    pub(in crate::engine) fn take_back(&mut self) {
        self.clients.room.takes_back = true;
        self.clients.room.missed_since_ms.get_or_insert(self.time.clock.steady_ms());
    }

    /// Whether there is no room for what a client that has asked for a transfer is to be sent next. Then it is woken when there is.
    pub fn has_no_room_for(&mut self, key: SessionKey) -> bool {
        if !self.clients.room.is_full() {
            return false;
        }
        self.clients.room.missed_since_ms.get_or_insert(self.time.clock.steady_ms());
        if let Some(session) = self.clients.sessions.get_mut(key) {
            session.waits_for_room = true;
        }
        true
    }

    /// Counts what a session's outbox holds now among what all hold. Told whenever it may have become much, or was much.
    #[inline]
    pub fn count_unsent(&mut self, key: SessionKey) {
        let Some(session) = self.clients.sessions.get_mut(key) else { return };
        let held = session.outbox.held();
        let counted = std::mem::replace(&mut session.counted_unsent, held);
        if held != counted {
            self.recount_unsent(counted, held);
        }
        self.weigh(key);
    }

    pub(in crate::engine) fn recount_unsent(&mut self, counted: usize, held: usize) {
        let was_full = self.clients.room.is_full();
        self.clients.room.held = self.clients.room.held - counted + held;
        if was_full && !self.clients.room.is_full() {
            self.clients.room.missed_since_ms = None;
            for session in self.clients.sessions.iter_mut() {
                // Those who had to wait for it may be read from again, or run what was taken back.
                if std::mem::take(&mut session.waits_for_room) || !session.outbox.is_empty() {
                    session.outbox.wake();
                }
            }
        }
    }

    /// Whether a client whose outbox holds so much must read some of it first, because all clients together hold too much.
    #[inline]
    pub fn is_over_share(&self, held: usize) -> bool {
        let share = || OUTBOX_LEAST_SHARE_BYTES.max(OUTBOX_TOTAL_PAUSE_BYTES / self.clients.sessions.len().max(1));
        self.clients.room.is_full() && held > share()
    }

    /// Closes the client that holds most if others have waited for room for too long.
    pub(in crate::engine) fn make_room(&mut self, steady_ms: i64) {
        let is_over = |since_ms| steady_ms - since_ms > ROOM_PATIENCE.as_millis() as i64;
        if !self.clients.room.missed_since_ms.is_some_and(is_over) {
            return;
        }
        self.clients.room.missed_since_ms = Some(steady_ms);
        let (safe, is_unlogged) = (self.persistence.safe(), self.persistence.is_unlogged(&self.config));
        let can_read = |session: &mut Session| session.outbox.unread(safe, is_unlogged) > 0;
        let readers = self.clients.sessions.iter_mut().filter_map(|session| can_read(session).then_some(session));
        let Some(most) = readers.max_by_key(|session| session.counted_unsent) else { return };
        tracing::warn!(
            client = most.key.id,
            unsent = most.counted_unsent,
            "closed: does not read its output, and others wait for the memory"
        );
        most.kill();
        self.meters.stats.output_limit_disconnections += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;
    use crate::base::lsn::Lsn;
    use crate::base::rng::Rng;
    use crate::config::Config;
    use crate::engine::session::Peer;
    use crate::engine::{CommandTable, Engine};

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
            assert!(engine.server.has_no_room_for(key));
            engine.server.clients.sessions.get_mut(key).expect("it is connected").outbox.push(b"unread", Lsn::NONE);
            engine.tick();
            engine.server.clients.sessions.get_mut(key).expect("its task has not run").killed
        };
        let patience_ms = ROOM_PATIENCE.as_millis() as i64;
        assert!(!is_closed(0, 0));
        assert!(!is_closed(HOUR_MS, patience_ms));
        assert!(is_closed(-2 * HOUR_MS, 1));
    }
}
