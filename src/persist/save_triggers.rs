//! When a snapshot starts without a request. Whether writes are refused after a failure is decided in
//! [`fences`](super::fences).
//!
//! - Without a journal the points of `save` decide: after a number of seconds and of changes since the last snapshot.
//! - With a journal no data is at risk. A snapshot starts when the journal behind the last one has grown long
//!   (`auto-aof-rewrite-percentage`), so that a start need not read it; points of `save` apply, too. The nodes of a
//!   group take turns.
//! - A journal that `appendonly` requests while the server runs begins behind a snapshot.
//!
//! A failed snapshot is tried again. One for `save` is tried after 5 s, as in Redis; for `appendonly` and for a grown
//! journal that pause doubles with each failure.

use super::saving::{Home, Purpose, Run, Stage};
use super::{Env, Persistence};
use crate::config::Config;
use crate::keyspace::Keyspace;
use crate::persist::group::GroupLog;
use crate::persist::journal::Journal;
use crate::persist::limits::{
    LOG_BEGIN_MAX_BYTES, LOG_BEGIN_RETRY_DOUBLINGS, SAVE_RETRY, SAVE_RETRY_DOUBLINGS, SAVE_TURNS,
};

impl Persistence {
    /// Begins a snapshot if it is time for one. Runs `hz` times a second.
    pub(crate) fn begin_due_snapshot(&mut self, ks: &Keyspace, env: &Env<'_>) {
        let gathered = self.tail.as_ref().filter(|_| self.journal.is_none()).map_or(0, |tail| tail.bytes.len());
        if gathered > LOG_BEGIN_MAX_BYTES {
            match &self.saving.run {
                // Opening a journal can't be cancelled. Without a tail it is not begun, as it would lack these changes.
                Some(Run { stage: Stage::Beginning(..), .. }) => self.tail = None,
                Some(_) => {
                    let error = format!(
                        "the disk is too slow to begin a journal: {gathered} bytes of changes have gathered meanwhile"
                    );
                    self.conclude(env, Err(error), Ok(()));
                }
                None => {}
            }
        }
        if self.saving.is_too_slow() || self.saving.rests() {
            // Neither a stalled disk nor the end of a pause wakes the snapshot's task.
            (self.saving.wake)();
        }
        // Data being loaded is saved by its loader, and a value that is being filled in parts is in no snapshot.
        if self.is_filling() || self.saving.run.is_some() || matches!(self.saving.home, Home::None) {
            return;
        }
        let steady_ms = env.clock.steady_ms();
        let due = if self.is_save_due(env.config, ks, steady_ms) {
            Some(Purpose::Save)
        } else if self.is_rewrite_due(env.config, steady_ms) {
            Some(Purpose::Rewrite)
        } else {
            None
        };
        if let Some(purpose) = due {
            self.saving.begin(purpose, steady_ms);
        }
    }

    fn is_save_due(&self, config: &Config, ks: &Keyspace, steady_ms: i64) -> bool {
        let changes = i64::try_from(self.saving.changes(ks)).unwrap_or(i64::MAX);
        let elapsed_s = (steady_ms - self.saving.points_since_ms) / 1_000;
        let history = self.saving.history(Purpose::Save);
        let may_try = history.is_ok || steady_ms - history.tried_ms > SAVE_RETRY.as_millis() as i64;
        may_try && config.save.iter().any(|point| changes >= point.changes && elapsed_s > point.seconds)
    }

    fn is_rewrite_due(&self, config: &Config, steady_ms: i64) -> bool {
        let history = self.saving.history(Purpose::Rewrite);
        let most = if self.wants_log(config) { LOG_BEGIN_RETRY_DOUBLINGS } else { SAVE_RETRY_DOUBLINGS };
        let pause_ms = (SAVE_RETRY.as_millis() as i64) << history.failures_in_a_row.saturating_sub(1).min(most);
        if !history.is_ok && steady_ms - history.tried_ms <= pause_ms {
            return false;
        }
        self.wants_log(config) || self.has_log_grown(config)
    }

    /// Whether the journal behind the last snapshot has reached `auto-aof-rewrite-percentage` and `-min-size`.
    fn has_log_grown(&self, config: &Config) -> bool {
        let percentage = u64::from(config.auto_aof_rewrite_percentage);
        if percentage == 0 || !self.journal.as_ref().is_some_and(|journal| journal.is_good()) {
            return false;
        }
        let (all, base) = (self.aof_bytes(), self.saving.base_bytes().max(1));
        let growth = all.saturating_sub(base).saturating_mul(100) / base;
        let turn = self.journal.as_ref().and_then(Journal::member).map_or(0, GroupLog::save_turn);
        let in_turn = |least: u64| least.saturating_add(least / SAVE_TURNS * turn);
        all >= in_turn(config.auto_aof_rewrite_min_size) && growth >= in_turn(percentage)
    }

    /// Returns the bytes that a start reads: the newest snapshot, and the journal behind it.
    pub(crate) fn aof_bytes(&self) -> u64 {
        let written = self.log_written_bytes();
        self.saving.base_bytes() + written.saturating_add_signed(self.saving.log_bytes_offset)
    }

    /// Whether the server makes a snapshot before it ends. An argument of SHUTDOWN comes first. Without one, changes
    /// are safe in a journal; with no journal, a snapshot is made if `save` asks for it, or `appendonly`, whose journal
    /// has not begun yet.
    pub(crate) fn saves_at_end(&self, config: &Config, said: Option<bool>) -> bool {
        let is_asked_for = || self.wants_log(config) || (self.journal.is_none() && !config.save.is_empty());
        !self.is_filling() && said.unwrap_or_else(is_asked_for)
    }

    /// CONFIG SET appendonly yes: begins the snapshot that the journal will follow, unless a suitable one is under way.
    pub(crate) fn request_log(&mut self, steady_ms: i64) {
        match &self.saving.run {
            None => self.saving.begin(Purpose::Rewrite, steady_ms),
            // Everything has been copied, so later changes would be in neither the snapshot nor a journal.
            Some(Run { stage: Stage::Agreeing(..) | Stage::Ending(..) | Stage::Exporting(..), .. }) => {
                self.saving.schedule(Purpose::Rewrite)
            }
            Some(_) => {}
        }
    }
}
