//! XGROUP: consumer groups and their consumers.

use super::common::{ID_INVALID, find, no_group, wrong_subcommand};
use crate::engine::{Ctx, Done};
use crate::keyspace::Slot;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stream::{Stream, StreamId};

/// The options of CREATE and SETID.
struct Options {
    mkstream: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(args: &mut Args<'_>, may_make: bool) -> Result<Options, Error> {
        let mut options = Options { mkstream: false, entries_read: None };
        while !args.is_empty() {
            if may_make && args.flag("mkstream") {
                options.mkstream = true;
            } else if args.option("entriesread", 1) {
                options.entries_read = match args.int()? {
                    -1 => None,
                    ..-1 => return Err(Error::text("ERR value for ENTRIESREAD must be positive or -1")),
                    count => Some(count as u64),
                };
            } else {
                return Err(wrong_subcommand(args));
            }
        }
        Ok(options)
    }
}

/// A group can't have read more entries than were ever added.
fn bounded(entries_read: Option<u64>, stream: &Stream) -> Option<u64> {
    entries_read.map(|count| count.min(stream.entries_added()))
}

pub(super) fn xgroup_create(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let (key, group, id) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let options = Options::parse(&mut args, true)?;
    let slot = match find(ctx.ks, db, key)? {
        None if !options.mkstream => return Err(no_stream()),
        slot => slot,
    };
    let last_id = slot.map_or(Ok(StreamId::MIN), |slot| ctx.ks.stream(db, slot).map(|stream| stream.last_id()))?;
    let id = if id == b"$" { last_id } else { StreamId::parse(id, 0).ok_or(ID_INVALID)? };
    let before = ctx.ks.changes_by_commands();
    let slot = slot.unwrap_or_else(|| ctx.ks.stream_create(db, key));
    let entries_read = bounded(options.entries_read, ctx.ks.stream(db, slot)?);
    if !ctx.ks.group_create(db, slot, group, id, entries_read)? {
        return Err(Error::text("BUSYGROUP Consumer Group name already exists"));
    }
    // Creating the stream and the group counts as one change.
    ctx.ks.count_changes_as(before, 1);
    ctx.reply.ok();
    Ok(())
}

pub(super) fn xgroup_setid(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, group, id) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let options = Options::parse(&mut args, false)?;
    let slot = existing_group(ctx, key, group)?;
    let id = match id {
        b"$" => ctx.ks.stream(ctx.db(), slot)?.last_id(),
        id => StreamId::parse_or_edge(id, 0).ok_or(ID_INVALID)?,
    };
    let entries_read = bounded(options.entries_read, ctx.ks.stream(ctx.db(), slot)?);
    ctx.ks.group_set_id(ctx.db(), slot, group, id, entries_read)?;
    ctx.reply.ok();
    Ok(())
}

pub(super) fn xgroup_destroy(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, group) = (args.bytes()?, args.bytes()?);
    let slot = existing_stream(ctx, key)?;
    let destroyed = ctx.ks.group_destroy(ctx.db(), slot, group)?;
    ctx.reply.integer(i64::from(destroyed));
    Ok(())
}

pub(super) fn xgroup_createconsumer(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, group, consumer) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let slot = existing_group(ctx, key, group)?;
    let created = ctx.ks.consumer_create(ctx.db(), slot, group, consumer, ctx.now_ms().max(0) as u64)?;
    ctx.reply.integer(i64::from(created));
    Ok(())
}

pub(super) fn xgroup_delconsumer(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, group, consumer) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let slot = existing_group(ctx, key, group)?;
    let pending = ctx.ks.consumer_delete(ctx.db(), slot, group, consumer)?.unwrap_or(0);
    ctx.reply.integer(pending as i64);
    Ok(())
}

fn no_stream() -> Error {
    Error::text(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
         option to create an empty stream automatically.",
    )
}

fn existing_stream(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Slot, Error> {
    let db = ctx.db();
    find(ctx.ks, db, key)?.ok_or_else(no_stream)
}

pub(super) fn existing_group(ctx: &mut Ctx<'_>, key: &[u8], group: &[u8]) -> Result<Slot, Error> {
    let slot = existing_stream(ctx, key)?;
    if ctx.ks.stream(ctx.db(), slot)?.group(group).is_none() {
        return Err(no_group(key, group));
    }
    Ok(slot)
}
