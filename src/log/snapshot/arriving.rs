//! A snapshot that arrives from another node.
//!
//! Its bytes are written under a temporary name, like those of a snapshot that is being made. Nothing of it is believed
//! before all of it is durable and was read back: each frame, the totals, and the mark, which must be the one that the
//! other node has announced. Only then does the file get its name.
//!
//! A failure removes the file and affects nothing else. As everywhere, the journal has the first claim to space.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::SnapshotReader;
use super::writer::{SnapshotError, create_temporary, give_name};
use crate::log::directory::Directory;
use crate::log::disk::DiskFile;
use crate::log::error::LogError;
use crate::log::limits::SNAPSHOT_SYNC_BYTES;
use crate::log::replicated::mark::Mark;

/// Why a snapshot was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArrivalError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The other node has sent more or fewer bytes than it had announced.
    #[error("the snapshot was announced with {announced} bytes, and {arrived} arrived")]
    Length { announced: u64, arrived: u64 },
    #[error("the snapshot is damaged: {0}")]
    Damaged(#[from] LogError),
    #[error("the snapshot is another one than was announced")]
    Mark,
}

/// See the module's header. No call returns before the disk is done. If this is dropped before its end, no file
/// remains.
pub(crate) struct ArrivingSnapshot {
    directory: Arc<Directory>,
    /// Whether the journal works and has enough space.
    is_well: Box<dyn Fn() -> bool + Send>,
    mark: Mark,
    /// Bytes that were announced.
    bytes: u64,
    sync_bytes: u64,
    /// The file and its temporary name, from the first byte until it has its final name.
    file: Option<(PathBuf, Arc<dyn DiskFile>)>,
    arrived: u64,
    /// Bytes written since the last sync.
    unsynced: u64,
}

impl ArrivingSnapshot {
    /// Begins a snapshot that was announced with a mark and a length. Nothing is allocated by the length.
    pub(crate) fn begin(
        directory: Arc<Directory>,
        is_well: Box<dyn Fn() -> bool + Send>,
        mark: Mark,
        bytes: u64,
    ) -> ArrivingSnapshot {
        let (file, arrived, unsynced) = Default::default();
        ArrivingSnapshot { directory, is_well, mark, bytes, sync_bytes: SNAPSHOT_SYNC_BYTES, file, arrived, unsynced }
    }

    /// Writes the next bytes of the file.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ArrivalError> {
        let (path, file) = match &self.file {
            Some((path, file)) => (path.clone(), Arc::clone(file)),
            None => self.file.insert(create_temporary(&self.directory)?).clone(),
        };
        if bytes.len() as u64 > self.missing() {
            return Err(ArrivalError::Length { announced: self.bytes, arrived: self.arrived + bytes.len() as u64 });
        }
        self.check(&path)?;
        let failed = |error| SnapshotError::Io { path: path.clone(), source: Arc::new(error) };
        file.write_at(bytes, self.arrived).map_err(failed)?;
        self.arrived += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= self.sync_bytes {
            file.sync_data().map_err(failed)?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Checks the whole file, and gives it its name. It is durable when this returns. Gives up between two frames if
    /// nobody wants the snapshot any more.
    pub(crate) fn finish(mut self, is_wanted: &dyn Fn() -> bool) -> Result<(), ArrivalError> {
        let Some((path, file)) = self.file.clone().filter(|_| self.missing() == 0) else {
            return Err(ArrivalError::Length { announced: self.bytes, arrived: self.arrived });
        };
        file.sync_data().map_err(|error| SnapshotError::Io { path: path.clone(), source: Arc::new(error) })?;
        let lsn = self.mark.at.link.lsn;
        let mut reader = SnapshotReader::open_as(&self.directory, path.clone(), lsn)?;
        if reader.end().mark.as_ref() != Some(&self.mark) {
            return Err(ArrivalError::Mark);
        }
        while reader.advance()? {
            self.check(&path)?;
            if !is_wanted() {
                return Err(SnapshotError::Abandoned.into());
            }
        }
        give_name(&self.directory, &path, lsn, Some(&self.mark))?;
        // From here on the file is as good as one that it may have replaced, so it is kept whatever happens.
        self.file = None;
        let failed = |error| SnapshotError::Io { path: self.directory.path().to_owned(), source: Arc::new(error) };
        self.directory.sync().map_err(failed)?;
        Ok(())
    }

    /// Returns the number of bytes that are still to come.
    fn missing(&self) -> u64 {
        self.bytes.saturating_sub(self.arrived)
    }

    /// Fails if the journal needs the space.
    fn check(&self, path: &Path) -> Result<(), SnapshotError> {
        if (self.is_well)() { Ok(()) } else { Err(SnapshotError::LogFirst { path: path.to_owned() }) }
    }
}

impl Drop for ArrivingSnapshot {
    fn drop(&mut self) {
        if let Some((path, _)) = self.file.take() {
            // If this fails, the next start removes the file.
            let _ = self.directory.disk().remove(&path);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::departing::{DepartingSnapshot, DepartureError};
    use super::super::writer::tests::{begin, units_of};
    use super::super::writer::{LogBeside, SnapshotWriter, remove_older};
    use super::*;
    use crate::base::lsn::Lsn;
    use crate::base::rng::Rng;
    use crate::log::directory::DirectoryId;
    use crate::log::names;
    use crate::log::replicated::members::tests::of_voters;
    use crate::log::replicated::types::{Index, Link, NodeId, Position, Term, some_owner};
    use crate::log::sim::{Faults, SimDisk};

    const FOLDER: &str = "/d";

    fn directory(disk: &SimDisk) -> Arc<Directory> {
        let id = DirectoryId::new([1; 16]);
        Arc::new(Directory::open_as(some_owner(), Arc::new(disk.clone()), Path::new(FOLDER), id).unwrap())
    }

    /// Makes a snapshot of random units in the directory of a node, as of an entry and an Lsn.
    pub(crate) fn snapshot(directory: &Arc<Directory>, index: u64, lsn: u64, units: &[Vec<u8>]) -> Mark {
        let mut writer = SnapshotWriter::begin(Arc::clone(directory), LogBeside::none(), begin(index));
        writer.push(units_of(units), units.len() as u32);
        let members = of_voters(&[1, 2].map(|number| NodeId::new(number).unwrap()));
        let at = Position { index: Index(index), term: Term(1), link: Link { lsn: Lsn::new(lsn), crc: 9 } };
        writer.finish_at(at, members, 1);
        (0..3).for_each(|_| writer.step());
        writer.outcome().unwrap().unwrap().end.mark.unwrap()
    }

    /// Returns units that do not compress.
    pub(crate) fn samples(count: usize, bytes: usize) -> Vec<Vec<u8>> {
        let mut rng = Rng::seeded(3);
        (0..count).map(|_| (0..bytes).map(|_| rng.next_u64() as u8).collect()).collect()
    }

    /// Returns the mark and the bytes of a snapshot of another node.
    fn foreign(index: u64, lsn: u64) -> (Mark, Vec<u8>) {
        let directory = directory(&SimDisk::new(1));
        let mark = snapshot(&directory, index, lsn, &samples(10, 1_000));
        let file = DepartingSnapshot::open(&directory, &mark).unwrap();
        let mut bytes = vec![0; file.bytes() as usize];
        file.read(&mut bytes, 0).unwrap();
        (mark, bytes)
    }

    /// Lets bytes arrive that were announced as a snapshot with this mark and length.
    fn arrive(directory: &Arc<Directory>, mark: &Mark, announced: usize, bytes: &[u8]) -> Result<(), ArrivalError> {
        let is_well = Box::new(|| true);
        let mut arriving = ArrivingSnapshot::begin(Arc::clone(directory), is_well, mark.clone(), announced as u64);
        arriving.sync_bytes = 2_000;
        for chunk in bytes.chunks(700) {
            arriving.write(chunk)?;
        }
        arriving.finish(&|| true)
    }

    fn names(disk: &SimDisk) -> Vec<String> {
        use crate::log::disk::Disk as _;
        let names = disk.list(Path::new(FOLDER)).unwrap();
        names.into_iter().filter(|name| name.starts_with("snapshot")).collect()
    }

    #[test]
    fn a_snapshot_arrives_and_is_synced_on_its_way() {
        let disk = SimDisk::new(2);
        let directory = directory(&disk);
        let (mark, bytes) = foreign(7, 70);
        let before = disk.operations();
        arrive(&directory, &mark, bytes.len(), &bytes).unwrap();
        assert_eq!(names(&disk), [names::snapshot(Lsn::new(70))]);
        let syncs = disk.trace(before).iter().filter(|event| event.operation == "sync").count();
        assert!(syncs > bytes.len() / 3_000, "{syncs}");
        // The one that arrived can be sent on.
        let file = DepartingSnapshot::open(&directory, &mark).unwrap();
        let mut again = vec![0; file.bytes() as usize];
        file.read(&mut again, 0).unwrap();
        assert_eq!(again, bytes);
    }

    #[test]
    fn what_is_not_the_announced_snapshot_leaves_nothing() {
        let disk = SimDisk::new(2);
        let directory = directory(&disk);
        let (mark, bytes) = foreign(7, 70);
        let len = bytes.len();
        let refused = |mark: &Mark, announced: usize, bytes: &[u8]| {
            let refused = arrive(&directory, mark, announced, bytes).unwrap_err();
            assert!(names(&disk).is_empty(), "{refused}");
            refused
        };
        assert!(matches!(refused(&mark, len, &bytes[..len - 1]), ArrivalError::Length { .. }));
        assert!(matches!(refused(&mark, len - 1, &bytes), ArrivalError::Length { .. }));
        assert!(matches!(refused(&mark, 0, &[]), ArrivalError::Length { .. }));
        assert!(matches!(refused(&mark, usize::MAX, &bytes), ArrivalError::Length { .. }));
        assert!(matches!(refused(&mark, len - 100, &bytes[..len - 100]), ArrivalError::Damaged(_)));
        for at in (0..len).step_by(97).chain([len - 1]) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(matches!(refused(&mark, len, &flipped), ArrivalError::Damaged(_)), "byte {at}");
        }
        let mut other = mark.clone();
        other.serial += 1;
        assert!(matches!(refused(&other, len, &bytes), ArrivalError::Mark));
        other = Mark { members: of_voters(&[NodeId::new(1).unwrap()]), ..mark.clone() };
        assert!(matches!(refused(&other, len, &bytes), ArrivalError::Mark));
        other = mark.clone();
        other.at.link.lsn = Lsn::new(71);
        assert!(matches!(refused(&other, len, &bytes), ArrivalError::Damaged(_)), "the end names another Lsn");
        arrive(&directory, &mark, len, &bytes).unwrap();
    }

    #[test]
    fn a_snapshot_that_nobody_wants_leaves_nothing() {
        let disk = SimDisk::new(2);
        let directory = directory(&disk);
        let (mark, bytes) = foreign(7, 70);
        let begin = |is_well| {
            let len = bytes.len() as u64;
            ArrivingSnapshot::begin(Arc::clone(&directory), Box::new(move || is_well), mark.clone(), len)
        };
        let mut arriving = begin(true);
        arriving.write(&bytes).unwrap();
        let abandoned = arriving.finish(&|| false);
        assert!(matches!(abandoned, Err(ArrivalError::Snapshot(SnapshotError::Abandoned))));
        let mut arriving = begin(true);
        arriving.write(&bytes[..100]).unwrap();
        assert_eq!(names(&disk).len(), 1);
        drop(arriving);
        let first = begin(false).write(&bytes);
        assert!(matches!(first, Err(ArrivalError::Snapshot(SnapshotError::LogFirst { .. }))));
        assert!(names(&disk).is_empty());
    }

    #[test]
    fn a_full_disk_fails_the_snapshot_and_nothing_else() {
        let disk = SimDisk::new(2);
        let directory = directory(&disk);
        let (mark, bytes) = foreign(7, 70);
        for capacity in (200..bytes.len()).step_by(991) {
            disk.set_capacity(Some(capacity as u64));
            let failed = arrive(&directory, &mark, bytes.len(), &bytes);
            assert!(matches!(failed, Err(ArrivalError::Snapshot(SnapshotError::Io { .. }))), "{capacity}");
            assert!(names(&disk).is_empty());
        }
        disk.set_capacity(None);
        arrive(&directory, &mark, bytes.len(), &bytes).unwrap();
    }

    #[test]
    fn a_crash_leaves_a_whole_snapshot_or_none() {
        let (mark, bytes) = foreign(7, 70);
        let mut whole = 0;
        for at in 0.. {
            let disk = SimDisk::new(at);
            let begun = directory(&disk);
            disk.set_faults(Faults { crash_at: Some(disk.operations() + at), ..Faults::default() });
            let arrived = arrive(&begun, &mark, bytes.len(), &bytes).is_ok();
            let has_crashed = disk.is_off();
            disk.crash();
            drop(begun);
            let again = directory(&disk);
            let found = again.snapshots().unwrap();
            assert!(found == [Lsn::new(70)] || found.is_empty() && !arrived, "operation {at}");
            if !found.is_empty() {
                DepartingSnapshot::open(&again, &mark).unwrap();
                whole += 1;
            }
            if !has_crashed {
                break;
            }
        }
        assert!(whole > 1, "a crash before the last step may leave it");
    }

    #[test]
    fn a_snapshot_that_covers_less_does_not_take_the_name_of_another() {
        let disk = SimDisk::new(2);
        let directory = directory(&disk);
        // Between the two lie entries without units.
        let own = snapshot(&directory, 8, 70, &samples(2, 10));
        let overtaken = |index| {
            let (mark, bytes) = foreign(index, 70);
            match arrive(&directory, &mark, bytes.len(), &bytes) {
                Ok(()) => false,
                Err(ArrivalError::Snapshot(SnapshotError::Overtaken { .. })) => true,
                Err(other) => panic!("{other}"),
            }
        };
        assert!(overtaken(7));
        DepartingSnapshot::open(&directory, &own).unwrap();
        assert!(!overtaken(9));
        assert!(matches!(DepartingSnapshot::open(&directory, &own), Err(DepartureError::Replaced { .. })));
        let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(5));
        writer.finish_at(own.at, own.members, 1);
        (0..3).for_each(|_| writer.step());
        assert!(matches!(writer.outcome(), Some(Err(SnapshotError::Overtaken { .. }))));
        assert_eq!(names(&disk).len(), 1);
    }

    #[test]
    fn a_snapshot_is_sent_to_its_end_although_it_is_removed() {
        let directory = directory(&SimDisk::new(1));
        let mark = snapshot(&directory, 7, 70, &samples(10, 1_000));
        let file = DepartingSnapshot::open(&directory, &mark).unwrap();
        snapshot(&directory, 8, 80, &samples(1, 10));
        remove_older(&directory, Lsn::new(80));
        assert!(matches!(DepartingSnapshot::open(&directory, &mark), Err(DepartureError::Log(_))));
        let mut bytes = vec![0; file.bytes() as usize];
        file.read(&mut bytes, 0).unwrap();
        assert_eq!(bytes, foreign(7, 70).1);
        assert!(file.read(&mut [0], file.bytes()).is_err());
    }
}
