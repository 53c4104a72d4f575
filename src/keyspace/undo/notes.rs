//! The notes of [undo](super).

use std::collections::HashSet;

use crate::keyspace::any_value::Value;
use crate::keyspace::arena::Slot;
use crate::keyspace::db::{Db, DbIndex};
use crate::keyspace::effect::Kept;
use crate::keyspace::entries::Removed;
use crate::keyspace::entry::TEXT_MAX_BYTES;
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::stats::KeyspaceStats;
use crate::value::string::StringValue;

/// Entries up to which a look through a list is faster than a hash.
const RESTORABLE_FEW: usize = 16;

/// Elements by which the bytes of a large value are judged.
pub(super) const SAMPLES: usize = 5;

/// Bytes that a note takes: its step, and its place in a table of what is restorable.
const NOTE_BYTES: usize = size_of::<Step>() + 2 * size_of::<u64>();

/// The notes. Empty and off between two scripts.
#[derive(Default)]
pub(in crate::keyspace) struct Undo {
    pub(super) is_on: bool,
    pub(super) steps: Vec<Step>,
    /// Entries of which the notes can restore value and expiry already.
    pub(super) restorable: Restorable,
    /// Streams of which they can restore what producers requested.
    pub(super) restorable_requests: Restorable,
    /// Databases that were emptied or changed places.
    pub(super) replaced_dbs: Vec<DbIndex>,
    /// See [`undo_bytes`](crate::keyspace::Keyspace::undo_bytes).
    pub(super) bytes: usize,
    /// How many effects that stand there had been.
    pub(super) standing_effects: u64,
    pub(super) stats: KeyspaceStats,
    /// What is suspended while an inner one is on, the outermost first.
    pub(super) outer: Vec<Outer>,
}

/// What an undo knows that began before another one.
pub(super) struct Outer {
    /// How many of the steps are its own.
    pub(super) steps: usize,
    pub(super) restorable: Restorable,
    pub(super) restorable_requests: Restorable,
    pub(super) bytes: usize,
    pub(super) standing_effects: u64,
    pub(super) stats: KeyspaceStats,
    pub(super) effects: Kept,
}

/// How one change is taken back.
pub(super) enum Step {
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
    pub(in crate::keyspace) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn push(&mut self, step: Step) {
        self.bytes += NOTE_BYTES + step.heap_bytes();
        self.steps.push(step);
    }

    /// Bytes of a value that has left the database, if the unit may have brought it, or if it `was_embedded`. Like a short text, which lay
    /// inside of its entry, that is a copy.
    #[inline]
    pub(super) fn count_gone(&mut self, db: DbIndex, value: &Value, was_embedded: bool) {
        let was_text = matches!(value, Value::String(StringValue::Heap(text)) if text.len() <= TEXT_MAX_BYTES);
        if was_text || was_embedded || self.replaced_dbs.contains(&db) {
            self.bytes += value.as_ref().heap_bytes(SAMPLES);
        }
    }

    /// An entry has left its slot. Answers whether the notes could restore it.
    #[inline]
    pub(super) fn forget(&mut self, db: DbIndex, slot: Slot) -> bool {
        self.restorable_requests.remove((slot, db));
        self.restorable.remove((slot, db))
    }

    pub(super) fn replace_database(&mut self, db: DbIndex) {
        self.restorable.clear();
        self.restorable_requests.clear();
        if !self.replaced_dbs.contains(&db) {
            self.replaced_dbs.push(db);
        }
    }

    /// Forgets what the unit did, of which the steps have been taken out.
    pub(super) fn end(&mut self) {
        self.restorable.clear();
        self.restorable_requests.clear();
        self.replaced_dbs.clear();
        self.bytes = 0;
    }

    /// Gives back the memory that was kept for the next script.
    pub(in crate::keyspace) fn give_back(&mut self) {
        self.steps.shrink_to(0);
    }
}

impl Step {
    /// Bytes outside of it, values that left the keyspace not counted.
    pub(super) fn heap_bytes(&self) -> usize {
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
pub(super) struct Restorable {
    few: Vec<Name>,
    many: HashSet<Name>,
}

impl Restorable {
    #[inline]
    pub(super) fn has(&self, one: Name) -> bool {
        self.few.contains(&one) || (!self.many.is_empty() && self.many.contains(&one))
    }

    #[inline]
    pub(super) fn add(&mut self, one: Name) {
        if self.few.len() < RESTORABLE_FEW {
            self.few.push(one);
        } else {
            self.many.insert(one);
        }
    }

    /// Takes an entry out. Answers whether it was in the set.
    #[inline]
    pub(super) fn remove(&mut self, one: Name) -> bool {
        if let Some(at) = self.few.iter().position(|name| *name == one) {
            self.few.swap_remove(at);
            return true;
        }
        !self.many.is_empty() && self.many.remove(&one)
    }

    /// An entry that may be in the set has another name.
    pub(super) fn rename(&mut self, from: Name, to: Name) {
        if self.remove(from) {
            self.add(to);
        }
    }

    pub(super) fn clear(&mut self) {
        self.few.clear();
        if !self.many.is_empty() {
            self.many = HashSet::new();
        }
    }
}
