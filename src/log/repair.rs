//! Repair: makes the journal end where its damage begins, so that a server starts with the units before it.
//!
//! As everywhere, no written block is changed: the journal gets a new segment, which follows the last good block. The
//! next start removes the files that the chain no longer reaches. They are first copied to a folder of their own, so
//! that a mistaken repair can be undone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block::{ALIGN, Block, Damage};
use super::directory::Directory;
use super::disk::{RealClock, read_all, write_zeros};
use super::error::LogError;
use super::group_commit::Options;
use super::identity::Owner;
use super::names;
use super::scan::Recovery;
use super::segment::{FIELD_BYTES, HEADER_BYTES, Header, SEGMENT_MAX_BYTES};
use crate::base::lsn::Lsn;

/// Result of a repair.
#[derive(Debug)]
pub struct Repaired {
    /// The first damage.
    pub damage: LogError,
    /// The last unit that the journal still has.
    pub last: Lsn,
    /// The last unit found behind the damage, if any. The units after [`Repaired::last`] up to it are lost.
    pub lost_through: Option<Lsn>,
    /// Copies of the files that were changed or will be removed by the next start.
    pub copies: Vec<PathBuf>,
}

/// The changes that a repair would make.
struct Plan {
    recovery: Recovery,
    damage: LogError,
    /// Segments that are shorter than they were made, and the length to fill each up to again.
    short: Vec<(PathBuf, u64)>,
}

/// Ends the journal of a single server, in `directory`, where its damage begins, behind the newest sound snapshot, the
/// one up to `snapshot`. Everything that this changes is copied into the folder `backup` first. Returns `None`, and
/// does nothing, if the journal is not damaged.
pub fn repair(directory: &Arc<Directory>, snapshot: Lsn, backup: &Path) -> Result<Option<Repaired>, LogError> {
    if directory.owner() != Owner::Server {
        let (path, owner) = (directory.path().to_owned(), directory.owner().to_string());
        return Err(LogError::NoRepair { path, owner });
    }
    let Some(Plan { recovery, damage, short }) = plan(directory, snapshot)? else { return Ok(None) };
    let last = recovery.end().map_or(snapshot, |end| end.lsn);
    let is_short = |number| short.iter().any(|(path, _)| *path == directory.segment(number));
    let untouched: Vec<u64> = recovery.read_before().filter(|number| !is_short(*number)).collect();
    let mut found = Lsn::NONE;
    let mut copies = Vec::new();
    directory.disk().create_dir(backup).map_err(|source| LogError::Io { path: backup.to_owned(), source })?;
    for number in segments(directory)?.into_iter().filter(|number| !untouched.contains(number)) {
        let mut bytes = Vec::new();
        let path = directory.segment(number);
        let read = directory.open_segment(number).and_then(|file| read_all(&*file, &mut bytes, SEGMENT_MAX_BYTES));
        read.map_err(|source| LogError::Io { path, source })?;
        if is_unused(directory, number, &bytes) {
            continue;
        }
        found = found.max(last_lsn(directory, number, &bytes));
        copies.push(copy(directory, &backup.join(names::segment(number)), &bytes)?);
    }
    for path in [backup, directory.path()] {
        directory.disk().sync_dir(path).map_err(|source| LogError::Io { path: path.to_owned(), source })?;
    }
    for (path, capacity) in short {
        let filled = directory.disk().open(&path).and_then(|file| {
            write_zeros(&*file, file.size()?, capacity)?;
            file.sync_data()
        });
        filled.map_err(|source| LogError::Io { path, source })?;
    }
    // Closing the journal marks it as whole, so that the next start has nothing to report.
    let log = recovery.finish(Options::default(), Arc::new(RealClock::default()), Box::new(|| {}))?;
    log.close().map_err(|error| LogError::Io {
        path: directory.path().to_owned(),
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(Some(Repaired { damage, last, lost_through: Some(found).filter(|found| *found > last), copies }))
}

/// Reads the journal up to its damage. Returns `None` if there is none.
fn plan(directory: &Arc<Directory>, snapshot: Lsn) -> Result<Option<Plan>, LogError> {
    let mut errors = Vec::new();
    let mut before = u64::MAX;
    // A missing segment, or one with an unreadable header, breaks the chain: newer segments can't be reached.
    let mut recovery = loop {
        match Recovery::find(Arc::clone(directory), snapshot, before) {
            Ok(recovery) => break recovery,
            Err(error) => match parting(&error).filter(|number| *number < before) {
                Some(number) => {
                    before = number;
                    errors.push(error);
                }
                None => return Err(error),
            },
        }
    };
    // The segments may be intact, and only the snapshot before them missing.
    if recovery.chain().next().is_none()
        && let Some(missing) = errors.pop_if(|last| matches!(last, LogError::Missing { .. } | LogError::Gap { .. }))
    {
        return Err(missing);
    }
    let mut first = errors.into_iter().next();
    let mut short: Vec<(PathBuf, u64)> = Vec::new();
    loop {
        match recovery.find_block() {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(LogError::Corrupt { path, offset, lsn, damage: Damage::Short(capacity) })
                if !short.iter().any(|(known, _)| *known == path) && recovery.position().0 == path =>
            {
                first.get_or_insert(LogError::Corrupt {
                    path: path.clone(),
                    offset,
                    lsn,
                    damage: Damage::Short(capacity),
                });
                short.push((path, capacity));
            }
            Err(error @ LogError::Corrupt { .. }) => {
                recovery.end_here();
                first.get_or_insert(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(first.map(|damage| Plan { recovery, damage, short }))
}

/// Returns the number of the segment that breaks the chain.
fn parting(error: &LogError) -> Option<u64> {
    let path = match error {
        LogError::Corrupt { path, damage: Damage::Header, .. } | LogError::Missing { path, .. } => path,
        LogError::Gap { segment, .. } => segment,
        _ => return None,
    };
    names::segment_number(path.file_name()?.to_str()?)
}

fn segments(directory: &Directory) -> Result<Vec<u64>, LogError> {
    let names = directory.disk().list(directory.path());
    let names = names.map_err(|source| LogError::Io { path: directory.path().to_owned(), source })?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| names::segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Whether the segment was prepared and has never been part of the journal.
fn is_unused(directory: &Directory, number: u64, bytes: &[u8]) -> bool {
    let fields = bytes.get(..FIELD_BYTES).unwrap_or_default();
    Header::read(fields, directory.id(), number).is_ok_and(|header| header.first_lsn == Lsn::NONE)
}

/// Returns the last unit in any sound block of the segment.
fn last_lsn(directory: &Directory, number: u64, bytes: &[u8]) -> Lsn {
    let mut place = directory.place(number, HEADER_BYTES);
    let mut last = Lsn::NONE;
    while let Some(rest) = bytes.get(place.offset as usize..).filter(|rest| !rest.is_empty()) {
        if let Ok(block) = Block::read(rest, &place) {
            last = last.max(block.contents.end().previous());
        }
        place.offset += ALIGN;
    }
    last
}

fn copy(directory: &Directory, path: &Path, bytes: &[u8]) -> Result<PathBuf, LogError> {
    let copied = directory.disk().create(path).and_then(|file| {
        file.write_at(bytes, 0)?;
        file.sync_data()
    });
    copied.map_err(|source| LogError::Io { path: path.to_owned(), source })?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::log::directory::DirectoryId;
    use crate::log::disk::Disk;
    use crate::log::group_commit::{Commit, Log, SyncPolicy, tail};
    use crate::log::restore::Restore;
    use crate::log::sim::SimDisk;
    use crate::log::snapshot::writer::tests::{begin, take};

    const OPTIONS: Options = Options {
        policy: SyncPolicy::Always,
        segment_bytes: 6 * 1024,
        first_segment_bytes: 5 * 1024,
        prepared_segments: 1,
        reserve_bytes: 0,
        may_wait_for_space: true,
    };

    fn directory(disk: &SimDisk) -> Arc<Directory> {
        Arc::new(Directory::open(Arc::new(disk.clone()), Path::new("/d"), DirectoryId::new([1; 16])).unwrap())
    }

    fn unit(lsn: u64) -> Vec<u8> {
        format!("unit {lsn} ").repeat(lsn as usize % 20 + 1).into_bytes()
    }

    fn append(log: &Log, lsns: std::ops::RangeInclusive<u64>) {
        for lsn in lsns {
            log.commit(tail(log.buffer(), Lsn::new(lsn), &[unit(lsn)]), Commit::InPlace);
            while log.do_chore() {}
        }
    }

    /// Returns a disk with a snapshot at 20 and a journal in several segments up to 60.
    fn written(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        let restore = Restore::open(directory(&disk)).unwrap();
        let log = restore.finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {})).unwrap();
        append(&log, 1..=30);
        let units: Vec<_> = (1..=20).map(unit).collect();
        take(log.snapshot(begin(1)), &units, 20).unwrap();
        append(&log, 31..=60);
        disk
    }

    fn read(disk: &SimDisk) -> Result<Vec<Vec<u8>>, LogError> {
        let mut restore = Restore::open(directory(disk))?;
        restore.effects()
    }

    fn mend(disk: &SimDisk) -> Option<Repaired> {
        repair(&directory(disk), Lsn::new(20), Path::new("/d/backup")).unwrap()
    }

    #[test]
    fn a_log_that_is_not_damaged_is_left_alone() {
        let disk = written(1);
        let began = disk.operations();
        assert!(mend(&disk).is_none());
        assert!(disk.trace(began).iter().all(|event| event.operation != "write"));
        assert_eq!(read(&disk).unwrap().len(), 60);
    }

    #[test]
    fn a_log_whose_snapshot_is_missing_is_left_alone() {
        let disk = written(2);
        disk.remove(&directory(&disk).snapshot(Lsn::new(20))).unwrap();
        let refused = repair(&directory(&disk), Lsn::NONE, Path::new("/d/backup"));
        assert!(matches!(refused, Err(LogError::Missing { .. })), "{refused:?}");
        let refused = repair(&directory(&disk), Lsn::new(3), Path::new("/d/backup"));
        assert!(matches!(refused, Err(LogError::Gap { .. })), "{refused:?}");
    }

    #[test]
    fn units_before_any_damage_are_read_again_and_changed_files_are_copied() {
        let (mut cuts, mut with_loss) = (0, 0);
        for seed in 0..150 {
            let mut rng = Rng::seeded(seed);
            let disk = written(seed);
            let numbers = segments(&directory(&disk)).unwrap();
            let number = numbers[rng.below(numbers.len() as u64) as usize];
            let path = Path::new("/d").join(names::segment(number));
            let size = disk.open(&path).unwrap().size().unwrap();
            match seed % 3 {
                // Without the first segment, the others have no predecessor.
                0 if number == numbers[0] => continue,
                0 => disk.remove(&path).unwrap(),
                1 => disk.truncate(&path, rng.below(size)),
                _ => (0..3).for_each(|_| disk.flip(&path, rng.below(size), 1)),
            }
            let before = read(&disk);
            let Some(repaired) = mend(&disk) else {
                assert!(before.is_ok(), "{seed}: {before:?}");
                continue;
            };
            assert!(before.is_err(), "{seed}: it was readable, but was cut: {repaired:?}");
            let units = read(&disk).unwrap_or_else(|error| panic!("{seed}: {error} after {repaired:?}"));
            assert_eq!(units, (1..=units.len() as u64).map(unit).collect::<Vec<_>>(), "{seed}");
            assert_eq!(repaired.last.get(), units.len() as u64, "{seed}");
            let is_all = units.len() == 60;
            assert!(repaired.lost_through.is_none_or(|lost| lost.get() <= 60 && !is_all), "{seed}: {repaired:?}");
            for copied in &repaired.copies {
                assert!(disk.open(copied).is_ok());
            }
            cuts += 1;
            with_loss += u64::from(repaired.lost_through.is_some());
            assert!(mend(&disk).is_none(), "{seed}: a second repair must find nothing");
        }
        assert!(cuts > 40 && with_loss > 20, "{cuts} repairs, {with_loss} losses");
    }
}
