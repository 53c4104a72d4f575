//! Errors that end an import early. Data imported before the error stays.

use std::io;
use std::path::PathBuf;

use crate::base::excerpt;
use crate::base::lsn::Lsn;
use crate::client::ClientError;
use crate::feed::FeedError;
use crate::import::limits::IMPORT_UNIT_MAX_BYTES;
use crate::persist::error::RecoveryError;
use crate::persist::tail::BadUnits;
use crate::rdb::file::FileError;
use crate::resp::request::ProtocolError;

/// How to make a target forget imported data.
pub(super) const START_AGAIN: &str = "send it FLUSHALL and FUNCTION FLUSH, and begin again";

/// Reasons why an import ended early.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A server did not respond, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The feed of a Tidegate can't be read on.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// Changes can't be taken.
    #[error(transparent)]
    Units(#[from] BadUnits),
    /// Changes are missing from the feed.
    #[error("change {found} came after {after}: the feed has a gap")]
    Gap {
        /// The last change before the gap.
        after: Lsn,
        /// The first one behind it.
        found: Lsn,
    },
    /// Changes could not be put aside.
    #[error("a temporary file: {0}")]
    Spool(io::Error),
    /// The new server receives the data of another one.
    #[error("{peer} receives the data of another server, {from}: to begin with this one instead, add --replace")]
    OtherSource {
        /// The new server.
        peer: String,
        /// The other server.
        from: String,
    },
    /// The new server would lose data: the old one has given its own away, but not to the new one.
    #[error(
        "the data of the old server was given to {to}, and the new server does not have it: name that one, or send \
         HANDOVER END to the old server to begin again"
    )]
    Elsewhere {
        /// The address of the server that has the data.
        to: String,
    },
    /// The new server has fewer databases.
    #[error("the new server has too few databases: start it with `databases {wanted}`")]
    FewerDatabases {
        /// How many the old server has.
        wanted: u64,
    },
    /// A change is too long for the new server.
    #[error(
        "change {lsn} has {bytes} bytes, and the new server takes {max_bytes} at once: raise its proto-max-bulk-len"
    )]
    LongChange {
        /// The change, or one that was written together with it.
        lsn: Lsn,
        /// Its bytes.
        bytes: usize,
        /// The limit.
        max_bytes: u64,
    },
    /// There is no address for clients.
    #[error("say where clients reach the new server: --cut-over=HOST:PORT")]
    NoAddress,
    /// The operator has called the move off.
    #[error("the move was called off: the old server takes clients again")]
    CalledOff,
    /// A Tidegate sends no commands.
    #[error("--skip-unknown has no meaning here: from a Tidegate changes are imported, not commands")]
    NothingUnknown,
    /// The operator has stopped a move before the new server had all data.
    #[error("stopped in the middle of the snapshot: the next call begins with it again")]
    Stopped,
    /// Only a Tidegate can give its data away.
    #[error("only a Tidegate can hand its data over: without --cut-over, stop the writers and then press Ctrl-C")]
    NoHandover,
    /// The data imported at the start can't be kept.
    #[error(transparent)]
    Keep(#[from] RecoveryError),
    /// There is nothing to import, or the choice is ambiguous.
    #[error("{}: {what}", path.display())]
    Files {
        /// The path searched.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// A file can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The read error.
        source: FileError,
    },
    /// The snapshot sent by a server can't be read.
    #[error("the snapshot of {peer}: {source}")]
    Snapshot {
        /// The server that sent the snapshot.
        peer: String,
        /// The read error.
        source: FileError,
    },
    /// The stream of commands can't be decoded further.
    #[error("{place}, offset {offset}: {source}")]
    Commands {
        /// The file or the sending server.
        place: String,
        /// Offset of the first command that can't be decoded.
        offset: u64,
        /// The protocol error.
        source: ProtocolError,
    },
    /// The bytes are not a command.
    #[error("{place}, offset {offset}: Bad file format reading the append only file or stream: no command begins here")]
    NoCommand {
        /// The file or the sending server.
        place: String,
        /// Offset of these bytes.
        offset: u64,
    },
    /// The last command or transaction of a file is incomplete, and `aof-load-truncated` forbids dropping it.
    #[error(
        "{}, offset {offset}: Unexpected end of file reading the append only file: a command or transaction begins \
         here that was not written to its end. To leave it out, set aof-load-truncated yes",
        path.display()
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// Offset of the incomplete part.
        offset: u64,
    },
    /// The target holds data that commands could change.
    #[error("{peer} already holds keys, which imported commands could change: send it FLUSHALL, or add --replace")]
    NotEmpty {
        /// The target.
        peer: String,
    },
    /// Another client changed the target's checkpoint.
    #[error("{peer}: another import is running there; this one has ended, and nothing was applied twice")]
    Concurrent {
        /// The target.
        peer: String,
    },
    /// The target already has a key of this name.
    #[error(
        "the target already has a key \"{}\" in database {db}; the keys imported before it stay. To overwrite keys of \
         the same name, add --replace",
        excerpt::of_bytes(key)
    )]
    Exists {
        /// The key's name.
        key: Vec<u8>,
        /// The number of the key's database.
        db: u64,
    },
    /// The target refused a key or a library.
    #[error("the target refused {what}: {text}")]
    Refused {
        /// The kind and name of the refused item.
        what: String,
        /// The target's reply.
        text: String,
    },
    /// A command unknown to the target. Nothing of its transaction was applied.
    #[error(
        "{place}, offset {offset}: Unknown command '{name}' reading the append only file or stream: the target has \
         none of this name; everything before it was applied. To leave out such commands, add --skip-unknown"
    )]
    Unknown {
        /// The file or the sending server.
        place: String,
        /// The command's offset.
        offset: u64,
        /// The command's name.
        name: String,
    },
    /// A command that the target refused.
    #[error("{place}: the target refused \"{command}\": {text}; {state}")]
    Command {
        /// The file or the sending server.
        place: String,
        /// The beginning of the command.
        command: String,
        /// The target's reply.
        text: String,
        /// The outcome of the other commands.
        state: &'static str,
    },
    /// A command or transaction is incomplete.
    #[error("{place}: the command or transaction at offset {offset} takes more than {IMPORT_UNIT_MAX_BYTES} bytes")]
    TooLong {
        /// The file or the sending server.
        place: String,
        /// Offset at which it begins.
        offset: u64,
    },
    /// A running server can't be followed.
    #[error("{peer}: {what}")]
    Follow {
        /// The server.
        peer: String,
        /// The reason.
        what: String,
    },
}

impl ImportError {
    /// Whether the server that has failed may answer soon.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            ImportError::Client(error) | ImportError::Feed(FeedError::Client(error)) => {
                error.may_pass() || error.is_of_change_of_leader()
            }
            _ => false,
        }
    }
}
