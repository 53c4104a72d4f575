//! Verbs on hashes. When a hash loses its last field, its key is removed.

use super::check::{ensure, ensure_emptied, slot_of};
use crate::keyspace::any_value::{Value, ValueMut, ValueRef};
use crate::keyspace::effect::{Cause, Effect};
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, NEVER, Slot, WrongType};
use crate::value::hash::Hash;

impl Keyspace {
    /// The hash at `slot`.
    #[inline]
    pub fn hash(&self, db: DbIndex, slot: Slot) -> Result<&Hash, WrongType> {
        match self.value(db, slot) {
            ValueRef::Hash(hash) => Ok(hash),
            _ => Err(WrongType),
        }
    }

    /// Sets a field to a value that never expires. Creates the field and the hash if necessary. Returns the slot of the
    /// hash and whether the field is new.
    #[inline]
    pub fn hash_set(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        field: &[u8],
        value: &[u8],
    ) -> Result<(Slot, bool), WrongType> {
        let slot = match slot {
            Some(slot) => slot,
            None => self.create(db, key, Value::Hash(Hash::default()).into()),
        };
        self.note_change(db, slot, |value| PreImage::field(value, field));
        let limits = self.limits.hash;
        let mut hash = self.hash_mut(db, slot)?;
        if hash.deadlines().is_some() {
            self.lift_deadline(db, slot, field);
            hash = self.hash_mut(db, slot)?;
        }
        let new = hash.insert(field, value, &limits);
        self.record_on(db, slot, || Effect::HashSet { key, field, value });
        Ok((slot, new))
    }

    /// As [`hash_set`](Self::hash_set), but an existing field keeps its deadline.
    pub fn hash_update(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        field: &[u8],
        value: &[u8],
    ) -> Result<(Slot, bool), WrongType> {
        match slot {
            Some(slot) if self.element_deadline(db, slot, field).is_some_and(|at_ms| at_ms != NEVER) => {
                self.note_change(db, slot, |value| PreImage::field(value, field));
                let limits = self.limits.hash;
                self.hash_mut(db, slot)?.insert(field, value, &limits);
                self.record_on(db, slot, || Effect::HashUpdate { key, field, value });
                Ok((slot, false))
            }
            _ => self.hash_set(db, key, slot, field, value),
        }
    }

    /// Removes a field at the request of a command. Returns whether it existed.
    pub fn hash_remove(&mut self, db: DbIndex, slot: Slot, field: &[u8]) -> Result<bool, WrongType> {
        self.hash_remove_as(db, slot, field, Cause::Command)
    }

    fn hash_remove_as(&mut self, db: DbIndex, slot: Slot, field: &[u8], cause: Cause) -> Result<bool, WrongType> {
        if self.entry(db, slot).has_embedded() && self.hash(db, slot)?.get(field).is_none() {
            return Ok(false);
        }
        self.note_change(db, slot, |value| PreImage::field(value, field));
        let hash = self.hash_mut(db, slot)?;
        if hash.deadlines().is_some() {
            return self.remove_mortal_field(db, slot, field, cause);
        }
        let removed = hash.remove(field);
        let empty = hash.is_empty();
        if removed {
            self.record_at(db, slot, |key| Effect::HashRemove { key, field, cause, emptied: empty });
            self.drop_if(empty, db, slot);
        }
        Ok(removed)
    }

    #[cold]
    fn remove_mortal_field(&mut self, db: DbIndex, slot: Slot, field: &[u8], cause: Cause) -> Result<bool, WrongType> {
        let hash = self.hash_mut(db, slot)?;
        if !hash.contains(field) {
            return Ok(false);
        }
        let before = hash.deadlines().is_some_and(|deadlines| !deadlines.is_empty());
        hash.remove(field);
        let emptied = hash.stored_len() == 0;
        self.dbs[db as usize].follow_elements(slot, before);
        self.record_at(db, slot, |key| Effect::HashRemove { key, field, cause, emptied });
        self.drop_if_all_expired(db, slot);
        Ok(true)
    }

    /// Prepares to write a field: removes it if it has expired, otherwise clears its deadline. The effect of the write
    /// implies the cleared deadline.
    #[cold]
    fn lift_deadline(&mut self, db: DbIndex, slot: Slot, field: &[u8]) {
        self.remove_if_expired(db, slot, field);
        let deadlines = self.value_mut(db, slot).and_then(ValueMut::deadlines_mut);
        if deadlines.is_some_and(|deadlines| deadlines.remove(field)) {
            self.dbs[db as usize].follow_elements(slot, true);
        }
    }

    #[inline]
    fn hash_mut(&mut self, db: DbIndex, slot: Slot) -> Result<&mut Hash, WrongType> {
        match self.value_mut(db, slot) {
            Some(ValueMut::Hash(hash)) => Ok(hash),
            _ => Err(WrongType),
        }
    }
}

/// Replays a recorded change of a hash.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    match *effect {
        Effect::HashSet { key, field, value } => {
            let slot = ks.dbs[db as usize].find(key);
            ks.hash_set(db, key, slot, field, value)?;
        }
        Effect::HashRemove { key, field, cause, emptied } => {
            let slot = slot_of(ks, db, key)?;
            ensure(ks.hash_remove_as(db, slot, field, cause)?, Misfit::Absent)?;
            ensure_emptied(ks, db, key, emptied)?;
        }
        Effect::HashUpdate { key, field, value } => {
            let slot = slot_of(ks, db, key)?;
            ks.hash(db, slot)?;
            let expires = ks.element_deadline(db, slot, field).is_some_and(|at_ms| at_ms != NEVER);
            ensure(expires, Misfit::Absent)?;
            ks.hash_update(db, key, Some(slot), field, value)?;
        }
        _ => return Err(Misfit::Elsewhere),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::replays;

    #[test]
    fn replaying_gives_the_same_hashes() {
        replays(|ks| {
            let (slot, new) = ks.hash_set(2, b"h", None, b"a", b"1")?;
            assert!(new);
            assert_eq!(ks.hash_set(2, b"h", Some(slot), b"a", b"2")?, (slot, false));
            for i in 0..300 {
                ks.hash_set(2, b"h", Some(slot), format!("f{i}").as_bytes(), b"value")?;
            }
            assert!(ks.hash_remove(2, slot, b"f7")?);
            assert!(!ks.hash_remove(2, slot, b"f7")?);
            let (gone, _) = ks.hash_set(0, b"gone", None, b"", b"")?;
            assert!(ks.hash_remove(0, gone, b"")?);
            assert!(ks.find(0, b"gone").is_none());
            assert_eq!(ks.hash(2, slot)?.len(), 300);
            ks.put(0, b"s", b"text");
            let text = ks.find(0, b"s").expect("just put");
            assert!(ks.hash_set(0, b"s", Some(text), b"a", b"1").is_err());
            assert!(ks.hash_remove(0, text, b"a").is_err());
            Ok(())
        });
    }
}
