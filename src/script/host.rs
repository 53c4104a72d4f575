//! Requests of a script to the server that runs it, and the answers.

use crate::resp::reply::Reply;
use crate::resp::request::Argv;

/// Requests of a running script to the server. The engine implements them. No method may call back into the
/// [`Vm`](super::Vm).
pub trait Host {
    /// Runs one command for `redis.call` or `redis.pcall` and writes its one reply, which may be an error, to the tape
    /// `reply`.
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply);
    /// As [`call`](Self::call), for a command whose name [`command_id`](Self::command_id) has resolved.
    fn call_known(&mut self, _: CommandId, argv: Argv<'_>, reply: &mut Reply) {
        self.call(argv, reply);
    }
    /// The number of the command of this name, if there is one. It stays the same while the state lives.
    fn command_id(&mut self, _name: &[u8]) -> Option<CommandId> {
        None
    }
    /// `redis.acl_check_cmd`: whether the script's caller may make this call; `None` if there is no such command.
    fn may_call(&mut self, _: Argv<'_>) -> Option<bool> {
        Some(true)
    }
    /// Asks whether the script may go on. In a long run this comes every few milliseconds, even between two calls of C
    /// functions. May serve other clients before it returns.
    fn interrupted(&mut self) -> Verdict;
    /// `redis.log`.
    fn log(&mut self, level: LogLevel, message: &[u8]);
    /// `redis.setresp`: the script reads later replies in RESP `version`, 2 or 3. Every script begins with 2.
    fn set_resp(&mut self, version: u8);
}

/// The engine's number for the name of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u16);

/// The error of a script that ends by [`Verdict::UndoIsFull`].
pub const UNDO_IS_FULL: &str = "ERR Script changed more than could be undone within script-memory-limit. Change less \
                                at a time, raise the limit by CONFIG SET, or turn script-rollback off";

/// The engine's decision about a running script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Continue,
    /// It ends with an error that it can't catch: a client has killed it.
    Kill,
    /// It ends with an error that it can't catch: its time is up.
    OutOfTime,
    /// As `OutOfTime`, for a script in an import, whose time limit is shorter.
    OutOfTimeInImport,
    /// It ends with an error that it can't catch: it has changed more than can be kept for an undo.
    UndoIsFull,
}

/// The levels of `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// `redis.LOG_DEBUG`.
    Debug,
    /// `redis.LOG_VERBOSE`.
    Verbose,
    /// `redis.LOG_NOTICE`.
    Notice,
    /// `redis.LOG_WARNING`.
    Warning,
}

impl LogLevel {
    pub(super) fn from_number(number: f64) -> Option<LogLevel> {
        [LogLevel::Debug, LogLevel::Verbose, LogLevel::Notice, LogLevel::Warning]
            .get(usize::try_from(number as i64).ok()?)
            .copied()
    }
}

/// The version of Redis shown to scripts: `redis.REDIS_VERSION` and `redis.REDIS_VERSION_NUM`.
#[derive(Clone, Copy, Debug)]
pub struct ServerVersion<'a> {
    /// As `7.0.15`.
    pub text: &'a str,
    /// Major, minor and patch in one byte each: 0x00MMmmpp.
    pub number: u32,
}
