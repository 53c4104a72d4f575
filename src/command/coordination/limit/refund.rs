//! LIMIT.REFUND: returns the units of a request that its limits still count. Units of a rule that was settled were
//! used, and stay.

use super::charge::{Counted, find_units, refund_units};
use super::request::Request;
use crate::command::coordination::error::LimitError;
use crate::command::coordination::outcome;
use crate::command::string::string_at;
use crate::engine::{Ctx, Done};
use crate::keyspace::{DbIndex, Keyspace, Slot};
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
    let text = read(ctx.ks, db, slot)?;
    let taken = Request::read(&text).ok_or(LimitError::NotARequest)?;
    if !taken.rules.iter().map(|charged| charged.rule.key).eq(keys.iter()) {
        return Err(LimitError::OtherKeys.into());
    }
    let mut counted = Vec::with_capacity(taken.rules.len());
    for charged in &taken.rules {
        counted.push(match charged.settled {
            Some(_) => Counted::Nothing,
            None => find_units(ctx.ks, db, request, charged, taken.at_ms, charged.rule.units)?,
        });
    }
    let before = ctx.ks.changes_by_commands();
    ctx.ks.remove(db, slot);
    let mut changed = 1;
    outcome::begin(ctx.reply, 1, 2);
    outcome::number(ctx.reply, "units", taken.units);
    ctx.reply.bulk(b"rules");
    ctx.reply.array(counted.len());
    for (charged, counted) in taken.rules.iter().zip(counted) {
        let key = charged.rule.key;
        let refunded = refund_units(ctx.ks, db, request, key, counted, taken.at_ms)?;
        changed += u64::from(refunded > 0);
        ctx.reply.map(2);
        ctx.reply.bulk(b"key");
        ctx.reply.bulk(key);
        outcome::number(ctx.reply, "refunded", refunded);
    }
    // Each key counts as one change, however many effects it takes.
    ctx.ks.count_changes_as(before, changed);
    Ok(())
}

/// Copies the record of a request.
pub(super) fn read(ks: &Keyspace, db: DbIndex, slot: Slot) -> Result<Vec<u8>, Error> {
    let mut digits = Digits::new();
    Ok(string_at(ks, db, slot)?.as_bytes(&mut digits).to_vec())
}
