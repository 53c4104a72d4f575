//! Lua values and replies of commands as the debugger shows them: on one line, in the forms of Redis' debugger.
//!
//! This code runs inside the hook, so it never raises and never calls a function of the script. It stops soon after
//! `limit` bytes, because a table that contains itself many times would otherwise take forever.

use crate::base::num;
use crate::resp::tape::{TapeReader, Token};
use crate::script::limits::DEBUG_VALUE_MAX_DEPTH;
use crate::script::lua::{Kind, Stack};
use crate::script::luajit::Walk;

/// Digits with which Lua writes numbers.
const NUMBER_DIGITS: usize = 14;

/// Appends the value on top of the stack.
pub(super) fn value(stack: Stack<'_>, out: &mut Vec<u8>, limit: usize) {
    nested_value(stack, out, limit, 0);
}

fn nested_value(stack: Stack<'_>, out: &mut Vec<u8>, limit: usize, depth: usize) {
    match stack.kind(-1) {
        Kind::None | Kind::Nil => out.extend_from_slice(b"nil"),
        Kind::Boolean => out.extend_from_slice(if stack.boolean(-1) { b"true" } else { b"false" }),
        Kind::Number => num::format_g(out, stack.number(-1), NUMBER_DIGITS),
        Kind::String => quoted(out, stack.bytes(-1), limit),
        // Room for a key, a value and a copy of the key.
        Kind::Table if depth < DEBUG_VALUE_MAX_DEPTH && stack.reserve(3) => table(stack, out, limit, depth),
        Kind::Table => out.extend_from_slice(b"<max recursion level reached! Nested table?>"),
        Kind::LightUserdata => reference(out, "light-userdata", stack),
        Kind::Function | Kind::Other => reference(out, stack.kind_name(-1), stack),
    }
}

/// Appends the kind and address of a value that has no text.
fn reference(out: &mut Vec<u8>, kind: &str, stack: Stack<'_>) {
    let address = stack.pointer(-1);
    let text = if address.is_null() { format!("\"{kind}@(nil)\"") } else { format!("\"{kind}@{address:p}\"") };
    out.extend_from_slice(text.as_bytes());
}

/// Appends a table: `{1; 2}` if its keys are 1, 2 and so on in this order, otherwise `{["key"]=value; [2]=value}`.
fn table(stack: Stack<'_>, out: &mut Vec<u8>, limit: usize, depth: usize) {
    let is_list = is_list(stack);
    out.push(b'{');
    let mut is_first = true;
    let mut walk = Walk::default();
    while walk.next(stack).is_some() {
        if out.len() > limit {
            stack.pop(2);
            return;
        }
        if !std::mem::take(&mut is_first) {
            out.extend_from_slice(b"; ");
        }
        if !is_list {
            out.push(b'[');
            stack.push_value(-2);
            nested_value(stack, out, limit, depth + 1);
            stack.pop(1);
            out.extend_from_slice(b"]=");
        }
        nested_value(stack, out, limit, depth + 1);
        stack.pop(2);
    }
    out.push(b'}');
}

/// Whether the keys of the table on top are 1, 2 and so on, in this order.
fn is_list(stack: Stack<'_>) -> bool {
    let mut wanted = 1.0;
    let mut walk = Walk::default();
    while walk.next(stack).is_some() {
        let is_wanted = stack.kind(-2) == Kind::Number && stack.number(-2) == wanted;
        stack.pop(2);
        if !is_wanted {
            return false;
        }
        wanted += 1.0;
    }
    true
}

/// Appends a string in quotes, with escapes for bytes that are not printable ASCII.
fn quoted(out: &mut Vec<u8>, bytes: &[u8], limit: usize) {
    out.push(b'"');
    for &byte in bytes {
        if out.len() > limit {
            return;
        }
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble & 15)];
                out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte)]);
            }
        }
    }
    out.push(b'"');
}

/// Appends the first reply of a tape. `resp3`: the script chose RESP3.
pub(super) fn reply(tape: &mut TapeReader<'_>, resp3: bool, out: &mut Vec<u8>, limit: usize) {
    let Some(token) = tape.next() else { return };
    let mut list = |out: &mut Vec<u8>, open: &[u8], n: usize, close: u8| {
        out.extend_from_slice(open);
        for i in 0..n {
            if out.len() > limit {
                return;
            }
            if i > 0 {
                out.push(b',');
            }
            reply(tape, resp3, out, limit);
        }
        out.push(close);
    };
    match token {
        Token::Null | Token::NullArray => out.extend_from_slice(if resp3 { b"(null)" } else { b"NULL" }),
        Token::Integer(value) => num::format_i64(out, value),
        Token::Bulk(bytes) | Token::Verbatim(_, bytes) => quoted(out, bytes, limit),
        Token::Status(text) => marked(out, b'+', text, limit),
        Token::Error(text) => marked(out, b'-', text, limit),
        Token::BigNumber(digits) => {
            out.extend_from_slice(b"(big number) ");
            out.extend_from_slice(digits);
        }
        Token::Double(value) => {
            out.extend_from_slice(b"(double) ");
            num::format_f64(out, value);
        }
        Token::Boolean(value) => out.extend_from_slice(if value { b"#true" } else { b"#false" }),
        Token::Array(n) => list(out, b"[", n, b']'),
        Token::Set(n) => list(out, b"~(", n, b')'),
        Token::Map(pairs) => {
            out.push(b'{');
            for i in 0..pairs {
                if out.len() > limit {
                    return;
                }
                if i > 0 {
                    out.push(b',');
                }
                reply(tape, resp3, out, limit);
                out.extend_from_slice(b" => ");
                reply(tape, resp3, out, limit);
            }
            out.push(b'}');
        }
    }
}

/// Appends a status or error in quotes, with its mark.
fn marked(out: &mut Vec<u8>, mark: u8, text: &[u8], limit: usize) {
    let start = out.len();
    quoted(out, text, limit);
    out.insert(start + 1, mark);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::tape;

    fn shown(tokens: &[Token<'_>], resp3: bool, limit: usize) -> String {
        let mut bytes = Vec::new();
        tokens.iter().for_each(|token| tape::write(&mut bytes, *token));
        let mut out = Vec::new();
        reply(&mut TapeReader::new(&bytes), resp3, &mut out, limit);
        String::from_utf8(out).expect("it is ASCII")
    }

    #[test]
    fn replies_read_as_in_redis() {
        let cases: [(&[Token<'_>], &str); 10] = [
            (&[Token::Null], "NULL"),
            (&[Token::Integer(-7)], "-7"),
            (&[Token::Bulk(b"a \"b\"\\\r\n\t\x07\x08\x01\xff")], r#""a \"b\"\\\r\n\t\a\b\x01\xff""#),
            (&[Token::Status(b"OK")], "\"+OK\""),
            (&[Token::Error(b"ERR no")], "\"-ERR no\""),
            (&[Token::Array(0)], "[]"),
            (&[Token::Array(2), Token::Bulk(b"a"), Token::Array(1), Token::Null], "[\"a\",[NULL]]"),
            (&[Token::Set(2), Token::Integer(1), Token::Boolean(true)], "~(1,#true)"),
            (&[Token::Double(1.5)], "(double) 1.5"),
            (
                &[Token::Map(2), Token::Bulk(b"a"), Token::Integer(1), Token::Bulk(b"b"), Token::Integer(2)],
                "{\"a\" => 1,\"b\" => 2}",
            ),
        ];
        for (tokens, want) in cases {
            assert_eq!(shown(tokens, false, 1_000), want);
        }
        assert_eq!(shown(&[Token::NullArray], true, 1_000), "(null)");
    }

    #[test]
    fn texts_end_soon_after_their_limit() {
        let long = [b'x'; 1_000];
        assert_eq!(shown(&[Token::Bulk(&long)], false, 10).len(), 11);
        let mut tokens = vec![Token::Array(1_000)];
        tokens.resize(1_001, Token::Integer(1));
        assert!(shown(&tokens, false, 10).len() < 20);
        tokens[0] = Token::Map(500);
        assert!(shown(&tokens, false, 10).len() < 40);
    }
}
