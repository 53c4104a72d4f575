//! The errors of the coordination commands, by family.
//!
//! A refusal (a full gate, a lock held by another owner) is a reply, not an error: see [`outcome`](super::outcome). An
//! error says that the call itself is wrong. `Display` gives the whole text that the client reads, beginning with its
//! code. Errors that Redis has as well are variants of [`Error`], with Redis' texts.

use crate::command::limits::{
    DELAYED_MAX_COUNT, HOLDERS_MAX_COUNT, LIMIT_EXACT_UNITS_MAX, LIMIT_REQUEST_MAX_BYTES, LIMIT_REQUEST_MAX_MS,
    LIMIT_RULES_MAX, TICKETS_MAX,
};
use crate::keyspace::limits::{
    GRANT_NOTE_MAX_BYTES, HOLDER_MAX_BYTES, LEASE_MAX_MS, RESTORED_TOKEN_MAX, STOCK_REPORTED_KEY_MAX_BYTES,
};
use crate::spec::error::Error;
use crate::value::grants::UNITS_MAX;
use crate::value::stock::AMOUNT_MAX;

/// Errors that locks, gates, stocks, tickets and the commands about their history share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GrantError {
    /// No server lives to see this: there are 2^52 tokens.
    #[error("ERR all fencing tokens have been given out")]
    NoTokens,
    #[error("ERR ASYNC needs RESP3: send HELLO 3 first, or use BLOCK")]
    AsyncNeedsResp3,
    #[error("ERR a lease is required: give PX, EX, PXAT or EXAT")]
    NoLease,
    #[error("ERR a note must not exceed {GRANT_NOTE_MAX_BYTES} bytes")]
    NoteTooLong,
    #[error("ERR COUNT must be a whole number from 1 to {HOLDERS_MAX_COUNT}")]
    Count,
    #[error("ERR the name of a holder, owner or order must have 1 to {HOLDER_MAX_BYTES} bytes")]
    HolderLength,
    #[error("ERR the number of units must be a whole number from {least} to {UNITS_MAX}")]
    Units { least: u64 },
    #[error(
        "ERR this connection already has {TICKETS_MAX} calls waiting with ASYNC: use another connection, or give one \
         up with TICKET.CANCEL"
    )]
    TooManyTickets,
    #[error(
        "ERR the calls waiting with ASYNC on this connection use as much memory as client-query-buffer-limit allows: \
         use another connection, or give one up with TICKET.CANCEL"
    )]
    TicketsTooLarge,
    #[error("ERR the ticket must be the number returned to a call with ASYNC")]
    Ticket,
    #[error("ERR the cursor must be 0 or the `next` of an earlier reply")]
    EventsCursor,
}

/// Errors of GATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GateError {
    #[error("ERR UNITS must not exceed LIMIT")]
    UnitsAboveLimit,
    #[error("ERR this holder name is reserved for units taken over from a counter; choose another")]
    ReservedName,
    #[error("ERR this gate has no limit of its own: give LIMIT, or set one with GATE.LIMIT")]
    NoLimit,
    #[error("ERR this holder already has {held} units: release them first, or use another holder name for more")]
    OtherUnits { held: u64 },
}

/// Errors of LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LockError {
    #[error("ERR DEPTH must be a whole number from 1 to {most}")]
    Depth { most: u64 },
    #[error("ERR this owner holds the lock shared: release it before acquiring it exclusively")]
    IsShared,
}

/// Errors of STOCK.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StockError {
    #[error("ERR the number of units must be a whole number from {least} to {AMOUNT_MAX}")]
    Amount { least: u64 },
    #[error("ERR the number of milliseconds must be a whole number from {least} to {LEASE_MAX_MS}")]
    Duration { least: i64 },
    #[error("ERR the name of a subject must have 1 to {HOLDER_MAX_BYTES} bytes")]
    SubjectLength,
    #[error("ERR the id of a refill must have 1 to {HOLDER_MAX_BYTES} bytes")]
    RefillLength,
    #[error(
        "ERR this order already holds {units} units for '{subject}': cancel it first, or use another order for more"
    )]
    OtherHold { units: u64, subject: String },
    #[error("ERR a refill with this id was already made, of {units} units")]
    OtherRefill { units: u64 },
    #[error("ERR a stock must not exceed {AMOUNT_MAX} units in total")]
    TooMany,
    #[error("ERR STREAM needs the key of a stream, which must be neither empty nor the key of the stock")]
    StreamKey,
    #[error(
        "ERR with STREAM, neither the key of the stock nor that of the stream may exceed \
         {STOCK_REPORTED_KEY_MAX_BYTES} bytes"
    )]
    KeyTooLong,
    /// Commands end no hold that they cannot report.
    #[error(
        "ERR the stream of this stock can't take an entry: its key holds another type, or its last ID is the greatest \
         possible. Free that key, or detach the stream with STOCK.SET ... NOSTREAM"
    )]
    StreamUnusable,
}

/// Errors of LIMIT. Rules are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LimitError {
    #[error("ERR UNITS must be a whole number of at least 1; use DRYRUN to ask without taking any")]
    Units,
    #[error("ERR RULES must be followed by the number of rules, from 1 to {LIMIT_RULES_MAX}")]
    RuleCount,
    #[error("ERR rules {first} and {second} have the same key: give each rule its own key")]
    SameKey { first: usize, second: usize },
    #[error("ERR rule {number} is missing: each rule is a key, a kind and its parameters")]
    Missing { number: usize },
    #[error("ERR rule {number}: unknown kind '{word}'; use GCRA, FIXED, SLIDING, EXACT, CALENDAR or CONCURRENCY")]
    UnknownKind { number: usize, word: String },
    #[error("ERR rule {number} is incomplete: {kind} takes {parameters}")]
    Incomplete { number: usize, kind: &'static str, parameters: String },
    #[error("ERR rule {number}: {name} must be a whole number from {least} to {most}")]
    Parameter { number: usize, name: &'static str, least: i64, most: i64 },
    #[error("ERR rule {number}: CALENDAR counts by hour, day, week or month")]
    CalendarUnit { number: usize },
    #[error("ERR rule {number}: a call may take at most {LIMIT_EXACT_UNITS_MAX} units of an EXACT rule")]
    ExactUnits { number: usize },
    #[error("ERR rule {number}: the rate exceeds one unit per nanosecond")]
    RateTooHigh { number: usize },
    #[error("ERR rule {number}: the burst takes longer than 146 years to refill")]
    BurstTooLong { number: usize },
    #[error("ERR rule {number}: CONCURRENCY needs an ID, which holds its places")]
    NoHolder { number: usize },
    #[error(
        "ERR the ID of a call with CONCURRENCY must have 1 to {HOLDER_MAX_BYTES} bytes, and must not be the name \
         reserved for units taken over from a counter"
    )]
    HolderName,
    #[error("ERR the ID is also the key of rule {number}: use another key as the ID")]
    IdIsRule { number: usize },
    #[error("ERR with an ID, the keys of all rules must not exceed {LIMIT_REQUEST_MAX_BYTES} bytes together")]
    KeysTooLong,
    #[error("ERR the key used as the ID holds something else: give each request its own ID")]
    NotARequest,
    #[error(
        "ERR this ID was granted other keys or units: to retry, repeat the same call; for another request, use \
         another ID"
    )]
    OtherRequest,
    #[error("ERR the keys differ from those of the request's LIMIT.TAKE: give the same keys in the same order")]
    OtherKeys,
    #[error("ERR the units used must be a whole number of at least 0")]
    Used,
    #[error("ERR each key of LIMIT.SETTLE must be one of the request's LIMIT.TAKE, given once")]
    NotItsKey,
    #[error("ERR rule {number} of the request was already settled, to {used} units")]
    OtherSettlement { number: usize, used: i64 },
    #[error("ERR rule {number}: DEBT needs an ID, by which LIMIT.SETTLE names the call")]
    DebtWithoutId { number: usize },
    #[error("ERR rule {number}: {kind} rules can't have such a DEBT")]
    Debt { number: usize, kind: &'static str },
    #[error("ERR PX, EX, PXAT and EXAT say how long to remember an ID: give one")]
    NothingToKeep,
    #[error("ERR an ID is remembered for at most {LIMIT_REQUEST_MAX_MS} ms")]
    KeptTooLong,
    #[error("ERR this ID already holds {held} units of the gate: release them first, or use another ID")]
    OtherUnits { held: u64 },
    #[error("ERR the hash is not a sliding window: delete it, or use another key")]
    NotAWindow,
    #[error("ERR too many units in this millisecond: delete the key of the EXACT rule")]
    MillisecondFull,
}

/// Errors of ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdError {
    #[error("ERR SHAPE must be SNOWFLAKE or COUNTER")]
    Shape,
    #[error("ERR EPOCH and NODE apply to SHAPE SNOWFLAKE only")]
    NotSnowflake,
    #[error("ERR {name} must be a whole number from {least} to {most}")]
    Parameter { name: &'static str, least: i64, most: i64 },
    #[error("ERR EPOCH is too far in the past: the time in an ID has 41 bits of milliseconds")]
    EpochTooOld,
}

/// Errors of ONCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OnceError {
    #[error("WRONGTYPE The key does not hold a reply kept by ONCE. Use a separate id for each request")]
    NotKept,
    #[error("ERR ONCE needs EX, PX, EXAT or PXAT, which say how long to keep the reply")]
    NoTerm,
    #[error("ERR The time until which ONCE should keep the reply has passed: the command may have run before")]
    Over,
    #[error("ERR The reply exceeds the 1 MB that ONCE can keep, so the command was undone")]
    TooLong,
    #[error("ERR The command wrote the key that is its own id, so it was undone. Use another id")]
    IdTaken,
}

/// Errors of GUARD and TOKEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("STALE The lease of this fencing token has ended, so the command was not run")]
    Stale,
    #[error(
        "ERR the fencing token must be a whole number of at least 1, as returned by LOCK.ACQUIRE, GATE.ACQUIRE or \
         STOCK.RESERVE"
    )]
    NotGiven,
    #[error("ERR the fencing token must be a whole number from 0 to {RESTORED_TOKEN_MAX}")]
    OutOfRange,
}

/// Errors of XDLQ and XDELAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueueError {
    #[error("ERR the dead-letter stream and the stream to redrive into must differ")]
    SameStream,
    #[error("ERR COUNT must be a whole number from 1 to {DELAYED_MAX_COUNT}")]
    Count,
}

macro_rules! reply_with {
    ($($family:ty)*) => {$(
        impl From<$family> for Error {
            #[cold]
            fn from(error: $family) -> Error {
                Error::owned(error.to_string())
            }
        }
    )*};
}

reply_with!(GrantError GateError LockError StockError LimitError IdError OnceError TokenError QueueError);
