//! Turns the bytes that a connection has read into replies: decodes, admits and runs one command after the other.

use super::admit::Admission;
use super::dispatch::call;
use crate::base::lsn::Lsn;
use crate::engine::state::{Engine, Entry, Fed, Origin, Run, ServerState};
use crate::engine::time::Time;
use crate::keyspace::UnitMode;
use crate::persist::tail::UnitOrigin;
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, Decoder, RequestLimits};
use crate::session::limits::OUTPUT_UNCOUNTED_BYTES;
use crate::session::output_limits::has_answered_enough;
use crate::session::{Restrictions, Session};
use crate::spec::batch::Batch;
use crate::spec::session_key::SessionKey;

impl Engine {
    /// Answers the complete commands of `input`, which `decoder` has read up to its position. Replies go to `out`.
    pub fn feed(&mut self, key: SessionKey, decoder: &mut Decoder, input: &[u8], out: &mut Reply) -> Fed {
        self.server.clients.weigh_input(&mut self.server.meters.stats, key, input.len());
        let Some(mut session) = self.server.clients.sessions.take(key) else { return Fed::Suspended };
        session.outbox.begin_batch();
        session.pending_input = input.len();
        self.server.time.last_ticks = self.server.meters.stats.clock.raw();
        session.active_ticks = self.server.time.last_ticks;
        let began_ticks = self.server.time.last_ticks;
        self.server.pipeline.others_come_first = false;
        self.server.pipeline.sent_past = 0;
        self.read_clock();
        let had_failed = self.server.persistence.has_failed();
        let fed = self.feed_session(&mut session, decoder, input, out);
        self.server.end_read(&mut session, had_failed, out);
        if out.len() > OUTPUT_UNCOUNTED_BYTES {
            self.server.clients.hold_answers_to_limit(
                &self.server.config,
                &mut self.server.meters.stats,
                self.server.persistence.reach(&self.server.config),
                &mut session,
                out,
            );
        }
        session.pending_input = input.len().saturating_sub(decoder.keep_from());
        self.server.clients.sessions.put(session);
        self.server.clients.weigh(&mut self.server.meters.stats, key);
        self.server.meters.stats.command_ticks += self.server.time.last_ticks.saturating_sub(began_ticks);
        self.server.clients.registry.rests();
        if !self.server.clients.limits_due.is_empty() {
            self.server.clients.enforce_output_limits(
                &self.server.config,
                &mut self.server.meters.stats,
                self.server.persistence.reach(&self.server.config),
                self.server.time.clock.steady_ms(),
            );
        }
        fed
    }

    fn feed_session(&mut self, session: &mut Session, decoder: &mut Decoder, input: &[u8], out: &mut Reply) -> Fed {
        out.set_form(session.form());
        let table = self.server.table_of(session);
        let mut batch = self.batch.take().unwrap_or_default();
        let fed = loop {
            if session.is_suspended() {
                break Fed::Suspended;
            }
            if has_answered_enough(&self.server.config, out) || self.server.pipeline.others_come_first {
                break Fed::Paused;
            }
            let limits = RequestLimits {
                bulk_bytes: self.server.config.proto_max_bulk_len,
                unauthenticated: session.restrictions.contains(Restrictions::UNAUTHENTICATED),
            };
            match batch.fill(decoder, input, &limits, table) {
                Ok(0) => break Fed::Drained,
                Ok(_) => self.run_batch(session, &mut batch, decoder, input, out),
                Err(error) => {
                    out.error(format!("ERR {error}").as_bytes());
                    self.server.connections().close_soon(session);
                    break Fed::Suspended;
                }
            }
        };
        self.batch = Some(batch);
        fed
    }

    /// Runs the commands of a batch in order. Stops before the first command that may not run now, and sets the decoder
    /// to its start.
    fn run_batch(
        &mut self,
        session: &mut Session,
        batch: &mut Batch<Run>,
        decoder: &mut Decoder,
        input: &[u8],
        out: &mut Reply,
    ) {
        if batch.len() > 1 && self.ks.is_large(session.db) {
            batch.warm(&self.ks, session.db, input);
        }
        self.begin_fence_behind(session);
        self.server.pipeline.batch_ends_at = session.commands + batch.len() as u64;
        for (index, planned) in batch.iter().enumerate() {
            let must_pause = has_answered_enough(&self.server.config, out) || self.server.pipeline.others_come_first;
            if index > 0 && (session.is_suspended() || must_pause) {
                return decoder.rewind_to(planned.starts_at);
            }
            self.read_clock();
            let argv = if planned.is_inline { decoder.argv(input) } else { batch.argv(planned, input) };
            if let Some(slot) = planned.slot {
                self.ks.hint(session.db, slot);
            }
            self.execute(session, planned.entry, argv, out);
            if self.server.clients.room.take_must_rerun() {
                if !session.is_postponed() {
                    session.wait_for_room();
                }
                return decoder.rewind_to(planned.starts_at);
            }
        }
    }

    /// Sets the keyspace's time, unless the clock was read a moment ago.
    #[inline]
    fn read_clock(&mut self) {
        let server = &mut self.server;
        // If the ticks have gone back, as on a virtual machine that moves to another processor, this reads the clock
        // again.
        if server.time.last_ticks.wrapping_sub(server.time.clock_read_ticks) >= server.time.reading_holds_ticks {
            server.time.clock_read_ticks = server.time.last_ticks;
            self.ks.set_now_ms(server.time.clock.now_ms());
        }
    }

    /// Admits and runs one command of a client as a unit, and shows it to the observers. `entry` is the command that
    /// its name resolved to, `None` if there is no such command.
    #[inline]
    fn execute(&mut self, session: &mut Session, entry: Option<&'static Entry>, argv: Argv<'_>, out: &mut Reply) {
        match entry {
            None => {
                let table = self.server.table_of(session);
                let ServerState { audience, meters, .. } = &mut self.server;
                session.refuse_unresolved(table, audience, &mut meters.stats, argv, out);
            }
            Some(entry) if session.restrictions.is_empty() => self.run::<false>(session, entry, argv, out),
            Some(entry) => self.run_gated(session, entry, argv, out),
        }
        // Messages that the command published to its own session follow its reply.
        session.outbox.drain_fresh(out.buffer_mut());
    }

    /// Runs one command of a client, whose session may have restrictions if it `IS_GATED`.
    #[inline]
    fn run<const IS_GATED: bool>(
        &mut self,
        session: &mut Session,
        entry: &'static Entry,
        argv: Argv<'_>,
        out: &mut Reply,
    ) {
        session.last_command = Some(entry.id);
        session.commands += 1;
        self.server.clients.registry.begins(session.key, entry.id.index(), self.server.time.last_ticks);
        let mode = if IS_GATED { session.unit_mode() } else { UnitMode::empty() };
        let unit = self.begin_behind(UnitOrigin::Command, mode);
        let start = out.len();
        let wait = call(&mut self.ks, &mut self.server, session, entry, argv, out, Origin::Client);
        let waiting = wait.map(|wait| self.server.connections().park(session, entry, argv, *wait, &self.ks, out));
        if IS_GATED && session.restrictions.contains(Restrictions::TRACKED) && !self.server.clients.room.must_rerun {
            self.server.delivery().remember_read(&self.ks, session, entry, argv);
        }
        let has_changed = self.commit(unit, &mut [session]);
        let fence = self.ks.fence();
        if fence > Lsn::NONE
            && !self.server.fence_reply(session, fence, out, start)
            && let Some(ticket) = waiting
        {
            self.server.connections().give_up(session, ticket);
        }
        if has_changed {
            self.wake(Some(session));
        }
    }

    /// Runs one command of a session that has restrictions.
    #[cold]
    fn run_gated(&mut self, session: &mut Session, entry: &'static Entry, argv: Argv<'_>, out: &mut Reply) {
        let is_tracked = session.restrictions.contains(Restrictions::TRACKED);
        if is_tracked {
            let gone = self.server.audience.tracking.take_excess(self.server.config.tracking_table_max_keys);
            if !gone.is_empty() {
                self.server.delivery().invalidate_unfenced(&gone, &mut [session]);
            }
        }
        if session.restrictions.contains(Restrictions::METERED) {
            self.make_memory(session);
        }
        // Pushes to the session that this causes come before the command's reply.
        session.outbox.drain_fresh(out.buffer_mut());
        let start = out.len();
        let is_queueing = session.transaction.is_some();
        match self.server.admit(session, entry, argv) {
            Err(error) => {
                session.refuse(&mut self.server.audience, &mut self.server.meters.stats, Some(entry), error, out);
                if is_queueing && session.transaction.is_none() {
                    self.server.delivery().observe_beside(session, entry, argv);
                }
            }
            Ok(_)
                if session.restrictions.contains(Restrictions::PAUSED)
                    && self.server.clients.postpones(
                        self.server.table,
                        &self.server.programs,
                        session,
                        entry,
                        argv,
                    ) =>
            {
                self.server.clients.room.must_rerun = true;
                return;
            }
            Ok(Admission::Queue) => {
                session.queue(&self.server.config, &mut self.server.meters.stats, entry, argv, out);
            }
            Ok(Admission::Run) => {
                let is_observed = session.restrictions.contains(Restrictions::OBSERVED);
                if is_observed {
                    self.server.delivery().observe_begin(session, entry, argv, Origin::Client);
                }
                self.run::<true>(session, entry, argv, out);
                if is_observed && !self.server.clients.room.must_rerun {
                    self.server.delivery().observe_call(&self.ks, session, entry, argv, Origin::Client);
                }
            }
        }
        if is_tracked {
            let due = self.server.audience.tracking.take_due();
            if !due.is_empty() {
                self.server.delivery().invalidate_unfenced(&due, &mut [session]);
            }
            session.end_caching(Some(entry));
        }
        if session.is_late {
            self.server.send_to_leader(session, out.as_bytes().get(start..).unwrap_or_default());
        }
        session.mute(out, start);
        // A command without a reply holds nothing back.
        self.begin_fence_behind(session);
    }
}

impl Time {
    /// Makes the next command read the wall clock, however recent the last reading is.
    pub fn expire_clock_reading(&mut self) {
        self.clock_read_ticks = self.last_ticks.wrapping_sub(self.reading_holds_ticks);
    }
}

#[cfg(test)]
mod tests {
    use crate::base::clock::Clock;
    use crate::base::rng::Rng;
    use crate::config::Config;
    use crate::engine::{CommandTable, Engine};
    use crate::resp::reply::{Form, Reply};
    use crate::resp::request::Decoder;
    use crate::session::Peer;

    #[test]
    fn a_reading_of_the_wall_clock_holds_for_a_while_unless_ticks_go_back() {
        let table = Box::leak(Box::new(CommandTable::new(&[])));
        let mut engine =
            Engine::new(Config::default(), table, Clock::system(), Rng::seeded(1)).expect("memory for Lua");
        let key = engine.server.open_session(Peer::default());
        let mut time_seen = |holds_ticks: u64, ticks_ago: i64| {
            engine.ks.set_now_ms(17);
            engine.server.time.reading_holds_ticks = holds_ticks;
            engine.server.time.clock_read_ticks =
                engine.server.meters.stats.clock.raw().wrapping_add_signed(-ticks_ago);
            engine.feed(key, &mut Decoder::default(), b"GET key\r\n", &mut Reply::new(Form::Resp2));
            engine.ks.now_ms()
        };
        const HOUR: i64 = 3_600_000_000_000;
        assert_eq!(time_seen(2 * HOUR as u64, HOUR), 17);
        assert!(time_seen(HOUR as u64, HOUR) > 1_700_000_000_000);
        assert!(time_seen(2 * HOUR as u64, -HOUR) > 1_700_000_000_000);
        assert!(time_seen(0, 0) > 1_700_000_000_000);

        engine.ks.set_now_ms(17);
        engine.server.time.reading_holds_ticks = u64::MAX / 2;
        engine.server.time.expire_clock_reading();
        engine.feed(key, &mut Decoder::default(), b"GET key\r\n", &mut Reply::new(Form::Resp2));
        assert!(engine.ks.now_ms() > 1_700_000_000_000);
    }
}
