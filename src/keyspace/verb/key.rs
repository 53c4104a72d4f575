//! Verbs on keys, regardless of their values.

use super::check::{ensure, slot_of};
use crate::base::hasher::hash_bytes;
use crate::keyspace::any_value::{Value, ValueRef};
use crate::keyspace::db::Db;
use crate::keyspace::effect::{Cause, Effect};
use crate::keyspace::entries::Removed;
use crate::keyspace::entry::NewValue;
use crate::keyspace::{DbIndex, Keyspace, Misfit, NEVER, Slot};

impl Keyspace {
    /// Removes a key at the request of a command.
    pub fn remove(&mut self, db: DbIndex, slot: Slot) {
        self.remove_as(db, slot, Cause::Command);
    }

    /// Removes a key.
    pub(in crate::keyspace) fn remove_as(&mut self, db: DbIndex, slot: Slot, cause: Cause) {
        if let ValueRef::Grants(_) = self.value(db, slot) {
            self.note_removed_grants(db, slot, cause);
        }
        self.remove_noted(db, slot, cause);
    }

    /// As [`remove_as`](Self::remove_as), if the key holds no grants or their end has already been noted.
    pub(super) fn remove_noted(&mut self, db: DbIndex, slot: Slot, cause: Cause) {
        self.record_at(db, slot, |key| Effect::Del { key, cause });
        self.take_away(db, slot);
    }

    /// Sets when a key expires, Unix ms; [`NEVER`] for not at all. A time in the past is kept: the next reader or the
    /// timer removes the key. Returns the slot of the key afterwards.
    #[must_use]
    pub fn expire_at(&mut self, db: DbIndex, slot: Slot, at_ms: i64) -> Slot {
        let slot = if at_ms == NEVER { slot } else { self.reserve(db, slot, |entry| entry.bytes_with_deadline()) };
        self.note_expiry(db, slot);
        self.dbs[db as usize].set_expiry(slot, at_ms);
        self.record_at(db, slot, |key| Effect::ExpireAt { key, at_ms });
        slot
    }

    /// Renames a key, with value and expiry unchanged. Replaces any key of the new name.
    pub fn rename(&mut self, db: DbIndex, slot: Slot, to: &[u8]) {
        let Some(entry) = self.dbs[db as usize].remove(slot) else { return };
        let is_covered = self.note_carried(db, slot, &entry);
        self.make_way(db, to);
        self.effects.record(db, Effect::Rename { key: &entry.key, to });
        self.carry_to(db, to, entry, is_covered);
    }

    /// Copies value and expiry to another name or database. Replaces any key of that name.
    pub fn copy(&mut self, db: DbIndex, slot: Slot, to_db: DbIndex, to: &[u8]) {
        let entry = self.entry(db, slot);
        let (value, expires_at_ms, used) = (Value::from(entry.value()), entry.deadline_ms(), entry.used());
        self.make_way(to_db, to);
        let new = self.dbs[to_db as usize].insert(to, value.into(), expires_at_ms, used);
        self.note_come(to_db, new);
        self.note_added(to_db, new);
        self.record_at(db, slot, |key| Effect::Copy { key, to_db, to });
    }

    /// Moves a key to another database, where the name must be free.
    pub fn move_to(&mut self, db: DbIndex, slot: Slot, to_db: DbIndex) {
        let Some(entry) = self.dbs[db as usize].remove(slot) else { return };
        let is_covered = self.note_carried(db, slot, &entry);
        self.effects.record(db, Effect::Move { key: &entry.key, to_db });
        let key = entry.key.clone();
        self.carry_to(to_db, &key, entry, is_covered);
        self.release_removed(db);
    }

    /// Removes the key, if any, whose name is about to get another value. Records no effect.
    fn make_way(&mut self, db: DbIndex, key: &[u8]) {
        if let Some(slot) = self.dbs[db as usize].find(key) {
            self.take_away(db, slot);
        }
    }

    /// Adds the value and expiry of an entry that was removed elsewhere. Records no effect. `is_covered` is the result
    /// of `note_carried`.
    fn carry_to(&mut self, db: DbIndex, key: &[u8], entry: Removed, is_covered: bool) {
        let Removed { value, expires_at_ms, used, .. } = entry;
        let new = self.dbs[db as usize].insert(key, value.into(), expires_at_ms, used);
        self.note_come(db, new);
        self.note_carried_to(db, new, is_covered);
    }

    /// Empties a database. Its memory is freed in the background if `meanwhile`, otherwise before this returns.
    pub fn flush(&mut self, db: DbIndex, meanwhile: bool) {
        self.effects.record(db, Effect::Flush {});
        let old = std::mem::replace(&mut self.dbs[db as usize], Db::new());
        self.retire_database(db, old, meanwhile);
    }

    /// Swaps two databases.
    pub fn swap(&mut self, db: DbIndex, with_db: DbIndex) {
        self.dbs.swap(db as usize, with_db as usize);
        self.swaps += 1;
        self.note_swapped(db, with_db);
        self.effects.record(db, Effect::Swap { with_db });
    }

    /// Adds a key that does not exist yet, without an effect. For verbs whose own effect implies the key.
    pub(super) fn create(&mut self, db: DbIndex, key: &[u8], value: NewValue<'_>) -> Slot {
        self.create_until(db, key, value, NEVER)
    }

    /// As [`create`](Self::create), for a key that expires at `at_ms`.
    pub(super) fn create_until(&mut self, db: DbIndex, key: &[u8], value: NewValue<'_>, at_ms: i64) -> Slot {
        self.create_hashed(db, hash_bytes(key), key, value, at_ms)
    }

    /// As [`create`](Self::create), for a key whose hash is known and that expires at `at_ms`.
    #[inline]
    pub(in crate::keyspace) fn create_hashed(
        &mut self,
        db: DbIndex,
        hash: u64,
        key: &[u8],
        value: NewValue<'_>,
        at_ms: i64,
    ) -> Slot {
        let (used, is_collection) = (self.new_use(), value.is_collection());
        let slot = self.dbs[db as usize].insert_hashed(hash, key, value, at_ms, used);
        if is_collection {
            self.note_written(db, slot);
        }
        self.note_added(db, slot);
        slot
    }

    /// Makes room for about `keys` keys in an empty database. Only a hint; does not count as a change.
    pub fn expect(&mut self, db: DbIndex, keys: u64) {
        self.effects.record_uncounted(db, Effect::Expect { keys });
        self.dbs[db as usize].expect(usize::try_from(keys).unwrap_or(usize::MAX));
    }

    /// Gives back spare room after all [expected](Self::expect) keys have arrived.
    pub fn fit(&mut self) {
        self.dbs.iter_mut().for_each(Db::fit);
    }

    /// Stores a value under a key that expires at `at_ms`, replacing any previous value. Records no effect.
    #[inline]
    pub(super) fn overwrite(&mut self, db: DbIndex, key: &[u8], value: NewValue<'_>, at_ms: i64) -> Slot {
        self.overwrite_hashed(db, hash_bytes(key), key, value, at_ms)
    }

    /// As [`overwrite`](Self::overwrite), for a key whose hash is known.
    #[inline(always)]
    pub(super) fn overwrite_hashed(
        &mut self,
        db: DbIndex,
        hash: u64,
        key: &[u8],
        value: NewValue<'_>,
        at_ms: i64,
    ) -> Slot {
        match self.dbs[db as usize].look_up(hash, key) {
            Some(slot) => self.overwrite_at(db, slot, value, at_ms),
            None => self.create_hashed(db, hash, key, value, at_ms),
        }
    }

    /// As [`overwrite`](Self::overwrite), for a key whose slot is known.
    #[inline]
    #[must_use]
    pub(in crate::keyspace) fn overwrite_at(
        &mut self,
        db: DbIndex,
        slot: Slot,
        value: NewValue<'_>,
        at_ms: i64,
    ) -> Slot {
        let slot = self.store(db, slot, value, at_ms);
        self.note_overwritten(db, slot);
        slot
    }

    /// Replaces the value of a key and keeps its expiry. Records no effect. Returns the slot of the key afterwards.
    #[inline]
    #[must_use]
    pub(in crate::keyspace) fn exchange(&mut self, db: DbIndex, slot: Slot, value: NewValue<'_>) -> Slot {
        let at_ms = self.entry(db, slot).deadline_ms();
        self.store(db, slot, value, at_ms)
    }

    /// Replaces the value of a key and makes it expire at `at_ms`. Records no effect. Returns the slot of the key
    /// afterwards.
    #[inline]
    #[must_use]
    pub(in crate::keyspace) fn store(&mut self, db: DbIndex, slot: Slot, value: NewValue<'_>, at_ms: i64) -> Slot {
        let slot = self.reserve(db, slot, |entry| entry.bytes_with(&value, at_ms != NEVER));
        if value.is_collection() {
            self.note_written(db, slot);
        }
        self.set_value(db, slot, value, at_ms);
        slot
    }
}

/// Replays a recorded change of keys.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    let ensure_database = |ks: &Keyspace, db: DbIndex| ensure(db < ks.databases(), Misfit::NoDatabase);
    match *effect {
        Effect::Del { key, cause } => ks.remove_as(db, slot_of(ks, db, key)?, cause),
        Effect::ExpireAt { key, at_ms } => _ = ks.expire_at(db, slot_of(ks, db, key)?, at_ms),
        Effect::Rename { key, to } => ks.rename(db, slot_of(ks, db, key)?, to),
        Effect::Copy { key, to_db, to } => {
            ensure_database(ks, to_db)?;
            ks.copy(db, slot_of(ks, db, key)?, to_db, to);
        }
        Effect::Move { key, to_db } => {
            ensure_database(ks, to_db)?;
            let slot = slot_of(ks, db, key)?;
            ensure(!ks.db(to_db).contains(key), Misfit::Exists)?;
            ks.move_to(db, slot, to_db);
        }
        Effect::Flush {} => ks.flush(db, true),
        Effect::Expect { keys } => ks.expect(db, keys),
        Effect::Swap { with_db } => {
            ensure_database(ks, with_db)?;
            ks.swap(db, with_db);
        }
        _ => return Err(Misfit::Elsewhere),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::verb::tests::replays;

    #[test]
    fn replaying_gives_the_same_keys() {
        replays(|ks| {
            for key in [b"a", b"b", b"c", b"d"] {
                let slot = ks.put(0, key, key);
                _ = ks.expire_at(0, slot, 5_000);
            }
            let slot = |ks: &mut Keyspace, db, key: &[u8]| ks.find(db, key).expect("put above");
            let a = slot(ks, 0, b"a");
            ks.rename(0, a, b"b");
            let b = slot(ks, 0, b"b");
            ks.copy(0, b, 3, b"x");
            ks.copy(0, b, 0, b"c");
            ks.move_to(0, b, 3);
            let d = slot(ks, 0, b"d");
            _ = ks.expire_at(0, d, NEVER);
            ks.put(5, b"gone", b"");
            ks.flush(5, false);
            ks.swap(0, 7);
            let c = slot(ks, 7, b"c");
            ks.remove(7, c);
            assert_eq!((ks.db(0).len(), ks.db(3).len(), ks.db(7).len(), ks.db(3).volatile()), (0, 2, 1, 2));
            Ok(())
        });
    }

    #[test]
    fn unfit_changes_are_refused() {
        let mut ks = Keyspace::new(2, crate::base::rng::Rng::seeded(1));
        ks.put(0, b"a", b"");
        ks.put(1, b"a", b"");
        let strange = [
            (Effect::Move { key: b"a", to_db: 1 }, Misfit::Exists),
            (Effect::Move { key: b"a", to_db: 2 }, Misfit::NoDatabase),
            (Effect::Copy { key: b"a", to_db: 2, to: b"b" }, Misfit::NoDatabase),
            (Effect::Swap { with_db: 2 }, Misfit::NoDatabase),
            (Effect::Del { key: b"x", cause: Cause::Expiry }, Misfit::NoKey),
            (Effect::Rename { key: b"x", to: b"a" }, Misfit::NoKey),
            (Effect::ExpireAt { key: b"x", at_ms: 1 }, Misfit::NoKey),
            (Effect::Replace { key: b"x", value: b"" }, Misfit::NoKey),
            (Effect::SetRange { key: b"a", offset: u64::MAX, bytes: b"" }, Misfit::BadBytes),
            (Effect::Splice { key: b"a", offset: 1, removed: 0, bytes: b"" }, Misfit::Absent),
            (Effect::ListPop { key: b"a", front: true, count: 1, emptied: true }, Misfit::WrongType),
            (Effect::ScriptFlush {}, Misfit::Elsewhere),
        ];
        for (effect, misfit) in &strange {
            assert_eq!(ks.apply(0, effect), Err(*misfit), "{effect:?}");
        }
        assert_eq!(ks.apply(2, &Effect::Flush {}), Err(Misfit::NoDatabase));
        assert_eq!((ks.db(0).len(), ks.db(1).len()), (1, 1));
    }
}
