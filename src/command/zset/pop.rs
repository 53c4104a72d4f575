//! Removal of the lowest or highest members, and waiting for some.

use super::super::pop::{ManyPop, count_arg, first_of};
use super::common::find;
use crate::engine::{Ctx, Done, Flow, MayWait};
use crate::keyspace::{DbIndex, Slot};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::wait::{Wait, Want, deadline_after_seconds};

/// An end of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

const ENDS: [(&str, End); 2] = [("min", End::Min), ("max", End::Max)];

/// The grouping of members and scores in the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Flat,
    Pairs,
}

/// Removes up to `count` members and replies with them and their scores. Writes the array's head only with `head`.
fn take(
    ctx: &mut Ctx<'_>,
    (db, slot): (DbIndex, Slot),
    end: End,
    count: usize,
    shape: Shape,
    head: bool,
) -> Result<(), Error> {
    let zset = ctx.ks.zset(db, slot)?;
    let count = count.min(zset.len());
    let ranks = match end {
        End::Min => 0..count,
        End::Max => zset.len() - count..zset.len(),
    };
    if head {
        ctx.reply.array(if shape == Shape::Pairs { count } else { count * 2 });
    }
    let reply = &mut *ctx.reply;
    let mut emit = |(member, score)| {
        if shape == Shape::Pairs {
            reply.array(2);
        }
        reply.bulk(member);
        reply.double(score);
    };
    match end {
        End::Min => zset.range(ranks.clone()).for_each(&mut emit),
        End::Max => zset.range(ranks.clone()).rev().for_each(&mut emit),
    }
    ctx.ks.name_events(if end == End::Min { "zpopmin" } else { "zpopmax" });
    ctx.ks.zset_remove_ranks(db, slot, ranks)?;
    Ok(())
}

pub(super) fn zpopmin(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    pop(ctx, args, End::Min)
}

pub(super) fn zpopmax(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    pop(ctx, args, End::Max)
}

fn pop(ctx: &mut Ctx<'_>, mut args: Args<'_>, end: End) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    if args.len() > 1 {
        return Err(Error::Syntax);
    }
    let count = if args.is_empty() { None } else { Some(count_arg(&mut args)?) };
    let Some(slot) = find(ctx.ks, db, key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let shape = if count.is_some() && ctx.reply.is_resp3() { Shape::Pairs } else { Shape::Flat };
    take(ctx, (db, slot), end, count.unwrap_or(1), shape, true)
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
    let Some((key, slot)) = first_of(ctx, keys, find)? else {
        return Ok(Flow::wait(Wait::new(Want::ZSet, keys.iter(), deadline_ms, Reply::null_array)));
    };
    ctx.reply.array(3);
    ctx.reply.bulk(key);
    take(ctx, (ctx.db(), slot), end, 1, Shape::Flat, false)?;
    Ok(Flow::Replied)
}

/// ZMPOP and BZMPOP: replies with members and removes them; false, without a reply, where no key holds a sorted set.
fn pop_many(ctx: &mut Ctx<'_>, pop: &ManyPop<'_, End>) -> Result<bool, Error> {
    let Some(slot) = pop.begin(ctx, find)? else { return Ok(false) };
    take(ctx, (ctx.db(), slot), pop.end, pop.count, Shape::Pairs, true)?;
    Ok(true)
}

pub(super) fn zmpop(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if !pop_many(ctx, &ManyPop::parse(&mut args, &ENDS)?)? {
        ctx.reply.null_array();
    }
    Ok(())
}

pub(super) fn bzmpop(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let timeout = args.bytes()?;
    let pop = ManyPop::parse(&mut args, &ENDS)?;
    let deadline_ms = deadline_after_seconds(timeout, ctx.now_ms())?;
    if pop_many(ctx, &pop)? {
        return Ok(Flow::Replied);
    }
    Ok(Flow::wait(Wait::new(Want::ZSet, pop.keys.iter(), deadline_ms, Reply::null_array)))
}
