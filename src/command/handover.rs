//! HANDOVER: the data of a running server becomes that of another one. [`Handover`] has the states.
//! `tidegate import --follow` calls these commands: RECEIVE, LOAD and LOADED at the new server, then RESUME and APPLY;
//! GIVE at the old one, and at last END at the new one.

use super::help::help;
use crate::base::lsn::Lsn;
use crate::base::node_address::NodeAddress;
use crate::command::limits::HANDOVER_NAME_MAX_BYTES;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::effect::{Effect, EffectReader};
use crate::keyspace::{Misfit, ValueLimits};
use crate::persist::handover::{Handover, Origin, Received};
use crate::persist::tail::{count_units, effects_of};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Audited, Flags, Group};
use crate::value::Layout;

const HAS_DATA: Error =
    Error::text("ERR this server has data of its own: add REPLACE to delete all of it, with scripts and libraries");
const NOT_RECEIVING: Error = Error::text("ERR this server does not receive data: begin with HANDOVER RECEIVE");
const INCOMPLETE: Error = Error::text("ERR the data is not complete: begin with HANDOVER RECEIVE");
const COMPLETE: Error = Error::text("ERR the data is complete: go on with HANDOVER RESUME");
const OTHER_SENDS: Error = Error::text("ERR another connection goes on with this handover, or none has begun to");
const IN_PART: Error = Error::text("ERR a value is here in part: go on with HANDOVER LOAD");
const OWN_HISTORY: Error = Error::text("ERR that is this server's own data");
const NOT_GIVEN: Error = Error::text(
    "ERR the other server still changes this data, so both would: give it away there, or add FORCE if that server is \
     gone",
);
const RECEIVES: Error = Error::text("ERR this server's data is not its own: end the handover to it first");
const NO_JOURNAL: Error = Error::text("ERR a handover needs a journal: set appendonly yes");
const NO_ADDRESS: Error = Error::text("ERR the address of a server is written HOST:PORT");
const TOO_LONG: Error = Error::text("ERR an address or the name of a history is too long");
const UNKNOWN_EFFECT: Error =
    Error::text("ERR a change has an effect that this version does not know: use the version of its server");
const LOADING: Error = Error::text("LOADING Redis is loading the dataset in memory");

/// Refuses what can't be kept.
fn admit(ctx: &mut Ctx<'_>) -> Done {
    if ctx.server.persistence.loading.is_some() {
        return Err(LOADING);
    }
    ctx.server.persistence.admit_handover()?;
    if ctx.server.persistence.journal.is_none() {
        return Err(NO_JOURNAL);
    }
    // Received changes name each key that they remove, and the other calls look at no key.
    ctx.ks.keep_expired_no_longer();
    Ok(())
}

/// Returns what is received, by the client that goes on with it.
fn received(ctx: &Ctx<'_>) -> Result<Received, Error> {
    let received = ctx.server.persistence.handover.received().ok_or(NOT_RECEIVING)?;
    if received.sent_by != Some(ctx.session.key) { Err(OTHER_SENDS) } else { Ok(received.clone()) }
}

fn set(ctx: &mut Ctx<'_>, state: Handover) {
    ctx.server.set_handover(ctx.ks, ctx.session, state);
}

fn reply_lsn(ctx: &mut Ctx<'_>, lsn: Lsn) {
    ctx.reply.integer(i64::try_from(lsn.get()).unwrap_or(i64::MAX));
}

/// HANDOVER STATE: whose the data is, and what this server can take.
fn state(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    if ctx.server.persistence.loading.is_some() {
        return Err(LOADING);
    }
    let number = |number: u64| number.to_string();
    let origin = |origin: &Origin| vec![("history", origin.history.to_string()), ("last", number(origin.last.get()))];
    let flag = |is_set: bool| if is_set { "yes" } else { "no" }.to_owned();
    let (state, fields) = match &ctx.server.persistence.handover {
        Handover::Own(from) => ("own", from.as_deref().map_or_else(Vec::new, origin)),
        Handover::Given(to) => ("given", vec![("to", to.to_string())]),
        Handover::Receiving(received) => {
            let mut fields = origin(&received.origin);
            fields.push(("from", received.from.to_string()));
            fields.push(("complete", flag(received.is_complete)));
            fields.push(("given", flag(received.is_given)));
            ("receiving", fields)
        }
    };
    let limits = [
        ("databases", number(ctx.ks.databases().into())),
        ("bulk", number(ctx.server.config.proto_max_bulk_len as u64)),
    ];
    let all: Vec<(&str, String)> = [("state", state.to_owned())].into_iter().chain(fields).chain(limits).collect();
    ctx.reply.map(all.len());
    for (name, value) in all {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// `HANDOVER RECEIVE history from [REPLACE]` empties this server, to be filled with another server's data.
fn receive(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (history, from) = (name(&mut args)?, name(&mut args)?);
    let replaces = args.flag("REPLACE");
    args.end()?;
    admit(ctx)?;
    if *history == *ctx.server.persistence.history() {
        return Err(OWN_HISTORY);
    }
    // What another server has sent is nobody's only copy.
    let is_own = ctx.server.persistence.handover.received().is_none();
    if is_own && !replaces && has_data(ctx) {
        return Err(HAS_DATA);
    }
    empty(ctx);
    // The other server says under which limits its changes were made. Without a word, it is these.
    ctx.ks.set_limits(ValueLimits::default());
    ctx.server.programs.scripts.set_memory_limit(0);
    let origin = Origin { history, last: Lsn::NONE };
    let sent_by = Some(ctx.session.key);
    let received = Received { from, origin, is_complete: false, is_given: false, sent_by };
    set(ctx, Handover::Receiving(Box::new(received)));
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
    let received = received(ctx)?;
    if received.is_complete {
        return Err(COMPLETE);
    }
    check_units(ctx, units)?;
    match apply_units(ctx, units) {
        Ok(is_given) => {
            if is_given.is_some_and(|is_given| is_given != received.is_given) {
                let is_given = is_given == Some(true);
                set(ctx, Handover::Receiving(Box::new(Received { is_given, ..received })));
            }
            ctx.reply.ok();
        }
        Err(misfit) => give_up(ctx, received, misfit),
    }
    Ok(())
}

/// HANDOVER LOADED lsn: all of the snapshot is here, which has the changes up to this Lsn.
fn loaded(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let last = lsn(&mut args)?;
    admit(ctx)?;
    let received = received(ctx)?;
    if received.is_complete {
        return Err(COMPLETE);
    }
    if ctx.ks.builds_value() {
        return Err(IN_PART);
    }
    let origin = Origin { last, ..received.origin };
    set(ctx, Handover::Receiving(Box::new(Received { origin, is_complete: true, ..received })));
    ctx.reply.ok();
    Ok(())
}

/// HANDOVER RESUME: this connection goes on with the handover, and no other does. The reply is the last change here.
fn resume(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    admit(ctx)?;
    let key = ctx.session.key;
    let Handover::Receiving(received) = &mut ctx.server.persistence.handover else { return Err(NOT_RECEIVING) };
    if !received.is_complete {
        return Err(INCOMPLETE);
    }
    received.sent_by = Some(key);
    let last = received.origin.last;
    reply_lsn(ctx, last);
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
    if received.origin.last != after {
        let last = received.origin.last;
        return Err(Error::owned(format!("ERR the last change here is {last}, not {after}")));
    }
    let last = after.plus(check_units(ctx, units)?);
    match apply_units(ctx, units) {
        Ok(is_given) => {
            let (origin, is_given) = (Origin { last, ..received.origin }, is_given.unwrap_or(received.is_given));
            set(ctx, Handover::Receiving(Box::new(Received { origin, is_given, ..received })));
            reply_lsn(ctx, last);
        }
        Err(misfit) => give_up(ctx, received, misfit),
    }
    Ok(())
}

/// Makes the data incomplete, since a change is here in part.
fn give_up(ctx: &mut Ctx<'_>, received: Received, misfit: Misfit) {
    set(ctx, Handover::Receiving(Box::new(Received { is_complete: false, sent_by: None, ..received })));
    let error = format!("ERR a change does not fit the data: {misfit}. Begin again with HANDOVER RECEIVE");
    ctx.fail_half_way(&Error::owned(error));
}

/// HANDOVER GIVE address: nothing changes the data here from now on. The reply is the Lsn of this change.
fn give(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let to = address(args.bytes()?).ok_or(NO_ADDRESS)?;
    admit(ctx)?;
    if ctx.server.persistence.handover.received().is_some() {
        return Err(RECEIVES);
    }
    let last = ctx.server.persistence.lsn_of_tail().next();
    set(ctx, Handover::Given(to));
    reply_lsn(ctx, last);
    Ok(())
}

/// `HANDOVER END [FORCE]`: the data is this server's own from now on. Incomplete data is removed.
fn end(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let is_forced = args.flag("FORCE");
    args.end()?;
    admit(ctx)?;
    let from = match ctx.server.persistence.handover.received().cloned() {
        Some(received) if !received.is_complete => {
            empty(ctx);
            None
        }
        Some(received) if !received.is_given && !is_forced => return Err(NOT_GIVEN),
        received => received.map(|received| Box::new(received.origin)),
    };
    if !ctx.server.persistence.handover.is_own() {
        set(ctx, Handover::Own(from));
        ctx.server.begin_own_limits(ctx.ks);
    }
    ctx.reply.ok();
    Ok(())
}

/// Returns the number of units, if this version knows all that is in them and this unit can hold it.
fn check_units(ctx: &Ctx<'_>, units: &[u8]) -> Result<u64, Error> {
    ctx.admit_effects(units.len())?;
    let count = count_units(units).map_err(|bad| Error::owned(format!("ERR {bad}")))?;
    let is_known = |effects| {
        let mut reader = EffectReader::new(effects);
        reader.by_ref().for_each(drop);
        reader.is_empty()
    };
    if effects_of(units).all(is_known) { Ok(count) } else { Err(UNKNOWN_EFFECT) }
}

/// Applies units. Returns whether their server has given its data away in them, if they say so.
fn apply_units(ctx: &mut Ctx<'_>, units: &[u8]) -> Result<Option<bool>, Misfit> {
    let mut is_given = None;
    for effects in effects_of(units) {
        for (db, effect) in EffectReader::new(effects) {
            match Handover::gives(&effect) {
                // Whose the data is there is not whose it is here.
                Some(gives) => is_given = Some(gives),
                None => ctx.server.apply(ctx.ks, db, &effect)?,
            }
        }
    }
    Ok(is_given)
}

fn lsn(args: &mut Args<'_>) -> Result<Lsn, Error> {
    u64::try_from(args.int()?).map(Lsn::new).map_err(|_| Error::NotInteger)
}

fn name(args: &mut Args<'_>) -> Result<Box<str>, Error> {
    let bytes = args.bytes()?;
    if bytes.len() > HANDOVER_NAME_MAX_BYTES {
        return Err(TOO_LONG);
    }
    Ok(String::from_utf8_lossy(bytes).into_owned().into_boxed_str())
}

fn address(text: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(text).ok()?;
    NodeAddress::is_host_and_port(text).then(|| text.into())
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
            flags: SUB.flags.union(Flags::DENYOOM),
            arity: 4,
            complexity: "O(N) where N is the number of changes",
            summary: "Makes changes that another server has made.",
            syntax: "after:integer units:string",
            run: Run::Now(apply),
            ..SUB
        },
        Command {
            name: "end",
            arity: -2,
            complexity: "O(1)",
            summary: "Makes the data this server's own.",
            syntax: "[FORCE]",
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
            flags: SUB.flags.union(Flags::DENYOOM),
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
            name: "resume",
            complexity: "O(1)",
            summary: "Goes on with a handover on this connection, and on no other.",
            run: Run::Now(resume),
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
