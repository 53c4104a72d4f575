//! Sorted sets: members by score.

mod member;
mod pop;
mod range;

use member::{zadd, zcard, zincrby, zmscore, zrandmember, zrank, zrem, zrevrank, zscan, zscore};
use pop::{bzmpop, bzpopmax, bzpopmin, zmpop, zpopmax, zpopmin};
use range::{
    zcount, zlexcount, zrange, zrangebylex, zrangebyscore, zrangestore, zremrangebylex, zremrangebyrank,
    zremrangebyscore, zrevrange, zrevrangebylex, zrevrangebyscore,
};

use crate::engine::error::Error;
use crate::engine::spec::{Access, Command, Flags, Group, KeySpec, Run};
use crate::keyspace::entry::Value;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::reply::Reply;
use crate::value::zset::ZSet;

/// The sorted set under a key, for a command that reads.
pub(super) fn read<'a>(ks: &'a mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<&'a ZSet>, Error> {
    match ks.read(db, key) {
        None => Ok(None),
        Some(Value::ZSet(zset)) => Ok(Some(zset)),
        Some(_) => Err(Error::WrongType),
    }
}

/// Where the sorted set under a key lives, for a command that writes.
pub(super) fn find(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<Slot>, Error> {
    let slot = ks.find(db, key);
    slot.map_or(Ok(()), |slot| ks.zset(db, slot).map(drop))?;
    Ok(slot)
}

/// Stores these members under a key, whatever was there before; without any the key is gone. Answers how many they were.
pub(super) fn store(
    ks: &mut Keyspace,
    db: DbIndex,
    key: &[u8],
    members: &[(Box<[u8]>, f64)],
) -> Result<usize, Error> {
    if let Some(old) = ks.find(db, key) {
        ks.remove(db, old);
    }
    let mut slot = None;
    for (member, score) in members {
        slot = Some(ks.zset_add(db, key, slot, member, *score)?.0);
    }
    Ok(members.len())
}

/// Answers members, lowest or highest first as they come. With scores RESP3 has pairs, RESP2 one flat array.
fn members_reply<'a>(
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

