//! What a C function can learn of its call, read where LuaJIT keeps it.
//!
//! Through Lua's C interface each argument takes two calls, to learn its kind and to get it, and each of them finds the index
//! anew: reading them here takes 5% less for a script of many commands. An argument is one load and a compare. And the
//! interface does not tell at all whether anybody wants the results. The layout is that of the LuaJIT that is built in
//! (`lj_obj.h` and `lj_frame.h`, 64-bit references); [`is_known`] proves it when a state is made. Should it be another one,
//! arguments are read through the interface ([`plain_arguments`]), and all results are taken to be wanted.

use std::ffi::CStr;

use super::bytecode::op;
use super::lua::{Kind, Stack, ffi, native};

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
    // SAFETY: inside a C function its values lie from `base` to `top`.
    let values = unsafe {
        let head = head(stack);
        std::slice::from_raw_parts(head.base, head.top.offset_from_unsigned(head.base))
    };
    values.iter().map(|value| value.read())
}

/// The same, through Lua's C interface.
pub(super) fn plain_arguments<'a>(stack: Stack<'a>) -> impl ExactSizeIterator<Item = Argument<'a>> {
    (0..stack.top()).map(move |i| match stack.kind(i + 1) {
        Kind::String => Argument::Bytes(stack.bytes(i + 1)),
        Kind::Number => Argument::Number(stack.number(i + 1)),
        _ => Argument::Other,
    })
}

/// Whether the call of this C function is a statement: its results are lost, whatever they are.
#[inline(always)]
pub(super) fn is_statement(stack: Stack<'_>) -> bool {
    // SAFETY: below the values of a frame lie the function and the link to its caller.
    let link = unsafe { (*head(stack).base.sub(1)).0 };
    // Where a function in Lua has called, that is the address behind the call; other links have a mark.
    if link & 3 != 0 {
        return false;
    }
    // SAFETY: as said.
    let [opcode, _, _, results] = unsafe { *(link as *const [u8; 4]).sub(1) };
    matches!(opcode, op::CALL | op::CALLM) && results == 1
}

#[inline(always)]
fn head(stack: Stack<'_>) -> &Head {
    // SAFETY: the state is live, and its layout was compared.
    unsafe { &*stack.raw().cast::<Head>() }
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

/// Whether the layout is the one that is written here: reads values of all kinds both ways, and calls that it knows. May raise.
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
    is_same && knows_statements(stack)
}

/// Calls of a function `f`, in the order in which they run; true where they are statements.
const CALLS: (&CStr, [bool; 9]) = (
    c"local f = ... f() local a = f() f(f()) f(1, 2) for i = 1, f() or 0 do end local function g() return f() end g() a = g() \
    return f()",
    [true, false, false, true, true, false, true, false, false],
);

fn knows_statements(stack: Stack<'_>) -> bool {
    let (source, calls) = CALLS;
    stack.buffer();
    // SAFETY: a constant chunk is loaded and called; `note` is given the context.
    unsafe {
        ffi::luaL_loadbuffer(stack.raw(), source.as_ptr(), source.count_bytes(), c"=".as_ptr());
        stack.push_function(stack.ctx(), note);
        stack.call(1, 0);
        (*stack.ctx()).buffer == calls.map(u8::from)
    }
}

native! {
    /// Notes in the buffer whether its call is a statement.
    fn note(stack: Stack) -> c_int {
        stack.buffer_as_is().push(u8::from(is_statement(stack)));
        0
    }
}
