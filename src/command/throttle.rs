//! Rate limiting in one call: CL.THROTTLE in redis-cell's format, and GCRA in Redis' format, which clients know
//! although no release of Redis has the command. The algorithm is in [`value::gcra`](crate::value::gcra).
//!
//! GCRA counts in microseconds and accepts a fractional period. With the same interval, GCRA, CL.THROTTLE and a rule of
//! LIMIT.TAKE share the same state and thus the same limit.
//!
//! The state is one string: the theoretical arrival time in Unix nanoseconds. It expires once it no longer restricts
//! anything. The journal records the string and its deadline, so replaying it needs no clock.

use std::borrow::Cow;

use super::string_value::string_at;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::effect::Family;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::gcra::{BadRate, Rate};
use crate::value::string::Digits;

pub(super) const MS_NS: i64 = 1_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const US_NS: i64 = 1_000;

impl From<BadRate> for Error {
    fn from(bad: BadRate) -> Error {
        match bad {
            BadRate::Zero => Error::text("ERR Zero rates are not supported"),
            BadRate::TooLong => Error::OutOfRange,
        }
    }
}

fn throttle(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if args.len() > 5 {
        return Err(Error::Arity(Cow::Borrowed(ctx.name())));
    }
    let key = args.bytes()?;
    let (max_burst, count, period_s) = (args.positive()?, args.positive()?, args.positive()?);
    let quantity = if args.is_empty() { 1 } else { args.positive()? };
    let rate = Rate::new(max_burst, count, period_s)?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let tat_ns = slot.map(|slot| tat_at(ctx.ks, db, slot)).transpose()?;
    let decision = rate.decide(tat_ns, ns(ctx.now_ms()), quantity);
    match decision.tat_ns {
        // A quantity of 0 only looks.
        _ if quantity == 0 => {}
        None => ctx.count_refusal(Family::Limit, key),
        Some(tat_ns) => {
            put_tat(ctx.ks, db, key, slot, tat_ns);
            ctx.ks.count_granted(key);
        }
    }
    ctx.reply.array(5);
    ctx.reply.integer(i64::from(decision.tat_ns.is_none()));
    ctx.reply.integer(decision.limit);
    ctx.reply.integer(decision.remaining);
    // Rounded up, so that a client that waits this long does not come too early.
    ctx.reply.integer(decision.retry_after_ns.map_or(-1, |ns| round_up(ns, SECOND_NS)));
    ctx.reply.integer(round_up(decision.reset_after_ns, SECOND_NS));
    Ok(())
}

const BAD_PERIOD: Error = Error::text("ERR period must be > 0 and < 1e12");
const NO_TOKENS: Error = Error::text("ERR Missing TOKENS value");
const BAD_KEY: Error = Error::text("ERR Invalid GCRA key");
const BAD_TIME: Error = Error::text("ERR Negative time is invalid value for GCRA");
const BAD_COUNT: Error = Error::text("ERR value is out of range, value must between 1 and 9223372036854775807");
const TOKENS_TOO_LONG: Error = Error::text(
    "ERR GCRA limiting uses microsecond accuracy. Combination of period, tokens_per_period and TOKENS would cause an \
     overflow",
);
const BURST_TOO_LONG: Error = Error::text(
    "ERR GCRA limiting uses microsecond accuracy. Combination of period, tokens_per_period and max_burst would cause \
     an overflow",
);

/// The arguments of a GCRA call.
struct Gcra<'a> {
    key: &'a [u8],
    rate: Rate,
    /// The time for one token, us.
    interval_us: i64,
    tokens: i64,
}

impl<'a> Gcra<'a> {
    fn parse(ctx: &Ctx<'_>, args: &mut Args<'a>) -> Result<Gcra<'a>, Error> {
        if args.len() > 6 {
            return Err(Error::Arity(Cow::Borrowed(ctx.name())));
        }
        let key = args.bytes()?;
        let max_burst = args.int_or(Error::NotPositive)?;
        if max_burst < 0 {
            return Err(Error::NotPositive);
        }
        let count = from_one(args)?;
        let period_s = args.double()?;
        if period_s <= 0.0 || period_s >= 1e12 {
            return Err(BAD_PERIOD);
        }
        let mut tokens = 1;
        if !args.is_empty() {
            if !args.flag("tokens") {
                return Err(Error::Syntax);
            }
            if args.is_empty() {
                return Err(NO_TOKENS);
            }
            tokens = from_one(args)?;
        }
        // Rounded to the nearest microsecond, but at least one.
        let interval_us = ((period_s * 1e6 / count as f64 + 0.5) as i64).max(1);
        interval_us.checked_mul(tokens).ok_or(TOKENS_TOO_LONG)?;
        let rate = Rate::with_interval(max_burst.saturating_add(1), interval_us).ok_or(BURST_TOO_LONG)?;
        Ok(Gcra { key, rate, interval_us, tokens })
    }

    /// The theoretical arrival time after taking the tokens, Unix ns; `None` if it does not fit in 64 bits.
    fn tat_ns(&self, tat_ns: Option<i64>, now_ns: i64) -> Option<i64> {
        let cost_ns = self.rate.cost_ns(self.tokens);
        tat_ns.map_or(now_ns, |tat_ns| tat_ns.max(now_ns)).checked_add(cost_ns)
    }

    /// Whether that time in microseconds does not fit in 64 bits, which is an error even if the call would be refused.
    fn is_too_far(&self, tat_ns: Option<i64>, now_ns: i64) -> bool {
        let base_us = tat_ns.map_or(now_ns, |tat_ns| tat_ns.max(now_ns)) / US_NS;
        base_us.checked_add(self.interval_us.saturating_mul(self.tokens)).is_none()
    }
}

/// Takes a number of at least 1.
fn from_one(args: &mut Args<'_>) -> Result<i64, Error> {
    let number = args.int()?;
    if number < 1 { Err(BAD_COUNT) } else { Ok(number) }
}

fn gcra(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let call = Gcra::parse(ctx, &mut args)?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, call.key);
    let stored = match slot {
        Some(slot) => Some(string_at(ctx.ks, db, slot)?.as_i64().ok_or(BAD_KEY)?),
        None => None,
    };
    if stored.is_some_and(|tat_ns| tat_ns <= 0) {
        return Err(BAD_TIME);
    }
    let now_ns = ns(ctx.now_ms());
    let decision = call.rate.decide(stored, now_ns, call.tokens);
    let is_limited = decision.tat_ns.is_none();
    if call.is_too_far(stored, now_ns) {
        return Err(TOKENS_TOO_LONG);
    }
    if is_limited {
        ctx.count_refusal(Family::Limit, call.key);
    } else {
        // The state is in nanoseconds and ends in the year 2262. It must not be clamped to less than was taken.
        let tat_ns = call.tat_ns(stored, now_ns).ok_or(TOKENS_TOO_LONG)?;
        put_tat(ctx.ks, db, call.key, slot, tat_ns);
        ctx.ks.count_granted(call.key);
    }
    ctx.reply.array(5);
    ctx.reply.integer(is_limited.into());
    ctx.reply.integer(decision.limit);
    ctx.reply.integer(decision.remaining);
    ctx.reply.integer(decision.retry_after_ns.map_or(-1, |ns| round_up(ns, SECOND_NS)));
    ctx.reply.integer(round_up(decision.reset_after_ns, SECOND_NS));
    Ok(())
}

/// Returns the theoretical arrival time in a limiter's key, Unix ns.
#[inline]
pub(super) fn tat_at(ks: &Keyspace, db: DbIndex, slot: Slot) -> Result<i64, Error> {
    let Some(tat_ns) = string_at(ks, db, slot)?.as_i64() else { return Err(Error::NotInteger) };
    Ok(tat_ns)
}

/// Stores a theoretical arrival time. The key expires when all tokens are available again.
#[inline]
pub(super) fn put_tat(ks: &mut Keyspace, db: DbIndex, key: &[u8], slot: Option<Slot>, tat_ns: i64) {
    let at_ms = round_up(tat_ns, MS_NS);
    _ = ks.put_until(db, key, slot, Digits::new().format(tat_ns).as_bytes(), at_ms);
}

/// Converts a time in ms to ns.
#[inline]
pub(super) fn ns(ms: i64) -> i64 {
    ms.saturating_mul(MS_NS)
}

/// Converts `ns` to whole units, rounded up; neither may be negative.
pub(super) fn round_up(ns: i64, unit: i64) -> i64 {
    ns / unit + i64::from(ns % unit > 0)
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "cl.throttle",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        group: Group::String,
        // redis-cell's version.
        since: "0.1.0",
        summary: "Takes tokens from a rate limiter; returns limited, limit, remaining, retry and reset seconds.",
        syntax: "key max-burst:integer count period:integer [quantity:integer]",
        run: Run::Now(throttle),
        ..Command::EMPTY
    },
    Command {
        name: "gcra",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        group: Group::RateLimit,
        since: "8.8.0",
        summary: "Takes tokens from a rate limiter; returns limited, limit, remaining, retry and full-burst seconds.",
        syntax: "key max-burst:integer tokens-per-period:integer period:double [TOKENS count:integer]",
        run: Run::Now(gcra),
        ..Command::EMPTY
    },
];
