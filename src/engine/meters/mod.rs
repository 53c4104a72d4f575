//! What the engine counts and times.

pub(crate) mod command_log;
pub(crate) mod coordination_stats;
pub(crate) mod hotkeys;
pub(crate) mod latency;
pub(crate) mod stats;
pub mod turns;
