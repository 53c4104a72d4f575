//! The script that runs now: what others may know of it, and how they ask for its end.

use crate::resp::request::OwnedArgv;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

/// What is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// A script of EVAL and its kin.
    Script,
    /// A function of a library.
    Function,
}

impl ScriptKind {
    /// What other clients are told while it runs for long.
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

/// Which script runs, and for whom: noted once it has run for a while.
#[derive(Debug)]
pub struct Subject {
    /// The script's SHA1 or the function's name.
    pub name: Box<[u8]>,
    /// The client's command.
    pub command: OwnedArgv,
}

/// The script or function that runs now.
#[derive(Debug)]
pub struct RunningScript {
    /// Which of the two.
    pub kind: ScriptKind,
    /// Which one.
    pub subject: Option<Subject>,
    /// Whose call it is.
    pub caller: SessionKey,
    /// Whether its caller repeats the past.
    pub is_import: bool,
    /// When it began, by the processor's clock.
    pub started_ticks: u64,
    /// It has run for longer than `busy-reply-threshold`: others are answered -BUSY.
    pub is_busy: bool,
    /// It has changed the keyspace.
    pub has_written: bool,
    /// What it has written can be undone.
    pub can_undo: bool,
    /// Somebody asked for its end.
    pub kill_requested: bool,
    pub(crate) last_look_ticks: u64,
}

impl RunningScript {
    /// A script that begins now.
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
            last_look_ticks: started_ticks,
        }
    }
}
