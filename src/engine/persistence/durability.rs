//! What of the data is on disk, and so, which replies may leave.
//!
//! Every unit that changed something has a number, its Lsn, and is added to the log's [tail](crate::persist::tail) when it is committed.
//! Until the log has it, its changes are *in flight*: a crash could take them back. So bytes for a client come with a
//! [fence](crate::engine::session::outbox), the last unit in flight of which they show anything: for a change that is the unit itself, for a read
//! the last one that changed a key it looked for. [`ServerState::sendable`] lets out what the log has reached, and has the tail written
//! when somebody waits for it: by then all connections that were ready have been served, and one write and one sync are for all
//! of them. Who reads what nobody changes never waits.
//!
//! **Who writes** is decided in one place, [`ServerState::committer`]. The engine's thread itself is the shortest way, but holds up
//! all others for as long as the sync takes. A thread of the log's lets the engine go on; when it has got further, those
//! are woken who wait for that ([`ServerState::follow_log`]). While it syncs, the next block gathers, so neither needs a timer. What may wait for
//! the disk is bounded: beyond that the engine waits as well.
//!
//! A log whose disk is full refuses commands that write, and takes them again when there is space. One that has failed
//! ([`State::Poisoned`]) takes nothing any more. What it could not make durable nobody has been told of: whoever waits for such
//! an answer is disconnected, and who asks for such a key is refused. All other keys can still be read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::base::limits::{
    LOG_BEHIND_MAX_BYTES, LOG_FULL_RETRY, LOG_SYNC_ALONE_MAX, LOG_SYNC_IN_PLACE_MAX, LOG_SYNC_RETRY,
};
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::engine::meters::latency::Event;
use crate::engine::session::{Restrictions, Session};
use crate::engine::state::{Entry, ServerState};
use crate::engine::wait::Ticket;
use crate::keyspace::Keyspace;
use crate::log::group_commit::{Commit, CommitError, Log, State, SyncPolicy};
use crate::log::planted::{self, Bug};
use crate::persist::durability_state::{Durability, Held, WAITING_MIN};
use crate::persist::saving::Purpose;
use crate::persist::tail::Tail;
use crate::resp::reply::Reply;
use crate::spec::Flags;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

/// Answered to commands that write while what they write could not be saved.
const NOT_SAVED: Error = Error::text(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify \
     the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails \
     (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
);

impl ServerState {
    /// Goes on with a log that holds everything up to unit `last`.
    pub(crate) fn attach_log(&mut self, log: Log, last: Lsn) {
        self.set_tail(Some(Tail::new(log.buffer())));
        self.persistence.durability = Some(Durability::new(log, last));
        // A start on a full disk finds it so before the first command.
        self.follow_log();
    }

    /// How many of a session's unsent bytes may leave now. If none of those may that come first, their changes are on the way to
    /// the disk, and the session is woken when these are there.
    #[inline]
    pub fn sendable(&mut self, key: SessionKey) -> usize {
        match self.clients.sessions.get_mut(key) {
            None => 0,
            Some(session) if !session.outbox.is_fenced() => session.outbox.len(),
            Some(_) => self.sendable_behind_fences(key),
        }
    }

    #[inline(never)]
    fn sendable_behind_fences(&mut self, key: SessionKey) -> usize {
        for is_written in [false, true] {
            if is_written {
                self.commit_log();
            }
            let safe = self.safe();
            let Some(session) = self.clients.sessions.get_mut(key) else { return 0 };
            let free = session.outbox.sendable(safe);
            if free > 0 {
                return free;
            }
        }
        let waits_for = self.clients.sessions.get_mut(key).and_then(|session| session.outbox.begin_waiting());
        if let (Some(lsn), Some(durability)) = (waits_for, &mut self.persistence.durability) {
            if durability.waiting.len() >= durability.waiting_max {
                let sessions = &mut self.clients.sessions;
                durability.waiting.retain(|Reverse((_, key))| sessions.get_mut(*key).is_some());
                durability.waiting_max = WAITING_MIN.max(2 * durability.waiting.len());
            }
            durability.waiting.push(Reverse((lsn, key)));
        }
        0
    }

    /// The last unit that can't be lost as far as `appendfsync` promises; without a log nothing waits.
    #[inline]
    pub(in crate::engine) fn safe(&self) -> Lsn {
        self.persistence.durability.as_ref().map_or(Lsn::MAX, Durability::safe)
    }

    /// Who writes the tail. Where replies do not wait for a sync, the engine's thread does. Else it does so while syncs are so fast
    /// that having them done costs as much; alone with one client, while they are so fast that somebody who connects meanwhile
    /// would not notice. How long the next sync takes nobody knows: a disk that stops all of a sudden holds up the engine once.
    fn committer(&self, log: &Log) -> Commit {
        let longest = if self.clients.sessions.len() > 1 { LOG_SYNC_IN_PLACE_MAX } else { LOG_SYNC_ALONE_MAX };
        let holds_others_up = log.policy() == SyncPolicy::Always && log.sync_time() > longest;
        if holds_others_up { Commit::HandOver } else { Commit::InPlace }
    }

    /// Gives the log what is in the tail.
    pub(crate) fn commit_log(&mut self) {
        let Some(durability) = &self.persistence.durability else { return };
        let how = self.committer(&durability.log);
        self.commit_log_by(how);
    }

    fn commit_log_by(&mut self, how: Commit) {
        let (Some(durability), Some(tail)) = (&mut self.persistence.durability, &mut self.persistence.tail) else {
            return;
        };
        if tail.units > 0 {
            durability.commit(tail, how);
            durability.bound_backlog();
        }
        self.follow_log();
    }

    /// Wakes those who wait for what the log has reached, and acts on what has become of it. To be called when it has got further
    /// on a thread of its own.
    pub fn follow_log(&mut self) {
        let Some(durability) = &mut self.persistence.durability else { return };
        // In this order: what is safe when the log is seen to have failed has been safe before.
        let (state, safe) = (durability.log.state(), durability.safe());
        durability.release_held();
        while durability.waiting.peek().is_some_and(|Reverse((lsn, _))| *lsn <= safe) {
            let Some(Reverse((_, key))) = durability.waiting.pop() else { break };
            if let Some(session) = self.clients.sessions.get_mut(key) {
                session.outbox.wake();
            }
        }
        if state != durability.state {
            self.log_changed(state, safe);
        }
    }

    /// Makes all that was committed as safe as `appendfsync` asks, on this thread. Answers whether it is.
    fn settle(&mut self) -> bool {
        self.commit_log_by(Commit::InPlace);
        if let Some(durability) = &self.persistence.durability
            && !durability.is_safe()
        {
            // The log's thread is at work, or was left what takes a sync first. Of a disk that is full, or has failed, the state tells.
            let _ = durability.log.settle();
            self.follow_log();
        }
        self.persistence.durability.as_ref().is_none_or(Durability::is_safe)
    }

    /// Something is about to take long: what was answered before need not wait for it.
    pub fn send_unsent(&mut self) {
        // Where nothing can leave, nothing need be durable for that: a test that runs a script on a busy machine stays as it is.
        if self.network.raw_sockets.is_some() {
            self.settle();
            self.with_raw_sockets(|sockets, server| sockets.send_unsent(server));
        }
    }

    /// For those who show the data to others while they hold the thread: makes sure that nothing committed can still be lost.
    pub(crate) fn settle_log(&mut self, ks: &Keyspace) -> Result<(), Error> {
        if self.settle() && !self.has_lost(ks) { Ok(()) } else { Err(self.refusal()) }
    }

    /// Whether nobody may ever hear of what shows unit `fence`: the log has failed before it.
    #[inline]
    pub(in crate::engine) fn is_lost(&self, fence: Lsn) -> bool {
        self.has_log_failed() && fence > self.safe()
    }

    /// Whether anything is lost of what the keys hold.
    pub(crate) fn has_lost(&self, ks: &Keyspace) -> bool {
        self.is_lost(ks.last_in_flight())
    }

    /// Which unit must be safe before anybody hears of what the one that is underway has changed or seen so far. What a client
    /// publishes is not heard before what it did earlier.
    pub(in crate::engine) fn fence_so_far(&self, ks: &Keyspace, current: &Session) -> Lsn {
        let has_changed = self.persistence.durability.is_some() && ks.has_changed();
        let own = if has_changed { self.lsn_of_tail().next() } else { Lsn::NONE };
        own.max(ks.fence()).max(current.fence)
    }

    /// Which unit must be safe before anybody hears, while the one that is underway has not ended, how many scripts and libraries
    /// there are. To load or drop them is never rolled back: so if the unit has done that, it will have its number.
    pub(in crate::engine) fn fence_beside(&self, ks: &Keyspace) -> Lsn {
        let has_loaded = self.persistence.durability.is_some() && ks.has_loaded_scripts();
        let own = if has_loaded { self.lsn_of_tail().next() } else { Lsn::NONE };
        own.max(ks.last_change_beside())
    }

    /// The number of the last unit that was added to the tail. Behind a log that has failed nobody will ever write one.
    pub(in crate::engine) fn lsn_of_tail(&self) -> Lsn {
        match (&self.persistence.durability, &self.persistence.tail) {
            (Some(durability), Some(tail)) => durability.lsn_of(tail),
            _ => Lsn::MAX,
        }
    }

    /// Lets a session's reply, `out` from `start` on, wait for unit `fence`; what shows something that is lost is refused. When the
    /// replies of a read are complete, they are [counted](Self::end_read). Answers whether the reply stays: if not, the call must not wait
    /// for another one.
    #[inline]
    pub(in crate::engine) fn fence_reply(
        &mut self,
        session: &mut Session,
        fence: Lsn,
        out: &mut Reply,
        start: usize,
    ) -> bool {
        if planted::is(Bug::NoFence) {
            return true;
        }
        if self.is_lost(fence) {
            self.refuse_lost(out, start);
            return false;
        }
        session.fence = session.fence.max(fence);
        if out.len() > start {
            session.outbox.fence_coming(start, fence);
        }
        true
    }

    #[cold]
    fn refuse_lost(&mut self, out: &mut Reply, start: usize) {
        // The one answer to the command, which does not run again.
        self.clients.room.has_taken_back();
        out.take_back(start);
        let refusal = self.refusal().to_string();
        self.meters.stats.count_error(refusal.as_bytes());
        out.error(refusal.as_bytes());
    }

    /// Ends a read of a session that is out of the registry: all of it is answered with `out`. Counts those of the replies that
    /// wait for a unit, all at once, for they are bounded for each read; then [catches up](Self::catch_up).
    #[inline]
    pub(in crate::engine) fn end_read(&mut self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        if let Some((from, fence)) = session.outbox.coming() {
            self.hold(out.len().saturating_sub(from), fence);
        }
        self.catch_up(session, had_failed, out);
    }

    /// Counts bytes that wait for unit `fence`, unless it is safe. When there are too many, the engine waits as well.
    pub(in crate::engine) fn hold(&mut self, bytes: usize, fence: Lsn) {
        let Some(durability) = &mut self.persistence.durability else { return };
        if fence <= durability.safe() {
            return;
        }
        durability.held.since += bytes;
        durability.held.newest = durability.held.newest.max(fence);
        if durability.held.bytes() > LOG_BEHIND_MAX_BYTES {
            durability.release_held();
        }
        if durability.held.bytes() > LOG_BEHIND_MAX_BYTES {
            durability.held = Held::default();
            self.settle();
        }
    }

    /// Has all that was committed made durable, whatever `appendfsync` says, and does not wait for it. Answers up to which unit
    /// that is.
    pub(crate) fn begin_sync(&mut self) -> Lsn {
        self.commit_log();
        let Some(durability) = &self.persistence.durability else { return Lsn::NONE };
        // With `always` it is on its way anyway.
        if durability.log.policy() != SyncPolicy::Always {
            durability.log.begin_sync();
        }
        durability.last
    }

    /// Whether there is a log, and it can't lose unit `lsn` any more, whatever happens.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        self.persistence.durability.as_ref().is_some_and(|durability| durability.log.durable() >= lsn)
    }

    /// After what time it is worth while to ask again for what [`begin_sync`](Self::begin_sync) has begun.
    pub(crate) fn look_again_at_log(&self) -> Duration {
        if self.is_unlogged() { LOG_FULL_RETRY } else { LOG_SYNC_RETRY }
    }

    /// Makes all that was committed durable, whatever `appendfsync` says. Answers whether that was done; false without a log.
    pub(crate) fn drain_log(&mut self) -> bool {
        self.commit_log_by(Commit::InPlace);
        let is_done = self.persistence.durability.as_ref().is_some_and(|durability| durability.log.drain().is_ok());
        self.follow_log();
        is_done
    }

    /// Sets when the log is synced from now on, once all that was committed is durable. Fails if that can't be.
    pub(crate) fn set_sync_policy(&mut self, policy: AppendFsync) -> Result<(), String> {
        self.commit_log_by(Commit::InPlace);
        let Some(durability) = &self.persistence.durability else { return Ok(()) };
        let set = durability.log.set_policy(policy.into()).map_err(|error| error.to_string());
        self.follow_log();
        set
    }

    /// Makes all durable, and marks the log's end as clean, also that of one that was turned off before.
    pub(crate) fn close_log(&mut self) -> Result<(), CommitError> {
        self.commit_log_by(Commit::InPlace);
        let closed = self.persistence.durability.take().map_or(Ok(()), |durability| durability.log.close());
        self.persistence.saving.await_ended_log();
        closed
    }

    /// Looks after the log, `hz` times a second: has written what nobody waits for, and tries again what did not fit on the disk.
    pub fn look_after_log(&mut self) {
        self.commit_log();
        if let Some(durability) = &self.persistence.durability
            && !durability.is_safe()
        {
            durability.log.nudge();
            self.follow_log();
        }
        self.note_log_latency();
    }

    /// Tells the latency monitor of the longest write and the longest sync since it was told last.
    fn note_log_latency(&mut self) {
        let Some(durability) = &self.persistence.durability else { return };
        let (write, sync) = durability.log.take_longest();
        let is_always = durability.log.policy() == SyncPolicy::Always;
        self.meters.latency.note(Event::LogWrite, write, &self.time.clock);
        self.meters.latency.note(if is_always { Event::LogSyncAlways } else { Event::LogSync }, sync, &self.time.clock);
    }

    /// Gives back the memory of the log's buffers when it has had nothing to do for a while.
    pub(in crate::engine) fn give_back_log_buffers(&mut self) {
        if let (Some(durability), Some(tail)) = (&mut self.persistence.durability, &mut self.persistence.tail) {
            durability.give_back(tail);
        }
    }

    /// Bytes held for changes that the log has not taken yet.
    pub fn log_buffer_bytes(&self) -> usize {
        let handed_over = self.persistence.durability.as_ref().map_or(0, |durability| durability.log().backlog_bytes());
        handed_over + self.persistence.tail.as_ref().map_or(0, Tail::mem_bytes)
    }

    /// Tells a session what has become of the log while it was out of the registry. `out` is what it is answered: if it shows what
    /// the log has failed to keep since the session was taken out, when it `had_failed` or not, the session ends.
    #[inline]
    pub(in crate::engine) fn catch_up(&self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        if self.is_unlogged() != session.restrictions.has(Restrictions::UNLOGGED) || self.has_log_failed() {
            self.tell_of_log(session, had_failed, out);
        }
    }

    #[cold]
    fn tell_of_log(&self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        session.restrictions.set(Restrictions::UNLOGGED, self.is_unlogged());
        if self.has_log_failed() && !had_failed && session.outbox.shows_more_than(self.safe()) {
            out.truncate(0);
            session.close_at_once();
        }
    }

    fn log_changed(&mut self, state: State, safe: Lsn) {
        let Some(durability) = &mut self.persistence.durability else { return };
        durability.state = state;
        match state {
            State::Good => tracing::warn!("the log is written again: commands that write are taken"),
            State::Full => {
                tracing::error!("the log's disk is full: commands that write are refused until there is space")
            }
            State::Poisoned => {
                let why = durability.log.failure().map(ToString::to_string).unwrap_or_default();
                tracing::error!("{why}: commands that write are refused until a restart");
                durability.last = safe;
                durability.waiting = BinaryHeap::new();
                self.set_tail(None);
                // They wait for an answer to what is lost, or for a value that is.
                for session in self.clients.sessions.iter_mut().filter(|session| session.outbox.shows_more_than(safe)) {
                    let free = session.outbox.sendable(safe);
                    session.outbox.take_from(free);
                    session.kill();
                }
            }
        }
        // The client whose pipeline runs is not among the sessions. What comes next in it is admitted anew.
        self.pipeline.others_come_first = true;
        for session in self.clients.sessions.iter_mut() {
            session.restrictions.set(Restrictions::UNLOGGED, state != State::Good);
        }
    }

    /// Whether the log, or where there is none what stands for it, takes no changes: the bit of every session's restrictions.
    #[inline]
    pub(crate) fn is_unlogged(&self) -> bool {
        self.persistence.durability.as_ref().map_or_else(|| self.stops_writes(), |durability| !durability.is_good())
    }

    /// Tells all sessions whether the log, or what stands for it, takes changes.
    pub(in crate::engine) fn update_gates(&mut self) {
        let is_unlogged = self.is_unlogged();
        for session in self.clients.sessions.iter_mut() {
            session.restrictions.set(Restrictions::UNLOGGED, is_unlogged);
        }
    }

    /// Whether the log is known to have failed for good.
    #[inline]
    pub(in crate::engine) fn has_log_failed(&self) -> bool {
        self.persistence.durability.as_ref().is_some_and(|durability| durability.state == State::Poisoned)
    }

    /// Whether commands that write are refused, because what they write should be saved and can't be. With a log it is safe.
    fn stops_writes(&self) -> bool {
        self.persistence.durability.is_none()
            && self.config.stop_writes_on_bgsave_error
            && !self.config.save.is_empty()
            && !self.persistence.saving.history(Purpose::Save).is_ok
    }

    /// Refuses a client's command for which the log is in no state.
    pub(in crate::engine) fn admit_to_log(&self, session: &Session, entry: &Entry) -> Result<(), Error> {
        let flags = entry.command.flags;
        match &session.transaction {
            Some(transaction) if flags.has(Flags::RUNS_QUEUE) => self.admit_logged(transaction.flags),
            // As in Redis: whoever asks whether the server is well is to learn that it is not.
            _ if flags.has(Flags::TELLS_HEALTH) => self.admit_logged(Flags::WRITE),
            _ => self.admit_logged(flags),
        }
    }

    /// Refuses what a command of these flags would do to the data while the log takes nothing.
    #[inline]
    pub(crate) fn admit_logged(&self, flags: Flags) -> Result<(), Error> {
        if !flags.has(Flags::WRITE) {
            return Ok(());
        }
        match &self.persistence.durability {
            Some(_) if self.is_unlogged() => Err(self.refusal()),
            None if self.stops_writes() => Err(NOT_SAVED),
            _ => Ok(()),
        }
    }

    /// Whether a call that waits would be refused now, and may be served when there is space again: it should wait on until then.
    pub(in crate::engine) fn awaits_log(&self, ticket: Ticket) -> bool {
        if !self.is_unlogged() || self.has_log_failed() {
            return false;
        }
        let parked = self.waits.get(ticket);
        parked.is_some_and(|parked| self.table.by_id(parked.command).command.flags.has(Flags::WRITE))
    }

    #[cold]
    pub(in crate::engine) fn refusal(&self) -> Error {
        let failure = self.persistence.durability.as_ref().and_then(|durability| durability.log.failure());
        let why = failure.map_or_else(|| "No space left on device".to_owned(), ToString::to_string);
        Error::owned(format!("MISCONF Errors writing to the AOF file: {why}"))
    }
}
