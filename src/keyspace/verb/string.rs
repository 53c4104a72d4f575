//! Verbs on strings. Bitmaps and HyperLogLogs are strings and need no verbs of their own; `splice` and `rewrite` are there
//! because a sparse HyperLogLog changes a few bytes in its middle.
//!
//! SET with an expiry is a `put` followed by an `expire_at` of the slot that `put` gave: one lookup, two effects. An effect
//! of its own would save the few bytes of the repeated key and cost every reader of the stream a third way in which a
//! string and a second way in which a deadline comes to be.

use super::{Misfit, WrongType, ensure, slot_of};
use crate::base::hasher::hash_bytes;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::Value;
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::value::string::StringValue;

impl Keyspace {
    /// Stores a string under a key, whatever was there before; its expiry goes.
    #[inline]
    pub fn put(&mut self, db: DbIndex, key: &[u8], value: &[u8]) -> Slot {
        let hash = hash_bytes(key);
        self.effects.record_hashed(db, move || hash, move || Effect::Put { key, value });
        self.overwrite_hashed(db, hash, key, Value::String(StringValue::new(value)))
    }

    /// As [`put`](Self::put), for a key that was looked up: `slot` is where it lives, `None` when it does not.
    #[inline]
    pub fn put_at(&mut self, db: DbIndex, key: &[u8], slot: Option<Slot>, value: &[u8]) -> Slot {
        let stored = Value::String(StringValue::new(value));
        let slot = match slot {
            Some(slot) => {
                self.overwrite_at(db, slot, stored);
                slot
            }
            None => self.create(db, key, stored),
        };
        self.record_on(db, slot, move || Effect::Put { key, value });
        slot
    }

    /// Stores another string in a key that exists; its expiry stays.
    pub fn replace(&mut self, db: DbIndex, slot: Slot, value: &[u8]) {
        self.record_at(db, slot, |key| Effect::Replace { key, value });
        self.exchange(db, slot, Value::String(StringValue::new(value)));
    }

    /// Stores a number in a key that may exist, `slot` as for [`put_at`](Self::put_at); its expiry stays.
    #[inline]
    pub fn put_integer(&mut self, db: DbIndex, key: &[u8], slot: Option<Slot>, value: i64) -> Slot {
        let Some(slot) = slot else {
            let slot = self.create(db, key, Value::String(StringValue::Int(value)));
            self.record_on(db, slot, move || Effect::SetInteger { key, value });
            return slot;
        };
        self.record_on(db, slot, move || Effect::SetInteger { key, value });
        if !self.undo.is_on()
            && let Value::String(StringValue::Int(counter)) = &mut self.entry_mut(db, slot).value
        {
            *counter = value;
        } else {
            self.exchange(db, slot, Value::String(StringValue::Int(value)));
        }
        slot
    }

    /// Stores a string in a key that may exist, as text, though it may say a number; its expiry stays. So are decimals kept:
    /// they rarely are integers, and never for long.
    pub fn put_text(&mut self, db: DbIndex, key: &[u8], slot: Option<Slot>, value: &[u8]) -> Slot {
        let stored = Value::String(StringValue::plain(value));
        let slot = match slot {
            Some(slot) => {
                self.exchange(db, slot, stored);
                slot
            }
            None => self.create(db, key, stored),
        };
        self.record_on(db, slot, move || Effect::SetText { key, value });
        slot
    }

    /// Gives a string the representation that editing in place leaves, with no change of its bytes.
    pub fn make_growable(&mut self, db: DbIndex, slot: Slot) {
        self.note_change(db, slot, |value| PreImage::bytes(value, 0, 0, 0));
        self.lay_out(db, slot, |value, _| {
            if let Value::String(string) = value {
                string.make_raw();
            }
        });
    }

    /// Writes `bytes` at `offset` of a string, which is created or filled with zeroes up to there; its expiry stays.
    /// Answers the new length. Without bytes the string only grows to `offset`.
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
        self.note_change(db, slot, |value| {
            let Value::String(text) = value else { return None };
            // Behind the end zeroes are added as well.
            let (from, to) = (offset.min(text.len()), offset + bytes.len());
            PreImage::bytes(value, from, to.min(text.len()).saturating_sub(from), to.saturating_sub(from))
        });
        let entry = self.dbs[db as usize].get_mut(slot).expect("a slot is used only while its entry lives");
        let Value::String(string) = &mut entry.value else { return Err(WrongType) };
        let len = string.write_at(offset, bytes);
        self.record_on(db, slot, || Effect::SetRange { key, offset: offset as u64, bytes });
        Ok(len)
    }

    /// Replaces `removed` bytes of a string from `offset` on by others; its expiry stays. Answers false, and changes nothing,
    /// when the key holds no string that long.
    pub fn splice(&mut self, db: DbIndex, slot: Slot, offset: usize, removed: usize, bytes: &[u8]) -> bool {
        self.note_change(db, slot, |value| PreImage::bytes(value, offset, removed, bytes.len()));
        let entry = self.dbs[db as usize].get_mut(slot).expect("a slot is used only while its entry lives");
        let Value::String(string) = &mut entry.value else { return false };
        if !string.splice(offset, removed, bytes) {
            return false;
        }
        let (offset, removed) = (offset as u64, removed as u64);
        self.effects.record(db, Effect::Splice { key: &entry.key, offset, removed, bytes });
        true
    }

    /// Makes a string, which is `old` now, `new`, and records only what lies between their common ends; its expiry stays.
    /// Answers false when the key holds no string that long.
    pub fn rewrite(&mut self, db: DbIndex, slot: Slot, old: &[u8], new: &[u8]) -> bool {
        let shorter = old.len().min(new.len());
        let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let ends = old.iter().rev().zip(new.iter().rev()).take(shorter - front);
        let back = ends.take_while(|(a, b)| a == b).count();
        if front == old.len() && front == new.len() {
            return true;
        }
        self.splice(db, slot, front, old.len() - front - back, &new[front..new.len() - back])
    }
}

/// Repeats a recorded change of a string.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    let find = |ks: &Keyspace, key: &[u8]| ks.dbs[db as usize].find(key);
    match *effect {
        Effect::Put { key, value } => _ = ks.put(db, key, value),
        Effect::Replace { key, value } => ks.replace(db, slot_of(ks, db, key)?, value),
        Effect::SetInteger { key, value } => {
            let slot = find(ks, key);
            ks.put_integer(db, key, slot, value);
        }
        Effect::SetText { key, value } => {
            let slot = find(ks, key);
            ks.put_text(db, key, slot, value);
        }
        Effect::SetRange { key, offset, bytes } => {
            let slot = find(ks, key);
            ensure(offset.saturating_add(bytes.len() as u64) <= isize::MAX as u64, Misfit::BadBytes)?;
            ks.set_range(db, key, slot, offset as usize, bytes)?;
        }
        Effect::Splice { key, offset, removed, bytes } => {
            let slot = slot_of(ks, db, key)?;
            ensure(ks.splice(db, slot, offset as usize, removed as usize, bytes), Misfit::Absent)?;
        }
        _ => return Err(Misfit::Elsewhere),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::verb::tests::replays;
    use crate::value::string::Digits;

    #[test]
    fn replaying_gives_the_same_edits() {
        let texts: [&[u8]; 9] = [b"", b"abc", b"abXc", b"abc", b"abc", b"abcabc", b"abc", b"0", b"12"];
        replays(|ks| {
            let mut slot = ks.put(0, b"s", texts[0]);
            ks.expire_at(0, slot, 9_000);
            for pair in texts.windows(2) {
                assert!(ks.rewrite(0, slot, pair[0], pair[1]), "{pair:?}");
                slot = ks.find(0, b"s").ok_or(WrongType)?;
                let Value::String(text) = ks.value(0, slot) else { return Err(WrongType) };
                assert_eq!(text.as_bytes(&mut Digits::new()), pair[1]);
            }
            assert!(
                !ks.splice(0, slot, 1, 2, b"")
                    && !ks.splice(0, slot, 3, 0, b"")
                    && !ks.splice(0, slot, 1, usize::MAX, b"")
            );
            Ok(())
        });
    }

    #[test]
    fn replaying_gives_the_same_strings() {
        replays(|ks| {
            let a = ks.put(0, b"a", b"1");
            ks.expire_at(0, a, 5_000);
            ks.put_integer(0, b"a", Some(a), -7);
            ks.put_integer(0, b"n", None, i64::MIN);
            ks.put_at(0, b"b", None, b"text");
            ks.put_text(0, b"ten", None, b"10");
            let d = ks.put_text(0, b"d", None, b"10");
            ks.put_text(0, b"d", Some(d), b"0.5");
            let grows = ks.put(0, b"grows", b"12");
            ks.make_growable(0, grows);
            let ten = ks.find(0, b"ten").ok_or(WrongType)?;
            assert_eq!([ten, d, grows].map(|slot| ks.value(0, slot).encoding()), ["embstr", "embstr", "raw"]);
            let effects = ks.effects().iter().count();
            ks.make_growable(0, grows);
            assert_eq!(ks.effects().iter().count(), effects, "it was growable");
            ks.put_at(0, b"a", Some(a), b"again");
            ks.expire_at(0, a, 9_000);
            ks.replace(0, a, b"a string that does not lie inline");
            assert_eq!(ks.set_range(0, b"c", None, 5, b"xy")?, 7);
            let c = ks.find(0, b"c");
            assert_eq!(ks.set_range(0, b"c", c, 6, b"z!")?, 8);
            assert_eq!(ks.set_range(0, b"c", c, 10, b"")?, 10);
            assert_eq!(ks.set_range(0, b"c", c, 2, b"")?, 10);
            let Value::String(text) = ks.value(0, c.ok_or(WrongType)?) else { return Err(WrongType) };
            assert_eq!(text.as_bytes(&mut Digits::new()), b"\0\0\0\0\0xz!\0\0");
            Ok(())
        });
    }
}
