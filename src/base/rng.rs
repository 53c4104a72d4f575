//! Random numbers that a seed can repeat.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2019): four
//! words of state, a period of 2^256 - 1, under a nanosecond for each number. It is not meant for secrets. SplitMix64
//! fills its state from the seed, as its authors advise, so that neighbouring seeds give unrelated streams.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A seedable generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Makes the generator whose whole stream is determined by `seed`.
    pub fn seeded(seed: u64) -> Rng {
        let mut mixed = seed;
        let mut word = || {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mixed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Rng { state: [word(), word(), word(), word()] }
    }

    /// Makes an unrepeatable generator, seeded from the operating system's randomness (by way of the standard library's
    /// hash keys).
    pub fn from_entropy() -> Rng {
        Rng::seeded(RandomState::new().hash_one(std::process::id()))
    }

    /// Returns the next number, uniform over all 64-bit values.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let out = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        out
    }

    /// Returns a number below `n`, or 0 if `n` is 0. It multiplies (Lemire, 2019) instead of dividing; the bias is
    /// under n / 2^64, far too small to observe.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number in [0, 1), from the upper 53 bits.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_reference_stream() {
        // From the authors' C program, state {1, 2, 3, 4}.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        for want in expected {
            assert_eq!(rng.next_u64(), want);
        }
    }

    #[test]
    fn seeds_repeat_and_differ() {
        let draw = |seed| {
            let mut rng = Rng::seeded(seed);
            [rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(Rng::from_entropy().next_u64(), Rng::from_entropy().next_u64());
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = Rng::seeded(1);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        assert!((0.0..1.0).contains(&rng.next_f64()));
    }
}
