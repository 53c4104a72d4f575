//! Verbs on the deadlines of elements: the fields of a hash and the members of a set. Both keep their deadlines in one
//! structure ([`Deadlines`](crate::value::deadlines::Deadlines)) and so share their verbs.
//!
//! An expired element is removed by an effect like any other, so a follower of the stream needs no clock.

use super::check::{ensure, slot_of};
use crate::keyspace::any_value::{ValueMut, ValueRef};
use crate::keyspace::effect::{Cause, Effect};
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, NEVER, Slot};

impl Keyspace {
    /// Returns when an element of the hash or set at `slot` expires, Unix ms, [`NEVER`] for not at all, or `None` if
    /// there is no such element.
    pub fn element_deadline(&self, db: DbIndex, slot: Slot, element: &[u8]) -> Option<i64> {
        let value = self.value(db, slot);
        contains(value, element).then(|| value.deadlines().and_then(|deadlines| deadlines.at(element)).unwrap_or(NEVER))
    }

    /// Sets when an element of the hash or set at `slot` expires, Unix ms; [`NEVER`] for not at all. Returns whether
    /// the element exists.
    pub fn expire_element_at(&mut self, db: DbIndex, slot: Slot, element: &[u8], at_ms: i64) -> bool {
        if !contains(self.value(db, slot), element) {
            return false;
        }
        self.note_change(db, slot, |value| PreImage::element(value, element));
        let (limits, is_held) = (self.limits.set, self.is_expiry_held());
        let before = self.value(db, slot).elements_expire();
        match self.value_mut(db, slot) {
            Some(value) if at_ms == NEVER => _ = value.deadlines_mut().map(|deadlines| deadlines.remove(element)),
            Some(ValueMut::Hash(hash)) => hash.set_deadline(element, at_ms),
            Some(ValueMut::Set(set)) => set.set_deadline(element, at_ms, &limits),
            _ => {}
        }
        // The value last saw the time before expiry was held, and would treat the element as expired.
        if is_held && let Some(deadlines) = self.value_mut(db, slot).and_then(ValueMut::deadlines_mut) {
            deadlines.advance(i64::MIN);
        }
        self.dbs[db as usize].follow_elements(slot, before);
        self.record_at(db, slot, |key| Effect::ElementExpireAt { key, element, at_ms });
        true
    }

    /// Removes an element of the hash or set at `slot`, and the key with the last element. Returns whether the key is
    /// gone.
    pub fn remove_element(&mut self, db: DbIndex, slot: Slot, element: &[u8]) -> bool {
        let last = match self.value(db, slot) {
            ValueRef::Hash(hash) => hash.len() == 1,
            ValueRef::Set(set) => set.len() == 1,
            _ => false,
        };
        let removed = match self.value(db, slot) {
            ValueRef::Hash(_) => self.hash_remove(db, slot, element),
            _ => self.set_remove(db, slot, element),
        };
        last && removed == Ok(true)
    }

    /// Removes at most `budget` expired elements of the value at `slot`, which also has live ones. Returns how many
    /// were removed. For a stream, due delayed messages become entries.
    pub(in crate::keyspace) fn remove_expired_elements(&mut self, db: DbIndex, slot: Slot, budget: usize) -> usize {
        match self.value(db, slot) {
            ValueRef::Grants(_) => return self.end_expired_grants(db, slot, budget),
            ValueRef::Stream(_) => return self.release_due(db, slot, budget),
            _ => {}
        }
        let first = |ks: &Keyspace| ks.value(db, slot).deadlines()?.first_expired().map(<[u8]>::to_vec);
        let mut removed = 0;
        while removed < budget
            && let Some(element) = first(self)
        {
            self.remove_expired_element(db, slot, &element);
            removed += 1;
        }
        removed
    }

    /// Prepares to write an element that may have expired.
    #[cold]
    pub(super) fn remove_if_expired(&mut self, db: DbIndex, slot: Slot, element: &[u8]) {
        if self.value(db, slot).deadlines().is_some_and(|deadlines| deadlines.is_expired(element)) {
            self.remove_expired_element(db, slot, element);
        }
    }

    fn remove_expired_element(&mut self, db: DbIndex, slot: Slot, element: &[u8]) {
        self.stats.expired_elements += 1;
        self.note_change(db, slot, |value| PreImage::element(value, element));
        let is_hash = match self.value_mut(db, slot) {
            Some(ValueMut::Hash(hash)) => {
                hash.remove(element);
                true
            }
            Some(ValueMut::Set(set)) => {
                set.remove(element);
                false
            }
            _ => return,
        };
        self.dbs[db as usize].follow_elements(slot, true);
        self.record_at(db, slot, |key| match is_hash {
            true => Effect::HashRemove { key, field: element, cause: Cause::Expiry, emptied: false },
            false => Effect::SetRemove { key, member: element, cause: Cause::Expiry, emptied: false },
        });
    }

    /// Removes the key of a hash or set without live elements, after a recorded effect took the last one.
    pub(super) fn drop_if_all_expired(&mut self, db: DbIndex, slot: Slot) {
        let (live, stored) = match self.value(db, slot) {
            ValueRef::Hash(hash) => (hash.len(), hash.stored_len()),
            ValueRef::Set(set) => (set.len(), set.stored_len()),
            _ => return,
        };
        match (live, stored) {
            (0, 0) => self.drop_if(true, db, slot),
            // The effect implies the removal of the key only for those who do not know which elements have expired.
            (0, _) => self.remove(db, slot),
            _ => {}
        }
    }
}

fn contains(value: ValueRef<'_>, element: &[u8]) -> bool {
    match value {
        ValueRef::Hash(hash) => hash.contains(element),
        ValueRef::Set(set) => set.contains(element),
        _ => false,
    }
}

/// Replays a recorded change of a deadline.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    let Effect::ElementExpireAt { key, element, at_ms } = *effect else { return Err(Misfit::Elsewhere) };
    let slot = slot_of(ks, db, key)?;
    ensure(matches!(ks.value(db, slot), ValueRef::Hash(_) | ValueRef::Set(_)), Misfit::WrongType)?;
    ensure(ks.expire_element_at(db, slot, element, at_ms), Misfit::Absent)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::super::tests::replays;
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::Keyspace;
    use crate::keyspace::effect::Recording;
    use crate::keyspace::limits::EXPIRED_ELEMENTS_PER_LOOKUP;

    fn at(ks: &mut Keyspace, now_ms: i64) {
        ks.begin_unit(now_ms, Recording::Full);
    }

    fn keyspace() -> Keyspace {
        let mut ks = Keyspace::new(2, Rng::seeded(1));
        at(&mut ks, 0);
        ks
    }

    /// Creates a hash and a set with `elements` elements each, all of which expire at `at_ms`.
    fn mortal(ks: &mut Keyspace, elements: usize, at_ms: i64) {
        for i in 0..elements {
            let element = format!("e{i}").into_bytes();
            let slot = ks.find(0, b"h");
            let (hash, _) = ks.hash_set(0, b"h", slot, &element, b"v").expect("a hash");
            let slot = ks.find(0, b"s");
            let (set, _) = ks.set_add(0, b"s", slot, &element).expect("a set");
            assert!(ks.expire_element_at(0, hash, &element, at_ms));
            assert!(ks.expire_element_at(0, set, &element, at_ms));
        }
    }

    fn dels(ks: &Keyspace) -> Vec<Vec<u8>> {
        let del = |(_, effect)| match effect {
            Effect::Del { key, .. } => Some(key.to_vec()),
            _ => None,
        };
        ks.effects().iter().filter_map(del).collect()
    }

    #[test]
    fn replaying_gives_the_same_deadlines() {
        replays(|ks| {
            let (hash, _) = ks.hash_set(3, b"h", None, b"a", b"1")?;
            assert!(ks.expire_element_at(3, hash, b"a", 5_000));
            assert!(!ks.expire_element_at(3, hash, b"b", 5_000));
            for field in [b"b", b"c", b"d", b"e"] {
                ks.hash_set(3, b"h", Some(hash), field, b"1")?;
                ks.expire_element_at(3, hash, field, 6_000);
            }
            ks.hash_set(3, b"h", Some(hash), b"b", b"2")?;
            ks.hash_update(3, b"h", Some(hash), b"c", b"2")?;
            ks.expire_element_at(3, hash, b"d", NEVER);
            assert!(ks.hash_remove(3, hash, b"e")?);
            let deadline = |ks: &Keyspace, field: &[u8]| ks.element_deadline(3, hash, field);
            assert_eq!(deadline(ks, b"a"), Some(5_000));
            assert_eq!(deadline(ks, b"b"), Some(NEVER));
            assert_eq!(deadline(ks, b"c"), Some(6_000));
            assert_eq!(deadline(ks, b"d"), Some(NEVER));
            assert_eq!(deadline(ks, b"e"), None);
            ks.copy(3, hash, 1, b"copy");
            ks.rename(3, hash, b"renamed");
            let renamed = ks.find(3, b"renamed").expect("just renamed");
            ks.move_to(3, renamed, 2);
            assert_eq!([1, 2, 3].map(|db| ks.db(db).partly_volatile()), [1, 1, 0]);
            let (set, _) = ks.set_add(0, b"s", None, b"7")?;
            ks.set_add(0, b"s", Some(set), b"8")?;
            ks.expire_element_at(0, set, b"7", 5_000);
            ks.set_add(0, b"s", Some(set), b"7")?;
            assert_eq!(ks.element_deadline(0, set, b"7"), Some(5_000));
            assert_eq!(ks.value(0, set).encoding(), "listpackex");
            assert!(ks.set_remove(0, set, b"8")? && ks.remove_element(0, set, b"7"));
            assert!(ks.find(0, b"s").is_none());
            let (over, _) = ks.set_add(0, b"over", None, b"x")?;
            ks.expire_element_at(0, over, b"x", 5_000);
            ks.put(0, b"over", b"text");
            assert_eq!(ks.db(0).partly_volatile(), 0);
            Ok(())
        });
    }

    #[test]
    fn expired_elements_are_gone_and_recorded() {
        let mut ks = keyspace();
        mortal(&mut ks, 3, 100);
        let slot = ks.find(0, b"h");
        ks.hash_set(0, b"h", slot, b"stays", b"v").expect("a hash");
        at(&mut ks, 99);
        assert_eq!(ks.find(0, b"h").map(|slot| ks.hash(0, slot).map(|hash| hash.len())), Some(Ok(4)));
        at(&mut ks, 100);
        assert_eq!(ks.find(0, b"h").map(|slot| ks.hash(0, slot).map(|hash| hash.len())), Some(Ok(1)));
        let removed = |(_, effect): (u16, Effect<'_>)| matches!(effect, Effect::HashRemove { key: b"h", .. });
        assert_eq!((ks.effects().iter().filter(|effect| removed(*effect)).count(), ks.stats.expired_elements), (3, 3));
        // Nothing of the set is live: walks skip it, and a lookup removes it.
        assert_eq!((ks.entries(0).count(), ks.live(0, b"h").is_some(), ks.live(0, b"s").is_some()), (1, true, false));
        assert!(ks.find(0, b"s").is_none());
        assert_eq!((dels(&ks), ks.db(0).partly_volatile(), ks.db(0).len()), (vec![b"s".to_vec()], 0, 1));
        assert_eq!((ks.stats.expired_elements, ks.stats.expired), (6, 0));
    }

    #[test]
    fn expired_elements_are_reclaimed_in_slices() {
        let mut ks = keyspace();
        mortal(&mut ks, 300, 100);
        for (key, element) in [(b"h", b"f"), (b"s", b"m")] {
            let slot = ks.find(0, key);
            match key {
                b"h" => _ = ks.hash_set(0, key, slot, element, b"v").expect("a hash"),
                _ => _ = ks.set_add(0, key, slot, element).expect("a set"),
            }
        }
        at(&mut ks, 100);
        let mut slices = 0;
        while ks.reclaim_expired(50) {
            assert!(ks.effects().iter().count() <= 50);
            at(&mut ks, 100);
            slices += 1;
        }
        assert!((12..=16).contains(&slices), "{slices}");
        assert_eq!((ks.stats.expired_elements, ks.db(0).partly_volatile(), ks.db(0).len()), (600, 0, 2));
    }

    #[test]
    fn elements_that_expire_together_are_hidden_at_once() {
        let mut ks = keyspace();
        let many = EXPIRED_ELEMENTS_PER_LOOKUP * 3;
        mortal(&mut ks, many, 100);
        let slot = ks.find(0, b"h");
        for field in [b"a", b"b"] {
            ks.hash_set(0, b"h", slot, field, b"v").expect("a hash");
        }
        at(&mut ks, 100);
        let slot = ks.find(0, b"h").expect("two fields live");
        let hash = ks.hash(0, slot).expect("a hash");
        assert_eq!((hash.len(), hash.stored_len()), (2, many + 2 - EXPIRED_ELEMENTS_PER_LOOKUP));
        assert_eq!((hash.iter().count(), hash.get(b"e380"), hash.contains(b"a")), (2, None, true));
        let mut met = 0;
        assert_eq!(hash.scan(0, 10_000, |_, _| met += 1), 0);
        assert_eq!(met, 2);
        let (mut rng, mut sampled) = (Rng::seeded(7), 0);
        hash.sample(10, |n| rng.below(n), |_, _| sampled += 1);
        let drawn: BTreeSet<_> =
            (0..50).filter_map(|_| hash.random(|n| rng.below(n))).map(|(f, _)| f.to_vec()).collect();
        assert_eq!((sampled, drawn), (2, BTreeSet::from([b"a".to_vec(), b"b".to_vec()])));
        // An expired field counts as new when it is set, and is live again. The key is removed with its last live
        // field, regardless of expired ones.
        assert_eq!(ks.hash_set(0, b"h", Some(slot), b"e380", b"new"), Ok((slot, true)));
        assert_eq!((ks.element_deadline(0, slot, b"e380"), ks.hash_remove(0, slot, b"e381")), (Some(NEVER), Ok(false)));
        assert!(!ks.remove_element(0, slot, b"e380") && !ks.remove_element(0, slot, b"a"));
        assert!(ks.remove_element(0, slot, b"b"));
        assert_eq!((ks.find(0, b"h"), dels(&ks), ks.db(0).partly_volatile()), (None, vec![b"h".to_vec()], 1));
    }

    /// One step of the model test.
    #[derive(Clone, Debug)]
    enum Step {
        Set(u8),
        Update(u8),
        Add(u8),
        Remove(u8),
        ExpireIn(u8, i64),
        Persist(u8),
        Wait(i64),
        Reclaim(usize),
        Random,
        Scan,
    }

    fn step() -> impl Strategy<Value = Step> {
        let element = || 0..24u8;
        prop_oneof![
            4 => element().prop_map(Step::Set),
            1 => element().prop_map(Step::Update),
            4 => element().prop_map(Step::Add),
            2 => element().prop_map(Step::Remove),
            6 => (element(), 1..30i64).prop_map(|(element, ms)| Step::ExpireIn(element, ms)),
            1 => element().prop_map(Step::Persist),
            3 => (1..12i64).prop_map(Step::Wait),
            1 => (1..6usize).prop_map(Step::Reclaim),
            1 => Just(Step::Random),
            4 => Just(Step::Scan),
        ]
    }

    /// Elements with their deadlines: a naive hash or set.
    type Model = BTreeMap<Vec<u8>, i64>;

    fn elements(ks: &mut Keyspace, key: &[u8]) -> BTreeSet<Vec<u8>> {
        match ks.read(0, key) {
            Some(ValueRef::Hash(hash)) => hash.iter().map(|(field, _)| field.to_vec()).collect(),
            Some(ValueRef::Set(set)) => set.iter().map(|member| member.to_vec()).collect(),
            _ => BTreeSet::new(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Compares a hash and a set with maps of deadlines, packed and as tables, while the clock advances and a walk
        /// goes on. The recorded effects must make an equal keyspace.
        #[test]
        fn equal_to_maps_of_deadlines(packed in 0..32usize, steps in proptest::collection::vec(step(), 0..150)) {
            let mut ks = keyspace();
            ks.limits.hash.max_listpack_entries = packed;
            ks.limits.set.max_listpack_entries = packed;
            let mut copy = keyspace();
            let mut models: [Model; 2] = Default::default();
            let mut now_ms = 0;
            let mut walks = [(0, BTreeSet::new(), BTreeSet::new()), (0, BTreeSet::new(), BTreeSet::new())];
            for step in steps {
                at(&mut ks, now_ms);
                for (model, key) in models.iter_mut().zip([b"h", b"s"]) {
                    model.retain(|_, at_ms| *at_ms > now_ms);
                    let slot = ks.find(0, key);
                    prop_assert_eq!(slot.is_some(), !model.is_empty());
                    let name = |element: u8| match element.is_multiple_of(2) {
                        true => element.to_string(),
                        false => format!("e{element}"),
                    };
                    match (&step, slot) {
                        (Step::Set(element), _) if key == b"h" => {
                            let field = name(*element).into_bytes();
                            let new = ks.hash_set(0, key, slot, &field, b"v").expect("a hash").1;
                            prop_assert_eq!(new, model.insert(field, NEVER).is_none());
                        }
                        (Step::Update(element), _) if key == b"h" => {
                            let field = name(*element).into_bytes();
                            ks.hash_update(0, key, slot, &field, b"w").expect("a hash");
                            model.entry(field).or_insert(NEVER);
                        }
                        (Step::Add(element), _) if key == b"s" => {
                            let member = name(*element).into_bytes();
                            let new = ks.set_add(0, key, slot, &member).expect("a set").1;
                            prop_assert_eq!(new, !model.contains_key(&member));
                            model.entry(member).or_insert(NEVER);
                        }
                        (Step::Remove(element), Some(slot)) => {
                            let element = name(*element).into_bytes();
                            let gone = ks.remove_element(0, slot, &element);
                            let removed = model.remove(&element).is_some();
                            prop_assert_eq!(gone, removed && model.is_empty());
                        }
                        (Step::ExpireIn(element, ms), Some(slot)) => {
                            let element = name(*element).into_bytes();
                            let there = ks.expire_element_at(0, slot, &element, now_ms + ms);
                            prop_assert_eq!(there, model.contains_key(&element));
                            model.entry(element).and_modify(|at_ms| *at_ms = now_ms + ms);
                        }
                        (Step::Persist(element), Some(slot)) => {
                            let element = name(*element).into_bytes();
                            ks.expire_element_at(0, slot, &element, NEVER);
                            model.entry(element).and_modify(|at_ms| *at_ms = NEVER);
                        }
                        (Step::Random, Some(slot)) => {
                            let mut rng = Rng::seeded(now_ms as u64);
                            let drawn = match ks.value(0, slot) {
                                ValueRef::Hash(hash) => hash.random(|n| rng.below(n)).map(|(field, _)| field.to_vec()),
                                ValueRef::Set(set) => set.random(|n| rng.below(n)).map(|member| member.to_vec()),
                                _ => None,
                            };
                            prop_assert!(drawn.is_some_and(|drawn| model.contains_key(&drawn)));
                        }
                        _ => {}
                    }
                    let slot = ks.find(0, key);
                    let deadline = |element: &Vec<u8>| slot.and_then(|slot| ks.element_deadline(0, slot, element));
                    prop_assert!(model.iter().all(|(element, at_ms)| deadline(element) == Some(*at_ms)));
                    prop_assert_eq!(elements(&mut ks, key), model.keys().cloned().collect::<BTreeSet<_>>());
                }
                for (i, (cursor, met, stayed)) in walks.iter_mut().enumerate() {
                    // An element that is present at each step of a walk must have been visited by its end, and no
                    // expired one ever is.
                    let model: BTreeSet<_> = models[i].keys().cloned().collect();
                    *stayed = if *cursor == 0 { model.clone() } else { &*stayed & &model };
                    let Step::Scan = step else { continue };
                    let value = ks.read(0, [b"h", b"s"][i]);
                    let mut step = BTreeSet::new();
                    *cursor = match value {
                        Some(ValueRef::Hash(hash)) => hash.scan(*cursor, 3, |field, _| _ = step.insert(field.to_vec())),
                        Some(ValueRef::Set(set)) => set.scan(*cursor, 3, |member| _ = step.insert(member.to_vec())),
                        _ => 0,
                    };
                    prop_assert!(step.is_subset(&model));
                    met.extend(step);
                    if *cursor == 0 {
                        prop_assert!(stayed.is_subset(met));
                        met.clear();
                    }
                }
                replay(&ks, &mut copy)?;
                at(&mut ks, now_ms);
                match step {
                    Step::Wait(ms) => now_ms += ms,
                    Step::Reclaim(budget) => _ = ks.reclaim_expired(budget),
                    _ => {}
                }
                replay(&ks, &mut copy)?;
                let volatile = models.iter().filter(|model| model.values().any(|at_ms| *at_ms != NEVER)).count();
                prop_assert_eq!(ks.db(0).partly_volatile(), volatile);
            }
            at(&mut ks, now_ms);
            while ks.reclaim_expired(1) {
                replay(&ks, &mut copy)?;
                at(&mut ks, now_ms);
            }
            replay(&ks, &mut copy)?;
            // The copy has no clock: it holds exactly what the effects left.
            at(&mut copy, 0);
            for (model, key) in models.iter_mut().zip([b"h", b"s"]) {
                model.retain(|_, at_ms| *at_ms > now_ms);
                prop_assert_eq!(elements(&mut copy, key), model.keys().cloned().collect::<BTreeSet<_>>());
                let slot = copy.find(0, key);
                let deadline = |element: &Vec<u8>| slot.and_then(|slot| copy.element_deadline(0, slot, element));
                prop_assert!(model.iter().all(|(element, at_ms)| deadline(element) == Some(*at_ms)));
            }
        }
    }

    fn replay(ks: &Keyspace, copy: &mut Keyspace) -> Result<(), TestCaseError> {
        at(copy, 0);
        for (db, effect) in ks.effects().iter() {
            prop_assert_eq!(copy.apply(db, &effect), Ok(()), "{:?}", effect);
        }
        Ok(())
    }
}
