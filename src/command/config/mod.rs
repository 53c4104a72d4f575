//! CONFIG: reading and changing parameters while the server runs.

mod act;
pub(super) mod rewrite;
mod set;

use super::help::help;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::args::Args;
use crate::spec::{Audited, Flags, Group, Secret};

fn get(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let found = ctx.server.config.matching(args.rest().iter());
    ctx.reply.map(found.len());
    for (name, value) in found {
        ctx.reply.bulk(&name);
        ctx.reply.bulk(&value);
    }
    Ok(())
}

fn reset_stat(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.meters.stats.reset();
    ctx.server.network.turns.reset();
    ctx.ks.reset_stats();
    ctx.server.programs.scripts.reset_stats();
    ctx.reply.ok();
    Ok(())
}

/// Fields that most subcommands of CONFIG share.
const SUB: Command = Command {
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    group: Group::Server,
    since: "2.0.0",
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "config",
    arity: -2,
    group: Group::Server,
    since: "2.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for configuration commands.",
    sub: &[
        Command {
            name: "get",
            arity: -3,
            complexity: "O(N) where N is the number of parameters asked for",
            summary: "Returns the parameters whose names match any of the patterns, with their values.",
            syntax: "parameter...",
            run: Run::Now(get),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.union(Flags::STALE),
            since: "5.0.0",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "resetstat",
            arity: 2,
            summary: "Resets the counters of INFO.",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            run: Run::Now(reset_stat),
            ..SUB
        },
        Command {
            name: "rewrite",
            arity: 2,
            since: "2.8.0",
            complexity: "O(N) where N is the number of parameters and lines",
            summary: "Writes the current parameters to the configuration file and keeps its other lines.",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            audited: Some(Audited::Settings),
            run: Run::Now(rewrite::command),
            ..SUB
        },
        Command {
            name: "set",
            arity: -4,
            secrets: &[Secret::Settings { first: 2 }],
            complexity: "O(N) where N is the number of parameters",
            summary: "Sets parameters: all of them or, after an error, none.",
            syntax: "(parameter value):data...",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            audited: Some(Audited::Settings),
            run: Run::MayWait(set::set),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
