//! Ranges of sorted sets: by rank, by score, by member.
//!
//! A range is read from the arguments as a [`Span`], which becomes a range of ranks as soon as the set is known. Counting,
//! answering, storing and removing all work on ranks.

use std::ops::Range;

use super::{Layout, find, read, store};
use crate::base::num::strtod;
use crate::engine::args::Args;
use crate::engine::ctx::Ctx;
use crate::engine::error::Error;
use crate::engine::spec::Done;
use crate::value::zset::{LexBound, Members, ScoreBound, ZSet};

/// What a range is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A range, before the set is known.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Span<'a> {
    /// Both included; negative ones count from the end.
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Members(LexBound<'a>, LexBound<'a>),
}

impl<'a> Span<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Span<'a>, Error> {
        let rank = |text| crate::base::num::parse_i64(text).ok_or(Error::NotInteger);
        let not_lex = || Error::text("ERR min or max not valid string range item");
        let not_score = || Error::text("ERR min or max is not a float");
        Ok(match by {
            By::Rank => Span::Ranks(rank(min)?, rank(max)?),
            By::Score => Span::Scores(score_bound(min).ok_or_else(not_score)?, score_bound(max).ok_or_else(not_score)?),
            By::Lex => Span::Members(lex_bound(min).ok_or_else(not_lex)?, lex_bound(max).ok_or_else(not_lex)?),
        })
    }

    /// The ranks, from the lowest member on; ranks themselves count from the highest one if `from_highest`.
    fn ranks(self, zset: &ZSet, from_highest: bool) -> Range<usize> {
        match self {
            Span::Ranks(start, stop) => {
                let ranks = ranks_within(start, stop, zset.len());
                if from_highest { zset.len() - ranks.end..zset.len() - ranks.start } else { ranks }
            }
            Span::Scores(min, max) => zset.by_score(min, max),
            Span::Members(min, max) => zset.by_lex(min, max),
        }
    }
}

/// A range of indexes from two that count from the end when negative, both included.
fn ranks_within(start: i64, stop: i64, len: usize) -> Range<usize> {
    let from_end = |index: i64| if index < 0 { index.saturating_add(len as i64) } else { index };
    let end = from_end(stop).saturating_add(1).clamp(0, len as i64) as usize;
    let start = from_end(start).max(0) as usize;
    start.min(end)..end
}

/// Reads `1.5`, `(1.5`, `-inf`. As with C's `strtod`, on which Redis relies here, leading spaces are fine, nothing is 0,
/// and what is too large is an infinity.
fn score_bound(text: &[u8]) -> Option<ScoreBound> {
    let (exclusive, text) = text.strip_prefix(b"(").map_or((false, text), |text| (true, text));
    // C's strings end at the first zero byte.
    let text = text.split(|byte| *byte == 0).next()?;
    let read = strtod(text);
    (read.used == text.len() && !read.value.is_nan()).then_some(ScoreBound { score: read.value, exclusive })
}

fn lex_bound(text: &[u8]) -> Option<LexBound<'_>> {
    match text {
        b"-" => Some(LexBound::Min),
        b"+" => Some(LexBound::Max),
        [b'[', member @ ..] => Some(LexBound::Inclusive(member)),
        [b'(', member @ ..] => Some(LexBound::Exclusive(member)),
        _ => None,
    }
}

/// What a command of the ZRANGE kind fixes by its name; `None` is left to its options.
#[derive(Clone, Copy)]
struct Kind {
    by: Option<By>,
    reverse: Option<bool>,
    /// Whether the range is stored, which leaves no choice about scores.
    stores: bool,
}

/// A call of the ZRANGE kind.
struct Query<'a> {
    key: &'a [u8],
    span: Span<'a>,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    /// Most members to answer; negative: all.
    limit: i64,
}

impl<'a> Query<'a> {
    fn parse(args: &mut Args<'a>, kind: Kind) -> Result<Query<'a>, Error> {
        let (key, first, second) = (args.bytes()?, args.bytes()?, args.bytes()?);
        let (mut by, mut reverse) = (kind.by, kind.reverse);
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        while !args.is_empty() {
            if !kind.stores && args.flag("withscores") {
                with_scores = true;
            } else if args.option("limit", 2) {
                (offset, limit) = (args.int()?, args.int()?);
            } else if reverse.is_none() && args.flag("rev") {
                reverse = Some(true);
            } else if by.is_none()
                && let Some(chosen) = args.one_of(&[("bylex", By::Lex), ("byscore", By::Score)])
            {
                by = Some(chosen);
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
            // Redis passes over an offset that comes without a limit.
            offset = 0;
        }
        if with_scores && by == By::Lex {
            return Err(Error::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (min, max) = if reverse && by != By::Rank { (second, first) } else { (first, second) };
        Ok(Query { key, span: Span::parse(by, min, max)?, reverse, with_scores, offset, limit })
    }

    /// The members asked for, lowest first; the answer begins at the end if `reverse`.
    fn members<'z>(&self, zset: &'z ZSet) -> Members<'z> {
        let Range { mut start, mut end } = self.span.ranks(zset, self.reverse);
        // A negative offset is passed over by no member.
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(end - start);
        let wanted = usize::try_from(self.limit).unwrap_or(usize::MAX).min(end - start - skipped);
        if self.reverse {
            end -= skipped;
            start = end - wanted;
        } else {
            start += skipped;
            end = start + wanted;
        }
        zset.range(start..end)
    }
}

pub(super) fn zrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, None, None)
}

pub(super) fn zrevrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Some(By::Rank), Some(true))
}

pub(super) fn zrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Some(By::Score), Some(false))
}

pub(super) fn zrevrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Some(By::Score), Some(true))
}

pub(super) fn zrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Some(By::Lex), Some(false))
}

pub(super) fn zrevrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Some(By::Lex), Some(true))
}

fn answer(ctx: &mut Ctx<'_>, mut args: Args<'_>, by: Option<By>, reverse: Option<bool>) -> Done {
    let query = Query::parse(&mut args, Kind { by, reverse, stores: false })?;
    let layout = Layout::new(ctx.reply, query.with_scores);
    let Some(zset) = read(ctx.ks, ctx.session.db, query.key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let members = query.members(zset);
    layout.head(ctx.reply, members.len());
    if query.reverse {
        members.rev().for_each(|(member, score)| layout.member(ctx.reply, member, score));
    } else {
        members.for_each(|(member, score)| layout.member(ctx.reply, member, score));
    }
    Ok(())
}

pub(super) fn zrangestore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let to = args.bytes()?;
    let query = Query::parse(&mut args, Kind { by: None, reverse: None, stores: true })?;
    let limits = ctx.ks.limits.zset;
    let mut taken = ZSet::new();
    if let Some(zset) = read(ctx.ks, ctx.session.db, query.key)? {
        query.members(zset).for_each(|(member, score)| _ = taken.insert(member, score, limits));
    }
    store(ctx, to, &taken)
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
    let key = args.bytes()?;
    let span = Span::parse(by, args.bytes()?, args.bytes()?)?;
    let db = ctx.db();
    let mut removed = 0;
    if let Some(slot) = find(ctx.ks, db, key)? {
        let ranks = span.ranks(ctx.ks.zset(db, slot)?, false);
        removed = ctx.ks.zset_remove_ranks(db, slot, ranks)?;
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_c_reads_them() {
        let bound = |score, exclusive| Some(ScoreBound { score, exclusive });
        for (text, want) in [
            ("1.5", bound(1.5, false)),
            ("(1.5", bound(1.5, true)),
            ("(-inf", bound(f64::NEG_INFINITY, true)),
            ("1e999", bound(f64::INFINITY, false)),
            (" 2", bound(2.0, false)),
            ("", bound(0.0, false)),
            ("(", bound(0.0, true)),
            ("nan", None),
            ("1x", None),
            ("((1", None),
        ] {
            assert_eq!(score_bound(text.as_bytes()), want, "{text:?}");
        }
        assert_eq!(lex_bound(b"[a"), Some(LexBound::Inclusive(b"a")));
        assert_eq!(lex_bound(b"("), Some(LexBound::Exclusive(b"")));
        assert_eq!(lex_bound(b"+x"), None);
        assert_eq!(lex_bound(b""), None);
    }

    #[test]
    fn ranks_stay_within_the_set() {
        for (start, stop, want) in [
            (0, -1, 0..3),
            (-2, -1, 1..3),
            (-9, 9, 0..3),
            (2, 1, 2..2),
            (5, 9, 3..3),
            (i64::MIN, i64::MAX, 0..3),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(ranks_within(start, stop, 3), want, "{start} {stop}");
        }
    }
}
