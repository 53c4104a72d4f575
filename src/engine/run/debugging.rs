//! Debugging of a script by a client: the conversation between them, and how it ends.
//!
//! SCRIPT DEBUG puts a session into a [`DebugMode`]. Its next EVAL is a debugging session, after which the connection
//! is closed, as in Redis. Redis forks a process for it. Here the debugging session holds the one thread, as a slow
//! script does: other clients wait, and get -BUSY once it has lasted for `busy-reply-threshold`. So its length is
//! limited. It ends when the client hangs up, sends or reads nothing for `script-debug-timeout`, or has used up
//! `script-debug-session-limit`, or when another client calls SCRIPT KILL or SHUTDOWN NOSAVE. Unread output is limited,
//! too: while there is too much of it, no input is taken from the client.
//!
//! The client's socket is used past tokio, whose tasks can't run during the session, through the [`RawSockets`] that
//! also serve the other connections. [`Conversation`] holds the bytes on their way in either direction.
//!
//! [`RawSockets`]: crate::engine::RawSockets

use std::time::Duration;

use super::busy::SERVE_EVERY;
use super::script_host::ScriptHost;
use crate::base::limits::SCRATCH_KEEP_BYTES;
use crate::base::lsn::Lsn;
use crate::engine::limits::{DEBUG_COMMAND_MAX_BYTES, DEBUG_UNSENT_MAX_BYTES};
use crate::engine::state::{Ctx, Done};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::{Argv, Decoder, OwnedArgv, RequestLimits};
use crate::script::debug::{Answer, Console};
use crate::script::{Host, LogLevel, Verdict};
use crate::session::DebugMode;

/// The bytes on their way between a debugged script and its client.
pub(crate) struct Conversation {
    /// Whether the script's changes are kept at the end.
    pub mode: DebugMode,
    /// Bytes that the client's socket has not taken yet.
    unsent: Vec<u8>,
    /// Bytes from the client that the debugger has not read yet.
    received: Vec<u8>,
    decoder: Decoder,
    /// When the session began, by the processor's clock.
    begun_ticks: u64,
    /// When the client last sent something, by the same clock.
    heard_ticks: u64,
    hung_up: bool,
    /// Whether the text log says already that the session reached its time limit.
    has_lasted: bool,
    /// Lines that the client has not seen at the end of the script.
    last_lines: Vec<Vec<u8>>,
}

/// Makes an EVAL a debugging session. `run` runs the script and writes its reply. Whatever the result, the session ends
/// and the connection is closed.
pub(crate) fn debug_session(ctx: &mut Ctx<'_>, run: impl FnOnce(&mut Ctx<'_>, &mut Conversation) -> Done) -> Done {
    // Earlier replies leave together with the debugger's lines, and the lines show the current data.
    ctx.server.ensure_units_safe(ctx.ks)?;
    let mut conversation = Conversation {
        mode: ctx.session.debug,
        // Earlier replies go first.
        unsent: ctx.session.outbox.take_from(0),
        received: Vec::new(),
        decoder: Decoder::new(),
        begun_ticks: ctx.server.meters.stats.clock.raw(),
        heard_ticks: ctx.server.meters.stats.clock.raw(),
        hung_up: false,
        has_lasted: false,
        last_lines: Vec::new(),
    };
    conversation.unsent.extend_from_slice(ctx.reply.as_bytes());
    ctx.reply.truncate(0);
    tracing::info!(client = ctx.session.key.id, "a client is debugging a script, which blocks the server");
    let done = run(ctx, &mut conversation);
    conversation.exchange(ctx, Duration::ZERO);
    // Bytes that the socket does not take now go before the script's last lines, and the lines before its reply, once
    // the journal holds what they show. Messages that the script published to this session come after the reply.
    let fence = ctx.server.persistence.fence_so_far(ctx.ks, ctx.session.fence);
    let is_lost = ctx.server.persistence.is_lost(fence);
    let outbox = &mut ctx.session.outbox;
    let published = outbox.take_from(0);
    outbox.push(&std::mem::take(&mut conversation.unsent), Lsn::NONE);
    let mut lines = std::mem::take(&mut conversation.last_lines);
    lines.push(b"<endsession>".to_vec());
    if !is_lost {
        conversation.show(&lines);
        outbox.push(&conversation.unsent, fence);
    }
    outbox.begin_batch();
    outbox.push(&published, fence);
    ctx.server.connections().close_soon(ctx.session);
    done
}

impl Conversation {
    /// Lays lines out as one reply: an array of statuses.
    fn show(&mut self, lines: &[Vec<u8>]) {
        let mut head = Reply::new(Form::Resp2);
        head.array(lines.len());
        self.unsent.extend_from_slice(head.as_bytes());
        for line in lines {
            self.unsent.push(b'+');
            self.unsent.extend(line.iter().map(|&byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
            self.unsent.extend_from_slice(b"\r\n");
        }
    }

    /// Sends unsent bytes and takes received ones; waits up to `patience` for either.
    fn exchange(&mut self, ctx: &mut Ctx<'_>, patience: Duration) {
        if self.hung_up {
            return;
        }
        let (unsent, received) = (self.unsent.len(), self.received.len());
        // Neither input sent ahead nor unread output may grow without bound.
        let may_receive = received <= DEBUG_COMMAND_MAX_BYTES && unsent <= DEBUG_UNSENT_MAX_BYTES;
        let is_open = ctx.server.with_raw_sockets(|sockets, _| {
            let received = may_receive.then_some(&mut self.received);
            sockets.exchange(ctx.session.key, &mut self.unsent, received, patience)
        });
        self.hung_up = is_open != Some(true);
        if self.unsent.is_empty() {
            self.unsent.shrink_to(SCRATCH_KEEP_BYTES);
        }
        let (sent, came) = ((unsent - self.unsent.len()) as u64, (self.received.len() - received) as u64);
        ctx.session.bytes_out += sent;
        ctx.server.meters.stats.sent(sent);
        ctx.session.bytes_in += came;
        ctx.server.meters.stats.received(came);
    }

    /// Returns the next received command; `None` while there is no complete command, or while the client has more than
    /// [`DEBUG_UNSENT_MAX_BYTES`] to read.
    fn next_command(&mut self) -> Result<Option<OwnedArgv>, &'static str> {
        if self.unsent.len() > DEBUG_UNSENT_MAX_BYTES {
            return Ok(None);
        }
        let limits = RequestLimits { bulk_bytes: DEBUG_COMMAND_MAX_BYTES, unauthenticated: false };
        match self.decoder.decode(&self.received, &limits) {
            Ok(true) => {
                let command = OwnedArgv::from_argv(self.decoder.argv(&self.received));
                self.received.drain(..self.decoder.keep_from());
                self.decoder.rebase();
                Ok(Some(command))
            }
            Ok(false) if self.received.len() <= DEBUG_COMMAND_MAX_BYTES => Ok(None),
            _ => Err("ERR protocol error"),
        }
    }
}

/// The engine, as a debugged script sees it.
pub(in crate::engine) struct DebugHost<'h, 'c> {
    pub(in crate::engine) host: ScriptHost<'h, 'c>,
    pub(in crate::engine) conversation: &'h mut Conversation,
}

impl DebugHost<'_, '_> {
    fn since(&self, ticks: u64) -> Duration {
        let clock = &self.host.ctx.server.meters.stats.clock;
        Duration::from_nanos(clock.delta_as_nanos(ticks, clock.raw()))
    }

    /// Whether the session has reached its time limit.
    fn has_lasted(&self) -> bool {
        let limit_s = self.host.ctx.server.config.script_debug_session_limit_s;
        limit_s > 0 && self.since(self.conversation.begun_ticks) >= Duration::from_secs(limit_s.into())
    }
}

impl Host for DebugHost<'_, '_> {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        self.host.call(argv, reply);
    }

    fn interrupted(&mut self) -> Verdict {
        self.conversation.exchange(self.host.ctx, Duration::ZERO);
        // The debugging client decides how long the script may take; `script-time-limit` does not end it.
        match self.host.interrupted() {
            _ if self.conversation.hung_up => Verdict::Kill,
            _ if self.has_lasted() => {
                if !std::mem::replace(&mut self.conversation.has_lasted, true) {
                    let client = self.host.ctx.session.key.id;
                    tracing::warn!(
                        client,
                        "the script was aborted: its debugging session reached script-debug-session-limit"
                    );
                }
                Verdict::Kill
            }
            Verdict::OutOfTime | Verdict::OutOfTimeInImport => Verdict::Continue,
            verdict => verdict,
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.host.log(level, message);
    }

    fn set_resp(&mut self, version: u8) {
        self.host.set_resp(version);
    }
}

impl Console for DebugHost<'_, '_> {
    fn prompt(&mut self, lines: Vec<Vec<u8>>) -> Answer {
        self.conversation.show(&lines);
        drop(lines);
        self.conversation.heard_ticks = self.host.ctx.server.meters.stats.clock.raw();
        let timeout = Duration::from_secs(self.host.ctx.server.config.script_debug_timeout_s.into());
        loop {
            if self.has_lasted() {
                return Answer::End("ERR the debugging session reached script-debug-session-limit");
            }
            self.conversation.exchange(self.host.ctx, SERVE_EVERY);
            match self.conversation.next_command() {
                Ok(Some(command)) => {
                    self.conversation.heard_ticks = self.host.ctx.server.meters.stats.clock.raw();
                    return Answer::Command(command);
                }
                Ok(None) if self.conversation.hung_up => return Answer::End("ERR the client of the debugger is gone"),
                Ok(None) => {}
                Err(words) => return Answer::End(words),
            }
            if self.host.interrupted() == Verdict::Kill {
                return Answer::End("ERR Script killed by user with SCRIPT KILL...");
            }
            if self.since(self.conversation.heard_ticks) >= timeout {
                return Answer::End(match self.conversation.unsent.len() > DEBUG_UNSENT_MAX_BYTES {
                    true => "ERR the client of the debugger did not read its output within script-debug-timeout",
                    false => "ERR the client of the debugger sent nothing within script-debug-timeout",
                });
            }
        }
    }

    fn is_overdue(&mut self) -> bool {
        let threshold_ms = self.host.ctx.server.config.busy_reply_threshold_ms;
        threshold_ms > 0 && self.since(self.conversation.heard_ticks) >= Duration::from_millis(threshold_ms as u64)
    }

    fn finish(&mut self, lines: Vec<Vec<u8>>) {
        self.conversation.last_lines = lines;
    }
}
