//! INCREX: a counter with bounds and an expiry in one step, which makes a window limiter without a script.
//!
//! An increment that would cross a bound is not applied, and the reply shows an increment of 0; with SATURATE the
//! counter stops at the bound. Without bounds, those of the type apply. Integers have 64 bits; fractions are C's `long
//! double`, as in INCRBYFLOAT.

use std::borrow::Cow;

use super::string::Term;
use super::string_value::string_at;
use crate::base::long_double::LongDouble;
use crate::base::num;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::{NEVER, Slot};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::string::Digits;

const CROSSED: Error = Error::text("ERR LBOUND can't be greater than UBOUND");

/// The increment.
#[derive(Clone, Copy)]
enum By<'a> {
    One,
    Integer(&'a [u8]),
    Decimal(&'a [u8]),
}

/// The arguments after the key.
struct Options<'a> {
    by: Option<By<'a>>,
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
    saturates: bool,
    term: Term<'a>,
    only_if_endless: bool,
}

impl<'a> Options<'a> {
    /// The options may come in any order, each once.
    fn parse(args: &mut Args<'a>) -> Result<Options<'a>, Error> {
        let mut options =
            Options { by: None, low: None, high: None, saturates: false, term: Term::Unsaid, only_if_endless: false };
        while !args.is_empty() {
            if options.by.is_none() && args.option("byint", 1) {
                options.by = Some(By::Integer(args.bytes()?));
            } else if options.by.is_none() && args.option("byfloat", 1) {
                options.by = Some(By::Decimal(args.bytes()?));
            } else if options.low.is_none() && args.option("lbound", 1) {
                options.low = Some(args.bytes()?);
            } else if options.high.is_none() && args.option("ubound", 1) {
                options.high = Some(args.bytes()?);
            } else if !options.saturates && args.flag("saturate") {
                options.saturates = true;
            } else if !options.only_if_endless && args.flag("enx") {
                options.only_if_endless = true;
            } else if options.term != Term::Unsaid || !options.term.take(args, "persist", Term::Lift)? {
                return Err(Error::Syntax);
            }
        }
        match options.term {
            Term::Lift if options.only_if_endless => Err(Error::Syntax),
            Term::Unsaid if options.only_if_endless => Err(Error::text("ERR ENX flag requires an expiration")),
            _ => Ok(options),
        }
    }
}

/// The result of an increment.
struct Outcome<T> {
    value: T,
    applied: T,
    stores: bool,
}

fn increx(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let options = Options::parse(&mut args)?;
    match options.by.unwrap_or(By::One) {
        By::One => count(ctx, key, &options, 1),
        By::Integer(text) => count(ctx, key, &options, integer(text, "Increment")?),
        By::Decimal(text) => count_decimal(ctx, key, &options, text),
    }
}

fn count(ctx: &mut Ctx<'_>, key: &[u8], options: &Options<'_>, by: i64) -> Done {
    let low = options.low.map_or(Ok(i64::MIN), |text| integer(text, "LBOUND"))?;
    let high = options.high.map_or(Ok(i64::MAX), |text| integer(text, "UBOUND"))?;
    if low > high {
        return Err(CROSSED);
    }
    let at_ms = options.term.deadline(ctx)?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let current = slot.map_or(Ok(0), |slot| string_at(ctx.ks, db, slot)?.as_i64().ok_or(Error::NotInteger))?;
    let outcome = within(current, by, low, high, options.saturates)?;
    if outcome.stores && !ends_at_once(ctx, slot, options, at_ms) {
        let slot = ctx.ks.put_integer(db, key, slot, outcome.value);
        set_term(ctx, slot, options, at_ms);
    }
    ctx.reply.array(2);
    ctx.reply.integer(outcome.value);
    ctx.reply.integer(outcome.applied);
    Ok(())
}

fn within(current: i64, by: i64, low: i64, high: i64, saturates: bool) -> Result<Outcome<i64>, Error> {
    let sum = i128::from(current) + i128::from(by);
    if (i128::from(low)..=i128::from(high)).contains(&sum) {
        return Ok(Outcome { value: sum as i64, applied: by, stores: true });
    }
    if !saturates {
        return Ok(Outcome { value: current, applied: 0, stores: false });
    }
    let value = if sum > i128::from(high) { high } else { low };
    let applied = value.checked_sub(current).ok_or(Error::text("ERR applied increment would overflow"))?;
    Ok(Outcome { value, applied, stores: true })
}

fn count_decimal(ctx: &mut Ctx<'_>, key: &[u8], options: &Options<'_>, by: &[u8]) -> Done {
    let by = decimal(by, "Increment")?;
    if !by.is_finite() {
        return Err(Error::text("ERR BYFLOAT increment cannot be Infinity"));
    }
    let low = options.low.map_or(Ok(LongDouble::MAX.negated()), |text| decimal(text, "LBOUND"))?;
    let high = options.high.map_or(Ok(LongDouble::MAX), |text| decimal(text, "UBOUND"))?;
    if low > high {
        return Err(CROSSED);
    }
    let at_ms = options.term.deadline(ctx)?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let current = match slot {
        None => LongDouble::ZERO,
        Some(slot) => {
            let mut digits = Digits::new();
            LongDouble::parse(string_at(ctx.ks, db, slot)?.as_bytes(&mut digits)).ok_or(Error::NotFloat)?
        }
    };
    if !current.is_finite() {
        return Err(Error::text("ERR value cannot be Infinity"));
    }
    let outcome = decimal_within(current, by, low, high, options.saturates)?;
    let mut value = Vec::with_capacity(40);
    outcome.value.write_human(&mut value);
    if outcome.stores && !ends_at_once(ctx, slot, options, at_ms) {
        let slot = ctx.ks.put_text(db, key, slot, &value);
        set_term(ctx, slot, options, at_ms);
    }
    let mut applied = Vec::with_capacity(40);
    outcome.applied.write_human(&mut applied);
    ctx.reply.array(2);
    ctx.reply.decimal(&value);
    ctx.reply.decimal(&applied);
    Ok(())
}

fn decimal_within(
    current: LongDouble,
    by: LongDouble,
    low: LongDouble,
    high: LongDouble,
    saturates: bool,
) -> Result<Outcome<LongDouble>, Error> {
    // A sum that overflows the type lies beyond every bound.
    let sum = current.checked_add(by);
    if let Some(value) = sum.filter(|sum| low <= *sum && *sum <= high) {
        return Ok(Outcome { value, applied: by, stores: true });
    }
    if !saturates {
        return Ok(Outcome { value: current, applied: LongDouble::ZERO, stores: false });
    }
    let too_high = sum.map_or(by > LongDouble::ZERO, |sum| sum > high);
    let value = if too_high { high } else { low };
    let applied = value.checked_add(current.negated());
    let applied = applied.ok_or(Error::text("ERR applied increment would be Infinity"))?;
    Ok(Outcome { value, applied, stores: true })
}

/// Removes the counter if its new deadline has already passed. Returns whether it did.
fn ends_at_once(ctx: &mut Ctx<'_>, slot: Option<Slot>, options: &Options<'_>, at_ms: Option<i64>) -> bool {
    let ends = at_ms.is_some_and(|at_ms| ctx.ks.expires_at_once(at_ms)) && !keeps_term(ctx, slot, options);
    if let Some(slot) = slot.filter(|_| ends) {
        ctx.ks.remove(ctx.session.db, slot);
    }
    ends
}

/// Whether ENX leaves the deadline as it is.
fn keeps_term(ctx: &Ctx<'_>, slot: Option<Slot>, options: &Options<'_>) -> bool {
    let is_endless = |slot| ctx.ks.entry(ctx.session.db, slot).expires_at_ms().is_none();
    options.only_if_endless && !slot.is_none_or(is_endless)
}

fn set_term(ctx: &mut Ctx<'_>, slot: Slot, options: &Options<'_>, at_ms: Option<i64>) {
    let db = ctx.session.db;
    let ends = ctx.ks.entry(db, slot).expires_at_ms().is_some();
    match at_ms {
        Some(at_ms) if !keeps_term(ctx, Some(slot), options) => _ = ctx.ks.expire_at(db, slot, at_ms),
        None if options.term == Term::Lift && ends => _ = ctx.ks.expire_at(db, slot, NEVER),
        _ => {}
    }
}

fn integer(text: &[u8], what: &'static str) -> Result<i64, Error> {
    num::parse_i64(text).ok_or_else(|| Error::owned(format!("ERR {what} is not an integer or out of range")))
}

fn decimal(text: &[u8], what: &'static str) -> Result<LongDouble, Error> {
    LongDouble::parse(text).ok_or_else(|| Error::Text(Cow::Owned(format!("ERR {what} is not a valid float"))))
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "increx",
    arity: -2,
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    keys: &[KeySpec::one(1, Access::Update)],
    group: Group::String,
    since: "8.8.0",
    summary: "Increments a bounded number and sets its expiry; returns the new value and the increment.",
    syntax: "key [BYFLOAT float:double | BYINT integer:integer] [LBOUND lowerbound] [UBOUND upperbound] [SATURATE] \
        [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]",
    event: "incrby",
    run: Run::Now(increx),
    ..Command::EMPTY
}];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whole_numbers_equal_wide_arithmetic(
            current in prop_oneof![any::<i64>(), -20..20i64], by in prop_oneof![any::<i64>(), -20..20i64],
            bounds in prop_oneof![any::<(i64, i64)>(), (-20..20i64, -20..20i64)], saturates: bool
        ) {
            let (low, high) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1));
            let sum = i128::from(current) + i128::from(by);
            let clamped = sum.clamp(low.into(), high.into());
            match within(current, by, low, high, saturates) {
                Ok(outcome) if outcome.stores => {
                    prop_assert!(saturates || clamped == sum);
                    prop_assert_eq!(i128::from(outcome.value), clamped);
                    prop_assert_eq!(i128::from(outcome.applied), clamped - i128::from(current));
                }
                Ok(outcome) => {
                    prop_assert!(!saturates && clamped != sum);
                    prop_assert_eq!((outcome.value, outcome.applied), (current, 0));
                }
                Err(_) => prop_assert!(saturates && i64::try_from(clamped - i128::from(current)).is_err()),
            }
        }
    }
}
