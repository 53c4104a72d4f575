//! RDB: values as Redis writes them to disk and into DUMP payloads.
//!
//! [`value`] turns one value into bytes and back; the frame around it (a payload here, a whole [`mod@file`]) is not its
//! concern. Values are written as Redis 7.0 does, so that every later Redis can read them. Everything that Redis 2.6 to
//! 8 and Valkey up to 9 wrote can be read, in all representations that these versions had. [`libraries`] does the same
//! for function libraries.
//!
//! # Payload
//!
//! ```text
//! type, value, version (2 bytes), CRC64 of all before it (8 bytes)        numbers little-endian
//! ```
//!
//! # Trust
//! The input may come from anyone. No memory is allocated for a length that is merely declared. Every structure is
//! checked to its last byte before a value is made of it, and leftover bytes, duplicates and empty collections are
//! refused. Packed strings may unpack to [`RDB_UNPACKED_MAX_BYTES`] in all.
//!
//! Sources of the layouts: the RDB format manual by S. Sripathi Krishnan ("Redis RDB Dump File Format"), and payloads
//! made by redis-server.

pub mod file;
mod grants;
mod intset;
pub mod libraries;
pub mod limits;
mod listpack;
mod lzf;
mod stream;
mod types;
pub(crate) mod value;
pub(crate) mod wire;
mod ziplist;

use crate::base::crc::crc64;
use crate::keyspace::ValueLimits;
use crate::keyspace::any_value::{Value, ValueRef};
use crate::rdb::limits::RDB_UNPACKED_MAX_BYTES;
pub use types::{
    Dialect, NEWEST_VALKEY_VERSION, NEWEST_VERSION, OLDEST_VALKEY_VERSION, VERSION, VERSION_OF_EXPIRING_FIELDS,
};
pub use wire::Corrupt;
use wire::Input;

/// Bytes behind the value: the version and the checksum.
const FOOTER_BYTES: usize = 10;

/// The refusal of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The version is too new, or the checksum is wrong.
    #[error("DUMP payload version or checksum are wrong")]
    Envelope,
    /// The content is not a known value.
    #[error("Bad data format")]
    Content,
}

/// The payload of a value, as DUMP returns it.
pub fn dump(value: ValueRef<'_>) -> Vec<u8> {
    let mut out = content(value);
    seal(&mut out, value::version_of(value::type_code(value)));
    out
}

/// Bytes of a value in such a payload, not counting type and footer.
pub fn serialized_len(value: ValueRef<'_>) -> usize {
    content(value).len() - size_of::<u8>()
}

/// A type followed by its value.
fn content(value: ValueRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    value::put_own_part(value, &mut out);
    if out.is_empty() {
        out.push(value::type_code(value));
    }
    value::encode(value, &mut out);
    out
}

/// Completes a payload with its version and checksum.
pub fn seal(payload: &mut Vec<u8>, version: u16) {
    payload.extend_from_slice(&version.to_le_bytes());
    payload.extend_from_slice(&crc64(payload).to_le_bytes());
}

/// Returns a payload's version and its content (a type and a value, or libraries), if the checksum is right.
pub fn open(payload: &[u8]) -> Option<(u16, &[u8])> {
    let (version, content, sum) = split(payload)?;
    let is_whole = crc64(&payload[..payload.len() - size_of_val(&sum)]) == sum;
    is_whole.then_some((version, content))
}

/// The version, the content, and the checksum that the payload claims.
fn split(payload: &[u8]) -> Option<(u16, &[u8], u64)> {
    let (content, footer) = payload.split_last_chunk::<FOOTER_BYTES>()?;
    let [low, high, sum @ ..] = *footer;
    Some((u16::from_le_bytes([low, high]), content, u64::from_le_bytes(sum)))
}

/// The value of a payload, as RESTORE reads it. `limits` determine its representation.
pub fn load(payload: &[u8], limits: &ValueLimits) -> Result<Value, Refused> {
    load_opened(open(payload), limits)
}

/// Like [`load`], but ignores the checksum, so that tests can see the checks behind it.
pub fn load_unchecked(payload: &[u8], limits: &ValueLimits) -> Result<Value, Refused> {
    load_opened(split(payload).map(|(version, content, _)| (version, content)), limits)
}

fn load_opened(opened: Option<(u16, &[u8])>, limits: &ValueLimits) -> Result<Value, Refused> {
    let (version, content) = opened.ok_or(Refused::Envelope)?;
    let dialect = Dialect::of_version(version).ok_or(Refused::Envelope)?;
    let (code, value) = content.split_first().ok_or(Refused::Content)?;
    load_value(dialect, *code, value, limits).map_err(|Corrupt| Refused::Content)
}

/// The value that follows its type code. `limits` determine its representation.
pub fn load_value(dialect: Dialect, code: u8, bytes: &[u8], limits: &ValueLimits) -> Result<Value, Corrupt> {
    let mut input = Input::new(bytes, RDB_UNPACKED_MAX_BYTES);
    let value = value::decode(types::known(dialect, code).ok_or(Corrupt)?, &mut input, limits)?;
    if input.is_empty() { Ok(value) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests;
