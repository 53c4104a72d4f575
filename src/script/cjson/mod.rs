//! `cjson`: JSON for scripts. It behaves like lua-cjson 2.1.0, which Redis bundles.
//!
//! Encoding: a table whose keys are positive integers becomes an array; with too many holes it is refused, or becomes
//! an object. Any other table becomes an object, an empty one `{}`. Numbers have 14 digits, and `/` is escaped.
//! Decoding: null becomes a light userdata, `cjson.null`. Numbers are read as in C, so hexadecimal numbers, `inf` and
//! `nan` are accepted unless switched off.
//!
//! Each table returned by `cjson.new()` has its own settings, in a userdata that is the second upvalue of every
//! function. Settings of the global `cjson` last until the script ends; in Redis they stay for later scripts.
//!
//! Text is built in the VM's scratch buffer. No script can run in between, because tables are read without metamethods.

pub(super) mod settings;

use std::ffi::c_int;

use super::context::Ctx;
use super::interrupt::library;
use super::lua::{CFunction, Kind, Stack, ffi, upvalue};
use super::luajit::Walk;
use super::room::{Buffer, check_c_stack};
use super::stand_in::unwrap_stand_in;
use crate::base::num;
use crate::script::limits::{SCRIPT_DATA_STACK_BYTES, SCRIPT_ESCAPE_CHUNK_BYTES};
use settings::{Invalid, Settings};

/// The most bytes of a number: 14 digits with sign, point and exponent, or an integer in full.
const NUMBER_MAX_BYTES: usize = 32;

/// In the order of Redis' library, because scripts may iterate over the table.
const FUNCTIONS: [(&[u8], CFunction); 10] = [
    (b"encode", encode),
    (b"decode", decode),
    (b"encode_sparse_array", encode_sparse_array),
    (b"encode_max_depth", encode_max_depth),
    (b"decode_max_depth", decode_max_depth),
    (b"encode_number_precision", encode_number_precision),
    (b"encode_keep_buffer", encode_keep_buffer),
    (b"encode_invalid_numbers", encode_invalid_numbers),
    (b"decode_invalid_numbers", decode_invalid_numbers),
    (b"new", new),
];

/// Pushes a `cjson` table with its own settings. May raise for lack of memory.
pub(super) fn push_table(stack: Stack<'_>, ctx: *mut Ctx) {
    stack.new_table(0, 0);
    let table = stack.top();
    // SAFETY: the userdata has room for the settings, and Lua aligns its blocks for them.
    unsafe { ffi::lua_newuserdata(stack.raw(), size_of::<Settings>()).cast::<Settings>().write(Settings::DEFAULTS) };
    for (name, function) in FUNCTIONS {
        stack.push_light(ctx.cast());
        stack.push_value(table + 1);
        stack.push_closure(function, 2);
        stack.raw_set_field(table, name);
    }
    push_null(stack);
    stack.raw_set_field(table, b"null");
    stack.push_bytes(b"cjson");
    stack.raw_set_field(table, b"_NAME");
    stack.push_bytes(b"2.1.0");
    stack.raw_set_field(table, b"_VERSION");
    stack.set_top(table);
}

fn push_null(stack: Stack<'_>) {
    stack.push_light(std::ptr::null_mut());
}

fn settings(stack: Stack<'_>) -> *mut Settings {
    // SAFETY: every function here has that userdata as its second upvalue.
    unsafe { ffi::lua_touserdata(stack.raw(), upvalue(2)).cast() }
}

/// The settings, for a change. Those of the global `cjson` will be restored after the run.
fn change(stack: Stack<'_>) -> *mut Settings {
    // SAFETY: the context outlives the state.
    unsafe { (*stack.ctx()).altered.cjson = true };
    settings(stack)
}

/// Pushes the global `cjson` table and notes its settings in the context. May raise for lack of memory.
pub(super) fn push_shared_table(stack: Stack<'_>, ctx: *mut Ctx) {
    push_table(stack, ctx);
    stack.raw_get_field(stack.top(), b"encode");
    // SAFETY: the second upvalue of `encode` is the settings, which live as long as the table, and so as long as the
    // state.
    unsafe {
        ffi::lua_getupvalue(stack.raw(), -1, 2);
        (*ctx).cjson = ffi::lua_touserdata(stack.raw(), -1).cast();
    }
    stack.pop(2);
}

// SAFETY of the blocks in these functions: the settings live as long as the function, which has them as an upvalue.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one reason for all, above")]
mod functions {
    use super::*;

    library! {
        pub(super) fn new(stack: Stack) -> c_int {
            push_table(stack, stack.ctx());
            1
        }

        pub(super) fn encode(stack: Stack) -> c_int {
            if stack.top() != 1 {
                stack.raise_argument(1, &[b"expected 1 argument"]);
            }
            let settings = unsafe { *settings(stack) };
            let encoder = Encoder { stack, out: stack.buffer(), settings };
            encoder.value(0);
            encoder.out.push_to(stack);
            1
        }

        pub(super) fn decode(stack: Stack) -> c_int {
            if stack.top() != 1 {
                stack.raise_argument(1, &[b"expected 1 argument"]);
            }
            let text = stack.check_bytes(1);
            // JSON begins with two ASCII characters, so NUL bytes show another encoding.
            if let [first, second, ..] = text
                && (*first == 0 || *second == 0)
            {
                stack.raise(b"JSON parser does not support UTF-16 or UTF-32");
            }
            let settings = unsafe { *settings(stack) };
            let mut decoder = Decoder { stack, text, at: 0, depth: 0, settings };
            let token = decoder.next_token();
            decoder.value(token);
            let token = decoder.next_token();
            if token.kind != TokenKind::End {
                decoder.fail("the end", token);
            }
            1
        }

        pub(super) fn encode_sparse_array(stack: Stack) -> c_int {
            let settings = change(stack);
            check_arguments(stack, 3);
            unsafe {
                (*settings).sparse_convert = switch(stack, 1, (*settings).sparse_convert);
                (*settings).sparse_ratio = integer(stack, 2, 0, i32::MAX, (*settings).sparse_ratio);
                (*settings).sparse_safe = integer(stack, 3, 0, i32::MAX, (*settings).sparse_safe);
            }
            3
        }

        pub(super) fn encode_max_depth(stack: Stack) -> c_int {
            check_arguments(stack, 1);
            unsafe {
                (*change(stack)).encode_max_depth = integer(stack, 1, 1, i32::MAX, (*settings(stack)).encode_max_depth);
            }
            1
        }

        pub(super) fn decode_max_depth(stack: Stack) -> c_int {
            check_arguments(stack, 1);
            unsafe {
                (*change(stack)).decode_max_depth = integer(stack, 1, 1, i32::MAX, (*settings(stack)).decode_max_depth);
            }
            1
        }

        pub(super) fn encode_number_precision(stack: Stack) -> c_int {
            check_arguments(stack, 1);
            unsafe { (*change(stack)).precision = integer(stack, 1, 1, 14, (*settings(stack)).precision) };
            1
        }

        /// The VM always keeps the buffer. The switch exists for scripts that set it.
        pub(super) fn encode_keep_buffer(stack: Stack) -> c_int {
            check_arguments(stack, 1);
            unsafe { (*change(stack)).keep_buffer = switch(stack, 1, (*settings(stack)).keep_buffer) };
            1
        }

        pub(super) fn encode_invalid_numbers(stack: Stack) -> c_int {
            check_arguments(stack, 1);
            let settings = change(stack);
            unsafe {
                (*settings).encode_invalid = match stack.kind(1) {
                    Kind::Nil => (*settings).encode_invalid,
                    Kind::Boolean if stack.boolean(1) => Invalid::Write,
                    Kind::Boolean => Invalid::Refuse,
                    _ => match stack.check_bytes(1) {
                        b"off" => Invalid::Refuse,
                        b"on" => Invalid::Write,
                        b"null" => Invalid::Null,
                        other => refuse_option(stack, 1, other),
                    },
                };
                match (*settings).encode_invalid {
                    Invalid::Null => stack.push_bytes(b"null"),
                    other => stack.push_boolean(other == Invalid::Write),
                }
            }
            1
        }

        pub(super) fn decode_invalid_numbers(stack: Stack) -> c_int {
            check_arguments(stack, 1);
            unsafe { (*change(stack)).decode_invalid = switch(stack, 1, (*settings(stack)).decode_invalid) };
            1
        }
    }
}
use functions::*;

/// Fills missing arguments up to `most` with nil. Refuses more.
fn check_arguments(stack: Stack<'_>, most: c_int) {
    if stack.top() > most {
        stack.raise_argument(most + 1, &[b"found too many arguments"]);
    }
    stack.set_top(most);
}

fn refuse_option(stack: Stack<'_>, i: c_int, option: &[u8]) -> ! {
    stack.raise_argument(i, &[b"invalid option '", option, b"'"])
}

/// Reads a switch from argument `i` (nil leaves it as it is) and pushes its new value.
fn switch(stack: Stack<'_>, i: c_int, current: bool) -> bool {
    let value = match stack.kind(i) {
        Kind::Nil => current,
        Kind::Boolean => stack.boolean(i),
        _ => match stack.check_bytes(i) {
            b"off" => false,
            b"on" => true,
            other => refuse_option(stack, i, other),
        },
    };
    stack.push_boolean(value);
    value
}

/// Reads an integer from argument `i` (nil leaves it as it is) and pushes its new value.
fn integer(stack: Stack<'_>, i: c_int, least: i32, most: i32, current: i32) -> i32 {
    let mut value = current;
    if stack.kind(i) != Kind::Nil {
        value = stack.check_c_int(i);
        if value < least || value > most {
            let (mut low, mut high) = (itoa::Buffer::new(), itoa::Buffer::new());
            let (low, high) = (low.format(least).as_bytes(), high.format(most).as_bytes());
            // lua-cjson always blames the first argument.
            stack.raise_argument(1, &[b"expected integer between ", low, b" and ", high]);
        }
    }
    stack.push_number(f64::from(value));
    value
}

#[derive(Clone, Copy)]
struct Encoder<'a> {
    stack: Stack<'a>,
    out: Buffer<'a>,
    settings: Settings,
}

impl Encoder<'_> {
    /// Writes the value on top of the stack, nested in `depth` tables.
    fn value(&self, depth: i32) {
        let Encoder { stack, out, .. } = *self;
        match stack.kind(-1) {
            Kind::String => self.string(stack.bytes(-1)),
            Kind::Number => self.number(stack.number(-1)),
            Kind::Boolean => out.extend(if stack.boolean(-1) { b"true" } else { b"false" }),
            Kind::Nil => out.extend(b"null"),
            Kind::LightUserdata if stack.pointer(-1).is_null() => out.extend(b"null"),
            Kind::Table => self.table(depth + 1),
            _ => self.refuse(b"type not supported"),
        }
    }

    fn table(&self, depth: i32) {
        let Encoder { stack, settings, .. } = *self;
        check_c_stack(stack, SCRIPT_DATA_STACK_BYTES);
        if depth > settings.encode_max_depth || !stack.reserve(3) {
            let mut digits = itoa::Buffer::new();
            stack.raise_parts(&[b"Cannot serialise, excessive nesting (", digits.format(depth).as_bytes(), b")"]);
        }
        unwrap_stand_in(stack, stack.top());
        match self.array_len() {
            len @ 1.. => self.array(len, depth),
            _ => self.object(depth),
        }
    }

    /// The largest key if all keys are positive integers without too many holes. Otherwise 0 or less.
    fn array_len(&self) -> i64 {
        let Encoder { stack, settings, .. } = *self;
        let (mut most, mut items) = (0i64, 0i64);
        let mut walk = Walk::default();
        while let Some(kind) = walk.next(stack) {
            self.stack.tick();
            let key = if kind == Kind::Number { stack.number(-2) } else { 0.0 };
            stack.pop(2);
            if key < 1.0 || key.floor() != key {
                return -1;
            }
            if key > most as f64 {
                // A C integer in Redis' library: a key that does not fit becomes the least one.
                most = if key > f64::from(i32::MAX) { i64::from(i32::MIN) } else { key as i64 };
            }
            items += 1;
        }
        let ratio = i64::from(settings.sparse_ratio);
        if ratio > 0 && most > items * ratio && most > i64::from(settings.sparse_safe) {
            if !settings.sparse_convert {
                self.refuse(b"excessively sparse array");
            }
            return -1;
        }
        most
    }

    fn array(&self, len: i64, depth: i32) {
        let Encoder { stack, out, .. } = *self;
        out.push(b'[');
        for i in 1..=len {
            if i > 1 {
                out.push(b',');
            }
            self.stack.tick();
            stack.raw_get_at(-1, i as c_int);
            self.value(depth);
            stack.pop(1);
        }
        out.push(b']');
    }

    fn object(&self, depth: i32) {
        let Encoder { stack, out, .. } = *self;
        out.push(b'{');
        let mut first = true;
        let mut walk = Walk::default();
        while let Some(kind) = walk.next(stack) {
            stack.tick();
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            match kind {
                Kind::String => self.string(stack.bytes(-2)),
                Kind::Number => {
                    out.push(b'"');
                    self.number(stack.number(-2));
                    out.push(b'"');
                }
                _ => {
                    stack.pop(1);
                    self.refuse(b"table key must be a number or string");
                }
            }
            out.push(b':');
            self.value(depth);
            stack.pop(2);
        }
        out.push(b'}');
    }

    fn string(&self, text: &[u8]) {
        self.out.push(b'"');
        // A byte becomes up to six, for which room is reserved piece by piece.
        for piece in text.chunks(SCRIPT_ESCAPE_CHUNK_BYTES) {
            self.stack.tick();
            self.escape(piece);
        }
        self.out.push(b'"');
    }

    fn escape(&self, text: &[u8]) {
        self.out.reserve(text.len() * 6);
        self.out.write(|out| {
            let mut rest = text;
            while let Some(plain) = rest.iter().position(|&byte| IS_ESCAPED[usize::from(byte)]) {
                out.extend_from_slice(&rest[..plain]);
                let byte = rest[plain];
                let escape = match byte {
                    b'"' => b"\\\"",
                    b'\\' => b"\\\\",
                    b'/' => b"\\/",
                    0x08 => b"\\b",
                    b'\t' => b"\\t",
                    b'\n' => b"\\n",
                    0x0c => b"\\f",
                    b'\r' => b"\\r",
                    _ => {
                        out.extend_from_slice(b"\\u00");
                        &[b'0' + (byte >> 4), b"0123456789abcdef"[usize::from(byte & 15)]]
                    }
                };
                out.extend_from_slice(escape);
                rest = &rest[plain + 1..];
            }
            out.extend_from_slice(rest);
        });
    }

    fn number(&self, number: f64) {
        if !number.is_finite() {
            match self.settings.encode_invalid {
                Invalid::Refuse => {
                    self.stack.push_number(number);
                    self.refuse(b"must not be NaN or Inf");
                }
                Invalid::Null => return self.out.extend(b"null"),
                Invalid::Write => {}
            }
        }
        self.out.reserve(NUMBER_MAX_BYTES);
        self.out.write(|out| write_number(out, number, self.settings.precision));
    }

    /// Raises an error: the value on top can't be written.
    fn refuse(&self, reason: &[u8]) -> ! {
        let name = self.stack.kind_name(-1);
        self.stack.raise_parts(&[b"Cannot serialise ", name.as_bytes(), b": ", reason])
    }
}

/// The bytes that are escaped in a string.
static IS_ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8, 0..0x20 | 0x7f | b'"' | b'\\' | b'/');
        byte += 1;
    }
    table
};

/// Number of bytes of a string before its end, an escape or a NUL byte. `None` if none of these occurs.
fn plain_len(text: &[u8]) -> Option<usize> {
    memchr::memchr3(b'"', b'\\', 0, text)
}

/// Writes a number as C's `%.{precision}g`.
fn write_number(out: &mut Vec<u8>, number: f64, precision: i32) {
    // An integer of up to 14 digits is written in full. Nearly all numbers are such integers.
    if precision == 14
        && number.abs() < 1e14
        && number.trunc() == number
        && (number != 0.0 || number.is_sign_positive())
    {
        return num::format_i64(out, number as i64);
    }
    num::format_g(out, number, precision as usize);
}

#[derive(Clone, Copy, PartialEq)]
enum TokenKind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// The text is in the buffer or, without escapes, is this range of the input.
    String(Option<(usize, usize)>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl TokenKind {
    fn name(self) -> &'static str {
        match self {
            TokenKind::ObjectBegin => "T_OBJ_BEGIN",
            TokenKind::ObjectEnd => "T_OBJ_END",
            TokenKind::ArrayBegin => "T_ARR_BEGIN",
            TokenKind::ArrayEnd => "T_ARR_END",
            TokenKind::String(_) => "T_STRING",
            TokenKind::Number(_) => "T_NUMBER",
            TokenKind::Boolean(_) => "T_BOOLEAN",
            TokenKind::Null => "T_NULL",
            TokenKind::Colon => "T_COLON",
            TokenKind::Comma => "T_COMMA",
            TokenKind::End => "T_END",
            TokenKind::Error(text) => text,
        }
    }
}

#[derive(Clone, Copy)]
struct Token {
    kind: TokenKind,
    /// The start of the token, or the position of the error.
    at: usize,
}

struct Decoder<'a> {
    stack: Stack<'a>,
    text: &'a [u8],
    at: usize,
    depth: i32,
    settings: Settings,
}

impl<'a> Decoder<'a> {
    /// Pushes the value that begins with `token`.
    fn value(&mut self, token: Token) {
        let stack = self.stack;
        match token.kind {
            TokenKind::String(span) => self.push_string(span),
            TokenKind::Number(number) => stack.push_number(number),
            TokenKind::Boolean(value) => stack.push_boolean(value),
            TokenKind::ObjectBegin => self.object(),
            TokenKind::ArrayBegin => self.array(),
            TokenKind::Null => push_null(stack),
            _ => self.fail("value", token),
        }
    }

    fn push_string(&self, span: Option<(usize, usize)>) {
        match span {
            Some((from, to)) => self.stack.push_bytes(&self.text[from..to]),
            None => self.stack.buffer_as_is().push_to(self.stack),
        }
    }

    fn descend(&mut self) {
        self.depth += 1;
        check_c_stack(self.stack, SCRIPT_DATA_STACK_BYTES);
        if self.depth > self.settings.decode_max_depth || !self.stack.reserve(3) {
            let (mut depth, mut at) = (itoa::Buffer::new(), itoa::Buffer::new());
            let (depth, at) = (depth.format(self.depth).as_bytes(), at.format(self.at).as_bytes());
            self.stack.raise_parts(&[b"Found too many nested data structures (", depth, b") at character ", at]);
        }
    }

    fn object(&mut self) {
        self.descend();
        let mut token = self.next_token();
        self.stack.new_table(0, 0);
        if token.kind == TokenKind::ObjectEnd {
            self.depth -= 1;
            return;
        }
        loop {
            let TokenKind::String(span) = token.kind else { self.fail("object key string", token) };
            self.push_string(span);
            token = self.next_token();
            if token.kind != TokenKind::Colon {
                self.fail("colon", token);
            }
            token = self.next_token();
            self.value(token);
            self.stack.tick();
            self.stack.raw_set(-3);
            token = self.next_token();
            match token.kind {
                TokenKind::ObjectEnd => break,
                TokenKind::Comma => token = self.next_token(),
                _ => self.fail("comma or object end", token),
            }
        }
        self.depth -= 1;
    }

    fn array(&mut self) {
        self.descend();
        self.stack.new_table(0, 0);
        let mut token = self.next_token();
        if token.kind == TokenKind::ArrayEnd {
            self.depth -= 1;
            return;
        }
        let mut i = 0;
        loop {
            self.value(token);
            self.stack.tick();
            i += 1;
            self.stack.raw_set_at(-2, i);
            token = self.next_token();
            match token.kind {
                TokenKind::ArrayEnd => break,
                TokenKind::Comma => token = self.next_token(),
                _ => self.fail("comma or array end", token),
            }
        }
        self.depth -= 1;
    }

    #[cold]
    fn fail(&self, expected: &str, token: Token) -> ! {
        let mut at = itoa::Buffer::new();
        let found = token.kind.name().as_bytes();
        let at = at.format(token.at + 1).as_bytes();
        self.stack.raise_parts(&[b"Expected ", expected.as_bytes(), b" but found ", found, b" at character ", at])
    }

    fn next_token(&mut self) -> Token {
        let mut byte = self.byte();
        while matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            self.stack.tick();
            self.at += 1;
            byte = self.byte();
        }
        let at = self.at;
        let token = |kind| Token { kind, at };
        let kind = match byte {
            0 => return token(TokenKind::End),
            b'{' => TokenKind::ObjectBegin,
            b'}' => TokenKind::ObjectEnd,
            b'[' => TokenKind::ArrayBegin,
            b']' => TokenKind::ArrayEnd,
            b':' => TokenKind::Colon,
            b',' => TokenKind::Comma,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                if !self.settings.decode_invalid && self.is_invalid_number() {
                    return token(TokenKind::Error("invalid number"));
                }
                return self.number();
            }
            _ => return self.word(token),
        };
        self.at += 1;
        token(kind)
    }

    /// The next byte. A NUL byte ends the text, as in C.
    #[inline(always)]
    fn byte(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn word(&mut self, token: impl Fn(TokenKind) -> Token) -> Token {
        let word = match &self.text[self.at..] {
            [b't', b'r', b'u', b'e', ..] => Some((4, TokenKind::Boolean(true))),
            [b'f', b'a', b'l', b's', b'e', ..] => Some((5, TokenKind::Boolean(false))),
            [b'n', b'u', b'l', b'l', ..] => Some((4, TokenKind::Null)),
            _ => None,
        };
        if let Some((len, kind)) = word {
            self.at += len;
            return token(kind);
        }
        if self.settings.decode_invalid && self.is_invalid_number() {
            return self.number();
        }
        token(TokenKind::Error("invalid token"))
    }

    /// Whether the input continues with a number that C accepts and JSON does not: `+1`, `0x1`, `01`, `inf`, `nan`.
    fn is_invalid_number(&self) -> bool {
        let rest = &self.text[self.at..];
        let unsigned = match rest {
            [b'+', ..] => return true,
            [b'-', rest @ ..] => rest,
            rest => rest,
        };
        match unsigned {
            [b'0', next, ..] => matches!(next, b'x' | b'X' | b'0'..=b'9'),
            [b'1'..=b'9', ..] | [b'0'] => false,
            [a, b, c, ..] => {
                let word = [a, b, c].map(u8::to_ascii_lowercase);
                word == *b"inf" || word == *b"nan"
            }
            _ => false,
        }
    }

    fn number(&mut self) -> Token {
        let at = self.at;
        let (mut integer, mut digits) = (0u64, 0);
        for digit in self.text[at..].iter().take_while(|byte| byte.is_ascii_digit()) {
            integer = integer.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            digits += 1;
        }
        // Nearly all numbers are short integers, which need no parser for fractions.
        if (1..16).contains(&digits)
            && self.text[at] != b'0'
            && !matches!(self.text.get(at + digits), Some(b'.' | b'e' | b'E'))
        {
            self.at += digits;
            return Token { kind: TokenKind::Number(integer as f64), at };
        }
        let read = num::strtod(&self.text[at..]);
        if read.used == 0 {
            return Token { kind: TokenKind::Error("invalid number"), at };
        }
        self.at += read.used;
        Token { kind: TokenKind::Number(read.value), at }
    }

    /// Reads a string: as a range of the input, or, if it has escapes, into the buffer.
    fn string(&mut self) -> Token {
        let at = self.at;
        let start = at + 1;
        let error = |text, at| Token { kind: TokenKind::Error(text), at };
        let Some(len) = plain_len(&self.text[start..]) else {
            return error("unexpected end of string", self.text.len());
        };
        self.at = start + len;
        if self.text[self.at] == b'"' {
            self.at += 1;
            return Token { kind: TokenKind::String(Some((start, start + len))), at };
        }
        let out = self.stack.buffer();
        out.extend(&self.text[start..self.at]);
        loop {
            self.stack.tick();
            match self.text.get(self.at).copied() {
                None | Some(0) => return error("unexpected end of string", self.at),
                Some(b'"') => break,
                Some(b'\\') => {
                    let plain = match self.text.get(self.at + 1).copied() {
                        Some(b'u') => match self.unicode() {
                            Some(character) => {
                                out.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
                                continue;
                            }
                            None => return error("invalid unicode escape code", self.at),
                        },
                        Some(byte @ (b'"' | b'\\' | b'/')) => byte,
                        Some(b'b') => 0x08,
                        Some(b't') => b'\t',
                        Some(b'n') => b'\n',
                        Some(b'f') => 0x0c,
                        Some(b'r') => b'\r',
                        _ => return error("invalid escape code", self.at),
                    };
                    out.push(plain);
                    self.at += 2;
                }
                Some(_) => {
                    let rest = &self.text[self.at..];
                    let plain = plain_len(rest).unwrap_or(rest.len());
                    out.extend(&rest[..plain]);
                    self.at += plain;
                }
            }
        }
        self.at += 1;
        Token { kind: TokenKind::String(None), at }
    }

    /// Reads `\uXXXX`, or two of them that form one character.
    fn unicode(&mut self) -> Option<char> {
        let unit = |at: usize| -> Option<u32> {
            let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
            digits.iter().try_fold(0, |n, &digit| Some(n * 16 + (digit as char).to_digit(16)?))
        };
        let first = unit(self.at)?;
        if first & 0xfc00 != 0xd800 {
            let character = char::from_u32(first)?;
            self.at += 6;
            return Some(character);
        }
        let second = unit(self.at + 6).filter(|second| second & 0xfc00 == 0xdc00)?;
        self.at += 12;
        char::from_u32(0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff))
    }
}
