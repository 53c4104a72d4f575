//! Programs, their runs, and the outcomes of runs.

use std::ffi::c_int;

use crate::resp::request::Argv;

/// A script's name: the SHA-1 of its text as 40 lower-case hexadecimal digits.
pub type Sha1Hex = [u8; 40];

/// A compiled script or a library's function. The state keeps it until [`Vm::release`](super::Vm::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(super) reference: c_int,
    /// Distinguishes programs that have used a slot one after the other.
    pub(super) serial: u32,
    /// It might change or keep the tables KEYS and ARGV.
    pub(super) may_keep_lists: bool,
}

/// One run of a script or function.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    /// The program to run.
    pub program: Handle,
    /// How the program gets its keys and arguments.
    pub passing: Passing,
    /// Its name in errors: a script's SHA-1, or a function's name.
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
    /// A small number, unique among existing programs: an index for data kept about each.
    #[inline]
    pub fn slot(self) -> usize {
        self.reference.unsigned_abs() as usize
    }

    /// A number that no earlier program of this slot has had.
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
    /// With a reply that is not an error.
    #[default]
    Value,
    /// By returning an error as its value.
    Returned(Fault),
    /// By a raised error: it failed, or was ended.
    Raised(Fault),
}

/// The origin of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The script itself, or Lua.
    Script,
    /// A command that the script called. The error has been counted there.
    Command,
}

/// Why a script could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The text is not a Lua program. The payload is Lua's message, with the position.
    #[error("ERR Error compiling script (new function): {0}")]
    Syntax(String),
    /// The state could not be created or is out of memory.
    #[error("ERR Lua: {0}")]
    State(String),
    /// Its compilation needs more memory than scripts may have.
    #[error("ERR Compiling the script takes more than script-memory-limit")]
    TooLarge,
}

/// Why a library could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The text is not a Lua program. The payload is Lua's message, with the position.
    #[error("ERR Error compiling function: {0}")]
    Syntax(String),
    /// The program failed. The payload is the error that it raised, with its code.
    #[error("ERR Error registering functions: {0}")]
    Failed(String),
}
