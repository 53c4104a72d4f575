//! The folder of a copy: the writing side of a server's data folder, fed with units that were made elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::copies::make_folder;
use super::copying::Sink;
use super::error::{BackupError, io_error};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::feed::{Begun, Feed, FeedError};
use crate::log::block::{HEAD_BYTES, units_in};
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::{RealClock, RealDisk};
use crate::log::error::LogError;
use crate::log::group_commit::{Commit, Log, Options, State, SyncPolicy, Tail};
use crate::log::limits::SNAPSHOT_PAUSE_BYTES;
use crate::log::restore::{Part, Restore};
use crate::log::scan::Recovery;
use crate::log::snapshot::writer::{Begin, LogBeside, Sizes, SnapshotWriter};
use crate::persist::saving::DATA_DIR;
use crate::persist::tail::count_units;

/// A copy that is being written.
pub(super) struct Folder {
    path: PathBuf,
    snapshot: Option<SnapshotWriter>,
    log: Log,
    last: Lsn,
    /// The last unit, if it is in the journal.
    last_unit: Option<Vec<u8>>,
    time_ms: i64,
    /// Bytes of units so far.
    bytes: u64,
}

impl Folder {
    /// Begins a new folder of data: of everything up to a snapshot, whose units come next, or of all changes.
    pub(super) fn create(path: &Path, snapshot: Option<&Begun>) -> Result<Folder, BackupError> {
        let mut rng = Rng::from_entropy();
        let id = DirectoryId::random(&mut rng);
        path.parent().map_or(Ok(()), make_folder)?;
        let directory = Arc::new(Directory::open(Arc::new(RealDisk), path, id)?);
        let last = snapshot.map_or(Lsn::NONE, |snapshot| snapshot.lsn);
        // Before the snapshot: opening the journal removes files that are unfinished.
        let recovery = Recovery::open(Arc::clone(&directory), last)?;
        let log = started(path, recovery.finish(options(), Arc::new(RealClock::default()), Box::new(|| {})))?;
        let writer = match snapshot {
            Some(snapshot) => {
                let (serial, sizes) = (rng.next_u64(), Sizes::default());
                let begin = Begin { serial, time_ms: snapshot.time_ms, sizes, notify: Box::new(|| {}) };
                let mut writer = SnapshotWriter::begin(directory, LogBeside::none(), begin);
                writer.start().map_err(io_error(path))?;
                writer.hurry();
                Some(writer)
            }
            None => None,
        };
        let time_ms = snapshot.map_or(0, |snapshot| snapshot.time_ms);
        Ok(Folder { path: path.to_owned(), snapshot: writer, log, last, last_unit: None, time_ms, bytes: 0 })
    }

    /// Goes on with a copy that is complete.
    pub(super) fn go_on(path: PathBuf) -> Result<Folder, BackupError> {
        let data = path.join(DATA_DIR);
        let directory = Arc::new(Directory::open_existing(Arc::new(RealDisk), &data)?);
        let mut restore = Restore::open(directory)?;
        let mut last_unit = None;
        while let Some(part) = restore.next_part()? {
            if let Part::Block(block) = part {
                last_unit = block.units().last().map(|unit| unit.effects.to_vec());
            }
        }
        let last = restore.end().map_or(restore.snapshot(), |end| end.lsn);
        let log = started(&path, restore.finish(options(), Arc::new(RealClock::default()), Box::new(|| {})))?;
        Ok(Folder { path, snapshot: None, log, last, last_unit, time_ms: 0, bytes: 0 })
    }

    /// Whether the server of a feed has written the end of this copy, so that its next changes follow it. A server of
    /// the same history need not have: it may have been set back, or another server may have added to the copy.
    pub(super) fn is_followed_by(&self, feed: &mut Feed) -> Result<bool, BackupError> {
        let Some(last_unit) = &self.last_unit else { return Ok(feed.state()?.last == self.last) };
        match feed.read(self.last.previous(), Duration::ZERO) {
            Ok(blocks) => Ok(blocks.first().is_some_and(|block| {
                let unit = units_in(&block.units, block.first).next();
                unit.is_some_and(|unit| unit.lsn == self.last && unit.effects == last_unit)
            })),
            Err(FeedError::Gone { .. } | FeedError::Ahead { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes everything durable.
    pub(super) fn sync(&self) -> Result<(), BackupError> {
        self.log.drain().map_err(|error| self.failed(error.to_string()))
    }

    /// Makes everything durable, and ends the writing.
    pub(super) fn close(self) -> Result<(), BackupError> {
        let Folder { path, log, .. } = self;
        log.close().map_err(|error| BackupError::Write { path, reason: error.to_string() })
    }

    fn failed(&self, reason: String) -> BackupError {
        BackupError::Write { path: self.path.clone(), reason }
    }
}

fn count(units: &[u8]) -> Result<u32, BackupError> {
    // A reply has far fewer bytes.
    Ok(u32::try_from(count_units(units)?).unwrap_or(u32::MAX))
}

impl Sink for Folder {
    fn last(&self) -> Lsn {
        self.last
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn push(&mut self, units: &[u8]) -> Result<(), BackupError> {
        let count = count(units)?;
        self.bytes += units.len() as u64;
        let Some(snapshot) = &mut self.snapshot else { return Ok(()) };
        snapshot.push(units.to_vec(), count);
        while snapshot.backlog() > SNAPSHOT_PAUSE_BYTES && snapshot.outcome().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        match snapshot.outcome() {
            Some(Err(error)) => Err(self.failed(error.to_string())),
            _ => Ok(()),
        }
    }

    fn end_snapshot(&mut self, lsn: Lsn) -> Result<(), BackupError> {
        let Some(mut snapshot) = self.snapshot.take() else { return Ok(()) };
        snapshot.finish(lsn, self.time_ms);
        loop {
            match snapshot.outcome() {
                Some(Ok(_)) => return Ok(()),
                Some(Err(error)) => return Err(self.failed(error.to_string())),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn append(&mut self, first: Lsn, time_ms: i64, units: &[u8]) -> Result<(), BackupError> {
        if first != self.last.next() {
            return Err(self.failed(format!("change {first} came after {}", self.last)));
        }
        let count = count(units)?;
        let mut bytes = self.log.buffer();
        bytes.resize(HEAD_BYTES, 0);
        bytes.extend_from_slice(units);
        self.log.commit(Tail { bytes, first_lsn: first, units: count, time_ms }, Commit::InPlace);
        self.last = self.last.plus(u64::from(count));
        self.bytes += units.len() as u64;
        if self.log.backlog_bytes() > SNAPSHOT_PAUSE_BYTES {
            self.sync()?;
        }
        match self.log.state() {
            State::Good => Ok(()),
            State::Full => Err(self.failed("the disk is full: make space, or keep fewer copies (--keep)".to_owned())),
            State::Poisoned => Err(self.failed(self.log.failure().map(ToString::to_string).unwrap_or_default())),
        }
    }
}

/// Starts the threads of a journal that was opened in the folder of a copy.
fn started(path: &Path, log: Result<Log, LogError>) -> Result<Log, BackupError> {
    let mut log = log?;
    log.start().map_err(io_error(path))?;
    Ok(log)
}

/// A copy is synced where its writer says so.
fn options() -> Options {
    Options { policy: SyncPolicy::No, may_wait_for_space: false, ..Options::default() }
}
