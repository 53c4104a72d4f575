//! Who reads what a unit changes, and how much of it a unit must therefore record.
//!
//! Readers come and go rarely, and every unit needs to know whether there are any. So the answer is kept
//! ([`ServerState::readers`](crate::engine::ServerState)), and whoever makes a reader come or go has it computed anew
//! ([`ServerState::readers_changed`](crate::engine::ServerState)). Debug builds compare it with what it should be at every unit.

use crate::keyspace::effect::Recording;

/// A set of readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Readers(u8);

impl Readers {
    /// The log, or whoever keeps the whole stream otherwise.
    pub(in crate::engine) const LOG: Readers = Readers(1);
    /// A snapshot under way.
    pub(in crate::engine) const SNAPSHOT: Readers = Readers(1 << 1);
    /// Clients that watch keys.
    pub(in crate::engine) const WATCH: Readers = Readers(1 << 2);
    /// Clients that wait for keys.
    pub(in crate::engine) const WAIT: Readers = Readers(1 << 3);

    /// Eviction, where keys go that were changed longest ago.
    pub(in crate::engine) const USAGE: Readers = Readers(1 << 4);

    /// Clients that are told what they may cache no longer.
    pub(in crate::engine) const TRACKING: Readers = Readers(1 << 5);

    /// Those who are told of events.
    pub(in crate::engine) const EVENTS: Readers = Readers(1 << 6);

    /// Those who read whole effects.
    pub(in crate::engine) const OF_ALL: Readers = Readers(Readers::LOG.0 | Readers::SNAPSHOT.0 | Readers::EVENTS.0);
    /// Clients that want to know which keys were touched.
    pub(in crate::engine) const WATCH_OR_WAIT: Readers = Readers(Readers::WATCH.0 | Readers::WAIT.0);
    /// Those who read which keys were touched.
    pub(in crate::engine) const OF_KEYS: Readers =
        Readers(Readers::WATCH_OR_WAIT.0 | Readers::USAGE.0 | Readers::TRACKING.0);

    /// Whether any of `others` is among them.
    #[inline]
    pub(in crate::engine) fn has(self, others: Readers) -> bool {
        self.0 & others.0 != 0
    }

    /// These, and `others` if that is so.
    pub(in crate::engine) fn and_if(self, others: Readers, are_there: bool) -> Readers {
        if are_there { Readers(self.0 | others.0) } else { self }
    }

    /// What a unit records for them.
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
    fn as_much_is_recorded_as_somebody_reads() {
        let none = Readers::default();
        assert_eq!(none.recording(), Recording::Nothing);
        assert_eq!(none.and_if(Readers::WATCH, false).recording(), Recording::Nothing);
        let keys = none.and_if(Readers::WATCH, true);
        assert_eq!((keys.recording(), keys.has(Readers::WAIT)), (Recording::Keys, false));
        assert_eq!(none.and_if(Readers::WAIT, true).recording(), Recording::Keys);
        assert_eq!(keys.and_if(Readers::SNAPSHOT, true).recording(), Recording::Full);
        assert_eq!(none.and_if(Readers::LOG, true).recording(), Recording::Full);
    }
}
