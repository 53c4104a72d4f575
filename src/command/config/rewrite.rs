//! CONFIG REWRITE: writes what is set now to the configuration file that the server was started with.

use crate::base::replace_file::replace_file;
use crate::config::{Added, rewrite};
use crate::engine::Ctx;
use crate::engine::Done;
use crate::engine::args::Args;
use crate::engine::error::Error;

pub(super) fn command(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    write(ctx, Added::Changed)?;
    ctx.reply.ok();
    Ok(())
}

/// Rewrites the file, if there is one.
pub(crate) fn write(ctx: &Ctx<'_>, added: Added) -> Result<(), Error> {
    let config = &ctx.server.config;
    let Some(path) = &config.source.file else {
        return Err(Error::text("ERR The server is running without a config file"));
    };
    let old = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        old => old,
    };
    let replaced = old.and_then(|old| replace_file(path, &rewrite(&old, config, added)));
    replaced.map_err(|error| {
        tracing::warn!("CONFIG REWRITE failed: {}: {error}", path.display());
        let text = error.to_string();
        Error::owned(format!("ERR Rewriting config file: {}", text.split(" (os error").next().unwrap_or_default()))
    })?;
    tracing::info!("CONFIG REWRITE has written {}", path.display());
    Ok(())
}
