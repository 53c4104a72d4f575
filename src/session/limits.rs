//! The bounds of sessions and their unsent replies that are not configuration parameters, each with its reason.

use std::time::Duration;

use crate::resp::limits::{REPLY_MAX_BYTES, REPLY_PAUSE_BYTES};

/// Bytes of replies that an unauthenticated client may leave unread, beyond [`OUTPUT_UNCOUNTED_BYTES`].
pub const UNAUTHENTICATED_MAX_OUTPUT_BYTES: u64 = 1024;

/// Unsent bytes up to which `client-output-buffer-limit` does not apply: the size of a client's buffer in Redis.
pub const OUTPUT_UNCOUNTED_BYTES: usize = 16 * 1024;

/// Bytes of unsent replies beyond which a client is not read from until it has read some of them.
pub const OUTBOX_PAUSE_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of unsent replies of all clients together beyond which clients that hold more than their share are not read
/// from, and commands that read run only if their reply fits the [least share](OUTBOX_LEAST_SHARE_BYTES). Only replies
/// of commands that write, EXEC and scripts go on beyond it, up to [`OUTBOX_TOTAL_MAX_BYTES`].
pub const OUTBOX_TOTAL_PAUSE_BYTES: usize = 4 * OUTBOX_PAUSE_BYTES;

/// Bytes of unsent replies of all clients together beyond which the client that holds most is closed at once: two of
/// the [longest replies](crate::resp::limits::REPLY_MAX_BYTES).
pub const OUTBOX_TOTAL_MAX_BYTES: usize = 2 * REPLY_MAX_BYTES;

/// How long a command waits for other clients to read before the client that holds most is closed.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of replies that each client may leave unread, however much other clients hold: a client that sends a whole
/// pipeline before it reads must not wait for others.
pub const OUTBOX_LEAST_SHARE_BYTES: usize = 1024 * 1024;

/// Bytes of one chunk of unsent replies that were copied together. The size bounds the unused part of a chunk, and the
/// memory kept for a chunk that is nearly sent.
pub const OUTBOX_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes sent to one client at a time before other connections have their turn.
pub const SEND_SLICE_BYTES: usize = 1024 * 1024;

/// Bytes that are left over for the next send, if that follows right away, instead of going in a packet of their own:
/// copying them costs far less than a packet.
pub const SEND_REST_MAX_BYTES: usize = 4 * 1024;

/// Fences kept for the unsent replies of a client. With more, some replies wait for a later unit of the journal than
/// the one that they show.
pub const OUTBOX_FENCES_MAX: usize = 64;

/// Size in bytes from which replies are sent without a copy, and without waiting for the connection's next turn.
pub const OUTBOX_TAKE_OVER_BYTES: usize = 32 * 1024;

/// How long one command may hold the engine before the text log names it: far above any honest command, and far below
/// the patience of clients.
pub const STALL_WARNING: Duration = Duration::from_secs(1);

// The rest left for the next large value must be small compared to it.
const _: () = assert!(2 * SEND_REST_MAX_BYTES <= OUTBOX_TAKE_OVER_BYTES);

// Replies that are copied rather than taken over must fit into a chunk with others.
const _: () = assert!(OUTBOX_TAKE_OVER_BYTES <= OUTBOX_CHUNK_BYTES);

// A pipeline must be subject to the limits of output before it pauses.
const _: () = assert!(OUTPUT_UNCOUNTED_BYTES < REPLY_PAUSE_BYTES && REPLY_PAUSE_BYTES < OUTBOX_PAUSE_BYTES);

/// Bytes of a snapshot sent as RDB that may wait for a slow reader. With more, the next slice waits. One large value
/// may exceed the limit.
pub const TRANSFER_AHEAD_BYTES: usize = 1024 * 1024;
