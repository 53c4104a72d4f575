//! Common parts of locks, gates and stocks: their options, their replies, and how locks and gates wait.
//!
//! **Replies** have the form of [`outcome`]: 1 for a grant and 0 for a refusal. A refusal is a reply, not an error.
//!
//! **Leases** are given as SET takes a deadline, by EX, PX, EXAT or PXAT, with the same errors. A time that has passed
//! means no lease, as it means no key in SET: units are not granted until then, and a grant that is held ends. If the
//! key expires, by EXPIRE and its kin, a lease ends with the key at the latest, and every reply says so.
//!
//! **Waiting.** While other calls wait, a call is refused or waits behind them. Only a call that is dispatched again
//! because its turn has come may take a place, so no call overtakes another: see
//! [`wait`](crate::wait). BLOCK waits with the connection, ASYNC beside it. Both wait in one
//! queue.

use std::borrow::Cow;

use super::super::deadline::Count;
use super::super::string::Term;
use super::error::GrantError;
use super::outcome;
use crate::base::num;
use crate::command::limits::{HOLDERS_COUNT, HOLDERS_MAX_COUNT, TICKETS_MAX};
use crate::engine::observe::history::Refusal;
use crate::engine::{Command, Ctx, Done, Flow};
use crate::keyspace::limits::{GRANT_NOTE_MAX_BYTES, HOLDER_MAX_BYTES, LEASE_MAX_MS};
use crate::keyspace::verb::handles::GrantsRef;
use crate::keyspace::{DbIndex, NEVER};
use crate::resp::reply::Reply;
use crate::spec::Group;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::grants::{Kind, UNITS_MAX};
use crate::wait::wait_queues::Waits;
use crate::wait::{OnTicket, Ticket, Wait, Want, deadline_after_ms};

/// The fields that all commands of these families share.
pub(super) const BASE: Command = Command { since: "0.1.0", group: Group::Coordination, ..Command::EMPTY };

/// A value in a reply.
#[derive(Clone, Copy)]
pub(super) enum Said<'a> {
    Number(i64),
    Text(&'a [u8]),
}

impl Said<'_> {
    /// The milliseconds until a lease ends.
    pub(super) fn left_ms(until_ms: i64, now_ms: i64) -> Self {
        Said::Number(until_ms.saturating_sub(now_ms).max(0))
    }
}

impl From<u64> for Said<'_> {
    /// All numbers in these replies are far below the bound of an integer.
    fn from(number: u64) -> Self {
        Said::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Said<'_> {
    fn from(number: usize) -> Self {
        Said::from(number as u64)
    }
}

/// Replies with an outcome and its fields.
pub(super) fn answer(reply: &mut Reply, outcome: bool, fields: &[(&str, Said<'_>)]) {
    outcome::begin(reply, outcome.into(), fields.len());
    say(reply, fields);
}

/// Writes the names and values of a map.
pub(super) fn say(reply: &mut Reply, fields: &[(&str, Said<'_>)]) {
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        match value {
            Said::Number(number) => reply.integer(*number),
            Said::Text(text) => reply.bulk(text),
        }
    }
}

/// Replies that the caller has no such grant, or no longer.
pub(super) fn refuse_not_held(reply: &mut Reply) -> Done {
    answer(reply, false, &[("reason", Said::Text(b"not-held"))]);
    Ok(())
}

/// Replies that the requested lease has ended already.
pub(super) fn refuse_over(reply: &mut Reply) {
    answer(reply, false, &[("reason", Said::Text(b"over"))]);
}

/// The reason given to a call that waited in vain.
const TIMEOUT: &str = "timeout";

/// Replies that waiting has ended without a grant.
fn time_out(reply: &mut Reply) {
    answer(reply, false, &[("reason", Said::Text(TIMEOUT.as_bytes()))]);
}

/// Replies with the ticket of a call that now waits beside its connection.
fn answer_queued(reply: &mut Reply, ticket: Ticket, before: usize) {
    let fields =
        [("reason", Said::Text(b"queued")), ("ticket", Said::Number(ticket.number())), ("waiting", before.into())];
    answer(reply, false, &fields);
}

/// Remembers for WHY that units were refused while `in_use` of `limit` units were taken.
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

/// How long and in which way a call waits for its turn.
#[derive(Clone, Copy)]
struct Patience {
    /// When waiting ends, Unix ms; `None` for never.
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
            // A call that may not wait pushes nothing, so RESP2 will do.
            if ctx.session.protocol != 3 && ctx.may_wait() {
                return Err(GrantError::AsyncNeedsResp3.into());
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
    /// The length of the lease, or its end.
    term: Term<'a>,
    patience: Option<Patience>,
    pub(super) note: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// Takes one of these options off the front; false if the next argument is none of them. `may_take`: the call asks
    /// for a grant.
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

    /// When a lease that begins now ends, Unix ms. That time may have passed.
    pub(super) fn until_ms(&self, ctx: &Ctx<'_>) -> Result<i64, Error> {
        let until_ms = self.term.deadline(ctx)?.ok_or(GrantError::NoLease)?;
        if until_ms.saturating_sub(ctx.now_ms()) > LEASE_MAX_MS {
            return Err(Error::InvalidExpire(Cow::Borrowed(ctx.name())));
        }
        Ok(until_ms)
    }

    /// When waiting becomes useless, Unix ms: at `until_ms`, the end of the lease, if the call gave it as a time.
    /// `None` if it gave a length.
    fn last_ms(&self, until_ms: i64) -> Option<i64> {
        let is_fixed = matches!(self.term, Term::At(Count::UnixSeconds | Count::UnixMilliseconds, _));
        is_fixed.then_some(until_ms)
    }
}

/// Reads a call that renews the lease of a grant: the key, the holder, and the new end of the lease, Unix ms.
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
    Err(GrantError::NoteTooLong.into())
}

/// Reads `[COUNT n]` up to the end of the call; `otherwise` is the default.
pub(super) fn count(args: &mut Args<'_>, otherwise: usize) -> Result<usize, Error> {
    let mut count = otherwise;
    while !args.is_empty() {
        if !args.option("count", 1) {
            return Err(Error::Syntax);
        }
        let wanted = usize::try_from(args.int()?).ok().filter(|count| (1..=HOLDERS_MAX_COUNT).contains(count));
        count = wanted.ok_or(GrantError::Count)?;
    }
    Ok(count)
}

/// A page of a list of grants, the first granted first. A grant that is there from the first page to the last is listed
/// exactly once.
pub(super) struct Page<'a> {
    pub(super) key: &'a [u8],
    /// The fencing token to begin with.
    cursor: u64,
    count: usize,
}

impl<'a> Page<'a> {
    /// Reads a whole call: the key, the cursor and COUNT.
    pub(super) fn parse(args: &mut Args<'a>) -> Result<Page<'a>, Error> {
        let (key, cursor) = (args.bytes()?, args.positive().map_err(|_| Error::text("ERR invalid cursor"))?);
        Ok(Page { key, cursor: cursor as u64, count: count(args, HOLDERS_COUNT)? })
    }

    /// Replies with the next cursor and the grants before it. `names` are the fields that hold a grant's holder and
    /// note.
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

/// Reads the name of a holder, owner or order.
pub(super) fn holder<'a>(args: &mut Args<'a>) -> Result<&'a [u8], Error> {
    let holder = args.bytes()?;
    if (1..=HOLDER_MAX_BYTES).contains(&holder.len()) {
        return Ok(holder);
    }
    Err(GrantError::HolderLength.into())
}

/// Reads a number of units from `least` on.
pub(super) fn units(args: &mut Args<'_>, least: u64) -> Result<u64, Error> {
    let units = num::parse_i64(args.bytes()?).and_then(|units| u64::try_from(units).ok());
    Ok(units.filter(|units| (least..=UNITS_MAX).contains(units)).ok_or(GrantError::Units { least })?)
}

/// How many other calls wait for a key and come first.
pub(super) fn waiting_before(waits: &Waits, is_retry: bool, db: DbIndex, key: &[u8]) -> usize {
    if is_retry { 0 } else { waits.waiting(db, key, Want::Place) }
}

/// The milliseconds until a unit under a key may become free; -1 if nothing ends by itself.
pub(super) fn retry_after_ms(ctx: &Ctx<'_>, key: &[u8]) -> Said<'static> {
    let at_ms = ctx.ks.place_may_be_free_at(ctx.db(), key);
    Said::Number(at_ms.map_or(-1, |at_ms| at_ms - ctx.now_ms()))
}

/// Refuses a further call with ASYNC if too many already wait beside the connection, or if they use as much memory as
/// `client-query-buffer-limit` allows.
fn admit_ticket(ctx: &Ctx<'_>) -> Result<(), Error> {
    let Some(tickets) = &ctx.session.tickets else { return Ok(()) };
    if tickets.len() >= TICKETS_MAX {
        return Err(GrantError::TooManyTickets.into());
    }
    if tickets.mem_bytes() >= ctx.server.config.query_limit_bytes() {
        return Err(GrantError::TicketsTooLarge.into());
    }
    Ok(())
}

/// Makes a call wait for a key, if it wants to and may; its lease would end at `until_ms`. The first call in the queue
/// also wakes when a lease ends; the others need not.
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
