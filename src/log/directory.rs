//! The directory that holds the journal: its lock, its identity, and its files by name.
//!
//! The identity is drawn once, at random. Every header and every checksum of a frame includes it. So files copied here
//! from another server are refused, and no client can write bytes that look like a block.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::{FrameSeed, Place};
use super::disk::{Disk, DiskFile, RealDisk, read_all};
use super::error::LogError;
pub use super::identity::DirectoryId;
use super::identity::{Identity, Owner};
use super::names;
use crate::base::lsn::Lsn;

const LOCK: &str = "LOCK";
const ID: &str = "ID";
const ID_TEMPORARY: &str = "ID.tmp";
/// Limit for reading the file of the identity, in bytes; the file is shorter.
const ID_MAX_BYTES: u64 = 128;

/// A directory that this process has locked.
pub struct Directory {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    identity: Identity,
    frame_seed: FrameSeed,
    /// See [`Directory::lock_names`].
    names: Mutex<()>,
    _lock: Box<dyn Send + Sync>,
}

impl Directory {
    /// Locks the directory of a single server at `path`. If there is none, creates it with the identity `new_id`.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, new_id: DirectoryId) -> Result<Directory, LogError> {
        Directory::open_as(Owner::Server, disk, path, new_id)
    }

    /// Does the same as [`open`](Self::open) for this owner. A directory that belongs to another one is refused.
    pub(crate) fn open_as(
        owner: Owner,
        disk: Arc<dyn Disk>,
        path: &Path,
        new_id: DirectoryId,
    ) -> Result<Directory, LogError> {
        let io = |source| LogError::Io { path: path.to_owned(), source };
        disk.create_dir(path).map_err(io)?;
        let lock = lock(&*disk, path)?;
        // After `kill -9`, names may exist that were never made durable.
        match path.parent() {
            Some(parent) if parent != Path::new("") => disk.sync_dir(parent).map_err(io)?,
            _ => disk.sync_dir(Path::new(".")).map_err(io)?,
        }
        disk.sync_dir(path).map_err(io)?;
        let identity = match read_id(&*disk, path)? {
            Some(identity) if identity.owner != owner => {
                let (found, wanted) = (identity.owner.to_string(), owner.to_string());
                return Err(LogError::Owner { path: path.to_owned(), found, wanted });
            }
            Some(identity) => identity,
            None => {
                if disk.list(path).map_err(io)?.iter().any(|name| names::is_data(name)) {
                    return Err(LogError::NoIdentity { path: path.join(ID) });
                }
                let new = Identity { id: new_id, owner };
                write_id(&*disk, path, new).map_err(|source| LogError::Io { path: path.join(ID), source })?;
                new
            }
        };
        Ok(Directory::new(disk, path, identity, lock))
    }

    fn new(disk: Arc<dyn Disk>, path: &Path, identity: Identity, lock: Box<dyn Send + Sync>) -> Directory {
        let frame_seed = FrameSeed::of(identity.id);
        Directory { disk, path: path.to_owned(), identity, frame_seed, names: Mutex::default(), _lock: lock }
    }

    /// Locks the directory at `path`, which must exist, and changes nothing.
    pub fn open_existing(disk: Arc<dyn Disk>, path: &Path) -> Result<Directory, LogError> {
        // Existence is checked first, because locking may create a file.
        read_id(&*disk, path)?.ok_or_else(|| LogError::NoIdentity { path: path.join(ID) })?;
        let lock = lock(&*disk, path)?;
        let identity = read_id(&*disk, path)?.ok_or_else(|| LogError::NoIdentity { path: path.join(ID) })?;
        Ok(Directory::new(disk, path, identity, lock))
    }

    /// Opens the directory at `path`, which must exist, without a lock: for reading files that may be written at the
    /// same time.
    pub(crate) fn look_into(disk: Arc<dyn Disk>, path: &Path) -> Result<Directory, LogError> {
        let identity = read_id(&*disk, path)?.ok_or_else(|| LogError::NoIdentity { path: path.join(ID) })?;
        Ok(Directory::new(disk, path, identity, Box::new(())))
    }

    /// Removes the directory at `path` with everything in it, if there is one. Fails while another process has it open.
    pub fn remove(path: &Path) -> Result<(), LogError> {
        let io = |source| LogError::Io { path: path.to_owned(), source };
        if !path.exists() {
            return Ok(());
        }
        let _lock = lock(&RealDisk, path)?;
        std::fs::remove_dir_all(path).map_err(io)
    }

    /// Returns the Lsns of the snapshots, ascending.
    pub fn snapshots(&self) -> Result<Vec<Lsn>, LogError> {
        let names = self.disk.list(&self.path).map_err(|source| LogError::Io { path: self.path.clone(), source })?;
        let mut snapshots: Vec<Lsn> = names.iter().filter_map(|name| names::snapshot_lsn(name)).collect();
        snapshots.sort_unstable();
        Ok(snapshots)
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory's identity.
    pub fn id(&self) -> DirectoryId {
        self.identity.id
    }

    /// Returns who writes the directory.
    pub(crate) fn owner(&self) -> Owner {
        self.identity.owner
    }

    /// Returns the disk that holds the directory.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the place of a block in segment `segment`.
    pub(super) fn place(&self, segment: u64, offset: u64) -> Place {
        Place { seed: self.frame_seed, segment, offset }
    }

    /// Returns the path of segment `number`.
    pub(super) fn segment(&self, number: u64) -> PathBuf {
        self.file(&names::segment(number))
    }

    /// Returns the path of the snapshot up to this Lsn.
    pub(super) fn snapshot(&self, lsn: Lsn) -> PathBuf {
        self.file(&names::snapshot(lsn))
    }

    /// Lets one thread at a time give a snapshot its name, so that it can see which one it replaces.
    pub(super) fn lock_names(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open_segment(&self, number: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(&self.segment(number))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.disk.sync_dir(&self.path)
    }
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Send + Sync>, LogError> {
    disk.lock(&path.join(LOCK)).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => LogError::Locked { path: path.to_owned() },
        _ => LogError::Io { path: path.join(LOCK), source },
    })
}

fn read_id(disk: &dyn Disk, path: &Path) -> Result<Option<Identity>, LogError> {
    let path = path.join(ID);
    let mut bytes = Vec::new();
    match disk.open(&path).and_then(|file| read_all(&*file, &mut bytes, ID_MAX_BYTES)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Err(LogError::NoIdentity { path }),
        Err(source) => return Err(LogError::Io { path, source }),
    }
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    Identity::parse(text).map(Some).ok_or(LogError::NoIdentity { path })
}

fn write_id(disk: &dyn Disk, path: &Path, identity: Identity) -> io::Result<()> {
    let temporary = path.join(ID_TEMPORARY);
    match disk.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&temporary)?;
    file.write_at(identity.text().as_bytes(), 0)?;
    file.sync_data()?;
    disk.rename(&temporary, &path.join(ID))?;
    disk.sync_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::replicated::types::{GroupId, NodeId};

    const FIRST: DirectoryId = DirectoryId::new([0xab; 16]);

    fn open(path: &Path) -> Result<Directory, LogError> {
        Directory::open(Arc::new(RealDisk), path, FIRST)
    }

    #[test]
    fn a_directory_keeps_its_identity_and_is_opened_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/tidegate");
        let first = open(&path).unwrap();
        assert!(matches!(open(&path), Err(LogError::Locked { .. })));
        drop(first);
        let again = Directory::open(Arc::new(RealDisk), &path, DirectoryId::new([1; 16])).unwrap();
        assert!(again.id() == FIRST);
        assert_eq!(
            std::fs::read_to_string(path.join(ID)).unwrap(),
            format!("tidegate directory 1 {}\n", "ab".repeat(16))
        );
    }

    #[test]
    fn a_directory_has_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let node = |number| Owner::Node { group: GroupId(0), node: NodeId::new(number).unwrap() };
        let open = |owner| Directory::open_as(owner, Arc::new(RealDisk), dir.path(), FIRST);
        assert!(open(node(3)).unwrap().owner() == node(3));
        open(node(3)).unwrap();
        let refusal = |owner| open(owner).map(|_| ()).unwrap_err().to_string();
        let path = dir.path().display();
        assert_eq!(
            [refusal(node(2)), refusal(Owner::Server)],
            [
                format!(
                    "{path}: this directory belongs to node 3 of group 0, and can't be used by node 2 of group 0; give \
                     each its own directory"
                ),
                format!(
                    "{path}: this directory belongs to node 3 of group 0, and can't be used by a single server; give \
                     each its own directory"
                ),
            ]
        );
    }

    #[test]
    fn a_directory_is_removed_unless_it_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        Directory::remove(&path).unwrap();
        let opened = open(&path).unwrap();
        assert!(matches!(Directory::remove(&path), Err(LogError::Locked { .. })));
        drop(opened);
        Directory::remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn an_identity_that_is_lost_or_damaged_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(names::segment(1)), "").unwrap();
        assert!(matches!(open(dir.path()), Err(LogError::NoIdentity { .. })));
        for text in ["", "tidegate directory 1 12\n", "tidegate directory 2 00\n", "\u{ff}", &"x".repeat(129)] {
            std::fs::write(dir.path().join(ID), text).unwrap();
            assert!(matches!(open(dir.path()), Err(LogError::NoIdentity { .. })), "{text:?}");
        }
    }
}
