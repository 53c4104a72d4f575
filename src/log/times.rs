//! How long the disk takes for the journal.

use std::time::Duration;

use crate::base::durations::Durations;

/// How long each write and each sync has taken since the journal was opened.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) writes: Durations,
    pub(crate) syncs: Durations,
}

impl Times {
    /// Returns the total duration of all writes and syncs.
    pub(crate) fn busy(&self) -> Duration {
        self.writes.sum() + self.syncs.sum()
    }
}
