//! The types of values: pure data structures that know no key, no clock and no client.

pub mod bits;
pub(crate) mod deadlines;
pub(crate) mod gcra;
pub(crate) mod geo;
pub(crate) mod hash;
pub mod hyperloglog;
pub(crate) mod int_set;
pub(crate) mod lcs;
pub(crate) mod leb128;
pub(crate) mod list;
pub mod packed;
pub(crate) mod set;
pub(crate) mod small_bytes;
pub mod stream;
pub(crate) mod string;
pub(crate) mod thin_bytes;
pub(crate) mod zset;
