//! The terms in which the engine and the journal talk: units to write, when to sync them, and the journal's state.
//!
//! [`group_commit`](super::group_commit) offers these types to the engine. They are declared below it because its parts
//! need them as well.

use crate::base::lsn::Lsn;
use crate::log::limits::{LOG_FIRST_SEGMENT_BYTES, LOG_PREPARED_SEGMENTS, LOG_RESERVE_BYTES, LOG_SEGMENT_BYTES};

/// Encoded units that are not written yet, in the order of their Lsns.
#[derive(Debug)]
pub struct Tail {
    /// Room for a block's head ([`HEAD_BYTES`](super::block::HEAD_BYTES) of any content), then the units, each behind
    /// its [`unit_head`](super::block::unit_head).
    pub bytes: Vec<u8>,
    /// The Lsn of the first unit.
    pub first_lsn: Lsn,
    /// Number of units.
    pub units: u32,
    /// The server's wall clock when it made the last unit, in milliseconds since 1970.
    pub time_ms: i64,
}

impl Tail {
    /// Returns the Lsn of the unit that will follow the last one here.
    pub fn end(&self) -> Lsn {
        self.first_lsn.plus(u64::from(self.units))
    }

    /// Takes the units together with their buffer, and leaves an empty one.
    pub(super) fn take(&mut self) -> Tail {
        Tail { bytes: std::mem::take(&mut self.bytes), ..*self }
    }
}

/// When written blocks are synced: the parameter `appendfsync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncPolicy {
    /// After each write.
    Always,
    /// Once a second.
    EverySec,
    /// Only when a segment is full, and when the journal is closed.
    No,
}

/// The journal's ability to take more units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Units are written.
    Good,
    /// The disk is full or nearly so, and the engine must refuse commands that would change data. Committed units are
    /// kept, and are written when there is space.
    Full,
    /// A write or a sync has failed. Nothing more becomes durable; only a restart helps.
    Poisoned,
}

/// The journal's settings. [`Default`] has the real sizes; tests use smaller ones.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When to sync.
    pub policy: SyncPolicy,
    /// Size of a segment, in bytes.
    pub segment_bytes: u64,
    /// Size in bytes of the first segment after a start, and of one made in a hurry because none was prepared.
    pub first_segment_bytes: u64,
    /// Number of segments to keep prepared.
    pub prepared_segments: usize,
    /// When no further segment can be made, writes are refused once fewer prefilled bytes than this are left.
    pub reserve_bytes: u64,
    /// Whether a start without space for a segment may go on and wait for space. A caller that can do without a journal
    /// does better to refuse.
    pub may_wait_for_space: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            policy: SyncPolicy::Always,
            segment_bytes: LOG_SEGMENT_BYTES,
            first_segment_bytes: LOG_FIRST_SEGMENT_BYTES,
            prepared_segments: LOG_PREPARED_SEGMENTS,
            reserve_bytes: LOG_RESERVE_BYTES,
            may_wait_for_space: true,
        }
    }
}
