//! What of the data is on disk, and so, which replies may leave.
//!
//! Every unit that changed something is added to the log's [tail](super::tail) when it is committed. The tail is written when
//! the first reply is about to leave, whosever it is ([`Server::may_send`]): by then all connections that were ready have been
//! served, and one write and one sync are for all of them. Until that has succeeded no reply leaves, of reads neither: they may
//! show what could still be lost.
//!
//! A log whose disk is full refuses commands that write, and takes them again when there is space. One that has failed
//! ([`State::Poisoned`]) takes nothing any more. What it could not make durable nobody has been told of: whoever waits for such
//! an answer is disconnected.

use super::Server;
use super::error::Error;
use super::session::{Gate, Session};
use super::spec::Flags;
use super::table::Entry;
use super::tail::Tail;
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::log::group_commit::{self, Commit, CommitError, Log, State, SyncPolicy};

/// The log, and what of the data it has.
pub struct Durability {
    log: Log,
    /// The last unit that the log was given.
    last: Lsn,
    /// What the log was found to be when it was last looked at.
    state: State,
    /// Whether some connection was told to wait: it must be woken, also if the log thread has meanwhile written what it waits for.
    holds_replies: bool,
}

impl Durability {
    /// Goes on behind unit `last`, the last one in the log.
    pub(crate) fn new(log: Log, last: Lsn) -> Durability {
        Durability { log, last, state: State::Good, holds_replies: false }
    }

    /// Writes the units of the tail. Answers whether all of them are as safe as `appendfsync` asks.
    fn commit(&mut self, tail: &mut Tail) -> bool {
        if tail.units > 0 {
            let Tail { bytes, units, time_ms } = std::mem::take(tail);
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
    pub(super) fn attach_log(&mut self, log: Log, last: Lsn) {
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
        durability.holds_replies |= !is_safe;
        let state = durability.log.state();
        if state != durability.state {
            self.log_changed(state);
        }
        // What a log that has failed for good could not keep was dropped, with those who wait for it.
        is_safe || state == State::Poisoned
    }

    /// Makes all that was committed durable, whatever `appendfsync` says. Answers whether that was done; false without a log.
    pub(crate) fn drain_log(&mut self) -> bool {
        self.commit_log();
        self.durability.as_ref().is_some_and(|durability| durability.log.drain().is_ok())
    }

    /// Acts on a new `appendfsync`, once all that was committed is durable.
    pub(crate) fn sync_policy_changed(&mut self) -> Result<(), CommitError> {
        self.commit_log();
        let policy = self.config.appendfsync.into();
        self.durability.as_ref().map_or(Ok(()), |durability| durability.log.set_policy(policy))
    }

    /// Makes all durable, and marks the log's end as clean.
    pub(crate) fn close_log(&mut self) -> Result<(), CommitError> {
        self.commit_log();
        self.durability.take().map_or(Ok(()), |durability| durability.log.close())
    }

    /// Looks after the log: `hz` times a second.
    pub(super) fn look_after_log(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        let held_replies = std::mem::take(&mut durability.holds_replies);
        if held_replies {
            durability.log.step();
        }
        let may_send = self.commit_log();
        if self.is_unlogged() {
            // Also those that were out of the registry when it changed.
            self.sessions.iter_mut().for_each(|session| session.gate.set(Gate::UNLOGGED, true));
        }
        if may_send && held_replies {
            self.sessions.iter_mut().for_each(|session| session.outbox.wake());
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
                tracing::error!(
                    "{why}: commands that write are refused until a restart; what was acknowledged is safe"
                );
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

    /// The gate's bit of a session that begins.
    pub(super) fn is_unlogged(&self) -> bool {
        self.durability.as_ref().is_some_and(|durability| !durability.is_good())
    }

    /// Refuses a client's command that writes while the log takes nothing.
    pub(super) fn admit_to_log(&self, session: &Session, entry: &Entry) -> Result<(), Error> {
        let writes = match &session.transaction {
            Some(transaction) if entry.full_name == "exec" => transaction.writes,
            _ => entry.command.flags.has(Flags::WRITE),
        };
        if writes { self.admit_change() } else { Ok(()) }
    }

    /// Refuses a change while the log takes nothing.
    pub(super) fn admit_change(&self) -> Result<(), Error> {
        let Some(durability) = self.durability.as_ref().filter(|durability| !durability.is_good()) else {
            return Ok(());
        };
        let why = match durability.log.failure() {
            Some(failure) => failure.to_string(),
            None => "No space left on device".to_owned(),
        };
        Err(Error::owned(format!("MISCONF Errors writing to the AOF file: {why}")))
    }
}
