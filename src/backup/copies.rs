//! The folder of all copies: which there are, and which are still needed.
//!
//! ```text
//! DIR/LOCK                           held while a backup runs
//! DIR/2026-11-30T083704Z/            a copy, named by the time at which it was begun
//!     SOURCE                         the history that it belongs to; written when the copy was complete
//!     tidegate-data/                 as in the folder of a server
//! DIR/2026-12-01T083705Z.part/       one that is being made or removed
//!     tidegate-data.part/
//! ```
//!
//! A server loads a folder `tidegate-data`, so a folder has that name only while everything is in it. Whatever has
//! another name is somebody else's.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::error::{BackupError, io_error};
use crate::base::calendar::utc;
use crate::log::directory::Directory;
use crate::log::disk::RealDisk;
use crate::persist::saving::DATA_DIR;

const LOCK: &str = "LOCK";
const SOURCE: &str = "SOURCE";
const DRAFT: &str = "part";

/// The folder of data of which something may be missing. No server loads it.
pub(super) const DRAFT_DATA: &str = "tidegate-data.part";

pub(super) struct Copies {
    path: PathBuf,
    _lock: File,
    /// The newest copy is not gone on with.
    has_ended: bool,
}

impl Copies {
    /// Opens the folder, and removes copies that were not finished.
    pub(super) fn open(path: &Path) -> Result<Copies, BackupError> {
        make_folder(path)?;
        let lock = File::create(path.join(LOCK)).map_err(io_error(path))?;
        lock.try_lock().map_err(|_| BackupError::InUse(path.to_owned()))?;
        let copies = Copies { path: path.to_owned(), _lock: lock, has_ended: false };
        let drafts = names(path)?.into_iter().filter(|name| name.strip_suffix(".part").is_some_and(is_copy));
        drafts.map(|draft| path.join(draft)).try_for_each(|draft| copies.discard(&draft))?;
        Ok(copies)
    }

    /// Removes what is not finished.
    pub(super) fn discard(&self, draft: &Path) -> Result<(), BackupError> {
        if draft.exists() { fs::remove_dir_all(draft).map_err(io_error(draft)) } else { Ok(()) }
    }

    /// Returns the newest copy, if it belongs to this history and is to be gone on with.
    pub(super) fn newest_of(&self, history: &str) -> Result<Option<PathBuf>, BackupError> {
        let newest = if self.has_ended { None } else { all(&self.path)?.pop() };
        Ok(newest.filter(|newest| history_of(newest).is_ok_and(|found| found == history)))
    }

    /// Ends the newest copy: the next one is a new one.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns the folder for a new copy, which is behind all others, whatever the clock says.
    pub(super) fn begin(&self, now_ms: i64) -> Result<PathBuf, BackupError> {
        let newest_ms = all(&self.path)?.last().and_then(|newest| begun_ms(newest));
        let begun_ms = newest_ms.map_or(now_ms, |newest_ms| now_ms.max(newest_ms + 1_000));
        Ok(self.path.join(name_of(begun_ms)).with_extension(DRAFT))
    }

    /// Gives a finished copy its name. Returns its folder.
    pub(super) fn complete(&mut self, draft: &Path, history: &str) -> Result<PathBuf, BackupError> {
        let (source, path) = (draft.join(SOURCE), draft.with_extension(""));
        fs::rename(draft.join(DRAFT_DATA), draft.join(DATA_DIR)).map_err(io_error(draft))?;
        fs::write(&source, format!("{history}\n")).map_err(io_error(&source))?;
        [&source, draft].into_iter().try_for_each(sync)?;
        fs::rename(draft, &path).map_err(io_error(draft))?;
        sync(&self.path)?;
        self.has_ended = false;
        Ok(path)
    }

    /// Removes the copies that are needed for no moment from `ms` on: those whose successor was begun before. Returns
    /// for each its folder, or why it could not be removed.
    pub(super) fn forget_before(&self, ms: i64) -> Result<Vec<Result<PathBuf, BackupError>>, BackupError> {
        let copies = all(&self.path)?;
        let is_old = |next: &PathBuf| begun_ms(next).is_some_and(|begun_ms| begun_ms < ms);
        let old = copies.iter().zip(copies.iter().skip(1)).filter(|(_, next)| is_old(next)).map(|(copy, _)| copy);
        Ok(old.map(|copy| self.remove(copy).map(|()| copy.clone())).collect())
    }

    /// Removes a copy that no server uses. From the first step on it is none any more.
    fn remove(&self, copy: &Path) -> Result<(), BackupError> {
        let unused = Directory::open_existing(Arc::new(RealDisk), &copy.join(DATA_DIR))?;
        let draft = copy.with_extension(DRAFT);
        fs::rename(copy, &draft).map_err(io_error(copy))?;
        sync(&self.path)?;
        fs::rename(draft.join(DATA_DIR), draft.join(DRAFT_DATA)).map_err(io_error(&draft))?;
        drop(unused);
        self.discard(&draft)
    }
}

/// Returns the finished copies in a folder, oldest first.
pub(super) fn all(path: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let mut names = names(path)?;
    names.retain(|name| is_copy(name) && path.join(name).join(SOURCE).is_file());
    names.sort_unstable();
    Ok(names.into_iter().map(|name| path.join(name)).collect())
}

/// Returns the history that a copy belongs to.
pub(super) fn history_of(copy: &Path) -> Result<String, BackupError> {
    let source = copy.join(SOURCE);
    fs::read_to_string(&source).map(|text| text.trim_end().to_owned()).map_err(io_error(&source))
}

/// Returns how long ago a copy was complete.
pub(super) fn age_of(copy: &Path) -> Duration {
    let completed = fs::metadata(copy.join(SOURCE)).and_then(|source| source.modified()).ok();
    completed.and_then(|completed| completed.elapsed().ok()).unwrap_or_default()
}

/// Makes a folder that lasts.
pub(super) fn make_folder(path: &Path) -> Result<(), BackupError> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(path).map_err(io_error(path))?;
    missing.into_iter().filter_map(Path::parent).try_for_each(|parent| match parent.as_os_str().is_empty() {
        true => sync(Path::new(".")),
        false => sync(parent),
    })
}

/// Makes a file, or the names in a folder, durable.
pub(super) fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(io_error(path))
}

fn names(path: &Path) -> Result<Vec<String>, BackupError> {
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(io_error(path))?;
    Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

fn name_of(begun_ms: i64) -> String {
    utc(begun_ms).replace(':', "")
}

fn is_copy(name: &str) -> bool {
    begun_ms(Path::new(name)).is_some_and(|begun_ms| name_of(begun_ms) == name)
}

/// Returns when a copy was begun, by its name.
fn begun_ms(copy: &Path) -> Option<i64> {
    let name = copy.file_name()?.to_str().filter(|name| name.is_ascii() && name.len() == 18)?;
    let text = format!("{}:{}:{}", &name[..13], &name[13..15], &name[15..]);
    let time = humantime::parse_rfc3339(&text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(time.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_copies() {
        assert!(
            is_copy("2026-11-30T083704Z") && name_of(begun_ms(Path::new("2026-11-30T083704Z")).unwrap()).len() == 18
        );
        let others = [
            "2026-11-30T083704Z.part",
            "counterpart",
            "2026-11-30",
            "2026-13-30T083704Z",
            "2026-11-30T08370\u{e9}Z",
            "",
        ];
        assert!(!others.into_iter().any(is_copy));
    }

    #[test]
    fn a_copy_is_behind_all_others_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let mut copies = Copies::open(folder.path()).unwrap();
        let mut last = String::new();
        for now_ms in [5_000_000, 5_000_000, 4_000_000, 90_000_000, 6_000_000] {
            let draft = copies.begin(now_ms).unwrap();
            fs::create_dir_all(draft.join(DRAFT_DATA)).unwrap();
            let name = copies.complete(&draft, "a").unwrap().file_name().unwrap().to_str().unwrap().to_owned();
            assert!(name > last, "{name} after {last}");
            last = name;
        }
        assert!(matches!(Copies::open(folder.path()), Err(BackupError::InUse(_))));
        assert_eq!(copies.newest_of("a").unwrap(), Some(folder.path().join(&last)));
        assert_eq!(copies.newest_of("b").unwrap(), None);
    }

    #[test]
    fn nothing_but_unfinished_copies_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["counterpart/tidegate-data", "2026-11-30T083704Z.part", "0-old/tidegate-data"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        drop(Copies::open(folder.path()).unwrap());
        let mut left = names(folder.path()).unwrap();
        left.sort_unstable();
        assert_eq!(left, ["0-old", LOCK, "counterpart"]);
        assert!(all(folder.path()).unwrap().is_empty());
    }
}
