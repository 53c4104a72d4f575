//! Verbs on sets. When a set loses its last member, its key is removed.

use super::check::{ensure, ensure_emptied, slot_of};
use crate::keyspace::any_value::{Value, ValueMut, ValueRef};
use crate::keyspace::effect::{Cause, Effect};
use crate::keyspace::entry::Key;
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, Slot, WrongType};
use crate::value::set::Set;

impl Keyspace {
    /// The set at `slot`.
    #[inline]
    pub fn set(&self, db: DbIndex, slot: Slot) -> Result<&Set, WrongType> {
        match self.value(db, slot) {
            ValueRef::Set(set) => Ok(set),
            _ => Err(WrongType),
        }
    }

    /// Adds a member to a set and creates the set if necessary. An existing member keeps its deadline. Returns the slot
    /// of the set and whether the member is new.
    #[inline]
    pub fn set_add(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        member: &[u8],
    ) -> Result<(Slot, bool), WrongType> {
        let slot = match slot {
            Some(slot) => slot,
            None => self.create(db, key, Value::Set(Set::default()).into()),
        };
        if self.entry(db, slot).has_embedded() && self.set(db, slot)?.contains(member) {
            return Ok((slot, false));
        }
        let must_note = self.must_note(db, slot, |value| value.compact_bytes().is_some());
        let limits = self.limits.set;
        let mut set = self.set_mut(db, slot)?;
        if set.deadlines().is_some() {
            self.remove_if_expired(db, slot, member);
            set = self.set_mut(db, slot)?;
        }
        let new = set.insert(member, &limits);
        if new {
            self.record_on(db, slot, || Effect::SetAdd { key, member });
            if must_note {
                self.note_pre_image(db, slot, PreImage::Member { member: Key::new(member), before: None });
            }
        }
        Ok((slot, new))
    }

    /// Removes a member at the request of a command. Returns whether it existed.
    pub fn set_remove(&mut self, db: DbIndex, slot: Slot, member: &[u8]) -> Result<bool, WrongType> {
        self.set_remove_as(db, slot, member, Cause::Command)
    }

    fn set_remove_as(&mut self, db: DbIndex, slot: Slot, member: &[u8], cause: Cause) -> Result<bool, WrongType> {
        if self.entry(db, slot).has_embedded() && !self.set(db, slot)?.contains(member) {
            return Ok(false);
        }
        self.note_change(db, slot, |value| PreImage::member(value, member));
        let set = self.set_mut(db, slot)?;
        if set.deadlines().is_some() {
            return self.remove_mortal_member(db, slot, member, cause);
        }
        let removed = set.remove(member);
        let empty = set.is_empty();
        if removed {
            self.record_at(db, slot, |key| Effect::SetRemove { key, member, cause, emptied: empty });
            self.drop_if(empty, db, slot);
        }
        Ok(removed)
    }

    #[cold]
    fn remove_mortal_member(
        &mut self,
        db: DbIndex,
        slot: Slot,
        member: &[u8],
        cause: Cause,
    ) -> Result<bool, WrongType> {
        let set = self.set_mut(db, slot)?;
        if !set.contains(member) {
            return Ok(false);
        }
        let before = set.deadlines().is_some_and(|deadlines| !deadlines.is_empty());
        set.remove(member);
        let emptied = set.stored_len() == 0;
        self.dbs[db as usize].follow_elements(slot, before);
        self.record_at(db, slot, |key| Effect::SetRemove { key, member, cause, emptied });
        self.drop_if_all_expired(db, slot);
        Ok(true)
    }

    /// Prepares a set for `members` members to come.
    pub fn set_prepare(&mut self, db: DbIndex, slot: Slot, members: usize) -> Result<(), WrongType> {
        let set = self.set(db, slot)?;
        if members <= self.limits.set.max_listpack_entries {
            return Ok(());
        }
        let is_compact = set.compact_bytes().is_some();
        if is_compact {
            self.note_change(db, slot, |_| None);
        }
        self.lay_out(db, slot, |database, limits| {
            if let Some(ValueMut::Set(set)) = database.value_mut(slot) {
                set.prepare(members, &limits.set);
            }
        });
        Ok(())
    }

    /// Gives a set that has lost most of its members its most compact form.
    pub fn set_repack(&mut self, db: DbIndex, slot: Slot) -> Result<(), WrongType> {
        self.set(db, slot)?;
        // Repacking copies all members anyway.
        self.note_change(db, slot, |_| None);
        self.lay_out(db, slot, |database, limits| {
            if let Some(ValueMut::Set(set)) = database.value_mut(slot) {
                set.repack(&limits.set);
            }
        });
        Ok(())
    }

    #[inline]
    fn set_mut(&mut self, db: DbIndex, slot: Slot) -> Result<&mut Set, WrongType> {
        match self.value_mut(db, slot) {
            Some(ValueMut::Set(set)) => Ok(set),
            _ => Err(WrongType),
        }
    }
}

/// Replays a recorded change of a set.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    match *effect {
        Effect::SetAdd { key, member } => {
            let slot = ks.dbs[db as usize].find(key);
            let (_, is_new) = ks.set_add(db, key, slot, member)?;
            ensure(is_new, Misfit::Exists)
        }
        Effect::SetRemove { key, member, cause, emptied } => {
            let slot = slot_of(ks, db, key)?;
            ensure(ks.set_remove_as(db, slot, member, cause)?, Misfit::Absent)?;
            ensure_emptied(ks, db, key, emptied)
        }
        _ => Err(Misfit::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::replays;
    use super::*;
    use crate::value::Layout;
    use crate::value::set::SetLimits;

    #[test]
    fn replaying_gives_the_same_sets() {
        replays(|ks| {
            let (slot, new) = ks.set_add(2, b"s", None, b"7")?;
            assert!(new);
            assert_eq!(ks.set_add(2, b"s", Some(slot), b"7")?, (slot, false));
            for i in 0..300 {
                ks.set_add(2, b"s", Some(slot), format!("m{i}").as_bytes())?;
            }
            assert!(ks.set_remove(2, slot, b"m7")?);
            assert!(!ks.set_remove(2, slot, b"m7")?);
            let (gone, _) = ks.set_add(0, b"gone", None, b"")?;
            assert!(ks.set_remove(0, gone, b"")?);
            assert!(ks.find(0, b"gone").is_none());
            ks.put(0, b"text", b"text");
            let text = ks.find(0, b"text").expect("just put");
            assert!(ks.set_add(0, b"text", Some(text), b"a").is_err());
            assert!(ks.set_remove(0, text, b"a").is_err());
            _ = ks.expire_at(0, text, 5_000);
            let mut set = Set::new();
            for member in [&b"a"[..], b"", b"-12", &[0xff; 300]] {
                set.insert(member, &SetLimits::default());
            }
            let put = ks.put_value(0, b"text", Value::Set(set));
            assert_eq!(ks.entry(0, put).expires_at_ms(), None);
            assert_eq!((ks.set(0, put)?.len(), ks.set(2, slot)?.len()), (4, 300));
            // Members come and go, and the remaining ones are packed in table order.
            for i in (0..300).step_by(3).chain(100..290) {
                ks.set_remove(2, slot, format!("m{i}").as_bytes())?;
            }
            ks.set_repack(2, slot)?;
            ks.set_repack(2, slot)?;
            let (prepared, _) = ks.set_add(2, b"prepared", None, b"m")?;
            ks.set_prepare(2, prepared, 128)?;
            assert_eq!(ks.set(2, prepared)?.layout(), Layout::Compact);
            ks.set_prepare(2, prepared, 129)?;
            assert_eq!([slot, prepared].map(|slot| ks.value(2, slot).layout()), [Layout::Compact, Layout::Large]);
            let relayouts = ks.effects().iter().filter(|(_, effect)| matches!(effect, Effect::Relayout { .. }));
            assert_eq!(relayouts.count(), 2);
            Ok(())
        });
    }
}
