//! LZF, the compression of strings in RDB files (Marc Lehmann's LibLZF). Only unpacking is implemented: every reader
//! accepts unpacked strings, and only these are written.
//!
//! ```text
//! 000 lllll, l + 1 bytes                      these bytes as they are
//! lll ooooo, oooooooo                         l + 2 bytes from o + 1 bytes back
//! 111 ooooo, llllllll, oooooooo               l + 9 bytes from o + 1 bytes back
//! ```

/// The most bytes that one byte of a packed text can unpack to: three bytes give 264.
const RATIO_MAX: usize = 88;

/// Unpacks a text of `whole` bytes; `None` if the result is anything else.
pub(super) fn unpack(packed: &[u8], whole: usize) -> Option<Vec<u8>> {
    if whole > packed.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    let mut text = Vec::with_capacity(whole);
    let mut rest = packed.iter();
    while let Some(&control) = rest.next() {
        let control = usize::from(control);
        if control < 32 {
            let (literal, behind) = rest.as_slice().split_at_checked(control + 1)?;
            text.extend_from_slice(literal);
            rest = behind.iter();
        } else {
            let mut len = control >> 5;
            if len == 7 {
                len += usize::from(*rest.next()?);
            }
            let back = (control & 31) << 8 | usize::from(*rest.next()?);
            repeat(&mut text, back + 1, len + 2)?;
        }
        if text.len() > whole {
            return None;
        }
    }
    (text.len() == whole).then_some(text)
}

/// Appends `len` bytes, starting `back` bytes before the end. The source may overlap the bytes being appended.
fn repeat(text: &mut Vec<u8>, back: usize, len: usize) -> Option<()> {
    let from = text.len().checked_sub(back)?;
    for at in from..from + len {
        text.push(text[at]);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacks_only_well_formed_input() {
        // "abcabcabc..." of 300 bytes, as redis-server packs it.
        let long = b"\x02abc\xe0\xff\x02\xe0\x16\x02";
        let text: Vec<u8> = b"abc".iter().copied().cycle().take(3 + 264 + 31).collect();
        assert_eq!(unpack(long, text.len()).as_deref(), Some(&text[..]));
        assert_eq!(unpack(long, text.len() - 1), None);
        assert_eq!(unpack(long, text.len() + 1), None);
        assert_eq!(unpack(long, usize::MAX), None);
        for cut in 1..long.len() {
            assert_eq!(unpack(&long[..cut], text.len()), None);
        }
        assert_eq!(unpack(b"\x20\x00", 3), None, "there is nothing to copy from");
        assert_eq!(unpack(b"", 0).as_deref(), Some(&b""[..]));
    }
}
