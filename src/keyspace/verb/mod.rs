//! The verbs: the only mutators of the keyspace. One file per value type; each verb applies one change and records it.

mod key;
mod string;

use super::effect::Effect;
use super::{DbIndex, Keyspace};

/// The key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// Repeats a recorded change through the verb that recorded it.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> bool {
    match *effect {
        Effect::Put { key, value } => {
            ks.put(db, key, value);
        }
        Effect::Replace { key, value } => match ks.dbs[db as usize].find(key) {
            Some(slot) => ks.replace(db, slot, value),
            None => return false,
        },
        Effect::Del { key } => match ks.dbs[db as usize].find(key) {
            Some(slot) => ks.remove(db, slot),
            None => return false,
        },
        Effect::ExpireAt { key, at_ms } => match ks.dbs[db as usize].find(key) {
            Some(slot) => ks.expire_at(db, slot, at_ms),
            None => return false,
        },
        Effect::SetRange { key, offset, bytes } => {
            let slot = ks.dbs[db as usize].find(key);
            return ks.set_range(db, key, slot, offset as usize, bytes).is_ok();
        }
        Effect::Rename { key, to } => match ks.dbs[db as usize].find(key) {
            Some(slot) => ks.rename(db, slot, to),
            None => return false,
        },
        Effect::Copy { key, to_db, to } => match ks.dbs[db as usize].find(key) {
            Some(slot) if to_db < ks.databases() => ks.copy(db, slot, to_db, to),
            _ => return false,
        },
        Effect::Move { key, to_db } => match ks.dbs[db as usize].find(key) {
            Some(slot) if to_db < ks.databases() => ks.move_to(db, slot, to_db),
            _ => return false,
        },
        Effect::Flush {} => ks.flush(db),
        Effect::Swap { with_db } if with_db < ks.databases() => ks.swap(db, with_db),
        Effect::Swap { .. } => return false,
    }
    true
}
