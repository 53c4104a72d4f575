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
//! **Memory.** [`undo_bytes`](Keyspace::undo_bytes) is what the notes add to what the server held anyway. A value that stood there
//! before the unit and was moved into a note adds nothing; one that the unit itself brought is not kept at all, for whatever it
//! held, the note that covers its key takes that back. After databases were emptied or changed places nobody knows which values
//! those are, and all of these databases count.

use std::collections::HashSet;

use super::any_value::{Value, ValueRef};
use super::db::Db;
use super::effect::What;
use super::entries::Removed;
use super::entry::{Entry, NewValue, TEXT_MAX_BYTES};
use super::pre_image::PreImage;
use super::{DbIndex, Keyspace, KeyspaceStats, NEVER, Slot};
use crate::value::stream::Stream;
use crate::value::string::StringValue;

/// Notes of one kind of change up to which pieces are preferred even where a copy would do: more of them cost more than it.
const PIECES_BEFORE_COPIES: usize = 64;

/// Entries up to which a look through a list is faster than a hash.
const RESTORABLE_FEW: usize = 16;

/// Elements by which the bytes of a large value are judged.
const SAMPLES: usize = 5;

/// Bytes that a note takes: its step, and its place in a table of what is restorable.
const NOTE_BYTES: usize = size_of::<Step>() + 2 * size_of::<u64>();

/// The notes. Empty and off between two scripts.
#[derive(Default)]
pub(super) struct Undo {
    is_on: bool,
    steps: Vec<Step>,
    /// Entries of which the notes can restore value and expiry already.
    restorable: Restorable,
    /// Streams of which they can restore what producers requested.
    restorable_requests: Restorable,
    /// Databases that were emptied or changed places.
    replaced_dbs: Vec<DbIndex>,
    /// See [`undo_bytes`](Keyspace::undo_bytes).
    bytes: usize,
    /// How many effects that stand there had been.
    standing_effects: u64,
    stats: KeyspaceStats,
}

/// How one change is taken back.
enum Step {
    /// A key was added: it goes.
    Added { db: DbIndex, slot: Slot },
    /// A key was removed: it comes back.
    Removed { db: DbIndex, slot: Slot, entry: Removed },
    /// A key got another value or, covered by this note, another expiry.
    Replaced { db: DbIndex, slot: Slot, value: Value, expires_at_ms: i64 },
    /// A key was removed and its value moved to where the next `CarriedTo` says. Of one that `is_covered` an earlier note has the value.
    Carried { db: DbIndex, slot: Slot, shell: Removed, is_covered: bool },
    /// A key was added with the value of another one.
    CarriedTo { db: DbIndex, slot: Slot },
    /// A key moved to another slot, where it has more bytes. It had these.
    Moved { db: DbIndex, from: Slot, to: Slot, bytes: usize },
    /// A key got another expiry.
    Expiry { db: DbIndex, slot: Slot, at_ms: i64 },
    /// A part of a value was changed.
    Changed { db: DbIndex, slot: Slot, pre_image: PreImage },
    /// A database was emptied.
    Flushed { db: DbIndex, old: Box<Db> },
    /// Two databases changed places.
    Swapped { db: DbIndex, with_db: DbIndex },
}

impl Undo {
    /// Whether changes are noted.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    fn push(&mut self, step: Step) {
        self.bytes += NOTE_BYTES + step.heap_bytes();
        self.steps.push(step);
    }

    /// Bytes of a value that has left the database, if the unit may have brought it, or if it `was_embedded`. Like a short text, which lay
    /// inside of its entry, that is a copy.
    #[inline]
    fn count_gone(&mut self, db: DbIndex, value: &Value, was_embedded: bool) {
        let was_text = matches!(value, Value::String(StringValue::Heap(text)) if text.len() <= TEXT_MAX_BYTES);
        if was_text || was_embedded || self.replaced_dbs.contains(&db) {
            self.bytes += value.as_ref().heap_bytes(SAMPLES);
        }
    }

    /// An entry has left its slot. Answers whether the notes could restore it.
    #[inline]
    fn forget(&mut self, db: DbIndex, slot: Slot) -> bool {
        self.restorable_requests.remove((slot, db));
        self.restorable.remove((slot, db))
    }

    fn replace_database(&mut self, db: DbIndex) {
        self.restorable.clear();
        self.restorable_requests.clear();
        if !self.replaced_dbs.contains(&db) {
            self.replaced_dbs.push(db);
        }
    }

    /// Forgets what the unit did, of which the steps have been taken out.
    fn end(&mut self) {
        self.restorable.clear();
        self.restorable_requests.clear();
        self.replaced_dbs.clear();
        self.bytes = 0;
    }

    /// Gives back the memory that was kept for the next script.
    pub(super) fn give_back(&mut self) {
        self.steps.shrink_to(0);
    }
}

impl Step {
    /// Bytes outside of it, values that left the keyspace not counted.
    fn heap_bytes(&self) -> usize {
        match self {
            Step::Removed { entry, .. } | Step::Carried { shell: entry, .. } => entry.key.heap_bytes(),
            Step::Changed { pre_image, .. } => pre_image.heap_bytes(),
            Step::Flushed { .. } => size_of::<Db>(),
            _ => 0,
        }
    }
}

/// Names an entry, as long as it stands there.
type Name = (Slot, DbIndex);

/// A set of entries. One that leaves its slot leaves the set, too, so that no other is taken for it.
#[derive(Default)]
struct Restorable {
    few: Vec<Name>,
    many: HashSet<Name>,
}

impl Restorable {
    #[inline]
    fn has(&self, one: Name) -> bool {
        self.few.contains(&one) || (!self.many.is_empty() && self.many.contains(&one))
    }

    #[inline]
    fn add(&mut self, one: Name) {
        if self.few.len() < RESTORABLE_FEW {
            self.few.push(one);
        } else {
            self.many.insert(one);
        }
    }

    /// Takes an entry out. Answers whether it was in the set.
    #[inline]
    fn remove(&mut self, one: Name) -> bool {
        if let Some(at) = self.few.iter().position(|name| *name == one) {
            self.few.swap_remove(at);
            return true;
        }
        !self.many.is_empty() && self.many.remove(&one)
    }

    /// An entry that may be in the set has another name.
    fn rename(&mut self, from: Name, to: Name) {
        if self.remove(from) {
            self.add(to);
        }
    }

    fn clear(&mut self) {
        self.few.clear();
        if !self.many.is_empty() {
            self.many = HashSet::new();
        }
    }
}

impl Keyspace {
    /// From here on every change can be taken back, until [`commit_undo`](Self::commit_undo) or
    /// [`roll_back`](Self::roll_back). Does not nest.
    #[inline]
    pub fn begin_undo(&mut self) {
        debug_assert!(!self.undo.is_on && self.undo.steps.is_empty(), "scripts do not nest");
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
        // What expired is there again, and will be counted again. Lookups stay counted.
        let KeyspaceStats { expired, expired_elements, .. } = self.undo.stats;
        self.stats = KeyspaceStats { expired, expired_elements, ..self.stats };
        self.undo.steps = steps;
        self.undo.end();
        // What the unit had added lay in chunks that may be empty now.
        self.dbs.iter_mut().for_each(Db::release_all);
        count
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
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::effect::Recording;
    use crate::value::stream::StreamId;

    fn keyspace() -> Keyspace {
        let mut ks = Keyspace::new(2, Rng::seeded(1));
        ks.begin_unit(1_000, Recording::Full);
        ks
    }

    fn text(ks: &Keyspace, key: &[u8]) -> Option<String> {
        let ValueRef::String(text) = ks.live(0, key)?.value() else { return None };
        Some(String::from_utf8_lossy(&text.text()).into_owned())
    }

    #[test]
    fn the_record_of_a_unit_ends_where_the_script_began() {
        let mut ks = keyspace();
        ks.put(0, b"before", b"1");
        let (recorded, count) = (ks.effects().as_bytes().to_vec(), ks.effects().count());
        ks.begin_undo();
        ks.put(0, b"before", b"2");
        ks.put(0, b"new", b"3");
        ks.roll_back();
        assert_eq!((ks.effects().as_bytes(), ks.effects().count()), (&recorded[..], count));
        assert_eq!((text(&ks, b"before").as_deref(), text(&ks, b"new")), (Some("1"), None));
        ks.begin_undo();
        ks.put(0, b"before", b"2");
        ks.commit_undo();
        assert_eq!((text(&ks, b"before").as_deref(), ks.effects().count()), (Some("2"), count + 1));
    }

    #[test]
    fn a_table_that_had_no_deadlines_has_none_again() {
        let mut ks = keyspace();
        let long = [b'x'; 100];
        ks.hash_set(0, b"hash", None, b"field", &long).expect("it is new");
        ks.set_add(0, b"set", None, &long).expect("it is new");
        ks.begin_undo();
        for (key, element) in [(&b"hash"[..], &b"field"[..]), (b"set", &long)] {
            let slot = ks.find(0, key).expect("it is there");
            assert!(ks.expire_element_at(0, slot, element, 2_000));
        }
        ks.roll_back();
        let has_deadlines = |key: &[u8]| match ks.live(0, key).expect("it is there").value() {
            ValueRef::Hash(hash) => hash.deadlines().is_some(),
            ValueRef::Set(set) => set.deadlines().is_some(),
            _ => unreachable!("no other was made"),
        };
        assert_eq!([b"hash".as_slice(), b"set"].map(has_deadlines), [false, false]);
    }

    #[test]
    fn entries_come_back_to_their_slots() {
        let mut ks = keyspace();
        let slots = [b"a", b"b", b"c", b"d"].map(|key| ks.put(0, key, b"v"));
        ks.begin_undo();
        ks.rename(0, slots[0], b"b");
        ks.remove(0, slots[2]);
        ks.put(0, b"x", b"");
        ks.put(0, b"y", b"");
        ks.move_to(0, slots[3], 1);
        ks.flush(0, true);
        ks.put(0, b"z", b"");
        ks.swap(0, 1);
        ks.roll_back();
        assert_eq!([b"a", b"b", b"c", b"d"].map(|key| ks.find(0, key)), slots.map(Some));
        assert_eq!((ks.db(0).len(), ks.db(1).len()), (4, 0));
    }

    #[test]
    fn entries_that_grew_and_moved_come_back_to_their_slots() {
        let mut ks = keyspace();
        let before = [(b"a", "v"), (b"b", "v"), (b"c", "v"), (b"d", "v"), (b"e", "14 bytes in it")];
        let slots = before.map(|(key, value)| ks.put(0, key, value.as_bytes()));
        ks.begin_undo();
        let a = ks.replace(0, slots[0], b"14 bytes in it");
        assert!(a != slots[0] || !cfg!(debug_assertions), "only debug builds let it move");
        let a = ks.expire_at(0, a, 9_000);
        ks.remove(0, a);
        let b = ks.make_growable(0, slots[1]);
        let (b, _) = ks.set_range(0, b"b", Some(b), 5, b"x").expect("a string");
        let b = ks.expire_at(0, b, 9_000);
        ks.rename(0, b, b"c");
        let d = ks.put_text(0, b"d", Some(slots[3]), b"0123456789");
        ks.put(0, b"x", b"takes a place");
        ks.copy(0, d, 0, b"y");
        assert!(ks.splice(0, d, 1, 1, b"x").is_some());
        // Gone while it is short, it comes back to a place that has room for what it held before.
        let e = ks.replace(0, slots[4], b"");
        ks.remove(0, e);
        ks.roll_back();
        assert_eq!(before.map(|(key, _)| ks.find(0, key)), slots.map(Some));
        assert_eq!(before.map(|(key, _)| text(&ks, key)), before.map(|(_, value)| Some(value.to_owned())));
        assert_eq!((ks.db(0).len(), ks.db(0).volatile()), (5, 0));
    }

    /// Its new name took it to a place where it could grow, and what it had grown to did not fit where it came from.
    #[test]
    fn a_covered_key_that_grew_under_another_name_comes_back_to_its_slot() {
        let long = [b'L'; 130];
        for moves in [false, true] {
            let mut ks = keyspace();
            let slots = [b"bb", b"cc"].map(|key| ks.put(0, key, b"ten bytes!"));
            let until = if moves { 9_000 } else { NEVER };
            let slot = ks.expire_at(0, slots[0], until);
            ks.begin_undo();
            _ = ks.put_until(0, b"bb", Some(slot), b"10 others!", until);
            ks.remove(0, slots[1]);
            let slot = ks.find(0, b"bb").expect("it is there");
            if moves {
                ks.move_to(0, slot, 1);
                ks.put(1, b"bb", b"more than ten bytes");
            } else {
                ks.rename(0, slot, &long);
                ks.put(0, &long, b"more than 22 bytes are here");
            }
            ks.roll_back();
            assert_eq!([b"bb", b"cc"].map(|key| text(&ks, key).unwrap_or_default()), ["ten bytes!"; 2]);
            assert_eq!((ks.db(0).len(), ks.db(1).len()), (2, 0));
        }
    }

    #[test]
    fn a_short_text_is_no_raw_one_after_all() {
        let mut ks = keyspace();
        let slot = ks.put(0, b"k", &[b'x'; 200]);
        let bytes = ks.db(0).entry(slot).mem_bytes(5);
        ks.begin_undo();
        ks.set_range(0, b"k", Some(slot), 0, b"a").expect("a string");
        ks.roll_back();
        let slot = ks.find(0, b"k").expect("it is there");
        assert_eq!(ks.db(0).entry(slot).mem_bytes(5), bytes);
    }

    /// All that a database holds, and where.
    fn held(ks: &Keyspace, db: DbIndex) -> Vec<String> {
        let shown = |slot| {
            let entry = ks.db(db).entry(slot);
            let value = match entry.value() {
                ValueRef::String(string) => format!("{} {}", string.encoding(), string.text().escape_ascii()),
                ValueRef::Hash(hash) => format!("{hash:?}"),
                ValueRef::List(list) => format!("{:?}", list.iter().collect::<Vec<_>>()),
                _ => unreachable!("no other was made"),
            };
            format!("{:?} {}: {value} until {:?}", slot, entry.key().escape_ascii(), entry.expires_at_ms())
        };
        let mut all: Vec<String> = ks.db(db).slots().map(shown).collect();
        all.sort();
        all
    }

    /// One verb, on keys of all lengths, and on few enough that they meet.
    fn change(ks: &mut Keyspace, (verb, at, key, to, len): (u8, u8, u8, u8, usize)) {
        const LENGTHS: [usize; 7] = [2, 3, 14, 20, 21, 130, 300];
        let name = |number: u8| vec![b'a' + number; LENGTHS[usize::from(number)]];
        let (db, at, key, to, value) = (u16::from(at % 2), at / 2, name(key), name(to), vec![b'v'; len]);
        let found = ks.find(db, &key);
        let until = if at == 0 { NEVER } else { 1_000_000 + i64::from(at) };
        let Some(slot) = found else {
            match verb % 4 {
                0 => _ = ks.put(db, &key, &value),
                1 => _ = ks.put_until(db, &key, None, &value, until),
                2 => _ = ks.hash_set(db, &key, None, b"field", &value).expect("a hash"),
                // Of many short elements, which are embedded when the unit ends, or of one.
                _ => {
                    let (elements, element) = if len < 200 { (6, &value[..len / 6]) } else { (1, &value[..]) };
                    let mut slot = None;
                    (0..elements)
                        .for_each(|_| slot = Some(ks.list_push(db, &key, slot, true, element).expect("a list")));
                }
            }
            return;
        };
        let is_string = matches!(ks.db(db).entry(slot).value(), ValueRef::String(_));
        match verb {
            0 => _ = ks.put(db, &key, &value),
            1 => _ = ks.put_until(db, &key, found, &value, until),
            2 => ks.remove(db, slot),
            3 if to != key => ks.rename(db, slot, &to),
            4 if ks.find(1 - db, &key).is_none() => ks.move_to(db, slot, 1 - db),
            5 if ks.find(db, &to).is_none() => ks.copy(db, slot, db, &to),
            6 | 7 => _ = ks.expire_at(db, slot, until),
            8 if is_string => _ = ks.replace(db, slot, &value),
            9 if is_string => _ = ks.set_range(db, &key, found, 3, &value).expect("a string"),
            10 if is_string => _ = ks.splice(db, slot, 0, 1, &value),
            11 if is_string => _ = ks.put_integer(db, &key, found, (len as i64) << (len % 48)),
            12 if is_string => _ = ks.put_text(db, &key, found, &value),
            13 if len > 350 => ks.swap(0, 1),
            14 if len > 350 => ks.flush(db, true),
            _ => match ks.value(db, slot) {
                ValueRef::Hash(_) => _ = ks.hash_set(db, &key, found, b"field", &value),
                ValueRef::List(_) => _ = ks.list_push(db, &key, found, true, &value),
                _ => {}
            },
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2000 }))]
        /// Whatever a script did, all is as it was, and where it was.
        #[test]
        fn taken_back_to_the_slot(
            scripts in vec((any::<bool>(), vec((0..20u8, 0..8u8, 0..7u8, 0..7u8, 0..400usize), 0..if cfg!(miri) { 10 } else { 30 })), 1..8),
        ) {
            let mut ks = keyspace();
            for (stays, verbs) in scripts {
                let before = [0, 1].map(|db| held(&ks, db));
                ks.begin_undo();
                verbs.into_iter().for_each(|verb| change(&mut ks, verb));
                if stays {
                    ks.commit_undo();
                } else {
                    ks.roll_back();
                    prop_assert_eq!([0, 1].map(|db| held(&ks, db)), before);
                }
                ks.begin_unit(1_000, Recording::Full);
                ks.settle();
            }
        }
    }

    #[test]
    fn a_key_that_takes_the_place_of_a_covered_one_is_not_taken_for_it() {
        for moves in [false, true] {
            let mut ks = keyspace();
            let slot = ks.put(0, b"covered", b"1");
            let other = ks.put(1, b"other", b"2");
            ks.begin_undo();
            assert_eq!(ks.put(0, b"covered", b"3"), slot);
            let leaves = !moves || ks.put(0, b"covered", b"14 bytes in it") != slot;
            if !moves {
                ks.remove(0, slot);
            }
            ks.move_to(1, other, 0);
            assert_eq!(ks.find(0, b"other") == Some(slot), leaves);
            ks.put(0, b"other", b"4");
            ks.roll_back();
            assert_eq!(text(&ks, b"covered").as_deref(), Some("1"));
            ks.swap(0, 1);
            assert_eq!(text(&ks, b"other").as_deref(), Some("2"));
        }
    }

    #[test]
    fn an_expired_key_that_was_met_expires_again() {
        let mut ks = keyspace();
        let slot = ks.put(0, b"k", b"v");
        _ = ks.expire_at(0, slot, 2_000);
        ks.begin_unit(2_000, Recording::Full);
        ks.begin_undo();
        assert!(ks.find(0, b"k").is_none());
        ks.put(0, b"k", b"new");
        ks.roll_back();
        assert_eq!((ks.db(0).len(), ks.db(0).volatile(), ks.effects().is_empty()), (1, 1, true));
        assert!(!ks.reclaim_expired(10));
        assert_eq!((ks.db(0).len(), ks.effects().is_empty(), ks.stats.expired), (0, false, 1));
    }

    #[test]
    fn a_key_of_another_database_is_not_taken_for_one_that_is_covered() {
        let request = |ks: &mut Keyspace, slot, iid: &[u8]| ks.request_add(0, slot, b"p", iid, StreamId::MIN);
        for swaps in [false, true] {
            let mut ks = keyspace();
            // Each database counts slots and versions on its own.
            for db in [0, 1] {
                ks.put(db, b"k", b"before");
                let slot = ks.stream_create(db, b"x");
                ks.request_limits(db, slot, 100, 100).expect("a stream");
            }
            ks.begin_undo();
            let find = |ks: &mut Keyspace, db, key: &[u8]| ks.find(db, key).expect("it is there");
            ks.put(0, b"k", b"after");
            let slot = find(&mut ks, 0, b"x");
            request(&mut ks, slot, b"1").expect("a stream");
            if swaps {
                ks.swap(0, 1);
            } else {
                ks.flush(0, true);
                for key in [b"k", b"x"] {
                    let slot = find(&mut ks, 1, key);
                    ks.move_to(1, slot, 0);
                }
            }
            ks.put(0, b"k", b"after");
            let slot = find(&mut ks, 0, b"x");
            request(&mut ks, slot, b"1").expect("a stream");
            ks.roll_back();
            for _ in 0..2 {
                assert_eq!(text(&ks, b"k").as_deref(), Some("before"), "swaps: {swaps}");
                let slot = find(&mut ks, 0, b"x");
                assert_eq!(ks.stream(0, slot).expect("a stream").idempotency().map(|all| all.added()), Some(0));
                ks.swap(0, 1);
            }
        }
    }

    #[test]
    fn a_key_that_comes_back_again_and_again_gathers_no_timers() {
        let mut ks = keyspace();
        let slot = ks.put(0, b"lock", b"v");
        _ = ks.expire_at(0, slot, 9_000_000);
        for _ in 0..5_000 {
            ks.begin_undo();
            let slot = ks.find(0, b"lock").expect("it is always there again");
            ks.remove(0, slot);
            ks.roll_back();
        }
        assert!(ks.db(0).timers().len() < 2_000, "{} timers", ks.db(0).timers().len());
    }

    #[test]
    fn values_that_the_unit_brought_are_not_kept() {
        let mut ks = keyspace();
        let large = [b'x'; 100_000];
        ks.put(0, b"old", &large);
        ks.begin_undo();
        for turn in 0..100 {
            let slot = ks.put(0, b"a", &large);
            match turn % 3 {
                0 => ks.remove(0, slot),
                1 => ks.rename(0, slot, b"b"),
                _ => ks.move_to(0, slot, 1),
            }
            for (db, key) in [(0, b"b"), (1, b"a")] {
                let slot = ks.find(db, key);
                slot.into_iter().for_each(|slot| ks.remove(db, slot));
            }
            ks.put(0, b"old", &large);
        }
        let old = ks.find(0, b"old").expect("it was put");
        ks.remove(0, old);
        assert!(ks.undo_bytes() < 100_000, "{} bytes", ks.undo_bytes());
        ks.roll_back();
        assert_eq!((ks.undo_bytes(), ks.db(0).len(), ks.db(1).len()), (0, 1, 0));
        assert_eq!(text(&ks, b"old").map(|text| text.len()), Some(100_000));
    }

    #[test]
    fn what_is_kept_of_values_counts() {
        let mut ks = keyspace();
        let large = [b'x'; 100_000];
        let list = ks.list_push(0, b"l", None, true, &large).expect("a list");
        ks.list_push(0, b"l", Some(list), true, b"stays").expect("a list");
        let names = || (0..500u32).map(|number| number.to_be_bytes());
        names().for_each(|name| _ = ks.put(0, &name, &large[..200]));
        let grows = |ks: &mut Keyspace, change: &dyn Fn(&mut Keyspace)| {
            let before = ks.undo_bytes();
            change(ks);
            ks.undo_bytes() >= before + 90_000
        };
        ks.begin_undo();
        assert!(grows(&mut ks, &|ks| ks.list_pop(0, list, false, 1).expect("a list")));
        // A short text lay inside of its entry: what is kept of it is a copy.
        assert!(grows(&mut ks, &|ks| names().for_each(|name| _ = ks.put(0, &name, b"v"))));
        // Where databases were emptied or changed places nobody knows who brought what.
        ks.put(0, b"k", &large);
        assert!(!grows(&mut ks, &|ks| ks.flush(0, true)));
        ks.put(0, b"k", &large);
        assert!(grows(&mut ks, &|ks| ks.flush(0, true)));
        ks.put(1, b"k", &large);
        ks.swap(0, 1);
        assert!(grows(&mut ks, &|ks| {
            let slot = ks.find(0, b"k").expect("it was put");
            ks.remove(0, slot);
        }));
        ks.roll_back();
        assert_eq!((ks.undo_bytes(), ks.db(0).len(), ks.db(1).len()), (0, 501, 0));
    }

    #[test]
    fn what_was_removed_before_databases_changed_places_leaves_no_memory() {
        let mut ks = keyspace();
        let keys = (0..if cfg!(miri) { 4_000 } else { 40_000u32 }).map(|number| number.to_be_bytes());
        keys.clone().for_each(|key| _ = ks.put(0, &key, b"a value of some bytes"));
        let before = ks.db(0).overhead_bytes();
        ks.begin_undo();
        for key in keys.skip(1) {
            let slot = ks.find(0, &key).expect("it was put");
            ks.remove(0, slot);
        }
        ks.swap(0, 1);
        ks.commit_undo();
        assert!(ks.db(1).overhead_bytes() < before / 2, "{} of {before} bytes", ks.db(1).overhead_bytes());
    }

    #[test]
    fn a_compact_value_is_copied_once_and_a_large_one_in_pieces() {
        let mut ks = keyspace();
        let (small, _) = ks.hash_set(0, b"small", None, b"f", b"0").expect("a hash");
        let (large, _) = ks.hash_set(0, b"large", None, b"f", b"0").expect("a hash");
        for i in 0..1_000u32 {
            ks.hash_set(0, b"large", Some(large), &i.to_be_bytes(), b"v").expect("a hash");
        }
        ks.begin_undo();
        for i in 0..1_000u32 {
            ks.hash_set(0, b"small", Some(small), b"f", &i.to_be_bytes()).expect("a hash");
        }
        assert_eq!(ks.undo.steps.len(), 1);
        ks.hash_remove(0, large, b"f").expect("a hash");
        assert!(matches!(ks.undo.steps[1], Step::Changed { .. }));
        ks.roll_back();
        let value =
            |ks: &Keyspace, slot| ks.hash(0, slot).ok().and_then(|hash| hash.get(b"f")).map(|value| value.to_vec());
        assert_eq!((value(&ks, small), value(&ks, large)), (Some(b"0".to_vec()), Some(b"0".to_vec())));
    }
}
