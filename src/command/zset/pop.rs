//! Taking the lowest or highest members out of sorted sets, and waiting for some.
//!
//! As with lists, a blocking command is the plain one that answers [`Wait`] where nothing is there.

use super::{Layout, find};
use crate::command::list::{counted_keys, pop_count};
use crate::engine::args::Args;
use crate::engine::ctx::Ctx;
use crate::engine::error::Error;
use crate::engine::spec::{Done, Flow, MayWait};
use crate::engine::wait::{Wait, Want, deadline_after_seconds};
use crate::keyspace::Slot;
use crate::resp::reply::Reply;
use crate::resp::request::Argv;

/// An end of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

const ENDS: [(&str, End); 2] = [("min", End::Min), ("max", End::Max)];

pub(super) fn zpopmin(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    pop(ctx, args, End::Min)
}

pub(super) fn zpopmax(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    pop(ctx, args, End::Max)
}

fn pop(ctx: &mut Ctx<'_>, mut args: Args<'_>, end: End) -> Done {
    let key = args.bytes()?;
    if args.len() > 1 {
        return Err(Error::Syntax);
    }
    // One member is answered flat, several are pairs in RESP3.
    let (count, layout) = match args.is_empty() {
        true => (1, Layout::Flat),
        false => (count(&mut args)?, Layout::new(ctx.reply, true)),
    };
    match find(ctx.ks, ctx.session.db, key)? {
        Some(slot) => take(ctx, slot, end, count, layout),
        None => {
            ctx.reply.array(0);
            Ok(())
        }
    }
}

fn count(args: &mut Args<'_>) -> Result<i64, Error> {
    let count = args.int_or(Error::NotPositive)?;
    if count < 0 { Err(Error::NotPositive) } else { Ok(count) }
}

/// Answers up to `count` members from one end and removes them.
fn take(ctx: &mut Ctx<'_>, slot: Slot, end: End, count: i64, layout: Layout) -> Done {
    let db = ctx.db();
    let zset = ctx.ks.zset(db, slot)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(zset.len());
    let ranks = match end {
        End::Min => 0..count,
        End::Max => zset.len() - count..zset.len(),
    };
    let members = zset.range(ranks.clone());
    layout.head(ctx.reply, count);
    match end {
        End::Min => members.for_each(|(member, score)| layout.member(ctx.reply, member, score)),
        End::Max => members.rev().for_each(|(member, score)| layout.member(ctx.reply, member, score)),
    }
    ctx.ks.zset_remove_ranks(db, slot, ranks)?;
    Ok(())
}

pub(super) fn bzpopmin(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    pop_or_wait(ctx, args, End::Min)
}

pub(super) fn bzpopmax(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    pop_or_wait(ctx, args, End::Max)
}

fn pop_or_wait(ctx: &mut Ctx<'_>, mut args: Args<'_>, end: End) -> MayWait {
    let keys = args.take(args.len().saturating_sub(1))?;
    let deadline_ms = deadline_after_seconds(args.bytes()?, ctx.now_ms())?;
    let Some((key, slot)) = first_of(ctx, keys)? else {
        return Ok(Flow::Wait(Wait::new(Want::ZSet, keys.iter(), deadline_ms, Reply::null_array)));
    };
    let db = ctx.db();
    let zset = ctx.ks.zset(db, slot)?;
    let rank = if end == End::Min { 0 } else { zset.len() - 1 };
    if let Some((member, score)) = zset.by_rank(rank) {
        ctx.reply.array(3);
        ctx.reply.bulk(key);
        ctx.reply.bulk(member);
        ctx.reply.double(score);
    }
    ctx.ks.zset_remove_ranks(db, slot, rank..rank + 1)?;
    Ok(Flow::Replied)
}

/// The first of the keys that holds a sorted set. A call that has waited passes over other types.
fn first_of<'a>(ctx: &mut Ctx<'_>, keys: Argv<'a>) -> Result<Option<(&'a [u8], Slot)>, Error> {
    let (db, skip_wrong) = (ctx.db(), ctx.is_retry());
    for key in keys.iter() {
        match find(ctx.ks, db, key) {
            Ok(Some(slot)) => return Ok(Some((key, slot))),
            Ok(None) => {}
            Err(Error::WrongType) if skip_wrong => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// What ZMPOP and BZMPOP are given.
struct ManyPop<'a> {
    keys: Argv<'a>,
    end: End,
    count: i64,
}

impl<'a> ManyPop<'a> {
    fn parse(args: &mut Args<'a>) -> Result<ManyPop<'a>, Error> {
        let keys = counted_keys(args)?;
        let end = args.one_of(&ENDS).ok_or(Error::Syntax)?;
        Ok(ManyPop { keys, end, count: pop_count(args)? })
    }

    /// Answers and removes members; false, with nothing answered, where no key holds a sorted set.
    fn run(&self, ctx: &mut Ctx<'_>) -> Result<bool, Error> {
        let Some((key, slot)) = first_of(ctx, self.keys)? else { return Ok(false) };
        ctx.reply.array(2);
        ctx.reply.bulk(key);
        take(ctx, slot, self.end, self.count, Layout::Pairs)?;
        Ok(true)
    }
}

pub(super) fn zmpop(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if !ManyPop::parse(&mut args)?.run(ctx)? {
        ctx.reply.null_array();
    }
    Ok(())
}

pub(super) fn bzmpop(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let timeout = args.bytes()?;
    let pop = ManyPop::parse(&mut args)?;
    let deadline_ms = deadline_after_seconds(timeout, ctx.now_ms())?;
    if pop.run(ctx)? {
        return Ok(Flow::Replied);
    }
    Ok(Flow::Wait(Wait::new(Want::ZSet, pop.keys.iter(), deadline_ms, Reply::null_array)))
}
