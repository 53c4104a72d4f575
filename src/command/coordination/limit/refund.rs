//! LIMIT.REFUND: returns the units of a request that its limits still count.

use super::charge::{find_units, refund_units};
use super::request::{Mark, Request};
use crate::command::coordination::error::LimitError;
use crate::command::coordination::outcome;
use crate::command::string::string_at;
use crate::engine::{Ctx, Done};
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::string::Digits;

pub(super) fn refund(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let request = args.bytes()?;
    let keys = args.rest();
    let db = ctx.session.db;
    let Some(slot) = ctx.ks.find(db, request) else {
        outcome::begin(ctx.reply, 0, 2);
        outcome::number(ctx.reply, "units", 0);
        ctx.reply.bulk(b"rules");
        ctx.reply.array(0);
        return Ok(());
    };
    let taken = read(ctx.ks, db, slot, keys)?;
    let mut counted = Vec::with_capacity(taken.marks.len());
    for (at, mark) in taken.marks.iter().enumerate() {
        counted.push(find_units(ctx.ks, db, request, &keys[at], *mark, taken.at_ms, taken.units)?);
    }
    let before = ctx.ks.changes_by_commands();
    ctx.ks.remove(db, slot);
    let mut changed = 1;
    outcome::begin(ctx.reply, 1, 2);
    outcome::number(ctx.reply, "units", taken.units);
    ctx.reply.bulk(b"rules");
    ctx.reply.array(counted.len());
    for (at, counted) in counted.into_iter().enumerate() {
        let refunded = refund_units(ctx.ks, db, request, &keys[at], counted, taken.at_ms, taken.units)?;
        changed += u64::from(refunded > 0);
        ctx.reply.map(2);
        ctx.reply.bulk(b"key");
        ctx.reply.bulk(&keys[at]);
        outcome::number(ctx.reply, "refunded", refunded);
    }
    // Each key counts as one change, however many effects it takes.
    ctx.ks.count_changes_as(before, changed);
    Ok(())
}

/// The units that a request took, with a mark for each key of the call.
struct Taken {
    at_ms: i64,
    units: i64,
    marks: Vec<Mark>,
}

fn read(ks: &Keyspace, db: DbIndex, slot: Slot, keys: Argv<'_>) -> Result<Taken, Error> {
    let mut digits = Digits::new();
    let text = string_at(ks, db, slot)?.as_bytes(&mut digits);
    let Request { at_ms, units, rules } = Request::read(text).ok_or(LimitError::NotARequest)?;
    if keys.len() != rules.len() || rules.iter().enumerate().any(|(at, (key, _))| keys[at] != **key) {
        return Err(LimitError::OtherKeys.into());
    }
    Ok(Taken { at_ms, units, marks: rules.into_iter().map(|(_, mark)| mark).collect() })
}
