//! CRC-32C, the checksum of everything in the journal.
//!
//! Most blocks are short. The crate first prepares to compute three parts of a long input at once, which takes longer
//! than a short input itself. So up to the length from which three parts pay off, the processor's instruction is used
//! directly.

/// Length in bytes from which the crate is faster.
const LONG: usize = 768;

/// Returns the checksum of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Extends the checksum `crc` of some input by `bytes`, which follow that input.
pub(super) fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() < LONG && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has been checked for the instruction.
        return unsafe { append_short(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn append_short(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

    let (words, rest) = bytes.as_chunks::<8>();
    let of_words = words.iter().fold(u64::from(!crc), |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    // The value has 32 bits.
    !rest.iter().fold(of_words as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_input_have_the_same_checksum_as_elsewhere() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of the catalogue of CRC algorithms");
        let bytes: Vec<u8> = (0..2 * LONG).map(|at| (at * at) as u8).collect();
        for len in (0..40).chain(LONG - 20..LONG + 20) {
            for from in [0, 1, 7, 300] {
                let part = &bytes[from..from + len];
                assert_eq!(crc32c_append(17, part), crc32c::crc32c_append(17, part), "{len} bytes from {from} on");
            }
        }
    }
}
