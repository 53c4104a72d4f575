//! SLOWLOG and COMMANDLOG: commands that took long recently, or whose requests or replies were large.

use super::help::help;
use crate::base::num;
use crate::engine::{Command, Ctx, Done, Run};
use crate::meters::command_log::{Noted, Trait};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

/// The number of entries in a reply of SLOWLOG GET without a count.
const DEFAULT_COUNT: usize = 10;

fn slowlog_get(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if args.len() > 1 {
        return Err(Error::owned(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try SLOWLOG HELP.",
            crate::spec::error::excerpt(&args.argv()[1], 128)
        )));
    }
    let count = if args.is_empty() { DEFAULT_COUNT } else { count(&mut args)? };
    write_notes(ctx, Trait::Slow, count);
    Ok(())
}

fn slowlog_len(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.integer(ctx.server.meters.command_log.of(Trait::Slow).len() as i64);
    Ok(())
}

fn slowlog_reset(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.meters.command_log.of_mut(Trait::Slow).clear();
    ctx.reply.ok();
    Ok(())
}

fn get(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let count = count(&mut args)?;
    let what = named(&mut args)?;
    write_notes(ctx, what, count);
    Ok(())
}

fn len(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let what = named(&mut args)?;
    ctx.reply.integer(ctx.server.meters.command_log.of(what).len() as i64);
    Ok(())
}

fn reset(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let what = named(&mut args)?;
    ctx.server.meters.command_log.of_mut(what).clear();
    ctx.reply.ok();
    Ok(())
}

/// Takes the number of entries to return; -1 means all.
fn count(args: &mut Args<'_>) -> Result<usize, Error> {
    let count = match num::parse_i64(args.bytes()?) {
        Some(-1) => Some(usize::MAX),
        count => count.and_then(|count| usize::try_from(count).ok()),
    };
    count.ok_or(Error::text("ERR count should be greater than or equal to -1"))
}

/// Takes the name of the log.
fn named(args: &mut Args<'_>) -> Result<Trait, Error> {
    const NAMES: [(&str, Trait); 3] =
        [("slow", Trait::Slow), ("large-request", Trait::LargeRequest), ("large-reply", Trait::LargeReply)];
    args.one_of(&NAMES).ok_or(Error::text("ERR type should be one of the following: slow, large-request, large-reply"))
}

fn write_notes(ctx: &mut Ctx<'_>, what: Trait, count: usize) {
    let log = ctx.server.meters.command_log.of(what);
    ctx.reply.array(log.len().min(count));
    log.iter().take(count).for_each(|noted| write(noted, ctx.reply));
}

fn write(noted: &Noted, reply: &mut Reply) {
    reply.array(6);
    reply.integer(noted.id as i64);
    reply.integer(noted.at_s);
    reply.integer(noted.amount as i64);
    let command = noted.command.as_argv();
    reply.array(command.len());
    command.iter().for_each(|arg| reply.bulk(arg));
    reply.bulk(noted.address.as_bytes());
    reply.bulk(&noted.name);
}

/// Fields that most subcommands of SLOWLOG share.
const SLOW: Command = Command {
    flags: Flags::ADMIN.union(Flags::LOADING).union(Flags::STALE),
    group: Group::Server,
    since: "2.2.12",
    ..Command::EMPTY
};

/// Fields that most subcommands of COMMANDLOG share.
const LOG: Command = Command { since: "8.1.0", ..SLOW };

/// The HELP subcommand of both.
const HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.union(Flags::STALE),
    group: Group::Server,
    summary: "Lists the subcommands.",
    run: Run::Now(help),
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "commandlog",
        arity: -2,
        group: Group::Server,
        since: "8.1.0",
        complexity: "Depends on subcommand.",
        summary: "A container for commands about slow commands, large requests and large replies.",
        sub: &[
            Command {
                name: "get",
                arity: 4,
                complexity: "O(N) where N is the number of entries returned",
                summary: "Returns the newest entries of a log, all of them for -1: id, Unix time in seconds, \
                          microseconds or bytes, arguments, client address and name.",
                syntax: "count:integer <SLOW | LARGE-REQUEST | LARGE-REPLY>",
                tips: &["request_policy:all_nodes", "nondeterministic_output"],
                run: Run::Now(get),
                ..LOG
            },
            Command { since: "8.1.0", ..HELP },
            Command {
                name: "len",
                arity: 3,
                summary: "Returns the number of entries in a log.",
                syntax: "<SLOW | LARGE-REQUEST | LARGE-REPLY>",
                tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
                run: Run::Now(len),
                ..LOG
            },
            Command {
                name: "reset",
                arity: 3,
                complexity: "O(N) where N is the number of entries",
                summary: "Clears a log.",
                syntax: "<SLOW | LARGE-REQUEST | LARGE-REPLY>",
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                run: Run::Now(reset),
                ..LOG
            },
        ],
        run: Run::Container,
        ..Command::EMPTY
    },
    Command {
        name: "slowlog",
        arity: -2,
        group: Group::Server,
        since: "2.2.12",
        complexity: "Depends on subcommand.",
        summary: "A container for slow log commands.",
        sub: &[
            Command {
                name: "get",
                arity: -2,
                complexity: "O(N) where N is the number of entries returned",
                summary: "Returns the newest entries, by default 10, all of them for -1: id, Unix time in seconds, \
                          microseconds, arguments, client address and name.",
                syntax: "[count:integer]",
                tips: &["request_policy:all_nodes", "nondeterministic_output"],
                run: Run::Now(slowlog_get),
                ..SLOW
            },
            Command { since: "6.2.0", ..HELP },
            Command {
                name: "len",
                arity: 2,
                summary: "Returns the number of entries in the slow log.",
                tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
                run: Run::Now(slowlog_len),
                ..SLOW
            },
            Command {
                name: "reset",
                arity: 2,
                complexity: "O(N) where N is the number of entries",
                summary: "Clears the slow log.",
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                run: Run::Now(slowlog_reset),
                ..SLOW
            },
        ],
        run: Run::Container,
        ..Command::EMPTY
    },
];
