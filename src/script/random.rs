//! The generator behind `math.random`: the 48-bit linear congruential generator of `lrand48`. Redis has its own copy,
//! so that a seed gives equal numbers on every machine.
//!
//! Source: POSIX, `drand48`: X(n+1) = (0x5DEECE66D X(n) + 0xB) mod 2^48; a seed fills the upper 32 bits above 0x330E.

/// The divisor with which Redis scales, exclusive.
const SCALE: u32 = i32::MAX as u32;

/// The state: 48 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lrand48(u64);

impl Lrand48 {
    pub(super) fn seeded(seed: u32) -> Lrand48 {
        Lrand48((u64::from(seed) << 16) | 0x330E)
    }

    /// A number in [0, 1).
    pub(super) fn next_unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
        let bits = (self.0 >> 17) as u32;
        f64::from(bits % SCALE) / f64::from(SCALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_numbers_of_redis() {
        let mut random = Lrand48::seeded(5);
        assert_eq!(format!("{:.14}", random.next_unit()), "0.52483957937213");
    }
}
