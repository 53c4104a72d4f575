//! A snapshot on its way into the keyspace: what a thread reads ahead, in pieces that are ready to be put in.
//!
//! The thread reads, checks, unpacks and decodes. Of effects that give a key a whole value, which nearly all of a snapshot are, it
//! makes the key ([`Preparation`]), and a deadline that follows upon it belongs to the key. All other effects need what is there:
//! they stay encoded, in their place between the keys.

use std::ops::Range;
use std::path::PathBuf;

use super::tail::EFFECTS_FORMAT;
use crate::base::ahead::{self, Source};
use crate::base::limits::{LOAD_AHEAD_KEEP_BYTES, SNAPSHOT_FRAME_BYTES};
use crate::keyspace::effect::{Effect, EffectReader, EffectWriter};
use crate::keyspace::prepared::{Preparation, PreparedKey};
use crate::log::block::{UNIT_HEAD_BYTES, Unit};
use crate::log::error::LogError;
use crate::log::restore::{Part, Restore};

/// Reads snapshots to their end. The log behind them is left.
pub(super) struct SnapshotPieces {
    /// Where it reads.
    pub(super) restore: Restore,
    preparation: Preparation,
    has_failed: bool,
}

/// What was read in one go.
#[derive(Default)]
pub(super) struct Piece {
    /// What is to be done, in this order.
    pub(super) changes: Vec<Change>,
    /// Effects that need what is there.
    encoded: EffectWriter,
    /// For how many bytes of effects it counts.
    pub(super) weight: usize,
    /// When the snapshot was begun, Unix ms.
    pub(super) time_ms: i64,
    /// The file, and the offset behind what was read.
    pub(super) position: (PathBuf, u64),
    /// Bytes that have been read, and that there are.
    pub(super) progress: (u64, u64),
    /// Why nothing can be read behind it.
    pub(super) error: Option<LogError>,
}

/// A change of the keyspace, or of what is kept beside it.
pub(super) struct Change {
    /// Which effect of its unit it is, or the first of them, from 0.
    pub(super) index: usize,
    pub(super) what: What,
}

pub(super) enum What {
    Key(PreparedKey),
    /// Effects that stand here in [`Piece::encoded`].
    Effects(Range<usize>),
    /// Something that can't be repeated, and why.
    Unfit(String),
}

impl SnapshotPieces {
    pub(super) fn new(restore: Restore) -> SnapshotPieces {
        SnapshotPieces { restore, preparation: Preparation::default(), has_failed: false }
    }
}

impl Source for SnapshotPieces {
    type Piece = Piece;

    fn fill(&mut self, piece: &mut Piece) -> bool {
        if self.has_failed || !self.restore.is_in_snapshot() {
            return false;
        }
        piece.clear();
        match self.restore.next_part() {
            Ok(Some(Part::Snapshot(frame))) => {
                piece.time_ms = frame.begun_ms();
                frame.units().for_each(|unit| piece.add(&unit, &mut self.preparation));
            }
            Ok(_) => {}
            Err(error) => {
                self.has_failed = true;
                piece.error = Some(error);
            }
        }
        // What was only checked, or is a part of one long unit, counts as much as a frame holds.
        if piece.weight == 0 {
            piece.weight = SNAPSHOT_FRAME_BYTES;
        }
        piece.position = self.restore.position();
        piece.progress = self.restore.progress();
        true
    }
}

impl ahead::Piece for Piece {
    fn weight(&self) -> usize {
        self.weight
    }
}

impl Piece {
    /// The effects that stand there.
    pub(super) fn effects(&self, at: Range<usize>) -> EffectReader<'_> {
        EffectReader::new(&self.encoded.as_bytes()[at])
    }

    fn clear(&mut self) {
        self.changes.clear();
        self.encoded.clear(LOAD_AHEAD_KEEP_BYTES);
        self.weight = 0;
        self.error = None;
    }

    fn add(&mut self, unit: &Unit<'_>, preparation: &mut Preparation) {
        self.weight += UNIT_HEAD_BYTES + unit.effects.len();
        if unit.format != EFFECTS_FORMAT {
            let what = format!("has format {}, which this version does not know", unit.format);
            self.push(0, What::Unfit(what));
            return;
        }
        let mut reader = EffectReader::new(unit.effects);
        let (first, mut count) = (self.changes.len(), 0);
        for (index, (db, effect)) in reader.by_ref().enumerate() {
            count = index + 1;
            match preparation.prepare(db, &effect) {
                Some(prepared) => {
                    let what = prepared.map_or_else(|misfit| What::Unfit(misfit.to_string()), What::Key);
                    self.push(index, what);
                }
                None if self.expires(db, &effect) => {}
                None => self.encode(first, index, db, &effect),
            }
        }
        if !reader.is_empty() {
            self.push(count, What::Unfit("can't be read".to_owned()));
        }
    }

    /// Whether an effect says when the key expires that was made last. It does so then.
    fn expires(&mut self, db: u16, effect: &Effect<'_>) -> bool {
        let Effect::ExpireAt { key, at_ms } = *effect else { return false };
        let Some(Change { what: What::Key(prepared), .. }) = self.changes.last_mut() else { return false };
        let is_same = prepared.is(db, key);
        if is_same {
            prepared.expire_at(at_ms);
        }
        is_same
    }

    /// Keeps an effect that needs what is there, which is number `index` of its unit. The unit's changes begin at `first`.
    fn encode(&mut self, first: usize, index: usize, db: u16, effect: &Effect<'_>) {
        let start = self.encoded.len();
        match self.changes[first..].last_mut() {
            Some(Change { what: What::Effects(at), .. }) => {
                self.encoded.write(db, effect);
                at.end = self.encoded.len();
            }
            _ => {
                self.encoded.begin_anew();
                self.encoded.write(db, effect);
                self.push(index, What::Effects(start..self.encoded.len()));
            }
        }
    }

    fn push(&mut self, index: usize, what: What) {
        self.changes.push(Change { index, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lsn::Lsn;

    fn piece_of(units: &[&[Effect<'_>]]) -> Piece {
        let (mut piece, mut preparation) = (Piece::default(), Preparation::default());
        for effects in units {
            let mut writer = EffectWriter::default();
            effects.iter().for_each(|effect| writer.write(0, effect));
            let unit = Unit { lsn: Lsn::NONE, format: EFFECTS_FORMAT, origin: 0, effects: writer.as_bytes() };
            piece.add(&unit, &mut preparation);
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
            .map(|Change { index, what }| match what {
                What::Key(key) => (*index, key.name(), Vec::new()),
                What::Effects(at) => (*index, &b""[..], piece.effects(at.clone()).map(|(_, effect)| effect).collect()),
                What::Unfit(why) => panic!("{why}"),
            })
            .collect();
        let expected = [
            (0, &b"a"[..], vec![]),
            (2, b"", vec![set(b"f"), expire(), set(b"g")]),
            (5, b"b", vec![]),
            (6, b"", vec![set(b"i")]),
            (0, b"", vec![set(b"j"), set(b"k")]),
        ];
        assert_eq!(seen, expected);
    }
}
