//! STOCK.COMMIT, STOCK.CANCEL: how an order ends that is paid, or given up.

use super::common::{SOLD, refuse, stock_under};
use crate::command::coordination::grant::{Said, answer, refuse_not_held};
use crate::engine::{Ctx, Done};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stock::{Memory, Remembered};

/// An error to who ends a hold, as long as nobody could be told of that.
const NO_STREAM: Error = Error::text(
    "ERR the stream of this stock can't take an entry: its key holds something else, or its last ID is the greatest. Free that key, or take \
     the stream from the stock by STOCK.SET ... NOSTREAM",
);

/// STOCK.COMMIT: what the order holds is sold. A retry is answered the same, as long as the sale is remembered.
pub(super) fn commit(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, order) = (args.bytes()?, args.bytes()?);
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let Some(slot) = stock_under(ctx, key)? else {
        refuse_not_held(ctx.reply);
        return Ok(());
    };
    let sale = if ctx.ks.grants(db, slot)?.get(order).is_some() {
        if !ctx.ks.stock_can_tell(db, slot) {
            return Err(NO_STREAM);
        }
        let units = ctx.ks.stock_sell(db, slot, order, now_ms)?;
        units.map(|units| Remembered { units, at_ms: now_ms })
    } else {
        ctx.ks.stock(db, slot)?.remembered(Memory::Sales, order)
    };
    match sale {
        Some(Remembered { units, at_ms }) => {
            answer(ctx.reply, true, &[("units", units.into()), ("sold-at-ms", Said::Number(at_ms))]);
        }
        None => refuse_not_held(ctx.reply),
    }
    Ok(())
}

/// STOCK.CANCEL: what the order holds is available again.
pub(super) fn cancel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, order) = (args.bytes()?, args.bytes()?);
    let db = ctx.db();
    let slot = stock_under(ctx, key)?;
    let hold = slot.and_then(|slot| Some((slot, ctx.ks.grants(db, slot).ok()?.get(order)?.units)));
    let Some((slot, units)) = hold else {
        let stock = slot.and_then(|slot| ctx.ks.stock(db, slot).ok());
        let is_sold = stock.is_some_and(|stock| stock.remembered(Memory::Sales, order).is_some());
        if is_sold {
            refuse(ctx.reply, SOLD)
        } else {
            refuse_not_held(ctx.reply)
        }
        return Ok(());
    };
    if !ctx.ks.stock_can_tell(db, slot) {
        return Err(NO_STREAM);
    }
    ctx.ks.grant_end(db, slot, order)?;
    let available = ctx.ks.stock(db, slot)?.available();
    answer(ctx.reply, true, &[("units", units.into()), ("available", available.into())]);
    Ok(())
}
