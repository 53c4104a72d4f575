//! BITFIELD's arguments as a client writes them, and the fields they name: words in threes (type, offset, value),
//! applied to one string, with each result checked bit by bit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::base::num::parse_i64;
use tidegate::value::bits::{FieldType, Overflow, bit_at, field, increment_field, parse_offset, set_field};

/// Maximum length of the string: room for every shape of a field, without waiting for memory.
const MAX_BYTES: u64 = 4096;

fuzz_target!(|data: &[u8]| {
    let mut bytes = Vec::new();
    let words: Vec<&[u8]> = data.split(|&byte| byte == b' ').collect();
    for three in words.chunks_exact(3) {
        let (Some(kind), Some(value)) = (FieldType::parse(three[0]), parse_i64(three[2])) else { continue };
        let Some(offset) = parse_offset(three[1], Some(kind), MAX_BYTES) else { continue };
        for overflow in [Overflow::Wrap, Overflow::Saturate, Overflow::Fail] {
            let before = bytes.clone();
            let old = field(&before, offset, kind);
            let set = set_field(&mut bytes, offset, kind, value, overflow);
            assert!(set.is_none_or(|answer| answer == old));
            let kept = field(&bytes, offset, kind);
            let sum = increment_field(&mut bytes, offset, kind, value, overflow);
            assert_eq!(field(&bytes, offset, kind), sum.unwrap_or(kept));
            let outside = (0..bytes.len() as u64 * 8).filter(|at| !(offset..offset + kind.bits()).contains(at));
            outside.for_each(|at| assert_eq!(bit_at(&bytes, at), bit_at(&before, at)));
        }
    }
});
