//! A unit from its beginning to all that follows from it.
//!
//! Whatever changes the keyspace does so inside of a unit, which happens whole or not at all: a client's command (EXEC, a script
//! and a function are commands), a call that waited and is dispatched again, and the expiry of keys by the clock. Each of
//! them begins its unit here ([`Engine::begin`]) and ends it here ([`Engine::commit`]), which shows what the unit changed to
//! the [observers](super::observe). Nobody reads an answer that belongs to a unit before the unit is committed.
//!
//! What a unit changed may be what others wait for. Their calls are dispatched again, each as a unit of its own, until nobody is
//! left who can go on ([`Engine::wake`]).

use super::dispatch::call;
use super::latency::Event;
use super::session::{Restrictions, Session, SessionKey};
use super::state::{Engine, Origin, ServerState};
use super::tail::UnitOrigin;
use super::wait::{Parked, Want};
use super::wait_queues::Ready;
use crate::base::limits::{EXPIRY_SLICE_TIMERS, PAUSE_LOOK_AGAIN};
use crate::base::lsn::Lsn;
use crate::keyspace::effect::Effect;
use crate::keyspace::{DbIndex, Keyspace, Misfit};
use crate::resp::reply::Reply;

/// A unit that has begun and is to be committed.
#[must_use = "a unit that changed something must be committed"]
pub(super) struct Unit(UnitOrigin);

impl Engine {
    /// Begins a unit, in which time stands still, and of which somebody hears who has not heard of others before.
    #[inline]
    pub(super) fn begin(&mut self, origin: UnitOrigin) -> Unit {
        self.begin_fence(Lsn::NONE);
        self.begin_behind(origin)
    }

    /// The same for a unit of which nobody hears before all that was done since the [fence began](Self::begin_fence).
    #[inline]
    pub(super) fn begin_behind(&mut self, origin: UnitOrigin) -> Unit {
        self.server.assert_readers_are_known();
        self.ks.begin_unit(self.ks.now_ms(), self.server.recording);
        self.server.unit_time_us = None;
        Unit(origin)
    }

    /// Begins a fence: who hears of the units to come has waited for unit `awaited` anyway.
    #[inline]
    pub(super) fn begin_fence(&mut self, awaited: Lsn) {
        if let Some(durability) = &self.server.durability {
            self.ks.begin_fence(durability.safe(), awaited);
        }
    }

    /// Begins the fence of the replies to come: they leave behind those before them, and what those wait for is no news.
    pub(super) fn begin_fence_behind(&mut self, session: &Session) {
        // Only what this session has seen itself: among the replies may be messages of others, whose fence what it publishes does not
        // have.
        self.begin_fence(session.outbox.fence_of_next().min(session.fence));
    }

    /// Ends a unit: shows what it changed to the observers. `out` are the sessions that are out of the registry and must be
    /// told, too. Answers whether it changed anything. What must be durable before anybody hears of the unit is then the keyspace's
    /// [fence](crate::keyspace::Keyspace::fence).
    #[inline(always)]
    pub(super) fn commit(&mut self, Unit(origin): Unit, out: &mut [&mut Session]) -> bool {
        let has_changed = !self.ks.effects().is_empty();
        if has_changed {
            self.server.observe(origin, &mut self.ks, out);
        }
        has_changed
    }

    /// Runs the calls that may go on since something was changed, the longest waiting first, while there is what they want.
    /// What they change may wake others. `current` is the session whose command runs, if one does.
    pub(super) fn wake(&mut self, mut current: Option<&mut Session>) {
        if self.server.waits.has_ready() {
            if self.server.pause.is_on() {
                // What they would do changes something.
                return;
            }
            // What woke them may have taken long, and what they get must not have expired meanwhile.
            self.ks.set_now_ms(self.server.clock.now_ms());
        }
        while let Some(ready) = self.server.waits.take_ready() {
            self.serve(&ready, current.as_deref_mut());
        }
    }

    /// Serves those who wait for one key.
    fn serve(&mut self, ready: &Ready, mut current: Option<&mut Session>) {
        for want in Want::ALL {
            let mut served = 0;
            while let Some((ticket, session)) = self.server.waits.next_after(ready, want, served) {
                let is_worth_it = want.is_met(&self.ks, ready.db, &ready.key)
                    || (want == Want::Place && self.server.has_not_looked(session));
                if !is_worth_it {
                    break;
                }
                let waits_on = self.retry(session, current.as_deref_mut());
                served = ticket;
                if waits_on && want == Want::Place {
                    break;
                }
            }
        }
        self.server.time_first_for_place(&self.ks, ready.db, &ready.key);
    }

    /// Dispatches a waiting call again from the start, as a unit of its own. Answers whether it waits on.
    fn retry(&mut self, key: SessionKey, current: Option<&mut Session>) -> bool {
        let Some(mut session) = self.server.sessions.take(key) else { return false };
        // A client that is being closed must not take anything.
        let Some(mut parked) = session.parked.take_if(|_| !session.killed && !session.closing) else {
            self.server.sessions.put(session);
            return false;
        };
        let had_failed = self.server.has_log_failed();
        let mut reply = Reply::new(session.form());
        let entry = self.server.table.by_id(parked.command);
        if let Err(error) = self.server.admit_retry(&session, entry, parked.argv.as_argv()) {
            let text = error.to_string();
            self.server.stats.count_error(text.as_bytes());
            self.server.stats.commands[entry.id.index()].rejected += 1;
            reply.error(text.as_bytes());
            self.server.unpark(key, &parked);
            session.answer_parked(&parked, &reply, Lsn::NONE);
            self.server.sessions.put(session);
            return false;
        }
        session.outbox.begin_batch();
        let unit = self.begin(UnitOrigin::Woken);
        // What it takes begins now: the last command may have ended long ago.
        self.server.last_ticks = self.server.stats.clock.raw();
        let argv = parked.argv.as_argv();
        let (ks, server) = (&mut self.ks, &mut self.server);
        ks.set_keeps_delayed(session.restrictions.has(Restrictions::UNLOGGED));
        let wait = call(ks, server, &mut session, entry, argv, &mut reply, Origin::Retry);
        ks.set_keeps_delayed(false);
        if wait.is_none() && session.restrictions.has(Restrictions::TRACKED) {
            self.server.remember_read(&self.ks, &session, entry, parked.argv.as_argv());
        }
        match current {
            Some(current) => self.commit(unit, &mut [&mut session, current]),
            None => self.commit(unit, &mut [&mut session]),
        };
        let fence = self.ks.fence();
        let waits_on = wait.is_some();
        match wait {
            Some(wait) => {
                let retry_at_ms = wait.retry_at_ms.map(|at_ms| self.server.clock.steady_at_ms(at_ms, self.ks.now_ms()));
                self.server.waits.retry_at(key, &mut parked, retry_at_ms);
                session.parked = Some(parked);
            }
            None => {
                self.server.unpark(key, &parked);
                if session.restrictions.has(Restrictions::TRACKED) {
                    self.server.tell_due(&mut session);
                    self.server.end_caching(&mut session, Some(entry));
                }
                if !parked.muted {
                    // What it is told of its own change follows the answer.
                    session.outbox.drain_fresh(reply.buffer_mut());
                }
                self.server.answer_parked(&mut session, &parked, &mut reply, fence);
            }
        }
        self.server.hold(reply.len(), fence);
        if session.outbox.is_fenced() {
            // The log may have got further while the session was out.
            session.outbox.wake();
        }
        self.server.catch_up(&mut session, had_failed, &mut reply);
        self.server.sessions.put(session);
        waits_on
    }

    /// Times out the calls that have waited long enough, and dispatches those again that asked for it at this time.
    pub fn time_out_waits(&mut self) {
        self.ks.set_now_ms(self.server.clock.now_ms());
        let now_ms = self.server.clock.steady_ms();
        self.server.end_pause_in_time();
        self.wake(None);
        while let Some(key) = self.server.waits.due(now_ms) {
            let is_over = |session: &mut Session| {
                session.killed || session.closing || session.parked.as_ref().is_none_or(|p| p.has_timed_out(now_ms))
            };
            if self.server.sessions.get_mut(key).is_none_or(is_over) {
                self.server.remember_timeout(key, self.ks.now_ms());
                self.server.end_waiting(&self.ks, key, |parked, reply| (parked.on_timeout)(reply));
                continue;
            }
            if self.server.pause.is_on() || self.server.awaits_log(key) {
                self.server.put_off(key, now_ms);
                continue;
            }
            if !self.server.look_in_turn(key) {
                self.retry(key, None);
            }
            self.wake(None);
        }
        // Who has left a queue may have been its first.
        self.wake(None);
    }

    /// Repeats a recorded change, of scripts where these are kept, else of keys, as part of the unit that is underway; fails
    /// when it does not fit what is there, which a stream of this server's own effects always does.
    pub fn apply(&mut self, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
        let Engine { ks, server, .. } = self;
        server.scripts.apply(ks, effect).unwrap_or_else(|| ks.apply(db, effect))
    }

    /// Removes one slice of expired keys; answers whether more are due.
    pub fn reclaim_expired(&mut self) -> bool {
        let is_held_up = self.server.is_unlogged() || self.server.loading.is_some() || self.server.pause.is_on();
        if !self.server.active_expire || is_held_up {
            return false;
        }
        self.ks.set_now_ms(self.server.clock.now_ms());
        let began_ticks = self.server.stats.clock.raw();
        let unit = self.begin(UnitOrigin::Expiry);
        let more = self.ks.reclaim_expired(EXPIRY_SLICE_TIMERS);
        if self.commit(unit, &mut []) {
            self.wake(None);
        }
        let stats = &mut self.server.stats;
        let ended_ticks = stats.clock.raw();
        stats.expire_ticks += ended_ticks.saturating_sub(began_ticks);
        stats.expire_more += u64::from(more);
        let took = stats.clock.delta(began_ticks, ended_ticks);
        self.server.latency.note(Event::ExpireCycle, took, &self.server.clock);
        more
    }
}

impl ServerState {
    /// Ends a call's waiting with an answer made by `answer`. Answers whether it was waiting.
    pub(crate) fn end_waiting(
        &mut self,
        ks: &Keyspace,
        key: SessionKey,
        answer: impl FnOnce(&Parked, &mut Reply),
    ) -> bool {
        let Some(mut session) = self.sessions.take(key) else { return false };
        let parked = session.parked.take();
        let (mut reply, mut fence) = (Reply::new(session.form()), Lsn::NONE);
        if let Some(parked) = &parked {
            self.unpark(key, parked);
            self.stats.commands[parked.command.index()].calls += 1;
            answer(parked, &mut reply);
            // That there was nothing for it is a fact about its keys.
            let changes = parked.wants().map(|(key, _)| ks.last_change_of(parked.db, key));
            fence = changes.max().unwrap_or_default();
            self.answer_parked(&mut session, parked, &mut reply, fence);
        }
        self.sessions.put(session);
        self.hold(reply.len(), fence);
        parked.is_some()
    }

    /// Lets the keys of a call be looked at that waits for a place or a group, if it does, since its time to do so has come: all that
    /// wait for the same may go on, too, and do so in their order.
    fn look_in_turn(&mut self, key: SessionKey) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let Some(parked) = session.parked.as_deref_mut() else { return false };
        if !matches!(parked.want, Want::Place | Want::Group) || parked.keys.as_argv().is_empty() {
            return false;
        }
        self.waits.retry_at(key, parked, None);
        parked.keys.as_argv().iter().for_each(|name| self.waits.touch(parked.db, name));
        true
    }

    /// Whether a call that waits for a place has not been dispatched again since it became the first: it may hold the place already, by
    /// another call.
    fn has_not_looked(&mut self, key: SessionKey) -> bool {
        let parked = self.sessions.get_mut(key).and_then(|session| session.parked.as_deref());
        parked.is_some_and(|parked| parked.retry_at_ms.is_none())
    }

    /// Has the first of those who wait for a place under a key dispatched again when a lease ends there, or the key expires.
    fn time_first_for_place(&mut self, ks: &Keyspace, db: DbIndex, key: &[u8]) {
        let Some(first) = self.waits.first(db, key, Want::Place) else { return };
        let at_ms = ks.place_may_be_free_at(db, key).map(|at_ms| self.clock.steady_at_ms(at_ms, ks.now_ms()));
        if let Some(session) = self.sessions.get_mut(first)
            && let Some(parked) = session.parked.as_deref_mut()
        {
            self.waits.retry_at(first, parked, at_ms);
        }
    }

    /// A call is to be dispatched again, and there is a pause: that is done a little later.
    fn put_off(&mut self, key: SessionKey, now_ms: i64) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Some(parked) = &mut session.parked {
            self.waits.retry_at(key, parked, Some(now_ms + PAUSE_LOOK_AGAIN.as_millis() as i64));
        }
    }

    /// When [`Engine::time_out_waits`] has something to do, by the steady clock.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let has_ready = self.waits.has_ready() && !self.pause.is_on();
        let now_ms = (has_ready || self.eviction_is_behind).then(|| self.clock.steady_ms());
        [self.waits.next_deadline_ms(), self.pause.ends_ms(), now_ms].into_iter().flatten().min()
    }

    /// Sends what a call that waited is answered, of which unit `fence` is the last that it shows.
    fn answer_parked(&mut self, session: &mut Session, parked: &Parked, reply: &mut Reply, fence: Lsn) {
        let mut fence = fence;
        if self.is_lost(fence) {
            reply.truncate(0);
            reply.error(self.refusal().to_string().as_bytes());
            fence = Lsn::NONE;
        }
        session.fence = session.fence.max(fence);
        session.answer_parked(parked, reply, fence);
    }
}
