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

/// How a value is laid out in memory, as far as clients can see it by OBJECT ENCODING or by the order of members. It follows
/// from what happened to the value and from the limits at that time, so it can't be found out from the value alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As one block: a string as it was stored, a list of one node, a packed hash, set or sorted set. Of a stream: the only one.
    Compact,
    /// A set of integers in their order.
    Integers,
    /// For editing and for many elements: a string with room to grow, a list of nodes, a table, a tree.
    Large,
}
