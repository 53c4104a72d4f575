//! Entries: appending, trimming, deleting and reading them without groups.

use super::{ID_INVALID, Interval, entry_reply, find, read};
use crate::base::limits::STREAM_TRIM_MAX_ENTRIES;
use crate::engine::args::Args;
use crate::engine::ctx::Ctx;
use crate::engine::error::Error;
use crate::engine::spec::Done;
use crate::keyspace::{DbIndex, Slot};
use crate::value::stream::{Keep, NewId, NewIdError, StreamId};

/// How a stream is to be trimmed.
#[derive(Clone, Copy)]
struct Trim {
    keep: Keep,
    whole_nodes: bool,
    /// Most entries to remove, 0 for no limit; `None`: the call does not say.
    limit: Option<u64>,
}

/// Most entries that a trim by whole nodes removes when the call does not say: what so many full nodes hold.
const TRIM_NODES: u64 = 100;
const TRIM_DEFAULT: u64 = 10_000;

impl Trim {
    /// Removes what is too much. Answers how many entries.
    fn run(self, ctx: &mut Ctx<'_>, db: DbIndex, slot: Slot) -> Result<u64, Error> {
        let default = match ctx.ks.limits.stream.node_max_entries as u64 {
            0 => TRIM_DEFAULT,
            entries => entries.saturating_mul(TRIM_NODES).min(STREAM_TRIM_MAX_ENTRIES),
        };
        let limit = if self.whole_nodes { self.limit.unwrap_or(default) } else { 0 };
        match ctx.ks.stream(db, slot)?.plan_trim(self.keep, self.whole_nodes, limit) {
            Some(through) => Ok(ctx.ks.stream_trim(db, slot, through)?),
            None => Ok(0),
        }
    }
}

/// The options that XADD and XTRIM share.
#[derive(Default)]
struct TrimOptions {
    keep: Option<Keep>,
    whole_nodes: bool,
    limit: Option<u64>,
}

impl TrimOptions {
    /// Takes one option if there is one.
    fn take(&mut self, args: &mut Args<'_>) -> Result<bool, Error> {
        if args.option("maxlen", 1) {
            self.take_sign(args)?;
            self.keep = Some(match args.int()? {
                ..0 => return Err(Error::text("ERR The MAXLEN argument must be >= 0.")),
                len => Keep::Newest(len as u64),
            });
        } else if args.option("minid", 1) {
            self.take_sign(args)?;
            self.keep = Some(Keep::From(StreamId::parse(args.bytes()?, 0).ok_or(ID_INVALID)?));
        } else if args.option("limit", 1) {
            self.limit = Some(match args.int()? {
                ..0 => return Err(Error::text("ERR The LIMIT argument must be >= 0.")),
                limit => limit as u64,
            });
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn take_sign(&mut self, args: &mut Args<'_>) -> Result<(), Error> {
        if self.keep.is_some() {
            return Err(Error::text("ERR syntax error, MAXLEN and MINID options at the same time are not compatible"));
        }
        if args.len() > 1 {
            self.whole_nodes = args.flag("~");
            if !self.whole_nodes {
                args.flag("=");
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Option<Trim>, Error> {
        let Some(keep) = self.keep else {
            return match self.limit {
                Some(_) => {
                    Err(Error::text("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"))
                }
                None => Ok(None),
            };
        };
        if self.limit.is_some() && !self.whole_nodes {
            return Err(Error::text("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        Ok(Some(Trim { keep, whole_nodes: self.whole_nodes, limit: self.limit }))
    }
}

pub(super) fn xadd(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let mut options = TrimOptions::default();
    let mut may_create = true;
    loop {
        // `*` is an id and never an option; what is no option must be an id.
        if args.peek() == Some(b"*") {
            break;
        } else if args.flag("nomkstream") {
            may_create = false;
        } else if !options.take(&mut args)? {
            break;
        }
    }
    let id = match args.peek() {
        Some(_) => Some(NewId::parse(args.bytes()?).ok_or(ID_INVALID)?),
        None => None,
    };
    let trim = options.finish()?;
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
    let id = next_id(ctx, db, slot, wanted)?;
    let pairs = (0..pairs.len() / 2)
        .map(move |at| (pairs.get(at * 2).unwrap_or_default(), pairs.get(at * 2 + 1).unwrap_or_default()));
    if let Some(slot) = ctx.ks.stream_append(db, key, slot, id, pairs)? {
        ctx.reply.bulk(id.to_text().as_bytes());
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
        None => crate::value::stream::Stream::new().next_id(wanted, now_ms),
    };
    id.map_err(|error| match error {
        NewIdError::Exhausted => {
            Error::text("ERR The stream has exhausted the last possible ID, unable to add more items")
        }
        NewIdError::NotAboveLast => {
            Error::text("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        }
    })
}

pub(super) fn xtrim(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let mut options = TrimOptions::default();
    while !args.is_empty() {
        if !options.take(&mut args)? {
            return Err(Error::Syntax);
        }
    }
    let trim = options.finish()?;
    let trim = trim.ok_or(Error::text("ERR syntax error, XTRIM must be called with a trimming strategy"))?;
    let removed = match find(ctx.ks, db, key)? {
        Some(slot) => trim.run(ctx, db, slot)?,
        None => 0,
    };
    ctx.reply.integer(removed as i64);
    Ok(())
}

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
    if last_id < stream.max_deleted_id() {
        return Err(Error::text("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"));
    }
    let max_deleted = max_deleted.filter(|id| *id != StreamId::MIN);
    ctx.ks.stream_counters(db, slot, last_id, entries_added, max_deleted)?;
    ctx.reply.ok();
    Ok(())
}
