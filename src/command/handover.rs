//! HANDOVER: the data of a running server becomes that of another one. [`Handover`] has the states.
//! `tidegate import --follow` calls these commands: RECEIVE, LOAD, LOADED and APPLY at the new server, GIVE at the old
//! one, and at last END at the new one.

use super::help::help;
use crate::base::lsn::Lsn;
use crate::base::node_address::NodeAddress;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::Misfit;
use crate::keyspace::effect::{Effect, EffectReader};
use crate::persist::handover::{Handover, Received};
use crate::persist::tail::{count_units, effects_of};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Audited, Flags, Group};
use crate::value::Layout;

const HAS_DATA: Error =
    Error::text("ERR this server has data of its own: add REPLACE to delete all of it, with scripts and libraries");
const NOT_RECEIVING: Error = Error::text("ERR this server does not receive data: begin with HANDOVER RECEIVE");
const INCOMPLETE: Error = Error::text("ERR the data is not complete: call HANDOVER LOAD, and then HANDOVER LOADED");
const COMPLETE: Error = Error::text("ERR the data is complete: go on with HANDOVER APPLY");
const FILLED_BY_ANOTHER: Error =
    Error::text("ERR another connection has called HANDOVER RECEIVE: begin with that on this one");
const RECEIVES: Error = Error::text("ERR this server's data is not its own: end the handover to it first");
const NO_JOURNAL: Error = Error::text("ERR the feed is read from the journal: set appendonly yes");
const NO_ADDRESS: Error = Error::text("ERR the address of a server is written HOST:PORT");
const LOADING: Error = Error::text("LOADING Redis is loading the dataset in memory");

/// Refuses what can't be kept.
fn admit(ctx: &mut Ctx<'_>) -> Done {
    if ctx.server.persistence.loading.is_some() {
        return Err(LOADING);
    }
    ctx.server.persistence.admit_handover()?;
    // What is received has its own idea of what has expired, and a change of whose the data is concerns no key.
    ctx.ks.keep_expired_no_longer();
    Ok(())
}

fn received(ctx: &Ctx<'_>) -> Result<Received, Error> {
    ctx.server.persistence.handover.received().cloned().ok_or(NOT_RECEIVING)
}

fn set(ctx: &mut Ctx<'_>, state: Handover) {
    ctx.server.set_handover(ctx.ks, ctx.session, state);
}

/// HANDOVER STATE: whose the data is.
fn state(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    if ctx.server.persistence.loading.is_some() {
        return Err(LOADING);
    }
    let fields: Vec<(&str, &str)> = match &ctx.server.persistence.handover {
        Handover::Own => vec![("state", "own")],
        Handover::Receiving(received) => {
            vec![("state", "receiving"), ("from", &received.from), ("history", &received.history)]
        }
        Handover::Given(to) => vec![("state", "given"), ("to", to)],
    };
    let received = ctx.server.persistence.handover.received();
    ctx.reply.map(fields.len() + if received.is_some() { 2 } else { 0 });
    for (name, value) in fields {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.bulk(value.as_bytes());
    }
    if let Some(received) = received {
        ctx.reply.bulk(b"last");
        ctx.reply.integer(i64::try_from(received.last.get()).unwrap_or(i64::MAX));
        ctx.reply.bulk(b"complete");
        ctx.reply.boolean(received.is_complete);
    }
    Ok(())
}

/// HANDOVER RECEIVE history from [REPLACE]: empties this server, to be filled with another server's data.
fn receive(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned().into_boxed_str();
    let (history, from) = (text(args.bytes()?), text(args.bytes()?));
    let replaces = args.flag("REPLACE");
    args.end()?;
    admit(ctx)?;
    // What another server has sent is nobody's only copy.
    let is_own = ctx.server.persistence.handover.received().is_none();
    if is_own && !replaces && has_data(ctx) {
        return Err(HAS_DATA);
    }
    empty(ctx);
    ctx.server.programs.scripts.set_memory_limit(0);
    let filled_by = Some(ctx.session.key);
    set(ctx, Handover::Receiving(Box::new(Received { from, history, last: Lsn::NONE, is_complete: false, filled_by })));
    ctx.reply.ok();
    Ok(())
}

fn has_data(ctx: &Ctx<'_>) -> bool {
    let has_keys = (0..ctx.ks.databases()).any(|db| !ctx.ks.db(db).is_empty());
    has_keys || ctx.server.programs.scripts.libraries().iter().next().is_some()
}

/// Removes all keys, scripts and libraries, and a value that was being filled. Fencing tokens never go back.
fn empty(ctx: &mut Ctx<'_>) {
    for db in 0..ctx.ks.databases() {
        if !ctx.ks.db(db).is_empty() {
            ctx.ks.flush(db, true);
        }
    }
    ctx.server.programs.scripts.forget_clients(ctx.ks);
    let emptied = ctx.ks.apply(0, &Effect::Part { fresh: true, layout: Layout::Compact, steps: b"" });
    debug_assert_eq!(emptied, Ok(()), "a part that begins nothing always fits");
}

/// HANDOVER LOAD units: units of the other server's snapshot.
fn load(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let units = args.bytes()?;
    admit(ctx)?;
    check_filler(ctx)?;
    let _count = check_units(ctx, units)?;
    match apply_units(ctx, units) {
        Ok(()) => ctx.reply.ok(),
        // The data is incomplete anyway, and begins anew.
        Err(misfit) => ctx.fail_half_way(&unfit(misfit)),
    }
    Ok(())
}

/// HANDOVER LOADED lsn: all of the snapshot is here, which has the changes up to this Lsn.
fn loaded(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let last = lsn(&mut args)?;
    admit(ctx)?;
    let received = check_filler(ctx)?;
    set(ctx, Handover::Receiving(Box::new(Received { last, is_complete: true, filled_by: None, ..received })));
    ctx.reply.ok();
    Ok(())
}

/// HANDOVER APPLY after units: the changes that follow the one with this Lsn, which must be the last one here. They
/// happen together. The reply is the Lsn of the last of them.
fn apply(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (after, units) = (lsn(&mut args)?, args.bytes()?);
    admit(ctx)?;
    let received = received(ctx)?;
    if !received.is_complete {
        return Err(INCOMPLETE);
    }
    if received.last != after {
        let last = received.last;
        return Err(Error::owned(format!("ERR the last change here is {last}, not {after}: another client adds some")));
    }
    let last = after.plus(check_units(ctx, units)?);
    match apply_units(ctx, units) {
        Ok(()) => {
            set(ctx, Handover::Receiving(Box::new(Received { last, ..received })));
            ctx.reply.integer(i64::try_from(last.get()).unwrap_or(i64::MAX));
        }
        Err(misfit) => {
            // The change is here in part.
            set(ctx, Handover::Receiving(Box::new(Received { is_complete: false, ..received })));
            ctx.fail_half_way(&unfit(misfit));
        }
    }
    Ok(())
}

/// HANDOVER GIVE address: nothing changes the data here from now on. The reply is the Lsn of the last change.
fn give(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let to = address(args.bytes()?).ok_or(NO_ADDRESS)?;
    admit(ctx)?;
    if ctx.server.persistence.handover.received().is_some() {
        return Err(RECEIVES);
    }
    if ctx.server.persistence.journal.is_none() {
        return Err(NO_JOURNAL);
    }
    let last = ctx.server.persistence.lsn_of_tail().next();
    set(ctx, Handover::Given(to));
    ctx.reply.integer(i64::try_from(last.get()).unwrap_or(i64::MAX));
    Ok(())
}

/// HANDOVER END: the data is this server's own from now on. Incomplete data is removed.
fn end(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    admit(ctx)?;
    if ctx.server.persistence.handover.is_incomplete() {
        empty(ctx);
    }
    if !ctx.server.persistence.handover.is_own() {
        set(ctx, Handover::Own);
        ctx.server.begin_own_limits(ctx.ks);
    }
    ctx.reply.ok();
    Ok(())
}

/// Refuses to load for all but the client that began.
fn check_filler(ctx: &Ctx<'_>) -> Result<Received, Error> {
    let received = received(ctx)?;
    match received.filled_by {
        _ if received.is_complete => Err(COMPLETE),
        Some(client) if client == ctx.session.key => Ok(received),
        _ => Err(FILLED_BY_ANOTHER),
    }
}

/// Returns the number of units, if they are whole and this unit can hold all of them.
fn check_units(ctx: &Ctx<'_>, units: &[u8]) -> Result<u64, Error> {
    ctx.admit_effects(units.len())?;
    count_units(units).map_err(|bad| Error::owned(format!("ERR {bad}")))
}

fn apply_units(ctx: &mut Ctx<'_>, units: &[u8]) -> Result<(), Misfit> {
    for effects in effects_of(units) {
        for (db, effect) in EffectReader::new(effects) {
            // Whose the data is there is not whose it is here.
            if !Handover::is_told_by(&effect) {
                ctx.server.apply(ctx.ks, db, &effect)?;
            }
        }
    }
    Ok(())
}

fn unfit(misfit: Misfit) -> Error {
    Error::owned(format!("ERR a change does not fit the data: {misfit}. Begin again with HANDOVER RECEIVE"))
}

fn lsn(args: &mut Args<'_>) -> Result<Lsn, Error> {
    u64::try_from(args.int()?).map(Lsn::new).map_err(|_| Error::NotInteger)
}

fn address(text: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, port) = text.rsplit_once(':')?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (is_port && NodeAddress::is_host(host)).then(|| text.into())
}

/// Fields that the subcommands of HANDOVER share.
const SUB: Command = Command {
    arity: 2,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE).union(Flags::LOADING).union(Flags::NO_MULTI),
    group: Group::Server,
    categories: &["@replication"],
    since: "0.1.0",
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "handover",
    arity: -2,
    group: Group::Server,
    categories: &["@replication"],
    since: "0.1.0",
    complexity: "Depends on subcommand.",
    summary: "A container for commands that make the data of a running server that of another one.",
    sub: &[
        Command {
            name: "apply",
            arity: 4,
            complexity: "O(N) where N is the number of changes",
            summary: "Makes changes that another server has made.",
            syntax: "after:integer units:string",
            run: Run::Now(apply),
            ..SUB
        },
        Command {
            name: "end",
            complexity: "O(1)",
            summary: "Makes the data this server's own.",
            audited: Some(Audited::Handover),
            run: Run::Now(end),
            ..SUB
        },
        Command {
            name: "give",
            arity: 3,
            complexity: "O(N) where N is the number of clients",
            summary: "Gives the data to another server: nothing changes it here any more.",
            syntax: "address:string",
            audited: Some(Audited::Handover),
            run: Run::Now(give),
            ..SUB
        },
        Command { name: "help", summary: "Lists the subcommands.", run: Run::Now(help), ..SUB },
        Command {
            name: "load",
            arity: 3,
            complexity: "O(N) where N is the number of changes",
            summary: "Takes a part of another server's snapshot.",
            syntax: "units:string",
            run: Run::Now(load),
            ..SUB
        },
        Command {
            name: "loaded",
            arity: 3,
            complexity: "O(1)",
            summary: "Says that all of another server's snapshot is here.",
            syntax: "last:integer",
            run: Run::Now(loaded),
            ..SUB
        },
        Command {
            name: "receive",
            arity: -4,
            complexity: "O(N) where N is the number of clients",
            summary: "Empties this server, to be filled with another server's data.",
            syntax: "history:string from:string [REPLACE]",
            audited: Some(Audited::Handover),
            run: Run::Now(receive),
            ..SUB
        },
        Command {
            name: "state",
            complexity: "O(1)",
            summary: "Returns whose the data is.",
            run: Run::Now(state),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
