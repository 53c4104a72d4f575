//! Snapshot and log on their way into the keyspace: what a thread reads ahead, in pieces that are ready to be put in.
//!
//! The thread reads, checks, unpacks and decodes. Of effects that give a key a whole value, which nearly all of a snapshot are and many
//! of a log, it makes the key ([`Preparation`]), and a deadline that follows upon it belongs to the key. All other effects need what is
//! there: they stay encoded, in their place between the keys.
//!
//! A piece holds a frame of the snapshot, or what many small blocks of the log hold together, or a part of a large one: then the next
//! piece goes on where this one ends, if need be in the middle of a unit.

use std::ops::Range;

use super::tail::EFFECTS_FORMAT;
use crate::base::ahead::{self, Source};
use crate::base::hasher::hash_bytes;
use crate::base::limits::{LOAD_AHEAD_KEEP_BYTES, LOAD_AHEAD_KEEP_CHANGES, RECOVERY_SLICE_BYTES, SNAPSHOT_FRAME_BYTES};
use crate::base::lsn::Lsn;
use crate::keyspace::DbIndex;
use crate::keyspace::effect::{Effect, EffectReader, EffectWriter};
use crate::keyspace::prepared::{Preparation, PreparedKey};
use crate::log::block::{Block, UNIT_HEAD_BYTES, Unit};
use crate::log::error::LogError;
use crate::log::restore::{Part, Position, Restore};

/// Reads snapshot and log to their end.
pub(super) struct LoadPieces {
    /// Where it reads.
    pub(super) restore: Restore,
    preparation: Preparation,
    /// What is left of the block that was read last.
    left: Option<Left>,
    /// Whether it has guessed how many keys the log holds.
    has_guessed: bool,
    has_ended: bool,
}

/// What is left of a block.
struct Left {
    /// Bytes of its units, and the Lsn of the first of them.
    bytes: usize,
    lsn: Lsn,
    /// How far the first of them has been read.
    begun: Begun,
}

/// How far a unit has been read.
#[derive(Default)]
struct Begun {
    /// Effects, and their bytes.
    effects: usize,
    bytes: usize,
    /// The database and the key of the last of them that is about one.
    last_key: Option<(DbIndex, Vec<u8>)>,
}

/// What was read in one go.
#[derive(Default)]
pub(super) struct Piece {
    /// About how many keys are to come in these databases, if they are empty.
    pub(super) expected: Vec<(DbIndex, u64)>,
    /// What is to be done, in this order.
    pub(super) changes: Vec<Change>,
    /// Effects that need what is there.
    encoded: EffectWriter,
    /// Bytes of the units that it holds, with their heads.
    unit_bytes: usize,
    /// Those of them that are of the log.
    pub(super) log_bytes: usize,
    /// Bytes that have been read, and that there are.
    pub(super) progress: (u64, u64),
    /// Why nothing can be read behind it.
    pub(super) error: Option<LogError>,
}

/// A change of the keyspace, or of what is kept beside it.
pub(super) struct Change {
    /// The unit. Those of a snapshot have that of the snapshot.
    pub(super) lsn: Lsn,
    /// Which effect of its unit it is, or the first of them, from 0.
    pub(super) index: usize,
    pub(super) what: What,
}

pub(super) enum What {
    /// What follows is of this time, Unix ms, and was read before this position.
    Begin {
        time_ms: i64,
        position: Position,
    },
    Key(PreparedKey),
    /// Effects that stand here in [`Piece::encoded`], all on one key or on none: its database and its hash.
    Effects {
        at: Range<usize>,
        key: Option<(DbIndex, u64)>,
    },
    /// Something that can't be repeated, and why.
    Unfit(String),
}

impl Change {
    /// The key that it is about, if it is about one: its database and its hash.
    pub(super) fn key(&self) -> Option<(DbIndex, u64)> {
        match &self.what {
            What::Key(key) => Some((key.db(), key.hash())),
            What::Effects { key, .. } => *key,
            What::Begin { .. } | What::Unfit(_) => None,
        }
    }
}

impl LoadPieces {
    pub(super) fn new(restore: Restore) -> LoadPieces {
        LoadPieces { restore, preparation: Preparation::default(), left: None, has_guessed: false, has_ended: false }
    }

    /// Reads on, and adds to the piece what it has room for. Answers whether there may be more for it.
    fn read_on(&mut self, piece: &mut Piece) -> bool {
        if let Some(left) = self.left.take()
            && let Some(block) = self.restore.block()
        {
            let begin = What::Begin { time_ms: block.time_ms(), position: self.restore.position() };
            piece.push(left.lsn, 0, begin);
            self.left = piece.add_block(block, left, &mut self.preparation);
            return !piece.is_full();
        }
        match self.restore.next_part() {
            Ok(Some(Part::Block(block))) => {
                let mut units = block.units();
                let bytes = units.bytes_left();
                self.left = units.next().map(|first| Left { bytes, lsn: first.lsn, begun: Begun::default() });
                return true;
            }
            Ok(Some(Part::Snapshot(frame))) => {
                let (lsn, offset) = (frame.end().lsn, frame.progress().0);
                let position = Position::Snapshot(lsn, offset);
                piece.push(lsn, 0, What::Begin { time_ms: frame.begun_ms(), position });
                for unit in frame.units() {
                    piece.add(&unit, Begun::default(), usize::MAX, &mut self.preparation);
                }
            }
            Ok(Some(Part::Checked)) => {}
            Ok(None) => self.has_ended = true,
            Err(error) => {
                self.has_ended = true;
                piece.error = Some(error);
            }
        }
        false
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
            piece.guess();
        }
        true
    }
}

impl ahead::Piece for Piece {
    fn weight(&self) -> usize {
        // What was only checked, or is a part of one long unit of a snapshot, counts as much as a frame holds.
        if self.unit_bytes == 0 { SNAPSHOT_FRAME_BYTES } else { self.unit_bytes }
    }
}

impl Piece {
    /// The effects that stand there.
    pub(super) fn effects(&self, at: Range<usize>) -> EffectReader<'_> {
        EffectReader::new(&self.encoded.as_bytes()[at])
    }

    /// Forgets all, to be filled again.
    pub(super) fn clear(&mut self) {
        self.expected.clear();
        self.changes.clear();
        self.changes.shrink_to(LOAD_AHEAD_KEEP_CHANGES);
        self.encoded.clear(LOAD_AHEAD_KEEP_BYTES);
        (self.unit_bytes, self.log_bytes) = (0, 0);
        self.error = None;
    }

    /// Guesses how many keys are to come: as many in each part of the log as in this one, which is the first. Nothing in a log says
    /// it, and tables that split as they grow take a third of the time of a start. A guess that is far too high costs a few bytes for each key
    /// that comes, until all are there.
    fn guess(&mut self) {
        if !self.is_full() {
            return;
        }
        let mut keys: Vec<(DbIndex, u64)> = self.changes.iter().filter_map(Change::key).collect();
        keys.sort_unstable();
        keys.dedup();
        let (read, all) = self.progress;
        let times = all.saturating_sub(read) / self.unit_bytes as u64 + 1;
        let in_database = |keys: &[(DbIndex, u64)]| (keys[0].0, times.saturating_mul(keys.len() as u64));
        self.expected = keys.chunk_by(|one, other| one.0 == other.0).map(in_database).collect();
    }

    fn is_full(&self) -> bool {
        self.unit_bytes >= RECOVERY_SLICE_BYTES
    }

    /// Adds what is left of a block, until the piece is full. Answers what is left then.
    fn add_block(&mut self, block: Block<'_>, left: Left, preparation: &mut Preparation) -> Option<Left> {
        let before = self.unit_bytes;
        let mut units = block.last_units(left.bytes, left.lsn).units();
        let (mut bytes, mut begun) = (left.bytes, left.begun);
        let mut still_left = None;
        while let Some(unit) = units.next() {
            if self.is_full() {
                still_left = Some(Left { bytes, lsn: unit.lsn, begun: Begun::default() });
                break;
            }
            if let Some(begun) = self.add(&unit, begun, RECOVERY_SLICE_BYTES, preparation) {
                still_left = Some(Left { bytes, lsn: unit.lsn, begun });
                break;
            }
            (bytes, begun) = (units.bytes_left(), Begun::default());
        }
        self.log_bytes += self.unit_bytes - before;
        still_left
    }

    /// Adds what has not been read of a unit, until the piece holds so many bytes. Answers how far it has been read if that is not to
    /// its end.
    fn add(&mut self, unit: &Unit<'_>, begun: Begun, until: usize, preparation: &mut Preparation) -> Option<Begun> {
        if begun.effects == 0 {
            self.unit_bytes += UNIT_HEAD_BYTES;
        }
        if unit.format != EFFECTS_FORMAT {
            let what = format!("has format {}, which this version does not know", unit.format);
            self.push(unit.lsn, 0, What::Unfit(what));
            return None;
        }
        let last_key = begun.last_key.as_ref().map(|(db, key)| (*db, &key[..]));
        let mut reader = EffectReader::resume(last_key, &unit.effects[begun.bytes..]);
        let (first, mut index, mut left) = (self.changes.len(), begun.effects, reader.bytes_left());
        while self.unit_bytes < until
            && let Some((db, effect)) = reader.next()
        {
            match preparation.prepare(db, &effect) {
                Some(prepared) => {
                    let what = prepared.map_or_else(|misfit| What::Unfit(misfit.to_string()), What::Key);
                    self.push(unit.lsn, index, what);
                }
                None if self.expires(db, &effect) => {}
                None => self.encode(first, (unit.lsn, index), db, &effect),
            }
            index += 1;
            self.unit_bytes += left - reader.bytes_left();
            left = reader.bytes_left();
        }
        if left > 0 && self.unit_bytes >= until {
            let last_key = reader.last_key().map(|(db, key)| (db, key.to_vec()));
            return Some(Begun { effects: index, bytes: unit.effects.len() - left, last_key });
        }
        if left > 0 {
            self.unit_bytes += left;
            self.push(unit.lsn, index, What::Unfit("can't be read".to_owned()));
        }
        None
    }

    /// Whether an effect says when the key expires that was made last. It does so then.
    fn expires(&mut self, db: DbIndex, effect: &Effect<'_>) -> bool {
        let Effect::ExpireAt { key, at_ms } = *effect else { return false };
        let Some(Change { what: What::Key(prepared), .. }) = self.changes.last_mut() else { return false };
        let is_same = prepared.is(db, key);
        if is_same {
            prepared.expire_at(at_ms);
        }
        is_same
    }

    /// Keeps an effect that needs what is there, which is number `index` of its unit. The unit's changes begin at `first`.
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
                let at = start..self.encoded.len();
                self.push(lsn, index, What::Effects { at, key });
            }
        }
    }

    fn push(&mut self, lsn: Lsn, index: usize, what: What) {
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
    use crate::log::group_commit::{Commit, Options, Tail};
    use crate::log::sim::SimDisk;

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
    fn effects_that_need_what_is_there_stay_in_runs_between_the_keys_of_their_unit() {
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

    /// The units of a log, block by block, each unit with its effects in writing.
    type Blocks = Vec<Vec<Vec<String>>>;

    /// Writes a log with small blocks of few units, large ones of many, and units that are longer than a piece.
    fn write_log(disk: &SimDisk) -> Blocks {
        let directory = directory(disk);
        let options = Options { first_segment_bytes: 64 * 1024, prepared_segments: 0, ..Options::default() };
        let log = Restore::open(directory).unwrap().finish(options, Arc::new(disk.clone()), Box::new(|| {})).unwrap();
        let (mut blocks, mut next) = (Blocks::new(), Lsn::FIRST);
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
                    writer.write(0, &effect);
                    shown.push(format!("{effect:?}"));
                }
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
        blocks
    }

    fn directory(disk: &SimDisk) -> Directory {
        Directory::open(Arc::new(disk.clone()), Path::new("/data"), DirectoryId::new([1; 16])).unwrap()
    }

    #[test]
    fn pieces_of_a_log_are_of_one_size_and_miss_and_repeat_nothing() {
        let disk = SimDisk::new(1);
        let blocks = write_log(&disk);
        let mut source = LoadPieces::new(Restore::open(directory(&disk)).unwrap());
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
                        for (behind, (_, effect)) in EffectReader::new(writer.as_bytes()).enumerate() {
                            note(index + behind, format!("{effect:?}"));
                        }
                    }
                    What::Effects { at, .. } => {
                        let encoded = EffectReader::new(&piece.encoded.as_bytes()[at]);
                        encoded
                            .enumerate()
                            .for_each(|(behind, (_, effect))| note(index + behind, format!("{effect:?}")));
                    }
                    What::Unfit(why) => panic!("{why}"),
                }
            }
            assert!(piece.error.is_none() && piece.progress.0 <= piece.progress.1);
            sizes.push(piece.unit_bytes);
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
        // None is larger than it has to be, and only the last is smaller.
        let last = sizes.pop().unwrap();
        assert!(sizes.len() > 8 && last < RECOVERY_SLICE_BYTES, "{sizes:?}");
        for size in &sizes {
            assert!((RECOVERY_SLICE_BYTES..RECOVERY_SLICE_BYTES + 100).contains(size), "{sizes:?}");
        }
        assert_eq!(log_bytes, sizes.iter().sum::<usize>() + last);
        assert_eq!(position, source.restore.position());
    }

    #[test]
    fn the_first_piece_of_a_log_guesses_from_what_it_holds_how_many_keys_are_to_come() {
        // Every unit sets a key of its own, in two databases, or all the same one.
        let guess = |is_other: fn(u64) -> u64| {
            let mut piece = Piece::default();
            let (mut preparation, mut n) = (Preparation::default(), 0);
            while !piece.is_full() {
                let (mut writer, key) = (EffectWriter::default(), is_other(n).to_le_bytes());
                writer.write((n % 3 / 2) as DbIndex, &Effect::Put { key: &key, value: b"v" });
                let unit = Unit { lsn: Lsn::FIRST, format: EFFECTS_FORMAT, origin: 0, effects: writer.as_bytes() };
                piece.add(&unit, Begun::default(), usize::MAX, &mut preparation);
                n += 1;
            }
            // It is a tenth.
            piece.progress = (3, 3 + 9 * piece.unit_bytes as u64);
            piece.guess();
            (piece.expected, n)
        };
        let (expected, n) = guess(|n| n);
        assert_eq!(expected, [(0, (n - n / 3) * 10), (1, n / 3 * 10)]);
        assert_eq!(guess(|_| 7).0, [(0, 10), (1, 10)]);
        let mut small = piece_of(&[&[Effect::Put { key: b"k", value: b"v" }]]);
        small.guess();
        assert!(small.expected.is_empty(), "it is the only one");
    }

    #[test]
    fn a_piece_that_was_huge_gives_its_memory_back_when_it_is_cleared() {
        let set = |field| Effect::HashSet { key: b"h", field, value: b"v" };
        let put = Effect::Put { key: b"k", value: b"v" };
        let unit: Vec<Effect<'_>> = (0..200_000).map(|n| if n % 2 == 0 { put } else { set(b"f") }).collect();
        let mut piece = piece_of(&[&unit]);
        assert!(piece.weight() > RECOVERY_SLICE_BYTES);
        piece.clear();
        assert!(piece.changes.capacity() <= 2 * LOAD_AHEAD_KEEP_CHANGES, "{}", piece.changes.capacity());
        assert_eq!((piece.unit_bytes, piece.encoded.len()), (0, 0));
    }
}
