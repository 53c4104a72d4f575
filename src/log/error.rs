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
    /// The directory belongs to another node, or to a single server, for ever.
    #[error(
        "{}: this directory belongs to {found}, and can't be used by {wanted}; give each its own directory",
        path.display()
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        found: String,
        /// The one who wants to use it.
        wanted: String,
    },
    /// A segment has a version of the format that is not for the owner of the directory.
    #[error("{}: this segment is not one of {owner}, to whom the directory belongs", path.display())]
    Foundling {
        /// The segment.
        path: PathBuf,
        /// The directory's owner.
        owner: String,
    },
    /// The log of a group is damaged, and was to be cut.
    #[error(
        "{}: the log of {owner} is not repaired: with a shorter log, the node might vote for a leader that lacks \
         acknowledged data; remove the node from the group, and let it join again with an empty directory",
        path.display()
    )]
    NoRepair {
        /// The directory.
        path: PathBuf,
        /// The node.
        owner: String,
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
