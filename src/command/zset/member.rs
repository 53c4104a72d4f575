//! Single members: setting scores, reading scores and ranks, drawing random members.

use std::collections::HashSet;

use super::super::scan;
use super::common::{find, members_reply, read, signless_zero};
use crate::base::num;
use crate::command::limits::{RANDOM_DRAWS_MAX, REPLY_FORESEEN_BYTES, REPLY_FORESEEN_ITEMS};
use crate::engine::{Ctx, Done};
use crate::keyspace::{DbIndex, Slot};
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::zset::ZSet;

/// The options of ZADD: which members it may change, and how.
#[derive(Clone, Copy, Default)]
pub(in crate::command) struct AddRules {
    pub only_new: bool,
    pub only_existing: bool,
    pub only_greater: bool,
    pub only_less: bool,
    pub increment: bool,
    /// Reply with the number of changed members, not of new ones.
    pub count_changed: bool,
}

impl AddRules {
    fn parse(args: &mut Args<'_>) -> AddRules {
        let mut rules = AddRules::default();
        loop {
            if args.flag("nx") {
                rules.only_new = true;
            } else if args.flag("xx") {
                rules.only_existing = true;
            } else if args.flag("gt") {
                rules.only_greater = true;
            } else if args.flag("lt") {
                rules.only_less = true;
            } else if args.flag("ch") {
                rules.count_changed = true;
            } else if args.flag("incr") {
                rules.increment = true;
            } else {
                return rules;
            }
        }
    }

    fn check(&self, pairs: usize) -> Result<(), Error> {
        if self.only_new && self.only_existing {
            return Err(Error::text("ERR XX and NX options at the same time are not compatible"));
        }
        if (self.only_new && (self.only_greater || self.only_less)) || (self.only_greater && self.only_less) {
            return Err(Error::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if self.increment && pairs > 1 {
            return Err(Error::text("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// The new score of a member; `None` if it stays.
    fn score(&self, old: Option<f64>, given: f64) -> Result<Option<f64>, Error> {
        let Some(old) = old else { return Ok((!self.only_existing).then_some(given)) };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.increment { old + given } else { given };
        if score.is_nan() {
            return Err(Error::text("ERR resulting score is not a number (NaN)"));
        }
        let refused = (self.only_less && score >= old) || (self.only_greater && score <= old);
        Ok((!refused).then_some(score))
    }
}

/// The result of ZADD.
#[derive(Default)]
struct Added {
    new: usize,
    changed: usize,
    /// The score of the last member, unless the options excluded it.
    score: Option<f64>,
}

/// Sets scores under the rules and replies as ZADD does.
pub(in crate::command) fn add<'a>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    rules: AddRules,
    members: impl Iterator<Item = (f64, &'a [u8])>,
) -> Done {
    let db = ctx.db();
    let mut slot = find(ctx.ks, db, key)?;
    if rules.increment {
        ctx.ks.name_events("zincr");
    }
    let mut added = Added::default();
    for (given, member) in members {
        let old = slot.map_or(Ok(None), |slot| ctx.ks.zset(db, slot).map(|zset| zset.score(member)))?;
        added.score = rules.score(old, given)?;
        let Some(score) = added.score else { continue };
        if old.is_none_or(|old| old != score) {
            let is_compact = slot.map_or(Ok(true), |slot| ctx.ks.zset(db, slot).map(|z| z.encoding() == "listpack"))?;
            slot = Some(ctx.ks.zset_add(db, key, slot, member, signless_zero(score, is_compact))?.0);
            added.new += usize::from(old.is_none());
            added.changed += 1;
        }
    }
    match added.score {
        Some(score) if rules.increment => ctx.reply.double(score),
        None if rules.increment => ctx.reply.null(),
        _ => ctx.reply.integer(if rules.count_changed { added.changed } else { added.new } as i64),
    }
    Ok(())
}

pub(super) fn zadd(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let rules = AddRules::parse(&mut args);
    if args.is_empty() || args.len() % 2 == 1 {
        return Err(Error::Syntax);
    }
    rules.check(args.len() / 2)?;
    let pairs = args.rest();
    // All scores are validated before the first is stored, and parsed again then: parsing is cheap.
    for at in (0..pairs.len()).step_by(2) {
        num::parse_f64(pairs.get(at).unwrap_or_default()).ok_or(Error::NotFloat)?;
    }
    let members =
        (0..pairs.len()).step_by(2).filter_map(|at| Some((num::parse_f64(pairs.get(at)?)?, pairs.get(at + 1)?)));
    add(ctx, key, rules, members)
}

pub(super) fn zincrby(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, increment, member) = (args.bytes()?, args.double()?, args.bytes()?);
    let rules = AddRules { increment: true, ..AddRules::default() };
    add(ctx, key, rules, [(increment, member)].into_iter())
}

pub(super) fn zrem(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let mut removed = 0;
    if let Some(slot) = find(ctx.ks, db, args.bytes()?)? {
        removed = remove_all(ctx, db, slot, args.rest())?;
    }
    ctx.reply.integer(removed);
    Ok(())
}

fn remove_all(ctx: &mut Ctx<'_>, db: DbIndex, slot: Slot, members: Argv<'_>) -> Result<i64, Error> {
    let mut removed = 0;
    for member in members.iter() {
        let was_last = ctx.ks.zset(db, slot)?.len() == 1;
        if ctx.ks.zset_remove(db, slot, member)?.is_some() {
            removed += 1;
            if was_last {
                // The key and its slot are gone.
                break;
            }
        }
    }
    Ok(removed)
}

pub(super) fn zcard(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let len = read(ctx.ks, ctx.session.db, args.bytes()?)?.map_or(0, ZSet::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

pub(super) fn zscore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, member) = (args.bytes()?, args.bytes()?);
    match read(ctx.ks, ctx.session.db, key)?.and_then(|zset| zset.score(member)) {
        Some(score) => ctx.reply.double(score),
        None => ctx.reply.null(),
    }
    Ok(())
}

pub(super) fn zmscore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let zset = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    let members = args.rest();
    ctx.reply.array(members.len());
    for member in members.iter() {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => ctx.reply.double(score),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn zrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    rank(ctx, args, false)
}

pub(super) fn zrevrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    rank(ctx, args, true)
}

fn rank(ctx: &mut Ctx<'_>, mut args: Args<'_>, reverse: bool) -> Done {
    let (key, member) = (args.bytes()?, args.bytes()?);
    if args.len() > 1 {
        return Err(Error::Arity(ctx.name().into()));
    }
    let with_score = args.flag("withscore");
    args.end()?;
    let zset = read(ctx.ks, ctx.session.db, key)?;
    let Some((rank, score, len)) =
        zset.and_then(|zset| zset.rank(member).map(|(rank, score)| (rank, score, zset.len())))
    else {
        if with_score {
            ctx.reply.null_array()
        } else {
            ctx.reply.null()
        }
        return Ok(());
    };
    if with_score {
        ctx.reply.array(2);
    }
    ctx.reply.integer(if reverse { len - 1 - rank } else { rank } as i64);
    if with_score {
        ctx.reply.double(score);
    }
    Ok(())
}

pub(super) fn zscan(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let cursor = scan::cursor(&mut args)?;
    let Some(zset) = read(ctx.ks, ctx.session.db, key)? else {
        scan::answer_empty(ctx.reply);
        return Ok(());
    };
    let options = scan::Options::parse(&mut args, scan::Walk::Members)?;
    scan::answer(ctx.reply, |reply, written| {
        let mut digits = Vec::with_capacity(24);
        zset.scan(cursor, options.count, |member, score| {
            if options.wants(member) {
                digits.clear();
                num::format_f64(&mut digits, score);
                reply.bulk(member);
                reply.bulk(&digits);
                *written += 2;
            }
        })
    });
    Ok(())
}

pub(super) fn zrandmember(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    if args.is_empty() {
        let len = read(ctx.ks, db, key)?.map_or(0, ZSet::len);
        let rank = ctx.ks.rng.below(len.max(1) as u64) as usize;
        let slot = find(ctx.ks, db, key)?;
        let drawn = slot.map_or(Ok(None), |slot| ctx.ks.zset(db, slot).map(|zset| zset.by_rank(rank)))?;
        ctx.reply.bulk_or_null(drawn.map(|(member, _)| member));
        return Ok(());
    }
    let count = args.int()?;
    if count == i64::MIN {
        return Err(Error::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let with_scores = args.flag("withscores");
    args.end()?;
    if with_scores && count.unsigned_abs() > (i64::MAX / 2) as u64 {
        return Err(Error::OutOfRange);
    }
    let Some(slot) = ctx.ks.look_up(db, key) else {
        ctx.reply.array(0);
        return Ok(());
    };
    let len = ctx.ks.zset(db, slot)?.len();
    let ranks = draw(ctx, len, count)?;
    let zset = ctx.ks.zset(db, slot)?;
    let bytes = |rank: &usize| zset.by_rank(*rank).map_or(0, |(member, _)| member.len());
    if ranks.iter().take(REPLY_FORESEEN_ITEMS).map(bytes).sum::<usize>() > REPLY_FORESEEN_BYTES {
        ctx.reply.announce(ranks.iter().map(bytes));
    }
    members_reply(ctx.reply, ranks.iter().map(|&rank| zset.by_rank(rank).unwrap_or_default()), with_scores);
    Ok(())
}

/// Returns random ranks: up to `count` different ones, or -`count` with repetition if it is negative.
fn draw(ctx: &mut Ctx<'_>, len: usize, count: i64) -> Result<Vec<usize>, Error> {
    let mut below = |n: usize| ctx.ks.rng.below(n.max(1) as u64) as usize;
    if count < 0 {
        if count.unsigned_abs() > RANDOM_DRAWS_MAX as u64 {
            return Err(Error::OutOfRange);
        }
        return Ok((0..count.unsigned_abs()).map(|_| below(len)).collect());
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count >= len {
        return Ok((0..len).rev().collect());
    }
    if count.saturating_mul(3) < len {
        let mut seen = HashSet::with_capacity(count);
        let mut ranks = Vec::with_capacity(count);
        while ranks.len() < count {
            let rank = below(len);
            if seen.insert(rank) {
                ranks.push(rank);
            }
        }
        return Ok(ranks);
    }
    let mut ranks: Vec<usize> = (0..len).collect();
    for at in 0..count {
        ranks.swap(at, at + below(len - at));
    }
    ranks.truncate(count);
    Ok(ranks)
}
