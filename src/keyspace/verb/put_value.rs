//! Stores a whole value that was made elsewhere, as S*STORE, SORT with STORE and RESTORE do. Also handles properties of
//! whole values: their layout, and the limits that determine it.
//!
//! One effect stores values of all types. It holds the effects that build the value from nothing, so values need no
//! second encoding. Followers of the stream see one change of one key.

use super::check::{ensure, slot_of};
use super::grants::grant_set;
use super::{group, stock};
use crate::keyspace::any_value::{Value, ValueRef};
use crate::keyspace::db::Db;
use crate::keyspace::effect::{Effect, EffectWriter, Field, Pairs};
use crate::keyspace::entry::NewValue;
use crate::keyspace::{DbIndex, Keyspace, Misfit, NAMELESS, NEVER, Slot, ValueLimits, Workshop};
use crate::value::Layout;
use crate::value::deadlines::Deadlines;
use crate::value::grants::Grants;
use crate::value::hash::HashLimits;
use crate::value::list::ListLimits;
use crate::value::packed::Item;
use crate::value::set::SetLimits;
use crate::value::stream::{Stream, StreamId, StreamLimits};
use crate::value::string::{Digits, StringRef};
use crate::value::zset::ZSetLimits;

impl Keyspace {
    /// Stores a value under a key, replacing any previous value and its expiry. The value must not be empty unless it
    /// is a string, a stream, a stock, or a gate with its own limit.
    pub fn put_value(&mut self, db: DbIndex, key: &[u8], value: Value) -> Slot {
        let mut steps = Vec::new();
        self.effects.record_with(db, || {
            steps = build(value.as_ref());
            Effect::Build { key, layout: value.as_ref().layout(), steps: &steps }
        });
        self.lift_tokens(value.as_ref());
        self.overwrite(db, key, value.into(), NEVER)
    }

    /// As [`put_value`](Self::put_value). Returns `None`, with nothing changed, if whole effects are recorded and the
    /// effects that build the value take more than `most` bytes.
    pub fn put_value_within(&mut self, db: DbIndex, key: &[u8], value: Value, most: usize) -> Option<Slot> {
        if !self.effects.are_whole() {
            return Some(self.put_value(db, key, value));
        }
        let steps = build(value.as_ref());
        if steps.len() > most {
            return None;
        }
        self.effects.record(db, Effect::Build { key, layout: value.as_ref().layout(), steps: &steps });
        self.lift_tokens(value.as_ref());
        Some(self.overwrite(db, key, value.into(), NEVER))
    }

    /// Sets the sizes at which values change their representation from now on.
    pub fn set_limits(&mut self, limits: ValueLimits) {
        if limits == self.limits {
            return;
        }
        self.limits = limits;
        self.effects.record_uncounted(0, limits_effect(&limits));
    }

    /// Runs `change`, which may change the layout of the value at `slot` but nothing else. Records the layout if it
    /// has changed.
    #[inline]
    pub(super) fn lay_out(&mut self, db: DbIndex, slot: Slot, change: impl FnOnce(&mut Db, &ValueLimits)) {
        // An embedded value leaves its entry here, and this is noted.
        _ = self.value_mut(db, slot);
        let database = &mut self.dbs[db as usize];
        let before = database.entry(slot).value().layout();
        change(database, &self.limits);
        let entry = database.entry(slot);
        let layout = entry.value().layout();
        if layout != before {
            self.effects.record_uncounted(db, Effect::Relayout { key: entry.key(), layout });
        }
    }

    /// Gives the value at `slot` this layout, as a recorded effect says. Returns false if the value cannot have it. The
    /// key may be at another slot afterwards.
    fn relayout(&mut self, db: DbIndex, slot: Slot, layout: Layout) -> bool {
        let value = self.value(db, slot);
        let layout = value.nearest_layout(layout);
        if value.layout() == layout {
            return true;
        }
        if let ValueRef::String(_) = value {
            let mut value = Value::from(value);
            if !value.take_layout(layout) {
                return false;
            }
            let key = self.dbs[db as usize].entry(slot).key();
            self.effects.record_uncounted(db, Effect::Relayout { key, layout });
            _ = self.exchange(db, slot, value.into());
            return true;
        }
        self.note_change(db, slot, |_| None);
        let mut is_done = false;
        self.lay_out(db, slot, |database, _| {
            is_done = database.value_mut(slot).is_some_and(|value| value.take_layout(layout));
        });
        is_done
    }
}

/// The effect that sets these limits.
pub(in crate::keyspace) fn limits_effect(limits: &ValueLimits) -> Effect<'static> {
    let ValueLimits { hash, set, zset, list, stream } = *limits;
    Effect::Limits {
        hash_entries: hash.max_listpack_entries as u64,
        hash_value: hash.max_listpack_value as u64,
        set_integers: set.max_intset_entries as u64,
        set_entries: set.max_listpack_entries as u64,
        set_value: set.max_listpack_value as u64,
        zset_entries: zset.max_entries as u64,
        zset_value: zset.max_value as u64,
        list_size: list.max_listpack_size.into(),
        stream_bytes: stream.node_max_bytes as u64,
        stream_entries: stream.node_max_entries as u64,
    }
}

/// Replays a recorded change.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    match *effect {
        Effect::Build { key, layout, steps } => {
            let value = built(&ks.limits, layout, steps)?;
            ks.put_value(db, key, value);
        }
        Effect::Relayout { key, layout } => {
            let slot = slot_of(ks, db, key)?;
            ensure(ks.relayout(db, slot, layout), Misfit::WrongType)?;
        }
        Effect::Limits { .. } => ks.set_limits(limits_of(effect).ok_or(Misfit::BadBytes)?),
        _ => return Err(Misfit::Elsewhere),
    }
    Ok(())
}

/// Returns the limits that an effect sets, or `None` if it sets none or they make no sense.
pub(in crate::keyspace) fn limits_of(effect: &Effect<'_>) -> Option<ValueLimits> {
    let Effect::Limits {
        hash_entries,
        hash_value,
        set_integers,
        set_entries,
        set_value,
        zset_entries,
        zset_value,
        list_size,
        stream_bytes,
        stream_entries,
    } = *effect
    else {
        return None;
    };
    let size = |limit: u64| usize::try_from(limit).ok();
    Some(ValueLimits {
        hash: HashLimits { max_listpack_entries: size(hash_entries)?, max_listpack_value: size(hash_value)? },
        set: SetLimits {
            max_intset_entries: size(set_integers)?,
            max_listpack_entries: size(set_entries)?,
            max_listpack_value: size(set_value)?,
        },
        zset: ZSetLimits { max_entries: size(zset_entries)?, max_value: size(zset_value)? },
        list: ListLimits { max_listpack_size: i32::try_from(list_size).ok()?, ..ListLimits::default() },
        stream: StreamLimits { node_max_bytes: size(stream_bytes)?, node_max_entries: size(stream_entries)? },
    })
}

/// Returns the value that an effect gives its key regardless of any previous one, within these limits. Returns `None`
/// if the effect sets no such value. [`keeps_expiry`] tells whether the key's expiry stays.
pub(in crate::keyspace) fn value_of<'e>(
    effect: &Effect<'e>,
    limits: &ValueLimits,
) -> Option<Result<NewValue<'e>, Misfit>> {
    match *effect {
        Effect::Put { value, .. } => Some(Ok(NewValue::string(value))),
        Effect::SetInteger { value, .. } => Some(Ok(NewValue::integer(value))),
        Effect::SetText { value, .. } => Some(Ok(NewValue::Text(value))),
        Effect::Build { layout, steps, .. } => Some(built(limits, layout, steps).map(NewValue::from)),
        _ => None,
    }
}

/// Whether an effect that sets the value of its key keeps the key's expiry.
pub(in crate::keyspace) fn keeps_expiry(effect: &Effect<'_>) -> bool {
    matches!(effect, Effect::SetInteger { .. } | Effect::SetText { .. })
}

/// Returns the value in this layout that `steps` build within these limits.
fn built(limits: &ValueLimits, layout: Layout, steps: &[u8]) -> Result<Value, Misfit> {
    let mut workshop = Workshop::new();
    workshop.apply(limits, layout, steps)?;
    workshop.finish(layout)
}

/// Returns the effects that build `value`, including expired elements that have not been removed yet.
pub(in crate::keyspace) fn build(value: ValueRef<'_>) -> Vec<u8> {
    let key = NAMELESS;
    let mut out = EffectWriter::default();
    let (mut digits, mut other_digits) = (Digits::new(), Digits::new());
    match value {
        ValueRef::String(StringRef::Int(value)) => out.write(0, &Effect::SetInteger { key, value }),
        ValueRef::String(string) => out.write(0, &Effect::SetText { key, value: string.as_bytes(&mut digits) }),
        ValueRef::List(list) if list.is_compact() => {
            list.iter().for_each(|value| out.write(0, &Effect::ListPush { key, front: false, value }));
        }
        ValueRef::List(list) => {
            let mut elements = Vec::new();
            for node in list.nodes() {
                elements.clear();
                node.for_each(|element| element.put(&mut elements));
                out.write(0, &Effect::ListNode { key, elements: &elements });
            }
        }
        ValueRef::Set(set) => {
            set.iter_stored()
                .for_each(|item| out.write(0, &Effect::SetAdd { key, member: item.as_bytes(&mut digits) }));
            build_deadlines(set.deadlines(), set.iter_stored(), &mut out);
        }
        ValueRef::ZSet(zset) => {
            zset.iter().for_each(|(member, score)| out.write(0, &Effect::ZSetAdd { key, member, score }));
        }
        ValueRef::Hash(hash) => {
            for (field, value) in hash.iter_stored() {
                let (field, value) = (field.as_bytes(&mut digits), value.as_bytes(&mut other_digits));
                out.write(0, &Effect::HashSet { key, field, value });
            }
            build_deadlines(hash.deadlines(), hash.iter_stored().map(|(field, _)| field), &mut out);
        }
        ValueRef::Stream(stream) => build_stream(stream, &mut out),
        ValueRef::Grants(grants) => build_grants(grants, &mut out),
    }
    out.into_bytes()
}

fn build_grants(grants: &Grants, out: &mut EffectWriter) {
    let (kind, limit, fixed) = (grants.kind(), grants.limit(), grants.is_fixed());
    out.write(0, &Effect::GrantsCreate { key: NAMELESS, kind, limit, fixed });
    grants.from(0).for_each(|grant| out.write(0, &grant_set(NAMELESS, grant)));
    if let Some(stock) = grants.stock() {
        stock::build(stock, out);
    }
}

/// Writes when elements expire.
fn build_deadlines<'a>(
    deadlines: Option<&Deadlines>,
    mut elements: impl Iterator<Item = Item<'a>>,
    out: &mut EffectWriter,
) {
    let Some(deadlines) = deadlines else { return };
    let mut digits = Digits::new();
    let mut write = |element: Item<'_>, at_ms: Option<i64>| {
        if let Some(at_ms) = at_ms {
            let element = element.as_bytes(&mut digits);
            out.write(0, &Effect::ElementExpireAt { key: NAMELESS, element, at_ms });
        }
    };
    if deadlines.is_empty() {
        // An element expired at some time, which OBJECT ENCODING shows ever after.
        if let Some(element) = elements.next() {
            write(element, Some(NEVER - 1));
            write(element, Some(NEVER));
        }
        return;
    }
    elements.for_each(|element| write(element, deadlines.at(element.as_bytes(&mut Digits::new()))));
}

fn build_stream(stream: &Stream, out: &mut EffectWriter) {
    let key = NAMELESS;
    out.write(0, &Effect::StreamCreate { key });
    let mut pairs = Vec::new();
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        pairs.clear();
        entry.pairs.for_each(|(field, value)| Pairs::put(&mut pairs, field, value));
        out.write(0, &Effect::StreamAppend { key, id: entry.id, pairs: &pairs });
    }
    let (last_id, entries_added, max_deleted_id) = (stream.last_id(), stream.entries_added(), stream.max_deleted_id());
    out.write(0, &Effect::StreamCounters { key, last_id, entries_added, max_deleted_id });
    delayed_messages(stream, StreamId::MIN, |message| {
        out.write(0, &message);
        true
    });
    stream.groups().for_each(|(name, group)| group::encode(key, name, group, out));
    if let Some(memory) = stream.idempotency() {
        out.write(0, &Effect::RequestLimits { key, duration_s: memory.duration_s, max_iids: memory.max_iids });
        memory.requests().for_each(|(producer, iid, id)| {
            out.write(0, &Effect::RequestAdd { key, producer, iid, id });
        });
        let (added, duplicates) = (memory.added(), memory.duplicates());
        out.write(0, &Effect::RequestCounters { key, added, duplicates });
    }
}

/// Passes the effects that create a stream's delayed messages, from this ID on, to `visit` while it returns true.
/// Returns whether all were visited.
pub(in crate::keyspace) fn delayed_messages(
    stream: &Stream,
    start: StreamId,
    mut visit: impl FnMut(Effect<'_>) -> bool,
) -> bool {
    let key = NAMELESS;
    let mut pairs = Vec::new();
    for message in stream.delayed_from(start) {
        pairs.clear();
        message.pairs.for_each(|(field, value)| Pairs::put(&mut pairs, field, value));
        if !visit(Effect::StreamDelay { key, id: message.id, pairs: &pairs }) {
            return false;
        }
    }
    let last = stream.delay_tickets();
    if last > 0 {
        visit(Effect::StreamTickets { key, last });
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::WrongType;
    use crate::keyspace::verb::tests::replays;

    fn taken(ks: &mut Keyspace, key: &[u8]) -> Result<Value, WrongType> {
        let slot = ks.find(0, key).ok_or(WrongType)?;
        Ok(ks.value(0, slot).into())
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
            ks.request_limits(0, slot, 100, 2)?;
            for (producer, iid) in [(b"p", b"a"), (b"q", b"a"), (b"p", b"b"), (b"p", b"c")] {
                ks.request_add(0, slot, producer, iid, id(2))?;
            }
            ks.request_repeated(0, slot)?;
            for seq in 1..4 {
                ks.stream_delay(0, b"stream", Some(slot), StreamId { ms: 90_000 - seq, seq }, pairs.into_iter())?;
            }
            ks.stream_cancel_delayed(0, slot, StreamId { ms: 89_997, seq: 3 })?;
            for key in [&b"string"[..], b"number", b"list", b"zset", b"set", b"hash", b"stream"] {
                let value = taken(ks, key)?;
                let slot = ks.put(3, key, b"goes");
                _ = ks.expire_at(3, slot, 9_000);
                let slot = ks.put_value(3, key, value.clone());
                assert_eq!(ks.entry(3, slot).expires_at_ms(), None);
                ks.put_value(4, key, value);
            }
            Ok(())
        });
    }

    /// A value that grew under other limits, that shrank, or that held an expired element keeps its layout.
    #[test]
    fn replaying_gives_the_same_layouts() {
        replays(|ks| {
            let mut tight = *ks.limits();
            tight.hash.max_listpack_entries = 1;
            tight.set.max_listpack_value = 1;
            tight.zset.max_entries = 1;
            tight.list.max_listpack_size = 2;
            for (limits, names) in [
                (tight, [b"tl", b"ts", b"ti", b"tz", b"th"]),
                (Default::default(), [b"dl", b"ds", b"di", b"dz", b"dh"]),
            ] {
                ks.set_limits(limits);
                ks.set_limits(limits);
                let [list, set, ints, zset, hash] = names;
                for text in [&b"5"[..], b"abc", b"7"] {
                    let slot = ks.find(0, list);
                    ks.list_push(0, list, slot, true, text)?;
                    let slot = ks.find(0, set);
                    ks.set_add(0, set, slot, text)?;
                    let slot = ks.find(0, zset);
                    ks.zset_add(0, zset, slot, text, 1.0)?;
                    let slot = ks.find(0, hash);
                    ks.hash_set(0, hash, slot, text, b"v")?;
                    let slot = ks.find(0, ints);
                    let number = if text == b"abc" { &b"12"[..] } else { text };
                    ks.set_add(0, ints, slot, number)?;
                }
                let slot = ks.find(0, hash).ok_or(WrongType)?;
                ks.expire_element_at(0, slot, b"5", 70_000);
                ks.hash_remove(0, slot, b"5")?;
                let slot = ks.find(0, set).ok_or(WrongType)?;
                ks.set_remove(0, slot, b"abc")?;
            }
            let limits = ks.effects().iter().filter(|(_, effect)| matches!(effect, Effect::Limits { .. }));
            assert_eq!(limits.count(), 2);
            let grows = ks.put(0, b"grows", b"5");
            _ = ks.make_growable(0, grows);
            _ = ks.put_text(0, b"text", None, b"5");
            let names: Vec<Vec<u8>> = ks.entries(0).map(|entry| entry.key().to_vec()).collect();
            let mut layouts: Vec<String> = Vec::new();
            for name in names {
                let value = taken(ks, &name)?;
                layouts.push(format!("{} {}", name.escape_ascii(), value.as_ref().encoding()));
                ks.put_value(1, &name, value);
            }
            layouts.sort();
            let expected = "dh listpackex,di intset,dl listpack,ds listpack,dz listpack,grows raw,text embstr,\
                            th hashtable,ti intset,tl quicklist,ts hashtable,tz skiplist";
            assert_eq!(layouts.join(","), expected);
            Ok(())
        });
    }

    #[test]
    fn effects_that_build_nothing_are_refused() {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        let encoded = |db, effect: &Effect<'_>| {
            let mut out = EffectWriter::default();
            out.write(db, effect);
            out.into_bytes()
        };
        let layout = Layout::Compact;
        let put = encoded(0, &Effect::Put { key: b"", value: b"x" });
        let nested = encoded(0, &Effect::Build { key: b"", layout, steps: &put });
        let no_key = encoded(0, &Effect::Put { key: b"other", value: b"x" });
        let no_database = encoded(1, &Effect::Put { key: b"", value: b"x" });
        for (steps, layout, misfit) in [
            (&b""[..], layout, Misfit::NoKey),
            (b"\x01", layout, Misfit::BadBytes),
            (&put[..put.len() - 1], layout, Misfit::BadBytes),
            (&put, Layout::Integers, Misfit::BadBytes),
            (&nested, layout, Misfit::BadBytes),
            (&no_key, layout, Misfit::NoKey),
            (&no_database, layout, Misfit::NoDatabase),
        ] {
            assert_eq!(ks.apply(0, &Effect::Build { key: b"k", layout, steps }), Err(misfit), "{steps:?}");
        }
        assert!(ks.db(0).is_empty());
        assert_eq!(ks.apply(0, &Effect::Build { key: b"k", layout, steps: &put }), Ok(()));
    }
}
