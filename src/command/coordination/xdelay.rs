//! XDELAY: lists and cancels the messages that XADD delays in a stream. `docs/coordination/queues.md` describes the
//! family.

use super::error::QueueError;
use crate::command::help::family;
use crate::command::limits::{DELAYED_COUNT, DELAYED_LIST_MAX_BYTES, DELAYED_MAX_COUNT, PENDING_EFFECT_BYTES};
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::stream::StreamId;

const ID_INVALID: Error = Error::text("ERR Invalid stream ID specified as stream command argument");

/// XDELAY.LIST: lists delayed messages from an ID on, the first due first. A message that is delayed from the first
/// call to the last is listed exactly once.
fn list(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let (mut start, mut count) = (StreamId::MIN, DELAYED_COUNT);
    while !args.is_empty() {
        if args.option("start", 1) {
            start = StreamId::parse(args.bytes()?, 0).ok_or(ID_INVALID)?;
        } else if args.option("count", 1) {
            let wanted = usize::try_from(args.int()?).ok().filter(|count| (1..=DELAYED_MAX_COUNT).contains(count));
            count = wanted.ok_or(QueueError::Count)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let (db, now_ms) = (ctx.db(), ctx.now_ms().max(0) as u64);
    let slot = ctx.ks.look_up(db, key);
    let stream = slot.map(|slot| ctx.ks.stream(db, slot)).transpose()?;
    let mut messages = stream.into_iter().flat_map(|stream| stream.delayed_from(start)).peekable();
    let (mut page, mut bytes) = (Vec::new(), 0);
    while page.len() < count
        && bytes < DELAYED_LIST_MAX_BYTES
        && let Some(message) = messages.next()
    {
        bytes += message.pairs.clone().map(|(field, value)| field.len() + value.len()).sum::<usize>();
        page.push(message);
    }
    let next = messages.peek().map_or(StreamId::MIN, |message| message.id);
    ctx.reply.array(2);
    ctx.reply.bulk(next.to_text().as_bytes());
    ctx.reply.array(page.len());
    for message in page {
        ctx.reply.map(3);
        ctx.reply.bulk(b"id");
        ctx.reply.bulk(message.id.to_text().as_bytes());
        ctx.reply.bulk(b"delay-ms");
        ctx.reply.integer(i64::try_from(message.id.ms.saturating_sub(now_ms)).unwrap_or(i64::MAX));
        ctx.reply.bulk(b"fields");
        ctx.reply.array(message.pairs.len() * 2);
        message.pairs.flat_map(|(field, value)| [field, value]).for_each(|text| ctx.reply.bulk(text));
    }
    Ok(())
}

/// XDELAY.CANCEL: cancels messages that are not due yet.
fn cancel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let ids: Option<Vec<StreamId>> = args.rest().iter().map(|id| StreamId::parse(id, 0)).collect();
    let ids = ids.ok_or(ID_INVALID)?;
    let db = ctx.db();
    let mut cancelled = 0;
    if let Some(slot) = ctx.ks.find(db, key) {
        ctx.ks.stream(db, slot)?;
        ctx.admit_effects(ids.len().saturating_mul(PENDING_EFFECT_BYTES))?;
        for id in ids {
            cancelled += i64::from(ctx.ks.stream_cancel_delayed(db, slot, id)?);
        }
    }
    ctx.reply.integer(cancelled);
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("xdelay"),
    Command {
        name: "xdelay.cancel",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Remove)],
        complexity: "O(log N) for each id, with N the number of delayed messages",
        summary: "Cancels messages of a stream that are not due yet.",
        syntax: "key id...",
        run: Run::Now(cancel),
        ..BASE
    },
    Command {
        name: "xdelay.list",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(log N + M) with N the number of delayed messages and M the number returned",
        summary: "Lists messages of a stream that are not due yet, the first due first.",
        syntax: "key [START id] [COUNT count:integer]",
        run: Run::Now(list),
        ..BASE
    },
];

/// The fields that both commands share.
const BASE: Command = Command {
    group: Group::Coordination,
    categories: &["@stream"],
    // Neither Redis nor Valkey has these commands.
    since: "0.1.0",
    ..Command::EMPTY
};
