//! Programs, one run of one, and how it ends.

use std::ffi::c_int;

use crate::resp::request::Argv;

/// A script's name: the SHA-1 of its text in 40 lower-case hexadecimal digits.
pub type Sha1Hex = [u8; 40];

/// A compiled script, or a function that a library registered, as the state keeps it until [`Vm::release`](super::Vm::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(super) reference: c_int,
    /// Tells programs apart whose slot is the same, one after the other.
    pub(super) serial: u32,
    /// It might change the tables KEYS and ARGV, or keep them.
    pub(super) may_keep_lists: bool,
}

/// One run of a script or function.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    /// What runs.
    pub program: Handle,
    /// How it gets its keys and arguments.
    pub passing: Passing,
    /// What it is called in its errors: a script's SHA-1, a function's name.
    pub name: &'a [u8],
    /// The keys.
    pub keys: Argv<'a>,
    /// The other arguments.
    pub args: Argv<'a>,
}

/// How keys and arguments are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// As the globals KEYS and ARGV: to scripts.
    Globals,
    /// As two arguments: to functions.
    Arguments,
}

impl Handle {
    /// A small number that no other program has at the same time: an index for what is kept of each.
    #[inline]
    pub fn slot(self) -> usize {
        self.reference.unsigned_abs() as usize
    }

    /// A number that no other program of this slot has had.
    #[inline]
    pub fn serial(self) -> u32 {
        self.serial
    }

    #[cfg(test)]
    pub(crate) fn for_tests(slot: u16, serial: u32) -> Handle {
        Handle { reference: slot.into(), serial, may_keep_lists: true }
    }
}

/// How a script or function ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// With a reply that is no error.
    #[default]
    Value,
    /// With an error as the value that it chose to return.
    Returned(Fault),
    /// By an error: it failed, or was ended.
    Raised(Fault),
}

/// Whose an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The script's own, or Lua's.
    Script,
    /// A command's that it called, and counted there.
    Command,
}

/// Why a script could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The text is not a Lua program. The payload says where and why, as Lua words it.
    #[error("ERR Error compiling script (new function): {0}")]
    Syntax(String),
    /// The state could not be made or is out of memory.
    #[error("ERR Lua: {0}")]
    State(String),
    /// Compiling it takes more memory than scripts may have.
    #[error("ERR Compiling the script takes more than script-memory-limit")]
    TooLarge,
}

/// Why a library could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The text is not a Lua program. The payload says where and why, as Lua words it.
    #[error("ERR Error compiling function: {0}")]
    Syntax(String),
    /// The program failed. The payload is the error that it raised, its code included.
    #[error("ERR Error registering functions: {0}")]
    Failed(String),
}
