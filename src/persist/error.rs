//! Why the data of a directory can't be loaded.

use std::path::PathBuf;

use crate::base::lsn::Lsn;
use crate::log::error::LogError;

/// Why the data can't be recovered. Nothing has been changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The files can't be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The files are intact, but an effect does not fit the data before it.
    #[error("{}: effect {index} of Lsn {lsn}, in the block that ends at offset {offset}, {what}", path.display())]
    Misfit {
        /// The segment.
        path: PathBuf,
        /// Where the block ends.
        offset: u64,
        /// The unit.
        lsn: Lsn,
        /// Which of its effects, from 0.
        index: usize,
        /// The fault of the effect.
        what: String,
    },
    /// An effect in an intact snapshot does not fit the data before it.
    #[error("{}: effect {index} of a unit in the frame that ends at offset {offset} {what}", path.display())]
    SnapshotMisfit {
        /// The snapshot.
        path: PathBuf,
        /// Where the frame ends.
        offset: u64,
        /// Which effect of the unit, from 0.
        index: usize,
        /// The fault of the effect.
        what: String,
    },
    /// A thread can't be started.
    #[error("cannot start {what}: {error}")]
    Thread {
        /// The thread, or what it belongs to.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// A committed unit of the group does not fit the data before it.
    #[error("effect {index} of Lsn {lsn}, which the group has committed, {what}")]
    GroupMisfit {
        /// The unit.
        lsn: Lsn,
        /// Which of its effects, from 0.
        index: usize,
        /// The fault of the effect.
        what: String,
    },
    /// The node of this server has ended.
    #[error("{0}")]
    Node(String),
    /// A reign begins on top of what is not committed.
    #[error("the group lets this node lead before its data is what the group has committed; please report this")]
    Unresolved,
    /// The loaded foreign data can't be saved.
    #[error("the data that was loaded can't be saved: {0}")]
    Unsaved(String),
}
