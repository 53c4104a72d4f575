//! Functions of `table` that change tables or call back, as C functions that behave as in Lua 5.1. They refuse the
//! stand-ins of read-only tables, or look behind them. `concat` and `maxn` are LuaJIT's; `sort` has its own file.

use std::ffi::c_int;

use super::interrupt::library;
use super::lua::{CFunction, Kind, Stack};
use super::room::check_c_stack;
use super::sort::sort;
use super::stand_in::{refuse_protected, unwrap_stand_in};
use crate::script::limits::SCRIPT_C_STACK_BYTES;

pub(super) const FUNCTIONS: &[(&[u8], CFunction)] = &[
    (b"foreach", foreach),
    (b"foreachi", foreachi),
    (b"getn", getn),
    (b"insert", insert),
    (b"remove", remove),
    (b"setn", setn),
    (b"sort", sort),
];

library! {
    fn foreach(stack: Stack) -> c_int {
        stack.check_table(1);
        stack.check_function(2);
        check_c_stack(stack, SCRIPT_C_STACK_BYTES);
        unwrap_stand_in(stack, 1);
        stack.push_nil();
        while stack.next(1) {
            stack.tick();
            stack.push_value(2);
            stack.push_value(-3);
            stack.push_value(-3);
            stack.call(2, 1);
            if stack.kind(-1) != Kind::Nil {
                return 1;
            }
            stack.pop(2);
        }
        0
    }

    fn foreachi(stack: Stack) -> c_int {
        stack.check_table(1);
        let len = len(stack);
        stack.check_function(2);
        check_c_stack(stack, SCRIPT_C_STACK_BYTES);
        unwrap_stand_in(stack, 1);
        for i in 1..=len {
            stack.tick();
            stack.push_value(2);
            stack.push_number(f64::from(i));
            stack.raw_get_at(1, i);
            stack.call(2, 1);
            if stack.kind(-1) != Kind::Nil {
                return 1;
            }
            stack.pop(1);
        }
        0
    }

    fn getn(stack: Stack) -> c_int {
        stack.check_table(1);
        stack.push_number(f64::from(len(stack)));
        1
    }

    fn insert(stack: Stack) -> c_int {
        stack.check_table(1);
        let end = len(stack).min(c_int::MAX - 1) + 1;
        match stack.top() {
            2 => {
                refuse_protected(stack, 1);
                stack.raw_set_at(1, end);
            }
            3 => {
                let position = stack.check_c_int(2);
                refuse_protected(stack, 1);
                let mut i = end.max(position);
                while i > position {
                    stack.tick();
                    stack.raw_get_at(1, i - 1);
                    stack.raw_set_at(1, i);
                    i -= 1;
                }
                stack.raw_set_at(1, position);
            }
            _ => stack.raise(b"wrong number of arguments to 'insert'"),
        }
        0
    }

    fn remove(stack: Stack) -> c_int {
        stack.check_table(1);
        let end = len(stack);
        let position = if matches!(stack.kind(2), Kind::None | Kind::Nil) { end } else { stack.check_c_int(2) };
        if !(1..=end).contains(&position) {
            return 0;
        }
        refuse_protected(stack, 1);
        stack.raw_get_at(1, position);
        for i in position..end {
            stack.tick();
            stack.raw_get_at(1, i + 1);
            stack.raw_set_at(1, i);
        }
        stack.push_nil();
        stack.raw_set_at(1, end);
        1
    }

    fn setn(stack: Stack) -> c_int {
        stack.check_table(1);
        stack.raise(b"'setn' is obsolete")
    }
}

/// The length of the table at 1.
fn len(stack: Stack<'_>) -> c_int {
    stack.raw_len(1).min(c_int::MAX as usize) as c_int
}
