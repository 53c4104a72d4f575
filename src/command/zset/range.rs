//! Ranges by rank, by score or by string; they can be read, counted, stored or removed.
//!
//! Every command here turns its arguments into a [`Span`], which becomes a range of ranks of a given set.

use std::ops::Range;

use super::common::{find, members_reply, read, store};
use crate::base::num;
use crate::engine::{Ctx, Done};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::zset::{LexBound, ScoreBound, ZSet};

/// The kind of a range's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A part of a sorted set.
#[derive(Clone, Copy)]
enum Span<'a> {
    Rank(i64, i64),
    Score(ScoreBound, ScoreBound),
    Lex(LexBound<'a>, LexBound<'a>),
}

impl<'a> Span<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Span<'a>, Error> {
        match by {
            By::Rank => {
                let index = |text| num::parse_i64(text).ok_or(Error::NotInteger);
                Ok(Span::Rank(index(min)?, index(max)?))
            }
            By::Score => Ok(Span::Score(score_bound(min)?, score_bound(max)?)),
            By::Lex => Ok(Span::Lex(lex_bound(min)?, lex_bound(max)?)),
        }
    }

    /// Returns the ranks, counted from the lowest. With `reverse` the given ranks count from the highest.
    fn ranks(self, zset: &ZSet, reverse: bool) -> Range<usize> {
        match self {
            Span::Score(min, max) => zset.by_score(min, max),
            Span::Lex(min, max) => zset.by_lex(min, max),
            Span::Rank(start, stop) => {
                let len = zset.len() as i64;
                let from_end = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
                let end = from_end(stop).saturating_add(1).clamp(0, len);
                let start = from_end(start).max(0).min(end);
                let (start, end) = if reverse { (len - end, len - start) } else { (start, end) };
                start as usize..end as usize
            }
        }
    }
}

fn score_bound(text: &[u8]) -> Result<ScoreBound, Error> {
    let (exclusive, number) = match text.split_first() {
        Some((b'(', rest)) => (true, rest),
        _ => (false, text),
    };
    // A C string ends at the first zero byte.
    let number = number.split(|byte| *byte == 0).next().unwrap_or(number);
    let read = num::strtod_plain(number);
    if read.used != number.len() || read.value.is_nan() {
        return Err(Error::text("ERR min or max is not a float"));
    }
    Ok(ScoreBound { score: read.value, exclusive })
}

fn lex_bound(text: &[u8]) -> Result<LexBound<'_>, Error> {
    match text {
        b"-" => Ok(LexBound::Min),
        b"+" => Ok(LexBound::Max),
        [b'(', member @ ..] => Ok(LexBound::Exclusive(member)),
        [b'[', member @ ..] => Ok(LexBound::Inclusive(member)),
        _ => Err(Error::text("ERR min or max not valid string range item")),
    }
}

/// The options that a command's name implies.
#[derive(Clone, Copy, Default)]
struct Preset {
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

/// A request for members.
struct Query<'a> {
    key: &'a [u8],
    span: Span<'a>,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

impl<'a> Query<'a> {
    fn parse(args: &mut Args<'a>, preset: Preset) -> Result<Query<'a>, Error> {
        let (key, first, second) = (args.bytes()?, args.bytes()?, args.bytes()?);
        let Preset { mut by, mut reverse, stores } = preset;
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        while !args.is_empty() {
            if !stores && args.flag("withscores") {
                with_scores = true;
            } else if args.option("limit", 2) {
                (offset, limit) = (args.int()?, args.int()?);
            } else if preset.reverse.is_none() && args.flag("rev") {
                reverse = Some(true);
            } else if by.is_none() && args.flag("bylex") {
                by = Some(By::Lex);
            } else if by.is_none() && args.flag("byscore") {
                by = Some(By::Score);
            } else {
                return Err(Error::Syntax);
            }
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if limit != -1 && by == By::Rank {
            return Err(Error::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if by == By::Rank {
            // Redis ignores an offset without a limit.
            offset = 0;
        }
        if with_scores && by == By::Lex {
            return Err(Error::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (min, max) = if reverse && by != By::Rank { (second, first) } else { (first, second) };
        Ok(Query { key, span: Span::parse(by, min, max)?, reverse, with_scores, offset, limit })
    }

    /// Returns the ranks within OFFSET and LIMIT, which count from the beginning of the reply.
    fn ranks(&self, zset: &ZSet) -> Range<usize> {
        let ranks = self.span.ranks(zset, self.reverse);
        let skip = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let count = usize::try_from(self.limit).unwrap_or(usize::MAX).min(ranks.len() - skip);
        if self.reverse {
            ranks.end - skip - count..ranks.end - skip
        } else {
            ranks.start + skip..ranks.start + skip + count
        }
    }
}

fn answer(ctx: &mut Ctx<'_>, mut args: Args<'_>, preset: Preset) -> Done {
    let query = Query::parse(&mut args, preset)?;
    let Some(zset) = read(ctx.ks, ctx.session.db, query.key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let members = zset.range(query.ranks(zset));
    if query.reverse {
        members_reply(ctx.reply, members.rev(), query.with_scores);
    } else {
        members_reply(ctx.reply, members, query.with_scores);
    }
    Ok(())
}

pub(super) fn zrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Preset::default())
}

pub(super) fn zrevrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Preset { by: Some(By::Rank), reverse: Some(true), stores: false })
}

pub(super) fn zrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Preset { by: Some(By::Score), reverse: Some(false), stores: false })
}

pub(super) fn zrevrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Preset { by: Some(By::Score), reverse: Some(true), stores: false })
}

pub(super) fn zrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Preset { by: Some(By::Lex), reverse: Some(false), stores: false })
}

pub(super) fn zrevrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Preset { by: Some(By::Lex), reverse: Some(true), stores: false })
}

pub(super) fn zrangestore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let destination = args.bytes()?;
    let query = Query::parse(&mut args, Preset { stores: true, ..Preset::default() })?;
    let members: Vec<(Box<[u8]>, f64)> = match read(ctx.ks, db, query.key)? {
        Some(zset) => zset.range(query.ranks(zset)).map(|(member, score)| (member.into(), score)).collect(),
        None => Vec::new(),
    };
    let members = members.iter().map(|(member, score)| (&**member, *score));
    let stored = store(ctx, destination, members)?;
    ctx.reply.integer(stored as i64);
    Ok(())
}

pub(super) fn zcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    count(ctx, args, By::Score)
}

pub(super) fn zlexcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    count(ctx, args, By::Lex)
}

fn count(ctx: &mut Ctx<'_>, mut args: Args<'_>, by: By) -> Done {
    let key = args.bytes()?;
    let span = Span::parse(by, args.bytes()?, args.bytes()?)?;
    let count = read(ctx.ks, ctx.session.db, key)?.map_or(0, |zset| span.ranks(zset, false).len());
    ctx.reply.integer(count as i64);
    Ok(())
}

pub(super) fn zremrangebyrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    remove(ctx, args, By::Rank)
}

pub(super) fn zremrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    remove(ctx, args, By::Score)
}

pub(super) fn zremrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    remove(ctx, args, By::Lex)
}

fn remove(ctx: &mut Ctx<'_>, mut args: Args<'_>, by: By) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let span = Span::parse(by, args.bytes()?, args.bytes()?)?;
    let removed = match find(ctx.ks, db, key)? {
        Some(slot) => {
            let ranks = span.ranks(ctx.ks.zset(db, slot)?, false);
            ctx.ks.zset_remove_ranks(db, slot, ranks)?
        }
        None => 0,
    };
    ctx.reply.integer(removed as i64);
    Ok(())
}
