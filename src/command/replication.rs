//! What a replica asks for: SYNC, PSYNC, REPLCONF. They are answered as far as a snapshot goes (`engine/transfer.rs`), which is
//! what `redis-cli --rdb` and importers want. A replica that wants to be kept in sync is refused: it would take the end of the
//! link for a fault, and ask for everything again and again.

use crate::engine::args::Args;
use crate::engine::error::Error;
use crate::engine::spec::{Flags, Group};
use crate::engine::transfer::{Replica, Transfer};
use crate::engine::{Command, Ctx, Done, Run};

const NO_REPLICAS: Error = Error::text(
    "ERR this server sends a snapshot and no changes behind it, so it can't keep a replica in sync (see docs/compatibility.md)",
);

const NO_LENGTH: Error = Error::text(
    "ERR this server sends a snapshot only to who can tell its end by a mark: send REPLCONF capa eof first",
);

fn sync(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    args.end()?;
    begin(ctx, false)
}

/// PSYNC: where it asks to go on there is nothing, so it always begins anew.
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
    let transfer = Transfer::begin(replica, ctx.ks.databases(), ctx.server.clock.now_ms());
    let transfer = transfer.map_err(|error| Error::owned(format!("ERR {error}")))?;
    ctx.server.stats.full_syncs += 1;
    ctx.session.transfer = Some(Box::new(transfer));
    if names_history {
        ctx.reply.status(&format!("FULLRESYNC {} 0", ctx.server.run_id));
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
            // Nothing here depends on where a replica is and which version it has.
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

/// What an option of REPLCONF is about.
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
        // Those that are not known say what a replica can do beyond.
        Say::Capability => replica.takes_mark |= args.bytes()?.eq_ignore_ascii_case(b"eof"),
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

/// What they have in common.
const REPLICATION: Command =
    Command { flags: Flags::ADMIN.and(Flags::NOSCRIPT), group: Group::Server, ..Command::EMPTY };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "psync",
        arity: -3,
        flags: REPLICATION.flags.and(Flags::NO_ASYNC_LOADING).and(Flags::NO_MULTI),
        complexity: "O(N) for N bytes of data, a slice at a time",
        summary: "Sends a snapshot of all data as RDB, as to a replica, and closes the connection.",
        syntax: "replicationid offset:integer",
        since: "2.8.0",
        run: Run::Now(psync),
        ..REPLICATION
    },
    Command {
        name: "replconf",
        arity: -1,
        flags: REPLICATION.flags.and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY),
        complexity: "O(1)",
        summary: "Says what the snapshot of SYNC or PSYNC should be like.",
        since: "3.0.0",
        run: Run::Now(replconf),
        ..REPLICATION
    },
    Command {
        name: "sync",
        arity: 1,
        flags: REPLICATION.flags.and(Flags::NO_ASYNC_LOADING).and(Flags::NO_MULTI),
        complexity: "O(N) for N bytes of data, a slice at a time",
        summary: "Sends a snapshot of all data as RDB, and closes the connection.",
        run: Run::Now(sync),
        ..REPLICATION
    },
];
