//! Replies of the engine as JSON, for the page.
//!
//! | RESP3 | JSON |
//! |---|---|
//! | string | a string; `{"hex": ...}` if it is not UTF-8; `{"cut": ..., "bytes": n}` if it is too long |
//! | status | `{"status": ...}` |
//! | error | `{"error": ...}` |
//! | number | a number; `{"number": "..."}` if JavaScript can't hold it |
//! | array, set | an array |
//! | map | `{"map": [key, value, ...]}`: keys may be of any type, and their order says something; or an object |
//! | push | `{"push": [...]}` |
//! | null, boolean | the same |
//!
//! The decoder takes one element after the other and keeps the lists that are open, so a long reply that arrives in
//! pieces is read once. It counts the memory of values, of which a short one takes many times its bytes.

use serde_json::{Map, Value, json};

use super::super::limits::{REPLY_MAX_DEPTH, REPLY_OBJECT_BYTES, REPLY_VALUE_BYTES, STRING_MAX_BYTES};
use crate::base::hex::hex;
use crate::base::num::parse_i64;

/// The reply is not in the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads replies from bytes that arrive in pieces.
pub(super) struct Decoder {
    /// Bytes of a string beyond which it is cut.
    string_max_bytes: usize,
    /// The kind as which a map is read: `Map` or `Object`.
    map: Kind,
    received: Vec<u8>,
    /// Offset of the next element.
    at: usize,
    open: Vec<Open>,
    /// Bytes of memory of all values so far, beside those of their texts.
    taken: usize,
}

/// A list that is not complete.
struct Open {
    kind: Kind,
    missing: usize,
    items: Vec<Value>,
}

#[derive(Clone, Copy)]
enum Kind {
    Array,
    Map,
    /// A map as an object of JSON. A key that is no text is its JSON.
    Object,
    Push,
    /// Attributes of the reply behind them, which are left out.
    Attributes,
}

impl Open {
    fn close(self) -> Option<Value> {
        match self.kind {
            Kind::Array => Some(Value::Array(self.items)),
            Kind::Map => Some(named("map", self.items)),
            Kind::Object => Some(Value::Object(fields(self.items))),
            Kind::Push => Some(named("push", self.items)),
            Kind::Attributes => None,
        }
    }
}

/// An object with this one field. `json!` would copy the items.
fn named(name: &str, items: Vec<Value>) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), Value::Array(items))]))
}

fn fields(items: Vec<Value>) -> Map<String, Value> {
    let (mut fields, mut items) = (Map::new(), items.into_iter());
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        let key = match key {
            Value::String(key) => key,
            other => other.to_string(),
        };
        fields.insert(key, value);
    }
    fields
}

/// An element of the protocol.
enum Element {
    Value(Value),
    List(Kind, usize),
}

impl Element {
    fn memory(&self) -> usize {
        match self {
            Element::Value(Value::Object(_)) | Element::List(Kind::Map | Kind::Object | Kind::Push, _) => {
                REPLY_OBJECT_BYTES
            }
            Element::Value(_) | Element::List(Kind::Array | Kind::Attributes, _) => REPLY_VALUE_BYTES,
        }
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            string_max_bytes: STRING_MAX_BYTES,
            map: Kind::Map,
            received: Vec::new(),
            at: 0,
            open: Vec::new(),
            taken: 0,
        }
    }
}

impl Decoder {
    /// Cuts strings beyond this many bytes.
    pub(super) fn cuts_at(&mut self, string_max_bytes: usize) {
        self.string_max_bytes = string_max_bytes;
    }

    /// Makes maps objects from here on. The order of their fields is lost.
    pub(super) fn makes_objects(&mut self) {
        self.map = Kind::Object;
    }

    /// Adds bytes.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Bytes of memory of all values so far.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// The next reply, once all of it is there.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Malformed> {
        while let Some((element, len)) = element(&self.received[self.at..], self.string_max_bytes)? {
            self.at += len;
            self.taken += element.memory();
            let mut done = match element {
                Element::Value(value) => Some(value),
                Element::List(kind, missing) => {
                    let kind = if matches!(kind, Kind::Map) { self.map } else { kind };
                    let list = Open { kind, missing, items: Vec::new() };
                    if missing == 0 {
                        list.close()
                    } else if self.open.len() == REPLY_MAX_DEPTH {
                        return Err(Malformed);
                    } else {
                        self.open.push(list);
                        None
                    }
                }
            };
            // A complete element may also complete the lists that it ends.
            while let Some(value) = done.take() {
                let Some(list) = self.open.last_mut() else { return Ok(Some(value)) };
                list.items.push(value);
                list.missing -= 1;
                if list.missing == 0 {
                    done = self.open.pop().and_then(Open::close);
                }
            }
        }
        self.received.drain(..self.at);
        self.at = 0;
        Ok(None)
    }
}

/// The first element, and how many bytes it has; `None` if it is not complete.
fn element(bytes: &[u8], string_max_bytes: usize) -> Result<Option<(Element, usize)>, Malformed> {
    let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let (kind, rest) = line.split_first().ok_or(Malformed)?;
    let head = end + 1;
    let count = || parse_i64(rest).and_then(|count| usize::try_from(count).ok()).ok_or(Malformed);
    let value = |value: Value| Ok(Some((Element::Value(value), head)));
    match kind {
        b'$' | b'=' | b'!' => {
            if rest == b"-1" {
                return value(Value::Null);
            }
            let len = count()?;
            let Some(text) = bytes.get(head..head + len).filter(|_| bytes.len() >= head + len + 2) else {
                return Ok(None);
            };
            let text = match kind {
                b'!' => json!({ "error": String::from_utf8_lossy(text) }),
                // Three letters say how to show it.
                b'=' => string(text.get(4..).unwrap_or_default(), string_max_bytes),
                _ => string(text, string_max_bytes),
            };
            Ok(Some((Element::Value(text), head + len + 2)))
        }
        b'*' | b'~' if rest != b"-1" => Ok(Some((Element::List(Kind::Array, count()?), head))),
        b'%' => Ok(Some((Element::List(Kind::Map, 2 * count()?), head))),
        b'|' => Ok(Some((Element::List(Kind::Attributes, 2 * count()?), head))),
        b'>' => Ok(Some((Element::List(Kind::Push, count()?), head))),
        b'+' => value(json!({ "status": String::from_utf8_lossy(rest) })),
        b'-' => value(json!({ "error": String::from_utf8_lossy(rest) })),
        b':' => value(integer(parse_i64(rest).ok_or(Malformed)?)),
        b',' => value(double(&String::from_utf8_lossy(rest))),
        b'(' => value(json!({ "number": String::from_utf8_lossy(rest) })),
        b'#' => value(Value::Bool(rest == b"t")),
        b'_' | b'*' | b'~' => value(Value::Null),
        _ => Err(Malformed),
    }
}

/// The largest integer below which JavaScript has all of them.
const INTEGER_MAX: u64 = 1 << 53;

fn integer(number: i64) -> Value {
    if number.unsigned_abs() < INTEGER_MAX { json!(number) } else { json!({ "number": number.to_string() }) }
}

fn double(text: &str) -> Value {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => json!(number),
        _ => json!({ "number": text }),
    }
}

fn string(bytes: &[u8], most_bytes: usize) -> Value {
    let shown = &bytes[..bytes.len().min(most_bytes)];
    let text = match std::str::from_utf8(shown) {
        Ok(text) => json!(text),
        // The cut may have gone through a character.
        Err(error) if shown.len() < bytes.len() && error.error_len().is_none() => {
            json!(String::from_utf8_lossy(&shown[..error.valid_up_to()]))
        }
        Err(_) => json!({ "hex": hex(shown) }),
    };
    if shown.len() == bytes.len() { text } else { json!({ "cut": text, "bytes": bytes.len() }) }
}

/// Bytes from text or `{"hex": ...}`, the forms in which [`string`] shows them.
pub(super) fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Number(number) => Some(number.to_string().into_bytes()),
        Value::Object(fields) => bytes_of_hex(fields.get("hex")?.as_str()?),
        _ => None,
    }
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// The text of an error reply.
pub(super) fn error_of(reply: &Value) -> Option<&str> {
    reply.as_object()?.get("error")?.as_str()
}

/// The value of a field of a map.
pub(super) fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let items = map.as_object()?.get("map")?.as_array()?;
    items.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| &pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes bytes that arrive one by one, and at once.
    fn decode(bytes: &[u8]) -> Result<Vec<Value>, Malformed> {
        let (mut slow, mut fast) = (Decoder::default(), Decoder::default());
        let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
        for byte in bytes {
            slow.receive(&[*byte]);
            one_by_one.extend(slow.next()?);
        }
        fast.receive(bytes);
        while let Some(value) = fast.next()? {
            at_once.push(value);
        }
        assert_eq!(one_by_one, at_once);
        Ok(at_once)
    }

    #[test]
    fn each_type_has_its_form() {
        for (reply, wanted) in [
            (&b"+OK\r\n"[..], json!({"status": "OK"})),
            (b"-ERR no\r\n", json!({"error": "ERR no"})),
            (b"!6\r\nERR no\r\n", json!({"error": "ERR no"})),
            (b":-7\r\n", json!(-7)),
            (b":9007199254740992\r\n", json!({"number": "9007199254740992"})),
            (b",1.5\r\n", json!(1.5)),
            (b",inf\r\n", json!({"number": "inf"})),
            (b"(123\r\n", json!({"number": "123"})),
            (b"#t\r\n", json!(true)),
            (b"_\r\n", Value::Null),
            (b"$-1\r\n", Value::Null),
            (b"*-1\r\n", Value::Null),
            (b"$0\r\n\r\n", json!("")),
            (b"$3\r\na\r\n\r\n", json!("a\r\n")),
            (b"$2\r\n\xff\x0a\r\n", json!({"hex": "ff0a"})),
            (b"=7\r\ntxt:abc\r\n", json!("abc")),
            (b"*0\r\n", json!([])),
            (b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", json!([1, ["a"]])),
            (b"~1\r\n:1\r\n", json!([1])),
            (b"%1\r\n$1\r\na\r\n:1\r\n", json!({"map": ["a", 1]})),
            (b">2\r\n$1\r\na\r\n:1\r\n", json!({"push": ["a", 1]})),
            (b"*2\r\n|1\r\n$1\r\na\r\n:1\r\n:2\r\n:3\r\n", json!([2, 3])),
        ] {
            assert_eq!(decode(reply), Ok(vec![wanted]), "{}", reply.escape_ascii());
        }
        assert_eq!(decode(b"+a\r\n:1\r\n"), Ok(vec![json!({"status": "a"}), json!(1)]));
        for bad in [&b"\r\n"[..], b"?\r\n", b"$x\r\n", b"*-2\r\n", b":1\n", b"%9223372036854775807\r\n"] {
            assert!(decode(bad).is_err() || bad.starts_with(b"%"), "{}", bad.escape_ascii());
        }
        assert_eq!(decode(&b"*1\r\n".repeat(REPLY_MAX_DEPTH + 1)), Err(Malformed));
    }

    #[test]
    fn long_strings_are_cut_between_characters() {
        let text = "é".repeat(STRING_MAX_BYTES);
        let reply = [format!("${}\r\n", text.len() + 1).as_bytes(), b"a", text.as_bytes(), b"\r\n"].concat();
        let mut decoder = Decoder::default();
        decoder.receive(&reply);
        let cut = decoder.next().expect("it is a reply").expect("it is whole");
        assert_eq!(cut["bytes"], json!(text.len() + 1));
        assert_eq!(cut["cut"].as_str().map(str::len), Some(STRING_MAX_BYTES - 1));
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        for bytes in [&b""[..], b"text", b"\xff\x00\xfe", "中文".as_bytes()] {
            assert_eq!(bytes_of(&string(bytes, STRING_MAX_BYTES)).as_deref(), Some(bytes));
        }
        assert_eq!(bytes_of(&json!(12)), Some(b"12".to_vec()));
        for bad in [json!({"hex": "f"}), json!({"hex": "xy"}), json!({"other": 1}), json!(["a"]), Value::Null] {
            assert_eq!(bytes_of(&bad), None, "{bad}");
        }
    }

    #[test]
    fn maps_become_objects_on_request() {
        let bytes = b"%2\r\n$1\r\na\r\n*1\r\n%1\r\n$1\r\nb\r\n:1\r\n:7\r\n%0\r\n";
        let map = &decode(bytes).expect("it is a reply")[0];
        assert_eq!(*map, json!({"map": ["a", [{"map": ["b", 1]}], 7, {"map": []}]}));
        assert_eq!(field(map, "a"), Some(&json!([{"map": ["b", 1]}])));
        let mut decoder = Decoder::default();
        decoder.makes_objects();
        decoder.receive(bytes);
        assert_eq!(decoder.next(), Ok(Some(json!({"a": [{"b": 1}], "7": {}}))));
    }
}
