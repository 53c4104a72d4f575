//! Running scripts and functions: how they get the Lua state, and what they may ask of the server meanwhile.
//!
//! A script is one unit: every command that it calls runs through [`call`] inside the unit of the call that started it,
//! and the observers see the effects when all is done. While Lua runs no borrow of the keyspace is held: each
//! `redis.call` borrows anew, through the context of the command that started the script.

use super::Server;
use super::busy::{RunningScript, ScriptKind, Subject};
use super::ctx::{Ctx, Origin};
use super::debugging::{Conversation, DebugHost, DebugMode};
use super::dispatch::call;
use super::error::Error;
use super::script_trace::Trace;
use super::scripts::{NESTED, Scripts, log};
use super::spec::{Done, Flags};
use super::table::Entry;
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, OwnedArgv};
use crate::script::library::Function;
use crate::script::names::CommandId;
use crate::script::store::{Script, ScriptFlags};
use crate::script::{Fault, Handle, Host, Invocation, LogLevel, Outcome, Passing, Sha1Hex, UNDO_IS_FULL, Verdict};

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");

/// A script or function that is to run.
#[derive(Clone, Copy)]
pub(crate) struct Callee<'a> {
    /// Which of the two.
    pub kind: ScriptKind,
    /// What it is called in its errors.
    pub name: &'a [u8],
    /// What the state runs.
    pub program: Handle,
    /// How it gets its keys and arguments.
    pub passing: Passing,
    /// How it behaves.
    pub flags: ScriptFlags,
}

impl<'a> Callee<'a> {
    /// The script called `sha`, which counts as used now.
    pub(crate) fn script(scripts: &mut Scripts, sha: &'a Sha1Hex) -> Result<Callee<'a>, Error> {
        let &Script { flags, program, .. } = scripts.store.use_script(sha).ok_or(NO_SCRIPT)?;
        Ok(Callee { kind: ScriptKind::Script, name: sha, program, passing: Passing::Globals, flags })
    }

    /// This function.
    pub(crate) fn function(function: &'a Function) -> Callee<'a> {
        let &Function { ref name, handle: program, passing, flags, .. } = function;
        Callee { kind: ScriptKind::Function, name: name.as_bytes(), program, passing, flags }
    }
}

/// The conversation with the client that debugs a script, and the script's text.
pub(crate) type Debugging<'a> = (&'a mut Conversation, &'a [u8]);

/// Runs a script or function with its keys and arguments and writes its reply. `command` is the whole call; if that only
/// reads, what runs must not write.
pub(crate) fn run(
    ctx: &mut Ctx<'_>,
    callee: Callee<'_>,
    keys: Argv<'_>,
    args: Argv<'_>,
    command: Argv<'_>,
    debug: Option<Debugging<'_>>,
) -> Done {
    let purpose = match &debug {
        None => Purpose::Work,
        Some((conversation, _)) if conversation.mode == DebugMode::Rollback => Purpose::Trial,
        Some(_) => Purpose::Study,
    };
    let Callee { kind, name, program, passing, flags } = callee;
    let read_only = ctx.entry.command.flags.has(Flags::READONLY);
    let call = Call { kind, command, flags, read_only, purpose };
    enter(ctx, call, Invocation { program, passing, name, keys, args }, debug)
}

/// SCRIPT TRACE: runs a script or function with its keys and arguments, writes its reply, and answers what it did. Unless
/// `commit`, nothing of that stays. Such a call is not counted among those of the script.
pub(crate) fn trace(
    ctx: &mut Ctx<'_>,
    callee: Callee<'_>,
    keys: Argv<'_>,
    args: Argv<'_>,
    commit: bool,
    command: Argv<'_>,
) -> Result<Trace, Error> {
    let Callee { kind, name, program, passing, flags } = callee;
    let purpose = if commit { Purpose::Study } else { Purpose::Trial };
    ctx.ks.record_in_full();
    ctx.server.trace = Some(Box::default());
    let invocation = Invocation { program, passing, name, keys, args };
    let done = enter(ctx, Call { kind, command, flags, read_only: false, purpose }, invocation, None);
    let trace = ctx.server.trace.take().unwrap_or_default();
    done.map(|()| *trace)
}

/// One call of a script or function.
#[derive(Clone, Copy)]
struct Call<'a> {
    kind: ScriptKind,
    /// The client's command.
    command: Argv<'a>,
    flags: ScriptFlags,
    read_only: bool,
    purpose: Purpose,
}

/// What a script runs for.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    /// For what it does. Such calls are counted.
    Work,
    /// To be looked at, traced or debugged. What it changes stays.
    Study,
    /// The same, and nothing of it stays.
    Trial,
}

/// Lends the state and the server to a call, and takes them back.
#[inline]
fn enter(ctx: &mut Ctx<'_>, call: Call<'_>, invocation: Invocation<'_>, debug: Option<Debugging<'_>>) -> Done {
    let flags = call.flags;
    if call.read_only && flags.declared && !flags.no_writes {
        return Err(Error::text("ERR Can not execute a script with write flag using *_ro command."));
    }
    ctx.server.admit_script_memory(flags, ctx.origin == Origin::Exec)?;
    let mut vm = ctx.server.scripts.vm.take().ok_or(NESTED)?;
    // The reading that the duration of the client's command begins with.
    let started = ctx.server.last_ticks;
    ctx.server.running_script = Some(RunningScript::new(call.kind, ctx.session.key, started));
    let db = ctx.session.db;
    let read_only = call.read_only || flags.no_writes;
    let is_trial = call.purpose == Purpose::Trial;
    let can_undo = is_trial || !read_only && ctx.server.config.script_rollback;
    // What a script publishes tells of changes that may be rolled back, or that the log does not have yet.
    let holds_messages = can_undo || ctx.server.tail.is_some();
    if holds_messages {
        ctx.server.hold_messages();
    }
    if can_undo {
        ctx.ks.begin_undo();
        if let Some(script) = &mut ctx.server.running_script {
            script.can_undo = true;
        }
    }
    let watched_from = watched_from(ctx.server, call, started);
    let is_watched = watched_from == 0;
    // The script's own reply is written when all its calls are over; what answers those must not reach it.
    let (start, mut aside) = (ctx.reply.len(), Reply::new(ctx.reply.form()));
    let mut inner = Ctx {
        ks: &mut *ctx.ks,
        server: &mut *ctx.server,
        session: &mut *ctx.session,
        reply: &mut aside,
        entry: ctx.entry,
        origin: ctx.origin,
    };
    let mut host =
        ScriptHost { ctx: &mut inner, call, name: invocation.name, read_only, started, watched_from, is_watched };
    let outcome = match debug {
        None => vm.run(invocation, &mut host, ctx.reply),
        Some((conversation, text)) => vm.debug(invocation, text, &mut DebugHost { host, conversation }, ctx.reply),
    };
    if can_undo {
        match outcome {
            Outcome::Raised(_) => ctx.roll_back_script(),
            _ if is_trial => ctx.roll_back_script(),
            _ => ctx.commit_script(),
        }
    } else if holds_messages {
        ctx.server.deliver_held(ctx.ks, ctx.session);
    }
    count_outcome(ctx, call, invocation.program, outcome, start);
    // SELECT inside a script is the script's own.
    ctx.session.db = db;
    ctx.server.running_script = None;
    ctx.server.scripts.vm = Some(vm);
    note_duration(ctx, call, invocation, started);
    Ok(())
}

/// From when on the commands of a call are noted, by the processor's clock: in a trace all, otherwise those of a call that may
/// be slow.
#[inline]
fn watched_from(server: &Server, call: Call<'_>, started: u64) -> u64 {
    match call.purpose {
        Purpose::Work => started.saturating_add(server.stats.scripts.slow.trail_after_ticks),
        _ if server.trace.is_some() => 0,
        _ => u64::MAX,
    }
}

/// Notes what a call took that has ended.
#[inline]
fn note_duration(ctx: &mut Ctx<'_>, call: Call<'_>, invocation: Invocation<'_>, started: u64) {
    let ticks = ctx.server.stats.clock.raw().saturating_sub(started);
    if call.purpose != Purpose::Work {
        return ctx.server.trace.iter_mut().for_each(|trace| trace.ticks = ticks);
    }
    let began_ms = ctx.now_ms();
    let stats = &mut ctx.server.stats.scripts;
    stats.count(invocation.program, ticks, began_ms);
    if ticks >= stats.slow.trail_after_ticks {
        let session = &*ctx.session;
        let client = || (session.address.as_str().into(), session.name.as_slice().into());
        stats.slow.end(ticks, began_ms, || (invocation.name, call.command, client()));
    }
}

impl Ctx<'_> {
    /// What the script did stays, and what it published is delivered.
    #[inline]
    fn commit_script(&mut self) {
        self.ks.commit_undo();
        self.server.deliver_held(self.ks, self.session);
    }

    /// Nothing stays of a script that failed, or was only tried.
    #[cold]
    fn roll_back_script(&mut self) {
        let changes = self.ks.roll_back();
        let messages = self.server.drop_held();
        if let Some(trace) = &mut self.server.trace {
            trace.rolled_back = true;
        }
        tracing::debug!(changes, messages, "a script was rolled back");
    }
}

/// Counts a script that answered an error as failed. What a command answered was counted there. Its reply begins at `start`.
#[inline]
fn count_outcome(ctx: &mut Ctx<'_>, call: Call<'_>, program: Handle, outcome: Outcome, start: usize) {
    let (Outcome::Returned(fault) | Outcome::Raised(fault)) = outcome else { return };
    let reply = ctx.reply.as_bytes().get(start..).unwrap_or_default();
    let stats = &mut ctx.server.stats;
    if let (Purpose::Work, Some(script)) = (call.purpose, &ctx.server.running_script) {
        let is_rolled_back = script.can_undo && matches!(outcome, Outcome::Raised(_));
        stats.scripts.count_error(program, script.kill_requested, is_rolled_back);
    }
    stats.commands[ctx.entry.id].failed += 1;
    if fault == Fault::Script {
        let line = reply.split(|&byte| byte == b'\r').next().unwrap_or_default();
        stats.count_error(line.strip_prefix(b"-").unwrap_or(line));
    }
}

/// The engine, as a running script sees it.
pub(super) struct ScriptHost<'h, 'c> {
    pub(super) ctx: &'h mut Ctx<'c>,
    call: Call<'h>,
    /// The script's SHA1 or the function's name.
    name: &'h [u8],
    read_only: bool,
    /// When it began, by the processor's clock.
    started: u64,
    /// From when on its commands are noted in a trail; see [`script_slow`](super::script_slow).
    watched_from: u64,
    /// It is that late.
    is_watched: bool,
}

impl ScriptHost<'_, '_> {
    /// Whether what would take the script back fills the memory that scripts may have.
    #[inline]
    fn undo_is_full(&self) -> bool {
        let limit = self.ctx.server.config.script_memory_limit;
        limit > 0 && self.ctx.ks.undo_bytes() > limit
    }

    /// What the one gate of clients is for them: admits a command that a script calls.
    #[inline]
    fn admit(&self, known: Option<CommandId>, argv: Argv<'_>) -> Result<&'static Entry, Error> {
        let table = self.ctx.server.table;
        let entry = match known.and_then(|CommandId(place)| table.at(place)) {
            Some(entry) => table.resolve_in(entry, argv),
            None => table.resolve(argv),
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Arity(_)) => {
                return Err(Error::text("ERR Wrong number of args calling Redis command from script"));
            }
            Err(_) => return Err(Error::text("ERR Unknown Redis command called from script")),
        };
        let flags = entry.command.flags;
        // Most commands of most scripts just read.
        if flags.has(Flags::NOSCRIPT | Flags::WRITE | Flags::MAY_REPLICATE | Flags::DENYOOM) {
            self.admit_change(entry)?;
        }
        self.ctx.server.admit_logged(flags)?;
        Ok(entry)
    }

    /// What [`admit`](Self::admit) asks of commands that do more than read.
    #[inline]
    fn admit_change(&self, entry: &Entry) -> Result<(), Error> {
        let flags = entry.command.flags;
        if flags.has(Flags::NOSCRIPT) {
            return Err(Error::text("ERR This Redis command is not allowed from script"));
        }
        if self.read_only && flags.has(Flags::WRITE | Flags::MAY_REPLICATE) {
            return Err(Error::text("ERR Write commands are not allowed from read-only scripts."));
        }
        if flags.has(Flags::WRITE) && self.undo_is_full() {
            return Err(Error::text(UNDO_IS_FULL));
        }
        self.ctx.server.admit_call_memory(self.call.flags, entry)
    }

    /// Notes a command that ended late in the script. Its beginning is exact if it `is_timed`.
    #[cold]
    fn watch(&mut self, argv: Argv<'_>, reply: &Reply, began: u64, is_timed: bool) {
        self.is_watched = true;
        let server = &mut *self.ctx.server;
        let ticks = server.last_ticks.saturating_sub(began);
        if let Some(trace) = &mut server.trace {
            if !trace.note(argv, reply.as_bytes(), ticks, self.ctx.ks.effects().as_bytes()) && server.tail.is_none() {
                self.ctx.ks.record_keys_only();
            }
            self.ctx.ks.record_apart();
            return;
        }
        let at_ticks = began.saturating_sub(self.started);
        server.stats.scripts.slow.note_step(argv, at_ticks, is_timed.then_some(ticks));
    }

    #[inline]
    fn run(&mut self, known: Option<CommandId>, argv: Argv<'_>, reply: &mut Reply) {
        let entry = match self.admit(known, argv) {
            Ok(entry) => entry,
            Err(error) => {
                let text = error.to_string();
                let server = &mut *self.ctx.server;
                server.stats.count_error(text.as_bytes());
                if let Some(entry) = server.table.named_by(argv) {
                    server.stats.commands[entry.id].rejected += 1;
                }
                reply.error(text.as_bytes());
                if let Some(trace) = &mut server.trace {
                    trace.note(argv, reply.as_bytes(), 0, self.ctx.ks.effects().as_bytes());
                    self.ctx.ks.record_apart();
                }
                return;
            }
        };
        if entry.command.flags.has(Flags::WRITE)
            && let Some(script) = &mut self.ctx.server.running_script
        {
            script.has_written = true;
        }
        let Ctx { ks, server, session, .. } = &mut *self.ctx;
        let is_timed = self.is_watched || !entry.command.flags.has(Flags::FAST);
        if is_timed {
            server.last_ticks = server.stats.clock.raw();
        }
        let began = server.last_ticks;
        // Nothing waits in a script: the call times out at once.
        let _ = call(ks, server, session, entry, argv, reply, Origin::Script);
        if server.last_ticks >= self.watched_from {
            self.watch(argv, reply, began, is_timed);
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
        // Only a script that runs for long is ever asked about.
        if let Some(script) = &mut self.ctx.server.running_script
            && script.subject.is_none()
        {
            let command = OwnedArgv::from_argv(self.call.command);
            script.subject = Some(Subject { name: self.name.into(), command });
            self.ctx.server.send_unsent();
        }
        match self.ctx.server.script_interrupted(self.ctx.ks) {
            Verdict::Continue if self.undo_is_full() => Verdict::UndoIsFull,
            verdict => verdict,
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_resp(&mut self, _: u8) {
        // The tape that the state hands to `call` has the right form already.
    }
}
