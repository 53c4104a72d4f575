//! The fates of grants in the current unit: which were given, and how others ended. Messages that became dead letters
//! are reported here as well.
//!
//! This lies beside the effects and is not part of their stream: it is neither recorded in the journal nor replayed. It
//! exists however little of the effects is recorded, and is cut off and forgotten with them. An effect gives the
//! present state of a grant. A turn adds that the grant is new, or that another client broke it and why.

use std::ops::Range;

use super::family::Family;

/// The fate of a grant or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It was given.
    Granted,
    /// Its holder has released it.
    Released,
    /// Its lease has expired.
    Expired,
    /// Another client has taken it away.
    Broken,
    /// Its key was deleted or evicted.
    Removed,
    /// The units that it held of a stock have been sold.
    Sold,
    /// An unacknowledged message has moved to the dead letters. Its consumer takes the place of the holder and its
    /// deliveries the place of the units; it has no token. The note consists of its ID, a space, and the name of its
    /// group.
    DeadLettered,
    /// A message was due to move to the dead letters again but has moved too often: it is no longer pending, and stays
    /// where it is. It is reported like a message that moves.
    DeadLetterStays,
}

impl Turn {
    /// All turns, in the order of their declaration.
    pub const ALL: [Turn; 8] = [
        Turn::Granted,
        Turn::Released,
        Turn::Expired,
        Turn::Broken,
        Turn::Removed,
        Turn::Sold,
        Turn::DeadLettered,
        Turn::DeadLetterStays,
    ];

    /// The name of the turn.
    pub fn name(self) -> &'static str {
        match self {
            Turn::Granted => "granted",
            Turn::Released => "released",
            Turn::Expired => "lapsed",
            Turn::Broken => "broken",
            Turn::Removed => "removed",
            Turn::Sold => "sold",
            Turn::DeadLettered => "dead-letter",
            Turn::DeadLetterStays => "dead-letter-stays",
        }
    }
}

/// The fate of one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantTurn<'a> {
    /// The fate.
    pub turn: Turn,
    /// The family.
    pub family: Family,
    /// The database.
    pub db: u16,
    /// The key.
    pub key: &'a [u8],
    /// The present or former holder.
    pub holder: &'a [u8],
    /// The fencing token.
    pub token: u64,
    /// The units.
    pub units: u64,
    /// The note given by the holder, or by the client that broke the grant.
    pub note: &'a [u8],
}

#[derive(Debug)]
struct Stored {
    /// Bytes of effects recorded before.
    at: usize,
    turn: Turn,
    family: Family,
    db: u16,
    token: u64,
    units: u64,
    /// The start of its own text: the key, unless the previous turn has this key too, then the holder and the note.
    begin: usize,
    key: Range<usize>,
    holder_at: usize,
    note_at: usize,
    end: usize,
}

/// The fates of grants in the current unit.
#[derive(Debug, Default)]
pub(super) struct GrantTurns {
    stored: Vec<Stored>,
    text: Vec<u8>,
}

impl GrantTurns {
    /// Adds a turn, before which `at` bytes of effects had been recorded.
    pub(super) fn add(&mut self, at: usize, turn: GrantTurn<'_>) {
        let GrantTurn { turn, family, db, key, holder, token, units, note } = turn;
        let begin = self.text.len();
        // The key is shared because it may be long and lose many grants at once.
        let same = self.stored.last().map(|last| last.key.clone()).filter(|last| self.text[last.clone()] == *key);
        let key = same.unwrap_or_else(|| {
            self.text.extend_from_slice(key);
            begin..self.text.len()
        });
        let holder_at = self.text.len();
        self.text.extend_from_slice(holder);
        let note_at = self.text.len();
        self.text.extend_from_slice(note);
        let end = self.text.len();
        self.stored.push(Stored { at, turn, family, db, token, units, begin, key, holder_at, note_at, end });
    }

    /// Returns each turn with the number of bytes of effects recorded before it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, GrantTurn<'_>)> {
        self.stored.iter().map(|stored| {
            let &Stored { at, turn, family, db, token, units, ref key, holder_at, note_at, end, .. } = stored;
            let turn = GrantTurn {
                turn,
                family,
                db,
                key: &self.text[key.clone()],
                holder: &self.text[holder_at..note_at],
                token,
                units,
                note: &self.text[note_at..end],
            };
            (at, turn)
        })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.stored.len()
    }

    pub(super) fn truncate(&mut self, len: usize) {
        if let Some(first) = self.stored.get(len) {
            self.text.truncate(first.begin);
            self.stored.truncate(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_read_as_they_were_added_and_cut_off_from_the_end() {
        let family = Family::Lock;
        let turn = |turn, key, note| GrantTurn { turn, family, db: 3, key, holder: b"h", token: 7, units: 2, note };
        let added = [
            turn(Turn::Granted, b"a".as_slice(), b"".as_slice()),
            turn(Turn::Released, b"a", b"done"),
            turn(Turn::Broken, b"bb", b"why"),
        ];
        let mut turns = GrantTurns::default();
        added.iter().zip(0..).for_each(|(turn, at)| turns.add(at, *turn));
        assert_eq!(turns.iter().collect::<Vec<_>>(), (0..).zip(added).collect::<Vec<_>>());
        assert_eq!(turns.text, b"ahhdonebbhwhy", "a repeated key is not copied again");
        turns.truncate(3);
        assert_eq!(turns.len(), 3);
        turns.truncate(1);
        assert_eq!((turns.iter().collect::<Vec<_>>(), turns.text.as_slice()), (vec![(0, added[0])], &b"ah"[..]));
    }
}
