//! Why an import ends early. Nothing that was imported before is taken back.

use std::path::PathBuf;

use crate::base::excerpt;
use crate::base::limits::IMPORT_UNIT_MAX_BYTES;
use crate::client::ClientError;
use crate::engine::persistence::recovery::RecoveryError;
use crate::rdb::file::FileError;
use crate::resp::request::ProtocolError;

/// How a target forgets what was imported.
pub(super) const START_AGAIN: &str = "FLUSHALL and FUNCTION FLUSH it, and begin again";

/// Why an import ended early.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A server did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What was imported at the start can't be kept.
    #[error(transparent)]
    Keep(#[from] RecoveryError),
    /// There is nothing to import, or too much to choose from.
    #[error("{}: {what}", path.display())]
    Files {
        /// What was looked at.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        source: FileError,
    },
    /// The snapshot that a server sends can't be read.
    #[error("the snapshot of {peer}: {source}")]
    Snapshot {
        /// Who sends it.
        peer: String,
        /// What is wrong with it.
        source: FileError,
    },
    /// Commands can't be read on.
    #[error("{place}, offset {offset}: {source}")]
    Commands {
        /// The file, or who sends them.
        place: String,
        /// Where the first one begins that can't be read.
        offset: u64,
        /// What is wrong with it.
        source: ProtocolError,
    },
    /// What should be a command is none.
    #[error("{place}, offset {offset}: Bad file format reading the append only file or stream: no command begins here")]
    NoCommand {
        /// The file, or who sends it.
        place: String,
        /// Where it stands.
        offset: u64,
    },
    /// The last command or transaction of a file was not written to its end, and `aof-load-truncated` forbids to do without it.
    #[error(
        "{}, offset {offset}: Unexpected end of file reading the append only file: a command or transaction begins here that was not \
         written to its end. To do without it, set aof-load-truncated yes",
        path.display()
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// Where it begins.
        offset: u64,
    },
    /// The target holds data that commands could change.
    #[error("{peer}: it holds keys already, which commands could change: FLUSHALL it, or add --replace")]
    NotEmpty {
        /// The target.
        peer: String,
    },
    /// The target's checkpoint was changed by somebody else.
    #[error("{peer}: another import is at work there; this one has ended, and nothing was applied twice")]
    Concurrent {
        /// The target.
        peer: String,
    },
    /// The target has a key of this name.
    #[error(
        "the target has a key \"{}\" in database {db} already; what was imported before it stays. To overwrite keys of the same \
         name, add --replace",
        excerpt::of_bytes(key)
    )]
    Exists {
        /// The name.
        key: Vec<u8>,
        /// The number of its database.
        db: u64,
    },
    /// The target does not take a key or a library.
    #[error("the target refused {what}: {text}")]
    Refused {
        /// What, with its name.
        what: String,
        /// Its answer.
        text: String,
    },
    /// A command that the target does not know. Nothing of its transaction was applied.
    #[error(
        "{place}, offset {offset}: Unknown command '{name}' reading the append only file or stream: the target has none of this \
         name; all before it was applied. To leave out such commands, add --skip-unknown"
    )]
    Unknown {
        /// The file, or who sends it.
        place: String,
        /// Where it stands.
        offset: u64,
        /// Its name.
        name: String,
    },
    /// A command that the target refused.
    #[error("{place}: the target refused \"{command}\": {text}; {state}")]
    Command {
        /// The file, or who sends it.
        place: String,
        /// Its beginning.
        command: String,
        /// The target's answer.
        text: String,
        /// What became of the others.
        state: &'static str,
    },
    /// A command or a transaction without an end.
    #[error("{place}: the command or transaction at offset {offset} takes more than {IMPORT_UNIT_MAX_BYTES} bytes")]
    TooLong {
        /// The file, or who sends it.
        place: String,
        /// Where it begins.
        offset: u64,
    },
    /// A running server can't be followed.
    #[error("{peer}: {what}")]
    Follow {
        /// Which one.
        peer: String,
        /// Why.
        what: String,
    },
}
