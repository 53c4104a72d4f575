//! Loads the snapshot and the journal into the keyspace: a thread reads ahead and prepares pieces that are ready to be
//! added.
//!
//! The thread reads, verifies, decompresses and decodes. An effect that gives a key a whole value becomes a finished
//! key ([`Preparation`]), and a deadline that directly follows it is included. Nearly all effects of a snapshot and
//! many of a journal are of this kind. All other effects depend on existing data: they stay encoded, in their place
//! between the keys.
//!
//! A piece holds a frame of the snapshot, several small blocks of the journal, or a part of either. In the last case
//! the next piece continues where this one ends, possibly in the middle of a unit. A piece is measured by the memory
//! that it takes, not by the bytes read: an effect of a few bytes can repeat the previous key and create another key
//! with that name.

use std::ops::Range;

use super::tail::EFFECTS_FORMAT;
use crate::base::ahead::{self, Source};
use crate::base::hasher::hash_bytes;
use crate::base::lsn::Lsn;
use crate::keyspace::DbIndex;
use crate::keyspace::effect::{Effect, EffectReader, EffectWriter};
use crate::keyspace::prepared::{Preparation, PreparedKey};
use crate::log::block::{UNIT_HEAD_BYTES, Unit};
use crate::log::error::LogError;
use crate::log::limits::SNAPSHOT_FRAME_BYTES;
use crate::log::restore::{Part, Position, Restore};
use crate::persist::limits::{LOAD_AHEAD_KEEP_BYTES, LOG_EXPECTED_KEYS_MAX};

/// Reads the snapshot and the journal to their end.
pub(crate) struct LoadPieces {
    /// The source of the data.
    pub(crate) restore: Restore,
    /// Approximate memory of a piece, in bytes.
    piece_bytes: usize,
    preparation: Preparation,
    /// The unread remainder of the last frame or block.
    left: Option<Left>,
    /// Whether the number of keys in the journal has been estimated.
    has_guessed: bool,
    has_ended: bool,
}

/// The unread remainder of a block or of a snapshot frame.
struct Left {
    /// When it was written, Unix ms, and whether it is a block.
    time_ms: i64,
    is_of_log: bool,
    /// Bytes of the remaining units, and the Lsn of the first of these.
    bytes: usize,
    lsn: Lsn,
    /// Progress within that first unit.
    begun: Begun,
}

/// Progress within a unit.
#[derive(Default)]
struct Begun {
    /// Number of effects read, and their bytes.
    effects: usize,
    bytes: usize,
    /// Database and key of the last effect read that concerns a key.
    last_key: Option<(DbIndex, Vec<u8>)>,
}

/// One piece of the data.
#[derive(Default)]
pub(crate) struct Piece {
    /// Approximate number of keys to expect in these databases, if they are empty.
    pub(crate) expected: Vec<(DbIndex, u64)>,
    /// The changes, in order.
    pub(crate) changes: Vec<Change>,
    /// Effects that depend on existing data.
    encoded: EffectWriter,
    /// Approximate memory of the piece in bytes: its effects, in values or encoded, and their overhead.
    held_bytes: usize,
    /// Bytes of its units, including their headers.
    unit_bytes: usize,
    /// Bytes of its units that come from the journal.
    pub(crate) log_bytes: usize,
    /// Bytes read so far, and in total.
    pub(crate) progress: (u64, u64),
    /// The reason why nothing can be read after this piece.
    pub(crate) error: Option<LogError>,
}

/// A change to the keyspace, or to data stored beside it.
pub(crate) struct Change {
    /// The Lsn of the unit; units of a snapshot have that of the snapshot.
    pub(crate) lsn: Lsn,
    /// Index, from 0, of the effect in its unit, or of the first effect.
    pub(crate) index: usize,
    pub(crate) what: What,
}

pub(crate) enum What {
    /// The changes that follow were made at this time, Unix ms, and were read before this position.
    Begin {
        time_ms: i64,
        position: Position,
    },
    Key(PreparedKey),
    /// Effects in [`Piece::encoded`], all on one key, given by database and hash, or all on none.
    Effects {
        at: Range<usize>,
        key: Option<(DbIndex, u64)>,
    },
    /// An effect that can't be replayed, and the reason.
    Unfit(String),
}

impl Change {
    /// Returns the database and hash of the key concerned, if any.
    pub(crate) fn key(&self) -> Option<(DbIndex, u64)> {
        match &self.what {
            What::Key(key) => Some((key.db(), key.hash())),
            What::Effects { key, .. } => *key,
            What::Begin { .. } | What::Unfit(_) => None,
        }
    }
}

impl LoadPieces {
    pub(crate) fn new(restore: Restore, piece_bytes: usize) -> LoadPieces {
        let preparation = Preparation::default();
        LoadPieces { restore, piece_bytes, preparation, left: None, has_guessed: false, has_ended: false }
    }

    /// Reads on and adds to the piece while there is room. Returns whether more may be added.
    fn read_on(&mut self, piece: &mut Piece) -> bool {
        if let Some(left) = self.left.take() {
            return self.add(left, piece);
        }
        let (time_ms, is_of_log, mut units) = match self.restore.next_part() {
            Ok(Some(Part::Block(block))) => (block.time_ms(), true, block.units()),
            Ok(Some(Part::Snapshot(frame))) => (frame.begun_ms(), false, frame.units()),
            Ok(Some(Part::Checked)) => return false,
            Ok(None) => {
                self.has_ended = true;
                return false;
            }
            Err(error) => {
                self.has_ended = true;
                piece.error = Some(error);
                return false;
            }
        };
        let bytes = units.bytes_left();
        let left = |first: Unit<'_>| Left { time_ms, is_of_log, bytes, lsn: first.lsn, begun: Begun::default() };
        self.left = units.next().map(left);
        self.left.is_some()
    }

    /// Adds the remainder of a frame or block until the piece is full. Returns whether more may be added: a piece that
    /// holds part of a frame takes nothing else.
    fn add(&mut self, left: Left, piece: &mut Piece) -> bool {
        let Left { time_ms, is_of_log, mut bytes, lsn, mut begun } = left;
        let Some(mut units) = self.restore.last_units(bytes, lsn) else { return true };
        piece.push(lsn, 0, What::Begin { time_ms, position: self.restore.position() });
        let (all, before) = (bytes, piece.unit_bytes);
        while let Some(unit) = units.next() {
            // Each piece makes at least some progress.
            let stopped = match bytes < all && piece.is_full(self.piece_bytes) {
                true => Some(begun),
                false => piece.add(&unit, begun, self.piece_bytes, &mut self.preparation),
            };
            if let Some(begun) = stopped {
                self.left = Some(Left { time_ms, is_of_log, bytes, lsn: unit.lsn, begun });
                break;
            }
            (bytes, begun) = (units.bytes_left(), Begun::default());
        }
        if is_of_log {
            piece.log_bytes += piece.unit_bytes - before;
        }
        is_of_log && !piece.is_full(self.piece_bytes)
    }

    /// Returns whether the last piece ends inside a unit instead of at the end of a block or frame.
    #[cfg(test)]
    pub(crate) fn is_inside_unit(&self) -> Option<bool> {
        self.left.as_ref().map(|left| left.begun.effects > 0)
    }
}

impl Source for LoadPieces {
    type Piece = Piece;

    fn fill(&mut self, piece: &mut Piece) -> bool {
        if self.has_ended {
            return false;
        }
        while self.read_on(piece) {}
        piece.progress = self.restore.progress();
        if !self.has_guessed && piece.log_bytes > 0 {
            self.has_guessed = true;
            if piece.is_full(self.piece_bytes) {
                piece.guess(self.restore.unread_log_bytes());
            }
        }
        true
    }
}

impl ahead::Piece for Piece {
    fn weight(&self) -> usize {
        // Data that was only verified, or that is part of one long unit of a snapshot, counts for a whole frame.
        if self.unit_bytes == 0 { SNAPSHOT_FRAME_BYTES } else { self.held_bytes }
    }
}

impl Piece {
    /// Returns the encoded effects in this range.
    pub(crate) fn effects(&self, at: Range<usize>) -> EffectReader<'_> {
        EffectReader::new(&self.encoded.as_bytes()[at])
    }

    /// Empties the piece for reuse.
    pub(crate) fn clear(&mut self) {
        self.expected.clear();
        self.changes.clear();
        self.encoded.clear(LOAD_AHEAD_KEEP_BYTES);
        (self.held_bytes, self.unit_bytes, self.log_bytes) = (0, 0, 0);
        self.error = None;
    }

    /// Estimates the number of keys to come, assuming the rest of the journal, `unread` bytes, resembles this first
    /// part. The journal does not record the number, and tables that split as they grow take a third of the time of a
    /// start. An estimate that is too high costs a few bytes per expected key until loading ends.
    fn guess(&mut self, unread: u64) {
        let mut keys: Vec<(DbIndex, u64)> = self.changes.iter().filter_map(Change::key).collect();
        keys.sort_unstable();
        keys.dedup();
        let times = unread / self.unit_bytes as u64 + 1;
        let in_database = |keys: &[(DbIndex, u64)]| {
            let all = times.saturating_mul(keys.len() as u64);
            (keys[0].0, all.min(LOG_EXPECTED_KEYS_MAX))
        };
        self.expected = keys.chunk_by(|one, other| one.0 == other.0).map(in_database).collect();
    }

    fn is_full(&self, piece_bytes: usize) -> bool {
        self.held_bytes >= piece_bytes
    }

    /// Adds unread effects of a unit: at least one, then more until the piece is full. Returns the progress within the
    /// unit unless it was read to its end.
    fn add(
        &mut self,
        unit: &Unit<'_>,
        begun: Begun,
        piece_bytes: usize,
        preparation: &mut Preparation,
    ) -> Option<Begun> {
        if unit.format != EFFECTS_FORMAT {
            let what = format!("has format {}, which this version does not know", unit.format);
            self.push(unit.lsn, 0, What::Unfit(what));
            return None;
        }
        let last_key = begun.last_key.as_ref().map(|(db, key)| (*db, &key[..]));
        let mut reader = EffectReader::resume(last_key, &unit.effects[begun.bytes..]);
        let (first, mut index, mut left) = (self.changes.len(), begun.effects, reader.bytes_left());
        if begun.effects == 0 {
            self.count(UNIT_HEAD_BYTES);
        }
        while let Some((db, effect)) = reader.next() {
            match preparation.prepare(db, &effect) {
                Some(Ok(prepared)) => self.push(unit.lsn, index, What::Key(prepared)),
                None if self.expires(db, &effect) => {}
                // No key can be made of this effect; replaying it will report why it does not fit.
                Some(Err(_)) | None => self.encode(first, (unit.lsn, index), db, &effect),
            }
            index += 1;
            self.count(left - reader.bytes_left());
            left = reader.bytes_left();
            if left > 0 && self.is_full(piece_bytes) {
                let last_key = reader.last_key().map(|(db, key)| (db, key.to_vec()));
                return Some(Begun { effects: index, bytes: unit.effects.len() - left, last_key });
            }
        }
        if left > 0 {
            self.count(left);
            self.push(unit.lsn, index, What::Unfit("can't be read".to_owned()));
        }
        None
    }

    /// Counts bytes read from a unit, which take about as much memory in the piece.
    fn count(&mut self, bytes: usize) {
        self.unit_bytes += bytes;
        self.held_bytes += bytes;
    }

    /// Returns whether an effect sets the deadline of the last finished key; if so, applies it.
    fn expires(&mut self, db: DbIndex, effect: &Effect<'_>) -> bool {
        let Effect::ExpireAt { key, at_ms } = *effect else { return false };
        let Some(Change { what: What::Key(prepared), .. }) = self.changes.last_mut() else { return false };
        let is_same = prepared.is(db, key);
        if is_same {
            prepared.expire_at(at_ms);
        }
        is_same
    }

    /// Stores an effect that depends on existing data, with number `index` in its unit. The unit's changes begin at
    /// `first`.
    fn encode(&mut self, first: usize, (lsn, index): (Lsn, usize), db: DbIndex, effect: &Effect<'_>) {
        let start = self.encoded.len();
        let key = effect.key().map(|key| (db, hash_bytes(key)));
        match self.changes[first..].last_mut() {
            Some(Change { what: What::Effects { at, key: before }, .. }) if *before == key => {
                self.encoded.write(db, effect);
                at.end = self.encoded.len();
            }
            _ => {
                self.encoded.begin_anew();
                self.encoded.write(db, effect);
                self.held_bytes += effect.key().map_or(0, <[u8]>::len);
                let at = start..self.encoded.len();
                self.push(lsn, index, What::Effects { at, key });
            }
        }
    }

    fn push(&mut self, lsn: Lsn, index: usize, what: What) {
        self.held_bytes += size_of::<Change>() + if let What::Key(key) = &what { key.name().len() } else { 0 };
        self.changes.push(Change { lsn, index, what });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::base::ahead::Piece as _;
    use crate::log::block::unit_head;
    use crate::log::directory::{Directory, DirectoryId};
    use crate::log::group_commit::{Commit, Log, Options, Tail};
    use crate::log::limits::LOAD_PIECE_BYTES;
    use crate::log::sim::SimDisk;
    use crate::log::snapshot::writer::{Begin, Sizes};

    fn piece_of(units: &[&[Effect<'_>]]) -> Piece {
        let (mut piece, mut preparation) = (Piece::default(), Preparation::default());
        for effects in units {
            let mut writer = EffectWriter::default();
            effects.iter().for_each(|effect| writer.write(0, effect));
            let unit = Unit { lsn: Lsn::NONE, format: EFFECTS_FORMAT, origin: 0, effects: writer.as_bytes() };
            assert!(piece.add(&unit, Begun::default(), usize::MAX, &mut preparation).is_none());
        }
        piece
    }

    #[test]
    fn effects_that_need_existing_data_stay_in_runs_between_the_keys_of_their_unit() {
        let put = |key| Effect::Put { key, value: b"v" };
        let set = |field| Effect::HashSet { key: b"h", field, value: b"v" };
        let expire = || Effect::ExpireAt { key: b"a", at_ms: 9 };
        let first = [put(b"a"), expire(), set(b"f"), expire(), set(b"g"), put(b"b"), set(b"i")];
        let piece = piece_of(&[&first, &[set(b"j"), set(b"k")]]);
        let seen: Vec<_> = piece
            .changes
            .iter()
            .map(|Change { index, what, .. }| match what {
                What::Key(key) => (*index, key.name(), Vec::new()),
                What::Effects { at, .. } => {
                    (*index, &b""[..], piece.effects(at.clone()).map(|(_, effect)| effect).collect())
                }
                What::Begin { .. } | What::Unfit(_) => panic!("all units can be read"),
            })
            .collect();
        let expected = [
            (0, &b"a"[..], vec![]),
            (2, b"", vec![set(b"f")]),
            (3, b"", vec![expire()]),
            (4, b"", vec![set(b"g")]),
            (5, b"b", vec![]),
            (6, b"", vec![set(b"i")]),
            (0, b"", vec![set(b"j"), set(b"k")]),
        ];
        assert_eq!(seen, expected);
    }

    /// The units of a journal by block, each unit with its effects as text, and the total bytes of the units.
    type Blocks = (Vec<Vec<Vec<String>>>, usize);

    fn open(disk: &SimDisk) -> Log {
        let options = Options { first_segment_bytes: 64 * 1024, prepared_segments: 0, ..Options::default() };
        let restore = Restore::open(directory(disk)).unwrap();
        restore.finish(options, Arc::new(disk.clone()), Box::new(|| {})).unwrap()
    }

    /// Writes a journal with small blocks of few units, large blocks of many, and units longer than a piece.
    fn write_log(disk: &SimDisk) -> Blocks {
        let (log, mut blocks, mut next, mut unit_bytes) = (open(disk), Vec::new(), Lsn::FIRST, 0);
        for (units, effects) in [(1, 1), (3, 2), (40_000, 1), (1, 60_000), (2, 0), (5, 20_000), (1, 1)] {
            let (mut bytes, mut block) = (log.buffer(), Vec::new());
            for unit in 0..units {
                let (mut writer, mut shown) = (EffectWriter::default(), Vec::new());
                for n in 0..effects {
                    let key = format!("key:{unit}:{}", n / 1_000).into_bytes();
                    let value = format!("value:{n}").into_bytes();
                    let effect = match n % 10 {
                        0 => Effect::Put { key: &key, value: &value },
                        1 => Effect::ExpireAt { key: &key, at_ms: 9_000 },
                        2 => Effect::SetText { key: &key, value: &value },
                        _ => Effect::HashSet { key: &key, field: b"f", value: &value },
                    };
                    let db = n / 500 % 3;
                    writer.write(db, &effect);
                    shown.push(format!("{db} {effect:?}"));
                }
                unit_bytes += UNIT_HEAD_BYTES + writer.len();
                bytes.extend_from_slice(&unit_head(EFFECTS_FORMAT, 0, writer.len() as u32));
                bytes.extend_from_slice(writer.as_bytes());
                block.push(shown);
            }
            let time_ms = blocks.len() as i64;
            log.commit(Tail { bytes, first_lsn: next, units, time_ms }, Commit::InPlace);
            while log.do_chore() {}
            next = next.plus(u64::from(units));
            blocks.push(block);
        }
        (blocks, unit_bytes)
    }

    fn directory(disk: &SimDisk) -> Directory {
        Directory::open(Arc::new(disk.clone()), Path::new("/data"), DirectoryId::new([1; 16])).unwrap()
    }

    #[test]
    fn pieces_of_a_journal_are_of_one_size_and_complete() {
        let disk = SimDisk::new(1);
        let (blocks, unit_bytes) = write_log(&disk);
        let mut source = LoadPieces::new(Restore::open(directory(&disk)).unwrap(), LOAD_PIECE_BYTES);
        let (mut found, mut position, mut time_ms) = (Vec::new(), Position::Segment(0, 0), -1);
        let (mut sizes, mut log_bytes) = (Vec::new(), 0);
        let mut piece = Piece::default();
        while source.fill(&mut piece) {
            for Change { lsn, index, what } in piece.changes.drain(..) {
                let mut note = |index, effect: String| found.push((time_ms, lsn.get(), index, effect));
                match what {
                    What::Begin { time_ms: at, position: behind } => {
                        (time_ms, position) = (at, behind);
                    }
                    What::Key(key) => {
                        let mut writer = EffectWriter::default();
                        key.encode(&mut writer);
                        for (behind, (db, effect)) in EffectReader::new(writer.as_bytes()).enumerate() {
                            note(index + behind, format!("{db} {effect:?}"));
                        }
                    }
                    What::Effects { at, .. } => {
                        let encoded = EffectReader::new(&piece.encoded.as_bytes()[at]);
                        encoded
                            .enumerate()
                            .for_each(|(behind, (db, effect))| note(index + behind, format!("{db} {effect:?}")));
                    }
                    What::Unfit(why) => panic!("{why}"),
                }
            }
            assert!(piece.error.is_none() && piece.progress.0 <= piece.progress.1);
            sizes.push(piece.held_bytes);
            log_bytes += piece.log_bytes;
            piece.clear();
        }
        let (mut expected, mut lsn) = (Vec::new(), 0);
        for (time_ms, block) in blocks.iter().enumerate() {
            for unit in block {
                lsn += 1;
                for (index, effect) in unit.iter().enumerate() {
                    expected.push((time_ms as i64, lsn, index, effect.clone()));
                }
            }
        }
        let first_other = expected.iter().zip(&found).position(|(expected, found)| expected != found);
        assert_eq!((first_other, found.len()), (None, expected.len()));
        // No piece is larger than necessary, and only the last is smaller.
        let last = sizes.pop().unwrap();
        assert!(sizes.len() > 8 && last < LOAD_PIECE_BYTES, "{sizes:?}");
        for size in &sizes {
            assert!((LOAD_PIECE_BYTES..LOAD_PIECE_BYTES + 300).contains(size), "{sizes:?}");
        }
        assert_eq!(log_bytes, unit_bytes);
        assert_eq!(position, source.restore.position());
        let (read, all) = source.restore.progress();
        assert!(read < all, "zeros are left");
        assert_eq!(source.restore.unread_log_bytes(), 0);
    }

    /// Returns the memory taken by a piece's keys and effects.
    fn taken(piece: &Piece) -> usize {
        let names = piece.changes.iter().map(|change| match &change.what {
            What::Key(key) => key.name().len(),
            _ => 0,
        });
        size_of_val(&piece.changes[..]) + names.sum::<usize>() + piece.encoded.len()
    }

    /// A journal and a snapshot, each with only this unit.
    fn written_twice(effects: &[u8]) -> [SimDisk; 2] {
        let unit = [&unit_head(EFFECTS_FORMAT, 0, effects.len() as u32), effects].concat();
        let (in_log, in_snapshot) = (SimDisk::new(1), SimDisk::new(2));
        let log = open(&in_log);
        let bytes = [log.buffer(), unit.clone()].concat();
        log.commit(Tail { bytes, first_lsn: Lsn::FIRST, units: 1, time_ms: 1 }, Commit::InPlace);
        let begin = Begin { serial: 1, time_ms: 1, sizes: Sizes::default(), notify: Box::new(|| {}) };
        let mut writer = open(&in_snapshot).snapshot(begin);
        writer.push(unit, 1);
        writer.finish(Lsn::FIRST, 1);
        while writer.outcome().is_none() {
            writer.step();
        }
        [in_log, in_snapshot]
    }

    #[test]
    fn a_piece_barely_exceeds_its_limit_however_short_its_effects() {
        const PIECE_BYTES: usize = 50_000;
        for key in [&[b'k'; 2_000][..], b"k"] {
            // Each effect repeats the key, in one byte, and creates another key of that name or is stored with it.
            let (mut writer, effects) = (EffectWriter::default(), 5_000);
            for value in 0..effects {
                writer.write(0, &Effect::SetInteger { key, value });
                writer.write(0, &Effect::HashSet { key, field: b"f", value: b"" });
            }
            for disk in written_twice(writer.as_bytes()) {
                let mut source = LoadPieces::new(Restore::open(directory(&disk)).unwrap(), PIECE_BYTES);
                let (mut found, mut piece) = (0, Piece::default());
                while source.fill(&mut piece) {
                    assert!(piece.error.is_none());
                    assert!(taken(&piece) < PIECE_BYTES + 2 * 2_000, "{}", taken(&piece));
                    found += piece.changes.iter().filter(|change| matches!(change.what, What::Key(_))).count();
                    piece.clear();
                }
                assert_eq!(found, effects as usize);
            }
        }
    }

    #[test]
    fn the_first_piece_of_a_journal_estimates_the_number_of_keys_from_its_content() {
        // Each unit sets its own key, in two databases, or all units set the same key.
        let guess = |is_other: fn(u64) -> u64| {
            let mut piece = Piece::default();
            let (mut preparation, mut n) = (Preparation::default(), 0);
            while !piece.is_full(LOAD_PIECE_BYTES) {
                let (mut writer, key) = (EffectWriter::default(), is_other(n).to_le_bytes());
                writer.write((n % 3 / 2) as DbIndex, &Effect::Put { key: &key, value: b"v" });
                let unit = Unit { lsn: Lsn::FIRST, format: EFFECTS_FORMAT, origin: 0, effects: writer.as_bytes() };
                piece.add(&unit, Begun::default(), usize::MAX, &mut preparation);
                n += 1;
            }
            // This part is a tenth of the whole.
            piece.guess(9 * piece.unit_bytes as u64);
            (piece, n)
        };
        let (mut piece, n) = guess(|n| n);
        assert_eq!(piece.expected, [(0, (n - n / 3) * 10), (1, n / 3 * 10)]);
        piece.guess(u64::MAX);
        assert_eq!(piece.expected, [(0, LOG_EXPECTED_KEYS_MAX), (1, LOG_EXPECTED_KEYS_MAX)]);
        assert_eq!(guess(|_| 7).0.expected, [(0, 10), (1, 10)]);
    }

    #[test]
    fn the_first_piece_of_a_journal_estimates_only_if_another_one_follows() {
        let disk = SimDisk::new(1);
        write_log(&disk);
        for (piece_bytes, guesses) in [(LOAD_PIECE_BYTES, true), (usize::MAX, false)] {
            let (mut source, mut piece) =
                (LoadPieces::new(Restore::open(directory(&disk)).unwrap(), piece_bytes), Piece::default());
            assert!(source.fill(&mut piece) && piece.expected.is_empty() != guesses);
            piece.clear();
            assert!(!guesses || source.fill(&mut piece) && piece.expected.is_empty(), "it has done so");
        }
    }

    #[test]
    fn a_piece_that_was_huge_gives_its_memory_back_when_it_is_cleared() {
        // A single effect may be longer than a piece.
        let value = vec![b'v'; 2 * LOAD_PIECE_BYTES];
        let mut piece = piece_of(&[&[Effect::HashSet { key: b"h", field: b"f", value: &value }]]);
        assert!(piece.weight() > value.len());
        piece.clear();
        assert_eq!((piece.held_bytes, piece.unit_bytes, piece.encoded.len()), (0, 0, 0));
        assert!(piece.encoded.into_bytes().capacity() <= 2 * LOAD_AHEAD_KEEP_BYTES);
    }
}
