//! Verbs on lists. When a list loses its last element, its key is removed.

use super::check::{ensure, ensure_emptied, slot_of};
use crate::keyspace::any_value::{Value, ValueMut, ValueRef};
use crate::keyspace::effect::{Ascending, Effect, Strings};
use crate::keyspace::entry::Key;
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, Slot, WrongType};
use crate::value::list::List;

impl Keyspace {
    /// The list at `slot`.
    #[inline]
    pub fn list(&self, db: DbIndex, slot: Slot) -> Result<&List, WrongType> {
        match self.value(db, slot) {
            ValueRef::List(list) => Ok(list),
            _ => Err(WrongType),
        }
    }

    /// Adds an element at the front or back of a list and creates the list if necessary. Returns its slot.
    pub fn list_push(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        front: bool,
        value: &[u8],
    ) -> Result<Slot, WrongType> {
        let slot = match slot {
            Some(slot) => slot,
            None => self.create(db, key, Value::List(List::default()).into()),
        };
        self.note_change(db, slot, |value| PreImage::list(value, |list| Some(list.before_push(front))));
        let limits = self.limits.list;
        let list = self.list_mut(db, slot)?;
        if front {
            list.push_front(value, limits);
        } else {
            list.push_back(value, limits);
        }
        self.record_on(db, slot, || Effect::ListPush { key, front, value });
        Ok(slot)
    }

    /// Makes room for `elements` more elements of `bytes` bytes in total, which may or may not follow.
    pub fn list_reserve(&mut self, db: DbIndex, slot: Slot, elements: usize, bytes: usize) {
        self.note_change(db, slot, |value| PreImage::list(value, |list| Some(list.before_form())));
        self.lay_out(db, slot, |database, limits| {
            if let Some(ValueMut::List(list)) = database.value_mut(slot) {
                list.grow_for(elements, bytes, limits.list);
            }
        });
    }

    /// Removes up to `count` elements at the front or back.
    pub fn list_pop(&mut self, db: DbIndex, slot: Slot, front: bool, count: usize) -> Result<(), WrongType> {
        if count == 0 {
            if self.list(db, slot)?.address().is_none() {
                return Ok(());
            }
            // The list may still change to its small form.
            self.note_change(db, slot, |value| PreImage::list(value, |list| Some(list.before_form())));
            self.lay_out(db, slot, |database, limits| {
                if let Some(ValueMut::List(list)) = database.value_mut(slot) {
                    list.drop_front(0, limits.list);
                }
            });
            return Ok(());
        }
        self.note_change(db, slot, |value| PreImage::list(value, |list| Some(list.before_drop(front, count))));
        let limits = self.limits.list;
        let list = self.list_mut(db, slot)?;
        let removed = if front { list.drop_front(count, limits) } else { list.drop_back(count, limits) };
        if removed == 0 {
            return Ok(());
        }
        let empty = list.is_empty();
        self.record_at(db, slot, |key| Effect::ListPop { key, front, count: removed as u64, emptied: empty });
        self.effects.recount(removed as i64 - 1);
        self.drop_if(empty, db, slot);
        Ok(())
    }

    /// Reports the list as changed to its watchers although it has lost nothing, as Redis does after every LTRIM.
    pub fn list_touch(&mut self, db: DbIndex, slot: Slot) {
        let key = self.dbs[db as usize].entry(slot).key();
        self.effects.record_uncounted(db, Effect::ListPop { key, front: true, count: 0, emptied: false });
    }

    /// Replaces the element at `index`. Returns false if there is none.
    pub fn list_set(&mut self, db: DbIndex, slot: Slot, index: usize, value: &[u8]) -> Result<bool, WrongType> {
        Ok(self.set_element(db, slot, index, value)?.is_some())
    }

    /// As [`list_set`](Self::list_set), but returns whether the element is the first of its node.
    fn set_element(&mut self, db: DbIndex, slot: Slot, index: usize, value: &[u8]) -> Result<Option<bool>, WrongType> {
        if self.list(db, slot)?.len() <= index {
            return Ok(None);
        }
        self.note_change(db, slot, |value| PreImage::list(value, |list| list.before_set(index)));
        let limits = self.limits.list;
        let is_first = self.list_mut(db, slot)?.set(index, value, limits);
        if let Some(first) = is_first {
            self.record_at(db, slot, |key| Effect::ListSet { key, index: index as u64, value, first });
        }
        Ok(is_first)
    }

    /// Inserts an element before the one at `index`, or at the end if `index` is the length. Returns false beyond that.
    pub fn list_insert(&mut self, db: DbIndex, slot: Slot, index: usize, value: &[u8]) -> Result<bool, WrongType> {
        Ok(self.insert_element(db, slot, index, value)?.is_some())
    }

    /// As [`list_insert`](Self::list_insert), but returns whether the element is the first of its node.
    fn insert_element(
        &mut self,
        db: DbIndex,
        slot: Slot,
        index: usize,
        value: &[u8],
    ) -> Result<Option<bool>, WrongType> {
        self.note_change(db, slot, |value| PreImage::list(value, |list| Some(list.before_insert(index))));
        let limits = self.limits.list;
        let is_first = self.list_mut(db, slot)?.insert(index, value, limits);
        if let Some(first) = is_first {
            self.record_at(db, slot, |key| Effect::ListInsert { key, index: index as u64, value, first });
        }
        Ok(is_first)
    }

    /// Removes up to `count` elements equal to `value`, counted from the front or back. Returns how many were removed.
    pub fn list_remove(
        &mut self,
        db: DbIndex,
        slot: Slot,
        value: &[u8],
        count: usize,
        from_back: bool,
    ) -> Result<usize, WrongType> {
        let list = self.list(db, slot)?;
        if list.address().is_none() && !list.iter().any(|element| element == value) {
            // Returns early because a small list may be embedded and should stay so.
            return Ok(0);
        }
        // A copy of the list in progress needs their positions.
        let indexes =
            if self.names_elements_of(list.address()) { list.indexes_of(value, count, from_back) } else { Vec::new() };
        let remains = indexes.len() < list.len();
        let pre_image = |list: &List| Some(list.before_remove_equal(value, count, from_back));
        self.note_change(db, slot, |whole| PreImage::list(whole, pre_image));
        if remains && !indexes.is_empty() {
            self.remove_elements(db, slot, &indexes)?;
            return Ok(indexes.len());
        }
        let limits = self.limits.list;
        let list = self.list_mut(db, slot)?;
        let removed = list.remove_equal(value, count, from_back, limits);
        let empty = list.is_empty();
        if removed > 0 {
            let count = removed as u64;
            self.record_at(db, slot, |key| Effect::ListRemove { key, value, count, from_back, emptied: empty });
            self.effects.recount(removed as i64 - 1);
            self.drop_if(empty, db, slot);
        }
        Ok(removed)
    }

    /// Removes the elements at these ascending indexes; the caller has already noted the change. Returns false if an
    /// element is missing or if none would remain.
    fn remove_elements(&mut self, db: DbIndex, slot: Slot, indexes: &[usize]) -> Result<bool, WrongType> {
        let limits = self.limits.list;
        let list = self.list_mut(db, slot)?;
        if indexes.len() == list.len() || !list.remove_at(indexes, limits) {
            return Ok(false);
        }
        let encoded = Ascending::encode(indexes.iter().map(|&index| index as u64));
        self.record_at(db, slot, |key| Effect::ListRemoveAt { key, indexes: &encoded });
        self.effects.recount(indexes.len() as i64 - 1);
        Ok(true)
    }

    /// Moves the element at one end of a list to an end of that list.
    pub fn list_rotate(&mut self, db: DbIndex, slot: Slot, from_front: bool, to_front: bool) -> Result<(), WrongType> {
        if !from_front
            && to_front
            && let list = self.list(db, slot)?
            && list.len() > 1
            && self.names_elements_of(list.address())
            && let Some(moved) = list.back().map(Key::new)
        {
            // A copy of the front of the list in progress needs the element that arrives there.
            self.list_pop(db, slot, false, 1)?;
            let key = Key::new(self.entry(db, slot).key());
            self.list_push(db, &key, Some(slot), true, &moved)?;
            return Ok(());
        }
        self.note_change(db, slot, |value| {
            PreImage::list(value, |list| Some(list.before_rotate(from_front, to_front)))
        });
        let limits = self.limits.list;
        self.list_mut(db, slot)?.rotate(from_front, to_front, limits);
        self.record_at(db, slot, |key| Effect::ListRotate { key, from_front, to_front });
        Ok(())
    }

    /// Adds a node of these elements, encoded one after the other, at the back of a list. Creates the list if
    /// necessary. Only for replay: lists make their nodes by themselves.
    fn list_push_node(&mut self, db: DbIndex, key: &[u8], elements: &[u8]) -> Result<(), Misfit> {
        let mut strings = Strings::new(elements);
        ensure(strings.by_ref().next().is_some() && strings.all(|_| true) && strings.is_empty(), Misfit::BadBytes)?;
        let slot = match self.dbs[db as usize].find(key) {
            Some(slot) => slot,
            None => self.create(db, key, Value::List(List::default()).into()),
        };
        self.note_change(db, slot, |_| None);
        self.list_mut(db, slot)?.push_node(Strings::new(elements));
        self.effects.record(db, Effect::ListNode { key, elements });
        Ok(())
    }

    fn list_mut(&mut self, db: DbIndex, slot: Slot) -> Result<&mut List, WrongType> {
        match self.value_mut(db, slot) {
            Some(ValueMut::List(list)) => Ok(list),
            _ => Err(WrongType),
        }
    }
}

/// Replays a recorded change of a list.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    if let Effect::ListPush { key, front, value } = *effect {
        let slot = ks.dbs[db as usize].find(key);
        ks.list_push(db, key, slot, front, value)?;
        return Ok(());
    }
    if let Effect::ListNode { key, elements } = *effect {
        return ks.list_push_node(db, key, elements);
    }
    let slot = slot_of(ks, db, effect.key().ok_or(Misfit::Elsewhere)?)?;
    let len = ks.list(db, slot)?.len() as u64;
    match *effect {
        Effect::ListPop { key, front, count, emptied } => {
            ensure(count <= len, Misfit::Absent)?;
            if count == 0 {
                // A new layout, if the trim gave it one, has an effect of its own.
                ks.list_touch(db, slot);
                return ensure_emptied(ks, db, key, emptied);
            }
            ks.list_pop(db, slot, front, count as usize)?;
            ensure_emptied(ks, db, key, emptied)
        }
        Effect::ListSet { index, value, first, .. } => {
            ensure(ks.set_element(db, slot, index as usize, value)? == Some(first), Misfit::Absent)
        }
        Effect::ListInsert { index, value, first, .. } => {
            ensure(ks.insert_element(db, slot, index as usize, value)? == Some(first), Misfit::Absent)
        }
        Effect::ListRemove { key, value, count, from_back, emptied } => {
            let removed = ks.list_remove(db, slot, value, count as usize, from_back)?;
            ensure(removed as u64 == count, Misfit::Absent)?;
            ensure_emptied(ks, db, key, emptied)
        }
        Effect::ListRemoveAt { indexes, .. } => {
            let mut encoded = Ascending::new(indexes);
            let indexes: Vec<usize> = encoded.by_ref().map(|index| index as usize).collect();
            ensure(encoded.is_empty(), Misfit::BadBytes)?;
            ks.note_change(db, slot, |_| None);
            ensure(ks.remove_elements(db, slot, &indexes)?, Misfit::Absent)
        }
        Effect::ListRotate { from_front, to_front, .. } => Ok(ks.list_rotate(db, slot, from_front, to_front)?),
        _ => Err(Misfit::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::replays;

    #[test]
    fn replaying_gives_the_same_lists() {
        replays(|ks| {
            let slot = ks.list_push(0, b"l", None, true, b"b")?;
            ks.list_push(0, b"l", Some(slot), true, b"a")?;
            ks.list_push(0, b"l", Some(slot), false, &[7; 9000])?;
            ks.list_push(0, b"l", Some(slot), false, b"a")?;
            ks.list_insert(0, slot, 1, b"x")?;
            ks.list_set(0, slot, 2, b"y")?;
            ks.list_rotate(0, slot, true, false)?;
            ks.list_rotate(0, slot, false, false)?;
            ks.list_remove(0, slot, b"a", 1, true)?;
            ks.list_pop(0, slot, false, 2)?;
            ks.list_touch(0, slot);
            let gone = ks.list_push(1, b"gone", None, false, b"1")?;
            ks.list_pop(1, gone, true, 5)?;
            assert!(ks.find(1, b"gone").is_none());
            let roomy = ks.list_push(1, b"roomy", None, false, b"1")?;
            for (bytes, encoding) in [(8_000, "listpack"), (9_000, "quicklist"), (9_000, "quicklist")] {
                ks.list_reserve(1, roomy, 1, bytes);
                assert_eq!(ks.value(1, roomy).encoding(), encoding);
            }
            // A list that is only touched keeps its layout, in the replay too.
            ks.list_touch(1, roomy);
            assert_eq!(ks.list(0, slot)?.iter().collect::<Vec<_>>(), [&b"x"[..], b"y"]);
            Ok(())
        });
    }
}
