//! Cuts leases that are longer than the permitted maximum. They were granted while the clock was years ahead, and the
//! clock is right again. Nobody can wait for their ends, so each one is cut to the longest permitted lease from now on.
//!
//! A clock that is behind looks the same from here. A clock that shows a time before this program was written is not
//! believed. Otherwise, a lease would be cut that ends as soon as the clock is set, while its holder relies on it.

use crate::keyspace::any_value::ValueRef;
use crate::keyspace::limits::{CLOCK_EARLIEST_MS, LEASE_MAX_MS};
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::value::grants::OwnedGrant;

impl Keyspace {
    /// Remembers when a lease ends, whether this server granted it or another one.
    #[inline]
    pub(in crate::keyspace) fn note_lease(&mut self, until_ms: i64) {
        self.latest_lease_ms = self.latest_lease_ms.max(until_ms);
    }

    /// Whether any lease may end later than a lease granted at `now_ms` can.
    #[inline]
    pub fn may_have_long_leases(&self, now_ms: i64) -> bool {
        self.latest_lease_ms > now_ms.saturating_add(LEASE_MAX_MS) && now_ms >= CLOCK_EARLIEST_MS
    }

    /// Cuts leases that end later than any lease granted now could. Records the cuts as changes of a unit. Returns how
    /// many there were.
    pub fn cut_long_leases(&mut self) -> usize {
        if !self.may_have_long_leases(self.now_ms()) {
            return 0;
        }
        let latest_ms = self.now_ms().saturating_add(LEASE_MAX_MS);
        let mut cut = 0;
        for db in 0..self.databases() {
            let slots: Vec<Slot> = self.dbs[db as usize].slots().collect();
            cut += slots.into_iter().map(|slot| self.cut_leases_at(db, slot, latest_ms)).sum::<usize>();
        }
        self.latest_lease_ms = latest_ms;
        cut
    }

    fn cut_leases_at(&mut self, db: DbIndex, slot: Slot, latest_ms: i64) -> usize {
        let ValueRef::Grants(grants) = self.value(db, slot) else { return 0 };
        if grants.last_end_ms().is_none_or(|until_ms| until_ms <= latest_ms) {
            return 0;
        }
        let is_long = |until_ms| until_ms > latest_ms;
        let long: Vec<_> = grants.from(0).filter(|grant| is_long(grant.until_ms)).map(OwnedGrant::from).collect();
        for grant in &long {
            let grant = grant.as_grant();
            let was_cut = self.grant_set(db, slot, grant.renewed(grant.holder, latest_ms, grant.note));
            debug_assert_eq!(was_cut, Ok(true), "the grant keeps its place");
        }
        long.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::replayed::keyspace;
    use super::super::tests::replays;
    use super::*;
    use crate::value::grants::{Grant, Kind};

    const NOW_MS: i64 = CLOCK_EARLIEST_MS + 1_000_000;
    const LATEST_MS: i64 = NOW_MS + LEASE_MAX_MS;

    fn acquire(ks: &mut Keyspace, key: &[u8], holder: &[u8], until_ms: i64) {
        let slot = ks.find(0, key).unwrap_or_else(|| ks.grants_create(0, key, Kind::Gate, 100, false));
        let (token, since_ms) = (ks.next_token().expect("few were given out"), ks.now_ms());
        let grant = Grant { holder, token, units: 1, since_ms, until_ms, entered: 1, shared: false, note: b"n" };
        assert_eq!(ks.grant_set(0, slot, grant), Ok(true));
    }

    fn ends(ks: &mut Keyspace, key: &[u8]) -> Vec<i64> {
        let slot = ks.find(0, key).expect("it has a holder");
        ks.grants(0, slot).expect("a gate").from(0).map(|grant| grant.until_ms).collect()
    }

    #[test]
    fn only_leases_beyond_the_maximum_are_cut() {
        replays(|ks| {
            acquire(ks, b"gate", b"a", NOW_MS + 5);
            acquire(ks, b"gate", b"b", LATEST_MS);
            ks.set_now_ms(NOW_MS);
            assert!(!ks.may_have_long_leases(NOW_MS) && ks.cut_long_leases() == 0);
            acquire(ks, b"gate", b"c", LATEST_MS + 1);
            acquire(ks, b"lock", b"a", i64::MAX / 2);
            assert_eq!(ks.cut_long_leases(), 2);
            assert_eq!(ends(ks, b"gate"), [NOW_MS + 5, LATEST_MS, LATEST_MS]);
            assert_eq!(ends(ks, b"lock"), [LATEST_MS]);
            assert_eq!(ks.cut_long_leases(), 0);
            Ok(())
        });
    }

    #[test]
    fn a_clock_that_was_never_set_cuts_nothing() {
        let mut ks = keyspace(NOW_MS);
        acquire(&mut ks, b"lock", b"a", LATEST_MS);
        ks.set_now_ms(5_000);
        assert_eq!(ks.cut_long_leases(), 0);
        assert_eq!(ends(&mut ks, b"lock"), [LATEST_MS]);
    }
}
