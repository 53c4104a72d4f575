//! The bounds of persistence that are not configuration parameters, each with its reason.

use std::time::Duration;

use crate::log::limits::{LOG_BLOCK_MAX_BYTES, SNAPSHOT_FRAME_BYTES};

/// Expected duration of a sync up to which the engine's thread does the sync itself although it has other clients. It
/// is about the cost of handing the sync to another thread, and is compared with the slowest of the recent syncs.
pub const LOG_SYNC_IN_PLACE_MAX: Duration = Duration::from_micros(100);

/// Expected duration of a sync up to which the engine's thread does the sync itself while it has a single client. A
/// longer sync is left to a thread. That costs the client a tenth of its speed at most, and a client that connects
/// during the sync is served.
pub const LOG_SYNC_ALONE_MAX: Duration = Duration::from_millis(1);

/// Bytes of changes and replies that may wait for the disk. With more, the engine waits, too.
pub const LOG_BEHIND_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Interval at which WAITAOF checks whether a sync is done.
pub const LOG_SYNC_RETRY: Duration = Duration::from_millis(2);

/// Bytes of changes that may gather while the snapshot before a new journal is made durable. Tests reach it sooner.
pub const LOG_BEGIN_MAX_BYTES: usize = if cfg!(test) { 8 * 1024 * 1024 } else { LOG_BLOCK_MAX_BYTES / 4 };

/// How long after a failure a snapshot is not retried automatically.
pub const SAVE_RETRY: Duration = Duration::from_secs(5);

/// Number of further failures that each double [`SAVE_RETRY`]: up to about three quarters of an hour.
pub const SAVE_RETRY_DOUBLINGS: u32 = 9;

/// Number of failures that each double [`SAVE_RETRY`] if a journal is to begin behind the snapshot: up to 40 s, because
/// changes exist only in memory until then.
pub const LOG_BEGIN_RETRY_DOUBLINGS: u32 = 3;

/// Approximate bytes of keys that an export to dump.rdb, made from a snapshot, holds until their last change has come;
/// or one part in [`EXPORT_HELD_SHARE`] of the size of all keys, if that is more. For the remaining keys the snapshot
/// is read once more.
pub const EXPORT_HELD_MIN_BYTES: u64 = if cfg!(test) { 1024 * 1024 } else { 16 * 1024 * 1024 };

/// Divisor of the size of all keys: the share of them that an export to dump.rdb may hold at a time. The snapshot is
/// read less than twice this number of times for changing keys, since any two consecutive reads hold more than this
/// share.
pub const EXPORT_HELD_SHARE: u64 = 16;

/// Approximate memory of a key in addition to the bytes of its effects. It is counted where a copied key begins.
pub const EXPORT_KEY_BYTES: usize = 64;

/// Bytes of a snapshot for each bit of the filter that tells which keys change after they were copied: the filter takes
/// a percent of the snapshot's size in memory.
pub const EXPORT_FILTER_SHARE: u64 = 16;

/// Bytes waiting to be written to a snapshot above which it is abandoned: only changes made during the copy can add up
/// to this many. Tests reach it sooner.
pub const SNAPSHOT_GIVE_UP_BYTES: usize = if cfg!(test) { 16 * 1024 * 1024 } else { 256 * 1024 * 1024 };

/// Bytes that a buffer for reading ahead keeps when it is used again.
pub const LOAD_AHEAD_KEEP_BYTES: usize = SNAPSHOT_FRAME_BYTES;

/// Keys of a database for which a start makes room because the journal seems to hold this many. If it does not, the
/// room is freed in one go, and all clients wait for that, so it must not be much.
pub const LOG_EXPECTED_KEYS_MAX: u64 = 4 * 1024 * 1024;

/// Bytes of keys and values that one slice adds to a snapshot sent as RDB, between other work.
pub const TRANSFER_SLICE_BYTES: usize = 64 * 1024;

/// Cost of a key for a slice of a snapshot sent as RDB in addition to its bytes, expressed in bytes.
pub const TRANSFER_KEY_WORK_BYTES: usize = 64;

/// The nodes of a group take turns with their snapshots: each waits for this part more of growth than the one before.
pub const SAVE_TURNS: u64 = 8;

/// How long after the end of a node's reign a client that connects may take it for the leader still: longer than all
/// clients take to hear of the next one.
pub(crate) const LATE_CLIENT_MAX: Duration = Duration::from_secs(10);

/// How long the disk of a leader may take for one write before it hands leadership over: longer than a busy disk takes,
/// and less than clients wait.
pub(crate) const DISK_STUCK_AFTER: Duration = Duration::from_secs(3);

/// Connections that read the feed at a time. Each has a thread, and holds a segment of the journal in
/// memory, while it reads.
pub(crate) const FEED_READERS_MAX: usize = 8;

/// After how long the journal is closed for a reader of the feed that has not asked, or waits; and after how long
/// without a question another connection may take its place. It is opened again for the next part.
pub(crate) const FEED_REST: Duration = Duration::from_secs(10);

/// How often the journal is synced for readers of the feed that wait, with `appendfsync no`.
pub(crate) const FEED_SYNC_EVERY: Duration = Duration::from_secs(1);

/// Bytes of units in one part of the feed, unless the reader says otherwise; and the most that it may ask for, so that
/// sending it holds up no other client. A part ends with a whole block, so it may be larger.
pub(crate) const FEED_PART_BYTES: usize = 1024 * 1024;
pub(crate) const FEED_PART_MAX_BYTES: usize = 8 * 1024 * 1024;
