//! Why there is no backup, or no restored data.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::lsn::Lsn;
use crate::feed::FeedError;
use crate::log::copy_file::CopyFault;
use crate::log::error::LogError;
use crate::persist::tail::BadUnits;

/// Why there is no backup, or no restored data.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The server does not respond, or can't go on.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The files of a copy can't be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The system refuses an operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A copy in one file is not whole.
    #[error("{}: {fault}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Its fault.
        fault: CopyFault,
    },
    /// The disk of the copy is full or has failed.
    #[error("{}: the copy can't be written: {reason}", path.display())]
    Write {
        /// The folder.
        path: PathBuf,
        /// What has failed.
        reason: String,
    },
    /// The changes can't be taken.
    #[error(transparent)]
    Units(#[from] BadUnits),
    /// Another backup is running.
    #[error("{}: another backup uses this folder: wait until it has ended, or give this one its own", .0.display())]
    InUse(PathBuf),
    /// Another restore is running.
    #[error("{}: another restore uses this folder", .0.display())]
    Restoring(PathBuf),
    /// The moment lies behind the end of the copies.
    #[error("the copies end with the change {0}: a later one can't be restored")]
    Ends(Lsn),
    /// There is nothing to restore.
    #[error("{}: there is no copy up to that moment here; an older history may have one: name the copy", .0.display())]
    NoCopy(PathBuf),
    /// Data would be lost.
    #[error("{}: there is data already: restore into a new folder", .0.display())]
    Exists(PathBuf),
}

/// Tells which file or folder an operation has failed for.
pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { path, source }
}
