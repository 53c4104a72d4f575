//! The bounds of commands that are not configuration parameters, each with its reason.

use std::time::Duration;

use crate::keyspace::limits::{LEASE_MAX_MS, UNIT_MAX_BYTES};

/// Keys of all databases together that INFO keysizes looks at. This blocks other clients for a few milliseconds, and a
/// sample of this size is accurate to within a hundredth.
pub const KEY_SIZES_MAX_KEYS: usize = 32_768;

/// Keys of all databases together that a scrape of metrics looks at, to tell how many grants are held. It blocks other
/// clients meanwhile, and comes more often than INFO keysizes.
pub const METRICS_MAX_KEYS: usize = 16_384;

/// Bytes of one reply that MIGRATE reads from the other server: a status or an error.
pub const MIGRATE_REPLY_MAX_BYTES: usize = 64 * 1024;

/// Bytes that MIGRATE sends within one timeout, as in Redis.
pub const MIGRATE_PIECE_BYTES: usize = 64 * 1024;

/// How long one MIGRATE may take in all, whatever its timeout, which applies to each step: no other client is served
/// during a MIGRATE.
pub const MIGRATE_MAX: Duration = Duration::from_secs(60);

/// Longest duration of DEBUG SLEEP.
pub const DEBUG_SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// Bytes of keys and values that one DEBUG POPULATE may add: they form one unit of the journal.
pub const DEBUG_POPULATE_MAX_BYTES: usize = UNIT_MAX_BYTES;

/// Elements that one call draws with repetition: some 0.2 s. [`REPLY_MAX_BYTES`](crate::resp::limits::REPLY_MAX_BYTES)
/// bounds their size in the reply.
pub const RANDOM_DRAWS_MAX: usize = 1 << 20;

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

/// Leases of a gate that a refused CONCURRENCY rule scans to find out when enough of them end.
pub const LIMIT_LEASES_SCANNED_MAX: usize = 1_000;

/// Bytes of all keys of a request with an ID, which keeps them.
pub const LIMIT_REQUEST_MAX_BYTES: usize = 64 * 1024;

/// IDs in one block of ID.NEXT: a quarter of the IDs of a millisecond, so that few blocks run ahead of the clock.
pub const ID_COUNT_MAX: i64 = 1_000_000;

/// Bytes of a reply that ONCE keeps, in its stored form. Most replies are short; a longer one takes memory as long as
/// its id lives.
pub const ONCE_REPLY_MAX_BYTES: usize = 1024 * 1024;

/// Patterns that DEBUG STRINGMATCH-TEST tries.
pub const DEBUG_GLOB_TRIALS: usize = 100_000;

/// Calls that may wait beside one connection (ASYNC): as many as a service has requests under way, with room to spare.
/// When the connection ends, all of them leave their queues at once.
pub const TICKETS_MAX: usize = 1 << 15;

/// Longest of each of the times in a consumer group's policy for which a message may wait, in ms: a year.
pub const POLICY_MAX_MS: i64 = LEASE_MAX_MS;

/// Streams that XGROUP SETPOLICY follows to find out whether dead letters would come back; no other client is served
/// during the search. [`DEAD_LETTER_MAX_HOPS`](crate::keyspace::limits::DEAD_LETTER_MAX_HOPS) ends a longer circle.
pub const DEAD_LETTER_CIRCLE_STEPS: usize = 128;

/// Deleted pending entries that one XREADGROUP discovers for each stream, besides the entries that it returns; no other
/// client is served during the search.
pub const READ_DELETED_MAX: usize = 1_000;

/// How long XADD may delay a message, in ms: a year.
pub const DELAY_MAX_MS: i64 = LEASE_MAX_MS;

/// Delayed messages that XDELAY.LIST returns at a time unless COUNT says otherwise.
pub const DELAYED_COUNT: usize = 100;

/// Delayed messages that XDELAY.LIST returns at a time at most.
pub const DELAYED_MAX_COUNT: usize = 10_000;

/// Bytes of delayed messages after which XDELAY.LIST returns no more; a single one may exceed the limit.
pub const DELAYED_LIST_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Dead letters that XDLQ.REDRIVE puts back unless the call gives a number.
pub const REDRIVE_COUNT: usize = 100;

/// Entries that XDLQ.REDRIVE scans for each dead letter that it should put back.
pub const REDRIVE_SCANNED_PER_LETTER: usize = 10;

/// Bytes of dead letters after which XDLQ.REDRIVE puts back no more; a single one may exceed the limit.
pub const REDRIVE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Holders that GATE.HOLDERS, and holds that STOCK.HOLDS, returns at a time unless COUNT says otherwise.
pub const HOLDERS_COUNT: usize = 100;

/// Holders that GATE.HOLDERS, and holds that STOCK.HOLDS, returns at a time at most.
pub const HOLDERS_MAX_COUNT: usize = 10_000;

/// Bytes of the effect of one member of a sorted set in addition to the member itself: its code, its length and its
/// score at most.
pub const MEMBER_EFFECT_BYTES: usize = 16;

/// Bytes of an effect on a pending entry in addition to the names of group and consumer.
pub const PENDING_EFFECT_BYTES: usize = 64;

/// Bytes of the address and of the history that HANDOVER RECEIVE takes: errors and each change repeat them.
pub const HANDOVER_NAME_MAX_BYTES: usize = 256;
