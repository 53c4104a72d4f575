//! Chooses the key to remove when memory is full.
//!
//! Finding the least recently used key among millions exactly would take an order of all keys that changes with each
//! use. As in Redis, a few keys are drawn instead. The best victims seen so far wait in a
//! [`Pool`](super::victims::Pool), and the best of all is evicted. Drawing is cheap because it takes keys that lie
//! together:
//!
//! - From all keys, it draws a line of the index: up to ten slots whose keys share only a few bits of their hashes. The
//!   next line and its entries are fetched into the cache while a command runs, so no eviction waits for them.
//! - From keys that expire, it draws the same way if they are a large share of all keys. Otherwise it draws a block of
//!   the timing wheel: 31 slots in two cache lines. Stale timers don't matter, because a slot whose entry expires is a
//!   candidate whatever its timer was set for.
//! - From keys that expire soonest, it draws the timers that the wheel would give out first. A bucket of the wheel's
//!   higher levels spans hours and may hold nearly all timers in no order. It is spread over the lower levels, a few
//!   timers with each eviction.
//!
//! A candidate is a slot together with the use bits of its entry. Its score is still valid if the entry has the same
//! bits, even if another key now has the slot. So no key is copied.

use super::db::Db;
use super::effect::Cause;
use super::entry::NEVER;
use super::victims::Candidate;
use super::{DbIndex, Keyspace, Slot};
use crate::config::{MaxmemoryPolicy, Ranking};
use crate::keyspace::limits::{EVICTION_DRAWS, EVICTION_POOL};

/// If fewer than one in this many keys expires, expiring keys are drawn by their timers.
const SPARSE: usize = 4;

impl Keyspace {
    /// Removes the best victim, drawn from about `samples` keys of each database. Returns false if no key may be
    /// evicted. Removes an expired key as expired. Call inside a unit of its own.
    pub fn evict(&mut self, policy: MaxmemoryPolicy, samples: usize) -> bool {
        let Some(ranking) = policy.ranking() else { return false };
        let is_volatile = policy.is_volatile();
        let victim = match ranking {
            Ranking::Chance => self.any_victim(is_volatile),
            _ => self.best_victim(ranking, is_volatile, samples),
        };
        let Some((db, slot)) = victim else { return false };
        if !self.entry(db, slot).is_live(self.expired_until_ms()) {
            self.fall_due(db, slot, 0);
        } else {
            self.remove_as(db, slot, Cause::Eviction);
            self.stats.evicted += 1;
        }
        true
    }

    /// Returns the best candidate after new ones have been drawn.
    fn best_victim(&mut self, ranking: Ranking, is_volatile: bool, samples: usize) -> Option<(DbIndex, Slot)> {
        loop {
            let mut drawn = std::mem::take(&mut self.drawn);
            let (mut has_drawn, mut expired) = (false, None);
            // The nearest timers stay nearest except for new ones, so they need not be drawn again each time.
            let are_enough = ranking == Ranking::Deadline
                && self.pool.len() > EVICTION_POOL / 2
                && !self.dbs.iter().any(Db::is_ordering_timers);
            for db in 0..if are_enough { 0 } else { self.databases() } {
                drawn.clear();
                self.draw(db, ranking, is_volatile, samples, &mut drawn);
                has_drawn |= !drawn.is_empty();
                expired = expired.or(self.consider(db, ranking, &drawn));
            }
            self.drawn = drawn;
            if expired.is_some() || !(has_drawn || are_enough) {
                return expired;
            }
            while let Some(Candidate { slot, used, db, .. }) = self.pool.take_best() {
                let entry = self.dbs.get(db as usize).and_then(|db| db.get(slot));
                if entry.is_some_and(|entry| entry.used() == used && (!is_volatile || entry.expires())) {
                    return Some((db, slot));
                }
            }
            // All candidates were gone, and had kept the drawn ones out. Now there is room.
        }
    }

    /// Adds candidates drawn from a database. Returns an expired one, if there is any.
    fn consider(&mut self, db: DbIndex, ranking: Ranking, drawn: &[Slot]) -> Option<(DbIndex, Slot)> {
        let mut expired = None;
        for &slot in drawn {
            let entry = self.entry(db, slot);
            if !entry.is_live(self.expired_until_ms()) {
                expired = Some((db, slot));
                continue;
            }
            let score = match ranking {
                // Times in reverse order.
                Ranking::Deadline => (NEVER as u64).wrapping_sub(entry.deadline_ms() as u64),
                _ => self.age(entry).into(),
            };
            self.pool.add(Candidate { score, slot, used: entry.used(), db });
        }
        expired
    }

    /// Draws slots of one database whose keys may be evicted: about `samples`, and at least one if there is any.
    fn draw(&mut self, db: DbIndex, ranking: Ranking, is_volatile: bool, samples: usize, drawn: &mut Vec<Slot>) {
        let Keyspace { dbs, rng, .. } = self;
        let database = &mut dbs[db as usize];
        if database.is_empty() || (is_volatile && database.volatile() == 0) {
            return;
        }
        if ranking == Ranking::Deadline {
            database.draw_nearest(drawn);
            if drawn.is_empty() {
                // All keys that were next have had their deadlines extended.
                database.draw_timers(rng, drawn);
                drawn.extend(database.first_that_may_go(true));
            }
            return;
        }
        for _ in 0..EVICTION_DRAWS {
            if drawn.len() >= samples {
                return;
            }
            if is_volatile && is_sparse(database) {
                database.draw_timers(rng, drawn);
            } else {
                database.draw_line(rng, is_volatile, drawn);
            }
        }
        if drawn.is_empty() {
            drawn.extend(database.first_that_may_go(is_volatile));
        }
    }

    /// Returns a random key that may be evicted, from each database in turn.
    fn any_victim(&mut self, is_volatile: bool) -> Option<(DbIndex, Slot)> {
        let databases = self.databases();
        for _ in 0..databases {
            self.next_victim_db = (self.next_victim_db + 1) % databases;
            let db = self.next_victim_db;
            let Keyspace { dbs, rng, drawn, .. } = self;
            let database = &mut dbs[db as usize];
            if database.is_empty() || (is_volatile && database.volatile() == 0) {
                continue;
            }
            let victim = if is_volatile && is_sparse(database) {
                drawn.clear();
                let mut draws = 0..EVICTION_DRAWS;
                while drawn.is_empty() && draws.next().is_some() {
                    database.draw_timers(rng, drawn);
                }
                drawn.get(rng.below(drawn.len().max(1) as u64) as usize).copied()
            } else {
                database.draw_one(rng, is_volatile)
            };
            if let Some(slot) = victim.or_else(|| database.first_that_may_go(is_volatile)) {
                return Some((db, slot));
            }
        }
        None
    }
}

/// Whether few of the keys expire.
fn is_sparse(database: &Db) -> bool {
    database.volatile() < database.len() / SPARSE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::effect::{Effect, Recording};
    use crate::keyspace::usage::Usage;
    use proptest::prelude::*;

    const POLICIES: [MaxmemoryPolicy; 9] = [
        MaxmemoryPolicy::AllKeysLru,
        MaxmemoryPolicy::AllKeysLfu,
        MaxmemoryPolicy::AllKeysLrm,
        MaxmemoryPolicy::AllKeysRandom,
        MaxmemoryPolicy::VolatileLru,
        MaxmemoryPolicy::VolatileLfu,
        MaxmemoryPolicy::VolatileLrm,
        MaxmemoryPolicy::VolatileRandom,
        MaxmemoryPolicy::VolatileTtl,
    ];

    /// A keyspace under a policy, at a given time.
    fn keyspace(policy: MaxmemoryPolicy, now_ms: i64) -> Keyspace {
        let mut ks = Keyspace::new(3, Rng::seeded(7));
        let config = crate::config::Config { maxmemory_policy: policy, ..crate::config::Config::default() };
        ks.set_usage(Usage::from(&config));
        ks.begin_unit(now_ms, Recording::Full);
        ks
    }

    /// The keys evicted in this unit, in order.
    fn evicted(ks: &Keyspace) -> Vec<u32> {
        let number = |key: &[u8]| u32::from_be_bytes(key.try_into().expect("four bytes"));
        let evicted = |(_, effect)| match effect {
            Effect::Del { key, cause: Cause::Eviction } => Some(number(key)),
            _ => None,
        };
        ks.effects().iter().filter_map(evicted).collect()
    }

    const KEYS: u32 = if cfg!(miri) { 300 } else { 10_000 };
    const START_MS: i64 = 1 << 40;

    /// Evicts a tenth of 10,000 keys with known ranks and returns the mean rank of the evicted: 0 for the best victim,
    /// and 1 for the worst.
    fn mean_rank(
        policy: MaxmemoryPolicy,
        spread: impl Fn(&mut Keyspace, Slot, i64),
        volatile: impl Fn(u32) -> bool,
    ) -> f64 {
        mean_rank_from(START_MS, policy, spread, volatile)
    }

    /// As [`mean_rank`], at another time.
    fn mean_rank_from(
        start_ms: i64,
        policy: MaxmemoryPolicy,
        spread: impl Fn(&mut Keyspace, Slot, i64),
        volatile: impl Fn(u32) -> bool,
    ) -> f64 {
        let mut ks = keyspace(policy, start_ms);
        for key in 0..KEYS {
            // Neighbouring keys have unrelated ranks.
            let rank = i64::from(key) * 7_919 % i64::from(KEYS);
            let slot = ks.put(0, &key.to_be_bytes(), b"value");
            let slot = if volatile(key) { ks.expire_at(0, slot, start_ms + 1_000_000 + 1_000 * rank) } else { slot };
            spread(&mut ks, slot, rank);
        }
        ks.begin_unit(start_ms + 1_000, Recording::Full);
        for _ in 0..KEYS / 10 {
            assert!(ks.evict(policy, 5));
        }
        let victims = evicted(&ks);
        assert_eq!(victims.len() as u32, KEYS / 10);
        assert_eq!((ks.stats.evicted, ks.db(0).len() as u32), (u64::from(KEYS / 10), KEYS - KEYS / 10));
        assert!(victims.iter().all(|key| !policy.is_volatile() || volatile(*key)));
        let ranks = victims.iter().map(|key| i64::from(*key) * 7_919 % i64::from(KEYS));
        ranks.sum::<i64>() as f64 / victims.len() as f64 / f64::from(KEYS)
    }

    /// With perfect knowledge, the best tenth has a mean rank of 0.05; a random tenth has one of 0.5.
    #[test]
    #[cfg_attr(miri, ignore = "too few keys for chances")]
    fn victims_are_among_the_best() {
        let idle = |ks: &mut Keyspace, slot: Slot, rank: i64| ks.set_idle(0, slot, i64::from(KEYS) - rank);
        let frequency = |ks: &mut Keyspace, slot: Slot, rank: i64| {
            ks.set_frequency(0, slot, (rank * 200 / i64::from(KEYS)) as u8);
        };
        let all = |_: u32| true;
        // All but the first few then lie in one bucket of the wheel, which spans the next 4.7 hours.
        let before_hours = START_MS - 1_100_000;
        for (name, rank, most) in [
            ("allkeys-lru", mean_rank(MaxmemoryPolicy::AllKeysLru, idle, |_| false), 0.10),
            ("allkeys-lrm", mean_rank(MaxmemoryPolicy::AllKeysLrm, idle, |_| false), 0.10),
            ("allkeys-lfu", mean_rank(MaxmemoryPolicy::AllKeysLfu, frequency, |_| false), 0.10),
            ("volatile-lru", mean_rank(MaxmemoryPolicy::VolatileLru, idle, all), 0.10),
            ("volatile-lru, one in 5", mean_rank(MaxmemoryPolicy::VolatileLru, idle, |key| key % 5 == 0), 0.30),
            ("volatile-lfu, half", mean_rank(MaxmemoryPolicy::VolatileLfu, frequency, |key| key % 2 == 0), 0.15),
            ("volatile-ttl", mean_rank(MaxmemoryPolicy::VolatileTtl, |_, _, _| {}, all), 0.08),
            ("volatile-ttl, far", mean_rank_from(before_hours, MaxmemoryPolicy::VolatileTtl, |_, _, _| {}, all), 0.08),
        ] {
            assert!(rank < most, "{name}: {rank}");
        }
        let random = mean_rank(MaxmemoryPolicy::AllKeysRandom, idle, |_| false);
        assert!((0.47..0.53).contains(&random), "{random}");
    }

    #[test]
    fn expired_keys_are_removed_as_expired() {
        for policy in POLICIES {
            let mut ks = keyspace(policy, START_MS);
            for key in 0..20u32 {
                let slot = ks.put(1, &key.to_be_bytes(), b"value");
                _ = ks.expire_at(1, slot, START_MS + 10);
            }
            ks.begin_unit(START_MS + 10, Recording::Full);
            for left in (0..20).rev() {
                assert!(ks.evict(policy, 5), "{policy:?}");
                assert_eq!(ks.db(1).len(), left);
            }
            assert!(!ks.evict(policy, 5));
            assert_eq!((ks.stats.evicted, ks.stats.expired), (0, 20));
        }
    }

    #[test]
    fn replaying_evicts_the_same_keys() {
        let mut ks = keyspace(MaxmemoryPolicy::VolatileLru, START_MS);
        for key in 0..50u32 {
            let slot = ks.put(2, &key.to_be_bytes(), b"value");
            _ = ks.expire_at(2, slot, START_MS + 100_000);
        }
        assert!(POLICIES.into_iter().all(|policy| ks.evict(policy, 5)));
        let mut copy = Keyspace::new(3, Rng::seeded(9));
        copy.begin_unit(START_MS, Recording::Full);
        for (db, effect) in ks.effects().iter() {
            assert_eq!(copy.apply(db, &effect), Ok(()), "{effect:?}");
        }
        assert!(copy.effects().iter().eq(ks.effects().iter()));
        let keys =
            |ks: &Keyspace| ks.entries(2).map(|entry| entry.key().to_vec()).collect::<std::collections::BTreeSet<_>>();
        assert_eq!((keys(&copy), ks.db(2).len()), (keys(&ks), 50 - POLICIES.len()));
    }

    #[test]
    fn nothing_is_evicted_if_nothing_may_be() {
        for policy in POLICIES.into_iter().chain([MaxmemoryPolicy::NoEviction]) {
            let mut ks = keyspace(policy, START_MS);
            assert!(!ks.evict(policy, 5));
            ks.put(0, b"key!", b"value");
            // A hash with expiring fields is not itself a key that expires.
            let (slot, _) = ks.hash_set(2, b"hash", None, b"f", b"v").expect("a hash");
            ks.expire_element_at(2, slot, b"f", START_MS + 10);
            let may_go = policy != MaxmemoryPolicy::NoEviction && !policy.is_volatile();
            assert_eq!(ks.evict(policy, 5), may_go, "{policy:?}");
            assert_eq!(ks.evict(policy, 5), may_go, "{policy:?}");
            assert!(!ks.evict(policy, 5));
        }
    }

    /// Exactly the keys that expire are evicted in the end, however timers were renewed, removed and left behind.
    #[test]
    fn renewed_leases_and_stale_timers_hide_nothing() {
        for policy in POLICIES.into_iter().filter(|policy| policy.is_volatile()) {
            let mut ks = keyspace(policy, START_MS);
            for key in 0..600u32 {
                let slot = ks.put(0, &key.to_be_bytes(), b"value");
                let slot = ks.expire_at(0, slot, START_MS + 1_000 + i64::from(key));
                match key % 4 {
                    0 => _ = ks.expire_at(0, slot, START_MS + 10_000_000),
                    1 => _ = ks.expire_at(0, slot, NEVER),
                    2 => ks.remove(0, slot),
                    _ => {}
                }
            }
            let volatile = ks.db(0).volatile();
            assert_eq!(volatile, 300);
            ks.begin_unit(START_MS, Recording::Full);
            while ks.evict(policy, 5) {}
            let victims = evicted(&ks);
            assert!(victims.len() == volatile && victims.iter().all(|key| matches!(key % 4, 0 | 3)), "{policy:?}");
            if policy == MaxmemoryPolicy::VolatileTtl {
                assert!(victims[..150].iter().all(|key| key % 4 == 3), "those that were renewed go last");
            }
            assert_eq!(ks.db(0).len(), 150);
        }
    }

    proptest! {
        /// Whatever keys come, go and are used: if any key may be evicted, a key is evicted, and it is one that may be.
        #[test]
        fn a_victim_is_one_that_may_go(
            policy in 0..POLICIES.len(),
            steps in proptest::collection::vec((0..3u16, 0..60u32, 0..7u8), 1..120),
        ) {
            let policy = POLICIES[policy];
            let mut ks = keyspace(policy, START_MS);
            for (number, (db, key, step)) in steps.into_iter().enumerate() {
                ks.begin_unit(START_MS + number as i64 * 100, Recording::Full);
                let key = key.to_be_bytes();
                match step {
                    0 => _ = ks.put(db, &key, b"value"),
                    1 | 2 => {
                        let slot = ks.put(db, &key, &[b'x'; 100]);
                        _ = ks.expire_at(db, slot, START_MS + 2_000 + 1_000 * number as i64);
                    }
                    3 => _ = ks.read(db, &key),
                    4 => ks.swap(db, 0),
                    5 => ks.flush(db, false),
                    _ => {
                        let live = |ks: &Keyspace| (0..3).map(|db| ks.entries(db).count()).sum::<usize>();
                        let volatile = |ks: &Keyspace| (0..3).map(|db| ks.db(db).volatile()).sum::<usize>();
                        let all = |ks: &Keyspace| (0..3).map(|db| ks.db(db).len()).sum::<usize>();
                        let (lives, before, expire) = (live(&ks), all(&ks), volatile(&ks));
                        let may_go = if policy.is_volatile() { expire > 0 } else { before > 0 };
                        prop_assert_eq!(ks.evict(policy, 5), may_go);
                        prop_assert_eq!(all(&ks), before - usize::from(may_go));
                        prop_assert!(!policy.is_volatile() || volatile(&ks) == expire - usize::from(may_go));
                        prop_assert_eq!(live(&ks), lives - evicted(&ks).len());
                    }
                }
            }
        }
    }
}
