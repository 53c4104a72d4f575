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

/// Entries up to which searching a list is faster than hashing.
const RESTORABLE_FEW: usize = 16;

/// Elements sampled to estimate the bytes of a large value.
pub(super) const SAMPLES: usize = 5;

/// Bytes of a note: its step, and its place in a table of restorable entries.
const NOTE_BYTES: usize = size_of::<Step>() + 2 * size_of::<u64>();

/// The notes. Empty and off between two scripts.
#[derive(Default)]
pub(in crate::keyspace) struct Undo {
    pub(super) is_on: bool,
    pub(super) steps: Vec<Step>,
    /// Entries whose value and expiry the notes can already restore.
    pub(super) restorable: Restorable,
    /// Streams whose memory of producers' requests the notes can already restore.
    pub(super) restorable_requests: Restorable,
    /// Databases that were emptied or swapped.
    pub(super) replaced_dbs: Vec<DbIndex>,
    /// See [`undo_bytes`](crate::keyspace::Keyspace::undo_bytes).
    pub(super) bytes: usize,
    /// The earlier count of effects on scripts and libraries.
    pub(super) standing_effects: u64,
    pub(super) stats: KeyspaceStats,
    /// The state of outer undos, suspended while an inner one is on, the outermost first.
    pub(super) outer: Vec<Outer>,
}

/// The state of an undo that began before the current one.
pub(super) struct Outer {
    /// The number of steps noted before the inner undo began.
    pub(super) steps: usize,
    pub(super) restorable: Restorable,
    pub(super) restorable_requests: Restorable,
    pub(super) bytes: usize,
    pub(super) standing_effects: u64,
    pub(super) stats: KeyspaceStats,
    pub(super) effects: Kept,
}

/// How to take one change back.
pub(super) enum Step {
    /// A key was added and has to be removed.
    Added { db: DbIndex, slot: Slot },
    /// A key was removed and has to be restored.
    Removed { db: DbIndex, slot: Slot, entry: Removed },
    /// A key got another value or, covered by this note, another expiry.
    Replaced { db: DbIndex, slot: Slot, value: Value, expires_at_ms: i64 },
    /// A key was removed, and its value moved to the key in the next `CarriedTo`. If `is_covered`, an earlier note has
    /// the value.
    Carried { db: DbIndex, slot: Slot, shell: Removed, is_covered: bool },
    /// A key was added with the value of another key.
    CarriedTo { db: DbIndex, slot: Slot },
    /// A key moved to another slot with more room. Its old place had `bytes` bytes.
    Moved { db: DbIndex, from: Slot, to: Slot, bytes: usize },
    /// A key got another expiry.
    Expiry { db: DbIndex, slot: Slot, at_ms: i64 },
    /// A part of a value was changed.
    Changed { db: DbIndex, slot: Slot, pre_image: PreImage },
    /// A database was emptied.
    Flushed { db: DbIndex, old: Box<Db> },
    /// Two databases were swapped.
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

    /// Counts the bytes of a value that has left the database if the unit may have created it, or if it `was_embedded`.
    /// An embedded value and a short text lay inside their entries, so keeping them takes a copy.
    #[inline]
    pub(super) fn count_gone(&mut self, db: DbIndex, value: &Value, was_embedded: bool) {
        let was_text = matches!(value, Value::String(StringValue::Heap(text)) if text.len() <= TEXT_MAX_BYTES);
        if was_text || was_embedded || self.replaced_dbs.contains(&db) {
            self.bytes += value.as_ref().heap_bytes(SAMPLES);
        }
    }

    /// Notes that an entry has left its slot. Returns whether the notes could restore it.
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

    /// Clears all state of the unit except the steps, which have already been taken out.
    pub(super) fn end(&mut self) {
        self.restorable.clear();
        self.restorable_requests.clear();
        self.replaced_dbs.clear();
        self.bytes = 0;
    }

    /// Gives back the memory kept for the next script.
    pub(in crate::keyspace) fn give_back(&mut self) {
        self.steps.shrink_to(0);
    }
}

impl Step {
    /// Bytes outside of the step, without values that left the keyspace.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Step::Removed { entry, .. } | Step::Carried { shell: entry, .. } => entry.key.heap_bytes(),
            Step::Changed { pre_image, .. } => pre_image.heap_bytes(),
            Step::Flushed { .. } => size_of::<Db>(),
            _ => 0,
        }
    }
}

/// The name of an entry, valid while the entry stays in its slot.
type Name = (Slot, DbIndex);

/// A set of entries. An entry that leaves its slot leaves the set as well, so no later entry in the slot is mistaken
/// for it.
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

    /// Removes an entry. Returns whether it was in the set.
    #[inline]
    pub(super) fn remove(&mut self, one: Name) -> bool {
        if let Some(at) = self.few.iter().position(|name| *name == one) {
            self.few.swap_remove(at);
            return true;
        }
        !self.many.is_empty() && self.many.remove(&one)
    }

    /// Renames an entry that may be in the set.
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
