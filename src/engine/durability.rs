//! What of the data is on disk, and so, which replies may leave.
//!
//! Every unit that changed something is added to the log's [tail](super::tail) when it is committed. The tail is written when
//! the first reply is about to leave, whosever it is ([`Server::may_send`]): by then all connections that were ready have been
//! served, and one write and one sync are for all of them. Until that has succeeded no reply leaves, of reads neither: they may
//! show what could still be lost.
//!
//! A log whose disk is full refuses commands that write, and takes them again when there is space. One that has failed
//! ([`State::Poisoned`]) takes nothing any more. What it could not make durable nobody has been told of: whoever waits for such
//! an answer is disconnected, and if there is anything of that kind, nobody may read the keys any more.

use super::Server;
use super::error::Error;
use super::session::{Gate, Session};
use super::spec::Flags;
use super::table::Entry;
use super::tail::Tail;
use crate::base::limits::LOG_MERGE_MAX_BYTES;
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::log::group_commit::{self, Commit, CommitError, Log, State, SyncPolicy};
use crate::resp::reply::Reply;

/// The log, and what of the data it has.
pub struct Durability {
    log: Log,
    /// The last unit that the log was given.
    last: Lsn,
    /// What the log was found to be when it was last looked at.
    state: State,
    /// Replies were held back, and those who wait for them must be woken.
    is_holding: bool,
    /// There are changes that the log has failed to keep: what keys hold may be another thing after a restart.
    has_lost: bool,
}

impl Durability {
    /// Goes on behind unit `last`, the last one in the log.
    pub(crate) fn new(log: Log, last: Lsn) -> Durability {
        Durability { log, last, state: State::Good, is_holding: false, has_lost: false }
    }

    /// Writes the units of the tail. Answers whether all of them are as safe as `appendfsync` asks.
    fn commit(&mut self, tail: &mut Tail) -> bool {
        if tail.units > 0 {
            let Tail { bytes, units, time_ms } = std::mem::replace(tail, Tail::new(Vec::new()));
            let first_lsn = self.last.next();
            self.last = self.last.plus(u64::from(units));
            let buffer = self.log.commit(group_commit::Tail { bytes, first_lsn, units, time_ms }, Commit::InPlace);
            *tail = Tail::new(buffer);
        }
        self.is_safe()
    }

    fn is_safe(&self) -> bool {
        match self.log.policy() {
            SyncPolicy::Always => self.log.durable() >= self.last,
            SyncPolicy::EverySec | SyncPolicy::No => self.log.written() >= self.last,
        }
    }

    /// Whether the log takes changes.
    pub(crate) fn is_good(&self) -> bool {
        self.state == State::Good
    }

    /// The last unit that the log was given.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    /// The log, for those who tell of it.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }
}

impl From<AppendFsync> for SyncPolicy {
    fn from(policy: AppendFsync) -> SyncPolicy {
        match policy {
            AppendFsync::Always => SyncPolicy::Always,
            AppendFsync::EverySecond => SyncPolicy::EverySec,
            AppendFsync::No => SyncPolicy::No,
        }
    }
}

impl Server {
    /// Goes on with a log that holds everything up to unit `last`.
    pub(crate) fn attach_log(&mut self, log: Log, last: Lsn) {
        self.tail = Some(Tail::new(log.buffer()));
        self.durability = Some(Durability::new(log, last));
    }

    /// Whether replies may leave. Writes what the units before them have changed, first.
    #[inline]
    pub fn may_send(&mut self) -> bool {
        self.durability.is_none() || self.commit_log()
    }

    /// Writes the tail. Answers whether replies may leave.
    fn commit_log(&mut self) -> bool {
        let (Some(durability), Some(tail)) = (&mut self.durability, &mut self.tail) else { return true };
        let is_safe = durability.commit(tail);
        let state = durability.log.state();
        // What a log that has failed for good could not keep is dropped, with those who wait for it.
        let may_send = is_safe || state == State::Poisoned;
        durability.is_holding |= !may_send;
        durability.has_lost |= !is_safe && state == State::Poisoned;
        if state != durability.state {
            self.log_changed(state);
        }
        may_send
    }

    /// Writes the tail if it has become so long that one block could not take much more.
    #[inline]
    pub(super) fn write_long_tail(&mut self) {
        if self.tail.as_ref().is_some_and(|tail| tail.bytes.len() >= LOG_MERGE_MAX_BYTES) {
            self.may_send();
        }
    }

    /// For those who show the data to others while they hold the thread: makes sure that nothing committed can still be lost.
    pub(crate) fn settle_log(&mut self) -> Result<(), Error> {
        let had_failed = self.has_log_failed();
        if !self.may_send() {
            self.drain_log();
        }
        if self.may_send() && self.has_log_failed() == had_failed { Ok(()) } else { Err(self.refusal()) }
    }

    /// A unit was committed, and there is no tail to keep it.
    #[cold]
    pub(super) fn unit_is_lost(&mut self) {
        if let Some(durability) = &mut self.durability {
            durability.has_lost = true;
        }
    }

    /// Makes all that was committed durable, whatever `appendfsync` says. Answers whether that was done; false without a log.
    pub(crate) fn drain_log(&mut self) -> bool {
        self.commit_log();
        self.durability.as_ref().is_some_and(|durability| durability.log.drain().is_ok())
    }

    /// Sets when the log is synced from now on, once all that was committed is durable. Fails if that can't be.
    pub(crate) fn set_sync_policy(&mut self, policy: AppendFsync) -> Result<(), String> {
        self.commit_log();
        let Some(durability) = &self.durability else { return Ok(()) };
        durability.log.set_policy(policy.into()).map_err(|error| error.to_string())
    }

    /// Makes all durable, and marks the log's end as clean.
    pub(crate) fn close_log(&mut self) -> Result<(), CommitError> {
        self.commit_log();
        self.durability.take().map_or(Ok(()), |durability| durability.log.close())
    }

    /// Looks after the log: `hz` times a second, and when it has got further on a thread of its own.
    pub(crate) fn look_after_log(&mut self) {
        let Some(durability) = &self.durability else { return };
        if !durability.is_safe() {
            durability.log.step();
        }
        if !self.commit_log() {
            return;
        }
        if self.durability.as_mut().is_some_and(|durability| std::mem::take(&mut durability.is_holding)) {
            self.sessions.iter_mut().for_each(|session| session.outbox.wake());
        }
    }

    /// Tells a session what has become of the log while it was out of the registry. `out` is what it is answered: if the log
    /// has failed since the session was taken out, nothing of it may leave.
    #[cold]
    pub(super) fn catch_up(&self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        session.gate.set(Gate::UNLOGGED, self.is_unlogged());
        if self.has_log_failed() && !had_failed {
            out.truncate(0);
            session.outbox.clear();
            session.kill();
        }
    }

    fn log_changed(&mut self, state: State) {
        let Some(durability) = &mut self.durability else { return };
        durability.state = state;
        match state {
            State::Good => tracing::warn!("the log is written again: commands that write are taken"),
            State::Full => {
                tracing::error!("the log's disk is full: commands that write are refused until there is space")
            }
            State::Poisoned => {
                let why = durability.log.failure().map(ToString::to_string).unwrap_or_default();
                tracing::error!("{why}: commands that write are refused until a restart");
                durability.last = durability.log.durable();
                self.tail = None;
                // They may wait for an answer to what is lost, or for a value that is.
                for session in self.sessions.iter_mut().filter(|session| !session.outbox.is_empty()) {
                    session.outbox.clear();
                    session.kill();
                }
            }
        }
        for session in self.sessions.iter_mut() {
            session.gate.set(Gate::UNLOGGED, state != State::Good);
        }
    }

    /// Whether the log, or where there is none what stands for it, takes no changes: the gate's bit of every session.
    #[inline]
    pub(super) fn is_unlogged(&self) -> bool {
        self.durability.as_ref().map_or_else(|| self.stops_writes(), |durability| !durability.is_good())
    }

    /// Tells all sessions whether the log, or what stands for it, takes changes.
    pub(super) fn update_gates(&mut self) {
        let is_unlogged = self.is_unlogged();
        for session in self.sessions.iter_mut() {
            session.gate.set(Gate::UNLOGGED, is_unlogged);
        }
    }

    /// Whether the log is known to have failed for good.
    #[inline]
    pub(super) fn has_log_failed(&self) -> bool {
        self.durability.as_ref().is_some_and(|durability| durability.state == State::Poisoned)
    }

    /// Refuses a client's command for which the log is in no state.
    pub(super) fn admit_to_log(&self, session: &Session, entry: &Entry) -> Result<(), Error> {
        match (&session.transaction, entry.full_name.as_str()) {
            (Some(transaction), "exec") => self.admit_logged(transaction.flags),
            // As in Redis: whoever asks whether the server is well is to learn that it is not.
            (_, "ping") => self.admit_logged(Flags::WRITE),
            _ => self.admit_logged(entry.command.flags),
        }
    }

    /// Refuses what a command of these flags would do: to write while the log takes nothing, or to read what it has lost.
    #[inline]
    pub(crate) fn admit_logged(&self, flags: Flags) -> Result<(), Error> {
        match &self.durability {
            Some(durability) if !durability.is_good() => {
                let reads_what_is_lost = durability.has_lost && flags.has(Flags::READONLY);
                if flags.has(Flags::WRITE) || reads_what_is_lost { Err(self.refusal()) } else { Ok(()) }
            }
            None if flags.has(Flags::WRITE) && self.stops_writes() => Err(self.not_saved()),
            _ => Ok(()),
        }
    }

    #[cold]
    fn refusal(&self) -> Error {
        let failure = self.durability.as_ref().and_then(|durability| durability.log.failure());
        let why = failure.map_or_else(|| "No space left on device".to_owned(), ToString::to_string);
        Error::owned(format!("MISCONF Errors writing to the AOF file: {why}"))
    }
}
