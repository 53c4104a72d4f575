//! The counts and timings of the engine.

pub(crate) mod command_log;
pub(crate) mod coordination_stats;
pub(crate) mod hotkeys;
pub(crate) mod latency;
pub(crate) mod stats;
pub mod turns;

use command_log::CommandLog;
use hotkeys::HotKeys;
use latency::LatencyMonitor;
use stats::Stats;

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
