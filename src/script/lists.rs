//! KEYS and ARGV: a script's keys and arguments.
//!
//! Two new tables for each call would cost as much as a short script. So the globals are tables shared by all scripts,
//! and only elements that differ from the previous call are set. A script that might change or keep the tables gets its
//! own.

use std::ffi::c_int;

use super::convert;
use super::list_state::{Known, ListState};
use super::lua::{Stack, upvalue};
use crate::base::limits::SCRATCH_KEEP_BYTES;
use crate::resp::request::Argv;
use crate::script::limits::SCRIPT_LIST_KEEP_ELEMENTS;

// Upvalues of `enter`, after those for conversion.
const ENV: c_int = upvalue(convert::UPVALUES + 1);
pub(super) const LISTS: [List; 2] = [
    List { name: b"KEYS", key: upvalue(convert::UPVALUES + 2), table: upvalue(convert::UPVALUES + 4) },
    List { name: b"ARGV", key: upvalue(convert::UPVALUES + 3), table: upvalue(convert::UPVALUES + 5) },
];

/// One of the global lists, with the stack indices of its name and its shared table. The shared table serves all
/// scripts that can neither change nor keep it; others get a table of their own.
pub(super) struct List {
    pub(super) name: &'static [u8],
    key: c_int,
    table: c_int,
}

/// Sets one of the global lists. May raise for lack of memory.
#[inline]
pub(super) fn set_list(stack: Stack<'_>, list: &List, elements: Argv<'static>, shared: &mut ListState, may_keep: bool) {
    if may_keep || elements.len() > SCRIPT_LIST_KEEP_ELEMENTS || elements.bytes() > SCRATCH_KEEP_BYTES {
        shared.is_shared = false;
        stack.push_value(list.key);
        push_list(stack, elements);
        return stack.memory().granted(|| stack.raw_set(ENV));
    }
    if !shared.is_shared {
        stack.push_value(list.key);
        stack.push_value(list.table);
        stack.memory().granted(|| stack.raw_set(ENV));
        shared.is_shared = true;
    }
    // Until all elements are set: an error on the way leaves the table in an unknown state.
    let held = std::mem::replace(&mut shared.len, SCRIPT_LIST_KEEP_ELEMENTS);
    for (i, bytes) in elements.iter().enumerate() {
        let known = shared.known.get_mut(i);
        if known.as_ref().is_some_and(|known| known.is(bytes)) {
            continue;
        }
        stack.push_bytes(bytes);
        stack.raw_set_at(list.table, i as c_int + 1);
        known.into_iter().for_each(|known| known.note(bytes));
    }
    for i in elements.len()..held {
        stack.push_nil();
        stack.raw_set_at(list.table, i as c_int + 1);
        shared.known.get_mut(i).into_iter().for_each(|known| *known = Known::default());
    }
    shared.len = elements.len();
}

#[inline]
pub(super) fn push_list(stack: Stack<'_>, list: Argv<'static>) {
    stack.new_table(list.len(), 0);
    for (i, bytes) in list.iter().enumerate() {
        stack.push_bytes(bytes);
        stack.raw_set_at(-2, i as c_int + 1);
    }
}
