//! When a snapshot is made that nobody has asked for. What is refused when none can be made says [`super::durability`].
//!
//! - Without a log the points of `save` say when: so many seconds and so many changes after the last one.
//! - With a log nothing is at risk. One is made when the log behind the last one has become long
//!   (`auto-aof-rewrite-percentage`), so that a start need not read it; points of `save` are honoured, too.
//! - A log that `appendonly` asks for while the server runs begins behind a snapshot.
//!
//! What has failed is tried again: after 5 s what `save` asks for, as in Redis; what `appendonly` and a log that has grown ask
//! for doubles that with each failure.

use crate::base::limits::{LOG_BEGIN_MAX_BYTES, LOG_BEGIN_RETRY_DOUBLINGS, SAVE_RETRY, SAVE_RETRY_DOUBLINGS};
use crate::engine::ServerState;
use crate::engine::session::{Restrictions, Session};
use crate::keyspace::Keyspace;
use crate::persist::saving::{Home, Purpose, Run, Stage};

impl ServerState {
    /// Begins a snapshot if it is time for one. Runs `hz` times a second.
    pub(in crate::engine) fn look_after_saving(&mut self, ks: &mut Keyspace) {
        let gathered = self
            .persistence
            .tail
            .as_ref()
            .filter(|_| self.persistence.durability.is_none())
            .map_or(0, |tail| tail.bytes.len());
        if gathered > LOG_BEGIN_MAX_BYTES {
            match &self.persistence.saving.run {
                // Its thread can't be called back. When it is done, the log that lacks this is not begun.
                Some(Run { stage: Stage::Beginning(..), .. }) => self.set_tail(None),
                Some(_) => {
                    let error = format!(
                        "the disk is too slow to begin a log: {gathered} bytes of changes have gathered meanwhile"
                    );
                    self.conclude(ks, Err(error), Ok(()));
                }
                None => {}
            }
        }
        if self.persistence.saving.is_too_slow() || self.persistence.saving.rests() {
            // The disk may stand still, and wake nobody; nor does the end of a rest.
            (self.persistence.saving.wake)();
        }
        // What is loaded is saved by who loads it.
        if self.persistence.loading.is_some()
            || self.persistence.saving.run.is_some()
            || matches!(self.persistence.saving.home, Home::None)
        {
            return;
        }
        let steady_ms = self.time.clock.steady_ms();
        let due = if self.is_save_due(ks, steady_ms) {
            Some(Purpose::Save)
        } else if self.is_rewrite_due(steady_ms) {
            Some(Purpose::Rewrite)
        } else {
            None
        };
        if let Some(purpose) = due {
            self.persistence.saving.begin(purpose, steady_ms);
        }
    }

    fn is_save_due(&self, ks: &Keyspace, steady_ms: i64) -> bool {
        let changes = i64::try_from(self.persistence.saving.changes(ks)).unwrap_or(i64::MAX);
        let elapsed_s = (steady_ms - self.persistence.saving.points_since_ms) / 1_000;
        let history = self.persistence.saving.history(Purpose::Save);
        let may_try = history.is_ok || steady_ms - history.tried_ms > SAVE_RETRY.as_millis() as i64;
        may_try && self.config.save.iter().any(|point| changes >= point.changes && elapsed_s > point.seconds)
    }

    fn is_rewrite_due(&self, steady_ms: i64) -> bool {
        let history = self.persistence.saving.history(Purpose::Rewrite);
        let most = if self.wants_log() { LOG_BEGIN_RETRY_DOUBLINGS } else { SAVE_RETRY_DOUBLINGS };
        let pause_ms = (SAVE_RETRY.as_millis() as i64) << history.failures_in_a_row.saturating_sub(1).min(most);
        if !history.is_ok && steady_ms - history.tried_ms <= pause_ms {
            return false;
        }
        self.wants_log() || self.has_log_grown()
    }

    /// Whether the log behind the last snapshot is as long as `auto-aof-rewrite-percentage` and `-min-size` say.
    fn has_log_grown(&self) -> bool {
        let percentage = u64::from(self.config.auto_aof_rewrite_percentage);
        if percentage == 0 || !self.persistence.durability.as_ref().is_some_and(|durability| durability.is_good()) {
            return false;
        }
        let (all, base) = (self.aof_bytes(), self.persistence.saving.base_bytes().max(1));
        let growth = all.saturating_sub(base).saturating_mul(100) / base;
        all >= self.config.auto_aof_rewrite_min_size && growth >= percentage
    }

    /// Bytes that a start reads: the newest snapshot, and the log behind it.
    pub(crate) fn aof_bytes(&self) -> u64 {
        let written = self.persistence.durability.as_ref().map_or(0, |durability| durability.log().written_bytes());
        self.persistence.saving.base_bytes() + written.saturating_add_signed(self.persistence.saving.log_bytes_offset)
    }

    /// Whether the server makes a snapshot before it ends. What SHUTDOWN says comes first; else what has changed is in the log,
    /// and without a log `save` asks for one, or `appendonly`, whose log has not begun yet.
    pub(crate) fn saves_at_end(&self, said: Option<bool>) -> bool {
        let is_asked_for =
            || self.wants_log() || (self.persistence.durability.is_none() && !self.config.save.is_empty());
        self.persistence.loading.is_none() && said.unwrap_or_else(is_asked_for)
    }

    /// `save` or `stop-writes-on-bgsave-error` has changed. `session` is out of the registry.
    pub(crate) fn saving_rules_changed(&mut self, session: &mut Session) {
        self.update_gates();
        session.restrictions.set(Restrictions::UNLOGGED, self.is_unlogged());
    }

    /// CONFIG SET appendonly yes: begins the snapshot that the log is to begin behind, unless one is under way that will do.
    pub(crate) fn request_log(&mut self) {
        match &self.persistence.saving.run {
            None => self.persistence.saving.begin(Purpose::Rewrite, self.time.clock.steady_ms()),
            // All has been copied, and what changes now is in no log.
            Some(Run { stage: Stage::Ending(..) | Stage::Exporting(..), .. }) => {
                self.persistence.saving.schedule(Purpose::Rewrite)
            }
            Some(_) => {}
        }
    }
}
