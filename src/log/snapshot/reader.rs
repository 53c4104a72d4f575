//! Reads a snapshot back, frame by frame, and believes nothing before its checksum matches.

use std::path::PathBuf;
use std::sync::Arc;

use super::format::{END_LENGTH_BYTES, End, FRAME_HEAD_BYTES, FrameHead, HEADER_BYTES, Header, Kind, SnapshotDamage};
use crate::base::lsn::Lsn;
use crate::log::block::{Units, split_unit, units_up_to};
use crate::log::directory::Directory;
use crate::log::disk::{DiskFile, read_up_to};
use crate::log::error::LogError;
use crate::log::limits::LOG_BLOCK_MAX_BYTES;
use crate::log::segment::BadHeader;

/// A snapshot that is being read.
pub struct SnapshotReader {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    size: u64,
    header: Header,
    end: End,
    /// Offset of the next frame.
    offset: u64,
    /// The last frame.
    frame: Vec<u8>,
    /// Bytes of units that were read, beginning with the first unit not yet passed.
    plain: Vec<u8>,
    /// The number of those bytes that form whole units.
    whole: usize,
    /// Totals of the frames read so far.
    read: End,
}

impl SnapshotReader {
    /// Opens the snapshot of `directory` up to `lsn`. A snapshot without its final frame is refused before the rest is
    /// read.
    pub fn open(directory: &Directory, lsn: Lsn) -> Result<SnapshotReader, LogError> {
        SnapshotReader::open_as(directory, directory.snapshot(lsn), lsn)
    }

    /// Does the same for a file that may not have its name yet.
    pub(super) fn open_as(directory: &Directory, path: PathBuf, lsn: Lsn) -> Result<SnapshotReader, LogError> {
        let io = |source| LogError::Io { path: path.clone(), source };
        let damaged = |offset, damage| LogError::Snapshot { path: path.clone(), offset, damage };
        let file = directory.disk().open(&path).map_err(io)?;
        let size = file.size().map_err(io)?;
        let mut bytes = [0; HEADER_BYTES];
        let read = read_up_to(&*file, &mut bytes, 0).map_err(io)?;
        let header = match Header::read(&bytes[..read], directory.id(), directory.owner()) {
            Ok(header) => header,
            Err(BadHeader::Damaged) => return Err(damaged(0, SnapshotDamage::Header)),
            Err(BadHeader::Version(version)) => return Err(LogError::Version { path, version }),
            Err(BadHeader::Foreign) => return Err(LogError::Foreign { path }),
        };
        let mut last = [0; END_LENGTH_BYTES];
        read_up_to(&*file, &mut last, size.saturating_sub(END_LENGTH_BYTES as u64)).map_err(io)?;
        let no_end = |offset: u64| damaged(offset.max(HEADER_BYTES as u64), SnapshotDamage::NoEnd);
        let frame_bytes = End::frame_bytes(header.version, last).ok_or_else(|| no_end(size))?;
        let offset = size.checked_sub(frame_bytes as u64).ok_or_else(|| no_end(0))?;
        let mut bytes = vec![0; frame_bytes];
        read_up_to(&*file, &mut bytes, offset).map_err(io)?;
        let end = End::read(&bytes, &header, offset).ok_or_else(|| no_end(offset))?;
        if end.lsn != lsn {
            return Err(damaged(offset, SnapshotDamage::Name(end.lsn)));
        }
        Ok(SnapshotReader {
            path,
            file,
            size,
            header,
            read: End { lsn, time_ms: end.time_ms, mark: end.mark.clone(), ..End::default() },
            end,
            offset: HEADER_BYTES as u64,
            frame: Vec::new(),
            plain: Vec::new(),
            whole: 0,
        })
    }

    /// Returns the totals that the final frame states.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Returns when the snapshot was begun, in milliseconds since 1970: no unit of it was made earlier.
    pub fn begun_ms(&self) -> i64 {
        self.header.begun_ms
    }

    /// Returns the file, and the offset behind the frame read last: for errors about its units.
    pub fn position(&self) -> (PathBuf, u64) {
        (self.path.clone(), self.offset)
    }

    /// Returns the bytes of the file read so far, and its size.
    pub fn progress(&self) -> (u64, u64) {
        (self.offset, self.size)
    }

    /// Returns the open file and its size.
    pub(super) fn into_file(self) -> (Arc<dyn DiskFile>, u64) {
        (self.file, self.size)
    }

    /// Reads the next frame, whose units [`SnapshotReader::units`] then returns. Returns false at the end, once the
    /// stated totals have been reached.
    pub fn advance(&mut self) -> Result<bool, LogError> {
        self.plain.drain(..self.whole);
        self.whole = 0;
        let at = self.offset;
        let head = self.read_frame()?;
        match head.kind {
            Kind::Plain | Kind::Lz4 => {
                self.take_in(head).map_err(|damage| self.damaged(at, damage))?;
                Ok(true)
            }
            Kind::End if self.read == self.end && self.plain.is_empty() && self.offset == self.size => Ok(false),
            Kind::End => Err(self.damaged(at, SnapshotDamage::Counts)),
        }
    }

    /// Returns the units that end in the last frame. All have the snapshot's Lsn: it is unknown which units of the
    /// journal they come from.
    pub fn units(&self) -> Units<'_> {
        units_up_to(&self.plain[..self.whole], self.end.lsn)
    }

    /// Reads a frame and checks it.
    fn read_frame(&mut self) -> Result<FrameHead, LogError> {
        let at = self.offset;
        let mut bytes = [0; FRAME_HEAD_BYTES];
        self.read_at(&mut bytes, at)?;
        let head = FrameHead::read(&bytes).map_err(|damage| self.damaged(at, damage))?;
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend_from_slice(&bytes);
        frame.resize(FRAME_HEAD_BYTES + head.stored, 0);
        self.read_at(&mut frame[FRAME_HEAD_BYTES..], at + FRAME_HEAD_BYTES as u64)?;
        FrameHead::check(&frame, &self.header.file, at).map_err(|damage| self.damaged(at, damage))?;
        self.frame = frame;
        self.offset = at + self.frame.len() as u64;
        Ok(head)
    }

    /// Reads bytes that must exist.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), LogError> {
        match read_up_to(&*self.file, bytes, at) {
            Ok(read) if read == bytes.len() => Ok(()),
            Ok(_) => Err(self.damaged(self.offset, SnapshotDamage::Frame)),
            Err(source) => Err(LogError::Io { path: self.path.clone(), source }),
        }
    }

    /// Appends the bytes of a frame, and finds the units that end in it.
    fn take_in(&mut self, head: FrameHead) -> Result<(), SnapshotDamage> {
        let stored = &self.frame[FRAME_HEAD_BYTES..];
        let start = self.plain.len();
        if head.kind == Kind::Plain {
            self.plain.extend_from_slice(stored);
            if head.plain != stored.len() {
                return Err(SnapshotDamage::Units);
            }
        } else {
            self.plain.resize(start + head.plain, 0);
            let len = lz4_flex::block::decompress_into(stored, &mut self.plain[start..]);
            if len.ok() != Some(head.plain) {
                return Err(SnapshotDamage::Compression);
            }
        }
        while let Some((_, behind)) = split_unit(&self.plain[self.whole..], self.end.lsn) {
            self.whole = self.plain.len() - behind.len();
            self.read.units += 1;
        }
        // The remainder is the beginning of a unit, and no unit is longer than this.
        if self.plain.len() - self.whole > LOG_BLOCK_MAX_BYTES {
            return Err(SnapshotDamage::Units);
        }
        self.read.unit_bytes += (self.plain.len() - start) as u64;
        self.read.frames += 1;
        Ok(())
    }

    fn damaged(&self, offset: u64, damage: SnapshotDamage) -> LogError {
        LogError::Snapshot { path: self.path.clone(), offset, damage }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::format::{FileId, Version, seal};
    use super::*;
    use crate::log::block::unit_head;
    use crate::log::directory::DirectoryId;
    use crate::log::sim::SimDisk;

    const LSN: Lsn = Lsn::new(9);

    /// Reads a snapshot of these frames, each with a valid checksum: kind, contents, and the stated bytes of units.
    fn read(frames: &[(Kind, &[u8], usize)], end: &End) -> Result<u64, LogError> {
        let disk = Arc::new(SimDisk::new(1));
        let directory = Directory::open(disk, Path::new("/d"), DirectoryId::new([1; 16])).unwrap();
        let file = FileId { directory: directory.id(), serial: 5 };
        let mut bytes = Header { version: Version::Server, file, begun_ms: 0 }.encode().to_vec();
        for (kind, stored, plain) in frames.iter().copied().chain([(Kind::End, &end.encode()[..], 0)]) {
            let start = bytes.len();
            bytes.resize(start + FRAME_HEAD_BYTES, 0);
            bytes.extend_from_slice(stored);
            seal(&mut bytes[start..], &file, start as u64, kind, plain);
        }
        directory.disk().create(&directory.snapshot(LSN)).unwrap().write_at(&bytes, 0).unwrap();
        let mut reader = SnapshotReader::open(&directory, LSN)?;
        let mut units = 0;
        while reader.advance()? {
            units += reader.units().count() as u64;
        }
        Ok(units)
    }

    fn damage(frames: &[(Kind, &[u8], usize)], end: &End) -> Option<SnapshotDamage> {
        match read(frames, end) {
            Err(LogError::Snapshot { damage, .. }) => Some(damage),
            other => other.map(|_| None).expect("no other error"),
        }
    }

    #[test]
    fn malformed_frames_are_refused_although_their_checksums_match() {
        let unit = [&unit_head(1, 1, 3)[..], b"abc"].concat();
        let end = End { lsn: LSN, time_ms: 1, units: 1, unit_bytes: 11, frames: 1, mark: None };
        let whole = (Kind::Plain, &unit[..], 11);
        assert_eq!(read(&[whole], &end).unwrap(), 1);
        assert_eq!(
            read(&[(Kind::Plain, &unit[..4], 4), (Kind::Plain, &unit[4..], 7)], &End { frames: 2, ..end.clone() })
                .unwrap(),
            1
        );
        for other in
            [End { units: 2, ..end.clone() }, End { unit_bytes: 12, ..end.clone() }, End { frames: 2, ..end.clone() }]
        {
            assert_eq!(damage(&[whole], &other), Some(SnapshotDamage::Counts), "{other:?}");
        }
        let cut = End { units: 0, unit_bytes: 10, ..end.clone() };
        assert_eq!(
            damage(&[(Kind::Plain, &unit[..10], 10)], &cut),
            Some(SnapshotDamage::Counts),
            "a unit without its end"
        );
        assert_eq!(damage(&[(Kind::Plain, &unit, 10)], &end), Some(SnapshotDamage::Units));
        assert_eq!(damage(&[(Kind::Lz4, &unit, 11)], &end), Some(SnapshotDamage::Compression));
        let compressed = lz4_flex::block::compress(&unit);
        assert_eq!(read(&[(Kind::Lz4, &compressed, 11)], &end).unwrap(), 1);
        assert_eq!(
            damage(&[(Kind::Lz4, &compressed, 10)], &end),
            Some(SnapshotDamage::Compression),
            "longer than stated"
        );
        assert_eq!(
            damage(&[(Kind::Lz4, &compressed, 12)], &end),
            Some(SnapshotDamage::Compression),
            "shorter than stated"
        );
        assert_eq!(
            damage(&[(Kind::Plain, &unit, 2 << 20)], &end),
            Some(SnapshotDamage::Frame),
            "beyond the format's bounds"
        );
    }
}
