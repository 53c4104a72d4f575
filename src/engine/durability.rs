//! What of the data is on disk, and so, which replies may leave.
//!
//! Every unit that changed something is added to the log's tail when it is committed ([`Durability::append`]). The tail is written
//! when the first reply is about to leave, whosever it is ([`Server::may_send`]): by then all connections that were ready have
//! been served, and one write and one sync are for all of them. Until that has succeeded no reply leaves, of reads neither:
//! they may show what could still be lost.
//!
//! A log whose disk is full refuses commands that write, and takes them again when there is space. One that has failed
//! ([`State::Poisoned`]) takes nothing any more. What it could not make durable nobody has been told of: whoever waits for such
//! an answer is disconnected.

use super::Server;
use super::error::Error;
use super::session::{Gate, Session};
use super::spec::Flags;
use super::table::Entry;
use super::unit::Origin;
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::keyspace::effect::Recording;
use crate::log::block::unit_head;
use crate::log::group_commit::{Commit, CommitError, Log, State, SyncPolicy, Tail};

/// The version of the effects' encoding, which each unit names.
pub const EFFECTS_FORMAT: u8 = 1;

/// The log, and the units that it was not given yet.
pub struct Durability {
    log: Log,
    /// Room for the log's own head, then the units.
    tail: Vec<u8>,
    units: u32,
    /// When the last of them was made, Unix ms.
    time_ms: i64,
    /// The last unit that was committed.
    last: Lsn,
    /// What the log was found to be when it was last looked at.
    state: State,
}

impl Durability {
    /// Goes on behind unit `last`, the last one in the log.
    pub(crate) fn new(log: Log, last: Lsn) -> Durability {
        let tail = log.buffer();
        Durability { log, tail, units: 0, time_ms: 0, last, state: State::Good }
    }

    /// Adds a unit with its effects.
    pub(super) fn append(&mut self, origin: Origin, effects: &[u8], now_ms: i64) {
        if self.state == State::Poisoned {
            return;
        }
        self.tail.extend_from_slice(&unit_head(EFFECTS_FORMAT, origin as u8, effects.len() as u32));
        self.tail.extend_from_slice(effects);
        self.units += 1;
        self.time_ms = now_ms;
        self.last = self.last.next();
    }

    /// Writes the units that were added. Answers whether all of them are as safe as `appendfsync` asks.
    fn commit(&mut self) -> bool {
        if self.units > 0 {
            let (bytes, units) = (std::mem::take(&mut self.tail), std::mem::take(&mut self.units));
            let first_lsn = Lsn::new(self.last.get() + 1 - u64::from(units));
            self.tail = self.log.commit(Tail { bytes, first_lsn, units, time_ms: self.time_ms }, Commit::InPlace);
        }
        self.is_safe()
    }

    fn is_safe(&self) -> bool {
        match self.log.policy() {
            SyncPolicy::Always => self.log.durable() >= self.last,
            SyncPolicy::EverySec | SyncPolicy::No => self.log.written() >= self.last,
        }
    }

    /// Makes all that was committed durable, whatever `appendfsync` says.
    pub(crate) fn drain(&mut self) -> Result<(), CommitError> {
        self.commit();
        self.log.drain()
    }

    /// Changes `appendfsync` once all that was committed is durable.
    pub(crate) fn set_policy(&mut self, policy: AppendFsync) -> Result<(), CommitError> {
        self.commit();
        self.log.set_policy(policy.into())
    }

    /// Makes all durable and marks the log's end as clean.
    pub(crate) fn close(mut self) -> Result<(), CommitError> {
        self.commit();
        self.log.close()
    }

    /// Whether the log takes changes.
    pub(crate) fn is_good(&self) -> bool {
        self.state == State::Good
    }

    /// The last unit that was committed.
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
    /// Whether replies may leave. Writes what the units before them have changed, first.
    #[inline]
    pub fn may_send(&mut self) -> bool {
        match &mut self.durability {
            None => true,
            Some(durability) if durability.units == 0 && durability.is_good() && durability.is_safe() => true,
            Some(_) => self.commit_log(),
        }
    }

    #[cold]
    fn commit_log(&mut self) -> bool {
        let Some(durability) = &mut self.durability else { return true };
        let is_safe = durability.commit();
        let state = durability.log.state();
        if state != durability.state {
            self.log_changed(state);
        }
        // What a log that has failed for good could not keep was dropped, with those who wait for it.
        is_safe || state == State::Poisoned
    }

    /// Looks after the log: `hz` times a second.
    pub(super) fn look_after_log(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        let was_held = !durability.is_safe();
        if was_held {
            durability.log.step();
        }
        if self.commit_log() && was_held {
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
                self.always_recorded = Recording::Nothing;
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
