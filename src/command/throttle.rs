//! CL.THROTTLE: one decision of a rate limiter, in the shape that redis-cell gave it. The algorithm is in
//! [`value::gcra`](crate::value::gcra).
//!
//! The state is one string, the theoretical arrival time in Unix nanoseconds, which expires when it says nothing any more.
//! What is recorded is that string and its deadline, so that repeating it needs no clock.

use std::borrow::Cow;

use super::string::string_at;
use crate::engine::args::Args;
use crate::engine::error::Error;
use crate::engine::spec::{Access, Flags, Group, KeySpec};
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::value::gcra::{BadRate, Rate};
use crate::value::string::Digits;

pub(super) const MS_NS: i64 = 1_000_000;
const SECOND_NS: i64 = 1_000_000_000;

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
    if let Some(tat_ns) = decision.tat_ns.filter(|_| quantity > 0) {
        put_tat(ctx.ks, db, key, slot, tat_ns);
    }
    ctx.reply.array(5);
    ctx.reply.integer(i64::from(decision.tat_ns.is_none()));
    ctx.reply.integer(decision.limit);
    ctx.reply.integer(decision.remaining);
    // Rounded up: who comes back then must not be too early.
    ctx.reply.integer(decision.retry_after_ns.map_or(-1, |ns| round_up(ns, SECOND_NS)));
    ctx.reply.integer(round_up(decision.reset_after_ns, SECOND_NS));
    Ok(())
}

/// The theoretical arrival time that a limiter's key holds, Unix ns.
#[inline]
pub(super) fn tat_at(ks: &Keyspace, db: DbIndex, slot: Slot) -> Result<i64, Error> {
    string_at(ks, db, slot)?.as_i64().ok_or(Error::NotInteger)
}

/// Stores a theoretical arrival time. The key goes when all tokens are there again.
#[inline]
pub(super) fn put_tat(ks: &mut Keyspace, db: DbIndex, key: &[u8], slot: Option<Slot>, tat_ns: i64) {
    let at_ms = round_up(tat_ns, MS_NS);
    _ = ks.put_until(db, key, slot, Digits::new().format(tat_ns).as_bytes(), at_ms);
}

/// A time in the unit of such times.
#[inline]
pub(super) fn ns(ms: i64) -> i64 {
    ms.saturating_mul(MS_NS)
}

/// `ns` in whole units, rounded up; neither is negative.
pub(super) fn round_up(ns: i64, unit: i64) -> i64 {
    ns / unit + i64::from(ns % unit > 0)
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "cl.throttle",
    arity: -5,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    keys: &[KeySpec::one(1, Access::Update)],
    group: Group::String,
    // Of redis-cell.
    since: "0.1.0",
    summary: "Asks a rate limiter for tokens: whether it refuses, limit, remaining, seconds to retry, seconds to reset.",
    syntax: "key max-burst:integer count period:integer [quantity:integer]",
    run: Run::Now(throttle),
    ..Command::EMPTY
}];
