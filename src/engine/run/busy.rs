//! A busy script: which other commands are served while it runs, and how it is ended.
//!
//! The Lua state asks again and again whether its script may go on ([`ServerState::script_interrupted`]). Once the
//! script has run for `busy-reply-threshold`, the engine lets the network floor serve the other connections
//! ([`RawSockets`](crate::engine::RawSockets)) from inside that check: commands flagged `allow_busy` run, all others
//! get -BUSY. SCRIPT KILL, FUNCTION KILL and SHUTDOWN NOSAVE are flagged so; each sets a mark here that ends the script
//! at its next step. `script-time-limit` ends it, too.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::admit::Admission;
use super::dispatch::call;
use crate::base::lsn::Lsn;
use crate::engine::limits::{BUSY_REPLY_PAUSE_BYTES, IMPORT_SCRIPT_MAX};
use crate::engine::state::{Entry, Fed, Origin, ServerState};
use crate::keyspace::Keyspace;
use crate::programs::running::ScriptKind;
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, Decoder, RequestLimits};
use crate::script::Verdict;
use crate::session::limits::OUTPUT_UNCOUNTED_BYTES;
use crate::session::{Restrictions, Service, Session};
use crate::spec::session_key::SessionKey;
use crate::spec::{Flags, Group};

/// How often the other connections are served while a script is busy.
pub(in crate::engine) const SERVE_EVERY: Duration = Duration::from_millis(5);

/// Whether a script that `ran` this long may go on. An import has a limit even where none is configured.
fn verdict_on_time(ran: Duration, limit_ms: i64, is_import: bool) -> Verdict {
    match limit_ms {
        1.. if ran >= Duration::from_millis(limit_ms.unsigned_abs()) => Verdict::OutOfTime,
        ..=0 if is_import && ran >= IMPORT_SCRIPT_MAX => Verdict::OutOfTimeInImport,
        _ => Verdict::Continue,
    }
}

impl ServerState {
    /// Called again and again while a script runs. Returns whether the script may go on, or the reason to end it.
    pub fn script_interrupted(&mut self, ks: &mut Keyspace) -> Verdict {
        let threshold_ms = self.config.busy_reply_threshold_ms;
        let limit_ms = self.config.script_time_limit_ms;
        self.memory.freed.note_allocated();
        let Some(script) = &mut self.programs.running else { return Verdict::Continue };
        self.pipeline.others_come_first = true;
        let now_ticks = self.meters.stats.clock.raw();
        let since = |ticks| Duration::from_nanos(self.meters.stats.clock.delta_as_nanos(ticks, now_ticks));
        let ran = since(script.started_ticks);
        if threshold_ms > 0 && ran >= Duration::from_millis(threshold_ms as u64) {
            if !script.is_busy {
                script.is_busy = true;
                let subject = script.subject.iter();
                tracing::warn!(
                    script = %subject.map(|subject| subject.name.escape_ascii().to_string()).collect::<String>(),
                    client = script.caller.id,
                    ran_ms = ran.as_millis() as u64,
                    "a script is slow: other clients get -BUSY; SCRIPT KILL or FUNCTION KILL ends it"
                );
            }
            if since(script.last_served_ticks) >= SERVE_EVERY {
                script.last_served_ticks = now_ticks;
                // As in Redis, TIME advances here, so that a script which waits for a time ends. Deadlines keep the
                // unit's time.
                self.time.unit_time_us = None;
                self.leave_if_deposed();
                self.with_raw_sockets(|sockets, server| sockets.serve(ks, server));
            }
        }
        // The duration of the script's next command begins now, after the commands served in between.
        self.time.last_ticks = self.meters.stats.clock.raw();
        let kill = self.programs.running.as_ref().is_some_and(|script| script.kill_requested);
        if kill || self.ending.shutdown.is_some() || self.ending.stop_signal.load(Ordering::Relaxed) {
            return Verdict::Kill;
        }
        let is_import = self.programs.running.as_ref().is_some_and(|script| script.is_import);
        verdict_on_time(ran, limit_ms, is_import)
    }

    /// Answers the complete commands of another connection's `input` while a script is busy.
    pub fn feed_while_busy(
        &mut self,
        ks: &mut Keyspace,
        key: SessionKey,
        decoder: &mut Decoder,
        input: &[u8],
        out: &mut Reply,
    ) -> Fed {
        let Some(mut session) = self.clients.sessions.take(key) else { return Fed::Suspended };
        out.set_form(session.form());
        session.outbox.begin_batch();
        self.time.last_ticks = self.meters.stats.clock.raw();
        session.active_ticks = self.time.last_ticks;
        let had_failed = self.persistence.has_failed();
        let fed = loop {
            if session.is_suspended() {
                break Fed::Suspended;
            }
            if out.len() >= BUSY_REPLY_PAUSE_BYTES {
                break Fed::Paused;
            }
            let limits = RequestLimits {
                bulk_bytes: self.config.proto_max_bulk_len,
                unauthenticated: session.restrictions.contains(Restrictions::UNAUTHENTICATED),
            };
            match decoder.decode(input, &limits) {
                Ok(true) => self.answer_while_busy(ks, &mut session, decoder.argv(input), out),
                Ok(false) => break Fed::Drained,
                Err(error) => {
                    out.error(format!("ERR {error}").as_bytes());
                    self.connections().close_soon(&mut session);
                    break Fed::Suspended;
                }
            }
        };
        self.end_read(&mut session, had_failed, out);
        if out.len() > OUTPUT_UNCOUNTED_BYTES {
            self.clients.hold_answers_to_limit(
                &self.config,
                &mut self.meters.stats,
                self.persistence.reach(&self.config),
                &mut session,
                out,
            );
        }
        session.pending_input = input.len().saturating_sub(decoder.keep_from());
        self.clients.sessions.put(session);
        fed
    }

    fn answer_while_busy(&mut self, ks: &mut Keyspace, session: &mut Session, argv: Argv<'_>, out: &mut Reply) {
        let start = out.len();
        let table = self.table_of(session);
        match table.resolve(argv) {
            Err(_) => session.refuse_unresolved(table, &mut self.audience, &mut self.meters.stats, argv, out),
            Ok(entry) => {
                self.run_while_busy(ks, session, entry, argv, out);
                session.mute(out, start);
                session.outbox.drain_fresh(out.buffer_mut());
            }
        }
    }

    fn run_while_busy(
        &mut self,
        ks: &mut Keyspace,
        session: &mut Session,
        entry: &'static Entry,
        argv: Argv<'_>,
        out: &mut Reply,
    ) {
        let admission = match self.admit(session, entry, argv) {
            Ok(admission) => admission,
            Err(error) => return session.refuse(&mut self.audience, &mut self.meters.stats, Some(entry), error, out),
        };
        // What Sentinel's clients ask needs no data, so the script is not in its way.
        let is_beside = session.service == Service::Sentinel && !entry.command.flags.contains(Flags::ADMIN);
        if !is_beside && !entry.command.flags.contains(Flags::ALLOW_BUSY) {
            let kind = self.programs.running.as_ref().map_or(ScriptKind::Script, |script| script.kind);
            let (audience, stats) = (&mut self.audience, &mut self.meters.stats);
            return session.refuse(audience, stats, Some(entry), kind.busy_error(), out);
        }
        session.last_command = Some(entry.id);
        session.commands += 1;
        if let Admission::Queue = admission {
            return session.queue(&self.config, &mut self.meters.stats, entry, argv, out);
        }
        let start = out.len();
        // None of the commands that are allowed here waits for a key.
        let _ = call(ks, self, session, entry, argv, out, Origin::Client);
        if session.restrictions.contains(Restrictions::OBSERVED) {
            self.delivery().observe_beside(session, entry, argv);
        }
        // None of these commands shows the data of keys. Some show the number of libraries.
        let fence = if entry.command.group == Group::Scripting { self.persistence.fence_beside(ks) } else { Lsn::NONE };
        if fence > self.persistence.safe() {
            let _ = self.fence_reply(session, fence, out, start);
        }
        // A WATCH may have been served during the script's unit: the script's changes from here on must be recorded.
        ks.record_from_now(self.audience.recording);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_import_has_a_default_time_limit() {
        let (short, long) = (Duration::from_millis(50), IMPORT_SCRIPT_MAX);
        let on = verdict_on_time;
        assert_eq!([on(short, 0, true), on(long, 0, false), on(long, 60_000, true)], [Verdict::Continue; 3]);
        assert_eq!([on(short, 50, false), on(short, 50, true)], [Verdict::OutOfTime; 2]);
        assert_eq!(on(long, 0, true), Verdict::OutOfTimeInImport);
    }
}
