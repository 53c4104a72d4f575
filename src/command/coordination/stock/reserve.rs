//! STOCK.RESERVE: holds units for an order.
//!
//! Who is told to refill is decided here, too: it is the caller after whose call no more than the low-water mark is available, if nobody
//! else was told within the time that a refill may take.

use super::common::{NO_STOCK, SOLD, amount, next_end_ms, refuse};
use crate::base::limits::HOLDER_MAX_BYTES;
use crate::command::coordination::grant::{
    NO_TOKENS, Options, Said, answer, holder, key_end_ms, lease_left, refuse_over, remember_refusal, set, units,
};
use crate::engine::{Ctx, Done};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, NEVER, Slot};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::grants::{Grant, Kind};
use crate::value::stock::{AMOUNT_MAX, Memory, Stock, Terms};

/// What stands under the key of a stock.
#[derive(Clone, Copy)]
enum Found {
    Nothing,
    Stock(Slot),
    /// A counter of what is left, as scripts keep one.
    Counter(Slot, u64),
}

impl Found {
    fn under(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Found, Error> {
        let Some(slot) = ks.find(db, key) else { return Ok(Found::Nothing) };
        match ks.value(db, slot) {
            ValueRef::Grants(grants) if grants.stock().is_some() => Ok(Found::Stock(slot)),
            ValueRef::String(text) => {
                let left = text.as_i64().ok_or(Error::WrongType)?;
                // What was sold of more than there was is below zero.
                Ok(Found::Counter(slot, u64::try_from(left).unwrap_or(0).min(AMOUNT_MAX)))
            }
            _ => Err(Error::WrongType),
        }
    }
}

/// A bound of what one subject may hold and have bought.
#[derive(Clone, Copy)]
struct Per<'a> {
    subject: &'a [u8],
    max: u64,
}

impl<'a> Per<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Per<'a>, Error> {
        let subject = args.bytes()?;
        if !(1..=HOLDER_MAX_BYTES).contains(&subject.len()) {
            return Err(Error::owned(format!("ERR the name of a subject has 1 to {HOLDER_MAX_BYTES} bytes")));
        }
        Ok(Per { subject, max: amount(args, 0)? })
    }

    /// How many units more the subject may have.
    fn left(self, stock: &Stock, now_ms: i64) -> u64 {
        let has = stock.held_for(self.subject).saturating_add(stock.bought_by(self.subject, now_ms));
        self.max.saturating_sub(has)
    }
}

/// A call of STOCK.RESERVE.
struct Reserve<'a> {
    key: &'a [u8],
    order: &'a [u8],
    units: u64,
    until_ms: i64,
    per: Option<Per<'a>>,
}

pub(super) fn reserve(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    Reserve::parse(ctx, &mut args)?.run(ctx)
}

impl<'a> Reserve<'a> {
    fn parse(ctx: &Ctx<'_>, args: &mut Args<'a>) -> Result<Reserve<'a>, Error> {
        let (key, order) = (args.bytes()?, holder(args)?);
        let (mut wanted, mut per, mut options) = (1, None, Options::default());
        while !args.is_empty() {
            if args.option("units", 1) {
                wanted = units(args, 1)?;
            } else if args.option("per", 2) {
                per = Some(Per::parse(args)?);
            } else if !options.take(ctx, args, false)? {
                return Err(Error::Syntax);
            }
        }
        Ok(Reserve { key, order, units: wanted, until_ms: options.until_ms(ctx)?, per })
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Done {
        let db = ctx.db();
        match Found::under(ctx.ks, db, self.key)? {
            Found::Nothing => {
                refuse(ctx.reply, NO_STOCK);
                Ok(())
            }
            Found::Stock(slot) => self.run_on(ctx, slot),
            Found::Counter(..) if ctx.ks.expires_at_once(self.until_ms) => {
                refuse_over(ctx.reply);
                Ok(())
            }
            Found::Counter(slot, left) if self.units <= left && self.per.is_none_or(|per| self.units <= per.max) => {
                let slot = self.take_over(ctx, slot, left)?;
                self.hold(ctx, slot)
            }
            Found::Counter(_, left) => {
                let per_left = self.per.map(|per| per.max);
                let reason = if per_left.is_some_and(|max| max < self.units) { "per" } else { "short" };
                self.answer_refused(ctx, reason, left, per_left, Said::Number(-1), 0);
                Ok(())
            }
        }
    }

    fn run_on(&self, ctx: &mut Ctx<'_>, slot: Slot) -> Done {
        let (db, now_ms) = (ctx.db(), ctx.now_ms());
        if let Some(own) = ctx.ks.grants(db, slot)?.get(self.order) {
            if own.units != self.units || self.per.is_some_and(|per| per.subject != own.note) {
                return Err(Error::owned(format!(
                    "ERR this order holds {} units for '{}': cancel it first, or hold more under another name",
                    own.units,
                    own.note.escape_ascii()
                )));
            }
            let (until_ms, subject) = (own.until_ms.max(self.until_ms), own.note.to_vec());
            let renewed = own.renewed(self.order, until_ms, &subject);
            let held = set(ctx, slot, renewed)?;
            return self.answer_held(ctx, slot, held);
        }
        if ctx.ks.expires_at_once(self.until_ms) {
            refuse_over(ctx.reply);
            return Ok(());
        }
        let stock = ctx.ks.stock(db, slot)?;
        let (available, per_left) = (stock.available(), self.per.map(|per| per.left(stock, now_ms)));
        let never = Said::Number(-1);
        if stock.remembered(Memory::Sales, self.order).is_some() {
            self.answer_refused(ctx, SOLD, available, per_left, never, 0);
        } else if per_left.is_some_and(|left| left < self.units) {
            self.answer_refused(ctx, "per", available, per_left, never, 0);
        } else if available < self.units {
            let may_ever_fit = self.units <= stock.terms.total.saturating_sub(stock.terms.sold);
            let retry_after = if may_ever_fit { next_end_ms(ctx, slot)? } else { never };
            let refill_ms = self.refill_ms(ctx, slot)?;
            self.answer_refused(ctx, "short", available, per_left, retry_after, refill_ms);
        } else {
            self.hold(ctx, slot)?;
        }
        Ok(())
    }

    /// Puts a stock in the place of a counter, for as long as that would have lasted.
    fn take_over(&self, ctx: &mut Ctx<'_>, slot: Slot, left: u64) -> Result<Slot, Error> {
        let db = ctx.db();
        // Before anything changes.
        ctx.ks.next_token().ok_or(NO_TOKENS)?;
        let at_ms = ctx.ks.entry(db, slot).expires_at_ms().filter(|at_ms| *at_ms < NEVER);
        ctx.ks.remove(db, slot);
        let slot = ctx.ks.stock_create(db, self.key, Terms { total: left, ..Terms::default() })?;
        Ok(at_ms.map_or(slot, |at_ms| ctx.ks.expire_at(db, slot, at_ms)))
    }

    /// Holds units that are available.
    fn hold(&self, ctx: &mut Ctx<'_>, slot: Slot) -> Done {
        let (token, since_ms) = (ctx.ks.next_token().ok_or(NO_TOKENS)?, ctx.now_ms());
        let (holder, units, until_ms) = (self.order, self.units, self.until_ms);
        let note = self.per.map_or(&b""[..], |per| per.subject);
        let hold = Grant { holder, token, units, since_ms, until_ms, entered: 1, shared: false, note };
        let held = set(ctx, slot, hold)?;
        self.answer_held(ctx, slot, held)
    }

    /// How long the caller may take to refill the stock, ms; 0 if it is not the one who is to.
    fn refill_ms(&self, ctx: &mut Ctx<'_>, slot: Slot) -> Result<u64, Error> {
        let (db, now_ms) = (ctx.db(), ctx.now_ms());
        let key_end_ms = key_end_ms(ctx.ks, db, slot);
        let stock = ctx.ks.stock(db, slot)?;
        let terms = &stock.terms;
        if terms.is_being_refilled(now_ms) {
            let left_ms = terms.refill_until_ms.min(key_end_ms).saturating_sub(now_ms).max(0) as u64;
            return Ok(if *terms.refiller == *self.order { left_ms } else { 0 });
        }
        let refill_ms = terms.refill_ms;
        if refill_ms == 0 || stock.available() > terms.low {
            return Ok(0);
        }
        let refill_until_ms = now_ms.saturating_add_unsigned(refill_ms).min(key_end_ms);
        let terms = Terms { refiller: self.order.into(), refill_until_ms, ..terms.clone() };
        ctx.ks.stock_set(db, slot, terms)?;
        Ok(refill_until_ms.saturating_sub(now_ms).max(0) as u64)
    }

    fn answer_held(&self, ctx: &mut Ctx<'_>, slot: Slot, hold: Grant<'_>) -> Done {
        let (refill_ms, lease) = (self.refill_ms(ctx, slot)?, lease_left(ctx, hold.until_ms));
        let stock = ctx.ks.stock(ctx.db(), slot)?;
        let per_left = self.per.map(|per| per.left(stock, ctx.now_ms()));
        let fields = [
            ("token", hold.token.into()),
            ("units", hold.units.into()),
            ("available", stock.available().into()),
            ("per-left", per_left.map_or(Said::Number(-1), Said::from)),
            ("lease-ms", lease),
            ("refill-ms", refill_ms.into()),
        ];
        answer(ctx.reply, true, &fields);
        Ok(())
    }

    fn answer_refused(
        &self,
        ctx: &mut Ctx<'_>,
        reason: &'static str,
        available: u64,
        per_left: Option<u64>,
        retry_after: Said<'_>,
        refill_ms: u64,
    ) {
        // Of what the subject may have, or of the stock as a whole.
        let (has, of) = match (self.per, per_left) {
            (Some(per), Some(left)) if left < self.units => (per.max - left.min(per.max), per.max),
            _ => (0, available),
        };
        remember_refusal(ctx, Kind::Stock, self.key, self.order, reason, has, of);
        let fields = [
            ("reason", Said::Text(reason.as_bytes())),
            ("available", available.into()),
            ("per-left", per_left.map_or(Said::Number(-1), Said::from)),
            ("retry-after-ms", retry_after),
            ("refill-ms", refill_ms.into()),
        ];
        answer(ctx.reply, false, &fields);
    }
}
