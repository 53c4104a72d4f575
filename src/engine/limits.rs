//! The bounds of the engine that are not configuration parameters, each with its reason.

use std::time::Duration;

use crate::base::limits::IMPORT_TIMEOUT;
use crate::log::limits::LOAD_PIECE_BYTES;
use crate::resp::limits::{REPLY_MAX_BYTES, REPLY_PAUSE_BYTES};

/// Bytes of replies that an unauthenticated client may leave unread, beyond [`OUTPUT_UNCOUNTED_BYTES`].
pub const UNAUTHENTICATED_MAX_OUTPUT_BYTES: u64 = 1024;

/// Keys that HOTKEYS keeps sums of, for each key that it shows. Tracking more keys than are shown tells keys with
/// nearly equal sums apart.
pub const HOTKEYS_TRACKED_PER_SHOWN: usize = 10;

/// Length in bytes of the longest key that HOTKEYS keeps a sum of: 1,280 such keys take 5 MiB.
pub const HOTKEYS_KEY_MAX_BYTES: usize = 4 * 1024;

/// Bytes of a connection's name that WHO, WHY and EVENTS show.
pub const HISTORY_NAME_MAX_BYTES: usize = 64;

/// Bytes of replies produced for one connection at a time while a script is busy. Errors can be longer than the
/// commands that cause them, so no more are produced until the client has read these.
pub const BUSY_REPLY_PAUSE_BYTES: usize = 64 * 1024;

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

/// Duration after which a slice of active expiry ends, even if it has looked at fewer timers.
pub const EXPIRY_SLICE: Duration = Duration::from_micros(250);

/// Calls waiting for places or for results of ONCE that are served before other tasks run: about 10 ms' worth. The same
/// number limits the calls that time out.
pub const WAITS_SLICE: usize = 1_000;

/// Timed-out calls that a slice handles in any case, however many other calls it serves.
pub const WAITS_SLICE_TIMEOUTS: usize = 100;

/// How long a retry of a waiting call is put off while clients are paused.
pub const PAUSE_LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Keys that one unit of eviction removes before a command. If memory must be freed, a command always evicts one unit,
/// whatever the clock says: the time limit is used up at once if the system gives the core to another process. One unit
/// is enough for the few KiB by which a table or a timer wheel grows.
pub const EVICTION_UNIT_KEYS: usize = 128;

/// Keys that a slice of eviction removes when no command waits for it.
pub const EVICTION_SLICE_KEYS: usize = 16;

/// Bytes of changes, not yet in the journal, at which a unit of eviction ends.
pub const EVICTION_UNIT_BYTES: usize = 64 << 10;

/// How long a slice of eviction may take when no command waits for it.
pub const EVICTION_SLICE: Duration = Duration::from_micros(500);

/// Codes of error replies that are counted separately; scripts can make up any number of codes.
pub const ERROR_CODES_MAX: usize = 128;

/// Bytes of an error code that is counted separately.
pub const ERROR_CODE_MAX_BYTES: usize = 30;

// The rest left for the next large value must be small compared to it.
const _: () = assert!(2 * SEND_REST_MAX_BYTES <= OUTBOX_TAKE_OVER_BYTES);

// Replies that are copied rather than taken over must fit into a chunk with others.
const _: () = assert!(OUTBOX_TAKE_OVER_BYTES <= OUTBOX_CHUNK_BYTES);

// A pipeline must be subject to the limits of output before it pauses.
const _: () = assert!(OUTPUT_UNCOUNTED_BYTES < REPLY_PAUSE_BYTES && REPLY_PAUSE_BYTES < OUTBOX_PAUSE_BYTES);

/// Bytes that one script or transaction may publish while the messages are held until its end.
pub const HELD_MESSAGES_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Keys beyond `tracking-table-max-keys` that one command, transaction or script may add to the table of cached keys.
/// If it adds more, all caching clients are told to drop everything.
pub const TRACKED_KEYS_OVERRUN: usize = 1_000_000;

/// Keys removed at a time from an overfull table of cached keys. Each consecutive time that this was not enough adds as
/// many again.
pub const TRACKING_LIMIT_KEYS_AT_ONCE: usize = 100;

/// Bytes of lines held for MONITOR's clients until a script or transaction is over. If there are more, the lines can't
/// be shown, and these clients are disconnected.
pub const HELD_LINES_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that a debugger's client may leave unread before the server stops reading from it.
pub const DEBUG_UNSENT_MAX_BYTES: usize = 1024 * 1024;

/// Bytes of one command for the debugger: as in Redis.
pub const DEBUG_COMMAND_MAX_BYTES: usize = 1024 * 1024;

/// Bytes shown by ACL LOG of each name that a client has given itself.
pub const ACL_LOG_MAX_NAME_BYTES: usize = 512;

/// Seconds for which LATENCY keeps a sample of each event.
pub const LATENCY_SAMPLES_MAX: usize = 160;

/// How long one command may run before the server is not ready, in ms, unless `busy-reply-threshold` says less or more.
pub const READY_PATIENCE_MS: u64 = 5_000;

/// Approximate bytes of effects that a start loads at a time. Clients get replies between two slices.
pub const RECOVERY_SLICE_BYTES: usize = 256 * 1024;

/// Keys that a start looks up together, so that the cache misses of finding their places overlap. The parts of their
/// values that were fetched in the meantime are then still in the cache.
pub const LOAD_AHEAD_KEYS: usize = 16;

/// Bytes of pieces read ahead of a start beyond which nothing more is read: enough that neither thread waits for the
/// other each time that it is interrupted.
pub const LOAD_AHEAD_BYTES: usize = 8 * LOAD_PIECE_BYTES;

/// How long a script of an import may run if `script-time-limit` sets no limit: no operator is there to end it, and a
/// start would never end. It is less than [`IMPORT_TIMEOUT`], so that the import
/// hears the reason.
pub const IMPORT_SCRIPT_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(IMPORT_SCRIPT_MAX.as_secs() < IMPORT_TIMEOUT.as_secs());

/// Bytes of a snapshot sent as RDB that may wait for a slow reader. With more, the next slice waits. One large value
/// may exceed the limit.
pub const TRANSFER_AHEAD_BYTES: usize = 1024 * 1024;
