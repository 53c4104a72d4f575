//! Why a log can't be opened: each error says which file, and what is wrong with it.

use std::io;
use std::path::PathBuf;

use super::block::Damage;
use super::snapshot::SnapshotDamage;
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
    /// There are segments or snapshots, and the identity that they were written with is missing or unreadable.
    #[error("{}: the directory's identity is missing or damaged; restore this file from a backup", path.display())]
    NoIdentity {
        /// The file that should hold it.
        path: PathBuf,
    },
    /// A file of another directory.
    #[error("{}: this file belongs to another directory", path.display())]
    Foreign {
        /// The segment or snapshot.
        path: PathBuf,
    },
    /// A file that a later version has written.
    #[error("{}: the file has version {version} of the format, which this version of Tidegate does not know", path.display())]
    Version {
        /// The segment or snapshot.
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
    /// The log begins later than the newest snapshot ends.
    #[error(
        "{} holds everything up to Lsn {lsn}, and the log begins with Lsn {first_lsn}, in {}: what is between them is missing",
        snapshot.display(), segment.display()
    )]
    Gap {
        /// The snapshot.
        snapshot: PathBuf,
        /// The last unit that it has.
        lsn: Lsn,
        /// The oldest segment.
        segment: PathBuf,
        /// The first unit that it has.
        first_lsn: Lsn,
    },
    /// A snapshot is damaged, and there is nothing to read in its place.
    #[error("{}: damaged at offset {offset}: {damage}", path.display())]
    Snapshot {
        /// The snapshot.
        path: PathBuf,
        /// Where the frame begins that can't be read.
        offset: u64,
        /// What is wrong.
        damage: SnapshotDamage,
    },
}
