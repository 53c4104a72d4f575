//! Verbs on sorted sets. When a sorted set loses its last member, its key is removed. Geo positions are scores and need
//! no verbs of their own.

use std::ops::Range;

use super::check::{ensure, ensure_emptied, slot_of};
use crate::keyspace::any_value::{Value, ValueMut, ValueRef};
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::Key;
use crate::keyspace::limits::{SNAPSHOT_ELEMENTS_MAX, SNAPSHOT_ELEMENTS_SHARE};
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, Slot, WrongType};
use crate::value::zset::ZSet;

impl Keyspace {
    /// The sorted set at `slot`.
    #[inline]
    pub fn zset(&self, db: DbIndex, slot: Slot) -> Result<&ZSet, WrongType> {
        match self.value(db, slot) {
            ValueRef::ZSet(zset) => Ok(zset),
            _ => Err(WrongType),
        }
    }

    /// Gives a member a score, which must not be NaN. Creates the member and the set if necessary. Returns the slot of
    /// the set and the member's previous score.
    pub fn zset_add(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        member: &[u8],
        score: f64,
    ) -> Result<(Slot, Option<f64>), WrongType> {
        let slot = match slot {
            Some(slot) => slot,
            None => self.create(db, key, Value::ZSet(ZSet::default()).into()),
        };
        let limits = self.limits.zset;
        let must_note =
            self.must_note(db, slot, |value| matches!(value, ValueRef::ZSet(zset) if zset.grows_with(member, limits)));
        let old = self.zset_mut(db, slot)?.insert(member, score, limits);
        if must_note {
            self.note_pre_image(db, slot, PreImage::Scored { member: Key::new(member), before: old });
        }
        self.record_on(db, slot, || Effect::ZSetAdd { key, member, score });
        Ok((slot, old))
    }

    /// Removes a member. Returns its score.
    pub fn zset_remove(&mut self, db: DbIndex, slot: Slot, member: &[u8]) -> Result<Option<f64>, WrongType> {
        if self.entry(db, slot).has_embedded() && self.zset(db, slot)?.score(member).is_none() {
            return Ok(None);
        }
        let must_note = self.must_note(db, slot, |_| false);
        let zset = self.zset_mut(db, slot)?;
        let old = zset.remove(member);
        let empty = zset.is_empty();
        if old.is_some() {
            if must_note {
                self.note_pre_image(db, slot, PreImage::Scored { member: Key::new(member), before: old });
            }
            self.record_at(db, slot, |key| Effect::ZSetRemove { key, member, emptied: empty });
            self.drop_if(empty, db, slot);
        }
        Ok(old)
    }

    /// Removes the members in a range of ranks. Returns how many were removed.
    pub fn zset_remove_ranks(&mut self, db: DbIndex, slot: Slot, ranks: Range<usize>) -> Result<usize, WrongType> {
        let zset = self.zset_mut(db, slot)?;
        let end = ranks.end.min(zset.len());
        let count = end.saturating_sub(ranks.start);
        if count == 0 {
            return Ok(0);
        }
        if count == zset.len() {
            // The value is freed as a whole, together with its key.
            let end = end as u64;
            self.record_at(db, slot, |key| Effect::ZSetRemoveRanks { key, start: 0, end, emptied: true });
            self.effects.recount(count as i64 - 1);
            self.drop_if(true, db, slot);
            return Ok(count);
        }
        let zset = self.zset(db, slot)?;
        // A copy of the set in progress needs the members.
        let names_members = self.names_elements_of(zset.address())
            && count <= SNAPSHOT_ELEMENTS_MAX.max(zset.len() / SNAPSHOT_ELEMENTS_SHARE);
        for _ in 0..count {
            let must_note = self.must_note(db, slot, |_| false);
            let Some((member, score)) = self.zset_mut(db, slot)?.remove_rank(ranks.start) else { break };
            if names_members {
                self.record_at(db, slot, |key| Effect::ZSetRemove { key, member: &member, emptied: false });
            }
            if must_note {
                self.note_pre_image(db, slot, PreImage::Scored { member, before: Some(score) });
            }
        }
        if !names_members {
            let (start, end) = (ranks.start as u64, end as u64);
            self.record_at(db, slot, |key| Effect::ZSetRemoveRanks { key, start, end, emptied: false });
            self.effects.recount(count as i64 - 1);
        }
        Ok(count)
    }

    fn zset_mut(&mut self, db: DbIndex, slot: Slot) -> Result<&mut ZSet, WrongType> {
        match self.value_mut(db, slot) {
            Some(ValueMut::ZSet(zset)) => Ok(zset),
            _ => Err(WrongType),
        }
    }
}

/// Replays a recorded change of a sorted set.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    match *effect {
        Effect::ZSetAdd { key, member, score } => {
            ensure(!score.is_nan(), Misfit::BadBytes)?;
            let slot = ks.dbs[db as usize].find(key);
            ks.zset_add(db, key, slot, member, score)?;
            Ok(())
        }
        Effect::ZSetRemove { key, member, emptied } => {
            let slot = slot_of(ks, db, key)?;
            ensure(ks.zset_remove(db, slot, member)?.is_some(), Misfit::Absent)?;
            ensure_emptied(ks, db, key, emptied)
        }
        Effect::ZSetRemoveRanks { key, start, end, emptied } => {
            let slot = slot_of(ks, db, key)?;
            let removed = ks.zset_remove_ranks(db, slot, start as usize..end as usize)?;
            ensure(end.checked_sub(start) == Some(removed as u64), Misfit::Absent)?;
            ensure_emptied(ks, db, key, emptied)
        }
        _ => Err(Misfit::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::replays;

    #[test]
    fn replaying_gives_the_same_sorted_sets() {
        replays(|ks| {
            let (slot, old) = ks.zset_add(3, b"z", None, b"a", 1.5)?;
            assert_eq!(old, None);
            for (score, member) in [&b"b"[..], b"c", b"d", &[9; 100]].into_iter().enumerate() {
                ks.zset_add(3, b"z", Some(slot), member, score as f64)?;
            }
            assert_eq!(ks.zset_add(3, b"z", Some(slot), b"a", f64::NEG_INFINITY)?.1, Some(1.5));
            ks.zset_remove(3, slot, b"c")?;
            assert_eq!(ks.zset_remove(3, slot, b"none")?, None);
            assert_eq!(ks.zset_remove_ranks(3, slot, 1..2)?, 1);
            let gone = ks.zset_add(0, b"gone", None, b"m", -0.0)?.0;
            assert_eq!(ks.zset_remove_ranks(0, gone, 0..9)?, 1);
            let gone = ks.zset_add(0, b"gone", None, b"m", 7.0)?.0;
            ks.zset_remove(0, gone, b"m")?;
            assert!(ks.find(0, b"gone").is_none());
            assert_eq!(ks.zset(3, slot)?.len(), 3);
            Ok(())
        });
    }
}
