//! Which data is durable, and therefore which replies may leave.
//!
//! Every unit that changed something has a number, its Lsn, and is added to the journal's [tail](crate::persist::tail)
//! when it is committed. Until the journal has it, its changes are *in flight*: a crash could take them back. So bytes
//! for a client come with a [fence](crate::engine::session::outbox), the last unit in flight that they show: for a
//! change the unit itself, for a read the last unit that changed a key it looked up. [`ServerState::sendable`] lets the
//! bytes out whose fence the journal has reached, and has the tail written when a client waits for it. By then all
//! ready connections have been served, so one write and one sync serve all of them (group commit). Reads of unchanging
//! data never wait.
//!
//! **The writing thread** is chosen in one place, [`ServerState::committer`]. Writing on the engine's own thread is
//! fastest, but holds up all clients during the sync. The journal's thread lets the engine go on; when it has advanced,
//! the sessions that wait for it are woken ([`ServerState::follow_log`]). While it syncs, the next block gathers, so
//! neither needs a timer. The bytes that may wait for the disk are limited: above the limit the engine waits as well.
//!
//! A journal whose disk is full refuses commands that write, and takes them again when there is space. A failed journal
//! ([`State::Poisoned`]) takes nothing any more. No client has seen the changes that it could not make durable: clients
//! that wait for such a reply are disconnected, and reads of such a key are refused. All other keys can still be read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::base::limits::{LOG_BEHIND_MAX_BYTES, LOG_SYNC_ALONE_MAX, LOG_SYNC_IN_PLACE_MAX};
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::engine::session::{Restrictions, Session};
use crate::engine::state::{Entry, ServerState};
use crate::engine::wait::Ticket;
use crate::keyspace::Keyspace;
use crate::log::group_commit::{Commit, Log, State, SyncPolicy};
use crate::log::planted::{self, Bug};
use crate::persist::journal::{Held, Journal, WAITING_MIN};
use crate::persist::tail::Tail;
use crate::resp::reply::Reply;
use crate::spec::Flags;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

impl ServerState {
    /// Attaches a journal that holds everything up to unit `last`.
    pub(crate) fn attach_log(&mut self, log: Log, last: Lsn) {
        self.set_tail(Some(Tail::new(log.buffer())));
        self.persistence.journal = Some(Journal::new(log, last));
        // A start on a full disk notices it before the first command.
        self.follow_log();
    }

    /// Returns how many of a session's unsent bytes may leave now. If not even the first may, their changes are on the
    /// way to the disk, and the session is woken when the changes are there.
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
            let safe = self.persistence.safe();
            let Some(session) = self.clients.sessions.get_mut(key) else { return 0 };
            let free = session.outbox.sendable(safe);
            if free > 0 {
                return free;
            }
        }
        let waits_for = self.clients.sessions.get_mut(key).and_then(|session| session.outbox.begin_waiting());
        if let (Some(lsn), Some(journal)) = (waits_for, &mut self.persistence.journal) {
            if journal.waiting.len() >= journal.waiting_max {
                let sessions = &mut self.clients.sessions;
                journal.waiting.retain(|Reverse((_, key))| sessions.get_mut(*key).is_some());
                journal.waiting_max = WAITING_MIN.max(2 * journal.waiting.len());
            }
            journal.waiting.push(Reverse((lsn, key)));
        }
        0
    }

    /// Chooses the thread that writes the tail. If replies do not wait for a sync, it is the engine's thread. Otherwise
    /// it is the engine's thread while syncs are so fast that handing them over would cost as much, or, with a single
    /// client, so fast that a newly connecting client would not notice. The duration of the next sync is unknown: a
    /// disk that suddenly stalls holds up the engine once.
    fn committer(&self, log: &Log) -> Commit {
        let longest = if self.clients.sessions.len() > 1 { LOG_SYNC_IN_PLACE_MAX } else { LOG_SYNC_ALONE_MAX };
        let holds_others_up = log.policy() == SyncPolicy::Always && log.sync_time() > longest;
        if holds_others_up { Commit::HandOver } else { Commit::InPlace }
    }

    /// Hands the tail to the journal.
    pub(crate) fn commit_log(&mut self) {
        let Some(journal) = &self.persistence.journal else { return };
        let how = self.committer(&journal.log);
        self.commit_log_by(how);
    }

    fn commit_log_by(&mut self, how: Commit) {
        self.persistence.commit(how);
        self.follow_log();
    }

    /// Wakes the sessions that wait for what the journal has now reached, and acts on changes of its state. Must be
    /// called when the journal's own thread has advanced.
    pub fn follow_log(&mut self) {
        let Some(journal) = &mut self.persistence.journal else { return };
        // The order matters: what is safe when the journal is seen to have failed was safe before.
        let (state, safe) = (journal.log.state(), journal.safe());
        journal.release_held();
        while journal.waiting.peek().is_some_and(|Reverse((lsn, _))| *lsn <= safe) {
            let Some(Reverse((_, key))) = journal.waiting.pop() else { break };
            if let Some(session) = self.clients.sessions.get_mut(key) {
                session.outbox.wake();
            }
        }
        if state != journal.state {
            self.log_changed(state, safe);
        }
    }

    /// Makes all committed units as safe as `appendfsync` asks, and waits. Returns whether they are safe.
    fn settle(&mut self) -> bool {
        let is_safe = self.persistence.settle();
        self.follow_log();
        is_safe
    }

    /// Sends earlier replies before something that takes long, so that they need not wait for it.
    pub fn send_unsent(&mut self) {
        // If nothing can leave, nothing need be durable for it; so a test that runs a script on a busy machine is not
        // affected.
        if self.network.raw_sockets.is_some() {
            self.settle();
            self.with_raw_sockets(|sockets, server| sockets.send_unsent(server));
        }
    }

    /// Makes sure that nothing committed can still be lost, for callers that show the data to clients while they hold
    /// the thread.
    pub(crate) fn settle_log(&mut self, ks: &Keyspace) -> Result<(), Error> {
        if self.settle() && !self.persistence.has_lost(ks) { Ok(()) } else { Err(self.persistence.refusal()) }
    }

    /// Makes a session's reply, `out` from `start` on, wait for unit `fence`. A reply that shows lost data is replaced
    /// by an error. When the replies of a read are complete, they are [counted](Self::end_read). Returns whether the
    /// reply stays: if not, the call must not wait for another one.
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
        if self.persistence.is_lost(fence) {
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
        // This is the only reply to the command, which does not run again.
        self.clients.room.has_taken_back();
        out.take_back(start);
        let refusal = self.persistence.refusal().to_string();
        self.meters.stats.count_error(refusal.as_bytes());
        out.error(refusal.as_bytes());
    }

    /// Ends a read of a session that is out of the registry, whose replies are `out`. Counts the replies that wait for
    /// a unit, all at once, since they are limited per read; then [catches up](Self::catch_up).
    #[inline]
    pub(in crate::engine) fn end_read(&mut self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        if let Some((from, fence)) = session.outbox.coming() {
            self.hold(out.len().saturating_sub(from), fence);
        }
        self.catch_up(session, had_failed, out);
    }

    /// Counts bytes that wait for unit `fence`, unless the unit is safe. When there are too many, the engine waits as
    /// well.
    pub(in crate::engine) fn hold(&mut self, bytes: usize, fence: Lsn) {
        let Some(journal) = &mut self.persistence.journal else { return };
        if fence <= journal.safe() {
            return;
        }
        journal.held.since += bytes;
        journal.held.newest = journal.held.newest.max(fence);
        if journal.held.bytes() > LOG_BEHIND_MAX_BYTES {
            journal.release_held();
        }
        if journal.held.bytes() > LOG_BEHIND_MAX_BYTES {
            journal.held = Held::default();
            self.settle();
        }
    }

    /// Starts to make all committed units durable, whatever `appendfsync` says, without waiting. Returns the last of
    /// them.
    pub(crate) fn begin_sync(&mut self) -> Lsn {
        self.commit_log();
        self.persistence.begin_sync()
    }

    /// Makes all committed units durable, whatever `appendfsync` says, and waits. Returns whether they are durable;
    /// false without a journal.
    pub(crate) fn drain_log(&mut self) -> bool {
        let is_done = self.persistence.drain();
        self.follow_log();
        is_done
    }

    /// Sets when the journal is synced from now on, once all committed units are durable. Fails if they cannot be made
    /// durable.
    pub(crate) fn set_sync_policy(&mut self, policy: AppendFsync) -> Result<(), String> {
        let set = self.persistence.set_sync_policy(policy);
        self.follow_log();
        set
    }

    /// Maintains the journal, `hz` times a second: writes units that no client waits for, and retries writes that did
    /// not fit on the disk.
    pub fn look_after_log(&mut self) {
        self.commit_log();
        if let Some(journal) = &self.persistence.journal
            && !journal.is_safe()
        {
            journal.log.nudge();
            self.follow_log();
        }
        if let Some(journal) = &self.persistence.journal {
            self.meters.note_journal_latency(journal, &self.time.clock);
        }
    }

    /// Applies changes of the journal's state to a session that was out of the registry. `had_failed` is the state when
    /// the session was taken out. If the journal has failed since, and the replies `out` show data that it lost, the
    /// session ends.
    #[inline]
    pub(in crate::engine) fn catch_up(&self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        if self.persistence.is_unlogged(&self.config) != session.restrictions.has(Restrictions::UNLOGGED)
            || self.persistence.has_failed()
        {
            self.tell_of_log(session, had_failed, out);
        }
    }

    #[cold]
    fn tell_of_log(&self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        session.restrictions.set(Restrictions::UNLOGGED, self.persistence.is_unlogged(&self.config));
        if self.persistence.has_failed() && !had_failed && session.outbox.shows_more_than(self.persistence.safe()) {
            out.truncate(0);
            session.close_at_once();
        }
    }

    fn log_changed(&mut self, state: State, safe: Lsn) {
        let Some(journal) = &mut self.persistence.journal else { return };
        journal.state = state;
        match state {
            State::Good => tracing::warn!("the log is written again: commands that write are taken"),
            State::Full => {
                tracing::error!("the log's disk is full: commands that write are refused until there is space")
            }
            State::Poisoned => {
                let why = journal.log.failure().map(ToString::to_string).unwrap_or_default();
                tracing::error!("{why}: commands that write are refused until a restart");
                journal.last = safe;
                journal.waiting = BinaryHeap::new();
                self.set_tail(None);
                // They wait for a reply about lost data or for a lost value.
                for session in self.clients.sessions.iter_mut().filter(|session| session.outbox.shows_more_than(safe)) {
                    let free = session.outbox.sendable(safe);
                    session.outbox.take_from(free);
                    session.kill();
                }
            }
        }
        // The client whose pipeline runs is not among the sessions. Its next commands are admitted anew.
        self.pipeline.others_come_first = true;
        for session in self.clients.sessions.iter_mut() {
            session.restrictions.set(Restrictions::UNLOGGED, state != State::Good);
        }
    }

    /// Refuses a client's command that the journal's state does not allow.
    pub(in crate::engine) fn admit_to_log(&self, session: &Session, entry: &Entry) -> Result<(), Error> {
        let flags = entry.command.flags;
        match &session.transaction {
            Some(transaction) if flags.has(Flags::RUNS_QUEUE) => {
                self.persistence.admit_logged(&self.config, transaction.flags)
            }
            // As in Redis, a command that asks about the server's health must learn that it is not healthy.
            _ if flags.has(Flags::TELLS_HEALTH) => self.persistence.admit_logged(&self.config, Flags::WRITE),
            _ => self.persistence.admit_logged(&self.config, flags),
        }
    }

    /// Whether a waiting call would be refused now but may be served when there is space again, so that it should wait
    /// on until then.
    pub(in crate::engine) fn awaits_log(&self, ticket: Ticket) -> bool {
        if !self.persistence.is_unlogged(&self.config) || self.persistence.has_failed() {
            return false;
        }
        let parked = self.waits.get(ticket);
        parked.is_some_and(|parked| self.table.by_id(parked.command).command.flags.has(Flags::WRITE))
    }
}
