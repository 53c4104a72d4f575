//! Replaces a file so that a crash at any moment leaves either the old one or the new one, whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

/// Replaces the content of the file at `path`, and keeps its permissions and owner. A link stays a link. When this
/// returns, the new file is on disk.
///
/// # Errors
/// The system's; the old file then stays.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    // In the same folder, because a file can only be renamed within one file system.
    let beside = folder.join(format!(".{name}.{}.new", std::process::id()));
    let replaced = write_as(&beside, &path, content).and_then(|()| std::fs::rename(&beside, &path));
    if replaced.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&beside);
    }
    replaced?;
    File::open(folder)?.sync_all()
}

/// Writes a new file with the owner and permissions of `model`, if that exists.
fn write_as(path: &Path, model: &Path, content: &[u8]) -> io::Result<()> {
    // A file left by an earlier process with the same ID.
    let _ = std::fs::remove_file(path);
    // Without a model only the owner may read the file: such files hold passwords.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    if let Ok(old) = std::fs::metadata(model) {
        file.set_permissions(old.permissions())?;
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            // Only root may give a file away, and only root needs to.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        }
    }
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_new_file_is_like_the_old_one() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&path, "old").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("it is ours");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        replace_file(&link, b"new").expect("it is replaced");
        assert_eq!(std::fs::read(&path).expect("there"), b"new");
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o640);
        assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
        replace_file(&dir.path().join("fresh"), b"x").expect("it is made");
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 3, "nothing is left beside them");
    }

    #[test]
    fn a_failure_leaves_the_old_file() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("folder");
        std::fs::create_dir(&path).expect("a folder can't be replaced by a file");
        assert!(replace_file(&path, b"new").is_err());
        assert!(path.is_dir());
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1, "no temporary file is left");
        assert!(replace_file(&dir.path().join("none/file"), b"new").is_err());
    }
}
