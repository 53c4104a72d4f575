//! What can be wrong with a file.

use std::io;

use crate::base::excerpt;
use crate::base::limits::RDB_VALUE_MAX_BYTES;
use crate::rdb::types::{NEWEST_VALKEY_VERSION, NEWEST_VERSION};

/// Why a file can't be read on. Offsets are bytes from its beginning.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system or the network does not give more of it.
    #[error("it can't be read at offset {offset}: {source}")]
    Io {
        /// How far reading came.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// It begins with something else than `REDIS` or `VALKEY`.
    #[error("it is no RDB: it begins with \"{}\"", start.escape_ascii())]
    NotRdb {
        /// Its first bytes.
        start: Vec<u8>,
    },
    /// It was written by a version to come.
    #[error(
        "its version, {magic} {version}, is not known here; versions of REDIS up to {NEWEST_VERSION} and of VALKEY up to \
         {NEWEST_VALKEY_VERSION} are"
    )]
    Version {
        /// `REDIS` or `VALKEY`.
        magic: &'static str,
        /// The version.
        version: u16,
    },
    /// Something in it is known by its number only.
    #[error("at offset {offset} stands {what}")]
    Foreign {
        /// Where.
        offset: u64,
        /// What.
        what: &'static str,
    },
    /// It ends too early.
    #[error("it ends in the middle, at offset {offset}")]
    CutOff {
        /// Where it ends.
        offset: u64,
    },
    /// Something in it can't be.
    #[error("it is damaged at offset {offset}: {what}")]
    Damaged {
        /// Where.
        offset: u64,
        /// What.
        what: &'static str,
    },
    /// A value of a kind that does not exist here.
    #[error(
        "the key \"{}\" at offset {offset} has type {code}, {what}; delete it there, or leave it out, and write the file again",
        excerpt::of_bytes(key)
    )]
    Type {
        /// Whose value it is.
        key: Vec<u8>,
        /// The number of its type.
        code: u8,
        /// Where the key's entry begins.
        offset: u64,
        /// What the number means.
        what: String,
    },
    /// A value beyond what RESTORE would take.
    #[error(
        "the value of the key \"{}\" at offset {offset} has more than {RDB_VALUE_MAX_BYTES} bytes",
        excerpt::of_bytes(key)
    )]
    TooLong {
        /// Whose value it is.
        key: Vec<u8>,
        /// Where the key's entry begins.
        offset: u64,
    },
    /// Its bytes are not those that were summed.
    #[error("CRC error, its checksum is wrong: what was read up to offset {offset} can't be trusted")]
    Checksum {
        /// Where the checksum stands.
        offset: u64,
    },
}
