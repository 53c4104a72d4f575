//! What of an effect those need to know who watch keys or wait for them.

use super::{Effect, Field, Role, Target};

/// What has been touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch<'a> {
    /// This key of a database may hold something else now.
    Key {
        /// The database.
        db: u16,
        /// The key.
        key: &'a [u8],
        /// It was removed.
        is_deletion: bool,
    },
    /// Every key of this database may.
    Database(u16),
}

impl<'a> Touch<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Touch::Key { db, key, is_deletion } => {
                u8::from(*is_deletion).put(out);
                db.put(out);
                key.put(out);
            }
            Touch::Database(db) => {
                2u8.put(out);
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
            0 | 1 => Some(Touch::Key { db, key: Field::take(input)?, is_deletion: kind == 1 }),
            _ => Some(Touch::Database(db)),
        }
    }
}

impl<'a> Effect<'a> {
    /// What those learn of it who watch keys or wait for them.
    pub fn touches(&self, db: u16) -> impl Iterator<Item = Touch<'a>> {
        let touch = |(role, target)| match (role, target) {
            (Role::Reads | Role::Notes, _) => None,
            (_, Target::Database(db)) => Some(Touch::Database(db)),
            (_, Target::Key(db, key)) => Some(Touch::Key { db, key, is_deletion: role == Role::Removes }),
        };
        self.targets(db).into_iter().flatten().filter_map(touch)
    }
}
