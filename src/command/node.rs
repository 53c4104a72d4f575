//! NODE: the nodes of the group, for administrators. Each change is one step of the group's log: a new node first
//! follows, and votes once it has caught up. `tidegate node` does all steps of a task.

use super::help::help;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Origin, Run};
use crate::persist::group::GroupLog;
use crate::persist::group_admin::{AdminRefusal, NodeRow, Reach, Role};
use crate::persist::group_requests::Waiter;
use crate::persist::journal::Journal;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Audited, Flags, Group};
use crate::wait::Wait;

const NO_GROUP: Error = Error::text("ERR this server is no node of a group (see docs/replication.md)");

fn group<'g>(ctx: &'g mut Ctx<'_>) -> Result<&'g mut GroupLog, Error> {
    ctx.server.persistence.journal.as_mut().and_then(Journal::group).ok_or(NO_GROUP)
}

fn list(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let nodes = group(ctx)?.nodes();
    ctx.reply.array(nodes.len());
    for NodeRow { number, address, role, reach, missing, .. } in nodes {
        ctx.reply.map(5);
        ctx.reply.bulk(b"id");
        ctx.reply.integer(number as i64);
        ctx.reply.bulk(b"address");
        ctx.reply.bulk(address.map(|address| address.to_string()).unwrap_or_default().as_bytes());
        ctx.reply.bulk(b"role");
        ctx.reply.bulk(match role {
            Role::Leader => b"leader",
            Role::Voter => b"voter",
            Role::Learner => b"learner",
            Role::Waiting => b"waiting",
        });
        ctx.reply.bulk(b"link");
        ctx.reply.bulk(match reach {
            Reach::Own => b"self",
            Reach::Connected => b"connected",
            Reach::Disconnected => b"disconnected",
        });
        ctx.reply.bulk(b"missing");
        match missing {
            Some(entries) => ctx.reply.integer(entries as i64),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    change(ctx, args, GroupLog::add)
}

fn promote(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    change(ctx, args, GroupLog::promote)
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    change(ctx, args, GroupLog::remove)
}

/// Begins a change, and makes the client wait until the group has committed it.
fn change(
    ctx: &mut Ctx<'_>,
    mut args: Args<'_>,
    begin: fn(&mut GroupLog, u64, Waiter) -> Result<(), AdminRefusal>,
) -> MayWait {
    let node = number(&mut args)?;
    if ctx.origin != Origin::Client {
        return Err(Error::text("ERR a change of the group must be a command of its own"));
    }
    let client = (ctx.session.key, ctx.entry.id);
    begin(group(ctx)?, node, client).map_err(refused)?;
    let wait_ms = i64::try_from(ctx.server.config.quorum_wait_ms).unwrap_or(i64::MAX);
    let on_timeout =
        |reply: &mut Reply| reply.error(b"ERR the group takes long, and the change goes on: see NODE LIST");
    Ok(Flow::wait(Wait::until(ctx.now_ms().checked_add(wait_ms), on_timeout)))
}

fn transfer(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let node = number(&mut args)?;
    group(ctx)?.transfer(node).map_err(refused)?;
    ctx.reply.ok();
    Ok(())
}

fn refused(refusal: AdminRefusal) -> Error {
    Error::owned(format!("ERR {refusal}"))
}

fn number(args: &mut Args<'_>) -> Result<u64, Error> {
    Ok(u64::try_from(args.int()?).unwrap_or_default())
}

/// Fields that most subcommands of NODE share.
const SUB: Command = Command {
    arity: 3,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE).union(Flags::NO_MULTI),
    group: Group::Server,
    since: "0.1.0",
    syntax: "id:integer",
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "node",
    arity: -2,
    group: Group::Server,
    since: "0.1.0",
    complexity: "Depends on subcommand.",
    summary: "A container for commands about the nodes of a group.",
    sub: &[
        Command {
            name: "add",
            complexity: "O(1)",
            summary: "Adds a node that asks to join. It follows, and does not vote yet.",
            audited: Some(Audited::Group),
            run: Run::MayWait(add),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.union(Flags::STALE),
            syntax: "",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "list",
            arity: 2,
            flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE).union(Flags::LOADING),
            syntax: "",
            complexity: "O(N) where N is the number of nodes",
            summary: "Returns the nodes, and those that ask to join.",
            tips: &["nondeterministic_output"],
            run: Run::Now(list),
            ..SUB
        },
        Command {
            name: "promote",
            complexity: "O(1)",
            summary: "Lets a node vote that has followed so far.",
            audited: Some(Audited::Group),
            run: Run::MayWait(promote),
            ..SUB
        },
        Command {
            name: "remove",
            complexity: "O(1)",
            summary: "Removes a node that does not lead.",
            audited: Some(Audited::Group),
            run: Run::MayWait(remove),
            ..SUB
        },
        Command {
            name: "transfer",
            complexity: "O(1)",
            summary: "Begins to hand leadership over to another node, which ends all connections here.",
            audited: Some(Audited::Group),
            run: Run::Now(transfer),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
