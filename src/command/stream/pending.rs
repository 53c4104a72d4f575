//! Entries that were delivered but not acknowledged: XACK, XPENDING, XNACK, which gives entries back, and XCLAIM and
//! XAUTOCLAIM, which take them over.

use super::common::{
    ID_INVALID, Interval, admit_pending_effects, entry_reply, find_group, find_group_or_none, id_reply, interval_start,
    pending_effects_left,
};
use super::delete::counted_ids;
use crate::engine::{Ctx, Done};
use crate::keyspace::Slot;
use crate::resp::limits::REPLY_MAX_BYTES;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::value::stream::{Group, Pending, Stream, StreamId};

pub(super) fn xack(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let (key, group) = (args.bytes()?, args.bytes()?);
    let Some(slot) = find_group_or_none(ctx.ks, db, key, group)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let ids = args.rest();
    if ids.iter().any(|id| StreamId::parse(id, 0).is_none()) {
        return Err(ID_INVALID);
    }
    admit_pending_effects(ctx, ids.len(), group.len())?;
    let mut acknowledged = 0;
    for id in ids.iter().filter_map(|id| StreamId::parse(id, 0)) {
        acknowledged += i64::from(ctx.ks.pending_ack(db, slot, group, id)?);
    }
    ctx.reply.integer(acknowledged);
    Ok(())
}

/// The reason why a consumer gives entries back.
#[derive(Clone, Copy)]
enum Release {
    /// As if they had not been delivered.
    Silent,
    /// The consumer failed; another may succeed.
    Fail,
    /// No consumer should get them again.
    Fatal,
}

pub(super) fn xnack(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    const MODES: [(&str, Release); 3] =
        [("silent", Release::Silent), ("fail", Release::Fail), ("fatal", Release::Fatal)];
    let db = ctx.db();
    let (key, group) = (args.bytes()?, args.bytes()?);
    let mode = args.one_of(&MODES).ok_or(Error::Syntax)?;
    if !args.flag("ids") {
        return Err(Error::Syntax);
    }
    let ids = counted_ids(&mut args)?;
    let (mut deliveries, mut force) = (None, false);
    while !args.is_empty() {
        if args.option("retrycount", 1) {
            deliveries = Some(args.positive()? as u64);
        } else if args.flag("force") {
            force = true;
        } else {
            return Err(Error::Syntax);
        }
    }
    let slot = find_group(ctx.ks, db, key, group)?;
    // An entry is released and, if the policy has a backoff, also held: two effects.
    let policy = ctx.ks.stream(db, slot)?.group(group).and_then(Group::policy);
    let effects = if policy.is_some_and(|policy| policy.backoff_max_ms > 0) { 2 } else { 1 };
    admit_pending_effects(ctx, ids.len().saturating_mul(effects), group.len())?;
    let mut released = 0;
    for id in ids {
        let stream = ctx.ks.stream(db, slot)?;
        let before = match stream.group(group).and_then(|group| group.pending(id)) {
            Some(pending) => pending.deliveries,
            None if force && stream.entry(id).is_some() => 0,
            None => continue,
        };
        let after = deliveries.unwrap_or(match mode {
            Release::Silent => before.saturating_sub(1),
            Release::Fail => before,
            Release::Fatal => DELIVERIES_MAX,
        });
        ctx.ks.pending_release(db, slot, group, id, after)?;
        if let Some(backoff_ms) = backoff_after(ctx.ks.stream(db, slot)?.group(group), mode, after) {
            let until_ms = (ctx.now_ms().max(0) as u64).saturating_add(backoff_ms);
            ctx.ks.pending_hold(db, slot, group, id, until_ms)?;
        }
        released += 1;
    }
    ctx.reply.integer(released);
    Ok(())
}

/// The time in ms that the group's policy holds an entry back after a failure; `None` if the entry is due at once, by
/// the policy or for any consumer.
fn backoff_after(group: Option<&Group>, mode: Release, deliveries: u64) -> Option<u64> {
    let policy = group?.policy()?;
    let is_due = matches!(mode, Release::Silent) || policy.is_exhausted(deliveries);
    Some(policy.backoff_ms(deliveries)).filter(|backoff_ms| !is_due && *backoff_ms > 0)
}

/// The arguments of the long form of XPENDING.
struct Listing<'a> {
    min_idle_ms: i64,
    interval: Interval,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Listing<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Listing<'a>, Error> {
        if args.len() < 3 || args.len() > 6 {
            return Err(Error::Syntax);
        }
        let mut min_idle_ms = 0;
        if args.flag("idle") {
            min_idle_ms = args.int()?;
            if args.len() < 3 {
                return Err(Error::Syntax);
            }
        }
        let (start, end, count) = (args.bytes()?, args.bytes()?, args.int()?);
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        Ok(Listing { min_idle_ms, interval: Interval::parse(start, end)?, count, consumer: args.bytes().ok() })
    }

    fn run(&self, group: &Group, now_ms: i64, reply: &mut Reply) {
        let Interval { start, end } = self.interval;
        let long_idle = |pending: &Pending<'_>| self.min_idle_ms == 0 || idle_ms(pending, now_ms) >= self.min_idle_ms;
        let mark = reply.begin();
        let mut n = 0;
        let mut emit = |pending: Pending<'_>| {
            n += 1;
            reply.array(4);
            id_reply(reply, pending.id);
            reply.bulk(pending.consumer.unwrap_or_default());
            // A released entry has no consumer and no idle time.
            reply.integer(pending.consumer.map_or(-1, |_| idle_ms(&pending, now_ms).max(0)));
            reply.integer(pending.deliveries as i64);
        };
        match self.consumer {
            None => group.pending_range(start, end).filter(long_idle).take(self.count).for_each(&mut emit),
            Some(name) => {
                let ids = group.consumer(name).into_iter().flat_map(|consumer| consumer.pending_range(start, end));
                ids.filter_map(|id| group.pending(id)).filter(long_idle).take(self.count).for_each(&mut emit);
            }
        }
        reply.end_array(mark, n);
    }
}

/// The delivery count after one more delivery, bounded by the range of a reply.
pub(super) fn once_more(deliveries: u64) -> u64 {
    deliveries.saturating_add(1).min(DELIVERIES_MAX)
}

const DELIVERIES_MAX: u64 = i64::MAX as u64;

fn idle_ms(pending: &Pending<'_>, now_ms: i64) -> i64 {
    now_ms.saturating_sub_unsigned(pending.time_ms)
}

pub(super) fn xpending(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let (key, name) = (args.bytes()?, args.bytes()?);
    let listing = if args.is_empty() { None } else { Some(Listing::parse(&mut args)?) };
    let slot = find_group(ctx.ks, db, key, name)?;
    if let Some(group) = ctx.ks.stream(db, slot)?.group(name) {
        match listing {
            Some(listing) => listing.run(group, now_ms, ctx.reply),
            None => summary(group, ctx.reply),
        }
    }
    Ok(())
}

fn summary(group: &Group, reply: &mut Reply) {
    reply.array(4);
    reply.integer(group.pending_len() as i64);
    let Some((first, last)) = group.pending_edges() else {
        reply.null();
        reply.null();
        return reply.null_array();
    };
    id_reply(reply, first);
    id_reply(reply, last);
    let busy = || group.consumers().filter(|consumer| consumer.pending_len() > 0);
    reply.array(busy().count());
    for consumer in busy() {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_integer(consumer.pending_len() as i64);
    }
}

/// A takeover of entries by a consumer.
struct Claim<'a> {
    slot: Slot,
    group: &'a [u8],
    consumer: &'a [u8],
    min_idle_ms: i64,
    /// The delivery time to set, Unix ms.
    time_ms: u64,
    /// The delivery count to set; `None` counts one delivery more.
    deliveries: Option<u64>,
    /// Reply with ids only, and do not count a delivery.
    justid: bool,
    /// Also take entries that no consumer has pending.
    force: bool,
}

/// The result of a claim for one entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Assigned to the consumer, with this delivery count.
    Taken { deliveries: u64 },
    /// No longer in the stream, so no longer pending either.
    Deleted,
    /// Left unchanged.
    Left,
}

impl Claim<'_> {
    /// Records the consumer's request and creates the consumer if it is new.
    fn begin(&self, ctx: &mut Ctx<'_>) -> Done {
        let (db, now_ms) = (ctx.db(), ctx.now_ms().max(0) as u64);
        ctx.ks.consumer_create(db, self.slot, self.group, self.consumer, now_ms)?;
        ctx.ks.consumer_seen(db, self.slot, self.group, self.consumer, now_ms, false)?;
        Ok(())
    }

    /// Records that the consumer got entries.
    fn end(&self, ctx: &mut Ctx<'_>, taken: usize) -> Done {
        if taken > 0 {
            let now_ms = ctx.now_ms().max(0) as u64;
            ctx.ks.consumer_seen(ctx.db(), self.slot, self.group, self.consumer, now_ms, true)?;
        }
        Ok(())
    }

    fn judge(&self, stream: &Stream, id: StreamId, now_ms: i64) -> Fate {
        let pending = stream.group(self.group).and_then(|group| group.pending(id));
        if stream.entry(id).is_none() {
            return if pending.is_some() { Fate::Deleted } else { Fate::Left };
        }
        let before = match pending {
            None if !self.force => return Fate::Left,
            // As in Redis, which creates a first delivery and then counts this one.
            None => 1,
            Some(pending) if self.min_idle_ms > 0 && idle_ms(&pending, now_ms) < self.min_idle_ms => return Fate::Left,
            Some(pending) => pending.deliveries,
        };
        let deliveries = self.deliveries.unwrap_or(if self.justid { before } else { once_more(before) });
        Fate::Taken { deliveries }
    }

    /// Applies the result, and writes the entry if it was taken.
    fn execute(&self, ctx: &mut Ctx<'_>, id: StreamId, fate: Fate) -> Done {
        let db = ctx.db();
        match fate {
            Fate::Left => {}
            Fate::Deleted => {
                ctx.ks.pending_ack(db, self.slot, self.group, id)?;
            }
            Fate::Taken { deliveries } => {
                match ctx.ks.stream(db, self.slot)?.entry(id) {
                    Some(entry) if !self.justid => entry_reply(ctx.reply, &entry),
                    _ => id_reply(ctx.reply, id),
                }
                ctx.ks.pending_set(db, self.slot, (self.group, self.consumer), id, self.time_ms, deliveries)?;
            }
        }
        Ok(())
    }
}

pub(super) fn xclaim(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let (key, group, consumer) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let slot = find_group(ctx.ks, db, key, group)?;
    let min_idle_ms = args.int_or(Error::text("ERR Invalid min-idle-time argument for XCLAIM"))?.max(0);
    let mut ids = Vec::new();
    while let Some(id) = args.peek().and_then(|id| StreamId::parse(id, 0)) {
        ids.push(id);
        args.bytes()?;
    }
    let time_ms = now_ms.max(0) as u64;
    let mut claim =
        Claim { slot, group, consumer, min_idle_ms, time_ms, deliveries: None, justid: false, force: false };
    let last_id = xclaim_options(&mut args, &mut claim, now_ms)?;
    admit_pending_effects(ctx, ids.len(), group.len() + consumer.len())?;
    let current = ctx.ks.stream(db, slot)?.group(group).map(|group| (group.last_delivered(), group.entries_read()));
    if let Some((last_delivered, entries_read)) = current
        && last_id > last_delivered
    {
        ctx.ks.group_set_id(db, slot, group, last_id, entries_read)?;
    }
    claim.begin(ctx)?;
    let mark = ctx.reply.begin();
    let mut taken = 0;
    for id in ids {
        // A call may repeat an id without end.
        if ctx.reply.is_long() {
            break;
        }
        let fate = claim.judge(ctx.ks.stream(db, slot)?, id, now_ms);
        taken += usize::from(matches!(fate, Fate::Taken { .. }));
        claim.execute(ctx, id, fate)?;
    }
    ctx.reply.end_array(mark, taken);
    // An entry claimed as idle for long may become due earlier than waiting calls expect.
    if taken > 0 && ctx.ks.stream(db, slot)?.group(group).is_some_and(|group| group.policy().is_some()) {
        ctx.wake_waiting(key);
    }
    claim.end(ctx, taken)
}

/// Takes the options of XCLAIM and returns LASTID, by default `0-0`.
fn xclaim_options(args: &mut Args<'_>, claim: &mut Claim<'_>, now_ms: i64) -> Result<StreamId, Error> {
    // A negative or future time becomes the current time.
    let sane = |time_ms: i64| if (0..=now_ms).contains(&time_ms) { time_ms as u64 } else { now_ms.max(0) as u64 };
    let mut last_id = StreamId::MIN;
    while !args.is_empty() {
        if args.flag("force") {
            claim.force = true;
        } else if args.flag("justid") {
            claim.justid = true;
        } else if args.option("idle", 1) {
            let idle = args.int_or(Error::text("ERR Invalid IDLE option argument for XCLAIM"))?;
            claim.time_ms = sane(now_ms.saturating_sub(idle));
        } else if args.option("time", 1) {
            claim.time_ms = sane(args.int_or(Error::text("ERR Invalid TIME option argument for XCLAIM"))?);
        } else if args.option("retrycount", 1) {
            let count = args.int_or(Error::text("ERR Invalid RETRYCOUNT option argument for XCLAIM"))?;
            claim.deliveries = u64::try_from(count).ok();
        } else if args.option("lastid", 1) {
            last_id = StreamId::parse(args.bytes()?, 0).ok_or(ID_INVALID)?;
        } else {
            let option = excerpt(args.bytes()?, 128);
            return Err(Error::owned(format!("ERR Unrecognized XCLAIM option '{option}'")));
        }
    }
    Ok(last_id)
}

/// The number of pending entries that XAUTOCLAIM looks at for each one it may return.
const ATTEMPTS_PER_ENTRY: usize = 10;

pub(super) fn xautoclaim(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let (key, group, consumer) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let min_idle_ms = args.int_or(Error::text("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?.max(0);
    let start = interval_start(args.bytes()?)?;
    let (mut count, mut justid) = (100, false);
    while !args.is_empty() {
        if args.option("count", 1) {
            let wrong = Error::text("ERR COUNT must be > 0");
            let most = i64::MAX / 16;
            count = args.int_or(wrong.clone())?;
            if !(1..=most).contains(&count) {
                return Err(wrong);
            }
        } else if args.flag("justid") {
            justid = true;
        } else {
            return Err(Error::Syntax);
        }
    }
    let slot = find_group(ctx.ks, db, key, group)?;
    let time_ms = now_ms.max(0) as u64;
    let claim = Claim { slot, group, consumer, min_idle_ms, time_ms, deliveries: None, justid, force: false };
    claim.begin(ctx)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let plan = AutoPlan::new(ctx, &claim, start, count)?;
    plan.execute(ctx, &claim)
}

/// The outcome of XAUTOCLAIM, computed in advance because the reply begins with the next position.
struct AutoPlan {
    fates: Vec<(StreamId, Fate)>,
    taken: usize,
    /// The start of the next call; `0-0` after the last entry.
    next: StreamId,
}

impl AutoPlan {
    fn new(ctx: &Ctx<'_>, claim: &Claim<'_>, start: StreamId, count: usize) -> Result<AutoPlan, Error> {
        let stream = ctx.ks.stream(ctx.db(), claim.slot)?;
        let mut plan = AutoPlan { fates: Vec::new(), taken: 0, next: StreamId::MIN };
        let count = count.min(pending_effects_left(ctx, claim.group.len() + claim.consumer.len()));
        let looks = count.saturating_mul(ATTEMPTS_PER_ENTRY);
        let pending = stream.group(claim.group).into_iter().flat_map(|group| group.pending_range(start, StreamId::MAX));
        let mut bytes = 0;
        for (look, entry) in pending.enumerate() {
            if look == looks || plan.fates.len() == count || bytes > REPLY_MAX_BYTES {
                plan.next = entry.id;
                break;
            }
            let fate = claim.judge(stream, entry.id, ctx.now_ms());
            if matches!(fate, Fate::Taken { .. }) && !claim.justid {
                let pairs = stream.entry(entry.id).into_iter().flat_map(|entry| entry.pairs);
                bytes += pairs.map(|(field, value)| field.len() + value.len()).sum::<usize>();
            }
            if fate != Fate::Left {
                plan.taken += usize::from(fate != Fate::Deleted);
                plan.fates.push((entry.id, fate));
            }
        }
        Ok(plan)
    }

    /// Writes the next start, the entries taken over, and the ids of deleted entries.
    fn execute(self, ctx: &mut Ctx<'_>, claim: &Claim<'_>) -> Done {
        ctx.reply.array(3);
        id_reply(ctx.reply, self.next);
        ctx.reply.array(self.taken);
        for &(id, fate) in &self.fates {
            claim.execute(ctx, id, fate)?;
        }
        ctx.reply.array(self.fates.len() - self.taken);
        let deleted = self.fates.iter().filter(|(_, fate)| *fate == Fate::Deleted);
        deleted.for_each(|(id, _)| id_reply(ctx.reply, *id));
        claim.end(ctx, self.taken)
    }
}
