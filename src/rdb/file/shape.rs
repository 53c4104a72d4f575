//! Finds the end of a value: the bytes are copied unchanged and understood only as far as necessary to find what
//! follows.
//!
//! Whether the value is valid is checked by the code that decodes the bytes.

use std::io::Read;

use super::error::FileError;
use super::source::Source;
use crate::rdb::grants::STOCK;
use crate::rdb::limits::RDB_VALUE_MAX_BYTES;
use crate::rdb::types::*;
use crate::rdb::wire::{self, Head};
use crate::value::stock::Memory;

/// A failure to copy a value.
pub(super) enum Stop {
    /// See [`FileError::TooLong`].
    TooLong,
    File(FileError),
}

impl From<FileError> for Stop {
    fn from(error: FileError) -> Stop {
        Stop::File(error)
    }
}

/// The bytes of one value, which grow as they arrive.
pub(super) struct Copying<'a, R> {
    pub(super) source: &'a mut Source<R>,
    pub(super) out: &'a mut Vec<u8>,
}

impl<R: Read> Copying<'_, R> {
    /// Copies a value of a type that is [`known`].
    pub(super) fn value(&mut self, code: u8) -> Result<(), Stop> {
        match code {
            STRING
            | HASH_ZIPMAP
            | LIST_ZIPLIST
            | SET_INTSET
            | ZSET_ZIPLIST
            | HASH_ZIPLIST
            | HASH_LISTPACK
            | ZSET_LISTPACK
            | SET_LISTPACK
            | HASH_LISTPACK_EX_PREVIEW => self.string(),
            LIST | SET | LIST_QUICKLIST => self.many(Self::string),
            ZSET => self.many(|each| {
                each.string()?;
                each.score_text()
            }),
            ZSET_2 | VALKEY_HASH_2 => self.many(|each| {
                each.string()?;
                if code == VALKEY_HASH_2 {
                    each.string()?;
                }
                each.bytes(8)
            }),
            HASH => self.many(|each| {
                each.string()?;
                each.string()
            }),
            LIST_QUICKLIST_2 => self.many(|each| {
                each.number()?;
                each.string()
            }),
            HASH_METADATA | HASH_METADATA_PREVIEW => {
                if code == HASH_METADATA {
                    self.bytes(8)?;
                }
                self.many(|each| {
                    each.number()?;
                    each.string()?;
                    each.string()
                })
            }
            HASH_LISTPACK_EX => {
                self.bytes(8)?;
                self.string()
            }
            STREAM_1 => self.stream(1),
            STREAM_2 => self.stream(2),
            STREAM_3 => self.stream(3),
            STREAM_4 => self.stream(4),
            STREAM_5 => self.stream(5),
            GRANTS => self.grants(),
            STREAM_WITH_POLICIES | STREAM_WITH_DELAYED | STREAM_WHOLE => {
                let (strings, version) = match code {
                    STREAM_WITH_POLICIES => (1, 2),
                    STREAM_WITH_DELAYED => (2, 2),
                    _ => (3, 5),
                };
                (0..strings).try_for_each(|_| self.string())?;
                self.stream(version)
            }
            SET_METADATA => self.many(|each| {
                each.string()?;
                each.number().map(drop)
            }),
            _ => Err(self.damaged("a type without a known layout")),
        }
    }

    fn stream(&mut self, version: u8) -> Result<(), Stop> {
        self.many(|node| {
            node.string()?;
            node.string()
        })?;
        // Length and last id; then the first id, the largest deleted id, and the number of entries ever added.
        self.numbers(if version >= 2 { 8 } else { 3 })?;
        self.many(|group| {
            group.string()?;
            group.numbers(if version >= 2 { 3 } else { 2 })?;
            group.many(|pending| {
                pending.bytes(16 + 8)?;
                pending.number().map(drop)
            })?;
            group.many(|consumer| {
                consumer.string()?;
                consumer.bytes(if version >= 3 { 16 } else { 8 })?;
                consumer.many(|id| id.bytes(16))
            })?;
            if version >= 5 {
                group.many(|id| id.bytes(16))?;
            }
            Ok(())
        })?;
        if version < 4 {
            return Ok(());
        }
        // The time and number of requests remembered; at the end, the numbers of requests added and repeated.
        self.numbers(2)?;
        self.many(|producer| {
            producer.string()?;
            producer.many(|request| {
                request.string()?;
                request.numbers(2)
            })
        })?;
        self.numbers(2)
    }

    /// A lock, gate or stock: see `rdb/grants.rs`.
    fn grants(&mut self) -> Result<(), Stop> {
        let kind = self.number()?;
        self.numbers(2)?;
        self.many(|grant| {
            grant.string()?;
            grant.numbers(2)?;
            grant.bytes(16)?;
            grant.numbers(2)?;
            grant.string()
        })?;
        if kind != STOCK {
            return Ok(());
        }
        self.numbers(5)?;
        self.string()?;
        self.string()?;
        self.bytes(8)?;
        Memory::ALL.into_iter().try_for_each(|_| {
            self.many(|name| {
                name.string()?;
                name.number()?;
                name.bytes(8)
            })
        })
    }

    fn numbers(&mut self, count: usize) -> Result<(), Stop> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }

    /// A count, and that many elements.
    fn many(&mut self, mut each: impl FnMut(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        for _ in 0..self.number()? {
            each(self)?;
        }
        Ok(())
    }

    fn bytes(&mut self, len: u64) -> Result<(), Stop> {
        if len > (RDB_VALUE_MAX_BYTES.saturating_sub(self.out.len())) as u64 {
            return Err(Stop::TooLong);
        }
        Ok(self.source.copy(len, self.out)?)
    }

    /// A score as text, or as a mark without text.
    fn score_text(&mut self) -> Result<(), Stop> {
        let len = self.source.byte()?;
        self.out.push(len);
        self.bytes(if len < 253 { len.into() } else { 0 })
    }

    pub(super) fn number(&mut self) -> Result<u64, Stop> {
        match self.head()? {
            Head::Number(number) => Ok(number),
            _ => Err(self.damaged("a string in the place of a number")),
        }
    }

    pub(super) fn string(&mut self) -> Result<(), Stop> {
        match self.head()? {
            Head::Number(len) => self.bytes(len),
            Head::Integer(width) => self.bytes(width),
            Head::Packed => {
                let packed = self.number()?;
                let _whole = self.number()?;
                self.bytes(packed)
            }
        }
    }

    fn head(&mut self) -> Result<Head, Stop> {
        let first = self.source.byte()?;
        let behind = wire::bytes_behind(first).ok_or_else(|| self.damaged("an invalid first byte of a length"))?;
        let start = self.out.len();
        self.out.push(first);
        self.source.copy(behind as u64, self.out)?;
        Head::of(&self.out[start..]).ok_or_else(|| self.damaged("an invalid length"))
    }

    fn damaged(&self, what: &'static str) -> Stop {
        Stop::File(FileError::Damaged { offset: self.source.offset(), what })
    }
}
