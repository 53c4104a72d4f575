//! Helpers of all stream commands: finding streams and groups, the errors they share, ranges of ids, and entries in
//! replies.

use crate::command::limits::PENDING_EFFECT_BYTES;
use crate::engine::Ctx;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::value::stream::{Entry, Stream, StreamId};

/// The number of effects on pending entries that still fit the journal's current unit. Each effect has names of `names`
/// bytes, because groups and consumers may have long names.
pub(super) fn pending_effects_left(ctx: &Ctx<'_>, names: usize) -> usize {
    ctx.room_in_unit() / (PENDING_EFFECT_BYTES + names)
}

/// Refuses a call whose `count` effects on pending entries would not fit the journal.
pub(super) fn admit_pending_effects(ctx: &Ctx<'_>, count: usize, names: usize) -> Result<(), Error> {
    ctx.admit_effects(count.saturating_mul(PENDING_EFFECT_BYTES + names))
}

/// As [`admit_pending_effects`], with the length of the names of each effect.
pub(super) fn admit_each_pending(ctx: &Ctx<'_>, names: impl Iterator<Item = usize>) -> Result<(), Error> {
    ctx.admit_effects(names.map(|len| PENDING_EFFECT_BYTES + len).sum())
}

/// The error of a stream that already has the highest id.
pub(in crate::command) const STREAM_EXHAUSTED: Error =
    Error::text("ERR The stream has exhausted the last possible ID, unable to add more items");

pub(super) const ID_INVALID: Error = Error::text("ERR Invalid stream ID specified as stream command argument");

/// Returns the stream at a key, for a command that reads.
pub(super) fn read<'a>(ks: &'a mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<&'a Stream>, Error> {
    match ks.read(db, key) {
        None => Ok(None),
        Some(ValueRef::Stream(stream)) => Ok(Some(stream)),
        Some(_) => Err(Error::WrongType),
    }
}

/// Returns the slot of the stream at a key, for a command that writes.
pub(super) fn find(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<Slot>, Error> {
    let slot = ks.find(db, key);
    slot.map_or(Ok(()), |slot| ks.stream(db, slot).map(drop))?;
    Ok(slot)
}

/// Returns the slot of the stream that has this group; an error if either is missing.
pub(super) fn find_group(ks: &mut Keyspace, db: DbIndex, key: &[u8], group: &[u8]) -> Result<Slot, Error> {
    find_group_or_none(ks, db, key, group)?.ok_or_else(|| {
        Error::owned(format!("NOGROUP No such key '{}' or consumer group '{}'", excerpt(key, 128), excerpt(group, 128)))
    })
}

/// As [`find_group`], for commands that accept a missing group.
pub(super) fn find_group_or_none(
    ks: &mut Keyspace,
    db: DbIndex,
    key: &[u8],
    group: &[u8],
) -> Result<Option<Slot>, Error> {
    let Some(slot) = ks.look_up(db, key) else { return Ok(None) };
    Ok(ks.stream(db, slot)?.group(group).map(|_| slot))
}

/// The error for an existing stream without the group.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> Error {
    Error::owned(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        excerpt(group, 128),
        excerpt(key, 128)
    ))
}

/// The error for unknown options of a subcommand of XGROUP or XINFO.
pub(super) fn wrong_subcommand(args: &Args<'_>) -> Error {
    let argv = args.argv();
    let (container, name) = (argv.get(0).unwrap_or_default(), argv.get(1).unwrap_or_default());
    Error::owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        excerpt(name, 128),
        excerpt(container, 128).to_ascii_uppercase()
    ))
}

/// An inclusive range of ids.
#[derive(Clone, Copy)]
pub(super) struct Interval {
    pub(super) start: StreamId,
    pub(super) end: StreamId,
}

impl Interval {
    pub(super) fn parse(start: &[u8], end: &[u8]) -> Result<Interval, Error> {
        Ok(Interval { start: interval_start(start)?, end: interval_end(end)? })
    }
}

pub(super) fn interval_start(text: &[u8]) -> Result<StreamId, Error> {
    match StreamId::parse_bound(text, 0).ok_or(ID_INVALID)? {
        (id, false) => Ok(id),
        (id, true) => id.next().ok_or(Error::text("ERR invalid start ID for the interval")),
    }
}

fn interval_end(text: &[u8]) -> Result<StreamId, Error> {
    match StreamId::parse_bound(text, u64::MAX).ok_or(ID_INVALID)? {
        (id, false) => Ok(id),
        (id, true) => id.prev().ok_or(Error::text("ERR invalid end ID for the interval")),
    }
}

pub(super) fn id_reply(reply: &mut Reply, id: StreamId) {
    reply.bulk(id.to_text().as_bytes());
}

/// Writes an entry: its id, then its fields and values.
pub(super) fn entry_reply(reply: &mut Reply, entry: &Entry<'_>) {
    reply.array(2);
    entry_parts(reply, entry);
}

/// Writes the two parts of an entry, for a reply that adds others.
pub(super) fn entry_parts(reply: &mut Reply, entry: &Entry<'_>) {
    id_reply(reply, entry.id);
    reply.array(entry.pairs.len() * 2);
    for (field, value) in entry.pairs.clone() {
        reply.bulk(field);
        reply.bulk(value);
    }
}
