//! The x87 80-bit long double, as far as INCRBYFLOAT and HINCRBYFLOAT need it.
//!
//! Redis adds in C's `long double`, so that 0.1 + 0.2 is "0.3" and not "0.30000000000000004". It has a mantissa of 64
//! bits and exponents to 2^16383, and is printed with 17 decimals, then stripped of trailing zeros. Rust can't reach
//! the hardware type, so integers do the work here: parse exactly, round once to nearest even, add exactly, round once,
//! print exactly. Numbers of up to 19 digits never leave 128-bit integers; only longer ones need big integers.
//!
//! Layout: a finite number is `mantissa * 2^exponent`. Its mantissa has the top bit set unless the exponent is the
//! smallest (subnormal numbers and zero).

use std::cmp::Ordering;

use super::num::{Binary, Kind, scan_exponent, scan_number};
use num_bigint::BigUint;

/// A long double that is not NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    Finite { mantissa: u64, exponent: i32 },
    Infinite,
}

const MIN_EXPONENT: i32 = -16_445;
const MAX_EXPONENT: i32 = 16_320;
const BITS: u32 = 64;

/// Longest text that is accepted as a number, in bytes (Redis' buffer less the final NUL).
const MAX_TEXT: usize = 5 * 1024 - 1;

impl LongDouble {
    /// Parses a number that Redis accepts from a client or a stored string. The grammar is that of C's `strtold` over
    /// all of `text`, with no leading space, no NaN, and neither overflow nor underflow to zero.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let scanned = scan_number(text)?;
        if scanned.used != text.len() {
            return None;
        }
        let magnitude = match scanned.kind {
            Kind::Nan => return None,
            Kind::Infinity => Magnitude::Infinite,
            Kind::Hex(number) => in_range(round(number), number.mantissa != 0)?,
            Kind::Decimal { text, nonzero: false } => {
                debug_assert!(!text.is_empty());
                Magnitude::ZERO
            }
            Kind::Decimal { text, nonzero: true } => in_range(read_decimal(text)?, true)?,
        };
        Some(LongDouble { negative: scanned.negative, magnitude })
    }

    /// Zero.
    pub const ZERO: LongDouble = LongDouble { negative: false, magnitude: Magnitude::ZERO };

    /// The largest finite number.
    pub const MAX: LongDouble =
        LongDouble { negative: false, magnitude: Magnitude::Finite { mantissa: u64::MAX, exponent: MAX_EXPONENT } };

    /// Returns the number with the other sign.
    pub fn negated(self) -> LongDouble {
        LongDouble { negative: !self.negative, ..self }
    }

    /// Whether this is a finite number.
    pub fn is_finite(self) -> bool {
        self.magnitude != Magnitude::Infinite
    }

    /// Returns the sum, rounded to nearest even; `None` if it is infinite or not a number.
    pub fn checked_add(self, other: LongDouble) -> Option<LongDouble> {
        let (
            Magnitude::Finite { mantissa: a, exponent: a_exponent },
            Magnitude::Finite { mantissa: b, exponent: b_exponent },
        ) = (self.magnitude, other.magnitude)
        else {
            return None;
        };
        if (a_exponent, a) < (b_exponent, b) {
            return other.checked_add(self);
        }
        // Leaves room of 63 bits below the larger number: bits shifted out of the smaller one then only mean "inexact".
        let large = u128::from(a) << 63;
        let small = u128::from(b) << 63;
        let shift = a_exponent.abs_diff(b_exponent).min(127);
        let (aligned, lost) = (small >> shift, small & ((1u128 << shift) - 1) != 0);
        let mantissa =
            if self.negative == other.negative { large + aligned } else { large - aligned - u128::from(lost) };
        let sum = round(Binary { mantissa, inexact: lost, exponent: i64::from(a_exponent) - 63 });
        let negative = if sum == Magnitude::ZERO { self.negative && other.negative } else { self.negative };
        (sum != Magnitude::Infinite).then_some(LongDouble { negative, magnitude: sum })
    }

    /// Appends the number with 17 decimals, less trailing zeros: never an exponent, and `0` for a number too small to
    /// show.
    pub fn write_human(self, out: &mut Vec<u8>) {
        let Magnitude::Finite { mantissa, exponent } = self.magnitude else {
            return out.extend_from_slice(if self.negative { b"-inf" } else { b"inf" });
        };
        let mut buffer = itoa::Buffer::new();
        if exponent >= 0 {
            out.extend_from_slice(if self.negative { b"-" } else { b"" });
            if exponent <= 64 {
                out.extend_from_slice(buffer.format(u128::from(mantissa) << exponent).as_bytes());
            } else {
                out.extend_from_slice((BigUint::from(mantissa) << exponent).to_string().as_bytes());
            }
            return;
        }
        let scaled = times_ten_to_17(mantissa, exponent.unsigned_abs());
        let (whole, fraction) = (scaled / TEN_TO_17, (scaled % TEN_TO_17) as u64);
        out.extend_from_slice(if self.negative && scaled != 0 { b"-" } else { b"" });
        out.extend_from_slice(buffer.format(whole).as_bytes());
        if fraction != 0 {
            let text = buffer.format(fraction);
            out.push(b'.');
            out.extend(std::iter::repeat_n(b'0', 17usize.saturating_sub(text.len())));
            out.extend_from_slice(text.trim_end_matches('0').as_bytes());
        }
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &LongDouble) -> Option<Ordering> {
        // The exponent decides first: a smaller exponent can't belong to a larger number, whatever the mantissa.
        let rank = |number: &LongDouble| match number.magnitude {
            Magnitude::Finite { mantissa, exponent } => (false, exponent, mantissa),
            Magnitude::Infinite => (true, 0, 0),
        };
        let zeroes = self.magnitude == Magnitude::ZERO && other.magnitude == Magnitude::ZERO;
        Some(match (self.negative, other.negative) {
            _ if zeroes => Ordering::Equal,
            (false, false) => rank(self).cmp(&rank(other)),
            (true, true) => rank(other).cmp(&rank(self)),
            (negative, _) => {
                if negative {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
        })
    }
}

impl Magnitude {
    const ZERO: Magnitude = Magnitude::Finite { mantissa: 0, exponent: MIN_EXPONENT };
}

const TEN_TO_17: u128 = 100_000_000_000_000_000;

/// Returns `mantissa / 2^shift * 10^17` for `shift > 0`, rounded to nearest even. The product is below 2^121.
fn times_ten_to_17(mantissa: u64, shift: u32) -> u128 {
    if shift > 122 {
        return 0;
    }
    let product = u128::from(mantissa) * TEN_TO_17;
    let half = 1u128 << (shift - 1);
    let (kept, rest) = (product >> shift, product & (half | (half - 1)));
    kept + u128::from(rest > half || (rest == half && kept & 1 == 1))
}

/// Returns the number, or `None` if it overflows, or is not zero and becomes zero.
fn in_range(magnitude: Magnitude, nonzero: bool) -> Option<Magnitude> {
    match magnitude {
        Magnitude::Infinite => None,
        Magnitude::ZERO if nonzero => None,
        magnitude => Some(magnitude),
    }
}

/// Rounds to the nearest magnitude. An inexact number must have more than 64 bits.
fn round(number: Binary) -> Magnitude {
    let (mantissa, exponent) = number.round(BITS, i64::from(MIN_EXPONENT));
    if mantissa == 0 {
        return Magnitude::ZERO;
    }
    let (mantissa, exponent) = match u64::try_from(mantissa) {
        Ok(mantissa) => {
            let room = exponent.saturating_sub(i64::from(MIN_EXPONENT));
            let shift = i64::from(mantissa.leading_zeros()).min(room);
            (mantissa << shift, exponent - shift)
        }
        // Rounding up carried into a 65th bit.
        Err(_) => (1 << 63, exponent.saturating_add(1)),
    };
    if exponent > i64::from(MAX_EXPONENT) {
        return Magnitude::Infinite;
    }
    Magnitude::Finite { mantissa, exponent: exponent as i32 }
}

/// Parses digits with an optional point and exponent, at least one digit being other than 0.
fn read_decimal(text: &[u8]) -> Option<Magnitude> {
    let body_len = text.iter().position(|&byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
    let (body, exponent) = text.split_at(body_len);
    let exponent = scan_exponent(exponent, b'e').map_or(0, |(exponent, _)| exponent);
    let is_nonzero_digit = |byte: &u8| matches!(byte, b'1'..=b'9');
    let first = body.iter().position(is_nonzero_digit)?;
    let last = body.iter().rposition(is_nonzero_digit)?;
    let point = body.iter().position(|&byte| byte == b'.').unwrap_or(body.len());
    // The power of ten of the last significant digit.
    let below = if last < point { point as i64 - 1 - last as i64 } else { point as i64 - last as i64 };
    let exponent = exponent.saturating_add(below);
    let digits = body[first..=last].iter().filter(|&&byte| byte != b'.').map(|byte| byte - b'0');
    let count = (last - first + 1 - usize::from((first..last).contains(&point))) as i64;

    let size = exponent.saturating_add(count);
    if size > 4_940 {
        Some(Magnitude::Infinite)
    } else if size < -4_970 {
        Some(Magnitude::ZERO)
    } else if count <= 19 && (-27..=27).contains(&exponent) {
        let mantissa = digits.fold(0u64, |value, digit| value * 10 + u64::from(digit));
        Some(round(scale_small(mantissa, exponent as i32)))
    } else {
        let digits: Vec<u8> = digits.collect();
        Some(round(scale_big(BigUint::from_radix_be(&digits, 10)?, exponent as i32)))
    }
}

/// Returns `mantissa * 10^exponent` for exponents from -27 to 27, whose powers of five fit 63 bits; `mantissa` is not
/// 0.
fn scale_small(mantissa: u64, exponent: i32) -> Binary {
    let five = u128::from(5u64.pow(exponent.unsigned_abs()));
    let mantissa = u128::from(mantissa);
    if exponent >= 0 {
        return Binary { mantissa: mantissa * five, inexact: false, exponent: i64::from(exponent) };
    }
    // Dividing 128 bits by at most 63 gives a quotient of at least 65 bits, enough to round to 64.
    let shift = mantissa.leading_zeros();
    let dividend = mantissa << shift;
    Binary {
        mantissa: dividend / five,
        inexact: dividend % five != 0,
        exponent: i64::from(exponent) - i64::from(shift),
    }
}

/// Returns `digits * 10^exponent`, cut to 128 bits.
fn scale_big(digits: BigUint, exponent: i32) -> Binary {
    let five = BigUint::from(5u32).pow(exponent.unsigned_abs());
    if exponent >= 0 {
        return cut(digits * five, false, i64::from(exponent));
    }
    let shift = (five.bits() + 67).saturating_sub(digits.bits());
    let dividend = digits << shift;
    let quotient = &dividend / &five;
    let inexact = &quotient * &five != dividend;
    cut(quotient, inexact, i64::from(exponent) - shift as i64)
}

fn cut(number: BigUint, inexact: bool, exponent: i64) -> Binary {
    let drop = number.bits().saturating_sub(128);
    let inexact = inexact || number.trailing_zeros().is_some_and(|zeros| zeros < drop);
    let mantissa = (number >> drop).iter_u64_digits().rev().fold(0, |value, word| value << 64 | u128::from(word));
    Binary { mantissa, inexact, exponent: exponent + drop as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn human(number: LongDouble) -> String {
        let mut out = Vec::new();
        number.write_human(&mut out);
        String::from_utf8(out).expect("digits are ASCII")
    }

    fn add(a: &str, b: &str) -> Option<String> {
        LongDouble::parse(a.as_bytes())?.checked_add(LongDouble::parse(b.as_bytes())?).map(human)
    }

    #[test]
    fn sums_are_printed_as_by_redis() {
        for (a, b, sum) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3.0", "1.1", "4.1"),
            ("0", "0x10", "16"),
            ("1", "-1.5", "-0.5"),
            ("0", "-0", "0"),
            ("0", "-1e-400", "0"),
            ("0", "1e-17", "0.00000000000000001"),
            ("0", "5e-18", "0"),
            ("1e19", "0.1", "10000000000000000000"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("0", "1e22", "10000000000000000000000"),
            ("0", "123456789012345678901234567890", "123456789012345678899921813504"),
        ] {
            assert_eq!(add(a, b).as_deref(), Some(sum), "{a} + {b}");
        }
    }

    #[test]
    fn other_texts_are_no_numbers() {
        for text in ["", " 1", "1 ", "nan", ".", "1e", "0x", "1e5000", "1e-5000", "0x1p20000"] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(LongDouble::parse(&[b'1'; MAX_TEXT + 1]), None);
        assert!(LongDouble::parse(b"-Infinity").is_some_and(|number| !number.is_finite()));
        assert_eq!(add("inf", "1"), None);
        assert_eq!(add("1.1e4932", "1.1e4932"), None);
    }

    proptest! {
        #[test]
        fn the_short_and_the_long_way_agree(mantissa in 1u64.., exponent in -27..=27i32) {
            let small = round(scale_small(mantissa, exponent));
            prop_assert_eq!(small, round(scale_big(BigUint::from(mantissa), exponent)));
        }

        #[test]
        fn integers_add_exactly(a in -1i64 << 62..1 << 62, b in -1i64 << 62..1 << 62) {
            prop_assert_eq!(add(&a.to_string(), &b.to_string()), Some((a + b).to_string()));
        }

        #[test]
        fn never_panics(text in "[-+]?(0x)?[0-9a-f.]{0,40}([ep][-+]?[0-9]{0,5})?", other: f64) {
            let other = format!("{other:e}");
            if let (Some(a), Some(b)) = (LongDouble::parse(text.as_bytes()), LongDouble::parse(other.as_bytes())) {
                human(a);
                a.checked_add(b).map(human);
            }
        }
    }
}
