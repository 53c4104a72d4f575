//! Checks that a recorded change fits the keyspace it is repeated in.

use crate::keyspace::{DbIndex, Keyspace, Misfit, Slot};

/// Where a key that an effect needs lives.
pub(super) fn slot_of(ks: &Keyspace, db: DbIndex, key: &[u8]) -> Result<Slot, Misfit> {
    ks.dbs[db as usize].find(key).ok_or(Misfit::NoKey)
}

pub(super) fn ensure(fits: bool, misfit: Misfit) -> Result<(), Misfit> {
    if fits { Ok(()) } else { Err(misfit) }
}

/// Checks after a removal of elements that the key went with the last one exactly if the effect says so.
pub(super) fn ensure_emptied(ks: &Keyspace, db: DbIndex, key: &[u8], emptied: bool) -> Result<(), Misfit> {
    ensure(ks.dbs[db as usize].find(key).is_none() == emptied, Misfit::Emptied)
}
