//! RDB: values as Redis writes them to disk and into DUMP payloads.
//!
//! [`value`] turns one value into bytes and back; what frames it (a payload here, a whole [`mod@file`]) is not its business. It is
//! written as Redis 7.0 does, so that Redis from 7.0 on reads it. Read is what Redis 2.6 to 8 and Valkey up to 9 wrote: all
//! representations that these versions had. [`libraries`] does so for libraries of functions.
//!
//! # Payload
//!
//! ```text
//! type, value, version (2 bytes), CRC64 of all before it (8 bytes)        numbers little-endian
//! ```
//!
//! # Trust
//! What is read may come from anybody. Nothing is set aside by a length that merely is declared; every structure is checked
//! to its last byte before a value is made of it, and what is left over, appears twice, or has no element is refused.
//! Strings that are packed may become [`RDB_UNPACKED_MAX_BYTES`] in all.
//!
//! Source of the layouts: the manual of the RDB format by S. Sripathi Krishnan ("Redis RDB Dump File Format"), and payloads
//! that redis-server made.

pub mod file;
mod grants;
mod intset;
pub mod libraries;
mod listpack;
mod lzf;
mod stream;
mod types;
pub(crate) mod value;
pub(crate) mod wire;
mod ziplist;

use crate::base::crc::crc64;
use crate::base::limits::RDB_UNPACKED_MAX_BYTES;
use crate::keyspace::ValueLimits;
use crate::keyspace::any_value::{Value, ValueRef};
pub use types::{Dialect, NEWEST_VALKEY_VERSION, NEWEST_VERSION, OLDEST_VALKEY_VERSION};
use wire::Input;

/// The version that is written: that of Redis 7.0.
pub const VERSION: u16 = 10;

/// The version of values that 7.0 does not know: hashes with fields that expire, which came with Redis 7.4.
pub const VERSION_OF_EXPIRING_FIELDS: u16 = 12;

/// Bytes behind the value: version and checksum.
const FOOTER_BYTES: usize = 10;

/// The bytes are no RDB, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data is damaged or of an unknown kind")]
pub struct Corrupt;

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is of a version to come, or its checksum does not fit.
    #[error("DUMP payload version or checksum are wrong")]
    Envelope,
    /// What it holds is no value that is known here.
    #[error("Bad data format")]
    Content,
}

/// The payload of a value, as DUMP answers it.
pub fn dump(value: ValueRef<'_>) -> Vec<u8> {
    let mut out = content(value);
    seal(&mut out, value::version_of(value::type_code(value)));
    out
}

/// Bytes of a value in such a payload, without type and footer.
pub fn serialized_len(value: ValueRef<'_>) -> usize {
    content(value).len() - size_of::<u8>()
}

/// A value behind its type.
fn content(value: ValueRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    value::put_own_part(value, &mut out);
    if out.is_empty() {
        out.push(value::type_code(value));
    }
    value::encode(value, &mut out);
    out
}

/// Ends a payload: version and checksum.
pub fn seal(payload: &mut Vec<u8>, version: u16) {
    payload.extend_from_slice(&version.to_le_bytes());
    payload.extend_from_slice(&crc64(payload).to_le_bytes());
}

/// The version of a payload and what it holds, a type and a value or libraries, if its checksum fits.
pub fn open(payload: &[u8]) -> Option<(u16, &[u8])> {
    let (version, content, sum) = split(payload)?;
    let is_whole = crc64(&payload[..payload.len() - size_of_val(&sum)]) == sum;
    is_whole.then_some((version, content))
}

/// The version, what it holds, and the checksum that it claims.
fn split(payload: &[u8]) -> Option<(u16, &[u8], u64)> {
    let (content, footer) = payload.split_last_chunk::<FOOTER_BYTES>()?;
    let [low, high, sum @ ..] = *footer;
    Some((u16::from_le_bytes([low, high]), content, u64::from_le_bytes(sum)))
}

/// The value of a payload, as RESTORE takes it. `limits` choose its representation.
pub fn load(payload: &[u8], limits: &ValueLimits) -> Result<Value, Refused> {
    load_opened(open(payload), limits)
}

/// The same, whatever its checksum says: so that a test can see what is behind it being refused.
pub fn load_unchecked(payload: &[u8], limits: &ValueLimits) -> Result<Value, Refused> {
    load_opened(split(payload).map(|(version, content, _)| (version, content)), limits)
}

fn load_opened(opened: Option<(u16, &[u8])>, limits: &ValueLimits) -> Result<Value, Refused> {
    let (version, content) = opened.ok_or(Refused::Envelope)?;
    let dialect = Dialect::of_version(version).ok_or(Refused::Envelope)?;
    let (code, value) = content.split_first().ok_or(Refused::Content)?;
    load_value(dialect, *code, value, limits).map_err(|Corrupt| Refused::Content)
}

/// The value that stands behind the number of its type. `limits` choose its representation.
pub fn load_value(dialect: Dialect, code: u8, bytes: &[u8], limits: &ValueLimits) -> Result<Value, Corrupt> {
    let mut input = Input::new(bytes, RDB_UNPACKED_MAX_BYTES);
    let value = value::decode(types::known(dialect, code).ok_or(Corrupt)?, &mut input, limits)?;
    if input.is_empty() { Ok(value) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests;
