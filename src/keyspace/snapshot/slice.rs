//! Declarations that copying shares across all types of values.

use crate::keyspace::effect::EffectWriter;
use crate::keyspace::limits::SNAPSHOT_KEY_WORK_BYTES;

/// The work that a slice may still do, in bytes.
pub(super) struct Budget {
    pub(super) left: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        Budget { left: bytes }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub(super) fn has_more_than(&self, bytes: usize) -> bool {
        self.left > bytes
    }

    pub(super) fn pay_bytes(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Pays for the work on one key or element, which writes to `out`.
    pub(super) fn pay(&mut self, out: &mut EffectWriter, work: impl FnOnce(&mut EffectWriter)) {
        let before = out.len();
        work(out);
        self.pay_bytes(out.len() - before + SNAPSHOT_KEY_WORK_BYTES);
    }
}

/// The outcome for a part of a value when an effect on the value is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed {
    /// The part has what it needs.
    Yes,
    /// The effect puts another value in place of this one, so nothing is left to copy.
    Replaced,
    /// The part cannot follow. The copy of the value must start over, if the value still exists.
    No,
}
