//! Prepares keys on threads other than the one that owns the keyspace. This covers all work that does not depend on the
//! keyspace's content: decoding the bytes, building the value and hashing the key. Only finding the key's place
//! remains.

use super::any_value::{Value, ValueRef};
use super::effect::{Effect, EffectWriter};
use super::entry::{NewValue, TEXT_MAX_BYTES};
use super::verb::{build, keeps_expiry, limits_of, value_of};
use super::{DbIndex, Keyspace, Misfit, NEVER, Slot, ValueLimits};
use crate::base::hasher::hash_bytes;
use crate::value::small_bytes::SmallBytes;
use crate::value::string::{StringRef, StringValue};

/// Bytes of a key and a short text that need no allocation. The owner of the keyspace would have to free an allocation
/// made by another thread.
const INLINE_BYTES: usize = 62;

/// A key with its value, not yet in a keyspace.
pub struct PreparedKey {
    db: DbIndex,
    hash: u64,
    /// The key, followed by a text that will lie inside the entry.
    bytes: SmallBytes<INLINE_BYTES>,
    key_len: usize,
    /// `None` for that text.
    value: Option<Value>,
    /// Whether the key, if it exists, is changed rather than replaced. A change keeps its last-used time.
    is_change: bool,
    /// When the key expires, [`NEVER`] for not at all. With `None`, a changed key keeps its expiry and any other key
    /// never expires.
    expires_at_ms: Option<i64>,
}

impl PreparedKey {
    /// Prepares a key of this database that never expires.
    pub fn new(db: DbIndex, key: &[u8], value: Value) -> PreparedKey {
        PreparedKey::of(db, key, value.into())
    }

    /// Prepares a string, as [`Keyspace::put`](super::Keyspace::put) takes it, that never expires.
    pub fn text(db: DbIndex, key: &[u8], text: &[u8]) -> PreparedKey {
        PreparedKey::of(db, key, NewValue::string(text))
    }

    fn of(db: DbIndex, key: &[u8], value: NewValue<'_>) -> PreparedKey {
        let (bytes, value) = match value {
            NewValue::Text(text) if text.len() <= TEXT_MAX_BYTES => (SmallBytes::concat(&[key, text]), None),
            NewValue::Text(text) => (SmallBytes::new(key), Some(Value::String(StringValue::plain(text)))),
            NewValue::SmallInt(bytes) => {
                let integer = i32::from_le_bytes(bytes).into();
                (SmallBytes::new(key), Some(Value::String(StringValue::Int(integer))))
            }
            NewValue::Owned(value) => (SmallBytes::new(key), Some(value)),
        };
        let (hash, key_len) = (hash_bytes(key), key.len());
        PreparedKey { db, hash, bytes, key_len, value, is_change: false, expires_at_ms: None }
    }

    /// Makes the key expire at this time, Unix ms, [`NEVER`] for not at all, regardless of an existing key's expiry.
    pub fn expire_at(&mut self, at_ms: i64) {
        self.expires_at_ms = Some(at_ms);
    }

    /// The number of its database.
    pub fn db(&self) -> DbIndex {
        self.db
    }

    /// The hash of its name.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.bytes[..self.key_len]
    }

    /// Returns the name and takes the value out.
    fn take(&mut self) -> (&[u8], NewValue<'_>) {
        let (key, text) = self.bytes.split_at(self.key_len);
        (key, self.value.take().map_or(NewValue::Text(text), NewValue::from))
    }

    fn value(&self) -> ValueRef<'_> {
        let text = || ValueRef::String(StringRef::Short(&self.bytes[self.key_len..]));
        self.value.as_ref().map_or_else(text, Value::as_ref)
    }

    /// Writes the effects that create the key from nothing. Returns how many.
    pub fn encode(&self, out: &mut EffectWriter) -> u64 {
        let key = self.name();
        match self.value() {
            ValueRef::String(string) if self.is_change => out.write(self.db, &set(key, string, &string.text())),
            ValueRef::String(string) => out.write(self.db, &Effect::Put { key, value: &string.text() }),
            value => {
                out.write(self.db, &Effect::Build { key, layout: value.layout(), steps: &build(value) });
            }
        }
        if let Some(at_ms) = self.deadline() {
            out.write(self.db, &Effect::ExpireAt { key, at_ms });
        }
        1 + u64::from(self.deadline().is_some())
    }

    /// The expiry, if it has to be written.
    fn deadline(&self) -> Option<i64> {
        self.expires_at_ms.filter(|at_ms| self.is_change || *at_ms != NEVER)
    }

    /// Whether this is the key of that name and database.
    pub fn is(&self, db: DbIndex, key: &[u8]) -> bool {
        self.db == db && self.name() == key
    }
}

/// The effect that sets a key to this string, whose text is `text`, and keeps its expiry.
fn set<'a>(key: &'a [u8], string: StringRef<'_>, text: &'a [u8]) -> Effect<'a> {
    match string {
        StringRef::Int(value) => Effect::SetInteger { key, value },
        _ => Effect::SetText { key, value: text },
    }
}

/// Prepares keys from a stream of effects. It has to see all effects, since some set the limits for later ones.
#[derive(Default)]
pub struct Preparation {
    limits: ValueLimits,
}

impl Preparation {
    /// Returns the key that an effect sets as a whole, or why that is impossible. Returns `None` for any other effect,
    /// which depends on the keyspace's content.
    pub fn prepare(&mut self, db: DbIndex, effect: &Effect<'_>) -> Option<Result<PreparedKey, Misfit>> {
        if let Some(limits) = limits_of(effect) {
            self.limits = limits;
        }
        let value = value_of(effect, &self.limits)?;
        let key = effect.key()?;
        let is_change = keeps_expiry(effect);
        Some(value.map(|value| PreparedKey { is_change, ..PreparedKey::of(db, key, value) }))
    }
}

impl Keyspace {
    /// Stores a key, replacing any previous value, and takes its value. Sets the expiry of the prepared key, or keeps
    /// the old one if the prepared key says so.
    pub fn put_prepared(&mut self, prepared: &mut PreparedKey) -> Result<(), Misfit> {
        let (db, hash, is_change, deadline) = (prepared.db, prepared.hash, prepared.is_change, prepared.deadline());
        if db >= self.databases() {
            return Err(Misfit::NoDatabase);
        }
        let (mut text, mut steps) = (None, Vec::new());
        self.effects.record_with(db, || match prepared.value() {
            ValueRef::String(string) if is_change => set(prepared.name(), string, text.insert(string.text())),
            value => {
                steps = build(value);
                Effect::Build { key: prepared.name(), layout: value.layout(), steps: &steps }
            }
        });
        self.lift_tokens(prepared.value());
        let (key, value) = prepared.take();
        _ = match self.dbs[db as usize].find_hashed(hash, key) {
            Some(slot) if is_change => {
                let at_ms = deadline.unwrap_or_else(|| self.entry(db, slot).deadline_ms());
                self.store(db, slot, value, at_ms)
            }
            Some(slot) => self.overwrite_at(db, slot, value, deadline.unwrap_or(NEVER)),
            None => self.create_hashed(db, hash, key, value, deadline.unwrap_or(NEVER)),
        };
        if let Some(at_ms) = deadline {
            self.effects.record(db, Effect::ExpireAt { key, at_ms });
        }
        Ok(())
    }

    /// Adds a key to an existing database, takes its value, and returns its slot. Returns `None` if the key already
    /// exists. The caller must [record](Self::record_encoded) the effects of keys added this way.
    pub fn add_prepared(&mut self, prepared: &mut PreparedKey) -> Option<Slot> {
        let (db, hash, at_ms) = (prepared.db, prepared.hash, prepared.deadline().unwrap_or(NEVER));
        if self.dbs[db as usize].find_hashed(hash, prepared.name()).is_some() {
            return None;
        }
        self.lift_tokens(prepared.value());
        let (key, value) = prepared.take();
        Some(self.create_hashed(db, hash, key, value, at_ms))
    }

    /// Records `count` effects that were encoded elsewhere and have already been applied.
    pub fn record_encoded(&mut self, encoded: &[u8], count: u64) {
        self.effects.record_encoded(encoded, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::effect::{EffectReader, Recording, Touch};
    use crate::value::stream::StreamId;

    fn fresh(recording: Recording) -> Keyspace {
        let mut ks = Keyspace::new(4, Rng::seeded(1));
        ks.begin_unit(1_000, recording);
        ks
    }

    /// The keys, each with its expiry, its layout, the effects that build its value, and its size.
    fn contents(ks: &Keyspace) -> Vec<String> {
        let of = |db| ks.entries(db).map(move |entry| (db, entry));
        let mut all: Vec<String> = (0..4)
            .flat_map(of)
            .map(|(db, entry)| {
                let (value, key) = (entry.value(), entry.key().escape_ascii());
                let (layout, bytes) = (value.encoding(), value.heap_bytes(0));
                let times = (entry.expires_at_ms(), entry.used());
                format!("{db} {key} {times:?} {layout} {bytes} {:?}", build(value))
            })
            .collect();
        all.sort();
        all
    }

    /// Effects that set whole values, under limits set in the stream, and some that change existing values.
    fn stream() -> Vec<u8> {
        let mut ks = fresh(Recording::Full);
        let mut limits = *ks.limits();
        limits.stream.node_max_entries = 1;
        ks.set_limits(limits);
        for (db, key, value) in
            [(0, &b"text"[..], &b"short"[..]), (1, b"number", b"17"), (0, b"long", &[7; 90]), (0, b"longer", &[7; 300])]
        {
            ks.put(db, key, value);
        }
        let mut stream = None;
        for ms in 1..9 {
            let pairs = [(&b"f"[..], &b"v"[..])].into_iter();
            stream = ks.stream_append(0, b"stream", stream, StreamId { ms, seq: 0 }, pairs).unwrap();
        }
        let value = ks.value(0, stream.unwrap()).into();
        let built = ks.put_value(2, b"built", value);
        _ = ks.expire_at(2, built, 9_000);
        ks.put(0, b"text", b"again");
        // These keep an existing deadline.
        let (counter, long) = (ks.put(1, b"counter", b"1"), ks.put(0, b"long", &[8; 90]));
        let counter = ks.expire_at(1, counter, 8_000);
        _ = ks.put_integer(1, b"counter", Some(counter), 2);
        let long = ks.expire_at(0, long, 7_000);
        _ = ks.put_text(0, b"long", Some(long), b"17");
        _ = ks.put_text(0, b"decimal", None, b"0.5");
        _ = ks.put_integer(0, b"new", None, 1);
        ks.effects().as_bytes().to_vec()
    }

    #[test]
    fn a_prepared_key_equals_the_result_of_its_effects() {
        let stream = stream();
        let (mut applied, mut put, mut encoded) =
            (fresh(Recording::Full), fresh(Recording::Full), EffectWriter::default());
        let (mut preparation, mut prepared) = (Preparation::default(), 0);
        for (db, effect) in EffectReader::new(&stream) {
            applied.apply(db, &effect).unwrap();
            match preparation.prepare(db, &effect) {
                None => {
                    put.apply(db, &effect).unwrap();
                    encoded.write(db, &effect);
                }
                Some(key) => {
                    let mut key = key.unwrap();
                    assert!(key.is(db, effect.key().unwrap()) && key.db() == db);
                    assert_eq!(key.encode(&mut encoded), 1);
                    put.put_prepared(&mut key).unwrap();
                    prepared += 1;
                }
            }
        }
        assert_eq!(prepared, 12);
        assert_eq!(contents(&put), contents(&applied));
        for effects in [encoded.as_bytes(), put.effects().as_bytes()] {
            let mut copy = fresh(Recording::Full);
            EffectReader::new(effects).for_each(|(db, effect)| copy.apply(db, &effect).unwrap());
            assert_eq!(contents(&copy), contents(&applied));
        }
    }

    #[test]
    fn a_deadline_after_a_value_overrides_the_old_one() {
        for (at_ms, value) in [(NEVER, "17"), (9_000, "17"), (NEVER, "text")] {
            for effect in
                [Effect::SetInteger { key: b"k", value: 17 }, Effect::SetText { key: b"k", value: value.as_bytes() }]
            {
                let with_old_key = || {
                    let mut ks = fresh(Recording::Full);
                    let slot = ks.put(0, b"k", b"old");
                    _ = ks.expire_at(0, slot, 5_000);
                    ks.begin_unit(4_000, Recording::Full);
                    ks
                };
                let (mut applied, mut put, mut copy) = (with_old_key(), with_old_key(), with_old_key());
                for effect in [effect, Effect::ExpireAt { key: b"k", at_ms }] {
                    applied.apply(0, &effect).unwrap();
                }
                let mut key = Preparation::default().prepare(0, &effect).unwrap().unwrap();
                key.expire_at(at_ms);
                let mut encoded = EffectWriter::default();
                let count = key.encode(&mut encoded);
                put.put_prepared(&mut key).unwrap();
                assert_eq!(contents(&put), contents(&applied), "{at_ms} {effect:?}");
                let effects: Vec<_> = EffectReader::new(encoded.as_bytes()).collect();
                assert_eq!(effects.len() as u64, count);
                effects.iter().for_each(|(db, effect)| copy.apply(*db, effect).unwrap());
                assert_eq!(contents(&copy), contents(&applied), "{at_ms} {effect:?}");
            }
        }
    }

    #[test]
    fn a_key_is_added_once_and_recorded_by_its_caller() {
        let key = || {
            let mut key = PreparedKey::text(1, b"k", b"a value that is not short");
            key.expire_at(9_000);
            key
        };
        let mut effects = EffectWriter::default();
        let changes = key().encode(&mut effects);
        assert_eq!(changes, 2);
        for recording in [Recording::Nothing, Recording::Keys, Recording::Full] {
            let mut ks = fresh(recording);
            assert!(ks.add_prepared(&mut key()).is_some());
            assert!(ks.effects().is_empty());
            assert!(ks.add_prepared(&mut key()).is_none());
            let count = ks.effects().count();
            ks.record_encoded(effects.as_bytes(), changes);
            assert_eq!(ks.effects().count(), count + 2);
            let touches = if recording == Recording::Nothing { 0 } else { 2 };
            let touch = Touch::Key { db: 1, key: b"k", is_deletion: false, wakes: true };
            assert_eq!(ks.effects().touches().filter(|found| *found == touch).count(), touches, "{recording:?}");
            if recording == Recording::Full {
                // Later effects do not refer to the key of effects encoded elsewhere.
                ks.put(1, b"k", b"other");
                let mut copy = fresh(Recording::Nothing);
                ks.effects().iter().for_each(|(db, effect)| copy.apply(db, &effect).unwrap());
                assert_eq!(contents(&copy), contents(&ks));
            }
        }
        let mut ks = fresh(Recording::Nothing);
        assert_eq!(ks.put_prepared(&mut PreparedKey::text(4, b"k", b"")), Err(Misfit::NoDatabase));
    }
}
