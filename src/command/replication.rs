//! Requests of replicas: SYNC, PSYNC, REPLCONF. They are served as far as a snapshot goes (`persist/transfer.rs`),
//! which is enough for `redis-cli --rdb` and importers. A replica that wants to be kept in sync is refused: it would
//! take the end of the connection for a failure and ask for everything again and again.
//!
//! The file also holds the queries about the server's replication role: a single server is a master without replicas.

use crate::base::lsn::Lsn;
use crate::base::num;
use crate::engine::{Command, Ctx, Done, Run};
use crate::persist::group::GroupLog;
use crate::persist::journal::Journal;
use crate::persist::transfer::{OWN_TYPES, Replica, Transfer};
use crate::session::Service;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Flags, Group};

const NO_REPLICAS: Error = Error::text(
    "ERR this server sends a snapshot but no later changes, so it can't keep a replica in sync (see \
     docs/compatibility.md)",
);

const NO_LENGTH: Error = Error::text(
    "ERR this server sends a snapshot only to a client that can detect its end by a mark: send REPLCONF capa eof first",
);

fn sync(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    args.end()?;
    begin(ctx, false)
}

/// PSYNC. There is no backlog to continue from, so it always sends everything.
fn psync(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    begin(ctx, true)
}

fn begin(ctx: &mut Ctx<'_>, names_history: bool) -> Done {
    let replica = ctx.session.replica;
    if replica.listens {
        return Err(NO_REPLICAS);
    }
    if !replica.takes_mark {
        return Err(NO_LENGTH);
    }
    let transfer = Transfer::begin(replica, ctx.ks.databases(), ctx.server.time.clock.now_ms());
    let transfer = transfer.map_err(|error| Error::owned(format!("ERR {error}")))?;
    // A push would land inside the snapshot, and the connection ends after it.
    ctx.server.connections().withdraw_all(ctx.session);
    ctx.server.meters.stats.full_syncs += 1;
    ctx.session.begin_transfer(transfer);
    if names_history {
        ctx.reply.status(&format!("FULLRESYNC {} 0", ctx.server.identity.replication_id));
    }
    Ok(())
}

fn replconf(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let mut replica = ctx.session.replica;
    while !args.is_empty() {
        let option = args.one_of(&[
            ("listening-port", Say::Port),
            ("capa", Say::Capability),
            ("rdb-only", Say::SnapshotOnly),
            ("rdb-filter-only", Say::Filter),
            // Neither the replica's address nor its version matters here.
            ("ip-address", Say::Nothing),
            ("version", Say::Nothing),
        ]);
        let Some(option) = option else {
            return Err(Error::lossy(&[b"ERR Unrecognized REPLCONF option: ", args.bytes()?].concat()));
        };
        apply(&mut replica, option, &mut args)?;
    }
    ctx.session.replica = replica;
    ctx.reply.ok();
    Ok(())
}

/// The subject of a REPLCONF option.
#[derive(Clone, Copy)]
enum Say {
    Port,
    Capability,
    SnapshotOnly,
    Filter,
    Nothing,
}

fn apply(replica: &mut Replica, option: Say, args: &mut Args<'_>) -> Done {
    match option {
        Say::Port => replica.listens = args.int()? != 0,
        // Unknown capabilities are optional abilities of the replica.
        Say::Capability => {
            let capability = args.bytes()?;
            replica.takes_mark |= capability.eq_ignore_ascii_case(b"eof");
            replica.takes_own_types |= capability.eq_ignore_ascii_case(OWN_TYPES);
        }
        Say::SnapshotOnly => replica.listens &= args.int()? == 0,
        Say::Filter => {
            let wanted = args.bytes()?;
            replica.only_libraries = wanted.eq_ignore_ascii_case(b"functions");
            if !replica.only_libraries && !wanted.is_empty() {
                return Err(Error::lossy(&[b"ERR Unsupported rdb-filter-only option: ", wanted].concat()));
            }
        }
        Say::Nothing => drop(args.bytes()?),
    }
    Ok(())
}

/// ROLE: a master, its replication offset, and its replicas, which only a group has. On a node that follows its group:
/// a slave, the leader's address, and how far this node has followed it. Offsets are numbers of changes. At Sentinel's
/// port: the names of the groups, of which there is one.
fn role(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    if ctx.session.service == Service::Sentinel {
        ctx.reply.array(2);
        ctx.reply.bulk(b"sentinel");
        ctx.reply.array(1);
        ctx.reply.bulk(&ctx.server.config.sentinel_master_name);
        return Ok(());
    }
    let group = ctx.server.persistence.journal.as_ref().and_then(Journal::member);
    if let Some(group) = group.filter(|group| !group.leads()) {
        let (host, port) = group.leader_address().map_or(("", 0), |address| (address.host(), address.port));
        ctx.reply.array(5);
        ctx.reply.bulk(b"slave");
        ctx.reply.bulk(host.as_bytes());
        ctx.reply.integer(port.into());
        ctx.reply.bulk(if group.leader().is_some() { b"connected" } else { b"connect" });
        ctx.reply.integer(i64::try_from(ctx.server.persistence.last_lsn().get()).unwrap_or(i64::MAX));
        return Ok(());
    }
    let replicas = group.map(GroupLog::replicas).unwrap_or_default();
    let offset = group.map_or(Lsn::NONE, |_| ctx.server.persistence.last_lsn());
    ctx.reply.array(3);
    ctx.reply.bulk(b"master");
    ctx.reply.integer(i64::try_from(offset.get()).unwrap_or(i64::MAX));
    ctx.reply.array(replicas.len());
    for (address, lsn) in replicas {
        ctx.reply.array(3);
        ctx.reply.bulk(address.host().as_bytes());
        ctx.reply.bulk(address.port.to_string().as_bytes());
        ctx.reply.bulk(lsn.to_string().as_bytes());
    }
    Ok(())
}

/// REPLICAOF and SLAVEOF. The server never follows another, so NO ONE changes nothing.
fn replica_of(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (host, port) = (args.bytes()?, args.bytes()?);
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        ctx.reply.ok();
        return Ok(());
    }
    let port = num::parse_i64(port).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Error::text("ERR Invalid master port"))?;
    Err(Error::owned(format!(
        "ERR this server can't be a replica. To copy another server's data here, and follow it until clients have \
         moved: \
         tidegate import --follow redis://{}:{port} (see docs/migration.md)",
        excerpt(host, 128)
    )))
}

/// FAILOVER: hands leadership over to another node of the group, with which a single server can't serve. That takes no
/// longer than an election, whatever TIMEOUT allows, and is given up by itself, so there is nothing to abort.
fn fail_over(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if args.len() == 1 && args.flag("ABORT") {
        return Err(Error::text("ERR No failover in progress."));
    }
    let (mut target, mut timeout_ms, mut is_forced) = (None, None, false);
    while !args.is_empty() {
        if timeout_ms.is_none() && args.option("TIMEOUT", 1) {
            timeout_ms = Some(args.int()?);
            if timeout_ms <= Some(0) {
                return Err(Error::text("ERR FAILOVER timeout must be greater than 0"));
            }
        } else if target.is_none() && args.option("TO", 2) {
            target = Some((args.bytes()?, args.int()?));
        } else if !is_forced && args.flag("FORCE") {
            is_forced = true;
        } else {
            return Err(Error::Syntax);
        }
    }
    let Some(group) = ctx.server.persistence.journal.as_mut().and_then(Journal::group) else {
        return Err(Error::text("ERR FAILOVER requires connected replicas."));
    };
    if !group.leads() {
        return Err(Error::text("ERR FAILOVER is not valid when server is a replica."));
    }
    if is_forced {
        return Err(Error::text("ERR FAILOVER can't be forced: no node leads that lacks what was acknowledged"));
    }
    let heir = group.heir(target).ok_or(Error::text(match target {
        Some(_) => "ERR FAILOVER target HOST and PORT is not a replica.",
        None => "ERR FAILOVER requires connected replicas.",
    }))?;
    group.transfer(heir).map_err(|refusal| Error::owned(format!("ERR {refusal}")))?;
    ctx.reply.ok();
    Ok(())
}

/// Fields that all entries share.
const REPLICATION: Command =
    Command { flags: Flags::ADMIN.union(Flags::NOSCRIPT), group: Group::Server, ..Command::EMPTY };

/// REPLICAOF under both names.
const REPLICA_OF: Command = Command {
    arity: 3,
    flags: REPLICATION.flags.union(Flags::NO_ASYNC_LOADING).union(Flags::STALE),
    summary: "Accepts NO ONE, which changes nothing; refuses to follow a server.",
    syntax: "<(host port:integer):host-port | (NO ONE):no-one>:args",
    run: Run::Now(replica_of),
    ..REPLICATION
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "failover",
        arity: -1,
        flags: REPLICATION.flags.union(Flags::STALE),
        summary: "Hands leadership over to another node of the group, which ends all connections here.",
        syntax: "[TO (host port:integer [FORCE])]:target [ABORT] [TIMEOUT milliseconds]",
        since: "6.2.0",
        run: Run::Now(fail_over),
        ..REPLICATION
    },
    Command {
        name: "psync",
        arity: -3,
        flags: REPLICATION.flags.union(Flags::NO_ASYNC_LOADING).union(Flags::NO_MULTI),
        complexity: "O(N) for N bytes of data, a slice at a time",
        categories: &["@replication"],
        summary: "Sends a snapshot of all data as RDB, as to a replica, and closes the connection.",
        syntax: "replicationid offset:integer",
        since: "2.8.0",
        run: Run::Now(psync),
        ..REPLICATION
    },
    Command {
        name: "replconf",
        arity: -1,
        flags: REPLICATION.flags.union(Flags::LOADING).union(Flags::STALE).union(Flags::ALLOW_BUSY),
        complexity: "O(1)",
        categories: &["@replication"],
        summary: "Sets options for the snapshot of SYNC or PSYNC.",
        since: "3.0.0",
        run: Run::Now(replconf),
        ..REPLICATION
    },
    Command { name: "replicaof", since: "5.0.0", ..REPLICA_OF },
    Command {
        name: "role",
        arity: 1,
        flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::FAST).union(Flags::SENTINEL),
        categories: &["@admin", "@dangerous"],
        summary: "Returns the replication role: a master without replicas.",
        since: "2.8.12",
        run: Run::Now(role),
        ..REPLICATION
    },
    Command { name: "slaveof", ..REPLICA_OF },
    Command {
        name: "sync",
        arity: 1,
        flags: REPLICATION.flags.union(Flags::NO_ASYNC_LOADING).union(Flags::NO_MULTI),
        complexity: "O(N) for N bytes of data, a slice at a time",
        categories: &["@replication"],
        summary: "Sends a snapshot of all data as RDB and closes the connection.",
        run: Run::Now(sync),
        ..REPLICATION
    },
];
