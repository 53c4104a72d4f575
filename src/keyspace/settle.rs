//! Moves small collections into their entries. A collection that a unit has written as a whole is embedded in its entry
//! some units later. This saves a pointer, a header and the allocator's rounding, for good if the collection was
//! written once or read from a snapshot. An embedded collection that is changed gets an allocation of its own at that
//! moment, and its entry moves to a smaller place some units later. It is likely to be changed again, and stays
//! outside. Short-lived collections are never moved.
//!
//! Entries that may need another place are noted, and are settled between two units: each gets the place that it needs.
//! A note is a hint: settling looks at what the slot holds by then. If a unit writes very many collections, some are
//! not noted and stay outside.

use super::unsettled::Note;
use super::{DbIndex, Keyspace, Slot};

/// Notes that are worth the cache misses of settling before a unit.
const SETTLE_FROM: usize = 64;

impl Keyspace {
    /// Notes that a collection has been put into `slot` as a whole, or will be in this unit.
    pub(super) fn note_written(&mut self, db: DbIndex, slot: Slot) {
        self.unsettled.note(Note { db, slot, is_new: true });
    }

    /// Notes that a value has come to `slot`, whose collection lies outside of the entry.
    pub(super) fn note_come(&mut self, db: DbIndex, slot: Slot) {
        if self.value(db, slot).block().is_some() {
            self.note_written(db, slot);
        }
    }

    /// Settles the noted entries if there are enough of them. Call only between units: code inside a unit holds slots,
    /// and may take its changes back.
    #[inline]
    pub(super) fn settle_entries_if_many(&mut self) {
        if self.unsettled.len() >= SETTLE_FROM {
            self.settle_entries();
        }
    }

    /// Gives the noted entries, whose collections were written or changed, the places they need. The last notes come
    /// first, because only the last note of a slot describes its present content. Call only between units.
    #[cold]
    pub(super) fn settle_entries(&mut self) {
        for Note { db, slot, is_new } in self.unsettled.drain() {
            let database = &mut self.dbs[db as usize];
            if database.settle_entry(slot, is_new) {
                database.release();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lsn::Lsn;
    use crate::base::rng::Rng;
    use crate::keyspace::NEVER;
    use crate::keyspace::any_value::{Value, ValueRef};
    use crate::keyspace::effect::Recording;
    use crate::keyspace::limits::UNSETTLED_MAX;

    const MEMBERS: [&[u8]; 5] = [b"red", b"green", b"blue", b"17", b"-1"];

    fn next_unit(ks: &mut Keyspace) {
        ks.begin_unit(1_000, Recording::Full);
        ks.settle_entries();
    }

    /// A set that one unit has written.
    fn keyspace() -> Keyspace {
        let mut ks = Keyspace::new(2, Rng::seeded(1));
        next_unit(&mut ks);
        let mut slot = None;
        for member in MEMBERS {
            slot = Some(ks.set_add(0, b"set", slot, member).expect("a set").0);
        }
        next_unit(&mut ks);
        ks
    }

    fn slot(ks: &mut Keyspace, key: &[u8]) -> Slot {
        ks.find(0, key).expect("it is there")
    }

    /// Whether the collection is embedded. It must have the members above.
    fn is_embedded(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> bool {
        let slot = ks.find(db, key).expect("it is there");
        let set = ks.set(db, slot).expect("a set");
        assert!(set.stored_len() == MEMBERS.len() && MEMBERS.iter().all(|member| set.contains(member)));
        ks.entry(db, slot).has_embedded()
    }

    #[test]
    fn a_collection_written_in_one_unit_is_embedded_until_it_changes() {
        let mut ks = keyspace();
        assert!(is_embedded(&mut ks, 0, b"set"));
        let at = slot(&mut ks, b"set");
        assert_eq!(ks.set_add(0, b"set", Some(at), b"red"), Ok((at, false)));
        ks.set_prepare(0, at, 2).expect("a set");
        assert!(is_embedded(&mut ks, 0, b"set"), "nothing has changed");
        let embedded_bytes = ks.find(0, b"set").map(|slot| ks.entry(0, slot).mem_bytes(0));
        let at = slot(&mut ks, b"set");
        assert!(ks.set_remove(0, at, b"red").expect("a set"));
        assert_eq!(ks.set_add(0, b"set", Some(at), b"red"), Ok((at, true)));
        assert!(!is_embedded(&mut ks, 0, b"set"));
        next_unit(&mut ks);
        assert!(!is_embedded(&mut ks, 0, b"set"), "a changed collection is likely to change again");
        let at = slot(&mut ks, b"set");
        let entry = ks.entry(0, at);
        assert!(entry.place_bytes() == 24 && Some(entry.mem_bytes(0)) > embedded_bytes);
    }

    #[test]
    fn a_collection_of_few_elements_or_many_bytes_stays_outside() {
        let mut ks = keyspace();
        let mut at = None;
        (0..3).for_each(|_| at = Some(ks.list_push(0, b"few", at, true, b"element").expect("a list")));
        at = None;
        (0..6).for_each(|_| at = Some(ks.list_push(0, b"long", at, true, &[b'x'; 50]).expect("a list")));
        next_unit(&mut ks);
        for key in [&b"few"[..], b"long"] {
            let at = slot(&mut ks, key);
            assert!(!ks.entry(0, at).has_embedded());
        }
    }

    #[test]
    fn an_embedded_collection_moves_with_its_key() {
        let mut ks = keyspace();
        let at = slot(&mut ks, b"set");
        _ = ks.expire_at(0, at, 5_000);
        assert!(is_embedded(&mut ks, 0, b"set"));
        let at = slot(&mut ks, b"set");
        _ = ks.expire_at(0, at, NEVER);
        ks.rename(0, at, b"a name that is longer");
        next_unit(&mut ks);
        assert!(is_embedded(&mut ks, 0, b"a name that is longer"));
        let at = slot(&mut ks, b"a name that is longer");
        ks.copy(0, at, 1, b"copy");
        ks.move_to(0, at, 1);
        next_unit(&mut ks);
        assert!(is_embedded(&mut ks, 1, b"copy") && is_embedded(&mut ks, 1, b"a name that is longer"));
        let at = ks.find(1, b"copy").expect("it is there");
        let value = Value::from(ks.value(1, at));
        ks.put_value(0, b"set", value);
        assert!(!is_embedded(&mut ks, 0, b"set"));
        next_unit(&mut ks);
        assert!(is_embedded(&mut ks, 0, b"set"));
        let at = slot(&mut ks, b"set");
        _ = ks.replace(0, at, b"text");
        ks.remove(1, ks.db(1).find(b"copy").expect("it is there"));
        next_unit(&mut ks);
        let at = slot(&mut ks, b"set");
        assert!(matches!(ks.value(0, at), ValueRef::String(_)));
    }

    #[test]
    fn deadlines_of_elements_unembed_a_collection() {
        let mut ks = keyspace();
        let at = slot(&mut ks, b"set");
        assert!(ks.expire_element_at(0, at, b"red", 2_000));
        assert!(!is_embedded(&mut ks, 0, b"set"));
        next_unit(&mut ks);
        ks.begin_unit(3_000, Recording::Full);
        assert!(!ks.reclaim_expired(10));
        let at = slot(&mut ks, b"set");
        assert_eq!(ks.set(0, at).expect("a set").len(), MEMBERS.len() - 1);
    }

    #[test]
    fn many_notes_are_settled_at_once_and_few_on_request() {
        let mut ks = keyspace();
        let outside = |ks: &Keyspace| ks.entries(0).filter(|entry| !entry.has_embedded()).count();
        let mut copies = 0u32;
        let mut copy = |ks: &mut Keyspace, count: usize| {
            for _ in 0..count {
                let at = slot(ks, b"set");
                ks.copy(0, at, 0, &copies.to_be_bytes());
                copies += 1;
            }
        };
        copy(&mut ks, SETTLE_FROM);
        assert_eq!(outside(&ks), SETTLE_FROM);
        ks.begin_unit(1_000, Recording::Full);
        assert_eq!(outside(&ks), 0);
        copy(&mut ks, SETTLE_FROM - 1);
        ks.begin_unit(1_000, Recording::Full);
        assert_eq!(outside(&ks), SETTLE_FROM - 1);
        ks.give_back_scratch(Lsn::NONE);
        assert_eq!(outside(&ks), 0);
        // If there are very many, some stay outside.
        copy(&mut ks, UNSETTLED_MAX + 10);
        ks.give_back_scratch(Lsn::NONE);
        assert_eq!(outside(&ks), 10);
    }

    #[test]
    fn a_failed_lookup_leaves_a_collection_embedded() {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        next_unit(&mut ks);
        let mut at = [None; 3];
        for number in 0..5u8 {
            let element = [b'a' + number; 3];
            at[0] = Some(ks.set_add(0, b"set", at[0], &element).expect("a set").0);
            at[1] = Some(ks.hash_set(0, b"hash", at[1], &element, b"v").expect("a hash").0);
            at[2] = Some(ks.zset_add(0, b"zset", at[2], &element, f64::from(number)).expect("a sorted set").0);
        }
        next_unit(&mut ks);
        let [set, hash, zset] = [&b"set"[..], b"hash", b"zset"].map(|key| slot(&mut ks, key));
        assert_eq!(ks.set_remove(0, set, b"x"), Ok(false));
        assert_eq!(ks.hash_remove(0, hash, b"x"), Ok(false));
        assert_eq!(ks.zset_remove(0, zset, b"x"), Ok(None));
        assert!([set, hash, zset].iter().all(|slot| ks.entry(0, *slot).has_embedded()));
        assert_eq!(ks.set_remove(0, set, b"ccc"), Ok(true));
        assert_eq!(ks.hash_remove(0, hash, b"ccc"), Ok(true));
        assert_eq!(ks.zset_remove(0, zset, b"ccc"), Ok(Some(2.0)));
        next_unit(&mut ks);
        let [set, hash, zset] = [&b"set"[..], b"hash", b"zset"].map(|key| slot(&mut ks, key));
        assert_eq!(
            (ks.set(0, set).unwrap().len(), ks.hash(0, hash).unwrap().len(), ks.zset(0, zset).unwrap().len()),
            (4, 4, 4)
        );
    }

    #[test]
    fn an_expired_collection_is_removed_while_embedded() {
        let mut ks = keyspace();
        let at = slot(&mut ks, b"set");
        _ = ks.expire_at(0, at, 2_000);
        next_unit(&mut ks);
        ks.begin_unit(3_000, Recording::Full);
        let hold = ks.hold_expiry();
        let at = slot(&mut ks, b"set");
        assert!(ks.entry(0, at).has_embedded());
        drop(hold);
        assert!(ks.find(0, b"set").is_none());
    }

    #[test]
    fn a_rollback_restores_embedded_collections() {
        let mut ks = keyspace();
        let before = slot(&mut ks, b"set");
        ks.begin_undo();
        assert_eq!(ks.set_add(0, b"set", Some(before), b"more"), Ok((before, true)));
        ks.remove(0, before);
        ks.roll_back();
        assert_eq!(slot(&mut ks, b"set"), before);
        assert!(!is_embedded(&mut ks, 0, b"set"));
        next_unit(&mut ks);
        assert!(is_embedded(&mut ks, 0, b"set"));
    }
}
