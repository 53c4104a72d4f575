//! The identity of a directory.

use std::fmt;

/// Identity of a directory, which each of its files states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DirectoryId([u8; 16]);

impl DirectoryId {
    /// Makes an identity of random bytes.
    pub const fn new(bytes: [u8; 16]) -> DirectoryId {
        DirectoryId(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Parses the output of [`fmt::Display`].
    pub(super) fn parse(text: &str) -> Option<DirectoryId> {
        let bytes = u128::from_str_radix(text, 16).ok()?.to_be_bytes();
        (DirectoryId(bytes).to_string() == text).then_some(DirectoryId(bytes))
    }
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The identity is the key to the checksums, so it must not appear in debugging output.
impl fmt::Debug for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectoryId(..)")
    }
}
