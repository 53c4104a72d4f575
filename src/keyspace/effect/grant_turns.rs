//! What has become of grants in the unit that is underway: which were given, and how others ended. And which messages became dead letters,
//! which is told in the same way.
//!
//! This stands beside the effects, and is no part of their stream: it is neither logged nor repeated. It is there however little of the
//! effects is recorded, and is cut off and forgotten with them. Effects say what a grant is from now on; this says that it is new, and
//! that somebody broke it and why.

use std::ops::Range;

use super::family::Family;

/// What has become of a grant, or of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It was given.
    Granted,
    /// Its holder has given it back.
    Released,
    /// Its lease was over.
    Expired,
    /// Somebody else has taken it away.
    Broken,
    /// Its key was deleted or evicted.
    Removed,
    /// The units that it held of a stock are sold.
    Sold,
    /// A message that nobody has acknowledged has moved to the dead letters. Its consumer stands for the holder, its deliveries for the
    /// units; it has no token; and what is said about it are its id and, behind a space, the name of its group.
    DeadLettered,
    /// A message was to move to the dead letters once more and has done so too often: it is no longer pending, and stays where it is. What is
    /// told of it is what is told of one that moves.
    DeadLetterStays,
}

impl Turn {
    /// All of them, in the order of their declaration.
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

    /// What it is called.
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

/// What has become of one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantTurn<'a> {
    /// What it is that has become of it.
    pub turn: Turn,
    /// Of which family.
    pub family: Family,
    /// Of which database.
    pub db: u16,
    /// Of which key.
    pub key: &'a [u8],
    /// Who holds it, or did.
    pub holder: &'a [u8],
    /// Its fencing token.
    pub token: u64,
    /// Its units.
    pub units: u64,
    /// What was said about that: by the holder, or by who broke it.
    pub note: &'a [u8],
}

#[derive(Debug)]
struct Stored {
    /// How many bytes of effects had been recorded before.
    at: usize,
    turn: Turn,
    family: Family,
    db: u16,
    token: u64,
    units: u64,
    /// Where its own text begins: the key, unless it is that of the turn before, holder and note, one behind the other.
    begin: usize,
    key: Range<usize>,
    holder_at: usize,
    note_at: usize,
    end: usize,
}

/// All of the unit that is underway.
#[derive(Debug, Default)]
pub(super) struct GrantTurns {
    stored: Vec<Stored>,
    text: Vec<u8>,
}

impl GrantTurns {
    /// Adds one, before which so many bytes of effects had been recorded.
    pub(super) fn add(&mut self, at: usize, turn: GrantTurn<'_>) {
        let GrantTurn { turn, family, db, key, holder, token, units, note } = turn;
        let begin = self.text.len();
        // A key may be long, and lose many grants at once.
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

    /// Each, with how many bytes of effects had been recorded before.
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
        assert_eq!(turns.text, b"ahhdonebbhwhy", "a key that comes again is not copied");
        turns.truncate(3);
        assert_eq!(turns.len(), 3);
        turns.truncate(1);
        assert_eq!((turns.iter().collect::<Vec<_>>(), turns.text.as_slice()), (vec![(0, added[0])], &b"ah"[..]));
    }
}
