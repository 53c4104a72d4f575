//! Files: a whole keyspace as RDB, which is what a `dump.rdb` is and what a primary sends to a replica.
//!
//! ```text
//! file     = magic, item*, 0xff, CRC64 of all before it (8; all zeros: not computed; absent before version 5)
//! magic    = "REDIS", version in 4 digits | "VALKEY", version in 3 digits
//! item     = 0xfa, name, text                            a note about the file, such as who wrote it
//!          | 0xfe, number                                the database of the keys that follow
//!          | 0xfb, keys, keys that expire                how many of them there are
//!          | 0xf4, slot, keys, keys that expire          the same of a slot of a cluster
//!          | 0xf3, job, ranges, (first, last)*           Valkey: slots that were on their way to another node
//!          | 0xf5, text                                  a library of functions
//!          | 0xf7, module, 2, when, marked*, 0           what a module keeps beside the keys
//!          | about*, type (1), key, value
//! about    = 0xfc, Unix time in ms (8) | 0xfd, Unix time in s (4)   when the key expires
//!          | 0xf8, seconds | 0xf9, frequency (1)         how long it was not used, or how often
//! marked   = 1, number | 2, number | 3, 4 bytes | 4, 8 bytes | 5, string
//! ```
//!
//! Names, texts and keys are strings of RDB, and numbers its lengths (see [`wire`](super::wire)).
//!
//! [`Reader`] takes a file apart as it comes in and holds one key with its value at a time, the value as it stands in the file:
//! [`load_value`](super::load_value) makes a value of it, or [`KeyRecord::payload`] what RESTORE takes. [`Writer`] goes the
//! other way. Neither knows of keyspaces or servers.
//!
//! Source of the layout: the manual of the RDB format (see [`rdb`](super)), and files that the servers made.

mod reader;
mod shape;
mod source;
mod writer;

use std::io;

pub use reader::{KeyRecord, Reader, Record};
pub use writer::Writer;

/// What stands where a type could stand, but is none.
mod opcode {
    /// Valkey: slots on their way from node to node.
    pub(super) const SLOT_IMPORT: u8 = 0xf3;
    pub(super) const SLOT_INFO: u8 = 0xf4;
    pub(super) const LIBRARY: u8 = 0xf5;
    /// A library as the release candidates of Redis 7.0 wrote it.
    pub(super) const LIBRARY_PREVIEW: u8 = 0xf6;
    pub(super) const MODULE_AUX: u8 = 0xf7;
    pub(super) const IDLE: u8 = 0xf8;
    pub(super) const FREQ: u8 = 0xf9;
    pub(super) const AUX: u8 = 0xfa;
    pub(super) const RESIZE_DB: u8 = 0xfb;
    pub(super) const EXPIRES_AT_MS: u8 = 0xfc;
    pub(super) const EXPIRES_AT_S: u8 = 0xfd;
    pub(super) const SELECT_DB: u8 = 0xfe;
    pub(super) const END: u8 = 0xff;
}

/// What marks the parts of a module's data.
mod marked {
    pub(super) const END: u64 = 0;
    pub(super) const SIGNED: u64 = 1;
    pub(super) const UNSIGNED: u64 = 2;
    pub(super) const FLOAT: u64 = 3;
    pub(super) const DOUBLE: u64 = 4;
    pub(super) const STRING: u64 = 5;
}

/// The first version that ends with a checksum.
const FIRST_WITH_CHECKSUM: u16 = 5;

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
    #[error("its version, {magic} {version}, is not known here; versions of REDIS up to {redis} and of VALKEY up to {valkey} are",
        redis = super::NEWEST_VERSION, valkey = super::NEWEST_VALKEY_VERSION)]
    Version {
        /// `REDIS` or `VALKEY`.
        magic: &'static str,
        /// The version.
        version: u16,
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
        key.escape_ascii()
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
    #[error("the value of the key \"{}\" at offset {offset} has more than {max} bytes", key.escape_ascii(),
        max = crate::base::limits::RDB_VALUE_MAX_BYTES)]
    TooLong {
        /// Whose value it is.
        key: Vec<u8>,
        /// Where the key's entry begins.
        offset: u64,
    },
    /// Its bytes are not those that were summed.
    #[error("its checksum is wrong: what was read up to offset {offset} can't be trusted")]
    Checksum {
        /// Where the checksum stands.
        offset: u64,
    },
}

#[cfg(test)]
mod tests;
