//! The arguments of a C function, read where LuaJIT keeps them.
//!
//! Through Lua's C interface each argument takes two calls, to learn its kind and to get it, and each of them finds the index
//! anew: that was a tenth of what a script of many commands costs. Here an argument is one load and a compare. The layout is
//! that of the LuaJIT that is built in (`lj_obj.h`, 64-bit references); [`is_known`] compares it with what the interface says
//! when a state is made.

use super::lua::{Kind, Stack};

/// The head of `lua_State`.
#[repr(C)]
struct Head {
    /// The collector's link and marks, the state's status.
    collected: [u64; 2],
    globals: u64,
    gray: u64,
    base: *const Value,
    top: *const Value,
}

/// A `TValue`: a double, or 17 bits of kind above 47 bits of what it is.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Value(u64);

/// The head of a `GCstr`; its bytes follow.
#[repr(C)]
struct Text {
    collected: [u64; 2],
    hash: u32,
    len: u32,
}

const STRING: u32 = !4;
/// An integer, where LuaJIT has them; all below is the upper part of a double.
const INTEGER: u32 = !13;

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Argument<'a> {
    Bytes(&'a [u8]),
    Number(f64),
    Other,
}

/// The arguments of the C function whose stack this is.
#[inline(always)]
pub(super) fn arguments<'a>(stack: Stack<'a>) -> impl ExactSizeIterator<Item = Argument<'a>> {
    // SAFETY: the state is live and inside a C function: its values lie from `base` to `top`. The layout was compared.
    let values = unsafe {
        let head = &*stack.raw().cast::<Head>();
        std::slice::from_raw_parts(head.base, head.top.offset_from_unsigned(head.base))
    };
    values.iter().map(|value| value.read())
}

impl Value {
    #[inline(always)]
    fn read<'a>(self) -> Argument<'a> {
        match (self.0.cast_signed() >> 47) as u32 {
            STRING => {
                let text = (self.0 & ((1 << 47) - 1)) as *const Text;
                // SAFETY: the kind says what the reference points to; on the stack it is kept alive.
                unsafe { Argument::Bytes(std::slice::from_raw_parts(text.add(1).cast(), (*text).len as usize)) }
            }
            kind if kind < INTEGER => Argument::Number(f64::from_bits(self.0)),
            INTEGER => Argument::Number(f64::from(self.0 as i32)),
            _ => Argument::Other,
        }
    }
}

/// Whether the layout is the one that is written here: pushes values of all kinds and reads them both ways.
pub(super) fn is_known(stack: Stack<'_>) -> bool {
    let top = stack.top();
    [b"".as_slice(), b"text", &[b'x'; 300]].into_iter().for_each(|text| stack.push_bytes(text));
    [0.0, -0.0, 1.0, -7.0, 0.5, 1e300, f64::INFINITY, f64::NEG_INFINITY].into_iter().for_each(|n| stack.push_number(n));
    stack.push_nil();
    [true, false].into_iter().for_each(|value| stack.push_boolean(value));
    stack.push_light(std::ptr::null_mut());
    stack.new_table(0, 0);
    let is_same = arguments(stack).len() == stack.top() as usize
        && arguments(stack).zip(1..).all(|(found, i)| match (stack.kind(i), found) {
            (Kind::String, Argument::Bytes(bytes)) => bytes == stack.bytes(i),
            (Kind::Number, Argument::Number(number)) => number == stack.number(i),
            (Kind::String | Kind::Number, _) => false,
            (_, found) => found == Argument::Other,
        });
    stack.set_top(top);
    is_same
}
