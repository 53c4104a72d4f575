//! XINFO: the inner state of a stream, its groups and their consumers.

use super::common::{entry_reply, find, id_reply, no_group, wrong_subcommand};
use super::{delay, policy, request};
use crate::config::EventClasses;
use crate::engine::{Ctx, Done};
use crate::keyspace::Slot;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stream::{Consumer, Group, Stream, StreamId};

/// Entries of each list in XINFO STREAM FULL by default.
const FULL_COUNT: usize = 10;

/// Finds a key without using it: XINFO counts as neither hit nor miss.
fn existing(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Slot, Error> {
    let db = ctx.db();
    let slot = find(ctx.ks, db, key)?;
    if slot.is_none() {
        ctx.ks.note_event(EventClasses::MISS, "keymiss", db, key);
    }
    slot.ok_or(Error::NoSuchKey)
}

pub(super) fn xinfo_stream(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let slot = existing(ctx, args.bytes()?)?;
    let full = match args.len() {
        0 => None,
        1 | 3 if args.flag("full") => Some(FULL_COUNT),
        _ => return Err(wrong_subcommand(&args)),
    };
    let full = match (full, args.is_empty()) {
        (Some(_), false) => {
            if !args.flag("count") {
                return Err(wrong_subcommand(&args));
            }
            Some(match args.int()? {
                0 => usize::MAX,
                ..0 => FULL_COUNT,
                count => usize::try_from(count).unwrap_or(usize::MAX),
            })
        }
        (full, _) => full,
    };
    let view = View { now_ms: ctx.now_ms().max(0) as u64, defaults: request::defaults(ctx) };
    let stream = ctx.ks.stream(ctx.db(), slot)?;
    match full {
        None => overview(stream, &view, ctx.reply),
        Some(count) => full_view(stream, &view, count, ctx.reply),
    }
    Ok(())
}

fn field(reply: &mut Reply, name: &str) {
    reply.bulk(name.as_bytes());
}

fn number(reply: &mut Reply, name: &str, value: u64) {
    field(reply, name);
    reply.integer(i64::try_from(value).unwrap_or(i64::MAX));
}

fn id(reply: &mut Reply, name: &str, id: StreamId) {
    field(reply, name);
    id_reply(reply, id);
}

/// Writes a count that may be unknown.
fn maybe(reply: &mut Reply, name: &str, value: Option<u64>) {
    match value {
        Some(value) => number(reply, name, value),
        None => {
            field(reply, name);
            reply.null();
        }
    }
}

/// The parameters of both views of a stream.
struct View {
    now_ms: u64,
    /// The limits of idempotent production for a stream without limits of its own.
    defaults: (u32, u32),
}

/// Writes the fields that both views of a stream begin with.
fn head(stream: &Stream, view: &View, reply: &mut Reply) {
    number(reply, "length", stream.len());
    // Redis keeps nodes in a radix tree. Ours are in a B-tree, which has about as many inner nodes as a radix tree of
    // short keys.
    number(reply, "radix-tree-keys", stream.node_count() as u64);
    number(reply, "radix-tree-nodes", stream.node_count() as u64 + 1);
    id(reply, "last-generated-id", stream.last_id());
    id(reply, "max-deleted-entry-id", stream.max_deleted_id());
    number(reply, "entries-added", stream.entries_added());
    id(reply, "recorded-first-entry-id", stream.first_id());
    let known = stream.idempotency();
    let (duration_s, max_iids) = known.map_or(view.defaults, |known| (known.duration_s, known.max_iids));
    let (producers, requests) = known.map_or((0, 0), |known| known.tracked(view.now_ms));
    number(reply, "idmp-duration", duration_s.into());
    number(reply, "idmp-maxsize", max_iids.into());
    number(reply, "pids-tracked", producers as u64);
    number(reply, "iids-tracked", requests as u64);
    number(reply, "iids-added", known.map_or(0, |known| known.added()));
    number(reply, "iids-duplicates", known.map_or(0, |known| known.duplicates()));
}

/// The number of these fields.
const HEAD: usize = 13;

fn overview(stream: &Stream, view: &View, reply: &mut Reply) {
    reply.map(HEAD + 3 + delay::fields(stream));
    head(stream, view, reply);
    number(reply, "groups", stream.groups().len() as u64);
    for (name, entry) in [("first-entry", stream.first()), ("last-entry", stream.last())] {
        field(reply, name);
        match entry {
            Some(entry) => entry_reply(reply, &entry),
            None => reply.null(),
        }
    }
    delay::answer(stream, reply);
}

fn full_view(stream: &Stream, view: &View, count: usize, reply: &mut Reply) {
    reply.map(HEAD + 2 + delay::fields(stream));
    head(stream, view, reply);
    field(reply, "entries");
    reply.array(usize::try_from(stream.len()).unwrap_or(usize::MAX).min(count));
    stream.range(StreamId::MIN, StreamId::MAX).take(count).for_each(|entry| entry_reply(reply, &entry));
    field(reply, "groups");
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        full_group(stream, name, group, count, reply);
    }
    delay::answer(stream, reply);
}

fn full_group(stream: &Stream, name: &[u8], group: &Group, count: usize, reply: &mut Reply) {
    reply.map(8 + policy::fields(group));
    field(reply, "name");
    reply.bulk(name);
    id(reply, "last-delivered-id", group.last_delivered());
    maybe(reply, "entries-read", group.entries_read());
    maybe(reply, "lag", stream.lag(group));
    number(reply, "pel-count", group.pending_len() as u64);
    field(reply, "pending");
    reply.array(group.pending_len().min(count));
    for pending in group.pending_range(StreamId::MIN, StreamId::MAX).take(count) {
        reply.array(4);
        id_reply(reply, pending.id);
        reply.bulk(pending.consumer.unwrap_or_default());
        reply.integer(pending.time_ms as i64);
        reply.integer(pending.deliveries as i64);
    }
    field(reply, "consumers");
    reply.array(group.consumers().len());
    for consumer in group.consumers() {
        full_consumer(group, consumer, count, reply);
    }
    number(reply, "nacked-count", group.released_len() as u64);
    policy::answer(group, reply);
}

fn full_consumer(group: &Group, consumer: &Consumer, count: usize, reply: &mut Reply) {
    reply.map(5);
    field(reply, "name");
    reply.bulk(consumer.name());
    number(reply, "seen-time", consumer.seen_ms());
    field(reply, "active-time");
    reply.integer(consumer.active_ms().map_or(-1, |at_ms| at_ms as i64));
    number(reply, "pel-count", consumer.pending_len() as u64);
    field(reply, "pending");
    reply.array(consumer.pending_len().min(count));
    let ids = consumer.pending_range(StreamId::MIN, StreamId::MAX);
    for pending in ids.filter_map(|id| group.pending(id)).take(count) {
        reply.array(3);
        id_reply(reply, pending.id);
        reply.integer(pending.time_ms as i64);
        reply.integer(pending.deliveries as i64);
    }
}

pub(super) fn xinfo_groups(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let slot = existing(ctx, args.bytes()?)?;
    let stream = ctx.ks.stream(ctx.db(), slot)?;
    let reply = &mut *ctx.reply;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(6 + policy::fields(group));
        field(reply, "name");
        reply.bulk(name);
        number(reply, "consumers", group.consumers().len() as u64);
        number(reply, "pending", group.pending_len() as u64);
        id(reply, "last-delivered-id", group.last_delivered());
        maybe(reply, "entries-read", group.entries_read());
        maybe(reply, "lag", stream.lag(group));
        policy::answer(group, reply);
    }
    Ok(())
}

pub(super) fn xinfo_consumers(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, name) = (args.bytes()?, args.bytes()?);
    let slot = existing(ctx, key)?;
    let now_ms = ctx.now_ms();
    let group = ctx.ks.stream(ctx.db(), slot)?.group(name).ok_or_else(|| no_group(key, name))?;
    let reply = &mut *ctx.reply;
    reply.array(group.consumers().len());
    for consumer in group.consumers() {
        let since = |at_ms: u64| now_ms.saturating_sub_unsigned(at_ms).max(0);
        reply.map(4);
        field(reply, "name");
        reply.bulk(consumer.name());
        number(reply, "pending", consumer.pending_len() as u64);
        field(reply, "idle");
        reply.integer(since(consumer.seen_ms()));
        field(reply, "inactive");
        reply.integer(consumer.active_ms().map_or(-1, since));
    }
    Ok(())
}
