//! CRC16 and the hash slot of a key; the CRC64 that ends dumped payloads.
//!
//! A cluster spreads keys over 16,384 slots by CRC16/XMODEM (polynomial 0x1021, initial value 0, not reflected) of the
//! key. When the key holds a `{tag}`, only the tag counts, so that related keys share a slot (Redis cluster
//! specification, "Hash tags").

/// Number of hash slots in a cluster.
pub const SLOTS: u16 = 16_384;

const TABLE: [u16; 256] = table();

/// Returns the hash slot of `key`, below [`SLOTS`]. The tag is the text between the first `{` and the first `}` after
/// it; an empty tag doesn't count.
#[inline]
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// Returns the CRC16/XMODEM of `bytes`.
#[inline]
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

/// Returns the CRC64 that Redis uses for dumps and snapshots: polynomial 0xAD93D23594C935A9, reflected, initial value
/// 0.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc64_with(0, bytes)
}

/// Extends `crc`, the CRC64 of some input, by `bytes`, which follow that input.
pub fn crc64_with(mut crc: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        // Eight bytes at once: each table has the contribution of a byte after the zeros that stand for the bytes
        // behind it.
        let mixed = (crc ^ u64::from_le_bytes(*word)).to_le_bytes();
        crc = mixed.iter().zip(TABLES_64.iter().rev()).fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)]);
    }
    rest.iter().fold(crc, |crc, &byte| (crc >> 8) ^ TABLES_64[0][usize::from(crc as u8 ^ byte)])
}

/// Contribution of a byte to the sum, by the number of bytes that follow.
static TABLES_64: [[u64; 256]; 8] = {
    // The polynomial's bits in reverse.
    const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc: u64 = tables[behind - 1][byte];
            tables[behind][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
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
    fn crc64_has_the_published_check_value_however_it_is_cut() {
        let text = b"123456789 and so on, beyond two words of eight bytes";
        assert_eq!(crc64(&text[..9]), 0xe9c6_d914_c4b8_d9ca);
        for cut in 0..=text.len() {
            assert_eq!(crc64_with(crc64(&text[..cut]), &text[cut..]), crc64(text));
        }
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
