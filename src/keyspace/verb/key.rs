//! Verbs on keys, whatever they hold.

use crate::keyspace::db::Db;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::Value;
use crate::keyspace::{DbIndex, Keyspace, NEVER, Slot};

impl Keyspace {
    /// Removes a key.
    pub fn remove(&mut self, db: DbIndex, slot: Slot) {
        let Some(entry) = self.dbs[db as usize].remove(slot) else { return };
        self.effects.record(db, Effect::Del { key: &entry.key });
        self.disposal.free(entry.value);
    }

    /// Sets when a key expires, Unix ms; [`NEVER`] for not at all. A time that has passed is kept: the next reader or the
    /// timer removes the key.
    pub fn expire_at(&mut self, db: DbIndex, slot: Slot, at_ms: i64) {
        self.dbs[db as usize].set_expiry(slot, at_ms);
        let entry = self.dbs[db as usize].get(slot).expect("a slot is used only while its entry lives");
        self.effects.record(db, Effect::ExpireAt { key: &entry.key, at_ms });
    }

    /// Gives a key another name, value and expiry unchanged; what stood under that name is gone.
    pub fn rename(&mut self, db: DbIndex, slot: Slot, to: &[u8]) {
        let database = &mut self.dbs[db as usize];
        let Some(entry) = database.remove(slot) else { return };
        if let Some(old) = database.find(to).and_then(|old| database.remove(old)) {
            self.disposal.free(old.value);
        }
        let new = database.insert(to, entry.value, entry.accessed_s);
        database.set_expiry(new, entry.expires_at_ms);
        self.effects.record(db, Effect::Rename { key: &entry.key, to });
    }

    /// Copies value and expiry to another name or database; what stood there is gone.
    pub fn copy(&mut self, db: DbIndex, slot: Slot, to_db: DbIndex, to: &[u8]) {
        let entry = self.entry(db, slot);
        let (value, expires_at_ms, accessed_s) = (entry.value.clone(), entry.expires_at_ms, entry.accessed_s);
        let target = &mut self.dbs[to_db as usize];
        if let Some(old) = target.find(to).and_then(|old| target.remove(old)) {
            self.disposal.free(old.value);
        }
        let new = target.insert(to, value, accessed_s);
        target.set_expiry(new, expires_at_ms);
        let key = &self.dbs[db as usize].get(slot).expect("copying leaves the source in place").key;
        self.effects.record(db, Effect::Copy { key, to_db, to });
    }

    /// Moves a key to another database, where it must not exist.
    pub fn move_to(&mut self, db: DbIndex, slot: Slot, to_db: DbIndex) {
        let Some(entry) = self.dbs[db as usize].remove(slot) else { return };
        let target = &mut self.dbs[to_db as usize];
        let new = target.insert(&entry.key, entry.value, entry.accessed_s);
        target.set_expiry(new, entry.expires_at_ms);
        self.effects.record(db, Effect::Move { key: &entry.key, to_db });
    }

    /// Empties a database; its memory is freed meanwhile, or when this returns.
    pub fn flush(&mut self, db: DbIndex, meanwhile: bool) {
        self.effects.record(db, Effect::Flush {});
        let old = std::mem::replace(&mut self.dbs[db as usize], Db::new());
        if meanwhile {
            self.disposal.free_database(old);
        }
    }

    /// Lets two databases change places.
    pub fn swap(&mut self, db: DbIndex, with_db: DbIndex) {
        self.dbs.swap(db as usize, with_db as usize);
        self.effects.record(db, Effect::Swap { with_db });
    }

    /// Adds a key that is not there, without an effect: for verbs whose own effect implies it.
    pub(super) fn create(&mut self, db: DbIndex, key: &[u8], value: Value) -> Slot {
        let accessed_s = self.accessed_now();
        self.dbs[db as usize].insert(key, value, accessed_s)
    }

    /// Stores a value under a key, whatever was there before; its expiry goes. No effect.
    #[inline]
    pub(super) fn overwrite(&mut self, db: DbIndex, key: &[u8], value: Value) -> Slot {
        let database = &mut self.dbs[db as usize];
        match database.find(key) {
            Some(slot) => {
                self.overwrite_at(db, slot, value);
                slot
            }
            None => self.create(db, key, value),
        }
    }

    /// As [`overwrite`](Self::overwrite), for a key whose slot is known.
    #[inline]
    pub(super) fn overwrite_at(&mut self, db: DbIndex, slot: Slot, value: Value) {
        let accessed_s = self.accessed_now();
        if let Some(old) = self.dbs[db as usize].replace_value(slot, value, accessed_s) {
            self.disposal.free(old);
        }
        if self.entry(db, slot).expires_at_ms != NEVER {
            self.dbs[db as usize].set_expiry(slot, NEVER);
        }
    }
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
                ks.expire_at(0, slot, 5_000);
            }
            let slot = |ks: &mut Keyspace, db, key: &[u8]| ks.find(db, key).expect("put above");
            let a = slot(ks, 0, b"a");
            ks.rename(0, a, b"b");
            let b = slot(ks, 0, b"b");
            ks.copy(0, b, 3, b"x");
            ks.copy(0, b, 0, b"c");
            ks.move_to(0, b, 3);
            let d = slot(ks, 0, b"d");
            ks.expire_at(0, d, NEVER);
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
    fn what_does_not_fit_is_refused() {
        let mut ks = Keyspace::new(2, crate::base::rng::Rng::seeded(1));
        ks.put(0, b"a", b"");
        ks.put(1, b"a", b"");
        let strange = [
            Effect::Move { key: b"a", to_db: 1 },
            Effect::Move { key: b"a", to_db: 2 },
            Effect::Copy { key: b"a", to_db: 2, to: b"b" },
            Effect::Swap { with_db: 2 },
            Effect::Del { key: b"x" },
            Effect::Rename { key: b"x", to: b"a" },
            Effect::ExpireAt { key: b"x", at_ms: 1 },
            Effect::Replace { key: b"x", value: b"" },
        ];
        for effect in &strange {
            assert!(!ks.apply(0, effect), "{effect:?}");
        }
        assert!(!ks.apply(2, &Effect::Flush {}));
        assert_eq!((ks.db(0).len(), ks.db(1).len()), (1, 1));
    }
}
