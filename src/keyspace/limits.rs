//! The bounds of the keyspace that are not configuration parameters, each with its reason.

/// Grants given or ended that WHO, WHY and EVENTS remember, and as many refused calls. Both together take some 500 KiB,
/// and 10 MiB if all names have the greatest length.
pub const HISTORY_PLACES: usize = 1_024;

/// Length in bytes of the longest key whose grants WHO, WHY and EVENTS remember.
pub const HISTORY_KEY_MAX_BYTES: usize = 1_024;

/// Elements up to which a collection is freed at once, in some 30 us, and not on another thread.
pub const FREE_AT_ONCE_ELEMENTS: usize = 1000;

/// Bytes up to which a string is freed at once, and not on another thread.
pub const FREE_AT_ONCE_BYTES: usize = 1024 * 1024;

/// Timers that one slice of active expiry looks at before other tasks run, and expired keys that one step of SCAN
/// removes.
pub const EXPIRY_SLICE_TIMERS: usize = 250;

/// Timers, or removed elements, after which a slice of active expiry looks at the clock.
pub const EXPIRY_STEP: usize = 10;

/// Draws of RANDOMKEY in search of an unexpired key, where expired keys are kept, before it takes an expired one.
pub const RANDOM_KEY_TRIES: usize = 100;

/// Candidates for eviction that are kept for the next time.
pub const EVICTION_POOL: usize = 16;

/// Draws in search of an evictable key before any key found is taken.
pub const EVICTION_DRAWS: usize = 16;

/// Entries that may be moved before the next unit because small collections were written or changed: about a
/// millisecond's worth.
pub const UNSETTLED_MAX: usize = 2_048;

/// Timers visited for each newly armed one while dead timers are swept out: the cost for a single command.
pub const TIMER_SWEEP_STEP: usize = 8;

/// Cost of a key or an element for a snapshot in addition to its bytes, expressed in bytes: finding it takes about as
/// long as copying this many.
pub const SNAPSHOT_KEY_WORK_BYTES: usize = 64;

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

/// Bytes of the name of a holder of a lock or of a gate's place. Each grant keeps the name, and so does each record of
/// a grant in the journal.
pub const HOLDER_MAX_BYTES: usize = 1024;

/// Bytes of a holder's note about its grant.
pub const GRANT_NOTE_MAX_BYTES: usize = 1024;

/// Longest lease in ms: a year. A holder that needs its place for longer renews the lease.
pub const LEASE_MAX_MS: i64 = 366 * 24 * 60 * 60 * 1000;

/// Earliest time that a correct clock can show, in Unix ms: the beginning of 2026, the year in which this was written.
pub const CLOCK_EARLIEST_MS: i64 = 1_767_225_600_000;

/// How often a message may become a dead letter, moving from stream to stream. After that it stays where it is: groups
/// that are each other's dead letters would move it forever, and it grows with each hop. If each stream has two such
/// groups, every hop doubles the messages, so the number is small. Nobody chains this many streams on purpose.
pub const DEAD_LETTER_MAX_HOPS: u64 = 8;

/// How soon dead letters that could not be moved are tried again, in ms.
pub const DEAD_LETTER_RETRY_MS: u64 = 1_000;

/// Bytes of dead letters moved in one slice; a single one may exceed the limit.
pub const DEAD_LETTERS_MAX_BYTES: usize = 1024 * 1024;

/// Bytes that a dead letter takes in the journal in addition to its texts: names of fields, ids and numbers.
pub const DEAD_LETTER_EFFECT_BYTES: usize = 512;

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

/// How soon the server checks again whether an expired lease has been removed, in ms.
pub const PLACE_RETRY_MS: i64 = 10;

/// Largest fencing token in a payload of RESTORE that was not given out by this server: half of all tokens, so that no
/// client can use them up.
pub const RESTORED_TOKEN_MAX: u64 = 1 << 52;

/// Bytes of the key of a stock with a STREAM, and of the stream's key: each ended hold copies both.
pub const STOCK_REPORTED_KEY_MAX_BYTES: usize = 1024;

/// Bytes of effects in one unit while there is a journal: several times the longest string, and far below the largest
/// length that a unit on disk can state. Tests reach it sooner.
pub const UNIT_MAX_BYTES: usize = if cfg!(test) { 1024 * 1024 } else { 1024 * 1024 * 1024 };

/// Places in the table of changed keys that are not durable yet, 16 bytes each. A reader of another key waits in vain
/// if its place has two such keys: one reader in 400, with 5,000 keys in flight.
pub const IN_FLIGHT_PLACES: usize = 1 << 16;

/// Keys that one unit marks as changed and not durable yet. If a unit changes about as many or more, all keys count as
/// changed.
pub const IN_FLIGHT_UNIT_MAX_KEYS: usize = 4 * 1024;

/// Keys from which a snapshot announces the size of a database before its keys: smaller databases load as fast without.
pub const SNAPSHOT_EXPECT_MIN_KEYS: usize = if cfg!(test) { 2 } else { 1024 };

/// Keys for which room is made before they come, on the word of a file: at most 5 MiB at first, and as keys come, room
/// for a few more with each.
pub const EXPECTED_KEYS_MAX: usize = 64 * 1024 * 1024;
