//! TOKEN: the counter of fencing tokens, for moving a server's data. No command lowers it.

use super::error::TokenError;
use super::grant::BASE;
use crate::base::num;
use crate::command::help::family;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::limits::RESTORED_TOKEN_MAX;
use crate::spec::Flags;
use crate::spec::args::Args;

fn last(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    answer(ctx)
}

/// TOKEN.RAISE: makes this server skip the tokens that another server has given out.
fn raise(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let to = num::parse_i64(args.bytes()?).and_then(|to| u64::try_from(to).ok());
    let to = to.filter(|to| *to <= RESTORED_TOKEN_MAX).ok_or(TokenError::OutOfRange)?;
    ctx.ks.raise_tokens(to);
    answer(ctx)
}

fn answer(ctx: &mut Ctx<'_>) -> Done {
    ctx.ks.see_everything();
    ctx.reply.integer(ctx.ks.last_token().cast_signed());
    Ok(())
}

/// The fields that both commands share.
const TOKEN: Command =
    Command { flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::FAST), complexity: "O(1)", ..BASE };

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("token"),
    Command {
        name: "token.last",
        arity: 1,
        flags: TOKEN.flags.union(Flags::READONLY),
        summary: "Returns the greatest fencing token known to the server; the next grant gets a greater one.",
        run: Run::Now(last),
        ..TOKEN
    },
    Command {
        name: "token.raise",
        arity: 2,
        flags: TOKEN.flags.union(Flags::WRITE),
        summary: "Makes all further grants get fencing tokens above this one, and returns the greatest known.",
        syntax: "token:integer",
        run: Run::Now(raise),
        ..TOKEN
    },
];
