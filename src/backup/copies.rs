//! The folder of all copies: which there are, and which are still needed.
//!
//! ```text
//! DIR/2026-11-30T083704Z/            a copy, named by the time at which it was begun
//!     SOURCE                         the history that it belongs to
//!     tidegate-data/                 as in the folder of a server
//! DIR/2026-12-01T083705Z.part/       one that is being made, or was not finished
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{BackupError, io_error};
use crate::base::calendar::utc;
use crate::log::directory::Directory;
use crate::persist::saving::DATA_DIR;

const SOURCE: &str = "SOURCE";
const DRAFT: &str = "part";

pub(super) struct Copies {
    path: PathBuf,
    /// The newest copy is not gone on with.
    has_ended: bool,
}

impl Copies {
    /// Opens the folder, and removes copies that were not finished.
    pub(super) fn open(path: &Path) -> Result<Copies, BackupError> {
        fs::create_dir_all(path).map_err(io_error(path))?;
        for draft in names(path)?.into_iter().filter(|name| name.ends_with(DRAFT)) {
            let draft = path.join(draft);
            // Fails if another process still writes it.
            Directory::remove(&draft.join(DATA_DIR))?;
            fs::remove_dir_all(&draft).map_err(io_error(&draft))?;
        }
        Ok(Copies { path: path.to_owned(), has_ended: false })
    }

    /// Returns the newest copy, if it belongs to this history and is to be gone on with.
    pub(super) fn newest_of(&self, history: &str) -> Result<Option<PathBuf>, BackupError> {
        if self.has_ended {
            return Ok(None);
        }
        let Some(newest) = all(&self.path)?.pop() else { return Ok(None) };
        let source = newest.join(SOURCE);
        let found = fs::read_to_string(&source).map_err(io_error(&source))?;
        Ok((found.trim_end() == history).then_some(newest))
    }

    /// Ends the newest copy: the next one is a new one.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns the folder for a new copy.
    pub(super) fn begin(&self, now_ms: i64) -> Result<PathBuf, BackupError> {
        // A second copy within a second gets the next one.
        let mut names = (0..).map(|more| utc(now_ms + more * 1_000).replace(':', ""));
        let free = names.find(|name| !self.path.join(name).exists()).unwrap_or_default();
        Ok(self.path.join(free).with_extension(DRAFT))
    }

    /// Gives a finished copy its name. Returns its folder.
    pub(super) fn complete(&mut self, draft: &Path, history: &str) -> Result<PathBuf, BackupError> {
        let (source, path) = (draft.join(SOURCE), draft.with_extension(""));
        fs::write(&source, format!("{history}\n")).map_err(io_error(&source))?;
        for file in [&source, draft] {
            fs::File::open(file).and_then(|file| file.sync_all()).map_err(io_error(file))?;
        }
        fs::rename(draft, &path).map_err(io_error(draft))?;
        fs::File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(io_error(&self.path))?;
        self.has_ended = false;
        Ok(path)
    }

    /// Removes the copies that are needed for no moment from `ms` on: those whose successor was begun before. Returns
    /// their folders.
    pub(super) fn forget_before(&self, ms: i64) -> Result<Vec<PathBuf>, BackupError> {
        let (copies, limit) = (all(&self.path)?, utc(ms).replace(':', ""));
        let is_needed = |next: &PathBuf| next.file_name().is_some_and(|name| *name.to_string_lossy() > *limit);
        let successors = copies.iter().skip(1);
        let old: Vec<_> = copies.iter().zip(successors).filter(|(_, next)| !is_needed(next)).map(|it| it.0).collect();
        for copy in &old {
            Directory::remove(&copy.join(DATA_DIR))?;
            fs::remove_dir_all(copy).map_err(io_error(copy))?;
        }
        Ok(old.into_iter().cloned().collect())
    }
}

/// Returns the finished copies in a folder, oldest first.
pub(super) fn all(path: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let mut names = names(path)?;
    names.retain(|name| !name.ends_with(DRAFT));
    names.sort_unstable();
    Ok(names.into_iter().map(|name| path.join(name)).collect())
}

/// Returns the names of the folders that are copies, finished or not.
fn names(path: &Path) -> Result<Vec<String>, BackupError> {
    let entries = fs::read_dir(path).map_err(io_error(path))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error(path))?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.path().join(DATA_DIR).is_dir()
        {
            names.push(name);
        }
    }
    Ok(names)
}
