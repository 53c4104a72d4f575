//! Operations on several sorted sets: union, intersection, difference.
//!
//! Plain sets may take part; their members have score 1. The result is always built as a new sorted set, because the
//! reply is in order and the result may be stored at one of the source keys.

use std::ops::ControlFlow;

use super::common::{members_reply, store};
use crate::engine::{Ctx, Done};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::set::Set;
use crate::value::string::Digits;
use crate::value::zset::{ZSet, ZSetLimits};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// How the scores of a member in several sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    /// Ignores the scores and sums the weights of the sets.
    Count,
}

const AGGREGATES: [(&str, Aggregate); 4] =
    [("sum", Aggregate::Sum), ("min", Aggregate::Min), ("max", Aggregate::Max), ("count", Aggregate::Count)];

impl Aggregate {
    /// The contribution of a set in which the member has this score.
    fn weigh(self, weight: f64, score: f64) -> f64 {
        if self == Aggregate::Count { weight } else { weight * score }
    }

    fn apply(self, so_far: f64, score: f64) -> f64 {
        match self {
            // Infinities of both signs add up to 0.
            Aggregate::Sum | Aggregate::Count => number_or_zero(so_far + score),
            Aggregate::Min if score < so_far => score,
            Aggregate::Max if score > so_far => score,
            Aggregate::Min | Aggregate::Max => so_far,
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A source: a sorted set or a set.
#[derive(Clone, Copy)]
enum Source<'k> {
    ZSet(&'k ZSet),
    Set(&'k Set),
}

impl<'k> Source<'k> {
    fn at(ks: &'k Keyspace, db: DbIndex, slot: Slot) -> Result<Source<'k>, Error> {
        match ks.value(db, slot) {
            ValueRef::ZSet(zset) => Ok(Source::ZSet(zset)),
            ValueRef::Set(set) => Ok(Source::Set(set)),
            _ => Err(Error::WrongType),
        }
    }

    fn len(self) -> usize {
        match self {
            Source::ZSet(zset) => zset.len(),
            Source::Set(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::ZSet(zset) => zset.score(member),
            Source::Set(set) => set.contains(member).then_some(1.0),
        }
    }

    /// Visits the members until the visitor stops.
    fn visit(self, mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>) {
        let mut digits = Digits::new();
        // It makes no difference here whether the visitor stopped.
        _ = match self {
            Source::ZSet(zset) => zset.iter().try_for_each(|(member, score)| visit(member, score)),
            Source::Set(set) => set.iter().try_for_each(|member| visit(member.as_bytes(&mut digits), 1.0)),
        };
    }
}

/// A source and the factor of its scores.
#[derive(Clone, Copy)]
struct Weighted<'k> {
    source: Source<'k>,
    weight: f64,
}

/// The parsed arguments of a call.
struct Query {
    operation: Operation,
    /// For each key, its slot and its weight.
    operands: Vec<(Option<Slot>, f64)>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// Takes the number of keys and the keys.
fn keys<'a>(ctx: &Ctx<'_>, args: &mut Args<'a>) -> Result<Argv<'a>, Error> {
    let count = args.int()?;
    if count < 1 {
        return Err(Error::owned(format!("ERR at least 1 input key is needed for '{}' command", ctx.name())));
    }
    args.take(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Returns the slots of the sets at `keys`. Each lookup counts as a hit or a miss.
fn operands(ctx: &mut Ctx<'_>, keys: Argv<'_>) -> Result<Vec<(Option<Slot>, f64)>, Error> {
    let db = ctx.db();
    let operand = |key| {
        let slot = ctx.ks.look_up(db, key);
        slot.map_or(Ok(()), |slot| Source::at(ctx.ks, db, slot).map(drop))?;
        Ok((slot, 1.0))
    };
    keys.iter().map(operand).collect()
}

impl Query {
    fn parse(ctx: &mut Ctx<'_>, args: &mut Args<'_>, operation: Operation, stores: bool) -> Result<Query, Error> {
        let keys = keys(ctx, args)?;
        // Redis checks the keys before the options.
        let operands = operands(ctx, keys)?;
        let mut query = Query { operation, operands, aggregate: Aggregate::Sum, with_scores: false };
        let weighs = operation != Operation::Diff;
        while !args.is_empty() {
            if weighs && args.option("weights", query.operands.len()) {
                for (_, weight) in &mut query.operands {
                    let text = args.bytes()?;
                    *weight =
                        crate::base::num::parse_f64(text).ok_or(Error::text("ERR weight value is not a float"))?;
                }
            } else if weighs && args.option("aggregate", 1) {
                query.aggregate = args.one_of(&AGGREGATES).ok_or(Error::Syntax)?;
            } else if !stores && args.flag("withscores") {
                query.with_scores = true;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(query)
    }

    fn run(&self, ctx: &Ctx<'_>) -> Result<ZSet, Error> {
        let limits = ctx.ks.limits().zset;
        let sources = sources(ctx.ks, ctx.session.db, &self.operands)?;
        Ok(match self.operation {
            Operation::Union => unite(&sources, self.aggregate, limits),
            Operation::Inter => {
                let mut result = ZSet::new();
                intersect(&sources, self.aggregate, |member, score| {
                    result.insert(member, score, limits);
                    ControlFlow::Continue(())
                });
                result
            }
            Operation::Diff => subtract(&sources, limits),
        })
    }
}

fn sources<'k>(
    ks: &'k Keyspace,
    db: DbIndex,
    operands: &[(Option<Slot>, f64)],
) -> Result<Vec<Option<Weighted<'k>>>, Error> {
    let source = |(slot, weight): &(Option<Slot>, f64)| {
        let source = slot.map(|slot| Source::at(ks, db, slot)).transpose()?;
        Ok(source.map(|source| Weighted { source, weight: *weight }))
    };
    operands.iter().map(source).collect()
}

/// Sorts by size, the smallest first, as in Redis: the order shows in the last digits of sums.
fn by_size<'k>(sources: impl Iterator<Item = Weighted<'k>>) -> Vec<Weighted<'k>> {
    let mut sources: Vec<Weighted<'k>> = sources.collect();
    sources.sort_by_key(|weighted| weighted.source.len());
    sources
}

/// The members of all sets.
fn unite(sources: &[Option<Weighted<'_>>], aggregate: Aggregate, limits: ZSetLimits) -> ZSet {
    let mut result = ZSet::new();
    for Weighted { source, weight } in by_size(sources.iter().flatten().copied()) {
        source.visit(|member, score| {
            let score = number_or_zero(aggregate.weigh(weight, score));
            let score = result.remove(member).map_or(score, |so_far| aggregate.apply(so_far, score));
            result.insert(member, score, limits);
            ControlFlow::Continue(())
        });
    }
    result
}

/// Visits the members that all sets have, until the visitor stops.
fn intersect(
    sources: &[Option<Weighted<'_>>],
    aggregate: Aggregate,
    mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
) {
    if sources.iter().any(Option::is_none) {
        return;
    }
    // The smallest set bounds the result and the time.
    let sources = by_size(sources.iter().flatten().copied());
    let Some((smallest, others)) = sources.split_first() else { return };
    smallest.source.visit(|member, score| {
        let mut result = number_or_zero(aggregate.weigh(smallest.weight, score));
        for Weighted { source, weight } in others {
            let Some(score) = source.score(member) else { return ControlFlow::Continue(()) };
            // As in Redis, NaN is replaced only in the first product; the aggregate handles the others.
            result = aggregate.apply(result, aggregate.weigh(*weight, score));
        }
        visit(member, result)
    });
}

/// The members that only the first set has.
fn subtract(sources: &[Option<Weighted<'_>>], limits: ZSetLimits) -> ZSet {
    let mut result = ZSet::new();
    let Some((Some(first), others)) = sources.split_first() else { return result };
    first.source.visit(|member, score| {
        if !others.iter().flatten().any(|other| other.source.score(member).is_some()) {
            result.insert(member, score, limits);
        }
        ControlFlow::Continue(())
    });
    result
}

pub(super) fn zunion(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Operation::Union)
}

pub(super) fn zinter(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Operation::Inter)
}

pub(super) fn zdiff(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, Operation::Diff)
}

fn answer(ctx: &mut Ctx<'_>, mut args: Args<'_>, operation: Operation) -> Done {
    let query = Query::parse(ctx, &mut args, operation, false)?;
    let result = query.run(ctx)?;
    members_reply(ctx.reply, result.iter(), query.with_scores);
    Ok(())
}

pub(super) fn zunionstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    store_result(ctx, args, Operation::Union)
}

pub(super) fn zinterstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    store_result(ctx, args, Operation::Inter)
}

pub(super) fn zdiffstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    store_result(ctx, args, Operation::Diff)
}

fn store_result(ctx: &mut Ctx<'_>, mut args: Args<'_>, operation: Operation) -> Done {
    let to = args.bytes()?;
    let query = Query::parse(ctx, &mut args, operation, true)?;
    let result = query.run(ctx)?;
    let stored = store(ctx, to, result.iter())?;
    ctx.reply.integer(stored as i64);
    Ok(())
}

pub(super) fn zintercard(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let keys = keys(ctx, &mut args)?;
    let operands = operands(ctx, keys)?;
    let negative = || Error::text("ERR LIMIT can't be negative");
    let mut limit = 0;
    while args.option("limit", 1) {
        limit = usize::try_from(args.int_or(negative())?).map_err(|_| negative())?;
    }
    args.end()?;
    let mut count = 0;
    intersect(&sources(ctx.ks, ctx.session.db, &operands)?, Aggregate::Sum, |_, _| {
        count += 1;
        // A limit of 0 never matches, so it means no limit.
        if count == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    ctx.reply.integer(count as i64);
    Ok(())
}
