//! Which server this is, and which Redis it stands in for.

use std::sync::LazyLock;

/// The newest Redis whose commands on data are all here, except those of modules, vector sets among them: clients read it from INFO and
/// HELLO and choose by it what to send.
pub(crate) const REDIS_VERSION: &str = "8.6.0";

/// What `--version` answers behind the name. Test tools look for `v=` and the number of a Redis.
pub(crate) static VERSION_LINE: LazyLock<String> =
    LazyLock::new(|| format!("{TIDEGATE_VERSION} (for clients: Redis server v={REDIS_VERSION})"));

/// This server's own version.
pub(crate) const TIDEGATE_VERSION: &str = env!("CARGO_PKG_VERSION");
