//! Why a journal can't be opened: each error names the file and the fault.

use std::io;
use std::path::PathBuf;

use super::block::Damage;
use super::snapshot::SnapshotDamage;
use crate::base::lsn::Lsn;

/// Why the journal can't be opened or read. The server does not start, and nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refuses an operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("{}: another server is using this directory", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// There are segments or snapshots, but the identity that they were written with is missing or unreadable.
    #[error("{}: the directory's identity is missing or damaged; restore this file from a backup", path.display())]
    NoIdentity {
        /// The file that should hold the identity.
        path: PathBuf,
    },
    /// The file belongs to another directory.
    #[error("{}: this file belongs to another directory", path.display())]
    Foreign {
        /// The segment or snapshot.
        path: PathBuf,
    },
    /// A later version has written the file.
    #[error(
        "{}: the file has version {version} of the format, which this version of Tidegate does not know",
        path.display()
    )]
    Version {
        /// The segment or snapshot.
        path: PathBuf,
        /// The version of the file's format.
        version: u32,
    },
    /// The journal is the log of a group, and a single server was to continue it, or the other way round.
    #[error("{}: this journal belongs to {owner}", path.display())]
    Owner {
        /// The newest segment.
        path: PathBuf,
        /// Who can continue it.
        owner: &'static str,
    },
    /// A block that had been durable is damaged.
    #[error("{}: damaged at offset {offset}, where Lsn {lsn} should begin: {damage}", path.display())]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Where the unreadable block begins.
        offset: u64,
        /// The unit that should be there.
        lsn: Lsn,
        /// The fault of the block.
        damage: Damage,
    },
    /// A needed segment is missing.
    #[error("{}: missing; the journal can't be read from Lsn {lsn} without it", path.display())]
    Missing {
        /// The segment.
        path: PathBuf,
        /// The first unit that is needed.
        lsn: Lsn,
    },
    /// The journal begins later than the newest snapshot ends.
    #[error(
        "{} holds everything up to Lsn {lsn}, but the journal begins with Lsn {first_lsn}, in {}; the units between \
         them are missing",
        snapshot.display(), segment.display()
    )]
    Gap {
        /// The snapshot.
        snapshot: PathBuf,
        /// The last unit that the snapshot covers.
        lsn: Lsn,
        /// The oldest segment.
        segment: PathBuf,
        /// The first unit in that segment.
        first_lsn: Lsn,
    },
    /// A snapshot is damaged, and nothing else can be read in its place.
    #[error("{}: damaged at offset {offset}: {damage}", path.display())]
    Snapshot {
        /// The snapshot.
        path: PathBuf,
        /// Where the unreadable frame begins.
        offset: u64,
        /// The fault of the frame.
        damage: SnapshotDamage,
    },
}
