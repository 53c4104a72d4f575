//! The types of values: pure data structures that know no key, no clock and no client.

pub mod bits;
pub mod deadlines;
pub mod gcra;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod int_set;
pub mod lcs;
pub mod leb128;
pub mod list;
pub mod packed;
pub mod set;
pub mod small_bytes;
pub mod stream;
pub mod string;
pub mod thin_bytes;
pub mod zset;
