//! Verbs on strings. Bitmaps and HyperLogLogs are strings and need no verbs of their own. `splice` and `rewrite` exist
//! because a sparse HyperLogLog changes a few bytes in its middle.
//!
//! SET with an expiry has two effects, those of `put` and of `expire_at`. A separate effect would save the few bytes of
//! the repeated key. In return, every reader of the stream would have to know a third way to create a string and a
//! second way to set a deadline.

use super::check::{ensure, slot_of};
use crate::base::hasher::hash_bytes;
use crate::keyspace::any_value::{Value, ValueRef};
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::NewValue;
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, NEVER, Slot, WrongType};
use crate::value::string::{StringRef, StringValue};

impl Keyspace {
    /// Stores a string under a key, replacing any previous value and its expiry.
    #[inline]
    pub fn put(&mut self, db: DbIndex, key: &[u8], value: &[u8]) -> Slot {
        let hash = hash_bytes(key);
        self.effects.record_hashed(db, move || hash, move || Effect::Put { key, value });
        self.overwrite_hashed(db, hash, key, NewValue::string(value), NEVER)
    }

    /// As [`put`](Self::put), for a key that was already looked up: `slot` is where it lives, `None` if it does not
    /// exist.
    #[inline]
    #[must_use]
    pub fn put_at(&mut self, db: DbIndex, key: &[u8], slot: Option<Slot>, value: &[u8]) -> Slot {
        self.put_until(db, key, slot, value, NEVER)
    }

    /// As [`put_at`](Self::put_at), for a key that expires at `at_ms`, Unix ms, [`NEVER`] for not at all.
    #[inline]
    #[must_use]
    pub fn put_until(&mut self, db: DbIndex, key: &[u8], slot: Option<Slot>, value: &[u8], at_ms: i64) -> Slot {
        let stored = NewValue::string(value);
        let slot = match slot {
            Some(slot) => self.overwrite_at(db, slot, stored, at_ms),
            None => self.create_until(db, key, stored, at_ms),
        };
        self.record_on(db, slot, move || Effect::Put { key, value });
        if at_ms != NEVER {
            self.record_on(db, slot, move || Effect::ExpireAt { key, at_ms });
            // Value and deadline count as one change.
            self.effects.recount(-1);
        }
        slot
    }

    /// Replaces the string of an existing key and keeps its expiry. Returns the slot of the key afterwards.
    #[must_use]
    pub fn replace(&mut self, db: DbIndex, slot: Slot, value: &[u8]) -> Slot {
        self.record_at(db, slot, |key| Effect::Replace { key, value });
        self.exchange(db, slot, NewValue::string(value))
    }

    /// Stores a number in a key that may exist, `slot` as for [`put_at`](Self::put_at). Keeps its expiry.
    #[inline]
    #[must_use]
    pub fn put_integer(&mut self, db: DbIndex, key: &[u8], slot: Option<Slot>, value: i64) -> Slot {
        let Some(slot) = slot else {
            let slot = self.create(db, key, NewValue::integer(value));
            self.record_on(db, slot, move || Effect::SetInteger { key, value });
            return slot;
        };
        self.record_on(db, slot, move || Effect::SetInteger { key, value });
        if self.undo.is_on() && matches!(self.value(db, slot), ValueRef::String(StringRef::Int(_))) {
            self.note_change(db, slot, |_| None);
        }
        if self.dbs[db as usize].set_integer(slot, value) {
            return slot;
        }
        self.exchange(db, slot, NewValue::integer(value))
    }

    /// Stores a string as text, even if it looks like a number, in a key that may exist. Keeps its expiry. Decimals are
    /// stored this way too: they are rarely integers, and never for long.
    #[must_use]
    pub fn put_text(&mut self, db: DbIndex, key: &[u8], slot: Option<Slot>, value: &[u8]) -> Slot {
        let stored = NewValue::Text(value);
        let slot = match slot {
            Some(slot) => self.exchange(db, slot, stored),
            None => self.create(db, key, stored),
        };
        self.record_on(db, slot, move || Effect::SetText { key, value });
        slot
    }

    /// Converts a string to the representation that in-place edits leave behind, without changing its bytes. Returns
    /// the slot of the key afterwards.
    #[must_use]
    pub fn make_growable(&mut self, db: DbIndex, slot: Slot) -> Slot {
        let slot = self.reserve_raw(db, slot);
        self.note_change(db, slot, |value| PreImage::bytes(value, 0, 0, 0));
        self.lay_out(db, slot, |database, _| _ = database.make_raw(slot));
        slot
    }

    /// Writes `bytes` at `offset` of a string. Creates the string or pads it with zeroes up to `offset` if necessary;
    /// keeps its expiry. Without bytes, the string only grows to `offset`. Returns the slot of the key afterwards and
    /// the new length.
    pub fn set_range(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(Slot, usize), WrongType> {
        let slot = match slot {
            Some(slot) if !matches!(self.value(db, slot), ValueRef::String(_)) => return Err(WrongType),
            Some(slot) => self.reserve_raw(db, slot),
            None => self.create(db, key, Value::String(StringValue::Raw(Default::default())).into()),
        };
        self.note_change(db, slot, |value| {
            let ValueRef::String(text) = value else { return None };
            // Past the end, the padding zeroes are part of the change as well.
            let (from, to) = (offset.min(text.len()), offset + bytes.len());
            PreImage::bytes(value, from, to.min(text.len()).saturating_sub(from), to.saturating_sub(from))
        });
        let len = self.dbs[db as usize].make_raw(slot).ok_or(WrongType)?.write_at(offset, bytes);
        self.record_on(db, slot, || Effect::SetRange { key, offset: offset as u64, bytes });
        Ok((slot, len))
    }

    /// Replaces `removed` bytes of a string from `offset` on and keeps its expiry. Returns the slot of the key
    /// afterwards, or `None`, with nothing changed, if the string is too short or the value is not a string.
    #[must_use]
    pub fn splice(&mut self, db: DbIndex, slot: Slot, offset: usize, removed: usize, bytes: &[u8]) -> Option<Slot> {
        let ValueRef::String(string) = self.value(db, slot) else { return None };
        if offset.checked_add(removed)? > string.len() {
            return None;
        }
        let slot = self.reserve_raw(db, slot);
        self.note_change(db, slot, |value| PreImage::bytes(value, offset, removed, bytes.len()));
        if let Some(text) = self.dbs[db as usize].make_raw(slot) {
            text.splice(offset, removed, bytes);
        }
        let (offset, removed) = (offset as u64, removed as u64);
        self.record_at(db, slot, |key| Effect::Splice { key, offset, removed, bytes });
        Some(slot)
    }

    /// Makes room for the string at `slot` to be raw. Returns the slot of the key afterwards.
    #[must_use]
    fn reserve_raw(&mut self, db: DbIndex, slot: Slot) -> Slot {
        self.reserve(db, slot, |entry| entry.bytes_with_word())
    }

    /// Changes a string from `old` to `new` and records only the bytes between their common ends. Keeps its expiry.
    /// Returns the slot of the key afterwards, or `None` if the string is too short or the value is not a string.
    #[must_use]
    pub fn rewrite(&mut self, db: DbIndex, slot: Slot, old: &[u8], new: &[u8]) -> Option<Slot> {
        let shorter = old.len().min(new.len());
        let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let ends = old.iter().rev().zip(new.iter().rev()).take(shorter - front);
        let back = ends.take_while(|(a, b)| a == b).count();
        if front == old.len() && front == new.len() {
            return Some(slot);
        }
        self.splice(db, slot, front, old.len() - front - back, &new[front..new.len() - back])
    }
}

/// Replays a recorded change of a string.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    let find = |ks: &Keyspace, key: &[u8]| ks.dbs[db as usize].find(key);
    match *effect {
        Effect::Put { key, value } => _ = ks.put(db, key, value),
        Effect::Replace { key, value } => _ = ks.replace(db, slot_of(ks, db, key)?, value),
        Effect::SetInteger { key, value } => {
            let slot = find(ks, key);
            _ = ks.put_integer(db, key, slot, value);
        }
        Effect::SetText { key, value } => {
            let slot = find(ks, key);
            _ = ks.put_text(db, key, slot, value);
        }
        Effect::SetRange { key, offset, bytes } => {
            let slot = find(ks, key);
            ensure(offset.saturating_add(bytes.len() as u64) <= isize::MAX as u64, Misfit::BadBytes)?;
            ks.set_range(db, key, slot, offset as usize, bytes)?;
        }
        Effect::Splice { key, offset, removed, bytes } => {
            let slot = slot_of(ks, db, key)?;
            ks.splice(db, slot, offset as usize, removed as usize, bytes).ok_or(Misfit::Absent)?;
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
            slot = ks.expire_at(0, slot, 9_000);
            for pair in texts.windows(2) {
                slot = ks.rewrite(0, slot, pair[0], pair[1]).expect("it holds the first of them");
                assert_eq!(ks.find(0, b"s"), Some(slot));
                let ValueRef::String(text) = ks.value(0, slot) else { return Err(WrongType) };
                assert_eq!(text.as_bytes(&mut Digits::new()), pair[1]);
            }
            assert!(
                ks.splice(0, slot, 1, 2, b"").is_none()
                    && ks.splice(0, slot, 3, 0, b"").is_none()
                    && ks.splice(0, slot, 1, usize::MAX, b"").is_none()
            );
            Ok(())
        });
    }

    #[test]
    fn replaying_gives_the_same_strings() {
        replays(|ks| {
            let a = ks.put(0, b"a", b"1");
            let a = ks.expire_at(0, a, 5_000);
            let a = ks.put_integer(0, b"a", Some(a), -7);
            _ = ks.put_integer(0, b"n", None, i64::MIN);
            _ = ks.put_at(0, b"b", None, b"text");
            let ten = ks.put_text(0, b"ten", None, b"10");
            let d = ks.put_text(0, b"d", None, b"10");
            let d = ks.put_text(0, b"d", Some(d), b"0.5");
            let grows = ks.put(0, b"grows", b"12");
            let grows = ks.make_growable(0, grows);
            assert_eq!([ten, d, grows].map(|slot| ks.value(0, slot).encoding()), ["embstr", "embstr", "raw"]);
            let effects = ks.effects().iter().count();
            assert_eq!(ks.make_growable(0, grows), grows);
            assert_eq!(ks.effects().iter().count(), effects, "it was growable");
            let a = ks.put_at(0, b"a", Some(a), b"again");
            let a = ks.expire_at(0, a, 9_000);
            let a = ks.replace(0, a, b"a string that does not lie inline");
            _ = ks.put_until(0, b"a", Some(a), b"14 bytes of it", 9_000);
            _ = ks.put_until(0, b"until", None, b"", 9_000);
            let (c, len) = ks.set_range(0, b"c", None, 5, b"xy")?;
            assert_eq!(len, 7);
            for (offset, bytes, len) in [(6, &b"z!"[..], 8), (10, b"", 10), (2, b"", 10)] {
                assert_eq!(ks.set_range(0, b"c", Some(c), offset, bytes)?, (c, len));
            }
            let ValueRef::String(text) = ks.value(0, c) else { return Err(WrongType) };
            assert_eq!(text.as_bytes(&mut Digits::new()), b"\0\0\0\0\0xz!\0\0");
            Ok(())
        });
    }
}
