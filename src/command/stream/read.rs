//! XREAD and XREADGROUP: reading many streams at once, and waiting for new entries.
//!
//! A waiting call is dispatched again with `$` and `+` replaced by the ids they meant at first: looking them up again
//! would skip the entry that woke the call.

use std::collections::HashSet;

use super::common::{ID_INVALID, entry_parts, entry_reply, id_reply, pending_effects_left, read};
use super::pending::once_more;
use crate::command::limits::READ_DELETED_MAX;
use crate::engine::{Ctx, Flow, MayWait};
use crate::keyspace::Slot;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::entry::Entry;
use crate::resp::limits::REPLY_MAX_BYTES;
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, OwnedArgv};
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::value::stream::{Stream, StreamId};
use crate::wait::{Wait, Want, deadline_after_ms};

/// The start of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Entries after this id. For a group: the consumer's pending entries after this id.
    After(StreamId),
    /// Entries that no consumer of the group was given.
    Undelivered,
}

/// The arguments of a call.
struct Request<'a> {
    /// The group and the consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    /// The most entries of each stream.
    count: usize,
    /// The most entries of all streams together.
    max_count: usize,
    /// The length of the reply in bytes after which no further entry is added.
    max_bytes: usize,
    /// `Some` if the call may wait, with its deadline.
    block: Option<Option<i64>>,
    noack: bool,
    /// Take over entries that have been pending for this many ms.
    claim: Option<u64>,
    keys: Argv<'a>,
    ids: Argv<'a>,
    /// The index of the first id in the whole command.
    ids_at: usize,
}

impl<'a> Request<'a> {
    fn parse(args: &mut Args<'a>, now_ms: i64, for_group: bool) -> Result<Request<'a>, Error> {
        let (mut group, mut count, mut block, mut noack, mut claim) = (None, usize::MAX, None, false, None);
        let (mut max_count, mut max_bytes) = (usize::MAX, usize::MAX);
        let only_groups = |option: &str| {
            Error::owned(format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."))
        };
        loop {
            if args.option("block", 1) {
                block = Some(deadline_after_ms(args.bytes()?, now_ms)?);
            } else if args.option("count", 1) {
                count = match args.int()? {
                    ..=0 => usize::MAX,
                    count => usize::try_from(count).unwrap_or(usize::MAX),
                };
            } else if args.option("maxcount", 1) {
                max_count = positive(args, "ERR MAXCOUNT must be a positive integer")?;
            } else if args.option("maxsize", 1) {
                max_bytes = positive(args, "ERR MAXSIZE must be a positive integer")?;
            } else if args.option("streams", 1) {
                break;
            } else if args.option("group", 2) {
                if !for_group {
                    return Err(only_groups("GROUP"));
                }
                group = Some((args.bytes()?, args.bytes()?));
            } else if args.flag("noack") {
                if !for_group {
                    return Err(only_groups("NOACK"));
                }
                noack = true;
            } else if args.option("claim", 1) {
                if !for_group {
                    return Err(only_groups("CLAIM"));
                }
                let idle_ms = args.int_or(Error::text("ERR min-idle-time is not an integer or out of range"))?;
                let wrong = Error::text("ERR min-idle-time must be a positive integer");
                claim = Some(u64::try_from(idle_ms).map_err(|_| wrong)?);
            } else {
                return Err(Error::Syntax);
            }
        }
        if args.len() % 2 == 1 {
            return Err(Error::text(match for_group {
                false => {
                    "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
                }
                true => {
                    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
                }
            }));
        }
        if for_group && group.is_none() {
            return Err(Error::text("ERR Missing GROUP option for XREADGROUP"));
        }
        if count < usize::MAX && max_count < count {
            return Err(Error::text("ERR MAXCOUNT must be greater than or equal to COUNT"));
        }
        let streams = args.len() / 2;
        let keys = args.take(streams)?;
        let ids_at = args.position();
        let ids = args.take(streams)?;
        Ok(Request { group, count, max_count, max_bytes, block, noack, claim, keys, ids, ids_at })
    }

    /// The wait of a call that found nothing; `None` if it may not wait.
    fn wait(&self, ctx: &Ctx<'_>) -> Option<Wait> {
        let deadline_ms = self.block?;
        let want = if self.group.is_some() { Want::Group } else { Want::Stream };
        ctx.may_wait().then(|| Wait::new(want, self.keys.iter(), deadline_ms, Reply::null_array))
    }

    /// The time in Unix ms at which there may be an entry without an append: a delayed message becomes an entry or, for
    /// a group, a pending entry may be taken over by this call or by the group's policy.
    ///
    /// Unlike a lookup, this releases no delayed message: the call is not waiting yet, so the release could not wake
    /// it. A message that is already due and still held back wakes waiting calls when it is released later.
    fn next_due_ms(&self, ctx: &Ctx<'_>) -> Option<i64> {
        let (db, now_ms) = (ctx.db(), ctx.now_ms());
        let mut next: Option<i64> = None;
        for key in self.keys.iter() {
            let Some(ValueRef::Stream(stream)) = ctx.ks.live(db, key).map(Entry::value) else { continue };
            let delayed_ms = stream.release_ms().filter(|at_ms| *at_ms > now_ms);
            next = next.into_iter().chain(delayed_ms).min();
            let Some(group) = self.group.and_then(|(group, _)| stream.group(group)) else { continue };
            let idle_ms = self.claim.and_then(|idle_ms| Some(group.oldest_delivery_ms()?.saturating_add(idle_ms)));
            let times = [idle_ms, group.first_due_ms()].into_iter().flatten();
            next = next.into_iter().chain(times.map(|at_ms| i64::try_from(at_ms).unwrap_or(i64::MAX))).min();
        }
        next.map(|at_ms| at_ms.max(now_ms.saturating_add(1)))
    }
}

/// Takes a number above 0.
fn positive(args: &mut Args<'_>, wrong: &'static str) -> Result<usize, Error> {
    match args.int()? {
        ..=0 => Err(Error::text(wrong)),
        n => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
    }
}

/// The entries and bytes left to a call (MAXCOUNT, MAXSIZE). One entry is always allowed, so that a reader makes
/// progress.
struct Budget {
    entries: usize,
    /// The length of the reply at which the budget is spent.
    end: usize,
    is_begun: bool,
}

impl Budget {
    fn new(request: &Request<'_>, reply: &Reply) -> Budget {
        Budget { entries: request.max_count, end: reply.len().saturating_add(request.max_bytes), is_begun: false }
    }

    /// Whether no further entry may be added.
    fn is_spent(&self, reply: &Reply) -> bool {
        self.entries == 0 || (self.is_begun && reply.len() >= self.end)
    }

    /// Counts one more entry.
    fn spend(&mut self) {
        self.entries = self.entries.saturating_sub(1);
        self.is_begun = true;
    }
}

pub(super) fn xread(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let request = Request::parse(&mut args, ctx.now_ms(), false)?;
    let mut starts = Vec::with_capacity(request.keys.len());
    for (key, id) in request.keys.iter().zip(request.ids.iter()) {
        starts.push(start(read(ctx.ks, ctx.session.db, key)?, id)?);
    }
    let mut budget = Budget::new(&request, ctx.reply);
    let mut streams = Streams::begin(ctx.reply);
    for (key, &start) in request.keys.iter().zip(&starts) {
        if budget.is_spent(ctx.reply) {
            break;
        }
        let Some(stream) = read(ctx.ks, ctx.session.db, key)? else { continue };
        let Some(first) = start.next().filter(|_| stream.last_id() > start) else { continue };
        let mut entries = stream.range(first, StreamId::MAX).take(request.count).peekable();
        // All entries after the id may have been deleted.
        if entries.peek().is_none() {
            continue;
        }
        streams.name(ctx.reply, key);
        let mark = ctx.reply.begin();
        let mut n = 0;
        for entry in entries {
            if ctx.reply.is_long() || n > 0 && budget.is_spent(ctx.reply) {
                break;
            }
            entry_reply(ctx.reply, &entry);
            budget.spend();
            n += 1;
        }
        ctx.reply.end_array(mark, n);
    }
    if streams.end(ctx.reply) {
        return Ok(Flow::Replied);
    }
    match request.wait(ctx) {
        Some(wait) => {
            let again = resolved(args.argv(), request.ids_at, &starts);
            let retry_at_ms = request.next_due_ms(ctx);
            Ok(Flow::wait(Wait { again: Some(again), retry_at_ms, ..wait }))
        }
        None => {
            ctx.reply.null_array();
            Ok(Flow::Replied)
        }
    }
}

/// The id after which XREAD begins.
fn start(stream: Option<&Stream>, id: &[u8]) -> Result<StreamId, Error> {
    match id {
        b"$" => Ok(stream.map_or(StreamId::MIN, Stream::last_id)),
        b"+" => Ok(stream.and_then(Stream::last).and_then(|last| last.id.prev()).unwrap_or(StreamId::MIN)),
        b">" => Err(Error::text(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        )),
        id => StreamId::parse(id, 0).ok_or(ID_INVALID),
    }
}

/// Returns the command with its ids replaced.
fn resolved(argv: Argv<'_>, ids_at: usize, ids: &[StreamId]) -> OwnedArgv {
    let mut again = OwnedArgv::default();
    argv.iter().take(ids_at).for_each(|arg| again.push(arg));
    ids.iter().for_each(|id| again.push(id.to_text().as_bytes()));
    again
}

pub(super) fn xreadgroup(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let request = Request::parse(&mut args, ctx.now_ms(), true)?;
    let Some((group, consumer)) = request.group else { return Err(Error::Syntax) };
    let db = ctx.db();
    let mut sources = Vec::with_capacity(request.keys.len());
    for (key, id) in request.keys.iter().zip(request.ids.iter()) {
        let slot = group_at(ctx, key, group)?;
        sources.push((key, slot, group_start(id)?));
    }
    let mut budget = Budget::new(&request, ctx.reply);
    let mut streams = Streams::begin(ctx.reply);
    for (key, slot, from) in sources {
        // A call may name the same stream any number of times.
        if ctx.reply.is_long() || budget.is_spent(ctx.reply) {
            break;
        }
        let now_ms = ctx.now_ms().max(0) as u64;
        ctx.ks.consumer_create(db, slot, group, consumer, now_ms)?;
        // Recorded when the call arrives, not each time it is retried.
        if !ctx.is_retry() {
            ctx.ks.consumer_seen(db, slot, group, consumer, now_ms, false)?;
        }
        let delivery = Delivery { slot, group, consumer, count: request.count.min(budget.entries), now_ms };
        if let From::After(id) = from {
            streams.name(ctx.reply, key);
            delivery.repeat(ctx, id, &mut budget)?;
            continue;
        }
        let idle = delivery.take_idle(ctx, request.claim)?;
        if !idle.is_empty() || delivery.has_news(ctx)? {
            streams.name(ctx.reply, key);
            delivery.deliver(ctx, &idle, &request, &mut budget)?;
        }
    }
    if streams.end(ctx.reply) {
        return Ok(Flow::Replied);
    }
    match request.wait(ctx) {
        Some(wait) => {
            let retry_at_ms = request.next_due_ms(ctx);
            Ok(Flow::wait(Wait { retry_at_ms, ..wait }))
        }
        None => {
            ctx.reply.null_array();
            Ok(Flow::Replied)
        }
    }
}

/// Returns the slot of the stream that has this group.
fn group_at(ctx: &mut Ctx<'_>, key: &[u8], group: &[u8]) -> Result<Slot, Error> {
    let db = ctx.db();
    if let Some(slot) = ctx.ks.look_up(db, key)
        && ctx.ks.stream(db, slot)?.group(group).is_some()
    {
        return Ok(slot);
    }
    Err(Error::owned(format!(
        "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
        excerpt(key, 128),
        excerpt(group, 128)
    )))
}

fn group_start(id: &[u8]) -> Result<From, Error> {
    match id {
        b">" => Ok(From::Undelivered),
        b"$" | b"+" => {
            let id = if id == b"$" { '$' } else { '+' };
            Err(Error::owned(format!(
                "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just \
                 return \
                 an empty result set."
            )))
        }
        // Nothing can be pending after the highest id, so Redis treats it like `>`.
        id => match StreamId::parse(id, 0).ok_or(ID_INVALID)? {
            StreamId::MAX => Ok(From::Undelivered),
            id => Ok(From::After(id)),
        },
    }
}

/// A pending entry that is taken over.
struct Idle {
    id: StreamId,
    since_ms: u64,
    deliveries: u64,
}

/// The delivery of entries of one stream to one consumer.
struct Delivery<'a> {
    slot: Slot,
    group: &'a [u8],
    consumer: &'a [u8],
    count: usize,
    now_ms: u64,
}

impl Delivery<'_> {
    /// Whether there are entries that no consumer was given.
    fn has_news(&self, ctx: &Ctx<'_>) -> Result<bool, Error> {
        let stream = ctx.ks.stream(ctx.db(), self.slot)?;
        let last = stream.last().map_or(StreamId::MIN, |entry| entry.id);
        Ok(stream.group(self.group).is_some_and(|group| group.last_delivered() < last))
    }

    /// Returns the pending entries to take over, as many as the reply may have. First come those due by the group's
    /// policy, the longest due first, then those idle for `idle_ms`, if the call has CLAIM, the longest idle first.
    /// Deleted entries are removed from the pending ones on the way. If there are [more](READ_DELETED_MAX) of these,
    /// the next call continues; a waiting call is dispatched again at once, because more is due.
    fn take_idle(&self, ctx: &mut Ctx<'_>, idle_ms: Option<u64>) -> Result<Vec<Idle>, Error> {
        let db = ctx.db();
        let stream = ctx.ks.stream(db, self.slot)?;
        let Some(group) = stream.group(self.group).filter(|group| idle_ms.is_some() || group.policy().is_some()) else {
            return Ok(Vec::new());
        };
        let (mut idle, mut deleted) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        let most = self.effects_left(ctx);
        // Most entries that are due are idle as well.
        let mut met = HashSet::new();
        let may_repeat = idle_ms.is_some() && group.policy().is_some();
        let since = idle_ms.map(|idle_ms| group.delivered_until(self.now_ms.checked_sub(idle_ms)));
        for pending in group.due_until(self.now_ms).chain(since.into_iter().flatten()) {
            if may_repeat && !met.insert(pending.id) {
                continue;
            }
            let is_enough = idle.len() == self.count || bytes > REPLY_MAX_BYTES || deleted.len() == READ_DELETED_MAX;
            if is_enough || idle.len() + deleted.len() >= most {
                break;
            }
            match stream.entry(pending.id) {
                Some(entry) => {
                    bytes += entry.pairs.map(|(field, value)| field.len() + value.len()).sum::<usize>();
                    idle.push(Idle { id: pending.id, since_ms: pending.time_ms, deliveries: pending.deliveries })
                }
                None => deleted.push(pending.id),
            }
        }
        for id in deleted {
            ctx.ks.pending_ack(db, self.slot, self.group, id)?;
        }
        Ok(idle)
    }

    /// Writes the entries taken over, then entries that no consumer was given. All become pending unless the request
    /// has NOACK. With CLAIM each comes with its idle time and its number of earlier deliveries.
    fn deliver(
        &self,
        ctx: &mut Ctx<'_>,
        idle: &[Idle],
        request: &Request<'_>,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        let db = ctx.db();
        let stream = ctx.ks.stream(db, self.slot)?;
        let Some(group) = stream.group(self.group) else { return Ok(()) };
        let (mut last, mut entries_read) = (group.last_delivered(), group.entries_read());
        let mut new = Vec::new();
        let mark = ctx.reply.begin();
        let mut answered = 0;
        for taken in idle {
            if answered > 0 && budget.is_spent(ctx.reply) {
                break;
            }
            let Some(entry) = stream.entry(taken.id) else { break };
            budget.spend();
            answered += 1;
            if request.claim.is_none() {
                entry_reply(ctx.reply, &entry);
                continue;
            }
            ctx.reply.array(4);
            entry_parts(ctx.reply, &entry);
            ctx.reply.integer(self.now_ms.saturating_sub(taken.since_ms) as i64);
            ctx.reply.integer(taken.deliveries as i64);
        }
        let idle = &idle[..answered];
        if let Some(first) = last.next() {
            let mut count = stream.read_counter(last, entries_read);
            let most = self.count.min(self.effects_left(ctx)).saturating_sub(idle.len());
            for entry in stream.range(first, StreamId::MAX).take(most) {
                if ctx.reply.is_long() || answered > 0 && budget.is_spent(ctx.reply) {
                    break;
                }
                budget.spend();
                answered += 1;
                entries_read = count(entry.id);
                last = entry.id;
                new.push(entry.id);
                if request.claim.is_none() {
                    entry_reply(ctx.reply, &entry);
                    continue;
                }
                ctx.reply.array(4);
                entry_parts(ctx.reply, &entry);
                ctx.reply.integer(0);
                ctx.reply.integer(0);
            }
        }
        ctx.reply.end_array(mark, idle.len() + new.len());
        for taken in idle {
            match request.noack && request.claim.is_none() {
                // With NOACK nothing stays pending for the consumer.
                true => _ = ctx.ks.pending_ack(db, self.slot, self.group, taken.id)?,
                false => self.give(ctx, taken.id, once_more(taken.deliveries))?,
            }
        }
        if !new.is_empty() {
            ctx.ks.group_set_id(db, self.slot, self.group, last, entries_read)?;
        }
        if request.noack {
            new.clear();
        }
        for &id in &new {
            self.give(ctx, id, 1)?;
        }
        if idle.len() + new.len() > 0 {
            ctx.ks.consumer_seen(db, self.slot, self.group, self.consumer, self.now_ms, true)?;
        }
        Ok(())
    }

    /// The number of deliveries to the consumer that still fit the journal's current unit.
    fn effects_left(&self, ctx: &Ctx<'_>) -> usize {
        pending_effects_left(ctx, self.group.len() + self.consumer.len())
    }

    /// Makes an entry pending for the consumer.
    fn give(&self, ctx: &mut Ctx<'_>, id: StreamId, deliveries: u64) -> Result<(), Error> {
        let (to, before) = ((self.group, self.consumer), ctx.ks.changes_by_commands());
        ctx.ks.pending_set(ctx.db(), self.slot, to, id, self.now_ms, deliveries)?;
        // Only the move of the group's position counts as a change, not the record of each entry.
        ctx.ks.count_changes_as(before, 0);
        Ok(())
    }

    /// Writes the consumer's pending entries after `after` again; deleted ones as an id without fields.
    fn repeat(&self, ctx: &mut Ctx<'_>, after: StreamId, budget: &mut Budget) -> Result<(), Error> {
        let db = ctx.db();
        let stream = ctx.ks.stream(db, self.slot)?;
        let consumer = stream.group(self.group).and_then(|group| group.consumer(self.consumer));
        let ids: Vec<StreamId> = match (consumer, after.next()) {
            (Some(consumer), Some(first)) => consumer.pending_range(first, StreamId::MAX).take(self.count).collect(),
            _ => Vec::new(),
        };
        let mark = ctx.reply.begin();
        let mut n = 0;
        for id in ids {
            if ctx.reply.is_long() || n > 0 && budget.is_spent(ctx.reply) {
                break;
            }
            budget.spend();
            n += 1;
            let stream = ctx.ks.stream(db, self.slot)?;
            let Some(entry) = stream.entry(id) else {
                ctx.reply.array(2);
                id_reply(ctx.reply, id);
                ctx.reply.null_array();
                continue;
            };
            entry_reply(ctx.reply, &entry);
            let deliveries = stream.group(self.group).and_then(|group| group.pending(id)).map_or(0, |p| p.deliveries);
            self.give(ctx, id, once_more(deliveries))?;
        }
        ctx.reply.end_array(mark, n);
        Ok(())
    }
}

/// The outer level of the reply: the streams that have entries, by name.
struct Streams {
    mark: crate::resp::reply::Mark,
    n: usize,
}

impl Streams {
    fn begin(reply: &mut Reply) -> Streams {
        Streams { mark: reply.begin(), n: 0 }
    }

    /// Begins a stream, whose entries are written next.
    fn name(&mut self, reply: &mut Reply, key: &[u8]) {
        self.n += 1;
        if !reply.is_resp3() {
            reply.array(2);
        }
        reply.bulk(key);
    }

    /// Ends the reply; false, without a reply, if there was no stream.
    fn end(self, reply: &mut Reply) -> bool {
        if self.n == 0 {
            return false;
        }
        if reply.is_resp3() {
            reply.end_map(self.mark, self.n);
        } else {
            reply.end_array(self.mark, self.n);
        }
        true
    }
}
