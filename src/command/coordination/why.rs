//! WHY: the recent refusals of a key, with their reasons.

use super::grant::{BASE, count};
use super::outcome;
use super::past::{self, SHOWN_COUNT};
use crate::engine::observe::history::Past;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::args::Args;
use crate::spec::{Access, Flags, KeySpec};

fn why(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    // The number of arguments tells a subject called COUNT from the option.
    let subject = if args.len() % 2 == 1 { Some(args.bytes()?) } else { None };
    let count = count(&mut args, SHOWN_COUNT)?;
    let db = ctx.db();
    // A refusal follows from the value of the key, so the reply waits for the journal as a read of the key would.
    _ = ctx.ks.look_up(db, key);
    let of_subject = |past: &Past<'_>| subject.is_none_or(|subject| past.subject == subject);
    let (mut known, mut shown) = (0, Vec::new());
    for refusal in ctx.server.audience.history.refusals_of(db, key).filter(of_subject) {
        known += 1;
        if shown.len() < count {
            shown.push(refusal);
        }
    }
    outcome::begin(ctx.reply, i64::from(known > 0), 2);
    outcome::number(ctx.reply, "known", known);
    ctx.reply.bulk(b"refusals");
    past::answer(ctx.reply, &shown, false);
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[Command {
    name: "why",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(1, Access::Read)],
    complexity: "O(N) with N the number of remembered refusals, at most 1,024",
    summary: "Lists the recent refusals of a lock, gate, stock or limit, with their reasons.",
    syntax: "key [subject] [COUNT count:integer]",
    run: Run::Now(why),
    ..BASE
}];
