//! The types of values: pure data structures that know no key, no clock and no client.

pub mod bits;
pub mod hash;
pub mod int_set;
pub mod packed;
pub mod set;
pub mod small_bytes;
pub mod string;
