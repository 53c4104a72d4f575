//! ID.NEXT: growing 64-bit IDs, one or a block of them at a time.
//!
//! The key holds the last ID that was given out, as a string that INCR could read. The next ID is greater than that,
//! regardless of the clock and of restarts. In the shape SNOWFLAKE it is also at least as large as the clock says:
//!
//! ```text
//! | 0 | ms since the epoch, 41 bits | 22 bits: a number within the millisecond |
//! | 0 | ms since the epoch, 41 bits | number, 12 bits | node, 10 bits          |   with NODE
//! ```
//!
//! If a millisecond runs out of numbers, or the clock steps back, IDs of future milliseconds are given out. No call
//! waits for that time; the reply says how far its last ID is ahead of the clock. The node is at the end, not in the
//! middle as in the layout that Twitter published in 2010, so that a block is a plain progression.

use super::error::IdError;
use super::outcome;
use crate::base::num;
use crate::command::help::family;
use crate::command::limits::ID_COUNT_MAX;
use crate::command::string::string_at;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};

/// Unix ms of 2020-01-01: IDs last until 2089.
const EPOCH_MS: i64 = 1_577_836_800_000;

/// Bits below the milliseconds.
const NUMBER_BITS: u32 = 22;

/// Bits of the node, the lowest of [`NUMBER_BITS`].
const NODE_BITS: u32 = 10;

/// How many milliseconds 41 bits can count.
const SPAN_MS: i64 = 1 << (63 - NUMBER_BITS);

/// How IDs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Counter,
    Snowflake { epoch_ms: i64, node: Option<i64> },
}

/// A run of IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    first: i64,
    last: i64,
    /// The difference between two neighbours.
    step: i64,
    /// How far the last ID is ahead of the clock.
    ahead_ms: i64,
}

fn next(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let (count, shape) = parse(&mut args)?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let last = match slot {
        Some(slot) => Some(string_at(ctx.ks, db, slot)?.as_i64().ok_or(Error::NotInteger)?),
        None => None,
    };
    let block = shape.block(last, count, ctx.now_ms())?;
    _ = ctx.ks.put_integer(db, key, slot, block.last);
    let reply = &mut *ctx.reply;
    outcome::begin(reply, 1, 4);
    // As text: numbers in Lua and in many clients are exact only up to 2^53.
    for (name, id) in [("first", block.first), ("last", block.last)] {
        reply.bulk(name.as_bytes());
        reply.bulk_integer(id);
    }
    outcome::number(reply, "step", block.step);
    outcome::number(reply, "ahead-ms", block.ahead_ms);
    Ok(())
}

fn parse(args: &mut Args<'_>) -> Result<(i64, Shape), Error> {
    let (mut count, mut is_snowflake, mut epoch_ms, mut node) = (None, None, None, None);
    while !args.is_empty() {
        if count.is_none() && args.option("count", 1) {
            count = Some(whole(args, "COUNT", 1, ID_COUNT_MAX)?);
        } else if is_snowflake.is_none() && args.option("shape", 1) {
            let shape = args.one_of(&[("snowflake", true), ("counter", false)]);
            is_snowflake = Some(shape.ok_or(IdError::Shape)?);
        } else if epoch_ms.is_none() && args.option("epoch", 1) {
            epoch_ms = Some(whole(args, "EPOCH", 0, i64::MAX)?);
        } else if node.is_none() && args.option("node", 1) {
            node = Some(whole(args, "NODE", 0, (1 << NODE_BITS) - 1)?);
        } else {
            return Err(Error::Syntax);
        }
    }
    let shape = if is_snowflake.unwrap_or(true) {
        Shape::Snowflake { epoch_ms: epoch_ms.unwrap_or(EPOCH_MS), node }
    } else if epoch_ms.is_none() && node.is_none() {
        Shape::Counter
    } else {
        return Err(IdError::NotSnowflake.into());
    };
    Ok((count.unwrap_or(1), shape))
}

fn whole(args: &mut Args<'_>, name: &'static str, least: i64, most: i64) -> Result<i64, Error> {
    let value = num::parse_i64(args.bytes()?).filter(|value| (least..=most).contains(value));
    Ok(value.ok_or(IdError::Parameter { name, least, most })?)
}

impl Shape {
    /// The `count` IDs after `last`, which is `None` for a new key.
    fn block(self, last: Option<i64>, count: i64, now_ms: i64) -> Result<Block, Error> {
        let free = last.map_or(Some(1), |last| last.checked_add(1)).ok_or(Error::Overflow)?;
        let Shape::Snowflake { epoch_ms, node } = self else {
            let last = free.checked_add(count - 1).ok_or(Error::Overflow)?;
            return Ok(Block { first: free, last, step: 1, ahead_ms: 0 });
        };
        // If the clock is before the epoch, IDs only count on.
        let since_ms = now_ms.saturating_sub(epoch_ms).max(0);
        if since_ms >= SPAN_MS {
            return Err(IdError::EpochTooOld.into());
        }
        let least = free.max(since_ms << NUMBER_BITS);
        let (first, step) = match node {
            None => (least, 1),
            Some(node) => {
                let step = 1 << NODE_BITS;
                (least.checked_add((node - least).rem_euclid(step)).ok_or(Error::Overflow)?, step)
            }
        };
        let last = (count - 1).checked_mul(step).and_then(|more| first.checked_add(more)).ok_or(Error::Overflow)?;
        let ahead_ms = (last >> NUMBER_BITS).saturating_add(epoch_ms).saturating_sub(now_ms).max(0);
        Ok(Block { first, last, step, ahead_ms })
    }
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("id"),
    Command {
        name: "id.next",
        arity: -2,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        group: Group::Coordination,
        since: "0.1.0",
        summary: "Returns the next 64-bit IDs, which always increase, even if the clock steps back.",
        syntax: "key [COUNT count] [SHAPE <SNOWFLAKE | COUNTER>]:shape [EPOCH unix-time-milliseconds] \
            [NODE node:integer]",
        event: "incrby",
        run: Run::Now(next),
        ..Command::EMPTY
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_800_000_000_000;

    #[test]
    fn an_id_encodes_its_time() {
        let shape = Shape::Snowflake { epoch_ms: EPOCH_MS, node: None };
        let block = shape.block(None, 1, NOW).expect("a block");
        assert_eq!(block, Block { first: (NOW - EPOCH_MS) << 22, last: (NOW - EPOCH_MS) << 22, step: 1, ahead_ms: 0 });
        let block = Shape::Snowflake { epoch_ms: EPOCH_MS, node: Some(5) }.block(Some(block.last), 3, NOW);
        let first = ((NOW - EPOCH_MS) << 22) + 5;
        assert_eq!(block, Ok(Block { first, last: first + 2 * 1_024, step: 1_024, ahead_ms: 0 }));
        assert_eq!(Shape::Counter.block(None, 5, NOW), Ok(Block { first: 1, last: 5, step: 1, ahead_ms: 0 }));
    }

    #[test]
    fn ids_end_where_63_bits_do() {
        let shape = Shape::Snowflake { epoch_ms: 0, node: None };
        assert!(shape.block(None, 1, SPAN_MS - 1).is_ok());
        assert!(shape.block(None, 1, SPAN_MS).is_err());
        assert!(shape.block(Some(i64::MAX - 1), 1, NOW).is_ok());
        for last in [i64::MAX, i64::MAX - 1] {
            assert_eq!(shape.block(Some(last), 2, NOW), Err(Error::Overflow));
            assert_eq!(Shape::Counter.block(Some(last), 2, NOW), Err(Error::Overflow));
        }
    }

    proptest! {
        /// Keeps all IDs that were given out.
        #[test]
        fn ids_only_grow(
            steps in proptest::collection::vec(
                (-5_000..5_000i64, 1..5_000i64, any::<bool>(), proptest::option::of(0..1_024i64)), 1..30
            )
        ) {
            let (mut now, mut given): (i64, Vec<i64>) = (NOW, Vec::new());
            for (pause_ms, count, counts, node) in steps {
                now += pause_ms;
                let shape = if counts { Shape::Counter } else { Shape::Snowflake { epoch_ms: EPOCH_MS, node } };
                let block = shape.block(given.last().copied(), count, now).expect("a block");
                let ids: Vec<i64> = (0..count).map(|number| block.first + number * block.step).collect();
                prop_assert_eq!(ids.last(), Some(&block.last));
                prop_assert!(given.last().is_none_or(|last| *last < block.first));
                if !counts {
                    prop_assert!(ids[0] >> 22 >= now - EPOCH_MS);
                    prop_assert_eq!(block.ahead_ms, ((block.last >> 22) + EPOCH_MS - now).max(0));
                    prop_assert!(node.is_none_or(|node| ids.iter().all(|id| id & 1_023 == node)));
                }
                given.extend(ids);
            }
        }

        #[test]
        fn any_stored_state_gets_a_reply(
            last: Option<i64>, count in 1..=ID_COUNT_MAX, now_ms: i64, epoch_ms in 0..=i64::MAX,
            node in proptest::option::of(0..1_024i64)
        ) {
            for shape in [Shape::Counter, Shape::Snowflake { epoch_ms, node }] {
                if let Ok(block) = shape.block(last, count, now_ms) {
                    prop_assert!(last.is_none_or(|last| last < block.first) && block.first <= block.last);
                    prop_assert!(block.ahead_ms >= 0);
                }
            }
        }
    }
}
