//! Guesses of passwords, slowed down.
//!
//! After some sign-ins in a row that failed, an address must wait before it may try the same user again, and twice as
//! long after each further failure. A sign-in counts as failed from its beginning until it succeeds, so many at once
//! count, too. Only the right password of this user clears the count: who has a password of one user must not guess
//! those of others the faster for it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::super::limits::{SIGN_IN_PAIRS_MAX, SIGN_IN_WAIT_MAX, SIGN_IN_WAIT_MIN, SIGN_INS_FREE};

/// See the file's header.
#[derive(Default)]
pub(super) struct Brakes(Mutex<HashMap<Pair, Failures>>);

/// Who guesses the password of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    /// An address of IPv4, or a network of IPv6: a host has 2^64 addresses there.
    network: IpAddr,
    /// A hash of the user's name, which may be long.
    user: [u8; 32],
}

impl Pair {
    pub(super) fn of(address: IpAddr, user: &[u8]) -> Pair {
        let network = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::from(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        };
        Pair { network, user: Sha256::digest(user).into() }
    }
}

struct Failures {
    count: u32,
    free_at: Instant,
}

impl Brakes {
    /// Begins a sign-in at this time. Returns how long it must wait instead, if it must.
    pub(super) fn begin(&self, pair: Pair, now: Instant) -> Result<(), Duration> {
        let mut failures = self.failures();
        if failures.len() >= SIGN_IN_PAIRS_MAX && !failures.contains_key(&pair) {
            // Names that are made up must not push out the one that is guessed at.
            let least = failures.iter().min_by_key(|(_, failures)| (failures.count, failures.free_at));
            least.map(|(pair, _)| *pair).map(|pair| failures.remove(&pair));
        }
        let known = failures.entry(pair).or_insert(Failures { count: 0, free_at: now });
        if known.free_at > now {
            return Err(known.free_at - now);
        }
        known.count = known.count.saturating_add(1);
        if let Some(beyond) = known.count.checked_sub(SIGN_INS_FREE) {
            known.free_at = now + SIGN_IN_WAIT_MIN.saturating_mul(1 << beyond.min(16)).min(SIGN_IN_WAIT_MAX);
        }
        Ok(())
    }

    /// Notes that the password was right.
    pub(super) fn succeeded(&self, pair: Pair) {
        self.failures().remove(&pair);
    }

    /// Takes back that a sign-in began: whether its password is right was not found out.
    pub(super) fn undecided(&self, pair: Pair) {
        if let Some(known) = self.failures().get_mut(&pair) {
            known.count = known.count.saturating_sub(1);
        }
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Pair, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    #[test]
    fn guesses_take_longer_and_longer() {
        let (brakes, pair) = (Brakes::default(), Pair::of(HERE, b"ann"));
        let others = [Pair::of(IpAddr::from([10, 0, 0, 2]), b"ann"), Pair::of(HERE, b"bob")];
        let mut now = Instant::now();
        for _ in 0..SIGN_INS_FREE {
            assert_eq!(brakes.begin(pair, now), Ok(()));
        }
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = brakes.begin(pair, now).expect_err("it has to wait");
            waits.push(wait.as_secs());
            for other in others {
                assert_eq!(brakes.begin(other, now), Ok(()), "others do not wait");
                brakes.succeeded(other);
            }
            now += wait;
            assert_eq!(brakes.begin(pair, now), Ok(()));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        brakes.succeeded(pair);
        assert_eq!(brakes.begin(pair, now), Ok(()));
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let pair = |address: &str| Pair::of(address.parse().expect("an address"), b"ann");
        assert_eq!(pair("2001:db8::1"), pair("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(pair("2001:db8::1"), pair("2001:db8:0:1::1"));
        assert_eq!(pair("::ffff:10.0.0.1"), pair("10.0.0.1"));
        assert_ne!(pair("10.0.0.2"), pair("10.0.0.1"));
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_those_who_failed_most() {
        let (brakes, pair, now) = (Brakes::default(), Pair::of(HERE, b"ann"), Instant::now());
        for _ in 0..SIGN_INS_FREE {
            assert_eq!(brakes.begin(pair, now), Ok(()));
        }
        for number in 0..2 * SIGN_IN_PAIRS_MAX as u32 {
            assert_eq!(brakes.begin(Pair::of(HERE, &number.to_be_bytes()), now), Ok(()));
        }
        assert_eq!(brakes.failures().len(), SIGN_IN_PAIRS_MAX);
        assert!(brakes.begin(pair, now).is_err(), "it still has to wait");
    }
}
