//! CLUSTER, and the commands by which clients in Cluster mode set up their connections.
//!
//! With `cluster-enabled yes` this server, or its group, shows itself as a cluster of one shard that owns all slots, so
//! that clients find and follow the leader. A change of the cluster is refused with advice on how to make it here.
//! Without, everything is refused as by a Redis that is not part of a cluster: client libraries send these commands to
//! find out whether the server is a cluster, and read the error as "a single server".

pub(super) mod mode;
mod show;
mod slot;

use self::mode::enabled;
use super::help;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

fn assign_slots(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    enabled(ctx)?;
    Err(Error::text("ERR one shard always owns all slots, so they can't be assigned"))
}

fn change_nodes(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    enabled(ctx)?;
    Err(Error::text(
        "ERR the nodes of a group are changed by NODE ADD, NODE PROMOTE and NODE REMOVE (see docs/replication.md)",
    ))
}

fn change_epoch(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    enabled(ctx)?;
    Err(Error::text("ERR the epoch is the term of the leader, which changes by elections only"))
}

fn fail_over(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    enabled(ctx)?;
    Err(Error::text("ERR the leader hands leadership over: send NODE TRANSFER to it"))
}

/// SAVECONFIG: there is nothing to save. The members of a group are on disk before they count.
fn save(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    enabled(ctx)?;
    ctx.reply.ok();
    Ok(())
}

fn list_subcommands(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    enabled(ctx)?;
    help::help(ctx, args)
}

/// ASKING: no slot is ever on its way to another node.
fn asking(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    enabled(ctx)?;
    ctx.reply.ok();
    Ok(())
}

fn read_only(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    enabled(ctx)?;
    ctx.session.reads_on_follower = true;
    ctx.reply.ok();
    Ok(())
}

fn read_write(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    enabled(ctx)?;
    ctx.session.reads_on_follower = false;
    ctx.reply.ok();
    Ok(())
}

/// Fields that all of them share.
const CLUSTER: Command = Command { flags: Flags::STALE, group: Group::Cluster, since: "3.0.0", ..Command::EMPTY };

/// Read-only subcommands.
const ASK: Command = Command { tips: &["nondeterministic_output"], ..CLUSTER };

/// Read-only subcommands that are allowed while data is loading.
const ASK_EARLY: Command = Command { flags: Flags::STALE.union(Flags::LOADING), ..ASK };

/// Queries about nodes, for administrators.
const ASK_AS_ADMIN: Command = Command { flags: Flags::STALE.union(Flags::ADMIN), arity: 3, ..ASK };

/// Subcommands that would change the cluster.
const CHANGE: Command =
    Command { flags: Flags::STALE.union(Flags::ADMIN).union(Flags::NO_ASYNC_LOADING), arity: 3, ..CLUSTER };

/// Subcommands that would assign slots.
const ASSIGN: Command =
    Command { summary: "Refused: one shard always owns all slots.", run: Run::Now(assign_slots), ..CHANGE };

/// Subcommands that would change the nodes.
const CHANGE_NODES: Command = Command {
    summary: "Refused: NODE ADD, NODE PROMOTE and NODE REMOVE change the nodes of a group.",
    run: Run::Now(change_nodes),
    ..CHANGE
};

/// Subcommands that would change the epoch.
const CHANGE_EPOCH: Command =
    Command { summary: "Refused: the epoch is the term of the leader.", run: Run::Now(change_epoch), ..CHANGE };

/// Commands with which a client sets up its connection.
const OF_CONNECTION: Command = Command {
    arity: 1,
    flags: Flags::FAST.union(Flags::LOADING).union(Flags::STALE),
    categories: &["@connection"],
    ..CLUSTER
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "asking",
        flags: Flags::FAST,
        summary: "Changes nothing, since no slot ever moves.",
        run: Run::Now(asking),
        ..OF_CONNECTION
    },
    Command {
        name: "cluster",
        arity: -2,
        flags: Flags::NONE,
        complexity: "Depends on subcommand.",
        summary: "A container for commands about the cluster.",
        sub: &[
            Command { name: "addslots", arity: -3, syntax: "slot:integer...", ..ASSIGN },
            Command {
                name: "addslotsrange",
                arity: -4,
                since: "7.0.0",
                syntax: "(start-slot:integer end-slot:integer):range...",
                ..ASSIGN
            },
            Command { name: "bumpepoch", arity: 2, tips: &["nondeterministic_output"], ..CHANGE_EPOCH },
            Command {
                name: "count-failure-reports",
                syntax: "node-id",
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns 0, since nodes of a group do not report each other.",
                run: Run::Now(show::count_failure_reports),
                ..ASK_AS_ADMIN
            },
            Command {
                name: "countkeysinslot",
                arity: 3,
                syntax: "slot:integer",
                complexity: "O(N) for the keys of the database",
                summary: "Returns the number of keys in a slot.",
                run: Run::Now(slot::count_keys),
                ..CLUSTER
            },
            Command { name: "delslots", arity: -3, syntax: "slot:integer...", ..ASSIGN },
            Command {
                name: "delslotsrange",
                arity: -4,
                since: "7.0.0",
                syntax: "(start-slot:integer end-slot:integer):range...",
                ..ASSIGN
            },
            Command {
                name: "failover",
                arity: -2,
                syntax: "[FORCE | TAKEOVER]:options",
                summary: "Refused: NODE TRANSFER hands leadership over.",
                run: Run::Now(fail_over),
                ..CHANGE
            },
            Command { name: "flushslots", arity: 2, ..ASSIGN },
            Command { name: "forget", syntax: "node-id", ..CHANGE_NODES },
            Command {
                name: "getkeysinslot",
                arity: 4,
                syntax: "slot:integer count:integer",
                complexity: "O(N) for the keys of the database",
                summary: "Returns keys of a slot.",
                run: Run::Now(slot::get_keys),
                ..ASK
            },
            Command {
                name: "help",
                arity: 2,
                flags: Flags::STALE.union(Flags::LOADING),
                since: "5.0.0",
                summary: "Lists the subcommands.",
                run: Run::Now(list_subcommands),
                ..CLUSTER
            },
            Command {
                name: "info",
                arity: 2,
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns the state of the cluster.",
                run: Run::Now(show::info),
                ..ASK
            },
            Command {
                name: "keyslot",
                arity: 3,
                syntax: "key:string",
                complexity: "O(N) where N is the length of the key",
                summary: "Returns the slot of a key.",
                run: Run::Now(slot::key_slot_of),
                ..CLUSTER
            },
            Command {
                name: "links",
                arity: 2,
                since: "7.0.0",
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns the connections with other nodes.",
                run: Run::Now(show::links),
                ..ASK
            },
            Command { name: "meet", arity: -4, syntax: "ip port:integer [cluster-bus-port:integer]", ..CHANGE_NODES },
            Command {
                name: "myid",
                arity: 2,
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns the name of this node.",
                run: Run::Now(show::my_id),
                ..CLUSTER
            },
            Command {
                name: "myshardid",
                arity: 2,
                since: "7.2.0",
                summary: "Returns the name of the shard.",
                run: Run::Now(show::my_shard_id),
                ..ASK
            },
            Command {
                name: "nodes",
                arity: 2,
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns the nodes as text.",
                run: Run::Now(show::nodes),
                ..ASK
            },
            Command {
                name: "replicas",
                since: "5.0.0",
                syntax: "node-id",
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns the followers of the leader.",
                run: Run::Now(show::replicas),
                ..ASK_AS_ADMIN
            },
            Command { name: "replicate", syntax: "node-id", ..CHANGE_NODES },
            Command {
                name: "reset",
                arity: -2,
                flags: Flags::ADMIN.union(Flags::STALE).union(Flags::NOSCRIPT),
                syntax: "[HARD | SOFT]:reset-type",
                ..CHANGE_NODES
            },
            Command {
                name: "saveconfig",
                arity: 2,
                summary: "Changes nothing: what there is to know of the nodes is on disk already.",
                run: Run::Now(save),
                ..CHANGE
            },
            Command { name: "set-config-epoch", syntax: "config-epoch:integer", ..CHANGE_EPOCH },
            Command {
                name: "setslot",
                arity: -4,
                syntax: "slot:integer <(IMPORTING node-id):importing | (MIGRATING node-id):migrating | (NODE \
                    node-id):node | STABLE>:subcommand",
                ..ASSIGN
            },
            Command {
                name: "shards",
                arity: 2,
                since: "7.0.0",
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns the shard and its nodes.",
                run: Run::Now(show::shards),
                ..ASK_EARLY
            },
            Command {
                name: "slaves",
                syntax: "node-id",
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns the followers of the leader.",
                run: Run::Now(show::replicas),
                ..ASK_AS_ADMIN
            },
            Command {
                name: "slots",
                arity: 2,
                complexity: "O(N) where N is the number of nodes",
                summary: "Returns the range of all slots, with the nodes that serve it.",
                run: Run::Now(show::slots),
                ..ASK_EARLY
            },
        ],
        run: Run::Container,
        ..CLUSTER
    },
    Command {
        name: "readonly",
        summary: "Lets a follower serve the connection's reads, which may be a little late.",
        run: Run::Now(read_only),
        ..OF_CONNECTION
    },
    Command {
        name: "readwrite",
        summary: "Lets the leader serve the connection's reads again.",
        run: Run::Now(read_write),
        ..OF_CONNECTION
    },
];
