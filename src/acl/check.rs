//! Whether a user may make one call.

use super::super::spec::{Access, Channels, Command, Databases, Flags};
use super::selector::Selector;
use super::user::User;
use crate::base::num::parse_i64;
use crate::keyspace::DbIndex;
use crate::resp::request::Argv;
use crate::spec::categories::belongs_to;
use crate::spec::keys::keys_of;
use crate::spec::table::{CommandTable, Entry, Inner};

/// What of a call is not allowed. Among several selectors the one counts that came furthest, which is the greatest of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// A database: that at this argument, or at 0 that of the connection.
    Database(usize),
    /// The command whose name is this argument: at 0 the call's own, else the one that it is to run.
    Command(usize),
    /// The key at this argument.
    Key(usize),
    /// The channel at this argument.
    Channel(usize),
}

impl Denied {
    /// The same of a call that begins at argument `at` of another one.
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

/// Where a call is made.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The connection's database.
    pub db: DbIndex,
    /// How many the server has.
    pub databases: u16,
}

/// Decides about a call of the right number of arguments. One that runs another command must be allowed, and so must the other one, and
/// what that runs.
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
    // What must not run inside of another command, that answers with an error.
    match table.inner_of(entry.command, argv) {
        Ok(Some(Inner { at, entry, argv })) => {
            check(user, table, entry, argv, place).map_err(|denied| denied.inside(at))
        }
        _ => Ok(()),
    }
}

/// Decides about a call, whatever it runs.
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

/// Whether a user may make a call by a selector that lets it read every key.
pub fn reads_all_keys<R>(user: &User, entry: &Entry<R>, argv: Argv<'_>, place: Place) -> bool {
    let all = user.selectors().iter().filter(|selector| selector.allows_reading_all_keys());
    all.into_iter().any(|selector| check_selector(selector, entry, argv, place).is_ok())
}

/// Whether a user may make a call by a selector that lets it write these keys, too, which its arguments do not tell.
pub fn also_writes<R>(user: &User, entry: &Entry<R>, argv: Argv<'_>, place: Place, keys: &[&[u8]]) -> bool {
    let may_write = |selector: &&Selector| {
        selector.allows_all_keys() || keys.iter().all(|key| selector.allows_key(key, false, true))
    };
    user.selectors().iter().filter(may_write).any(|selector| check_selector(selector, entry, argv, place).is_ok())
}

/// Whether a user may make a call by a selector that lets it read this key, too, in this database: one of those that the call is about and that its
/// arguments do not tell.
pub fn also_reads<R>(user: &User, entry: &Entry<R>, argv: Argv<'_>, place: Place, key: &[u8]) -> bool {
    let may_read = |selector: &&Selector| selector.allows_reading(place.db.into(), key);
    user.selectors().iter().filter(may_read).any(|selector| check_selector(selector, entry, argv, place).is_ok())
}

/// Whether a user may read a key of this database, by whatever command.
pub fn reads(user: &User, db: DbIndex, key: &[u8]) -> bool {
    user.selectors().iter().any(|selector| selector.allows_reading(db.into(), key))
}

fn check_selector<R>(selector: &Selector, entry: &Entry<R>, argv: Argv<'_>, place: Place) -> Result<(), Denied> {
    let command = entry.command;
    if !selector.allows_all_databases() {
        check_databases(selector, command, argv, place)?;
    }
    // What may be said before anybody has logged in may always be said.
    let is_allowed =
        command.flags.has(Flags::NO_AUTH) || selector.allows_command(entry.id.index(), argv.get(entry.name_args()));
    if !is_allowed {
        return Err(Denied::Command(0));
    }
    if !selector.allows_all_keys() && command.has_keys() {
        // Where the arguments do not tell which keys are meant, the command answers with an error.
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
        // What is no database of this server, the command answers with an error.
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

/// Whether what happens to a key takes the right to read it, and that to write it: what [`Access::flag_names`] says, in one step.
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
    fn rights_are_what_the_flags_of_key_specs_say() {
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
