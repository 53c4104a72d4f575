//! Every bound of the server that is not a configuration parameter stands here, with its reason.

use std::time::Duration;

/// Arguments one command may declare. Redis refuses counts past the largest `int`.
pub const MULTIBULK_MAX_ARGS: i64 = i32::MAX as i64;

/// Arguments a client may declare before it has authenticated, in a server with a password.
pub const UNAUTHENTICATED_MAX_ARGS: i64 = 10;

/// Bytes of one argument before the client has authenticated.
pub const UNAUTHENTICATED_MAX_BULK_BYTES: usize = 16 * 1024;

/// Bytes of replies that such a client may leave unread, once there are more than [`OUTPUT_UNCOUNTED_BYTES`].
pub const UNAUTHENTICATED_MAX_OUTPUT_BYTES: u64 = 1024;

/// Bytes of an inline command, or of a line that gives a length, before its newline must come.
pub const INLINE_MAX_BYTES: usize = 64 * 1024;

/// Bytes that one command may take in all, whatever `client-query-buffer-limit` says: argument offsets are 32-bit.
pub const QUERY_BUFFER_HARD_MAX_BYTES: usize = u32::MAX as usize - 64 * 1024;

/// Keys that HOTKEYS keeps sums of, for each that it shows: with more, keys that take nearly the same are told apart.
pub const HOTKEYS_TRACKED_PER_SHOWN: usize = 10;

/// Bytes of the longest key of which HOTKEYS keeps a sum: 1,280 of them take 5 MiB.
pub const HOTKEYS_KEY_MAX_BYTES: usize = 4 * 1024;

/// Grants that were given or ended, and as many calls that were refused, which WHO, WHY and EVENTS remember: both together take some
/// 500 KiB, and 10 MiB where all names are as long as they may be.
pub const HISTORY_PLACES: usize = 1_024;

/// Bytes of the longest key of which they do.
pub const HISTORY_KEY_MAX_BYTES: usize = 1_024;

/// Prefixes of keys by which metrics tell grants apart, each of them of so many bytes at most: every one is asked about every grant.
pub const METRICS_PREFIXES_MAX: usize = 32;

/// See [`METRICS_PREFIXES_MAX`].
pub const METRICS_PREFIX_MAX_BYTES: usize = 128;

/// Bytes of a connection's name that they show.
pub const HISTORY_NAME_MAX_BYTES: usize = 64;

/// Keys of all databases together that INFO keysizes looks at: nobody else is served for a few milliseconds, and of so many a sample is
/// right to within a hundredth.
pub const KEY_SIZES_MAX_KEYS: usize = 32_768;

/// Bytes of a line of the log, behind its time and level. What clients send may stand there.
pub const LOG_LINE_MAX_BYTES: usize = 4 * 1024;

/// Bytes of the message in `redis.log`.
pub const LOG_SCRIPT_MESSAGE_MAX_BYTES: usize = 1024;

/// Lines that one place in the program may log in a minute, since most of them can be caused by clients, some by strangers.
pub const LOG_LINES_A_MINUTE: u64 = 200;

/// The same for `redis.log`, at each of its levels.
pub const LOG_SCRIPT_LINES_A_MINUTE: u64 = 1_000;

/// Bytes of the first line that was left out for this, which are shown with the number of such lines.
pub const LOG_REPEATED_MAX_BYTES: usize = 200;

/// Bytes of lines that wait for the thread that writes them. Beyond them lines are lost.
pub const LOG_QUEUE_MAX_BYTES: usize = 1024 * 1024;

/// How long the end of the process waits for one line to be written.
pub const LOG_END_PATIENCE: Duration = Duration::from_secs(1);

/// How long it may take to report a mistake of the program that ends the process, s.
pub const PANIC_REPORT_MAX_S: u32 = 5;

/// Bytes read from a socket at once. Large enough for a pipeline of a few hundred commands, small enough to stay in L2.
pub const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes read from a socket at once where more is known to come of a large command, together with what has come of it.
pub const READ_LARGE_BYTES: usize = 256 * 1024;

/// Bytes of an unfinished command for which there is room in front of what is read next. More of them stay where they are kept, and what
/// is read is added to them.
pub const READ_BEHIND_BYTES: usize = 128 * 1024;

/// Bytes from which on an I/O thread receives no more from a connection ahead of the engine's thread: it may hold one
/// [`READ_CHUNK_BYTES`] more. Also how many the engine's thread leaves to an I/O thread before the socket takes them.
pub const RELAY_BYTES: usize = READ_CHUNK_BYTES;

/// The same once all connections together hold more than [`RELAY_TOTAL_BYTES`] in such buffers; each of them may add this much.
pub const RELAY_LEAST_BYTES: usize = 16 * 1024;

/// See [`RELAY_LEAST_BYTES`].
pub const RELAY_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of a buffer that are not counted for that: most requests and replies are shorter.
pub const RELAY_UNCOUNTED_BYTES: usize = 4 * 1024;

/// Bytes of a buffer that a connection keeps while there is nothing in it.
pub const RELAY_KEPT_BYTES: usize = 256;

/// Descriptors of an I/O thread: it waits by one, and is woken by another.
pub const IO_THREAD_DESCRIPTORS: u32 = 2;

/// Events that an I/O thread takes from the system at a time.
pub const IO_EVENTS_MAX: usize = 256;

/// Bytes read at a time from one of the connections that are answered while a script is busy.
pub const BUSY_READ_CHUNK_BYTES: usize = 16 * 1024;

/// Bytes of replies to one connection that are made at a time while a script is busy. Short commands have longer errors; more
/// than this is made only when it has read them.
pub const BUSY_REPLY_PAUSE_BYTES: usize = 64 * 1024;

/// Descriptors for everything that is not a client: standard streams, listeners, what tokio needs, a file or two.
pub const DESCRIPTORS_RESERVED: u64 = 32;

/// How long a client may take for a TLS handshake: several round trips on the worst of networks. Nobody has authenticated by then.
pub const TLS_HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// TLS handshakes that may be unfinished at a time, each of some 10 to 20 KiB. With one more the oldest is closed: honest ones are over
/// in moments.
pub const TLS_HANDSHAKES_MAX: usize = 1_000;

/// Bytes that an idle TLS connection takes beside what any takes: its keys and rustls' buffers, as measured on x86-64.
pub const TLS_CONNECTION_BYTES: u32 = 9 * 1024;

/// Bytes of ciphertext read at a time from a TLS connection: two records of the largest size.
pub const TLS_READ_CHUNK_BYTES: usize = 32 * 1024;

/// Reads of a TLS connection's socket that may bring nothing for the session, as in a handshake, before others have their turn.
pub const TLS_FRUITLESS_READS_MAX: usize = 8;

/// Bytes of one client that are encrypted and not sent. They are held beside their plaintext, so that TLS at most doubles what a
/// client leaves unread.
pub const TLS_UNSENT_MAX_BYTES: usize = 64 * 1024;

/// TLS sessions that are remembered so that clients may resume them, whatever `tls-session-cache-size` allows: some 1 KiB each, more
/// with certificates of clients.
pub const TLS_SESSIONS_MAX: usize = 1 << 20;

/// Bytes of one file of certificates or keys, and files of a folder of certificates: ten times what systems trust.
pub const TLS_FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// See [`TLS_FILE_MAX_BYTES`].
pub const TLS_CA_FILES_MAX: usize = 4_096;

/// Connections accepted at a time from one listener while a script is busy: those who are connected have their turn, too.
pub const BUSY_ACCEPTS_MAX: usize = 1_000;

/// Bytes of replies after which a pipeline pauses: they are sent, and others have their turn. So few are still in the processor's
/// cache then.
pub const REPLY_PAUSE_BYTES: usize = 64 * 1024;

/// Unsent bytes up to which a client is not held to `client-output-buffer-limit`: the buffer that a client of Redis has.
pub const OUTPUT_UNCOUNTED_BYTES: usize = 16 * 1024;

/// Bytes held for unsent replies beyond which nothing more is read from a client until it has read some of them.
pub const OUTBOX_PAUSE_BYTES: usize = 64 * 1024 * 1024;

/// The same for all clients together: beyond it, nothing more is read from a client that holds more than its share of it, and
/// commands that read run only if their reply fits the [least share](OUTBOX_LEAST_SHARE_BYTES). All together thus hold this, and
/// for each client twice its least share, a pipeline's pause, and the one reply of a command that writes, EXEC or a script.
pub const OUTBOX_TOTAL_PAUSE_BYTES: usize = 4 * OUTBOX_PAUSE_BYTES;

/// How long a command waits for others to read, until the client that holds most is closed.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// What each client may leave unread, however much others do: a client that sends a whole pipeline before it reads must not
/// wait for them.
pub const OUTBOX_LEAST_SHARE_BYTES: usize = 1024 * 1024;

/// Bytes of one chunk of unsent replies that were copied together: bounds what is allocated and not used, and what stays
/// allocated for a chunk that is nearly sent.
pub const OUTBOX_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes sent to one client at a time before others have their turn.
pub const SEND_SLICE_BYTES: usize = 1024 * 1024;

/// Bytes that are left for what is sent next, if that follows right away, rather than sent in a packet of their own: to copy them costs
/// far less than a packet does.
pub const SEND_REST_MAX_BYTES: usize = 4 * 1024;

/// Places in the unsent replies of a client from which on they wait for a later unit of the log. With more, some replies wait for
/// a later one than they show.
pub const OUTBOX_FENCES_MAX: usize = 64;

/// Bytes of replies from which on they are not copied to be sent, and don't wait for the connection's next turn.
pub const OUTBOX_TAKE_OVER_BYTES: usize = 32 * 1024;

/// Bytes that must have been freed so that memory is returned to the system at once.
pub const GIVE_BACK_BYTES: u64 = 32 * 1024 * 1024;

/// The same as a share of what is still allocated: the more there is, the longer that takes.
pub const GIVE_BACK_SHARE: u64 = 8;

/// Bytes that must have been freed, or been added, so that memory is returned at all.
pub const GIVE_BACK_LEAST_BYTES: u64 = 4 * 1024 * 1024;

/// The same as a share of what is still allocated: the engine's thread looks at each page that is partly in use, and lets go of it.
pub const GIVE_BACK_LEAST_SHARE: u64 = 128;

/// Milliseconds for which less than [`GIVE_BACK_BYTES`] is kept: what was freed may be needed again.
pub const GIVE_BACK_PAUSE_MS: i64 = 1_000;

/// For how many milliseconds nothing is returned while ever more is freed, so that the memory of a million keys that expire within one
/// second goes back in one go.
pub const GIVE_BACK_PATIENCE_MS: i64 = 2_000;

/// Entries of a compact hash, set, sorted set or list, of a hash fields and values, whatever the parameters allow: most commands
/// walk over all of them. Integers that are kept in order are not counted.
pub const COMPACT_MAX_ENTRIES: usize = u16::MAX as usize;

/// Elements of a collection up to which it is freed at once, in some 30 us, and not on another thread.
pub const FREE_AT_ONCE_ELEMENTS: usize = 1000;

/// The same for the bytes of a string.
pub const FREE_AT_ONCE_BYTES: usize = 1024 * 1024;

/// Bytes that the packed strings of one RDB value, and the names that its stream entries share, may become: twice the
/// longest string. A payload can't make more memory of itself than clients can fill honestly with a few commands.
pub const RDB_UNPACKED_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Entries of one listpack, ziplist or zipmap of an RDB value: they are listed before a value is made of them, which takes
/// twelve times the bytes of the smallest. Redis makes far shorter ones.
pub const RDB_PACKED_MAX_ITEMS: usize = 1 << 22;

/// Bytes of one value in a file or a stream that is imported: what RESTORE takes with the default `proto-max-bulk-len`, less
/// what frames it.
pub const RDB_VALUE_MAX_BYTES: usize = 512 * 1024 * 1024 - 64;

/// Bytes of a file that are gathered before they are written.
pub const RDB_WRITE_BYTES: usize = 256 * 1024;

/// Bytes of a file that are read at a time.
pub const RDB_READ_BYTES: usize = 256 * 1024;

/// Bytes of one reply that MIGRATE reads from the other server: a status or an error.
pub const MIGRATE_REPLY_MAX_BYTES: usize = 64 * 1024;

/// Bytes that MIGRATE sends within one timeout, as Redis does.
pub const MIGRATE_PIECE_BYTES: usize = 64 * 1024;

/// How long one MIGRATE may take in all, whatever its timeout, which is that of a step: nobody else is served meanwhile.
pub const MIGRATE_MAX: Duration = Duration::from_secs(60);

/// How long one command may hold the engine before the log names it: far above any honest command, far below the patience
/// of clients.
pub const STALL_WARNING: Duration = Duration::from_secs(1);

/// Runs of stars in a glob that are followed up: a pattern with more matches nothing, as in Redis.
pub const GLOB_MAX_STARS: usize = 1_000;

/// Configuration files that include one another stop at this depth: deeper nesting is a circle.
pub const INCLUDE_MAX_DEPTH: usize = 16;

/// How many timers one slice of active expiry looks at, at most, before other tasks run; so many expired keys a step of SCAN removes.
pub const EXPIRY_SLICE_TIMERS: usize = 250;

/// After how long a slice of active expiry ends, though it has not looked at that many timers.
pub const EXPIRY_SLICE: Duration = Duration::from_micros(250);

/// After so many timers, or elements that it removes, a slice of active expiry looks at the time.
pub const EXPIRY_STEP: usize = 10;

/// Calls that wait for places, or for what ONCE keeps, of which so many are served before other tasks run: about 10 ms' worth. So are
/// those that time out.
pub const WAITS_SLICE: usize = 1_000;

/// How many of the calls whose time has come are looked at in a slice however many others go on in it.
pub const WAITS_SLICE_TIMEOUTS: usize = 100;

/// How long a call that is to be dispatched again is put off while there is a pause.
pub const PAUSE_LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long the end of the server waits for clients that read nothing of what they were answered.
pub const END_PATIENCE: Duration = Duration::from_secs(1);

/// How often it looks whether they have.
pub const END_LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Draws of RANDOMKEY, where keys that have expired stay, before it takes one that has.
pub const RANDOM_KEY_TRIES: usize = 100;

/// Keys that one unit of eviction removes at most, before a command. A command evicts one unit, if so much has to go, whatever the clock
/// says: the time it may take is over at once where the system gives the core to another process. So a unit is enough for what a table or a
/// timer wheel grows by, a few KiB.
pub const EVICTION_UNIT_KEYS: usize = 128;

/// The same of a slice that no command waits for.
pub const EVICTION_SLICE_KEYS: usize = 16;

/// A unit of eviction ends when its changes take so much, for as long as they are not in the log.
pub const EVICTION_UNIT_BYTES: usize = 64 << 10;

/// Candidates for eviction that are kept for the next time.
pub const EVICTION_POOL: usize = 16;

/// How often keys are drawn that may be evicted before any is taken that is found.
pub const EVICTION_DRAWS: usize = 16;

/// How long a slice of eviction may take that no command waits for.
pub const EVICTION_SLICE: Duration = Duration::from_micros(500);

/// Entries that may get other places before the next unit, because small collections were written or changed: about a millisecond's
/// worth.
pub const UNSETTLED_MAX: usize = 2_048;

/// Timers that are looked at for each one that is armed, while dead ones are swept out: what a single command pays.
pub const TIMER_SWEEP_STEP: usize = 8;

/// The longest DEBUG SLEEP.
pub const DEBUG_SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// Bytes of keys and values that one DEBUG POPULATE may add: they are one unit of the log.
pub const DEBUG_POPULATE_MAX_BYTES: usize = UNIT_MAX_BYTES;

/// What a key or an element costs a snapshot beside its bytes, as so many bytes: finding it takes about as long as copying these.
pub const SNAPSHOT_KEY_WORK_BYTES: usize = 64;

/// Bytes of a value from which on a snapshot copies it in parts. Less is copied at once, in a small part of a millisecond.
pub const SNAPSHOT_PART_MIN_BYTES: usize = 64 * 1024;

/// How many bytes an element is taken for, to tell large values from others without a look at all elements.
pub const SNAPSHOT_ELEMENT_BYTES: usize = 128;

/// Most bytes of a string that a snapshot copies in one piece.
pub const SNAPSHOT_PIECE_BYTES: usize = 256 * 1024;

/// How often the copies of large values start over, after the walk of a snapshot, until its slices become twice as large: so that
/// nobody can keep it from its end. What makes a copy start over then has a large part of the value written anew, and takes about as
/// long as copying that in one go.
pub const SNAPSHOT_STARTS_OVER_MAX: usize = 16;

/// As [`SNAPSHOT_KEY_WORK_BYTES`], for a delivery that is pending.
pub const SNAPSHOT_PENDING_WORK_BYTES: usize = 16;

/// How many members one change may remove by their ranks from a sorted set that a snapshot copies in parts, to be recorded one by
/// one. After more, unless it is less than the share below, the copy of the value starts over.
pub const SNAPSHOT_ELEMENTS_MAX: usize = 4096;

/// One part of so many of a sorted set: who removes less does not make its copy start over, and who removes more must have added
/// them.
pub const SNAPSHOT_ELEMENTS_SHARE: usize = 16;

/// How many keys a snapshot copies again after its walk, because values came to them that it had not copied yet, until its slices
/// become twice as large; or, if there are more, as many as there are keys: so that nobody can keep it from its end by copying keys
/// onto each other.
pub const SNAPSHOT_AGAIN_MAX: usize = 10_000;

/// Most bytes by which a slice of a snapshot becomes larger because of what was changed meanwhile: what takes a millisecond or two.
pub const SNAPSHOT_DEBT_SLICE_BYTES: usize = 1024 * 1024;

/// Codes of error replies that are counted apart; scripts can make up codes without end.
pub const ERROR_CODES_MAX: usize = 128;

/// Bytes of a code that is counted apart.
pub const ERROR_CODE_MAX_BYTES: usize = 30;

/// Elements that one call draws with repetition: some 0.2 s. What they may take in the reply, [`REPLY_MAX_BYTES`] says.
pub const RANDOM_DRAWS_MAX: usize = 1 << 20;

/// Bytes of one reply, which is built in memory: what the longest string takes that clients may store by default. A longer
/// `proto-max-bulk-len` raises it. One command can ask for the same value many times.
pub const REPLY_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Bytes beyond that, for what stands around such a string: its frame, a key, the fields beside it.
pub const REPLY_FRAME_BYTES: usize = 1024 * 1024;

/// Values that a command answers which is asked for many, before it adds up the others if these took more than
/// [`REPLY_FORESEEN_BYTES`]: one call can ask for the same large value thousands of times.
pub const REPLY_FORESEEN_ITEMS: usize = 8;

/// Bytes of these values from which on that is worth it.
pub const REPLY_FORESEEN_BYTES: usize = 1024 * 1024;

/// Bytes of elements and weights that one SORT gathers: the same weight can belong to many elements.
pub const SORT_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Elements that one step of SCAN and its kin answers at most, whatever COUNT says: some 0.2 s.
pub const SCAN_COUNT_MAX: usize = 1 << 20;

/// Entries that XADD and XTRIM remove by whole nodes, at most, where the call gives no LIMIT: as many as in Redis.
pub const STREAM_TRIM_MAX_ENTRIES: u64 = 1_000_000;

const _: () = {
    // A command that is allowed must be addressable.
    assert!(QUERY_BUFFER_HARD_MAX_BYTES + INLINE_MAX_BYTES <= u32::MAX as usize);
    // Behind what was kept of a command there is room for as much as is read otherwise.
    assert!(READ_BEHIND_BYTES + READ_CHUNK_BYTES <= READ_LARGE_BYTES);
    // What is left for the next large value is small beside it.
    assert!(2 * SEND_REST_MAX_BYTES <= OUTBOX_TAKE_OVER_BYTES);
    // What is copied rather than taken over fits a chunk with others.
    assert!(OUTBOX_TAKE_OVER_BYTES <= OUTBOX_CHUNK_BYTES);
    // A pipeline is held to the limits of output before it pauses.
    assert!(OUTPUT_UNCOUNTED_BYTES < REPLY_PAUSE_BYTES && REPLY_PAUSE_BYTES < OUTBOX_PAUSE_BYTES);
};

// Keys

/// Bytes of what a unit has touched, for those who watch keys or wait for them. Beyond it keys that were touched twice are
/// noted once, and where that does not help, their whole database.
pub const TOUCHES_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of the places of one size that a database keeps when it is empty, so that a lock that comes and goes allocates nothing.
pub const ARENA_KEEP_BYTES: usize = 4096;

/// The same for the blocks of a database's timers: 1 KB.
pub const TIMERS_KEEP_BLOCKS: usize = 8;

/// Expired fields or members that a lookup of their key removes on its way; the others are hidden until the next slice of
/// expiry: some 50 us.
pub const EXPIRED_ELEMENTS_PER_LOOKUP: usize = 128;

/// Bytes of a compact value up to which a script's change of it is undone from a copy: 128 pairs of 64 bytes each, the
/// largest that the default parameters leave compact.
pub const UNDO_COPY_MAX_BYTES: usize = 16 * 1024;

// Coordination

/// Rules of one LIMIT.TAKE: three times those of an API gateway that has many.
pub const LIMIT_RULES_MAX: usize = 32;

/// Length of a window of LIMIT.TAKE: ten years.
pub const LIMIT_WINDOW_MAX_MS: i64 = 10 * 365 * 24 * 60 * 60 * 1_000;

/// Units that an EXACT rule allows within its window, each of which is kept: some megabytes a key.
pub const LIMIT_EXACT_MAX: i64 = 65_536;

/// Units that one call takes of an EXACT rule: 32 such rules hold others up for some ten milliseconds.
pub const LIMIT_EXACT_UNITS_MAX: i64 = 1_000;

/// The serial number at which the names of an EXACT rule's units of one millisecond end: eight digits.
pub const LIMIT_EXACT_SERIAL_END: i64 = 100_000_000;

/// How long what a request took is kept under its ID at most, for all that a limit may count it for a month: a retry comes within
/// minutes, a refund when the work has failed that it was for.
pub const LIMIT_REQUEST_MAX_MS: i64 = 24 * 60 * 60 * 1_000;

/// Leases of a gate that a refused CONCURRENCY rule looks at, to tell when enough of them end.
pub const LIMIT_LEASES_LOOKED_AT: usize = 1_000;

/// Bytes of all keys of a request with an ID, which keeps them.
pub const LIMIT_REQUEST_MAX_BYTES: usize = 64 * 1024;

/// IDs of one block of ID.NEXT: a quarter of what a millisecond has, so that few blocks run ahead of the clock.
pub const ID_COUNT_MAX: i64 = 1_000_000;

// Scripts

/// Names of commands, each in the cases in which scripts write it, that are looked up only once.
pub const SCRIPT_NAMES_KEPT: usize = 512;

/// Bytes that one script or transaction may publish where they wait until it is done.
pub const HELD_MESSAGES_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Keys beyond `tracking-table-max-keys` that one command, transaction or script may add to the table of what clients cache; with more
/// all of them are told to drop everything.
pub const TRACKED_KEYS_OVERRUN: usize = 1_000_000;

/// Keys that this table loses at a time while it has too many; each time in a row that this was not enough, as many more.
pub const TRACKING_LIMIT_KEYS_AT_ONCE: usize = 100;

/// Bytes of lines that MONITOR's clients are shown when a script or transaction is over. If there are more they can't be shown what has
/// happened, and are disconnected.
pub const HELD_LINES_MAX_BYTES: usize = 64 * 1024 * 1024;

/// How often a script that goes on is asked whether it may: each time serves others and may end it. The first time comes when the
/// same run has been seen twice, so after two of these at the latest.
pub const SCRIPT_ALARM_TICK: Duration = Duration::from_millis(5);

/// Ticks without a script after which the clock of scripts is looked at less often, and is woken by the next one.
pub const SCRIPT_ALARM_IDLE_AFTER_TICKS: u32 = 50;

/// How often it is looked at then: what a script gains at most if waking the clock fails.
pub const SCRIPT_ALARM_IDLE_TICK: Duration = Duration::from_millis(250);

/// VM instructions of a script that is debugged between two such questions.
pub const DEBUG_HOOK_INSTRUCTIONS: i32 = 100_000;

/// Bytes that a C function of the script VM copies or changes between two looks at the clock: below 1 ms.
pub const SCRIPT_CHUNK_BYTES: usize = 256 * 1024;

/// Bytes of a string that `string.upper` and its like change on the stack, without the scratch buffer.
pub const SCRIPT_SHORT_STRING_BYTES: usize = 128;

/// Nesting of a command's reply that a script reads. Commands nest far less; this bounds the C stack.
pub const SCRIPT_TAPE_MAX_DEPTH: usize = 128;

/// Bytes of a reply that ONCE keeps, in the form in which it does. What a request is answered is mostly short; what is longer takes memory
/// for as long as the id lives.
pub const ONCE_REPLY_MAX_BYTES: usize = 1024 * 1024;

/// Bytes of a string that `string.rep` and its like may build: the most that a Redis value holds.
pub const SCRIPT_STRING_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Bytes of C stack below the start of a script from which on C functions refuse to call back into Lua (a `gsub` whose
/// function calls `gsub`). Lua 5.1 allows 200 such calls; this is room for more, on the smallest usual stack of 2 MiB.
pub const SCRIPT_C_STACK_BYTES: usize = 256 * 1024;

/// The same for data that nests, which `cjson` and `cmsgpack` follow: room for 1,000 levels. AddressSanitizer makes frames larger.
pub const SCRIPT_DATA_STACK_BYTES: usize = if cfg!(sanitizer) { 24 } else { 1 } * 1024 * 1024;

/// Bytes from which on what was used only once is not left for later: a buffer of the log, a script's list of arguments, a reply
/// that became Lua values. Other buffers that are used again and again give all of their memory back `hz` times a second.
pub const SCRATCH_KEEP_BYTES: usize = 64 * 1024;

/// Bytes of a block of Lua's from which on it is large: a script that has reached its memory limit is refused such a block at
/// once, and gets a smaller one in the instruction that is its last. Far above what an instruction takes that does not
/// concatenate long strings or grow a large table (Lua's stack grows to 512 KiB).
pub const SCRIPT_LARGE_BLOCK_BYTES: usize = 1024 * 1024;

/// Bytes of garbage that scripts may leave until it is collected between them; below, it is left to Lua.
pub const SCRIPT_GARBAGE_KEEP_BYTES: usize = 1024 * 1024;

/// How long garbage is collected at a time, between other work.
pub const SCRIPT_TIDY_SLICE: Duration = Duration::from_micros(500);

/// Keys, and arguments, of a script up to which the tables KEYS and ARGV are kept for the next one.
pub const SCRIPT_LIST_KEEP_ELEMENTS: usize = 64;

/// The first of them, which are compared with those of the next script.
pub const SCRIPT_LIST_KNOWN_ELEMENTS: usize = 4;

/// Bytes of a string that `cjson` escapes at once; each may become six.
pub const SCRIPT_ESCAPE_CHUNK_BYTES: usize = 4 * 1024;

/// Steps of matching a pattern between two looks at the clock: a step looks at a byte or two, so far below 1 ms.
pub const SCRIPT_PATTERN_TICK_STEPS: usize = 1_000;

/// Bytes of a back reference that are compared as one step of matching: comparing is that much faster.
pub const SCRIPT_PATTERN_STEP_BYTES: usize = 32;

/// Nesting of choices within one match of a pattern: bounds the C stack.
pub const SCRIPT_PATTERN_MAX_DEPTH: usize = 200;

/// Breakpoints that a script may have: as many as in Redis.
pub const DEBUG_BREAKPOINTS_MAX: usize = 64;

/// Bytes of a value that the debugger shows unless the client says otherwise (`maxlen`), and the least that it may say.
pub const DEBUG_LINE_DEFAULT_BYTES: usize = 256;
/// See [`DEBUG_LINE_DEFAULT_BYTES`].
pub const DEBUG_LINE_MIN_BYTES: usize = 60;

/// Bytes that the debugger shows from one stop to the next; what a script says beyond it is left out.
pub const DEBUG_SCREEN_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Bytes for a debugger's client that it has not read; as long as there are more, nothing is taken from it.
pub const DEBUG_UNSENT_MAX_BYTES: usize = 1024 * 1024;

/// Bytes of one command for the debugger: as in Redis.
pub const DEBUG_COMMAND_MAX_BYTES: usize = 1024 * 1024;

/// Functions, from the innermost on, whose variables and callers the debugger shows.
pub const DEBUG_LEVELS_MAX: i32 = 100;

/// Nesting of tables that the debugger shows.
pub const DEBUG_VALUE_MAX_DEPTH: usize = 10;

/// Nesting of tables that `cmsgpack.pack` follows; deeper ones are packed as nil. That of Redis' library.
pub const SCRIPT_MSGPACK_MAX_DEPTH: usize = 16;

/// Bytes of program text that `loadstring` compiles and `load` gathers from a function's pieces: nothing interrupts that.
pub const SCRIPT_LOAD_MAX_BYTES: usize = 1024 * 1024;

/// How long a library of functions may take to load: as in Redis.
pub const LIBRARY_LOAD_MAX: Duration = Duration::from_millis(500);

/// Scripts that came by EVAL and are kept, however short: as many as Redis keeps since 7.4. Bounds what they take beside their
/// texts, which `script-cache-max-bytes` bounds.
pub const SCRIPT_EVAL_CACHE_MAX: usize = 500;

/// Among so many of the last refusals ACL LOG looks for one that is like a new one, which is then counted there: as in Redis.
pub const ACL_LOG_MERGE_AMONG: usize = 10;

/// And so long after it, in ms.
pub const ACL_LOG_MERGE_WITHIN_MS: i64 = 60_000;

/// Bytes of each text that ACL LOG keeps of a refusal: what was asked for, the name of the user and the line about the client.
pub const ACL_LOG_MAX_TEXT_BYTES: usize = 4 * 1024;

/// Bytes of each of the names that a client has given itself which ACL LOG shows.
pub const ACL_LOG_MAX_NAME_BYTES: usize = 512;

/// Arguments that are kept of a command that stood out, and of a slow call of a script: as many as Redis' SLOWLOG keeps.
pub const COMMAND_LOG_MAX_ARGS: usize = 32;

/// Bytes of each of them.
pub const COMMAND_LOG_MAX_ARG_BYTES: usize = 128;

/// Seconds of which LATENCY keeps a sample for each event.
pub const LATENCY_SAMPLES_MAX: usize = 160;

/// Connections to the port of metrics that have not asked yet: with one more the oldest of them is closed. As many may wait for
/// the engine at a time.
pub const METRICS_CONNECTIONS_MAX: usize = 8;

/// Bytes of a request for metrics.
pub const METRICS_REQUEST_MAX_BYTES: usize = 8 * 1024;

/// Time for such a request to come, and for its answer to be taken.
pub const METRICS_PATIENCE: Duration = Duration::from_secs(5);

/// Time that the engine has to tell its metrics; then it is said to be busy.
pub const METRICS_ENGINE_PATIENCE: Duration = Duration::from_secs(2);

/// Milliseconds for which one command may run before the server is not ready, unless `busy-reply-threshold` says less or more.
pub const READY_PATIENCE_MS: u64 = 5_000;

/// Patterns that DEBUG STRINGMATCH-TEST tries.
pub const DEBUG_GLOB_TRIALS: usize = 100_000;

/// Commands that the trail of a slow call keeps: the slowest of them.
pub const SCRIPT_TRAIL_MAX_STEPS: usize = 32;

/// Arguments of a command in such a trail, its name included.
pub const SCRIPT_TRAIL_MAX_ARGS: usize = 6;

/// Bytes of each of them.
pub const SCRIPT_TRAIL_MAX_ARG_BYTES: usize = 64;

/// Nesting of blocks and expressions in a script that is looked at: as in Lua 5.1, whose parser refuses deeper ones.
pub const SYNTAX_MAX_DEPTH: usize = 200;

/// Refills of a stock whose ids are remembered, so that each counts once: the last ones.
pub const STOCK_REFILLS_MAX: usize = 4_096;

/// Orders sold from a stock that are remembered, so that to commit one again answers as before: the last ones.
pub const STOCK_SALES_MAX: usize = 1 << 16;

/// Subjects of which a stock remembers what they have bought: those that bought last. With more, `PER` bounds what the others buy from now on.
pub const STOCK_BUYERS_MAX: usize = 1 << 20;

/// Bytes of the name of who holds a lock or a gate's place. Each grant keeps it, and each record of one in the log.
pub const HOLDER_MAX_BYTES: usize = 1024;

/// Bytes of what a holder notes about its grant.
pub const GRANT_NOTE_MAX_BYTES: usize = 1024;

/// Calls that may wait beside one connection (ASYNC): as many as a service has requests under way, with room to spare. When the
/// connection ends all of them leave their queues at once.
pub const TICKETS_MAX: usize = 1 << 15;

/// How long a lease is at most, ms: a year. Who needs a place for longer renews it.
pub const LEASE_MAX_MS: i64 = 366 * 24 * 60 * 60 * 1000;

/// No clock that is right shows less, Unix ms: the beginning of the year in which this was written, 2026.
pub const CLOCK_EARLIEST_MS: i64 = 1_767_225_600_000;

/// How long a policy of a consumer group may let a message wait, ms: a year, for each of its times.
pub const POLICY_MAX_MS: i64 = LEASE_MAX_MS;

/// How often a message may become a dead letter, one stream after another. Behind that it stays where it is: groups that are each other's dead
/// letters would move it for ever, and it grows with each hop. Where two groups of each stream do so, there are twice as many of it after each:
/// so the number is small. Nobody chains so many streams on purpose.
pub const DEAD_LETTER_MAX_HOPS: u64 = 8;

/// Streams that XGROUP SETPOLICY looks at to find out whether dead letters would come back: nobody else is served meanwhile. A longer circle
/// ends by [`DEAD_LETTER_MAX_HOPS`].
pub const DEAD_LETTER_CIRCLE_LOOKS: usize = 128;

/// How soon, in ms, dead letters are tried again that could not be moved.
pub const DEAD_LETTER_RETRY_MS: u64 = 1_000;

/// Bytes of dead letters that are moved in one slice, of which one may exceed it.
pub const DEAD_LETTERS_MAX_BYTES: usize = 1024 * 1024;

/// Bytes that a dead letter takes in the log at most beside texts: those of its fields' names, of ids and numbers.
pub const DEAD_LETTER_EFFECT_BYTES: usize = 512;

/// Pending entries that were deleted meanwhile of which one XREADGROUP finds out for each stream, beside those that it answers: nobody else is
/// served while it does.
pub const READ_DELETED_MAX: usize = 1_000;

/// How long XADD may delay a message, ms: a year.
pub const DELAY_MAX_MS: i64 = LEASE_MAX_MS;

/// Delayed messages of a stream that become entries at once, when somebody reads or their timer comes: less than a millisecond's worth. The
/// others follow at the next look. Who appends lets all become entries that are due.
pub const DELAYED_RELEASED_MAX: usize = if cfg!(test) { 20 } else { 1_000 };

/// Delayed messages that become entries before one that is appended, which is to come behind all that is due: for some tenths of a second at
/// most. Of more, the later ones come behind it.
pub const DELAYED_RELEASED_BEFORE_APPEND_MAX: usize = 100_000;

/// Bytes of delayed messages after which no further one becomes an entry at once; one may exceed it.
pub const DELAYED_RELEASED_MAX_BYTES: usize = if cfg!(test) { 10_000 } else { 1024 * 1024 };

/// Bytes that the log takes at most for a delayed message that becomes an entry, beside the name of its key.
pub const DELAYED_RELEASE_EFFECT_BYTES: usize = 64;

/// Delayed messages that XDELAY.LIST answers at a time unless COUNT says otherwise, and at most.
pub const DELAYED_COUNT: usize = 100;
/// See [`DELAYED_COUNT`].
pub const DELAYED_MAX_COUNT: usize = 10_000;
/// Bytes of delayed messages after which it answers no more; one may exceed it.
pub const DELAYED_LIST_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Dead letters that XDLQ.REDRIVE puts back unless the call says how many, and how many entries it looks at for each.
pub const REDRIVE_COUNT: usize = 100;
/// See [`REDRIVE_COUNT`].
pub const REDRIVE_LOOKS: usize = 10;
/// Bytes of dead letters after which it puts back no more; one may exceed it.
pub const REDRIVE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// How soon, in ms, it is looked again whether a lease has been removed that is over.
pub const PLACE_LOOK_AGAIN_MS: i64 = 10;

/// The largest fencing token that a payload of RESTORE may bring, unless it was given out here: half of all, so that nobody can use
/// them up.
pub const RESTORED_TOKEN_MAX: u64 = 1 << 52;

/// Bytes of the key of a stock that tells a stream how its holds end, and of the stream's: each end copies them.
pub const STOCK_TOLD_KEY_MAX_BYTES: usize = 1024;

/// Holders that GATE.HOLDERS, and holds that STOCK.HOLDS answers at a time unless COUNT says otherwise, and at most.
pub const HOLDERS_COUNT: usize = 100;

/// See [`HOLDERS_COUNT`].
pub const HOLDERS_MAX_COUNT: usize = 10_000;

/// Bytes of a script that SCRIPT LINT looks at: its tree takes some fifty times that.
pub const SCRIPT_LINT_MAX_BYTES: usize = 1024 * 1024;

/// Bytes that SCRIPT TRACE keeps of what a script called and was answered; of calls beyond that only the number is told.
pub const SCRIPT_TRACE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of a segment of the log: what one prefilled file takes, and the steps in which a cut frees space.
pub const LOG_SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of the segment that a start begins with. Small, because it is filled with zeros before the first client is served.
pub const LOG_FIRST_SEGMENT_BYTES: u64 = 1024 * 1024;

/// How many times as long as the one before a segment is that is made ahead, up to [`LOG_SEGMENT_BYTES`]: the first ones are ready
/// soon, and a log that hardly grows takes little space.
pub const LOG_SEGMENT_GROWTH: u64 = 4;

/// Bytes of a segment that are filled with zeros and synced at once. A sync of the log may have to wait for so many.
pub const LOG_FILL_BYTES: u64 = if cfg!(test) { 16 * 1024 } else { 1024 * 1024 };

/// After a piece was filled, how many times as long as that took the disk is left to others, unless no segment lies ready.
pub const LOG_FILL_PAUSE: u32 = 3;

/// Segments that lie ready, so that the log changes to the next one without creating a file.
pub const LOG_PREPARED_SEGMENTS: usize = 2;

/// Segments kept for reuse when a cut frees more than are wanted; the others are removed.
pub const LOG_PREPARED_MAX_SEGMENTS: usize = 4;

/// Bytes that must be left in prepared segments when no further one can be made: with less, writes are refused, so that what
/// has already been executed still finds its place.
pub const LOG_RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes up to which what was handed over in several turns is merged into one block.
pub const LOG_MERGE_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of effects that one unit may have while there is a log. Several times what one string may take, and far below what the
/// length of a unit on disk can tell; tests reach it sooner.
pub const UNIT_MAX_BYTES: usize = if cfg!(test) { 1024 * 1024 } else { 1024 * 1024 * 1024 };

/// Bytes of the effect of one member of a sorted set beside the member itself: at most its code, its length and its score.
pub const MEMBER_EFFECT_BYTES: usize = 16;

/// Bytes of an effect on an entry that is pending beside the names of group and consumer, at most.
pub const PENDING_EFFECT_BYTES: usize = 64;

/// Bytes of one block: its length is 32 bits wide, and twice [`UNIT_MAX_BYTES`] is far below that.
pub const LOG_BLOCK_MAX_BYTES: usize = 2 * 1024 * 1024 * 1024;

/// Buffers that the log keeps to give back, and the bytes each of them may keep allocated.
pub const LOG_SPARE_BUFFERS: usize = 4;

/// See [`LOG_SPARE_BUFFERS`].
pub const LOG_SPARE_MAX_BYTES: usize = SCRATCH_KEEP_BYTES;

/// How long a sync may take, by the slowest of late, that the engine's thread does itself though it has other clients. About what
/// it costs to have a thread do it.
pub const LOG_SYNC_IN_PLACE_MAX: Duration = Duration::from_micros(100);

/// The same while it has one client only. From here on that client loses a tenth of its speed at most if a thread does it, and
/// somebody who connects meanwhile is served.
pub const LOG_SYNC_ALONE_MAX: Duration = Duration::from_millis(1);

/// Bytes of changes and replies that may wait for the disk. With more, the engine waits, too.
pub const LOG_BEHIND_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Places of the table that tells which keys have changed and are not durable yet, 16 bytes each. A reader of another key waits
/// in vain if its place has two such keys: of 5,000 keys in flight, one reader in 400.
pub const IN_FLIGHT_PLACES: usize = 1 << 16;

/// Keys that one unit marks there. Of one that changes about as many or more, all keys count as changed.
pub const IN_FLIGHT_UNIT_MAX_KEYS: usize = 4 * 1024;

/// How long WAITAOF waits until it looks again whether a sync is done.
pub const LOG_SYNC_RETRY: Duration = Duration::from_millis(2);

/// How long the log waits on a full disk before it tries again.
pub const LOG_FULL_RETRY: Duration = Duration::from_millis(200);

/// Bytes of effects that a snapshot copies in one slice, between other work.
pub const SAVE_SLICE_BYTES: usize = 64 * 1024;

/// Bytes of changes that may gather while the snapshot is made durable that a log is to begin behind.
/// Tests reach it sooner.
pub const LOG_BEGIN_MAX_BYTES: usize = if cfg!(test) { 8 * 1024 * 1024 } else { LOG_BLOCK_MAX_BYTES / 4 };

/// How long a snapshot that has failed is not tried again by itself.
pub const SAVE_RETRY: Duration = Duration::from_secs(5);

/// How often that time is doubled with each further failure: up to about three quarters of an hour.
pub const SAVE_RETRY_DOUBLINGS: u32 = 9;

/// The same where a log is to begin behind the snapshot: up to 40 s, because what changes is in memory only until then.
pub const LOG_BEGIN_RETRY_DOUBLINGS: u32 = 3;

/// Bytes of units that a snapshot's frame holds: enough to compress well, little enough to be read and applied in one go.
pub const SNAPSHOT_FRAME_BYTES: usize = 256 * 1024;

/// Bytes of a snapshot's frame, compressed or not, that any version may write: what a damaged length can make a reader
/// allocate.
pub const SNAPSHOT_FRAME_MAX_BYTES: usize = 4 * SNAPSHOT_FRAME_BYTES;

/// Bytes of a snapshot after which they are synced: a sync at the end of gigabytes would hold up those of the log.
pub const SNAPSHOT_SYNC_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes that keys may take, about, which a dump.rdb that is made of a snapshot holds until their last change has come; or, if that is
/// more, one part in [`EXPORT_HELD_SHARE`] of what all keys take. For the rest of them the snapshot is read once more.
pub const EXPORT_HELD_MIN_BYTES: u64 = if cfg!(test) { 1024 * 1024 } else { 16 * 1024 * 1024 };

/// See [`EXPORT_HELD_MIN_BYTES`]. For keys that change a snapshot is read fewer than twice so many times, since any two neighbouring
/// reads make more of them than may be held.
pub const EXPORT_HELD_SHARE: u64 = 16;

/// What a key takes in memory beside the bytes of its effects, about. Counted where a copied key begins.
pub const EXPORT_KEY_BYTES: usize = 64;

/// Bytes of a snapshot for each bit that tells which of its keys change behind their copies: so many bits are a percent of its memory.
pub const EXPORT_FILTER_SHARE: u64 = 16;

/// Keys of a database of which a snapshot says how many there are, before they come: fewer are loaded as fast without.
pub const SNAPSHOT_EXPECT_MIN_KEYS: usize = if cfg!(test) { 2 } else { 1024 };

/// How long a snapshot leaves the engine to requests between two slices at most: a slice takes far less, unless the process was
/// stopped in it.
pub const SAVE_REST_MAX: Duration = Duration::from_millis(50);

/// Bytes that wait to be written to a snapshot above which no more is copied.
pub const SNAPSHOT_PAUSE_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that wait to be written to a snapshot above which the thread that writes it no longer gives way to others. Tests
/// reach it sooner.
pub const SNAPSHOT_HURRY_BYTES: usize = if cfg!(test) { 6 * 1024 * 1024 } else { 16 * 1024 * 1024 };

/// Bytes that wait to be written to a snapshot above which it is given up: only what changes meanwhile can make so many.
/// Tests reach it sooner.
pub const SNAPSHOT_GIVE_UP_BYTES: usize = if cfg!(test) { 16 * 1024 * 1024 } else { 256 * 1024 * 1024 };

/// Bytes of effects that a start loads at a time, about: others are answered between two slices.
pub const RECOVERY_SLICE_BYTES: usize = 256 * 1024;

/// Bytes that a key takes in RDB at least: its type, an empty name and an empty value.
pub const RDB_KEY_MIN_BYTES: u64 = 3;

/// Keys for which room is made before they come, on the word of a file: at most 5 MiB, and as keys come, room for a few more beside
/// each.
pub const EXPECTED_KEYS_MAX: usize = 64 * 1024 * 1024;

/// Keys that a start looks at together, so that what the processor has to wait for to find their places is waited for once. What it
/// has of their values meanwhile is still in its cache.
pub const LOAD_AHEAD_KEYS: usize = 16;

/// Bytes that a piece of what is read ahead of a start takes, about, before the next one begins: encoded effects and keys that are
/// ready, with all that belongs to them. Some thousand short keys. More are only those that come of a single effect.
pub const LOAD_PIECE_BYTES: usize = 512 * 1024;

/// Bytes of pieces that are read ahead of a start and lie ready: with so many, nothing more is read. Enough that neither thread waits
/// for the other each time it is interrupted.
pub const LOAD_AHEAD_BYTES: usize = 8 * LOAD_PIECE_BYTES;

/// Bytes that a buffer of what is read ahead keeps when it is used again.
pub const LOAD_AHEAD_KEEP_BYTES: usize = SNAPSHOT_FRAME_BYTES;

/// Keys of a database for which a start makes room because the log seems to hold so many. Where it does not, the room is given back
/// in one go, and everybody waits for that; so it must not be much.
pub const LOG_EXPECTED_KEYS_MAX: u64 = 4 * 1024 * 1024;

/// Bytes of a foreign file that a start loads at a time, about: reading them takes longer than reading effects.
pub const BULK_SLICE_BYTES: usize = 64 * 1024;

/// How long a start waits before it looks again at a disk that is behind.
pub const LOAD_PAUSE: Duration = Duration::from_millis(1);

/// How often `appendfsync everysec` syncs.
pub const LOG_EVERY_SEC: Duration = Duration::from_secs(1);

// Import and export

/// Bytes of one reply that this program reads as a client, where it waits for no value: a status, an error, a few numbers.
pub const CLIENT_STATUS_MAX_BYTES: usize = 1024 * 1024;

/// Items in the lists of one reply: those of EXEC, after the longest transaction that an import sends.
pub const CLIENT_REPLY_MAX_ITEMS: usize = 1 << 23;

/// Lists in each other in one reply. EXEC with what commands answer has four or five.
pub const CLIENT_REPLY_MAX_DEPTH: usize = 8;

/// Bytes of what one transaction answers an import: among them may be values that it took away.
pub const IMPORT_REPLY_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Bytes of one reply that an export waits for: a value in full, and libraries.
pub const EXPORT_REPLY_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Kinds of things that an import left out of which each is told; others are only counted.
pub const IMPORT_LEFT_OUT_MAX_KINDS: usize = 100;

/// How often a long import or export tells how far it is.
pub const IMPORT_TELL_EVERY: Duration = Duration::from_secs(2);

/// Bytes of requests that an import sends before it reads the replies to those before them: two such windows are under way.
pub const IMPORT_WINDOW_BYTES: usize = 256 * 1024;

/// Commands of a stream that are applied as one transaction, beyond which the next one begins, and their bytes.
pub const IMPORT_BATCH_COMMANDS: usize = 1_000;
/// See [`IMPORT_BATCH_COMMANDS`].
pub const IMPORT_BATCH_BYTES: usize = 1024 * 1024;

/// Bytes of one transaction of a stream, which is held until its end has come.
pub const IMPORT_UNIT_MAX_BYTES: usize = 512 * 1024 * 1024;

/// How long a server may be silent before an import gives it up: a primary sends something every ten seconds.
pub const IMPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a script of an import may run where `script-time-limit` sets no limit: nobody can be asked about it, and a start would
/// have no end. Below [`IMPORT_TIMEOUT`], so that the import hears why.
pub const IMPORT_SCRIPT_MAX: Duration = Duration::from_secs(30);
const _: () = assert!(IMPORT_SCRIPT_MAX.as_secs() < IMPORT_TIMEOUT.as_secs());

/// How often the primary is told how far a follower is.
pub const IMPORT_ACK_EVERY: Duration = Duration::from_secs(1);

/// How long a follower waits for commands before it looks at other things: its operator, the time.
pub const IMPORT_POLL: Duration = Duration::from_millis(100);

/// How long a follower waits before it connects again to a primary that is gone.
pub const IMPORT_RETRY: Duration = Duration::from_secs(1);

/// Bytes of a line in which a primary answers.
pub const IMPORT_LINE_MAX_BYTES: usize = 64 * 1024;

/// Bytes of keys and values that a snapshot sent as RDB grows by in one slice, between other work.
pub const TRANSFER_SLICE_BYTES: usize = 64 * 1024;

/// What a key costs such a slice beside its bytes, as so many bytes.
pub const TRANSFER_KEY_WORK_BYTES: usize = 64;

/// Bytes of a snapshot that may wait for a reader that is slow: with more, the next slice waits. One value beyond that may be large.
pub const TRANSFER_AHEAD_BYTES: usize = 1024 * 1024;

/// Keys that an export asks for at a time.
pub const EXPORT_PAGE_KEYS: usize = 500;
