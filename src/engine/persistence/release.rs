//! Which data is durable, and therefore which replies may leave.
//!
//! Every unit that changed something has a number, its Lsn, and is added to the journal's [tail](crate::persist::tail)
//! when it is committed. Until the journal has it, its changes are *in flight*: a crash could take them back. So bytes
//! for a client come with a [fence](crate::session::outbox), the last unit in flight that they show: for a
//! change the unit itself, for a read the last unit that changed a key it looked up. [`ServerState::sendable`] lets the
//! bytes out whose fence the journal has reached, and has the tail written when a client waits for it. By then all
//! ready connections have been served, so one write and one sync serve all of them (group commit). Reads of unchanging
//! data never wait.
//!
//! **The writing thread** is chosen in one place, [`Journal::committer`](crate::persist::journal::Journal::committer).
//! Writing on the engine's own thread is fastest, but holds up all clients during the sync. The journal's thread lets
//! the engine go on; when it has advanced, the sessions that wait for it are woken ([`ServerState::follow_journal`]).
//! While it syncs, the next block gathers, so neither needs a timer. The bytes that may wait for the disk are limited:
//! above the limit the engine waits as well.
//!
//! A journal whose disk is full refuses commands that write, and takes them again when there is space. A failed journal
//! ([`Change::Failed`]) takes nothing any more. No client has seen the changes that it could not make durable: clients
//! that wait for such a reply are disconnected, and reads of such a key are refused. All other keys can still be read.

use std::time::Duration;

use crate::base::lsn::Lsn;
use crate::consensus::limits::LEASE;
use crate::engine::observe::readers::Readers;
use crate::engine::state::{Delivery, ServerState};
use crate::keyspace::Keyspace;
use crate::log::planted::{self, Bug};
use crate::persist::Persistence;
use crate::persist::fences::FEW_FOLLOWERS;
use crate::persist::group_requests::Waiter;
use crate::persist::journal::{Change, Journal};
use crate::persist::tail::Tail;
use crate::resp::reply::Reply;
use crate::session::{Restrictions, Service, Session};
use crate::spec::Flags;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;
use crate::wait::Ticket;
use crate::wait::wait_queues::Waits;

/// Effects of the journal on clients.
impl Delivery<'_> {
    /// Sets the tail that receives the units from here on; `None` keeps no units.
    pub(in crate::engine) fn set_tail(&mut self, tail: Option<Tail>) {
        self.audience.set_reader(Readers::LOG, tail.is_some());
        self.persistence.tail = tail;
    }

    /// Wakes the sessions that wait for what the journal has now reached, and acts on changes of its state. Must be
    /// called when the journal's own thread has advanced.
    pub fn follow_journal(&mut self) {
        let Some(journal) = &mut self.persistence.journal else { return };
        let sessions = &mut self.clients.sessions;
        let wake = |key| {
            if let Some(session) = sessions.get_mut(key) {
                session.outbox.wake();
            }
        };
        if let Some(change) = journal.follow(wake) {
            self.journal_changed(change);
        }
    }

    /// Makes all committed units as safe as `appendfsync` asks, and waits.
    pub(in crate::engine) fn wait_until_safe(&mut self) {
        self.persistence.wait_until_safe();
        self.follow_journal();
    }

    /// Counts bytes that wait for unit `fence`, unless the unit is safe. When there are too many, the engine waits as
    /// well.
    pub(in crate::engine) fn hold(&mut self, bytes: usize, fence: Lsn) {
        if let Some(journal) = &mut self.persistence.journal
            && journal.hold(bytes, fence)
        {
            self.wait_until_safe();
        }
    }

    #[cold]
    fn journal_changed(&mut self, change: Change) {
        if let Change::Failed { safe } = change {
            self.set_tail(None);
            // They wait for a reply about lost data or for a lost value.
            for session in self.clients.sessions.iter_mut().filter(|session| session.outbox.shows_more_than(safe)) {
                let free = session.outbox.sendable(safe);
                session.outbox.take_from(free);
                session.kill();
            }
        }
        // The client whose pipeline runs is not among the sessions. Its next commands are admitted anew.
        self.pipeline.others_come_first = true;
        self.clients.set_unlogged(change != Change::Good);
    }
}

impl ServerState {
    /// Returns how many of a session's unsent bytes may leave now. If not even the first may, their changes are on the
    /// way to the disk, and the session is woken when the changes are there.
    #[inline]
    pub fn sendable(&mut self, key: SessionKey) -> usize {
        match self.clients.sessions.get_mut(key) {
            None => 0,
            Some(session) if !session.outbox.is_fenced() && session.rounds.are_none() => session.outbox.len(),
            Some(_) => self.sendable_behind_fences(key),
        }
    }

    #[inline(never)]
    fn sendable_behind_fences(&mut self, key: SessionKey) -> usize {
        for is_written in [false, true] {
            if is_written {
                self.commit_units();
            }
            let safe = self.persistence.safe();
            let Some(session) = self.clients.sessions.get_mut(key) else { return 0 };
            let free = session.outbox.sendable(safe);
            let free = free.min(freed_by_rounds(&mut self.persistence, self.config.read_lease, session, is_written));
            if free > 0 {
                return free;
            }
        }
        let sessions = &mut self.clients.sessions;
        let waits_for = sessions.get_mut(key).and_then(|session| session.outbox.begin_waiting());
        if let (Some(lsn), Some(journal)) = (waits_for, &mut self.persistence.journal) {
            journal.wait_for(lsn, key, |key| sessions.get_mut(key).is_some());
        }
        if let (Some(session), Some(journal)) = (sessions.get_mut(key), &mut self.persistence.journal)
            && let Some(round) = session.rounds.begin_waiting()
        {
            journal.wait_for_round(round, key);
        }
        0
    }

    /// Hands the tail to the journal.
    pub(crate) fn commit_units(&mut self) {
        if self.persistence.journal.is_some() {
            self.persistence.commit(self.clients.sessions.len());
            self.follow_journal();
        }
    }

    /// See [`Delivery::follow_journal`].
    pub fn follow_journal(&mut self) {
        self.delivery().follow_journal();
        self.follow_feeds();
    }

    /// Begins to answer the readers of the feed that wait for units which are safe now.
    pub(in crate::engine) fn follow_feeds(&mut self) {
        if !self.persistence.has_waiting_feeds() {
            return;
        }
        let (waits, sessions) = (&mut self.waits, &self.clients.sessions);
        let call = |waits: &Waits, (client, command)| waits.blocking_call(sessions, client, command);
        let is_waiting = |client: Waiter| sessions.get(client.0).map(|_| call(waits, client).is_some());
        for client in self.persistence.begin_due_feeds(is_waiting) {
            if let Some(ticket) = call(waits, client) {
                waits.lift_deadline(ticket);
            }
        }
    }

    /// Sends earlier replies before something that takes long, so that they need not wait for it.
    pub fn send_unsent(&mut self) {
        // If nothing can leave, nothing need be durable for it; so a test that runs a script on a busy machine is not
        // affected.
        if self.network.raw_sockets.is_some() {
            self.persistence.wait_until_safe();
            self.follow_journal();
            self.with_raw_sockets(|sockets, server| sockets.send_unsent(server));
        }
    }

    /// Makes sure that nothing committed can still be lost, for callers that show the data to clients while they hold
    /// the thread.
    pub(crate) fn ensure_units_safe(&mut self, ks: &Keyspace) -> Result<(), Error> {
        let is_safe = self.persistence.wait_until_safe();
        self.follow_journal();
        if is_safe && !self.persistence.has_lost(ks) { Ok(()) } else { Err(self.persistence.refusal()) }
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
        self.clients.room.take_must_rerun();
        out.discard_from(start);
        let refusal = self.persistence.refusal().to_string();
        self.meters.stats.count_error(refusal.as_bytes());
        out.error(refusal.as_bytes());
    }

    /// Ends a read of a session that is out of the registry, whose replies are `out`. Counts the replies that wait for
    /// a unit, all at once, since they are limited per read; then [catches up](Self::catch_up).
    #[inline]
    pub(in crate::engine) fn end_read(&mut self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        if !out.is_empty() {
            session.wait_for_round(&self.persistence);
        }
        if let Some((from, fence)) = session.outbox.coming() {
            self.hold(out.len().saturating_sub(from), fence);
        }
        self.catch_up(session, had_failed, out);
    }

    /// Applies changes of the server's state to a session that was out of the registry: the restrictions that [others
    /// set](Restrictions::SET_BY_OTHERS), and a failure of the journal. `had_failed` is the journal's state when the
    /// session was taken out. If the journal has failed since, and the replies `out` show data that it lost, the
    /// session ends.
    #[inline]
    pub(in crate::engine) fn catch_up(&self, session: &mut Session, had_failed: bool, out: &mut Reply) {
        let by_others = self.restrictions_set_by_others();
        if session.restrictions & Restrictions::SET_BY_OTHERS != by_others || self.persistence.has_failed() {
            session.catch_up_slowly(&self.persistence, by_others, had_failed, out);
        }
    }

    /// Counts bytes that wait for unit `fence`, unless the unit is safe. When there are too many, the engine waits as
    /// well.
    pub(in crate::engine) fn hold(&mut self, bytes: usize, fence: Lsn) {
        if let Some(journal) = &mut self.persistence.journal
            && journal.hold(bytes, fence)
        {
            self.delivery().wait_until_safe();
        }
    }

    /// Maintains the journal, `hz` times a second: writes units that no client waits for, and retries writes that did
    /// not fit on the disk.
    pub fn maintain_journal(&mut self) {
        self.commit_units();
        if let Some(journal) = &self.persistence.journal
            && !journal.is_safe()
        {
            journal.nudge();
            self.follow_journal();
        }
        if let Some(journal) = &self.persistence.journal {
            self.meters.note_journal_latency(journal, &self.time.clock);
        }
    }

    /// Whether a waiting call would be refused now but may be served when there is space again, so that it should wait
    /// on until then.
    pub(in crate::engine) fn awaits_journal(&self, ticket: Ticket) -> bool {
        if !self.persistence.is_unlogged(&self.config) || self.persistence.has_failed() {
            return false;
        }
        let parked = self.waits.get(ticket);
        parked.is_some_and(|parked| self.table.by_id(parked.command).command.flags.contains(Flags::WRITE))
    }
}

/// Returns how many unsent bytes of a session need not wait until the group confirms that this node still led after
/// they were made. Asks for that if nothing else will tell, once all units `are_proposed`.
///
/// A lease makes this unnecessary, since the bytes were made before it is asked. Before it ends it is renewed by such a
/// question.
fn freed_by_rounds(persistence: &mut Persistence, has_lease: bool, session: &mut Session, are_proposed: bool) -> usize {
    let Some(group) = persistence.journal.as_mut().and_then(Journal::group) else { return usize::MAX };
    let lease = if has_lease { group.lease_left() } else { Duration::ZERO };
    let newest = session.rounds.newest();
    let is_free = |round| !lease.is_zero() || group.is_confirmed(round);
    let free = session.rounds.free(session.outbox.sent_to(), is_free);
    if are_proposed && free == 0 || lease > Duration::ZERO && lease < LEASE / 2 {
        group.ask_for(newest);
    }
    free
}

impl Session {
    /// Makes what is appended to the outbox next wait until this node, if it leads a group, is known to lead still.
    #[inline]
    pub(in crate::engine) fn wait_for_round(&mut self, persistence: &Persistence) {
        if let Some(group) = persistence.journal.as_ref().and_then(Journal::member)
            && group.leads()
            && self.service == Service::Data
            && !planted::is(Bug::NoRound)
        {
            self.rounds.begin(group.current_round(), self.outbox.end());
        }
    }
}

impl Session {
    #[cold]
    #[inline(never)]
    fn catch_up_slowly(
        &mut self,
        persistence: &Persistence,
        by_others: Restrictions,
        had_failed: bool,
        out: &mut Reply,
    ) {
        self.restrict(Restrictions::SET_BY_OTHERS, false);
        self.restrict(by_others, true);
        if persistence.has_failed() && !had_failed && self.outbox.shows_more_than(persistence.safe()) {
            out.truncate(0);
            self.close_at_once();
        }
    }

    /// Whether what a command of these flags would run may find old data: for EXEC, whether all queued commands may.
    pub(in crate::engine) fn may_find_old_data(&self, flags: Flags) -> bool {
        let queued = self.transaction.as_ref().filter(|_| flags.contains(Flags::RUNS_QUEUE));
        queued.map_or(flags.contains(Flags::STALE), |transaction| !transaction.needs_fresh_data)
    }

    /// Returns the flags of what a command of this session would run: for EXEC those of the queued commands.
    pub(in crate::engine) fn flags_to_run(&self, flags: Flags) -> Flags {
        match &self.transaction {
            Some(transaction) if flags.contains(Flags::RUNS_QUEUE) => transaction.flags,
            // As in Redis, a command that asks about the server's health must learn that it is not healthy. A node that
            // follows is, and one that too few follow.
            _ if flags.contains(Flags::TELLS_HEALTH) && self.is_kept_from_writing_by_itself() => Flags::WRITE,
            _ => flags,
        }
    }

    fn is_kept_from_writing_by_itself(&self) -> bool {
        self.restrictions & (Restrictions::UNLOGGED | Restrictions::FOLLOWING) == Restrictions::UNLOGGED
    }

    /// Refuses a command that runs what has these flags if it writes and too few nodes follow.
    pub(crate) fn admit_short_of_followers(&self, flags: Flags) -> Result<(), Error> {
        let is_refused = self.restrictions.contains(Restrictions::FEW_FOLLOWERS) && flags.contains(Flags::WRITE);
        if is_refused { Err(FEW_FOLLOWERS) } else { Ok(()) }
    }
}
