//! Every bound of the server that is not a configuration parameter and that several folders share, with its reason. A
//! bound that one folder uses, or that the folders above it import, is in the `limits.rs` of that folder.

use std::time::Duration;

/// Total size of one command in bytes, whatever `client-query-buffer-limit` says: argument offsets are 32-bit.
pub const QUERY_BUFFER_HARD_MAX_BYTES: usize = u32::MAX as usize - 64 * 1024;

/// Bytes of a line in the log, after its time and level. The line may contain text from clients.
pub const LOG_LINE_MAX_BYTES: usize = 4 * 1024;

/// Lines that one place in the program may log per minute, since clients can cause most of them, sometimes without
/// authentication.
pub const LOG_LINES_A_MINUTE: u64 = 200;

/// Lines that `redis.log` may log per minute, at each of its levels.
pub const LOG_SCRIPT_LINES_A_MINUTE: u64 = 1_000;

/// Bytes shown of the first line suppressed because of [`LOG_LINES_A_MINUTE`], in addition to the number of such lines.
pub const LOG_REPEATED_MAX_BYTES: usize = 200;

/// Bytes of lines that wait for the thread that writes the log. Lines beyond that are lost.
pub const LOG_QUEUE_MAX_BYTES: usize = 1024 * 1024;

/// How long the end of the process waits for one line to be written.
pub const LOG_END_PATIENCE: Duration = Duration::from_secs(1);

/// How long reporting a bug that ends the process may take, in seconds.
pub const PANIC_REPORT_MAX_S: u32 = 5;

/// Bytes read from a socket at once: enough for a pipeline of a few hundred commands, and little enough to stay in L2.
pub const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Descriptors for everything but clients: standard streams, listeners, tokio, a file or two.
pub const DESCRIPTORS_RESERVED: u64 = 32;

/// Descriptors for the connections to `metrics-port`, if it is open.
pub const METRICS_DESCRIPTORS: u32 = 80;

/// Descriptors for the connections to `console-port`, if it is open, and for the console's connections to the engine.
pub const CONSOLE_DESCRIPTORS: u32 = 1_120;

/// Files in a folder of certificates: ten times as many as the system's usual trust store.
pub const TLS_CA_FILES_MAX: usize = 4_096;

/// Bytes of one file of certificates or keys.
pub const TLS_FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Size in bytes from which the system itself provides a block, and takes it back as soon as it is freed. Freeing this
/// many bytes takes some 4 ms, a quarter of the time that it took to fill them.
pub const HUGE_BLOCK_BYTES: usize = 64 * 1024 * 1024;

/// Freed bytes from which memory is returned to the system at once.
pub const GIVE_BACK_BYTES: u64 = 32 * 1024 * 1024;

/// Divisor of the allocated bytes: memory is returned at once only if at least this share of them was freed, because
/// the work grows with the memory in use.
pub const GIVE_BACK_SHARE: u64 = 8;

/// Bytes that must have been freed or added before any memory is returned.
pub const GIVE_BACK_LEAST_BYTES: u64 = 4 * 1024 * 1024;

/// Divisor of the allocated bytes: no memory is returned before this share of them was freed, because the engine's
/// thread must visit each page that is partly in use.
pub const GIVE_BACK_LEAST_SHARE: u64 = 128;

/// How long freed memory below [`GIVE_BACK_BYTES`] is kept, in ms, since it may be needed again.
pub const GIVE_BACK_PAUSE_MS: i64 = 1_000;

/// How long memory is kept while freeing goes on, in ms, so that the memory of a million keys that expire within one
/// second goes back in one go.
pub const GIVE_BACK_PATIENCE_MS: i64 = 2_000;

/// Runs of stars in a glob that the matcher follows. A pattern with more matches nothing, as in Redis.
pub const GLOB_MAX_STARS: usize = 1_000;

/// Size in bytes from which a snapshot copies a value in parts. A smaller value is copied at once, in a small part of a
/// millisecond.
pub const SNAPSHOT_PART_MIN_BYTES: usize = 64 * 1024;

/// Size in bytes from which a buffer used only once is not kept for later: a buffer of the journal, a script's list of
/// arguments, a reply that became Lua values. Other buffers, which are used again and again, release all of their
/// memory `hz` times a second.
pub const SCRATCH_KEEP_BYTES: usize = 64 * 1024;

/// Bytes of one reply that this program reads as a client when it expects no value: a status, an error, a few numbers.
pub const CLIENT_STATUS_MAX_BYTES: usize = 1024 * 1024;

/// Items in the lists of one reply: the replies inside EXEC, after the longest transaction that an import sends.
pub const CLIENT_REPLY_MAX_ITEMS: usize = 1 << 23;

/// Nesting of lists in one reply. EXEC with the replies of its commands has four or five.
pub const CLIENT_REPLY_MAX_DEPTH: usize = 8;

/// Bytes of one reply that an export waits for: a complete value, or libraries.
pub const EXPORT_REPLY_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Interval at which a long import or export reports its progress.
pub const IMPORT_PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// The lowest rate of a backup, in bytes a second. A reply of the feed is read at once and waited for afterwards: a
/// megabyte then takes 8 s, a longer block as much more.
pub const BACKUP_RATE_MIN: u64 = 128 * 1024;

/// How long a server may be silent before an import gives it up: a primary sends something every ten seconds.
pub const IMPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// Keys that an export asks for at a time.
pub const EXPORT_PAGE_KEYS: usize = 500;
