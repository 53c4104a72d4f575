//! Goes on with the journal of a directory that was loaded.

use super::Persistence;
use super::error::RecoveryError;
use super::journal::{Journal, Keeper};
use super::tail::Tail;
use crate::base::lsn::Lsn;
use crate::config::Config;
use crate::log::group_commit::{Log, Options};
use crate::log::restore::Restore;

impl Persistence {
    /// Goes on with a journal that holds everything up to unit `last`.
    pub(crate) fn attach(&mut self, log: Log, last: Lsn) {
        self.tail = Some(Tail::new(log.buffer()));
        self.journal = Some(Journal::new(Keeper::Local(log), last));
    }

    /// Opens the journal behind the data that `restore` has read, the last of which is unit `last`. `notify` is called,
    /// on any thread, when the journal has advanced.
    pub(crate) fn resume_journal(
        &mut self,
        config: &Config,
        restore: Restore,
        last: Lsn,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<(), RecoveryError> {
        let platform = self.saving.platform.clone();
        let options = Options { policy: config.appendfsync.into(), ..platform.options };
        let mut log = restore.finish(options, platform.clock, notify)?;
        if platform.has_threads {
            log.start().map_err(|error| RecoveryError::Thread { what: "the journal's threads", error })?;
        }
        self.attach(log, last);
        Ok(())
    }
}
