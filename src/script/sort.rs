//! A `table.sort` that can be interrupted. LuaJIT's own compares in C, where no hook runs, and can be made to take
//! quadratic time.
//!
//! This is the quicksort of Lua 5.1, step by step, because scripts can see the steps: the final order of equal elements
//! depends on them. The pivot is the median of the first, the middle and the last element. The smaller part is sorted
//! by recursion, the larger one in the loop.

use std::ffi::c_int;

use super::interrupt::library;
use super::lua::{Kind, Stack, ffi};
use super::room::check_c_stack;
use crate::script::limits::SCRIPT_C_STACK_BYTES;

library! {
    pub(super) fn sort(stack: Stack) -> c_int {
        stack.check_table(1);
        let has_comparator = !matches!(stack.kind(2), Kind::None | Kind::Nil);
        if has_comparator {
            stack.check_function(2);
            check_c_stack(stack, SCRIPT_C_STACK_BYTES);
        }
        stack.set_top(2);
        if !stack.reserve(10) {
            stack.raise(b"stack overflow");
        }
        let sorter = Sorter { stack, has_comparator };
        sorter.sort(1, stack.raw_len(1).min(c_int::MAX as usize - 2) as c_int);
        0
    }
}

#[derive(Clone, Copy)]
struct Sorter<'a> {
    stack: Stack<'a>,
    has_comparator: bool,
}

impl Sorter<'_> {
    fn sort(self, mut low: c_int, mut high: c_int) {
        while low < high {
            self.order(low, high);
            if high - low == 1 {
                return;
            }
            let middle = low + (high - low) / 2;
            self.order_middle(low, middle, high);
            if high - low == 2 {
                return;
            }
            let split = self.partition(low, middle, high);
            let (small, large) = if split - low < high - split {
                ((low, split - 1), (split + 1, high))
            } else {
                ((split + 1, high), (low, split - 1))
            };
            self.sort(small.0, small.1);
            (low, high) = large;
        }
    }

    /// Swaps the elements at `low` and `high` if they are in the wrong order.
    fn order(self, low: c_int, high: c_int) {
        let Sorter { stack, .. } = self;
        stack.raw_get_at(1, low);
        stack.raw_get_at(1, high);
        if self.is_less(-1, -2) { self.swap(low, high) } else { stack.pop(2) }
    }

    /// Brings the median of three to the middle.
    fn order_middle(self, low: c_int, middle: c_int, high: c_int) {
        let Sorter { stack, .. } = self;
        stack.raw_get_at(1, middle);
        stack.raw_get_at(1, low);
        if self.is_less(-2, -1) {
            return self.swap(middle, low);
        }
        stack.pop(1);
        stack.raw_get_at(1, high);
        if self.is_less(-1, -2) { self.swap(middle, high) } else { stack.pop(2) }
    }

    /// Partitions the elements between `low` and `high` by the one at `middle`. Returns the final index of that
    /// element.
    fn partition(self, low: c_int, middle: c_int, high: c_int) -> c_int {
        let Sorter { stack, .. } = self;
        stack.raw_get_at(1, middle);
        let pivot = stack.top();
        stack.push_value(pivot);
        stack.raw_get_at(1, high - 1);
        self.swap(middle, high - 1);
        let (mut i, mut j) = (low, high - 1);
        loop {
            loop {
                i += 1;
                stack.raw_get_at(1, i);
                if !self.is_less(-1, pivot) {
                    break;
                }
                if i > high {
                    stack.raise(b"invalid order function for sorting");
                }
                stack.pop(1);
            }
            loop {
                j -= 1;
                stack.raw_get_at(1, j);
                if !self.is_less(pivot, -1) {
                    break;
                }
                if j < low {
                    stack.raise(b"invalid order function for sorting");
                }
                stack.pop(1);
            }
            if j < i {
                break;
            }
            self.swap(i, j);
        }
        stack.set_top(pivot - 1);
        stack.raw_get_at(1, high - 1);
        stack.raw_get_at(1, i);
        self.swap(high - 1, i);
        i
    }

    /// Pops the two topmost values: the upper one goes to index `i`, the lower one to `j`.
    fn swap(self, i: c_int, j: c_int) {
        self.stack.raw_set_at(1, i);
        self.stack.raw_set_at(1, j);
    }

    fn is_less(self, a: c_int, b: c_int) -> bool {
        let Sorter { stack, .. } = self;
        stack.tick();
        if !self.has_comparator {
            // SAFETY: both indices are within the frame. May raise; nothing here has a destructor.
            return unsafe { ffi::lua_lessthan(stack.raw(), a, b) != 0 };
        }
        let (a, b) = (absolute(stack, a), absolute(stack, b));
        stack.push_value(2);
        stack.push_value(a);
        stack.push_value(b);
        stack.call(2, 1);
        let is_less = stack.boolean(-1);
        stack.pop(1);
        is_less
    }
}

fn absolute(stack: Stack<'_>, i: c_int) -> c_int {
    if i < 0 { stack.top() + 1 + i } else { i }
}

#[cfg(test)]
mod tests {
    use super::super::alarm::tests::ring_always;
    use super::super::tests::{Toy, eval, vm};
    use crate::resp::reply::Form;

    #[test]
    fn sorting_checks_for_the_end_of_the_run() {
        let mut vm = vm();
        let fill = "local t, x = {}, 1 for i = 1, 50000 do x = x * 16807 % 2147483647 t[i] = x % 1000 end ";
        let check =
            " for i = 2, #t do if t[i - 1] > t[i] then return redis.error_reply('not sorted') end end return #t";
        let mut toy = Toy::default();
        let mut asked = |script: &str, answer: &str| {
            toy.asked = 0;
            let got = ring_always(|| eval(&mut vm, &mut toy, Form::Resp2, script));
            assert!(got.starts_with(answer), "{got}");
            toy.asked
        };
        let without = asked(&format!("{fill}{check}"), "-not sorted");
        let with = asked(&format!("{fill} table.sort(t) {check}"), ":50000\\r\\n");
        assert!(with > without + 50_000, "asked {without} and {with} times");
        let got = eval(
            &mut vm,
            &mut toy,
            Form::Resp2,
            &format!("{fill} table.sort(t, function(a, b) return a > b end) return t[1] .. ' ' .. t[#t]"),
        );
        assert_eq!(got, "$5\\r\\n999 0\\r\\n");
    }
}
