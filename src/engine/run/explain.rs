//! What the errors of this server's own commands say beyond Redis' text. They are made where arguments are parsed and
//! keys are looked up, far from the call as a whole, and get the rest here.

use crate::engine::state::{CommandTable, Entry};
use crate::keyspace::{DbIndex, Keyspace};
use crate::resp::request::Argv;
use crate::spec::error::{Error, excerpt};
use crate::spec::usage;

/// Keys of which an error says what they hold.
const KEYS_SHOWN: usize = 4;

/// Bytes of a key that an error shows.
const KEY_SHOWN_BYTES: usize = 64;

/// Says more about the error of a call: what the command takes, or what its keys hold.
#[cold]
pub(super) fn explained(
    ks: &mut Keyspace,
    table: &CommandTable,
    db: DbIndex,
    entry: &Entry,
    argv: Argv<'_>,
    error: Error,
) -> Error {
    match error {
        Error::Syntax => usage::wrong_syntax(&entry.full_name, entry.command.syntax),
        Error::WrongType => {
            let keys = table.keys_of(entry.command, argv).unwrap_or_default();
            let mut what_is_there = |index: usize| {
                let key = &argv[index];
                let name = ks.peek_silently(db, key)?.value().type_name();
                Some(format!("'{}' is a {name}", excerpt(key, KEY_SHOWN_BYTES)))
            };
            let found: Vec<_> = keys.iter().filter_map(|key| what_is_there(key.index)).take(KEYS_SHOWN).collect();
            Error::owned(format!("{error}: {}", found.join(", ")))
        }
        other => other,
    }
}
