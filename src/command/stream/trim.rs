//! Trimming: XTRIM, and the trimming options of XADD.

use super::common::{ID_INVALID, admit_each_pending, find, pending_effects_left};
use crate::command::limits::STREAM_TRIM_MAX_ENTRIES;
use crate::engine::{Ctx, Done};
use crate::keyspace::{DbIndex, Slot};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stream::{Keep, StreamId};

/// The effect of a deletion on entries that groups have pending or have not read yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum References {
    /// Deletes them; groups keep their ids as pending.
    #[default]
    Keep,
    /// Deletes them, and ends their pending state.
    Delete,
    /// Keeps them.
    Spare,
}

impl References {
    /// Takes the option if it is the next argument. It may be given once.
    pub(super) fn take(chosen: &mut Option<References>, args: &mut Args<'_>) -> Result<bool, Error> {
        const WORDS: [(&str, References); 3] =
            [("keepref", References::Keep), ("delref", References::Delete), ("acked", References::Spare)];
        match args.one_of(&WORDS) {
            Some(word) if chosen.replace(word).is_none() => Ok(true),
            Some(_) => Err(Error::Syntax),
            None => Ok(false),
        }
    }
}

/// A trim of a stream.
#[derive(Clone, Copy)]
pub(super) struct Trim {
    keep: Keep,
    whole_nodes: bool,
    /// The most entries to remove, 0 for no limit; `None` if the call has no LIMIT.
    limit: Option<u64>,
    references: References,
}

/// Nodes whose capacity is the default limit of a trim by whole nodes.
const TRIM_NODES: u64 = 100;
const TRIM_DEFAULT: u64 = 10_000;

impl Trim {
    /// Refuses a trim that names more pending entries than the journal takes, because groups may have long names. Must
    /// be called before any change; `coming` entries will be appended before the trim.
    pub(super) fn admit(self, ctx: &Ctx<'_>, db: DbIndex, slot: Slot, coming: u64) -> Result<(), Error> {
        if self.references != References::Delete || ctx.room_in_unit() == usize::MAX {
            return Ok(());
        }
        let stream = ctx.ks.stream(db, slot)?;
        let keep = match self.keep {
            Keep::Newest(count) => Keep::Newest(count.saturating_sub(coming)),
            keep @ Keep::From(_) => keep,
        };
        let Some(through) = stream.plan_trim(keep, self.whole_nodes, self.most_removed(ctx)) else { return Ok(()) };
        let pending = stream.pending_through(through);
        admit_each_pending(ctx, pending.iter().flat_map(|(group, ids)| ids.iter().map(|_| group.len())))
    }

    /// The most entries to remove; 0 for no limit.
    fn most_removed(self, ctx: &Ctx<'_>) -> u64 {
        let default = match ctx.ks.limits().stream.node_max_entries as u64 {
            0 => TRIM_DEFAULT,
            entries => entries.saturating_mul(TRIM_NODES).min(STREAM_TRIM_MAX_ENTRIES),
        };
        if self.whole_nodes { self.limit.unwrap_or(default) } else { 0 }
    }

    /// Trims the stream and returns the number of entries removed.
    pub(super) fn run(self, ctx: &mut Ctx<'_>, db: DbIndex, slot: Slot) -> Result<u64, Error> {
        let limit = self.most_removed(ctx);
        let stream = ctx.ks.stream(db, slot)?;
        if self.references == References::Spare && stream.groups().len() > 0 {
            let plan = stream.plan_acked_trim(self.keep, self.whole_nodes, limit);
            let mut removed = plan.through.map_or(Ok(0), |through| ctx.ks.stream_trim(db, slot, through))?;
            // Deletions that do not fit the journal's current unit are left to the next trim.
            for id in plan.single.into_iter().take(pending_effects_left(ctx, 0)) {
                removed += u64::from(ctx.ks.stream_delete(db, slot, id)?);
            }
            return Ok(removed);
        }
        let Some(through) = stream.plan_trim(self.keep, self.whole_nodes, limit) else { return Ok(0) };
        if self.references == References::Delete {
            for (group, ids) in stream.pending_through(through) {
                for id in ids {
                    ctx.ks.pending_ack(db, slot, &group, id)?;
                }
            }
        }
        Ok(ctx.ks.stream_trim(db, slot, through)?)
    }
}

/// The options that XADD and XTRIM share.
#[derive(Default)]
pub(super) struct TrimOptions {
    keep: Option<Keep>,
    whole_nodes: bool,
    limit: Option<u64>,
    references: Option<References>,
    /// Whether the options are those of XTRIM.
    must_trim: bool,
}

impl TrimOptions {
    /// The options of XTRIM, before any is taken.
    fn of_xtrim() -> TrimOptions {
        TrimOptions { must_trim: true, ..TrimOptions::default() }
    }

    /// Takes one option, if the next argument is one.
    pub(super) fn take(&mut self, args: &mut Args<'_>) -> Result<bool, Error> {
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
            return References::take(&mut self.references, args);
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

    /// Returns the trim; `None` without a strategy, which only XADD allows.
    pub(super) fn finish(self) -> Result<Option<Trim>, Error> {
        // As in Redis, this check tests whether LIMIT is above 0, and the one below whether it is given.
        if self.keep.is_none() && self.limit > Some(0) {
            return Err(Error::text("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"));
        }
        if self.keep.is_none() && self.must_trim {
            return Err(Error::text("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        if self.limit.is_some() && !self.whole_nodes {
            return Err(Error::text("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        let Some(keep) = self.keep else { return Ok(None) };
        let references = self.references.unwrap_or_default();
        Ok(Some(Trim { keep, whole_nodes: self.whole_nodes, limit: self.limit, references }))
    }
}

pub(super) fn xtrim(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let mut options = TrimOptions::of_xtrim();
    while !args.is_empty() {
        if !options.take(&mut args)? {
            return Err(Error::Syntax);
        }
    }
    let trim = options.finish()?;
    let removed = match (trim, find(ctx.ks, db, key)?) {
        (Some(trim), Some(slot)) => {
            trim.admit(ctx, db, slot, 0)?;
            trim.run(ctx, db, slot)?
        }
        _ => 0,
    };
    ctx.reply.integer(removed as i64);
    Ok(())
}
