//! HELP of every container, derived from the entries of its subcommands.

use crate::engine::{Ctx, Done};
use crate::spec::args::Args;
use crate::spec::syntax::without_names;

/// `CONTAINER HELP`: each subcommand with its arguments and summary.
pub(super) fn help(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let container = ctx.entry.full_name.split('|').next().unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    for sub in ctx.table().find(container.as_bytes()).into_iter().flat_map(|container| &container.sub) {
        let name = sub.command.name.to_ascii_uppercase();
        lines.push(format!("{name} {}", without_names(sub.command.syntax)).trim_end().to_owned());
        lines.push(format!("    {}", sub.command.summary));
    }
    write(ctx, container, lines.iter().map(String::as_str));
    Ok(())
}

/// Writes `lines` in the frame of every HELP reply.
pub(super) fn write<'l>(ctx: &mut Ctx<'_>, container: &str, lines: impl ExactSizeIterator<Item = &'l str>) {
    ctx.reply.array(lines.len() + 1);
    let container = container.to_ascii_uppercase();
    ctx.reply.status(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.for_each(|line| ctx.reply.status(line));
}
