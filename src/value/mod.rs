//! The value types. Pure data structures: no clock, no key, no server.

pub mod small_bytes;
pub mod string;
