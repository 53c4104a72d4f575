//! CLUSTER, and the commands that cluster clients send to nodes: refused, as by a Redis that is not part of a cluster.
//!
//! Client libraries send them to find out whether the server is a cluster, and read this error as "a single server".

use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

fn refuse(_: &mut Ctx<'_>, _: Args<'_>) -> Done {
    Err(Error::text("ERR This instance has cluster support disabled"))
}

/// Fields that all of them share.
const CLUSTER: Command = Command {
    flags: Flags::STALE,
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Refused: the server is not a cluster node.",
    run: Run::Now(refuse),
    ..Command::EMPTY
};

/// Read-only subcommands.
const ASK: Command = Command { tips: &["nondeterministic_output"], ..CLUSTER };

/// Read-only subcommands that are allowed while data is loading.
const ASK_EARLY: Command = Command { flags: Flags::STALE.union(Flags::LOADING), ..ASK };

/// Queries about nodes, for administrators.
const ASK_AS_ADMIN: Command = Command { flags: Flags::STALE.union(Flags::ADMIN), arity: 3, ..ASK };

/// Subcommands that would change the cluster.
const CHANGE: Command =
    Command { flags: Flags::STALE.union(Flags::ADMIN).union(Flags::NO_ASYNC_LOADING), arity: 3, ..CLUSTER };

/// Commands with which a client sets up its connection.
const OF_CONNECTION: Command = Command {
    arity: 1,
    flags: Flags::FAST.union(Flags::LOADING).union(Flags::STALE),
    categories: &["@connection"],
    ..CLUSTER
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command { name: "asking", flags: Flags::FAST, ..OF_CONNECTION },
    Command {
        name: "cluster",
        arity: -2,
        flags: Flags::NONE,
        complexity: "Depends on subcommand.",
        summary: "A container for cluster commands, all of them refused: the server is not a cluster node.",
        sub: &[
            Command { name: "addslots", arity: -3, syntax: "slot:integer...", ..CHANGE },
            Command {
                name: "addslotsrange",
                arity: -4,
                since: "7.0.0",
                syntax: "(start-slot:integer end-slot:integer):range...",
                ..CHANGE
            },
            Command { name: "bumpepoch", arity: 2, tips: &["nondeterministic_output"], ..CHANGE },
            Command { name: "count-failure-reports", syntax: "node-id", ..ASK_AS_ADMIN },
            Command { name: "countkeysinslot", arity: 3, syntax: "slot:integer", ..CLUSTER },
            Command { name: "delslots", arity: -3, syntax: "slot:integer...", ..CHANGE },
            Command {
                name: "delslotsrange",
                arity: -4,
                since: "7.0.0",
                syntax: "(start-slot:integer end-slot:integer):range...",
                ..CHANGE
            },
            Command { name: "failover", arity: -2, syntax: "[FORCE | TAKEOVER]:options", ..CHANGE },
            Command { name: "flushslots", arity: 2, ..CHANGE },
            Command { name: "forget", syntax: "node-id", ..CHANGE },
            Command { name: "getkeysinslot", arity: 4, syntax: "slot:integer count:integer", ..ASK },
            Command { name: "help", arity: 2, flags: Flags::STALE.union(Flags::LOADING), since: "5.0.0", ..CLUSTER },
            Command { name: "info", arity: 2, ..ASK },
            Command { name: "keyslot", arity: 3, syntax: "key:string", ..CLUSTER },
            Command { name: "links", arity: 2, since: "7.0.0", ..ASK },
            Command { name: "meet", arity: -4, syntax: "ip port:integer [cluster-bus-port:integer]", ..CHANGE },
            Command { name: "myid", arity: 2, ..CLUSTER },
            Command { name: "myshardid", arity: 2, since: "7.2.0", ..ASK },
            Command { name: "nodes", arity: 2, ..ASK },
            Command { name: "replicas", since: "5.0.0", syntax: "node-id", ..ASK_AS_ADMIN },
            Command { name: "replicate", syntax: "node-id", ..CHANGE },
            Command {
                name: "reset",
                arity: -2,
                flags: Flags::ADMIN.union(Flags::STALE).union(Flags::NOSCRIPT),
                syntax: "[HARD | SOFT]:reset-type",
                ..CHANGE
            },
            Command { name: "saveconfig", arity: 2, ..CHANGE },
            Command { name: "set-config-epoch", syntax: "config-epoch:integer", ..CHANGE },
            Command {
                name: "setslot",
                arity: -4,
                syntax: "slot:integer <(IMPORTING node-id):importing | (MIGRATING node-id):migrating | (NODE \
                    node-id):node | STABLE>:subcommand",
                ..CHANGE
            },
            Command { name: "shards", arity: 2, since: "7.0.0", ..ASK_EARLY },
            Command { name: "slaves", syntax: "node-id", ..ASK_AS_ADMIN },
            Command { name: "slots", arity: 2, ..ASK_EARLY },
        ],
        run: Run::Container,
        ..CLUSTER
    },
    Command { name: "readonly", ..OF_CONNECTION },
    Command { name: "readwrite", ..OF_CONNECTION },
];
