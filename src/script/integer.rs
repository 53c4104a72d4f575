//! Conversion of Lua's numbers to integers, as in C code compiled for x86: Redis' replies and libraries depend on it.

/// A Lua number as an integer, without its fraction. The least integer if 64 bits can't hold it, as on x86.
#[inline]
pub(super) fn truncate(number: f64) -> i64 {
    // NaN fails both tests.
    if (-INTEGER_END..INTEGER_END).contains(&number) { number as i64 } else { i64::MIN }
}

/// A Lua number as an unsigned integer, as C compilers for x86 convert it: a number too large for 64 bits becomes 0.
pub(super) fn truncate_unsigned(number: f64) -> u64 {
    if number >= INTEGER_END { truncate(number - INTEGER_END) as u64 ^ 1 << 63 } else { truncate(number) as u64 }
}

/// 2^63, the first double past the range of signed integers.
const INTEGER_END: f64 = 9_223_372_036_854_775_808.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lose_their_fraction_and_overflow_to_the_least_integer() {
        let cases =
            [(1.9, 1), (-1.9, -1), (-0.5, 0), (f64::NAN, i64::MIN), (f64::INFINITY, i64::MIN), (1e300, i64::MIN)];
        for (number, want) in cases {
            assert_eq!(truncate(number), want, "{number}");
        }
        assert_eq!(truncate(9_007_199_254_740_993.0), 9_007_199_254_740_992);
        let unsigned =
            [(1e19, 10_000_000_000_000_000_000), (1e21, 0), (f64::INFINITY, 0), (-1.9, u64::MAX), (f64::NAN, 1 << 63)];
        for (number, want) in unsigned {
            assert_eq!(truncate_unsigned(number), want, "{number}");
        }
    }
}
