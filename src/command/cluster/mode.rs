//! What depends on whether this server is in Cluster mode.

use crate::engine::{Ctx, Done};
use crate::spec::error::Error;

/// Refuses a call unless this server is in Cluster mode.
pub(super) fn enabled(ctx: &Ctx<'_>) -> Done {
    match ctx.server.config.cluster_enabled {
        true => Ok(()),
        false => Err(Error::text("ERR This instance has cluster support disabled")),
    }
}

/// Refuses a command that uses another database than 0, the only one in Cluster mode: a client that is sent to another
/// node begins there with database 0.
pub(in crate::command) fn refuse_databases(ctx: &Ctx<'_>) -> Done {
    match ctx.server.config.cluster_enabled {
        true => Err(Error::owned(format!("ERR {} is not allowed in cluster mode", ctx.name().to_ascii_uppercase()))),
        false => Ok(()),
    }
}
