//! Comparison of short bytes.

/// Whether `a` and `b` are equal. For up to 32 bytes, the length of most keys and elements, this loads only those
/// bytes. The comparison of glibc loads 32 at once where the processor has AVX-512, and masks the surplus. If the load
/// reaches into the next cache line, it waits for that line, too.
#[inline]
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && match a.len() {
            16..=32 => ends(a, b, u128::from_ne_bytes),
            8..=15 => ends(a, b, u64::from_ne_bytes),
            4..=7 => ends(a, b, u32::from_ne_bytes),
            0..=3 => std::iter::zip(a, b).all(|(a, b)| a == b),
            _ => a == b,
        }
}

/// Whether the first and the last `N` bytes are equal, where both inputs have the same length, from `N` to twice `N`.
#[inline]
fn ends<const N: usize, W: PartialEq>(a: &[u8], b: &[u8], word: fn([u8; N]) -> W) -> bool {
    let words = |bytes: &[u8]| Some((word(*bytes.first_chunk()?), word(*bytes.last_chunk()?)));
    words(a) == words(b)
}

#[cfg(test)]
mod tests {
    use super::equal;

    #[test]
    fn every_byte_counts() {
        for len in 0..70 {
            let a: Vec<u8> = (0..len).collect();
            assert!(equal(&a, &a.clone()), "{len}");
            assert!(!equal(&a, &[&a[..], b"x"].concat()), "{len}");
            for at in 0..a.len() {
                let mut b = a.clone();
                b[at] ^= 0x80;
                assert!(!equal(&a, &b), "{at} of {len}");
            }
        }
    }
}
