//! From the files of a directory back to the data: the newest snapshot, then the log behind it.
//!
//! A snapshot that is damaged is refused, unless what it replaced is still there: an older snapshot, or nothing if the log goes
//! back to its first unit, and the whole log from there to the Lsn of the damaged one. A crash between the end of a snapshot and
//! the cut leaves that behind; and only where it is there, a snapshot is read twice, because what has been applied can't be taken
//! back.

use std::path::PathBuf;
use std::sync::Arc;

use super::block::Block;
use super::directory::Directory;
use super::disk::Clock;
use super::error::LogError;
use super::group_commit::{Log, Options};
use super::names;
use super::scan::{End, Recovery};
use super::snapshot::reader::SnapshotReader;
use super::snapshot::writer::remove_older;
use crate::base::lsn::Lsn;

/// Reads the data of a directory, part by part. See the module's header.
pub struct Restore {
    directory: Arc<Directory>,
    /// Snapshots that are older than the one in hand, oldest first.
    older: Vec<Lsn>,
    phase: Phase,
    /// The log behind the snapshot in hand.
    log: Recovery,
    /// The Lsn of the snapshot in hand; [`Lsn::NONE`] without one.
    snapshot: Lsn,
    /// The newest snapshot, if it is damaged and others are read in its place.
    passed_over: Option<PassedOver>,
    /// Bytes of snapshots that have been read.
    read_bytes: u64,
    /// Bytes of the snapshot that was loaded.
    snapshot_bytes: u64,
}

/// A snapshot that can't be used, and why.
struct PassedOver {
    lsn: Lsn,
    error: LogError,
}

enum Phase {
    /// The snapshot is read to see whether it is sound.
    Verify(SnapshotReader),
    /// The snapshot is read.
    Load(SnapshotReader),
    /// The log is read.
    Log,
}

/// What one step has read.
pub enum Part<'a> {
    /// Something that was only checked.
    Checked,
    /// Units of the snapshot: those of [`SnapshotReader::units`].
    Snapshot(&'a SnapshotReader),
    /// A block of the log.
    Block(Block<'a>),
}

impl Restore {
    /// Finds the newest snapshot of `directory` and the log behind it.
    pub fn open(directory: impl Into<Arc<Directory>>) -> Result<Restore, LogError> {
        let directory = directory.into();
        let io = |source| LogError::Io { path: directory.path().to_owned(), source };
        let names = directory.disk().list(directory.path()).map_err(io)?;
        let mut snapshots: Vec<Lsn> = names.iter().filter_map(|name| names::snapshot_lsn(name)).collect();
        snapshots.sort_unstable();
        Restore::choose(directory, snapshots, None)
    }

    /// Chooses the newest of these snapshots, oldest first, that is not obviously damaged, or none if all are.
    fn choose(
        directory: Arc<Directory>,
        mut snapshots: Vec<Lsn>,
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
            // What the damaged snapshot replaced is gone: so it is the snapshot that must be brought back.
            (Err(LogError::Gap { .. } | LogError::Missing { .. }), Some(PassedOver { error, .. })) => {
                return Err(error);
            }
            (Err(error), _) => return Err(error),
        };
        let has_substitute = !snapshots.is_empty() || log.is_whole();
        let phase = match reader {
            Some(reader) if has_substitute => Phase::Verify(reader),
            Some(reader) => Phase::Load(reader),
            None => Phase::Log,
        };
        Ok(Restore { directory, older: snapshots, phase, log, snapshot, passed_over, read_bytes: 0, snapshot_bytes: 0 })
    }

    /// Reads the next part; `None` at the end of the log.
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
            self.phase = Phase::Log;
        }
        if let Phase::Log = self.phase {
            return match self.log.find_block()? {
                Some(found) => Ok(Some(Part::Block(self.log.block(&found)))),
                None => self.check_end().map(|()| None),
            };
        }
        Ok(Some(match &self.phase {
            Phase::Load(reader) => Part::Snapshot(reader),
            Phase::Verify(_) | Phase::Log => Part::Checked,
        }))
    }

    /// The snapshot in hand is damaged: goes on with what is older.
    fn pass_over(&mut self, error: LogError) -> Result<(), LogError> {
        let newest = self.passed_over.take().unwrap_or(PassedOver { lsn: self.snapshot, error });
        let chosen = Restore::choose(Arc::clone(&self.directory), std::mem::take(&mut self.older), Some(newest))?;
        *self = Restore { read_bytes: self.read_bytes, ..chosen };
        Ok(())
    }

    /// What is read in the place of a damaged snapshot must reach as far as that did.
    fn check_end(&mut self) -> Result<(), LogError> {
        let last = self.log.end().map_or(Lsn::NONE, |end| end.lsn);
        match self.passed_over.take_if(|newest| newest.lsn > last) {
            Some(newest) => Err(newest.error),
            None => Ok(()),
        }
    }

    /// The file that was read last, and the offset behind what was read: for errors about its units.
    pub fn position(&self) -> (PathBuf, u64) {
        match &self.phase {
            Phase::Verify(reader) | Phase::Load(reader) => reader.position(),
            Phase::Log => self.log.position(),
        }
    }

    /// Bytes that have been read, and that there are, about: a snapshot may have to be read twice.
    pub fn progress(&self) -> (u64, u64) {
        let (read, all) = self.log.progress();
        match &self.phase {
            Phase::Verify(reader) => {
                (reader.progress().0 + self.read_bytes, self.read_bytes + 2 * reader.progress().1 + all)
            }
            Phase::Load(reader) => (reader.progress().0 + self.read_bytes, self.read_bytes + reader.progress().1 + all),
            Phase::Log => (self.read_bytes + read, self.read_bytes + all),
        }
    }

    /// How the log ends, once [`Restore::next_part`] has answered `None`.
    pub fn end(&self) -> Option<&End> {
        self.log.end()
    }

    /// The directory that is read.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Bytes of the snapshot that is read, once it has been; 0 without one.
    pub fn snapshot_bytes(&self) -> u64 {
        match &self.phase {
            Phase::Verify(reader) | Phase::Load(reader) => reader.progress().1,
            Phase::Log => self.snapshot_bytes,
        }
    }

    /// The Lsn of the snapshot that is read; [`Lsn::NONE`] without one.
    pub fn snapshot(&self) -> Lsn {
        self.snapshot
    }

    /// What is wrong with the newest snapshot, if others are read in its place.
    pub fn passed_over(&self) -> Option<&LogError> {
        self.passed_over.as_ref().map(|newest| &newest.error)
    }

    /// Opens the log for writing, as [`Recovery::finish`] does. Gives up what the snapshot has replaced, should a crash have
    /// left it. Reads what [`Restore::next_part`] has not read yet.
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

    /// Goes on without a log. Answers the directory, in which snapshots can be made.
    pub fn finish_without_log(mut self) -> Result<Arc<Directory>, LogError> {
        while self.next_part()?.is_some() {}
        self.log.remove_unfinished()?;
        Ok(self.directory)
    }
}
