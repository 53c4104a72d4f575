//! The bytes of a snapshot: a header, frames, and a final frame. docs/log-format.md is the specification.
//!
//! The units form one stream of bytes, which is cut into frames wherever a frame is full. So a unit may be much longer
//! than a frame, and no reader has to allocate memory by a length that it has not checked. The checksum of each frame
//! covers the identity of the file and the frame's offset, so that no other bytes, nor older ones at this place, are
//! taken for it.

use crate::base::lsn::Lsn;
use crate::log::block::{u32_at, u64_at};
use crate::log::checksum::{crc32c, crc32c_append};
use crate::log::identity::{DirectoryId, Owner};
use crate::log::limits::SNAPSHOT_FRAME_MAX_BYTES;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::Members;
use crate::log::replicated::types::{Index, Link, Position, Term};
use crate::log::segment::BadHeader;

/// Bytes of the header; the first frame follows it.
pub(super) const HEADER_BYTES: usize = 64;

/// Bytes in front of a frame's contents.
pub(super) const FRAME_HEAD_BYTES: usize = 24;

/// Bytes of the final frame of a single server's snapshot.
const END_BYTES: usize = FRAME_HEAD_BYTES + END_FIELD_BYTES;

/// Bytes at the end of a snapshot of a group, in which the length of its final frame lies.
pub(super) const END_LENGTH_BYTES: usize = 4;

const END_FIELD_BYTES: usize = 40;

/// Bytes of the final frame of a snapshot of a group: those of its members and more.
const END_MAX_BYTES: usize = 8 * 1024;

/// Bytes behind them in a snapshot of a group, before the members.
const ENTRY_BYTES: usize = 20;
const MAGIC: [u8; 8] = *b"TIDESNAP";
const FRAME_MAGIC: [u8; 4] = *b"TGS1";

/// The version of a snapshot. Each has one kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Version {
    Server = 1,
    Group = 2,
}

impl Version {
    pub(super) fn of(owner: Owner) -> Version {
        match owner {
            Owner::Server => Version::Server,
            Owner::Node { .. } => Version::Group,
        }
    }
}

/// Identity of the file, with which every checksum in it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileId {
    /// The directory that it was made in. Nodes of a group send each other their snapshots.
    pub(super) directory: DirectoryId,
    /// Drawn at random for each snapshot.
    pub(super) serial: u64,
}

/// The header of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) version: Version,
    pub(super) file: FileId,
    /// When the snapshot was begun, in milliseconds since 1970.
    pub(super) begun_ms: i64,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&(self.version as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(self.file.directory.as_bytes());
        bytes[32..40].copy_from_slice(&self.file.serial.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.begun_ms.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a snapshot in `directory`, which has this owner.
    pub(super) fn read(bytes: &[u8], directory: DirectoryId, owner: Owner) -> Result<Header, BadHeader> {
        let fields = bytes.first_chunk::<HEADER_BYTES>().ok_or(BadHeader::Damaged)?;
        if fields[0..8] != MAGIC || crc32c(&fields[..60]) != u32_at(fields, 60) {
            return Err(BadHeader::Damaged);
        }
        let version = [Version::Server, Version::Group].into_iter().find(|known| *known as u32 == u32_at(fields, 8));
        let version = version.ok_or(BadHeader::Version(u32_at(fields, 8)))?;
        let (_, id) = fields.split_at(16);
        let made_in = DirectoryId::new(*id.first_chunk().ok_or(BadHeader::Damaged)?);
        if version != Version::of(owner) || version == Version::Server && made_in != directory {
            return Err(BadHeader::Foreign);
        }
        if u32_at(fields, 12) != HEADER_BYTES as u32 {
            return Err(BadHeader::Damaged);
        }
        let file = FileId { directory: made_in, serial: u64_at(fields, 32) };
        Ok(Header { version, file, begun_ms: u64_at(fields, 40) as i64 })
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

/// What the final frame states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// In a group, the last entry that the snapshot covers, and the members as of it.
    pub(crate) mark: Option<Mark>,
}

impl End {
    /// Returns the contents of the final frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = [self.lsn.get(), self.time_ms as u64, self.units, self.unit_bytes, self.frames];
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        if let Some(Mark { at, members, .. }) = &self.mark {
            bytes.extend([at.index.0, at.term.0].into_iter().flat_map(u64::to_le_bytes));
            bytes.extend(at.link.crc.to_le_bytes());
            members.encode(&mut bytes);
            let frame_bytes = FRAME_HEAD_BYTES + bytes.len() + END_LENGTH_BYTES;
            bytes.extend((frame_bytes as u32).to_le_bytes());
        }
        bytes
    }

    /// Returns the length of the final frame, given the last bytes of the file: unchecked, but within bounds.
    pub(super) fn frame_bytes(version: Version, last: [u8; END_LENGTH_BYTES]) -> Option<usize> {
        match version {
            Version::Server => Some(END_BYTES),
            Version::Group => {
                Some(u32::from_le_bytes(last) as usize).filter(|bytes| (END_BYTES..=END_MAX_BYTES).contains(bytes))
            }
        }
    }

    /// Reads the final frame of a snapshot, at `offset`.
    pub(super) fn read(frame: &[u8], header: &Header, offset: u64) -> Option<End> {
        let (head, fields) = frame.split_first_chunk()?;
        let head = FrameHead::read(head).ok()?;
        FrameHead::check(frame, &header.file, offset).ok()?;
        let (numbers, entry) = fields.split_first_chunk::<END_FIELD_BYTES>()?;
        if head.kind != Kind::End || head.stored != fields.len() {
            return None;
        }
        let lsn = Lsn::new(u64_at(numbers, 0));
        let mark = match header.version {
            Version::Server => entry.is_empty().then_some(None)?,
            Version::Group => {
                let (fields, mut members) = entry.split_first_chunk::<ENTRY_BYTES>()?;
                let at = Position {
                    index: Index(u64_at(fields, 0)),
                    term: Term(u64_at(fields, 8)),
                    link: Link { lsn, crc: u32_at(fields, 16) },
                };
                let mark = Mark { at, members: Members::take(&mut members)?, serial: header.file.serial };
                (members.len() == END_LENGTH_BYTES).then_some(Some(mark))?
            }
        };
        Some(End {
            lsn,
            time_ms: u64_at(numbers, 8) as i64,
            units: u64_at(numbers, 16),
            unit_bytes: u64_at(numbers, 24),
            frames: u64_at(numbers, 32),
            mark,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::replicated::members::tests::of_voters;
    use crate::log::replicated::types::{NodeId, some_owner};

    const FILE: FileId = FileId { directory: DirectoryId::new([7; 16]), serial: 5 };

    fn header(version: Version) -> Header {
        Header { version, file: FILE, begun_ms: -3 }
    }

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn a_header_reads_back_in_its_directory_only() {
        let bytes = header(Version::Server).encode();
        let read = Header::read(&bytes, FILE.directory, Owner::Server).unwrap();
        assert_eq!((read.version, read.file.serial, read.begun_ms), (Version::Server, 5, -3));
        let other = DirectoryId::new([8; 16]);
        assert_eq!(Header::read(&bytes, other, Owner::Server).err(), Some(BadHeader::Foreign));
        assert_eq!(Header::read(&bytes, FILE.directory, some_owner()).err(), Some(BadHeader::Foreign));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = Header::read(&bytes, FILE.directory, Owner::Server);
            assert_eq!(read.err(), Some(BadHeader::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn nodes_read_the_snapshots_of_others() {
        let bytes = header(Version::Group).encode();
        let read = Header::read(&bytes, DirectoryId::new([8; 16]), some_owner()).unwrap();
        assert!(read.version == Version::Group && read.file.directory == FILE.directory);
        assert_eq!(Header::read(&bytes, FILE.directory, Owner::Server).err(), Some(BadHeader::Foreign));
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = header(Version::Server).encode();
        bytes[8] = 3;
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::read(&bytes, FILE.directory, Owner::Server).err(), Some(BadHeader::Version(3)));
    }

    /// Returns the final frame of a snapshot, at offset 100.
    fn final_frame(end: &End) -> Vec<u8> {
        let mut frame = [vec![0; FRAME_HEAD_BYTES], end.encode()].concat();
        seal(&mut frame, &FILE, 100, Kind::End, 0);
        frame
    }

    #[test]
    fn a_frame_is_valid_in_its_place_only() {
        let server = End { lsn: Lsn::new(9), time_ms: 8, units: 7, unit_bytes: 6, frames: 5, mark: None };
        let at = Position { index: Index(4), term: Term(3), link: Link { lsn: server.lsn, crc: 2 } };
        let mark = Mark { at, members: of_voters(&[node(1), node(2)]), serial: FILE.serial };
        let group = End { mark: Some(mark), ..server.clone() };
        for (version, end) in [(Version::Server, server), (Version::Group, group)] {
            let (frame, header) = (final_frame(&end), header(version));
            assert_eq!(End::frame_bytes(version, *frame.last_chunk().unwrap()), Some(frame.len()));
            assert_eq!(End::read(&frame, &header, 108), None);
            let other = Header { file: FileId { serial: 6, ..FILE }, ..header };
            assert_eq!(End::read(&frame, &other, 100), None);
            for bit in 0..frame.len() * 8 {
                let mut frame = frame.clone();
                frame[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(End::read(&frame, &header, 100), None, "bit {bit}");
            }
            assert_eq!(End::read(&frame, &header, 100), Some(end));
        }
    }

    #[test]
    fn an_end_of_the_other_version_is_none() {
        let end = End { lsn: Lsn::new(9), ..End::default() };
        assert_eq!(End::read(&final_frame(&end), &header(Version::Group), 100), None);
        let end = End { mark: Some(Mark::default()), ..end };
        assert_eq!(End::read(&final_frame(&end), &header(Version::Server), 100), None);
        for last in [0, END_BYTES as u32 - 1, u32::MAX] {
            assert_eq!(End::frame_bytes(Version::Group, last.to_le_bytes()), None);
        }
    }

    #[test]
    fn a_frame_of_an_unknown_kind_is_named() {
        let mut unknown = final_frame(&End::default());
        unknown[8] = 9;
        let crc = crc_of(&unknown, &FILE, 100);
        unknown[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(FrameHead::check(&unknown, &FILE, 100), Err(SnapshotDamage::Kind(9)));
    }
}
