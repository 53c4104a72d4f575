//! A unit, from its beginning to all its consequences.
//!
//! Every change of the keyspace happens inside a unit, which happens whole or not at all. A unit is a client's command
//! (EXEC, a script and a function are commands), a call that waited and is dispatched again, or the expiry of keys by
//! the clock. Each unit begins ([`Engine::begin`]) and ends ([`Engine::commit`]) here; the commit shows its effects to
//! the [observers](crate::engine::observe). No client reads a reply of a unit before the unit is committed.
//!
//! The changes of a unit may be what other calls wait for. These calls are dispatched again, each as a unit of its own,
//! until no waiting call can go on ([`Engine::wake`]).

use super::dispatch::call;
use crate::base::lsn::Lsn;
use crate::engine::limits::{EXPIRY_SLICE, PAUSE_RETRY, WAITS_SLICE, WAITS_SLICE_TIMEOUTS};
use crate::engine::state::{Delivery, Engine, Origin, ServerState};
use crate::keyspace::effect::Effect;
use crate::keyspace::limits::{EXPIRY_SLICE_TIMERS, LEASE_MAX_MS};
use crate::keyspace::{DbIndex, Keyspace, Misfit, UnitMode};
use crate::log::planted::{self, Bug};
use crate::meters::latency::Event;
use crate::persist::tail::UnitOrigin;
use crate::resp::reply::Reply;
use crate::session::Sessions;
use crate::session::{Restrictions, Session};
use crate::wait::wait_queues::Waits;
use crate::wait::wait_queues::{Mode, Parked, Ready};
use crate::wait::{Ticket, Wait, Want};

/// The outcome of dispatching a waiting call again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// The call waits no longer.
    Done,
    /// The call was dispatched and waits on.
    WaitsOn,
    /// The call could not be dispatched now.
    NotNow,
}

/// A unit that has begun and must be committed.
#[must_use = "a unit that changed something must be committed"]
pub(in crate::engine) struct Unit(UnitOrigin);

impl Engine {
    /// Begins a unit, in which time stands still. Its audience need not have waited for any earlier unit.
    #[inline]
    pub(in crate::engine) fn begin(&mut self, origin: UnitOrigin) -> Unit {
        self.begin_fence(Lsn::NONE);
        self.begin_behind(origin, UnitMode::empty())
    }

    /// Begins a unit behind the current fence: its audience hears of all units since the [fence
    /// began](Self::begin_fence) first.
    #[inline]
    pub(in crate::engine) fn begin_behind(&mut self, origin: UnitOrigin, mode: UnitMode) -> Unit {
        let ServerState { audience, config, persistence, waits, .. } = &self.server;
        audience.assert_readers_are_known(config, persistence, waits);
        self.ks.begin_unit_in(mode, self.ks.now_ms(), self.server.audience.recording);
        self.server.time.unit_time_us = None;
        Unit(origin)
    }

    /// Begins a fence. The audience of the units to come has waited for unit `awaited` anyway.
    #[inline]
    pub(in crate::engine) fn begin_fence(&mut self, awaited: Lsn) {
        if let Some(journal) = &self.server.persistence.journal {
            self.ks.begin_fence(journal.safe(), awaited);
        }
    }

    /// Begins the fence of the next replies. They leave after the earlier replies, so they need not wait again for the
    /// units that those wait for.
    pub(in crate::engine) fn begin_fence_behind(&mut self, session: &Session) {
        // Limited to what this session has seen itself: the outbox may hold messages of other clients, and their fence
        // is not part of what the session publishes.
        self.begin_fence(session.outbox.fence_of_next().min(session.fence));
    }

    /// Ends a unit: shows its effects to the observers. `out` are the sessions that are out of the registry and must be
    /// shown the effects, too. Returns whether the unit changed anything. The keyspace's
    /// [fence](crate::keyspace::Keyspace::fence) is then the unit that must be durable before any client hears of this
    /// one.
    #[inline(always)]
    pub(in crate::engine) fn commit(&mut self, Unit(origin): Unit, out: &mut [&mut Session]) -> bool {
        let has_changed = !self.ks.effects().is_empty();
        if has_changed {
            self.server.observe(origin, &mut self.ks, out);
        }
        self.ks.end_unit();
        has_changed
    }

    /// Runs the waiting calls that may go on after a change, the longest waiting first, as long as their keys hold what
    /// they want. Their changes may wake further calls. `current` is the session whose command runs, if any.
    ///
    /// One command may wake very many calls that wait for places or for a result of ONCE: after [`WAITS_SLICE`] calls
    /// the rest is left to [`time_out_waits`](Self::time_out_waits), which runs soon. That is safe, since a result of
    /// ONCE is not used up, and newcomers queue for places behind the rest; a command that stores something else under
    /// such a key is not held up. All other calls are served here, before the next command could take what they wait
    /// for.
    pub(in crate::engine) fn wake(&mut self, current: Option<&mut Session>) {
        self.wake_within(current, &mut 0);
    }

    /// Like [`wake`](Self::wake), in a slice that has `dispatched` this many calls before; counts on.
    fn wake_within(&mut self, mut current: Option<&mut Session>, dispatched: &mut usize) {
        if self.server.waits.has_ready() {
            if self.server.clients.pause.is_on() {
                // The calls might change something.
                return;
            }
            // The waking command may have taken long, and the calls must not get keys that have expired since.
            self.ks.set_now_ms(self.server.time.clock.now_ms());
        }
        while let Some(ready) = self.server.waits.take_ready() {
            if !self.serve(&ready, current.as_deref_mut(), dispatched) {
                self.server.waits.put_off(ready);
            }
        }
    }

    /// Goes on with the calls that earlier slices did not reach, until this slice has `dispatched` enough.
    fn wake_put_off(&mut self, dispatched: &mut usize) {
        while *dispatched < WAITS_SLICE && !self.server.clients.pause.is_on() {
            let Some(ready) = self.server.waits.take_put_off() else { return };
            if !self.serve(&ready, None, dispatched) {
                self.server.waits.put_off(ready);
            }
            self.wake_within(None, dispatched);
        }
    }

    /// Serves the calls that wait for one key, and counts them. Returns whether all calls were served that could go on.
    fn serve(&mut self, ready: &Ready, mut current: Option<&mut Session>, dispatched: &mut usize) -> bool {
        let mut is_done = true;
        for want in Want::ALL {
            let mut served = None;
            while let Some(ticket) = self.server.waits.next_after(ready, want, served) {
                let is_worth_it = want.is_met(&self.ks, ready.db, &ready.key)
                    || (want == Want::Place && self.server.waits.has_not_retried(ticket));
                if !is_worth_it {
                    break;
                }
                if matches!(want, Want::Place | Want::String) && *dispatched >= WAITS_SLICE {
                    is_done = false;
                    break;
                }
                let again = self.retry(ticket, current.as_deref_mut());
                served = Some(ticket);
                *dispatched += 1;
                match again {
                    Again::WaitsOn if want == Want::Place => break,
                    Again::NotNow => {
                        is_done = false;
                        break;
                    }
                    Again::WaitsOn | Again::Done => {}
                }
            }
        }
        if is_done {
            // Otherwise the first call's turn comes with the next slice, whether it finds a place or holds one already.
            self.server.time_first_for_place(&self.ks, ready.db, &ready.key);
        }
        is_done
    }

    /// Dispatches a waiting call again from the start, as a unit of its own. `current` is the session whose command
    /// runs; the call may be waiting beside this very session.
    fn retry(&mut self, ticket: Ticket, current: Option<&mut Session>) -> Again {
        if self.server.awaits_journal(ticket) {
            self.server.waits.schedule_retry(self.server.time.clock.steady_ms(), ticket);
            return Again::WaitsOn;
        }
        let Some(parked) = self.server.waits.take(ticket) else { return Again::Done };
        match current {
            // The call has only just begun to block its session, whose command still runs. It has seen the changes of
            // its own unit; it will see the changes of the calls served now once the session is back. A group's reader
            // misses nothing: its own read was the touch.
            Some(own) if own.key == parked.session && parked.mode != Mode::Beside => {
                let is_reader = parked.want == Want::Group && parked.or_string.is_none();
                self.server.waits.put(parked);
                if is_reader { Again::Done } else { Again::NotNow }
            }
            Some(own) if own.key == parked.session => self.dispatch_again(own, parked, None),
            other => {
                let Some(mut session) = self.server.clients.sessions.take(parked.session) else {
                    self.server.waits.put(parked);
                    return Again::Done;
                };
                let had_failed = self.server.persistence.has_failed();
                session.outbox.begin_batch();
                let waits_on = self.dispatch_again(&mut session, parked, other);
                if session.outbox.is_fenced() {
                    // The journal may have advanced while the session was out.
                    session.outbox.wake();
                }
                // Its reply is in the outbox already.
                let (key, form) = (session.key, session.form());
                self.server.catch_up(&mut session, had_failed, &mut Reply::new(form));
                self.server.clients.sessions.put(session);
                self.server.clients.weigh(&mut self.server.meters.stats, key);
                waits_on
            }
        }
    }

    /// Dispatches a call of a session that is out of the registry. `other` is a second session that is out.
    fn dispatch_again(&mut self, session: &mut Session, parked: Box<Parked>, other: Option<&mut Session>) -> Again {
        if session.is_leaving() {
            // A client that is being closed must not take anything, and its calls must not come up again and again
            // until it is gone.
            self.server.connections().stop_waiting(session, &parked);
            return Again::Done;
        }
        let selected = std::mem::replace(&mut session.db, parked.db);
        // The database selected inside an open MULTI is not the database of this call.
        let to_select = session.transaction.as_mut().and_then(|transaction| transaction.selected.take());
        let waits_on = self.run_again(session, parked, other);
        session.db = selected;
        if let Some(transaction) = &mut session.transaction {
            transaction.selected = to_select;
        }
        waits_on
    }

    fn run_again(&mut self, session: &mut Session, parked: Box<Parked>, other: Option<&mut Session>) -> Again {
        let mut reply = parked.begin_answer(session.form());
        let entry = self.server.table.by_id(parked.command);
        let (wait, fence) = match self.server.admit_retry(session, entry, parked.argv.as_argv()) {
            Ok(()) => self.call_again(session, &parked, &mut reply, other),
            Err(error) => {
                let text = error.to_string();
                self.server.meters.stats.count_error(text.as_bytes());
                self.server.meters.stats.commands[entry.id.index()].rejected += 1;
                reply.error(text.as_bytes());
                (None, Lsn::NONE)
            }
        };
        if let Some(wait) = wait {
            let retry_at_ms =
                wait.retry_at_ms.map(|at_ms| self.server.time.clock.steady_at_ms(at_ms, self.ks.now_ms()));
            let ticket = parked.ticket;
            self.server.waits.put(parked);
            self.server.waits.retry_at(ticket, retry_at_ms);
            return Again::WaitsOn;
        }
        self.server.connections().stop_waiting(session, &parked);
        if session.restrictions.contains(Restrictions::TRACKED) {
            self.server.delivery().invalidate_due(session);
        }
        if let Mode::Blocking { is_muted } = parked.mode {
            session.end_caching(Some(entry));
            if !is_muted {
                // Pushes about the client's own change follow the reply.
                session.outbox.drain_fresh(reply.buffer_mut());
            }
        }
        let len = self.server.delivery().answer_parked(session, &parked, reply, fence);
        self.server.hold(len, fence);
        Again::Done
    }

    /// Runs an admitted call as a unit. Returns the new wait, if the call waits on, and the unit that must be durable
    /// before any client hears of this one.
    fn call_again(
        &mut self,
        session: &mut Session,
        parked: &Parked,
        reply: &mut Reply,
        other: Option<&mut Session>,
    ) -> (Option<Box<Wait>>, Lsn) {
        let (entry, argv) = (self.server.table.by_id(parked.command), parked.argv.as_argv());
        self.begin_fence(Lsn::NONE);
        debug_assert!(!self.server.clients.pause.is_on(), "no call is woken during a pause");
        // The call may write. Its session may have been out of the registry when the pause ended. But nothing expires
        // on a node that follows its group.
        let mode = match session.restrictions.contains(Restrictions::FOLLOWING) {
            true => session.unit_mode(),
            false => session.unit_mode().difference(UnitMode::KEEPS_EXPIRED),
        };
        let unit = self.begin_behind(UnitOrigin::Woken, mode);
        // The call's duration begins now: the last command may have ended long ago.
        self.server.time.last_ticks = self.server.meters.stats.clock.raw();
        let wait = call(&mut self.ks, &mut self.server, session, entry, argv, reply, Origin::Retry);
        if wait.is_none() && session.restrictions.contains(Restrictions::TRACKED) {
            self.server.delivery().remember_read(&self.ks, session, entry, argv);
        }
        match other {
            Some(other) => self.commit(unit, &mut [session, other]),
            None => self.commit(unit, &mut [session]),
        };
        (wait, self.ks.fence())
    }

    /// Times out the calls that have waited long enough, and dispatches again the calls that asked for it at this time.
    /// Returns whether there is more to do at once, after other clients have had their turn.
    pub fn time_out_waits(&mut self) -> bool {
        self.ks.set_now_ms(self.server.time.clock.now_ms());
        let now_ms = self.server.time.clock.steady_ms();
        self.server.clients.end_pause_in_time(self.server.time.clock.steady_ms());
        let mut done = 0;
        self.wake_within(None, &mut done);
        self.wake_put_off(&mut done);
        // Some calls time out in each slice, however many calls go on.
        let mut timed_out = 0;
        while let Some(ticket) = self.server.waits.due(now_ms) {
            if done >= WAITS_SLICE && timed_out >= WAITS_SLICE_TIMEOUTS {
                return true;
            }
            timed_out += 1;
            done += 1;
            if self.server.waits.has_waited_enough(&self.server.clients.sessions, ticket, now_ms) {
                let ServerState { waits, audience, meters, table, clients, .. } = &mut self.server;
                if let Some(parked) = waits.get(ticket) {
                    audience.remember_timeout(&mut meters.stats, table, &clients.sessions, &self.ks, parked);
                }
                self.server.end_waiting(&self.ks, ticket, |parked, reply| (parked.on_timeout)(reply));
                continue;
            }
            if self.server.clients.pause.is_on() || self.server.awaits_journal(ticket) {
                // The call might change something, so it runs a little later.
                self.server.waits.schedule_retry(self.server.time.clock.steady_ms(), ticket);
                continue;
            }
            if !self.server.waits.retry_in_turn(ticket) {
                self.retry(ticket, None);
            }
            self.wake_within(None, &mut done);
        }
        // A call that left its queue may have been the first.
        self.wake_within(None, &mut done);
        self.server.waits.has_work() && !self.server.clients.pause.is_on()
    }

    /// Replays a recorded effect as part of the current unit, as [`ServerState::apply`] does.
    pub fn apply(&mut self, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
        self.server.apply(&mut self.ks, db, effect)
    }

    /// Removes one slice of expired keys; returns whether more are due.
    pub fn reclaim_expired(&mut self) -> bool {
        let is_held_up = self.server.persistence.is_unlogged(&self.server.config)
            || self.server.persistence.loading.is_some()
            || self.server.clients.pause.is_on();
        let is_held_up = is_held_up && !planted::is(Bug::FollowerExpires);
        if !self.server.switches.active_expire || is_held_up {
            return false;
        }
        self.ks.set_now_ms(self.server.time.clock.now_ms());
        let began_ticks = self.server.meters.stats.clock.raw();
        let unit = self.begin(UnitOrigin::Expiry);
        let clock = &self.server.meters.stats.clock;
        // With a manual clock, no time passes meanwhile: what a seed decides must not depend on the machine.
        let is_timeless = self.server.time.clock.is_manual();
        let has_time = || is_timeless || clock.delta(began_ticks, clock.raw()) < EXPIRY_SLICE;
        let more = self.ks.reclaim_expired_while(EXPIRY_SLICE_TIMERS, has_time);
        if self.commit(unit, &mut []) {
            self.wake(None);
        }
        let stats = &mut self.server.meters.stats;
        let ended_ticks = stats.clock.raw();
        stats.expire_ticks += ended_ticks.saturating_sub(began_ticks);
        stats.expire_more += u64::from(more);
        let took = stats.clock.delta(began_ticks, ended_ticks);
        self.server.meters.latency.note(Event::ExpireCycle, took, &self.server.time.clock);
        more
    }

    /// Shortens leases that are too long because the clock was years ahead when they were given.
    pub(in crate::engine) fn cut_long_leases(&mut self) {
        let now_ms = self.server.time.clock.now_ms();
        let is_held_up = self.server.persistence.is_unlogged(&self.server.config)
            || self.server.persistence.loading.is_some()
            || self.server.clients.pause.is_on();
        if !self.ks.may_have_long_leases(now_ms) || is_held_up {
            return;
        }
        self.ks.set_now_ms(now_ms);
        let unit = self.begin(UnitOrigin::Expiry);
        let cut = self.ks.cut_long_leases();
        self.commit(unit, &mut []);
        if cut > 0 {
            tracing::warn!(
                "{cut} leases were cut to {} days, the longest allowed: the clock was ahead when they were granted",
                LEASE_MAX_MS / (24 * 60 * 60 * 1000)
            );
        }
    }
}

impl ServerState {
    /// Replays a recorded effect as part of the current unit, on whatever it concerns. Fails when the effect does not
    /// fit the data; the effects of this server's own journal always fit.
    pub(crate) fn apply(&mut self, ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
        let beside = self.programs.scripts.apply(ks, effect).or_else(|| self.persistence.handover.apply(ks, effect));
        beside.unwrap_or_else(|| ks.apply(db, effect))
    }
}

impl Waits {
    /// If the due call waits for a place or a group, touches its keys instead of running it alone: every call that
    /// waits for the same key may go on, too, and all run in their order. Returns whether it did.
    fn retry_in_turn(&mut self, ticket: Ticket) -> bool {
        let Some(parked) = self.get(ticket) else { return false };
        if !matches!(parked.want, Want::Place | Want::Group) || parked.keys.as_argv().is_empty() {
            return false;
        }
        let (db, keys) = (parked.db, parked.keys.clone());
        self.retry_at(ticket, None);
        keys.as_argv().iter().for_each(|name| self.touch(db, name));
        true
    }

    /// Whether a call that waits for a place was not dispatched again since it became the first. It may hold the place
    /// already, through another call.
    fn has_not_retried(&self, ticket: Ticket) -> bool {
        self.get(ticket).is_some_and(|parked| parked.retry_at_ms.is_none())
    }

    /// Schedules a call, which can't be dispatched now, to be dispatched again soon, whether or not its keys are
    /// touched.
    fn schedule_retry(&mut self, steady_ms: i64, ticket: Ticket) {
        let at_ms = steady_ms + PAUSE_RETRY.as_millis() as i64;
        self.retry_at(ticket, Some(at_ms));
    }

    /// Whether a call has timed out or its client is leaving.
    fn has_waited_enough(&self, sessions: &Sessions, ticket: Ticket, now_ms: i64) -> bool {
        self.get(ticket).is_none_or(|parked| {
            parked.has_timed_out(now_ms) || sessions.get(parked.session).is_none_or(Session::is_leaving)
        })
    }
}

impl ServerState {
    /// Ends the waiting of a call with the reply that `answer` writes. Returns whether the call was waiting.
    pub(crate) fn end_waiting(
        &mut self,
        ks: &Keyspace,
        ticket: Ticket,
        answer: impl FnOnce(&Parked, &mut Reply),
    ) -> bool {
        let Some(parked) = self.waits.take(ticket) else { return false };
        let Some(mut session) = self.clients.sessions.take(parked.session) else {
            // The session left without giving up its calls, which must not happen; but this call must not come up for
            // ever.
            debug_assert!(false, "a call without a session");
            self.connections().leave_queues(&parked);
            return false;
        };
        self.connections().stop_waiting(&mut session, &parked);
        self.meters.stats.commands[parked.command.index()].calls += 1;
        let mut reply = parked.begin_answer(session.form());
        answer(&parked, &mut reply);
        // The reply says that the keys held nothing for the call, so it depends on their last changes.
        let changes = parked.wants().map(|(key, _)| ks.last_change_of(parked.db, key));
        let fence = changes.max().unwrap_or_default();
        let len = self.delivery().answer_parked(&mut session, &parked, reply, fence);
        self.clients.sessions.put(session);
        self.hold(len, fence);
        self.clients.weigh(&mut self.meters.stats, parked.session);
        true
    }

    /// Schedules the first call that waits for a place of a key, to be dispatched again when a lease there ends or the
    /// key expires.
    fn time_first_for_place(&mut self, ks: &Keyspace, db: DbIndex, key: &[u8]) {
        let Some(first) = self.waits.first(db, key, Want::Place) else { return };
        if self.awaits_journal(first) {
            // The call looks again in any case.
            return self.waits.schedule_retry(self.time.clock.steady_ms(), first);
        }
        let at_ms = ks.place_may_be_free_at(db, key).map(|at_ms| self.time.clock.steady_at_ms(at_ms, ks.now_ms()));
        self.waits.retry_at(first, at_ms);
    }

    /// When [`Engine::time_out_waits`] next has something to do, by the steady clock.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let has_work = self.waits.has_work() && !self.clients.pause.is_on();
        let now_ms = (has_work || self.memory.is_evicting()).then(|| self.time.clock.steady_ms());
        [self.waits.next_deadline_ms(), self.clients.pause.ends_ms(), now_ms].into_iter().flatten().min()
    }
}

impl Delivery<'_> {
    /// Sends the reply of a call that waited; returns its length. `fence` is the last unit that the reply shows.
    fn answer_parked(&mut self, session: &mut Session, parked: &Parked, mut reply: Reply, mut fence: Lsn) -> usize {
        if self.persistence.is_lost(fence) {
            reply = parked.begin_answer(session.form());
            reply.error(self.persistence.refusal().to_string().as_bytes());
            fence = Lsn::NONE;
        }
        session.fence = session.fence.max(fence);
        session.wait_for_round(self.persistence);
        let len = reply.len();
        match parked.mode {
            Mode::Blocking { is_muted: true } => session.outbox.wake(),
            Mode::Blocking { .. } => session.outbox.push_whole(reply.into_bytes(), fence),
            Mode::Beside => {
                session.outbox.push(reply.as_bytes(), fence);
                self.clients.hold_pushed(self.config, self.stats, self.persistence.reach(self.config), session);
            }
        }
        len
    }
}
