//! Sorted sets: members by score. This file changes and asks about single members; ranges, pops and what several sets
//! have in common have their own files.

mod combine;
mod pop;
mod range;
mod table;

use std::collections::BTreeSet;

pub use table::COMMANDS;

use super::sample::{self, Count};
use super::scan;
use crate::base::rng::Rng;
use crate::engine::args::Args;
use crate::engine::ctx::Ctx;
use crate::engine::error::Error;
use crate::engine::spec::Done;
use crate::keyspace::entry::Value;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::reply::Reply;
use crate::value::zset::ZSet;

/// When a member takes a new score, and which.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rule {
    /// Only members that are not there yet.
    pub nx: bool,
    /// Only members that are there.
    pub xx: bool,
    /// Members that are there only take a higher score.
    pub gt: bool,
    /// Members that are there only take a lower score.
    pub lt: bool,
    /// The score is added to the one there is.
    pub incr: bool,
}

impl Rule {
    /// The score to take; `None` where the rule is against it.
    fn apply(self, old: Option<f64>, score: f64) -> Result<Option<f64>, Error> {
        let Some(old) = old else { return Ok((!self.xx).then_some(score)) };
        if self.nx {
            return Ok(None);
        }
        let new = if self.incr { old + score } else { score };
        if new.is_nan() {
            return Err(Error::text("ERR resulting score is not a number (NaN)"));
        }
        let refused = (self.gt && new <= old) || (self.lt && new >= old);
        Ok((!refused).then_some(new))
    }
}

/// What [`add`] did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// New members.
    pub added: i64,
    /// Members whose score is another one now.
    pub changed: i64,
    /// The score that the last member took or kept; `None` where the rule was against it.
    pub score: Option<f64>,
}

/// Gives members scores, under a rule.
pub(super) fn add<'a>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    rule: Rule,
    pairs: impl Iterator<Item = (f64, &'a [u8])>,
) -> Result<Tally, Error> {
    let db = ctx.db();
    let mut slot = find(ctx.ks, db, key)?;
    let mut tally = Tally::default();
    for (score, member) in pairs {
        let old = match slot {
            Some(slot) => ctx.ks.zset(db, slot)?.score(member),
            None => None,
        };
        tally.score = rule.apply(old, score)?;
        let Some(new) = tally.score else { continue };
        match old {
            Some(old) if old == new => continue,
            Some(_) => tally.changed += 1,
            None => tally.added += 1,
        }
        slot = Some(ctx.ks.zset_add(db, key, slot, member, without_sign_of_zero(new))?.0);
    }
    Ok(tally)
}

/// Puts a sorted set in the place of whatever is under a key; an empty one removes the key. Answers the number of members.
pub(super) fn store(ctx: &mut Ctx<'_>, key: &[u8], members: &ZSet) -> Done {
    let db = ctx.db();
    if let Some(slot) = ctx.ks.find(db, key) {
        ctx.ks.remove(db, slot);
    }
    let mut slot = None;
    for (member, score) in members.iter() {
        slot = Some(ctx.ks.zset_add(db, key, slot, member, without_sign_of_zero(score))?.0);
    }
    ctx.reply.integer(members.len() as i64);
    Ok(())
}

/// Stored scores know no negative zero, as in Redis' compact representation.
fn without_sign_of_zero(score: f64) -> f64 {
    score + 0.0
}

fn zadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    add_command(ctx, args, false)
}

fn zincrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    add_command(ctx, args, true)
}

fn add_command(ctx: &mut Ctx<'_>, mut args: Args<'_>, incr: bool) -> Done {
    let key = args.bytes()?;
    let mut rule = Rule { incr, ..Rule::default() };
    let mut count_changed = false;
    while !args.is_empty() {
        match () {
            () if args.flag("nx") => rule.nx = true,
            () if args.flag("xx") => rule.xx = true,
            () if args.flag("ch") => count_changed = true,
            () if args.flag("incr") => rule.incr = true,
            () if args.flag("gt") => rule.gt = true,
            () if args.flag("lt") => rule.lt = true,
            () => break,
        }
    }
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    check(rule, args.len() / 2)?;
    let tally = if args.len() == 2 {
        let (score, member) = (args.double()?, args.bytes()?);
        add(ctx, key, rule, std::iter::once((score, member)))?
    } else {
        let mut pairs = Vec::with_capacity(args.len() / 2);
        while !args.is_empty() {
            pairs.push((args.double()?, args.bytes()?));
        }
        add(ctx, key, rule, pairs.into_iter())?
    };
    match tally.score {
        _ if !rule.incr => ctx.reply.integer(tally.added + if count_changed { tally.changed } else { 0 }),
        Some(score) => ctx.reply.double(score),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// Whether the options can be had together, for so many pairs.
fn check(rule: Rule, pairs: usize) -> Result<(), Error> {
    if rule.nx && rule.xx {
        return Err(Error::text("ERR XX and NX options at the same time are not compatible"));
    }
    if (rule.nx && (rule.gt || rule.lt)) || (rule.gt && rule.lt) {
        return Err(Error::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if rule.incr && pairs > 1 {
        return Err(Error::text("ERR INCR option supports a single increment-element pair"));
    }
    Ok(())
}

fn zrem(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let Some(slot) = find(ctx.ks, db, args.bytes()?)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let all = ctx.ks.zset(db, slot)?.len();
    let mut removed = 0;
    for member in args.rest().iter() {
        removed += usize::from(ctx.ks.zset_remove(db, slot, member)?.is_some());
        if removed == all {
            // The key went with its last member.
            break;
        }
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn zcard(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let len = read(ctx.ks, ctx.session.db, args.bytes()?)?.map_or(0, ZSet::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn zscore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let zset = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    let member = args.bytes()?;
    answer_score(ctx.reply, zset.and_then(|zset| zset.score(member)));
    Ok(())
}

fn zmscore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let zset = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    ctx.reply.array(args.len());
    for member in args.rest().iter() {
        answer_score(ctx.reply, zset.and_then(|zset| zset.score(member)));
    }
    Ok(())
}

fn answer_score(reply: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    rank(ctx, args, false)
}

fn zrevrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    rank(ctx, args, true)
}

fn rank(ctx: &mut Ctx<'_>, mut args: Args<'_>, from_highest: bool) -> Done {
    let (key, member) = (args.bytes()?, args.bytes()?);
    if args.len() > 1 {
        return Err(Error::Arity(ctx.name().into()));
    }
    let with_score = args.flag("withscore");
    args.end()?;
    let found = read(ctx.ks, ctx.session.db, key)?.and_then(|zset| {
        let (rank, score) = zset.rank(member)?;
        Some((if from_highest { zset.len() - 1 - rank } else { rank }, score))
    });
    match found {
        Some((rank, score)) if with_score => {
            ctx.reply.array(2);
            ctx.reply.integer(rank as i64);
            ctx.reply.double(score);
        }
        Some((rank, _)) => ctx.reply.integer(rank as i64),
        None if with_score => ctx.reply.null_array(),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn zscan(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let cursor = scan::cursor(&mut args)?;
    let Some(zset) = read(ctx.ks, ctx.session.db, key)? else {
        scan::answer_empty(ctx.reply);
        return Ok(());
    };
    let options = scan::Options::parse(&mut args, scan::Walk::Members)?;
    let mut digits = Vec::new();
    scan::answer(ctx.reply, |reply, written| {
        zset.scan(cursor, options.count, |member, score| {
            if options.wants(member) {
                reply.bulk(member);
                // A text in RESP3 too: the step's elements are one flat list of texts.
                digits.clear();
                crate::base::num::format_f64(&mut digits, score);
                reply.bulk(&digits);
                *written += 2;
            }
        })
    });
    Ok(())
}

fn zrandmember(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    if args.is_empty() {
        let mut rng = sample::rng(ctx);
        match read(ctx.ks, ctx.session.db, key)?.and_then(|zset| random(zset, &mut rng)) {
            Some((member, _)) => ctx.reply.bulk(member),
            None => ctx.reply.null(),
        }
        return Ok(());
    }
    let count = Count::parse(&mut args)?;
    let with_scores = args.flag("withscores");
    args.end()?;
    // Redis counts members and scores together.
    if with_scores && count.get() > i64::MAX as usize / 2 {
        return Err(Error::OutOfRange);
    }
    sample_members(ctx, key, count, with_scores)
}

fn sample_members(ctx: &mut Ctx<'_>, key: &[u8], count: Count, with_scores: bool) -> Done {
    let mut rng = sample::rng(ctx);
    let layout = Layout::new(ctx.reply, with_scores);
    let Some(zset) = read(ctx.ks, ctx.session.db, key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    match count {
        Count::Different(count) if count >= zset.len() => {
            layout.members(ctx.reply, zset.iter());
            Ok(())
        }
        Count::Different(count) => {
            let drawn = different_ranks(zset.len(), count, &mut rng);
            layout.members(ctx.reply, drawn.iter().filter_map(|rank| zset.by_rank(*rank)));
            Ok(())
        }
        Count::Repeated(count) => {
            layout.head(ctx.reply, count);
            sample::repeat(ctx.reply, ctx.server.config.proto_max_bulk_len, count, |reply| {
                if let Some((member, score)) = random(zset, &mut rng) {
                    layout.member(reply, member, score);
                }
            })
        }
    }
}

fn random<'z>(zset: &'z ZSet, rng: &mut Rng) -> Option<(&'z [u8], f64)> {
    zset.by_rank(rng.below(zset.len() as u64) as usize)
}

/// `count` different ranks below `len`, each choice equally likely, in time that does not depend on `len` (Floyd's
/// algorithm; Bentley, Programming Pearls: A sample of brilliance, 1987).
fn different_ranks(len: usize, count: usize, rng: &mut Rng) -> BTreeSet<usize> {
    let mut drawn = BTreeSet::new();
    for top in len.saturating_sub(count)..len {
        if !drawn.insert(rng.below(top as u64 + 1) as usize) {
            drawn.insert(top);
        }
    }
    drawn
}

/// How members are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Without scores.
    Bare,
    /// Members and scores, alternating.
    Flat,
    /// An array per member and its score.
    Pairs,
}

impl Layout {
    /// As the reader of `reply` expects it: pairs are RESP3's.
    fn new(reply: &Reply, with_scores: bool) -> Layout {
        match with_scores {
            false => Layout::Bare,
            true if reply.is_resp3() => Layout::Pairs,
            true => Layout::Flat,
        }
    }

    /// The head of an array of `n` members.
    fn head(self, reply: &mut Reply, n: usize) {
        reply.array(if self == Layout::Flat { n.saturating_mul(2) } else { n });
    }

    fn member(self, reply: &mut Reply, member: &[u8], score: f64) {
        if self == Layout::Pairs {
            reply.array(2);
        }
        reply.bulk(member);
        if self != Layout::Bare {
            reply.double(score);
        }
    }

    /// An array of all these.
    fn members<'z>(self, reply: &mut Reply, members: impl Iterator<Item = (&'z [u8], f64)>) {
        let mark = reply.begin();
        let mut n = 0;
        for (member, score) in members {
            self.member(reply, member, score);
            n += 1;
        }
        reply.end_array(mark, if self == Layout::Flat { n * 2 } else { n });
    }
}

/// The sorted set under a key, for a command that only reads.
#[inline]
pub(super) fn read<'k>(ks: &'k mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<&'k ZSet>, Error> {
    match ks.read(db, key) {
        None => Ok(None),
        Some(Value::ZSet(zset)) => Ok(Some(zset)),
        Some(_) => Err(Error::WrongType),
    }
}

/// Where the sorted set under a key lives, for a command that writes.
#[inline]
fn find(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<Slot>, Error> {
    let slot = ks.find(db, key);
    slot.map_or(Ok(()), |slot| ks.zset(db, slot).map(drop))?;
    Ok(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_decides_about_the_score() {
        let rule = Rule::default();
        assert_eq!(rule.apply(None, 1.0), Ok(Some(1.0)));
        assert_eq!(rule.apply(Some(5.0), 1.0), Ok(Some(1.0)));
        assert_eq!(Rule { xx: true, ..rule }.apply(None, 1.0), Ok(None));
        assert_eq!(Rule { nx: true, ..rule }.apply(Some(1.0), 2.0), Ok(None));
        assert_eq!(Rule { gt: true, ..rule }.apply(Some(1.0), 1.0), Ok(None));
        assert_eq!(Rule { lt: true, incr: true, ..rule }.apply(Some(1.0), -1.0), Ok(Some(0.0)));
        assert!(Rule { incr: true, ..rule }.apply(Some(f64::INFINITY), f64::NEG_INFINITY).is_err());
    }

    #[test]
    fn drawn_ranks_differ() {
        let mut rng = Rng::seeded(1);
        for (len, count) in [(1, 1), (10, 3), (10, 10), (10, 0), (1 << 40, 100)] {
            let drawn = different_ranks(len, count, &mut rng);
            assert_eq!(drawn.len(), count);
            assert!(drawn.iter().all(|rank| *rank < len));
        }
    }
}
