//! Checks that a recorded change fits the keyspace in which it is replayed.

use crate::keyspace::{DbIndex, Keyspace, Misfit, Slot};

/// Returns the slot of a key that an effect needs.
pub(super) fn slot_of(ks: &Keyspace, db: DbIndex, key: &[u8]) -> Result<Slot, Misfit> {
    ks.dbs[db as usize].find(key).ok_or(Misfit::NoKey)
}

pub(super) fn ensure(fits: bool, misfit: Misfit) -> Result<(), Misfit> {
    if fits { Ok(()) } else { Err(misfit) }
}

/// Checks, after elements were removed, that the key is gone exactly if the effect says so.
pub(super) fn ensure_emptied(ks: &Keyspace, db: DbIndex, key: &[u8], emptied: bool) -> Result<(), Misfit> {
    ensure(ks.dbs[db as usize].find(key).is_none() == emptied, Misfit::Emptied)
}
