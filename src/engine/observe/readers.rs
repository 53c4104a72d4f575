//! The readers of a unit's changes, which decide how much a unit must record.
//!
//! Readers come and go rarely, and every unit needs to know whether there are any. So the set is kept in
//! [`Audience::readers`](super::audience::Audience), and any code that adds or removes a reader updates it
//! ([`Audience::set_reader`](super::audience::Audience::set_reader)). Debug builds check the kept set at every unit.

use crate::keyspace::effect::Recording;

/// A set of readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Readers(u8);

impl Readers {
    /// The journal, or another tail that keeps the whole stream.
    pub(in crate::engine) const LOG: Readers = Readers(1);
    /// A running snapshot.
    pub(in crate::engine) const SNAPSHOT: Readers = Readers(1 << 1);
    /// Clients that watch keys.
    pub(in crate::engine) const WATCH: Readers = Readers(1 << 2);
    /// Clients that wait for keys.
    pub(in crate::engine) const WAIT: Readers = Readers(1 << 3);

    /// Eviction, under a policy that removes the keys changed longest ago.
    pub(in crate::engine) const USAGE: Readers = Readers(1 << 4);

    /// Clients that cache keys.
    pub(in crate::engine) const TRACKING: Readers = Readers(1 << 5);

    /// Subscribers of keyspace events.
    pub(in crate::engine) const EVENTS: Readers = Readers(1 << 6);

    /// Readers of whole effects.
    pub(in crate::engine) const OF_ALL: Readers = Readers(Readers::LOG.0 | Readers::SNAPSHOT.0 | Readers::EVENTS.0);
    /// Clients that need the touched keys.
    pub(in crate::engine) const WATCH_OR_WAIT: Readers = Readers(Readers::WATCH.0 | Readers::WAIT.0);
    /// All readers of the touched keys.
    pub(in crate::engine) const OF_KEYS: Readers =
        Readers(Readers::WATCH_OR_WAIT.0 | Readers::USAGE.0 | Readers::TRACKING.0);

    /// Whether any of `others` is in the set.
    #[inline]
    pub(in crate::engine) fn has(self, others: Readers) -> bool {
        self.0 & others.0 != 0
    }

    /// Adds `others`.
    pub(super) fn and(self, others: Readers) -> Readers {
        Readers(self.0 | others.0)
    }

    /// Adds `others` if `are_there`.
    pub(super) fn and_if(self, others: Readers, are_there: bool) -> Readers {
        if are_there { self.and(others) } else { self }
    }

    /// Removes `others`.
    pub(super) fn without(self, others: Readers) -> Readers {
        Readers(self.0 & !others.0)
    }

    /// Returns how much a unit records for these readers.
    pub(in crate::engine) fn recording(self) -> Recording {
        match (self.has(Readers::OF_ALL), self.has(Readers::OF_KEYS)) {
            (true, _) => Recording::Full,
            (false, true) => Recording::Keys,
            (false, false) => Recording::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_covers_exactly_the_needs_of_the_readers() {
        let none = Readers::default();
        assert_eq!(none.recording(), Recording::Nothing);
        assert_eq!(none.and_if(Readers::WATCH, false).recording(), Recording::Nothing);
        let keys = none.and_if(Readers::WATCH, true);
        assert_eq!((keys.recording(), keys.has(Readers::WAIT)), (Recording::Keys, false));
        assert_eq!(none.and_if(Readers::WAIT, true).recording(), Recording::Keys);
        assert_eq!(keys.and_if(Readers::SNAPSHOT, true).recording(), Recording::Full);
        assert_eq!(none.and_if(Readers::LOG, true).recording(), Recording::Full);
        assert_eq!(keys.and(Readers::LOG).without(Readers::LOG), keys);
    }
}
