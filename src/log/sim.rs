//! A disk that loses, tears, fails and crashes as real ones do, driven by a seed.
//!
//! A file has two states: the one that programs see, and the one that would survive a power loss. The difference
//! between them is the sectors written since the last sync. A crash decides for each of them: lost, kept in any of its
//! versions, or torn in the middle. Unsynced names come back or don't, one by one. A sync that fails drops the pages
//! that it should have written but still shows them, as Linux does. One seed decides everything, and [`SimDisk::trace`]
//! lists all operations, so that a run can be repeated and compared.
//!
//! [`SimDisk::crash`] is a power loss. [`SimDisk::kill`] only ends the process: its writes are still in the page cache.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::disk::{Clock, Disk, DiskFile};
use crate::base::rng::Rng;

/// Size of a sector, which a disk usually writes as a whole.
pub const SECTOR_BYTES: usize = 512;

/// Faults of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The power fails before this operation, counted by [`SimDisk::operations`]. From this one on, operations fail and
    /// do nothing.
    pub crash_at: Option<u64>,
    /// This operation fails with EIO if it writes or syncs.
    pub fail_at: Option<u64>,
    /// Capacity in bytes for all files together; writes beyond it fail with ENOSPC.
    pub capacity: Option<u64>,
    /// Duration of a sync of a file on the simulated clock.
    pub sync_time: Duration,
}

/// An operation in the trace: call, file (numbered in order of creation), offset, length, outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Name of the call.
    pub operation: &'static str,
    /// The file, or its path if the call concerns names.
    pub target: String,
    /// Offset of a read or write.
    pub at: u64,
    /// Number of bytes written.
    pub bytes: usize,
    /// Kind of the error, if the call failed.
    pub failed: Option<io::ErrorKind>,
}

/// The simulated disk; clones share the disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    files: Vec<FileState>,
    seen: Names,
    durable: Names,
    unsynced_names: Vec<(PathBuf, NameChange)>,
    locks: BTreeSet<PathBuf>,
    faults: Faults,
    operations: u64,
    is_off: bool,
    /// Number of crashes so far. A file that was opened before a crash is dead.
    life: u64,
    trace: Vec<Event>,
    time: Duration,
    /// Name of the operations that are held up, as by a disk that has stalled.
    held: Option<&'static str>,
    /// Operations that wait for this reason, with their files.
    waiting: Vec<(&'static str, PathBuf)>,
}

#[derive(Clone, Default)]
struct Names {
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, usize>,
}

#[derive(Clone)]
enum NameChange {
    MakeDir(PathBuf),
    /// The file has exactly this name; without one it is removed.
    Name(usize, Option<PathBuf>),
}

#[derive(Default)]
struct FileState {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// New contents of sectors, in the order of the writes.
    unsynced: Vec<(usize, Vec<u8>)>,
}

struct SimFile {
    disk: SimDisk,
    file: usize,
    life: u64,
}

/// Dropping a lock taken before a crash must not release a lock taken after it.
struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl SimDisk {
    /// Makes an empty disk; `seed` decides what its crashes leave.
    pub fn new(seed: u64) -> SimDisk {
        let root = Names { dirs: BTreeSet::from([PathBuf::from("/"), PathBuf::from(".")]), files: BTreeMap::new() };
        SimDisk(Arc::new(Mutex::new(State {
            rng: Rng::seeded(seed),
            files: Vec::new(),
            seen: root.clone(),
            durable: root,
            unsynced_names: Vec::new(),
            locks: BTreeSet::new(),
            faults: Faults::default(),
            operations: 0,
            is_off: false,
            life: 0,
            trace: Vec::new(),
            time: Duration::ZERO,
            held: None,
            waiting: Vec::new(),
        })))
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Sets the capacity, and leaves the other faults as they are.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.state().faults.capacity = capacity;
    }

    /// Holds up operations of this name (`create`, `rename` or `sync`) until the next call.
    pub fn hold(&self, operation: Option<&'static str>) {
        self.state().held = operation;
    }

    /// Whether some thread waits, because of [`SimDisk::hold`], to create or rename a file whose path contains `part`.
    pub fn is_awaited(&self, operation: &'static str, part: &str) -> bool {
        self.state().waiting.iter().any(|(what, path)| *what == operation && path.to_string_lossy().contains(part))
    }

    /// Waits while operations of this name are held.
    fn wait_for_turn(&self, operation: &'static str, path: &Path) {
        let mut state = self.state();
        if state.held != Some(operation) {
            return;
        }
        state.waiting.push((operation, path.to_owned()));
        while state.held == Some(operation) {
            drop(state);
            std::thread::sleep(Duration::from_millis(1));
            state = self.state();
        }
        if let Some(place) = state.waiting.iter().position(|(what, other)| (*what, &**other) == (operation, path)) {
            state.waiting.swap_remove(place);
        }
    }

    /// Returns the number of operations so far. Reading and listing count as well, but can't fail.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Whether the power has failed because of [`Faults::crash_at`].
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Returns the operations from number `from` on.
    pub fn trace(&self, from: u64) -> Vec<Event> {
        self.state().trace.get(from as usize..).unwrap_or_default().to_vec()
    }

    /// Makes all further operations fail, as if the power had failed at [`Faults::crash_at`].
    pub fn turn_off(&self) {
        self.state().is_off = true;
    }

    /// Returns the number of bytes that the files take.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// Lets the power fail and come back: unsynced bytes are lost, kept, torn or out of order. Open files are dead.
    pub fn crash(&self) {
        let state = &mut *self.state();
        state.lose_names();
        // Some disks write in order up to some point, others in any order.
        let in_order = state.rng.below(3) == 0;
        for file in &mut state.files {
            file.lose(&mut state.rng, in_order);
        }
        state.restart();
    }

    /// Kills the process: its writes are kept. Open files are dead.
    pub fn kill(&self) {
        self.state().restart();
    }

    /// Moves the simulated clock.
    pub fn advance(&self, by: Duration) {
        self.state().time += by;
    }

    /// Damages the byte at `at` of a file, as a decaying disk would.
    pub fn flip(&self, path: &Path, at: u64, bits: u8) {
        let state = &mut *self.state();
        if let Some(&file) = state.seen.files.get(path) {
            let file = &mut state.files[file];
            for image in [&mut file.seen, &mut file.durable] {
                if let Some(byte) = image.get_mut(at as usize) {
                    *byte ^= bits;
                }
            }
        }
    }

    /// Cuts a file to `len` bytes.
    pub fn truncate(&self, path: &Path, len: u64) {
        let state = &mut *self.state();
        if let Some(&file) = state.seen.files.get(path) {
            state.files[file].seen.truncate(len as usize);
            state.files[file].durable.truncate(len as usize);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, file: usize, life: u64) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.clone(), file, life })
    }
}

impl State {
    /// Counts an operation, and makes it fail if a fault is due.
    fn begin(&mut self, operation: &'static str, target: String, at: u64, bytes: usize) -> io::Result<()> {
        let number = self.operations;
        self.operations += 1;
        self.is_off |= self.faults.crash_at.is_some_and(|at| number >= at);
        let failed = if self.is_off {
            Some(io::ErrorKind::BrokenPipe)
        } else {
            (self.faults.fail_at == Some(number)).then_some(io::ErrorKind::Other)
        };
        self.trace.push(Event { operation, target, at, bytes, failed });
        failed.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn restart(&mut self) {
        self.is_off = false;
        self.faults = Faults { capacity: self.faults.capacity, ..Faults::default() };
        self.locks.clear();
        self.life += 1;
    }

    fn used_bytes(&self) -> u64 {
        self.seen.files.values().map(|&file| self.files[file].seen.len() as u64).sum()
    }

    /// Records a change of names, which a sync of the directory of `path` makes durable.
    fn change_names(&mut self, path: &Path, change: NameChange) {
        self.seen.apply(&change);
        let dir = path.parent().unwrap_or(Path::new(".")).to_owned();
        self.unsynced_names.push((dir, change));
    }

    fn lose_names(&mut self) {
        for (_, change) in std::mem::take(&mut self.unsynced_names) {
            if self.rng.below(2) == 0 {
                self.durable.apply(&change);
            }
        }
        let dirs = self.durable.dirs.clone();
        self.durable.files.retain(|path, _| path.parent().is_none_or(|dir| dirs.contains(dir)));
        self.seen = self.durable.clone();
    }
}

impl Names {
    /// Applies each change as a whole, whatever the fate of the earlier ones, like the journal of a file system. A
    /// renamed file has its new name even if the old one was never durable, and never has both.
    fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::MakeDir(path) => {
                self.dirs.insert(path.clone());
            }
            NameChange::Name(file, path) => {
                self.files.retain(|_, other| other != file);
                if let Some(path) = path {
                    self.files.insert(path.clone(), *file);
                }
            }
        }
    }
}

impl FileState {
    fn write(&mut self, bytes: &[u8], at: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        self.seen[at..end].copy_from_slice(bytes);
        for sector in at / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
            let from = sector * SECTOR_BYTES;
            let to = (from + SECTOR_BYTES).min(self.seen.len());
            self.unsynced.push((sector, self.seen[from..to].to_vec()));
        }
    }

    fn sync(&mut self) {
        for (sector, bytes) in std::mem::take(&mut self.unsynced) {
            self.keep(sector, &bytes);
        }
    }

    /// Lets a sync fail: some sectors are written, the others never will be.
    fn fail_to_sync(&mut self, rng: &mut Rng) {
        for (sector, bytes) in std::mem::take(&mut self.unsynced) {
            if rng.below(2) == 0 {
                self.keep(sector, &bytes);
            }
        }
    }

    fn lose(&mut self, rng: &mut Rng, in_order: bool) {
        let mut written = std::mem::take(&mut self.unsynced);
        if in_order {
            written.truncate(rng.below(written.len() as u64 + 1) as usize);
            for (sector, bytes) in written {
                self.keep(sector, &bytes);
            }
        } else {
            let mut versions: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
            for (sector, bytes) in written {
                versions.entry(sector).or_default().push(bytes);
            }
            for (sector, versions) in versions {
                let chosen = &versions[rng.below(versions.len() as u64) as usize];
                match rng.below(8) {
                    0..3 => {}
                    3..7 => self.keep(sector, chosen),
                    _ => self.keep(sector, &chosen[..rng.below(chosen.len() as u64 + 1) as usize]),
                }
            }
        }
        self.seen = self.durable.clone();
    }

    fn keep(&mut self, sector: usize, bytes: &[u8]) {
        let at = sector * SECTOR_BYTES;
        let end = at + bytes.len();
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[at..end].copy_from_slice(bytes);
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.state();
        state.begin("create_dir", path.display().to_string(), 0, 0)?;
        if !state.seen.dirs.contains(path) {
            state.change_names(path, NameChange::MakeDir(path.to_owned()));
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.wait_for_turn("create", path);
        let state = &mut *self.state();
        state.begin("create", path.display().to_string(), 0, 0)?;
        if state.seen.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(FileState::default());
        state.change_names(path, NameChange::Name(file, Some(path.to_owned())));
        Ok(self.file(file, state.life))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let state = &mut *self.state();
        state.begin("open", path.display().to_string(), 0, 0)?;
        let file = *state.seen.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(file, state.life))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.wait_for_turn("rename", from);
        let state = &mut *self.state();
        state.begin("rename", to.display().to_string(), 0, 0)?;
        let file = *state.seen.files.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change_names(to, NameChange::Name(file, Some(to.to_owned())));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.state();
        state.begin("remove", path.display().to_string(), 0, 0)?;
        let file = *state.seen.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        state.change_names(path, NameChange::Name(file, None));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = &mut *self.state();
        state.begin("list", path.display().to_string(), 0, 0)?;
        let names = state.seen.files.keys().filter(|file| file.parent() == Some(path));
        Ok(names.filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect())
    }

    /// If this fails, the names remain unsynced, and a later successful sync makes them durable. A real file system
    /// that could not write its own journal would fail all later syncs, too. The sectors of a failed sync of a file are
    /// lost: see [`FileState::fail_to_sync`].
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.state();
        state.begin("sync_dir", path.display().to_string(), 0, 0)?;
        let (here, elsewhere) = std::mem::take(&mut state.unsynced_names).into_iter().partition(|(dir, _)| dir == path);
        state.unsynced_names = elsewhere;
        here.iter().for_each(|(_, change): &(PathBuf, NameChange)| state.durable.apply(change));
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let state = &mut *self.state();
        state.begin("lock", path.display().to_string(), 0, 0)?;
        if !state.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned(), life: state.life }))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

impl SimFile {
    fn begin(&self, operation: &'static str, at: u64, bytes: usize) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.disk.state();
        if self.life != state.life {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        match state.begin(operation, self.file.to_string(), at, bytes) {
            Ok(()) => Ok(state),
            Err(error) => {
                if !state.is_off {
                    let state = &mut *state;
                    let file = &mut state.files[self.file];
                    if operation == "sync" {
                        file.fail_to_sync(&mut state.rng);
                    }
                }
                Err(error)
            }
        }
    }
}

impl SimFile {
    /// Writes a part of the bytes, as a failing write may.
    fn write_part(&self, bytes: &[u8], at: u64) {
        let state = &mut *self.disk.state();
        if self.life == state.life && !state.is_off {
            let part = state.rng.below(bytes.len() as u64 + 1) as usize;
            state.files[self.file].write(&bytes[..part], at as usize);
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let state = self.begin("read", at, 0)?;
        let bytes = state.files[self.file].seen.get(at as usize..).unwrap_or_default();
        let len = buf.len().min(bytes.len());
        buf[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = match self.begin("write", at, bytes.len()) {
            Ok(state) => state,
            Err(error) => {
                self.write_part(bytes, at);
                return Err(error);
            }
        };
        let len = state.files[self.file].seen.len() as u64;
        let grows_by = (at + bytes.len() as u64).saturating_sub(len);
        let free = state.faults.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used_bytes()));
        let fits = bytes.len() - grows_by.saturating_sub(free).min(bytes.len() as u64) as usize;
        state.files[self.file].write(&bytes[..fits], at as usize);
        if fits < bytes.len() {
            if let Some(event) = state.trace.last_mut() {
                event.failed = Some(io::ErrorKind::StorageFull);
            }
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.wait_for_turn("sync", Path::new(""));
        let mut state = self.begin("sync", 0, 0)?;
        let took = state.faults.sync_time;
        state.time += took;
        state.files[self.file].sync();
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.begin("size", 0, 0)?.files[self.file].seen.len() as u64)
    }

    fn has_name(&self) -> io::Result<bool> {
        let state = self.disk.state();
        Ok(self.life == state.life && state.seen.files.values().any(|file| *file == self.file))
    }
}

impl Clock for SimDisk {
    fn monotonic(&self) -> Duration {
        self.state().time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(seed: u64) -> (SimDisk, Arc<dyn DiskFile>, PathBuf) {
        let (disk, path) = (SimDisk::new(seed), PathBuf::from("/a"));
        let file = disk.create(&path).unwrap();
        (disk, file, path)
    }

    fn contents(disk: &SimDisk, path: &Path) -> Option<Vec<u8>> {
        let file = disk.open(path).ok()?;
        let mut bytes = vec![0; file.size().ok()? as usize];
        file.read_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    #[test]
    fn only_synced_bytes_survive() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let (disk, file, path) = written(seed);
            file.write_at(&[1; 1024], 0).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            file.write_at(&[2; 1024], 512).unwrap();
            disk.crash();
            assert!(file.sync_data().is_err(), "an open file must not survive a crash");
            let bytes = contents(&disk, &path).unwrap();
            assert!(bytes.len() >= 1024 && bytes[..512] == [1; 512]);
            let second = &bytes[512..1024];
            outcomes.insert(if second == [1; 512] {
                "lost"
            } else if second == [2; 512] {
                "kept"
            } else {
                "torn"
            });
            if second == [1; 512] && bytes.len() > 1024 {
                outcomes.insert("out of order");
            }
        }
        assert_eq!(outcomes.len(), 4, "{outcomes:?}");
    }

    #[test]
    fn names_need_a_sync_of_their_directory() {
        let survived = |sync: bool| {
            let survivors = (0..100).filter(|&seed| {
                let (disk, file, path) = written(seed);
                file.write_at(b"x", 0).unwrap();
                file.sync_data().unwrap();
                if sync {
                    disk.sync_dir(Path::new("/")).unwrap();
                }
                disk.crash();
                contents(&disk, &path).is_some_and(|bytes| bytes == b"x")
            });
            survivors.count()
        };
        assert_eq!(survived(true), 100);
        assert!((20..80).contains(&survived(false)));
    }

    #[test]
    fn a_failed_sync_still_shows_lost_bytes() {
        let lost = (0..100).filter(|&seed| {
            let (disk, file, path) = written(seed);
            disk.sync_dir(Path::new("/")).unwrap();
            file.write_at(b"x", 0).unwrap();
            disk.set_faults(Faults { fail_at: Some(disk.operations()), ..Faults::default() });
            assert_eq!(file.sync_data().unwrap_err().kind(), io::ErrorKind::Other);
            file.sync_data().unwrap();
            assert_eq!(contents(&disk, &path).unwrap(), b"x");
            disk.kill();
            assert_eq!(contents(&disk, &path).unwrap(), b"x");
            disk.crash();
            contents(&disk, &path).unwrap().is_empty()
        });
        assert!((20..80).contains(&lost.count()));
    }

    #[test]
    fn a_full_disk_rejects_writes_and_has_room_again_later() {
        let (disk, file, path) = written(1);
        disk.set_faults(Faults { capacity: Some(1000), ..Faults::default() });
        assert_eq!(file.write_at(&[1; 1500], 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!((disk.used_bytes(), file.size().unwrap()), (1000, 1000));
        file.write_at(&[2; 1000], 0).unwrap();
        disk.remove(&path).unwrap();
        disk.create(&path).unwrap().write_at(&[1; 900], 0).unwrap();
    }

    #[test]
    fn the_power_fails_at_the_operation_that_was_named() {
        let (disk, file, _) = written(1);
        disk.set_faults(Faults { crash_at: Some(disk.operations() + 1), ..Faults::default() });
        file.write_at(b"x", 0).unwrap();
        assert!(file.write_at(b"y", 0).is_err() && disk.is_off());
        assert!(file.sync_data().is_err() && disk.sync_dir(Path::new("/")).is_err());
        disk.crash();
        assert!(!disk.is_off());
    }

    #[test]
    fn locks_end_with_their_holder() {
        let (disk, _, _) = written(1);
        let held = disk.lock(Path::new("/LOCK")).unwrap();
        assert!(disk.lock(Path::new("/LOCK")).is_err());
        drop(held);
        let _held = disk.lock(Path::new("/LOCK")).unwrap();
        disk.kill();
        assert!(disk.lock(Path::new("/LOCK")).is_ok());
    }
}
