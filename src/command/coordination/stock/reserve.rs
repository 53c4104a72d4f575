//! STOCK.RESERVE: holds units for an order.
//!
//! This call also chooses the client that refills the stock: the caller whose call leaves at most the low-water mark
//! available, unless another caller was chosen within the time that a refill may take.

use super::common::{NO_STOCK, SOLD, amount, next_end_ms, refuse};
use crate::command::coordination::error::{GrantError, StockError};
use crate::command::coordination::grant::{Options, Said, answer, holder, refuse_over, remember_refusal, units};
use crate::engine::{Ctx, Done};
use crate::keyspace::limits::HOLDER_MAX_BYTES;
use crate::keyspace::verb::handles::{Found, StockMut};
use crate::keyspace::{DbIndex, Keyspace};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::grants::{Grant, Kind};
use crate::value::stock::{Memory, Stock, Terms};

/// The outcome of a call.
enum Outcome {
    /// There is no stock.
    NoStock,
    /// The requested lease has ended already.
    Over,
    /// The order holds its units.
    Held { token: u64, until_ms: i64, available: u64, per_left: Option<u64>, refill_ms: u64 },
    /// The units are not granted.
    Refused(Refused),
}

/// A refusal.
struct Refused {
    reason: &'static str,
    available: u64,
    per_left: Option<u64>,
    /// When to try again, ms from now; -1: never.
    retry_after: Said<'static>,
    refill_ms: u64,
}

/// The most units that one subject may hold and have bought together.
#[derive(Clone, Copy)]
struct Per<'a> {
    subject: &'a [u8],
    max: u64,
}

impl<'a> Per<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Per<'a>, Error> {
        let subject = args.bytes()?;
        if !(1..=HOLDER_MAX_BYTES).contains(&subject.len()) {
            return Err(StockError::SubjectLength.into());
        }
        Ok(Per { subject, max: amount(args, 0)? })
    }

    /// How many more units the subject may get.
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
        let (db, now_ms) = (ctx.db(), ctx.now_ms());
        match self.hold(ctx.ks, db)? {
            Outcome::NoStock => return refuse(ctx.reply, NO_STOCK),
            Outcome::Over => refuse_over(ctx.reply),
            Outcome::Refused(refused) => self.answer_refused(ctx, &refused),
            Outcome::Held { token, until_ms, available, per_left, refill_ms } => {
                let fields = [
                    ("token", token.into()),
                    ("units", self.units.into()),
                    ("available", available.into()),
                    ("per-left", per_left.map_or(Said::Number(-1), Said::from)),
                    ("lease-ms", Said::left_ms(until_ms, now_ms)),
                    ("refill-ms", refill_ms.into()),
                ];
                answer(ctx.reply, true, &fields);
            }
        }
        Ok(())
    }

    /// Holds the units, if there are enough.
    fn hold(&self, ks: &mut Keyspace, db: DbIndex) -> Result<Outcome, Error> {
        let is_over = ks.expires_at_once(self.until_ms);
        match ks.open_stock_or_counter(db, self.key)? {
            Found::Nothing(_) => Ok(Outcome::NoStock),
            Found::Grants(stock) => self.hold_of(stock, is_over),
            Found::Counter(_) if is_over => Ok(Outcome::Over),
            Found::Counter(counter) => {
                let (left, per_left) = (counter.count(), self.per.map(|per| per.max));
                let reason = match per_left {
                    Some(max) if max < self.units => "per",
                    _ if left < self.units => "short",
                    _ => return self.grant(counter.into_stock(self.key).ok_or(GrantError::NoTokens)?),
                };
                let retry_after = Said::Number(-1);
                Ok(Outcome::Refused(Refused { reason, available: left, per_left, retry_after, refill_ms: 0 }))
            }
        }
    }

    fn hold_of(&self, mut stock: StockMut<'_>, is_over: bool) -> Result<Outcome, Error> {
        if let Some(own) = stock.grants().get(self.order) {
            if own.units != self.units || self.per.is_some_and(|per| per.subject != own.note) {
                let subject = own.note.escape_ascii().to_string();
                return Err(StockError::OtherHold { units: own.units, subject }.into());
            }
            let (until_ms, subject) = (own.until_ms.max(self.until_ms), own.note.to_vec());
            let renewed = own.renewed(self.order, until_ms, &subject);
            let held = stock.set(renewed);
            return Ok(self.held(stock, held));
        }
        if is_over {
            return Ok(Outcome::Over);
        }
        let (now_ms, amounts) = (stock.now_ms(), stock.stock());
        let (available, per_left) = (amounts.available(), self.per.map(|per| per.left(amounts, now_ms)));
        let is_sold = amounts.remembered(Memory::Sales, self.order).is_some();
        let (mut retry_after, mut refill_ms) = (Said::Number(-1), 0);
        let reason = if is_sold {
            SOLD
        } else if per_left.is_some_and(|left| left < self.units) {
            "per"
        } else if available < self.units {
            if self.units <= amounts.terms.total.saturating_sub(amounts.terms.sold) {
                retry_after = next_end_ms(stock.grants(), stock.key_end_ms(), now_ms);
            }
            refill_ms = self.refill_ms(&mut stock);
            "short"
        } else {
            return self.grant(stock);
        };
        Ok(Outcome::Refused(Refused { reason, available, per_left, retry_after, refill_ms }))
    }

    /// Holds units that are available.
    fn grant(&self, mut stock: StockMut<'_>) -> Result<Outcome, Error> {
        let subject = self.per.map_or(&b""[..], |per| per.subject);
        let held = stock.grant(self.order, self.units, false, self.until_ms, subject).ok_or(GrantError::NoTokens)?;
        Ok(self.held(stock, held))
    }

    fn held(&self, mut stock: StockMut<'_>, hold: Grant<'_>) -> Outcome {
        let refill_ms = self.refill_ms(&mut stock);
        let amounts = stock.stock();
        let per_left = self.per.map(|per| per.left(amounts, stock.now_ms()));
        let Grant { token, until_ms, .. } = hold;
        Outcome::Held { token, until_ms, available: amounts.available(), per_left, refill_ms }
    }

    /// How long the caller may take to refill the stock, ms; 0 if it need not.
    fn refill_ms(&self, stock: &mut StockMut<'_>) -> u64 {
        let (now_ms, key_end_ms, amounts) = (stock.now_ms(), stock.key_end_ms(), stock.stock());
        let terms = &amounts.terms;
        if terms.is_being_refilled(now_ms) {
            let left_ms = terms.refill_until_ms.min(key_end_ms).saturating_sub(now_ms).max(0) as u64;
            return if *terms.refiller == *self.order { left_ms } else { 0 };
        }
        let refill_ms = terms.refill_ms;
        if refill_ms == 0 || amounts.available() > terms.low {
            return 0;
        }
        let refill_until_ms = now_ms.saturating_add_unsigned(refill_ms).min(key_end_ms);
        let terms = Terms { refiller: self.order.into(), refill_until_ms, ..terms.clone() };
        stock.set_terms(terms);
        refill_until_ms.saturating_sub(now_ms).max(0) as u64
    }

    fn answer_refused(&self, ctx: &mut Ctx<'_>, refused: &Refused) {
        let Refused { reason, available, per_left, retry_after, refill_ms } = *refused;
        // Units of the subject if its bound refuses, else of the stock as a whole.
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
