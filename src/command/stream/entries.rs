//! Entries: appending, and reading without groups.

use super::common::{ID_INVALID, Interval, STREAM_EXHAUSTED, entry_reply, find, id_reply, read};
use super::delay;
use super::request::Request;
use super::trim::TrimOptions;
use crate::engine::{Ctx, Done};
use crate::keyspace::{DbIndex, Slot};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stream::{NewId, NewIdError, Stream, StreamId};

pub(super) fn xadd(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let mut options = TrimOptions::default();
    let mut request = None;
    let mut due_ms = None;
    let mut may_create = true;
    loop {
        // `*` is always an id. Any other argument that is not an option must be an id as well.
        if args.peek() == Some(b"*") {
            break;
        } else if args.flag("nomkstream") {
            may_create = false;
        } else if !options.take(&mut args)?
            && !Request::take(&mut request, &mut args)?
            && !delay::take(&mut due_ms, &mut args, ctx.now_ms())?
        {
            break;
        }
    }
    let id = match args.peek() {
        Some(_) => Some(NewId::parse(args.bytes()?).ok_or(ID_INVALID)?),
        None => None,
    };
    if request.is_some() && id.is_some_and(|id| id != NewId::Auto) {
        return Err(Error::text("ERR IDMP/IDMPAUTO can be used only with auto-generated IDs"));
    }
    let trim = options.finish()?;
    if due_ms.is_some() {
        delay::admit(id, trim.is_some())?;
    }
    let (Some(wanted), pairs) = (id, args.rest()) else { return Err(Error::Arity(ctx.name().into())) };
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err(Error::Arity(ctx.name().into()));
    }
    if wanted == NewId::Exact(StreamId::MIN) {
        return Err(Error::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let slot = find(ctx.ks, db, key)?;
    if slot.is_none() && !may_create {
        ctx.reply.null();
        return Ok(());
    }
    let pairs = (0..pairs.len() / 2)
        .map(move |at| (pairs.get(at * 2).unwrap_or_default(), pairs.get(at * 2 + 1).unwrap_or_default()));
    let request = request.map(|request| request.resolve(pairs.clone()));
    if let (Some(request), Some(slot)) = (&request, slot)
        && let Some(id) = request.repeated(ctx, slot)?
    {
        ctx.reply.bulk(id.to_text().as_bytes());
        return Ok(());
    }
    if let Some(due_ms) = due_ms.filter(|due_ms| *due_ms > ctx.now_ms()) {
        let (id, slot) = delay::keep(ctx, key, slot, due_ms, pairs)?.ok_or(STREAM_EXHAUSTED)?;
        id_reply(ctx.reply, id);
        return request.map_or(Ok(()), |request| request.remember(ctx, slot, id));
    }
    if let Some(slot) = slot {
        ctx.ks.release_all_due(db, slot);
    }
    let id = next_id(ctx, db, slot, wanted)?;
    if let (Some(trim), Some(slot)) = (&trim, slot) {
        trim.admit(ctx, db, slot, 1)?;
    }
    if let Some(slot) = ctx.ks.stream_append(db, key, slot, id, pairs)? {
        ctx.reply.bulk(id.to_text().as_bytes());
        if let Some(request) = request {
            request.remember(ctx, slot, id)?;
        }
        if let Some(trim) = trim {
            trim.run(ctx, db, slot)?;
        }
    }
    Ok(())
}

fn next_id(ctx: &Ctx<'_>, db: DbIndex, slot: Option<Slot>, wanted: NewId) -> Result<StreamId, Error> {
    let now_ms = ctx.now_ms().max(0) as u64;
    let id = match slot {
        Some(slot) => ctx.ks.stream(db, slot)?.next_id(wanted, now_ms),
        None => Stream::new().next_id(wanted, now_ms),
    };
    id.map_err(|error| match error {
        NewIdError::Exhausted => STREAM_EXHAUSTED,
        NewIdError::NotAboveLast => {
            Error::text("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        }
    })
}

pub(super) fn xlen(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let len = read(ctx.ks, ctx.session.db, args.bytes()?)?.map_or(0, |stream| stream.len());
    ctx.reply.integer(len as i64);
    Ok(())
}

pub(super) fn xrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    range(ctx, args, false)
}

pub(super) fn xrevrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    range(ctx, args, true)
}

fn range(ctx: &mut Ctx<'_>, mut args: Args<'_>, reverse: bool) -> Done {
    let (key, first, second) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let (start, end) = if reverse { (second, first) } else { (first, second) };
    let Interval { start, end } = Interval::parse(start, end)?;
    let mut count = usize::MAX;
    while !args.is_empty() {
        if !args.option("count", 1) {
            return Err(Error::Syntax);
        }
        count = usize::try_from(args.int()?.max(0)).unwrap_or(usize::MAX);
    }
    let Some(stream) = read(ctx.ks, ctx.session.db, key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    if count == 0 {
        ctx.reply.null_array();
        return Ok(());
    }
    let mark = ctx.reply.begin();
    let mut n = 0;
    let mut emit = |entry| {
        entry_reply(ctx.reply, &entry);
        n += 1;
    };
    if reverse {
        stream.range_rev(start, end).take(count).for_each(&mut emit);
    } else {
        stream.range(start, end).take(count).for_each(&mut emit);
    }
    ctx.reply.end_array(mark, n);
    Ok(())
}

pub(super) fn xsetid(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let (key, last_id) = (args.bytes()?, StreamId::parse(args.bytes()?, 0).ok_or(ID_INVALID)?);
    let (mut entries_added, mut max_deleted) = (None, None);
    while !args.is_empty() {
        if args.option("entriesadded", 1) {
            let count = u64::try_from(args.int()?);
            entries_added = Some(count.map_err(|_| Error::text("ERR entries_added must be positive"))?);
        } else if args.option("maxdeletedid", 1) {
            let id = StreamId::parse(args.bytes()?, 0).ok_or(ID_INVALID)?;
            if last_id < id {
                return Err(Error::text(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            max_deleted = Some(id);
        } else {
            return Err(Error::Syntax);
        }
    }
    let slot = find(ctx.ks, db, key)?.ok_or(Error::NoSuchKey)?;
    let stream = ctx.ks.stream(db, slot)?;
    if last_id < stream.max_deleted_id() {
        return Err(Error::text("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"));
    }
    if let Some(last) = stream.last() {
        if last_id < last.id {
            return Err(Error::text("ERR The ID specified in XSETID is smaller than the target stream top item"));
        }
        if entries_added.is_some_and(|added| added < stream.len()) {
            return Err(Error::text(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    let max_deleted = max_deleted.filter(|id| *id != StreamId::MIN);
    ctx.ks.stream_counters(db, slot, last_id, entries_added, max_deleted)?;
    ctx.reply.ok();
    Ok(())
}
