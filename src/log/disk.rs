//! The disk and the clock as the journal sees them, and the real ones.
//!
//! All access to files goes through [`Disk`] and [`DiskFile`], so that a simulation (`sim.rs`) can lose unsynced bytes,
//! tear sectors, fail and crash between any two calls. The contract is that of POSIX, and no more. Bytes are
//! durable when [`DiskFile::sync_data`] has returned, and names when [`Disk::sync_dir`] has. After a failed sync
//! nothing is known to be durable.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Directories and names on a disk.
pub trait Disk: Send + Sync {
    /// Creates a directory, unless it exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates a file for reading and writing, which must not exist yet.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, replacing any file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory, in any order. Names that are not UTF-8 are left out, since the journal never
    /// uses such names.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Takes the lock that a file represents, and holds it as long as the result lives. Fails with `WouldBlock` if
    /// another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// A file that is read and written at offsets.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes at `at`; 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `at`; the file grows as needed. After an error, any part of them may have been written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes all written bytes durable, and the file's length as far as reading them requires. It must not be called
    /// again after an error: the system may have dropped unwritten pages although it still shows them.
    fn sync_data(&self) -> io::Result<()>;

    /// Returns the file's size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Whether the file still has a name in some directory. Without one, its contents vanish when it is closed, synced
    /// or not.
    fn has_name(&self) -> io::Result<bool>;
}

/// A clock that only goes forward.
pub trait Clock: Send + Sync {
    /// Returns the time since a fixed moment.
    fn monotonic(&self) -> Duration;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        // Only the server's user may read the data, whatever the umask allows.
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        // The file may be removed while the server runs, so the folder is locked as well where its file system allows
        // it.
        let folder = File::open(path.parent().unwrap_or(path))?;
        let folder_lock = folder.try_lock();
        if let Err(TryLockError::WouldBlock) = folder_lock {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path) {
            Ok(file) => {
                file.try_lock()?;
                Ok(Box::new((folder, file)))
            }
            // The lock file was removed and there is no space for a new one. The lock on the folder suffices.
            Err(error) if is_full(&error) && folder_lock.is_ok() => Ok(Box::new(folder)),
            Err(error) => Err(error),
        }
    }
}

/// The file system for reading only: every change fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnlyDisk;

impl Disk for ReadOnlyDisk {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn create(&self, _path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(File::open(path)?))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(path)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// Other readers may hold the lock at the same time, but no server. If there is no lock file, no server is running.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let folder = File::open(path.parent().unwrap_or(path))?;
        if let Err(TryLockError::WouldBlock) = folder.try_lock_shared() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match File::open(path) {
            Ok(file) => {
                file.try_lock_shared()?;
                Ok(Box::new((folder, file)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(folder)),
            Err(error) => Err(error),
        }
    }
}

impl DiskFile for File {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn has_name(&self) -> io::Result<bool> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // `metadata` would ask the system for more, and this is done after each sync. SAFETY: the descriptor is open;
        // the call fills the struct that it is given; the struct is read only if the call has succeeded.
        let links = unsafe {
            if libc::fstat(self.as_raw_fd(), stat.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            stat.assume_init().st_nlink
        };
        Ok(links > 0)
    }
}

/// The system's monotonic clock.
#[derive(Clone, Debug)]
pub struct RealClock {
    /// The processor's clock, because it is read for each sync.
    clock: quanta::Clock,
    origin: u64,
}

impl Default for RealClock {
    fn default() -> RealClock {
        let clock = quanta::Clock::new();
        RealClock { origin: clock.raw(), clock }
    }
}

impl Clock for RealClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.clock.delta_as_nanos(self.origin, self.clock.raw()))
    }
}

/// Reads all bytes of a file of at most `most` bytes, which bounds the memory that a foreign file can make a reader
/// allocate.
pub(super) fn read_all(file: &dyn DiskFile, into: &mut Vec<u8>, most: u64) -> io::Result<()> {
    let size = file.size()?;
    if size > most {
        let text = format!("it has {size} bytes; a file of its kind has at most {most}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    into.clear();
    into.resize(usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
    let read = read_up_to(file, into, 0)?;
    into.truncate(read);
    Ok(())
}

/// Fills `buf` with the bytes of a file from `at` on. Returns how many there were.
pub(super) fn read_up_to(file: &dyn DiskFile, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buf.len() {
        match file.read_at(&mut buf[read..], at + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Writes zeros, so that the system has allocated the file's blocks and marked them as written before the journal needs
/// them. A sync then has data to write and no metadata.
pub(super) fn write_zeros(file: &dyn DiskFile, mut at: u64, end: u64) -> io::Result<()> {
    static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];
    while at < end {
        let len = (end - at).min(ZEROS.len() as u64) as usize;
        file.write_at(&ZEROS[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

/// Makes a write beyond the limit of `ulimit -f` fail with an error, like a failing disk. Otherwise the signal that
/// comes with it would end the process.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal runs no code; nothing else in this process handles this one.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether the disk or the user's quota is full: the only failure after which the same write may be tried again.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_written_read_and_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, a, b) = (RealDisk, dir.path().join("a"), dir.path().join("b"));
        let file = disk.create(&a).unwrap();
        assert_eq!(disk.create(&a).err().map(|error| error.kind()), Some(io::ErrorKind::AlreadyExists));
        write_zeros(&*file, 0, 600_000).unwrap();
        file.write_at(b"end", 600_000).unwrap();
        file.sync_data().unwrap();
        disk.rename(&a, &b).unwrap();
        disk.sync_dir(dir.path()).unwrap();
        assert_eq!(disk.list(dir.path()).unwrap(), ["b"]);
        let mut bytes = vec![1; 10];
        read_all(&*disk.open(&b).unwrap(), &mut bytes, 600_003).unwrap();
        assert_eq!((bytes.len(), &bytes[600_000..]), (600_003, &b"end"[..]));
        let too_long = read_all(&*disk.open(&b).unwrap(), &mut bytes, 600_002).unwrap_err();
        assert_eq!(too_long.kind(), io::ErrorKind::FileTooLarge);
        let open = disk.open(&b).unwrap();
        assert!(open.has_name().unwrap());
        disk.remove(&b).unwrap();
        assert!(!open.has_name().unwrap());
        assert_eq!(disk.open(&b).err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
    }

    #[test]
    fn a_lock_is_held_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let held = RealDisk.lock(&path).unwrap();
        assert_eq!(RealDisk.lock(&path).err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        // The lock is exclusive even without the file.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(RealDisk.lock(&path).err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        assert_eq!(ReadOnlyDisk.lock(&path).err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        drop(held);
        assert!(RealDisk.lock(&path).is_ok());
    }

    #[test]
    fn only_the_owner_may_read_the_data() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        RealDisk.create_dir(&folder).unwrap();
        RealDisk.create(&folder.join("file")).unwrap();
        drop(RealDisk.lock(&folder.join("LOCK")).unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!((mode(&folder.join("file")), mode(&folder.join("LOCK"))), (0o600, 0o600));
    }
}
