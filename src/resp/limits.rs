//! The bounds of the protocol that are not configuration parameters, each with its reason.

use crate::base::limits::QUERY_BUFFER_HARD_MAX_BYTES;

/// Largest number of arguments that a command may declare. Redis refuses counts beyond the largest `int`.
pub const MULTIBULK_MAX_ARGS: i64 = i32::MAX as i64;

/// Largest number of arguments that a client may declare before it has authenticated, on a server with a password.
pub const UNAUTHENTICATED_MAX_ARGS: i64 = 10;

/// Size of one argument in bytes before the client has authenticated.
pub const UNAUTHENTICATED_MAX_BULK_BYTES: usize = 16 * 1024;

/// Bytes of an inline command, or of a line that states a length, by which its newline must come.
pub const INLINE_MAX_BYTES: usize = 64 * 1024;

/// Bytes of replies after which a pipeline pauses: they are sent, and other connections have their turn. This few are
/// still in the processor's cache when they are sent.
pub const REPLY_PAUSE_BYTES: usize = 64 * 1024;

/// Bytes of one reply, which is built in memory: the longest string that clients may store by default. A larger
/// `proto-max-bulk-len` raises it. One command can ask for the same value many times.
pub const REPLY_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Bytes of a reply allowed beyond the longest string: for its frame, a key, the fields with it.
pub const REPLY_FRAME_BYTES: usize = 1024 * 1024;

// A command of the allowed size must be addressable.
const _: () = assert!(QUERY_BUFFER_HARD_MAX_BYTES + INLINE_MAX_BYTES <= u32::MAX as usize);
