//! What locks, gates and stocks have in common: their options, how they answer, and how locks and gates wait.
//!
//! **Answers** are those of [`outcome`], 1 for yes and 0 for no. To be refused is an answer, not an error.
//!
//! **Leases** are said as SET says a deadline, by EX, PX, EXAT or PXAT, with the same errors. A time that is over is none, there as here:
//! a place that is asked for until then is not given, and one that is held ends. Where the key expires, by EXPIRE and its kin, a lease ends with
//! it at the latest, and every answer says so.
//!
//! **Waiting.** A call is refused while others wait, or waits behind them; only one that is dispatched again because its turn has come may
//! take a place. So nobody overtakes: see [`engine::wait`](crate::engine::wait::wait). BLOCK waits with the connection, ASYNC beside it; both
//! stand in one queue.

use std::borrow::Cow;

use super::super::deadline::Count;
use super::super::string::Term;
use super::outcome;
use crate::base::limits::{
    GRANT_NOTE_MAX_BYTES, HOLDER_MAX_BYTES, HOLDERS_COUNT, HOLDERS_MAX_COUNT, LEASE_MAX_MS, TICKETS_MAX,
};
use crate::base::num;
use crate::engine::observe::history::Refusal;
use crate::engine::wait::wait_queues::Waits;
use crate::engine::wait::{OnTicket, Ticket, Wait, Want, deadline_after_ms};
use crate::engine::{Command, Ctx, Done, Flow};
use crate::keyspace::verb::handles::GrantsRef;
use crate::keyspace::{DbIndex, NEVER};
use crate::resp::reply::Reply;
use crate::spec::Group;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::grants::{Kind, UNITS_MAX};

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

impl Said<'_> {
    /// Milliseconds of a lease that are left.
    pub(super) fn left_ms(until_ms: i64, now_ms: i64) -> Self {
        Said::Number(until_ms.saturating_sub(now_ms).max(0))
    }
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
pub(super) fn refuse_not_held(reply: &mut Reply) -> Done {
    answer(reply, false, &[("reason", Said::Text(b"not-held"))]);
    Ok(())
}

/// Answers that the lease that was asked for is over already.
pub(super) fn refuse_over(reply: &mut Reply) {
    answer(reply, false, &[("reason", Said::Text(b"over"))]);
}

/// The reason of who has waited without getting a place.
const TIMEOUT: &str = "timeout";

/// Answers that waiting has ended without a place.
fn time_out(reply: &mut Reply) {
    answer(reply, false, &[("reason", Said::Text(TIMEOUT.as_bytes()))]);
}

/// Answers a call that waits beside its connection.
fn answer_queued(reply: &mut Reply, ticket: Ticket, before: usize) {
    let fields =
        [("reason", Said::Text(b"queued")), ("ticket", Said::Number(ticket.number())), ("waiting", before.into())];
    answer(reply, false, &fields);
}

/// Remembers for WHY that a place was refused, of so many units of which so many are in use.
pub(super) fn remember_refusal(
    ctx: &mut Ctx<'_>,
    kind: Kind,
    key: &[u8],
    holder: &[u8],
    reason: &'static str,
    in_use: u64,
    limit: u64,
) {
    let count = |units| i64::try_from(units).unwrap_or(i64::MAX);
    let (family, in_use, limit) = (kind.into(), count(in_use), count(limit));
    ctx.remember_refusal(Refusal { family, key, subject: holder, reason, in_use, limit });
}

/// How a call waits that finds no place.
#[derive(Clone, Copy)]
struct Patience {
    /// When waiting ends, Unix ms; `None`: never.
    deadline_ms: Option<i64>,
    /// See [`Wait::on_ticket`].
    on_ticket: Option<OnTicket>,
}

impl Patience {
    /// Takes BLOCK or ASYNC off the front.
    fn take(ctx: &Ctx<'_>, args: &mut Args<'_>) -> Result<Option<Patience>, Error> {
        let on_ticket: Option<OnTicket> = if args.option("block", 1) {
            None
        } else if args.option("async", 1) {
            // Where nothing waits there is nothing to push either.
            if ctx.session.protocol != 3 && ctx.may_wait() {
                return Err(Error::text("ERR ASYNC needs RESP3: send HELLO 3 first, or use BLOCK"));
            }
            Some(answer_queued)
        } else {
            return Ok(None);
        };
        Ok(Some(Patience { deadline_ms: deadline_after_ms(args.bytes()?, ctx.now_ms())?, on_ticket }))
    }
}

/// The options of a call that takes or prolongs a grant.
#[derive(Default)]
pub(super) struct Options<'a> {
    /// How long the lease is, or until when it lasts.
    term: Term<'a>,
    patience: Option<Patience>,
    pub(super) note: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// Takes an option of these off the front; false if the next argument is none. `may_take`: the call asks for a place.
    pub(super) fn take(&mut self, ctx: &Ctx<'_>, args: &mut Args<'a>, may_take: bool) -> Result<bool, Error> {
        if self.term == Term::Unsaid && self.term.take_deadline(args)? {
            return Ok(true);
        }
        if may_take && self.patience.is_none() {
            self.patience = Patience::take(ctx, args)?;
            if self.patience.is_some() {
                return Ok(true);
            }
        }
        if may_take && args.option("note", 1) {
            self.note = Some(text(args)?);
            return Ok(true);
        }
        Ok(false)
    }

    /// When a lease ends that begins now, Unix ms. It may be over already.
    pub(super) fn until_ms(&self, ctx: &Ctx<'_>) -> Result<i64, Error> {
        let until_ms = self.term.deadline(ctx)?.ok_or(Error::text(
            "ERR say how long the lease is, by PX or EX, or until when it lasts, by PXAT or EXAT",
        ))?;
        if until_ms.saturating_sub(ctx.now_ms()) > LEASE_MAX_MS {
            return Err(Error::InvalidExpire(Cow::Borrowed(ctx.name())));
        }
        Ok(until_ms)
    }

    /// When a lease ends by a time that the call names, which would end there by `until_ms`. Nobody waits for one that would be over.
    fn last_ms(&self, until_ms: i64) -> Option<i64> {
        let is_fixed = matches!(self.term, Term::At(Count::UnixSeconds | Count::UnixMilliseconds, _));
        is_fixed.then_some(until_ms)
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
    Ok((key, holder, options.until_ms(ctx)?))
}

/// Reads the text of a note.
pub(super) fn text<'a>(args: &mut Args<'a>) -> Result<&'a [u8], Error> {
    let note = args.bytes()?;
    if note.len() <= GRANT_NOTE_MAX_BYTES {
        return Ok(note);
    }
    Err(Error::owned(format!("ERR a note has at most {GRANT_NOTE_MAX_BYTES} bytes")))
}

/// Reads `[COUNT n]`, to the end; `otherwise` is what counts without.
pub(super) fn count(args: &mut Args<'_>, otherwise: usize) -> Result<usize, Error> {
    let mut count = otherwise;
    while !args.is_empty() {
        if !args.option("count", 1) {
            return Err(Error::Syntax);
        }
        let wanted = usize::try_from(args.int()?).ok().filter(|count| (1..=HOLDERS_MAX_COUNT).contains(count));
        count = wanted.ok_or_else(|| Error::owned(format!("ERR COUNT is a number from 1 to {HOLDERS_MAX_COUNT}")))?;
    }
    Ok(count)
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
        Ok(Page { key, cursor: cursor as u64, count: count(args, HOLDERS_COUNT)? })
    }

    /// Answers the next cursor and the grants before it, of what is at `slot`. `names` are those of their holder and note.
    pub(super) fn answer<K>(&self, reply: &mut Reply, now_ms: i64, found: Option<GrantsRef<'_, K>>, names: [&str; 2]) {
        let key_end_ms = found.as_ref().map_or(NEVER, GrantsRef::key_end_ms);
        let all = || found.iter().flat_map(|found| found.grants().from(self.cursor));
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
                ("lease-ms", Said::left_ms(grant.until_ms.min(key_end_ms), now_ms)),
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
pub(super) fn waiting_before(waits: &Waits, is_retry: bool, db: DbIndex, key: &[u8]) -> usize {
    if is_retry { 0 } else { waits.waiting(db, key, Want::Place) }
}

/// How long it is until the next place under a key may be free, ms; -1 where nothing ends by itself.
pub(super) fn retry_after_ms(ctx: &Ctx<'_>, key: &[u8]) -> Said<'static> {
    let at_ms = ctx.ks.place_may_be_free_at(ctx.db(), key);
    Said::Number(at_ms.map_or(-1, |at_ms| at_ms - ctx.now_ms()))
}

/// Refuses another call that is to wait beside the connection where those that do are too many, or take as much memory as what a client sends
/// ahead may.
fn admit_ticket(ctx: &Ctx<'_>) -> Result<(), Error> {
    let Some(tickets) = &ctx.session.tickets else { return Ok(()) };
    if tickets.len() >= TICKETS_MAX {
        return Err(Error::owned(format!(
            "ERR {TICKETS_MAX} calls wait beside this connection, and no more may: use another one, or TICKET.CANCEL"
        )));
    }
    if tickets.mem_bytes() >= ctx.server.config.query_limit_bytes() {
        return Err(Error::text(
            "ERR the calls that wait beside this connection take as much memory as client-query-buffer-limit allows: use \
             another one, or TICKET.CANCEL",
        ));
    }
    Ok(())
}

/// Has a call wait for a place under a key, if it may. The first one looks when a lease ends; the others need not.
/// `until_ms` is when its lease would end.
pub(super) fn wait(
    ctx: &Ctx<'_>,
    kind: Kind,
    key: &[u8],
    options: &Options<'_>,
    until_ms: i64,
) -> Result<Option<Flow>, Error> {
    let Some(patience) = options.patience.filter(|_| ctx.may_wait()) else { return Ok(None) };
    if patience.on_ticket.is_some() && !ctx.is_retry() {
        admit_ticket(ctx)?;
    }
    let deadline_ms = patience.deadline_ms.into_iter().chain(options.last_ms(until_ms)).min();
    let mut wait = Wait::new(Want::Place, [key].into_iter(), deadline_ms, time_out);
    wait.on_ticket = patience.on_ticket;
    (wait.family, wait.in_vain) = (Some(kind.into()), TIMEOUT);
    if waiting_before(&ctx.server.waits, ctx.is_retry(), ctx.db(), key) == 0 {
        wait.retry_at_ms = ctx.ks.place_may_be_free_at(ctx.db(), key);
    }
    Ok(Some(Flow::wait(wait)))
}
