//! Notes beside the effects of a unit, for event notifications: which command made the effects, which keys are new, and
//! which events Redis reports although nothing has changed.
//!
//! Notes are not part of the stream of effects: they are neither recorded in the journal nor replayed. They are made
//! only while there are observers of events ([`Effects::annotate`](super::Effects)), and are kept, cut off and
//! forgotten together with their effects.

use std::ops::Range;

use crate::config::EventClasses;

/// The content of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The effects from here on belong to the command with this index in the command table.
    Command(u16),
    /// The event of the effects from here on has this name, up to the next command.
    Named(&'static str),
    /// The key is new. The effect that created it comes next, or came just before.
    Created,
    /// The key had expired unnoticed before the effect that comes next, or came just before, gave it another value.
    Overdue,
    /// All elements of the key had expired, and the next effect removes the key as expired.
    Drained {
        /// Whether the key was a set rather than a hash.
        is_set: bool,
    },
    /// Reports this event about the key.
    Reported(EventClasses, &'static str),
}

/// One note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// Bytes of effects recorded before the note.
    pub at: usize,
    /// The content.
    pub what: What,
    /// The database.
    pub db: u16,
    /// The key, empty if the note is not about a key.
    pub key: &'a [u8],
}

#[derive(Debug)]
struct Stored {
    at: usize,
    what: What,
    db: u16,
    key: Range<usize>,
}

/// The notes of the current unit.
#[derive(Debug, Default)]
pub(super) struct Notes {
    stored: Vec<Stored>,
    keys: Vec<u8>,
    /// The numbers of notes and of bytes of keys that are not cut off.
    kept: (usize, usize),
}

impl Notes {
    pub(super) fn add(&mut self, at: usize, what: What, db: u16, key: &[u8]) {
        let begin = self.keys.len();
        self.keys.extend_from_slice(key);
        self.stored.push(Stored { at, what, db, key: begin..self.keys.len() });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Note<'_>> {
        self.stored.iter().map(|Stored { at, what, db, key }| Note {
            at: *at,
            what: *what,
            db: *db,
            key: &self.keys[key.clone()],
        })
    }

    /// Whether any event is reported regardless of the effects.
    pub(super) fn has_reported(&self) -> bool {
        self.stored.iter().any(|note| matches!(note.what, What::Reported(..)))
    }

    pub(super) fn clear(&mut self) {
        self.stored.clear();
        self.keys.clear();
        self.kept = (0, 0);
    }

    /// The extent that stays so far: the numbers of notes and of bytes of their keys.
    pub(super) fn kept(&self) -> (usize, usize) {
        self.kept
    }

    /// Restores the earlier mark, which was replaced by a later [`keep`](Self::keep).
    pub(super) fn keep_only(&mut self, kept: (usize, usize)) {
        self.kept = kept;
    }

    pub(super) fn keep(&mut self) {
        self.kept = (self.stored.len(), self.keys.len());
    }

    pub(super) fn cut(&mut self) {
        self.stored.truncate(self.kept.0);
        self.keys.truncate(self.kept.1);
    }
}
