//! Storing a whole value that was made elsewhere: what SORT with STORE and RESTORE do.
//!
//! The effect is one for all types. It holds the effects that build the value from nothing, so that no second encoding of
//! values is needed, and those who follow the stream see one change of one key.

use super::group;
use crate::base::rng::Rng;
use crate::keyspace::effect::{Effect, Field, Pairs};
use crate::keyspace::entry::Value;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::value::deadlines::Deadlines;
use crate::value::packed::Item;
use crate::value::stream::{Stream, StreamId};
use crate::value::string::Digits;

/// The name under which the steps build.
const NAMELESS: &[u8] = b"";

impl Keyspace {
    /// Stores a value, which must not be empty unless it is a string or a stream, under a key, whatever was there before;
    /// its expiry goes.
    pub fn put_value(&mut self, db: DbIndex, key: &[u8], value: Value) -> Slot {
        let mut steps = Vec::new();
        self.effects.record_with(db, || {
            build(&value, &mut steps);
            Effect::Build { key, steps: &steps }
        });
        self.overwrite(db, key, value)
    }

    /// Makes a key look unused for so many seconds. Not a change.
    pub fn set_idle(&mut self, db: DbIndex, slot: Slot, seconds: i64) {
        let now_s = self.now_ms / 1000;
        self.entry_mut(db, slot).accessed_s = u32::try_from(now_s.saturating_sub(seconds)).unwrap_or(0);
    }
}

/// Repeats a recorded change.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, key: &[u8], mut steps: &[u8]) -> Option<()> {
    let mut workshop = Keyspace::new(1, Rng::seeded(0));
    workshop.limits = ks.limits;
    while !steps.is_empty() {
        let (0, step) = Effect::decode(&mut steps)? else { return None };
        let nests = matches!(step, Effect::Build { .. });
        (!nests && workshop.apply(0, &step)).then_some(())?;
    }
    let slot = workshop.dbs[0].find(NAMELESS)?;
    let value = workshop.dbs[0].remove(slot)?.value;
    ks.put_value(db, key, value);
    Some(())
}

/// Encodes the effects that build `value`.
fn build(value: &Value, out: &mut Vec<u8>) {
    let key = NAMELESS;
    let (mut digits, mut other_digits) = (Digits::new(), Digits::new());
    match value {
        Value::String(string) => Effect::Put { key, value: string.as_bytes(&mut digits) }.encode(0, out),
        Value::List(list) => {
            list.iter().for_each(|value| Effect::ListPush { key, front: false, value }.encode(0, out));
        }
        Value::Set(set) => {
            let mut members = Vec::new();
            set.iter().for_each(|member| member.as_bytes(&mut digits).put(&mut members));
            Effect::SetPut { key, members: &members }.encode(0, out);
            build_deadlines(set.deadlines(), set.iter(), out);
        }
        Value::ZSet(zset) => {
            zset.iter().for_each(|(member, score)| Effect::ZSetAdd { key, member, score }.encode(0, out));
        }
        Value::Hash(hash) => {
            for (field, value) in hash.iter() {
                let (field, value) = (field.as_bytes(&mut digits), value.as_bytes(&mut other_digits));
                Effect::HashSet { key, field, value }.encode(0, out);
            }
            build_deadlines(hash.deadlines(), hash.iter().map(|(field, _)| field), out);
        }
        Value::Stream(stream) => build_stream(stream, out),
    }
}

/// Encodes when elements expire.
fn build_deadlines<'a>(deadlines: Option<&Deadlines>, elements: impl Iterator<Item = Item<'a>>, out: &mut Vec<u8>) {
    let Some(deadlines) = deadlines.filter(|deadlines| !deadlines.is_empty()) else { return };
    let mut digits = Digits::new();
    for element in elements {
        let element = element.as_bytes(&mut digits);
        if let Some(at_ms) = deadlines.at(element) {
            Effect::ElementExpireAt { key: NAMELESS, element, at_ms }.encode(0, out);
        }
    }
}

fn build_stream(stream: &Stream, out: &mut Vec<u8>) {
    let key = NAMELESS;
    Effect::StreamCreate { key }.encode(0, out);
    let mut pairs = Vec::new();
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        pairs.clear();
        entry.pairs.for_each(|(field, value)| Pairs::put(&mut pairs, field, value));
        Effect::StreamAppend { key, id: entry.id, pairs: &pairs }.encode(0, out);
    }
    let (last_id, entries_added, max_deleted_id) = (stream.last_id(), stream.entries_added(), stream.max_deleted_id());
    Effect::StreamCounters { key, last_id, entries_added, max_deleted_id }.encode(0, out);
    stream.groups().for_each(|(name, group)| group::encode(key, name, group, out));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::verb::WrongType;
    use crate::keyspace::verb::tests::replays;

    fn taken(ks: &mut Keyspace, key: &[u8]) -> Result<Value, WrongType> {
        let slot = ks.find(0, key).ok_or(WrongType)?;
        Ok(ks.value(0, slot).clone())
    }

    #[test]
    fn replaying_gives_the_same_values() {
        replays(|ks| {
            ks.put(0, b"string", b"text");
            ks.put(0, b"number", b"17");
            for value in [&b"a"[..], b"12", &[7; 90]] {
                let slot = ks.find(0, b"list");
                ks.list_push(0, b"list", slot, false, value)?;
                let slot = ks.find(0, b"zset");
                ks.zset_add(0, b"zset", slot, value, f64::from(value[0]) / 3.0)?;
            }
            for member in [&b"a"[..], b"12"] {
                let slot = ks.find(0, b"set");
                ks.set_add(0, b"set", slot, member)?;
                let slot = ks.find(0, b"hash");
                ks.hash_set(0, b"hash", slot, member, b"5")?;
            }
            for key in [&b"set"[..], b"hash"] {
                let slot = ks.find(0, key).ok_or(WrongType)?;
                assert!(ks.expire_element_at(0, slot, b"a", 70_000));
            }
            let id = |ms| StreamId { ms, seq: 3 };
            let pairs = [(&b"f"[..], &b"v"[..])];
            let slot = ks.stream_append(0, b"stream", None, id(1), pairs.into_iter())?.ok_or(WrongType)?;
            ks.stream_append(0, b"stream", Some(slot), id(2), pairs.into_iter())?;
            ks.stream_counters(0, slot, id(9), Some(50), Some(id(1)))?;
            ks.group_create(0, slot, b"g", id(2), Some(2))?;
            for name in [b"ann", b"bob", b"cat", b"dan"] {
                ks.consumer_create(0, slot, b"g", name, 10)?;
            }
            ks.consumer_seen(0, slot, b"g", b"bob", 20, true)?;
            ks.consumer_seen(0, slot, b"g", b"bob", 30, false)?;
            ks.pending_set(0, slot, (b"g", b"bob"), id(2), 25, 4)?;
            for ms in [7, 1] {
                ks.pending_release(0, slot, b"g", id(ms), ms)?;
            }
            for key in [&b"string"[..], b"number", b"list", b"zset", b"set", b"hash", b"stream"] {
                let value = taken(ks, key)?;
                let slot = ks.put(3, key, b"goes");
                ks.expire_at(3, slot, 9_000);
                let slot = ks.put_value(3, key, value.clone());
                assert_eq!(ks.entry(3, slot).expires_at_ms(), None);
                ks.put_value(4, key, value);
            }
            Ok(())
        });
    }

    #[test]
    fn what_builds_nothing_is_refused() {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        let mut nested = Vec::new();
        Effect::Put { key: b"", value: b"x" }.encode(0, &mut nested);
        let mut twice = Vec::new();
        Effect::Build { key: b"", steps: &nested }.encode(0, &mut twice);
        let mut elsewhere = Vec::new();
        Effect::Put { key: b"other", value: b"x" }.encode(0, &mut elsewhere);
        for steps in [&b""[..], b"\x01", &nested[..nested.len() - 1], &twice, &elsewhere] {
            assert!(!ks.apply(0, &Effect::Build { key: b"k", steps }), "{steps:?}");
        }
        assert!(ks.db(0).is_empty());
        assert!(ks.apply(0, &Effect::Build { key: b"k", steps: &nested }));
    }
}
