//! Frames: the pieces in which messages travel on a connection.
//!
//! | Offset | Bytes | Field |
//! |--:|--:|---|
//! | 0 | 4 | bytes of the payload, little-endian; 0 in a sign of life |
//! | 4 | 4 | CRC-32C of the payload |
//! | 8 | | payload |
//!
//! TLS authenticates each byte already. The checksum finds what a faulty machine changed before it was encrypted.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};

use super::limits::{FRAME_MAX_BYTES, READ_CHUNK_BYTES, SHARED_FRAME_MIN_BYTES};
use crate::log::checksum::crc32c;

const HEAD_BYTES: usize = 8;

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame has {bytes} bytes, and {most} are allowed")]
    Long { bytes: usize, most: usize },
    #[error("a frame has another checksum than it says")]
    Checksum,
}

/// Appends a frame whose payload `encode` appends.
pub(super) fn append(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let head = out.len();
    out.extend([0; HEAD_BYTES]);
    encode(out);
    let payload = &out[head + HEAD_BYTES..];
    debug_assert!(payload.len() <= FRAME_MAX_BYTES, "no message is so long");
    let (len, crc) = (payload.len() as u32, crc32c(payload));
    out[head..head + 4].copy_from_slice(&len.to_le_bytes());
    out[head + 4..head + HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// Appends a frame without a payload.
pub(super) fn append_sign_of_life(out: &mut Vec<u8>) {
    append(out, |_| {});
}

/// Takes frames out of a stream of bytes.
pub(super) struct FrameReader {
    buffer: BytesMut,
    /// Bytes that a payload may have.
    most: usize,
}

impl Default for FrameReader {
    fn default() -> FrameReader {
        FrameReader::up_to(FRAME_MAX_BYTES)
    }
}

impl FrameReader {
    /// Makes a reader that refuses longer payloads.
    pub(super) fn up_to(most: usize) -> FrameReader {
        FrameReader { buffer: BytesMut::new(), most }
    }

    /// Returns the buffer to append the next bytes to. It has room for some. The room follows what has arrived, not
    /// the length that a frame states: a stranger's length allocates nothing.
    pub(super) fn room(&mut self) -> &mut BytesMut {
        let missing = self.head().map_or(HEAD_BYTES, |(len, _)| HEAD_BYTES + len).saturating_sub(self.buffer.len());
        self.buffer.reserve(missing.min(self.buffer.len()).max(READ_CHUNK_BYTES));
        &mut self.buffer
    }

    /// Takes the payload of the next frame, if all of it has arrived. Signs of life are passed over.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        while let Some((len, crc)) = self.head() {
            if len > self.most {
                return Err(FrameError::Long { bytes: len, most: self.most });
            }
            let Some(payload) = self.buffer.get(HEAD_BYTES..HEAD_BYTES + len) else { return Ok(None) };
            if crc32c(payload) != crc {
                return Err(FrameError::Checksum);
            }
            if len == 0 {
                self.buffer.advance(HEAD_BYTES);
                continue;
            }
            return Ok(Some(self.take(len)));
        }
        Ok(None)
    }

    /// Takes a payload that is there. A long one keeps its memory, and the bytes behind it move to a new buffer.
    fn take(&mut self, len: usize) -> Bytes {
        self.buffer.advance(HEAD_BYTES);
        if len < SHARED_FRAME_MIN_BYTES {
            let payload = Bytes::copy_from_slice(&self.buffer[..len]);
            self.buffer.advance(len);
            return payload;
        }
        let rest = BytesMut::from(&self.buffer[len..]);
        let mut payload = mem::replace(&mut self.buffer, rest);
        payload.truncate(len);
        payload.freeze()
    }

    /// Returns the length and the checksum that the next frame states.
    fn head(&self) -> Option<(usize, u32)> {
        let [a, b, c, d, crc @ ..] = self.buffer.first_chunk::<HEAD_BYTES>()?;
        Some((u32::from_le_bytes([*a, *b, *c, *d]) as usize, u32::from_le_bytes(*crc)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    /// Returns payloads short and long, and the bytes of their frames with signs of life between them.
    fn frames(rng: &mut Rng) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut stream = Vec::new();
        let payloads: Vec<Vec<u8>> = (0..rng.below(8) + 1)
            .map(|_| {
                let len =
                    [20, 400, SHARED_FRAME_MIN_BYTES as u64 + 2, 3 * READ_CHUNK_BYTES as u64][rng.below(4) as usize];
                (0..rng.below(len) + 1).map(|_| rng.next_u64() as u8).collect()
            })
            .collect();
        for payload in &payloads {
            append(&mut stream, |out| out.extend(payload));
            if rng.below(2) == 0 {
                append_sign_of_life(&mut stream);
            }
        }
        (payloads, stream)
    }

    /// Reads a stream in random pieces until its end or its first fault.
    fn read(mut stream: &[u8], rng: &mut Rng) -> (Vec<Bytes>, Option<FrameError>) {
        let (mut reader, mut read) = (FrameReader::default(), Vec::new());
        while !stream.is_empty() {
            let room = reader.room();
            let len = (rng.below(100_000) as usize + 1).min(stream.len()).min(room.capacity() - room.len());
            room.extend_from_slice(&stream[..len]);
            stream = &stream[len..];
            loop {
                match reader.next() {
                    Ok(Some(payload)) => read.push(payload),
                    Ok(None) => break,
                    Err(error) => return (read, Some(error)),
                }
            }
        }
        (read, None)
    }

    #[test]
    fn frames_are_read_however_the_stream_is_split() {
        for seed in 0..200 {
            let mut rng = Rng::seeded(seed);
            let (payloads, stream) = frames(&mut rng);
            let (read, error) = read(&stream, &mut rng);
            assert_eq!(error, None, "seed {seed}");
            assert!(read == payloads, "seed {seed}");
        }
    }

    #[test]
    fn a_flipped_bit_never_changes_a_payload() {
        for seed in 0..300 {
            let mut rng = Rng::seeded(seed);
            let (payloads, mut stream) = frames(&mut rng);
            let at = rng.below(stream.len() as u64) as usize;
            stream[at] ^= 1 << rng.below(8);
            let (read, _) = read(&stream, &mut rng);
            assert!(read.len() <= payloads.len() && read.iter().zip(&payloads).all(|(a, b)| a == b), "seed {seed}");
        }
    }

    #[test]
    fn a_length_that_is_only_stated_allocates_nothing() {
        let mut reader = FrameReader::default();
        reader.room().extend((FRAME_MAX_BYTES as u32).to_le_bytes());
        reader.room().extend([0; 4]);
        assert_eq!(reader.next(), Ok(None));
        assert!(reader.room().capacity() <= 4 * READ_CHUNK_BYTES);
        let mut reader = FrameReader::default();
        reader.room().extend([0xff; HEAD_BYTES]);
        assert_eq!(reader.next(), Err(FrameError::Long { bytes: u32::MAX as usize, most: FRAME_MAX_BYTES }));
    }

    #[test]
    fn a_short_payload_does_not_keep_the_buffer() {
        let (mut reader, mut stream) = (FrameReader::default(), Vec::new());
        append(&mut stream, |out| out.extend(b"vote"));
        append(&mut stream, |out| out.resize(out.len() + SHARED_FRAME_MIN_BYTES, 7));
        stream.extend(b"rest");
        reader.room().extend_from_slice(&stream);
        let place = reader.buffer.as_ptr_range();
        let (short, long) = (reader.next().unwrap().unwrap(), reader.next().unwrap().unwrap());
        assert!(!place.contains(&short.as_ptr()) && place.contains(&long.as_ptr()));
        assert_eq!((&short[..], long.len(), &reader.buffer[..]), (&b"vote"[..], SHARED_FRAME_MIN_BYTES, &b"rest"[..]));
    }
}
