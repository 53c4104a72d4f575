//! Bugs that tests plant, to show that the simulation finds them. A server has none of this: there, `is` is always false.

/// A bug, by what is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The writer does not sync what it has written.
    NoSync,
    /// A frame need not state the segment that it stands in.
    NoSegmentNumber,
    /// Recovery takes what it has read for durable.
    NoCopyOfTheTail,
    /// Replies leave before the log has what they show.
    NoFence,
    /// What clients are told of changes leaves before the log has these.
    NoFenceOfInvalidations,
    /// What those are told who listen to events of keys leaves before the log has the changes.
    NoFenceOnEvents,
    /// A snapshot gets its name before its bytes are synced.
    NoSyncOfTheSnapshot,
    /// The log is cut before the name of the snapshot that replaces it is durable.
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

    /// Plants a bug in what this thread does from now on, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}
