//! The terms in which the engine and the journal talk: units to write, when to sync them, and whether the journal can.
//!
//! They stand below [`group_commit`](super::group_commit), which offers them to the engine, because its parts need them as well.

use crate::base::limits::{LOG_FIRST_SEGMENT_BYTES, LOG_PREPARED_SEGMENTS, LOG_RESERVE_BYTES, LOG_SEGMENT_BYTES};
use crate::base::lsn::Lsn;

/// Units that are encoded and not written yet, in the order of their Lsns.
#[derive(Debug)]
pub struct Tail {
    /// [`HEAD_BYTES`](super::block::HEAD_BYTES) of any content, then the units, each behind its [`unit_head`](super::block::unit_head).
    pub bytes: Vec<u8>,
    /// The Lsn of the first unit.
    pub first_lsn: Lsn,
    /// How many units there are.
    pub units: u32,
    /// Wall clock of the server when it made the last of them, in milliseconds since 1970.
    pub time_ms: i64,
}

impl Tail {
    /// The Lsn behind the last unit.
    pub fn end(&self) -> Lsn {
        self.first_lsn.plus(u64::from(self.units))
    }

    /// Takes the units, and the buffer with them.
    pub(super) fn take(&mut self) -> Tail {
        Tail { bytes: std::mem::take(&mut self.bytes), ..*self }
    }
}

/// When what was written is synced: the parameter `appendfsync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncPolicy {
    /// After each write.
    Always,
    /// When a second has passed.
    EverySec,
    /// When a segment is full, and when the log is closed.
    No,
}

/// What the log can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It writes.
    Good,
    /// The disk is full, or nearly: the engine must refuse what would change data. What was committed stays and is written when
    /// there is space.
    Full,
    /// A write or a sync has failed. Nothing becomes durable any more; only a restart helps.
    Poisoned,
}

/// The log's sizes. [`Default`] has the real ones; tests have smaller ones.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When it syncs.
    pub policy: SyncPolicy,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of the first segment after a start, and of those made in a hurry.
    pub first_segment_bytes: u64,
    /// Segments that lie ready.
    pub prepared_segments: usize,
    /// Prefilled bytes below which writes are refused when no further segment can be made.
    pub reserve_bytes: u64,
    /// Whether it may begin without a segment where there is no space for one, and wait. Who can go on without a log does better.
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
