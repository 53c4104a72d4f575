//! STOCK.COMMIT, STOCK.CANCEL: the end of an order that was paid or given up.

use super::common::{SOLD, refuse};
use crate::command::coordination::error::StockError;
use crate::command::coordination::grant::{Said, answer, refuse_not_held};
use crate::engine::{Ctx, Done};
use crate::spec::args::Args;
use crate::value::stock::{Memory, Remembered};

/// STOCK.COMMIT: sells the units of an order. A retry gets the same reply as long as the sale is remembered.
pub(super) fn commit(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, order) = (args.bytes()?, args.bytes()?);
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let Some(mut stock) = ctx.ks.open_stock(db, key)? else { return refuse_not_held(ctx.reply) };
    let sale = if stock.grants().get(order).is_some() {
        if !stock.can_report() {
            return Err(StockError::StreamUnusable.into());
        }
        stock.sell(order).map(|units| Remembered { units, at_ms: now_ms })
    } else {
        stock.stock().remembered(Memory::Sales, order)
    };
    let Some(Remembered { units, at_ms }) = sale else { return refuse_not_held(ctx.reply) };
    answer(ctx.reply, true, &[("units", units.into()), ("sold-at-ms", Said::Number(at_ms))]);
    Ok(())
}

/// STOCK.CANCEL: makes the units of an order available again.
pub(super) fn cancel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, order) = (args.bytes()?, args.bytes()?);
    let db = ctx.db();
    let Some(mut stock) = ctx.ks.open_stock(db, key)? else { return refuse_not_held(ctx.reply) };
    let Some(units) = stock.grants().get(order).map(|hold| hold.units) else {
        let is_sold = stock.stock().remembered(Memory::Sales, order).is_some();
        return if is_sold { refuse(ctx.reply, SOLD) } else { refuse_not_held(ctx.reply) };
    };
    if !stock.can_report() {
        return Err(StockError::StreamUnusable.into());
    }
    stock.cancel(order);
    let available = stock.stock().available();
    answer(ctx.reply, true, &[("units", units.into()), ("available", available.into())]);
    Ok(())
}
