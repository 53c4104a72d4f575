//! The bounds of scripts and functions that are not configuration parameters, each with its reason.

use std::time::Duration;

/// Bytes of the message in `redis.log`.
pub const LOG_SCRIPT_MESSAGE_MAX_BYTES: usize = 1024;

/// How long loading a library of functions may take: as in Redis.
pub const LIBRARY_LOAD_MAX: Duration = Duration::from_millis(500);

/// Arguments kept of an exceptional command, and of a slow call of a script: as many as Redis' SLOWLOG keeps.
pub const COMMAND_LOG_MAX_ARGS: usize = 32;

/// Bytes kept of each argument of an exceptional command, and of a slow call of a script.
pub const COMMAND_LOG_MAX_ARG_BYTES: usize = 128;

/// Commands that the trail of a slow call keeps: the slowest of them.
pub const SCRIPT_TRAIL_MAX_STEPS: usize = 32;

/// Arguments kept of a command in the trail of a slow call, its name included.
pub const SCRIPT_TRAIL_MAX_ARGS: usize = 6;

/// Bytes kept of each argument in the trail of a slow call.
pub const SCRIPT_TRAIL_MAX_ARG_BYTES: usize = 64;

/// Bytes of a script that SCRIPT LINT analyses: its tree takes some fifty times as much.
pub const SCRIPT_LINT_MAX_BYTES: usize = 1024 * 1024;

/// Bytes that SCRIPT TRACE keeps of a script's calls and their replies. Further calls are only counted.
pub const SCRIPT_TRACE_MAX_BYTES: usize = 16 * 1024 * 1024;
