//! A running script's access to the server, above all to commands. Each command runs through [`call`], inside the unit
//! of the call that started the script.

use super::admit::Caller;
use super::dispatch::call;
use crate::engine::run::admit::undo_is_full;
use crate::engine::state::{Ctx, Entry, Origin};
use crate::programs::running::{ScriptKind, Subject};
use crate::programs::scripts::log;
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, OwnedArgv};
use crate::script::store::ScriptFlags;
use crate::script::{CommandId, Host, LogLevel, Verdict};
use crate::session::Restrictions;
use crate::spec::Flags;
use crate::spec::error::Error;

/// One call of a script or function.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Call<'a> {
    pub(in crate::engine) kind: ScriptKind,
    /// The client's command.
    pub(in crate::engine) command: Argv<'a>,
    pub(in crate::engine) flags: ScriptFlags,
    pub(in crate::engine) read_only: bool,
    pub(in crate::engine) purpose: Purpose,
}

/// The purpose of a script's run.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::engine) enum Purpose {
    /// A normal run, which counts in the statistics.
    Work,
    /// The script is traced or debugged, and its changes stay.
    Study,
    /// The script is traced or debugged, and its changes are undone.
    Trial,
}

/// The engine, as a running script sees it.
pub(in crate::engine) struct ScriptHost<'h, 'c> {
    pub(in crate::engine) ctx: &'h mut Ctx<'c>,
    pub(in crate::engine) call: Call<'h>,
    /// The script's SHA1 or the function's name.
    pub(in crate::engine) name: &'h [u8],
    pub(in crate::engine) read_only: bool,
    /// When the script began, by the processor's clock.
    pub(in crate::engine) started: u64,
    /// The time from which its commands are recorded in a trail; see [`script_slow`](crate::programs::slow).
    pub(in crate::engine) watched_from: u64,
    /// The time from which its commands are observed: `watched_from`, or the beginning.
    pub(in crate::engine) observed_from: u64,
    /// Whether `watched_from` has passed.
    pub(in crate::engine) is_watched: bool,
}

impl ScriptHost<'_, '_> {
    /// Finds the command that a script calls, and [admits](crate::engine::state::ServerState::admit_in_script) it.
    #[inline]
    fn admit(&mut self, known: Option<CommandId>, argv: Argv<'_>) -> Result<&'static Entry, Error> {
        let table = self.ctx.server.table;
        let entry = match known.and_then(|CommandId(place)| table.at(place)) {
            Some(entry) => table.resolve_in(entry, argv),
            None => table.resolve(argv),
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Arity(_) | Error::OwnArity(_)) => {
                return Err(Error::text("ERR Wrong number of args calling Redis command from script"));
            }
            Err(_) => return Err(Error::text("ERR Unknown Redis command called from script")),
        };
        let caller = Caller { flags: self.call.flags, read_only: self.read_only };
        let Ctx { ks, server, session, .. } = &mut *self.ctx;
        server.admit_in_script(ks, session, caller, entry, argv)?;
        Ok(entry)
    }

    /// Shows a command to its observers.
    #[cold]
    fn observe(&mut self, entry: &Entry, argv: Argv<'_>, reply: &Reply, began: u64, is_timed: bool) {
        if self.ctx.server.time.last_ticks >= self.watched_from {
            self.watch(argv, reply, began, is_timed);
        }
        if self.ctx.session.restrictions.intersects(Restrictions::OBSERVED | Restrictions::TRACKED) {
            self.ctx.server.delivery().observe_call(self.ctx.ks, self.ctx.session, entry, argv, Origin::Script);
        }
    }

    /// Records a command that ended late in the script. Its start is exact if it `is_timed`.
    #[cold]
    fn watch(&mut self, argv: Argv<'_>, reply: &Reply, began: u64, is_timed: bool) {
        self.is_watched = true;
        let server = &mut *self.ctx.server;
        let ticks = server.time.last_ticks.saturating_sub(began);
        if let Some(trace) = &mut server.programs.trace {
            if !trace.note(argv, reply.as_bytes(), ticks, self.ctx.ks.effects().as_bytes())
                && !server.audience.reads_whole_effects()
            {
                self.ctx.ks.record_keys_only();
            }
            self.ctx.ks.record_apart();
            return;
        }
        let at_ticks = began.saturating_sub(self.started);
        server.meters.stats.scripts.slow.note_step(argv, at_ticks, is_timed.then_some(ticks));
    }

    #[inline]
    fn run(&mut self, known: Option<CommandId>, argv: Argv<'_>, reply: &mut Reply) {
        let entry = match self.admit(known, argv) {
            Ok(entry) => entry,
            Err(error) => {
                let text = error.to_string();
                let server = &mut *self.ctx.server;
                server.meters.stats.count_error(text.as_bytes());
                server.meters.count_rejected(server.table, argv);
                reply.error(text.as_bytes());
                if let Some(trace) = &mut server.programs.trace {
                    trace.note(argv, reply.as_bytes(), 0, self.ctx.ks.effects().as_bytes());
                    self.ctx.ks.record_apart();
                }
                return;
            }
        };
        if entry.command.flags.contains(Flags::WRITE)
            && let Some(script) = &mut self.ctx.server.programs.running
        {
            script.has_written = true;
        }
        let Ctx { ks, server, session, .. } = &mut *self.ctx;
        let is_timed = self.is_watched || !entry.command.flags.contains(Flags::FAST);
        if is_timed {
            server.time.last_ticks = server.meters.stats.clock.raw();
        }
        let began = server.time.last_ticks;
        // Nothing waits in a script: the call times out at once.
        let _ = call(ks, server, session, entry, argv, reply, Origin::Script);
        if server.time.last_ticks >= self.observed_from {
            self.observe(entry, argv, reply, began, is_timed);
        }
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        self.run(None, argv, reply);
    }

    fn call_known(&mut self, command: CommandId, argv: Argv<'_>, reply: &mut Reply) {
        self.run(Some(command), argv, reply);
    }

    fn command_id(&mut self, name: &[u8]) -> Option<CommandId> {
        self.ctx.server.table.place(name).map(CommandId)
    }

    fn interrupted(&mut self) -> Verdict {
        // This is only called for scripts that run long.
        if let Some(script) = &mut self.ctx.server.programs.running
            && script.subject.is_none()
        {
            let command = OwnedArgv::from_argv(self.call.command);
            script.subject = Some(Subject { name: self.name.into(), command });
            self.ctx.server.send_unsent();
        }
        match self.ctx.server.script_interrupted(self.ctx.ks) {
            Verdict::Continue if undo_is_full(&self.ctx.server.config, self.ctx.ks) => Verdict::UndoIsFull,
            verdict => verdict,
        }
    }

    fn may_call(&mut self, argv: Argv<'_>) -> Option<bool> {
        let Ctx { server, session, .. } = &*self.ctx;
        let entry = server.table.named_by(argv)?;
        Some(entry.command.accepts(argv.len()) && server.rights().refused_to(session, entry, argv).is_none())
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_resp(&mut self, _: u8) {
        // The tape that the state hands to `call` has the right form already.
    }
}
