//! KEYS and ARGV: a script's keys and arguments.
//!
//! Two new tables for each call would cost as much as a short script. So the globals are tables shared by all scripts,
//! and only elements that differ from the previous call are set. A script that might change or keep the tables gets its
//! own.

use std::ffi::c_int;
use std::rc::Rc;

use super::lua::Stack;
use super::memory::Memory;
use crate::base::limits::{SCRATCH_KEEP_BYTES, SCRIPT_LIST_KEEP_ELEMENTS, SCRIPT_LIST_KNOWN_ELEMENTS};
use crate::resp::request::Argv;

/// One of the global lists, with the stack indices of its name and its shared table. The shared table serves all
/// scripts that can neither change nor keep it; others get a table of their own.
pub(super) struct List {
    pub(super) name: &'static [u8],
    pub(super) key: c_int,
    pub(super) table: c_int,
    /// The index of the globals.
    pub(super) env: c_int,
}

#[derive(Default)]
pub(super) struct ListState {
    /// Whether the global is the shared table.
    is_shared: bool,
    /// Number of elements in the shared table.
    len: usize,
    /// Its first elements. Repeated ones, such as a limit or the only gate of a program, need not be created again.
    known: [Known; SCRIPT_LIST_KNOWN_ELEMENTS],
}

/// An element of a shared table, if it is short.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    /// The length plus one; 0 if the element is not known.
    len_and_one: u8,
    bytes: [u8; 31],
}

impl Known {
    #[inline]
    fn is(&self, bytes: &[u8]) -> bool {
        usize::from(self.len_and_one) == bytes.len() + 1 && self.bytes[..bytes.len()] == *bytes
    }

    #[inline]
    fn note(&mut self, bytes: &[u8]) {
        self.len_and_one = 0;
        if let Some(room) = self.bytes.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.len_and_one = bytes.len() as u8 + 1;
        }
    }
}

/// Sets one of the global lists. May raise for lack of memory.
#[inline]
pub(super) fn set_list(
    stack: Stack<'_>,
    memory: &Rc<Memory>,
    list: &List,
    elements: Argv<'static>,
    shared: &mut ListState,
    may_keep: bool,
) {
    if may_keep || elements.len() > SCRIPT_LIST_KEEP_ELEMENTS || elements.bytes() > SCRATCH_KEEP_BYTES {
        shared.is_shared = false;
        stack.push_value(list.key);
        push_list(stack, elements);
        return memory.granted(|| stack.raw_set(list.env));
    }
    if !shared.is_shared {
        stack.push_value(list.key);
        stack.push_value(list.table);
        memory.granted(|| stack.raw_set(list.env));
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
