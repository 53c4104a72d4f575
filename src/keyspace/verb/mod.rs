//! The verbs: the only mutators of the keyspace. There is one file per value type; each verb applies one change and
//! records it.

mod check;
mod dead_letter;
mod delayed;
mod element;
mod grants;
mod group;
pub mod handles;
mod hash;
mod key;
mod list;
mod long_leases;
mod part;
mod put_value;
#[cfg(test)]
mod replayed;
mod set;
mod stock;
mod stream;
mod string;
mod zset;

pub(super) use grants::grant_set;
pub(super) use group::{PendingPack, group_policy};
pub(super) use put_value::{build, delayed_messages, keeps_expiry, limits_effect, limits_of, value_of};
pub(super) use stock::{stock_note, stock_set};

use super::effect::{Effect, for_each_effect};
use super::{DbIndex, Keyspace, Misfit, Slot};

macro_rules! dispatch {
    ($(
        $(#[$doc:meta])*
        $code:literal $name:ident $(($key:ident))? $family:ident
        $roles:tt
        $fields:tt
    )*) => {
        /// Replays a recorded change through the verb that recorded it.
        fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
            match effect {
                $(Effect::$name { .. } => $family::apply(ks, db, effect),)*
            }
        }
    };
}
for_each_effect!(dispatch);

/// Scripts and libraries, and whose the data is. Their owners change them.
mod beside {
    use super::{DbIndex, Effect, Keyspace, Misfit};

    pub(super) fn apply(_: &mut Keyspace, _: DbIndex, _: &Effect<'_>) -> Result<(), Misfit> {
        Err(Misfit::Elsewhere)
    }
}

impl Keyspace {
    /// Replays a recorded change of keys. Fails if the change does not fit the data; a stream of this keyspace's own
    /// effects always fits. A change that does not fit may have been applied in part, so the keyspace must not be used
    /// afterwards.
    pub fn apply(&mut self, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
        if db >= self.databases() {
            return Err(Misfit::NoDatabase);
        }
        apply(self, db, effect)
    }

    /// Records an effect on the key at `slot`.
    #[inline]
    fn record_at<'a>(&'a mut self, db: DbIndex, slot: Slot, effect: impl FnOnce(&'a [u8]) -> Effect<'a>) {
        let database = &self.dbs[db as usize];
        let key = database.entry(slot).key();
        self.effects.record_hashed(db, || database.hash_at(slot), || effect(key));
    }

    /// Records an effect that already names the key at `slot`.
    #[inline]
    fn record_on<'a>(&mut self, db: DbIndex, slot: Slot, effect: impl FnOnce() -> Effect<'a>) {
        let database = &self.dbs[db as usize];
        self.effects.record_hashed(db, || database.hash_at(slot), effect);
    }

    /// Whether effects on the collection at this address must name the elements they change.
    #[inline]
    fn names_elements_of(&self, address: Option<usize>) -> bool {
        self.copied_in_parts.is_on(address)
    }

    /// Removes the key of a collection that has become empty. The recorded effect already implies the removal.
    #[inline]
    fn drop_if(&mut self, empty: bool, db: DbIndex, slot: Slot) {
        if empty && !self.is_workshop {
            self.take_away(db, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::WrongType;
    use crate::keyspace::any_value::ValueRef;
    use crate::keyspace::effect::Recording;
    use crate::keyspace::entry::Entry;
    use crate::value::string::Digits;

    /// Runs `verbs` in one recorded unit, applies its effects to an empty keyspace, and asserts that both are equal.
    pub(super) fn replays(verbs: impl FnOnce(&mut Keyspace) -> Result<(), WrongType>) {
        let fresh = || Keyspace::new(16, Rng::seeded(1));
        let mut ks = fresh();
        ks.begin_unit(1_000, Recording::Full);
        verbs(&mut ks).expect("the test keeps types apart");
        let mut copy = fresh();
        copy.begin_unit(1_000, Recording::Full);
        for (db, effect) in ks.effects().iter() {
            assert_eq!(copy.apply(db, &effect), Ok(()), "{effect:?}");
        }
        assert!(copy.effects().iter().eq(ks.effects().iter()), "applying records the same effects");
        for db in 0..16 {
            assert_eq!(contents(&copy, db), contents(&ks, db));
        }
    }

    /// Keys with values and expiry, as text, in key order.
    fn contents(ks: &Keyspace, db: DbIndex) -> Vec<String> {
        let show = |entry: Entry<'_>| {
            let deadlines = entry.value().deadlines();
            let (value, encoding) = (text(entry.value()), entry.value().encoding());
            format!("{:?} {:?} {encoding} {value} {deadlines:?}", entry.key(), entry.expires_at_ms())
        };
        let mut all: Vec<String> = ks.entries(db).map(show).collect();
        all.sort();
        all
    }

    fn text(value: ValueRef<'_>) -> String {
        match value {
            ValueRef::String(string) => format!("{:?}", string.as_bytes(&mut Digits::new())),
            ValueRef::List(list) => format!("{:?}", list.iter().collect::<Vec<_>>()),
            ValueRef::ZSet(zset) => format!("{:?}", zset.iter().collect::<Vec<_>>()),
            ValueRef::Stream(stream) => format!("{stream:?}"),
            ValueRef::Grants(grants) => format!("{grants:?}"),
            ValueRef::Set(set) => format!("{:?}", set.iter().map(|member| member.to_vec()).collect::<Vec<_>>()),
            ValueRef::Hash(hash) => {
                let fields: Vec<_> = hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
                format!("{fields:?}")
            }
        }
    }
}
