//! The recent history of locks, gates and stocks, of refusals by them and by limits, and of messages that became dead
//! letters: the source of WHO, WHY and EVENTS.
//!
//! There are three rings of fixed size, so that many refusals or dead letters do not push out the grants. Each place of
//! a ring keeps its buffer, so remembering an event costs a copy of its names. Nothing of this goes to the journal: a
//! start begins without history. Grants that a script or transaction rolled back are not here; its refusals are.

use std::iter::Peekable;

use crate::engine::limits::HISTORY_NAME_MAX_BYTES;
use crate::keyspace::DbIndex;
use crate::keyspace::effect::{Family, Turn};
use crate::keyspace::limits::{HISTORY_KEY_MAX_BYTES, HISTORY_PLACES, HOLDER_MAX_BYTES};
use crate::session::Session;

/// A connection, as it was when something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Client<'a> {
    /// The number that CLIENT ID returns; 0 if no client did it.
    pub(crate) id: u64,
    /// Its address.
    pub(crate) address: &'a [u8],
    /// CLIENT SETNAME, abridged.
    pub(crate) name: &'a [u8],
}

impl<'a> Client<'a> {
    pub(crate) fn of(session: &'a Session) -> Client<'a> {
        let name = &session.name[..session.name.len().min(HISTORY_NAME_MAX_BYTES)];
        Client { id: session.key.id, address: session.address.as_bytes(), name }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A change of a grant.
    Turn { turn: Turn, token: u64, units: u64 },
    /// A call was refused.
    Refused {
        /// The full name of its command.
        command: &'static str,
        /// The reason, or the kind of the rule.
        reason: &'static str,
        /// How much was in use.
        in_use: i64,
        /// The limit of the key or rule.
        limit: i64,
    },
}

/// A past event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past<'a> {
    /// Grows from one to the next, also over a restart.
    pub(crate) id: u64,
    /// When it happened, Unix ms.
    pub(crate) at_ms: i64,
    /// The kind of the event.
    pub(crate) what: What,
    /// The database.
    pub(crate) db: DbIndex,
    /// The key.
    pub(crate) key: &'a [u8],
    /// The present or former holder, or the caller; empty if the call named none.
    pub(crate) subject: &'a [u8],
    /// The note given with it.
    pub(crate) note: &'a [u8],
    /// The client whose command it was; none for an [expired](Turn::Expired) grant.
    pub(crate) client: Client<'a>,
}

/// Splits the note of a dead letter into the id of the message and the name of its group.
pub(crate) fn split_note(note: &[u8]) -> (&[u8], &[u8]) {
    let space = note.iter().position(|byte| *byte == b' ').unwrap_or(note.len());
    let (message, group) = note.split_at(space);
    (message, group.get(1..).unwrap_or_default())
}

/// The content of one place of a ring.
struct Stored {
    id: u64,
    at_ms: i64,
    what: What,
    db: DbIndex,
    client: u64,
    /// Where each of the texts ends: key, subject, note, address, name.
    ends: [usize; 5],
    text: Vec<u8>,
}

impl Stored {
    fn as_past(&self) -> Past<'_> {
        let [key, subject, note, address, name] = self.ends;
        let text = |from: usize, to: usize| &self.text[from..to];
        Past {
            id: self.id,
            at_ms: self.at_ms,
            what: self.what,
            db: self.db,
            key: text(0, key),
            subject: text(key, subject),
            note: text(subject, note),
            client: Client { id: self.client, address: text(note, address), name: text(address, name) },
        }
    }

    fn set(&mut self, Past { id, at_ms, what, db, key, subject, note, client }: Past<'_>) {
        (self.id, self.at_ms, self.what, self.db, self.client) = (id, at_ms, what, db, client.id);
        self.text.clear();
        for (end, text) in self.ends.iter_mut().zip([key, subject, note, client.address, client.name]) {
            self.text.extend_from_slice(text);
            *end = self.text.len();
        }
    }
}

/// A ring of the last events.
#[derive(Default)]
struct Ring {
    places: Vec<Stored>,
    /// The place of the oldest, once all are taken.
    oldest: usize,
}

impl Ring {
    /// Adds an event; returns the id of the event that is forgotten for it.
    fn push(&mut self, past: Past<'_>) -> Option<u64> {
        if self.places.len() < HISTORY_PLACES {
            let mut stored =
                Stored { id: 0, at_ms: 0, what: past.what, db: 0, client: 0, ends: [0; 5], text: Vec::new() };
            stored.set(past);
            self.places.push(stored);
            return None;
        }
        let place = &mut self.places[self.oldest];
        let forgotten = place.id;
        place.set(past);
        self.oldest = (self.oldest + 1) % HISTORY_PLACES;
        Some(forgotten)
    }

    fn mem_bytes(&self) -> usize {
        let texts: usize = self.places.iter().map(|stored| stored.text.capacity()).sum();
        self.places.capacity() * size_of::<Stored>() + texts
    }

    /// All events, the oldest first.
    fn iter(&self) -> impl DoubleEndedIterator<Item = Past<'_>> {
        let (later, earlier) = self.places.split_at(self.oldest);
        earlier.iter().chain(later).map(Stored::as_past)
    }
}

/// See the file's header.
pub(crate) struct History {
    turns: Ring,
    refusals: Ring,
    dead_letters: Ring,
    last_id: u64,
    /// The id of the last forgotten event.
    forgotten: u64,
}

impl History {
    /// Begins at `started_ms`, Unix ms. The ids are larger than those of a start before unless more than 4,096 things
    /// have happened in each millisecond since; like fencing tokens, a double holds them exactly.
    pub(in crate::engine) fn new(started_ms: i64) -> History {
        let last_id = u64::try_from(started_ms).unwrap_or(0) << 12;
        let (turns, refusals, dead_letters) = Default::default();
        History { turns, refusals, dead_letters, last_id, forgotten: last_id }
    }

    /// Remembers an event and gives it its id, unless its names are too long.
    pub(in crate::engine) fn add(&mut self, past: Past<'_>) {
        if past.key.len() > HISTORY_KEY_MAX_BYTES || past.subject.len() > HOLDER_MAX_BYTES {
            return;
        }
        self.last_id += 1;
        let past = Past { id: self.last_id, ..past };
        let ring = match past.what {
            What::Turn { turn: Turn::DeadLettered | Turn::DeadLetterStays, .. } => &mut self.dead_letters,
            What::Turn { .. } => &mut self.turns,
            What::Refused { .. } => &mut self.refusals,
        };
        if let Some(id) = ring.push(past) {
            self.forgotten = self.forgotten.max(id);
        }
    }

    /// Bytes that it holds.
    pub(crate) fn mem_bytes(&self) -> usize {
        [&self.turns, &self.refusals, &self.dead_letters].map(Ring::mem_bytes).iter().sum()
    }

    /// The last id that was given.
    pub(crate) fn last_id(&self) -> u64 {
        self.last_id
    }

    /// The events of grants of a key, the newest first.
    pub(crate) fn turns_of<'a>(&'a self, db: DbIndex, key: &'a [u8]) -> impl Iterator<Item = Past<'a>> {
        self.turns.iter().rev().filter(move |past| past.db == db && past.key == key)
    }

    /// The refusals by a key, the newest first.
    pub(crate) fn refusals_of<'a>(&'a self, db: DbIndex, key: &'a [u8]) -> impl Iterator<Item = Past<'a>> {
        self.refusals.iter().rev().filter(move |past| past.db == db && past.key == key)
    }

    /// Returns the events after this id, the oldest first, and whether some were missed: they were forgotten, or the id
    /// was never given, which means that a clock was set back. For an id of 0, returns all known events and misses
    /// none.
    pub(crate) fn after(&self, id: u64) -> (impl Iterator<Item = Past<'_>>, bool) {
        let later = move |past: &Past<'_>| past.id > id;
        let of_grants = Merged::new(self.turns.iter().filter(later), self.refusals.iter().filter(later));
        let merged = Merged::new(of_grants, self.dead_letters.iter().filter(later));
        (merged, id != 0 && (id < self.forgotten || id > self.last_id))
    }
}

/// Two rings in the order of their ids.
struct Merged<L: Iterator, R: Iterator> {
    left: Peekable<L>,
    right: Peekable<R>,
}

impl<L: Iterator, R: Iterator> Merged<L, R> {
    fn new(left: L, right: R) -> Merged<L, R> {
        Merged { left: left.peekable(), right: right.peekable() }
    }
}

impl<'a, L: Iterator<Item = Past<'a>>, R: Iterator<Item = Past<'a>>> Iterator for Merged<L, R> {
    type Item = Past<'a>;

    fn next(&mut self) -> Option<Past<'a>> {
        match (self.left.peek(), self.right.peek()) {
            (Some(left), Some(right)) if right.id < left.id => self.right.next(),
            (Some(_), _) => self.left.next(),
            (None, _) => self.right.next(),
        }
    }
}

/// The reason for the refusal of a call, to be remembered.
#[derive(Clone, Copy)]
pub(crate) struct Refusal<'a> {
    /// The family of the command or rule.
    pub(crate) family: Family,
    /// The key that refused it.
    pub(crate) key: &'a [u8],
    /// The caller; empty if the call names none.
    pub(crate) subject: &'a [u8],
    /// The reason, or the kind of the rule.
    pub(crate) reason: &'static str,
    /// How much was in use.
    pub(crate) in_use: i64,
    /// The limit of the key or rule.
    pub(crate) limit: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::os::allocated::{apart, apart_bytes};

    fn refused<'a>(key: &'a [u8], subject: &'a [u8]) -> Past<'a> {
        let what = What::Refused { command: "lock.acquire", reason: "held", in_use: 1, limit: 1 };
        Past { id: 0, at_ms: 5, what, db: 0, key, subject, note: b"", client: Client::default() }
    }

    fn granted<'a>(key: &'a [u8], token: u64) -> Past<'a> {
        let what = What::Turn { turn: Turn::Granted, token, units: 1 };
        let client = Client { id: 9, address: b"1.2.3.4:5", name: b"worker" };
        Past { id: 0, at_ms: 6, what, db: 0, key, subject: b"h", note: b"n", client }
    }

    #[test]
    fn the_counted_memory_equals_the_memory_held() {
        apart(|| {
            let mut history = History::new(1_000);
            // One more than fits into the initial places.
            (0..=HISTORY_PLACES as u64 / 2).for_each(|token| {
                history.add(granted(b"k", token));
                history.add(refused(b"key", b"subject"));
            });
            assert_eq!(history.mem_bytes() as isize, apart_bytes());
        });
    }

    #[test]
    fn events_are_read_in_order_and_forgotten_by_kind() {
        let mut history = History::new(1_000);
        history.add(granted(b"k", 1));
        for number in 0..2 * HISTORY_PLACES {
            history.add(refused(if number % 2 == 0 { b"k" } else { b"other" }, number.to_string().as_bytes()));
        }
        history.add(granted(b"k", 2));
        let first_id = (1_000 << 12) + 1;
        let last_id = first_id + 2 * HISTORY_PLACES as u64 + 1;
        assert_eq!(history.turns_of(0, b"k").map(|past| past.id).collect::<Vec<_>>(), [last_id, first_id]);
        assert_eq!(history.turns_of(0, b"k").next(), Some(Past { id: last_id, ..granted(b"k", 2) }));
        assert_eq!(history.turns_of(1, b"k").count() + history.turns_of(0, b"").count(), 0);
        let newest = (2 * HISTORY_PLACES - 2).to_string();
        let mut refusals = history.refusals_of(0, b"k");
        assert_eq!(refusals.next(), Some(Past { id: last_id - 2, ..refused(b"k", newest.as_bytes()) }));
        assert_eq!(refusals.count(), HISTORY_PLACES / 2 - 1);
        let ids = |id| history.after(id).0.map(|past| past.id).collect::<Vec<_>>();
        let kept = last_id - HISTORY_PLACES as u64..=last_id;
        assert_eq!(ids(0), std::iter::once(first_id).chain(kept).collect::<Vec<_>>());
        assert_eq!(ids(last_id - 2), [last_id - 1, last_id]);
        let missed = |id| history.after(id).1;
        let forgotten = last_id - 1 - HISTORY_PLACES as u64;
        assert_eq!(
            [0, 1, first_id, forgotten - 1, forgotten, last_id].map(missed),
            [false, true, true, true, false, false]
        );
    }

    #[test]
    fn dead_letters_do_not_push_out_grants() {
        let mut history = History::new(0);
        history.add(granted(b"k", 1));
        for _ in 0..=HISTORY_PLACES {
            let what = What::Turn { turn: Turn::DeadLettered, token: 0, units: 1 };
            history.add(Past { what, ..granted(b"jobs", 0) });
        }
        history.add(refused(b"k", b"s"));
        assert_eq!(history.turns_of(0, b"k").count(), 1);
        assert_eq!(history.after(0).0.count(), HISTORY_PLACES + 2);
        assert!(history.after(0).0.is_sorted_by_key(|past| past.id));
    }

    #[test]
    fn names_that_are_too_long_are_not_remembered() {
        let mut history = History::new(0);
        history.add(refused(&vec![b'k'; HISTORY_KEY_MAX_BYTES + 1], b"s"));
        history.add(refused(b"k", &vec![b's'; HOLDER_MAX_BYTES + 1]));
        assert_eq!(history.after(0).0.count(), 0);
        history.add(refused(&vec![b'k'; HISTORY_KEY_MAX_BYTES], &vec![b's'; HOLDER_MAX_BYTES]));
        assert_eq!(history.after(0).0.count(), 1);
    }
}
