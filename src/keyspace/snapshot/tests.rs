//! Random changes of a few values of one type, in all layouts, while a snapshot copies them in small slices.

mod bounds;

use std::collections::BTreeMap;

use super::*;
use crate::base::rng::Rng;
use crate::keyspace::effect::Recording;
use crate::keyspace::{NEVER, Slot, ValueLimits, WrongType};
use crate::value::hash::HashLimits;
use crate::value::list::ListLimits;
use crate::value::set::SetLimits;
use crate::value::stream::{StreamId, StreamLimits};
use crate::value::zset::ZSetLimits;

const DBS: u16 = 2;
const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// Limits under which values of a few elements are large.
fn tight() -> ValueLimits {
    ValueLimits {
        hash: HashLimits { max_listpack_entries: 3, max_listpack_value: 20 },
        set: SetLimits { max_intset_entries: 3, max_listpack_entries: 3, max_listpack_value: 20 },
        zset: ZSetLimits { max_entries: 3, max_value: 20 },
        list: ListLimits { max_listpack_size: 4, ..ListLimits::default() },
        stream: StreamLimits { node_max_bytes: 4096, node_max_entries: 4 },
    }
}

fn keyspace() -> Keyspace {
    let mut ks = Keyspace::new(DBS, Rng::seeded(1));
    ks.begin_unit(1_000, Recording::Full);
    ks
}

/// The whole content, with the nodes of lists and the content of each group.
fn state(ks: &Keyspace) -> BTreeMap<(DbIndex, Vec<u8>), String> {
    let mut all = BTreeMap::new();
    for db in 0..DBS {
        for entry in ks.entries(db) {
            let (value, steps) = (entry.value(), build(entry.value()));
            let mut steps: Vec<String> = EffectReader::new(&steps).map(|(_, step)| shown(&step)).collect();
            if value.encoding() == "hashtable" {
                steps.sort();
            }
            // Producers have no order, only the requests of each one.
            steps.sort_by_cached_key(|step| {
                step.starts_with("request").then(|| step.split(' ').nth(1).map(str::to_owned))
            });
            let text = format!("{} {:?} {steps:?}", value.encoding(), entry.expires_at_ms());
            all.insert((db, entry.key().to_vec()), text);
        }
    }
    all
}

fn shown(step: &Effect<'_>) -> String {
    match step {
        // Which element shows that some element once expired does not matter.
        Effect::ElementExpireAt { at_ms, .. } if *at_ms >= NEVER - 1 => format!("expired {at_ms}"),
        Effect::RequestAdd { producer, iid, id, .. } => format!("request {} {iid:?} {id:?}", producer.escape_ascii()),
        step => format!("{step:?}"),
    }
}

/// A keyspace, a snapshot of it, and the keyspace to which the snapshot is applied.
struct Pair {
    ks: Keyspace,
    copy: Keyspace,
    snapshot: Option<Snapshot>,
    rng: Rng,
    /// The numbers of large copies begun and completed.
    begun: usize,
    completed: usize,
    /// Bytes of the largest slice.
    largest: usize,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut ks = keyspace();
        ks.set_limits(tight());
        Pair { ks, copy: keyspace(), snapshot: None, rng: Rng::seeded(seed), begun: 0, completed: 0, largest: 0 }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn begin(&mut self) {
        self.begin_with_parts(0);
    }

    fn begin_with_parts(&mut self, part_min_bytes: usize) {
        self.snapshot = Some(Snapshot::begin_with_parts(&self.ks, part_min_bytes));
    }

    fn take_in(&mut self, out: EffectWriter) {
        self.copy.begin_unit(1_000, Recording::Nothing);
        let bytes = out.into_bytes();
        for (db, effect) in EffectReader::new(&bytes) {
            let is_begun = matches!(effect, Effect::Part { fresh: true, steps, .. } if !steps.is_empty());
            self.begun += usize::from(is_begun);
            self.completed += usize::from(matches!(effect, Effect::Complete { .. }));
            assert_eq!(self.copy.apply(db, &effect), Ok(()), "{effect:?}");
        }
    }

    /// Copies a slice. Returns whether the snapshot is complete, and compares both keyspaces if so.
    fn slice(&mut self, bytes: usize) -> bool {
        let Some(snapshot) = &mut self.snapshot else { return false };
        let mut out = EffectWriter::default();
        let is_complete = snapshot.copy_slice(&self.ks, bytes, &mut out);
        self.largest = self.largest.max(out.len());
        self.take_in(out);
        if is_complete {
            self.compare();
        }
        is_complete
    }

    fn compare(&self) {
        let (ours, theirs) = (state(&self.ks), state(&self.copy));
        for key in ours.keys().chain(theirs.keys()) {
            assert_eq!(ours.get(key), theirs.get(key), "{key:?}");
        }
    }

    /// Changes something in a unit, which the snapshot follows.
    fn unit(&mut self, change: impl FnOnce(&mut Pair) -> Result<(), WrongType>) {
        self.ks.begin_unit(1_000, Recording::Full);
        change(self).expect("the keys are of one type");
        let Some(snapshot) = &mut self.snapshot else { return };
        let mut out = EffectWriter::default();
        snapshot.follow(&self.ks, &mut out);
        self.take_in(out);
    }
}

/// Changes whole keys as clients do.
fn change_keys(pair: &mut Pair) {
    let (db, to_db) = (pair.below(2) as u16, pair.below(2) as u16);
    let (key, to) = (KEYS[pair.below(4)], KEYS[pair.below(4)]);
    let choice = pair.below(12);
    let ks = &mut pair.ks;
    let Some(slot) = ks.find(db, key) else { return };
    match choice {
        0 => ks.remove(db, slot),
        1 | 2 if key != to => ks.rename(db, slot, to),
        3 if (db, key) != (to_db, to) => ks.copy(db, slot, to_db, to),
        4 | 5 if db != to_db && !ks.db(to_db).contains(key) => ks.move_to(db, slot, to_db),
        6 => _ = ks.expire_at(db, slot, 9_000),
        7 => ks.swap(0, 1),
        8 if choice == to_db as usize + 8 => ks.flush(db, true),
        _ => {}
    }
}

/// Fills keys by `change`, then lets snapshots copy them while `change` goes on.
fn copies(mut change: impl FnMut(&mut Pair, DbIndex, &'static [u8], Option<Slot>) -> Result<(), WrongType>) {
    let (mut completed, mut snapshots) = (0, 0);
    for seed in 0..150 {
        let mut pair = Pair::new(seed);
        for number in 0..600 {
            let changes = 1 + pair.below(3);
            pair.unit(|pair| {
                for _ in 0..changes {
                    if pair.below(40) == 0 {
                        change_keys(pair);
                    }
                    if pair.below(60) == 0 {
                        let limits = if pair.below(3) > 0 { tight() } else { ValueLimits::default() };
                        pair.ks.set_limits(limits);
                    }
                    let (db, key) = (pair.below(5) as u16 / 4, KEYS[pair.below(4)]);
                    let slot = pair.ks.find(db, key);
                    change(pair, db, key, slot)?;
                }
                Ok(())
            });
            if pair.snapshot.is_none() && number > 150 {
                pair.begin();
            }
            let bytes = [1, 1, 200, 1_000][pair.below(4)];
            if pair.below(3) == 0 && pair.slice(bytes) {
                // The copy goes on working like the original.
                pair.unit(|pair| {
                    let slot = pair.ks.find(0, b"a");
                    change(pair, 0, b"a", slot)
                });
                pair.compare();
                snapshots += 1;
                pair.snapshot = None;
                pair.copy = keyspace();
            }
        }
        completed += pair.completed;
    }
    assert!(snapshots > 150 && completed > 300, "{snapshots} snapshots, {completed} values copied in parts");
}

fn element(pair: &mut Pair) -> Vec<u8> {
    format!("e{}", pair.below(40)).into_bytes()
}

#[test]
fn strings() {
    copies(|pair, db, key, slot| {
        let (choice, offset, text) = (pair.below(24), pair.below(90), element(pair));
        match (choice, slot) {
            (0, _) => _ = pair.ks.put(db, key, b"17"),
            (1, _) => _ = pair.ks.put(db, key, &[b'x'; 70]),
            (2, _) => _ = pair.ks.put_text(db, key, slot, b"12345678901234567"),
            (3, Some(slot)) => _ = pair.ks.make_growable(db, slot),
            (4..10, Some(slot)) => {
                let len = pair.below(6);
                _ = pair.ks.splice(db, slot, offset, len, &text);
            }
            _ => _ = pair.ks.set_range(db, key, slot, offset, &text)?,
        }
        Ok(())
    });
}

#[test]
fn hashes() {
    copies(|pair, db, key, slot| {
        let (choice, field) = (pair.below(10), element(pair));
        match (choice, slot) {
            (0..3, Some(slot)) => _ = pair.ks.hash_remove(db, slot, &field)?,
            (3, Some(slot)) => _ = pair.ks.expire_element_at(db, slot, &field, 7_000),
            (4, Some(slot)) => _ = pair.ks.expire_element_at(db, slot, &field, NEVER),
            (5, _) => _ = pair.ks.hash_update(db, key, slot, &field, b"other")?,
            _ => _ = pair.ks.hash_set(db, key, slot, &field, b"value")?,
        }
        Ok(())
    });
}

#[test]
fn sets() {
    copies(|pair, db, key, slot| {
        let (choice, member) = (pair.below(64), element(pair));
        match (choice, slot) {
            (0..18, Some(slot)) => _ = pair.ks.set_remove(db, slot, &member)?,
            (18..24, Some(slot)) => _ = pair.ks.expire_element_at(db, slot, &member, 7_000),
            (24, Some(slot)) => pair.ks.set_repack(db, slot)?,
            (25, _) => _ = pair.ks.set_add(db, key, slot, b"17")?,
            _ => _ = pair.ks.set_add(db, key, slot, &member)?,
        }
        Ok(())
    });
}

#[test]
fn sorted_sets() {
    copies(|pair, db, key, slot| {
        let (choice, member, score) = (pair.below(20), element(pair), pair.below(9));
        match (choice, slot) {
            (0..5, Some(slot)) => _ = pair.ks.zset_remove(db, slot, &member)?,
            (5, Some(slot)) => _ = pair.ks.zset_remove_ranks(db, slot, score..score + 2)?,
            _ => _ = pair.ks.zset_add(db, key, slot, &member, score as f64)?,
        }
        Ok(())
    });
}

#[test]
fn lists() {
    copies(|pair, db, key, slot| {
        let (choice, value, index, front) = (pair.below(64), element(pair), pair.below(40), pair.below(2) == 0);
        let Some(slot) = slot else {
            pair.ks.list_push(db, key, None, front, &value)?;
            return Ok(());
        };
        match choice {
            0..8 => pair.ks.list_pop(db, slot, front, 1 + index / 10)?,
            8 => pair.ks.list_pop(db, slot, front, index)?,
            9..14 => _ = pair.ks.list_set(db, slot, index, &value)?,
            14..18 => _ = pair.ks.list_insert(db, slot, index, &value)?,
            18 => _ = pair.ks.list_remove(db, slot, &value, 1 + index / 20, front)?,
            19..24 => {
                let to_front = pair.below(2) == 0;
                pair.ks.list_rotate(db, slot, front, to_front)?;
            }
            _ => _ = pair.ks.list_push(db, key, Some(slot), front, &value)?,
        }
        Ok(())
    });
}

#[test]
fn streams() {
    let mut last = 0;
    copies(|pair, db, key, slot| {
        let (choice, number, ms) = (pair.below(64), pair.below(3), pair.below(60) as u64);
        let id = StreamId { ms: last - ms.min(last), seq: 1 };
        let (group, consumer) = ([&b"g"[..], b"h", b"i"][number], [&b"ann"[..], b"bob", b"cat"][pair.below(3)]);
        last += 1;
        let next = StreamId { ms: last, seq: 1 };
        let pairs = [(&b"field"[..], &b"value"[..])];
        let ks = &mut pair.ks;
        let Some(slot) = slot else {
            ks.stream_append(db, key, None, next, pairs.into_iter())?;
            return Ok(());
        };
        match choice {
            0..4 => _ = ks.stream_delete(db, slot, id)?,
            4 => _ = ks.stream_trim(db, slot, id)?,
            5 => ks.stream_counters(db, slot, next, Some(7), Some(id))?,
            // New entries come before former ones.
            50 => {
                ks.stream_trim(db, slot, next)?;
                ks.stream_counters(db, slot, id, None, None)?;
                ks.stream_append(db, key, Some(slot), StreamId { seq: 2, ..id }, pairs.into_iter())?;
            }
            6..9 => _ = ks.group_create(db, slot, group, id, Some(3))?,
            9 => _ = ks.group_destroy(db, slot, group)?,
            10 => _ = ks.group_set_id(db, slot, group, id, None)?,
            11..16 => _ = ks.consumer_create(db, slot, group, consumer, ms)?,
            16 => _ = ks.consumer_delete(db, slot, group, consumer)?,
            17 => _ = ks.consumer_seen(db, slot, group, consumer, ms, number == 0)?,
            18..32 => _ = ks.pending_set(db, slot, (group, consumer), id, ms, 1)?,
            32..36 => _ = ks.pending_ack(db, slot, group, id)?,
            36..42 => _ = ks.pending_release(db, slot, group, id, ms)?,
            42 => ks.request_limits(db, slot, 10 + number as u32, 3)?,
            43..48 => _ = ks.request_add(db, slot, consumer, &ms.to_le_bytes(), id)?,
            48 => _ = ks.request_forget(db, slot, consumer, 1)?,
            49 => _ = ks.request_repeated(db, slot)?,
            _ => _ = ks.stream_append(db, key, Some(slot), next, pairs.into_iter())?,
        }
        Ok(())
    });
}
