//! All connections and the memory they take together.

use std::sync::Arc;
use std::time::Duration;

use super::pause::Pause;
use super::registry::Registry;
use super::{Restrictions, Sessions};
use crate::base::lsn::Lsn;
use crate::config::Config;
use crate::meters::stats::Stats;
use crate::session::limits::OUTBOX_TOTAL_PAUSE_BYTES;
use crate::spec::session_key::SessionKey;

/// The connections and the memory they take together.
#[derive(Default)]
pub struct Clients {
    /// All sessions but the one whose command runs.
    pub sessions: Sessions,
    /// Facts of clients that other threads may read.
    pub registry: Arc<Registry>,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Unsent bytes of all clients together.
    pub(crate) room: Room,
    /// Sessions whose unsent output grew and must be held against its limit.
    pub(crate) limits_due: Vec<SessionKey>,
    /// Most bytes that all clients together may hold; 0 for no limit.
    pub(super) limit: u64,
    /// Bytes that all clients together hold, as far as they were weighed.
    pub(super) bytes: u64,
}

/// The unsent bytes of all clients together, and since when a client waits for room.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Bytes that the outboxes of all sessions hold, as far as [`Clients::count_unsent`] was told.
    pub(crate) held: usize,
    /// The last command was withdrawn and must run again.
    pub(crate) must_rerun: bool,
    /// Since when a client waits for room, by the steady clock.
    pub(crate) missed_since_ms: Option<i64>,
}

impl Room {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.held > OUTBOX_TOTAL_PAUSE_BYTES
    }

    /// Whether the last command was withdrawn and must run again. Asking resets the answer.
    #[inline]
    pub(crate) fn take_must_rerun(&mut self) -> bool {
        std::mem::take(&mut self.must_rerun)
    }
}

impl Clients {
    /// Makes an empty set of clients that may hold `limit` bytes together; 0 for no limit.
    pub(crate) fn new(limit: u64) -> Clients {
        Clients { limit, ..Clients::default() }
    }

    /// Closes clients that have sent no command for `timeout` seconds and wait for no reply. The console ends its
    /// connections by itself.
    pub(crate) fn close_idle(&mut self, config: &Config, stats: &Stats, safe: Lsn) {
        if config.timeout_s == 0 {
            return;
        }
        let timeout = Duration::from_secs(config.timeout_s.into());
        let (clock, now_ticks) = (&stats.clock, stats.clock.raw());
        for session in self.sessions.iter_mut() {
            let waits_for_log = session.outbox.sendable(safe) < session.outbox.len();
            let waits = waits_for_log
                || session.is_blocked()
                || session.tickets.is_some()
                || session.transfer.is_some()
                || session.is_monitor
                || !session.subscriptions.is_empty();
            if !waits && !session.is_inside && clock.delta(session.active_ticks, now_ticks) > timeout {
                session.kill();
            }
        }
    }

    /// Sets the restrictions that follow from this node's role in its group.
    pub(crate) fn set_role(&mut self, of_all: Restrictions) {
        let of_role = Restrictions::OF_ROLE;
        for session in self.sessions.iter_mut() {
            session.restrict(of_role, false);
            session.restrict(of_all & of_role, true);
        }
    }

    /// Updates in all sessions whether the journal, or its substitute, takes changes.
    pub(crate) fn set_unlogged(&mut self, is_unlogged: bool) {
        for session in self.sessions.iter_mut() {
            session.restrict(Restrictions::UNLOGGED, is_unlogged);
        }
    }

    /// Updates in all sessions whether enough nodes follow this one.
    pub(crate) fn set_short_of_followers(&mut self, is_short: bool) {
        for session in self.sessions.iter_mut() {
            session.restrict(Restrictions::FEW_FOLLOWERS, is_short);
        }
    }
}
