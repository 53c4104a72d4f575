//! Taking back what a script did: everything between [`Keyspace::begin_undo`] and [`Keyspace::roll_back`].
//!
//! While it is on, each verb notes how its change is taken back **before** or while it makes it, and rolling back walks the
//! notes from the last to the first. Nothing is copied that can be moved: a value that is replaced or removed goes into the
//! notes instead of being freed. What changes inside a value is noted in one of two ways:
//!
//! - a compact value (one small block of bytes) is copied whole, once; whatever happens to it later in the unit is covered by
//!   that copy, as it is for a key that the unit created;
//! - of a large one, and where it is cheaper, the [`PreImage`] that changes is noted.
//!
//! Slots are handed out last freed, first used. Walking backwards, an entry that comes back therefore gets the slot that it
//! had, and the notes can name entries by slot. One that grows may have to move. It does so before it changes, which is a step of its
//! own ([`reserve`](Keyspace::reserve)): when that is taken back, the entry has its old size again and fits where it was, unless an
//! earlier note covers what it holds.
//!
//! The effects of the unit are cut back to where it began. An expired key that a lookup removed comes back too: its removal
//! was such an effect.
//!
//! **Part of it.** Undo nests: what began inside of another one can be taken back alone, or stays, and then goes with the other one.
//! The inner one notes everything anew, also of entries that the outer notes could restore, for those know nothing of the moment when it
//! began.
//!
//! **Memory.** [`undo_bytes`](Keyspace::undo_bytes) is what the notes add to what the server held anyway. A value that stood there
//! before the unit and was moved into a note adds nothing; one that the unit itself brought is not kept at all, for whatever it
//! held, the note that covers its key takes that back. After databases were emptied or changed places nobody knows which values
//! those are, and all of these databases count.

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

/// Notes of one kind of change up to which pieces are preferred even where a copy would do: more of them cost more than it.
const PIECES_BEFORE_COPIES: usize = 64;

impl Keyspace {
    /// From here on every change can be taken back, until [`commit_undo`](Self::commit_undo) or
    /// [`roll_back`](Self::roll_back).
    #[inline]
    pub fn begin_undo(&mut self) {
        if self.undo.is_on {
            return self.begin_inner_undo();
        }
        debug_assert!(self.undo.steps.is_empty(), "what was noted has been taken back, or stays");
        self.undo.is_on = true;
        self.notes_added = true;
        self.effects.keep();
        self.undo.standing_effects = self.standing_effects;
        self.undo.stats = self.stats;
    }

    /// Whether what is changed now may be taken back later.
    pub fn may_roll_back(&self) -> bool {
        self.undo.is_on
    }

    /// The changes stay. What they replaced is freed.
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
            // The notes name databases by the numbers that they had.
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

    /// Takes all changes back: keys, values, expiries and effects are as they were. Answers how many changes there were.
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
            self.take_back(step, &mut carried);
        }
        self.effects.cut();
        self.effects.release();
        self.standing_effects = self.undo.standing_effects;
        self.set_back_stats();
        self.undo.steps = steps;
        self.undo.end();
        // What the unit had added lay in chunks that may be empty now.
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

    /// The notes of the inner one become those of the outer one. What they can restore they can for it, too; what its own could is not
    /// looked through, for entries may have left their slots.
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
        // Nothing is noted of how notes are taken back.
        self.undo.is_on = false;
        let mut carried = None;
        steps.into_iter().rev().for_each(|step| self.take_back(step, &mut carried));
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

    /// What expired is there again, and will be counted again. Lookups stay counted.
    fn set_back_stats(&mut self) {
        let KeyspaceStats { expired, expired_elements, .. } = self.undo.stats;
        self.stats = KeyspaceStats { expired, expired_elements, ..self.stats };
    }

    /// Bytes that the notes take beyond what the server held before the unit, approximately; 0 outside of one.
    #[inline]
    pub fn undo_bytes(&self) -> usize {
        self.undo.bytes
    }

    fn take_back(&mut self, step: Step, carried: &mut Option<Value>) {
        match step {
            Step::Added { db, slot } => {
                self.dbs[db as usize].discard(slot).into_iter().for_each(|value| self.disposal.free(value));
            }
            Step::Removed { db, slot, entry } => {
                let back = self.dbs[db as usize].restore(entry);
                self.note_come(db, back);
                debug_assert_eq!(back, slot, "the place that it had was freed last");
            }
            Step::Replaced { db, slot, value, expires_at_ms } => {
                let gone = self.dbs[db as usize].set_value(slot, value.into(), expires_at_ms);
                gone.into_iter().for_each(|value| self.disposal.free(value));
                self.note_come(db, slot);
            }
            Step::CarriedTo { db, slot } => *carried = self.dbs[db as usize].remove(slot).map(|entry| entry.value),
            Step::Carried { db, slot, mut shell, is_covered } => {
                let value = carried.take().expect("a value that was carried off came from somewhere");
                if is_covered {
                    // It may have become longer, and not fit any more.
                    self.disposal.free(value);
                } else {
                    shell.value = value;
                }
                let back = self.dbs[db as usize].restore(shell);
                self.note_come(db, back);
                debug_assert_eq!(back, slot, "the place that it had was freed last");
            }
            Step::Moved { db, from, to, bytes } => {
                let database = &mut self.dbs[db as usize];
                if !database.entry(to).fits(bytes) {
                    // The note that covers it comes later, and gives it another value or takes it away.
                    let gone = database.set_value(to, NewValue::Text(b""), NEVER);
                    gone.into_iter().for_each(|value| self.disposal.free(value));
                }
                let back = database.relocate(to, bytes);
                debug_assert_eq!(back, from, "the place that it had was freed last");
            }
            Step::Expiry { db, slot, at_ms } => self.dbs[db as usize].set_expiry(slot, at_ms),
            Step::Changed { db, slot, pre_image } => {
                let database = &mut self.dbs[db as usize];
                let mortal = database.entry(slot).value().elements_expire();
                // What was changed in place can be now.
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

/// What verbs note.
impl Keyspace {
    /// Makes sure that the entry at `slot` has as many bytes as it will take. Answers where it is then. A verb does this first: what it
    /// notes and changes later is at the new slot, and taken back before the entry moves back.
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

    /// A key has been added.
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

    /// Removes the entry at `slot`, and frees it or keeps it. No effect.
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
            // Walking backwards, the note that covers it comes later, and gives it another value or takes it away.
            self.disposal.free(entry.take_value());
        } else {
            self.undo.count_gone(db, &entry.value, was_embedded);
        }
        self.undo.push(Step::Removed { db, slot, entry });
    }

    /// Gives all memory back that holds no key, unless keys may have to come back.
    pub fn release_free(&mut self) {
        if !self.undo.is_on {
            for db in &mut self.dbs {
                db.release_all();
                db.release_spare();
            }
        }
    }

    /// Gives memory back that is free since a key was moved away, unless the key may have to come back.
    pub(super) fn release_removed(&mut self, db: DbIndex) {
        if !self.undo.is_on {
            self.dbs[db as usize].release();
        }
    }

    /// Gives the entry at `slot`, which has room for it, another value and lets it expire at `at_ms`. The old value is freed or kept.
    #[inline(always)]
    pub(super) fn set_value(&mut self, db: DbIndex, slot: Slot, value: NewValue<'_>, at_ms: i64) {
        if self.notes_added {
            self.set_value_noted(db, slot, value, at_ms);
        } else if let Some(old) = self.dbs[db as usize].set_value(slot, value, at_ms) {
            self.disposal.free(old);
        }
    }

    /// As [`set_value`](Self::set_value), where the old value may be to be kept, or is noted if it had expired.
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

    /// As [`set_value`](Self::set_value), where the old value is to be kept.
    fn replace_value(&mut self, db: DbIndex, slot: Slot, value: NewValue<'_>, at_ms: i64) {
        let entry = self.entry(db, slot);
        let (expires_at_ms, was_embedded) = (entry.deadline_ms(), entry.has_embedded());
        let value = self.dbs[db as usize].replace_value(slot, value, at_ms);
        self.undo.count_gone(db, &value, was_embedded);
        self.undo.push(Step::Replaced { db, slot, value, expires_at_ms });
        self.undo.restorable.add((slot, db));
    }

    /// A value is about to be changed in place. `pre_image` tells from the value what of it will change; `None`: that is not
    /// worth telling, a copy of all is better.
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

    /// A value is about to be changed in place by a verb that learns only then what changes. Answers whether it must
    /// [note the pre_image](Self::note_pre_image) afterwards; not if the value `is_copied` instead.
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

    /// What a stream remembers of producers' requests is about to change. It is copied once: to tell what of it changes would
    /// take almost as much.
    #[inline]
    pub(super) fn note_requests(&mut self, db: DbIndex, slot: Slot) {
        if self.undo.is_on && !self.undo.restorable_requests.has((slot, db)) {
            self.note_change_now(db, slot, |value| PreImage::stream(value, Stream::before_requests));
            self.undo.restorable_requests.add((slot, db));
        }
    }

    /// A key's expiry is about to change.
    #[inline]
    pub(super) fn note_expiry(&mut self, db: DbIndex, slot: Slot) {
        if self.undo.is_on && !self.undo.restorable.has((slot, db)) {
            let at_ms = self.entry(db, slot).deadline_ms();
            self.undo.push(Step::Expiry { db, slot, at_ms });
        }
    }

    /// A key has been removed from `slot` whose value is about to move to another one. Answers whether it was restorable.
    #[inline]
    pub(super) fn note_carried(&mut self, db: DbIndex, slot: Slot, entry: &Removed) -> bool {
        if !self.undo.is_on {
            return false;
        }
        let is_covered = self.undo.forget(db, slot);
        self.undo.push(Step::Carried { db, slot, shell: entry.shell(), is_covered });
        is_covered
    }

    /// A key has been added with the value that was carried off. If that was covered where it was, it is here.
    #[inline]
    pub(super) fn note_carried_to(&mut self, db: DbIndex, slot: Slot, is_restorable: bool) {
        if self.undo.is_on {
            self.undo.push(Step::CarriedTo { db, slot });
            if is_restorable {
                self.undo.restorable.add((slot, db));
            }
        }
    }

    /// Frees a database that has been replaced, or keeps it. `meanwhile`: on the other thread.
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

    /// Two databases have changed places.
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
