//! The bytes of a file, in order, from wherever they come: counted, summed, and copied piece by piece, so that nothing is set
//! aside by a length that merely is declared.

use std::io::{ErrorKind, Read};

use super::error::FileError;
use crate::base::crc::crc64_with;
use crate::base::limits::RDB_READ_BYTES;

/// See the module's header.
pub(super) struct Source<R> {
    input: R,
    buffer: Box<[u8]>,
    /// What is unread of the buffer.
    start: usize,
    end: usize,
    /// Where the buffer begins in the file.
    offset: u64,
    /// The sum of all before `summed_to`, a place in the buffer.
    crc: u64,
    summed_to: usize,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Source<R> {
        let buffer = vec![0; RDB_READ_BYTES].into_boxed_slice();
        Source { input, buffer, start: 0, end: 0, offset: 0, crc: 0, summed_to: 0 }
    }

    /// Where the next byte stands in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.start as u64
    }

    /// The sum of all that was read.
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

    /// Appends the next `len` bytes to `out`, as they come in.
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

    /// What was read ahead of, and the rest.
    pub(super) fn into_rest(self) -> (Vec<u8>, R) {
        (self.buffer[self.start..self.end].to_vec(), self.input)
    }

    /// Reads at least one byte into the buffer, which is empty.
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
