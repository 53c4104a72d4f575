//! CRC16 and the hash slot of a key; the CRC64 that ends dumped payloads.
//!
//! A cluster spreads keys over 16,384 slots by CRC16/XMODEM (polynomial 0x1021, initial value 0, not reflected) of the
//! key. When the key holds a `{tag}`, only the tag counts, so that related keys share a slot (Redis cluster
//! specification, "Hash tags").

/// How many hash slots a cluster has.
pub const SLOTS: u16 = 16_384;

const TABLE: [u16; 256] = table();

/// The hash slot of `key`, below [`SLOTS`]. The tag is what stands between the first `{` and the first `}` after it;
/// an empty tag doesn't count.
#[inline]
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// CRC16/XMODEM of `bytes`.
#[inline]
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

/// CRC64 as Redis sums dumps and snapshots: polynomial 0xAD93D23594C935A9, reflected, initial value 0.
pub fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, &byte| (crc >> 8) ^ TABLE_64[usize::from(crc as u8 ^ byte)])
}

const TABLE_64: [u64; 256] = {
    // The polynomial's bits in reverse.
    const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[inline]
fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let rest = &key[open + 1..];
    match memchr::memchr(b'}', rest) {
        Some(close) if close > 0 => &rest[..close],
        _ => key,
    }
}

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_has_the_published_check_value() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn slots_follow_the_tag() {
        assert_eq!(key_slot(b"foo"), 12_182);
        assert_eq!(key_slot(b"{foo}.bar"), 12_182);
        assert_eq!(key_slot(b"a{foo}{bar}"), 12_182);
        assert_eq!(key_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(key_slot(b"foo{{bar}}zap"), key_slot(b"{bar"));
        assert_eq!(key_slot(b"}foo{"), crc16(b"}foo{") % SLOTS);
        assert_eq!(key_slot(b""), 0);
    }
}
