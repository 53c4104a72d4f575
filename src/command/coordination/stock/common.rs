//! What the calls of the family have in common.

use crate::base::limits::PLACE_LOOK_AGAIN_MS;
use crate::base::num;
use crate::command::coordination::grant::{Said, answer};
use crate::engine::Done;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::grants::Grants;
use crate::value::stock::AMOUNT_MAX;

/// Reads a number of units of which a stock may have many, from `least` on.
pub(super) fn amount(args: &mut Args<'_>, least: u64) -> Result<u64, Error> {
    let amount = num::parse_i64(args.bytes()?).and_then(|amount| u64::try_from(amount).ok());
    amount
        .filter(|amount| (least..=AMOUNT_MAX).contains(amount))
        .ok_or_else(|| Error::owned(format!("ERR an amount of units is a whole number from {least} to {AMOUNT_MAX}")))
}

/// How long it is until a hold of a stock ends, ms; -1 where there is none, or the stock itself ends first.
pub(super) fn next_end_ms(holds: &Grants, key_end_ms: i64, now_ms: i64) -> Said<'static> {
    let first_ms = holds.first_end_ms().filter(|at_ms| *at_ms < key_end_ms);
    // One that is over and still there is about to be removed.
    Said::Number(first_ms.map_or(-1, |at_ms| if at_ms > now_ms { at_ms - now_ms } else { PLACE_LOOK_AGAIN_MS }))
}

/// Answers no, and why.
pub(super) fn refuse(reply: &mut Reply, reason: &str) -> Done {
    answer(reply, false, &[("reason", Said::Text(reason.as_bytes()))]);
    Ok(())
}

/// Why a call is refused on a key that holds nothing.
pub(super) const NO_STOCK: &str = "no-stock";

/// Why a call is refused whose order has been sold.
pub(super) const SOLD: &str = "sold";
