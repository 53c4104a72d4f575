//! TICKET: calls that wait beside their connection (ASYNC), by the ticket number in their reply.

use super::error::GrantError;
use super::grant::{BASE, Said, answer};
use crate::base::num;
use crate::command::help::family;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::Flags;
use crate::spec::args::Args;
use crate::wait::Ticket;

/// TICKET.CANCEL: gives up a waiting call, so that nothing is pushed for it. If it is too late, the outcome
/// of the call has been sent before this reply.
fn cancel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let ticket = num::parse_i64(args.bytes()?).and_then(Ticket::from_number).ok_or(GrantError::Ticket)?;
    match ctx.server.connections().withdraw(ctx.session, ticket) {
        Some(since_ms) => {
            let waited_ms = ctx.server.time.clock.steady_ms().saturating_sub(since_ms).max(0);
            answer(ctx.reply, true, &[("waited-ms", Said::Number(waited_ms))]);
        }
        None => answer(ctx.reply, false, &[("reason", Said::Text(b"no-ticket"))]),
    }
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("ticket"),
    Command {
        name: "ticket.cancel",
        arity: 2,
        flags: Flags::NOSCRIPT.union(Flags::FAST),
        complexity: "O(log N) with N the number of waiting calls",
        summary: "Cancels a call that is waiting with ASYNC.",
        syntax: "ticket:integer",
        run: Run::Now(cancel),
        ..BASE
    },
];
