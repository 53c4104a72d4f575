//! Bugs that tests plant to show that the simulation finds them. A server has none of them: outside tests, `is` always
//! returns false.

/// A bug, described by the step that is left out or done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The writer does not sync the blocks that it has written.
    NoSync,
    /// A frame is accepted even if it states another segment.
    NoSegmentNumber,
    /// Recovery takes every block that it has read for durable.
    NoCopyOfTheTail,
    /// Replies leave before the journal has the changes that they show.
    NoFence,
    /// Invalidations for caching clients leave before the journal has the changes.
    NoFenceOfInvalidations,
    /// Events of keys leave before the journal has the changes.
    NoFenceOnEvents,
    /// A snapshot gets its name before its bytes are synced.
    NoSyncOfTheSnapshot,
    /// The journal is cut before the name of the snapshot that replaces it is durable.
    CutBeforeTheSnapshot,
}

#[cfg(not(test))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}

#[cfg(test)]
pub use planting::*;

#[cfg(test)]
mod planting {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Plants a bug, or none, in everything that this thread does from now on.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}
