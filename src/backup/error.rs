//! Why there is no backup, or no restored data.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::lsn::Lsn;
use crate::client::ClientError;
use crate::log::error::LogError;

/// Why there is no backup, or no restored data.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The server does not respond, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
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
    /// The disk of the copy is full or has failed.
    #[error("{}: the copy can't be written: {reason}", path.display())]
    Write {
        /// The folder.
        path: PathBuf,
        /// What has failed.
        reason: String,
    },
    /// The server has replaced its journal by a newer snapshot.
    #[error("the server no longer has the changes after {after}: it keeps them only until its next snapshot")]
    Gone {
        /// The last change that was read.
        after: Lsn,
    },
    /// The server has not written these changes.
    #[error("the server has not written the change {after}, which was read from it: it was set back")]
    Ahead {
        /// The last change that was read.
        after: Lsn,
    },
    /// The server is of a newer version.
    #[error("the changes have format {0}, which this version does not know: use the version of the server")]
    Newer(u8),
    /// Another backup is running.
    #[error("{}: another backup uses this folder: wait until it has ended, or give this one its own", .0.display())]
    InUse(PathBuf),
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
