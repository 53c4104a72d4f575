//! EVENTS: recent events of grants, refusals and dead letters, in order, for all keys that the user may read.
//!
//! Each call checks the user's rights for each event. So a program can watch its own locks and an operator all of them,
//! and a user who loses a right sees no such events from the next call on.

use super::error::GrantError;
use super::grant::{BASE, count};
use super::outcome;
use super::past::{self, SHOWN_COUNT};
use crate::base::num;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::Flags;
use crate::spec::args::Args;

fn events(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let argv = args.argv();
    let cursor = num::parse_i64(args.bytes()?).and_then(|cursor| u64::try_from(cursor).ok());
    let cursor = cursor.ok_or(GrantError::EventsCursor)?;
    let count = count(&mut args, SHOWN_COUNT)?;
    ctx.ks.see_everything();
    let (later, has_missed) = ctx.server.audience.history.after(cursor);
    let (mut shown, mut next) = (Vec::new(), cursor.min(ctx.server.audience.history.last_id()));
    for past in later {
        // The next call continues behind the last event examined, shown or not.
        next = past.id;
        if ctx.server.rights().may_show(ctx.session, ctx.entry, argv, past.db, past.key) {
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
    complexity: "O(N) with N the number of remembered events, at most 3,072",
    summary: "Lists recent grants, releases, lost leases, refusals and dead letters of keys that the user may read.",
    syntax: "cursor:integer [COUNT count:integer]",
    run: Run::Now(events),
    ..BASE
}];
