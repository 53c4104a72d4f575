//! Bounds on snapshots that hold whatever clients do: they end, stay small, and leave nothing behind.

use super::*;

impl Pair {
    /// Puts a large string under a key.
    fn put_large(&mut self, key: &[u8], byte: u8) {
        self.unit(|pair| {
            pair.ks.put(0, key, &[byte; 500]);
            Ok(())
        });
    }

    fn copy_key(&mut self, from: &[u8], to: &[u8]) {
        self.unit(|pair| {
            let slot = pair.ks.find(0, from).expect("it is there");
            pair.ks.copy(0, slot, 0, to);
            Ok(())
        });
    }

    fn key_under_way(&self) -> Option<Box<[u8]>> {
        Some(self.snapshot.as_ref()?.under_way.as_ref()?.key.clone())
    }
}

/// Keys of one byte in the order in which they are copied.
fn keys_in_order(count: u8) -> Vec<[u8; 1]> {
    let mut keys: Vec<[u8; 1]> = (0..count).map(|number| [number]).collect();
    keys.sort_by_key(|key| place(hash_bytes(key)));
    keys
}

/// A replacement of the whole value contains the new value, so nothing starts over.
#[test]
fn a_value_that_is_replaced_again_and_again_does_not_start_over() {
    for how in 0..4 {
        let mut pair = Pair::new(1);
        pair.put_large(b"a", b'x');
        pair.unit(|pair| {
            let slot = pair.ks.find(0, b"a").expect("it was put");
            _ = pair.ks.expire_at(0, slot, 9_000);
            Ok(())
        });
        pair.begin();
        assert!(!pair.slice(1));
        let mut slices = 0;
        while !pair.slice(1) {
            pair.unit(|pair| {
                let slot = pair.ks.find(0, b"a").expect("it was put");
                match how {
                    0 => _ = pair.ks.put(0, b"a", &[b'y'; 500]),
                    1 => _ = pair.ks.replace(0, slot, &[b'y'; 500]),
                    2 => _ = pair.ks.put_text(0, b"a", Some(slot), &[b'1'; 500]),
                    _ => {
                        let value = pair.ks.value(0, slot).into();
                        pair.ks.put_value(0, b"a", value);
                    }
                }
                Ok(())
            });
            slices += 1;
            assert!(slices < 4, "the walk does not end");
        }
        assert_eq!((pair.begun, pair.completed), (1, 0), "way {how}");
    }
}

/// A value that has not been copied yet may replace one that is being copied again and again. The snapshot ends all the
/// same: slices grow until one holds the value.
#[test]
fn values_that_start_over_again_and_again_make_slices_grow() {
    let mut pair = Pair::new(1);
    let keys = keys_in_order(3);
    keys.iter().for_each(|key| pair.put_large(key, b'x'));
    pair.begin();
    while pair.key_under_way().as_deref() != Some(&keys[2][..]) {
        assert!(!pair.slice(1));
    }
    // Now two keys must be copied again.
    pair.copy_key(&keys[2], &keys[0]);
    pair.copy_key(&keys[2], &keys[1]);
    let (mut starts, mut slices) = (0, 0);
    while !pair.slice(1) {
        slices += 1;
        assert!(slices < 2_000, "the walk does not end");
        if let Some(key) = pair.key_under_way()
            && *key != keys[2]
        {
            let other = if *key == keys[0] { keys[1] } else { keys[0] };
            pair.copy_key(&other, &key);
            starts += 1;
        }
    }
    assert!((2 * SNAPSHOT_STARTS_OVER_MAX..8 * SNAPSHOT_STARTS_OVER_MAX).contains(&starts), "{starts} starts");
}

/// A value that starts over during the walk is copied behind it, and slices do not grow.
#[test]
fn values_that_start_over_during_the_walk_are_put_off() {
    let mut pair = Pair::new(1);
    let keys = keys_in_order(100);
    keys.iter().for_each(|key| pair.put_large(key, b'x'));
    pair.begin();
    while !pair.slice(100) {
        if let Some(key) = pair.key_under_way().filter(|key| **key != keys[99]) {
            let is_walking = pair.snapshot.as_ref().is_some_and(|snapshot| snapshot.first_unfinished().is_some());
            if is_walking {
                pair.copy_key(&keys[99], &key);
            }
        }
    }
    assert_eq!(pair.completed, 100);
    assert!(pair.begun > 190 && pair.largest < 400, "{} begun, {} bytes", pair.begun, pair.largest);
}

/// When a value that is being copied leaves its key, the reader's old key of that name is removed.
#[test]
fn the_remainder_of_a_renamed_value_is_copied_again() {
    for to in 0..3 {
        let mut pair = Pair::new(1);
        let keys = keys_in_order(3);
        pair.put_large(&keys[2], b'x');
        pair.unit(|pair| {
            pair.ks.put(0, &keys[0], b"before");
            pair.ks.put(0, &keys[1], b"other");
            Ok(())
        });
        pair.begin();
        while pair.key_under_way().is_none() {
            assert!(!pair.slice(1));
        }
        // The reader has the previous value.
        pair.copy_key(&keys[2], &keys[0]);
        while pair.key_under_way().as_deref() != Some(&keys[0][..]) {
            assert!(!pair.slice(1));
        }
        pair.unit(|pair| {
            let slot = pair.ks.find(0, &keys[0]).expect("it was copied");
            match to {
                0 => pair.ks.rename(0, slot, &keys[1]),
                1 => pair.ks.rename(0, slot, b"new"),
                _ => pair.ks.move_to(0, slot, 1),
            }
            Ok(())
        });
        while !pair.slice(1) {}
        assert_eq!((pair.begun, pair.completed), (2, 2), "its copy went along");
    }
}

/// A value that is being copied may move to a key that the walk has not reached.
#[test]
fn a_value_may_be_copied_ahead_of_the_walk() {
    let mut pair = Pair::new(1);
    let keys = keys_in_order(100);
    pair.unit(|pair| {
        pair.ks.put(0, &keys[0], &[b'x'; 50_000]);
        Ok(())
    });
    pair.begin();
    assert!(!pair.slice(1));
    for two in keys.windows(2) {
        pair.unit(|pair| {
            let slot = pair.ks.find(0, &two[0]).expect("it was put");
            pair.ks.rename(0, slot, &two[1]);
            Ok(())
        });
        assert!(!pair.slice(1));
    }
    while !pair.slice(100) {}
    assert_eq!((pair.begun, pair.completed), (1, 1));
}

/// No change inside a list makes its copy start over.
#[test]
fn a_list_is_copied_once_however_it_changes() {
    let mut in_parts = 0;
    for seed in 0..300 {
        let mut pair = Pair::new(seed);
        let mut limits = tight();
        limits.list.max_listpack_size = [1, 4, -1, -1][pair.below(4)];
        pair.ks.set_limits(limits);
        let large = if limits.list.max_listpack_size < 0 { 3_000 } else { 30 };
        let value = |pair: &mut Pair| vec![b'v'; pair.below(large)];
        for _ in 0..40 {
            let value = value(&mut pair);
            let slot = pair.ks.find(0, b"a");
            pair.ks.list_push(0, b"a", slot, false, &value).expect("a list");
        }
        pair.begin();
        let mut slices = 0;
        while !pair.slice(1) {
            slices += 1;
            assert!(slices < 1_000, "the walk does not end");
            let changes = pair.below(8);
            pair.unit(|pair| {
                for _ in 0..changes {
                    let (choice, value) = (pair.below(16), value(pair));
                    let slot = pair.ks.find(0, b"a").expect("it has elements");
                    let len = pair.ks.list(0, slot)?.len();
                    let index = pair.below(len);
                    match choice {
                        0 | 1 if len > 20 => pair.ks.list_pop(0, slot, choice == 0, 1)?,
                        2 | 3 => _ = pair.ks.list_push(0, b"a", Some(slot), choice == 2, &value)?,
                        4 if len > 20 => {
                            let value = pair.ks.list(0, slot)?.at(index).map(<[u8]>::to_vec).expect("it is there");
                            pair.ks.list_remove(0, slot, &value, 1 + index / 10, index % 2 == 0)?;
                        }
                        5 | 6 => pair.ks.list_rotate(0, slot, choice == 5, index % 2 == 0)?,
                        7..10 => _ = pair.ks.list_insert(0, slot, index, &value)?,
                        _ => _ = pair.ks.list_set(0, slot, index, &value)?,
                    }
                }
                Ok(())
            });
        }
        assert!(pair.begun <= 1, "seed {seed}: the value was begun {} times", pair.begun);
        assert_eq!(pair.begun, pair.completed);
        in_parts += pair.completed;
    }
    assert!(in_parts > 290, "{in_parts} copied in parts");
}

/// Nor does the removal of everything not copied yet, followed by new elements.
#[test]
fn the_uncopied_rest_of_a_list_may_be_removed() {
    for turns in 0..12 {
        let mut pair = Pair::new(1);
        (0..41u8).for_each(|number| {
            let slot = pair.ks.find(0, b"a");
            pair.ks.list_push(0, b"a", slot, false, &[number]).expect("a list");
        });
        pair.begin();
        let is_complete = (0..turns).any(|_| pair.slice(1));
        pair.unit(|pair| {
            let slot = pair.ks.find(0, b"a").expect("a list");
            // The last node has one element, so the previous node gains room.
            pair.ks.list_remove(0, slot, &[39], 1, false)?;
            pair.ks.list_remove(0, slot, &[40], 1, false)?;
            pair.ks.list_push(0, b"a", Some(slot), false, b"new")?;
            Ok(())
        });
        while !is_complete && !pair.slice(1) {}
        pair.compare();
    }
}

/// Of a group's pending entries, only copied ones are followed, since the reader lacks the others.
#[test]
fn changes_to_uncopied_pending_entries_are_not_followed() {
    let id = |ms| StreamId { ms, seq: 0 };
    let mut pair = Pair::new(1);
    pair.unit(|pair| {
        let slot = pair.ks.stream_append(0, b"a", None, id(1), [(&b"f"[..], &b"v"[..])].into_iter())?.expect("an id");
        for group in [&b"g"[..], b"h"] {
            pair.ks.group_create(0, slot, group, id(1), None)?;
            pair.ks.consumer_create(0, slot, group, b"c", 1)?;
            for ms in 1..40 {
                pair.ks.pending_set(0, slot, (group, b"c"), id(ms), 1, 1)?;
            }
        }
        Ok(())
    });
    pair.begin();
    let mut ms = 40;
    while !pair.slice(1) {
        // Those behind, one by one, until the copy meets them.
        ms -= 1;
        if ms > 0 {
            pair.unit(|pair| {
                let slot = pair.ks.find(0, b"a").expect("a stream");
                for group in [&b"g"[..], b"h"] {
                    pair.ks.pending_ack(0, slot, group, id(ms))?;
                }
                Ok(())
            });
        }
    }
    assert_eq!((pair.begun, pair.completed), (1, 1));
}

/// When a snapshot is dropped, effects no longer need to name changed elements.
#[test]
fn a_snapshot_that_is_dropped_leaves_nothing_behind() {
    let mut pair = Pair::new(1);
    (0..40u8).for_each(|number| {
        let slot = pair.ks.find(0, b"a");
        pair.ks.list_push(0, b"a", slot, false, &[number]).expect("a list");
    });
    pair.begin();
    assert!(!pair.slice(1) && pair.key_under_way().is_some());
    let removal = |pair: &mut Pair, number: u8| {
        pair.unit(|pair| {
            let slot = pair.ks.find(0, b"a").expect("a list");
            pair.ks.list_remove(0, slot, &[number], 1, false).map(|_| ())
        });
        pair.ks.effects().iter().map(|(_, effect)| effect.describe().0).collect::<Vec<_>>()
    };
    assert_eq!(removal(&mut pair, 30), ["ListRemoveAt"]);
    pair.snapshot = None;
    assert_eq!(removal(&mut pair, 31), ["ListRemove"]);
}

/// Copying uncopied keys onto copied ones does not keep a snapshot from its end.
#[test]
fn keys_that_are_copied_again_do_not_keep_the_walk_waiting() {
    let mut pair = Pair::new(1);
    let keys = keys_in_order(255);
    pair.unit(|pair| {
        keys.iter().for_each(|key| _ = pair.ks.put(0, key, b"value"));
        Ok(())
    });
    pair.begin();
    let mut slices = 0;
    while !pair.slice(1) {
        pair.unit(|pair| {
            let last = pair.ks.find(0, &keys[254]).expect("it was put");
            pair.ks.copy(0, last, 0, &keys[slices % 254]);
            Ok(())
        });
        slices += 1;
        assert!(slices < 1_000, "the walk does not end");
    }
}

/// Nor does copying copied keys onto each other.
#[test]
fn keys_that_are_copied_onto_each_other_make_slices_grow() {
    let mut pair = Pair::new(1);
    pair.unit(|pair| {
        (0..16u8).for_each(|number| _ = pair.ks.put(0, &[number], &[b'x'; 2_000]));
        Ok(())
    });
    pair.begin_with_parts(10_000);
    let mut slices = 0;
    // One key at first, and two when slices are twice as large.
    while !pair.slice(1) {
        pair.unit(|pair| {
            for number in 0..16u8 {
                let slot = pair.ks.find(0, &[number]).expect("it was put");
                pair.ks.copy(0, slot, 0, &[(number * 7 + 3) % 16]);
            }
            Ok(())
        });
        slices += 1;
        assert!(slices < 4 * SNAPSHOT_AGAIN_MAX, "the walk does not end");
    }
    let copied_again = pair.snapshot.as_ref().map_or(0, |snapshot| snapshot.copied_again);
    assert!(copied_again > SNAPSHOT_AGAIN_MAX, "{copied_again} keys");
}

/// The walk outruns added keys, however many they are.
#[test]
fn keys_that_are_added_are_caught_up_with() {
    let mut pair = Pair::new(1);
    let mut last = 0u32;
    let mut add = |pair: &mut Pair, count: u32| {
        pair.unit(|pair| {
            (0..count).for_each(|number| _ = pair.ks.put(0, &(last + number).to_be_bytes(), b"value"));
            last += count;
            Ok(())
        });
        last
    };
    add(&mut pair, 1_000);
    pair.begin();
    while !pair.slice(100) {
        // About ten times as many as a slice copies.
        assert!(add(&mut pair, 15) < 10_000, "the walk does not end");
    }
}

/// A stream that loses entries at one end and gains them at the other is copied all the same.
#[test]
fn a_window_that_moves_is_caught_up_with() {
    let mut pair = Pair::new(1);
    let mut last = 0;
    let mut append = |pair: &mut Pair, count: u64| {
        pair.unit(|pair| {
            for _ in 0..count {
                last += 1;
                let slot = pair.ks.find(0, b"a");
                let pairs = [(&b"field"[..], &b"value"[..])].into_iter();
                pair.ks.stream_append(0, b"a", slot, StreamId { ms: last, seq: 0 }, pairs)?;
            }
            let slot = pair.ks.find(0, b"a").expect("it has entries");
            pair.ks.stream_trim(0, slot, StreamId { ms: last.saturating_sub(200), seq: 0 })?;
            Ok(())
        });
    };
    append(&mut pair, 200);
    pair.begin();
    let mut slices = 0;
    while !pair.slice(100) {
        append(&mut pair, 50);
        slices += 1;
        assert!(slices < 100, "the walk does not end");
    }
    assert_eq!(pair.completed, 1);
}

/// A value that a followed unit brings in parts is copied again, since its parts are not in the stream.
#[test]
fn parts_in_a_unit_are_not_confused_with_those_of_the_snapshot() {
    let mut pair = Pair::new(1);
    pair.unit(|pair| {
        KEYS.iter().for_each(|key| _ = pair.ks.put(0, key, &[b'x'; 5_000]));
        Ok(())
    });
    let mut other = keyspace();
    KEYS.iter().for_each(|key| _ = other.put(0, key, &[b'y'; 600]));
    pair.begin();
    let mut turn = 0;
    while !pair.slice(100) {
        turn += 1;
        if turn % 5 == 0 && turn < 50 {
            let mut out = EffectWriter::default();
            let mut snapshot = Snapshot::begin_with_parts(&other, 0);
            while !snapshot.copy_slice(&other, 100, &mut out) {}
            let bytes = out.into_bytes();
            pair.unit(|pair| {
                EffectReader::new(&bytes).for_each(|(db, effect)| assert_eq!(pair.ks.apply(db, &effect), Ok(())));
                Ok(())
            });
        }
    }
    assert!(turn >= 5, "{turn} turns");
}

/// A slice stays small whatever a key holds.
#[test]
fn slices_of_large_values_are_small() {
    let mut ks = keyspace();
    ks.put(0, b"s", &vec![b'x'; 3_000_000]);
    for number in 0..20_000 {
        let name = format!("element{number}").into_bytes();
        let slot = ks.find(0, b"h");
        ks.hash_set(0, b"h", slot, &name, b"value").expect("a hash");
        let slot = ks.find(0, b"z");
        ks.zset_add(0, b"z", slot, &name, 1.0).expect("a sorted set");
        let slot = ks.find(0, b"l");
        ks.list_push(0, b"l", slot, false, &name).expect("a list");
        let id = StreamId { ms: 1 + number, seq: 0 };
        let slot = ks.find(0, b"x");
        let slot = ks.stream_append(0, b"x", slot, id, [(&b"f"[..], &b"v"[..])].into_iter());
        let slot = slot.expect("a stream").expect("ids ascend");
        if number == 0 {
            ks.group_create(0, slot, b"g", id, None).expect("a stream");
            ks.consumer_create(0, slot, b"g", b"c", 1).expect("a stream");
        }
        ks.pending_set(0, slot, (b"g", b"c"), id, 1, 1).expect("a stream");
    }
    let mut snapshot = Snapshot::begin(&ks);
    let mut copy = keyspace();
    loop {
        let mut out = EffectWriter::default();
        let is_complete = snapshot.copy_slice(&ks, 10_000, &mut out);
        // The last node of a list, and the framing of the pieces.
        assert!(out.len() < 20_000, "{} bytes", out.len());
        let bytes = out.into_bytes();
        assert!(EffectReader::new(&bytes).all(|(db, effect)| copy.apply(db, &effect).is_ok()));
        if is_complete {
            break;
        }
    }
    assert_eq!(state(&copy), state(&ks));
}
