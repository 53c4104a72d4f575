//! Guesses of passwords, slowed down.
//!
//! After some sign-ins in a row that failed, an address must wait before it may try the same user again, and twice as
//! long after each further failure. A sign-in counts as failed from its beginning until it succeeds, so many at once
//! count, too. Only the right password of this user clears the count: who has a password of one user must not guess
//! those of others the faster for it.
//!
//! Failures are forgotten some time after the last wait. If there is no room for another pair, the one with the fewest
//! is forgotten, and the newcomer begins with its count (the space-saving counter of Metwally, Agrawal and El Abbadi,
//! 2005): a user who was pushed out by names that are made up comes back with no fewer failures than before.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::super::limits::{SIGN_IN_PAIRS_MAX, SIGN_IN_REMEMBERED, SIGN_IN_WAIT_MAX, SIGN_IN_WAIT_MIN, SIGN_INS_FREE};
use super::cookie::Hash;

/// See the file's header.
#[derive(Default)]
pub(super) struct Brakes(Mutex<HashMap<Pair, Failures>>);

/// Who guesses the password of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    source: Source,
    /// A hash of the user's name, which may be long.
    user: Hash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// An address of IPv4, or a network of IPv6: a host has 2^64 addresses there.
    Network(IpAddr),
    /// A browser that is [known](super::browsers).
    Browser(Hash),
}

impl Pair {
    pub(super) fn of(address: IpAddr, user: &[u8]) -> Pair {
        let network = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::from(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        };
        Pair { source: Source::Network(network), user: Sha256::digest(user).into() }
    }

    pub(super) fn of_browser(browser: Hash, user: &[u8]) -> Pair {
        Pair { source: Source::Browser(browser), user: Sha256::digest(user).into() }
    }
}

struct Failures {
    count: u32,
    /// When the next sign-in may begin; at least the time of the last one.
    free_at: Instant,
}

impl Failures {
    /// How many are remembered at this time.
    fn count_at(&self, now: Instant) -> u32 {
        if now < self.free_at + SIGN_IN_REMEMBERED { self.count } else { 0 }
    }
}

/// A sign-in that has begun.
#[derive(Debug)]
pub(super) struct Guess {
    pair: Pair,
    /// When the next one may begin, as it was before and as it is now.
    free_before: Instant,
    free_at: Instant,
}

impl Brakes {
    /// Begins a sign-in at this time. Returns how long it must wait instead, if it must.
    pub(super) fn begin(&self, pair: Pair, now: Instant) -> Result<Guess, Duration> {
        let mut failures = self.failures();
        let mut count = 0;
        if failures.len() >= SIGN_IN_PAIRS_MAX && !failures.contains_key(&pair) {
            let least = failures.iter().min_by_key(|(_, failures)| (failures.count_at(now), failures.free_at));
            if let Some(least) = least.map(|(pair, _)| *pair).and_then(|pair| failures.remove(&pair)) {
                count = least.count_at(now);
            }
        }
        let known = failures.entry(pair).or_insert(Failures { count, free_at: now });
        if known.free_at > now {
            return Err(known.free_at - now);
        }
        let free_before = known.free_at;
        known.count = known.count_at(now).saturating_add(1);
        let wait = known.count.checked_sub(SIGN_INS_FREE).map(|beyond| {
            let doubled = SIGN_IN_WAIT_MIN.saturating_mul(1 << beyond.min(16));
            doubled.min(SIGN_IN_WAIT_MAX)
        });
        known.free_at = now + wait.unwrap_or_default();
        Ok(Guess { pair, free_before, free_at: known.free_at })
    }

    /// Notes that the password was right.
    pub(super) fn succeeded(&self, guess: &Guess) {
        self.failures().remove(&guess.pair);
    }

    /// Takes back that a sign-in began: whether its password is right was not found out.
    pub(super) fn undecided(&self, guess: &Guess) {
        let mut failures = self.failures();
        let Some(known) = failures.get_mut(&guess.pair) else { return };
        known.count = known.count.saturating_sub(1);
        // One that began later has made its own wait.
        if known.free_at == guess.free_at {
            known.free_at = guess.free_before;
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

    /// Begins a sign-in that need not wait.
    fn fails(brakes: &Brakes, pair: Pair, now: Instant) -> Guess {
        brakes.begin(pair, now).expect("it need not wait")
    }

    fn fail(brakes: &Brakes, pair: Pair, times: u32, now: Instant) {
        (0..times).for_each(|_| _ = fails(brakes, pair, now));
    }

    fn wait(brakes: &Brakes, pair: Pair, now: Instant) -> Duration {
        brakes.begin(pair, now).expect_err("it has to wait")
    }

    #[test]
    fn guesses_take_longer_and_longer() {
        let (brakes, pair) = (Brakes::default(), Pair::of(HERE, b"ann"));
        let others =
            [Pair::of(IpAddr::from([10, 0, 0, 2]), b"ann"), Pair::of(HERE, b"bob"), Pair::of_browser([7; 32], b"ann")];
        let mut now = Instant::now();
        fail(&brakes, pair, SIGN_INS_FREE, now);
        let (mut waits, mut last) = (Vec::new(), None);
        for _ in 0..9 {
            let wait = wait(&brakes, pair, now);
            waits.push(wait.as_secs());
            for other in others {
                brakes.succeeded(&fails(&brakes, other, now));
            }
            now += wait;
            last = Some(fails(&brakes, pair, now));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        brakes.succeeded(&last.expect("some have failed"));
        fails(&brakes, pair, now);
    }

    #[test]
    fn failures_are_forgotten_after_a_while() {
        let (brakes, pair, now) = (Brakes::default(), Pair::of(HERE, b"ann"), Instant::now());
        fail(&brakes, pair, SIGN_INS_FREE, now);
        let later = now + SIGN_IN_WAIT_MIN + SIGN_IN_REMEMBERED;
        fail(&brakes, pair, SIGN_INS_FREE, later);
        wait(&brakes, pair, later);
    }

    #[test]
    fn what_was_not_decided_costs_nothing() {
        let (brakes, pair, now) = (Brakes::default(), Pair::of(HERE, b"ann"), Instant::now());
        fail(&brakes, pair, SIGN_INS_FREE - 1, now);
        for _ in 0..3 {
            brakes.undecided(&fails(&brakes, pair, now));
        }
        fails(&brakes, pair, now);
        assert_eq!(wait(&brakes, pair, now), SIGN_IN_WAIT_MIN);
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let pair = |address: &str| Pair::of(address.parse().expect("an address"), b"ann");
        assert_eq!(pair("2001:db8::1"), pair("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(pair("2001:db8::1"), pair("2001:db8:0:1::1"));
        assert_eq!(pair("::ffff:10.0.0.1"), pair("10.0.0.1"));
        assert_ne!(pair("10.0.0.2"), pair("10.0.0.1"));
    }

    /// Fills the memory with users who are made up, each of whom has to wait.
    fn filled(now: Instant) -> Brakes {
        let brakes = Brakes::default();
        for number in 0..SIGN_IN_PAIRS_MAX as u32 {
            let pair = Pair::of(HERE, &number.to_be_bytes());
            fail(&brakes, pair, SIGN_INS_FREE, now);
            fails(&brakes, pair, now + SIGN_IN_WAIT_MIN);
        }
        brakes
    }

    #[test]
    fn names_that_are_made_up_push_nobody_out_for_whom_guesses_begin_anew() {
        let began = Instant::now();
        let brakes = filled(began);
        let (mut now, mut tried) = (began + Duration::from_secs(60), 0);
        for number in 0..100_u32 {
            tried += (0..5).filter(|_| brakes.begin(Pair::of(HERE, b"bob"), now).is_ok()).count();
            fails(&brakes, Pair::of(HERE, format!("new-{number}").as_bytes()), now);
            now += Duration::from_millis(10);
        }
        assert_eq!(tried, 1, "within the second he has to wait after the first");
        assert_eq!(brakes.failures().len(), SIGN_IN_PAIRS_MAX);
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let began = Instant::now();
        let brakes = filled(began);
        let later = began + SIGN_IN_WAIT_MAX + SIGN_IN_REMEMBERED;
        let bob = Pair::of(HERE, b"bob");
        fail(&brakes, bob, SIGN_INS_FREE, later);
        assert_eq!(wait(&brakes, bob, later), SIGN_IN_WAIT_MIN, "he began with none");
    }
}
