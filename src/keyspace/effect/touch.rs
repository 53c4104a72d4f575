//! The part of an effect that concerns watchers and waiters of keys.

use super::declared::{Effect, Role, Target};
use super::field::Field;

/// A touched key or database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch<'a> {
    /// This key of a database may hold something else now.
    Key {
        /// The database.
        db: u16,
        /// The key.
        key: &'a [u8],
        /// Whether the key was removed.
        is_deletion: bool,
        /// Whether a client that waits for the key may be served now.
        wakes: bool,
    },
    /// Any key of this database may hold something else now.
    Database(u16),
}

/// Codes of the kinds of touches.
const CHANGE: u8 = 0;
const DELETION: u8 = 1;
const DATABASE: u8 = 2;
const QUIET_CHANGE: u8 = 3;

impl<'a> Touch<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Touch::Key { db, key, is_deletion, wakes } => {
                match (*is_deletion, *wakes) {
                    (true, _) => DELETION,
                    (false, true) => CHANGE,
                    (false, false) => QUIET_CHANGE,
                }
                .put(out);
                db.put(out);
                key.put(out);
            }
            Touch::Database(db) => {
                DATABASE.put(out);
                db.put(out);
            }
        }
    }

    pub(super) fn db(&self) -> u16 {
        match *self {
            Touch::Key { db, .. } | Touch::Database(db) => db,
        }
    }

    pub(super) fn decode(input: &mut &'a [u8]) -> Option<Touch<'a>> {
        let kind = u8::take(input)?;
        let db = u16::take(input)?;
        match kind {
            CHANGE | DELETION | QUIET_CHANGE => {
                let key = Field::take(input)?;
                Some(Touch::Key { db, key, is_deletion: kind == DELETION, wakes: kind != QUIET_CHANGE })
            }
            _ => Some(Touch::Database(db)),
        }
    }
}

impl<'a> Effect<'a> {
    /// Returns what this effect touches, for watchers and waiters of keys.
    pub fn touches(&self, db: u16) -> impl Iterator<Item = Touch<'a>> {
        // A delayed message cannot be delivered to waiters yet.
        let wakes = !matches!(self, Effect::StreamDelay { .. } | Effect::StreamCancel { .. });
        let touch = move |(role, target)| match (role, target) {
            (Role::Reads | Role::Notes, _) => None,
            (_, Target::Database(db)) => Some(Touch::Database(db)),
            (_, Target::Key(db, key)) => Some(Touch::Key { db, key, is_deletion: role == Role::Removes, wakes }),
        };
        self.targets(db).into_iter().flatten().filter_map(touch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::stream::StreamId;

    /// A watcher of a stream learns of a delayed message, but a waiter for an entry does not.
    #[test]
    fn delayed_messages_wake_no_waiter_before_their_time() {
        let (key, id) = (&b"s"[..], StreamId { ms: 2, seq: 1 });
        for (effect, wakes) in [
            (Effect::StreamDelay { key, id, pairs: b"\x01f\x01v" }, false),
            (Effect::StreamCancel { key, id }, false),
            (Effect::StreamRelease { key, id, as_id: id }, true),
        ] {
            let touch = Touch::Key { db: 3, key, is_deletion: false, wakes };
            assert_eq!(effect.touches(3).collect::<Vec<_>>(), [touch]);
            let mut encoded = Vec::new();
            touch.encode(&mut encoded);
            assert_eq!(Touch::decode(&mut &encoded[..]), Some(touch));
        }
    }
}
