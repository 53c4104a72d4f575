//! What a script asks of the server that runs it, and what it is told.

use crate::resp::reply::Reply;
use crate::resp::request::Argv;

/// What a running script asks of the server. The engine implements it. No method may come back into the [`Vm`](super::Vm).
pub trait Host {
    /// Runs one command for `redis.call` or `redis.pcall` and writes its one reply, errors included, to `reply`, which is a
    /// tape.
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply);
    /// As [`call`](Self::call), of a command whose name [`command_id`](Self::command_id) knew.
    fn call_known(&mut self, _: CommandId, argv: Argv<'_>, reply: &mut Reply) {
        self.call(argv, reply);
    }
    /// The number of the command of this name, if there is one: the same as long as the state lives.
    fn command_id(&mut self, _name: &[u8]) -> Option<CommandId> {
        None
    }
    /// `redis.acl_check_cmd`: whether the script's caller may make this call; `None`: there is no such command.
    fn may_call(&mut self, _: Argv<'_>) -> Option<bool> {
        Some(true)
    }
    /// Asked every few milliseconds once a script has run for some, between any two of its calls: whether it may go on.
    /// May serve other clients meanwhile.
    fn interrupted(&mut self) -> Verdict;
    /// `redis.log`.
    fn log(&mut self, level: LogLevel, message: &[u8]);
    /// `redis.setresp`: the script reads later replies as RESP `version`, 2 or 3. Every script begins with 2.
    fn set_resp(&mut self, version: u8);
}

/// A command by the engine's own number for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u16);

/// What a script reads, or answers, that ends by [`Verdict::UndoIsFull`].
pub const UNDO_IS_FULL: &str = "ERR Script changed more than could be undone within script-memory-limit. Change less at a time, raise the limit by CONFIG SET, or turn script-rollback off";

/// What becomes of a script that is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Continue,
    /// It ends with an error, whatever it catches: somebody asked for its end.
    Kill,
    /// It ends with an error, whatever it catches: it has had its time.
    OutOfTime,
    /// The same of a script of an import, which has less.
    OutOfTimeInImport,
    /// It ends with an error, whatever it catches: it has changed more than can be kept to take it back.
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

/// Which Redis scripts are told they run on: `redis.REDIS_VERSION` and `redis.REDIS_VERSION_NUM`.
#[derive(Clone, Copy, Debug)]
pub struct ServerVersion<'a> {
    /// As `7.0.15`.
    pub text: &'a str,
    /// Major, minor and patch in one byte each: 0x00MMmmpp.
    pub number: u32,
}
