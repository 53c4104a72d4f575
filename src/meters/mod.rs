//! The counts and timings of the engine.

pub(crate) mod command_log;
pub(crate) mod coordination_stats;
pub(crate) mod exposition;
pub(crate) mod hotkeys;
pub(crate) mod latency;
pub mod limits;
pub(crate) mod stats;
pub mod turns;

use command_log::CommandLog;
use hotkeys::HotKeys;
use latency::{Event, LatencyMonitor};
use stats::Stats;

use crate::base::clock::Clock;
use crate::persist::journal::Journal;

/// Counts and times.
pub struct Meters {
    /// Counters.
    pub stats: Stats,
    /// Commands that took long or were large.
    pub command_log: CommandLog,
    /// The hot keys of the last collection that was started.
    pub hotkeys: Option<Box<HotKeys>>,
    /// Events that held clients up.
    pub latency: LatencyMonitor,
}

impl Meters {
    /// Passes the longest write and the longest sync since the last call to the latency monitor.
    pub(crate) fn note_journal_latency(&mut self, journal: &Journal, clock: &Clock) {
        let Some((write, sync)) = journal.local().map(|log| log.take_longest()) else { return };
        let sync_event = if journal.syncs_always() { Event::LogSyncAlways } else { Event::LogSync };
        self.latency.note(Event::LogWrite, write, clock);
        self.latency.note(sync_event, sync, clock);
    }
}
