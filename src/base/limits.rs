//! Every bound of the server that is not a configuration parameter, with its reason.

use std::time::Duration;

/// Largest number of arguments that a command may declare. Redis refuses counts beyond the largest `int`.
pub const MULTIBULK_MAX_ARGS: i64 = i32::MAX as i64;

/// Largest number of arguments that a client may declare before it has authenticated, on a server with a password.
pub const UNAUTHENTICATED_MAX_ARGS: i64 = 10;

/// Size of one argument in bytes before the client has authenticated.
pub const UNAUTHENTICATED_MAX_BULK_BYTES: usize = 16 * 1024;

/// Bytes of replies that an unauthenticated client may leave unread, beyond [`OUTPUT_UNCOUNTED_BYTES`].
pub const UNAUTHENTICATED_MAX_OUTPUT_BYTES: u64 = 1024;

/// Bytes of an inline command, or of a line that states a length, by which its newline must come.
pub const INLINE_MAX_BYTES: usize = 64 * 1024;

/// Total size of one command in bytes, whatever `client-query-buffer-limit` says: argument offsets are 32-bit.
pub const QUERY_BUFFER_HARD_MAX_BYTES: usize = u32::MAX as usize - 64 * 1024;

/// Keys that HOTKEYS keeps sums of, for each key that it shows. Tracking more keys than are shown tells keys with
/// nearly equal sums apart.
pub const HOTKEYS_TRACKED_PER_SHOWN: usize = 10;

/// Length in bytes of the longest key that HOTKEYS keeps a sum of: 1,280 such keys take 5 MiB.
pub const HOTKEYS_KEY_MAX_BYTES: usize = 4 * 1024;

/// Grants given or ended that WHO, WHY and EVENTS remember, and as many refused calls. Both together take some 500 KiB,
/// and 10 MiB if all names have the greatest length.
pub const HISTORY_PLACES: usize = 1_024;

/// Length in bytes of the longest key whose grants WHO, WHY and EVENTS remember.
pub const HISTORY_KEY_MAX_BYTES: usize = 1_024;

/// Key prefixes by which metrics tell grants apart. Each grant is compared with every prefix.
pub const METRICS_PREFIXES_MAX: usize = 32;

/// Length in bytes of one of the key prefixes by which metrics tell grants apart.
pub const METRICS_PREFIX_MAX_BYTES: usize = 128;

/// Bytes of a connection's name that WHO, WHY and EVENTS show.
pub const HISTORY_NAME_MAX_BYTES: usize = 64;

/// Keys of all databases together that INFO keysizes looks at. This blocks other clients for a few milliseconds, and a
/// sample of this size is accurate to within a hundredth.
pub const KEY_SIZES_MAX_KEYS: usize = 32_768;

/// Bytes of a line in the log, after its time and level. The line may contain text from clients.
pub const LOG_LINE_MAX_BYTES: usize = 4 * 1024;

/// Bytes of the message in `redis.log`.
pub const LOG_SCRIPT_MESSAGE_MAX_BYTES: usize = 1024;

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

/// Bytes read from a socket at once, including the part already received, while a large command is known to be
/// incomplete.
pub const READ_LARGE_BYTES: usize = 256 * 1024;

/// Bytes of an unfinished command that can be placed in front of the next read. A longer part stays where it is kept,
/// and the bytes read are appended to it.
pub const READ_BEHIND_BYTES: usize = 128 * 1024;

/// Bytes of one connection beyond which an I/O thread receives nothing more ahead of the engine's thread; it may hold
/// one [`READ_CHUNK_BYTES`] more. This is also the number of bytes that the engine's thread hands to an I/O thread
/// before the socket takes them.
pub const RELAY_BYTES: usize = READ_CHUNK_BYTES;

/// Value used in place of [`RELAY_BYTES`] once all connections together hold more than [`RELAY_TOTAL_BYTES`] in buffers
/// of I/O threads. Each connection may still add this many bytes.
pub const RELAY_LEAST_BYTES: usize = 16 * 1024;

/// Bytes in the buffers of all I/O threads' connections beyond which each gets only [`RELAY_LEAST_BYTES`].
pub const RELAY_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// Size in bytes up to which a buffer does not count towards [`RELAY_TOTAL_BYTES`]: most requests and replies are
/// shorter.
pub const RELAY_UNCOUNTED_BYTES: usize = 4 * 1024;

/// Bytes of a relay buffer that a connection keeps while the buffer is empty.
pub const RELAY_KEPT_BYTES: usize = 256;

/// Descriptors of an I/O thread: one to wait with, and one to wake the thread.
pub const IO_THREAD_DESCRIPTORS: u32 = 2;

/// Events that an I/O thread takes from the system at a time.
pub const IO_EVENTS_MAX: usize = 256;

/// Bytes read at a time from one of the connections served while a script is busy.
pub const BUSY_READ_CHUNK_BYTES: usize = 16 * 1024;

/// Bytes of replies produced for one connection at a time while a script is busy. Errors can be longer than the
/// commands that cause them, so no more are produced until the client has read these.
pub const BUSY_REPLY_PAUSE_BYTES: usize = 64 * 1024;

/// Descriptors for everything but clients: standard streams, listeners, tokio, a file or two.
pub const DESCRIPTORS_RESERVED: u64 = 32;

/// How long a TLS handshake may take: several round trips on the worst of networks. The client has not authenticated
/// yet.
pub const TLS_HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Unfinished TLS handshakes at a time, each of some 10 to 20 KiB. One more closes the oldest: honest handshakes are
/// over in moments.
pub const TLS_HANDSHAKES_MAX: usize = 1_000;

/// Bytes that an idle TLS connection takes beyond a plain one: its keys and rustls' buffers, as measured on x86-64.
pub const TLS_CONNECTION_BYTES: u32 = 9 * 1024;

/// Bytes of ciphertext read at a time from a TLS connection: two records of the largest size.
pub const TLS_READ_CHUNK_BYTES: usize = 32 * 1024;

/// Reads from a TLS connection's socket in one turn that bring no data for the session, as in a handshake.
pub const TLS_FRUITLESS_READS_MAX: usize = 8;

/// Encrypted but unsent bytes of one client. They are held beside their plaintext, so TLS at most doubles the memory
/// for unread replies.
pub const TLS_UNSENT_MAX_BYTES: usize = 64 * 1024;

/// TLS sessions remembered for resumption, whatever `tls-session-cache-size` allows: some 1 KiB each, more with client
/// certificates.
pub const TLS_SESSIONS_MAX: usize = 1 << 20;

/// Bytes of one file of certificates or keys.
pub const TLS_FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Files in a folder of certificates: ten times as many as the system's usual trust store.
pub const TLS_CA_FILES_MAX: usize = 4_096;

/// Connections accepted at a time from one listener while a script is busy, so that existing connections get their
/// turn.
pub const BUSY_ACCEPTS_MAX: usize = 1_000;

/// Bytes of replies after which a pipeline pauses: they are sent, and other connections have their turn. This few are
/// still in the processor's cache when they are sent.
pub const REPLY_PAUSE_BYTES: usize = 64 * 1024;

/// Unsent bytes up to which `client-output-buffer-limit` does not apply: the size of a client's buffer in Redis.
pub const OUTPUT_UNCOUNTED_BYTES: usize = 16 * 1024;

/// Bytes of unsent replies beyond which a client is not read from until it has read some of them.
pub const OUTBOX_PAUSE_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of unsent replies of all clients together beyond which clients that hold more than their share are not read
/// from, and commands that read run only if their reply fits the [least share](OUTBOX_LEAST_SHARE_BYTES). Only replies
/// of commands that write, EXEC and scripts go on beyond it, up to [`OUTBOX_TOTAL_MAX_BYTES`].
pub const OUTBOX_TOTAL_PAUSE_BYTES: usize = 4 * OUTBOX_PAUSE_BYTES;

/// Bytes of unsent replies of all clients together beyond which the client that holds most is closed at once: two of
/// the [longest replies](REPLY_MAX_BYTES).
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

/// Entries of a compact hash, set, sorted set or list, whatever the parameters allow; fields and values of a hash count
/// separately. Most commands walk over all entries. Integers that are kept in order are not counted.
pub const COMPACT_MAX_ENTRIES: usize = u16::MAX as usize;

/// Elements up to which a collection is freed at once, in some 30 us, and not on another thread.
pub const FREE_AT_ONCE_ELEMENTS: usize = 1000;

/// Bytes up to which a string is freed at once, and not on another thread.
pub const FREE_AT_ONCE_BYTES: usize = 1024 * 1024;

/// Bytes of all packed strings of one RDB value after unpacking, and of the names that its stream entries share: twice
/// the longest string. A payload can't take more memory than clients can honestly fill with a few commands.
pub const RDB_UNPACKED_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Entries of one listpack, ziplist or zipmap of an RDB value. They are listed before a value is built from them, and
/// the list takes twelve times the bytes of the smallest entries. Redis makes far shorter ones.
pub const RDB_PACKED_MAX_ITEMS: usize = 1 << 22;

/// Bytes of one value in an imported file or stream: the most that RESTORE takes with the default `proto-max-bulk-len`,
/// less the framing.
pub const RDB_VALUE_MAX_BYTES: usize = 512 * 1024 * 1024 - 64;

/// Bytes of an RDB file gathered before they are written.
pub const RDB_WRITE_BYTES: usize = 256 * 1024;

/// Bytes of an RDB file read at a time.
pub const RDB_READ_BYTES: usize = 256 * 1024;

/// Bytes of one reply that MIGRATE reads from the other server: a status or an error.
pub const MIGRATE_REPLY_MAX_BYTES: usize = 64 * 1024;

/// Bytes that MIGRATE sends within one timeout, as in Redis.
pub const MIGRATE_PIECE_BYTES: usize = 64 * 1024;

/// How long one MIGRATE may take in all, whatever its timeout, which applies to each step: no other client is served
/// during a MIGRATE.
pub const MIGRATE_MAX: Duration = Duration::from_secs(60);

/// How long one command may hold the engine before the text log names it: far above any honest command, and far below
/// the patience of clients.
pub const STALL_WARNING: Duration = Duration::from_secs(1);

/// Runs of stars in a glob that the matcher follows. A pattern with more matches nothing, as in Redis.
pub const GLOB_MAX_STARS: usize = 1_000;

/// Depth of configuration files that include one another. Deeper nesting must be a circle.
pub const INCLUDE_MAX_DEPTH: usize = 16;

/// Timers that one slice of active expiry looks at before other tasks run, and expired keys that one step of SCAN
/// removes.
pub const EXPIRY_SLICE_TIMERS: usize = 250;

/// Duration after which a slice of active expiry ends, even if it has looked at fewer timers.
pub const EXPIRY_SLICE: Duration = Duration::from_micros(250);

/// Timers, or removed elements, after which a slice of active expiry looks at the clock.
pub const EXPIRY_STEP: usize = 10;

/// Calls waiting for places or for results of ONCE that are served before other tasks run: about 10 ms' worth. The same
/// number limits the calls that time out.
pub const WAITS_SLICE: usize = 1_000;

/// Timed-out calls that a slice handles in any case, however many other calls it serves.
pub const WAITS_SLICE_TIMEOUTS: usize = 100;

/// How long a retry of a waiting call is put off while clients are paused.
pub const PAUSE_LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long the server waits at its end for clients that do not read their replies.
pub const END_PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which the ending server checks whether clients have read their replies.
pub const END_LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Draws of RANDOMKEY in search of an unexpired key, where expired keys are kept, before it takes an expired one.
pub const RANDOM_KEY_TRIES: usize = 100;

/// Keys that one unit of eviction removes before a command. If memory must be freed, a command always evicts one unit,
/// whatever the clock says: the time limit is used up at once if the system gives the core to another process. One unit
/// is enough for the few KiB by which a table or a timer wheel grows.
pub const EVICTION_UNIT_KEYS: usize = 128;

/// Keys that a slice of eviction removes when no command waits for it.
pub const EVICTION_SLICE_KEYS: usize = 16;

/// Bytes of changes, not yet in the journal, at which a unit of eviction ends.
pub const EVICTION_UNIT_BYTES: usize = 64 << 10;

/// Candidates for eviction that are kept for the next time.
pub const EVICTION_POOL: usize = 16;

/// Draws in search of an evictable key before any key found is taken.
pub const EVICTION_DRAWS: usize = 16;

/// How long a slice of eviction may take when no command waits for it.
pub const EVICTION_SLICE: Duration = Duration::from_micros(500);

/// Entries that may be moved before the next unit because small collections were written or changed: about a
/// millisecond's worth.
pub const UNSETTLED_MAX: usize = 2_048;

/// Timers visited for each newly armed one while dead timers are swept out: the cost for a single command.
pub const TIMER_SWEEP_STEP: usize = 8;

/// Longest duration of DEBUG SLEEP.
pub const DEBUG_SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// Bytes of keys and values that one DEBUG POPULATE may add: they form one unit of the journal.
pub const DEBUG_POPULATE_MAX_BYTES: usize = UNIT_MAX_BYTES;

/// Cost of a key or an element for a snapshot in addition to its bytes, expressed in bytes: finding it takes about as
/// long as copying this many.
pub const SNAPSHOT_KEY_WORK_BYTES: usize = 64;

/// Size in bytes from which a snapshot copies a value in parts. A smaller value is copied at once, in a small part of a
/// millisecond.
pub const SNAPSHOT_PART_MIN_BYTES: usize = 64 * 1024;

/// Assumed size of an element in bytes, which tells large values from others without visiting all elements.
pub const SNAPSHOT_ELEMENT_BYTES: usize = 128;

/// Bytes of a string that a snapshot copies in one piece.
pub const SNAPSHOT_PIECE_BYTES: usize = 256 * 1024;

/// Number of restarts of copies of large values, after the walk of a snapshot, that doubles its slices. So no client
/// can keep the snapshot from ending. A change that restarts a copy rewrites a large part of the value, which takes
/// about as long as copying that part in one go.
pub const SNAPSHOT_STARTS_OVER_MAX: usize = 16;

/// Cost of a pending delivery for a snapshot in addition to its bytes, expressed in bytes: see
/// [`SNAPSHOT_KEY_WORK_BYTES`].
pub const SNAPSHOT_PENDING_WORK_BYTES: usize = 16;

/// Members that one change may remove by rank from a sorted set that a snapshot copies in parts, each removal being
/// recorded by itself. If more are removed, and more than [`SNAPSHOT_ELEMENTS_SHARE`] allows, the copy starts over.
pub const SNAPSHOT_ELEMENTS_MAX: usize = 4096;

/// Divisor of a sorted set's size: removing a smaller share of its members does not restart its copy, and a client that
/// removes more must have added them first.
pub const SNAPSHOT_ELEMENTS_SHARE: usize = 16;

/// Number of keys copied again after the walk of a snapshot, because they received values not copied yet, that doubles
/// its slices; the number of all keys, if that is more. So no client can keep the snapshot from ending by copying keys
/// onto each other.
pub const SNAPSHOT_AGAIN_MAX: usize = 10_000;

/// Bytes by which changes made since the last slice can enlarge a slice of a snapshot: a millisecond or two of work.
pub const SNAPSHOT_DEBT_SLICE_BYTES: usize = 1024 * 1024;

/// Codes of error replies that are counted separately; scripts can make up any number of codes.
pub const ERROR_CODES_MAX: usize = 128;

/// Bytes of an error code that is counted separately.
pub const ERROR_CODE_MAX_BYTES: usize = 30;

/// Elements that one call draws with repetition: some 0.2 s. [`REPLY_MAX_BYTES`] bounds their size in the reply.
pub const RANDOM_DRAWS_MAX: usize = 1 << 20;

/// Bytes of one reply, which is built in memory: the longest string that clients may store by default. A larger
/// `proto-max-bulk-len` raises it. One command can ask for the same value many times.
pub const REPLY_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Bytes of a reply allowed beyond the longest string: for its frame, a key, the fields with it.
pub const REPLY_FRAME_BYTES: usize = 1024 * 1024;

/// Values that a command with many values returns before it adds up the sizes of the others, if these first ones took
/// more than [`REPLY_FORESEEN_BYTES`]. One call can ask for the same large value thousands of times.
pub const REPLY_FORESEEN_ITEMS: usize = 8;

/// Bytes of a command's first values from which adding up the sizes of the others is worthwhile.
pub const REPLY_FORESEEN_BYTES: usize = 1024 * 1024;

/// Bytes of elements and weights that one SORT gathers: the same weight can belong to many elements.
pub const SORT_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Elements that one step of SCAN, HSCAN, SSCAN or ZSCAN returns, whatever COUNT says: some 0.2 s.
pub const SCAN_COUNT_MAX: usize = 1 << 20;

/// Entries that XADD and XTRIM remove by whole nodes if the call gives no LIMIT: as many as in Redis.
pub const STREAM_TRIM_MAX_ENTRIES: u64 = 1_000_000;

const _: () = {
    // A command of the allowed size must be addressable.
    assert!(QUERY_BUFFER_HARD_MAX_BYTES + INLINE_MAX_BYTES <= u32::MAX as usize);
    // Behind the kept part of a command there must be room for an ordinary read.
    assert!(READ_BEHIND_BYTES + READ_CHUNK_BYTES <= READ_LARGE_BYTES);
    // The rest left for the next large value must be small compared to it.
    assert!(2 * SEND_REST_MAX_BYTES <= OUTBOX_TAKE_OVER_BYTES);
    // Replies that are copied rather than taken over must fit into a chunk with others.
    assert!(OUTBOX_TAKE_OVER_BYTES <= OUTBOX_CHUNK_BYTES);
    // A pipeline must be subject to the limits of output before it pauses.
    assert!(OUTPUT_UNCOUNTED_BYTES < REPLY_PAUSE_BYTES && REPLY_PAUSE_BYTES < OUTBOX_PAUSE_BYTES);
};

// Keys

/// Bytes of the keys touched by a unit, noted for watching and waiting clients. Beyond that, repeated keys are merged,
/// and if this does not help, their whole database is noted.
pub const TOUCHES_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of the places of one size that an empty database keeps, so that a lock that comes and goes allocates nothing.
pub const ARENA_KEEP_BYTES: usize = 4096;

/// Blocks of timers that an empty database keeps: 1 KB.
pub const TIMERS_KEEP_BLOCKS: usize = 8;

/// Expired fields or members that a lookup of their key removes on its way: some 50 us. The others are hidden until the
/// next slice of expiry.
pub const EXPIRED_ELEMENTS_PER_LOOKUP: usize = 128;

/// Size in bytes up to which a script's change of a compact value is undone from a copy: 128 pairs of 64 bytes each,
/// the largest value that the default parameters leave compact.
pub const UNDO_COPY_MAX_BYTES: usize = 16 * 1024;

// Coordination

/// Rules of one LIMIT.TAKE: three times as many as a large API gateway uses.
pub const LIMIT_RULES_MAX: usize = 32;

/// Length of a window of LIMIT.TAKE in ms: ten years.
pub const LIMIT_WINDOW_MAX_MS: i64 = 10 * 365 * 24 * 60 * 60 * 1_000;

/// Units that an EXACT rule allows within its window. Each unit is kept, so this is some megabytes for a key.
pub const LIMIT_EXACT_MAX: i64 = 65_536;

/// Units that one call takes under an EXACT rule: 32 such rules delay other clients by some ten milliseconds.
pub const LIMIT_EXACT_UNITS_MAX: i64 = 1_000;

/// End of the serial numbers that name an EXACT rule's units of one millisecond: eight digits.
pub const LIMIT_EXACT_SERIAL_END: i64 = 100_000_000;

/// How long the cost of a request is kept under its ID, in ms, even if a limit counts it for a month. A retry comes
/// within minutes, and a refund when the work for which the units were taken has failed.
pub const LIMIT_REQUEST_MAX_MS: i64 = 24 * 60 * 60 * 1_000;

/// Leases of a gate that a refused CONCURRENCY rule looks at, to find out when enough of them end.
pub const LIMIT_LEASES_LOOKED_AT: usize = 1_000;

/// Bytes of all keys of a request with an ID, which keeps them.
pub const LIMIT_REQUEST_MAX_BYTES: usize = 64 * 1024;

/// IDs in one block of ID.NEXT: a quarter of the IDs of a millisecond, so that few blocks run ahead of the clock.
pub const ID_COUNT_MAX: i64 = 1_000_000;

// Scripts

/// Command names, in the spelling of scripts, whose lookup is cached.
pub const SCRIPT_NAMES_KEPT: usize = 512;

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

/// Interval at which it is checked whether a running script may go on; each time, other clients are served and may end
/// it. The first check comes when the clock has seen the same run twice, so after two intervals at the latest.
pub const SCRIPT_ALARM_TICK: Duration = Duration::from_millis(5);

/// Ticks without a script after which the clock of scripts slows down; the next script wakes it.
pub const SCRIPT_ALARM_IDLE_AFTER_TICKS: u32 = 50;

/// Interval of the slowed clock of scripts: the most time that a script gains if waking the clock fails.
pub const SCRIPT_ALARM_IDLE_TICK: Duration = Duration::from_millis(250);

/// VM instructions of a debugged script between two checks whether it may go on.
pub const DEBUG_HOOK_INSTRUCTIONS: i32 = 100_000;

/// Bytes that a C function of the script VM copies or changes between two looks at the clock: less than 1 ms.
pub const SCRIPT_CHUNK_BYTES: usize = 256 * 1024;

/// Bytes of a string that `string.upper` and similar functions change on the stack, without the scratch buffer.
pub const SCRIPT_SHORT_STRING_BYTES: usize = 128;

/// Nesting of a command's reply that a script reads. Commands nest far less; this bounds the C stack.
pub const SCRIPT_TAPE_MAX_DEPTH: usize = 128;

/// Bytes of a reply that ONCE keeps, in its stored form. Most replies are short; a longer one takes memory as long as
/// its id lives.
pub const ONCE_REPLY_MAX_BYTES: usize = 1024 * 1024;

/// Bytes of a string that `string.rep` and similar functions may build: the most that a Redis value holds.
pub const SCRIPT_STRING_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Bytes of C stack used since the start of a script beyond which C functions refuse to call back into Lua (a `gsub`
/// whose function calls `gsub`). Lua 5.1 allows 200 such calls; this is room for more, on the smallest usual stack of 2
/// MiB.
pub const SCRIPT_C_STACK_BYTES: usize = 256 * 1024;

/// Bytes of C stack for `cjson` and `cmsgpack` to follow nested data: room for 1,000 levels. AddressSanitizer makes
/// frames larger.
pub const SCRIPT_DATA_STACK_BYTES: usize = if cfg!(sanitizer) { 24 } else { 1 } * 1024 * 1024;

/// Size in bytes from which a buffer used only once is not kept for later: a buffer of the journal, a script's list of
/// arguments, a reply that became Lua values. Other buffers, which are used again and again, release all of their
/// memory `hz` times a second.
pub const SCRATCH_KEEP_BYTES: usize = 64 * 1024;

/// Size in bytes from which a block of Lua's memory is large. A script that has reached its memory limit is refused a
/// large block at once; a smaller one is still granted, and the script ends at that instruction. The size is far above
/// the need of any instruction that does not concatenate long strings or grow a large table (Lua's stack grows to 512
/// KiB).
pub const SCRIPT_LARGE_BLOCK_BYTES: usize = 1024 * 1024;

/// Bytes of garbage that scripts may leave before it is collected between them. Below that, collecting is left to Lua.
pub const SCRIPT_GARBAGE_KEEP_BYTES: usize = 1024 * 1024;

/// How long garbage is collected at a time, between other work.
pub const SCRIPT_TIDY_SLICE: Duration = Duration::from_micros(500);

/// Keys, and arguments, of a script up to which the tables KEYS and ARGV are kept for the next script.
pub const SCRIPT_LIST_KEEP_ELEMENTS: usize = 64;

/// The first elements of KEYS and ARGV, which are compared with those of the next script.
pub const SCRIPT_LIST_KNOWN_ELEMENTS: usize = 4;

/// Bytes of a string that `cjson` escapes at once; each byte may become six.
pub const SCRIPT_ESCAPE_CHUNK_BYTES: usize = 4 * 1024;

/// Steps of matching a pattern between two looks at the clock. A step looks at a byte or two, so this is far below 1
/// ms.
pub const SCRIPT_PATTERN_TICK_STEPS: usize = 1_000;

/// Bytes of a back reference that are compared as one step of matching, because comparing is that much faster.
pub const SCRIPT_PATTERN_STEP_BYTES: usize = 32;

/// Nesting of choices within one match of a pattern: bounds the C stack.
pub const SCRIPT_PATTERN_MAX_DEPTH: usize = 200;

/// Breakpoints that a script may have: as many as in Redis.
pub const DEBUG_BREAKPOINTS_MAX: usize = 64;

/// Bytes of a value that the debugger shows unless the client says otherwise (`maxlen`).
pub const DEBUG_LINE_DEFAULT_BYTES: usize = 256;
/// Least number of bytes of a value that a client may ask the debugger to show (`maxlen`).
pub const DEBUG_LINE_MIN_BYTES: usize = 60;

/// Bytes that the debugger shows from one stop to the next. A script's output beyond that is left out.
pub const DEBUG_SCREEN_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that a debugger's client may leave unread before the server stops reading from it.
pub const DEBUG_UNSENT_MAX_BYTES: usize = 1024 * 1024;

/// Bytes of one command for the debugger: as in Redis.
pub const DEBUG_COMMAND_MAX_BYTES: usize = 1024 * 1024;

/// Functions, from the innermost on, whose variables and callers the debugger shows.
pub const DEBUG_LEVELS_MAX: i32 = 100;

/// Nesting of tables that the debugger shows.
pub const DEBUG_VALUE_MAX_DEPTH: usize = 10;

/// Nesting of tables that `cmsgpack.pack` follows; deeper ones are packed as nil, as by the library of Redis.
pub const SCRIPT_MSGPACK_MAX_DEPTH: usize = 16;

/// Bytes of program text that `loadstring` compiles and that `load` gathers from a function's pieces. Compiling can't
/// be interrupted.
pub const SCRIPT_LOAD_MAX_BYTES: usize = 1024 * 1024;

/// How long loading a library of functions may take: as in Redis.
pub const LIBRARY_LOAD_MAX: Duration = Duration::from_millis(500);

/// Scripts from EVAL that are kept, however short: as many as in Redis since 7.4. This bounds their overhead; their
/// texts are bounded by `script-cache-max-bytes`.
pub const SCRIPT_EVAL_CACHE_MAX: usize = 500;

/// Last refusals among which ACL LOG looks for one like a new refusal, which is then only counted: as in Redis.
pub const ACL_LOG_MERGE_AMONG: usize = 10;

/// Age of a refusal up to which ACL LOG counts a similar one with it, in ms.
pub const ACL_LOG_MERGE_WITHIN_MS: i64 = 60_000;

/// Bytes of each text that ACL LOG keeps of a refusal: the object asked for, the name of the user and the line about
/// the client.
pub const ACL_LOG_MAX_TEXT_BYTES: usize = 4 * 1024;

/// Bytes shown by ACL LOG of each name that a client has given itself.
pub const ACL_LOG_MAX_NAME_BYTES: usize = 512;

/// Arguments kept of an exceptional command, and of a slow call of a script: as many as Redis' SLOWLOG keeps.
pub const COMMAND_LOG_MAX_ARGS: usize = 32;

/// Bytes kept of each argument of an exceptional command, and of a slow call of a script.
pub const COMMAND_LOG_MAX_ARG_BYTES: usize = 128;

/// Seconds for which LATENCY keeps a sample of each event.
pub const LATENCY_SAMPLES_MAX: usize = 160;

/// Connections to the port of metrics that have not sent their request yet. One more closes the oldest. As many may
/// wait for the engine at a time.
pub const METRICS_CONNECTIONS_MAX: usize = 8;

/// Bytes of a request for metrics.
pub const METRICS_REQUEST_MAX_BYTES: usize = 8 * 1024;

/// How long a request for metrics may take to arrive, and its response to be read.
pub const METRICS_PATIENCE: Duration = Duration::from_secs(5);

/// How long the engine has to report its metrics before it is declared busy.
pub const METRICS_ENGINE_PATIENCE: Duration = Duration::from_secs(2);

/// How long one command may run before the server is not ready, in ms, unless `busy-reply-threshold` says less or more.
pub const READY_PATIENCE_MS: u64 = 5_000;

/// Patterns that DEBUG STRINGMATCH-TEST tries.
pub const DEBUG_GLOB_TRIALS: usize = 100_000;

/// Commands that the trail of a slow call keeps: the slowest of them.
pub const SCRIPT_TRAIL_MAX_STEPS: usize = 32;

/// Arguments kept of a command in the trail of a slow call, its name included.
pub const SCRIPT_TRAIL_MAX_ARGS: usize = 6;

/// Bytes kept of each argument in the trail of a slow call.
pub const SCRIPT_TRAIL_MAX_ARG_BYTES: usize = 64;

/// Nesting of blocks and expressions in a parsed script: as in Lua 5.1, whose parser refuses deeper ones.
pub const SYNTAX_MAX_DEPTH: usize = 200;

/// Refills of a stock whose ids are remembered, so that each counts once: the most recent ones.
pub const STOCK_REFILLS_MAX: usize = 4_096;

/// Orders sold from a stock that are remembered, so that committing one again returns the same reply: the most recent
/// ones.
pub const STOCK_SALES_MAX: usize = 1 << 16;

/// Subjects whose purchases a stock remembers: the most recent buyers. With more of them, `PER` bounds only later
/// purchases of the others.
pub const STOCK_BUYERS_MAX: usize = 1 << 20;

/// Bytes of the name of a holder of a lock or of a gate's place. Each grant keeps the name, and so does each record of
/// a grant in the journal.
pub const HOLDER_MAX_BYTES: usize = 1024;

/// Bytes of a holder's note about its grant.
pub const GRANT_NOTE_MAX_BYTES: usize = 1024;

/// Calls that may wait beside one connection (ASYNC): as many as a service has requests under way, with room to spare.
/// When the connection ends, all of them leave their queues at once.
pub const TICKETS_MAX: usize = 1 << 15;

/// Longest lease in ms: a year. A holder that needs its place for longer renews the lease.
pub const LEASE_MAX_MS: i64 = 366 * 24 * 60 * 60 * 1000;

/// Earliest time that a correct clock can show, in Unix ms: the beginning of 2026, the year in which this was written.
pub const CLOCK_EARLIEST_MS: i64 = 1_767_225_600_000;

/// Longest of each of the times in a consumer group's policy for which a message may wait, in ms: a year.
pub const POLICY_MAX_MS: i64 = LEASE_MAX_MS;

/// How often a message may become a dead letter, moving from stream to stream. After that it stays where it is: groups
/// that are each other's dead letters would move it forever, and it grows with each hop. If each stream has two such
/// groups, every hop doubles the messages, so the number is small. Nobody chains this many streams on purpose.
pub const DEAD_LETTER_MAX_HOPS: u64 = 8;

/// Streams that XGROUP SETPOLICY looks at to find out whether dead letters would come back; no other client is served
/// during the search. [`DEAD_LETTER_MAX_HOPS`] ends a longer circle.
pub const DEAD_LETTER_CIRCLE_LOOKS: usize = 128;

/// How soon dead letters that could not be moved are tried again, in ms.
pub const DEAD_LETTER_RETRY_MS: u64 = 1_000;

/// Bytes of dead letters moved in one slice; a single one may exceed the limit.
pub const DEAD_LETTERS_MAX_BYTES: usize = 1024 * 1024;

/// Bytes that a dead letter takes in the journal in addition to its texts: names of fields, ids and numbers.
pub const DEAD_LETTER_EFFECT_BYTES: usize = 512;

/// Deleted pending entries that one XREADGROUP discovers for each stream, besides the entries that it returns; no other
/// client is served during the search.
pub const READ_DELETED_MAX: usize = 1_000;

/// How long XADD may delay a message, in ms: a year.
pub const DELAY_MAX_MS: i64 = LEASE_MAX_MS;

/// Delayed messages of a stream that become entries at once, when a client reads or their timer fires: less than a
/// millisecond's worth. The others follow the next time. An append first turns all due messages into entries.
pub const DELAYED_RELEASED_MAX: usize = if cfg!(test) { 20 } else { 1_000 };

/// Delayed messages that become entries before an appended one, which should follow all messages that are due: some
/// tenths of a second at most. If there are more, the later ones follow the appended entry.
pub const DELAYED_RELEASED_BEFORE_APPEND_MAX: usize = 100_000;

/// Bytes of delayed messages after which no further one becomes an entry at once; a single one may exceed the limit.
pub const DELAYED_RELEASED_MAX_BYTES: usize = if cfg!(test) { 10_000 } else { 1024 * 1024 };

/// Bytes that the journal takes for a delayed message that becomes an entry, in addition to the name of its key.
pub const DELAYED_RELEASE_EFFECT_BYTES: usize = 64;

/// Delayed messages that XDELAY.LIST returns at a time unless COUNT says otherwise.
pub const DELAYED_COUNT: usize = 100;
/// Delayed messages that XDELAY.LIST returns at a time at most.
pub const DELAYED_MAX_COUNT: usize = 10_000;
/// Bytes of delayed messages after which XDELAY.LIST returns no more; a single one may exceed the limit.
pub const DELAYED_LIST_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Dead letters that XDLQ.REDRIVE puts back unless the call gives a number.
pub const REDRIVE_COUNT: usize = 100;
/// Entries that XDLQ.REDRIVE looks at for each dead letter that it should put back.
pub const REDRIVE_LOOKS: usize = 10;
/// Bytes of dead letters after which XDLQ.REDRIVE puts back no more; a single one may exceed the limit.
pub const REDRIVE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// How soon the server checks again whether an expired lease has been removed, in ms.
pub const PLACE_LOOK_AGAIN_MS: i64 = 10;

/// Largest fencing token in a payload of RESTORE that was not given out by this server: half of all tokens, so that no
/// client can use them up.
pub const RESTORED_TOKEN_MAX: u64 = 1 << 52;

/// Bytes of the key of a stock with a STREAM, and of the stream's key: each ended hold copies both.
pub const STOCK_TOLD_KEY_MAX_BYTES: usize = 1024;

/// Holders that GATE.HOLDERS, and holds that STOCK.HOLDS, returns at a time unless COUNT says otherwise.
pub const HOLDERS_COUNT: usize = 100;

/// Holders that GATE.HOLDERS, and holds that STOCK.HOLDS, returns at a time at most.
pub const HOLDERS_MAX_COUNT: usize = 10_000;

/// Bytes of a script that SCRIPT LINT analyses: its tree takes some fifty times as much.
pub const SCRIPT_LINT_MAX_BYTES: usize = 1024 * 1024;

/// Bytes that SCRIPT TRACE keeps of a script's calls and their replies. Further calls are only counted.
pub const SCRIPT_TRACE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of a segment of the journal: the size of one prefilled file, and the steps in which a cut frees space.
pub const LOG_SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

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

/// Bytes of effects in one unit while there is a journal: several times the longest string, and far below the largest
/// length that a unit on disk can state. Tests reach it sooner.
pub const UNIT_MAX_BYTES: usize = if cfg!(test) { 1024 * 1024 } else { 1024 * 1024 * 1024 };

/// Bytes of the effect of one member of a sorted set in addition to the member itself: its code, its length and its
/// score at most.
pub const MEMBER_EFFECT_BYTES: usize = 16;

/// Bytes of an effect on a pending entry in addition to the names of group and consumer.
pub const PENDING_EFFECT_BYTES: usize = 64;

/// Bytes of one block. Its length is 32 bits wide, and twice [`UNIT_MAX_BYTES`] is far below that.
pub const LOG_BLOCK_MAX_BYTES: usize = 2 * 1024 * 1024 * 1024;

/// Number of spare buffers that the journal keeps.
pub const LOG_SPARE_BUFFERS: usize = 4;

/// Bytes that each spare buffer of the journal may keep allocated.
pub const LOG_SPARE_MAX_BYTES: usize = SCRATCH_KEEP_BYTES;

/// Expected duration of a sync up to which the engine's thread does the sync itself although it has other clients. It
/// is about the cost of handing the sync to another thread, and is compared with the slowest of the recent syncs.
pub const LOG_SYNC_IN_PLACE_MAX: Duration = Duration::from_micros(100);

/// Expected duration of a sync up to which the engine's thread does the sync itself while it has a single client. A
/// longer sync is left to a thread. That costs the client a tenth of its speed at most, and a client that connects
/// during the sync is served.
pub const LOG_SYNC_ALONE_MAX: Duration = Duration::from_millis(1);

/// Bytes of changes and replies that may wait for the disk. With more, the engine waits, too.
pub const LOG_BEHIND_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Places in the table of changed keys that are not durable yet, 16 bytes each. A reader of another key waits in vain
/// if its place has two such keys: one reader in 400, with 5,000 keys in flight.
pub const IN_FLIGHT_PLACES: usize = 1 << 16;

/// Keys that one unit marks as changed and not durable yet. If a unit changes about as many or more, all keys count as
/// changed.
pub const IN_FLIGHT_UNIT_MAX_KEYS: usize = 4 * 1024;

/// Interval at which WAITAOF checks whether a sync is done.
pub const LOG_SYNC_RETRY: Duration = Duration::from_millis(2);

/// How long the journal waits on a full disk before it tries again.
pub const LOG_FULL_RETRY: Duration = Duration::from_millis(200);

/// Bytes of effects that a snapshot copies in one slice, between other work.
pub const SAVE_SLICE_BYTES: usize = 64 * 1024;

/// Bytes of changes that may gather while the snapshot before a new journal is made durable. Tests reach it sooner.
pub const LOG_BEGIN_MAX_BYTES: usize = if cfg!(test) { 8 * 1024 * 1024 } else { LOG_BLOCK_MAX_BYTES / 4 };

/// How long after a failure a snapshot is not retried automatically.
pub const SAVE_RETRY: Duration = Duration::from_secs(5);

/// Number of further failures that each double [`SAVE_RETRY`]: up to about three quarters of an hour.
pub const SAVE_RETRY_DOUBLINGS: u32 = 9;

/// Number of failures that each double [`SAVE_RETRY`] if a journal is to begin behind the snapshot: up to 40 s, because
/// changes exist only in memory until then.
pub const LOG_BEGIN_RETRY_DOUBLINGS: u32 = 3;

/// Bytes of units in one frame of a snapshot: enough to compress well, and few enough to be read and applied in one go.
pub const SNAPSHOT_FRAME_BYTES: usize = 256 * 1024;

/// Bytes of a snapshot's frame, compressed or not, in any version of the format. It bounds the memory that a damaged
/// length can make a reader allocate.
pub const SNAPSHOT_FRAME_MAX_BYTES: usize = 4 * SNAPSHOT_FRAME_BYTES;

/// Bytes of a snapshot after which they are synced: a single sync at the end, of gigabytes, would hold up the syncs of
/// the journal.
pub const SNAPSHOT_SYNC_BYTES: u64 = 16 * 1024 * 1024;

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

/// Keys from which a snapshot announces the size of a database before its keys: smaller databases load as fast without.
pub const SNAPSHOT_EXPECT_MIN_KEYS: usize = if cfg!(test) { 2 } else { 1024 };

/// Longest time that a snapshot leaves the engine to requests between two slices. A slice takes far less, unless the
/// process was stopped during it.
pub const SAVE_REST_MAX: Duration = Duration::from_millis(50);

/// Bytes waiting to be written to a snapshot above which no more is copied.
pub const SNAPSHOT_PAUSE_BYTES: usize = 4 * 1024 * 1024;

/// Bytes waiting to be written to a snapshot above which its writing thread no longer gives way to others. Tests reach
/// it sooner.
pub const SNAPSHOT_HURRY_BYTES: usize = if cfg!(test) { 6 * 1024 * 1024 } else { 16 * 1024 * 1024 };

/// Bytes waiting to be written to a snapshot above which it is abandoned: only changes made during the copy can add up
/// to this many. Tests reach it sooner.
pub const SNAPSHOT_GIVE_UP_BYTES: usize = if cfg!(test) { 16 * 1024 * 1024 } else { 256 * 1024 * 1024 };

/// Approximate bytes of effects that a start loads at a time. Clients get replies between two slices.
pub const RECOVERY_SLICE_BYTES: usize = 256 * 1024;

/// Bytes that a key takes in RDB at least: its type, an empty name and an empty value.
pub const RDB_KEY_MIN_BYTES: u64 = 3;

/// Keys for which room is made before they come, on the word of a file: at most 5 MiB at first, and as keys come, room
/// for a few more with each.
pub const EXPECTED_KEYS_MAX: usize = 64 * 1024 * 1024;

/// Keys that a start looks up together, so that the cache misses of finding their places overlap. The parts of their
/// values that were fetched in the meantime are then still in the cache.
pub const LOAD_AHEAD_KEYS: usize = 16;

/// Approximate bytes of a piece that is read ahead of a start, counting effects and decoded keys with everything that
/// belongs to them: some thousand short keys. Only a single effect can make a piece longer.
pub const LOAD_PIECE_BYTES: usize = 512 * 1024;

/// Bytes of pieces read ahead of a start beyond which nothing more is read: enough that neither thread waits for the
/// other each time that it is interrupted.
pub const LOAD_AHEAD_BYTES: usize = 8 * LOAD_PIECE_BYTES;

/// Bytes that a buffer for reading ahead keeps when it is used again.
pub const LOAD_AHEAD_KEEP_BYTES: usize = SNAPSHOT_FRAME_BYTES;

/// Keys of a database for which a start makes room because the journal seems to hold this many. If it does not, the
/// room is freed in one go, and all clients wait for that, so it must not be much.
pub const LOG_EXPECTED_KEYS_MAX: u64 = 4 * 1024 * 1024;

/// Approximate bytes of a foreign file that a start loads at a time: reading them takes longer than reading effects.
pub const BULK_SLICE_BYTES: usize = 64 * 1024;

/// How long a start waits before it checks again a disk that is behind.
pub const LOAD_PAUSE: Duration = Duration::from_millis(1);

/// Interval of the syncs of `appendfsync everysec`.
pub const LOG_EVERY_SEC: Duration = Duration::from_secs(1);

// Import and export

/// Bytes of one reply that this program reads as a client when it expects no value: a status, an error, a few numbers.
pub const CLIENT_STATUS_MAX_BYTES: usize = 1024 * 1024;

/// Items in the lists of one reply: the replies inside EXEC, after the longest transaction that an import sends.
pub const CLIENT_REPLY_MAX_ITEMS: usize = 1 << 23;

/// Nesting of lists in one reply. EXEC with the replies of its commands has four or five.
pub const CLIENT_REPLY_MAX_DEPTH: usize = 8;

/// Bytes of the replies to one transaction of an import. The replies may contain values that its commands removed.
pub const IMPORT_REPLY_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Bytes of one reply that an export waits for: a complete value, or libraries.
pub const EXPORT_REPLY_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Kinds of things left out by an import that are reported one by one; others are only counted.
pub const IMPORT_LEFT_OUT_MAX_KINDS: usize = 100;

/// Interval at which a long import or export reports its progress.
pub const IMPORT_TELL_EVERY: Duration = Duration::from_secs(2);

/// Bytes of requests that an import sends before it reads the replies to the previous ones: two such windows are under
/// way.
pub const IMPORT_WINDOW_BYTES: usize = 256 * 1024;

/// Commands of an imported stream that are applied as one transaction, after which the next one begins.
pub const IMPORT_BATCH_COMMANDS: usize = 1_000;
/// Bytes of the commands of an imported stream that are applied as one transaction.
pub const IMPORT_BATCH_BYTES: usize = 1024 * 1024;

/// Bytes of one transaction in an imported stream, which is held until its end has come.
pub const IMPORT_UNIT_MAX_BYTES: usize = 512 * 1024 * 1024;

/// How long a server may be silent before an import gives it up: a primary sends something every ten seconds.
pub const IMPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a script of an import may run if `script-time-limit` sets no limit: no operator is there to end it, and a
/// start would never end. It is less than [`IMPORT_TIMEOUT`], so that the import hears the reason.
pub const IMPORT_SCRIPT_MAX: Duration = Duration::from_secs(30);
const _: () = assert!(IMPORT_SCRIPT_MAX.as_secs() < IMPORT_TIMEOUT.as_secs());

/// Interval at which a follower reports its progress to the primary.
pub const IMPORT_ACK_EVERY: Duration = Duration::from_secs(1);

/// How long a follower waits for commands before it attends to its operator and the clock.
pub const IMPORT_POLL: Duration = Duration::from_millis(100);

/// How long a follower waits before it reconnects to a primary that is gone.
pub const IMPORT_RETRY: Duration = Duration::from_secs(1);

/// Bytes of a line in which a primary replies.
pub const IMPORT_LINE_MAX_BYTES: usize = 64 * 1024;

/// Bytes of keys and values that one slice adds to a snapshot sent as RDB, between other work.
pub const TRANSFER_SLICE_BYTES: usize = 64 * 1024;

/// Cost of a key for a slice of a snapshot sent as RDB in addition to its bytes, expressed in bytes.
pub const TRANSFER_KEY_WORK_BYTES: usize = 64;

/// Bytes of a snapshot sent as RDB that may wait for a slow reader. With more, the next slice waits. One large value
/// may exceed the limit.
pub const TRANSFER_AHEAD_BYTES: usize = 1024 * 1024;

/// Keys that an export asks for at a time.
pub const EXPORT_PAGE_KEYS: usize = 500;
