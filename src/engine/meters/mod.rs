//! What the engine counts and times.

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
    /// The keys that take the most, in the last collection that was started.
    pub hotkeys: Option<Box<HotKeys>>,
    /// Events that held others up.
    pub latency: LatencyMonitor,
}
