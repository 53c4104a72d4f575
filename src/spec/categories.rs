//! Command categories, used by COMMAND listings and in ACL rules. They follow from a command's flags and group; its
//! table entry adds any others.

use super::{Command, Flags, Group};

/// The categories, in Redis' order, behind them that which came to Redis with GCRA and went with it, and this server's
/// own two, as COMMAND INFO shows them.
pub(crate) const CATEGORIES: [&str; 24] = [
    "@keyspace",
    "@read",
    "@write",
    "@set",
    "@sortedset",
    "@list",
    "@hash",
    "@string",
    "@bitmap",
    "@hyperloglog",
    "@geo",
    "@stream",
    "@pubsub",
    "@admin",
    "@fast",
    "@slow",
    "@blocking",
    "@dangerous",
    "@connection",
    "@transaction",
    "@scripting",
    "@rate_limit",
    "@coordination",
    "@replication",
];

/// Returns the category of this name, which begins with `@`, in any case.
pub(crate) fn category(name: &[u8]) -> Option<&'static str> {
    CATEGORIES.into_iter().find(|category| category.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the categories of a command, in their order.
pub(crate) fn categories_of<R>(command: &Command<R>) -> impl Iterator<Item = &'static str> + '_ {
    CATEGORIES.into_iter().filter(|category| belongs_to(command, category))
}

/// Returns whether a command belongs to one of the [`CATEGORIES`].
pub(crate) fn belongs_to<R>(command: &Command<R>, category: &str) -> bool {
    let flags = command.flags;
    command.categories.contains(&category)
        || category_of_group(command) == Some(category)
        || match category {
            "@read" => flags.contains(Flags::READONLY) && command.group != Group::Scripting,
            "@write" => flags.contains(Flags::WRITE),
            "@pubsub" => flags.contains(Flags::PUBSUB),
            "@admin" | "@dangerous" => flags.contains(Flags::ADMIN),
            "@fast" => flags.contains(Flags::FAST),
            "@slow" => !flags.contains(Flags::FAST),
            "@blocking" => flags.contains(Flags::BLOCKING),
            _ => false,
        }
}

fn category_of_group<R>(command: &Command<R>) -> Option<&'static str> {
    match command.group {
        // A command that only holds subcommands or only queries channels belongs to no group; its flags show this.
        Group::Pubsub => None,
        // A command for certain value types belongs only to their groups; one that waits for other servers belongs to
        // none.
        Group::Generic if ["@list", "@connection"].iter().any(|other| command.categories.contains(other)) => None,
        group if !command.is_container() => group.category(),
        _ => None,
    }
}
