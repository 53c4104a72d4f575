//! CONFIG REWRITE: writes the current parameters to the configuration file that the server was started with.

use std::os::unix::fs::MetadataExt as _;

use crate::acl::file;
use crate::acl::users::Acl;
use crate::base::os::replace_file::replace_file;
use crate::config::{Added, all, rewrite};
use crate::engine::Ctx;
use crate::engine::Done;
use crate::spec::args::Args;
use crate::spec::error::Error;

/// The mode bit that lets everybody read a file.
const OTHERS_READ: u32 = 0o004;

pub(super) fn command(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    write(ctx, Added::Changed)?;
    ctx.reply.ok();
    Ok(())
}

/// Rewrites the file; an error if the server has none.
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
    let has_secrets = users.as_ref().is_some_and(|users| !users.is_empty())
        || all().any(|parameter| parameter.is_secret && !config.value(parameter).is_empty());
    let replaced = old.and_then(|old| replace_file(path, &rewrite(&old, config, users.as_deref(), added)));
    replaced.map_err(|error| {
        tracing::warn!("CONFIG REWRITE failed: {}: {error}", path.display());
        let text = error.to_string();
        Error::owned(format!("ERR Rewriting config file: {}", text.split(" (os error").next().unwrap_or_default()))
    })?;
    tracing::info!("CONFIG REWRITE wrote {}", path.display());
    if has_secrets && std::fs::metadata(path).is_ok_and(|file| file.mode() & OTHERS_READ != 0) {
        tracing::warn!(
            "{} contains passwords, and every user of this machine can read it: run chmod o-r on it",
            path.display()
        );
    }
    Ok(())
}

/// Returns a line for each user, unless an ACL file holds the users. Leaves out a `default` user that is just as
/// `requirepass` makes it.
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
