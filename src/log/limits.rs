//! The bounds of the journal that are not configuration parameters, each with its reason.

use std::time::Duration;

use crate::base::limits::SCRATCH_KEEP_BYTES;

/// Bytes of a segment of the journal: the size of one prefilled file, the steps in which a cut frees space, and what a
/// reader of the journal holds in memory.
pub const LOG_SEGMENT_BYTES: u64 = 32 * 1024 * 1024;

/// Bytes that a reader of the journal reads at once of what was written since it looked last. Tests reach it sooner.
pub const LOG_READ_ON_BYTES: usize = if cfg!(test) { 8 * 1024 } else { 8 * 1024 * 1024 };

/// Bytes of the segment that a start begins with. It is small because it is filled with zeros before the first client
/// is served.
pub const LOG_FIRST_SEGMENT_BYTES: u64 = 1024 * 1024;

/// Factor by which a segment prepared ahead is longer than the one before, up to [`LOG_SEGMENT_BYTES`]. The first
/// segments are ready soon, and a journal that hardly grows takes little space.
pub const LOG_SEGMENT_GROWTH: u64 = 4;

/// Bytes of a segment that are filled with zeros and synced at once. A sync of the journal may have to wait for them.
pub const LOG_FILL_BYTES: u64 = if cfg!(test) { 16 * 1024 } else { 1024 * 1024 };

/// Pause after filling a piece of a segment, as a multiple of the time that it took. The pause leaves the disk to
/// others, and is skipped while no segment is ready.
pub const LOG_FILL_PAUSE: u32 = 3;

/// Segments kept ready, so that the journal moves to the next one without creating a file.
pub const LOG_PREPARED_SEGMENTS: usize = 2;

/// Segments kept for reuse when a cut frees more than are wanted; the others are removed.
pub const LOG_PREPARED_MAX_SEGMENTS: usize = 4;

/// Bytes that must be left in prepared segments when no further segment can be made. With less, writes are refused, so
/// that units already executed still find room.
pub const LOG_RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// Size in bytes up to which units handed over in several turns are merged into one block.
pub const LOG_MERGE_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of one block. Its length is 32 bits wide, and twice
/// [`UNIT_MAX_BYTES`](crate::keyspace::limits::UNIT_MAX_BYTES) is far below that.
pub const LOG_BLOCK_MAX_BYTES: usize = 2 * 1024 * 1024 * 1024;

/// Number of spare buffers that the journal keeps.
pub const LOG_SPARE_BUFFERS: usize = 4;

/// Bytes that each spare buffer of the journal may keep allocated.
pub const LOG_SPARE_MAX_BYTES: usize = SCRATCH_KEEP_BYTES;

/// How long the journal waits on a full disk before it tries again.
pub const LOG_FULL_RETRY: Duration = Duration::from_millis(200);

/// Bytes of effects that a snapshot copies in one slice, between other work.
pub const SAVE_SLICE_BYTES: usize = 64 * 1024;

/// Bytes of units in one frame of a snapshot: enough to compress well, and few enough to be read and applied in one go.
pub const SNAPSHOT_FRAME_BYTES: usize = 256 * 1024;

/// Bytes of a snapshot's frame, compressed or not, in any version of the format. It bounds the memory that a damaged
/// length can make a reader allocate.
pub const SNAPSHOT_FRAME_MAX_BYTES: usize = 4 * SNAPSHOT_FRAME_BYTES;

/// Bytes of a snapshot after which they are synced: a single sync at the end, of gigabytes, would hold up the syncs of
/// the journal.
pub const SNAPSHOT_SYNC_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes waiting to be written to a snapshot above which no more is copied.
pub const SNAPSHOT_PAUSE_BYTES: usize = 4 * 1024 * 1024;

/// Bytes waiting to be written to a snapshot above which its writing thread no longer gives way to others. Tests reach
/// it sooner.
pub const SNAPSHOT_HURRY_BYTES: usize = if cfg!(test) { 6 * 1024 * 1024 } else { 16 * 1024 * 1024 };

/// Approximate bytes of a piece that is read ahead of a start, counting effects and decoded keys with everything that
/// belongs to them: some thousand short keys. Only a single effect can make a piece longer.
pub const LOAD_PIECE_BYTES: usize = 512 * 1024;

/// Interval of the syncs of `appendfsync everysec`.
pub const LOG_EVERY_SEC: Duration = Duration::from_secs(1);
