//! Which server this is, and which Redis it stands in for.

/// The newest Redis all of whose commands on data are here (modules aside): clients read it from INFO and HELLO and choose by it what to send.
pub(crate) const REDIS_VERSION: &str = "8.6.0";

/// This server's own version.
pub(crate) const TIDEGATE_VERSION: &str = env!("CARGO_PKG_VERSION");
