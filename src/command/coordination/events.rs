//! EVENTS: what has become of grants lately, who was refused, and what became a dead letter, in order, of all keys that the user may read.
//!
//! A user's rights are asked for each event at each call: so a program may watch its own locks, an operator all of them, and who loses a right
//! sees no more of it from the next call on.

use super::grant::{BASE, count};
use super::outcome;
use super::past::{self, SHOWN_COUNT};
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::Flags;
use crate::spec::args::Args;
use crate::spec::error::Error;

const BAD_CURSOR: Error = Error::text("ERR the cursor is 0, or the `next` of an answer before");

fn events(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let argv = args.argv();
    let cursor = u64::try_from(args.int_or(BAD_CURSOR)?).map_err(|_| BAD_CURSOR)?;
    let count = count(&mut args, SHOWN_COUNT)?;
    ctx.ks.see_everything();
    let (later, has_missed) = ctx.server.audience.history.after(cursor);
    let (mut shown, mut next) = (Vec::new(), cursor.min(ctx.server.audience.history.last_id()));
    for past in later {
        // The next call begins behind what this one has looked at, shown or not.
        next = past.id;
        if ctx.server.may_tell_of(ctx.session, ctx.entry, argv, past.db, past.key) {
            shown.push(past);
        }
        if shown.len() == count {
            break;
        }
    }
    outcome::begin(ctx.reply, i64::from(!shown.is_empty()), 3);
    outcome::number(ctx.reply, "next", i64::try_from(next).unwrap_or(i64::MAX));
    outcome::number(ctx.reply, "missed", i64::from(has_missed));
    ctx.reply.bulk(b"events");
    past::answer(ctx.reply, &shown, true);
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[Command {
    name: "events",
    arity: -2,
    flags: Flags::READONLY,
    complexity: "O(N) with N the number of events that are remembered, at most 3,072",
    summary: "Tells which grants were given, given back or lost lately, who was refused, and what became a dead letter, of keys that the user may read.",
    syntax: "cursor:integer [COUNT count:integer]",
    run: Run::Now(events),
    ..BASE
}];
