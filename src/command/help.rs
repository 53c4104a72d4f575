//! HELP of every container, derived from the entries of its subcommands, and HELP of the families whose commands have
//! names of their own, such as GATE.ACQUIRE, derived from these commands' entries.

use crate::engine::{Command, Ctx, Done, Entry, Run};
use crate::spec::args::Args;
use crate::spec::syntax::for_people;
use crate::spec::{Flags, Group};

/// `CONTAINER HELP`: each subcommand with its arguments and summary.
pub(super) fn help(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let container = ctx.entry.full_name.split('|').next().unwrap_or_default();
    let subs = ctx.table().find(container.as_bytes()).into_iter().flat_map(|container| &container.sub);
    let lines: Vec<String> = subs.flat_map(|sub| explanation(sub, sub.command.name)).collect();
    write(ctx, container, lines.iter().map(String::as_str));
    Ok(())
}

/// Writes `lines` in the frame of every HELP reply.
pub(super) fn write<'l>(ctx: &mut Ctx<'_>, container: &str, lines: impl ExactSizeIterator<Item = &'l str>) {
    let container = container.to_ascii_uppercase();
    write_under(ctx, &format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"), lines);
}

fn write_under<'l>(ctx: &mut Ctx<'_>, title: &str, lines: impl ExactSizeIterator<Item = &'l str>) {
    ctx.reply.array(lines.len() + 1);
    ctx.reply.status(title);
    lines.for_each(|line| ctx.reply.status(line));
}

/// A command under this name with its arguments, and its summary.
fn explanation(entry: &Entry, name: &str) -> [String; 2] {
    let call = format!("{} {}", name.to_ascii_uppercase(), for_people(entry.command.syntax));
    [call.trim_end().to_owned(), format!("    {}", entry.command.summary)]
}

/// `FAMILY HELP`: each command of the family with its arguments and summary.
fn family_help(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let family = ctx.entry.full_name.split('|').next().unwrap_or_default();
    let is_of_family = |entry: &&Entry| {
        let rest = entry.full_name.strip_prefix(family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) && !entry.command.is_container()
    };
    let commands = ctx.table().iter().filter(is_of_family);
    let lines: Vec<String> = commands.flat_map(|entry| explanation(entry, &entry.full_name)).collect();
    let title = format!("Commands of {} and their arguments:", family.to_ascii_uppercase());
    write_under(ctx, &title, lines.iter().map(String::as_str));
    Ok(())
}

/// HELP of a family.
pub(super) const FAMILY_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.union(Flags::STALE),
    group: Group::Coordination,
    since: "0.1.0",
    summary: "Lists the commands of the family with their arguments.",
    run: Run::Now(family_help),
    ..Command::EMPTY
};

/// The command under the name of a family, whose only purpose is its HELP.
pub(super) const fn family(name: &'static str) -> Command {
    Command {
        name,
        arity: -2,
        group: Group::Coordination,
        since: "0.1.0",
        complexity: "Depends on subcommand.",
        summary: "A container for HELP, which lists the commands of the family.",
        sub: &[FAMILY_HELP],
        ..Command::EMPTY
    }
}
