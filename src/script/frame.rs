//! Position in a Lua value that is being written as a reply: one frame for each open table.
//!
//! The frames are kept in a vector, not on the C stack: scripts may return tables that nest thousands deep or contain
//! themselves.

use std::ffi::c_int;

use super::lua::Stack;
use super::luajit::Walk;

/// An aggregate being written.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) at: Place,
    /// Number of values that Redis would have on its Lua stack, this aggregate included.
    pub(super) depth: u32,
}

impl Frame {
    /// The depth including the next value of this aggregate.
    pub(super) fn depth_of_value(&self) -> u32 {
        self.depth
            + match self.at {
                Place::Array { .. } => 1,
                Place::MapValue(_) => 4,
                Place::MapKey(_) | Place::Set(_) => 3,
            }
    }
}

/// The next part of an aggregate. Its table lies on Lua's stack; for maps and sets, the current key lies above it.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// The index of the next element, and the number of elements.
    Array { next: c_int, n: c_int },
    /// The next key.
    MapKey(Walk),
    /// The value of that key, which is on top.
    MapValue(Walk),
    /// The next member.
    Set(Walk),
}

/// Brings the next value of the innermost aggregate to the top. Returns false at its end, with only its table left.
#[inline]
pub(super) fn advance(stack: Stack<'_>, at: &mut Place) -> bool {
    match *at {
        Place::Array { next, n } => {
            if next > n {
                return false;
            }
            stack.raw_get_at(-1, next);
            *at = Place::Array { next: next + 1, n };
        }
        Place::MapKey(mut walk) => {
            if walk.next(stack).is_none() {
                return false;
            }
            stack.insert(-2);
            *at = Place::MapValue(walk);
        }
        Place::MapValue(walk) => *at = Place::MapKey(walk),
        Place::Set(mut walk) => {
            if walk.next(stack).is_none() {
                return false;
            }
            stack.pop(1);
            *at = Place::Set(walk);
        }
    }
    true
}
