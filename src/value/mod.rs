//! The types of values: pure data structures that know no key, no clock and no client.

pub mod hash;
pub mod packed;
pub mod small_bytes;
