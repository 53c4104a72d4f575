//! STOCK.INFO, STOCK.HOLDS: the amounts of a stock, and its holds.

use super::common::{NO_STOCK, next_end_ms, refuse};
use crate::command::coordination::grant::{Page, Said, answer};
use crate::engine::{Ctx, Done};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stock::Memory;

pub(super) fn info(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let subject = if args.option("per", 1) { Some(args.bytes()?) } else { None };
    if !args.is_empty() {
        return Err(Error::Syntax);
    }
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let Some(slot) = ctx.ks.look_up(db, key) else { return refuse(ctx.reply, NO_STOCK) };
    let found = ctx.ks.stock_at(db, slot)?;
    let (holds, stock, key_end_ms) = (found.grants(), found.stock(), found.key_end_ms());
    let terms = &stock.terms;
    let (refiller, refill_until_ms): (&[u8], _) = if terms.is_being_refilled(now_ms) {
        (&terms.refiller, terms.refill_until_ms.min(key_end_ms))
    } else {
        (b"", 0)
    };
    let mut fields = vec![
        ("available", stock.available().into()),
        ("held", stock.held().into()),
        ("sold", terms.sold.into()),
        ("total", terms.total.into()),
        ("holds", holds.len().into()),
        ("buyers", stock.names_of(Memory::Buyers).into()),
        ("period-ms", terms.period_ms.into()),
        ("low", if terms.refill_ms == 0 { Said::Number(-1) } else { terms.low.into() }),
        ("refiller", Said::Text(refiller)),
        ("refill-ms", Said::left_ms(refill_until_ms, now_ms)),
        ("stream", Said::Text(&terms.stream)),
        ("next-end-ms", next_end_ms(holds, key_end_ms, now_ms)),
    ];
    if let Some(subject) = subject {
        fields.push(("subject-held", stock.held_for(subject).into()));
        fields.push(("subject-bought", stock.bought_by(subject, now_ms).into()));
    }
    answer(ctx.reply, true, &fields);
    Ok(())
}

/// STOCK.HOLDS: lists holds from a cursor on, the first granted first.
pub(super) fn holds(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let page = Page::parse(&mut args)?;
    let db = ctx.db();
    let slot = ctx.ks.look_up(db, page.key);
    let stock = slot.map(|slot| ctx.ks.stock_at(db, slot)).transpose()?;
    page.answer(ctx.reply, ctx.ks.now_ms(), stock, ["order", "subject"]);
    Ok(())
}
