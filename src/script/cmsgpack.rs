//! `cmsgpack`: MessagePack for scripts. It behaves like lua-cmsgpack 0.4.0, which Redis bundles.
//!
//! Numbers without a fraction are packed as the shortest integer, others as a 32-bit float if that loses no precision.
//! A table with the keys 1 to n is an array, any other table a map. Values nested in more than 16 tables are packed as
//! nil, and so are values without a MessagePack form.
//!
//! Source: <https://github.com/msgpack/msgpack/blob/master/spec.md>

use std::ffi::c_int;

use super::context::Ctx;
use super::interrupt::library;
use super::lua::{CFunction, Kind, Stack};
use super::luajit::Walk;
use super::room::{Buffer, check_c_stack};
use super::stand_in::unwrap_stand_in;
use crate::script::limits::{SCRIPT_DATA_STACK_BYTES, SCRIPT_MSGPACK_MAX_DEPTH};

const FUNCTIONS: [(&[u8], CFunction); 4] =
    [(b"pack", pack), (b"unpack", unpack), (b"unpack_limit", unpack_limit), (b"unpack_one", unpack_one)];

const TEXTS: [(&[u8], &[u8]); 4] = [
    (b"_NAME", b"cmsgpack"),
    (b"_VERSION", b"lua-cmsgpack 0.4.0"),
    (b"_COPYRIGHT", b"Copyright (C) 2012, Salvatore Sanfilippo"),
    (b"_DESCRIPTION", b"MessagePack C implementation for Lua"),
];

/// Pushes the `cmsgpack` table. May raise for lack of memory.
pub(super) fn push_table(stack: Stack<'_>, ctx: *mut Ctx) {
    stack.new_table(0, 8);
    let table = stack.top();
    for (name, function) in FUNCTIONS {
        stack.push_function(ctx, function);
        stack.raw_set_field(table, name);
    }
    for (name, text) in TEXTS {
        stack.push_bytes(text);
        stack.raw_set_field(table, name);
    }
}

library! {
    fn pack(stack: Stack) -> c_int {
        let n = stack.top();
        if n == 0 {
            stack.raise_argument(0, &[b"MessagePack pack needs input."]);
        }
        let out = stack.buffer();
        for i in 1..=n {
            stack.tick();
            stack.push_value(i);
            pack_value(stack, out, 0);
            stack.pop(1);
        }
        out.push_to(stack);
        1
    }

    fn unpack(stack: Stack) -> c_int {
        unpack_values(stack, 0, 0)
    }

    fn unpack_one(stack: Stack) -> c_int {
        let offset = stack.opt_c_int(2, 0);
        stack.set_top(1);
        unpack_values(stack, 1, offset)
    }

    fn unpack_limit(stack: Stack) -> c_int {
        let (limit, offset) = (stack.check_c_int(2), stack.opt_c_int(3, 0));
        stack.set_top(1);
        unpack_values(stack, limit, offset)
    }
}

/// Packs the value on top of the stack, nested in `depth` tables.
fn pack_value(stack: Stack<'_>, out: Buffer<'_>, depth: usize) {
    match stack.kind(-1) {
        Kind::String => pack_string(out, stack.bytes(-1)),
        Kind::Boolean => out.push(if stack.boolean(-1) { 0xc3 } else { 0xc2 }),
        Kind::Number => pack_number(out, stack.number(-1)),
        Kind::Table if depth < SCRIPT_MSGPACK_MAX_DEPTH => pack_table(stack, out, depth + 1),
        _ => out.push(0xc0),
    }
}

fn pack_string(out: Buffer<'_>, text: &[u8]) {
    let len = text.len();
    match len {
        0..32 => out.push(0xa0 | len as u8),
        32..0x100 => out.extend(&[0xd9, len as u8]),
        0x100..0x1_0000 => tagged(out, 0xda, &(len as u16).to_be_bytes()),
        _ => tagged(out, 0xdb, &(len as u32).to_be_bytes()),
    }
    out.extend(text);
}

fn pack_number(out: Buffer<'_>, number: f64) {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if number.floor() != number || !(-END..END).contains(&number) {
        let single = number as f32;
        return if f64::from(single) == number {
            tagged(out, 0xca, &single.to_be_bytes())
        } else {
            tagged(out, 0xcb, &number.to_be_bytes())
        };
    }
    let n = number as i64;
    match n {
        0..0x80 => out.push(n as u8),
        0x80..0x100 => out.extend(&[0xcc, n as u8]),
        0x100..0x1_0000 => tagged(out, 0xcd, &(n as u16).to_be_bytes()),
        0x1_0000..0x1_0000_0000 => tagged(out, 0xce, &(n as u32).to_be_bytes()),
        0x1_0000_0000.. => tagged(out, 0xcf, &n.to_be_bytes()),
        -32..0 => out.push(n as u8),
        -0x80..-32 => out.extend(&[0xd0, n as u8]),
        -0x8000..-0x80 => tagged(out, 0xd1, &(n as i16).to_be_bytes()),
        -0x8000_0000..-0x8000 => tagged(out, 0xd2, &(n as i32).to_be_bytes()),
        _ => tagged(out, 0xd3, &n.to_be_bytes()),
    }
}

fn tagged(out: Buffer<'_>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend(bytes);
}

fn pack_table(stack: Stack<'_>, out: Buffer<'_>, depth: usize) {
    if !stack.reserve(4) {
        stack.raise(b"in function mp_encode_lua_table");
    }
    unwrap_stand_in(stack, stack.top());
    let (n, is_array) = measure(stack);
    if is_array {
        pack_head(out, n, 0x90, 0xdc);
        for i in 1..=n {
            stack.tick();
            stack.raw_get_at(-1, i as c_int);
            pack_value(stack, out, depth);
            stack.pop(1);
        }
        return;
    }
    pack_head(out, n, 0x80, 0xde);
    let mut walk = Walk::default();
    while walk.next(stack).is_some() {
        stack.tick();
        stack.push_value(-2);
        pack_value(stack, out, depth);
        stack.pop(1);
        pack_value(stack, out, depth);
        stack.pop(2);
    }
}

/// Number of fields of the table on top, and whether their keys are 1 to that number.
fn measure(stack: Stack<'_>) -> (usize, bool) {
    let (mut n, mut most, mut positive) = (0usize, 0.0f64, true);
    let mut walk = Walk::default();
    while let Some(kind) = walk.next(stack) {
        stack.tick();
        let key = if kind == Kind::Number { stack.number(-2) } else { 0.0 };
        stack.pop(2);
        positive &= key >= 1.0 && key.floor() == key;
        most = most.max(key);
        n += 1;
    }
    (n, positive && most == n as f64)
}

/// Writes the head of an array or a map of `n` elements: a short form, a tag and 16 bits, or the next tag and 32 bits.
fn pack_head(out: Buffer<'_>, n: usize, short: u8, tag: u8) {
    match n {
        0..16 => out.push(short | n as u8),
        16..0x1_0000 => tagged(out, tag, &(n as u16).to_be_bytes()),
        _ => tagged(out, tag + 1, &(n as u32).to_be_bytes()),
    }
}

/// Unpacks at most `limit` values from byte `offset` of argument 1. Unless both are 0, the values are preceded by the
/// next offset, or -1 at the end.
fn unpack_values(stack: Stack<'_>, limit: c_int, offset: c_int) -> c_int {
    let input = stack.check_bytes(1);
    let mut length = itoa::Buffer::new();
    let length = length.format(input.len()).as_bytes();
    let mut given = itoa::Buffer::new();
    if limit < 0 || offset < 0 {
        let offset = given.format(offset).as_bytes();
        // lua-cmsgpack shows the length in place of the limit.
        stack.raise_parts(&[b"Invalid request to unpack with offset of ", offset, b" and limit of ", length, b"."]);
    }
    if offset as u64 > input.len() as u64 {
        let offset = given.format(offset).as_bytes();
        stack.raise_parts(&[b"Start offset ", offset, b" greater than input length ", length, b"."]);
    }
    let all = limit == 0 && offset == 0;
    let mut reader = Reader { stack, rest: &input[offset as usize..] };
    let mut n = 0;
    while !reader.rest.is_empty() && (all || n < limit) {
        stack.tick();
        if !stack.reserve(2) {
            stack.raise(b"in function mp_unpack_full");
        }
        reader.value();
        n += 1;
    }
    if all {
        return n;
    }
    let at = if reader.rest.is_empty() { -1.0 } else { (input.len() - reader.rest.len()) as f64 };
    stack.push_number(at);
    stack.insert(2);
    n + 1
}

struct Reader<'a> {
    stack: Stack<'a>,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        match self.rest.split_at_checked(n) {
            Some((taken, rest)) => {
                self.rest = rest;
                taken
            }
            None => self.stack.raise(b"Missing bytes in input."),
        }
    }

    /// The next `n` bytes, at most 8, as a big-endian number.
    fn unsigned(&mut self, n: usize) -> u64 {
        self.take(n).iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    /// Pushes the next value.
    fn value(&mut self) {
        let stack = self.stack;
        let tag = self.take(1)[0];
        match tag {
            0..=0x7f => stack.push_number(f64::from(tag)),
            0xe0..=0xff => stack.push_number(f64::from(tag as i8)),
            0x80..=0x8f => self.map(usize::from(tag & 0x0f)),
            0x90..=0x9f => self.array(usize::from(tag & 0x0f)),
            0xa0..=0xbf => self.string(usize::from(tag & 0x1f)),
            0xc0 => stack.push_nil(),
            0xc2 => stack.push_boolean(false),
            0xc3 => stack.push_boolean(true),
            0xca => {
                let bits = self.unsigned(4) as u32;
                stack.push_number(f64::from(f32::from_bits(bits)));
            }
            0xcb => {
                let bits = self.unsigned(8);
                stack.push_number(f64::from_bits(bits));
            }
            0xcc..=0xcf => {
                let value = self.unsigned(1 << (tag - 0xcc));
                // Above 2^63 lua-cmsgpack returns the negative number with equal bits.
                stack.push_number(value as i64 as f64);
            }
            0xd0..=0xd3 => {
                let size = 1 << (tag - 0xd0);
                let shift = 64 - 8 * size as u32;
                let value = (self.unsigned(size) << shift) as i64 >> shift;
                stack.push_number(value as f64);
            }
            0xd9..=0xdb => {
                let len = self.unsigned(1 << (tag - 0xd9)) as usize;
                self.string(len);
            }
            0xdc | 0xdd => {
                let n = self.unsigned(if tag == 0xdc { 2 } else { 4 }) as usize;
                self.array(n);
            }
            0xde | 0xdf => {
                let n = self.unsigned(if tag == 0xde { 2 } else { 4 }) as usize;
                self.map(n);
            }
            _ => stack.raise(b"Bad data format in input."),
        }
    }

    fn string(&mut self, len: usize) {
        let text = self.take(len);
        self.stack.push_bytes(text);
    }

    fn descend(&self) {
        check_c_stack(self.stack, SCRIPT_DATA_STACK_BYTES);
        if !self.stack.reserve(4) {
            self.stack.raise(b"in function mp_decode_to_lua_array");
        }
    }

    fn array(&mut self, n: usize) {
        self.descend();
        self.stack.new_table(0, 0);
        for i in 1..=n {
            self.stack.tick();
            self.value();
            self.stack.raw_set_at(-2, i.min(c_int::MAX as usize) as c_int);
        }
    }

    fn map(&mut self, n: usize) {
        self.descend();
        self.stack.new_table(0, 0);
        for _ in 0..n {
            self.stack.tick();
            self.value();
            self.value();
            if self.stack.kind(-2) == Kind::Nil {
                self.stack.push_bytes(b"table index is nil");
                self.stack.raise_top();
            }
            self.stack.raw_set(-3);
        }
    }
}
