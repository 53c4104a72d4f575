//! Running scripts and functions: how they get the Lua state, and what they may ask of the server meanwhile.
//!
//! A script is one unit: every command that it calls runs through [`call`] inside the unit of the call that started it,
//! and the observers see the effects when all is done. While Lua runs no borrow of the keyspace is held: each
//! `redis.call` borrows anew, through the context of the command that started the script.

use super::busy::{RunningScript, ScriptKind, Subject};
use super::ctx::{Ctx, Origin};
use super::debugging::{Conversation, DebugHost, DebugMode};
use super::dispatch::call;
use super::error::Error;
use super::scripts::{NESTED, Scripts, log};
use super::spec::{Done, Flags};
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, OwnedArgv};
use crate::script::library::Function;
use crate::script::store::{Script, ScriptFlags};
use crate::script::{Fault, Handle, Host, Invocation, LogLevel, Outcome, Passing, Sha1Hex, Verdict};

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");

/// What EVAL and FCALL and their kin run.
#[derive(Clone, Copy)]
pub struct Callee<'a> {
    kind: ScriptKind,
    name: &'a [u8],
    program: Handle,
    passing: Passing,
    flags: ScriptFlags,
}

impl<'a> Callee<'a> {
    /// The script called `sha`, which counts as used now.
    pub fn script(scripts: &mut Scripts, sha: &'a Sha1Hex) -> Result<Callee<'a>, Error> {
        let &Script { flags, program, .. } = scripts.store.use_script(sha).ok_or(NO_SCRIPT)?;
        Ok(Callee { kind: ScriptKind::Script, name: sha, program, passing: Passing::Globals, flags })
    }

    /// This function.
    pub fn function(function: &'a Function) -> Callee<'a> {
        let &Function { ref name, handle: program, passing, flags, .. } = function;
        Callee { kind: ScriptKind::Function, name: name.as_bytes(), program, passing, flags }
    }
}

/// The conversation with the client that debugs a script, and the script's text.
pub type Debugging<'a> = (&'a mut Conversation, &'a [u8]);

/// Runs a script or function with its keys and arguments and writes its reply. `command` is the whole call; if that only
/// reads, what runs must not write.
pub fn run(
    ctx: &mut Ctx<'_>,
    callee: Callee<'_>,
    keys: Argv<'_>,
    args: Argv<'_>,
    command: Argv<'_>,
    debug: Option<Debugging<'_>>,
) -> Done {
    let Callee { kind, name, program, passing, flags } = callee;
    let read_only = ctx.entry.command.flags.has(Flags::READONLY);
    enter(ctx, Call { kind, command, flags, read_only }, Invocation { program, passing, name, keys, args }, debug)
}

/// One call of a script or function.
#[derive(Clone, Copy)]
struct Call<'a> {
    kind: ScriptKind,
    /// The client's command.
    command: Argv<'a>,
    flags: ScriptFlags,
    read_only: bool,
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
    let started = ctx.server.stats.clock.raw();
    ctx.server.running_script = Some(RunningScript::new(call.kind, ctx.session.key, started));
    let db = ctx.session.db;
    let read_only = call.read_only || flags.no_writes;
    let is_trial = debug.as_ref().is_some_and(|(conversation, _)| conversation.mode == DebugMode::Rollback);
    let can_undo = is_trial || !read_only && ctx.server.config.script_rollback;
    if can_undo {
        ctx.ks.begin_undo();
        ctx.server.hold_messages();
        if let Some(script) = &mut ctx.server.running_script {
            script.can_undo = true;
        }
    }
    let mut reply = std::mem::replace(ctx.reply, Reply::new(ctx.reply.form()));
    let mut host = ScriptHost { ctx: &mut *ctx, call, name: invocation.name, read_only };
    let start = reply.len();
    let outcome = match debug {
        None => vm.run(invocation, &mut host, &mut reply),
        Some((conversation, text)) => vm.debug(invocation, text, &mut DebugHost { host, conversation }, &mut reply),
    };
    if can_undo {
        match outcome {
            Outcome::Raised(_) => ctx.roll_back_script(),
            _ if is_trial => ctx.roll_back_script(),
            _ => ctx.commit_script(),
        }
    }
    count_outcome(ctx, outcome, reply.as_bytes().get(start..).unwrap_or_default());
    *ctx.reply = reply;
    // SELECT inside a script is the script's own.
    ctx.session.db = db;
    ctx.server.running_script = None;
    ctx.server.scripts.vm = Some(vm);
    Ok(())
}

impl Ctx<'_> {
    /// What the script did stays, and what it published is delivered.
    #[inline]
    fn commit_script(&mut self) {
        self.ks.commit_undo();
        self.server.deliver_held(self.session);
    }

    /// Nothing stays of a script that failed, or was only tried.
    #[cold]
    fn roll_back_script(&mut self) {
        let changes = self.ks.roll_back();
        let messages = self.server.drop_held();
        tracing::debug!(changes, messages, "a script was rolled back");
    }
}

/// Counts a script that answered an error as failed. What a command answered was counted there.
#[inline]
fn count_outcome(ctx: &mut Ctx<'_>, outcome: Outcome, reply: &[u8]) {
    let (Outcome::Returned(fault) | Outcome::Raised(fault)) = outcome else { return };
    let stats = &mut ctx.server.stats;
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
}

impl ScriptHost<'_, '_> {
    /// What the one gate of clients is for them: admits a command that a script calls.
    #[inline]
    fn admit(&self, argv: Argv<'_>) -> Result<&'static super::table::Entry, Error> {
        let table = self.ctx.server.table;
        let entry = match table.resolve(argv) {
            Ok(entry) => entry,
            Err(Error::Arity(_)) => {
                return Err(Error::text("ERR Wrong number of args calling Redis command from script"));
            }
            Err(_) => return Err(Error::text("ERR Unknown Redis command called from script")),
        };
        let flags = entry.command.flags;
        if flags.has(Flags::NOSCRIPT) {
            return Err(Error::text("ERR This Redis command is not allowed from script"));
        }
        if self.read_only && flags.has(Flags::WRITE | Flags::MAY_REPLICATE) {
            return Err(Error::text("ERR Write commands are not allowed from read-only scripts."));
        }
        self.ctx.server.admit_call_memory(self.call.flags, entry)?;
        Ok(entry)
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        let entry = match self.admit(argv) {
            Ok(entry) => entry,
            Err(error) => {
                let text = error.to_string();
                let server = &mut *self.ctx.server;
                server.stats.count_error(text.as_bytes());
                if let Some(entry) = server.table.named_by(argv) {
                    server.stats.commands[entry.id].rejected += 1;
                }
                return reply.error(text.as_bytes());
            }
        };
        if entry.command.flags.has(Flags::WRITE)
            && let Some(script) = &mut self.ctx.server.running_script
        {
            script.has_written = true;
        }
        let Ctx { ks, server, session, .. } = &mut *self.ctx;
        // Nothing waits in a script: the call times out at once.
        let _ = call(ks, server, session, entry, argv, reply, Origin::Script);
    }

    fn interrupted(&mut self) -> Verdict {
        // Only a script that runs for long is ever asked about.
        if let Some(script) = &mut self.ctx.server.running_script
            && script.subject.is_none()
        {
            let command = OwnedArgv::from_argv(self.call.command);
            script.subject = Some(Subject { name: self.name.into(), command });
        }
        self.ctx.server.script_interrupted(self.ctx.ks)
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_resp(&mut self, _: u8) {
        // The tape that the state hands to `call` has the right form already.
    }
}
