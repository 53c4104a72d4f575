//! STOCK.SET, STOCK.ADD: the number of units, and the rules of a stock.
//!
//! SET gives the total of available, held and sold units, so it may be repeated regardless of reservations and sales in
//! between. ADD gives the number of further units, and counts once for each id.

use super::common::{NO_STOCK, amount, refuse};
use crate::command::coordination::error::StockError;
use crate::command::coordination::grant::{Said, answer};
use crate::engine::{Ctx, Done};
use crate::keyspace::limits::{HOLDER_MAX_BYTES, LEASE_MAX_MS, STOCK_REPORTED_KEY_MAX_BYTES};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stock::{Memory, Stock, Terms};

/// The rules that a call changes.
#[derive(Default)]
struct Changes<'a> {
    low: Option<(u64, u64)>,
    stream: Option<&'a [u8]>,
    period_ms: Option<u64>,
}

impl<'a> Changes<'a> {
    fn parse(key: &[u8], args: &mut Args<'a>) -> Result<Changes<'a>, Error> {
        let mut changes = Changes::default();
        while !args.is_empty() {
            let is_new = if args.option("low", 2) {
                changes.low.replace((amount(args, 0)?, duration_ms(args, 1)?)).is_none()
            } else if args.flag("nolow") {
                changes.low.replace((0, 0)).is_none()
            } else if args.option("stream", 1) {
                let stream = args.bytes()?;
                if stream.is_empty() || stream == key {
                    return Err(StockError::StreamKey.into());
                }
                if key.len().max(stream.len()) > STOCK_REPORTED_KEY_MAX_BYTES {
                    return Err(StockError::KeyTooLong.into());
                }
                changes.stream.replace(stream).is_none()
            } else if args.flag("nostream") {
                changes.stream.replace(b"").is_none()
            } else if args.option("period", 1) {
                changes.period_ms.replace(duration_ms(args, 0)?).is_none()
            } else {
                false
            };
            // A repeated option is refused: of two streams, access control would have checked only one.
            if !is_new {
                return Err(Error::Syntax);
            }
        }
        Ok(changes)
    }

    fn apply(&self, terms: &mut Terms) {
        if let Some((low, refill_ms)) = self.low {
            (terms.low, terms.refill_ms) = (low, refill_ms);
            if refill_ms == 0 {
                (terms.refiller, terms.refill_until_ms) = (Default::default(), 0);
            }
        }
        if let Some(stream) = self.stream {
            terms.stream = stream.into();
        }
        if let Some(period_ms) = self.period_ms {
            terms.period_ms = period_ms;
        }
    }
}

fn duration_ms(args: &mut Args<'_>, least: i64) -> Result<u64, Error> {
    let ms = args.int()?;
    if (least..=LEASE_MAX_MS).contains(&ms) {
        return Ok(ms as u64);
    }
    Err(StockError::Duration { least }.into())
}

pub(super) fn set(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, total) = (args.bytes()?, amount(&mut args, 0)?);
    let changes = Changes::parse(key, &mut args)?;
    let db = ctx.db();
    let renewed = |terms: &Terms| {
        let mut terms = Terms { total, ..terms.clone() };
        changes.apply(&mut terms);
        terms
    };
    if let Some(mut stock) = ctx.ks.open_stock(db, key)? {
        stock.set_terms(renewed(&stock.stock().terms));
        answer_amounts(ctx.reply, stock.stock());
        return Ok(());
    }
    ctx.as_one_change(|ctx| {
        let stock = ctx.ks.create_stock(db, key, renewed(&Terms::default()));
        answer_amounts(ctx.reply, stock.stock());
        Ok(())
    })
}

/// Replies with the amounts of a stock.
fn answer_amounts(reply: &mut Reply, stock: &Stock) {
    let fields = [
        ("available", stock.available().into()),
        ("held", stock.held().into()),
        ("sold", stock.terms.sold.into()),
        ("total", stock.terms.total.into()),
    ];
    answer(reply, true, &fields);
}

pub(super) fn add(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, id, units) = (args.bytes()?, args.bytes()?, amount(&mut args, 1)?);
    if !(1..=HOLDER_MAX_BYTES).contains(&id.len()) {
        return Err(StockError::RefillLength.into());
    }
    let db = ctx.db();
    let Some(mut stock) = ctx.ks.open_stock(db, key)? else { return refuse(ctx.reply, NO_STOCK) };
    let added = match stock.stock().remembered(Memory::Refills, id) {
        Some(before) if before.units != units => {
            return Err(StockError::OtherRefill { units: before.units }.into());
        }
        Some(_) => 0,
        None if stock.add(id, units) => units,
        None => return Err(StockError::TooMany.into()),
    };
    let stock = stock.stock();
    let fields: [(&str, Said<'_>); 3] =
        [("added", added.into()), ("available", stock.available().into()), ("total", stock.terms.total.into())];
    answer(ctx.reply, true, &fields);
    Ok(())
}
