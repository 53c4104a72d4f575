//! Tracks changes that may still be lost, and whether a unit has seen any of them.
//!
//! A change is executed before it is in the journal. A reply to its reader must wait for the journal as well: a crash
//! could otherwise take back what the client was told. So a unit that has changed something *marks* its keys with its
//! Lsn, and every lookup of a key checks the key's mark. The greatest Lsn that a unit meets this way is its *fence*:
//! its reply must not leave before the journal has reached the fence. A missing key can be marked as well, because it
//! may have just been removed.
//!
//! The marks are a table with one place per hash. Marks are never removed: a mark that the journal has reached has no
//! effect, and its place is free. When two keys in flight meet in one place, they share it from then on with all keys
//! that belong there. A reader may then wait in vain, but no reader that must wait is let through. A unit that changes
//! very many keys marks all keys at once.
//!
//! In a pipeline, each reply leaves after the earlier ones, so it waits for everything that they wait for. Marks of
//! units that an earlier reply waits for are ignored, and one fence serves several units in a row. The fence only
//! grows.
//!
//! Without a journal nothing is ever marked, and a lookup costs one test.

use std::cell::Cell;

use super::changed::{Changed, More, hash_in_database};
use crate::base::lsn::Lsn;
use crate::keyspace::limits::IN_FLIGHT_PLACES;

/// See the module header.
#[derive(Default)]
pub(super) struct InFlight {
    /// `None` before the first mark, and after a while without any.
    places: Option<Box<[Place; IN_FLIGHT_PLACES]>>,
    /// The last units that changed each database as a whole.
    databases: Vec<Lsn>,
    /// The last unit that changed scripts or libraries.
    beside: Lsn,
    /// The last unit that changed very many keys.
    all: Lsn,
    /// The last unit that changed anything.
    last: Lsn,
    /// The value of `last` when memory was last given back.
    last_at_rest: Lsn,
    /// Units up to this one could no longer be lost when the fence began.
    safe: Lsn,
    /// Units up to this one need no fence: they are safe, or are waited for in any case.
    free: Lsn,
    /// Whether there are units beyond `free`.
    is_any: bool,
    fence: Cell<Lsn>,
}

#[derive(Clone, Copy)]
struct Place {
    /// The hash of the marked key, [`SHARED`] if there may be several.
    hash: u64,
    lsn: Lsn,
}

/// May also be the hash of a key, which then never has a place of its own.
const SHARED: u64 = 0;

impl InFlight {
    /// Begins a fence. Changes of units up to `safe` can no longer be lost. Replies of the coming units wait for unit
    /// `awaited` in any case.
    #[inline]
    pub(super) fn begin_fence(&mut self, safe: Lsn, awaited: Lsn) {
        self.safe = safe;
        self.free = safe.max(awaited);
        self.is_any = self.last > self.free;
        self.fence.set(Lsn::NONE);
    }

    /// The last unit whose changes were seen or made by the units of this fence, and for which no earlier reply waits.
    #[inline]
    pub(super) fn fence(&self) -> Lsn {
        self.fence.get()
    }

    /// The last unit that changed anything.
    pub(super) fn last(&self) -> Lsn {
        self.last
    }

    /// Notes that the unit looks for the key with this [hash](crate::base::hasher::hash_bytes).
    #[inline]
    pub(super) fn see_key(&self, db: u16, hash: u64) {
        if self.is_any {
            self.see_key_now(db, hash);
        }
    }

    #[inline(never)]
    fn see_key_now(&self, db: u16, hash: u64) {
        self.see(self.last_change_of(db, hash));
    }

    /// The last unit that changed, or may have changed, the key with this [hash](crate::base::hasher::hash_bytes).
    pub(super) fn last_change_of(&self, db: u16, hash: u64) -> Lsn {
        let hash = hash_in_database(db, hash);
        let place = self.places.as_ref().map(|places| places[place_of(hash)]);
        let place = place.filter(|place| place.hash == hash || place.hash == SHARED);
        let database = self.databases.get(usize::from(db)).copied().unwrap_or_default();
        place.map_or(Lsn::NONE, |place| place.lsn).max(self.all).max(database)
    }

    /// The last unit that changed scripts or libraries.
    pub(super) fn last_change_beside(&self) -> Lsn {
        self.beside
    }

    /// Notes that the unit looks at all keys.
    #[inline]
    pub(super) fn see_all(&self) {
        self.see(self.last);
    }

    /// Notes that the unit looks at scripts or libraries.
    pub(super) fn see_beside(&self) {
        self.see(self.beside);
    }

    #[inline]
    fn see(&self, lsn: Lsn) {
        if lsn > self.free {
            self.fence.set(self.fence.get().max(lsn));
        }
    }

    /// Marks what the current unit, number `lsn` in the journal, has changed.
    #[inline]
    pub(super) fn mark(&mut self, lsn: Lsn, changed: &Changed) {
        self.last = lsn;
        self.fence.set(lsn);
        // A client that receives the next unit's reply behind this fence has already received this one.
        self.free = lsn;
        self.is_any = false;
        let places = self.places.get_or_insert_with(make_places);
        for &hash in changed.keys() {
            let place = &mut places[place_of(hash)];
            let is_free = place.lsn <= self.safe || place.hash == hash;
            *place = Place { hash: if is_free { hash } else { SHARED }, lsn };
        }
        for more in changed.more() {
            self.mark_more(lsn, *more);
        }
    }

    #[cold]
    fn mark_more(&mut self, lsn: Lsn, more: More) {
        match more {
            More::Database(db) => {
                let db = usize::from(db);
                if self.databases.len() <= db {
                    self.databases.resize(db + 1, Lsn::NONE);
                }
                self.databases[db] = lsn;
            }
            More::AnyKey => self.all = lsn,
            More::Beside => self.beside = lsn,
        }
    }

    /// Gives the table's memory back if nothing has been marked since the last call and all earlier marks are safe.
    /// Call between units, while changes of units up to `safe` can no longer be lost.
    pub(super) fn give_back(&mut self, safe: Lsn) {
        if self.last <= safe && self.last == self.last_at_rest {
            self.places = None;
        }
        self.last_at_rest = self.last;
    }
}

#[cold]
fn make_places() -> Box<[Place; IN_FLIGHT_PLACES]> {
    let places = vec![Place { hash: SHARED, lsn: Lsn::NONE }; IN_FLIGHT_PLACES];
    places.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("the vector has this length"))
}

#[inline]
fn place_of(hash: u64) -> usize {
    hash as usize % IN_FLIGHT_PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hasher::hash_bytes;
    use crate::base::rng::Rng;
    use crate::keyspace::Keyspace;
    use crate::keyspace::effect::{Effect, Recording};
    use crate::keyspace::limits::IN_FLIGHT_UNIT_MAX_KEYS;

    /// A keyspace between units, and the number of the last unit.
    struct Bench {
        ks: Keyspace,
        last: u64,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { ks: Keyspace::new(4, Rng::seeded(1)), last: 0 }
        }

        /// Runs a unit that changes something. Returns its number.
        fn change<T>(&mut self, safe: u64, change: impl FnOnce(&mut Keyspace) -> T) -> u64 {
            self.ks.begin_unit(1_000, Recording::Full);
            self.ks.begin_fence(Lsn::new(safe), Lsn::NONE);
            change(&mut self.ks);
            self.last += 1;
            self.ks.mark_in_flight(Lsn::new(self.last));
            assert_eq!(self.ks.fence().get(), self.last);
            self.last
        }

        /// Returns the fence of a unit that reads.
        fn seen<T>(&mut self, safe: u64, read: impl FnOnce(&mut Keyspace) -> T) -> u64 {
            self.seen_behind(0, safe, read)
        }

        /// As `seen`, for a reply that leaves after unit `awaited` is safe.
        fn seen_behind<T>(&mut self, awaited: u64, safe: u64, read: impl FnOnce(&mut Keyspace) -> T) -> u64 {
            self.ks.begin_unit(1_000, Recording::Full);
            self.ks.begin_fence(Lsn::new(safe), Lsn::new(awaited));
            read(&mut self.ks);
            self.ks.fence().get()
        }
    }

    #[test]
    fn a_reader_of_a_key_waits_only_for_its_last_change() {
        let mut bench = Bench::new();
        let read = |key: &'static [u8]| move |ks: &mut Keyspace| ks.find(0, key);
        let old = bench.change(0, |ks| ks.put(0, b"old", b"v"));
        let new = bench.change(0, |ks| ks.put(0, b"new", b"v"));
        let gone = bench.change(0, |ks| {
            let slot = ks.put(0, b"gone", b"v");
            ks.remove(0, slot);
        });
        assert_eq!(bench.seen(0, read(b"old")), old);
        assert_eq!(bench.seen(0, read(b"new")), new);
        assert_eq!(bench.seen(0, read(b"gone")), gone);
        assert_eq!(bench.seen(0, |ks| ks.live(0, b"new").is_some()), new, "a silent lookup counts as well");
        assert_eq!(bench.seen(0, read(b"other")), 0);
        assert_eq!(bench.seen(0, |ks| ks.find(1, b"new")), 0, "in another database");
        assert_eq!(bench.seen(0, |ks| [b"new".as_slice(), b"old"].map(|key| ks.find(0, key))), new);
        assert_eq!(bench.seen(new, read(b"new")), 0, "a durable change needs no wait");
        assert_eq!(bench.seen(new, read(b"gone")), gone);
        let again = bench.change(new, |ks| ks.put(0, b"old", b"w"));
        assert_eq!(bench.seen(gone, read(b"old")), again);
        bench.ks.forget_in_flight();
        bench.ks.find(0, b"old");
        bench.ks.see_scripts();
        assert_eq!(bench.ks.fence(), Lsn::NONE, "without a log no reader waits");
    }

    #[test]
    fn a_reader_that_waits_for_a_unit_checks_only_later_ones() {
        let mut bench = Bench::new();
        let read = |key: &'static [u8]| move |ks: &mut Keyspace| ks.find(0, key);
        let old = bench.change(0, |ks| ks.put(0, b"old", b"v"));
        let new = bench.change(0, |ks| ks.put(0, b"new", b"v"));
        assert_eq!([old, new].map(|awaited| bench.seen_behind(awaited, 0, read(b"new"))), [new, 0]);
        assert_eq!(bench.seen_behind(old, 0, |ks| ks.entries(0).count()), new);
        assert_eq!(bench.seen_behind(new, 0, |ks| ks.entries(0).count()), 0);
        // Changes keys until one of them shares a place with a key that is not safe.
        let place = |key: u64| place_of(hash_bytes(&key.to_be_bytes()));
        let first = bench.change(0, |ks| ks.put(0, &0u64.to_be_bytes(), b""));
        let other = (1..).find(|key| place(*key) == place(0)).expect("the number of places is limited").to_be_bytes();
        bench.ks.begin_unit(1_000, Recording::Full);
        bench.ks.begin_fence(Lsn::NONE, Lsn::new(first));
        bench.ks.put(0, &other, b"");
        bench.ks.mark_in_flight(Lsn::new(first + 1));
        assert!(
            bench.seen(0, |ks| ks.find(0, &0u64.to_be_bytes())) >= first,
            "readers still wait for the other changes"
        );
    }

    #[test]
    fn units_with_replies_in_order_share_a_fence() {
        let mut bench = Bench::new();
        let others = bench.change(0, |ks| ks.put(0, b"others", b"v"));
        bench.ks.begin_fence(Lsn::NONE, Lsn::NONE);
        let mut fence_behind = |change: Option<u64>, read: &[u8]| {
            bench.ks.begin_unit(1_000, Recording::Full);
            bench.ks.find(0, read);
            if let Some(lsn) = change {
                bench.ks.put(0, b"own", b"v");
                bench.ks.mark_in_flight(Lsn::new(lsn));
            }
            bench.ks.fence().get()
        };
        assert_eq!([fence_behind(None, b"none"), fence_behind(None, b"others")], [0, others]);
        assert_eq!(fence_behind(None, b"none"), others, "earlier replies wait for the change");
        let own = others + 1;
        assert_eq!([Some(own), None, None].map(|change| fence_behind(change, b"others")), [own; 3]);
        assert_eq!([bench.seen(0, |ks| ks.find(0, b"none")), bench.seen(0, |ks| ks.find(0, b"own"))], [0, own]);
    }

    #[test]
    fn a_reader_of_all_keys_waits_for_all_changes() {
        let mut bench = Bench::new();
        let last = bench.change(0, |ks| ks.put(3, b"k", b"v"));
        type Look = fn(&mut Keyspace) -> bool;
        let looks: [(&str, Look); 4] = [
            ("SCAN", |ks| ks.scan(0, 0, 10, |_| {}) == 0),
            ("KEYS", |ks| ks.entries(0).count() == 0),
            ("RANDOMKEY", |ks| ks.random_key(0).is_some()),
            ("DBSIZE", |ks| ks.db(0).is_empty()),
        ];
        for (name, look) in looks {
            assert_eq!((bench.seen(0, look), bench.seen(last, look)), (last, 0), "{name}");
        }
    }

    #[test]
    fn emptying_or_swapping_a_database_changes_every_key() {
        let mut bench = Bench::new();
        bench.change(0, |ks| ks.put(1, b"k", b"v"));
        let flush = bench.change(1, |ks| ks.flush(1, false));
        let read = |db| move |ks: &mut Keyspace| ks.find(db, b"other");
        assert_eq!([0, 1, 2].map(|db| bench.seen(1, read(db))), [0, flush, 0]);
        let swap = bench.change(1, |ks| ks.swap(1, 2));
        assert_eq!([0, 1, 2, 3].map(|db| bench.seen(1, read(db))), [0, swap, swap, 0]);
    }

    #[test]
    fn both_keys_of_a_change_are_marked_unless_one_was_only_read() {
        let mut bench = Bench::new();
        bench.change(0, |ks| ks.put(0, b"a", b"v"));
        let copy = bench.change(1, |ks| {
            let slot = ks.find(0, b"a").expect("just put");
            ks.copy(0, slot, 2, b"b");
        });
        let read = |db, key: &'static [u8]| move |ks: &mut Keyspace| ks.find(db, key);
        assert_eq!([bench.seen(1, read(0, b"a")), bench.seen(1, read(2, b"b"))], [0, copy]);
        let renamed = bench.change(copy, |ks| {
            let slot = ks.find(0, b"a").expect("just put");
            ks.rename(0, slot, b"c");
        });
        assert_eq!([b"a", b"c"].map(|key| bench.seen(copy, read(0, key))), [renamed; 2]);
    }

    #[test]
    fn changes_of_scripts_are_seen_by_their_readers() {
        let mut bench = Bench::new();
        let load = bench.change(0, |ks| ks.record_beside(Effect::ScriptPut { body: b"return 1", loaded: true }));
        assert_eq!(bench.seen(0, |ks| ks.see_scripts()), load);
        assert_eq!(bench.seen(0, |ks| ks.find(0, b"k")), 0);
    }

    #[test]
    fn a_unit_that_changes_very_many_keys_marks_all() {
        let mut bench = Bench::new();
        let many = bench.change(0, |ks| {
            for n in 0..=IN_FLIGHT_UNIT_MAX_KEYS as u32 {
                ks.put(0, &n.to_be_bytes(), b"");
            }
        });
        assert_eq!(bench.seen(0, |ks| ks.find(2, b"other")), many);
        assert_eq!(bench.seen(many, |ks| ks.find(2, b"other")), 0);
    }

    #[test]
    fn the_table_is_given_back_when_nothing_is_in_flight_for_a_while() {
        let mut bench = Bench::new();
        let places = |bench: &Bench| bench.ks.in_flight.places.as_ref().map_or(0, |places| places.len());
        let first = bench.change(0, |ks| ks.put(0, b"k", b"v"));
        bench.ks.give_back_scratch(Lsn::NONE);
        bench.ks.give_back_scratch(Lsn::NONE);
        assert_eq!(places(&bench), IN_FLIGHT_PLACES, "the change may still be lost");
        let second = bench.change(first, |ks| ks.put(0, b"k", b"w"));
        bench.ks.give_back_scratch(Lsn::new(second));
        assert_eq!(places(&bench), IN_FLIGHT_PLACES, "there was a change since the last look");
        bench.ks.give_back_scratch(Lsn::new(second));
        assert_eq!(places(&bench), 0);
        assert_eq!(bench.seen(second, |ks| ks.find(0, b"k")), 0);
        let third = bench.change(second, |ks| ks.put(0, b"k", b"x"));
        assert_eq!(bench.seen(second, |ks| ks.find(0, b"k")), third);
    }

    /// Compared with the Lsns of all keys, no reader waits too briefly, and few wait in vain.
    #[test]
    fn no_reader_skips_a_required_wait() {
        let mut bench = Bench::new();
        let mut rng = Rng::seeded(3);
        let mut changed = std::collections::HashMap::new();
        let (mut in_vain, mut reads) = (0, 0);
        let mut safe = 0;
        for _ in 0..100_000 {
            let key = rng.below(20_000).to_be_bytes();
            if rng.below(2) == 0 {
                let lsn = bench.change(safe, |ks| ks.put(0, &key, b""));
                changed.insert(key, lsn);
            } else {
                let expected = changed.get(&key).copied().filter(|lsn| *lsn > safe).unwrap_or(0);
                let fence = bench.seen(safe, |ks| ks.find(0, &key));
                assert!(fence >= expected, "{fence} instead of {expected}");
                in_vain += u64::from(fence > expected);
                reads += 1;
            }
            // About 1,000 units are in flight.
            safe = bench.last.saturating_sub(1_000);
        }
        assert!(in_vain < reads / 50, "{in_vain} of {reads}");
    }
}
