//! XGROUP SETPOLICY: the redelivery policy of a group for entries that are not acknowledged, see
//! `docs/coordination/queues.md`.
//!
//! A call replaces the whole policy, and an option that it leaves out is unset. So a program can repeat the call at
//! each start: it changes nothing, and does not depend on earlier settings.

use super::group::existing_group;
use crate::command::limits::{DEAD_LETTER_CIRCLE_STEPS, POLICY_MAX_MS};
use crate::engine::{Ctx, Done};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stream::{Group, Policy};

pub(super) fn xgroup_setpolicy(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, group) = (args.bytes()?, args.bytes()?);
    let policy = parse(&mut args)?;
    if policy.max_deliveries > 0 && *policy.dead_letters == *key {
        return Err(Error::text("ERR DLQ must not be the key of the group's own stream"));
    }
    let slot = existing_group(ctx, key, group)?;
    if comes_back(ctx, key, &policy) {
        return Err(CIRCLE);
    }
    ctx.ks.group_set_policy(ctx.db(), slot, group, Some(&policy).filter(|policy| !policy.is_none()))?;
    ctx.reply.ok();
    Ok(())
}

const CIRCLE: Error =
    Error::text("ERR dead letters would come back to this stream through the policies of the groups of the DLQ stream");

/// Whether dead letters of the stream at `key` would come back to it under the current policies of all other streams.
/// The search is bounded, and keys may change later;
/// [`DEAD_LETTER_MAX_HOPS`](crate::keyspace::limits::DEAD_LETTER_MAX_HOPS) ends a circle that it misses.
fn comes_back(ctx: &mut Ctx<'_>, key: &[u8], policy: &Policy) -> bool {
    if policy.dead_letters.is_empty() {
        return false;
    }
    let db = ctx.db();
    let mut seen: Vec<Box<[u8]>> = vec![policy.dead_letters.clone()];
    for at in 0..DEAD_LETTER_CIRCLE_STEPS {
        let Some(name) = seen.get(at) else { return false };
        if **name == *key {
            return true;
        }
        // A key that is not a stream leads nowhere.
        let Some(Ok(stream)) = ctx.ks.find(db, name).map(|slot| ctx.ks.stream(db, slot)) else { continue };
        for to in stream.policies().map(|(.., policy)| &policy.dead_letters).filter(|to| !to.is_empty()) {
            if seen.len() < DEAD_LETTER_CIRCLE_STEPS && !seen.contains(to) {
                seen.push(to.clone());
            }
        }
    }
    false
}

fn parse(args: &mut Args<'_>) -> Result<Policy, Error> {
    let (mut idle_ms, mut max_deliveries, mut dead_letters, mut backoff) = (None, None, None, None);
    while !args.is_empty() {
        let is_new = if args.option("idle", 1) {
            idle_ms.replace(milliseconds(args)?).is_none()
        } else if args.option("maxdeliveries", 1) {
            let count = u64::try_from(args.int()?);
            let count = count.map_err(|_| Error::text("ERR MAXDELIVERIES must not be negative; 0 means no limit"))?;
            max_deliveries.replace(count).is_none()
        } else if args.option("dlq", 1) {
            dead_letters.replace(args.bytes()?).is_none()
        } else if args.option("backoff", 2) {
            backoff.replace((milliseconds(args)?, milliseconds(args)?)).is_none()
        } else {
            return Err(Error::Syntax);
        };
        if !is_new {
            return Err(Error::Syntax);
        }
    }
    let (backoff_base_ms, backoff_max_ms) = backoff.unwrap_or_default();
    let policy = Policy {
        idle_ms: idle_ms.unwrap_or_default(),
        max_deliveries: max_deliveries.unwrap_or_default(),
        dead_letters: dead_letters.unwrap_or_default().into(),
        backoff_base_ms,
        backoff_max_ms,
    };
    match objection(&policy) {
        Some(error) => Err(error),
        None => Ok(policy),
    }
}

/// Returns the fault of an unsound policy.
fn objection(policy: &Policy) -> Option<Error> {
    if policy.is_none() || policy.is_sound() {
        return None;
    }
    Some(Error::text(if policy.idle_ms == 0 {
        "ERR a policy requires IDLE: the milliseconds until a message is delivered again"
    } else if (policy.max_deliveries > 0) == policy.dead_letters.is_empty() {
        "ERR MAXDELIVERIES and DLQ require each other"
    } else {
        "ERR BACKOFF requires a first and a longest time in milliseconds, both positive or both 0"
    }))
}

fn milliseconds(args: &mut Args<'_>) -> Result<u64, Error> {
    let ms = args.int()?;
    let ms = Some(ms).filter(|ms| (0..=POLICY_MAX_MS).contains(ms)).and_then(|ms| u64::try_from(ms).ok());
    ms.ok_or_else(|| Error::owned(format!("ERR times of a policy must be from 0 to {POLICY_MAX_MS} milliseconds")))
}

/// The number of fields that [`answer`] adds.
pub(super) fn fields(group: &Group) -> usize {
    usize::from(group.policy().is_some())
}

/// Writes the fields of XINFO about a group's policy, which Redis' reply does not have.
pub(super) fn answer(group: &Group, reply: &mut Reply) {
    let Some(policy) = group.policy() else { return };
    let numbers = [
        ("idle", policy.idle_ms),
        ("max-deliveries", policy.max_deliveries),
        ("backoff-base", policy.backoff_base_ms),
        ("backoff-max", policy.backoff_max_ms),
    ];
    reply.bulk(b"policy");
    reply.map(numbers.len() + 2);
    for (name, value) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }
    reply.bulk(b"dlq");
    reply.bulk(&policy.dead_letters);
    reply.bulk(b"exhausted");
    reply.integer(group.exhausted_len() as i64);
}
