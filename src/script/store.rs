//! The script cache.

/// 20 bytes in hexadecimal.
pub(super) fn hex(digest: [u8; 20]) -> [u8; 40] {
    let mut text = [0; 40];
    for (i, byte) in digest.iter().enumerate() {
        text[i * 2] = b"0123456789abcdef"[usize::from(byte >> 4)];
        text[i * 2 + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    text
}

/// The name of a script: the SHA-1 of its text.
pub fn sha1_hex(body: &[u8]) -> super::Sha1Hex {
    use sha1::{Digest, Sha1};
    hex(Sha1::digest(body).into())
}
