//! The calls that wait until units are safe, on the calling thread.
//!
//! A command that waits for the disk is parked, so that others are served: WAITAOF, CONFIG SET appendfsync, SHUTDOWN's
//! snapshot, each reply behind a fence. What is left waits in place, each time for one write and one sync of what is
//! pending, at most [`LOG_BEHIND_MAX_BYTES`] and a tail. The local disk alone decides how long that takes; it has no
//! time limit, because a journal that does not answer can't be given up without losing units. A journal on other
//! machines must offer none of these calls: see docs/internals/journal.md for what becomes of each caller then.
//!
//! The calls, with their callers and why each waits:
//!
//! - [`wait_until_safe`](Persistence::wait_until_safe): a slow script, DEBUG SLEEP and MIGRATE before they hold the
//!   thread; the debugger; too many bytes held back. Replies that are due must leave first, and MIGRATE's target must
//!   get nothing that could be lost here.
//! - [`drain`](Persistence::drain): the end of the server, DEBUG RELOAD, the end of a journal. Nobody is served any
//!   more, or the files are read next.
//! - [`set_sync_policy`](Persistence::set_sync_policy): CONFIG SET appendfsync, which was parked until earlier units
//!   were durable. No acknowledgement may wait for a sync that the old policy would have made.
//! - `bound_backlog`: every commit. The disk takes less than clients send: they must wait before memory does.
//! - [`close`](Persistence::close): the end of the server. The end is marked as clean.

use super::Persistence;
use super::journal::{Journal, Keeper};
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::log::group_commit::{Commit, CommitError, Log};
use crate::persist::limits::LOG_BEHIND_MAX_BYTES;

/// Why a node refuses a change of how its log is kept.
pub(super) const OF_GROUP: &str = "a node of a group has each change on disk before its reply leaves";

impl Persistence {
    /// Makes all committed units as safe as `appendfsync` asks, and waits for it. Returns whether they are.
    pub(crate) fn wait_until_safe(&mut self) -> bool {
        self.commit_by(Commit::InPlace);
        if let Some(journal) = &self.journal
            && !journal.is_safe()
        {
            // The journal's thread is at work, or was left units that take a sync first. Whether the disk is full or
            // has failed, the state tells.
            let _ = journal.local().map(Log::wait_until_safe);
        }
        self.journal.as_ref().is_none_or(Journal::is_safe)
    }

    /// Makes all committed units durable, whatever `appendfsync` says, and waits for it. Returns whether they are;
    /// false without a journal.
    pub(crate) fn drain(&mut self) -> bool {
        self.commit_by(Commit::InPlace);
        self.journal.as_ref().is_some_and(|journal| match journal.local() {
            Some(log) => log.drain().is_ok(),
            None => journal.is_safe(),
        })
    }

    /// Sets when the journal is synced from now on, once all committed units are durable. Fails if they cannot be made
    /// so.
    pub(crate) fn set_sync_policy(&mut self, policy: AppendFsync) -> Result<(), String> {
        self.commit_by(Commit::InPlace);
        if self.journal.as_mut().and_then(Journal::group).is_some() {
            return Err(OF_GROUP.to_owned());
        }
        let Some(log) = self.local_log() else { return Ok(()) };
        log.set_policy(policy.into()).map_err(|error| error.to_string())
    }

    /// Makes all committed units durable and marks the journal's end as clean, also that of a journal that was turned
    /// off before. Returns the unit up to which everything is on disk: without a journal, in snapshots; in a group, on
    /// the disks of more than half of the nodes.
    pub(crate) fn close(&mut self) -> Result<Lsn, CommitError> {
        self.commit_by(Commit::InPlace);
        let (last, safe) =
            self.journal.as_ref().map_or_else(Default::default, |journal| (journal.last(), journal.safe()));
        let closed = match self.journal.take().map(|journal| journal.keeper) {
            Some(Keeper::Local(log)) => log.close().map(|()| last),
            Some(Keeper::Group(_)) => Ok(safe),
            None => Ok(self.saving.last),
        };
        self.saving.await_ended_log();
        closed
    }

    /// Waits for the disk if the write backlog is too large.
    pub(super) fn bound_backlog(&self) {
        if let Some(log) = self.local_log()
            && log.backlog_bytes() > LOG_BEHIND_MAX_BYTES
        {
            // A full or failed disk shows in the state.
            let _ = log.wait_until_safe();
        }
    }
}
