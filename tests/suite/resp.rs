//! Both directions of the protocol, judged by a third-party crate. redis-protocol must read the output of [`Reply`] as
//! the same value, and [`Decoder`] must read a command written by redis-protocol as the same arguments, however the
//! bytes are cut. No server runs.

use proptest::prelude::*;
use redis_protocol::{resp2, resp3};
use tidegate::resp::reply::{Form, Reply};
use tidegate::resp::request::{Decoder, RequestLimits};

use crate::harness::{Value, decode, sorted};

/// A reply in the form that a command writes. `bool`: whether an aggregate's length is written after its elements.
#[derive(Clone, Debug)]
enum Node {
    Status(String),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    BulkInteger(i64),
    Null,
    NullArray,
    Double(f64),
    Boolean(bool),
    BigNumber(String),
    Verbatim(Vec<u8>),
    Array(Vec<Node>, bool),
    /// Keys are distinct byte strings: the judge keeps maps and sets without duplicates.
    Map(Vec<(Vec<u8>, Node)>, bool),
    Set(Vec<Vec<u8>>, bool),
    /// Only at the outermost level.
    Push(Vec<Node>),
}

impl Node {
    fn write(&self, reply: &mut Reply) {
        match self {
            Node::Status(text) => reply.status(text),
            Node::Error(text) => reply.error(text),
            Node::Integer(value) => reply.integer(*value),
            Node::Bulk(bytes) => reply.bulk(bytes),
            Node::BulkInteger(value) => reply.bulk_integer(*value),
            Node::Null => reply.null(),
            Node::NullArray => reply.null_array(),
            Node::Double(value) => reply.double(*value),
            Node::Boolean(value) => reply.boolean(*value),
            Node::BigNumber(digits) => reply.big_number(digits.as_bytes()),
            Node::Verbatim(bytes) => reply.verbatim(b"txt", bytes),
            Node::Array(items, false) => {
                reply.array(items.len());
                items.iter().for_each(|item| item.write(reply));
            }
            Node::Array(items, true) => {
                let mark = reply.begin();
                items.iter().for_each(|item| item.write(reply));
                reply.end_array(mark, items.len());
            }
            Node::Map(pairs, deferred) => {
                let mark = reply.begin();
                if !deferred {
                    reply.map(pairs.len());
                }
                for (key, value) in pairs {
                    reply.bulk(key);
                    value.write(reply);
                }
                if *deferred {
                    reply.end_map(mark, pairs.len());
                }
            }
            Node::Set(members, deferred) => {
                let mark = reply.begin();
                if !deferred {
                    reply.set(members.len());
                }
                members.iter().for_each(|member| reply.bulk(member));
                if *deferred {
                    reply.end_set(mark, members.len());
                }
            }
            Node::Push(items) => {
                reply.push(items.len());
                items.iter().for_each(|item| item.write(reply));
            }
        }
    }

    /// The value that a reader of RESP3 must see; a map's pairs are in the harness' order.
    fn in_resp3(&self) -> Value {
        let all = |items: &[Node]| items.iter().map(Node::in_resp3).collect();
        match self {
            Node::Status(text) => Value::status(text),
            Node::Error(text) => Value::Error(one_line(without_breaks_at_end(text))),
            Node::Integer(value) => Value::Integer(*value),
            Node::Bulk(bytes) => Value::Bulk(bytes.clone()),
            Node::BulkInteger(value) => Value::bulk(&value.to_string()),
            Node::Null | Node::NullArray => Value::Null,
            Node::Double(value) => Value::Double(*value),
            Node::Boolean(value) => Value::Boolean(*value),
            Node::BigNumber(digits) => Value::BigNumber(digits.clone().into_bytes()),
            Node::Verbatim(bytes) => Value::Verbatim(bytes.clone()),
            Node::Array(items, _) => Value::Array(all(items)),
            Node::Push(items) => Value::Push(all(items)),
            Node::Set(members, _) => Value::Set(sorted(members.iter().cloned().map(Value::Bulk).collect())),
            Node::Map(pairs, _) => {
                let mut pairs: Vec<(Value, Value)> =
                    pairs.iter().map(|(key, value)| (Value::Bulk(key.clone()), value.in_resp3())).collect();
                pairs.sort_by_cached_key(|pair| format!("{pair:?}"));
                Value::Map(pairs)
            }
        }
    }

    /// The value that a reader of RESP2 must see. A double is a string there; [`reads_as`] compares its number.
    fn in_resp2(&self) -> Value {
        let all = |items: &[Node]| items.iter().map(Node::in_resp2).collect();
        match self {
            Node::Boolean(value) => Value::Integer(i64::from(*value)),
            Node::BigNumber(digits) => Value::bulk(digits),
            Node::Verbatim(bytes) => Value::Bulk(bytes.clone()),
            Node::Array(items, _) | Node::Push(items) => Value::Array(all(items)),
            Node::Set(members, _) => Value::Array(members.iter().cloned().map(Value::Bulk).collect()),
            Node::Map(pairs, _) => {
                Value::Array(pairs.iter().flat_map(|(k, v)| [Value::Bulk(k.clone()), v.in_resp2()]).collect())
            }
            other => other.in_resp3(),
        }
    }
}

/// Line breaks would end an error early.
fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }).collect()
}

/// The text of an error that clients get: without line breaks at its end.
fn without_breaks_at_end(mut text: &[u8]) -> &[u8] {
    while let [before @ .., b'\r' | b'\n'] = text {
        text = before;
    }
    text
}

/// Whether the value read equals the intended one, doubles to the bit (a NaN is a NaN).
fn reads_as(read: &Value, meant: &Value) -> bool {
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let all = |a: &[Value], b: &[Value]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| reads_as(a, b));
    match (read, meant) {
        (Value::Double(a), Value::Double(b)) => same(*a, *b),
        (Value::Bulk(text), Value::Double(b)) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).is_some_and(|a| same(a, *b))
        }
        (Value::Array(a), Value::Array(b)) | (Value::Push(a), Value::Push(b)) => all(a, b),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && reads_as(&a.1, &b.1))
        }
        (a, b) => a == b,
    }
}

fn nodes() -> impl Strategy<Value = Node> {
    let bytes = || {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            Just(b"\r\n$-1\r\n".to_vec()),
            Just(vec![b'x'; 1 << 12])
        ]
    };
    let double = prop_oneof![
        any::<f64>(),
        proptest::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e21, 5e-324, f64::MAX]),
        any::<i32>().prop_map(f64::from),
    ];
    let leaf = prop_oneof![
        "[ -~]{0,20}".prop_map(Node::Status),
        "[A-Z]{1,8} [ -~\r\n]{0,30}".prop_map(|text| Node::Error(text.into_bytes())),
        any::<i64>().prop_map(Node::Integer),
        (-12i64..12).prop_map(Node::Integer),
        bytes().prop_map(Node::Bulk),
        any::<i64>().prop_map(Node::BulkInteger),
        Just(Node::Null),
        Just(Node::NullArray),
        double.prop_map(Node::Double),
        any::<bool>().prop_map(Node::Boolean),
        "-?[1-9][0-9]{0,60}".prop_map(Node::BigNumber),
        bytes().prop_map(Node::Verbatim),
    ];
    leaf.prop_recursive(5, 100, 13, move |inner| {
        let keys = proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..8), 0..13);
        let map = (proptest::collection::btree_map("[a-z\r\n]{0,6}", inner.clone(), 0..13), any::<bool>());
        prop_oneof![
            (proptest::collection::vec(inner, 0..13), any::<bool>()).prop_map(|(items, late)| Node::Array(items, late)),
            map.prop_map(|(map, late)| Node::Map(map.into_iter().map(|(k, v)| (k.into_bytes(), v)).collect(), late)),
            (keys, any::<bool>()).prop_map(|(keys, late)| Node::Set(keys.into_iter().collect(), late)),
        ]
    })
}

/// Several replies in a row, as those to a pipeline; occasionally with a push among them.
fn replies() -> impl Strategy<Value = Vec<Node>> {
    let push = proptest::collection::vec(nodes(), 1..5).prop_map(Node::Push);
    proptest::collection::vec(prop_oneof![9 => nodes(), 1 => push], 1..5)
}

fn read_back(nodes: &[Node], form: Form) -> Result<Vec<Value>, String> {
    let mut reply = Reply::new(form);
    nodes.iter().for_each(|node| node.write(&mut reply));
    let mut rest = reply.as_bytes();
    let mut values = Vec::new();
    while !rest.is_empty() {
        let (value, used) = decode(rest, form == Form::Resp3)?.ok_or("the last reply is not whole")?;
        values.push(value);
        rest = &rest[used..];
    }
    Ok(values)
}

proptest! {
    #[test]
    fn replies_read_as_they_were_meant(nodes in replies()) {
        for (form, meant) in [(Form::Resp2, Node::in_resp2 as fn(&Node) -> Value), (Form::Resp3, Node::in_resp3)] {
            let read = read_back(&nodes, form);
            prop_assert!(read.is_ok(), "{:?}: {:?}", form, read);
            let read = read.unwrap_or_default();
            prop_assert_eq!(read.len(), nodes.len(), "{:?}", form);
            for (read, node) in read.iter().zip(&nodes) {
                prop_assert!(reads_as(read, &meant(node)), "{:?}: {:?} reads as {:?}", form, node, read);
            }
        }
    }

    #[test]
    fn commands_read_as_they_were_sent(
        commands in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..13),
            1..6,
        ),
        cuts in proptest::collection::vec(1usize..60, 1..20),
    ) {
        let resp2: Vec<u8> = commands.iter().flat_map(|command| encode_resp2(command)).collect();
        let resp3: Vec<u8> = commands.iter().flat_map(|command| encode_resp3(command)).collect();
        for bytes in [resp2, resp3] {
            prop_assert_eq!(decode_cut(&bytes, &cuts), Ok(commands.clone()));
        }
    }
}

fn encode_resp2(command: &[Vec<u8>]) -> Vec<u8> {
    use resp2::types::{OwnedFrame, Resp2Frame};
    let frame = OwnedFrame::Array(command.iter().cloned().map(OwnedFrame::BulkString).collect());
    let mut bytes = vec![0; frame.encode_len(false)];
    let used = resp2::encode::encode(&mut bytes, &frame, false).expect("the buffer is large enough");
    bytes.truncate(used);
    bytes
}

fn encode_resp3(command: &[Vec<u8>]) -> Vec<u8> {
    use resp3::types::{OwnedFrame, Resp3Frame};
    let blob = |data: &Vec<u8>| OwnedFrame::BlobString { data: data.clone(), attributes: None };
    let frame = OwnedFrame::Array { data: command.iter().map(blob).collect(), attributes: None };
    let mut bytes = vec![0; frame.encode_len(false)];
    let used = resp3::encode::complete::encode(&mut bytes, &frame, false).expect("the buffer is large enough");
    bytes.truncate(used);
    bytes
}

/// Decodes as a connection does: bytes arrive in pieces, and consumed bytes are dropped.
fn decode_cut(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Vec<Vec<u8>>>, String> {
    const LIMITS: RequestLimits = RequestLimits { bulk_bytes: 512 << 20, unauthenticated: false };
    let mut decoder = Decoder::new();
    let (mut commands, mut pending, mut sent) = (Vec::new(), Vec::new(), 0);
    for cut in cuts.iter().cycle() {
        let end = (sent + cut).min(bytes.len());
        pending.extend_from_slice(&bytes[sent..end]);
        sent = end;
        while decoder.decode(&pending, &LIMITS).map_err(|error| error.to_string())? {
            commands.push(decoder.argv(&pending).iter().map(<[u8]>::to_vec).collect());
        }
        pending.drain(..decoder.keep_from());
        decoder.rebase();
        if sent == bytes.len() {
            break;
        }
    }
    if pending.is_empty() { Ok(commands) } else { Err(format!("{} bytes are left", pending.len())) }
}
