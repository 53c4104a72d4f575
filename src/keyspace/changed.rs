//! Records what a unit has changed other than by expiry. Readers of these changes must wait until the unit is in the
//! journal.

use std::collections::BTreeSet;

use crate::keyspace::limits::IN_FLIGHT_UNIT_MAX_KEYS;

/// See the module header. The end of the record can be [cut](Changed::cut) off.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The [hashes](hash_in_database) of keys. A key may occur several times, but not twice in a row.
    keys: Vec<u64>,
    more: Vec<More>,
    /// The end of the part that stays.
    kept: Position,
}

/// Changes that are not of a single key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    /// A whole database.
    Database(u16),
    /// Too many keys to list.
    AnyKey,
    /// Scripts or libraries.
    Beside,
}

/// A position in the record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    keys: usize,
    more: usize,
}

/// The hash of a key in a database, from the key's [hash](crate::base::hasher::hash_bytes).
#[inline]
pub(super) fn hash_in_database(db: u16, hash: u64) -> u64 {
    hash ^ u64::from(db).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Changed {
    /// Adds a key by its [hash](hash_in_database).
    #[inline]
    pub(super) fn add_key(&mut self, hash: u64) {
        if self.keys.last() == Some(&hash) {
            return;
        }
        self.keys.push(hash);
        if self.keys.len() > IN_FLIGHT_UNIT_MAX_KEYS {
            self.condense();
        }
    }

    pub(super) fn add_more(&mut self, more: More) {
        if self.more.last() == Some(&more) {
            return;
        }
        self.more.push(more);
        if self.more.len() > IN_FLIGHT_UNIT_MAX_KEYS {
            self.more.truncate(self.kept.more);
            self.more.extend([More::AnyKey, More::Beside]);
        }
    }

    /// Removes duplicate keys behind the part that stays. If that does not make much room, replaces all of them by
    /// [`More::AnyKey`].
    #[cold]
    fn condense(&mut self) {
        let fresh: BTreeSet<u64> = self.keys.drain(self.kept.keys..).collect();
        if self.kept.keys + fresh.len() <= IN_FLIGHT_UNIT_MAX_KEYS / 4 * 3 {
            self.keys.extend(fresh);
        } else {
            self.add_more(More::AnyKey);
        }
    }

    /// The position up to which the record stays.
    pub(super) fn kept(&self) -> Position {
        self.kept
    }

    /// Restores the earlier position, which was replaced by a later [`keep`](Self::keep).
    pub(super) fn keep_only(&mut self, kept: Position) {
        self.kept = kept;
    }

    /// Makes everything recorded so far stay.
    #[inline]
    pub(super) fn keep(&mut self) {
        self.kept = Position { keys: self.keys.len(), more: self.more.len() };
    }

    /// Forgets what does not [stay](Self::keep).
    pub(super) fn cut(&mut self) {
        self.keys.truncate(self.kept.keys);
        self.more.truncate(self.kept.more);
    }

    /// Makes the whole record stay for good.
    #[inline]
    pub(super) fn release(&mut self) {
        self.kept = Position::default();
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.more.clear();
    }

    /// Whether nothing was changed.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.more.is_empty()
    }

    /// The hashes of the changed keys.
    #[inline]
    pub(super) fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// The other changes.
    #[inline]
    pub(super) fn more(&self) -> &[More] {
        &self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_changed_keys_is_bounded() {
        const MANY: usize = 3 * IN_FLIGHT_UNIT_MAX_KEYS;
        let mut changed = Changed::default();
        let change = |changed: &mut Changed, n: usize| {
            changed.add_key(n as u64);
            assert!(changed.keys().len() <= IN_FLIGHT_UNIT_MAX_KEYS);
        };
        change(&mut changed, 0);
        changed.keep();
        // A few keys that come again and again are listed.
        (0..MANY).for_each(|n| change(&mut changed, n % 7));
        assert!((0..7).all(|hash| changed.keys().contains(&hash)) && changed.more().is_empty());
        // Very many keys are not, and later ones are again.
        (0..MANY).for_each(|n| change(&mut changed, n));
        assert_eq!(changed.more(), [More::AnyKey]);
        for db in 0..MANY as u16 {
            changed.add_more(More::Database(db));
            assert!(changed.more().len() <= IN_FLIGHT_UNIT_MAX_KEYS);
        }
        assert!([More::AnyKey, More::Beside].iter().all(|more| changed.more().contains(more)));
        changed.cut();
        assert_eq!((changed.keys(), changed.more()), (&[0][..], &[][..]));
        // Nor are the keys of several scripts, each of which may be rolled back.
        for n in 0..MANY {
            changed.keep();
            change(&mut changed, n);
            changed.release();
        }
        assert_eq!(changed.more(), [More::AnyKey]);
    }
}
