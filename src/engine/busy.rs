//! A script that takes long: who else is served meanwhile, and how it is ended.
//!
//! The Lua state asks again and again whether its script may go on ([`Server::script_interrupted`]). Once the script has run
//! for `busy-reply-threshold`, the engine lets the network floor serve the other connections ([`RawSockets`]) from inside
//! that question: commands flagged `allow_busy` run, all others are answered -BUSY. SCRIPT KILL, FUNCTION KILL and SHUTDOWN
//! NOSAVE are such commands; what they note here ends the script at its next step. So does `script-time-limit`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::admit::Admission;
use super::ctx::Origin;
use super::dispatch::call;
use super::error::Error;
use super::session::{Gate, Session, SessionKey};
use super::spec::{Flags, Group};
use super::table::Entry;
use super::{Fed, Server};
use crate::base::limits::BUSY_REPLY_PAUSE_BYTES;
use crate::base::lsn::Lsn;
use crate::keyspace::Keyspace;
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, Decoder, OwnedArgv, RequestLimits};
use crate::script::Verdict;

/// How often the other connections are looked at while a script is busy.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// A script of EVAL and its kin.
    Script,
    /// A function of a library.
    Function,
}

impl ScriptKind {
    /// What other clients are told while it runs for long.
    pub fn busy_error(self) -> Error {
        match self {
            ScriptKind::Script => {
                Error::text("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")
            }
            ScriptKind::Function => {
                Error::text("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.")
            }
        }
    }
}

/// Which script runs, and for whom: noted once it has run for a while.
#[derive(Debug)]
pub struct Subject {
    /// The script's SHA1 or the function's name.
    pub name: Box<[u8]>,
    /// The client's command.
    pub command: OwnedArgv,
}

/// The script or function that runs now.
#[derive(Debug)]
pub struct RunningScript {
    /// Which of the two.
    pub kind: ScriptKind,
    /// Which one.
    pub subject: Option<Subject>,
    /// Whose call it is.
    pub caller: SessionKey,
    /// When it began, by the processor's clock.
    pub started_ticks: u64,
    /// It has run for longer than `busy-reply-threshold`: others are answered -BUSY.
    pub is_busy: bool,
    /// It has changed the keyspace.
    pub has_written: bool,
    /// What it has written can be undone.
    pub can_undo: bool,
    /// Somebody asked for its end.
    pub kill_requested: bool,
    last_look_ticks: u64,
}

impl RunningScript {
    /// A script that begins now.
    #[inline]
    pub fn new(kind: ScriptKind, caller: SessionKey, started_ticks: u64) -> RunningScript {
        RunningScript {
            kind,
            subject: None,
            caller,
            started_ticks,
            is_busy: false,
            has_written: false,
            can_undo: false,
            kill_requested: false,
            last_look_ticks: started_ticks,
        }
    }
}

/// The sockets, used past tokio, whose tasks can't run while the engine's thread is inside a script. The connection whose
/// command runs is left alone, but for [`exchange`](RawSockets::exchange).
pub trait RawSockets {
    /// Sends what others have been answered, as far as their sockets take it.
    fn send_unsent(&mut self, server: &mut Server);
    /// The same; accepts who wants to connect, answers who has sent something, and closes the connections that have ended or
    /// are to be closed. Does not wait.
    fn serve(&mut self, ks: &mut Keyspace, server: &mut Server);
    /// Sends what the socket of one connection takes of `unsent`, which it removes, and appends to `received` what came in.
    /// Waits for either, no longer than `patience`. Answers false when the peer has hung up.
    fn exchange(&mut self, key: SessionKey, unsent: &mut Vec<u8>, received: &mut Vec<u8>, patience: Duration) -> bool;
}

impl Server {
    /// Lets the network floor act, if there is one.
    pub(super) fn with_raw_sockets<A>(&mut self, act: impl FnOnce(&mut dyn RawSockets, &mut Server) -> A) -> Option<A> {
        let mut sockets = self.raw_sockets.take()?;
        let answer = act(&mut *sockets, self);
        self.raw_sockets = Some(sockets);
        Some(answer)
    }

    /// Asked while a script runs. Answers whether it may go on, or why not.
    pub fn script_interrupted(&mut self, ks: &mut Keyspace) -> Verdict {
        let threshold_ms = self.config.busy_reply_threshold_ms;
        let limit_ms = self.config.script_time_limit_ms;
        self.freed.look();
        let Some(script) = &mut self.running_script else { return Verdict::Continue };
        self.others_come_first = true;
        let now_ticks = self.stats.clock.raw();
        let since = |ticks| Duration::from_nanos(self.stats.clock.delta_as_nanos(ticks, now_ticks));
        let ran = since(script.started_ticks);
        if threshold_ms > 0 && ran >= Duration::from_millis(threshold_ms as u64) {
            if !script.is_busy {
                script.is_busy = true;
                tracing::warn!(
                    script = %script.subject.iter().map(|subject| subject.name.escape_ascii().to_string()).collect::<String>(),
                    client = script.caller.id,
                    ran_ms = ran.as_millis() as u64,
                    "a script is slow: others are answered -BUSY; SCRIPT KILL or FUNCTION KILL ends it"
                );
            }
            if since(script.last_look_ticks) >= LOOK_EVERY {
                script.last_look_ticks = now_ticks;
                self.with_raw_sockets(|sockets, server| sockets.serve(ks, server));
            }
        }
        // What the script's next command takes begins now, not before what has run meanwhile.
        self.last_ticks = self.stats.clock.raw();
        let kill = self.running_script.as_ref().is_some_and(|script| script.kill_requested);
        if kill || self.shutdown.is_some() || self.stop_signal.load(Ordering::Relaxed) {
            return Verdict::Kill;
        }
        if limit_ms > 0 && ran >= Duration::from_millis(limit_ms as u64) {
            Verdict::OutOfTime
        } else {
            Verdict::Continue
        }
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
        let Some(mut session) = self.sessions.take(key) else { return Fed::Suspended };
        out.set_form(session.form());
        session.outbox.begin_batch();
        session.active_ms = self.clock.now_ms();
        self.last_ticks = self.stats.clock.raw();
        let fed = loop {
            if session.is_suspended() {
                break Fed::Suspended;
            }
            if out.len() >= BUSY_REPLY_PAUSE_BYTES {
                break Fed::Paused;
            }
            let limits = RequestLimits {
                bulk_bytes: self.config.proto_max_bulk_len,
                unauthenticated: session.gate.has(Gate::STRANGER),
            };
            match decoder.decode(input, &limits) {
                Ok(true) => self.answer_while_busy(ks, &mut session, decoder.argv(input), out),
                Ok(false) => break Fed::Drained,
                Err(error) => {
                    out.error(format!("ERR {error}").as_bytes());
                    session.closing = true;
                    break Fed::Suspended;
                }
            }
        };
        session.pending_input = input.len().saturating_sub(decoder.keep_from());
        self.sessions.put(session);
        fed
    }

    fn answer_while_busy(&mut self, ks: &mut Keyspace, session: &mut Session, argv: Argv<'_>, out: &mut Reply) {
        let start = out.len();
        match self.table.resolve(argv) {
            Err(_) => self.refuse_unresolved(session, argv, out),
            Ok(entry) => {
                self.run_while_busy(ks, session, entry, argv, out);
                session.mute(out, start);
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
        let admission = match self.admit(session, entry) {
            Ok(admission) => admission,
            Err(error) => return self.refuse(session, Some(entry), error, out),
        };
        if !entry.command.flags.has(Flags::ALLOW_BUSY) {
            let kind = self.running_script.as_ref().map_or(ScriptKind::Script, |script| script.kind);
            return self.refuse(session, Some(entry), kind.busy_error(), out);
        }
        session.last_command = Some(entry);
        session.commands += 1;
        if let Admission::Queue = admission {
            return self.queue(session, entry, argv, out);
        }
        let start = out.len();
        // None of the commands that are allowed here waits for a key.
        let _ = call(ks, self, session, entry, argv, out, Origin::Client);
        // None of them shows what keys hold. Some tell how many libraries there are.
        let fence = if entry.command.group == Group::Scripting { self.fence_beside(ks) } else { Lsn::NONE };
        if fence > self.safe() {
            self.fence_reply(session, fence, out, start);
        }
        // WATCH may have come while the script's unit is underway: what the script does from here on must be seen.
        ks.record_from_now(self.recording());
    }
}
