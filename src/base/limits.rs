//! Every bound of the server that is not a configuration parameter stands here, with its reason.

/// Arguments one command may declare. Redis refuses counts past the largest `int`.
pub const MULTIBULK_MAX_ARGS: i64 = i32::MAX as i64;

/// Arguments a client may declare before it has authenticated, in a server with a password.
pub const UNAUTHENTICATED_MAX_ARGS: i64 = 10;

/// Bytes of one argument before the client has authenticated.
pub const UNAUTHENTICATED_MAX_BULK_BYTES: usize = 16 * 1024;

/// Bytes of an inline command, or of a line that gives a length, before its newline must come.
pub const INLINE_MAX_BYTES: usize = 64 * 1024;

/// Bytes that one command may take in all, whatever `client-query-buffer-limit` says: argument offsets are 32-bit.
pub const QUERY_BUFFER_HARD_MAX_BYTES: usize = u32::MAX as usize - 64 * 1024;

/// Bytes read from a socket at once. Large enough for a pipeline of a few hundred commands, small enough to stay in L2.
pub const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes of replies after which a pipeline pauses until they are written: bounds what a client that sends much and reads
/// nothing can make the server hold, to this plus the reply of one command.
pub const REPLY_PAUSE_BYTES: usize = 1024 * 1024;

/// Bytes of unsent replies beyond which nothing more is read from a client until it has read some of them.
pub const OUTBOX_PAUSE_BYTES: usize = 64 * 1024 * 1024;

const _: () = {
    // A command that is allowed must be addressable.
    assert!(QUERY_BUFFER_HARD_MAX_BYTES + INLINE_MAX_BYTES <= u32::MAX as usize);
};
