//! Verbs on sets. A set that loses its last member takes its key along.

use super::WrongType;
use crate::keyspace::effect::{Effect, Field};
use crate::keyspace::entry::{Key, Value};
use crate::keyspace::piece::Piece;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::value::set::Set;

impl Keyspace {
    /// The set at `slot`.
    #[inline]
    pub fn set(&self, db: DbIndex, slot: Slot) -> Result<&Set, WrongType> {
        match self.value(db, slot) {
            Value::Set(set) => Ok(set),
            _ => Err(WrongType),
        }
    }

    /// Puts a member into a set, which is created where there is none; a member that is there expires when it would have.
    /// Answers the slot of the set and whether the member is new.
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
            None => self.create(db, key, Value::Set(Box::default())),
        };
        let must_note = self.must_note(db, slot, |value| value.compact_bytes().is_some());
        let limits = self.limits.set;
        let mut set = self.set_mut(db, slot)?;
        if set.deadlines().is_some() {
            self.bury_if_dead(db, slot, member);
            set = self.set_mut(db, slot)?;
        }
        let new = set.insert(member, &limits);
        if new {
            self.effects.record(db, Effect::SetAdd { key, member });
            if must_note {
                self.note_piece(db, slot, Piece::Member { member: Key::new(member), before: None });
            }
        }
        Ok((slot, new))
    }

    /// Takes a member out. Answers whether it was there.
    pub fn set_remove(&mut self, db: DbIndex, slot: Slot, member: &[u8]) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| Piece::member(value, member));
        let set = self.set_mut(db, slot)?;
        if set.deadlines().is_some() {
            return self.remove_mortal_member(db, slot, member);
        }
        let removed = set.remove(member);
        let empty = set.is_empty();
        if removed {
            self.record_at(db, slot, |key| Effect::SetRemove { key, member });
            self.drop_if(empty, db, slot);
        }
        Ok(removed)
    }

    #[cold]
    fn remove_mortal_member(&mut self, db: DbIndex, slot: Slot, member: &[u8]) -> Result<bool, WrongType> {
        let set = self.set_mut(db, slot)?;
        if !set.contains(member) {
            return Ok(false);
        }
        let before = set.deadlines().is_some_and(|deadlines| !deadlines.is_empty());
        set.remove(member);
        self.dbs[db as usize].follow_elements(slot, before);
        self.record_at(db, slot, |key| Effect::SetRemove { key, member });
        self.drop_if_lifeless(db, slot);
        Ok(true)
    }

    /// Prepares a set for so many members to come. Its form is no change of it, so there is no effect.
    pub fn set_prepare(&mut self, db: DbIndex, slot: Slot, members: usize) -> Result<(), WrongType> {
        let limits = self.limits.set;
        if self.set(db, slot)?.compact_bytes().is_some() {
            self.note_change(db, slot, |_| None);
        }
        self.set_mut(db, slot).map(|set| set.prepare(members, &limits))
    }

    /// Gives a set that lost most of its members the most compact form. No effect.
    pub fn set_repack(&mut self, db: DbIndex, slot: Slot) -> Result<(), WrongType> {
        let limits = self.limits.set;
        // The members are copied here anyway.
        self.note_change(db, slot, |_| None);
        self.set_mut(db, slot).map(|set| set.repack(&limits))
    }

    /// Stores a set, which must not be empty, under a key, whatever was there before; its expiry goes.
    pub fn set_put(&mut self, db: DbIndex, key: &[u8], set: Set) {
        let mut members = Vec::new();
        self.effects.record_with(db, || {
            let mut digits = itoa::Buffer::new();
            set.iter().for_each(|member| member.as_bytes(&mut digits).put(&mut members));
            Effect::SetPut { key, members: &members }
        });
        self.overwrite(db, key, Value::Set(Box::new(set)));
    }

    #[inline]
    fn set_mut(&mut self, db: DbIndex, slot: Slot) -> Result<&mut Set, WrongType> {
        match &mut self.entry_mut(db, slot).value {
            Value::Set(set) => Ok(set),
            _ => Err(WrongType),
        }
    }
}

/// Repeats a recorded change of a set.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Option<()> {
    match *effect {
        Effect::SetAdd { key, member } => {
            let slot = ks.dbs[db as usize].find(key);
            ks.set_add(db, key, slot, member).ok()?.1.then_some(())
        }
        Effect::SetRemove { key, member } => {
            let slot = ks.dbs[db as usize].find(key)?;
            ks.set_remove(db, slot, member).ok()?.then_some(())
        }
        Effect::SetPut { key, members: mut rest } => {
            let mut set = Set::new();
            while !rest.is_empty() {
                set.insert(Field::take(&mut rest)?, &ks.limits.set);
            }
            if set.is_empty() {
                return None;
            }
            ks.set_put(db, key, set);
            Some(())
        }
        _ => None,
    }
}

/// The members of a [`Effect::SetPut`] in order: the effect has them in the order of a hash table.
#[cfg(test)]
pub(super) fn sorted(mut members: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = std::iter::from_fn(|| <&[u8]>::take(&mut members)).map(|member| member.to_vec()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::replays;
    use crate::value::set::{Set, SetLimits};

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
            ks.expire_at(0, text, 5_000);
            let mut set = Set::new();
            for member in [&b"a"[..], b"", b"-12", &[0xff; 300]] {
                set.insert(member, &SetLimits::default());
            }
            ks.set_put(0, b"text", set);
            let put = ks.find(0, b"text").expect("just put");
            assert_eq!(ks.entry(0, put).expires_at_ms(), None);
            assert_eq!((ks.set(0, put)?.len(), ks.set(2, slot)?.len()), (4, 300));
            Ok(())
        });
    }
}
