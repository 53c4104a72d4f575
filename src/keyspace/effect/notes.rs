//! What is noted beside the effects of a unit for those who are told of events: which command made them, which keys are new, and
//! what Redis tells although nothing has changed.
//!
//! Notes are no part of the stream of effects: they are neither logged nor repeated. They are made only while somebody is to be told
//! ([`Effects::annotate`](super::Effects)), and kept, cut off and forgotten with the effects that they stand beside.

use std::ops::Range;

use crate::config::EventClasses;

/// What a note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The effects from here on are those of this command, by its index in the table.
    Command(u16),
    /// The event of the effects from here on has this name, up to the next command.
    Named(&'static str),
    /// The key is new. The effect that made it comes next, or came just before.
    Created,
    /// The key had expired, and nobody had found out when the effect that comes next, or came just before, gave it another value.
    Overdue,
    /// The key that the next effect removes as expired has lost every element, each of which had expired.
    Drained {
        /// Whether it was a set; otherwise a hash.
        is_set: bool,
    },
    /// This event is to be told of the key.
    Told(EventClasses, &'static str),
}

/// One note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// How many bytes of effects had been recorded before.
    pub at: usize,
    /// What it says.
    pub what: What,
    /// Of which database.
    pub db: u16,
    /// Of which key, if it says something of one.
    pub key: &'a [u8],
}

#[derive(Debug)]
struct Stored {
    at: usize,
    what: What,
    db: u16,
    key: Range<usize>,
}

/// The notes of the unit that is underway.
#[derive(Debug, Default)]
pub(super) struct Notes {
    stored: Vec<Stored>,
    keys: Vec<u8>,
    /// How many notes, and bytes of keys, are not cut off.
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

    /// Whether something is to be told whatever the effects are.
    pub(super) fn tell_anything(&self) -> bool {
        self.stored.iter().any(|note| matches!(note.what, What::Told(..)))
    }

    pub(super) fn clear(&mut self) {
        self.stored.clear();
        self.keys.clear();
        self.kept = (0, 0);
    }

    /// What stays so far: how many notes, and how many bytes of their keys.
    pub(super) fn kept(&self) -> (usize, usize) {
        self.kept
    }

    /// Only so much stays again, as it was before a later [`keep`](Self::keep).
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
