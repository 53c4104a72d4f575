//! Helpers of all commands of sorted sets: finding, storing, and members in replies.

use crate::command::limits::MEMBER_EFFECT_BYTES;
use crate::engine::Ctx;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::reply::Reply;
use crate::spec::error::Error;
use crate::value::zset::ZSet;

/// Returns the sorted set at a key, for a command that reads.
pub(in crate::command) fn read<'a>(ks: &'a mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<&'a ZSet>, Error> {
    match ks.read(db, key) {
        None => Ok(None),
        Some(ValueRef::ZSet(zset)) => Ok(Some(zset)),
        Some(_) => Err(Error::WrongType),
    }
}

/// Returns the slot of the sorted set at a key, for a command that writes.
pub(super) fn find(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<Slot>, Error> {
    let slot = ks.find(db, key);
    slot.map_or(Ok(()), |slot| ks.zset(db, slot).map(drop))?;
    Ok(slot)
}

/// Stores these members at a key in place of any value; without members the key is removed. Returns their number.
pub(in crate::command) fn store<'m>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    members: impl ExactSizeIterator<Item = (&'m [u8], f64)> + Clone,
) -> Result<usize, Error> {
    if ctx.room_in_unit() < usize::MAX {
        ctx.admit_effects(members.clone().map(|(member, _)| MEMBER_EFFECT_BYTES + member.len()).sum())?;
    }
    let (ks, db) = (&mut *ctx.ks, ctx.session.db);
    if let Some(old) = ks.find(db, key) {
        ks.remove(db, old);
    }
    let stored = members.len();
    let is_compact = stored <= ks.limits().zset.max_entries;
    let mut slot = None;
    for (member, score) in members {
        slot = Some(ks.zset_add(db, key, slot, member, signless_zero(score, is_compact))?.0);
    }
    Ok(stored)
}

/// The score to store: the compact representation has no negative zero, as in Redis.
pub(super) fn signless_zero(score: f64, is_compact: bool) -> f64 {
    if is_compact { score + 0.0 } else { score }
}

/// Replies with members in the given order. With scores, RESP3 gets pairs and RESP2 a flat array.
pub(super) fn members_reply<'a>(
    reply: &mut Reply,
    members: impl ExactSizeIterator<Item = (&'a [u8], f64)>,
    with_scores: bool,
) {
    let pairs = with_scores && reply.is_resp3();
    reply.array(members.len() * if with_scores && !pairs { 2 } else { 1 });
    for (member, score) in members {
        if pairs {
            reply.array(2);
        }
        reply.bulk(member);
        if with_scores {
            reply.double(score);
        }
    }
}
