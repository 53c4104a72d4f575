//! Decides whether a user may make a call.

use super::super::spec::{Access, Channels, Command, Databases, Flags};
use super::selector::Selector;
use super::user::User;
use crate::base::num::parse_i64;
use crate::keyspace::DbIndex;
use crate::resp::request::Argv;
use crate::spec::categories::belongs_to;
use crate::spec::keys::keys_of;
use crate::spec::table::{CommandTable, Entry, Inner};

/// The part of a call that is not allowed. If several selectors deny a call, the one that came furthest counts, which
/// is the greatest of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The database at this argument; 0 means the connection's database.
    Database(usize),
    /// The command whose name is at this argument: the call's own at 0, otherwise a command to be run by it.
    Command(usize),
    /// The key at this argument.
    Key(usize),
    /// The channel at this argument.
    Channel(usize),
}

impl Denied {
    /// Shifts the argument index for a call that begins at argument `at` of another call.
    fn inside(self, at: usize) -> Denied {
        match self {
            Denied::Database(0) => self,
            Denied::Database(arg) => Denied::Database(at + arg),
            Denied::Command(arg) => Denied::Command(at + arg),
            Denied::Key(arg) => Denied::Key(at + arg),
            Denied::Channel(arg) => Denied::Channel(at + arg),
        }
    }
}

/// The databases available to a call.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The connection's database.
    pub db: DbIndex,
    /// Number of databases of the server.
    pub databases: u16,
}

/// Checks a call with a valid number of arguments. If the command runs another command, both must be allowed, and so on
/// for nested commands.
pub fn check<R>(
    user: &User,
    table: &CommandTable<R>,
    entry: &Entry<R>,
    argv: Argv<'_>,
    place: Place,
) -> Result<(), Denied> {
    check_alone(user, entry, argv, place)?;
    if entry.command.inner.is_none() {
        return Ok(());
    }
    // A command that must not run inside another is rejected by the outer command itself.
    match table.inner_of(entry.command, argv) {
        Ok(Some(Inner { at, entry, argv })) => {
            check(user, table, entry, argv, place).map_err(|denied| denied.inside(at))
        }
        _ => Ok(()),
    }
}

/// Checks a call without regard to commands nested in it.
fn check_alone<R>(user: &User, entry: &Entry<R>, argv: Argv<'_>, place: Place) -> Result<(), Denied> {
    let mut furthest = Denied::Database(0);
    for selector in user.selectors() {
        match check_selector(selector, entry, argv, place) {
            Ok(()) => return Ok(()),
            Err(denied) => furthest = furthest.max(denied),
        }
    }
    Err(furthest)
}

/// Returns whether a user may make a call under a selector that lets it read every key.
pub fn reads_all_keys<R>(user: &User, entry: &Entry<R>, argv: Argv<'_>, place: Place) -> bool {
    let all = user.selectors().iter().filter(|selector| selector.allows_reading_all_keys());
    all.into_iter().any(|selector| check_selector(selector, entry, argv, place).is_ok())
}

/// Returns whether a user may make a call under a selector that also lets it write these keys, which the arguments do
/// not show.
pub fn also_writes<R>(user: &User, entry: &Entry<R>, argv: Argv<'_>, place: Place, keys: &[&[u8]]) -> bool {
    let may_write = |selector: &&Selector| {
        selector.allows_all_keys() || keys.iter().all(|key| selector.allows_key(key, false, true))
    };
    user.selectors().iter().filter(may_write).any(|selector| check_selector(selector, entry, argv, place).is_ok())
}

/// Returns whether a user may make a call under a selector that also lets it read this key in this database. The key is
/// one that the call accesses but that its arguments do not show.
pub fn also_reads<R>(user: &User, entry: &Entry<R>, argv: Argv<'_>, place: Place, key: &[u8]) -> bool {
    let may_read = |selector: &&Selector| selector.allows_reading(place.db.into(), key);
    user.selectors().iter().filter(may_read).any(|selector| check_selector(selector, entry, argv, place).is_ok())
}

/// Returns whether a user may read a key of this database by any command.
pub fn reads(user: &User, db: DbIndex, key: &[u8]) -> bool {
    user.selectors().iter().any(|selector| selector.allows_reading(db.into(), key))
}

fn check_selector<R>(selector: &Selector, entry: &Entry<R>, argv: Argv<'_>, place: Place) -> Result<(), Denied> {
    let command = entry.command;
    if !selector.allows_all_databases() {
        check_databases(selector, command, argv, place)?;
    }
    // Commands allowed before login are always allowed.
    let is_allowed = command.flags.contains(Flags::NO_AUTH)
        || selector.allows_command(entry.id.index(), argv.get(entry.name_args()));
    if !is_allowed {
        return Err(Denied::Command(0));
    }
    if !selector.allows_all_keys() && command.has_keys() {
        // If the arguments do not determine the keys, the command itself returns an error.
        for key in keys_of(command, argv).unwrap_or_default() {
            let (reads, writes) = needs(key.access);
            let is_allowed = argv.get(key.index).is_none_or(|name| selector.allows_key(name, reads, writes));
            if !is_allowed {
                return Err(Denied::Key(key.index));
            }
        }
    }
    if !selector.allows_all_channels() {
        let (channels, is_pattern) = match command.channels {
            Channels::None => (1..1, false),
            Channels::First => (1..2, false),
            Channels::All => (1..argv.len(), false),
            Channels::Patterns => (1..argv.len(), true),
        };
        for at in channels {
            if argv.get(at).is_some_and(|channel| !selector.allows_channel(channel, is_pattern)) {
                return Err(Denied::Channel(at));
            }
        }
    }
    Ok(())
}

fn check_databases<R>(selector: &Selector, command: &Command<R>, argv: Argv<'_>, place: Place) -> Result<(), Denied> {
    let (named, needs_current) = match command.databases {
        Databases::Current => (Vec::new(), has_to_do_with_keys(command)),
        Databases::Selected => (vec![1], false),
        Databases::Named(find) => (find(argv), command.has_keys()),
        Databases::All => {
            let allows_all = (0..place.databases).all(|db| selector.allows_database(db.into()));
            return if allows_all { Ok(()) } else { Err(Denied::Database(0)) };
        }
    };
    for at in named {
        // If this is not a database of the server, the command itself returns an error.
        let db = argv.get(at).and_then(parse_i64).and_then(|db| u16::try_from(db).ok());
        if db.is_some_and(|db| db < place.databases && !selector.allows_database(db.into())) {
            return Err(Denied::Database(at));
        }
    }
    if needs_current && !selector.allows_database(place.db.into()) { Err(Denied::Database(0)) } else { Ok(()) }
}

fn has_to_do_with_keys<R>(command: &Command<R>) -> bool {
    command.has_keys() || ["@keyspace", "@read", "@write"].iter().any(|category| belongs_to(command, category))
}

/// Returns whether an access to a key needs the right to read it, and the right to write it: [`Access::flag_names`] in
/// one step.
fn needs(access: Access) -> (bool, bool) {
    match access {
        Access::Read | Access::Note => (true, false),
        Access::Varying | Access::Merge | Access::Update | Access::Take | Access::TakeSome => (true, true),
        Access::Inspect | Access::Channel => (false, false),
        Access::DeleteIf
        | Access::Overwrite
        | Access::Create
        | Access::Modify
        | Access::Insert
        | Access::Remove
        | Access::Delete => (false, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_follow_the_flags_of_key_specs() {
        use Access::*;
        for access in [
            Read, Varying, Inspect, Note, Merge, DeleteIf, Overwrite, Create, Update, Modify, Insert, Remove, Take,
            TakeSome, Delete, Channel,
        ] {
            let flags = access.flag_names();
            let writes = ["insert", "delete", "update"].iter().any(|flag| flags.contains(flag));
            assert_eq!(needs(access), (flags.contains(&"access"), writes), "{access:?}");
        }
    }
}
