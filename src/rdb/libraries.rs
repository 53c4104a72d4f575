//! The payload of FUNCTION DUMP, which FUNCTION RESTORE reads. It has Redis' format, so that function libraries can
//! move both ways.
//!
//! ```text
//! (0xF5, text as a string)*, version, checksum        framed like a value's payload
//! ```

use std::borrow::Cow;

use super::wire::{Input, put_bytes};
use super::{Dialect, VERSION, open, seal};
use crate::rdb::limits::RDB_UNPACKED_MAX_BYTES;

const LIBRARY: u8 = 0xf5;
const LIBRARY_BEFORE_RELEASE: u8 = 0xf6;

/// The refusal of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibrariesError {
    /// Not a payload, or damaged, or of a later format.
    #[error("ERR DUMP payload version or checksum are wrong")]
    Envelope,
    /// Something other than libraries.
    #[error("ERR given type is not a function")]
    Kind,
    /// Libraries as written by a preview of Redis 7.
    #[error("ERR Failed loading library name")]
    Preview,
    /// A text is truncated or badly packed.
    #[error("ERR Failed loading library payload")]
    Text,
}

/// The payload of libraries with these texts.
pub fn dump<'l>(texts: impl Iterator<Item = &'l [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for text in texts {
        out.push(LIBRARY);
        put_bytes(&mut out, text);
    }
    seal(&mut out, VERSION);
    out
}

/// The texts of the libraries in a payload.
pub fn load(payload: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, LibrariesError> {
    let (version, content) = open(payload).ok_or(LibrariesError::Envelope)?;
    Dialect::of_version(version).ok_or(LibrariesError::Envelope)?;
    let mut input = Input::new(content, RDB_UNPACKED_MAX_BYTES);
    let mut texts = Vec::new();
    while let Ok(kind) = input.byte() {
        match kind {
            LIBRARY => texts.push(input.string().map_err(|_| LibrariesError::Text)?),
            LIBRARY_BEFORE_RELEASE => return Err(LibrariesError::Preview),
            _ => return Err(LibrariesError::Kind),
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut out = body.to_vec();
        seal(&mut out, VERSION);
        out
    }

    #[test]
    fn payloads_of_redis_are_read() {
        // The payload that Redis 7.0.15 writes for no libraries.
        assert_eq!(dump([].into_iter()), b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda");
        // `aaaaaaaaaa`: one literal byte, then nine copied ones.
        let packed = sealed(b"\xf5\xc3\x05\x0a\x00a\xe0\x00\x00");
        assert_eq!(load(&packed).unwrap(), [&b"aaaaaaaaaa"[..]]);
        let numbers = sealed(b"\xf5\xc0\x05\xf5\xc1\xff\xff");
        assert_eq!(load(&numbers).unwrap(), [&b"5"[..], b"-1"]);
        for (body, error) in [
            (b"\xf5".as_slice(), LibrariesError::Text),
            (b"\xf5\xc4", LibrariesError::Text),
            (b"\xf5\x80\xff\xff\xff\xff", LibrariesError::Text),
            (b"\xf5\xc3\x05\x0b\x00a\xe0\x00\x00", LibrariesError::Text),
            (b"\xf5\xc3\x02\x0a\x20\x00", LibrariesError::Text),
            (b"\x00\x01a", LibrariesError::Kind),
            (b"\xf6", LibrariesError::Preview),
        ] {
            assert_eq!(load(&sealed(body)), Err(error), "{}", body.escape_ascii());
        }
        assert_eq!(load(b"bad_payload"), Err(LibrariesError::Envelope));
        assert_eq!(load(b""), Err(LibrariesError::Envelope));
    }

    proptest! {
        #[test]
        fn payloads_written_here_are_read(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20_000), 0..4),
        ) {
            let payload = dump(texts.iter().map(Vec::as_slice));
            prop_assert_eq!(load(&payload).unwrap(), texts);
        }

        #[test]
        fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = load(&sealed(&[b"\xf5\xc3".as_slice(), &body].concat()));
            let _ = load(&sealed(&body));
            let _ = load(&body);
        }
    }
}
