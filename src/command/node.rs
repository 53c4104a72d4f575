//! NODE: the nodes of the group, for administrators. Each change is one step of the group's log: a new node first
//! follows, and votes once it has caught up. `tidegate node` does all steps of a task.

use super::help::help;
use crate::consensus::output::ChangeRefusal;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Origin, Run};
use crate::log::replicated::members::{Home, MemberChange};
use crate::log::replicated::types::NodeId;
use crate::persist::group::GroupLog;
use crate::persist::journal::Journal;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};
use crate::wait::Wait;

const NO_GROUP: Error = Error::text("ERR this server is no node of a group (see docs/replication.md)");

fn group<'g>(ctx: &'g mut Ctx<'_>) -> Result<&'g mut GroupLog, Error> {
    ctx.server.persistence.journal.as_mut().and_then(Journal::group).ok_or(NO_GROUP)
}

/// One row of NODE LIST.
struct Row {
    node: NodeId,
    address: String,
    role: &'static str,
    link: &'static str,
    missing: Option<u64>,
}

fn list(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let own = NodeId::new(ctx.server.config.node_id);
    let group = group(ctx)?;
    let (members, leader, facts) = (group.members(), group.leader(), group.facts());
    let of_member = |node: NodeId| {
        let peer = facts.peer(node);
        let home = members.homes.get(&node);
        Row {
            node,
            address: home.map(|home| home.address.to_string()).unwrap_or_default(),
            role: match members.voters.contains(&node) {
                true if Some(node) == leader => "leader",
                true => "voter",
                false => "learner",
            },
            link: match peer {
                _ if Some(node) == own => "self",
                Some(peer) if peer.link.is_connected() => "connected",
                _ => "disconnected",
            },
            missing: if Some(node) == leader { Some(0) } else { peer.and_then(|peer| peer.missing) },
        }
    };
    let mut rows: Vec<Row> = members.all().map(of_member).collect();
    rows.extend(facts.strangers.iter().map(|stranger| Row {
        node: stranger.node,
        address: stranger.contact.address.to_string(),
        role: "waiting",
        link: "disconnected",
        missing: None,
    }));
    rows.sort_by_key(|row| row.node);
    ctx.reply.array(rows.len());
    for Row { node, address, role, link, missing } in rows {
        ctx.reply.map(5);
        ctx.reply.bulk(b"id");
        ctx.reply.integer(node.get() as i64);
        ctx.reply.bulk(b"address");
        ctx.reply.bulk(address.as_bytes());
        ctx.reply.bulk(b"role");
        ctx.reply.bulk(role.as_bytes());
        ctx.reply.bulk(b"link");
        ctx.reply.bulk(link.as_bytes());
        ctx.reply.bulk(b"missing");
        match missing {
            Some(entries) => ctx.reply.integer(entries as i64),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

fn add(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let node = number(&mut args)?;
    let group = leading(group(ctx)?)?;
    let facts = group.facts();
    let stranger = facts.strangers.iter().find(|stranger| stranger.node == node);
    let stranger = match stranger {
        _ if group.members().contains(node) => return Err(refusal(ChangeRefusal::Member)),
        Some(stranger) => stranger,
        None => {
            return Err(Error::owned(format!(
                "ERR node {node} does not ask to join: start it with `node-id {node}`, an empty `dir` and the nodes of \
                 this group in its `nodes`"
            )));
        }
    };
    let home = Home { address: stranger.contact.address.clone(), birth: stranger.identity.birth };
    let has_address = |member: &NodeId| {
        group.members().homes.get(member).is_some_and(|other| other.address.for_nodes() == home.address.for_nodes())
    };
    if let Some(other) = group.members().all().find(has_address) {
        return Err(Error::owned(format!("ERR node {other} has the address {} already", home.address)));
    }
    change(ctx, MemberChange::AddLearner(node, home))
}

fn promote(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let node = number(&mut args)?;
    change(ctx, MemberChange::Promote(node))
}

fn remove(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let node = number(&mut args)?;
    change(ctx, MemberChange::Remove(node))
}

/// Makes the client wait until the group has committed a change.
fn change(ctx: &mut Ctx<'_>, change: MemberChange) -> MayWait {
    if ctx.origin != Origin::Client {
        return Err(Error::text("ERR a change of the group must be a command of its own"));
    }
    let client = (ctx.session.key, ctx.entry.id);
    leading(group(ctx)?)?.change(change, client).map_err(refusal)?;
    let on_timeout = |reply: &mut Reply| reply.error(b"ERR the change of the group goes on");
    Ok(Flow::wait(Wait::until(None, on_timeout)))
}

fn transfer(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let node = number(&mut args)?;
    let group = leading(group(ctx)?)?;
    group.transfer(node).map_err(|refusal| Error::owned(format!("ERR {refusal}")))?;
    ctx.reply.ok();
    Ok(())
}

/// Refuses what only a leader can do, and names the leader.
fn leading(group: &mut GroupLog) -> Result<&mut GroupLog, Error> {
    if group.leads() {
        return Ok(group);
    }
    let leader = group.leader().zip(group.leader_address());
    Err(Error::owned(match leader {
        Some((leader, address)) => {
            format!("ERR this node does not lead: ask node {leader} at {}", address.for_clients())
        }
        None => "ERR this node does not lead, and knows no leader".to_owned(),
    }))
}

fn refusal(refusal: ChangeRefusal) -> Error {
    Error::owned(format!("ERR {refusal}"))
}

fn number(args: &mut Args<'_>) -> Result<NodeId, Error> {
    let number = u64::try_from(args.int()?).ok().and_then(NodeId::new);
    number.ok_or(Error::text("ERR the number of a node is 1 or more"))
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
            run: Run::MayWait(promote),
            ..SUB
        },
        Command {
            name: "remove",
            complexity: "O(1)",
            summary: "Removes a node that does not lead.",
            run: Run::MayWait(remove),
            ..SUB
        },
        Command {
            name: "transfer",
            complexity: "O(1)",
            summary: "Begins to hand leadership over to another node, which ends all connections here.",
            run: Run::Now(transfer),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
