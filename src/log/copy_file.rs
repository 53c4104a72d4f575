//! A copy of all data as one file: written from front to back in one go, so that it can go through a pipe, and read in
//! the same way. It is no archive of a data folder, because an archive states the length of a file before its bytes,
//! and the server's reader learns that at the end.
//!
//! It holds what a server's feed gives: a snapshot in parts, and blocks of the journal, each in a frame. The checksum
//! of a frame begins with that of the frame before it, so no frame can be missing, repeated or moved. The last frame
//! says that nothing follows: a file that was cut off anywhere lacks it. docs/log-format.md is the specification.

use std::io::{self, Read, Write};

use super::block::{u32_at, u64_at, units_in};
use super::checksum::{crc32c, crc32c_append};
use super::limits::LOG_BLOCK_MAX_BYTES;
use crate::base::lsn::Lsn;

const MAGIC: [u8; 8] = *b"TIDECOPY";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const FRAME_HEAD_BYTES: usize = 40;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// The copy begins with a snapshot up to this unit, as of this time (Unix ms).
    Snapshot { lsn: Lsn, time_ms: i64 },
    /// The next units of the snapshot.
    Part { units: &'a [u8] },
    /// Units of the journal that were made at this time (Unix ms), and the Lsn of the first one.
    Block { first: Lsn, time_ms: i64, units: &'a [u8] },
}

/// Kinds of frames.
mod kind {
    pub(super) const SNAPSHOT: u32 = 1;
    pub(super) const PART: u32 = 2;
    pub(super) const BLOCK: u32 = 3;
    pub(super) const END: u32 = 4;
}

/// Why a file is no whole copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyFault {
    /// The system refuses to read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It begins with other bytes.
    #[error("this is no copy that `tidegate backup -` has written")]
    NoCopy,
    /// A later version has written it.
    #[error("the copy has version {0} of the format, which this version of Tidegate does not know")]
    Version(u32),
    /// Its end is missing.
    #[error("the copy was cut off: it has {0} bytes and no end")]
    CutOff(u64),
    /// Bytes have changed.
    #[error("damaged at offset {0}: the checksum does not match")]
    Checksum(u64),
    /// The checksums match, but the frame does not belong there.
    #[error("the frame at offset {0} does not fit what precedes it")]
    Misfit(u64),
    /// Something was appended.
    #[error("the copy ends at offset {0}, and more bytes follow")]
    More(u64),
}

/// Writes a copy.
pub(crate) struct CopyWriter<W> {
    out: W,
    /// The checksum of the last head.
    crc: u32,
}

impl<W: Write> CopyWriter<W> {
    pub(crate) fn begin(mut out: W) -> io::Result<CopyWriter<W>> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let crc = crc32c(&header[..12]);
        header[12..].copy_from_slice(&crc.to_le_bytes());
        out.write_all(&header)?;
        Ok(CopyWriter { out, crc })
    }

    pub(crate) fn write(&mut self, frame: Frame<'_>) -> io::Result<()> {
        match frame {
            Frame::Snapshot { lsn, time_ms } => self.put(kind::SNAPSHOT, lsn, time_ms, &[]),
            Frame::Part { units } => self.put(kind::PART, Lsn::NONE, 0, units),
            Frame::Block { first, time_ms, units } => self.put(kind::BLOCK, first, time_ms, units),
        }
    }

    /// Ends the copy, whose last unit is `last`.
    pub(crate) fn end(mut self, last: Lsn) -> io::Result<W> {
        self.put(kind::END, last, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, kind: u32, lsn: Lsn, time_ms: i64, contents: &[u8]) -> io::Result<()> {
        let mut head = [0; FRAME_HEAD_BYTES];
        head[4..8].copy_from_slice(&kind.to_le_bytes());
        head[8..16].copy_from_slice(&(contents.len() as u64).to_le_bytes());
        head[16..24].copy_from_slice(&lsn.get().to_le_bytes());
        head[24..32].copy_from_slice(&time_ms.to_le_bytes());
        head[32..36].copy_from_slice(&crc32c(contents).to_le_bytes());
        self.crc = crc32c_append(self.crc, &head[4..]);
        head[..4].copy_from_slice(&self.crc.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(contents)
    }
}

/// Reads a copy.
pub(crate) struct CopyReader<R> {
    input: R,
    crc: u32,
    /// Bytes read so far.
    offset: u64,
    has_snapshot: bool,
    /// The last unit so far.
    last: Lsn,
    contents: Vec<u8>,
}

impl<R: Read> CopyReader<R> {
    pub(crate) fn begin(input: R) -> Result<CopyReader<R>, CopyFault> {
        let mut reader =
            CopyReader { input, crc: 0, offset: 0, has_snapshot: false, last: Lsn::NONE, contents: Vec::new() };
        let header: [u8; HEADER_BYTES] = reader.array()?;
        if header[..8] != MAGIC {
            return Err(CopyFault::NoCopy);
        }
        reader.crc = crc32c(&header[..12]);
        if reader.crc != u32_at(&header, 12) {
            return Err(CopyFault::Checksum(0));
        }
        match u32_at(&header, 8) {
            VERSION => Ok(reader),
            version => Err(CopyFault::Version(version)),
        }
    }

    /// Returns the next frame; `None` once the whole copy was read, and nothing follows it.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CopyFault> {
        let at = self.offset;
        let head: [u8; FRAME_HEAD_BYTES] = self.array()?;
        self.crc = crc32c_append(self.crc, &head[4..]);
        if self.crc != u32_at(&head, 0) {
            return Err(CopyFault::Checksum(at));
        }
        let (kind, bytes) = (u32_at(&head, 4), u64_at(&head, 8));
        let (lsn, time_ms) = (Lsn::new(u64_at(&head, 16)), u64_at(&head, 24) as i64);
        if bytes > LOG_BLOCK_MAX_BYTES as u64 {
            return Err(CopyFault::Misfit(at));
        }
        self.fill(bytes)?;
        if crc32c(&self.contents) != u32_at(&head, 32) {
            return Err(CopyFault::Checksum(at));
        }
        let units = self.count_units().ok_or(CopyFault::Misfit(at))?;
        let frame = match kind {
            kind::SNAPSHOT if at == HEADER_BYTES as u64 && bytes == 0 => {
                (self.has_snapshot, self.last) = (true, lsn);
                Frame::Snapshot { lsn, time_ms }
            }
            kind::PART if self.has_snapshot => Frame::Part { units: &self.contents },
            kind::BLOCK if lsn == self.last.next() && units > 0 => {
                self.last = self.last.plus(units);
                Frame::Block { first: lsn, time_ms, units: &self.contents }
            }
            kind::END if lsn == self.last && bytes == 0 => {
                return match self.fill(1) {
                    Err(CopyFault::CutOff(_)) => Ok(None),
                    Err(fault) => Err(fault),
                    Ok(()) => Err(CopyFault::More(self.offset - 1)),
                };
            }
            _ => return Err(CopyFault::Misfit(at)),
        };
        Ok(Some(frame))
    }

    /// Returns the last unit of the copy.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    /// Returns how many units fill the contents of a frame; `None` if they don't.
    fn count_units(&self) -> Option<u64> {
        let mut units = units_in(&self.contents, Lsn::NONE);
        let count = units.by_ref().count() as u64;
        (units.bytes_left() == 0).then_some(count)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CopyFault> {
        self.fill(N as u64)?;
        self.contents.first_chunk().copied().ok_or(CopyFault::CutOff(self.offset))
    }

    /// Reads so many bytes. Memory is taken for bytes that are there, whatever a length says.
    fn fill(&mut self, bytes: u64) -> Result<(), CopyFault> {
        self.contents.clear();
        let read = self.input.by_ref().take(bytes).read_to_end(&mut self.contents)? as u64;
        self.offset += read;
        if read < bytes { Err(CopyFault::CutOff(self.offset)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::block::unit_head;

    fn units(effects: &[&[u8]]) -> Vec<u8> {
        effects.iter().flat_map(|effects| [&unit_head(1, 1, effects.len() as u32), *effects].concat()).collect()
    }

    fn written(frames: &[Frame<'_>], last: u64) -> Vec<u8> {
        let mut writer = CopyWriter::begin(Vec::new()).unwrap();
        frames.iter().for_each(|frame| writer.write(*frame).unwrap());
        writer.end(Lsn::new(last)).unwrap()
    }

    /// Reads everything; passes each frame to `each`.
    fn read(bytes: &[u8], mut each: impl FnMut(Frame<'_>)) -> Result<Lsn, CopyFault> {
        let mut reader = CopyReader::begin(bytes)?;
        while let Some(frame) = reader.next_frame()? {
            each(frame);
        }
        Ok(reader.last())
    }

    #[test]
    fn a_copy_reads_back_whole_or_not_at_all() {
        let (first, second, third) = (units(&[b"a", b"bc"]), units(&[b"sixth", b""]), units(&[b"eighth"]));
        let frames = [
            Frame::Snapshot { lsn: Lsn::new(5), time_ms: -7 },
            Frame::Block { first: Lsn::new(6), time_ms: 10, units: &second },
            Frame::Part { units: &first },
            Frame::Block { first: Lsn::new(8), time_ms: 9, units: &third },
        ];
        let bytes = written(&frames, 8);
        let mut nth = 0;
        let last = read(&bytes, |frame| {
            assert_eq!(frame, frames[nth]);
            nth += 1;
        });
        assert_eq!((last.unwrap(), nth), (Lsn::new(8), frames.len()));
        for len in 0..bytes.len() {
            let fault = read(&bytes[..len], |_| {}).unwrap_err();
            assert!(matches!(fault, CopyFault::CutOff(at) if at == len as u64), "{len}: {fault}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(read(&bytes, |_| {}).is_err(), "{at}");
        }
        let more = read(&[&bytes[..], b"x"].concat(), |_| {}).unwrap_err();
        assert!(matches!(more, CopyFault::More(at) if at == bytes.len() as u64), "{more}");
    }

    #[test]
    fn frames_that_do_not_follow_each_other_are_refused() {
        let one = units(&[b"a"]);
        let snapshot = Frame::Snapshot { lsn: Lsn::new(5), time_ms: 0 };
        let block = |first| Frame::Block { first: Lsn::new(first), time_ms: 0, units: &one };
        let part = Frame::Part { units: &one };
        let cases: [(&[Frame<'_>], u64); 8] = [
            (&[part], 0),
            (&[block(1), snapshot], 5),
            (&[snapshot, snapshot], 5),
            (&[snapshot, block(7)], 7),
            (&[block(1), block(1)], 1),
            (&[snapshot, part], 6),
            (&[Frame::Block { first: Lsn::FIRST, time_ms: 0, units: &[] }], 0),
            (&[Frame::Block { first: Lsn::FIRST, time_ms: 0, units: &one[..one.len() - 1] }], 1),
        ];
        for (frames, last) in cases {
            let fault = read(&written(frames, last), |_| {}).unwrap_err();
            assert!(matches!(fault, CopyFault::Misfit(_)), "{frames:?}: {fault}");
        }
        assert_eq!(read(&written(&[], 0), |_| {}).unwrap(), Lsn::NONE, "a server without data");
        let whole = written(&[block(1), block(2)], 2);
        // The frame behind the first one is left out.
        let frame = FRAME_HEAD_BYTES + one.len();
        let without = [&whole[..HEADER_BYTES + frame], &whole[HEADER_BYTES + 2 * frame..]].concat();
        assert!(matches!(read(&without, |_| {}), Err(CopyFault::Checksum(_))));
        let version = [&b"TIDECOPY\x02\0\0\0"[..], &crc32c(b"TIDECOPY\x02\0\0\0").to_le_bytes()].concat();
        assert!(matches!(read(&version, |_| {}), Err(CopyFault::Version(2))));
        assert!(matches!(read(b"something else altogether", |_| {}), Err(CopyFault::NoCopy)));
    }
}
