//! TOKEN: the counter of fencing tokens, for those who move a server's data. No command takes it back.

use super::grant::BASE;
use crate::base::limits::RESTORED_TOKEN_MAX;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::Flags;
use crate::spec::args::Args;
use crate::spec::error::Error;

const NO_TOKEN: Error = Error::text("ERR a fencing token is a whole number from 0 to 4503599627370496");

fn last(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    answer(ctx)
}

/// TOKEN.RAISE: what another server has given out is not given out here once more.
fn raise(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let to = u64::try_from(args.int_or(NO_TOKEN)?).ok().filter(|to| *to <= RESTORED_TOKEN_MAX).ok_or(NO_TOKEN)?;
    ctx.ks.raise_tokens(to);
    answer(ctx)
}

fn answer(ctx: &mut Ctx<'_>) -> Done {
    ctx.ks.see_everything();
    ctx.reply.integer(ctx.ks.last_token().cast_signed());
    Ok(())
}

/// What both say of themselves.
const TOKEN: Command =
    Command { flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::FAST), complexity: "O(1)", ..BASE };

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "token.last",
        arity: 1,
        flags: TOKEN.flags.and(Flags::READONLY),
        summary: "Answers the greatest fencing token that is known: the next grant has a greater one.",
        run: Run::Now(last),
        ..TOKEN
    },
    Command {
        name: "token.raise",
        arity: 2,
        flags: TOKEN.flags.and(Flags::WRITE),
        summary: "Has all grants from now on have fencing tokens above this one, and answers the greatest that is known.",
        syntax: "token:integer",
        run: Run::Now(raise),
        ..TOKEN
    },
];
