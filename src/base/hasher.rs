//! The hash of keys, fields and members.
//!
//! It is AHash, with one secret for the whole process: a client that does not know the secret can't choose keys that
//! collide. The secret comes from the operating system's randomness (by way of the standard library's hash keys), or
//! from a seed, so that a test run can be repeated. Hashes must not leave the process, neither to disk nor to another
//! server.

use std::collections::hash_map;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use ahash::RandomState;

static STATE: OnceLock<RandomState> = OnceLock::new();

/// Returns the hash of `bytes`, all bits of which are usable. Hashes are comparable only within one process.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = STATE.get_or_init(random_state).build_hasher();
    // `Hash` would add a length, which keeps the parts of a tuple apart; there is only one part here.
    hasher.write(bytes);
    hasher.finish()
}

/// Derives the secret from `seed` instead. Returns false, and has no effect, if something was hashed before.
pub fn seed(seed: u64) -> bool {
    STATE.set(state_of(seed)).is_ok()
}

fn state_of(seed: u64) -> RandomState {
    RandomState::with_seeds(seed, !seed, seed.rotate_left(32), 0x5eed)
}

#[cold]
fn random_state() -> RandomState {
    if cfg!(test) {
        // A failing seed of a simulation must fail in another process, too. `SUITE_HASHES` chooses another secret.
        let seed = std::env::var("SUITE_HASHES").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        return state_of(seed);
    }
    let source = hash_map::RandomState::new();
    RandomState::with_seeds(source.hash_one(0), source.hash_one(1), source.hash_one(2), source.hash_one(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_zeros_count() {
        let zeros = [0u8; 64];
        let mut hashes: Vec<u64> = (0..=64).map(|n| hash_bytes(&zeros[..n])).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 65);
        assert!(!seed(1), "the secret is fixed by its first use");
    }

    /// The split table takes its segments from the bottom and its tags from just above; hashbrown takes its tags from
    /// the top.
    #[test]
    fn every_bit_is_used() {
        let n = 4096u32;
        let mut ones = [0u32; 64];
        for i in 0..n {
            let hash = hash_bytes(format!("user:{i}").as_bytes());
            (0..64).for_each(|bit| ones[bit] += (hash >> bit & 1) as u32);
        }
        // Expected are 2048, with a standard deviation of 32.
        assert!(ones.iter().all(|count| (1850..2250).contains(count)), "{ones:?}");
    }
}
