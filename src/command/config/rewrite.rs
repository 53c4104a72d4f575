//! CONFIG REWRITE: writes what is set now to the configuration file that the server was started with.

use crate::base::replace_file::replace_file;
use crate::config::{Added, rewrite};
use crate::engine::Ctx;
use crate::engine::Done;
use crate::engine::acl::file;
use crate::engine::acl::users::Acl;
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
    let users = users(ctx);
    let replaced = old.and_then(|old| replace_file(path, &rewrite(&old, config, users.as_deref(), added)));
    replaced.map_err(|error| {
        tracing::warn!("CONFIG REWRITE failed: {}: {error}", path.display());
        let text = error.to_string();
        Error::owned(format!("ERR Rewriting config file: {}", text.split(" (os error").next().unwrap_or_default()))
    })?;
    tracing::info!("CONFIG REWRITE has written {}", path.display());
    Ok(())
}

/// A line for each user, where no file of their own holds them, but for a `default` that is as `requirepass` makes it.
fn users(ctx: &Ctx<'_>) -> Option<Vec<Vec<u8>>> {
    let (config, table) = (&ctx.server.config, ctx.server.table);
    if !config.aclfile.as_os_str().is_empty() {
        return None;
    }
    let mut fresh = Acl::new(table);
    fresh.set_default_password(&config.requirepass, table);
    let (fresh, lines) = (file::write(&fresh), file::write(&ctx.server.acl));
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && [*line, b"\n"].concat() != fresh);
    Some(lines.map(<[u8]>::to_vec).collect())
}
