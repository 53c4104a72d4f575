//! The tail of the journal: finished units that have not been handed to it yet.

use crate::base::lsn::Lsn;
use crate::log::block::{HEAD_BYTES, unit_head, units_in};

/// The version of the effects' encoding, which each unit states.
pub const EFFECTS_FORMAT: u8 = 1;

/// The origin of a unit, as recorded in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UnitOrigin {
    /// A client's command.
    Command = 1,
    /// A call that had been waiting.
    Woken = 2,
    /// Keys or elements that expired.
    Expiry = 3,
    /// A start of the server with a changed configuration.
    Start = 4,
    /// Part of a snapshot, which copies existing data.
    Snapshot = 5,
    /// Keys evicted because memory was full.
    Eviction = 6,
}

impl UnitOrigin {
    /// Returns the origin of this number; that of a command for numbers of later versions.
    pub(crate) fn of(number: u8) -> UnitOrigin {
        use UnitOrigin::{Command, Eviction, Expiry, Snapshot, Start, Woken};
        let known = [Command, Woken, Expiry, Start, Snapshot, Eviction];
        known.into_iter().find(|origin| *origin as u8 == number).unwrap_or(Command)
    }
}

/// Why bytes are not units that this version can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUnits {
    /// They were written by a newer version.
    #[error("the changes have format {0}, which this version does not know: use the version of their server")]
    Newer(u8),
    /// The last unit is not whole.
    #[error("the last change is not whole")]
    CutOff,
}

/// Counts units that lie one behind the other, and checks that they are whole and of a known format.
pub(crate) fn count_units(bytes: &[u8]) -> Result<u64, BadUnits> {
    let (mut units, mut count) = (units_in(bytes, Lsn::FIRST), 0);
    for unit in units.by_ref() {
        if unit.format != EFFECTS_FORMAT {
            return Err(BadUnits::Newer(unit.format));
        }
        count += 1;
    }
    if units.bytes_left() > 0 { Err(BadUnits::CutOff) } else { Ok(count) }
}

/// Returns the encoded effects of each of these units.
pub(crate) fn effects_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // The Lsns do not matter here.
    units_in(bytes, Lsn::FIRST).map(|unit| unit.effects)
}

/// See the file's header. The bytes have the journal's layout: room for the head of a block, then each unit behind a
/// head that gives its length.
#[derive(Debug)]
pub struct Tail {
    pub(crate) bytes: Vec<u8>,
    pub(crate) units: u32,
    /// When the last unit was made, Unix ms.
    pub(crate) time_ms: i64,
}

impl Default for Tail {
    fn default() -> Tail {
        Tail::new(vec![0; HEAD_BYTES])
    }
}

impl Tail {
    /// Creates an empty tail in a buffer that holds only the room for the block's head.
    pub(crate) fn new(bytes: Vec<u8>) -> Tail {
        Tail { bytes, units: 0, time_ms: 0 }
    }

    /// Appends a unit with all its effects.
    #[inline]
    pub(crate) fn append(&mut self, origin: UnitOrigin, effects: &[u8], time_ms: i64) {
        self.bytes.extend_from_slice(&unit_head(EFFECTS_FORMAT, origin as u8, effects.len() as u32));
        self.bytes.extend_from_slice(effects);
        self.units += 1;
        self.time_ms = time_ms;
    }

    /// Bytes allocated.
    pub(crate) fn mem_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Releases spare memory if the tail is empty.
    pub(crate) fn give_back(&mut self) {
        if self.units == 0 {
            self.bytes.shrink_to(HEAD_BYTES);
        }
    }

    /// Returns the encoded effects of each unit.
    pub fn units(&self) -> impl Iterator<Item = &[u8]> {
        effects_of(&self.bytes[HEAD_BYTES..])
    }
}
