//! The running script: the state visible to other clients, and their requests to kill it.

use crate::resp::request::OwnedArgv;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

/// The kind of a running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// A script run by EVAL or a variant of it.
    Script,
    /// A function of a library.
    Function,
}

impl ScriptKind {
    /// Returns the error that other clients get while the script is busy.
    pub fn busy_error(self) -> Error {
        match self {
            ScriptKind::Script => {
                Error::text("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")
            }
            ScriptKind::Function => {
                Error::text("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.")
            }
        }
    }
}

/// The running script and the command that started it; recorded once the script has run for a while.
#[derive(Debug)]
pub struct Subject {
    /// The script's SHA1 or the function's name.
    pub name: Box<[u8]>,
    /// The client's command.
    pub command: OwnedArgv,
}

/// The running script or function.
#[derive(Debug)]
pub struct RunningScript {
    /// Script or function.
    pub kind: ScriptKind,
    /// The script's name and command, once recorded.
    pub subject: Option<Subject>,
    /// The session that called it.
    pub caller: SessionKey,
    /// The caller is an import that replays the past.
    pub is_import: bool,
    /// When it began, in ticks of the processor's clock.
    pub started_ticks: u64,
    /// It has run longer than `busy-reply-threshold`, so other clients get -BUSY.
    pub is_busy: bool,
    /// It has changed the keyspace.
    pub has_written: bool,
    /// Its writes can be rolled back.
    pub can_undo: bool,
    /// A client has asked to kill it.
    pub kill_requested: bool,
    pub(crate) last_served_ticks: u64,
}

impl RunningScript {
    /// Starts tracking a script that begins now.
    #[inline]
    pub fn new(kind: ScriptKind, caller: SessionKey, is_import: bool, started_ticks: u64) -> RunningScript {
        RunningScript {
            kind,
            subject: None,
            caller,
            is_import,
            started_ticks,
            is_busy: false,
            has_written: false,
            can_undo: false,
            kill_requested: false,
            last_served_ticks: started_ticks,
        }
    }
}
