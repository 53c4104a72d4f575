//! A unit from its beginning to all that follows from it.
//!
//! Whatever changes the keyspace does so inside of a unit, which happens whole or not at all: a client's command (EXEC, a script
//! and a function are commands), a call that waited and is dispatched again, and the expiry of keys by the clock. Each of
//! them begins its unit here ([`Engine::begin`]) and ends it here ([`Engine::commit`]), which shows what the unit changed to
//! the [observers](crate::engine::observe::observe). Nobody reads an answer that belongs to a unit before the unit is committed.
//!
//! What a unit changed may be what others wait for. Their calls are dispatched again, each as a unit of its own, until nobody is
//! left who can go on ([`Engine::wake`]).

use super::dispatch::call;
use crate::base::limits::{
    EXPIRY_SLICE, EXPIRY_SLICE_TIMERS, LEASE_MAX_MS, PAUSE_LOOK_AGAIN, WAITS_SLICE, WAITS_SLICE_TIMEOUTS,
};
use crate::base::lsn::Lsn;
use crate::engine::meters::latency::Event;
use crate::engine::session::Sessions;
use crate::engine::session::{Restrictions, Session};
use crate::engine::state::{Engine, Origin, ServerState};
use crate::engine::wait::wait_queues::Waits;
use crate::engine::wait::wait_queues::{Mode, Parked, Ready};
use crate::engine::wait::{Ticket, Wait, Want};
use crate::keyspace::effect::Effect;
use crate::keyspace::{DbIndex, Keyspace, Misfit};
use crate::persist::tail::UnitOrigin;
use crate::resp::reply::Reply;

/// What has become of a waiting call that was to be dispatched again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// It waits no longer.
    Done,
    /// It was dispatched and waits on.
    WaitsOn,
    /// It could not be dispatched now.
    NotNow,
}

/// A unit that has begun and is to be committed.
#[must_use = "a unit that changed something must be committed"]
pub(in crate::engine) struct Unit(UnitOrigin);

impl Engine {
    /// Begins a unit, in which time stands still, and of which somebody hears who has not heard of others before.
    #[inline]
    pub(in crate::engine) fn begin(&mut self, origin: UnitOrigin) -> Unit {
        self.begin_fence(Lsn::NONE);
        self.begin_behind(origin)
    }

    /// The same for a unit of which nobody hears before all that was done since the [fence began](Self::begin_fence).
    #[inline]
    pub(in crate::engine) fn begin_behind(&mut self, origin: UnitOrigin) -> Unit {
        self.server.assert_readers_are_known();
        self.ks.begin_unit(self.ks.now_ms(), self.server.audience.recording);
        self.server.time.unit_time_us = None;
        Unit(origin)
    }

    /// Begins a fence: who hears of the units to come has waited for unit `awaited` anyway.
    #[inline]
    pub(in crate::engine) fn begin_fence(&mut self, awaited: Lsn) {
        if let Some(journal) = &self.server.persistence.journal {
            self.ks.begin_fence(journal.safe(), awaited);
        }
    }

    /// Begins the fence of the replies to come: they leave behind those before them, and what those wait for is no news.
    pub(in crate::engine) fn begin_fence_behind(&mut self, session: &Session) {
        // Only what this session has seen itself: among the replies may be messages of others, whose fence what it publishes does not
        // have.
        self.begin_fence(session.outbox.fence_of_next().min(session.fence));
    }

    /// Ends a unit: shows what it changed to the observers. `out` are the sessions that are out of the registry and must be
    /// told, too. Answers whether it changed anything. What must be durable before anybody hears of the unit is then the keyspace's
    /// [fence](crate::keyspace::Keyspace::fence).
    #[inline(always)]
    pub(in crate::engine) fn commit(&mut self, Unit(origin): Unit, out: &mut [&mut Session]) -> bool {
        let has_changed = !self.ks.effects().is_empty();
        if has_changed {
            self.server.observe(origin, &mut self.ks, out);
        }
        has_changed
    }

    /// Runs the calls that may go on since something was changed, the longest waiting first, while there is what they want.
    /// What they change may wake others. `current` is the session whose command runs, if one does.
    ///
    /// One command may let very many go on that wait for places, or for what ONCE keeps: after [`WAITS_SLICE`] calls those are left to
    /// [`time_out_waits`](Self::time_out_waits), soon. What ONCE keeps is not used up, and those who come meanwhile queue for places behind
    /// them; a command that stores something else under such a key is not held up. All others are served here, before the next command may
    /// take what they wait for.
    pub(in crate::engine) fn wake(&mut self, current: Option<&mut Session>) {
        self.wake_within(current, &mut 0);
    }

    /// The same in a slice in which so many calls were `dispatched` before; counts on.
    fn wake_within(&mut self, mut current: Option<&mut Session>, dispatched: &mut usize) {
        if self.server.waits.has_ready() {
            if self.server.clients.pause.is_on() {
                // What they would do changes something.
                return;
            }
            // What woke them may have taken long, and what they get must not have expired meanwhile.
            self.ks.set_now_ms(self.server.time.clock.now_ms());
        }
        while let Some(ready) = self.server.waits.take_ready() {
            if !self.serve(&ready, current.as_deref_mut(), dispatched) {
                self.server.waits.put_off(ready);
            }
        }
    }

    /// Goes on with those whom earlier slices have not got to, as far as this one has not `dispatched` enough.
    fn wake_put_off(&mut self, dispatched: &mut usize) {
        while *dispatched < WAITS_SLICE && !self.server.clients.pause.is_on() {
            let Some(ready) = self.server.waits.take_put_off() else { return };
            if !self.serve(&ready, None, dispatched) {
                self.server.waits.put_off(ready);
            }
            self.wake_within(None, dispatched);
        }
    }

    /// Serves those who wait for one key, and counts them. Answers whether all were served that could be.
    fn serve(&mut self, ready: &Ready, mut current: Option<&mut Session>, dispatched: &mut usize) -> bool {
        let mut is_done = true;
        for want in Want::ALL {
            let mut served = None;
            while let Some(ticket) = self.server.waits.next_after(ready, want, served) {
                let is_worth_it = want.is_met(&self.ks, ready.db, &ready.key)
                    || (want == Want::Place && self.server.waits.has_not_looked(ticket));
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
            // Else its turn comes with the next slice, whether it finds a place or holds one already.
            self.server.time_first_for_place(&self.ks, ready.db, &ready.key);
        }
        is_done
    }

    /// Dispatches a waiting call again from the start, as a unit of its own. `current` is the session whose command runs, and which the
    /// call may wait beside.
    fn retry(&mut self, ticket: Ticket, current: Option<&mut Session>) -> Again {
        if self.server.awaits_log(ticket) {
            self.server.waits.look_again_later(self.server.time.clock.steady_ms(), ticket);
            return Again::WaitsOn;
        }
        let Some(parked) = self.server.waits.take(ticket) else { return Again::Done };
        match current {
            // What blocks the session has only begun to wait, and its session is at work. What its own unit changed it has seen; what comes
            // about for it by those who are served now it sees when the session is back. A group's reader misses nothing by that: it
            // is touched by its own look.
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
                    // The log may have got further while the session was out.
                    session.outbox.wake();
                }
                // What it was answered is in its outbox already.
                let (key, form) = (session.key, session.form());
                self.server.catch_up(&mut session, had_failed, &mut Reply::new(form));
                self.server.clients.sessions.put(session);
                self.server.clients.weigh(&mut self.server.meters.stats, key);
                waits_on
            }
        }
    }

    /// The same, of a session that is out of the registry. `other` is one that is out, too.
    fn dispatch_again(&mut self, session: &mut Session, parked: Box<Parked>, other: Option<&mut Session>) -> Again {
        if session.is_leaving() {
            // A client that is being closed must not take anything, nor may its calls come up again and again before it is gone.
            self.server.stop_waiting(session, &parked);
            return Again::Done;
        }
        let selected = std::mem::replace(&mut session.db, parked.db);
        // What a transaction that is being put together selects is not where this call was made.
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
        self.server.stop_waiting(session, &parked);
        if session.restrictions.has(Restrictions::TRACKED) {
            self.server.tell_due(session);
        }
        if let Mode::Blocking { is_muted } = parked.mode {
            self.server.end_caching(session, Some(entry));
            if !is_muted {
                // What it is told of its own change follows the answer.
                session.outbox.drain_fresh(reply.buffer_mut());
            }
        }
        self.server.answer_parked(session, &parked, &mut reply, fence);
        self.server.hold(reply.len(), fence);
        Again::Done
    }

    /// Runs an admitted call as a unit. Answers what it waits for, if it waits on, and the unit that must be safe before anybody hears of it.
    fn call_again(
        &mut self,
        session: &mut Session,
        parked: &Parked,
        reply: &mut Reply,
        other: Option<&mut Session>,
    ) -> (Option<Box<Wait>>, Lsn) {
        let (entry, argv) = (self.server.table.by_id(parked.command), parked.argv.as_argv());
        let unit = self.begin(UnitOrigin::Woken);
        // What it takes begins now: the last command may have ended long ago.
        self.server.time.last_ticks = self.server.meters.stats.clock.raw();
        self.ks.set_keeps_delayed(session.restrictions.has(Restrictions::UNLOGGED));
        let wait = call(&mut self.ks, &mut self.server, session, entry, argv, reply, Origin::Retry);
        self.ks.set_keeps_delayed(false);
        if wait.is_none() && session.restrictions.has(Restrictions::TRACKED) {
            self.server.remember_read(&self.ks, session, entry, argv);
        }
        match other {
            Some(other) => self.commit(unit, &mut [session, other]),
            None => self.commit(unit, &mut [session]),
        };
        (wait, self.ks.fence())
    }

    /// Times out the calls that have waited long enough, and dispatches those again that asked for it at this time. Answers whether there
    /// is more to do right away, when others have had their turn.
    pub fn time_out_waits(&mut self) -> bool {
        self.ks.set_now_ms(self.server.time.clock.now_ms());
        let now_ms = self.server.time.clock.steady_ms();
        self.server.clients.end_pause_in_time(self.server.time.clock.steady_ms());
        let mut done = 0;
        self.wake_within(None, &mut done);
        self.wake_put_off(&mut done);
        // However many others go on, some time out.
        let mut timed_out = 0;
        while let Some(ticket) = self.server.waits.due(now_ms) {
            if done >= WAITS_SLICE && timed_out >= WAITS_SLICE_TIMEOUTS {
                return true;
            }
            timed_out += 1;
            done += 1;
            if self.server.waits.has_waited_enough(&self.server.clients.sessions, ticket, now_ms) {
                self.server.remember_timeout(ticket, &self.ks);
                self.server.end_waiting(&self.ks, ticket, |parked, reply| (parked.on_timeout)(reply));
                continue;
            }
            if self.server.clients.pause.is_on() || self.server.awaits_log(ticket) {
                // What it would do changes something: that is done a little later.
                self.server.waits.look_again_later(self.server.time.clock.steady_ms(), ticket);
                continue;
            }
            if !self.server.waits.look_in_turn(ticket) {
                self.retry(ticket, None);
            }
            self.wake_within(None, &mut done);
        }
        // Who has left a queue may have been its first.
        self.wake_within(None, &mut done);
        self.server.waits.has_work() && !self.server.clients.pause.is_on()
    }

    /// Repeats a recorded change, of scripts where these are kept, else of keys, as part of the unit that is underway; fails
    /// when it does not fit what is there, which a stream of this server's own effects always does.
    pub fn apply(&mut self, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
        let Engine { ks, server, .. } = self;
        server.programs.scripts.apply(ks, effect).unwrap_or_else(|| ks.apply(db, effect))
    }

    /// Removes one slice of expired keys; answers whether more are due.
    pub fn reclaim_expired(&mut self) -> bool {
        let is_held_up = self.server.persistence.is_unlogged(&self.server.config)
            || self.server.persistence.loading.is_some()
            || self.server.clients.pause.is_on();
        if !self.server.switches.active_expire || is_held_up {
            return false;
        }
        self.ks.set_now_ms(self.server.time.clock.now_ms());
        let began_ticks = self.server.meters.stats.clock.raw();
        let unit = self.begin(UnitOrigin::Expiry);
        let clock = &self.server.meters.stats.clock;
        let has_time = || clock.delta(began_ticks, clock.raw()) < EXPIRY_SLICE;
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

    /// Cuts leases that a clock made too long which was years ahead and is set right.
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
                "{cut} leases ended later than any may that is given now: the clock was ahead when they were. They end in {} days",
                LEASE_MAX_MS / (24 * 60 * 60 * 1000)
            );
        }
    }
}

impl Waits {
    /// Lets the keys of a call be looked at that waits for a place or a group, if it does, since its time to do so has come: all that
    /// wait for the same may go on, too, and do so in their order.
    fn look_in_turn(&mut self, ticket: Ticket) -> bool {
        let Some(parked) = self.get(ticket) else { return false };
        if !matches!(parked.want, Want::Place | Want::Group) || parked.keys.as_argv().is_empty() {
            return false;
        }
        let (db, keys) = (parked.db, parked.keys.clone());
        self.retry_at(ticket, None);
        keys.as_argv().iter().for_each(|name| self.touch(db, name));
        true
    }

    /// Whether a call that waits for a place has not been dispatched again since it became the first: it may hold the place already, by
    /// another call.
    fn has_not_looked(&self, ticket: Ticket) -> bool {
        self.get(ticket).is_some_and(|parked| parked.retry_at_ms.is_none())
    }

    /// Has a call dispatched again that can't be now, whatever becomes of what it waits for.
    fn look_again_later(&mut self, steady_ms: i64, ticket: Ticket) {
        let at_ms = steady_ms + PAUSE_LOOK_AGAIN.as_millis() as i64;
        self.retry_at(ticket, Some(at_ms));
    }

    /// Whether a call's time is over, or its client leaves.
    fn has_waited_enough(&self, sessions: &Sessions, ticket: Ticket, now_ms: i64) -> bool {
        self.get(ticket).is_none_or(|parked| {
            parked.has_timed_out(now_ms) || sessions.get(parked.session).is_none_or(Session::is_leaving)
        })
    }
}

impl ServerState {
    /// Ends a call's waiting with an answer made by `answer`. Answers whether it was waiting.
    pub(crate) fn end_waiting(
        &mut self,
        ks: &Keyspace,
        ticket: Ticket,
        answer: impl FnOnce(&Parked, &mut Reply),
    ) -> bool {
        let Some(parked) = self.waits.take(ticket) else { return false };
        let Some(mut session) = self.clients.sessions.take(parked.session) else {
            // It has left without giving up its calls, which must not happen; nor must this call come up for ever.
            debug_assert!(false, "a call without a session");
            self.leave_queues(&parked);
            return false;
        };
        self.stop_waiting(&mut session, &parked);
        self.meters.stats.commands[parked.command.index()].calls += 1;
        let mut reply = parked.begin_answer(session.form());
        answer(&parked, &mut reply);
        // That there was nothing for it is a fact about its keys.
        let changes = parked.wants().map(|(key, _)| ks.last_change_of(parked.db, key));
        let fence = changes.max().unwrap_or_default();
        self.answer_parked(&mut session, &parked, &mut reply, fence);
        self.clients.sessions.put(session);
        self.hold(reply.len(), fence);
        self.clients.weigh(&mut self.meters.stats, parked.session);
        true
    }

    /// Has the first of those who wait for a place under a key dispatched again when a lease ends there, or the key expires.
    fn time_first_for_place(&mut self, ks: &Keyspace, db: DbIndex, key: &[u8]) {
        let Some(first) = self.waits.first(db, key, Want::Place) else { return };
        if self.awaits_log(first) {
            // It looks again in any case.
            return self.waits.look_again_later(self.time.clock.steady_ms(), first);
        }
        let at_ms = ks.place_may_be_free_at(db, key).map(|at_ms| self.time.clock.steady_at_ms(at_ms, ks.now_ms()));
        self.waits.retry_at(first, at_ms);
    }

    /// When [`Engine::time_out_waits`] has something to do, by the steady clock.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let has_work = self.waits.has_work() && !self.clients.pause.is_on();
        let now_ms = (has_work || self.memory.eviction_is_behind).then(|| self.time.clock.steady_ms());
        [self.waits.next_deadline_ms(), self.clients.pause.ends_ms(), now_ms].into_iter().flatten().min()
    }

    /// Sends what a call that waited is answered, of which unit `fence` is the last that it shows.
    fn answer_parked(&mut self, session: &mut Session, parked: &Parked, reply: &mut Reply, fence: Lsn) {
        let mut fence = fence;
        if self.persistence.is_lost(fence) {
            *reply = parked.begin_answer(session.form());
            reply.error(self.persistence.refusal().to_string().as_bytes());
            fence = Lsn::NONE;
        }
        session.fence = session.fence.max(fence);
        match parked.mode {
            Mode::Blocking { is_muted: true } => session.outbox.wake(),
            Mode::Blocking { .. } => session.outbox.push(reply.as_bytes(), fence),
            Mode::Beside => {
                session.outbox.push(reply.as_bytes(), fence);
                self.clients.hold_pushed(
                    &self.config,
                    &mut self.meters.stats,
                    self.persistence.reach(&self.config),
                    session,
                );
            }
        }
    }
}
