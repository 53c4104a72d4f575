//! Restores the data from the files of a directory: first the newest snapshot, then the journal behind it.
//!
//! A damaged snapshot is refused, unless everything that it replaced still exists: an older snapshot, or nothing if the
//! journal goes back to its first unit, and the whole journal from there to the Lsn of the damaged snapshot. A crash
//! between the end of a snapshot and the cut leaves such files behind. Only then is a snapshot read twice, because
//! applied units can't be taken back.

use std::path::PathBuf;
use std::sync::Arc;

use super::block::{Block, Units};
use super::directory::Directory;
use super::disk::Clock;
use super::error::LogError;
use super::group_commit::{Log, Options};
use super::planted::{self, Bug};
use super::scan::{End, Passed, Recovery};
use super::snapshot::reader::SnapshotReader;
use super::snapshot::writer::remove_older;
use crate::base::lsn::Lsn;

/// Reads the data of a directory, part by part. See the module's header.
pub struct Restore {
    directory: Arc<Directory>,
    /// Snapshots older than the one in hand, oldest first.
    older: Vec<Lsn>,
    phase: Phase,
    /// The journal behind the snapshot in hand.
    log: Recovery,
    /// The unit to stop at.
    until: Lsn,
    /// The Lsn of the snapshot in hand; [`Lsn::NONE`] without one.
    snapshot: Lsn,
    /// The newest snapshot, if it is damaged and older files are read in its place.
    passed_over: Option<PassedOver>,
    /// Bytes of snapshots read so far.
    read_bytes: u64,
    /// Size of the loaded snapshot in bytes.
    snapshot_bytes: u64,
}

/// A snapshot that can't be used, and why.
struct PassedOver {
    lsn: Lsn,
    error: LogError,
}

impl PassedOver {
    /// Chooses the error to report if reading the older files ends in `error`. If files that the damaged snapshot
    /// replaced are gone or overwritten, it is the snapshot that the user must restore.
    fn or_else(self, error: LogError) -> LogError {
        match error {
            LogError::Gap { .. } | LogError::Missing { .. } => self.error,
            LogError::Corrupt { lsn, .. } if lsn <= self.lsn => self.error,
            _ => error,
        }
    }
}

enum Phase {
    /// A first pass over the snapshot only checks that it is sound.
    Verify(SnapshotReader),
    /// The snapshot is loaded.
    Load(SnapshotReader),
    /// The journal is read. Holds the last block, if one was read.
    Log(Option<Passed>),
}

/// A file of the directory, and the offset up to which it was read: for errors about its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// In the snapshot up to this Lsn.
    Snapshot(Lsn, u64),
    /// In the segment of this number.
    Segment(u64, u64),
}

impl Position {
    /// Returns the path of the file in this directory, and the offset.
    pub fn find(self, directory: &Directory) -> (PathBuf, u64) {
        match self {
            Position::Snapshot(lsn, offset) => (directory.snapshot(lsn), offset),
            Position::Segment(number, offset) => (directory.segment(number), offset),
        }
    }
}

/// Result of one step.
pub enum Part<'a> {
    /// Bytes that were only checked, or the end of the snapshot.
    Checked,
    /// Units of the snapshot; [`SnapshotReader::units`] has them.
    Snapshot(&'a SnapshotReader),
    /// A block of the journal.
    Block(Block<'a>),
}

impl Restore {
    /// Finds the newest snapshot of `directory` and the journal behind it.
    pub fn open(directory: impl Into<Arc<Directory>>) -> Result<Restore, LogError> {
        Restore::open_until(directory, Lsn::MAX)
    }

    /// Does the same for a journal that may be written at the same time, and stops at a unit that ends a block: no
    /// newer snapshot is read, and nothing behind it.
    pub(crate) fn open_until(directory: impl Into<Arc<Directory>>, until: Lsn) -> Result<Restore, LogError> {
        let directory = directory.into();
        let mut snapshots = directory.snapshots()?;
        snapshots.retain(|lsn| *lsn <= until);
        Restore::choose(directory, snapshots, until, None)
    }

    /// Chooses the newest of these snapshots, given oldest first, that is not obviously damaged, or none if all are.
    fn choose(
        directory: Arc<Directory>,
        mut snapshots: Vec<Lsn>,
        until: Lsn,
        mut passed_over: Option<PassedOver>,
    ) -> Result<Restore, LogError> {
        let mut reader = None;
        while let Some(lsn) = snapshots.pop() {
            match SnapshotReader::open(&directory, lsn) {
                Ok(found) => {
                    reader = Some(found);
                    break;
                }
                Err(error @ LogError::Snapshot { .. }) => {
                    passed_over.get_or_insert(PassedOver { lsn, error });
                }
                Err(error) => return Err(error),
            }
        }
        let snapshot = reader.as_ref().map_or(Lsn::NONE, |reader| reader.end().lsn);
        let log = match (Recovery::open(Arc::clone(&directory), snapshot), passed_over) {
            (Ok(log), still) => {
                passed_over = still;
                log
            }
            (Err(error), Some(newest)) => return Err(newest.or_else(error)),
            (Err(error), None) => return Err(error),
        };
        let has_substitute = !snapshots.is_empty() || log.is_whole();
        let phase = match reader {
            Some(reader) if has_substitute => Phase::Verify(reader),
            Some(reader) => Phase::Load(reader),
            None => Phase::Log(None),
        };
        Ok(Restore {
            directory,
            older: snapshots,
            phase,
            log,
            until,
            snapshot,
            passed_over,
            read_bytes: 0,
            snapshot_bytes: 0,
        })
    }

    /// Reads the next part; `None` at the end of the journal.
    pub fn next_part(&mut self) -> Result<Option<Part<'_>>, LogError> {
        if let Phase::Verify(reader) = &mut self.phase {
            match reader.advance() {
                Ok(true) => {}
                Ok(false) => {
                    self.read_bytes += reader.progress().1;
                    self.phase = Phase::Load(SnapshotReader::open(&self.directory, self.snapshot)?);
                }
                Err(error @ LogError::Snapshot { .. }) => self.pass_over(error)?,
                Err(error) => return Err(error),
            }
            return Ok(Some(Part::Checked));
        }
        if let Phase::Load(reader) = &mut self.phase
            && !reader.advance()?
        {
            self.snapshot_bytes = reader.progress().1;
            self.read_bytes += reader.progress().1;
            self.phase = Phase::Log(None);
            return Ok(Some(Part::Checked));
        }
        if let Phase::Log(found) = &mut self.phase {
            // The log may begin long before the snapshot's end, which is in the middle of a segment.
            let covered = if planted::is(Bug::FirstBlockTwice) { Lsn::NONE } else { self.snapshot };
            if covered.max(self.log.last_lsn()) >= self.until {
                return Ok(None);
            }
            *found = self.log.find_block().map_err(|error| match self.passed_over.take() {
                Some(newest) => newest.or_else(error),
                None => error,
            })?;
            return match found {
                Some(found) => Ok(Some(Part::Block(self.log.block(found)))),
                None => self.check_end().map(|()| None),
            };
        }
        Ok(Some(match &self.phase {
            Phase::Load(reader) => Part::Snapshot(reader),
            Phase::Verify(_) | Phase::Log(_) => Part::Checked,
        }))
    }

    /// Returns the units in the last `bytes` bytes of the part read last, if it has units. The first of them has the
    /// Lsn `first`.
    pub fn last_units(&self, bytes: usize, first: Lsn) -> Option<Units<'_>> {
        match &self.phase {
            Phase::Load(reader) => Some(reader.units().skip_to_last(bytes, first)),
            Phase::Log(Some(found)) => Some(self.log.last_units(found, bytes, first)),
            Phase::Verify(_) | Phase::Log(None) => None,
        }
    }

    /// Discards the damaged snapshot in hand, and goes on with older files.
    fn pass_over(&mut self, error: LogError) -> Result<(), LogError> {
        let newest = self.passed_over.take().unwrap_or(PassedOver { lsn: self.snapshot, error });
        let chosen =
            Restore::choose(Arc::clone(&self.directory), std::mem::take(&mut self.older), self.until, Some(newest))?;
        *self = Restore { read_bytes: self.read_bytes, ..chosen };
        Ok(())
    }

    /// Checks that the files read in place of a damaged snapshot reach as far as it did.
    fn check_end(&mut self) -> Result<(), LogError> {
        let last = self.log.end().map_or(Lsn::NONE, |end| end.lsn);
        match self.passed_over.take_if(|newest| newest.lsn > last) {
            Some(newest) => Err(newest.error),
            None => Ok(()),
        }
    }

    /// Returns the position behind the part read last.
    pub fn position(&self) -> Position {
        match &self.phase {
            Phase::Verify(reader) | Phase::Load(reader) => Position::Snapshot(self.snapshot, reader.progress().0),
            Phase::Log(_) => {
                let (segment, offset) = self.log.place_behind();
                Position::Segment(segment, offset)
            }
        }
    }

    /// Returns the bytes read so far, and the approximate total: a snapshot may have to be read twice.
    pub fn progress(&self) -> (u64, u64) {
        let (read, all) = self.log.progress();
        match &self.phase {
            Phase::Verify(reader) => {
                (reader.progress().0 + self.read_bytes, self.read_bytes + 2 * reader.progress().1 + all)
            }
            Phase::Load(reader) => (reader.progress().0 + self.read_bytes, self.read_bytes + reader.progress().1 + all),
            Phase::Log(_) => (self.read_bytes + read, self.read_bytes + all),
        }
    }

    /// Returns the number of unread bytes of the journal, without the zeros at the end of the segment being read.
    pub fn unread_log_bytes(&self) -> u64 {
        self.log.unread_bytes()
    }

    /// Returns how the journal ends, once [`Restore::next_part`] has returned `None`.
    pub fn end(&self) -> Option<&End> {
        self.log.end()
    }

    /// Returns the directory that is read.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Returns the size in bytes of the loaded snapshot; 0 before it is complete, and without one.
    pub fn snapshot_bytes(&self) -> u64 {
        match &self.phase {
            Phase::Verify(reader) | Phase::Load(reader) => reader.progress().1,
            Phase::Log(_) => self.snapshot_bytes,
        }
    }

    /// Returns the Lsn of the snapshot in hand; [`Lsn::NONE`] without one.
    pub fn snapshot(&self) -> Lsn {
        self.snapshot
    }

    /// Returns the fault of the newest snapshot, if older files are read in its place.
    pub fn passed_over(&self) -> Option<&LogError> {
        self.passed_over.as_ref().map(|newest| &newest.error)
    }

    /// Opens the journal for writing, as [`Recovery::finish`] does, after reading any parts that [`Restore::next_part`]
    /// has not read yet. Removes files that the snapshot has replaced, should a crash have left them.
    pub fn finish(
        mut self,
        options: Options,
        clock: Arc<dyn Clock>,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Log, LogError> {
        while self.next_part()?.is_some() {}
        let log = self.log.finish(options, clock, notify)?;
        if self.snapshot > Lsn::NONE {
            remove_older(&self.directory, self.snapshot);
            log.cut(self.snapshot);
        }
        Ok(log)
    }

    /// Goes on without a journal. Returns the directory, in which snapshots can be made.
    pub fn finish_without_log(mut self) -> Result<Arc<Directory>, LogError> {
        while self.next_part()?.is_some() {}
        self.log.remove_unfinished()?;
        Ok(self.directory)
    }
}

#[cfg(test)]
impl Restore {
    /// Returns the effects of all remaining units, those of the snapshot first.
    pub(crate) fn effects(&mut self) -> Result<Vec<Vec<u8>>, LogError> {
        let mut units = Vec::new();
        while let Some(part) = self.next_part()? {
            match part {
                Part::Checked => {}
                Part::Snapshot(frame) => units.extend(frame.units().map(|unit| unit.effects.to_vec())),
                Part::Block(block) => units.extend(block.units().map(|unit| unit.effects.to_vec())),
            }
        }
        Ok(units)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::rng::Rng;
    use crate::log::directory::DirectoryId;
    use crate::log::disk::{Disk, read_all};
    use crate::log::group_commit::{Commit, SyncPolicy, tail};
    use crate::log::names;
    use crate::log::sim::{Faults, SimDisk};
    use crate::log::snapshot::SnapshotDamage;
    use crate::log::snapshot::writer::tests::{begin, take};
    use crate::log::snapshot::writer::{Done, LogBeside, SnapshotError, SnapshotWriter};

    const DIRECTORY: &str = "/data";
    const OPTIONS: Options = Options {
        policy: SyncPolicy::Always,
        segment_bytes: 6 * 1024,
        first_segment_bytes: 5 * 1024,
        prepared_segments: 1,
        reserve_bytes: 0,
        may_wait_for_space: true,
    };

    fn directory(disk: &SimDisk) -> Directory {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Directory::open(disk, Path::new(DIRECTORY), DirectoryId::new([0x11; 16])).unwrap()
    }

    fn open(disk: &SimDisk) -> Log {
        open_with(disk, OPTIONS)
    }

    fn open_with(disk: &SimDisk, options: Options) -> Log {
        let restore = Restore::open(directory(disk)).unwrap();
        restore.finish(options, Arc::new(disk.clone()), Box::new(|| {})).unwrap()
    }

    /// The data found in a directory.
    #[derive(Debug, PartialEq)]
    struct Found {
        snapshot: u64,
        /// Units of the snapshot, then of the journal.
        units: Vec<Vec<u8>>,
        end: End,
        passed_over: Option<String>,
    }

    fn read(disk: &SimDisk) -> Result<Found, LogError> {
        let mut restore = Restore::open(directory(disk))?;
        let units = restore.effects()?;
        let (read, all) = restore.progress();
        assert!(read <= all, "{read} of {all}");
        let passed_over = restore.passed_over().map(ToString::to_string);
        Ok(Found { snapshot: restore.snapshot().get(), units, end: restore.end().unwrap().clone(), passed_over })
    }

    fn unit(lsn: u64) -> Vec<u8> {
        format!("unit {lsn} ").repeat(lsn as usize % 20 + 1).into_bytes()
    }

    fn units(count: u64) -> Vec<Vec<u8>> {
        (1..=count).map(unit).collect()
    }

    fn append(log: &Log, lsns: std::ops::RangeInclusive<u64>) {
        for lsn in lsns {
            log.commit(tail(log.buffer(), Lsn::new(lsn), &[unit(lsn)]), Commit::InPlace);
            while log.do_chore() {}
        }
    }

    /// Makes a snapshot of all units up to `lsn`.
    fn snapshot(log: &Log, lsn: u64) -> Result<Done, SnapshotError> {
        take(log.snapshot(begin(lsn)), &units(lsn), lsn)
    }

    /// Creates a directory with a snapshot at 60 and a journal from about there to 100.
    fn with_snapshot(disk: &SimDisk) {
        let log = open(disk);
        append(&log, 1..=80);
        snapshot(&log, 60).unwrap();
        append(&log, 81..=100);
    }

    fn path(name: String) -> PathBuf {
        Path::new(DIRECTORY).join(name)
    }

    fn names_of(disk: &SimDisk) -> Vec<String> {
        disk.list(Path::new(DIRECTORY)).unwrap()
    }

    fn bytes_of(disk: &SimDisk, path: &Path) -> Vec<u8> {
        let mut bytes = Vec::new();
        read_all(&*disk.open(path).unwrap(), &mut bytes, u64::MAX).unwrap();
        bytes
    }

    /// Restores a file to its earlier contents.
    fn put_back(disk: &SimDisk, path: &Path, bytes: &[u8]) {
        disk.create(path).unwrap().write_at(bytes, 0).unwrap();
    }

    #[test]
    fn a_snapshot_takes_the_place_of_the_log_before_it() {
        let disk = SimDisk::new(1);
        let log = open(&disk);
        append(&log, 1..=100);
        let before = log.segments();
        let done = snapshot(&log, 60).unwrap();
        assert_eq!((done.end.units, done.end.lsn.get(), &done.path), (60, 60, &path(names::snapshot(Lsn::new(60)))));
        assert!(log.segments() + 3 < before, "{} of {before}", log.segments());
        while log.do_chore() {}
        append(&log, 101..=105);
        drop(log);
        disk.crash();
        let found = read(&disk).unwrap();
        assert_eq!((found.snapshot, found.units, found.end.lsn.get()), (60, units(105), 105));
        assert_eq!(found.passed_over, None);
        // The next snapshot removes this one.
        let log = open(&disk);
        snapshot(&log, 105).unwrap();
        assert!(!names_of(&disk).contains(&names::snapshot(Lsn::new(60))));
        append(&log, 106..=107);
        drop(log);
        assert_eq!(read(&disk).unwrap().units, units(107));
    }

    #[test]
    fn a_snapshot_may_be_ahead_of_the_journal_after_a_crash() {
        let disk = SimDisk::new(1);
        let log = open(&disk);
        append(&log, 1..=10);
        snapshot(&log, 12).unwrap();
        drop(log);
        disk.crash();
        assert_eq!(read(&disk).unwrap().units, units(12));
        let log = open(&disk);
        assert_eq!(log.durable().get(), 12);
        append(&log, 13..=14);
        drop(log);
        assert_eq!(read(&disk).unwrap().units, units(14));
    }

    #[test]
    fn a_directory_may_hold_a_snapshot_and_no_log() {
        let disk = SimDisk::new(1);
        let directory: Arc<Directory> = Restore::open(directory(&disk)).unwrap().finish_without_log().unwrap();
        let writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(1));
        take(writer, &units(5), 5).unwrap();
        drop(directory);
        let found = read(&disk).unwrap();
        assert_eq!((found.units, found.end.lsn.get()), (units(5), 5));
        let log = open(&disk);
        append(&log, 6..=6);
        drop(log);
        assert_eq!(read(&disk).unwrap().units, units(6));
    }

    #[test]
    fn a_damaged_snapshot_is_refused_with_its_place() {
        let disk = SimDisk::new(1);
        with_snapshot(&disk);
        let path = path(names::snapshot(Lsn::new(60)));
        disk.flip(&path, 200, 1);
        match read(&disk) {
            Err(LogError::Snapshot { path: at, offset: 64, damage: SnapshotDamage::Frame }) => assert_eq!(at, path),
            other => panic!("{other:?}"),
        }
        disk.flip(&path, 200, 1);
        let size = disk.open(&path).unwrap().size().unwrap();
        disk.truncate(&path, size - 1);
        assert!(matches!(read(&disk), Err(LogError::Snapshot { damage: SnapshotDamage::NoEnd, .. })));
        disk.remove(&path).unwrap();
        assert!(matches!(read(&disk), Err(LogError::Missing { lsn: Lsn::FIRST, .. })), "no snapshot is left");
    }

    /// The power may fail while the files that the snapshot has replaced are being recycled.
    #[test]
    fn a_damaged_snapshot_is_named_if_the_files_it_replaced_are_damaged_too() {
        for damage_at in [3, 200] {
            let disk = SimDisk::new(1);
            let log = open(&disk);
            append(&log, 1..=30);
            snapshot(&log, 30).unwrap();
            log.commit(tail(log.buffer(), Lsn::new(31), &[unit(31)]), Commit::InPlace);
            drop(log);
            let newest = path(names::snapshot(Lsn::new(30)));
            let first = names_of(&disk).into_iter().filter(|name| name.starts_with("log-")).min().unwrap();
            disk.flip(&path(first.clone()), 20, 1);
            assert_eq!(read(&disk).unwrap().snapshot, 30, "{first} is not needed");
            disk.flip(&newest, damage_at, 1);
            assert!(matches!(read(&disk), Err(LogError::Snapshot { path, .. }) if path == newest));
        }
    }

    /// Simulates a crash between the end of a snapshot and the cut, then damage.
    #[test]
    fn intact_files_that_a_damaged_snapshot_replaced_are_read_in_its_place() {
        for (has_older, damage_at) in [(true, 3), (true, 200), (false, 3), (false, 200)] {
            let disk = SimDisk::new(1);
            let log = open(&disk);
            append(&log, 1..=30);
            if has_older {
                snapshot(&log, 10).unwrap();
            }
            let older = path(names::snapshot(Lsn::new(10)));
            let older_bytes = has_older.then(|| bytes_of(&disk, &older));
            // Chores remove cut files; none are done here.
            snapshot(&log, 30).unwrap();
            log.commit(tail(log.buffer(), Lsn::new(31), &[unit(31)]), Commit::InPlace);
            drop(log);
            older_bytes.iter().for_each(|bytes| put_back(&disk, &older, bytes));
            assert_eq!(read(&disk).unwrap().snapshot, 30);
            let newest = path(names::snapshot(Lsn::new(30)));
            disk.flip(&newest, damage_at, 1);
            let found = read(&disk).unwrap();
            assert_eq!((found.snapshot, found.units), (if has_older { 10 } else { 0 }, units(31)));
            assert!(found.passed_over.unwrap().contains(&newest.display().to_string()));
            // A start keeps to this choice, and the next snapshot replaces both.
            let log = open(&disk);
            append(&log, 32..=32);
            drop(log);
            assert_eq!(read(&disk).unwrap().units, units(32));
            let log = open(&disk);
            snapshot(&log, 32).unwrap();
            drop(log);
            let found = read(&disk).unwrap();
            assert_eq!((found.units, found.passed_over), (units(32), None));
            assert!(!names_of(&disk).iter().any(|name| *name == names::snapshot(Lsn::new(30))));
        }
    }

    #[test]
    fn replaced_files_are_not_read_if_they_end_before_the_damaged_snapshot() {
        let disk = SimDisk::new(1);
        let log = open(&disk);
        append(&log, 1..=10);
        snapshot(&log, 12).unwrap();
        drop(log);
        disk.flip(&path(names::snapshot(Lsn::new(12))), 100, 1);
        assert!(matches!(read(&disk), Err(LogError::Snapshot { .. })));
    }

    #[test]
    fn a_gap_between_snapshot_and_log_names_both() {
        let disk = SimDisk::new(1);
        with_snapshot(&disk);
        let log = open(&disk);
        let first = path(names::snapshot(Lsn::new(60)));
        let bytes = bytes_of(&disk, &first);
        snapshot(&log, 100).unwrap();
        while log.do_chore() {}
        drop(log);
        disk.remove(&path(names::snapshot(Lsn::new(100)))).unwrap();
        put_back(&disk, &first, &bytes);
        let said = read(&disk).unwrap_err().to_string();
        assert!(said.contains("snapshot-000000000000003c.snap") && said.contains("log-"), "{said}");
    }

    #[test]
    fn leftovers_are_removed_by_the_next_start() {
        let disk = SimDisk::new(1);
        with_snapshot(&disk);
        let older = path(names::snapshot(Lsn::new(60)));
        let bytes = bytes_of(&disk, &older);
        let log = open(&disk);
        snapshot(&log, 100).unwrap();
        let unfinished = path(names::temporary_snapshot(3));
        put_back(&disk, &unfinished, b"some");
        put_back(&disk, &older, &bytes);
        drop(log);
        let log = open(&disk);
        let left = names_of(&disk);
        assert!(!left.iter().any(|name| path(name.clone()) == older || path(name.clone()) == unfinished), "{left:?}");
        drop(log);
        assert_eq!(read(&disk).unwrap().units, units(100));
    }

    /// Number of rounds of a test of random damage: `SUITE_ROUNDS`, or a few.
    fn rounds() -> u64 {
        std::env::var("SUITE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(150)
    }

    #[test]
    fn any_damage_gives_whole_units_with_a_note_or_a_refusal_with_a_file() {
        let (mut refusals, mut cuts) = (0, 0);
        for seed in 0..2 * rounds() {
            let mut rng = Rng::seeded(seed);
            let disk = SimDisk::new(seed);
            // Without syncs and in a single segment, nothing proves that the last blocks had been durable.
            let options = match seed % 3 {
                0 => Options { policy: SyncPolicy::No, first_segment_bytes: 12 * 1024, ..OPTIONS },
                _ => OPTIONS,
            };
            let log = open_with(&disk, options);
            append(&log, 1..=20);
            snapshot(&log, 15).unwrap();
            append(&log, 21..=30);
            if seed % 4 < 2 {
                log.close().unwrap()
            } else {
                drop(log)
            }
            let names: Vec<_> = names_of(&disk).into_iter().filter(|name| names::is_data(name)).collect();
            let damaged = path(names[rng.below(names.len() as u64) as usize].clone());
            let len = disk.open(&damaged).unwrap().size().unwrap();
            if seed % 2 == 0 {
                disk.truncate(&damaged, rng.below(len));
            } else {
                let at = if rng.below(4) == 0 { rng.below(len.min(80)) } else { rng.below(len) };
                disk.flip(&damaged, at, 1 << rng.below(8));
            }
            match read(&disk) {
                Ok(Found { units: found, end, passed_over, .. }) => {
                    assert!(found.len() >= 15 || passed_over.is_some(), "{seed}");
                    assert_eq!(found, units(found.len() as u64), "{seed}");
                    assert!(found.len() == 30 || end.torn.is_some(), "{seed}: nothing was reported about {damaged:?}");
                    cuts += u64::from(found.len() < 30);
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains(DIRECTORY), "{seed}: {said}");
                    assert!(
                        said.contains("offset") || matches!(error, LogError::Missing { .. } | LogError::Gap { .. }),
                        "{seed}: {said}"
                    );
                    refusals += 1;
                }
            }
        }
        assert!(refusals > rounds() / 2 && cuts > 0, "{refusals} refusals, {cuts} cuts");
    }

    #[test]
    fn a_full_disk_ends_the_snapshot_and_leaves_the_log_its_space() {
        let disk = SimDisk::new(1);
        let log = open(&disk);
        append(&log, 1..=20);
        disk.set_capacity(Some(disk.used_bytes() + 300));
        let before = names_of(&disk);
        let error = snapshot(&log, 20).unwrap_err();
        assert!(matches!(&error, SnapshotError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull));
        assert!(error.to_string().contains("snapshot-0000000000000000.tmp"), "{error}");
        assert_eq!(names_of(&disk), before);
        // The journal wants a segment and has no space, so the next snapshot does not even begin to take any.
        let mut lsn = 20;
        while !matches!(snapshot(&log, lsn), Err(SnapshotError::LogFirst { .. })) {
            lsn += 1;
            append(&log, lsn..=lsn);
            assert!(lsn < 200);
        }
        assert_eq!(names_of(&disk), before);
        disk.set_capacity(None);
        log.step();
        while log.do_chore() {}
        snapshot(&log, lsn).unwrap();
        drop(log);
        assert_eq!(read(&disk).unwrap().units, units(lsn));
    }

    #[test]
    fn no_failure_harms_the_journal_or_earlier_files() {
        for operation in 0..200 {
            let disk = SimDisk::new(operation);
            let log = open(&disk);
            append(&log, 1..=20);
            snapshot(&log, 10).unwrap();
            let fail_at = disk.operations() + operation;
            disk.set_faults(Faults { fail_at: Some(fail_at), ..Faults::default() });
            let outcome = snapshot(&log, 20);
            let has_failed = disk.operations() > fail_at;
            disk.set_faults(Faults::default());
            if let Err(error) = &outcome {
                assert!(error.to_string().contains(DIRECTORY), "{error}");
            }
            append(&log, 21..=22);
            assert_eq!(log.durable().get(), 22);
            drop(log);
            disk.crash();
            assert_eq!(read(&disk).unwrap().units, units(22), "operation {operation}: {outcome:?}");
            if outcome.is_ok() && !has_failed {
                return;
            }
        }
        panic!("no run was without a failure");
    }
}
