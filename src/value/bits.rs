//! Strings as arrays of bits, and as packed integers.
//!
//! Bit 0 is the most significant bit of byte 0, as in Redis. Bits beyond the end of a string read as zeros; writing
//! there grows the string. Only that growth and the result of [`combine`] allocate. Loops over whole strings work on
//! words, or are written so that the compiler vectorises them.
//!
//! A BITFIELD integer is `u1` to `u63` or `i1` to `i64`, most significant bit first, at any bit offset. It spans at
//! most nine bytes, so it is read and written through one 128-bit window.

use crate::base::num::parse_i64;

/// The unit in which a range counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole bytes.
    Byte,
    /// Single bits.
    Bit,
}

/// Bit `offset`; false beyond the end.
#[inline]
pub fn bit_at(bytes: &[u8], offset: u64) -> bool {
    usize::try_from(offset / 8).ok().and_then(|at| bytes.get(at)).is_some_and(|byte| byte & mask(offset) != 0)
}

/// Makes room for `bits` bits; new ones are 0. Never shrinks.
#[inline]
pub fn grow(bytes: &mut Vec<u8>, bits: u64) {
    let needed = bits.div_ceil(8) as usize;
    if bytes.len() < needed {
        bytes.resize(needed, 0);
    }
}

/// The number of bits set in all of `bytes`.
pub fn count(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    in_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// The number of bits set from `start` to `end`, both inclusive, and counted from the back if negative.
pub fn count_range(bytes: &[u8], start: i64, end: i64, unit: Unit) -> u64 {
    if start < 0 && end < 0 && start > end {
        return 0;
    }
    let Some((first, last)) = resolve(bytes.len(), start, end, unit) else { return 0 };
    let whole = &bytes[(first / 8) as usize..=(last / 8) as usize];
    let before = whole[0] & !from_mask(first);
    let after = whole[whole.len() - 1] & !to_mask(last);
    count(whole) - u64::from(before.count_ones()) - u64::from(after.count_ones())
}

/// The first bit that equals `wanted`, from `start` to `end` (both inclusive, counted from the back if negative; `None`
/// means up to the end). Searching for a 0 without an end finds the first bit past a string of ones. Callers handle an
/// absent key, where a 0 is found at 0.
pub fn position(bytes: &[u8], wanted: bool, start: i64, end: Option<i64>, unit: Unit) -> Option<u64> {
    let (first, last) = resolve(bytes.len(), start, end.unwrap_or(-1), unit)?;
    let found = find(bytes, wanted, first, last);
    if found.is_none() && !wanted && end.is_none() {
        return Some(bytes.len() as u64 * 8);
    }
    found
}

/// Converts a range in `unit`s to its first and last bit, clamped to the string. `None` if it is empty.
fn resolve(len: usize, start: i64, end: i64, unit: Unit) -> Option<(u64, u64)> {
    let total = match unit {
        Unit::Byte => len as i64,
        Unit::Bit => (len as i64).checked_mul(8)?,
    };
    let from_front = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(total - 1));
    if start > end {
        return None;
    }
    match unit {
        Unit::Byte => Some((start as u64 * 8, end as u64 * 8 + 7)),
        Unit::Bit => Some((start as u64, end as u64)),
    }
}

/// The first bit from `first` to `last` that equals `wanted`. Both ends lie within `bytes`.
fn find(bytes: &[u8], wanted: bool, first: u64, last: u64) -> Option<u64> {
    // Flipped so that the search is always for a 1.
    let flip = if wanted { 0 } else { 0xff };
    let (first_byte, last_byte) = ((first / 8) as usize, (last / 8) as usize);
    let hit = |at: usize, byte: u8| Some(at as u64 * 8 + u64::from(byte.leading_zeros()));
    let head =
        (bytes[first_byte] ^ flip) & from_mask(first) & if first_byte == last_byte { to_mask(last) } else { 0xff };
    if head != 0 {
        return hit(first_byte, head);
    }
    if first_byte == last_byte {
        return None;
    }
    let middle = &bytes[first_byte + 1..last_byte];
    if let Some(at) = first_other_than(middle, flip) {
        return hit(first_byte + 1 + at, middle[at] ^ flip);
    }
    match (bytes[last_byte] ^ flip) & to_mask(last) {
        0 => None,
        tail => hit(last_byte, tail),
    }
}

/// The first byte that differs from `same`.
fn first_other_than(bytes: &[u8], same: u8) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    let skipped = words.iter().take_while(|word| **word == [same; 8]).count() * 8;
    bytes[skipped..].iter().position(|&byte| byte != same).map(|at| skipped + at)
}

/// The operations of BITOP. X is the first source, Y each of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    /// Set in all sources.
    And,
    /// Set in any source.
    Or,
    /// Set in an odd number of sources.
    Xor,
    /// Not set in X, the only source.
    Not,
    /// Set in X and in no Y.
    Diff,
    /// Set in some Y and not in X.
    Diff1,
    /// Set in X and in some Y.
    AndOr,
    /// Set in exactly one source.
    One,
}

impl BitOp {
    /// Reads the name, in any case.
    pub fn parse(name: &[u8]) -> Option<BitOp> {
        use BitOp::*;
        let table: [(&[u8], BitOp); 8] = [
            (b"and", And),
            (b"or", Or),
            (b"xor", Xor),
            (b"not", Not),
            (b"diff", Diff),
            (b"diff1", Diff1),
            (b"andor", AndOr),
            (b"one", One),
        ];
        table.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|&(_, op)| op)
    }
}

/// Applies `op` to the sources; an absent key is an empty source. The result is as long as the longest source; shorter
/// sources read as zeros beyond their end.
pub fn combine(op: BitOp, sources: &[&[u8]]) -> Vec<u8> {
    let Some((&x, others)) = sources.split_first() else { return Vec::new() };
    let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let padded = |source: &[u8]| {
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(source);
        bytes.resize(len, 0);
        bytes
    };
    let union = || {
        let mut union = vec![0; len];
        others.iter().for_each(|other| each(&mut union, other, |a, b| a | b));
        union
    };
    let fold = |combine: fn(u8, u8) -> u8| {
        let mut result = padded(x);
        others.iter().for_each(|other| each(&mut result, other, combine));
        result
    };
    let with_union = |combine: fn(u8, u8) -> u8| {
        let mut result = padded(x);
        each(&mut result, &union(), combine);
        result
    };
    match op {
        BitOp::And => fold(|a, b| a & b),
        BitOp::Or => fold(|a, b| a | b),
        BitOp::Xor => fold(|a, b| a ^ b),
        BitOp::Not => x.iter().map(|byte| !byte).collect(),
        BitOp::Diff => with_union(|x, y| x & !y),
        BitOp::Diff1 => with_union(|x, y| !x & y),
        BitOp::AndOr => with_union(|x, y| x & y),
        BitOp::One => {
            let (mut any, mut twice) = (padded(x), vec![0; len]);
            for other in others {
                for ((any, twice), &byte) in any.iter_mut().zip(&mut twice).zip(*other) {
                    *twice |= *any & byte;
                    *any |= byte;
                }
            }
            each(&mut any, &twice, |any, twice| any & !twice);
            any
        }
    }
}

/// `target[i] = combine(target[i], source[i])`, where `source` is followed by endless zeros.
#[inline]
fn each(target: &mut [u8], source: &[u8], combine: impl Fn(u8, u8) -> u8) {
    let (both, only_target) = target.split_at_mut(source.len().min(target.len()));
    both.iter_mut().zip(source).for_each(|(a, &b)| *a = combine(*a, b));
    only_target.iter_mut().for_each(|a| *a = combine(*a, 0));
}

/// The type of a BITFIELD integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldType {
    signed: bool,
    bits: u8,
}

/// The treatment of a value that does not fit its field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Keep the low bits.
    #[default]
    Wrap,
    /// Take the nearest value that fits.
    Saturate,
    /// Leave the field as it is.
    Fail,
}

impl FieldType {
    /// Reads `u1` to `u63` or `i1` to `i64`, in lower case.
    pub fn parse(text: &[u8]) -> Option<FieldType> {
        let (signed, widest) = match text.first()? {
            b'i' => (true, 64),
            b'u' => (false, 63),
            _ => return None,
        };
        let bits = parse_i64(&text[1..])?;
        (1..=widest).contains(&bits).then_some(FieldType { signed, bits: bits as u8 })
    }

    /// The width in bits, 1 to 64.
    pub fn bits(self) -> u64 {
        u64::from(self.bits)
    }

    /// The smallest and the largest value.
    fn bounds(self) -> (i128, i128) {
        if self.signed {
            let half = 1i128 << (self.bits - 1);
            (-half, half - 1)
        } else {
            (0, (1i128 << self.bits) - 1)
        }
    }

    /// The value encoded in the low bits of `raw`.
    fn extend(self, raw: u64) -> i64 {
        let unused = 64 - u32::from(self.bits);
        if self.signed { (raw << unused) as i64 >> unused } else { ((raw << unused) >> unused) as i64 }
    }

    /// Makes `value` fit.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (low, high) = self.bounds();
        if (low..=high).contains(&value) {
            return Some(value as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.extend(value as u64)),
            Overflow::Saturate => Some(value.clamp(low, high) as i64),
            Overflow::Fail => None,
        }
    }
}

/// Reads a bit offset: a number, or for a field also `#n`, which counts in fields. It must lie within `max_bytes`
/// bytes.
pub fn parse_offset(text: &[u8], field: Option<FieldType>, max_bytes: u64) -> Option<u64> {
    let offset = match (field, text) {
        (Some(field), [b'#', count @ ..]) => parse_i64(count)?.checked_mul(i64::from(field.bits))?,
        _ => parse_i64(text)?,
    };
    u64::try_from(offset).ok().filter(|offset| offset / 8 < max_bytes)
}

/// The integer at bit `offset`.
pub fn field(bytes: &[u8], offset: u64, kind: FieldType) -> i64 {
    let shift = 128 - (offset % 8) as u32 - u32::from(kind.bits);
    kind.extend((window(bytes, offset) >> shift) as u64)
}

/// Writes `value` at bit `offset` and returns the old value. `None` if it does not fit and `overflow` is `Fail`. Grows
/// `bytes` first, even then, as Redis does. For an unsigned field, a negative value counts as too large.
pub fn set_field(bytes: &mut Vec<u8>, offset: u64, kind: FieldType, value: i64, overflow: Overflow) -> Option<i64> {
    grow(bytes, offset.saturating_add(kind.bits()));
    let wide = if kind.signed { i128::from(value) } else { i128::from(value as u64) };
    // Redis computes the room above the value in 64 bits; where that wraps, it treats the value as too large.
    let (_, high) = kind.bounds();
    let wraps = overflow == Overflow::Saturate && kind.bits < 64 && high - wide > i128::from(i64::MAX);
    let fitting = kind.fit(if wraps { high } else { wide }, overflow)?;
    let old = field(bytes, offset, kind);
    store(bytes, offset, kind, fitting);
    Some(old)
}

/// Adds `increment` to the integer at bit `offset` and returns the sum. `None` if it does not fit and `overflow` is
/// `Fail`. Grows `bytes` first, even then, as Redis does.
pub fn increment_field(
    bytes: &mut Vec<u8>,
    offset: u64,
    kind: FieldType,
    increment: i64,
    overflow: Overflow,
) -> Option<i64> {
    grow(bytes, offset.saturating_add(kind.bits()));
    let sum = i128::from(field(bytes, offset, kind)) + i128::from(increment);
    let fitting = kind.fit(sum, overflow)?;
    store(bytes, offset, kind, fitting);
    Some(fitting)
}

fn store(bytes: &mut [u8], offset: u64, kind: FieldType, value: i64) {
    let shift = 128 - (offset % 8) as u32 - u32::from(kind.bits);
    let ones = u128::from(u64::MAX >> (64 - u32::from(kind.bits))) << shift;
    let window = window(bytes, offset) & !ones | (u128::from(value as u64) << shift) & ones;
    let target = bytes.iter_mut().skip((offset / 8) as usize);
    target.zip(window.to_be_bytes()).for_each(|(byte, new)| *byte = new);
}

/// Sixteen bytes starting with the one that holds bit `offset`, the first one highest; zeros beyond the end.
#[inline]
fn window(bytes: &[u8], offset: u64) -> u128 {
    let rest = usize::try_from(offset / 8).ok().and_then(|at| bytes.get(at..)).unwrap_or(&[]);
    let mut buffer = [0; 16];
    let len = rest.len().min(16);
    buffer[..len].copy_from_slice(&rest[..len]);
    u128::from_be_bytes(buffer)
}

/// The bit within its byte that `offset` refers to.
#[inline]
fn mask(offset: u64) -> u8 {
    0x80 >> (offset % 8)
}

/// The bits of a byte from bit `offset` on.
#[inline]
fn from_mask(offset: u64) -> u8 {
    0xff >> (offset % 8)
}

/// The bits of a byte up to and including bit `offset`.
#[inline]
fn to_mask(offset: u64) -> u8 {
    !(0x7f >> (offset % 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const U8: FieldType = FieldType { signed: false, bits: 8 };
    const I8: FieldType = FieldType { signed: true, bits: 8 };
    const I64: FieldType = FieldType { signed: true, bits: 64 };

    #[test]
    fn bits_beyond_the_end() {
        assert!(!bit_at(b"", u64::MAX));
        assert!(!bit_at(b"\xff", 8));
    }

    #[test]
    fn empty_and_reversed_ranges() {
        assert_eq!(position(b"", false, 0, None, Unit::Byte), None);
        assert_eq!(position(b"\xff", false, 0, None, Unit::Byte), Some(8));
        assert_eq!(position(b"\xff", false, 0, Some(-1), Unit::Byte), None);
        assert_eq!(position(b"\xff", false, 5, None, Unit::Byte), None);
        assert_eq!(count_range(b"\xff", -1, -5, Unit::Byte), 0);
        assert_eq!(count_range(b"\xff", 5, 2, Unit::Byte), 0);
        assert_eq!(count_range(b"\xff", -100, -50, Unit::Byte), 8);
        assert_eq!(count_range(b"\xff", i64::MIN, i64::MAX, Unit::Bit), 8);
    }

    #[test]
    fn operations_on_unequal_lengths() {
        let sources: [&[u8]; 3] = [&[0b1100, 0xff], &[0b1010], &[0b1001, 0x0f]];
        let result = |op| combine(op, &sources);
        assert_eq!(result(BitOp::And), [0b1000, 0]);
        assert_eq!(result(BitOp::Or), [0b1111, 0xff]);
        assert_eq!(result(BitOp::Xor), [0b1111, 0xf0]);
        assert_eq!(result(BitOp::Diff), [0b0100, 0xf0]);
        assert_eq!(result(BitOp::Diff1), [0b0011, 0]);
        assert_eq!(result(BitOp::AndOr), [0b1000, 0x0f]);
        assert_eq!(result(BitOp::One), [0b0111, 0xf0]);
        assert_eq!(combine(BitOp::Not, &[&[0xf0]]), [0x0f]);
        assert_eq!(BitOp::parse(b"DIFF1"), Some(BitOp::Diff1));
    }

    #[test]
    fn types_and_offsets_are_read_as_written() {
        assert_eq!(FieldType::parse(b"u63").map(FieldType::bits), Some(63));
        assert_eq!(FieldType::parse(b"i64"), Some(I64));
        for text in ["u64", "i65", "u0", "u08", "I8", "", "u", "x8", "u-1"] {
            assert_eq!(FieldType::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_offset(b"#3", Some(U8), 100), Some(24));
        assert_eq!(parse_offset(b"#3", None, 100), None);
        assert_eq!(parse_offset(b"799", None, 100), Some(799));
        assert_eq!(parse_offset(b"800", None, 100), None);
        assert_eq!(parse_offset(b"-1", None, 100), None);
        assert_eq!(parse_offset(b"#9223372036854775807", Some(U8), 100), None);
    }

    #[test]
    fn overflow_of_each_kind() {
        let run = |kind, start: i64, increment, overflow| {
            let mut bytes = vec![];
            set_field(&mut bytes, 3, kind, start, Overflow::Wrap);
            increment_field(&mut bytes, 3, kind, increment, overflow)
        };
        assert_eq!(run(U8, 250, 10, Overflow::Wrap), Some(4));
        assert_eq!(run(U8, 250, 10, Overflow::Saturate), Some(255));
        assert_eq!(run(U8, 250, 10, Overflow::Fail), None);
        assert_eq!(run(U8, 5, -10, Overflow::Saturate), Some(0));
        assert_eq!(run(I8, 127, 1, Overflow::Wrap), Some(-128));
        assert_eq!(run(I8, -128, -1, Overflow::Saturate), Some(-128));
        assert_eq!(run(I64, i64::MAX, 1, Overflow::Wrap), Some(i64::MIN));
        assert_eq!(run(I64, i64::MIN, i64::MIN, Overflow::Saturate), Some(i64::MIN));
        let mut bytes = vec![];
        assert_eq!(set_field(&mut bytes, 0, U8, -1, Overflow::Saturate), Some(0));
        assert_eq!(bytes, [255]);
        assert_eq!(set_field(&mut bytes, 16, U8, 300, Overflow::Fail), None);
        assert_eq!(bytes, [255, 0, 0]);
    }

    fn naive_range(len: usize, start: i64, end: i64, unit: Unit) -> Vec<u64> {
        let scale = if unit == Unit::Byte { 8 } else { 1 };
        let total = len as i64 * 8 / scale;
        let from_front = |at: i64| if at < 0 { (at + total).max(0) } else { at };
        let bits = from_front(start)..=from_front(end).min(total - 1);
        bits.flat_map(|at| at * scale..(at + 1) * scale).map(|at| at as u64).collect()
    }

    fn units() -> impl Strategy<Value = Unit> {
        prop_oneof![Just(Unit::Byte), Just(Unit::Bit)]
    }

    fn mostly_same() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![8 => Just(0), 8 => Just(255), 1 => any::<u8>()], 0..40)
    }

    proptest! {
        #[test]
        fn ranges_equal_bit_by_bit(
            bytes in mostly_same(),
            start in -330..330i64,
            end in -330..330i64,
            unit in units(),
        ) {
            let range = naive_range(bytes.len(), start, end, unit);
            let reversed = start < 0 && end < 0 && start > end;
            let counted = range.iter().filter(|&&at| bit_at(&bytes, at)).count() as u64;
            prop_assert_eq!(count_range(&bytes, start, end, unit), if reversed { 0 } else { counted });
            for wanted in [false, true] {
                let first = range.iter().copied().find(|&at| bit_at(&bytes, at) == wanted);
                prop_assert_eq!(position(&bytes, wanted, start, Some(end), unit), first);
            }
        }

        #[test]
        fn long_runs_are_skipped_correctly(before in 0..100usize, byte: u8, flip: bool) {
            let fill = if flip { 0xff } else { 0 };
            let mut bytes = vec![fill; before];
            bytes.push(byte);
            bytes.extend([fill; 20]);
            let naive = (0..bytes.len() as u64 * 8).find(|&at| bit_at(&bytes, at) != flip);
            prop_assert_eq!(find(&bytes, !flip, 0, bytes.len() as u64 * 8 - 1), naive);
        }

        #[test]
        fn fields_equal_bit_by_bit(
            mut bytes: Vec<u8>, offset in 0..300u64, signed: bool, bits in 1..=63u8, value: i64
        ) {
            let kind = FieldType { signed, bits };
            let before = bytes.clone();
            let old = set_field(&mut bytes, offset, kind, value, Overflow::Wrap);
            let raw = (offset..offset + kind.bits()).fold(0, |raw, at| raw << 1 | u64::from(bit_at(&before, at)));
            prop_assert_eq!(old, Some(kind.extend(raw)));
            prop_assert_eq!(field(&bytes, offset, kind), kind.extend(value as u64));
            for at in (0..bytes.len() as u64 * 8).filter(|at| !(offset..offset + kind.bits()).contains(at)) {
                prop_assert_eq!(bit_at(&bytes, at), bit_at(&before, at));
            }
        }
    }
}
