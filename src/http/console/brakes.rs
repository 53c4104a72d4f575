//! Guesses of passwords, slowed down.
//!
//! After some sign-ins in a row that failed, an address must wait before it may try again, and twice as long after each
//! further failure. A sign-in counts as failed from its beginning until it succeeds, so many at once count, too.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::limits::{SIGN_IN_ADDRESSES_MAX, SIGN_IN_WAIT_MAX, SIGN_IN_WAIT_MIN, SIGN_INS_FREE};

/// See the file's header.
#[derive(Default)]
pub(super) struct Brakes(Mutex<HashMap<IpAddr, Failures>>);

struct Failures {
    count: u32,
    free_at: Instant,
}

impl Brakes {
    /// Begins a sign-in from an address at this time. Returns how long it must wait instead, if it must.
    pub(super) fn begin(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut failures = self.failures();
        if failures.len() >= SIGN_IN_ADDRESSES_MAX && !failures.contains_key(&address) {
            let first = failures.iter().min_by_key(|(_, failures)| failures.free_at).map(|(address, _)| *address);
            first.map(|address| failures.remove(&address));
        }
        let known = failures.entry(address).or_insert(Failures { count: 0, free_at: now });
        if known.free_at > now {
            return Err(known.free_at - now);
        }
        known.count = known.count.saturating_add(1);
        if let Some(beyond) = known.count.checked_sub(SIGN_INS_FREE) {
            known.free_at = now + SIGN_IN_WAIT_MIN.saturating_mul(1 << beyond.min(16)).min(SIGN_IN_WAIT_MAX);
        }
        Ok(())
    }

    /// Notes that the sign-in from this address was right.
    pub(super) fn succeeded(&self, address: IpAddr) {
        self.failures().remove(&address);
    }

    /// Takes back that a sign-in began: whether its password is right was not found out.
    pub(super) fn undecided(&self, address: IpAddr) {
        if let Some(known) = self.failures().get_mut(&address) {
            known.count = known.count.saturating_sub(1);
        }
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<IpAddr, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn guesses_take_longer_and_longer() {
        let (brakes, guesser, other) = (Brakes::default(), IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut now = Instant::now();
        for _ in 0..SIGN_INS_FREE {
            assert_eq!(brakes.begin(guesser, now), Ok(()));
        }
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = brakes.begin(guesser, now).expect_err("it has to wait");
            waits.push(wait.as_secs());
            assert_eq!(brakes.begin(other, now), Ok(()), "others do not wait");
            brakes.succeeded(other);
            now += wait;
            assert_eq!(brakes.begin(guesser, now), Ok(()));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        brakes.succeeded(guesser);
        assert_eq!(brakes.begin(guesser, now), Ok(()));
    }

    #[test]
    fn the_memory_for_addresses_is_bounded() {
        let (brakes, now) = (Brakes::default(), Instant::now());
        for number in 0..2 * SIGN_IN_ADDRESSES_MAX as u32 {
            assert_eq!(brakes.begin(IpAddr::from(Ipv4Addr::from_bits(number)), now), Ok(()));
        }
        assert_eq!(brakes.failures().len(), SIGN_IN_ADDRESSES_MAX);
    }
}
