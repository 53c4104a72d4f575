//! The types of values: pure data structures that know no key, no clock and no client.

pub mod geo;
pub mod packed;
pub mod zset;
