//! Read-only tables for scripts.
//!
//! LuaJIT has no read-only flag, and `__newindex` does not guard a slot that is filled. So each protected table is an
//! *empty* stand-in whose metatable has `__index` = the real table and `__newindex` = refusal. The real table is never
//! handed out. `__newindex` guards assignments. The functions that write without metamethods (`rawset`, `setmetatable`,
//! `table.insert`) are our own and refuse stand-ins; those that read without (`rawget`, `next`, `pairs`,
//! `table.foreach`) look behind them. A stand-in is recognized by a key of its metatable that no script can make
//! ([`MARK`]).

use std::ffi::c_int;

use super::context::Ctx;
use super::interrupt::library;
use super::lua::{Kind, Stack};

/// The key of the real table in a stand-in's metatable. Its address is unknown to scripts.
pub(super) static MARK: [u8; 1] = [0];
/// The key of the result of `getmetatable` in a stand-in's metatable.
pub(super) static SHOWN: [u8; 1] = [0];

pub(super) fn push_key(stack: Stack<'_>, key: &'static [u8; 1]) {
    stack.push_light(key.as_ptr().cast_mut().cast());
}

/// Replaces the table on top by its stand-in.
pub(super) fn protect(stack: Stack<'_>, ctx: *mut Ctx) {
    let real = stack.top();
    stack.new_table(0, 0);
    stack.new_table(0, 4);
    let meta = stack.top();
    stack.push_value(real);
    stack.raw_set_field(meta, b"__index");
    stack.push_function(ctx, refuse_assignment);
    stack.raw_set_field(meta, b"__newindex");
    stack.push_boolean(false);
    stack.raw_set_field(meta, b"__metatable");
    push_key(stack, &MARK);
    stack.push_value(real);
    stack.raw_set(meta);
    stack.set_metatable(-2);
    stack.remove(real);
}

/// Pushes the table behind the stand-in at `i`. Returns false, with nothing pushed, if there is no stand-in.
pub(super) fn push_real(stack: Stack<'_>, i: c_int) -> bool {
    if stack.kind(i) != Kind::Table || !stack.push_metatable(i) {
        return false;
    }
    push_key(stack, &MARK);
    stack.raw_get(-2);
    stack.remove(-2);
    if stack.kind(-1) == Kind::Table {
        return true;
    }
    stack.pop(1);
    false
}

/// Replaces a stand-in at `i` by the real table. The caller must not let it reach the script.
pub(super) fn unwrap_stand_in(stack: Stack<'_>, i: c_int) {
    if push_real(stack, i) {
        stack.replace(i);
    }
}

pub(super) fn refuse_protected(stack: Stack<'_>, i: c_int) {
    if push_real(stack, i) {
        stack.push_bytes(b"Attempt to modify a readonly table");
        stack.raise_top();
    }
}

library! {
    /// `__newindex` of every stand-in.
    fn refuse_assignment(stack: Stack) -> c_int {
        stack.raise(b"Attempt to modify a readonly table")
    }
}
