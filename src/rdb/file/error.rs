//! The errors of reading a file.

use std::io;

use crate::base::excerpt;
use crate::rdb::limits::RDB_VALUE_MAX_BYTES;
use crate::rdb::types::{NEWEST_VALKEY_VERSION, NEWEST_VERSION};

/// An error that ends the reading of a file. Offsets are bytes from its beginning.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system or the network fails to deliver more of it.
    #[error("reading failed at offset {offset}: {source}")]
    Io {
        /// The offset that reading had reached.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// The file begins with something other than `REDIS` or `VALKEY`.
    #[error("not in RDB format: it begins with \"{}\"", start.escape_ascii())]
    NotRdb {
        /// The first bytes of the file.
        start: Vec<u8>,
    },
    /// The file's version is not supported.
    #[error(
        "version {magic} {version} is not supported, only REDIS up to {NEWEST_VERSION} and VALKEY up to \
         {NEWEST_VALKEY_VERSION}"
    )]
    Version {
        /// `REDIS` or `VALKEY`.
        magic: &'static str,
        /// The version.
        version: u16,
    },
    /// The file contains a kind of data that is known but cannot be read.
    #[error("unsupported data at offset {offset}: {what}")]
    Foreign {
        /// The position of the data.
        offset: u64,
        /// A description of the data.
        what: &'static str,
    },
    /// The file ends too early.
    #[error("cut off at offset {offset}")]
    CutOff {
        /// The offset at which it ends.
        offset: u64,
    },
    /// The content is invalid.
    #[error("damaged at offset {offset}: {what}")]
    Damaged {
        /// The position of the damage.
        offset: u64,
        /// A description of the damage.
        what: &'static str,
    },
    /// A value of a kind that does not exist here.
    #[error(
        "the key \"{}\" at offset {offset} has type {code}, {what}; delete or omit that key and write the file again",
        excerpt::of_bytes(key)
    )]
    Type {
        /// The key of the value.
        key: Vec<u8>,
        /// The code of its type.
        code: u8,
        /// The start of the key's entry.
        offset: u64,
        /// The meaning of the code.
        what: String,
    },
    /// A value larger than RESTORE would accept.
    #[error(
        "the value of the key \"{}\" at offset {offset} has more than {RDB_VALUE_MAX_BYTES} bytes",
        excerpt::of_bytes(key)
    )]
    TooLong {
        /// The key of the value.
        key: Vec<u8>,
        /// The start of the key's entry.
        offset: u64,
    },
    /// The bytes do not match the checksum.
    #[error("CRC error: the checksum is wrong, so the data before offset {offset} cannot be trusted")]
    Checksum {
        /// The position of the checksum.
        offset: u64,
    },
}
