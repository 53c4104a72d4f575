//! The bytes of a snapshot: a header, frames, and a final frame. docs/log-format.md is the specification.
//!
//! The units form one stream of bytes, which is cut into frames wherever a frame is full. So a unit may be much longer
//! than a frame, and no reader has to allocate memory by a length that it has not checked. The checksum of each frame
//! covers the identity of the file and the frame's offset, so that no other bytes, nor older ones at this place, are
//! taken for it.

use crate::base::lsn::Lsn;
use crate::log::block::{u32_at, u64_at};
use crate::log::checksum::{crc32c, crc32c_append};
use crate::log::identity::DirectoryId;
use crate::log::limits::SNAPSHOT_FRAME_MAX_BYTES;
use crate::log::segment::BadHeader;

/// Bytes of the header; the first frame follows it.
pub(super) const HEADER_BYTES: usize = 64;

/// Bytes in front of a frame's contents.
pub(super) const FRAME_HEAD_BYTES: usize = 24;

/// Bytes of the final frame.
pub(super) const END_BYTES: usize = FRAME_HEAD_BYTES + END_FIELD_BYTES;

const END_FIELD_BYTES: usize = 40;
const MAGIC: [u8; 8] = *b"TIDESNAP";
const FRAME_MAGIC: [u8; 4] = *b"TGS1";
const VERSION: u32 = 1;

/// Identity of the file, with which every checksum in it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileId {
    pub(super) directory: DirectoryId,
    /// Drawn at random for each snapshot.
    pub(super) serial: u64,
}

/// The header of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) file: FileId,
    /// When the snapshot was begun, in milliseconds since 1970.
    pub(super) begun_ms: i64,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(self.file.directory.as_bytes());
        bytes[32..40].copy_from_slice(&self.file.serial.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.begun_ms.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a snapshot of `directory`.
    pub(super) fn read(bytes: &[u8], directory: DirectoryId) -> Result<Header, BadHeader> {
        let fields = bytes.first_chunk::<HEADER_BYTES>().ok_or(BadHeader::Damaged)?;
        if fields[0..8] != MAGIC || crc32c(&fields[..60]) != u32_at(fields, 60) {
            return Err(BadHeader::Damaged);
        }
        if u32_at(fields, 8) != VERSION {
            return Err(BadHeader::Version(u32_at(fields, 8)));
        }
        if fields[16..32] != *directory.as_bytes() {
            return Err(BadHeader::Foreign);
        }
        if u32_at(fields, 12) != HEADER_BYTES as u32 {
            return Err(BadHeader::Damaged);
        }
        let file = FileId { directory, serial: u64_at(fields, 32) };
        Ok(Header { file, begun_ms: u64_at(fields, 40) as i64 })
    }
}

/// The fault of a damaged snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotDamage {
    /// The header is damaged.
    #[error("the snapshot's header is damaged")]
    Header,
    /// The file does not end with a final frame.
    #[error("the snapshot's final frame should begin here")]
    NoEnd,
    /// There is no frame, or its bytes have changed.
    #[error("the frame's checksum does not match")]
    Frame,
    /// The frame has a kind that this server does not know.
    #[error("the frame has kind {0}, which this version of Tidegate does not know")]
    Kind(u8),
    /// The checksum matches, but the contents can't be decompressed.
    #[error("the frame is whole, but can't be decompressed")]
    Compression,
    /// The checksums match, but the units do not fill the frames.
    #[error("the frame is whole, but its units do not fill it")]
    Units,
    /// The final frame states other numbers of units or bytes than were read.
    #[error("the counts in the snapshot's final frame differ from what precedes it")]
    Counts,
    /// The final frame states another Lsn than the file's name.
    #[error("the snapshot's final frame states Lsn {0}, which is not the one in the file's name")]
    Name(Lsn),
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of units.
    Plain,
    /// Bytes of units, compressed as one block of LZ4.
    Lz4,
    /// The final frame.
    End,
}

const KINDS: [Kind; 3] = [Kind::Plain, Kind::Lz4, Kind::End];

/// The head of a frame: enough to read the rest of the frame, and to check both.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHead {
    pub(super) kind: Kind,
    /// Bytes of the contents, which follow the head.
    pub(super) stored: usize,
    /// Bytes of units before compression.
    pub(super) plain: usize,
}

/// Turns a buffer into a frame for `offset`. The contents lie behind [`FRAME_HEAD_BYTES`] free bytes.
pub(super) fn seal(frame: &mut [u8], file: &FileId, offset: u64, kind: Kind, plain: usize) {
    let stored = frame.len() - FRAME_HEAD_BYTES;
    frame[..FRAME_HEAD_BYTES].fill(0);
    frame[8] = kind as u8;
    frame[12..16].copy_from_slice(&(stored as u32).to_le_bytes());
    frame[16..20].copy_from_slice(&(plain as u32).to_le_bytes());
    let crc = crc_of(frame, file, offset);
    frame[0..4].copy_from_slice(&FRAME_MAGIC);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn crc_of(frame: &[u8], file: &FileId, offset: u64) -> u32 {
    let mut crc = crc32c(file.directory.as_bytes());
    for bytes in [&file.serial.to_le_bytes(), &offset.to_le_bytes(), &frame[8..]] as [&[u8]; 3] {
        crc = crc32c_append(crc, bytes);
    }
    crc
}

impl FrameHead {
    /// Reads the head of an unchecked frame: its lengths are within the format's bounds, and no more is known.
    pub(super) fn read(head: &[u8; FRAME_HEAD_BYTES]) -> Result<FrameHead, SnapshotDamage> {
        let (stored, plain) = (u32_at(head, 12) as usize, u32_at(head, 16) as usize);
        if head[..4] != FRAME_MAGIC || stored.max(plain) > SNAPSHOT_FRAME_MAX_BYTES {
            return Err(SnapshotDamage::Frame);
        }
        // The kind is not trusted before the checksum matches. Until then, any kind with contents will do.
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == head[8]).unwrap_or(Kind::Plain);
        Ok(FrameHead { kind, stored, plain })
    }

    /// Checks a whole frame at `offset`.
    pub(super) fn check(frame: &[u8], file: &FileId, offset: u64) -> Result<(), SnapshotDamage> {
        let head = frame.first_chunk::<FRAME_HEAD_BYTES>().ok_or(SnapshotDamage::Frame)?;
        if crc_of(frame, file, offset) != u32_at(head, 4) {
            return Err(SnapshotDamage::Frame);
        }
        let is_known = KINDS.into_iter().any(|kind| kind as u8 == head[8]);
        if is_known { Ok(()) } else { Err(SnapshotDamage::Kind(head[8])) }
    }
}

/// The totals that the final frame states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The last unit of the journal that the snapshot covers.
    pub lsn: Lsn,
    /// When that unit was made, in milliseconds since 1970.
    pub time_ms: i64,
    /// Number of units in the snapshot, which are not those of the journal.
    pub units: u64,
    /// Their bytes before compression.
    pub unit_bytes: u64,
    /// Frames before this one.
    pub frames: u64,
}

impl End {
    pub(super) fn encode(&self) -> [u8; END_FIELD_BYTES] {
        let mut bytes = [0; END_FIELD_BYTES];
        bytes[0..8].copy_from_slice(&self.lsn.get().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.units.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.unit_bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.frames.to_le_bytes());
        bytes
    }

    /// Reads the final frame of a snapshot, at `offset`.
    pub(super) fn read(frame: &[u8; END_BYTES], file: &FileId, offset: u64) -> Option<End> {
        let head = FrameHead::read(frame.first_chunk()?).ok()?;
        let fields = frame.last_chunk::<END_FIELD_BYTES>()?;
        FrameHead::check(frame, file, offset).ok()?;
        (head.kind == Kind::End && head.stored == END_FIELD_BYTES).then(|| End {
            lsn: Lsn::new(u64_at(fields, 0)),
            time_ms: u64_at(fields, 8) as i64,
            units: u64_at(fields, 16),
            unit_bytes: u64_at(fields, 24),
            frames: u64_at(fields, 32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { directory: DirectoryId::new([7; 16]), serial: 5 };

    #[test]
    fn a_header_reads_back_in_its_directory_only() {
        let bytes = Header { file: FILE, begun_ms: -3 }.encode();
        let read = Header::read(&bytes, FILE.directory).unwrap();
        assert_eq!((read.file.serial, read.begun_ms), (5, -3));
        assert_eq!(Header::read(&bytes, DirectoryId::new([8; 16])).err(), Some(BadHeader::Foreign));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::read(&bytes, FILE.directory).err(), Some(BadHeader::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = Header { file: FILE, begun_ms: 0 }.encode();
        bytes[8] = 2;
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::read(&bytes, FILE.directory).err(), Some(BadHeader::Version(2)));
    }

    #[test]
    fn a_frame_is_valid_in_its_place_only() {
        let end = End { lsn: Lsn::new(9), time_ms: 8, units: 7, unit_bytes: 6, frames: 5 };
        let mut frame = [0; END_BYTES];
        frame[FRAME_HEAD_BYTES..].copy_from_slice(&end.encode());
        seal(&mut frame, &FILE, 100, Kind::End, 0);
        assert_eq!(End::read(&frame, &FILE, 100), Some(end));
        assert_eq!(End::read(&frame, &FILE, 108), None);
        assert_eq!(End::read(&frame, &FileId { serial: 6, ..FILE }, 100), None);
        for bit in 0..frame.len() * 8 {
            let mut frame = frame;
            frame[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(End::read(&frame, &FILE, 100), None, "bit {bit}");
        }
        let mut unknown = frame;
        unknown[8] = 9;
        let crc = crc_of(&unknown, &FILE, 100);
        unknown[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(FrameHead::check(&unknown, &FILE, 100), Err(SnapshotDamage::Kind(9)));
    }
}
