//! The readers of a unit's changes, which decide how much a unit must record.
//!
//! Readers come and go rarely, and every unit needs to know whether there are any. So the set is kept in
//! [`Audience::readers`](super::audience::Audience), and any code that adds or removes a reader updates it
//! ([`Audience::set_reader`](super::audience::Audience::set_reader)). Debug builds check the kept set at every unit.

use bitflags::bitflags;

use crate::keyspace::effect::Recording;

bitflags! {
    /// A set of readers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(in crate::engine) struct Readers: u8 {
        /// The journal, or another tail that keeps the whole stream.
        const LOG = 1;
        /// A running snapshot.
        const SNAPSHOT = 1 << 1;
        /// Clients that watch keys.
        const WATCH = 1 << 2;
        /// Clients that wait for keys.
        const WAIT = 1 << 3;
        /// Eviction, under a policy that removes the keys changed longest ago.
        const USAGE = 1 << 4;
        /// Clients that cache keys.
        const TRACKING = 1 << 5;
        /// Subscribers of keyspace events.
        const EVENTS = 1 << 6;
    }
}

impl Readers {
    /// Readers of whole effects.
    pub(in crate::engine) const OF_ALL: Readers = Readers::LOG.union(Readers::SNAPSHOT).union(Readers::EVENTS);
    /// Clients that need the touched keys.
    pub(in crate::engine) const WATCH_OR_WAIT: Readers = Readers::WATCH.union(Readers::WAIT);
    /// All readers of the touched keys.
    pub(in crate::engine) const OF_KEYS: Readers =
        Readers::WATCH_OR_WAIT.union(Readers::USAGE).union(Readers::TRACKING);

    /// Returns how much a unit records for these readers.
    pub(in crate::engine) fn recording(self) -> Recording {
        match (self.intersects(Readers::OF_ALL), self.intersects(Readers::OF_KEYS)) {
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
        assert_eq!(Readers::empty().recording(), Recording::Nothing);
        let mut readers = Readers::WATCH;
        assert_eq!((readers.recording(), readers.intersects(Readers::WAIT)), (Recording::Keys, false));
        assert_eq!(Readers::WAIT.recording(), Recording::Keys);
        assert_eq!((readers | Readers::SNAPSHOT).recording(), Recording::Full);
        assert_eq!(Readers::LOG.recording(), Recording::Full);
        for (is_there, recording) in [(true, Recording::Full), (false, Recording::Keys)] {
            readers.set(Readers::LOG, is_there);
            assert_eq!(readers.recording(), recording);
        }
        for reader in Readers::all().iter() {
            assert_ne!(reader.recording(), Recording::Nothing, "{reader:?}");
        }
    }
}
