//! What the calls of the family have in common.

use crate::base::num;
use crate::command::coordination::grant::{Said, answer};
use crate::engine::Ctx;
use crate::engine::args::Args;
use crate::engine::error::Error;
use crate::keyspace::Slot;
use crate::resp::reply::Reply;
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

/// Answers no, and why.
pub(super) fn refuse(reply: &mut Reply, reason: &str) {
    answer(reply, false, &[("reason", Said::Text(reason.as_bytes()))]);
}

/// Why a call is refused on a key that holds nothing.
pub(super) const NO_STOCK: &str = "no-stock";

/// Why a call is refused whose order has been sold.
pub(super) const SOLD: &str = "sold";
