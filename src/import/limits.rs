//! The bounds of imports and exports that are not configuration parameters, each with its reason.

use std::time::Duration;

/// Bytes that a key takes in RDB at least: its type, an empty name and an empty value.
pub const RDB_KEY_MIN_BYTES: u64 = 3;

/// Approximate bytes of a foreign file that a start loads at a time: reading them takes longer than reading effects.
pub const BULK_SLICE_BYTES: usize = 64 * 1024;

/// Bytes of the replies to one transaction of an import. The replies may contain values that its commands removed.
pub const IMPORT_REPLY_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Kinds of things left out by an import that are reported one by one; others are only counted.
pub const IMPORT_LEFT_OUT_MAX_KINDS: usize = 100;

/// Bytes of requests that an import sends before it reads the replies to the previous ones: two such windows are under
/// way.
pub const IMPORT_WINDOW_BYTES: usize = 256 * 1024;

/// Commands of an imported stream that are applied as one transaction, after which the next one begins.
pub const IMPORT_BATCH_COMMANDS: usize = 1_000;

/// Bytes of the commands of an imported stream that are applied as one transaction.
pub const IMPORT_BATCH_BYTES: usize = 1024 * 1024;

/// Bytes of one transaction in an imported stream, which is held until its end has come.
pub const IMPORT_UNIT_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Interval at which a follower reports its progress to the primary.
pub const IMPORT_ACK_EVERY: Duration = Duration::from_secs(1);

/// How long a follower waits for commands before it attends to its operator and the clock.
pub const IMPORT_POLL: Duration = Duration::from_millis(100);

/// Bytes of changes in one reply below which the new server counts as up to date: applying them takes a few
/// milliseconds.
pub const HANDOVER_NEAR_BYTES: usize = 256 * 1024;

/// Bytes of changes that are applied together; they happen together, too.
pub const HANDOVER_PIECE_BYTES: usize = 1024 * 1024;

/// How often in a row the new server is filled again. Each time costs it as much disk as there is data.
pub const HANDOVER_REFILLS_MAX: u32 = 5;

/// How long a follower waits before it reconnects to a primary that is gone.
pub const IMPORT_RETRY: Duration = Duration::from_secs(1);

/// Bytes of a line in which a primary replies.
pub const IMPORT_LINE_MAX_BYTES: usize = 64 * 1024;
