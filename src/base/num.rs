//! Numbers in text: the exact grammar and the exact layout that Redis uses.
//!
//! Integers are canonical: [`parse_i64`] accepts exactly the output of [`format_i64`], so a string that parses can be
//! stored as a number and returned byte for byte. Doubles are read as C's `strtod` reads them (decimal, hexadecimal,
//! `inf`). They are written with the fewest digits that read back as the same double, in Redis' layout since 7.2: plain
//! where that is short, otherwise `1.5e+21` (no padding of the exponent). [`format_g`] is C's `%.{p}g`, in which Lua
//! prints numbers.

use std::io::Write as _;

/// Parses an integer in canonical form: no sign but `-`, no leading zero, no space, not `-0`.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let magnitude = parse_u64(digits)?;
    if negative {
        match magnitude {
            0 => None,
            magnitude => 0i64.checked_sub_unsigned(magnitude),
        }
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Parses an unsigned integer in canonical form: no sign, no leading zero, no space.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    let first = digit(*text.first()?)?;
    if first == 0 {
        return (text.len() == 1).then_some(0);
    }
    if text.len() > 20 {
        return None;
    }
    let (safe, last) = text.split_at(text.len().min(19));
    // 19 digits can't overflow 64 bits; only the 20th needs care.
    let mut value = 0;
    for &byte in safe {
        value = value * 10 + digit(byte)?;
    }
    for &byte in last {
        value = value.checked_mul(10)?.checked_add(digit(byte)?)?;
    }
    Some(value)
}

/// Appends `value` in decimal.
#[inline]
pub fn format_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Parses a double that Redis accepts from a client: all of `text`, with no leading space, no NaN, and neither overflow
/// nor underflow to zero. `inf` and `infinity` are accepted in any case and with a sign.
#[inline]
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    if let Some(small) = parse_small_integer(text) {
        return Some(small);
    }
    if text.first().is_none_or(|&byte| is_space(byte)) {
        return None;
    }
    let read = strtod(text);
    (read.used == text.len() && !read.out_of_range && !read.value.is_nan()).then_some(read.value)
}

/// Result of [`strtod`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadDouble {
    /// The number; 0 if there is none.
    pub value: f64,
    /// Length of the number in bytes, leading spaces included; 0 if there is none.
    pub used: usize,
    /// Whether the number is too large (the value is then infinite) or so small that it became 0.
    pub out_of_range: bool,
}

/// Parses the longest number at the start of `text`, as C's `strtod` in the C locale: leading spaces, a sign, then
/// decimal or hexadecimal (`0x1.8p3`) digits, `inf`, `infinity`, `nan` or `nan(...)`.
pub fn strtod(text: &[u8]) -> ReadDouble {
    let spaces = text.iter().take_while(|&&byte| is_space(byte)).count();
    let Some(scanned) = scan_number(&text[spaces..]) else {
        return ReadDouble { value: 0.0, used: 0, out_of_range: false };
    };
    let (magnitude, out_of_range) = match scanned.kind {
        Kind::Infinity => (f64::INFINITY, false),
        Kind::Nan => (f64::NAN, false),
        Kind::Decimal { text, nonzero } => {
            // Rust's parser, which rounds correctly like that of glibc, accepts everything that the scanner lets
            // through.
            let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
            (value, value.is_infinite() || (value == 0.0 && nonzero))
        }
        Kind::Hex(number) => {
            let value = number.to_f64();
            (value, value.is_infinite() || (value == 0.0 && number.mantissa != 0))
        }
    };
    let value = if scanned.negative { -magnitude } else { magnitude };
    ReadDouble { value, used: spaces + scanned.used, out_of_range }
}

/// Does the same as [`strtod`] for bounds and weights, which Redis 8 reads with fast_float: leading spaces and
/// hexadecimal digits are not part of the number.
pub fn strtod_plain(text: &[u8]) -> ReadDouble {
    let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    match unsigned {
        [b'0', b'x' | b'X', ..] => {
            ReadDouble { value: 0.0, used: text.len() - unsigned.len() + 1, out_of_range: false }
        }
        [first, ..] if is_space(*first) => ReadDouble { value: 0.0, used: 0, out_of_range: false },
        _ => strtod(text),
    }
}

/// Appends `value` in the form in which Redis returns doubles: `3`, `0.1`, `1e+21`, `-0`, `inf`, `-inf`, `nan`.
pub fn format_f64(out: &mut Vec<u8>, value: f64) {
    // Up to 2^62, integers keep all their digits.
    const INTEGERS: f64 = (1u64 << 62) as f64;
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if value.abs() <= INTEGERS && value.trunc() == value {
        format_i64(out, value as i64);
    } else {
        if value < 0.0 {
            out.push(b'-');
        }
        lay_out_shortest(out, Digits::shortest(value.abs()));
    }
}

/// Appends `value` as C's `printf("%.17g")` does.
pub fn format_g17(out: &mut Vec<u8>, value: f64) {
    format_g(out, value, 17);
}

/// Appends `value` as C's `printf("%.{precision}g")` does; `precision` is at most 30, and 0 counts as 1.
pub fn format_g(out: &mut Vec<u8>, value: f64, precision: usize) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if value.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if value.is_infinite() {
        return out.extend_from_slice(b"inf");
    }
    let precision = precision.clamp(1, MAX_DIGITS);
    let digits = Digits::rounded(value.abs(), precision);
    let shown = digits.without_trailing_zeros();
    if digits.exponent < -4 || digits.exponent >= precision as i32 {
        lay_out_scientific(out, shown, digits.exponent, 2);
    } else {
        lay_out_plain(out, shown, digits.exponent);
    }
}

const MAX_DIGITS: usize = 30;

/// The decimal digits of a finite, non-negative double: `d.ddd * 10^exponent`.
struct Digits {
    digits: [u8; MAX_DIGITS],
    len: usize,
    exponent: i32,
}

impl Digits {
    /// Returns the fewest digits that distinguish the value from all others.
    fn shortest(value: f64) -> Digits {
        // If two longer forms are equally near, Ryu takes the even one and the standard library the larger one. The
        // larger one is used.
        Digits::few(value).unwrap_or_else(|| Digits::written(format_args!("{value:e}")))
    }

    /// Returns the fewest digits if there are at most 15, where all algorithms agree.
    fn few(value: f64) -> Option<Digits> {
        let digits = Digits::read(ryu::Buffer::new().format_finite(value).as_bytes());
        let len = digits.without_trailing_zeros().len();
        (len <= f64::DIGITS as usize).then_some(Digits { len, ..digits })
    }

    /// Returns `precision` digits, correctly rounded.
    fn rounded(value: f64, precision: usize) -> Digits {
        // At most 15 digits of a normal double are its nearest number of that length, and of any greater length up to
        // 15.
        let few =
            if precision <= f64::DIGITS as usize && value >= f64::MIN_POSITIVE { Digits::few(value) } else { None };
        few.filter(|digits| digits.len <= precision)
            .unwrap_or_else(|| Digits::written(format_args!("{value:.*e}", precision - 1)))
    }

    /// Returns the digits that the standard library writes in scientific form.
    fn written(form: std::fmt::Arguments<'_>) -> Digits {
        let mut text = [0u8; MAX_DIGITS + 8];
        let mut rest = &mut text[..];
        rest.write_fmt(form).expect("at most MAX_DIGITS digits, a point and an exponent of 5 bytes");
        let left = rest.len();
        Digits::read(&text[..text.len() - left])
    }

    /// Extracts the digits from a form like `125`, `0.00125` or `1.25e-7`.
    fn read(form: &[u8]) -> Digits {
        let (mantissa, exponent) =
            form.iter().position(|&b| b == b'e').map_or((form, &b"0"[..]), |at| (&form[..at], &form[at + 1..]));
        let whole = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
        let mut read = Digits { digits: [0; MAX_DIGITS], len: 0, exponent: parse_i64(exponent).unwrap_or(0) as i32 };
        read.exponent += whole as i32 - 1;
        for &byte in mantissa.iter().filter(|&&byte| byte != b'.') {
            if read.len == 0 && byte == b'0' {
                // The zero stands before the first significant digit.
                read.exponent -= 1;
            } else if read.len < MAX_DIGITS {
                read.digits[read.len] = byte;
                read.len += 1;
            }
        }
        if read.len == 0 {
            return Digits { digits: [b'0'; MAX_DIGITS], len: 1, exponent: 0 };
        }
        read
    }

    fn all(&self) -> &[u8] {
        &self.digits[..self.len]
    }

    fn without_trailing_zeros(&self) -> &[u8] {
        let zeros = self.all().iter().rev().take_while(|&&byte| byte == b'0').count();
        &self.digits[..(self.len - zeros).max(1)]
    }
}

/// Makes Redis' choice between plain and scientific form. Integers with at most 7 zeros after the digits are plain, and
/// so are fractions of at most 6 decimals, or from 0.001 to below 10,000. `trailing` is the power of ten of the last
/// digit.
fn lay_out_shortest(out: &mut Vec<u8>, digits: Digits) {
    let shown = digits.all();
    let trailing = digits.exponent - shown.len() as i32 + 1;
    let short_integer = trailing >= 0 && digits.exponent.abs() < shown.len() as i32 + 7;
    let short_fraction = trailing < 0 && (trailing > -7 || digits.exponent.abs() < 4);
    if short_integer || short_fraction {
        lay_out_plain(out, shown, digits.exponent);
    } else {
        lay_out_scientific(out, shown, digits.exponent, 1);
    }
}

fn lay_out_plain(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', exponent.unsigned_abs() as usize - 1));
        return out.extend_from_slice(digits);
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.extend_from_slice(digits);
        out.extend(std::iter::repeat_n(b'0', whole - digits.len()));
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

fn lay_out_scientific(out: &mut Vec<u8>, digits: &[u8], exponent: i32, exponent_digits: usize) {
    let (first, rest) = digits.split_at(1);
    out.extend_from_slice(first);
    if !rest.is_empty() {
        out.push(b'.');
        out.extend_from_slice(rest);
    }
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(exponent.unsigned_abs());
    out.extend(std::iter::repeat_n(b'0', exponent_digits.saturating_sub(text.len())));
    out.extend_from_slice(text.as_bytes());
}

/// A number at the start of a text, before it is rounded to any type.
pub(super) struct Scanned<'a> {
    pub(super) negative: bool,
    pub(super) used: usize,
    pub(super) kind: Kind<'a>,
}

pub(super) enum Kind<'a> {
    Infinity,
    Nan,
    /// Digits with an optional point and exponent; `nonzero` if a digit before the exponent is not 0.
    Decimal {
        text: &'a [u8],
        nonzero: bool,
    },
    Hex(Binary),
}

/// `(mantissa + a fraction below 1, not 0 if inexact) * 2^exponent`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binary {
    pub(super) mantissa: u128,
    pub(super) inexact: bool,
    pub(super) exponent: i64,
}

impl Binary {
    /// Rounds to `bits` of mantissa, to nearest and ties to even, with no exponent below `min_exponent`. Returns the
    /// new mantissa and exponent. The mantissa may come out as 2^bits.
    pub(super) fn round(self, bits: u32, min_exponent: i64) -> (u128, i64) {
        let length = 128 - self.mantissa.leading_zeros();
        let drop = i64::from(length.saturating_sub(bits)).max(min_exponent.saturating_sub(self.exponent));
        if drop <= 0 {
            return (self.mantissa, self.exponent);
        }
        let exponent = self.exponent.saturating_add(drop);
        if drop > 128 {
            return (0, exponent);
        }
        let drop = drop as u32;
        let kept = if drop == 128 { 0 } else { self.mantissa >> drop };
        let half = 1u128 << (drop - 1);
        let rest = self.mantissa & (half | (half - 1));
        let up = rest > half || (rest == half && (self.inexact || kept & 1 == 1));
        (kept + u128::from(up), exponent)
    }

    fn to_f64(self) -> f64 {
        let (mantissa, exponent) = self.round(53, -1074);
        // This is exact: the mantissa has at most 53 bits (or is 2^53).
        let mantissa = mantissa as f64;
        if mantissa == 0.0 {
            return 0.0;
        }
        // 2^exponent may be out of range where the product is not, so it is applied in two steps, each exact.
        let exponent = exponent.clamp(-1_200, 1_200) as i32;
        mantissa * power_of_two(exponent / 2) * power_of_two(exponent - exponent / 2)
    }
}

/// Returns 2^exponent, for exponents from -1022 to 1023.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Finds the number at the start of `text` (no leading spaces).
pub(super) fn scan_number(text: &[u8]) -> Option<Scanned<'_>> {
    let (negative, sign) = match text.first()? {
        b'-' => (true, 1),
        b'+' => (false, 1),
        _ => (false, 0),
    };
    let body = &text[sign..];
    let starts_with = |word: &[u8]| body.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let (kind, used) = if starts_with(b"infinity") {
        (Kind::Infinity, 8)
    } else if starts_with(b"inf") {
        (Kind::Infinity, 3)
    } else if starts_with(b"nan") {
        (Kind::Nan, 3 + nan_payload(&body[3..]))
    } else if let Some((number, used)) = scan_hex(body) {
        (Kind::Hex(number), used)
    } else {
        let (used, nonzero) = scan_decimal(body)?;
        (Kind::Decimal { text: &body[..used], nonzero }, used)
    };
    Some(Scanned { negative, used: sign + used, kind })
}

/// Returns the length of `(letters, digits, underscores)` at the start of `text`, or 0.
fn nan_payload(text: &[u8]) -> usize {
    let Some((b'(', rest)) = text.split_first() else { return 0 };
    let inner = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if rest.get(inner) == Some(&b')') { inner + 2 } else { 0 }
}

/// Returns the length of the decimal number at the start of `text`, and whether it has a digit that is not 0.
fn scan_decimal(text: &[u8]) -> Option<(usize, bool)> {
    let mut at = 0;
    let (mut digits, mut point, mut nonzero) = (0, false, false);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                nonzero |= byte != b'0';
            }
            b'.' if !point => point = true,
            _ => break,
        }
        at += 1;
    }
    (digits > 0).then(|| (at + scan_exponent(&text[at..], b'e').map_or(0, |(_, used)| used), nonzero))
}

/// Returns the number that starts with `0x`, and its length. Without a hexadecimal digit only the `0` is a number.
fn scan_hex(text: &[u8]) -> Option<(Binary, usize)> {
    let [b'0', b'x' | b'X', rest @ ..] = text else { return None };
    let mut number = Binary { mantissa: 0, inexact: false, exponent: 0 };
    let (mut digits, mut point, mut at) = (0, false, 0);
    while let Some(&byte) = rest.get(at) {
        if byte == b'.' && !point {
            point = true;
        } else if let Some(value) = (byte as char).to_digit(16) {
            digits += 1;
            if number.mantissa >> 120 == 0 {
                number.mantissa = number.mantissa << 4 | u128::from(value);
                number.exponent -= if point { 4 } else { 0 };
            } else {
                number.inexact |= value != 0;
                number.exponent += if point { 0 } else { 4 };
            }
        } else {
            break;
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    if let Some((exponent, used)) = scan_exponent(&rest[at..], b'p') {
        number.exponent = number.exponent.saturating_add(exponent);
        at += used;
    }
    Some((number, 2 + at))
}

/// Parses `e+12` at the start of `text`, for the letter given in lower case. Returns its value (capped far beyond any
/// type's range) and its length.
pub(super) fn scan_exponent(text: &[u8], letter: u8) -> Option<(i64, usize)> {
    let (first, rest) = text.split_first()?;
    if first.to_ascii_lowercase() != letter {
        return None;
    }
    let (negative, sign) = match rest.first()? {
        b'-' => (true, 1),
        b'+' => (false, 1),
        _ => (false, 0),
    };
    let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let value = rest[sign..sign + digits]
        .iter()
        .fold(0i64, |value, &byte| value.saturating_mul(10).saturating_add(i64::from(byte - b'0')))
        .min(i64::MAX / 4);
    Some((if negative { -value } else { value }, 1 + sign + digits))
}

/// Parses the commonest scores: up to 15 digits, exact in a double.
#[inline]
fn parse_small_integer(text: &[u8]) -> Option<f64> {
    if text.len() > 15 {
        return None;
    }
    parse_i64(text).map(|value| value as f64)
}

#[inline]
fn digit(byte: u8) -> Option<u64> {
    let value = byte.wrapping_sub(b'0');
    (value < 10).then_some(u64::from(value))
}

#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_are_canonical() {
        for (text, value) in
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(parse_i64(text.as_bytes()), Some(value));
        }
        for text in ["", "-", "-0", "+1", "01", "00", " 1", "1 ", "1a", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"100000000000000000000"), None);
    }

    #[test]
    fn doubles_are_read_as_clients_send_them() {
        for (text, value) in [
            ("3", 3.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("+5", 5.0),
            ("00012", 12.0),
            ("1e5", 1e5),
            ("0x10", 16.0),
            ("0x1p3", 8.0),
            ("0x.8p1", 1.0),
            ("-INF", f64::NEG_INFINITY),
            ("+inf", f64::INFINITY),
            ("Infinity", f64::INFINITY),
            ("4.9e-324", 5e-324),
            ("0x1p-1074", 5e-324),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1.fffffffffffff7ffffffffffffffffffp0", 2.0 - f64::EPSILON),
            ("0x1p1023", f64::from_bits(0x7fe0_0000_0000_0000)),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), Some(value), "{text:?}");
        }
        assert!(parse_f64(b"-0").is_some_and(|zero| zero.is_sign_negative()));
        for text in [
            "",
            " 1",
            "1 ",
            "\t1",
            "nan",
            "nan(1)",
            "1e400",
            "-1e400",
            "1e-400",
            ".",
            "1e",
            "1e+",
            "+-1",
            "0x",
            "1_0",
            "infinit",
            "infinity ",
            "0x1p1024",
            "0x1p-1076",
            "1\0",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn strtod_takes_a_prefix() {
        let used = |text: &str| (strtod(text.as_bytes()).used, strtod(text.as_bytes()).value);
        assert_eq!(used("  12abc"), (4, 12.0));
        assert_eq!(used("1e+x"), (1, 1.0));
        assert_eq!(used("0xg"), (1, 0.0));
        assert_eq!(used("infin"), (3, f64::INFINITY));
        assert_eq!(used("abc"), (0, 0.0));
        assert_eq!(strtod(b"nan(x1)").used, 7);
        assert!(strtod(b"1e999999999999999999999").out_of_range);
    }

    #[test]
    fn doubles_are_written_as_by_redis_8() {
        for (value, text) in [
            (3.0, "3"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e17, "100000000000000000"),
            (4611686018427387904.0, "4611686018427387904"),
            (9223372036854775808.0, "9223372036854776000"),
            (1e20, "1e+20"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-7, "1e-7"),
            (1.5e-7, "1.5e-7"),
            (1e-6, "0.000001"),
            (0.0001, "0.0001"),
            (1234.56789012345, "1234.56789012345"),
            (12345.6789012, "1.23456789012e+4"),
            (12345.67, "12345.67"),
            (-2.5, "-2.5"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let mut out = Vec::new();
            format_f64(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    fn c_printf_g(value: f64, precision: usize) -> String {
        let mut buffer = [0u8; 128];
        // SAFETY: the buffer is longer than any %.30g, and its length is given.
        let len = unsafe {
            libc::snprintf(buffer.as_mut_ptr().cast(), buffer.len(), c"%.*g".as_ptr(), precision as libc::c_int, value)
        };
        String::from_utf8_lossy(&buffer[..len as usize]).into_owned()
    }

    fn c_strtod(text: &str) -> (f64, usize) {
        let text = std::ffi::CString::new(text).expect("no NUL in the generated text");
        let mut end = std::ptr::null_mut();
        // SAFETY: the text ends in NUL and outlives the call; `end` points into it.
        unsafe {
            let value = libc::strtod(text.as_ptr(), &mut end);
            (value, end.offset_from(text.as_ptr()) as usize)
        }
    }

    proptest! {
        #[test]
        fn integers_round_trip(value: i64) {
            let mut out = Vec::new();
            format_i64(&mut out, value);
            prop_assert_eq!(parse_i64(&out), Some(value));
        }

        #[test]
        fn integers_agree_with_the_standard_library(text in "[-]?[0-9]{0,21}") {
            let canonical = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_i64(text.as_bytes()), canonical);
        }

        #[test]
        fn doubles_round_trip(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let mut out = Vec::new();
            format_f64(&mut out, value);
            prop_assert_eq!(parse_f64(&out).map(f64::to_bits), Some(bits));
            let library = Digits::read(format!("{:e}", value.abs()).as_bytes());
            let shortest = Digits::shortest(value.abs());
            prop_assert_eq!((shortest.all(), shortest.exponent), (library.all(), library.exponent));
        }

        #[test]
        fn percent_g_equals_c(bits: u64, small in -1e6..1e6f64, precision in 0usize..=20) {
            let rounded = (small * 1e3).trunc() / 1e3;
            for value in [f64::from_bits(bits), small, small.trunc(), small.trunc() / 8.0, rounded] {
                let mut out = Vec::new();
                format_g(&mut out, value, precision);
                prop_assert_eq!(String::from_utf8_lossy(&out), c_printf_g(value, precision));
            }
        }

        #[test]
        fn strtod_equals_c(text in "[ \t]{0,1}[+-]?(0x|0X|inf|)[0-9a-fA-F.]{0,20}([ep][+-]?[0-9]{0,4})?[a-z]?") {
            let (value, used) = c_strtod(&text);
            let read = strtod(text.as_bytes());
            prop_assert_eq!((read.value.to_bits(), read.used), (value.to_bits(), used), "{}", text);
        }

        #[test]
        fn never_panics(text: Vec<u8>) {
            parse_f64(&text);
            parse_i64(&text);
        }
    }
}
