//! Deletion of single entries: XDEL, and XDELEX and XACKDEL, which respect pending entries of groups.

use super::common::{ID_INVALID, admit_each_pending, find, find_group_or_none};
use super::trim::References;
use crate::engine::{Ctx, Done};
use crate::keyspace::Slot;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stream::StreamId;

pub(super) fn xdel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let Some(slot) = find(ctx.ks, db, args.bytes()?)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let ids = args.rest();
    if ids.iter().any(|id| StreamId::parse(id, 0).is_none()) {
        return Err(ID_INVALID);
    }
    let mut deleted = 0;
    for id in ids.iter().filter_map(|id| StreamId::parse(id, 0)) {
        deleted += i64::from(ctx.ks.stream_delete(db, slot, id)?);
    }
    ctx.reply.integer(deleted);
    Ok(())
}

/// Takes the rest of `IDS numids id...` after its first word.
pub(super) fn counted_ids(args: &mut Args<'_>) -> Result<Vec<StreamId>, Error> {
    let wrong = Error::text("ERR Number of IDs must be a positive integer");
    let count = usize::try_from(args.int_or(wrong.clone())?).ok().filter(|count| *count > 0).ok_or(wrong)?;
    if count > args.len() {
        return Err(Error::text("ERR The `numids` parameter must match the number of arguments"));
    }
    args.take(count)?.iter().map(|id| StreamId::parse(id, 0).ok_or(ID_INVALID)).collect()
}

/// The arguments that XDELEX and XACKDEL share.
struct Deletion {
    references: References,
    ids: Vec<StreamId>,
}

/// The code in the reply for each id.
const NOT_FOUND: i64 = -1;
const DELETED: i64 = 1;
const STILL_NEEDED: i64 = 2;

impl Deletion {
    fn parse(args: &mut Args<'_>) -> Result<Deletion, Error> {
        let (mut references, mut ids) = (None, None);
        while !args.is_empty() {
            if References::take(&mut references, args)? {
                continue;
            }
            if ids.is_some() || !args.flag("ids") {
                return Err(Error::Syntax);
            }
            ids = Some(counted_ids(args)?);
        }
        Ok(Deletion { references: references.unwrap_or_default(), ids: ids.ok_or(Error::Syntax)? })
    }

    /// Refuses a call whose effects would not fit the journal: the deletions, the acknowledgements in `group`, and
    /// those in all groups that hold the entries.
    fn admit(&self, ctx: &Ctx<'_>, slot: Slot, group: Option<&[u8]>) -> Result<(), Error> {
        if ctx.room_in_unit() == usize::MAX {
            return Ok(());
        }
        let stream = ctx.ks.stream(ctx.db(), slot)?;
        let holders =
            self.ids.iter().filter(|_| self.references == References::Delete).flat_map(|id| stream.holders(*id));
        let entries = self.ids.iter().flat_map(|_| group.map(<[u8]>::len).into_iter().chain([0]));
        admit_each_pending(ctx, entries.chain(holders.map(<[u8]>::len)))
    }

    /// Replies that none of the entries exists.
    fn none(&self, ctx: &mut Ctx<'_>) -> Done {
        ctx.reply.array(self.ids.len());
        self.ids.iter().for_each(|_| ctx.reply.integer(NOT_FOUND));
        Ok(())
    }

    /// Deletes an entry unless it must be spared; returns whether it was deleted.
    fn delete(&self, ctx: &mut Ctx<'_>, slot: Slot, id: StreamId) -> Result<bool, Error> {
        let db = ctx.db();
        let stream = ctx.ks.stream(db, slot)?;
        match self.references {
            References::Keep => {}
            References::Spare if stream.is_needed(id) => return Ok(false),
            References::Spare => {}
            References::Delete => {
                let holders: Vec<Box<[u8]>> = stream.holders(id).map(Into::into).collect();
                for group in holders {
                    ctx.ks.pending_ack(db, slot, &group, id)?;
                }
            }
        }
        ctx.ks.stream_delete(db, slot, id)?;
        Ok(true)
    }
}

pub(super) fn xdelex(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let deletion = Deletion::parse(&mut args)?;
    let Some(slot) = find(ctx.ks, db, key)? else { return deletion.none(ctx) };
    deletion.admit(ctx, slot, None)?;
    ctx.reply.array(deletion.ids.len());
    for &id in &deletion.ids {
        // As in Redis, groups may still refer to a deleted entry: then ACKED spares it, and DELREF removes the
        // references.
        let is_there = ctx.ks.stream(db, slot)?.entry(id).is_some();
        let is_spared = !deletion.delete(ctx, slot, id)?;
        ctx.reply.integer(match (is_spared, is_there) {
            (true, _) => STILL_NEEDED,
            (false, true) => DELETED,
            (false, false) => NOT_FOUND,
        });
    }
    Ok(())
}

pub(super) fn xackdel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let (key, group) = (args.bytes()?, args.bytes()?);
    let deletion = Deletion::parse(&mut args)?;
    let Some(slot) = find_group_or_none(ctx.ks, db, key, group)? else { return deletion.none(ctx) };
    deletion.admit(ctx, slot, Some(group))?;
    ctx.reply.array(deletion.ids.len());
    for &id in &deletion.ids {
        let code = match ctx.ks.pending_ack(db, slot, group, id)? {
            false => NOT_FOUND,
            true if deletion.delete(ctx, slot, id)? => DELETED,
            true => STILL_NEEDED,
        };
        ctx.reply.integer(code);
    }
    Ok(())
}
