//! XDLQ.REDRIVE: puts dead letters back into their original stream, as new entries without history. Each is appended to
//! the stream and deleted from the dead letters in one unit, so none is lost or duplicated.

use super::error::QueueError;
use super::outcome;
use crate::command::help::family;
use crate::command::limits::{REDRIVE_COUNT, REDRIVE_MAX_BYTES, REDRIVE_SCANNED_PER_LETTER};
use crate::command::stream::STREAM_EXHAUSTED;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::Slot;
use crate::keyspace::limits::DEAD_LETTER_EFFECT_BYTES;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::stream::{NewId, Origin, Stream, StreamId};

const NO_ID: Error = Error::text("ERR Invalid stream ID specified as stream command argument");

/// The arguments of a call.
struct Redrive<'a> {
    dlq: &'a [u8],
    stream: &'a [u8],
    /// Only dead letters of this group.
    group: Option<&'a [u8]>,
    start: StreamId,
    /// The last ID to move.
    end: StreamId,
    count: usize,
}

impl<'a> Redrive<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Redrive<'a>, Error> {
        let (dlq, stream) = (args.bytes()?, args.bytes()?);
        if dlq == stream {
            return Err(QueueError::SameStream.into());
        }
        let (mut group, mut start, mut end, mut count) = (None, StreamId::MIN, StreamId::MAX, REDRIVE_COUNT);
        while !args.is_empty() {
            if args.option("group", 1) {
                group = Some(args.bytes()?);
            } else if args.option("start", 1) {
                start = StreamId::parse(args.bytes()?, 0).ok_or(NO_ID)?;
            } else if args.option("end", 1) {
                end = StreamId::parse(args.bytes()?, u64::MAX).ok_or(NO_ID)?;
            } else if args.option("count", 1) {
                let wanted = usize::try_from(args.int()?).ok().filter(|count| *count > 0);
                count = wanted.ok_or(Error::text("ERR COUNT must be > 0"))?;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(Redrive { dlq, stream, group, start, end, count })
    }

    /// The dead letters to move, and the ID at which the next call continues; `0-0` after the last.
    fn plan(&self, ctx: &Ctx<'_>, dlq: Slot) -> Result<(Vec<StreamId>, StreamId), Error> {
        let (dlq, room) = (ctx.ks.stream(ctx.db(), dlq)?, ctx.room_in_unit());
        let (mut ids, mut bytes) = (Vec::new(), 0);
        let scanned_max = self.count.saturating_mul(REDRIVE_SCANNED_PER_LETTER);
        for (scanned, entry) in dlq.range(self.start, self.end).enumerate() {
            let Some(own) = self.own(&Origin::of(&entry)) else {
                if scanned >= scanned_max {
                    return Ok((ids, entry.id));
                }
                continue;
            };
            let texts: usize = entry.pairs.clone().take(own).map(|(field, value)| field.len() + value.len()).sum();
            let letter = DEAD_LETTER_EFFECT_BYTES + texts + self.dlq.len() + self.stream.len();
            let is_enough = scanned >= scanned_max || ids.len() == self.count || bytes >= REDRIVE_MAX_BYTES;
            if is_enough || letter > room.saturating_sub(bytes) {
                // Each call moves at least one, so that the next call makes progress.
                if ids.is_empty() && !is_enough {
                    ctx.admit_effects(letter)?;
                }
                return Ok((ids, entry.id));
            }
            bytes += letter;
            ids.push(entry.id);
        }
        Ok((ids, StreamId::MIN))
    }

    /// How many fields of a dead letter are the message's own; `None` if it does not match this call.
    fn own(&self, origin: &Option<Origin<'_>>) -> Option<usize> {
        let origin = origin.as_ref().filter(|origin| origin.stream == self.stream)?;
        self.group.is_none_or(|group| origin.group == group).then_some(origin.own)
    }

    /// Moves a dead letter. False, with nothing changed, if the stream has no further ID.
    fn move_back(&self, ctx: &mut Ctx<'_>, dlq: Slot, id: StreamId) -> Result<bool, Error> {
        let (db, now_ms) = (ctx.db(), ctx.now_ms().max(0) as u64);
        let Some(entry) = ctx.ks.stream(db, dlq)?.entry(id) else { return Ok(false) };
        let Some(own) = self.own(&Origin::of(&entry)) else { return Ok(false) };
        let pairs: Vec<(Vec<u8>, Vec<u8>)> =
            entry.pairs.take(own).map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
        let slot = ctx.ks.find(db, self.stream);
        if let Some(slot) = slot {
            ctx.ks.release_all_due(db, slot);
        }
        let new_id = match slot {
            Some(slot) => ctx.ks.stream(db, slot)?.next_id(NewId::Auto, now_ms),
            None => Stream::new().next_id(NewId::Auto, now_ms),
        };
        let Ok(new_id) = new_id else { return Ok(false) };
        let pairs = pairs.iter().map(|(field, value)| (&**field, &**value));
        if ctx.ks.stream_append(db, self.stream, slot, new_id, pairs)?.is_none() {
            return Ok(false);
        }
        ctx.ks.stream_delete(db, dlq, id)?;
        Ok(true)
    }
}

fn redrive(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let call = Redrive::parse(&mut args)?;
    let db = ctx.db();
    let mut moved = 0;
    let mut next = StreamId::MIN;
    // A wrong type of either key is an error, even if there is nothing to move.
    if let Some(slot) = ctx.ks.find(db, call.stream) {
        ctx.ks.stream(db, slot)?;
    }
    if let Some(dlq) = ctx.ks.look_up(db, call.dlq) {
        let (ids, after) = call.plan(ctx, dlq)?;
        next = after;
        for id in ids {
            if !call.move_back(ctx, dlq, id)? {
                // A client that calls until `next` is 0-0 must not loop for ever.
                if moved == 0 {
                    return Err(STREAM_EXHAUSTED);
                }
                next = id;
                break;
            }
            moved += 1;
        }
    }
    outcome::begin(ctx.reply, i64::from(moved > 0), 2);
    outcome::number(ctx.reply, "redriven", moved);
    ctx.reply.bulk(b"next");
    ctx.reply.bulk(next.to_text().as_bytes());
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("xdlq"),
    Command {
        name: "xdlq.redrive",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Insert)],
        group: Group::Coordination,
        categories: &["@stream"],
        // Neither Redis nor Valkey has this command.
        since: "0.1.0",
        complexity: "O(N) with N the number of dead letters examined",
        summary: "Puts dead letters back into their original stream, as new entries.",
        syntax: "dead-letters:key stream:key [GROUP group] [START id] [END id] [COUNT count:integer]",
        run: Run::Now(redrive),
        ..Command::EMPTY
    },
];
