//! Common parts of the STOCK commands.

use crate::base::num;
use crate::command::coordination::error::StockError;
use crate::command::coordination::grant::{Said, answer};
use crate::engine::Done;
use crate::keyspace::limits::PLACE_RETRY_MS;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::grants::Grants;
use crate::value::stock::AMOUNT_MAX;

/// Reads an amount of a stock, at least `least`.
pub(super) fn amount(args: &mut Args<'_>, least: u64) -> Result<u64, Error> {
    let amount = num::parse_i64(args.bytes()?).and_then(|amount| u64::try_from(amount).ok());
    let amount = amount.filter(|amount| (least..=AMOUNT_MAX).contains(amount));
    // `ok_or` would build an error each time and drop it.
    amount.ok_or_else(|| StockError::Amount { least }.into())
}

/// The milliseconds until a hold of a stock ends; -1 if there is none, or if the stock itself ends first.
pub(super) fn next_end_ms(holds: &Grants, key_end_ms: i64, now_ms: i64) -> Said<'static> {
    let first_ms = holds.first_end_ms().filter(|at_ms| *at_ms < key_end_ms);
    // A hold whose lease has ended, but which is still there, is about to be removed.
    Said::Number(first_ms.map_or(-1, |at_ms| if at_ms > now_ms { at_ms - now_ms } else { PLACE_RETRY_MS }))
}

/// Replies with a refusal and its reason.
pub(super) fn refuse(reply: &mut Reply, reason: &str) -> Done {
    answer(reply, false, &[("reason", Said::Text(reason.as_bytes()))]);
    Ok(())
}

/// The reason for a refusal: the key does not exist.
pub(super) const NO_STOCK: &str = "no-stock";

/// The reason for a refusal: the order has been sold.
pub(super) const SOLD: &str = "sold";
