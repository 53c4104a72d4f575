//! The types of values: pure data structures that know no key, no clock and no client.

pub mod bits;
pub(crate) mod block;
pub(crate) mod deadlines;
pub(crate) mod gcra;
pub(crate) mod geo;
pub mod grants;
pub(crate) mod hash;
pub mod hyperloglog;
pub(crate) mod int_set;
pub(crate) mod lcs;
pub(crate) mod leb128;
pub mod limits;
pub(crate) mod list;
pub(crate) mod one_word;
pub mod packed;
pub(crate) mod set;
pub(crate) mod small_bytes;
pub mod stock;
pub mod stream;
pub(crate) mod string;
pub(crate) mod thin_bytes;
pub(crate) mod zset;

/// The memory layout of a value, as far as clients can see it in OBJECT ENCODING or in the order of members. The layout
/// depends on the value's history and on the limits in force at the time, so it cannot be derived from the value alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One block: a string as it was stored, a list of one node, or a packed hash, set or sorted set. The only layout
    /// of a stream.
    Compact,
    /// A set of integers in ascending order.
    Integers,
    /// Built for editing and for many elements: a string with room to grow, a list of nodes, a table, a tree.
    Large,
}
