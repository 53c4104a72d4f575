//! Verbs on strings. Bitmaps and HyperLogLogs are strings and need no verbs of their own.

use super::WrongType;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::Value;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::value::string::{Digits, StringValue};

impl Keyspace {
    /// Stores a string under a key, whatever was there before; its expiry goes.
    #[inline]
    pub fn put(&mut self, db: DbIndex, key: &[u8], value: &[u8]) -> Slot {
        self.effects.record(db, Effect::Put { key, value });
        self.overwrite(db, key, Value::String(StringValue::new(value)))
    }

    /// As [`put`](Self::put), for a key whose slot is known.
    pub fn put_at(&mut self, db: DbIndex, slot: Slot, value: &[u8]) {
        let key = &self.dbs[db as usize].get(slot).expect("a slot is used only while its entry lives").key;
        self.effects.record(db, Effect::Put { key, value });
        self.overwrite_at(db, slot, Value::String(StringValue::new(value)));
    }

    /// Stores another string in a key that exists; its expiry stays.
    pub fn replace(&mut self, db: DbIndex, slot: Slot, value: &[u8]) {
        let entry = self.dbs[db as usize].get_mut(slot).expect("a slot is used only while its entry lives");
        self.effects.record(db, Effect::Replace { key: &entry.key, value });
        entry.value = Value::String(StringValue::new(value));
    }

    /// As [`replace`](Self::replace) with a number: nothing is formatted unless the effect is recorded.
    #[inline]
    pub fn replace_integer(&mut self, db: DbIndex, slot: Slot, value: i64) {
        let entry = self.dbs[db as usize].get_mut(slot).expect("a slot is used only while its entry lives");
        let mut digits = Digits::new();
        self.effects.record_with(db, || Effect::Replace { key: &entry.key, value: digits.format(value).as_bytes() });
        entry.value = Value::String(StringValue::Int(value));
    }

    /// Writes `bytes` at `offset` of a string, which is created or filled with zeroes up to there; its expiry stays.
    /// Answers the new length.
    pub fn set_range(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<usize, WrongType> {
        let slot = match slot {
            Some(slot) => slot,
            None => self.create(db, key, Value::String(StringValue::Raw(Default::default()))),
        };
        let entry = self.dbs[db as usize].get_mut(slot).expect("a slot is used only while its entry lives");
        let Value::String(string) = &mut entry.value else { return Err(WrongType) };
        let text = string.make_raw();
        let end = offset + bytes.len();
        if text.len() < end {
            text.resize(end, 0);
        }
        text[offset..end].copy_from_slice(bytes);
        let len = text.len();
        self.effects.record(db, Effect::SetRange { key, offset: offset as u64, bytes });
        Ok(len)
    }
}
