//! The value types. Pure data structures: no clock, no key, no server.

pub mod bits;
pub mod hash;
pub mod int_set;
pub mod packed;
pub mod set;
pub mod small_bytes;
pub mod string;
