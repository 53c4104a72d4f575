//! Undo: rolls back everything between [`Keyspace::begin_undo`] and [`Keyspace::roll_back`], such as the changes of a
//! failed script.
//!
//! While undo is on, each verb notes how to take its change back, **before** the change or as part of it. A rollback
//! walks the notes from the last to the first. Nothing is copied that can be moved: a replaced or removed value moves
//! into the notes instead of being freed. A change inside a value is noted in one of two ways:
//!
//! - A compact value (one small block of bytes) is copied whole, once. The copy covers all later changes of the value
//!   in the unit; no copy is needed for a key that the unit created.
//! - For a large value, and wherever it is cheaper, the [`PreImage`] of the change is noted.
//!
//! Slots are reused in reverse order of their release. In a backward walk, an entry that comes back therefore gets its
//! old slot, and the notes can name entries by slot. An entry that grows may have to move. It moves before it changes,
//! and the move is a step of its own ([`reserve`](Keyspace::reserve)). When that step is undone, the entry has its
//! old size again and fits its old place, unless an earlier note covers its content.
//!
//! The effects of the unit are cut back to where undo began. An expired key that a lookup removed comes back too,
//! because its removal was such an effect.
//!
//! **Nesting.** An inner undo can be rolled back alone. If it is committed instead, its changes are undone together
//! with the outer one. The inner undo notes everything anew, even for entries that the outer notes could restore: the
//! outer notes do not describe the state in which the inner undo began.
//!
//! **Memory.** [`undo_bytes`](Keyspace::undo_bytes) is the memory that the notes take beyond the memory that the server
//! held anyway. A value that existed before the unit and moved into a note adds nothing. A value that the unit itself
//! created is not kept, because the note that covers its key restores the earlier state without it. Once a database has
//! been emptied or swapped, its old and new values cannot be told apart, and all of them count.

pub(super) mod notes;

use notes::{Outer, SAMPLES, Step};

use super::any_value::{Value, ValueRef};
use super::db::Db;
use super::effect::What;
use super::entries::Removed;
use super::entry::{Entry, NewValue};
use super::pre_image::PreImage;
use super::{DbIndex, Keyspace, KeyspaceStats, NEVER, Slot};
use crate::value::stream::Stream;

/// Steps up to which pieces are noted even of small values. With more steps, small values are copied whole, since many
/// pieces cost more than one copy.
const PIECES_BEFORE_COPIES: usize = 64;

impl Keyspace {
    /// From here on, every change can be undone until [`commit_undo`](Self::commit_undo) or
    /// [`roll_back`](Self::roll_back).
    #[inline]
    pub fn begin_undo(&mut self) {
        if self.undo.is_on {
            return self.begin_inner_undo();
        }
        debug_assert!(self.undo.steps.is_empty(), "earlier notes have been rolled back or committed");
        self.undo.is_on = true;
        self.notes_added = true;
        self.effects.keep();
        self.undo.standing_effects = self.standing_effects;
        self.undo.stats = self.stats;
    }

    /// Whether current changes may be undone later.
    pub fn may_roll_back(&self) -> bool {
        self.undo.is_on
    }

    /// Makes the changes permanent and frees the values that they replaced.
    #[inline]
    pub fn commit_undo(&mut self) {
        if let Some(outer) = self.undo.outer.pop() {
            return self.commit_inner_undo(outer);
        }
        self.undo.is_on = false;
        self.notes_added = self.effects.are_annotated();
        self.effects.release();
        if self.undo.steps.is_empty() {
            return;
        }
        if !self.undo.replaced_dbs.is_empty() {
            // The notes name databases by their numbers before the swaps.
            self.dbs.iter_mut().for_each(Db::release_all);
        }
        for step in self.undo.steps.drain(..) {
            match step {
                Step::Removed { db, entry, .. } => {
                    self.disposal.free(entry.value);
                    self.dbs[db as usize].release();
                }
                Step::Carried { db, .. } | Step::Moved { db, .. } => self.dbs[db as usize].release(),
                Step::Replaced { value, .. } => self.disposal.free(value),
                Step::Flushed { old, .. } => self.disposal.free_database(*old),
                _ => {}
            }
        }
        self.undo.end();
    }

    /// Undoes all changes: keys, values, expiries and effects are restored. Returns how many changes there were.
    #[cold]
    pub fn roll_back(&mut self) -> usize {
        if let Some(outer) = self.undo.outer.pop() {
            return self.roll_back_inner(outer);
        }
        self.undo.is_on = false;
        self.notes_added = self.effects.are_annotated();
        let mut steps = std::mem::take(&mut self.undo.steps);
        let count = steps.len();
        let mut carried = None;
        while let Some(step) = steps.pop() {
            self.undo_step(step, &mut carried);
        }
        self.effects.cut();
        self.effects.release();
        self.standing_effects = self.undo.standing_effects;
        self.set_back_stats();
        self.undo.steps = steps;
        self.undo.end();
        // Entries added by the unit lay in chunks that may be empty now.
        self.dbs.iter_mut().for_each(Db::release_all);
        count
    }

    #[cold]
    fn begin_inner_undo(&mut self) {
        let undo = &mut self.undo;
        undo.outer.push(Outer {
            steps: undo.steps.len(),
            restorable: std::mem::take(&mut undo.restorable),
            restorable_requests: std::mem::take(&mut undo.restorable_requests),
            bytes: undo.bytes,
            standing_effects: undo.standing_effects,
            stats: undo.stats,
            effects: self.effects.keep_more(),
        });
        undo.standing_effects = self.standing_effects;
        undo.stats = self.stats;
    }

    /// Hands the notes of the inner undo to the outer one, along with the record of what they can restore. The outer
    /// undo's own such record is dropped rather than searched, because entries may have left their slots.
    #[cold]
    fn commit_inner_undo(&mut self, outer: Outer) {
        let Outer { standing_effects, stats, effects, .. } = outer;
        self.undo.standing_effects = standing_effects;
        self.undo.stats = stats;
        self.effects.keep_only(effects);
    }

    #[cold]
    fn roll_back_inner(&mut self, outer: Outer) -> usize {
        let Outer { steps: begin, restorable, restorable_requests, bytes, standing_effects, stats, effects } = outer;
        let steps = self.undo.steps.split_off(begin);
        let count = steps.len();
        // Undoing steps must not create notes.
        self.undo.is_on = false;
        let mut carried = None;
        steps.into_iter().rev().for_each(|step| self.undo_step(step, &mut carried));
        self.undo.is_on = true;
        self.effects.cut();
        self.effects.keep_only(effects);
        self.standing_effects = self.undo.standing_effects;
        self.set_back_stats();
        let undo = &mut self.undo;
        (undo.restorable, undo.restorable_requests) = (restorable, restorable_requests);
        (undo.bytes, undo.standing_effects, undo.stats) = (bytes, standing_effects, stats);
        count
    }

    /// Expired keys exist again and will be counted again. Lookups stay counted.
    fn set_back_stats(&mut self) {
        let KeyspaceStats { expired, expired_elements, .. } = self.undo.stats;
        self.stats = KeyspaceStats { expired, expired_elements, ..self.stats };
    }

    /// Approximate bytes that the notes take beyond what the server held before the unit, 0 outside of undo.
    #[inline]
    pub fn undo_bytes(&self) -> usize {
        self.undo.bytes
    }

    fn undo_step(&mut self, step: Step, carried: &mut Option<Value>) {
        match step {
            Step::Added { db, slot } => {
                self.dbs[db as usize].discard(slot).into_iter().for_each(|value| self.disposal.free(value));
            }
            Step::Removed { db, slot, entry } => {
                let back = self.dbs[db as usize].restore(entry);
                self.note_come(db, back);
                debug_assert_eq!(back, slot, "its old place was freed last");
            }
            Step::Replaced { db, slot, value, expires_at_ms } => {
                let gone = self.dbs[db as usize].set_value(slot, value.into(), expires_at_ms);
                gone.into_iter().for_each(|value| self.disposal.free(value));
                self.note_come(db, slot);
            }
            Step::CarriedTo { db, slot } => *carried = self.dbs[db as usize].remove(slot).map(|entry| entry.value),
            Step::Carried { db, slot, mut shell, is_covered } => {
                let value = carried.take().expect("a carried value has a source");
                if is_covered {
                    // The value may have become too long for the entry.
                    self.disposal.free(value);
                } else {
                    shell.value = value;
                }
                let back = self.dbs[db as usize].restore(shell);
                self.note_come(db, back);
                debug_assert_eq!(back, slot, "its old place was freed last");
            }
            Step::Moved { db, from, to, bytes } => {
                let database = &mut self.dbs[db as usize];
                if !database.entry(to).fits(bytes) {
                    // An older note covers the value, and will replace or remove it.
                    let gone = database.set_value(to, NewValue::Text(b""), NEVER);
                    gone.into_iter().for_each(|value| self.disposal.free(value));
                }
                let back = database.relocate(to, bytes);
                debug_assert_eq!(back, from, "its old place was freed last");
            }
            Step::Expiry { db, slot, at_ms } => self.dbs[db as usize].set_expiry(slot, at_ms),
            Step::Changed { db, slot, pre_image } => {
                let database = &mut self.dbs[db as usize];
                let mortal = database.entry(slot).value().elements_expire();
                // A value that was changed in place before can be changed in place now.
                if let Some(value) = database.value_mut(slot) {
                    pre_image.put_back(value, &self.limits);
                }
                database.follow_elements(slot, mortal);
            }
            Step::Flushed { db, old } => {
                let new = std::mem::replace(&mut self.dbs[db as usize], *old);
                self.disposal.free_database(new);
            }
            Step::Swapped { db, with_db } => self.dbs.swap(db as usize, with_db as usize),
        }
    }
}

/// Notes made by verbs.
impl Keyspace {
    /// Makes sure that the entry at `slot` has room for the bytes it will need. Returns the slot of the entry
    /// afterwards. Verbs call this first, so that their notes and changes refer to the new slot and are undone
    /// before the entry moves back.
    #[inline]
    #[must_use]
    pub(super) fn reserve(&mut self, db: DbIndex, slot: Slot, needed: impl FnOnce(Entry<'_>) -> usize) -> Slot {
        let entry = self.entry(db, slot);
        let bytes = needed(entry);
        if entry.has_room(bytes) { slot } else { self.relocate(db, slot, bytes) }
    }

    #[cold]
    fn relocate(&mut self, db: DbIndex, from: Slot, bytes: usize) -> Slot {
        let had = self.entry(db, from).place_bytes();
        let to = self.dbs[db as usize].relocate(from, bytes);
        if self.undo.is_on {
            self.undo.push(Step::Moved { db, from, to, bytes: had });
            self.undo.restorable.rename((from, db), (to, db));
            self.undo.restorable_requests.rename((from, db), (to, db));
        } else {
            self.dbs[db as usize].release();
        }
        to
    }

    /// Notes that a key has been added.
    #[inline]
    pub(super) fn note_added(&mut self, db: DbIndex, slot: Slot) {
        if self.notes_added {
            self.note_added_now(db, slot);
        }
    }

    fn note_added_now(&mut self, db: DbIndex, slot: Slot) {
        if self.undo.is_on {
            self.undo.push(Step::Added { db, slot });
            self.undo.restorable.add((slot, db));
        }
        if self.effects.are_annotated() {
            let key = self.dbs[db as usize].entry(slot).key();
            self.effects.note(What::Created, db, key);
        }
    }

    /// Removes the entry at `slot`, and frees or keeps it. Records no effect.
    #[inline]
    pub(super) fn take_away(&mut self, db: DbIndex, slot: Slot) {
        if self.undo.is_on {
            self.keep_entry(db, slot);
        } else {
            let database = &mut self.dbs[db as usize];
            if let Some(value) = database.discard(slot) {
                self.disposal.free(value);
            }
            database.release();
        }
    }

    fn keep_entry(&mut self, db: DbIndex, slot: Slot) {
        let database = &mut self.dbs[db as usize];
        let was_embedded = database.get(slot).is_some_and(Entry::has_embedded);
        let Some(mut entry) = database.remove(slot) else { return };
        if self.undo.forget(db, slot) {
            // In the backward walk, an older note covers this entry, and will replace or remove its value.
            self.disposal.free(entry.take_value());
        } else {
            self.undo.count_gone(db, &entry.value, was_embedded);
        }
        self.undo.push(Step::Removed { db, slot, entry });
    }

    /// Gives back all memory that holds no key, unless keys may have to come back.
    pub fn release_free(&mut self) {
        if !self.undo.is_on {
            for db in &mut self.dbs {
                db.release_all();
                db.release_spare();
            }
        }
    }

    /// Gives back memory that was freed when a key moved away, unless the key may have to come back.
    pub(super) fn release_removed(&mut self, db: DbIndex) {
        if !self.undo.is_on {
            self.dbs[db as usize].release();
        }
    }

    /// Replaces the value of the entry at `slot`, which has room for it, and makes it expire at `at_ms`. Frees or keeps
    /// the old value.
    #[inline(always)]
    pub(super) fn set_value(&mut self, db: DbIndex, slot: Slot, value: NewValue<'_>, at_ms: i64) {
        if self.notes_added {
            self.set_value_noted(db, slot, value, at_ms);
        } else if let Some(old) = self.dbs[db as usize].set_value(slot, value, at_ms) {
            self.disposal.free(old);
        }
    }

    /// As [`set_value`](Self::set_value), when the old value may have to be kept, or an overdue key has to be noted.
    #[inline(never)]
    fn set_value_noted(&mut self, db: DbIndex, slot: Slot, value: NewValue<'_>, at_ms: i64) {
        let entry = self.dbs[db as usize].entry(slot);
        if self.effects.are_annotated() && !entry.is_live(self.expired_until_ms()) {
            self.effects.note(What::Overdue, db, entry.key());
        }
        if self.undo.is_on && !self.undo.restorable.has((slot, db)) {
            self.replace_value(db, slot, value, at_ms);
        } else if let Some(old) = self.dbs[db as usize].set_value(slot, value, at_ms) {
            self.disposal.free(old);
        }
    }

    /// As [`set_value`](Self::set_value), but keeps the old value.
    fn replace_value(&mut self, db: DbIndex, slot: Slot, value: NewValue<'_>, at_ms: i64) {
        let entry = self.entry(db, slot);
        let (expires_at_ms, was_embedded) = (entry.deadline_ms(), entry.has_embedded());
        let value = self.dbs[db as usize].replace_value(slot, value, at_ms);
        self.undo.count_gone(db, &value, was_embedded);
        self.undo.push(Step::Replaced { db, slot, value, expires_at_ms });
        self.undo.restorable.add((slot, db));
    }

    /// Notes that a value is about to be changed in place. `pre_image` returns the part that will change, or `None` if
    /// a copy of the whole value is better.
    #[inline]
    pub(super) fn note_change(
        &mut self,
        db: DbIndex,
        slot: Slot,
        pre_image: impl FnOnce(ValueRef<'_>) -> Option<PreImage>,
    ) {
        if self.undo.is_on {
            self.note_change_now(db, slot, pre_image);
        }
    }

    #[inline(never)]
    fn note_change_now(&mut self, db: DbIndex, slot: Slot, pre_image: impl FnOnce(ValueRef<'_>) -> Option<PreImage>) {
        if self.undo.restorable.has((slot, db)) {
            return;
        }
        let entry = self.dbs[db as usize].entry(slot);
        let is_long = self.undo.steps.len() >= PIECES_BEFORE_COPIES;
        let pre_image = if is_long && entry.value().is_small() { None } else { pre_image(entry.value()) };
        match pre_image {
            Some(pre_image) => self.undo.push(Step::Changed { db, slot, pre_image }),
            None => {
                let (value, expires_at_ms) = (Value::from(entry.value()), entry.deadline_ms());
                self.undo.restorable.add((slot, db));
                self.undo.bytes += value.as_ref().heap_bytes(SAMPLES);
                self.undo.push(Step::Replaced { db, slot, value, expires_at_ms });
            }
        }
    }

    /// As [`note_change`](Self::note_change), for a verb that learns only during the change what changes. Returns
    /// whether the verb must [note the pre-image](Self::note_pre_image) afterwards; not if the value `is_copied`
    /// instead.
    #[inline]
    pub(super) fn must_note(&mut self, db: DbIndex, slot: Slot, is_copied: impl FnOnce(ValueRef<'_>) -> bool) -> bool {
        self.undo.is_on && self.must_note_now(db, slot, is_copied)
    }

    #[inline(never)]
    fn must_note_now(&mut self, db: DbIndex, slot: Slot, is_copied: impl FnOnce(ValueRef<'_>) -> bool) -> bool {
        if self.undo.restorable.has((slot, db)) {
            return false;
        }
        let value = self.dbs[db as usize].entry(slot).value();
        if is_copied(value) || (self.undo.steps.len() >= PIECES_BEFORE_COPIES && value.is_small()) {
            self.note_change_now(db, slot, |_| None);
            return false;
        }
        true
    }

    /// See [`must_note`](Self::must_note).
    pub(super) fn note_pre_image(&mut self, db: DbIndex, slot: Slot, pre_image: PreImage) {
        self.undo.push(Step::Changed { db, slot, pre_image });
    }

    /// Notes that a stream's memory of producers' requests is about to change. The memory is copied once, since a
    /// pre-image would take almost as much.
    #[inline]
    pub(super) fn note_requests(&mut self, db: DbIndex, slot: Slot) {
        if self.undo.is_on && !self.undo.restorable_requests.has((slot, db)) {
            self.note_change_now(db, slot, |value| PreImage::stream(value, Stream::before_requests));
            self.undo.restorable_requests.add((slot, db));
        }
    }

    /// Notes that a key's expiry is about to change.
    #[inline]
    pub(super) fn note_expiry(&mut self, db: DbIndex, slot: Slot) {
        if self.undo.is_on && !self.undo.restorable.has((slot, db)) {
            let at_ms = self.entry(db, slot).deadline_ms();
            self.undo.push(Step::Expiry { db, slot, at_ms });
        }
    }

    /// Notes that a key has been removed from `slot` and its value is about to move to another key. Returns whether the
    /// notes could already restore it.
    #[inline]
    pub(super) fn note_carried(&mut self, db: DbIndex, slot: Slot, entry: &Removed) -> bool {
        if !self.undo.is_on {
            return false;
        }
        let is_covered = self.undo.forget(db, slot);
        self.undo.push(Step::Carried { db, slot, shell: entry.shell(), is_covered });
        is_covered
    }

    /// Notes that a key has been added with the value carried from another key. If the notes covered the value there,
    /// they cover it here as well.
    #[inline]
    pub(super) fn note_carried_to(&mut self, db: DbIndex, slot: Slot, is_restorable: bool) {
        if self.undo.is_on {
            self.undo.push(Step::CarriedTo { db, slot });
            if is_restorable {
                self.undo.restorable.add((slot, db));
            }
        }
    }

    /// Frees a replaced database, on the disposal thread if `meanwhile` is set, or keeps it for undo.
    pub(super) fn retire_database(&mut self, db: DbIndex, old: Db, meanwhile: bool) {
        if self.undo.is_on {
            if self.undo.replaced_dbs.contains(&db) {
                let entries = old.slots().filter_map(|slot| old.get(slot));
                let values: usize = entries.map(|entry| entry.mem_bytes(SAMPLES)).sum();
                self.undo.bytes += values + old.overhead_bytes();
            }
            self.undo.push(Step::Flushed { db, old: Box::new(old) });
            self.undo.replace_database(db);
        } else if meanwhile {
            self.disposal.free_database(old);
        }
    }

    /// Notes that two databases have been swapped.
    pub(super) fn note_swapped(&mut self, db: DbIndex, with_db: DbIndex) {
        if self.undo.is_on {
            self.undo.push(Step::Swapped { db, with_db });
            self.undo.replace_database(db);
            self.undo.replace_database(with_db);
        }
    }
}

#[cfg(test)]
mod tests;
