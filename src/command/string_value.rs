//! The string at a key or slot, and the error where something else is there. Families that keep a number or a text in a
//! string share it: strings themselves, comparisons, counters, rate limits.

use crate::engine::Ctx;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::spec::error::Error;
use crate::value::string::StringRef;

/// Returns the string at `slot`.
pub(super) fn string_at(ks: &Keyspace, db: DbIndex, slot: Slot) -> Result<StringRef<'_>, Error> {
    match ks.value(db, slot) {
        ValueRef::String(string) => Ok(string),
        _ => Err(Error::WrongType),
    }
}

/// Looks a string up for reading; `None` if the key does not exist.
pub(super) fn read_string<'a>(ctx: &'a mut Ctx<'_>, key: &[u8]) -> Result<Option<StringRef<'a>>, Error> {
    match ctx.ks.read(ctx.session.db, key) {
        None => Ok(None),
        Some(ValueRef::String(string)) => Ok(Some(string)),
        Some(_) => Err(Error::WrongType),
    }
}
