//! The snapshot of a node while it is sent to another one.
//!
//! The file stays open, so it can be read to its end even if a newer snapshot removes or replaces it meanwhile.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::reader::SnapshotReader;
use crate::log::directory::Directory;
use crate::log::disk::{DiskFile, read_up_to};
use crate::log::error::LogError;
use crate::log::replicated::mark::Mark;

/// See the module's header.
pub(crate) struct DepartingSnapshot {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    bytes: u64,
}

/// Why a snapshot can't be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DepartureError {
    /// It can't be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A newer snapshot has got its name.
    #[error("{}: another snapshot has taken its place", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        source: io::Error,
    },
}

impl DepartingSnapshot {
    /// Opens the snapshot with this mark.
    pub(crate) fn open(directory: &Directory, mark: &Mark) -> Result<DepartingSnapshot, DepartureError> {
        let path = directory.snapshot(mark.at.link.lsn);
        let reader = SnapshotReader::open(directory, mark.at.link.lsn)?;
        if reader.end().mark.as_ref() != Some(mark) {
            return Err(DepartureError::Replaced { path });
        }
        let (file, bytes) = reader.into_file();
        Ok(DepartingSnapshot { path, file, bytes })
    }

    /// Returns the size of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `buf` with the bytes from `at` on, which must be there.
    pub(crate) fn read(&self, buf: &mut [u8], at: u64) -> Result<(), DepartureError> {
        let failed = |source| DepartureError::Io { path: self.path.clone(), source };
        match read_up_to(&*self.file, buf, at).map_err(failed)? {
            read if read == buf.len() => Ok(()),
            _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}
