//! An RDB file loaded at the start of a server: a thread reads ahead and prepares pieces for the engine.

use std::fs::File;

use super::error::ImportError;
use super::load::{self, Destination, Next, Stop};
use super::report::Report;
use super::target::library_name;
use crate::base::ahead::{self, Source};
use crate::base::excerpt;
use crate::engine::persistence::bulk_load::{Batch, NotAdded, Refused, Slice};
use crate::import::limits::{BULK_SLICE_BYTES, RDB_KEY_MIN_BYTES};
use crate::keyspace::any_value::Value;
use crate::keyspace::limits::RESTORED_TOKEN_MAX;
use crate::keyspace::prepared::PreparedKey;
use crate::keyspace::{DbIndex, NEVER, ValueLimits};
use crate::rdb;
use crate::rdb::file::{FileError, KeyRecord, Reader};

/// Reads a file to its end, piece by piece.
pub(super) struct RdbPieces {
    reader: Reader<File>,
    /// Sizes at which values change their representation.
    limits: ValueLimits,
    is_at_end: bool,
}

/// One piece of a file.
#[derive(Default)]
pub(super) struct Piece {
    /// Items to apply before the keys.
    first: Vec<BeforeKeys>,
    batch: Batch,
    /// Report that holds once the whole piece is added.
    pub(super) report: Report,
    /// Bytes of the file read so far.
    pub(super) offset: u64,
    /// The reason why no piece follows.
    stop: Option<Stop>,
}

enum BeforeKeys {
    /// The number of keys announced for a database.
    Expect { db: u64, keys: u64 },
    /// The last fencing token issued by the source.
    Tokens(u64),
    /// The text of a library of functions.
    Library(Vec<u8>),
}

impl RdbPieces {
    pub(super) fn new(reader: Reader<File>, limits: ValueLimits) -> RdbPieces {
        RdbPieces { reader, limits, is_at_end: false }
    }

    /// Returns the reader, positioned after the bytes read.
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
        let until = self.reader.offset() + BULK_SLICE_BYTES as u64;
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
    fn weight(&self) -> usize {
        let first: usize = self.first.iter().map(BeforeKeys::bytes).sum();
        // Skipped data, such as omitted keys, counts for as much as a slice of the file holds.
        (first + self.batch.effect_bytes()).max(BULK_SLICE_BYTES)
    }
}

impl BeforeKeys {
    fn bytes(&self) -> usize {
        let text = match self {
            BeforeKeys::Expect { .. } | BeforeKeys::Tokens(_) => 0,
            BeforeKeys::Library(text) => text.len(),
        };
        size_of::<BeforeKeys>() + text
    }
}

impl Piece {
    /// Adds the whole piece and leaves it empty. `file_bytes` is the total size of all files.
    pub(super) fn add_to(&mut self, slice: &mut Slice<'_>, file_bytes: u64) -> Result<(), Stop> {
        for what in self.first.drain(..) {
            match what {
                // Limited, because a damaged file may announce any number.
                BeforeKeys::Expect { db, keys } => slice.expect(db, keys.min(file_bytes / RDB_KEY_MIN_BYTES)),
                BeforeKeys::Tokens(last) => slice.raise_tokens(last),
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

/// A piece that collects the contents of a file.
struct Gathering<'p> {
    piece: &'p mut Piece,
    limits: &'p ValueLimits,
}

impl Destination for Gathering<'_> {
    fn expect(&mut self, db: u64, keys: u64) {
        self.piece.first.push(BeforeKeys::Expect { db, keys });
    }

    fn tokens(&mut self, last: u64) -> Result<(), Stop> {
        self.piece.first.push(BeforeKeys::Tokens(last.min(RESTORED_TOKEN_MAX)));
        Ok(())
    }

    fn key(&mut self, record: &KeyRecord<'_>) -> Result<(), Stop> {
        let Ok(db) = DbIndex::try_from(record.db) else {
            return Err(Refused { db: record.db, name: record.key.to_vec(), why: NotAdded::NoDatabase }.into());
        };
        let mut key = match record.text() {
            Some(text) => PreparedKey::text(db, &record.key, &text),
            None => {
                let value = rdb::load_value(record.dialect, record.code, record.value, self.limits);
                // The file may be damaged, because its checksum is verified only at the end.
                let what = "a value that is none of its type";
                let leaves_tokens = |value: &Value| match value {
                    Value::Grants(grants) => grants.last_token() <= RESTORED_TOKEN_MAX,
                    _ => true,
                };
                let value = value.ok().filter(leaves_tokens);
                let value = value.ok_or(Stop::File(FileError::Damaged { offset: record.offset, what }))?;
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

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    /// Returns the weights of the pieces of a file with these entries.
    fn weights(entries: &[u8]) -> Vec<usize> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b"REDIS0011", entries, &[0xff], &[0; 8]].concat()).unwrap();
        file.rewind().unwrap();
        let mut source = RdbPieces::new(Reader::new(file).unwrap(), ValueLimits::default());
        let mut weights = Vec::new();
        loop {
            let mut piece = Piece::default();
            if !source.fill(&mut piece) {
                return weights;
            }
            assert!(piece.stop.is_none());
            weights.push(ahead::Piece::weight(&piece));
        }
    }

    #[test]
    fn each_piece_counts_for_at_least_its_contents_and_one_slice() {
        let slice = BULK_SLICE_BYTES;
        let library = |bytes: usize| [&[0xf5, 0x80], &(bytes as u32).to_be_bytes()[..], &vec![b'x'; bytes]].concat();
        let hint = [0xfb, 1, 0];
        // A set without members.
        let empty_key = [2, 1, b'k', 0];
        // Each case has the least memory that it takes, in bytes.
        let cases = [
            ("hints", hint.repeat(100_000), 100_000 * 16),
            ("libraries", library(slice / 2).repeat(6), 6 * slice / 2),
            ("a large library", library(4 * slice), 4 * slice),
            ("keys that are left out", empty_key.repeat(50_000), 0),
        ];
        for (what, entries, held) in cases {
            let weights = weights(&entries);
            assert!(weights.iter().all(|weight| *weight >= slice), "{what}: {weights:?}");
            assert!(weights.iter().sum::<usize>() >= held, "{what}: {weights:?}");
        }
    }
}
