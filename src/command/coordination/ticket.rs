//! TICKET: calls that wait beside their connection (ASYNC), by the numbers that they were answered.

use super::grant::{BASE, Said, answer};
use crate::engine::wait::Ticket;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::Flags;
use crate::spec::args::Args;
use crate::spec::error::Error;

const NO_NUMBER: Error = Error::text("ERR a ticket is the number that a call with ASYNC was answered");

/// TICKET.CANCEL: who gives up a call hears nothing more of it. If it is too late for that, what it came to stands before this answer.
fn cancel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let ticket = Ticket::from_number(args.int_or(NO_NUMBER)?).ok_or(NO_NUMBER)?;
    match ctx.server.withdraw(ctx.session, ticket) {
        Some(since_ms) => {
            let waited_ms = ctx.server.time.clock.steady_ms().saturating_sub(since_ms).max(0);
            answer(ctx.reply, true, &[("waited-ms", Said::Number(waited_ms))]);
        }
        None => answer(ctx.reply, false, &[("reason", Said::Text(b"no-ticket"))]),
    }
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[Command {
    name: "ticket.cancel",
    arity: 2,
    flags: Flags::NOSCRIPT.and(Flags::FAST),
    complexity: "O(log N) with N the number of calls that wait",
    summary: "Gives up a call that waits beside its connection (ASYNC).",
    syntax: "ticket:integer",
    run: Run::Now(cancel),
    ..BASE
}];
