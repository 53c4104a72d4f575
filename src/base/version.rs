//! The version of this server, and of the Redis that it is compatible with.

use std::sync::LazyLock;

/// The newest Redis whose data commands are all implemented here, except those of modules such as vector sets. Clients
/// read it from INFO and HELLO and choose their commands by it.
pub(crate) const REDIS_VERSION: &str = "8.6.0";

/// Output of `--version` behind the name. Test tools look for `v=` and the number of a Redis.
pub(crate) static VERSION_LINE: LazyLock<String> =
    LazyLock::new(|| format!("{TIDEGATE_VERSION} (for clients: Redis server v={REDIS_VERSION})"));

/// This server's own version.
pub(crate) const TIDEGATE_VERSION: &str = env!("CARGO_PKG_VERSION");
