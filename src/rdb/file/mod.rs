//! Files: a whole keyspace as RDB, as in a `dump.rdb` or in the data that a primary sends to a replica.
//!
//! ```text
//! file     = magic, item*, 0xff, CRC64 of all before it (8; all zeros: not computed; absent before version 5)
//! magic    = "REDIS", version in 4 digits | "VALKEY", version in 3 digits
//! item     = 0xfa, name, text                            a note about the file, such as its writer
//!          | 0xfe, number                                the database of the keys that follow
//!          | 0xfb, keys, keys that expire                the numbers of these keys
//!          | 0xf4, slot, keys, keys that expire          likewise for a slot of a cluster
//!          | 0xf3, job, ranges, (first, last)*           Valkey: slots being moved to another node
//!          | 0xf5, text                                  a library of functions
//!          | 0xf7, module, 2, when, marked*, 0           data of a module outside the keys
//!          | about*, type (1), key, value
//! about    = 0xfc, Unix time in ms (8) | 0xfd, Unix time in s (4)   when the key expires
//!          | 0xf8, seconds | 0xf9, frequency (1)         its idle time, or how often it is used
//! marked   = 1, number | 2, number | 3, 4 bytes | 4, 8 bytes | 5, string
//! ```
//!
//! Names, texts and keys are strings of RDB, and numbers its lengths (see [`wire`](super::wire)).
//!
//! [`Reader`] takes a file apart as it arrives and holds one key with its value at a time, in the form it has in the
//! file. [`load_value`](super::load_value) turns it into a value, [`KeyRecord::payload`] into a payload for RESTORE.
//! [`Writer`] goes the other way. Neither knows of keyspaces or servers.
//!
//! Sources of the layout: the RDB format manual (see [`rdb`](super)), and files made by the servers.

mod error;
mod opcode;
mod reader;
mod shape;
mod source;
mod writer;

pub use error::FileError;
pub use reader::{KeyRecord, Reader, Record};
pub use writer::Writer;

/// The name of the note that holds the last fencing token given out by a server of this kind.
pub const TOKENS_NOTE: &str = "tidegate-tokens";

#[cfg(test)]
mod tests;
