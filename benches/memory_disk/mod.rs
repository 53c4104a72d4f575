//! A disk in memory, for counting the cost of the journal without that of a disk: writes and syncs succeed at once.
//! Only the first bytes of each file are kept, beyond them only the length: no bench reads a journal back.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::log::disk::{Disk, DiskFile};

/// Bytes of a file that are kept: the identity of the directory, the headers of segments.
const KEPT_BYTES: usize = 4096;

/// See the module's header.
#[derive(Default)]
pub(crate) struct MemoryDisk {
    files: Mutex<BTreeMap<PathBuf, Arc<MemoryFile>>>,
}

#[derive(Default)]
struct MemoryFile(Mutex<Contents>);

#[derive(Default)]
struct Contents {
    kept: Vec<u8>,
    size: u64,
}

impl MemoryDisk {
    fn files<T>(&self, act: impl FnOnce(&mut BTreeMap<PathBuf, Arc<MemoryFile>>) -> T) -> T {
        act(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = Arc::<MemoryFile>::default();
        self.files(|files| files.insert(path.to_owned(), Arc::clone(&file)));
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.files(|files| files.get(path).cloned());
        Ok(file.ok_or(io::ErrorKind::NotFound)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files(|files| {
            let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            files.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files(|files| files.remove(path)).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let name = |file: &PathBuf| file.strip_prefix(path).ok()?.to_str().map(str::to_owned);
        Ok(self.files(|files| files.keys().filter_map(name).collect()))
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
}

impl MemoryFile {
    fn contents<T>(&self, act: impl FnOnce(&mut Contents) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.contents(|contents| {
            let left = usize::try_from(contents.size.saturating_sub(at)).unwrap_or(usize::MAX);
            let len = left.min(buf.len());
            buf[..len].fill(0);
            let kept = contents.kept.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
            let len_kept = kept.len().min(len);
            buf[..len_kept].copy_from_slice(&kept[..len_kept]);
            Ok(len)
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.contents(|contents| {
            contents.size = contents.size.max(at + bytes.len() as u64);
            let begin = usize::try_from(at).unwrap_or(usize::MAX);
            if begin < KEPT_BYTES {
                let end = (begin + bytes.len()).min(KEPT_BYTES);
                contents.kept.resize(contents.kept.len().max(end), 0);
                contents.kept[begin..end].copy_from_slice(&bytes[..end - begin]);
            }
        });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        self.contents(|contents| Ok(contents.size))
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(true)
    }
}
