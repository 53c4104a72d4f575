//! What locks, gates and stocks have in common: their options, how they answer, and how locks and gates wait.
//!
//! **Answers** are those of [`outcome`], 1 for yes and 0 for no. To be refused is an answer, not an error.
//!
//! **Waiting.** A call is refused while others wait, or waits behind them; only one that is dispatched again because its turn has come may
//! take a place. So nobody overtakes: see [`engine::wait`](crate::engine::wait).

use std::borrow::Cow;

use super::outcome;
use crate::base::limits::{GRANT_NOTE_MAX_BYTES, HOLDER_MAX_BYTES, HOLDERS_COUNT, HOLDERS_MAX_COUNT, LEASE_MAX_MS};
use crate::base::num;
use crate::engine::args::Args;
use crate::engine::error::Error;
use crate::engine::spec::Group;
use crate::engine::wait::{Wait, Want, deadline_after_ms};
use crate::engine::{Command, Ctx, Flow};
use crate::keyspace::Slot;
use crate::resp::reply::Reply;
use crate::value::grants::{Grant, Grants, UNITS_MAX};

/// What every command of these families says of itself.
pub(super) const BASE: Command = Command { since: "0.1.0", group: Group::Coordination, ..Command::EMPTY };

/// Refused to who asks for another grant when all fencing tokens have been given out, which no server lives to see.
pub(super) const NO_TOKENS: Error = Error::text("ERR all fencing tokens have been given out");

/// A value in an answer.
#[derive(Clone, Copy)]
pub(super) enum Said<'a> {
    Number(i64),
    Text(&'a [u8]),
}

impl From<u64> for Said<'_> {
    /// Of numbers that are bounded far below.
    fn from(number: u64) -> Self {
        Said::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Said<'_> {
    fn from(number: usize) -> Self {
        Said::from(number as u64)
    }
}

/// Answers an outcome, and what belongs to it.
pub(super) fn answer(reply: &mut Reply, outcome: bool, fields: &[(&str, Said<'_>)]) {
    outcome::begin(reply, outcome.into(), fields.len());
    say(reply, fields);
}

/// The names and values of a map.
pub(super) fn say(reply: &mut Reply, fields: &[(&str, Said<'_>)]) {
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        match value {
            Said::Number(number) => reply.integer(*number),
            Said::Text(text) => reply.bulk(text),
        }
    }
}

/// Answers that the caller does not hold what it names, or no longer.
pub(super) fn refuse_not_held(reply: &mut Reply) {
    answer(reply, false, &[("reason", Said::Text(b"not-held"))]);
}

/// Answers that waiting has ended without a place.
fn time_out(reply: &mut Reply) {
    answer(reply, false, &[("reason", Said::Text(b"timeout"))]);
}

/// The options of a call that takes or prolongs a grant.
#[derive(Default)]
pub(super) struct Options<'a> {
    lease_ms: Option<i64>,
    /// When waiting ends, Unix ms; the inner `None`: never.
    pub(super) block: Option<Option<i64>>,
    pub(super) note: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// Takes an option of these off the front; false if the next argument is none. `may_take`: the call asks for a place.
    pub(super) fn take(&mut self, ctx: &Ctx<'_>, args: &mut Args<'a>, may_take: bool) -> Result<bool, Error> {
        let unit_ms = args.len().checked_sub(2).and_then(|_| args.one_of(&[("px", 1), ("ex", 1_000)]));
        if let Some(unit_ms) = unit_ms {
            let lease_ms = args.int()?.checked_mul(unit_ms).filter(|ms| (1..=LEASE_MAX_MS).contains(ms));
            let lease_ms = lease_ms.ok_or_else(|| Error::InvalidExpire(Cow::Borrowed(ctx.name())))?;
            return if self.lease_ms.replace(lease_ms).is_none() { Ok(true) } else { Err(Error::Syntax) };
        }
        if may_take && args.option("block", 1) {
            self.block = Some(deadline_after_ms(args.bytes()?, ctx.now_ms())?);
            return Ok(true);
        }
        if may_take && args.option("note", 1) {
            let note = args.bytes()?;
            if note.len() > GRANT_NOTE_MAX_BYTES {
                return Err(Error::owned(format!("ERR a note has at most {GRANT_NOTE_MAX_BYTES} bytes")));
            }
            self.note = Some(note);
            return Ok(true);
        }
        Ok(false)
    }

    /// When a lease ends that begins now, Unix ms.
    pub(super) fn until_ms(&self, now_ms: i64) -> Result<i64, Error> {
        let lease_ms =
            self.lease_ms.ok_or(Error::text("ERR say how long the lease is: PX milliseconds or EX seconds"))?;
        Ok(now_ms.saturating_add(lease_ms).min(i64::MAX - 1))
    }
}

/// Reads a call that sets the lease of a holder's grant anew: key, holder, and when the lease is to end, Unix ms.
pub(super) fn prolongation<'a>(ctx: &Ctx<'_>, args: &mut Args<'a>) -> Result<(&'a [u8], &'a [u8], i64), Error> {
    let (key, holder) = (args.bytes()?, holder(args)?);
    let mut options = Options::default();
    while !args.is_empty() {
        if !options.take(ctx, args, false)? {
            return Err(Error::Syntax);
        }
    }
    Ok((key, holder, options.until_ms(ctx.now_ms())?))
}

/// A step of a walk over grants, in the order of their coming. One that is there from the first step to the last is answered once.
pub(super) struct Page<'a> {
    pub(super) key: &'a [u8],
    /// The token to go on from.
    cursor: u64,
    count: usize,
}

impl<'a> Page<'a> {
    /// Reads a whole call: key, cursor, and COUNT.
    pub(super) fn parse(args: &mut Args<'a>) -> Result<Page<'a>, Error> {
        let (key, cursor) = (args.bytes()?, args.positive().map_err(|_| Error::text("ERR invalid cursor"))?);
        let mut count = HOLDERS_COUNT;
        while !args.is_empty() {
            if !args.option("count", 1) {
                return Err(Error::Syntax);
            }
            let wanted = usize::try_from(args.int()?).ok().filter(|count| (1..=HOLDERS_MAX_COUNT).contains(count));
            count =
                wanted.ok_or_else(|| Error::owned(format!("ERR COUNT is a number from 1 to {HOLDERS_MAX_COUNT}")))?;
        }
        Ok(Page { key, cursor: cursor as u64, count })
    }

    /// Answers the next cursor and the grants before it. `names` are those of their holder and note.
    pub(super) fn answer(&self, reply: &mut Reply, grants: Option<&Grants>, now_ms: i64, names: [&str; 2]) {
        let all = || grants.into_iter().flat_map(|grants| grants.from(self.cursor));
        let shown = all().take(self.count).count();
        let next = all().nth(self.count).map_or(0, |grant| grant.token);
        reply.array(2);
        reply.bulk_integer(next as i64);
        reply.array(shown);
        for grant in all().take(shown) {
            let fields = [
                (names[0], Said::Text(grant.holder)),
                ("token", grant.token.into()),
                ("units", grant.units.into()),
                ("since-ms", Said::Number(grant.since_ms)),
                ("lease-ms", Said::Number(grant.until_ms.saturating_sub(now_ms).max(0))),
                (names[1], Said::Text(grant.note)),
            ];
            reply.map(fields.len());
            say(reply, &fields);
        }
    }
}

/// Reads the name of a holder.
pub(super) fn holder<'a>(args: &mut Args<'a>) -> Result<&'a [u8], Error> {
    let holder = args.bytes()?;
    if (1..=HOLDER_MAX_BYTES).contains(&holder.len()) {
        return Ok(holder);
    }
    Err(Error::owned(format!("ERR the name of who holds a place has 1 to {HOLDER_MAX_BYTES} bytes")))
}

/// Reads a number of units from `least` on.
pub(super) fn units(args: &mut Args<'_>, least: u64) -> Result<u64, Error> {
    let units = num::parse_i64(args.bytes()?).and_then(|units| u64::try_from(units).ok());
    units
        .filter(|units| (least..=UNITS_MAX).contains(units))
        .ok_or_else(|| Error::owned(format!("ERR a number of units is a whole number from {least} to {UNITS_MAX}")))
}

/// How many other calls wait for a place under a key and come first.
pub(super) fn waiting_before(ctx: &Ctx<'_>, key: &[u8]) -> usize {
    if ctx.is_retry() { 0 } else { ctx.server.waits.waiting(ctx.db(), key, Want::Place) }
}

/// How long it is until the next place under a key may be free, ms; -1 where nothing ends by itself.
pub(super) fn retry_after_ms(ctx: &Ctx<'_>, key: &[u8]) -> Said<'static> {
    let at_ms = ctx.ks.place_may_be_free_at(ctx.db(), key);
    Said::Number(at_ms.map_or(-1, |at_ms| at_ms - ctx.now_ms()))
}

/// Has a call wait for a place under a key, if it may. The first one looks when a lease ends; the others need not.
pub(super) fn wait(ctx: &Ctx<'_>, key: &[u8], options: &Options<'_>) -> Option<Flow> {
    let deadline_ms = options.block.filter(|_| ctx.may_wait())?;
    let mut wait = Wait::new(Want::Place, [key].into_iter(), deadline_ms, time_out);
    if waiting_before(ctx, key) == 0 {
        wait.retry_at_ms = ctx.ks.place_may_be_free_at(ctx.db(), key);
    }
    Some(Flow::wait(wait))
}

/// Gives a grant to a holder who has one of the same token, or whose token is the next one.
pub(super) fn set(ctx: &mut Ctx<'_>, slot: Slot, grant: Grant<'_>) -> Result<(), Error> {
    let db = ctx.db();
    let fits = ctx.ks.grant_set(db, slot, grant)?;
    debug_assert!(fits, "{grant:?}");
    Ok(())
}

/// Milliseconds of a lease that are left.
pub(super) fn lease_left(ctx: &Ctx<'_>, until_ms: i64) -> Said<'static> {
    Said::Number(until_ms.saturating_sub(ctx.now_ms()).max(0))
}
