//! A file that replaces another one as a whole or not at all.
//!
//! It is written beside the file that it replaces, under a name of its own, synced, and then renamed. If dropped before
//! that, it is removed. [`remove_leftovers`] removes the remains of a crash.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use crate::log::limits::SNAPSHOT_SYNC_BYTES;

const SUFFIX: &str = ".part";

/// See the module's header. Bytes are appended.
pub struct Replacement {
    disk: Arc<dyn Disk>,
    /// The final name.
    path: PathBuf,
    /// The temporary name.
    part: PathBuf,
    file: Arc<dyn DiskFile>,
    len: u64,
    /// Bytes written since the last sync. A single sync at the end, of gigabytes, would hold up all other syncs.
    unsynced: u64,
    is_named: bool,
}

impl Replacement {
    /// Begins a file that will become `path`. `maker` is part of its temporary name, and must be passed to
    /// [`remove_leftovers`] as well. On failure, returns the path that can't be written.
    pub fn begin(disk: Arc<dyn Disk>, path: &Path, maker: &str) -> Result<Replacement, (PathBuf, io::Error)> {
        let mut number = 0_u64;
        loop {
            let mut part = path.to_owned().into_os_string();
            part.push(format!(".{maker}-{number}{SUFFIX}"));
            let part = PathBuf::from(part);
            match disk.create(&part) {
                Ok(file) => {
                    let path = path.to_owned();
                    return Ok(Replacement { disk, path, part, file, len: 0, unsynced: 0, is_named: false });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err((part, error)),
            }
        }
    }

    /// Returns the name that the file has until [`Replacement::take_place`].
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Makes the complete file durable and gives it its final name.
    pub fn take_place(mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.disk.rename(&self.part, &self.path)?;
        self.is_named = true;
        self.disk.sync_dir(folder_of(&self.path))
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = usize::try_from(SNAPSHOT_SYNC_BYTES - self.unsynced).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(fits)];
        self.file.write_at(bytes, self.len)?;
        self.len += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SNAPSHOT_SYNC_BYTES {
            self.unsynced = 0;
            self.file.sync_data()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_named {
            // An incomplete file is useless and takes up space.
            let _ = self.disk.remove(&self.part);
        }
    }
}

/// Removes files that `maker` was writing to replace `path` when the server crashed. None may be in progress.
pub fn remove_leftovers(disk: &dyn Disk, path: &Path, maker: &str) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let prefix = format!("{name}.{maker}-");
    let is_leftover = |other: &str| {
        let number = other.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(SUFFIX));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let folder = folder_of(path);
    // Files that can't be listed or removed are tried again next time.
    for leftover in disk.list(folder).unwrap_or_default().iter().filter(|other| is_leftover(other)) {
        let _ = disk.remove(&folder.join(leftover));
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::sim::SimDisk;

    const PATH: &str = "/out.rdb";

    fn disk() -> (SimDisk, Arc<dyn Disk>) {
        let disk = SimDisk::new(1);
        (disk.clone(), Arc::new(disk))
    }

    fn names(disk: &SimDisk) -> Vec<String> {
        let mut names = disk.list(Path::new("/")).unwrap();
        names.sort();
        names
    }

    fn content(disk: &SimDisk) -> Vec<u8> {
        let mut bytes = [0; 100];
        let read = disk.open(Path::new(PATH)).unwrap().read_at(&mut bytes, 0).unwrap();
        bytes[..read].to_vec()
    }

    #[test]
    fn a_complete_file_replaces_the_other() {
        let (sim, disk) = disk();
        let begin =
            |maker| Replacement::begin(Arc::clone(&disk), Path::new(PATH), maker).map_err(|(_, why)| why).unwrap();
        let (mut one, mut two, mut other) = (begin("save"), begin("save"), begin("export"));
        for (file, text) in [(&mut one, "one"), (&mut two, "two"), (&mut other, "other")] {
            file.write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(names(&sim), ["out.rdb.export-0.part", "out.rdb.save-0.part", "out.rdb.save-1.part"]);
        two.take_place().unwrap();
        drop(one);
        assert_eq!(names(&sim), ["out.rdb", "out.rdb.export-0.part"]);
        sim.crash();
        assert_eq!(content(&sim), b"two", "it is durable");
        other.take_place().unwrap_err();
    }

    #[test]
    fn only_leftovers_of_a_crash_are_removed() {
        let (sim, disk) = disk();
        let others =
            ["out.rdb", "out.rdb.export-0.part", "out.rdb.save-.part", "out.rdb.save-x.part", "x.rdb.save-0.part"];
        for name in others.iter().chain(&["out.rdb.save-0.part", "out.rdb.save-17.part"]) {
            sim.create(&Path::new("/").join(name)).unwrap();
        }
        remove_leftovers(&*disk, Path::new(PATH), "save");
        assert_eq!(names(&sim), others);
    }

    #[test]
    fn a_long_file_is_synced_while_it_is_written() {
        let (sim, disk) = disk();
        let mut file = Replacement::begin(disk, Path::new(PATH), "save").map_err(|(_, why)| why).unwrap();
        let before = sim.operations();
        file.write_all(&vec![1; SNAPSHOT_SYNC_BYTES as usize + 1]).unwrap();
        let done: Vec<_> = sim.trace(before).iter().map(|event| event.operation).collect();
        assert_eq!(done, ["write", "sync", "write"]);
    }
}
