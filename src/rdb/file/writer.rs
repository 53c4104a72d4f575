//! From keys to a file that Redis loads.

use std::io::{self, Write};

use super::opcode;
use crate::base::crc::crc64_with;
use crate::keyspace::entry::Entry;
use crate::rdb::limits::RDB_WRITE_BYTES;
use crate::rdb::value::{self, Sink};
use crate::rdb::wire::{put_bytes, put_number, put_string};

/// Writes a file. See [`file`](super). The output is a complete file only after [`finish`](Writer::finish).
pub struct Writer<W> {
    output: W,
    /// Bytes not passed on yet.
    buffer: Vec<u8>,
    /// The checksum of the bytes passed on.
    crc: u64,
    /// The number of bytes passed on.
    handed_on: u64,
    db: Option<u64>,
    /// The output's failure while a value is being written.
    failure: Option<io::Error>,
}

impl<W: Write> Writer<W> {
    /// Begins a file of this version of RDB: [`VERSION`](super::super::VERSION), unless values of a newer one follow.
    pub fn new(output: W, version: u16) -> Writer<W> {
        let buffer = format!("REDIS{version:04}").into_bytes();
        Writer { output, buffer, crc: 0, handed_on: 0, db: None, failure: None }
    }

    /// A note about the file.
    pub fn aux(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.buffer.push(opcode::AUX);
        put_string(&mut self.buffer, name.as_bytes());
        put_string(&mut self.buffer, text.as_bytes());
        self.flush_if_full()
    }

    /// A library of functions.
    pub fn library(&mut self, text: &[u8]) -> io::Result<()> {
        self.buffer.push(opcode::LIBRARY);
        put_bytes(&mut self.buffer, text);
        self.flush_if_full()
    }

    /// A key, its deadline in Unix ms, and its value as type and bytes, the beginning of a DUMP payload.
    pub fn key(&mut self, db: u64, key: &[u8], expires_at_ms: Option<i64>, value: &[u8]) -> io::Result<()> {
        let (code, value) = value.split_at(value.len().min(1));
        self.begin_key(db, key, expires_at_ms, code);
        self.buffer.extend_from_slice(value);
        self.flush_if_full()
    }

    /// A key as it is in the keyspace. A large hash, set or sorted set is passed on while it is being written.
    pub fn entry(&mut self, db: u64, entry: Entry<'_>) -> io::Result<()> {
        self.begin_key(db, entry.key(), entry.expires_at_ms(), &[value::type_code(entry.value())]);
        value::encode(entry.value(), self);
        self.failure.take().map_or_else(|| self.flush_if_full(), Err)
    }

    /// Like [`entry`](Self::entry), but with the complete value, for another server of this kind.
    pub fn whole_entry(&mut self, db: u64, entry: Entry<'_>) -> io::Result<()> {
        self.begin_key(db, entry.key(), entry.expires_at_ms(), &[value::whole_type_code(entry.value())]);
        value::encode_whole(entry.value(), self);
        self.failure.take().map_or_else(|| self.flush_if_full(), Err)
    }

    fn begin_key(&mut self, db: u64, key: &[u8], expires_at_ms: Option<i64>, code: &[u8]) {
        if self.db != Some(db) {
            self.db = Some(db);
            self.buffer.push(opcode::SELECT_DB);
            put_number(&mut self.buffer, db);
        }
        if let Some(at_ms) = expires_at_ms {
            self.buffer.push(opcode::EXPIRES_AT_MS);
            self.buffer.extend_from_slice(&at_ms.to_le_bytes());
        }
        self.buffer.extend_from_slice(code);
        put_string(&mut self.buffer, key);
    }

    /// The number of bytes so far.
    pub fn byte_len(&self) -> u64 {
        self.handed_on + self.buffer.len() as u64
    }

    /// The output.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// Ends the file and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.buffer.push(opcode::END);
        self.crc = crc64_with(self.crc, &self.buffer);
        self.buffer.extend_from_slice(&self.crc.to_le_bytes());
        self.output.write_all(&self.buffer)?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= RDB_WRITE_BYTES {
            self.crc = crc64_with(self.crc, &self.buffer);
            self.output.write_all(&self.buffer)?;
            self.handed_on += self.buffer.len() as u64;
            self.buffer.clear();
            self.buffer.shrink_to(2 * RDB_WRITE_BYTES);
        }
        Ok(())
    }
}

impl<W: Write> Sink for Writer<W> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        if let Err(error) = self.flush_if_full() {
            self.failure.get_or_insert(error);
            // The rest of the value is not needed.
            self.buffer.clear();
        }
        &mut self.buffer
    }
}
