//! What the calls of the family have in common.

use crate::base::limits::PLACE_LOOK_AGAIN_MS;
use crate::base::num;
use crate::command::coordination::grant::{Said, answer};
use crate::engine::Ctx;
use crate::keyspace::{NEVER, Slot};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stock::AMOUNT_MAX;

/// The stock under a key.
pub(super) fn stock_under(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Option<Slot>, Error> {
    let db = ctx.db();
    let slot = ctx.ks.find(db, key);
    slot.map(|slot| ctx.ks.stock(db, slot).map(|_| slot)).transpose().map_err(Error::from)
}

/// Reads a number of units of which a stock may have many, from `least` on.
pub(super) fn amount(args: &mut Args<'_>, least: u64) -> Result<u64, Error> {
    let amount = num::parse_i64(args.bytes()?).and_then(|amount| u64::try_from(amount).ok());
    amount
        .filter(|amount| (least..=AMOUNT_MAX).contains(amount))
        .ok_or_else(|| Error::owned(format!("ERR an amount of units is a whole number from {least} to {AMOUNT_MAX}")))
}

/// How long it is until a hold of the stock at `slot` ends, ms; -1 where there is none, or the stock itself ends first.
pub(super) fn next_end_ms(ctx: &Ctx<'_>, slot: Slot) -> Result<Said<'static>, Error> {
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let ends_ms = ctx.ks.entry(db, slot).expires_at_ms().unwrap_or(NEVER);
    let first_ms = ctx.ks.grants(db, slot)?.first_end_ms().filter(|at_ms| *at_ms < ends_ms);
    // One that is over and still there is about to be removed.
    Ok(Said::Number(first_ms.map_or(-1, |at_ms| if at_ms > now_ms { at_ms - now_ms } else { PLACE_LOOK_AGAIN_MS })))
}

/// Answers no, and why.
pub(super) fn refuse(reply: &mut Reply, reason: &str) {
    answer(reply, false, &[("reason", Said::Text(reason.as_bytes()))]);
}

/// Why a call is refused on a key that holds nothing.
pub(super) const NO_STOCK: &str = "no-stock";

/// Why a call is refused whose order has been sold.
pub(super) const SOLD: &str = "sold";
