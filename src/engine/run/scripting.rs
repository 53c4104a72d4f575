//! Runs scripts and functions: lends them the Lua state. [`ScriptHost`] is their access to the server.
//!
//! A script is one unit. Every command that it calls runs through [`call`](super::dispatch::call) inside the unit of
//! the call that started the script, and the observers see the effects at the end. While Lua runs, no borrow of the
//! keyspace is held: each `redis.call` borrows anew, through the context of the command that started the script.

use super::debugging::{Conversation, DebugHost};
use super::script_host::{Call, Purpose, ScriptHost};
use crate::engine::state::{Ctx, Done, Origin, ServerState};
use crate::programs::running::{RunningScript, ScriptKind};
use crate::programs::scripts::{NESTED, Scripts};
use crate::programs::trace::Trace;
use crate::resp::reply::Reply;
use crate::resp::request::Argv;
use crate::script::library::Function;
use crate::script::store::{Script, ScriptFlags};
use crate::script::{Fault, Handle, Invocation, Outcome, Passing, Sha1Hex};
use crate::session::{DebugMode, Restrictions};
use crate::spec::Flags;
use crate::spec::error::Error;

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");

/// A script or function to run.
#[derive(Clone, Copy)]
pub(crate) struct Callee<'a> {
    /// Whether it is a script or a function.
    pub kind: ScriptKind,
    /// Its name in error texts.
    pub name: &'a [u8],
    /// The compiled program in the Lua state.
    pub program: Handle,
    /// How its keys and arguments are passed.
    pub passing: Passing,
    /// Its declared flags.
    pub flags: ScriptFlags,
}

impl<'a> Callee<'a> {
    /// Returns the script called `sha` and counts it as used now.
    pub(crate) fn script(scripts: &mut Scripts, sha: &'a Sha1Hex) -> Result<Callee<'a>, Error> {
        let Some(&Script { flags, program, .. }) = scripts.store.use_script(sha) else { return Err(NO_SCRIPT) };
        Ok(Callee::of_script(sha, flags, program))
    }

    /// Returns the callee of a script that was compiled.
    pub(crate) fn of_script(sha: &'a Sha1Hex, flags: ScriptFlags, program: Handle) -> Callee<'a> {
        Callee { kind: ScriptKind::Script, name: sha, program, passing: Passing::Globals, flags }
    }

    /// Returns the callee of this function.
    pub(crate) fn function(function: &'a Function) -> Callee<'a> {
        let &Function { ref name, handle: program, passing, flags, .. } = function;
        Callee { kind: ScriptKind::Function, name: name.as_bytes(), program, passing, flags }
    }
}

/// The conversation with the client that debugs a script, and the script's text.
pub(crate) type Debugging<'a> = (&'a mut Conversation, &'a [u8]);

/// Runs a script or function with its keys and arguments and writes its reply. `command` is the whole call; a read-only
/// command's script must not write.
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
    let read_only = ctx.entry.command.flags.contains(Flags::READONLY);
    let call = Call { kind, command, flags, read_only, purpose };
    enter(ctx, call, Invocation { program, passing, name, keys, args }, debug)
}

/// SCRIPT TRACE: runs a script or function with its keys and arguments, writes its reply, and returns the trace.
/// Without `commit` all changes are undone. The call does not count in the statistics of the script.
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
    ctx.server.programs.trace = Some(Box::default());
    let invocation = Invocation { program, passing, name, keys, args };
    let done = enter(ctx, Call { kind, command, flags, read_only: false, purpose }, invocation, None);
    let trace = ctx.server.programs.trace.take().unwrap_or_default();
    done.map(|()| *trace)
}

/// Lends the Lua state and the server to a call, and takes them back.
#[inline]
fn enter(ctx: &mut Ctx<'_>, call: Call<'_>, invocation: Invocation<'_>, debug: Option<Debugging<'_>>) -> Done {
    let flags = call.flags;
    // A script without a declaration is judged by what it calls.
    if flags.declared && !flags.no_writes {
        if call.read_only {
            return Err(Error::text("ERR Can not execute a script with write flag using *_ro command."));
        }
        ctx.session.admit_short_of_followers(Flags::WRITE)?;
    }
    ctx.server.memory.admit_script(flags, ctx.origin == Origin::Exec)?;
    let Some(mut vm) = ctx.server.programs.scripts.vm.take() else { return Err(NESTED) };
    // The reading with which the duration of the client's command begins.
    let started = ctx.server.time.last_ticks;
    let is_import = ctx.session.import_source.is_some();
    ctx.server.programs.running = Some(RunningScript::new(call.kind, ctx.session.key, is_import, started));
    let db = ctx.session.db;
    let read_only = call.read_only || flags.no_writes;
    let is_trial = call.purpose == Purpose::Trial;
    let can_undo = is_trial || !read_only && ctx.server.config.script_rollback;
    let holds_messages = ctx.server.audience.hold_messages(ctx.server.persistence.tail.is_some(), can_undo);
    if can_undo {
        ctx.ks.begin_undo();
        if let Some(script) = &mut ctx.server.programs.running {
            script.can_undo = true;
        }
    }
    let watched_from = watched_from(ctx.server, call, started);
    let is_watched = watched_from == 0;
    let is_observed = ctx.session.restrictions.intersects(Restrictions::OBSERVED | Restrictions::TRACKED);
    let observed_from = if is_observed { 0 } else { watched_from };
    // The script's own reply is written when all its calls are over; the replies to its calls must not get into it.
    let (start, mut aside) = (ctx.reply.len(), Reply::new(ctx.reply.form()));
    let mut inner = Ctx {
        ks: &mut *ctx.ks,
        server: &mut *ctx.server,
        session: &mut *ctx.session,
        reply: &mut aside,
        entry: ctx.entry,
        origin: ctx.origin,
    };
    let mut host = ScriptHost {
        ctx: &mut inner,
        call,
        name: invocation.name,
        read_only,
        started,
        watched_from,
        observed_from,
        is_watched,
    };
    let outcome = match debug {
        None => vm.run(invocation, &mut host, ctx.reply),
        Some((conversation, text)) => vm.debug(invocation, text, &mut DebugHost { host, conversation }, ctx.reply),
    };
    if can_undo {
        match outcome {
            Outcome::Raised(_) => ctx.roll_back_script(),
            _ if is_trial => ctx.roll_back_script(),
            _ => ctx.commit(),
        }
    } else if holds_messages {
        ctx.deliver_held();
    }
    count_outcome(ctx, call, invocation.program, outcome, start);
    // A SELECT inside a script holds for the script only.
    ctx.session.db = db;
    ctx.server.programs.running = None;
    ctx.server.programs.scripts.vm = Some(vm);
    note_duration(ctx, call, invocation, started);
    Ok(())
}

/// Returns the time from which the commands of a call are recorded, by the processor's clock: in a trace all commands,
/// otherwise those of a call that may be slow.
#[inline]
fn watched_from(server: &ServerState, call: Call<'_>, started: u64) -> u64 {
    match call.purpose {
        Purpose::Work => started.saturating_add(server.meters.stats.scripts.slow.trail_after_ticks),
        _ if server.programs.trace.is_some() => 0,
        _ => u64::MAX,
    }
}

/// Records the duration of a call that has ended.
#[inline]
fn note_duration(ctx: &mut Ctx<'_>, call: Call<'_>, invocation: Invocation<'_>, started: u64) {
    let ticks = ctx.server.meters.stats.clock.raw().saturating_sub(started);
    if call.purpose != Purpose::Work {
        return ctx.server.programs.trace.iter_mut().for_each(|trace| trace.ticks = ticks);
    }
    let began_ms = ctx.now_ms();
    let stats = &mut ctx.server.meters.stats.scripts;
    stats.count(invocation.program, ticks, began_ms);
    if ticks >= stats.slow.trail_after_ticks {
        let session = &*ctx.session;
        let client = || (session.address.as_str().into(), session.name.as_slice().into());
        stats.slow.end(ticks, began_ms, || (invocation.name, call.command, client()));
    }
}

impl Ctx<'_> {
    /// Undoes the changes of a script that failed or only ran on trial.
    #[cold]
    fn roll_back_script(&mut self) {
        let (changes, messages) = self.roll_back();
        if let Some(trace) = &mut self.server.programs.trace {
            trace.rolled_back = true;
        }
        tracing::debug!(changes, messages, "a script was rolled back");
    }
}

/// Counts a script whose reply is an error as failed. Errors of its commands were counted with the commands. The
/// script's reply begins at `start`.
#[inline]
fn count_outcome(ctx: &mut Ctx<'_>, call: Call<'_>, program: Handle, outcome: Outcome, start: usize) {
    let (Outcome::Returned(fault) | Outcome::Raised(fault)) = outcome else { return };
    ctx.server.programs.scripts.has_answered_error = matches!(outcome, Outcome::Returned(_));
    let stats = &mut ctx.server.meters.stats;
    if let (Purpose::Work, Some(script)) = (call.purpose, &ctx.server.programs.running) {
        let is_rolled_back = script.can_undo && matches!(outcome, Outcome::Raised(_));
        stats.scripts.count_error(program, script.kill_requested, is_rolled_back);
    }
    stats.commands[ctx.entry.id.index()].failed += 1;
    if fault == Fault::Script {
        stats.count_error(ctx.reply.error_from(start).unwrap_or_default());
    }
}
