//! MEMORY: what a key costs.

use super::help::help;
use crate::engine::args::Args;
use crate::engine::error::Error;
use crate::engine::spec::{Access, Flags, Group, KeySpec};
use crate::engine::{Command, Ctx, Done, Run};

/// Elements of a collection whose size is looked at, unless the caller says otherwise.
const DEFAULT_SAMPLES: usize = 5;

fn usage(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let mut samples = DEFAULT_SAMPLES;
    while !args.is_empty() {
        if !args.option("SAMPLES", 1) {
            return Err(Error::Syntax);
        }
        samples = usize::try_from(args.int()?).map_err(|_| Error::Syntax)?;
    }
    match ctx.ks.live(ctx.session.db, key) {
        Some(entry) => ctx.reply.integer(entry.mem_bytes(samples) as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "memory",
    arity: -2,
    group: Group::Server,
    since: "4.0.0",
    complexity: "Depends on subcommand.",
    summary: "Holds the commands about memory.",
    sub: &[
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.and(Flags::STALE),
            group: Group::Server,
            since: "4.0.0",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..Command::EMPTY
        },
        Command {
            name: "usage",
            arity: -3,
            flags: Flags::READONLY,
            keys: &[KeySpec::one(2, Access::Inspect)],
            group: Group::Server,
            since: "4.0.0",
            complexity: "O(N) where N is the number of samples",
            summary: "Estimates the bytes that a key takes, a collection's from so many of its elements (0: all).",
            syntax: "key [SAMPLES count]",
            run: Run::Now(usage),
            ..Command::EMPTY
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
