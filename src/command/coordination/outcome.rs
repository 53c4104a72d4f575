//! The shape in which these commands answer: first how the call went, as an integer, then named fields, which are a map in RESP3 and
//! alternate with their names in RESP2. A program that wants the outcome only reads the first element in both.

use crate::resp::reply::Reply;

/// Begins an answer with so many named fields; a name and a value for each are to follow.
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

/// Answers a field that is a number.
#[inline(always)]
pub(super) fn number(reply: &mut Reply, name: &'static str, value: i64) {
    reply.integer_field(name, value);
}
