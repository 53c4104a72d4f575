//! The payload of FUNCTION DUMP, which FUNCTION RESTORE reads: that of Redis, so that libraries can move both ways.
//!
//! Each library is a byte 0xF5 and its text as a string of Redis' snapshot format (RDB); then come the format's version (two
//! bytes) and a CRC64 of all before it (eight bytes), both little-endian. A string is a length and its bytes; the two highest
//! bits of the first byte say how long the length is, or that an integer or a text compressed by LZF follows. Texts are
//! written plain and read in every form.

use crate::base::crc::crc64;

/// The format of Redis 7.0, which every later one reads.
const VERSION_WRITTEN: u16 = 10;
/// The format of Redis 8.
const VERSION_MAX: u16 = 12;
const LIBRARY: u8 = 0xf5;
const LIBRARY_BEFORE_RELEASE: u8 = 0xf6;

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// It is no payload, or damaged, or of a later format.
    #[error("ERR DUMP payload version or checksum are wrong")]
    Footer,
    /// It holds something else than libraries.
    #[error("ERR given type is not a function")]
    Kind,
    /// It holds libraries as a preview of Redis 7 wrote them.
    #[error("ERR Failed loading library name")]
    Preview,
    /// A text is cut off or badly compressed.
    #[error("ERR Failed loading library payload")]
    Text,
}

/// The payload of libraries with these texts.
pub fn write<'l>(texts: impl Iterator<Item = &'l [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for text in texts {
        out.push(LIBRARY);
        match text.len() {
            len @ 0..0x40 => out.push(len as u8),
            len @ 0x40..0x4000 => out.extend([0x40 | (len >> 8) as u8, len as u8]),
            len => {
                out.push(0x80);
                // Arguments of a command are far shorter than 4 GiB.
                out.extend((len as u32).to_be_bytes());
            }
        }
        out.extend(text);
    }
    out.extend(VERSION_WRITTEN.to_le_bytes());
    out.extend(crc64(&out).to_le_bytes());
    out
}

/// The texts of the libraries in a payload.
pub fn read(payload: &[u8]) -> Result<Vec<Vec<u8>>, DumpError> {
    let (sealed, sum) = payload.split_last_chunk::<8>().ok_or(DumpError::Footer)?;
    let (body, version) = sealed.split_last_chunk::<2>().ok_or(DumpError::Footer)?;
    if u16::from_le_bytes(*version) > VERSION_MAX || u64::from_le_bytes(*sum) != crc64(sealed) {
        return Err(DumpError::Footer);
    }
    let mut rest = body;
    let mut texts = Vec::new();
    while let Some((&kind, behind)) = rest.split_first() {
        match kind {
            LIBRARY => rest = behind,
            LIBRARY_BEFORE_RELEASE => return Err(DumpError::Preview),
            _ => return Err(DumpError::Kind),
        }
        texts.push(read_string(&mut rest).ok_or(DumpError::Text)?);
    }
    Ok(texts)
}

/// A length, or which special form follows.
enum Head {
    Len(u64),
    Special(u8),
}

fn read_head(rest: &mut &[u8]) -> Option<Head> {
    let first = *take(rest, 1)?.first()?;
    Some(match first >> 6 {
        0 => Head::Len(u64::from(first)),
        1 => Head::Len(u64::from(first & 0x3f) << 8 | u64::from(*take(rest, 1)?.first()?)),
        2 if first == 0x80 => Head::Len(u64::from(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?))),
        2 if first == 0x81 => Head::Len(u64::from_be_bytes(take(rest, 8)?.try_into().ok()?)),
        2 => return None,
        _ => Head::Special(first & 0x3f),
    })
}

fn read_len(rest: &mut &[u8]) -> Option<u64> {
    match read_head(rest)? {
        Head::Len(len) => Some(len),
        Head::Special(_) => None,
    }
}

fn read_string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    match read_head(rest)? {
        Head::Len(len) => Some(take(rest, len)?.to_vec()),
        Head::Special(0) => Some(i8::from_le_bytes(take(rest, 1)?.try_into().ok()?).to_string().into_bytes()),
        Head::Special(1) => Some(i16::from_le_bytes(take(rest, 2)?.try_into().ok()?).to_string().into_bytes()),
        Head::Special(2) => Some(i32::from_le_bytes(take(rest, 4)?.try_into().ok()?).to_string().into_bytes()),
        Head::Special(3) => {
            let (packed, len) = (read_len(rest)?, read_len(rest)?);
            unpack(take(rest, packed)?, usize::try_from(len).ok()?)
        }
        Head::Special(_) => None,
    }
}

fn take<'b>(rest: &mut &'b [u8], n: u64) -> Option<&'b [u8]> {
    let (taken, behind) = rest.split_at_checked(usize::try_from(n).ok()?)?;
    *rest = behind;
    Some(taken)
}

/// Unpacks LZF: a byte below 32 is followed by that many bytes and one as they are; another one copies what was written
/// before: its high three bits are the length, with 7 for "and the next byte", plus 2; the other bits and a byte are the
/// distance, less 1. Answers `None` unless exactly `len` bytes come out.
fn unpack(mut packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::new();
    while let Some((&control, behind)) = packed.split_first() {
        packed = behind;
        if control < 32 {
            out.extend_from_slice(take(&mut packed, u64::from(control) + 1)?);
        } else {
            let mut run = usize::from(control >> 5) + 2;
            if run == 9 {
                run += usize::from(*take(&mut packed, 1)?.first()?);
            }
            let distance = usize::from(control & 31) << 8 | usize::from(*take(&mut packed, 1)?.first()?);
            let from = out.len().checked_sub(distance + 1)?;
            // The copy may overlap what it writes.
            (from..from + run).for_each(|i| out.push(out[i]));
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seal(body: &[u8]) -> Vec<u8> {
        let mut out = body.to_vec();
        out.extend(VERSION_WRITTEN.to_le_bytes());
        out.extend(crc64(&out).to_le_bytes());
        out
    }

    #[test]
    fn payloads_of_redis_are_read() {
        // What Redis 7.0.15 sums for no libraries.
        assert_eq!(write([].into_iter()), b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda");
        // `aaaaaaaaaa`: one byte as it is, then nine copied.
        assert_eq!(read(&seal(b"\xf5\xc3\x05\x0a\x00a\xe0\x00\x00")), Ok(vec![b"aaaaaaaaaa".to_vec()]));
        assert_eq!(read(&seal(b"\xf5\xc0\x05\xf5\xc1\xff\xff")), Ok(vec![b"5".to_vec(), b"-1".to_vec()]));
        for (body, error) in [
            (b"\xf5".as_slice(), DumpError::Text),
            (b"\xf5\xc4", DumpError::Text),
            (b"\xf5\x80\xff\xff\xff\xff", DumpError::Text),
            (b"\xf5\xc3\x05\x0b\x00a\xe0\x00\x00", DumpError::Text),
            (b"\xf5\xc3\x02\x0a\x20\x00", DumpError::Text),
            (b"\x00\x01a", DumpError::Kind),
            (b"\xf6", DumpError::Preview),
        ] {
            assert_eq!(read(&seal(body)), Err(error), "{}", body.escape_ascii());
        }
        assert_eq!(read(b"bad_payload"), Err(DumpError::Footer));
        assert_eq!(read(b""), Err(DumpError::Footer));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20_000), 0..4)) {
            prop_assert_eq!(read(&write(texts.iter().map(Vec::as_slice))), Ok(texts));
        }

        #[test]
        fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&seal(&[b"\xf5\xc3".as_slice(), &body].concat()));
            let _ = read(&seal(&body));
            let _ = read(&body);
        }
    }
}
