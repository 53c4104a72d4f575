//! Writes a snapshot: the engine hands over units, and a thread of its own compresses and writes them.
//!
//! The file is made under a temporary name. When it is complete it is synced and gets its name, and the directory is
//! synced. Only then are the files removed that it replaces: older snapshots, and the journal before it. So a crash at
//! any point leaves the old snapshot with its journal, the new one with its journal, or both.
//!
//! A failure ends the snapshot and affects nothing else: the temporary file is removed, and the journal goes on. The
//! journal has the first claim to space: a snapshot gives up as soon as the journal can't make its next segment.
//!
//! [`SnapshotWriter`] is the engine's side and `Job` the thread's. `Job` is a state machine without a thread, so that a
//! simulation can run it step by step.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use super::format::{End, FRAME_HEAD_BYTES, FileId, HEADER_BYTES, Header, Kind, Version, seal};
use super::reader::SnapshotReader;
use crate::base::lsn::Lsn;
use crate::base::os::priority::give_way;
use crate::log::block::split_unit;
use crate::log::directory::Directory;
use crate::log::disk::DiskFile;
use crate::log::limits::{
    LOG_BLOCK_MAX_BYTES, SNAPSHOT_FRAME_BYTES, SNAPSHOT_HURRY_BYTES, SNAPSHOT_PAUSE_BYTES, SNAPSHOT_SYNC_BYTES,
};
use crate::log::names;
use crate::log::planted::{self, Bug};
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::Members;
use crate::log::replicated::types::Position;

/// Why a snapshot failed. Earlier files are untouched.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The system refuses an operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The journal is full or has failed.
    #[error("{}: given up, because the journal needs the space or has failed", path.display())]
    LogFirst {
        /// The file that was being written.
        path: PathBuf,
    },
    /// The bytes handed over are not the stated number of whole units.
    #[error("{}: given up, because it was given malformed units", path.display())]
    NoUnits {
        /// The file that was being written.
        path: PathBuf,
    },
    /// A unit handed over is longer than any reader accepts.
    #[error("{}: given up, because a change is too long for a snapshot", path.display())]
    LongUnit {
        /// The file that was being written.
        path: PathBuf,
    },
    /// A snapshot in the directory of a node was not told which entry it covers, or another one was.
    #[error("{}: given up, because it lies in a directory of another kind", path.display())]
    Kind {
        /// The file that was being written.
        path: PathBuf,
    },
    /// A newer snapshot has got the same name: entries without units lie between the two.
    #[error("{}: given up, because a snapshot that covers more has come before it", path.display())]
    Overtaken {
        /// The file that was being written.
        path: PathBuf,
    },
    /// The engine has abandoned the snapshot.
    #[error("the snapshot was abandoned")]
    Abandoned,
}

/// A snapshot that is complete and durable.
#[derive(Clone, Debug)]
pub struct Done {
    /// The path of the file.
    pub path: PathBuf,
    /// The totals in the final frame.
    pub end: End,
    /// Size of the file in bytes.
    pub file_bytes: u64,
}

/// Sizes of the file's parts. [`Default`] has the real ones; tests use smaller ones.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of units that a frame holds.
    pub frame_bytes: usize,
    /// Number of bytes after which to sync, so that no sync has to wait long for the disk, not even one of the journal.
    pub sync_bytes: u64,
    /// Largest size of a unit in bytes.
    pub unit_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { frame_bytes: SNAPSHOT_FRAME_BYTES, sync_bytes: SNAPSHOT_SYNC_BYTES, unit_bytes: LOG_BLOCK_MAX_BYTES }
    }
}

/// The journal beside a snapshot.
pub struct LogBeside {
    /// Whether the journal works and has enough space.
    pub is_well: Box<dyn Fn() -> bool + Send>,
    /// Removes the journal up to this Lsn.
    pub cut: Box<dyn Fn(Lsn) + Send>,
}

impl LogBeside {
    /// Returns a substitute where there is no journal.
    pub fn none() -> LogBeside {
        LogBeside { is_well: Box::new(|| true), cut: Box::new(|_| {}) }
    }
}

/// The initial facts of a snapshot.
pub struct Begin {
    /// A random number, which no other snapshot of the directory has.
    pub serial: u64,
    /// The wall clock, in milliseconds since 1970.
    pub time_ms: i64,
    /// The sizes of its parts.
    pub sizes: Sizes,
    /// Called on the snapshot's thread when there is an outcome, and when the backlog has fallen to
    /// [`SNAPSHOT_PAUSE_BYTES`]. It should wake the engine and return.
    pub notify: Box<dyn Fn() + Send>,
}

/// A snapshot under way, as the engine sees it. No call waits for the disk. Dropping it before it is complete abandons
/// it.
pub struct SnapshotWriter {
    shared: Arc<Shared>,
    serial: u64,
    /// `None` once the thread has it.
    job: Option<Job>,
}

impl SnapshotWriter {
    /// Begins a snapshot in `directory`. Nothing is done before [`SnapshotWriter::start`] or [`SnapshotWriter::step`].
    pub fn begin(directory: Arc<Directory>, log: LogBeside, begin: Begin) -> SnapshotWriter {
        let (shared, serial) = (Arc::new(Shared::default()), begin.serial);
        let job = Job::new(directory, log, begin, Arc::clone(&shared));
        SnapshotWriter { shared, serial, job: Some(job) }
    }

    /// Starts the thread that writes. It runs at a low priority, until it must [hurry](Self::hurry). Fails, and does
    /// nothing, if the system can't start a thread.
    pub fn start(&mut self) -> io::Result<()> {
        if let Some(mut job) = self.job.take() {
            thread_named_snapshot().spawn(move || job.run())?;
        }
        Ok(())
    }

    /// Hands over `count` units, each behind its [`unit_head`](crate::log::block::unit_head).
    pub fn push(&mut self, units: Vec<u8>, count: u32) {
        let before = self.shared.backlog.fetch_add(units.len(), Ordering::Relaxed);
        if before + units.len() > SNAPSHOT_HURRY_BYTES {
            // At a low priority the thread would never keep up on a busy machine.
            self.hurry();
        }
        self.shared.change(|queue| queue.pieces.push_back(Piece { units, count }));
    }

    /// Gives the thread its normal priority from here on, because a caller waits for it.
    pub fn hurry(&self) {
        if !self.shared.hurries.swap(true, Ordering::Relaxed) {
            self.shared.change(|_| {});
        }
    }

    /// Returns the number of bytes handed over and not written yet. Above [`SNAPSHOT_PAUSE_BYTES`], the engine should
    /// wait before it copies more. Above `SNAPSHOT_GIVE_UP_BYTES`,
    /// the disk does not even keep up with the changes made during the copy.
    pub fn backlog(&self) -> usize {
        self.shared.backlog.load(Ordering::Relaxed)
    }

    /// Declares that all units were handed over: they are the data as of unit `lsn` of the journal, at `time_ms` by the
    /// wall clock.
    pub fn finish(&mut self, lsn: Lsn, time_ms: i64) {
        self.shared.change(|queue| queue.finish = Some(End { lsn, time_ms, ..End::default() }));
    }

    /// Does the same for a snapshot in the directory of a node. The data is that of a committed entry of the log, as of
    /// which the group had these members.
    pub(crate) fn finish_at(&mut self, at: Position, members: Members, time_ms: i64) {
        let mark = Some(Mark { at, members, serial: self.serial });
        self.shared.change(|queue| queue.finish = Some(End { lsn: at.link.lsn, time_ms, mark, ..End::default() }));
    }

    /// Gives up. Unless it is already complete, the outcome will be [`SnapshotError::Abandoned`], and no file remains.
    pub fn abandon(&self) {
        self.shared.is_abandoned.store(true, Ordering::Release);
        self.shared.change(|_| {});
    }

    /// Returns the outcome; `None` while the snapshot is under way.
    pub fn outcome(&self) -> Option<Result<Done, SnapshotError>> {
        self.shared.outcome.get().cloned()
    }

    /// Does one round of the thread: writes everything queued, or takes one step towards the end. For callers without
    /// the thread.
    pub fn step(&mut self) {
        if let Some(job) = &mut self.job {
            job.step();
        }
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        self.abandon();
        self.step();
    }
}

/// Units handed over in one call.
struct Piece {
    units: Vec<u8>,
    count: u32,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    /// What is known of the end.
    finish: Option<End>,
}

/// State shared by the engine and the thread.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Where the thread waits for work, with the lock of the queue.
    work: Condvar,
    backlog: AtomicUsize,
    hurries: AtomicBool,
    is_abandoned: AtomicBool,
    outcome: OnceLock<Result<Done, SnapshotError>>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        change(&mut self.queue());
        self.work.notify_one();
    }

    fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    fn hurries(&self) -> bool {
        self.hurries.load(Ordering::Relaxed)
    }

    /// Waits until there is work. At a low priority, also returns when the thread must hurry.
    fn wait_for_work(&self, gives_way: bool) {
        let mut queue = self.queue();
        while queue.pieces.is_empty()
            && queue.finish.is_none()
            && !self.is_abandoned()
            && !(gives_way && self.hurries())
        {
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Progress of the file.
#[derive(Clone)]
enum Stage {
    /// Units are being written.
    Writing,
    /// Everything is written and synced.
    Written(End),
    /// The file has its final name.
    Named(End),
}

/// The writing side of a snapshot.
struct Job {
    directory: Arc<Directory>,
    log: LogBeside,
    notify: Box<dyn Fn() + Send>,
    sizes: Sizes,
    header: Header,
    shared: Arc<Shared>,
    stage: Stage,
    /// Created with the first step.
    file: Option<Arc<dyn DiskFile>>,
    path: PathBuf,
    /// Offset of the next frame.
    offset: u64,
    /// Bytes written since the last sync.
    unsynced: u64,
    /// Bytes of units for the next frame.
    plain: Vec<u8>,
    /// Buffer for the frame being written.
    frame: Vec<u8>,
    written: End,
}

impl Job {
    fn new(directory: Arc<Directory>, log: LogBeside, begin: Begin, shared: Arc<Shared>) -> Job {
        let Begin { serial, time_ms, sizes, notify } = begin;
        let file = FileId { directory: directory.id(), serial };
        Job {
            path: directory.file(&names::temporary_snapshot(0)),
            log,
            notify,
            sizes,
            header: Header { version: Version::of(directory.owner()), file, begun_ms: time_ms },
            directory,
            shared,
            stage: Stage::Writing,
            file: None,
            offset: 0,
            unsynced: 0,
            plain: Vec::new(),
            frame: Vec::new(),
            written: End::default(),
        }
    }

    /// Runs the whole job: on a thread with low priority, and once it must hurry, on this one, because a thread can't
    /// raise its priority again.
    fn run(&mut self) {
        thread::scope(|scope| {
            let gives_way = || {
                give_way();
                self.work(true);
            };
            // If the system can't start a second thread, this one does everything.
            let _ = thread_named_snapshot().spawn_scoped(scope, gives_way);
        });
        self.work(false);
    }

    /// Works until there is an outcome or, at a low priority, until the thread must hurry.
    fn work(&mut self, gives_way: bool) {
        while !(gives_way && self.shared.hurries()) && self.step() {
            if let Stage::Writing = self.stage {
                self.shared.wait_for_work(gives_way);
            }
        }
    }

    /// Takes one step in the current stage. Returns whether there may be more to do.
    fn step(&mut self) -> bool {
        if self.shared.outcome.get().is_some() {
            return false;
        }
        let outcome = match self.advance() {
            Ok(None) => return true,
            Ok(Some(done)) => Ok(done),
            Err(error) => {
                if self.file.take().is_some() {
                    // If this fails, the next start removes the file.
                    let _ = self.directory.disk().remove(&self.path);
                }
                Err(error)
            }
        };
        let _ = self.shared.outcome.set(outcome);
        (self.notify)();
        false
    }

    fn advance(&mut self) -> Result<Option<Done>, SnapshotError> {
        match self.stage.clone() {
            Stage::Writing => self.write_queued(),
            Stage::Written(end) => self.give_name(end),
            Stage::Named(end) => return self.give_up_the_past(end).map(Some),
        }?;
        Ok(None)
    }

    fn write_queued(&mut self) -> Result<(), SnapshotError> {
        let queue = std::mem::take(&mut *self.shared.queue());
        self.check()?;
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => self.create()?,
        };
        for piece in queue.pieces {
            self.take_in(&*file, &piece)?;
        }
        match queue.finish {
            Some(end) => self.write_end(&*file, end),
            None => Ok(()),
        }
    }

    /// Fails if the snapshot should not go on.
    fn check(&self) -> Result<(), SnapshotError> {
        if self.shared.is_abandoned() {
            return Err(SnapshotError::Abandoned);
        }
        if (self.log.is_well)() { Ok(()) } else { Err(SnapshotError::LogFirst { path: self.path.clone() }) }
    }

    fn create(&mut self) -> Result<Arc<dyn DiskFile>, SnapshotError> {
        let (path, file) = create_temporary(&self.directory)?;
        (self.path, self.file) = (path, Some(Arc::clone(&file)));
        file.write_at(&self.header.encode(), 0).map_err(|error| self.failed(error))?;
        self.offset = HEADER_BYTES as u64;
        Ok(file)
    }

    fn take_in(&mut self, file: &dyn DiskFile, piece: &Piece) -> Result<(), SnapshotError> {
        let (mut rest, mut found) = (&*piece.units, 0);
        while let Some((_, behind)) = split_unit(rest, Lsn::NONE) {
            if rest.len() - behind.len() > self.sizes.unit_bytes {
                return Err(SnapshotError::LongUnit { path: self.path.clone() });
            }
            rest = behind;
            found += 1;
        }
        if !rest.is_empty() || found != piece.count {
            return Err(SnapshotError::NoUnits { path: self.path.clone() });
        }
        self.written.units += u64::from(found);
        let mut rest = &*piece.units;
        while !rest.is_empty() {
            let fits = self.sizes.frame_bytes.saturating_sub(self.plain.len()).min(rest.len());
            let (now, later) = rest.split_at(fits);
            self.plain.extend_from_slice(now);
            rest = later;
            if self.plain.len() >= self.sizes.frame_bytes {
                self.check()?;
                self.write_units(file)?;
            }
        }
        Ok(())
    }

    /// Writes the gathered units as a frame.
    fn write_units(&mut self, file: &dyn DiskFile) -> Result<(), SnapshotError> {
        let plain = std::mem::take(&mut self.plain);
        let most = lz4_flex::block::get_maximum_output_size(plain.len());
        self.frame.resize(FRAME_HEAD_BYTES + most, 0);
        let kind = match lz4_flex::block::compress_into(&plain, &mut self.frame[FRAME_HEAD_BYTES..]) {
            Ok(stored) if stored < plain.len() => {
                self.frame.truncate(FRAME_HEAD_BYTES + stored);
                Kind::Lz4
            }
            _ => {
                self.frame.truncate(FRAME_HEAD_BYTES);
                self.frame.extend_from_slice(&plain);
                Kind::Plain
            }
        };
        self.write_frame(file, kind, plain.len())?;
        self.written.unit_bytes += plain.len() as u64;
        self.written.frames += 1;
        let before = self.shared.backlog.fetch_sub(plain.len(), Ordering::Relaxed);
        if before > SNAPSHOT_PAUSE_BYTES && before - plain.len() <= SNAPSHOT_PAUSE_BYTES {
            (self.notify)();
        }
        self.plain = plain;
        self.plain.clear();
        Ok(())
    }

    fn write_frame(&mut self, file: &dyn DiskFile, kind: Kind, plain: usize) -> Result<(), SnapshotError> {
        seal(&mut self.frame, &self.header.file, self.offset, kind, plain);
        file.write_at(&self.frame, self.offset).map_err(|error| self.failed(error))?;
        self.offset += self.frame.len() as u64;
        self.unsynced += self.frame.len() as u64;
        if self.unsynced >= self.sizes.sync_bytes {
            self.sync(file)?;
        }
        Ok(())
    }

    fn sync(&mut self, file: &dyn DiskFile) -> Result<(), SnapshotError> {
        self.unsynced = 0;
        file.sync_data().map_err(|error| self.failed(error))
    }

    fn write_end(&mut self, file: &dyn DiskFile, End { lsn, time_ms, mark, .. }: End) -> Result<(), SnapshotError> {
        if mark.is_some() != (self.header.version == Version::Group) {
            return Err(SnapshotError::Kind { path: self.path.clone() });
        }
        if !self.plain.is_empty() {
            self.write_units(file)?;
        }
        let end = End { lsn, time_ms, mark, ..std::mem::take(&mut self.written) };
        self.frame.clear();
        self.frame.resize(FRAME_HEAD_BYTES, 0);
        self.frame.extend_from_slice(&end.encode());
        self.write_frame(file, Kind::End, 0)?;
        if !planted::is(Bug::NoSyncOfTheSnapshot) {
            self.sync(file)?;
        }
        self.stage = Stage::Written(end);
        Ok(())
    }

    fn give_name(&mut self, end: End) -> Result<(), SnapshotError> {
        self.check()?;
        give_name(&self.directory, &self.path, end.lsn, end.mark.as_ref())?;
        // From here on the file is as good as the earlier one, which may have had this very name, so it is kept
        // whatever happens.
        self.file = None;
        self.path = self.directory.path().to_owned();
        if planted::is(Bug::CutBeforeTheSnapshot) {
            (self.log.cut)(end.lsn);
        }
        self.stage = Stage::Named(end);
        Ok(())
    }

    /// Makes the name durable, and removes the files that the snapshot replaces.
    fn give_up_the_past(&mut self, end: End) -> Result<Done, SnapshotError> {
        self.directory.sync().map_err(|error| self.failed(error))?;
        remove_older(&self.directory, end.lsn);
        (self.log.cut)(end.lsn);
        Ok(Done { path: self.directory.snapshot(end.lsn), end, file_bytes: self.offset })
    }

    fn failed(&self, error: io::Error) -> SnapshotError {
        SnapshotError::Io { path: self.path.clone(), source: Arc::new(error) }
    }
}

/// Creates a file under an unused temporary name: others may be under way, or abandoned and not removed yet.
pub(super) fn create_temporary(directory: &Directory) -> Result<(PathBuf, Arc<dyn DiskFile>), SnapshotError> {
    let mut number = 0;
    loop {
        let path = directory.file(&names::temporary_snapshot(number));
        match directory.disk().create(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(SnapshotError::Io { path, source: Arc::new(error) }),
        }
    }
}

/// Gives a snapshot its name, which a sync of the directory then makes durable. In the directory of a node, a snapshot
/// of the same name that covers more stays: the log may begin behind it, and a start would miss what lies between.
pub(super) fn give_name(
    directory: &Directory,
    temporary: &Path,
    lsn: Lsn,
    mark: Option<&Mark>,
) -> Result<(), SnapshotError> {
    let _names = directory.lock_names();
    if let Some(mark) = mark
        && let Ok(known) = SnapshotReader::open(directory, lsn)
        && known.end().mark.as_ref().is_some_and(|known| known.at.index > mark.at.index)
    {
        return Err(SnapshotError::Overtaken { path: temporary.to_owned() });
    }
    let failed = |error| SnapshotError::Io { path: temporary.to_owned(), source: Arc::new(error) };
    directory.disk().rename(temporary, &directory.snapshot(lsn)).map_err(failed)
}

fn thread_named_snapshot() -> thread::Builder {
    thread::Builder::new().name("snapshot".to_owned())
}

/// Removes the snapshots before the one up to `lsn`, which is complete and durable. Files that can't be removed are
/// tried again with the next snapshot.
pub(crate) fn remove_older(directory: &Directory, lsn: Lsn) {
    let snapshots = directory.snapshots().unwrap_or_default();
    for older in snapshots.into_iter().take_while(|older| *older < lsn) {
        let _ = directory.disk().remove(&directory.snapshot(older));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::base::rng::Rng;
    use crate::log::block::unit_head;
    use crate::log::directory::DirectoryId;
    use crate::log::disk::RealDisk;
    use crate::log::error::LogError;
    use crate::log::sim::SimDisk;
    use crate::log::snapshot::SnapshotDamage;
    use crate::log::snapshot::reader::SnapshotReader;

    /// Settings with small parts, for tests.
    pub(in crate::log) fn begin(serial: u64) -> Begin {
        let sizes = Sizes { frame_bytes: 500, sync_bytes: 2_000, unit_bytes: 10_000 };
        Begin { serial, time_ms: 1_700_000_000_000, sizes, notify: Box::new(|| {}) }
    }

    /// Encodes these effects as units, as the engine hands them over.
    pub(in crate::log) fn units_of(effects: &[impl AsRef<[u8]>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for effects in effects {
            let effects = effects.as_ref();
            bytes.extend_from_slice(&unit_head(1, 1, effects.len() as u32));
            bytes.extend_from_slice(effects);
        }
        bytes
    }

    /// Makes a snapshot of these units, a few at a time, without a thread.
    pub(in crate::log) fn take(mut writer: SnapshotWriter, units: &[Vec<u8>], lsn: u64) -> Result<Done, SnapshotError> {
        for units in units.chunks(7) {
            writer.push(units_of(units), units.len() as u32);
            writer.step();
        }
        writer.finish(Lsn::new(lsn), 1_700_000_000_001);
        (0..3).for_each(|_| writer.step());
        writer.outcome().expect("it has ended")
    }

    fn directory(disk: &SimDisk) -> Arc<Directory> {
        Arc::new(Directory::open(Arc::new(disk.clone()), Path::new("/d"), DirectoryId::new([1; 16])).unwrap())
    }

    fn read(directory: &Directory, lsn: u64) -> Result<Vec<Vec<u8>>, LogError> {
        let mut reader = SnapshotReader::open(directory, Lsn::new(lsn))?;
        let mut units = Vec::new();
        while reader.advance()? {
            units.extend(reader.units().map(|unit| unit.effects.to_vec()));
        }
        Ok(units)
    }

    /// Returns units of various lengths, some of which compress well.
    fn samples(rng: &mut Rng, count: u64) -> Vec<Vec<u8>> {
        let unit = |rng: &mut Rng| match rng.below(3) {
            0 => vec![7; rng.below(3_000) as usize],
            1 => (0..rng.below(3_000)).map(|_| rng.next_u64() as u8).collect(),
            _ => Vec::new(),
        };
        (0..count).map(|_| unit(rng)).collect()
    }

    #[test]
    fn a_unit_that_no_reader_would_take_ends_the_snapshot() {
        let disk = SimDisk::new(1);
        let directory = directory(&disk);
        let write = |bytes| {
            let writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(1));
            take(writer, &[vec![1; bytes]], 1)
        };
        assert!(write(10_000 - unit_head(1, 1, 0).len()).is_ok());
        assert!(matches!(write(10_000), Err(SnapshotError::LongUnit { .. })));
    }

    #[test]
    fn units_handed_over_are_read_back() {
        for seed in 0..50 {
            let mut rng = Rng::seeded(seed);
            let directory = directory(&SimDisk::new(seed));
            let units = samples(&mut rng, seed);
            let done = take(SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(seed)), &units, 9);
            let done = done.unwrap();
            assert_eq!(read(&directory, 9).unwrap(), units);
            let file = directory.disk().open(&done.path).unwrap();
            assert_eq!((done.end.units, done.file_bytes), (seed, file.size().unwrap()));
        }
    }

    #[test]
    fn every_truncation_and_every_flipped_byte_is_seen() {
        let disk = SimDisk::new(1);
        let directory = directory(&disk);
        let units = samples(&mut Rng::seeded(5), 6);
        let path =
            take(SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(1)), &units, 9).unwrap().path;
        let size = directory.disk().open(&path).unwrap().size().unwrap();
        assert!(size > 1_000);
        let is_refused = || matches!(read(&directory, 9), Err(LogError::Snapshot { .. }));
        for at in 0..size {
            let bits = 1 << (at % 8);
            disk.flip(&path, at, bits);
            assert!(is_refused(), "byte {at}");
            disk.flip(&path, at, bits);
        }
        directory.disk().open(&path).unwrap().write_at(b"x", size).unwrap();
        assert!(is_refused(), "something behind the end");
        for len in (0..size).rev() {
            disk.truncate(&path, len);
            assert!(is_refused(), "cut to {len}");
        }
    }

    #[test]
    fn a_file_under_another_name_is_refused() {
        let directory = directory(&SimDisk::new(1));
        let done = take(SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(1)), &[], 9).unwrap();
        directory.disk().rename(&done.path, &directory.snapshot(Lsn::new(10))).unwrap();
        let refused = read(&directory, 10);
        assert!(
            matches!(refused, Err(LogError::Snapshot { damage: SnapshotDamage::Name(Lsn { .. }), .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn malformed_units_are_not_written() {
        let whole = units_of(&[b"some"]);
        for (bytes, count) in [(&whole[..], 2), (&whole[..], 0), (&whole[..10], 1), (b"x", 1)] {
            let directory = directory(&SimDisk::new(1));
            let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(1));
            writer.push(bytes.to_vec(), count);
            writer.step();
            assert!(matches!(writer.outcome(), Some(Err(SnapshotError::NoUnits { .. }))), "{bytes:?}");
            assert!(!directory.disk().list(Path::new("/d")).unwrap().iter().any(|name| name.starts_with("snapshot")));
        }
    }

    #[test]
    fn the_backlog_counts_unwritten_bytes() {
        let directory = directory(&SimDisk::new(1));
        let mut writer = SnapshotWriter::begin(directory, LogBeside::none(), begin(1));
        let units = units_of(&[vec![0; 1_192]]);
        writer.push(units.clone(), 1);
        writer.push(units, 1);
        assert_eq!(writer.backlog(), 2_400);
        writer.step();
        assert_eq!(writer.backlog(), 400, "less than a frame");
        writer.finish(Lsn::FIRST, 0);
        writer.step();
        assert_eq!(writer.backlog(), 0);
    }

    #[test]
    fn an_abandoned_snapshot_leaves_nothing_and_another_can_begin_beside_it() {
        let directory = directory(&SimDisk::new(1));
        let started = || {
            let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(1));
            writer.push(units_of(&[vec![1; 5_000]]), 1);
            writer.step();
            writer
        };
        let (mut first, second) = (started(), started());
        first.abandon();
        first.step();
        assert!(matches!(first.outcome(), Some(Err(SnapshotError::Abandoned))));
        take(second, &[b"more".to_vec()], 7).unwrap();
        drop(started());
        assert_eq!(read(&directory, 7).unwrap().len(), 2);
        let names = directory.disk().list(Path::new("/d")).unwrap();
        assert!(!names.iter().any(|name| names::is_temporary(name)), "{names:?}");
    }

    #[test]
    fn a_thread_writes_to_a_real_disk_and_calls_when_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Arc::new(Directory::open(Arc::new(RealDisk), dir.path(), DirectoryId::new([1; 16])).unwrap());
        let (sender, receiver) = channel();
        let begin = Begin { notify: Box::new(move || sender.send(()).unwrap_or_default()), ..begin(1) };
        let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin);
        writer.start().unwrap();
        let units = samples(&mut Rng::seeded(1), 300);
        for units in units.chunks(10) {
            writer.push(units_of(units), units.len() as u32);
        }
        writer.finish(Lsn::new(9), 0);
        receiver.recv_timeout(Duration::from_secs(60)).expect("it calls");
        assert_eq!(writer.outcome().unwrap().unwrap().end.units, 300);
        assert_eq!(read(&directory, 9).unwrap(), units);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_writer_has_low_priority_unless_it_must_hurry() {
        use crate::base::os::priority::niceness;

        let most = 2 * SNAPSHOT_HURRY_BYTES / 5_000;
        type Act = fn(&SnapshotWriter);
        let cases: [(&str, usize, Act, bool); 3] = [
            ("nobody waits", 10, |_| {}, true),
            ("somebody waits", 10, SnapshotWriter::hurry, false),
            ("much waits to be written", most, |_| {}, false),
        ];
        for (case, count, act, gives_way) in cases {
            let dir = tempfile::tempdir().unwrap();
            let directory = Directory::open(Arc::new(RealDisk), dir.path(), DirectoryId::new([1; 16])).unwrap();
            let (sender, receiver) = channel();
            let begin = Begin { notify: Box::new(move || sender.send(niceness()).unwrap_or_default()), ..begin(1) };
            let mut writer = SnapshotWriter::begin(Arc::new(directory), LogBeside::none(), begin);
            writer.start().unwrap();
            writer.push(units_of(&[b"first"]), 1);
            act(&writer);
            writer.push(units_of(&vec![[1; 5_000]; count]), count as u32);
            writer.finish(Lsn::new(9), 0);
            let mut last = None;
            while writer.outcome().is_none() {
                last = receiver.recv_timeout(Duration::from_secs(60)).ok().or(last);
            }
            // The last call reports the outcome, and may still be on its way.
            last = receiver.recv_timeout(Duration::from_secs(60)).ok().or(last);
            assert!(writer.outcome().unwrap().is_ok(), "{case}");
            assert_eq!(last.map(|nice| nice > niceness()), Some(gives_way), "{case}");
        }
    }
}
