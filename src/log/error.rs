//! Why a log can't be opened: each error says which file, and what is wrong with it.

use std::io;
use std::path::PathBuf;

use super::block::Damage;
use crate::base::lsn::Lsn;

/// Why the log can't be opened or read. The server does not start, and nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refuses something.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error("{}: another server is using this directory", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// There are segments, and the identity that they were written with is missing or unreadable.
    #[error("{}: the directory's identity is missing or damaged; restore this file from a backup", path.display())]
    NoIdentity {
        /// The file that should hold it.
        path: PathBuf,
    },
    /// A segment of another directory.
    #[error("{}: this segment belongs to another directory", path.display())]
    Foreign {
        /// The segment.
        path: PathBuf,
    },
    /// A segment that a later version has written.
    #[error("{}: the segment has version {version} of the format, which this version of Tidegate does not know", path.display())]
    Version {
        /// The segment.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Something that had been durable is damaged.
    #[error("{}: damaged at offset {offset}, where Lsn {lsn} should begin: {damage}", path.display())]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Where the block begins that can't be read.
        offset: u64,
        /// The unit that should be there.
        lsn: Lsn,
        /// What is wrong.
        damage: Damage,
    },
    /// A segment that is needed is not there.
    #[error("{}: missing; the log can't be read from Lsn {lsn} without it", path.display())]
    Missing {
        /// The segment.
        path: PathBuf,
        /// The first unit that is needed.
        lsn: Lsn,
    },
}
