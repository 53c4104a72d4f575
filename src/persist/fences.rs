//! How far the journal is, and whether commands that write are admitted. The engine decides from it
//! [which replies may leave](crate::engine::persistence::release).

use std::time::Duration;

use super::Persistence;
use super::journal::{Journal, Keeper};
use super::saving::Purpose;
use super::tail::Tail;
use crate::base::lsn::Lsn;
use crate::config::Config;
use crate::keyspace::Keyspace;
use crate::log::group_commit::{Commit, Log, State};
use crate::log::limits::LOG_FULL_RETRY;
use crate::log::planted::{self, Bug};
use crate::persist::limits::LOG_SYNC_RETRY;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

/// The reply to commands that write while their changes could not be saved.
const NOT_SAVED: Error = Error::text(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that \
     may modify the data set are disabled, because this instance is configured to report errors during writes if RDB \
     snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
     error.",
);

/// The reply to commands that write on a node that does not lead its group.
pub(crate) const CHANGE_REFUSED: &str = "READONLY You can't write against a read only replica.";
const FOLLOWER: Error = Error::text(CHANGE_REFUSED);

/// The reply to reads of locks, gates, stocks and their history on a node that does not lead its group.
const OF_GRANTS: Error = Error::text("READONLY Only the leader of the group answers what this command asks.");

/// The reply to reads on a node whose data is too old. Clients know the code.
const TOO_OLD: Error = Error::text("MASTERDOWN The data of this node is older than max-staleness allows.");

/// The reply to reads on a node that was removed from its group.
const REMOVED: Error = Error::text("MASTERDOWN This node was removed from its group.");

/// The reply to commands that write while fewer nodes follow than must have each change.
pub(crate) const FEW_FOLLOWERS: Error = Error::text("NOREPLICAS Not enough good replicas to write.");

/// The reply to commands that must not run before the group has committed all earlier changes.
const NOT_COMMITTED: Error = Error::text("TRYAGAIN The group has not committed all earlier changes yet");

/// The journal's state as the limits of unread output see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// The last unit that cannot be lost.
    pub(crate) safe: Lsn,
    /// Changes are not taken now.
    pub(crate) is_unlogged: bool,
}

impl Persistence {
    /// Returns the journal's files and threads on this machine, if it has any.
    pub(crate) fn local_log(&self) -> Option<&Log> {
        self.journal.as_ref().and_then(Journal::local)
    }

    /// Whether scripts that clients run must not become part of the data: this is a node that does not lead its group,
    /// or that can't make changes now, or the data is another server's.
    pub(crate) fn keeps_no_scripts(&self) -> bool {
        let group = self.journal.as_ref().and_then(Journal::member);
        let keeps_none = group.is_some_and(|group| !group.leads() || group.is_short_of_followers());
        keeps_none && !planted::is(Bug::FollowerKeepsScripts) || !self.whose().is_own()
    }

    /// Returns the bytes that were written to the journal since the start, or in a group, to its log.
    pub(crate) fn log_written_bytes(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| match &journal.keeper {
            Keeper::Local(log) => log.written_bytes(),
            Keeper::Group(group) => group.written_bytes(),
        })
    }

    /// Returns how far output may go now.
    pub(crate) fn reach(&self, config: &Config) -> Reach {
        Reach { safe: self.safe(), is_unlogged: self.is_unlogged(config) }
    }

    /// Gives the journal the units of the tail, for a server that has this many `clients`.
    pub(crate) fn commit(&mut self, clients: usize) {
        if let Some(journal) = &self.journal {
            let how = journal.committer(clients);
            self.commit_by(how);
        }
    }

    /// Gives the journal all units, so that none is forgotten when it changes.
    pub(crate) fn hand_over_tail(&mut self) {
        self.commit_by(Commit::HandOver);
    }

    pub(super) fn commit_by(&mut self, how: Commit) {
        let (Some(journal), Some(tail)) = (&mut self.journal, &mut self.tail) else { return };
        if tail.units > 0 {
            journal.append(tail, how);
            self.bound_backlog();
        }
    }

    /// Begins to make all committed units durable, whatever `appendfsync` says, for a server that has this many
    /// `clients`.
    pub(crate) fn begin_sync(&mut self, clients: usize) {
        self.commit(clients);
        if let Some(journal) = &self.journal {
            journal.begin_sync();
        }
    }

    /// Returns the last unit that cannot be lost, as far as `appendfsync` promises. Without a journal nothing waits.
    #[inline]
    pub(crate) fn safe(&self) -> Lsn {
        self.journal.as_ref().map_or(Lsn::MAX, Journal::safe)
    }

    /// Whether replies that show unit `fence` must never leave: the journal failed before it.
    #[inline]
    pub(crate) fn is_lost(&self, fence: Lsn) -> bool {
        self.has_failed() && fence > self.safe()
    }

    /// Whether the keys show a change that is lost.
    pub(crate) fn has_lost(&self, ks: &Keyspace) -> bool {
        self.is_lost(ks.last_in_flight())
    }

    /// Returns the unit that must be safe before a client beside the running unit may see how many scripts and
    /// libraries there are. Loading or dropping them is never rolled back: if the running unit has done so, it is the
    /// unit.
    pub(crate) fn fence_beside(&self, ks: &Keyspace) -> Lsn {
        let has_loaded = self.journal.is_some() && ks.has_loaded_scripts();
        let own = if has_loaded { self.lsn_of_tail().next() } else { Lsn::NONE };
        own.max(ks.last_change_beside())
    }

    /// Returns the last unit that was added to the tail. A journal that has failed never reaches one.
    pub(crate) fn lsn_of_tail(&self) -> Lsn {
        match (&self.journal, &self.tail) {
            (Some(journal), Some(tail)) => journal.lsn_of(tail),
            _ => Lsn::MAX,
        }
    }

    /// Whether there is a journal and unit `lsn` is durable in it.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.local().map_or(journal.safe(), Log::durable) >= lsn)
    }

    /// Returns the error for changes that are not taken.
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        match self.whose().refusal() {
            Some(refusal) if !self.has_failed() => refusal,
            _ => self.refusal_of_journal(),
        }
    }

    fn refusal_of_journal(&self) -> Error {
        match &self.journal {
            Some(journal) if journal.is_follower() && !self.has_failed() => return FOLLOWER,
            Some(journal) if journal.local().is_none() && !self.has_failed() => return NOT_COMMITTED,
            _ => {}
        }
        let failure = self.journal.as_ref().and_then(Journal::failure);
        let why = failure.unwrap_or_else(|| "No space left on device".to_owned());
        Error::owned(format!("MISCONF Errors writing to the AOF file: {why}"))
    }

    /// Whether the journal is known to have failed for good.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.state() == State::Poisoned)
    }

    /// Gives back the memory of the journal's buffers when it has had nothing to do for a while.
    pub(crate) fn give_back_buffers(&mut self) {
        if let (Some(journal), Some(tail)) = (&mut self.journal, &mut self.tail) {
            journal.give_back(tail);
        }
    }

    /// Bytes held for changes that the journal has not taken yet.
    pub fn buffer_bytes(&self) -> usize {
        let handed_over = self.local_log().map_or(0, Log::backlog_bytes);
        handed_over + self.tail.as_ref().map_or(0, Tail::mem_bytes)
    }

    /// Whether commands that write are refused because the last snapshot failed. With a journal their changes are safe.
    fn stops_writes(&self, config: &Config) -> bool {
        self.journal.is_none()
            && config.stop_writes_on_bgsave_error
            && !config.save.is_empty()
            && !self.saving.history(Purpose::Save).is_ok
    }

    /// Whether changes are not taken now: the data is another server's, or the journal takes none, or without one, the
    /// rules of `save` forbid it. Each session has this as a restriction.
    #[inline]
    pub(crate) fn is_unlogged(&self, config: &Config) -> bool {
        !self.whose().is_own()
            || self.journal.as_ref().map_or_else(|| self.stops_writes(config), |journal| !journal.takes_changes())
    }

    /// Refuses a command of these flags if it writes and changes are not taken.
    #[inline]
    pub(crate) fn admit_logged(&self, config: &Config, flags: Flags) -> Result<(), Error> {
        if !flags.contains(Flags::WRITE) {
            return Ok(());
        }
        match &self.journal {
            Some(_) if self.is_unlogged(config) => Err(self.refusal()),
            None if !self.whose().is_own() => Err(self.refusal()),
            None if self.stops_writes(config) => Err(NOT_SAVED),
            _ => Ok(()),
        }
    }

    /// Refuses a change of whose the data is, or of data that is another server's, if changes could not be kept.
    pub(crate) fn admit_handover(&self) -> Result<(), Error> {
        match &self.journal {
            Some(journal) if !journal.takes_changes() => Err(self.refusal_of_journal()),
            _ => Ok(()),
        }
    }

    /// Whether fewer nodes follow this one than `min-replicas-to-write` asks for. None follows a single server.
    #[inline]
    pub(crate) fn is_short_of_followers(&self, config: &Config) -> bool {
        match self.journal.as_ref().and_then(Journal::member) {
            Some(group) => group.is_short_of_followers(),
            None => config.copies_wanted() > 0,
        }
    }

    /// Refuses reads of data that was given to another server, and reads on a node that follows its group: those of
    /// grants, of which only the leader knows all, and all of them once the node was removed, or while the data may be
    /// older than `max-staleness` allows.
    pub(crate) fn admit_following(&self, config: &Config, may_be_old: bool, group: Group) -> Result<(), Error> {
        if let Some(refusal) = self.whose().refusal_of_reads().filter(|_| !may_be_old || group == Group::Pubsub) {
            return Err(refusal);
        }
        if group == Group::Coordination {
            return Err(OF_GRANTS);
        }
        let max_age = Duration::from_millis(config.max_staleness_ms);
        match self.journal.as_ref().and_then(Journal::member) {
            Some(group) if !may_be_old && group.is_removed() => Err(REMOVED),
            Some(group) if !may_be_old && !max_age.is_zero() && group.age().is_none_or(|age| age > max_age) => {
                Err(TOO_OLD)
            }
            _ => Ok(()),
        }
    }

    /// Returns the time after which a sync [begun](Self::begin_sync) earlier should be checked again.
    pub(crate) fn sync_retry_after(&self, config: &Config) -> Duration {
        if self.is_unlogged(config) { LOG_FULL_RETRY } else { LOG_SYNC_RETRY }
    }

    /// Returns the unit that must be safe before the changes and reads of the running unit so far may be seen.
    /// `earlier` is the fence of the client's earlier replies: its messages must not overtake them.
    pub(crate) fn fence_so_far(&self, ks: &Keyspace, earlier: Lsn) -> Lsn {
        let has_changed = self.journal.is_some() && ks.has_changed();
        let own = if has_changed { self.lsn_of_tail().next() } else { Lsn::NONE };
        own.max(ks.fence()).max(earlier)
    }
}
