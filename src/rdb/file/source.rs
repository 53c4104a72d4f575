//! The bytes of a file in order, from any input. They are counted, summed, and copied piece by piece, so that no memory
//! is allocated for a length that is merely declared.

use std::io::{ErrorKind, Read};

use super::error::FileError;
use crate::base::crc::crc64_with;
use crate::rdb::limits::RDB_READ_BYTES;

/// The input of a [`Reader`](super::Reader). See the module's header.
pub(super) struct Source<R> {
    input: R,
    buffer: Box<[u8]>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    /// The position of the buffer in the file.
    offset: u64,
    /// The checksum of everything before `summed_to`, a position in the buffer.
    crc: u64,
    summed_to: usize,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Source<R> {
        let buffer = vec![0; RDB_READ_BYTES].into_boxed_slice();
        Source { input, buffer, start: 0, end: 0, offset: 0, crc: 0, summed_to: 0 }
    }

    /// The position of the next byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.start as u64
    }

    /// The checksum of everything read.
    pub(super) fn checksum(&mut self) -> u64 {
        self.crc = crc64_with(self.crc, &self.buffer[self.summed_to..self.start]);
        self.summed_to = self.start;
        self.crc
    }

    pub(super) fn byte(&mut self) -> Result<u8, FileError> {
        if self.start == self.end {
            self.fill()?;
        }
        let byte = self.buffer[self.start];
        self.start += 1;
        Ok(byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FileError> {
        let mut array = [0; N];
        if let Some(ready) = self.buffer[self.start..self.end].first_chunk() {
            array = *ready;
            self.start += N;
        } else {
            for byte in &mut array {
                *byte = self.byte()?;
            }
        }
        Ok(array)
    }

    /// Appends the next `len` bytes to `out` as they arrive.
    pub(super) fn copy(&mut self, mut len: u64, out: &mut Vec<u8>) -> Result<(), FileError> {
        while len > 0 {
            if self.start == self.end {
                self.fill()?;
            }
            let ready = &self.buffer[self.start..self.end];
            let taken = usize::try_from(len).map_or(ready.len(), |len| len.min(ready.len()));
            out.extend_from_slice(&ready[..taken]);
            self.start += taken;
            len -= taken as u64;
        }
        Ok(())
    }

    /// The bytes read ahead, and the rest of the input.
    pub(super) fn into_rest(self) -> (Vec<u8>, R) {
        (self.buffer[self.start..self.end].to_vec(), self.input)
    }

    /// Reads at least one byte into the buffer, which must be empty.
    fn fill(&mut self) -> Result<(), FileError> {
        self.checksum();
        self.offset = self.offset();
        (self.start, self.end, self.summed_to) = (0, 0, 0);
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(0) => return Err(FileError::CutOff { offset: self.offset }),
                Ok(read) => {
                    self.end = read;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(FileError::Io { offset: self.offset, source }),
            }
        }
    }
}
