//! The verbs: the only mutators of the keyspace. One file per value type; each verb applies one change and records it.

mod element;
mod group;
mod hash;
mod key;
mod list;
mod set;
mod stream;
mod string;
mod whole;
mod zset;

use super::effect::Effect;
use super::{DbIndex, Keyspace, Slot};

/// The key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// Repeats a recorded change through the verb that recorded it.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> bool {
    match *effect {
        Effect::Put { key, value } => {
            ks.put(db, key, value);
        }
        Effect::Replace { key, value } => match ks.dbs[db as usize].find(key) {
            Some(slot) => ks.replace(db, slot, value),
            None => return false,
        },
        Effect::Del { key } => match ks.dbs[db as usize].find(key) {
            Some(slot) => ks.remove(db, slot),
            None => return false,
        },
        Effect::ExpireAt { key, at_ms } => match ks.dbs[db as usize].find(key) {
            Some(slot) => ks.expire_at(db, slot, at_ms),
            None => return false,
        },
        Effect::SetRange { key, offset, bytes } => {
            let slot = ks.dbs[db as usize].find(key);
            return ks.set_range(db, key, slot, offset as usize, bytes).is_ok();
        }
        Effect::Splice { key, offset, removed, bytes } => match ks.dbs[db as usize].find(key) {
            Some(slot) => return ks.splice(db, slot, offset as usize, removed as usize, bytes),
            None => return false,
        },
        Effect::Rename { key, to } => match ks.dbs[db as usize].find(key) {
            Some(slot) => ks.rename(db, slot, to),
            None => return false,
        },
        Effect::Copy { key, to_db, to } => match ks.dbs[db as usize].find(key) {
            Some(slot) if to_db < ks.databases() => ks.copy(db, slot, to_db, to),
            _ => return false,
        },
        Effect::Move { key, to_db } => match ks.dbs[db as usize].find(key) {
            Some(slot) if to_db < ks.databases() && !ks.db(to_db).contains(key) => ks.move_to(db, slot, to_db),
            _ => return false,
        },
        Effect::Flush {} => ks.flush(db, true),
        Effect::Swap { with_db } if with_db < ks.databases() => ks.swap(db, with_db),
        Effect::Swap { .. } => return false,
        Effect::Build { key, steps } => return whole::apply(ks, db, key, steps).is_some(),
        Effect::HashSet { .. } | Effect::HashRemove { .. } | Effect::HashUpdate { .. } => {
            return hash::apply(ks, db, effect).is_some();
        }
        Effect::SetAdd { .. } | Effect::SetRemove { .. } | Effect::SetPut { .. } => {
            return set::apply(ks, db, effect).is_some();
        }
        Effect::ListPush { .. }
        | Effect::ListPop { .. }
        | Effect::ListSet { .. }
        | Effect::ListInsert { .. }
        | Effect::ListRemove { .. }
        | Effect::ListRotate { .. } => return list::apply(ks, db, effect).is_some(),
        Effect::ZSetAdd { .. } | Effect::ZSetRemove { .. } | Effect::ZSetRemoveRanks { .. } => {
            return zset::apply(ks, db, effect).is_some();
        }
        Effect::StreamCreate { .. }
        | Effect::StreamAppend { .. }
        | Effect::StreamDelete { .. }
        | Effect::StreamTrim { .. }
        | Effect::StreamCounters { .. }
        | Effect::GroupCreate { .. }
        | Effect::GroupDestroy { .. }
        | Effect::GroupSetId { .. }
        | Effect::ConsumerCreate { .. }
        | Effect::ConsumerDelete { .. }
        | Effect::ConsumerSeen { .. }
        | Effect::PendingSet { .. }
        | Effect::PendingAck { .. }
        | Effect::PendingRelease { .. }
        | Effect::RequestLimits { .. }
        | Effect::RequestAdd { .. }
        | Effect::RequestForget { .. }
        | Effect::RequestRepeated { .. } => return stream::apply(ks, db, effect).is_some(),
        Effect::GroupAdd { .. } => return group::apply(ks, db, effect).is_some(),
        Effect::ElementExpireAt { .. } => return element::apply(ks, db, effect).is_some(),
        // The keyspace holds none of these.
        Effect::ScriptPut { .. }
        | Effect::ScriptDrop { .. }
        | Effect::ScriptFlush {}
        | Effect::LibraryPut { .. }
        | Effect::LibraryDelete { .. }
        | Effect::LibraryFlush {} => return false,
    }
    true
}

impl Keyspace {
    /// Records an effect on the key at `slot`.
    #[inline]
    fn record_at<'a>(&'a mut self, db: DbIndex, slot: Slot, effect: impl FnOnce(&'a [u8]) -> Effect<'a>) {
        let entry = self.dbs[db as usize].get(slot).expect("a slot is used only while its entry lives");
        self.effects.record_with(db, || effect(&entry.key));
    }

    /// Removes the key of a collection that a recorded effect has emptied, which says so already.
    #[inline]
    fn drop_if(&mut self, empty: bool, db: DbIndex, slot: Slot) {
        if empty && let Some(entry) = self.dbs[db as usize].remove(slot) {
            self.discard(db, slot, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::effect::Recording;
    use crate::keyspace::entry::Value;
    use crate::value::string::Digits;

    /// Runs `verbs` in one recorded unit, and asserts that an empty keyspace to which its effects are applied is equal.
    pub(super) fn replays(verbs: impl FnOnce(&mut Keyspace) -> Result<(), WrongType>) {
        let fresh = || Keyspace::new(16, Rng::seeded(1));
        let mut ks = fresh();
        ks.begin_unit(1_000, Recording::Full);
        verbs(&mut ks).expect("the test keeps types apart");
        let mut copy = fresh();
        copy.begin_unit(1_000, Recording::Full);
        for (db, effect) in ks.effects().iter() {
            assert!(copy.apply(db, &effect), "{effect:?} does not apply");
        }
        assert_eq!(canonical(&copy), canonical(&ks), "applying records the same effects");
        for db in 0..16 {
            assert_eq!(contents(&copy, db), contents(&ks, db));
        }
    }

    /// The recorded effects as text; members of a whole set, which have no order, are sorted.
    fn canonical(ks: &Keyspace) -> Vec<String> {
        let show = |(db, effect): (DbIndex, Effect<'_>)| match effect {
            Effect::SetPut { key, members } => format!("{db} SetPut {key:?} {:?}", set::sorted(members)),
            other => format!("{db} {other:?}"),
        };
        ks.effects().iter().map(show).collect()
    }

    /// Keys with values and expiry, as text, in the order of the keys.
    fn contents(ks: &Keyspace, db: DbIndex) -> Vec<String> {
        let show = |entry: &crate::keyspace::entry::Entry| {
            let deadlines = entry.value().deadlines().filter(|deadlines| !deadlines.is_empty());
            format!("{:?} {:?} {} {deadlines:?}", entry.key(), entry.expires_at_ms(), text(entry.value()))
        };
        let mut all: Vec<String> = ks.entries(db).map(show).collect();
        all.sort();
        all
    }

    fn text(value: &Value) -> String {
        match value {
            Value::String(string) => format!("{:?}", string.as_bytes(&mut Digits::new())),
            Value::List(list) => format!("{:?}", list.iter().collect::<Vec<_>>()),
            Value::ZSet(zset) => format!("{:?}", zset.iter().collect::<Vec<_>>()),
            Value::Stream(stream) => format!("{stream:?}"),
            Value::Set(set) => {
                let mut members: Vec<_> = set.iter().map(|member| member.to_vec()).collect();
                members.sort();
                format!("{members:?}")
            }
            Value::Hash(hash) => {
                let mut fields: Vec<_> = hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
                fields.sort();
                format!("{fields:?}")
            }
        }
    }
}
