//! The tail of the log: finished units that have not been given to it yet.

use super::unit::Origin;
use crate::log::block::{HEAD_BYTES, UNIT_HEAD_BYTES, unit_head};

/// The version of the effects' encoding, which each unit names.
pub const EFFECTS_FORMAT: u8 = 1;

/// See the file's header. As the log wants it: room for its own head, then each unit behind a head that tells its length.
#[derive(Debug)]
pub struct Tail {
    pub(super) bytes: Vec<u8>,
    pub(super) units: u32,
    /// When the last unit was made, Unix ms.
    pub(super) time_ms: i64,
}

impl Default for Tail {
    fn default() -> Tail {
        Tail::new(vec![0; HEAD_BYTES])
    }
}

impl Tail {
    /// An empty one in a buffer that has nothing but the room for the log's head.
    pub(super) fn new(bytes: Vec<u8>) -> Tail {
        Tail { bytes, units: 0, time_ms: 0 }
    }

    /// Appends a unit with all its effects.
    #[inline]
    pub(super) fn append(&mut self, origin: Origin, effects: &[u8], time_ms: i64) {
        self.bytes.extend_from_slice(&unit_head(EFFECTS_FORMAT, origin as u8, effects.len() as u32));
        self.bytes.extend_from_slice(effects);
        self.units += 1;
        self.time_ms = time_ms;
    }

    /// The encoded effects of each unit.
    pub fn units(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[HEAD_BYTES..];
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<UNIT_HEAD_BYTES>()?;
            let (effects, others) =
                behind.split_at_checked(u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize)?;
            rest = others;
            Some(effects)
        })
    }
}
