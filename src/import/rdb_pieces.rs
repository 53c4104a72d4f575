//! An RDB file on its way into a server that starts: what a thread reads ahead, in pieces that are ready to be put in.

use std::fs::File;

use super::error::ImportError;
use super::load::{self, Destination, Next, Stop};
use super::report::Report;
use super::target::library_name;
use crate::base::ahead::{self, Source};
use crate::base::excerpt;
use crate::base::limits::{BULK_SLICE_BYTES, RDB_KEY_MIN_BYTES};
use crate::engine::bulk_load::{Batch, NotAdded, Refused, Slice};
use crate::keyspace::prepared::PreparedKey;
use crate::keyspace::{DbIndex, NEVER, ValueLimits};
use crate::rdb;
use crate::rdb::file::{FileError, KeyRecord, Reader};

/// Reads a file to its end.
pub(super) struct RdbPieces {
    reader: Reader<File>,
    /// Where values change their representation.
    limits: ValueLimits,
    is_at_end: bool,
}

/// What was read in one go.
#[derive(Default)]
pub(super) struct Piece {
    /// What is told or added before the keys.
    first: Vec<BeforeKeys>,
    batch: Batch,
    /// What of it is done when all of it is added.
    pub(super) report: Report,
    /// Bytes of the file that were read.
    pub(super) offset: u64,
    /// Why there is no more.
    stop: Option<Stop>,
}

enum BeforeKeys {
    /// So many keys are said to come in a database.
    Expect { db: u64, keys: u64 },
    /// The text of a library of functions.
    Library(Vec<u8>),
}

impl RdbPieces {
    pub(super) fn new(reader: Reader<File>, limits: ValueLimits) -> RdbPieces {
        RdbPieces { reader, limits, is_at_end: false }
    }

    /// The reader, behind what was read.
    pub(super) fn into_reader(self) -> Reader<File> {
        self.reader
    }
}

impl Source for RdbPieces {
    type Piece = Piece;

    fn fill(&mut self, piece: &mut Piece) -> bool {
        if self.is_at_end {
            return false;
        }
        let until = self.reader.offset() + BULK_SLICE_BYTES;
        let mut gathering = Gathering { piece, limits: &self.limits };
        while self.reader.offset() < until && !self.is_at_end {
            match load::next(&mut self.reader, &mut gathering) {
                Ok(next) => self.is_at_end = matches!(next, Next::End),
                Err(stop) => {
                    gathering.piece.stop = Some(stop);
                    self.is_at_end = true;
                }
            }
        }
        piece.offset = self.reader.offset();
        true
    }
}

impl ahead::Piece for Piece {
    fn bytes(&self) -> usize {
        self.batch.effect_bytes()
    }
}

impl Piece {
    /// Adds all of it, and leaves it empty. `file_bytes` are those of all files.
    pub(super) fn add_to(&mut self, slice: &mut Slice<'_>, file_bytes: u64) -> Result<(), Stop> {
        for what in self.first.drain(..) {
            match what {
                // However many a damaged file may claim.
                BeforeKeys::Expect { db, keys } => slice.expect(db, keys.min(file_bytes / RDB_KEY_MIN_BYTES)),
                BeforeKeys::Library(text) => slice.add_library(&text).map_err(|error| {
                    let what = format!("the library {}", library_name(&text));
                    Stop::Import(ImportError::Refused { what, text: excerpt::of_text(&error) })
                })?,
            }
        }
        slice.add(&mut self.batch)?;
        self.stop.take().map_or(Ok(()), Err)
    }
}

/// A piece that takes what a file holds.
struct Gathering<'p> {
    piece: &'p mut Piece,
    limits: &'p ValueLimits,
}

impl Destination for Gathering<'_> {
    fn expect(&mut self, db: u64, keys: u64) {
        self.piece.first.push(BeforeKeys::Expect { db, keys });
    }

    fn key(&mut self, record: &KeyRecord<'_>) -> Result<(), Stop> {
        let Ok(db) = DbIndex::try_from(record.db) else {
            return Err(Refused { db: record.db, name: record.key.to_vec(), why: NotAdded::NoDatabase }.into());
        };
        let mut key = match record.text() {
            Some(text) => PreparedKey::text(db, &record.key, &text),
            None => {
                let value = rdb::load_value(record.dialect, record.code, record.value, self.limits);
                // The file's checksum is looked at when all has been read: it may be damaged.
                let what = "a value that is none of its type";
                let value = value.map_err(|_| Stop::File(FileError::Damaged { offset: record.offset, what }))?;
                PreparedKey::new(db, &record.key, value)
            }
        };
        if let Some(at_ms) = record.expires_at_ms {
            key.expire_at(at_ms.clamp(0, NEVER - 1));
        }
        self.piece.batch.push(key, record.idle_s);
        self.piece.report.keys += 1;
        Ok(())
    }

    fn library(&mut self, text: &[u8]) -> Result<(), Stop> {
        self.piece.first.push(BeforeKeys::Library(text.to_vec()));
        self.piece.report.libraries += 1;
        Ok(())
    }

    fn report(&mut self) -> &mut Report {
        &mut self.piece.report
    }
}
