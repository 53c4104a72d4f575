//! MONITOR: shows a client every command that the server runs.

use crate::engine::{Command, Ctx, Done, Origin, Run};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

fn monitor(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    if ctx.origin == Origin::Exec {
        return Err(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !ctx.session.is_monitor {
        ctx.server.audience.begin_monitoring(&mut ctx.server.clients.sessions, ctx.session);
        ctx.reply.ok();
    }
    Ok(())
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "monitor",
    arity: 1,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    group: Group::Server,
    summary: "Streams every command that the server runs, until RESET or the end of the connection.",
    run: Run::Now(monitor),
    ..Command::EMPTY
}];
