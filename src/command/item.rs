//! An element of a collection in a reply.

use crate::resp::reply::Reply;
use crate::value::packed::Item;

/// Writes an element as a bulk string.
#[inline]
pub(super) fn bulk_item(reply: &mut Reply, item: Item<'_>) {
    match item {
        Item::Int(value) => reply.bulk_integer(value),
        Item::Bytes(bytes) => reply.bulk(bytes),
    }
}
