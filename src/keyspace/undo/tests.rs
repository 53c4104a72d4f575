//! Every change is undone.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::base::rng::Rng;
use crate::keyspace::effect::Recording;
use crate::value::stream::StreamId;

fn keyspace() -> Keyspace {
    let mut ks = Keyspace::new(2, Rng::seeded(1));
    ks.begin_unit(1_000, Recording::Full);
    ks
}

fn text(ks: &Keyspace, key: &[u8]) -> Option<String> {
    let ValueRef::String(text) = ks.live(0, key)?.value() else { return None };
    Some(String::from_utf8_lossy(&text.text()).into_owned())
}

#[test]
fn the_record_of_a_unit_ends_where_the_script_began() {
    let mut ks = keyspace();
    ks.put(0, b"before", b"1");
    let (recorded, count) = (ks.effects().as_bytes().to_vec(), ks.effects().count());
    ks.begin_undo();
    ks.put(0, b"before", b"2");
    ks.put(0, b"new", b"3");
    ks.roll_back();
    assert_eq!((ks.effects().as_bytes(), ks.effects().count()), (&recorded[..], count));
    assert_eq!((text(&ks, b"before").as_deref(), text(&ks, b"new")), (Some("1"), None));
    ks.begin_undo();
    ks.put(0, b"before", b"2");
    ks.commit_undo();
    assert_eq!((text(&ks, b"before").as_deref(), ks.effects().count()), (Some("2"), count + 1));
}

#[test]
fn a_table_that_had_no_deadlines_has_none_again() {
    let mut ks = keyspace();
    let long = [b'x'; 100];
    ks.hash_set(0, b"hash", None, b"field", &long).expect("it is new");
    ks.set_add(0, b"set", None, &long).expect("it is new");
    ks.begin_undo();
    for (key, element) in [(&b"hash"[..], &b"field"[..]), (b"set", &long)] {
        let slot = ks.find(0, key).expect("it is there");
        assert!(ks.expire_element_at(0, slot, element, 2_000));
    }
    ks.roll_back();
    let has_deadlines = |key: &[u8]| match ks.live(0, key).expect("it is there").value() {
        ValueRef::Hash(hash) => hash.deadlines().is_some(),
        ValueRef::Set(set) => set.deadlines().is_some(),
        _ => unreachable!("no other was made"),
    };
    assert_eq!([b"hash".as_slice(), b"set"].map(has_deadlines), [false, false]);
}

#[test]
fn entries_come_back_to_their_slots() {
    let mut ks = keyspace();
    let slots = [b"a", b"b", b"c", b"d"].map(|key| ks.put(0, key, b"v"));
    ks.begin_undo();
    ks.rename(0, slots[0], b"b");
    ks.remove(0, slots[2]);
    ks.put(0, b"x", b"");
    ks.put(0, b"y", b"");
    ks.move_to(0, slots[3], 1);
    ks.flush(0, true);
    ks.put(0, b"z", b"");
    ks.swap(0, 1);
    ks.roll_back();
    assert_eq!([b"a", b"b", b"c", b"d"].map(|key| ks.find(0, key)), slots.map(Some));
    assert_eq!((ks.db(0).len(), ks.db(1).len()), (4, 0));
}

#[test]
fn entries_that_grew_and_moved_come_back_to_their_slots() {
    let mut ks = keyspace();
    let before = [(b"a", "v"), (b"b", "v"), (b"c", "v"), (b"d", "v"), (b"e", "14 bytes in it")];
    let slots = before.map(|(key, value)| ks.put(0, key, value.as_bytes()));
    ks.begin_undo();
    let a = ks.replace(0, slots[0], b"14 bytes in it");
    assert!(a != slots[0] || !cfg!(debug_assertions), "only debug builds let it move");
    let a = ks.expire_at(0, a, 9_000);
    ks.remove(0, a);
    let b = ks.make_growable(0, slots[1]);
    let (b, _) = ks.set_range(0, b"b", Some(b), 5, b"x").expect("a string");
    let b = ks.expire_at(0, b, 9_000);
    ks.rename(0, b, b"c");
    let d = ks.put_text(0, b"d", Some(slots[3]), b"0123456789");
    ks.put(0, b"x", b"takes a place");
    ks.copy(0, d, 0, b"y");
    assert!(ks.splice(0, d, 1, 1, b"x").is_some());
    // Removed while it is short, the entry comes back to a place with room for its earlier value.
    let e = ks.replace(0, slots[4], b"");
    ks.remove(0, e);
    ks.roll_back();
    assert_eq!(before.map(|(key, _)| ks.find(0, key)), slots.map(Some));
    assert_eq!(before.map(|(key, _)| text(&ks, key)), before.map(|(_, value)| Some(value.to_owned())));
    assert_eq!((ks.db(0).len(), ks.db(0).volatile()), (5, 0));
}

/// The new name took the entry to a place where it could grow, and its new value would not fit its old place.
#[test]
fn a_covered_key_that_grew_under_another_name_comes_back_to_its_slot() {
    let long = [b'L'; 130];
    for moves in [false, true] {
        let mut ks = keyspace();
        let slots = [b"bb", b"cc"].map(|key| ks.put(0, key, b"ten bytes!"));
        let until = if moves { 9_000 } else { NEVER };
        let slot = ks.expire_at(0, slots[0], until);
        ks.begin_undo();
        _ = ks.put_until(0, b"bb", Some(slot), b"10 others!", until);
        ks.remove(0, slots[1]);
        let slot = ks.find(0, b"bb").expect("it is there");
        if moves {
            ks.move_to(0, slot, 1);
            ks.put(1, b"bb", b"more than ten bytes");
        } else {
            ks.rename(0, slot, &long);
            ks.put(0, &long, b"more than 22 bytes are here");
        }
        ks.roll_back();
        assert_eq!([b"bb", b"cc"].map(|key| text(&ks, key).unwrap_or_default()), ["ten bytes!"; 2]);
        assert_eq!((ks.db(0).len(), ks.db(1).len()), (2, 0));
    }
}

#[test]
fn a_rollback_undoes_the_raw_form_of_a_string() {
    let mut ks = keyspace();
    let slot = ks.put(0, b"k", &[b'x'; 200]);
    let bytes = ks.db(0).entry(slot).mem_bytes(5);
    ks.begin_undo();
    ks.set_range(0, b"k", Some(slot), 0, b"a").expect("a string");
    ks.roll_back();
    let slot = ks.find(0, b"k").expect("it is there");
    assert_eq!(ks.db(0).entry(slot).mem_bytes(5), bytes);
}

/// Everything that a database holds, with its location.
fn held(ks: &Keyspace, db: DbIndex) -> Vec<String> {
    let shown = |slot| {
        let entry = ks.db(db).entry(slot);
        let value = match entry.value() {
            ValueRef::String(string) => format!("{} {}", string.encoding(), string.text().escape_ascii()),
            ValueRef::Hash(hash) => format!("{hash:?}"),
            ValueRef::List(list) => format!("{:?}", list.iter().collect::<Vec<_>>()),
            _ => unreachable!("no other was made"),
        };
        format!("{:?} {}: {value} until {:?}", slot, entry.key().escape_ascii(), entry.expires_at_ms())
    };
    let mut all: Vec<String> = ks.db(db).slots().map(shown).collect();
    all.sort();
    all
}

/// One verb, on keys of all lengths, few enough that changes meet on one key.
fn change(ks: &mut Keyspace, (verb, at, key, to, len): (u8, u8, u8, u8, usize)) {
    const LENGTHS: [usize; 7] = [2, 3, 14, 20, 21, 130, 300];
    let name = |number: u8| vec![b'a' + number; LENGTHS[usize::from(number)]];
    let (db, at, key, to, value) = (u16::from(at % 2), at / 2, name(key), name(to), vec![b'v'; len]);
    let found = ks.find(db, &key);
    let until = if at == 0 { NEVER } else { 1_000_000 + i64::from(at) };
    let Some(slot) = found else {
        match verb % 4 {
            0 => _ = ks.put(db, &key, &value),
            1 => _ = ks.put_until(db, &key, None, &value, until),
            2 => _ = ks.hash_set(db, &key, None, b"field", &value).expect("a hash"),
            // Of many short elements, which are embedded when the unit ends, or of one.
            _ => {
                let (elements, element) = if len < 200 { (6, &value[..len / 6]) } else { (1, &value[..]) };
                let mut slot = None;
                (0..elements).for_each(|_| slot = Some(ks.list_push(db, &key, slot, true, element).expect("a list")));
            }
        }
        return;
    };
    let is_string = matches!(ks.db(db).entry(slot).value(), ValueRef::String(_));
    match verb {
        0 => _ = ks.put(db, &key, &value),
        1 => _ = ks.put_until(db, &key, found, &value, until),
        2 => ks.remove(db, slot),
        3 if to != key => ks.rename(db, slot, &to),
        4 if ks.find(1 - db, &key).is_none() => ks.move_to(db, slot, 1 - db),
        5 if ks.find(db, &to).is_none() => ks.copy(db, slot, db, &to),
        6 | 7 => _ = ks.expire_at(db, slot, until),
        8 if is_string => _ = ks.replace(db, slot, &value),
        9 if is_string => _ = ks.set_range(db, &key, found, 3, &value).expect("a string"),
        10 if is_string => _ = ks.splice(db, slot, 0, 1, &value),
        11 if is_string => _ = ks.put_integer(db, &key, found, (len as i64) << (len % 48)),
        12 if is_string => _ = ks.put_text(db, &key, found, &value),
        13 if len > 350 => ks.swap(0, 1),
        14 if len > 350 => ks.flush(db, true),
        _ => match ks.value(db, slot) {
            ValueRef::Hash(_) => _ = ks.hash_set(db, &key, found, b"field", &value),
            ValueRef::List(_) => _ = ks.list_push(db, &key, found, true, &value),
            _ => {}
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2000 }))]
    /// A rollback restores everything, in its old location, whatever the script did.
    #[test]
    fn a_rollback_restores_every_slot(
        scripts in vec(
            (
                any::<bool>(),
                vec((0..20u8, 0..8u8, 0..7u8, 0..7u8, 0..400usize), 0..if cfg!(miri) { 10 } else { 30 }),
            ),
            1..8,
        ),
    ) {
        let mut ks = keyspace();
        for (stays, verbs) in scripts {
            let before = [0, 1].map(|db| held(&ks, db));
            ks.begin_undo();
            verbs.into_iter().for_each(|verb| change(&mut ks, verb));
            if stays {
                ks.commit_undo();
            } else {
                ks.roll_back();
                prop_assert_eq!([0, 1].map(|db| held(&ks, db)), before);
            }
            ks.begin_unit(1_000, Recording::Full);
            ks.settle_entries();
        }
    }
}

/// Calls of [`change`].
type Changes = Vec<(u8, u8, u8, u8, usize)>;

fn changes() -> impl Strategy<Value = Changes> {
    vec((0..20u8, 0..8u8, 0..7u8, 0..7u8, 0..400usize), 0..if cfg!(miri) { 6 } else { 15 })
}

/// Everything that a rollback must restore.
fn all(ks: &Keyspace) -> ([Vec<String>; 2], Vec<u8>, u64) {
    ([0, 1].map(|db| held(ks, db)), ks.effects().as_bytes().to_vec(), ks.effects().count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2000 }))]
    /// An inner undo can be rolled back alone, at any depth, and the outer one afterwards.
    #[test]
    fn a_part_can_be_undone_alone(
        units in vec((any::<bool>(), vec((0..4u8, changes()), 1..8)), 1..6), keys_only: bool
    ) {
        let mut ks = keyspace();
        let recording = if keys_only { Recording::Keys } else { Recording::Full };
        for (stays, parts) in units {
            ks.begin_unit(1_000, recording);
            change(&mut ks, (0, 0, 0, 0, 20));
            let mut before = vec![all(&ks)];
            ks.begin_undo();
            for (step, verbs) in parts {
                match step {
                    0 => {
                        before.push(all(&ks));
                        ks.begin_undo();
                    }
                    1 if before.len() > 1 => {
                        ks.roll_back();
                        prop_assert_eq!(Some(all(&ks)), before.pop());
                        prop_assert!(ks.may_roll_back());
                    }
                    2 if before.len() > 1 => {
                        ks.commit_undo();
                        before.pop();
                    }
                    _ => {}
                }
                verbs.into_iter().for_each(|verb| change(&mut ks, verb));
            }
            while let Some(before) = before.pop() {
                if stays {
                    ks.commit_undo();
                } else {
                    ks.roll_back();
                    prop_assert_eq!(all(&ks), before);
                }
            }
            prop_assert!(!ks.may_roll_back() && ks.undo_bytes() == 0);
            ks.begin_unit(1_000, recording);
            ks.settle_entries();
        }
    }
}

#[test]
fn a_key_that_takes_the_place_of_a_covered_one_is_not_taken_for_it() {
    for moves in [false, true] {
        let mut ks = keyspace();
        let slot = ks.put(0, b"covered", b"1");
        let other = ks.put(1, b"other", b"2");
        ks.begin_undo();
        assert_eq!(ks.put(0, b"covered", b"3"), slot);
        let leaves = !moves || ks.put(0, b"covered", b"14 bytes in it") != slot;
        if !moves {
            ks.remove(0, slot);
        }
        ks.move_to(1, other, 0);
        assert_eq!(ks.find(0, b"other") == Some(slot), leaves);
        ks.put(0, b"other", b"4");
        ks.roll_back();
        assert_eq!(text(&ks, b"covered").as_deref(), Some("1"));
        ks.swap(0, 1);
        assert_eq!(text(&ks, b"other").as_deref(), Some("2"));
    }
}

#[test]
fn an_expired_key_that_a_lookup_removed_expires_again() {
    let mut ks = keyspace();
    let slot = ks.put(0, b"k", b"v");
    _ = ks.expire_at(0, slot, 2_000);
    ks.begin_unit(2_000, Recording::Full);
    ks.begin_undo();
    assert!(ks.find(0, b"k").is_none());
    ks.put(0, b"k", b"new");
    ks.roll_back();
    assert_eq!((ks.db(0).len(), ks.db(0).volatile(), ks.effects().is_empty()), (1, 1, true));
    assert!(!ks.reclaim_expired(10));
    assert_eq!((ks.db(0).len(), ks.effects().is_empty(), ks.stats.expired), (0, false, 1));
}

#[test]
fn a_key_of_another_database_is_not_taken_for_one_that_is_covered() {
    let request = |ks: &mut Keyspace, slot, iid: &[u8]| ks.request_add(0, slot, b"p", iid, StreamId::MIN);
    for swaps in [false, true] {
        let mut ks = keyspace();
        // Each database counts slots and versions separately.
        for db in [0, 1] {
            ks.put(db, b"k", b"before");
            let slot = ks.stream_create(db, b"x");
            ks.request_limits(db, slot, 100, 100).expect("a stream");
        }
        ks.begin_undo();
        let find = |ks: &mut Keyspace, db, key: &[u8]| ks.find(db, key).expect("it is there");
        ks.put(0, b"k", b"after");
        let slot = find(&mut ks, 0, b"x");
        request(&mut ks, slot, b"1").expect("a stream");
        if swaps {
            ks.swap(0, 1);
        } else {
            ks.flush(0, true);
            for key in [b"k", b"x"] {
                let slot = find(&mut ks, 1, key);
                ks.move_to(1, slot, 0);
            }
        }
        ks.put(0, b"k", b"after");
        let slot = find(&mut ks, 0, b"x");
        request(&mut ks, slot, b"1").expect("a stream");
        ks.roll_back();
        for _ in 0..2 {
            assert_eq!(text(&ks, b"k").as_deref(), Some("before"), "swaps: {swaps}");
            let slot = find(&mut ks, 0, b"x");
            assert_eq!(ks.stream(0, slot).expect("a stream").idempotency().map(|all| all.added()), Some(0));
            ks.swap(0, 1);
        }
    }
}

#[test]
fn a_key_that_comes_back_again_and_again_gathers_no_timers() {
    let mut ks = keyspace();
    let slot = ks.put(0, b"lock", b"v");
    _ = ks.expire_at(0, slot, 9_000_000);
    for _ in 0..5_000 {
        ks.begin_undo();
        let slot = ks.find(0, b"lock").expect("it is always there again");
        ks.remove(0, slot);
        ks.roll_back();
    }
    assert!(ks.db(0).timers().len() < 2_000, "{} timers", ks.db(0).timers().len());
}

#[test]
fn values_created_by_the_unit_are_not_kept() {
    let mut ks = keyspace();
    let large = [b'x'; 100_000];
    ks.put(0, b"old", &large);
    ks.begin_undo();
    for turn in 0..100 {
        let slot = ks.put(0, b"a", &large);
        match turn % 3 {
            0 => ks.remove(0, slot),
            1 => ks.rename(0, slot, b"b"),
            _ => ks.move_to(0, slot, 1),
        }
        for (db, key) in [(0, b"b"), (1, b"a")] {
            let slot = ks.find(db, key);
            slot.into_iter().for_each(|slot| ks.remove(db, slot));
        }
        ks.put(0, b"old", &large);
    }
    let old = ks.find(0, b"old").expect("it was put");
    ks.remove(0, old);
    assert!(ks.undo_bytes() < 100_000, "{} bytes", ks.undo_bytes());
    ks.roll_back();
    assert_eq!((ks.undo_bytes(), ks.db(0).len(), ks.db(1).len()), (0, 1, 0));
    assert_eq!(text(&ks, b"old").map(|text| text.len()), Some(100_000));
}

#[test]
fn the_memory_of_kept_values_is_counted() {
    let mut ks = keyspace();
    let large = [b'x'; 100_000];
    let list = ks.list_push(0, b"l", None, true, &large).expect("a list");
    ks.list_push(0, b"l", Some(list), true, b"stays").expect("a list");
    let names = || (0..500u32).map(|number| number.to_be_bytes());
    names().for_each(|name| _ = ks.put(0, &name, &large[..200]));
    let grows = |ks: &mut Keyspace, change: &dyn Fn(&mut Keyspace)| {
        let before = ks.undo_bytes();
        change(ks);
        ks.undo_bytes() >= before + 90_000
    };
    ks.begin_undo();
    assert!(grows(&mut ks, &|ks| ks.list_pop(0, list, false, 1).expect("a list")));
    // A short text lay inside its entry, so keeping it takes a copy.
    assert!(grows(&mut ks, &|ks| names().for_each(|name| _ = ks.put(0, &name, b"v"))));
    // Once databases have been emptied or swapped, the origin of values is unknown.
    ks.put(0, b"k", &large);
    assert!(!grows(&mut ks, &|ks| ks.flush(0, true)));
    ks.put(0, b"k", &large);
    assert!(grows(&mut ks, &|ks| ks.flush(0, true)));
    ks.put(1, b"k", &large);
    ks.swap(0, 1);
    assert!(grows(&mut ks, &|ks| {
        let slot = ks.find(0, b"k").expect("it was put");
        ks.remove(0, slot);
    }));
    ks.roll_back();
    assert_eq!((ks.undo_bytes(), ks.db(0).len(), ks.db(1).len()), (0, 501, 0));
}

#[test]
fn keys_removed_before_swapdb_leave_no_memory() {
    let mut ks = keyspace();
    let keys = (0..if cfg!(miri) { 4_000 } else { 40_000u32 }).map(|number| number.to_be_bytes());
    keys.clone().for_each(|key| _ = ks.put(0, &key, b"a value of some bytes"));
    let before = ks.db(0).overhead_bytes();
    ks.begin_undo();
    for key in keys.skip(1) {
        let slot = ks.find(0, &key).expect("it was put");
        ks.remove(0, slot);
    }
    ks.swap(0, 1);
    ks.commit_undo();
    assert!(ks.db(1).overhead_bytes() < before / 2, "{} of {before} bytes", ks.db(1).overhead_bytes());
}

#[test]
fn a_compact_value_is_copied_once_and_a_large_one_in_pieces() {
    let mut ks = keyspace();
    let (small, _) = ks.hash_set(0, b"small", None, b"f", b"0").expect("a hash");
    let (large, _) = ks.hash_set(0, b"large", None, b"f", b"0").expect("a hash");
    for i in 0..1_000u32 {
        ks.hash_set(0, b"large", Some(large), &i.to_be_bytes(), b"v").expect("a hash");
    }
    ks.begin_undo();
    for i in 0..1_000u32 {
        ks.hash_set(0, b"small", Some(small), b"f", &i.to_be_bytes()).expect("a hash");
    }
    assert_eq!(ks.undo.steps.len(), 1);
    ks.hash_remove(0, large, b"f").expect("a hash");
    assert!(matches!(ks.undo.steps[1], Step::Changed { .. }));
    ks.roll_back();
    let value = |ks: &Keyspace, slot| ks.hash(0, slot).ok().and_then(|hash| hash.get(b"f")).map(|value| value.to_vec());
    assert_eq!((value(&ks, small), value(&ks, large)), (Some(b"0".to_vec()), Some(b"0".to_vec())));
}
