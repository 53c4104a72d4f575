//! Shared by EVAL, FCALL, SCRIPT and FUNCTION: the arguments of a call, and the running script.

use crate::engine::{Ctx, Done, ServerState};
use crate::programs::running::ScriptKind;
use crate::resp::reply::Reply;
use crate::resp::request::Argv;
use crate::spec::Flags;
use crate::spec::args::Args;
use crate::spec::error::Error;

/// The flags of every command that runs a script or function.
pub(super) const RUNS: Flags = Flags::NOSCRIPT
    .union(Flags::STALE)
    .union(Flags::SKIP_MONITOR)
    .union(Flags::NO_MANDATORY_KEYS)
    .union(Flags::MOVABLEKEYS);

/// Splits the arguments after the script, `numkeys [key...] [arg...]`, into keys and other arguments.
pub(super) fn keys_and_args(args: Args<'_>) -> Result<(Argv<'_>, Argv<'_>), Error> {
    keys_and_args_or(args, Error::NotInteger)
}

/// As [`keys_and_args`], with the `error` for a count that is not a number.
#[inline]
pub(super) fn keys_and_args_or(mut args: Args<'_>, error: Error) -> Result<(Argv<'_>, Argv<'_>), Error> {
    let count = args.int_or(error)?;
    if count > args.len() as i64 {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| Error::text("ERR Number of keys can't be negative"))?;
    let keys = args.take(count)?;
    Ok((keys, args.rest()))
}

/// SCRIPT KILL and FUNCTION KILL: asks the running script to end, if it is of this kind.
pub(super) fn end_running(ctx: &mut Ctx<'_>, kind: ScriptKind) -> Done {
    let script = ctx.server.programs.running.as_mut();
    let script = script.ok_or(Error::text("NOTBUSY No scripts in execution right now."))?;
    if script.has_written && !script.can_undo {
        return Err(Error::text(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ));
    }
    if script.kind != kind {
        return Err(script.kind.busy_error());
    }
    script.kill_requested = true;
    ctx.reply.ok();
    Ok(())
}

/// Writes the running script or function, or null. Its name is noted only once it has run for a while.
pub(super) fn write_running(server: &ServerState, reply: &mut Reply) {
    let running = server.programs.running.as_ref();
    match running.and_then(|script| Some((script, script.subject.as_ref()?))) {
        None => reply.null(),
        Some((script, subject)) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&subject.name);
            reply.bulk(b"command");
            let command = subject.command.as_argv();
            reply.array(command.len());
            command.iter().for_each(|arg| reply.bulk(arg));
            reply.bulk(b"duration_ms");
            let clock = &server.meters.stats.clock;
            reply.integer((clock.delta_as_nanos(script.started_ticks, clock.raw()) / 1_000_000) as i64);
        }
    }
}
