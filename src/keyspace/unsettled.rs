//! Notes of entries that may need other places; see [`settle`](super::settle).

use super::arena::Slot;
use super::db::DbIndex;
use super::entry::EntryMut;
use crate::keyspace::limits::UNSETTLED_MAX;

/// Entries that may need other places when the unit is over.
#[derive(Default)]
pub(super) struct Unsettled(Vec<Note>);

/// An entry. It may be gone by now, and its slot may hold another entry.
pub(super) struct Note {
    pub(super) db: DbIndex,
    pub(super) slot: Slot,
    /// Whether the unit has written the entry's collection as a whole. Otherwise the collection was embedded and has
    /// been changed.
    pub(super) is_new: bool,
}

impl Unsettled {
    /// Gives the embedded collection of the entry at `slot`, which is about to be changed, an allocation of its own.
    #[cold]
    #[inline(never)]
    pub(super) fn open(&mut self, db: DbIndex, slot: Slot, entry: &mut EntryMut<'_>) {
        entry.unembed();
        self.note(Note { db, slot, is_new: false });
    }

    pub(super) fn note(&mut self, note: Note) {
        if self.0.len() < UNSETTLED_MAX {
            self.0.push(note);
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes all notes out, the last one first.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Note> {
        self.0.drain(..).rev()
    }

    /// Gives back the memory kept for future notes.
    pub(super) fn give_back(&mut self) {
        self.0.shrink_to(0);
    }
}
