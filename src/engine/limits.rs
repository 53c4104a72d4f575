//! The bounds of the engine that are not configuration parameters, each with its reason.

use std::time::Duration;

use crate::base::limits::IMPORT_TIMEOUT;
use crate::log::limits::LOAD_PIECE_BYTES;

/// Bytes of a connection's name that WHO, WHY and EVENTS show.
pub const HISTORY_NAME_MAX_BYTES: usize = 64;

/// Bytes of a user's name in a line of the audit. A client that is refused chooses it.
pub const AUDIT_NAME_MAX_BYTES: usize = 128;

/// Bytes of replies produced for one connection at a time while a script is busy. Errors can be longer than the
/// commands that cause them, so no more are produced until the client has read these.
pub const BUSY_REPLY_PAUSE_BYTES: usize = 64 * 1024;

/// Duration after which a slice of active expiry ends, even if it has looked at fewer timers.
pub const EXPIRY_SLICE: Duration = Duration::from_micros(250);

/// Calls waiting for places or for results of ONCE that are served before other tasks run: about 10 ms' worth. The same
/// number limits the calls that time out.
pub const WAITS_SLICE: usize = 1_000;

/// Timed-out calls that a slice handles in any case, however many other calls it serves.
pub const WAITS_SLICE_TIMEOUTS: usize = 100;

/// How long a retry of a waiting call is put off while clients are paused.
pub const PAUSE_RETRY: Duration = Duration::from_millis(100);

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

/// How long a node must be out of reach before clients of Sentinel are told that it is down, in ms: as long as the
/// nodes wait at most before they elect another leader.
pub const DOWN_AFTER_MS: i64 = 300;

/// How often the other nodes are looked at for clients of Sentinel, in ms. A new leader is noticed at once.
pub const GROUP_WATCH_EVERY_MS: i64 = 50;

/// How long one command may run before the server is not ready, in ms, unless `busy-reply-threshold` says less or more.
pub const READY_PATIENCE_MS: u64 = 5_000;

/// Approximate bytes of effects that a start loads at a time. Clients get replies between two slices.
pub const RECOVERY_SLICE_BYTES: usize = 256 * 1024;

/// Keys that a start, or a node that follows, looks up together, so that the cache misses of finding their places
/// overlap. The parts of their values that were fetched in the meantime are then still in the cache.
pub const LOAD_AHEAD_KEYS: usize = 16;

/// Bytes of pieces read ahead of a start beyond which nothing more is read: enough that neither thread waits for the
/// other each time that it is interrupted.
pub const LOAD_AHEAD_BYTES: usize = 8 * LOAD_PIECE_BYTES;

/// How long a script of an import may run if `script-time-limit` sets no limit: no operator is there to end it, and a
/// start would never end. It is less than [`IMPORT_TIMEOUT`], so that the import
/// hears the reason.
pub const IMPORT_SCRIPT_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(IMPORT_SCRIPT_MAX.as_secs() < IMPORT_TIMEOUT.as_secs());
