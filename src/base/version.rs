//! Which server this is, and which Redis it stands in for.

/// The newest Redis whose commands are the measure here: clients read it from INFO and HELLO and choose by it what to send.
pub const REDIS_VERSION: &str = "7.0.15";

/// This server's own version.
pub const TIDEGATE_VERSION: &str = env!("CARGO_PKG_VERSION");
