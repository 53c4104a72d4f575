//! Conversion between Redis' replies and Lua's values, in both directions.
//!
//! A command's reply reaches the script as: integer -> number, bulk -> string, array -> table, null -> false (nil
//! under `redis.setresp(3)`), status -> `{ok=}`, error -> `{err=}`, and under `setresp(3)` also map -> `{map={k=v}}`,
//! set -> `{set={m=true}}`, double -> `{double=}`, big number -> `{big_number=}`, verbatim ->
//! `{verbatim_string={format=,string=}}`, boolean -> boolean.
//!
//! A script's result is converted by the inverse rules. Numbers lose their fraction, and an array ends at its first
//! nil.
//!
//! The field names are upvalues of each C function that converts (see [`push_names`]): a string that is pushed from an
//! upvalue needs no hashing.
//!
//! Source: <https://redis.io/docs/latest/develop/programmability/lua-api/#data-type-conversion>

use std::ffi::c_int;

use super::context::Ctx;
use super::frame::{Frame, Place, advance};
use super::integer::truncate;
use super::lua::{Kind, Stack, until_nul, upvalue};
use super::luajit::Walk;
use super::room::refuse;
use crate::resp::reply::{Form, Reply};
use crate::resp::tape::{TapeReader, Token};
use crate::script::limits::SCRIPT_TAPE_MAX_DEPTH;

const NAMES: [&[u8]; 12] = [
    b"err",
    b"ok",
    b"double",
    b"map",
    b"set",
    b"big_number",
    b"verbatim_string",
    b"format",
    b"string",
    b"OK",
    b"ignore_error_stats_update",
    b"resp3",
];
pub(super) const ERR: c_int = upvalue(2);
const OK: c_int = upvalue(3);
const DOUBLE: c_int = upvalue(4);
const MAP: c_int = upvalue(5);
const SET: c_int = upvalue(6);
const BIG_NUMBER: c_int = upvalue(7);
const VERBATIM: c_int = upvalue(8);
const FORMAT: c_int = upvalue(9);
const STRING: c_int = upvalue(10);
const OK_TEXT: c_int = upvalue(11);
const IGNORE_STATS: c_int = upvalue(12);

/// Number of upvalues that [`push_names`] pushes. The next one is free.
pub(super) const UPVALUES: c_int = 1 + NAMES.len() as c_int;

/// Pushes the upvalues of a converting function: the VM's context and the field names. May raise for lack of memory.
pub(super) fn push_names(stack: Stack<'_>, ctx: *mut Ctx) {
    stack.push_light(ctx.cast());
    NAMES.iter().for_each(|name| stack.push_bytes(name));
}

/// Pushes the next value of a tape. `resp3`: the tape was written for `redis.setresp(3)`. May raise for lack of memory.
#[inline]
pub(super) fn push_reply(stack: Stack<'_>, tape: &mut TapeReader<'_>, resp3: bool, depth: usize) {
    let Some(token) = tape.next() else { return stack.push_nil() };
    match token {
        Token::Integer(value) => stack.push_number(value as f64),
        Token::Bulk(bytes) => stack.push_bytes(bytes),
        Token::Null | Token::NullArray if resp3 => stack.push_nil(),
        Token::Null | Token::NullArray => stack.push_boolean(false),
        Token::Status(text) => push_status(stack, text),
        Token::Error(text) => push_error(stack, text, true),
        Token::Boolean(value) => stack.push_boolean(value),
        Token::Double(value) => push_field(stack, DOUBLE, |stack| stack.push_number(value)),
        Token::BigNumber(digits) => push_field(stack, BIG_NUMBER, |stack| stack.push_bytes(digits)),
        Token::Verbatim(format, text) => push_field(stack, VERBATIM, |stack| {
            stack.new_table(0, 2);
            set_field(stack, STRING, |stack| stack.push_bytes(text));
            set_field(stack, FORMAT, |stack| stack.push_bytes(format));
        }),
        Token::Array(_) | Token::Map(_) | Token::Set(_) => {
            if depth >= SCRIPT_TAPE_MAX_DEPTH || !stack.reserve(8) {
                stack.push_bytes(b"ERR reached lua stack limit");
                stack.raise_top();
            }
            push_aggregate(stack, token, tape, resp3, depth + 1);
        }
    }
}

fn push_aggregate(stack: Stack<'_>, token: Token<'_>, tape: &mut TapeReader<'_>, resp3: bool, depth: usize) {
    match token {
        // Tables grow as in Redis, because scripts see the order of keys, and the length of tables with nil elements.
        // Without nil an array ends up with room for a power of two.
        Token::Array(n) => {
            stack.new_table(if resp3 { 0 } else { n.next_power_of_two() }, 0);
            for i in 1..=n {
                stack.tick();
                push_reply(stack, tape, resp3, depth);
                stack.raw_set_at(-2, i as c_int);
            }
        }
        Token::Map(pairs) => push_field(stack, MAP, |stack| {
            stack.new_table(0, 0);
            for _ in 0..pairs {
                stack.tick();
                push_reply(stack, tape, resp3, depth);
                push_reply(stack, tape, resp3, depth);
                stack.raw_set(-3);
            }
        }),
        Token::Set(n) => push_field(stack, SET, |stack| {
            stack.new_table(0, 0);
            for _ in 0..n {
                stack.tick();
                push_reply(stack, tape, resp3, depth);
                stack.push_boolean(true);
                stack.raw_set(-3);
            }
        }),
        _ => stack.push_nil(),
    }
}

#[inline]
fn push_status(stack: Stack<'_>, text: &[u8]) {
    push_field(stack, OK, |stack| if text == b"OK" { stack.push_value(OK_TEXT) } else { stack.push_bytes(text) });
}

/// Pushes `{err=text}`. `counted`: the server has already counted this error, which Redis marks in the table, too.
pub(super) fn push_error(stack: Stack<'_>, text: &[u8], counted: bool) {
    stack.new_table(0, 2);
    set_field(stack, ERR, |stack| stack.push_bytes(text));
    if counted {
        set_field(stack, IGNORE_STATS, |stack| stack.push_boolean(true));
    }
}

#[inline]
fn push_field(stack: Stack<'_>, name: c_int, push: impl FnOnce(Stack<'_>)) {
    stack.new_table(0, 1);
    set_field(stack, name, push);
}

#[inline]
fn set_field(stack: Stack<'_>, name: c_int, push: impl FnOnce(Stack<'_>)) {
    stack.push_value(name);
    push(stack);
    stack.raw_set(-3);
}

/// The most values on Lua's stack while Redis writes a reply. This limits the nesting of a reply; deeper values become
/// errors.
const REPLY_STACK: u32 = 8000;
/// Values on the stack when Redis begins to write, including the one to be written.
const REPLY_STACK_BEGIN: u32 = 2;
/// Further values for which Redis reserves room before it writes a value.
const REPLY_STACK_STEP: u32 = 4;

/// Pops the value on top and writes it. `resp3`: the script chose `redis.setresp(3)`. `frames` is scratch memory. May
/// raise for lack of memory; then `reply` holds a part of a reply.
#[inline]
pub(super) fn write_reply(stack: Stack<'_>, frames: &mut Vec<Frame>, resp3: bool, reply: &mut Reply) {
    match stack.kind(-1) {
        Kind::Number => reply.integer(truncate(stack.number(-1))),
        Kind::String => reply.bulk(stack.bytes(-1)),
        Kind::Table => return write_nested(stack, frames, resp3, reply),
        Kind::Boolean if resp3 => reply.boolean(stack.boolean(-1)),
        Kind::Boolean if stack.boolean(-1) => reply.integer(1),
        _ => reply.null(),
    }
    stack.pop(1);
}

/// Writes a table without recursion: scripts may return tables that nest thousands deep or contain themselves.
fn write_nested(stack: Stack<'_>, frames: &mut Vec<Frame>, resp3: bool, reply: &mut Reply) {
    frames.clear();
    // A value that exists once can occur many times in the reply.
    let most = reply.len().saturating_add(stack.memory().room());
    loop {
        stack.tick();
        if reply.len() > most {
            refuse(stack);
        }
        // Write the value on top.
        let depth = frames.last().map_or(REPLY_STACK_BEGIN, Frame::depth_of_value);
        if depth + REPLY_STACK_STEP > REPLY_STACK || !stack.reserve(REPLY_STACK_STEP as c_int) {
            reply.error(b"ERR reached lua stack limit");
            stack.pop(1);
        } else if stack.kind(-1) != Kind::Table {
            write_reply(stack, &mut Vec::new(), resp3, reply);
        } else if let Some(at) = write_head(stack, reply) {
            frames.push(Frame { at, depth });
        }
        // Bring the next one to the top.
        loop {
            let Some(frame) = frames.last_mut() else { return };
            if advance(stack, &mut frame.at) {
                break;
            }
            frames.pop();
            stack.pop(1);
        }
    }
}

/// Writes the table on top and pops it; or, if it is an aggregate, writes its head, leaves the table to iterate on top,
/// and returns its first place.
fn write_head(stack: Stack<'_>, reply: &mut Reply) -> Option<Place> {
    let field = |name: c_int, kind: Kind| {
        stack.push_value(name);
        stack.raw_get(-2);
        let there = stack.kind(-1) == kind;
        if !there {
            stack.pop(1);
        }
        there
    };
    if field(ERR, Kind::String) {
        reply.error(until_nul(stack.bytes(-1)));
    } else if field(OK, Kind::String) {
        reply.status_of(until_nul(stack.bytes(-1)));
    } else if field(DOUBLE, Kind::Number) {
        reply.double(stack.number(-1));
    } else if field(BIG_NUMBER, Kind::String) {
        write_big_number(reply, stack.bytes(-1));
    } else if field(VERBATIM, Kind::Table) && write_verbatim(stack, reply) {
        // Already written.
    } else if field(MAP, Kind::Table) {
        stack.remove(-2);
        reply.map(count_fields(stack));
        return Some(Place::MapKey(Walk::default()));
    } else if field(SET, Kind::Table) {
        stack.remove(-2);
        reply.set(count_fields(stack));
        return Some(Place::Set(Walk::default()));
    } else {
        let n = count_elements(stack);
        reply.array(n as usize);
        return Some(Place::Array { next: 1, n });
    }
    stack.pop(2);
    None
}

/// Number of elements before the first nil.
fn count_elements(stack: Stack<'_>) -> c_int {
    let mut n = 0;
    loop {
        stack.tick();
        stack.raw_get_at(-1, n + 1);
        let end = stack.kind(-1) == Kind::Nil;
        stack.pop(1);
        if end || n == c_int::MAX - 1 {
            return n;
        }
        n += 1;
    }
}

fn count_fields(stack: Stack<'_>) -> usize {
    let mut n = 0;
    let mut walk = Walk::default();
    while walk.next(stack).is_some() {
        stack.tick();
        stack.pop(2);
        n += 1;
    }
    n
}

/// Writes the `{format=,string=}` on top if it has both fields, otherwise pops it.
fn write_verbatim(stack: Stack<'_>, reply: &mut Reply) -> bool {
    stack.push_value(FORMAT);
    stack.raw_get(-2);
    stack.push_value(STRING);
    stack.raw_get(-3);
    let whole = stack.kind(-2) == Kind::String && stack.kind(-1) == Kind::String;
    if whole {
        let mut format = *b"   ";
        format.iter_mut().zip(stack.bytes(-2)).for_each(|(to, from)| *to = *from);
        reply.verbatim(&format, stack.bytes(-1));
    }
    stack.pop(if whole { 2 } else { 3 });
    whole
}

fn write_big_number(reply: &mut Reply, digits: &[u8]) {
    if reply.form() != Form::Resp2 {
        return reply.big_number(digits);
    }
    let len = digits.len();
    let buffer = reply.buffer_mut();
    buffer.push(b'$');
    buffer.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    buffer.extend_from_slice(b"\r\n");
    buffer.extend(digits.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    buffer.extend_from_slice(b"\r\n");
}
