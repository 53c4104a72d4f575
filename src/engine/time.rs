//! The clocks, and the time of the unit that runs.

use crate::base::clock::Clock;

/// See the module's header.
pub struct Time {
    /// Wall time.
    pub clock: Clock,
    /// When the server started, Unix ms.
    pub started_ms: i64,
    /// The reply of TIME in the running unit, Unix us, once TIME was called. Time stands still in EXEC and in a script,
    /// until the script is [busy](crate::engine::ServerState::script_interrupted).
    pub unit_time_us: Option<i64>,
    /// Reading of the processor's clock when the last command ended.
    pub(in crate::engine) last_ticks: u64,
    /// Reading of the processor's clock when the wall clock was last read for a client's command.
    pub(in crate::engine) clock_read_ticks: u64,
    /// For how many ticks that reading of the wall clock is used. A unit that sets the keyspace's time to another value
    /// [ends the use](Time::expire_clock_reading).
    pub(in crate::engine) reading_holds_ticks: u64,
}
