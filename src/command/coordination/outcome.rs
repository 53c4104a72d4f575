//! The form of these commands' replies: first the outcome, as an integer, then named fields, which are a map in RESP3
//! and alternate with their names in RESP2. A program that only wants the outcome reads the first element in both.

use crate::resp::reply::Reply;

/// Begins a reply; the caller then writes a name and a value for each of its `fields`.
pub(super) fn begin(reply: &mut Reply, outcome: i64, fields: usize) {
    if reply.is_resp3() {
        reply.array(2);
        reply.integer(outcome);
        reply.map(fields);
    } else {
        reply.array(1 + 2 * fields);
        reply.integer(outcome);
    }
}

/// Writes a field with a number.
#[inline(always)]
pub(super) fn number(reply: &mut Reply, name: &'static str, value: i64) {
    reply.integer_field(name, value);
}
