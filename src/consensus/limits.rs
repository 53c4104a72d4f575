//! Times and bounds of consensus.

use std::time::Duration;

use crate::log::replicated::members::MEMBERS_MAX;

/// The unit of time of elections. A tick follows the one before by at least this long, and missed ticks are dropped: a
/// lease would be worth nothing if a node that had slept could catch up.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Ticks of silence after which a follower may stand for election; each time it waits between this and twice as many.
pub(super) const ELECTION_TICKS: usize = 15;

/// Ticks between the heartbeats of a leader.
pub(super) const HEARTBEAT_TICKS: usize = 4;

/// The time for which a node that has heard of a leader, or has just started, gives nobody its vote unasked.
pub(crate) const VOTING_PAUSE: Duration = Duration::from_millis(150);

/// The time for which a leader may be sure of its followers after they were asked. A follower's first tick may come at
/// once, so it can stand for election one tick before the pause is over. The rest is for clocks that run at different
/// speeds: up to 14 % apart.
pub(crate) const LEASE: Duration = Duration::from_millis(120);

/// Bytes of entries in one message to a follower; a single entry may be larger. With all messages in flight it is what
/// leader and follower hold of a log that is sent: enough for 10 GB/s over a way of a millisecond.
pub(super) const MESSAGE_BYTES: u64 = 256 * 1024;

/// Bytes that an entry counts beside its data when the size of a message is bounded.
pub(super) const BYTES_PER_ENTRY: usize = 24;

/// Messages with entries on their way to one follower.
pub(super) const MESSAGES_IN_FLIGHT: usize = 64;

/// Bytes of entries that a node keeps in memory for followers, unless its settings say otherwise. It is some hundred
/// messages: a follower that lags further behind is served from the files.
pub(crate) const MEMORY_BYTES: u64 = 32 * 1024 * 1024;

/// Fetches of older entries that are not answered: one for each follower. Each has the bytes of one message.
pub(super) const FETCHES_MAX: usize = MEMBERS_MAX;

/// Entries that a learner may lack when it becomes a voter: it has them before the quorum needs it.
pub(crate) const PROMOTE_LAG_MAX: u64 = 256;

/// The fewest voters. A group of one would acknowledge what nobody else has.
pub(crate) const VOTERS_MIN: usize = 2;

const _: () = assert!(VOTING_PAUSE.as_millis() == TICK.as_millis() * ELECTION_TICKS as u128);
const _: () = assert!(LEASE.as_millis() < TICK.as_millis() * (ELECTION_TICKS as u128 - 1));

/// The greatest index, term and Lsn that a message may name. No group gets there; sums of them do not overflow.
pub(super) const INDEX_MAX: u64 = 1 << 62;

/// How much further a message's term may be than this node's own. Each election takes one.
pub(super) const TERM_JUMP_MAX: u64 = 1 << 32;
