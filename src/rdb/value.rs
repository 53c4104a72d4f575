//! Values by type: the bytes that follow a type code in a payload or a file.
//!
//! A value is written in the representation that Redis 7.0 uses for its size, so that Redis reads it back into the same
//! one. Sets that Redis keeps in listpacks only since 7.2 are written as tables.

use std::borrow::Cow;

use super::types::*;
use super::wire::{Corrupt, Input, put_bytes, put_number, put_string};
use super::{grants, intset, listpack, stream, ziplist};
use crate::base::num::{format_f64, strtod};
use crate::keyspace::ValueLimits;
use crate::keyspace::any_value::{Value, ValueRef};
use crate::value::hash::{Hash, HashLimits};
use crate::value::list::List;
use crate::value::packed::Item;
use crate::value::set::Set;
use crate::value::string::{Digits, StringValue};
use crate::value::zset::{ZSet, ZSetLimits};

/// The kinds of nodes in a [`LIST_QUICKLIST_2`].
const NODE_PLAIN: u64 = 1;
pub(super) const NODE_PACKED: u64 = 2;

/// The latest time at which a field can expire, Unix ms: Redis has 48 bits for it.
const DEADLINE_MAX_MS: i64 = (1 << 48) - 2;

/// Bytes of a list's node, unless a single element is larger: Redis' default.
const NODE_BYTES: usize = 8192;

/// The code of the type and representation in which [`encode`] writes a value, not counting the parts that only a
/// payload of this server has.
pub(crate) fn type_code(value: ValueRef<'_>) -> u8 {
    match value {
        ValueRef::String(_) => STRING,
        ValueRef::List(_) => LIST_QUICKLIST_2,
        ValueRef::Set(set) if set.encoding() == "intset" => SET_INTSET,
        ValueRef::Set(_) => SET,
        ValueRef::ZSet(zset) if is_small_zset(zset) => ZSET_LISTPACK,
        ValueRef::ZSet(_) => ZSET_2,
        ValueRef::Hash(hash) if has_deadlines(hash) && is_small_hash(hash) => HASH_LISTPACK_EX,
        ValueRef::Hash(hash) if has_deadlines(hash) => HASH_METADATA,
        ValueRef::Hash(hash) if is_small_hash(hash) => HASH_LISTPACK,
        ValueRef::Hash(_) => HASH,
        ValueRef::Stream(_) => STREAM_2,
        ValueRef::Grants(_) => GRANTS,
    }
}

/// The code of the type in which [`encode_whole`] writes a value.
pub(crate) fn whole_type_code(value: ValueRef<'_>) -> u8 {
    match value {
        ValueRef::Stream(_) => STREAM_WHOLE,
        ValueRef::Set(set) if expires(set) => SET_METADATA,
        value => type_code(value),
    }
}

/// Whether the type is this server's own. Redis cannot read a file that holds a value of such a type.
pub(crate) fn is_own(code: u8) -> bool {
    code == GRANTS
}

/// For a value with data that Redis' types cannot express, begins its payload with a type of this server's own and that
/// data, to be followed by the output of [`encode`]. Otherwise writes nothing.
pub(super) fn put_own_part(value: ValueRef<'_>, out: &mut Vec<u8>) {
    if let ValueRef::Stream(stream) = value
        && (stream.has_policies() || stream.delayed_len() > 0)
    {
        let has_delayed = stream.delayed_len() > 0;
        out.push(if has_delayed { STREAM_WITH_DELAYED } else { STREAM_WITH_POLICIES });
        let mut part = Vec::new();
        stream::encode_policies(stream, &mut part);
        put_bytes(out, &part);
        if has_delayed {
            part.clear();
            stream::encode_delayed(stream, &mut part);
            put_bytes(out, &part);
        }
    }
}

/// Whether the value of a payload, including its type, has delayed messages.
pub(crate) fn has_delayed(value: &[u8]) -> bool {
    value.first() == Some(&STREAM_WITH_DELAYED)
}

/// The value of a payload, including its type, as Redis can read it: without the output of [`put_own_part`]. `None` if
/// that part is damaged.
pub(crate) fn without_own_part(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    match value.split_first() {
        Some((&code @ (STREAM_WITH_POLICIES | STREAM_WITH_DELAYED), rest)) => {
            let mut input = Input::new(rest, rest.len());
            for _ in 0..1 + usize::from(code == STREAM_WITH_DELAYED) {
                input.string().ok()?;
            }
            Some(Cow::Owned([&[STREAM_2], input.rest()].concat()))
        }
        _ => Some(Cow::Borrowed(value)),
    }
}

/// The version of RDB that introduced the type, but at least Redis 7.0's.
pub(crate) fn version_of(code: u8) -> u16 {
    if matches!(code, HASH_METADATA | HASH_LISTPACK_EX) { VERSION_OF_EXPIRING_FIELDS } else { VERSION }
}

/// The destination of an encoded value: bytes are appended to a buffer, which may pass its contents on between two
/// elements.
pub(crate) trait Sink {
    /// The buffer for the next element, or for a whole value that is not large.
    fn buffer(&mut self) -> &mut Vec<u8>;
}

impl Sink for Vec<u8> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self
    }
}

/// Appends a value, without its type. A list or stream is encoded in one go, since it begins with its number of nodes.
pub(crate) fn encode(value: ValueRef<'_>, out: &mut impl Sink) {
    match value {
        ValueRef::String(string) => put_string(out.buffer(), string.as_bytes(&mut Digits::new())),
        ValueRef::List(list) => encode_list(list, out.buffer()),
        ValueRef::Set(set) => encode_set(set, out),
        ValueRef::ZSet(zset) => encode_zset(zset, out),
        ValueRef::Hash(hash) => encode_hash(hash, out),
        ValueRef::Stream(stream) => stream::encode(stream, 2, out.buffer()),
        ValueRef::Grants(held) => grants::encode(held, out.buffer()),
    }
}

/// Appends a complete value, without its type, for another server of this kind.
pub(crate) fn encode_whole(value: ValueRef<'_>, out: &mut impl Sink) {
    match value {
        ValueRef::Stream(stream) => stream::encode_whole(stream, out.buffer()),
        ValueRef::Set(set) if expires(set) => encode_mortal_set(set, out),
        value => encode(value, out),
    }
}

/// Reads a value of the type and representation `code`. `limits` determine its representation here.
pub(crate) fn decode(code: u8, input: &mut Input<'_>, limits: &ValueLimits) -> Result<Value, Corrupt> {
    Ok(match code {
        STRING => Value::String(StringValue::new(&input.string()?)),
        LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST_2 => Value::List(decode_list(code, input, limits)?),
        SET | SET_INTSET | SET_LISTPACK | SET_METADATA => Value::Set(decode_set(code, input, limits)?),
        ZSET | ZSET_2 | ZSET_ZIPLIST | ZSET_LISTPACK => Value::ZSet(decode_zset(code, input, limits.zset)?),
        HASH
        | HASH_ZIPMAP
        | HASH_ZIPLIST
        | HASH_LISTPACK
        | HASH_METADATA_PREVIEW
        | HASH_LISTPACK_EX_PREVIEW
        | HASH_METADATA
        | HASH_LISTPACK_EX
        | VALKEY_HASH_2 => Value::Hash(decode_hash(code, input, &limits.hash)?),
        STREAM_1 | STREAM_2 | STREAM_3 | STREAM_4 | STREAM_5 => {
            let version = match code {
                STREAM_1 => 1,
                STREAM_2 => 2,
                STREAM_3 => 3,
                STREAM_4 => 4,
                _ => 5,
            };
            Value::Stream(Box::new(stream::decode(version, input, limits.stream)?))
        }
        GRANTS => Value::Grants(grants::decode(input)?),
        STREAM_WITH_POLICIES | STREAM_WITH_DELAYED => {
            let policies = input.string()?.into_owned();
            let delayed = if code == STREAM_WITH_DELAYED { Some(input.string()?.into_owned()) } else { None };
            let mut stream = stream::decode(2, input, limits.stream)?;
            stream::decode_policies(&mut stream, &policies, delayed.is_some())?;
            if let Some(delayed) = delayed {
                stream::decode_delayed(&mut stream, &delayed, false)?;
            }
            Value::Stream(Box::new(stream))
        }
        STREAM_WHOLE => Value::Stream(Box::new(stream::decode_whole(input, limits.stream)?)),
        _ => return Err(Corrupt),
    })
}

fn encode_list(list: &List, out: &mut Vec<u8>) {
    let mut nodes = Vec::new();
    let mut count = 0;
    let mut node = listpack::Writer::new();
    let mut finish = |node: &mut listpack::Writer, nodes: &mut Vec<u8>| {
        let full = std::mem::replace(node, listpack::Writer::new());
        if !full.is_empty() {
            put_number(nodes, NODE_PACKED);
            put_bytes(nodes, &full.finish());
            count += 1;
        }
    };
    let mut plain = 0;
    for element in list.iter() {
        if element.len() >= listpack::MAX_BYTES {
            finish(&mut node, &mut nodes);
            put_number(&mut nodes, NODE_PLAIN);
            put_bytes(&mut nodes, element);
            plain += 1;
            continue;
        }
        if node.byte_len().saturating_add(element.len()) > NODE_BYTES {
            finish(&mut node, &mut nodes);
        }
        node.push(element);
    }
    finish(&mut node, &mut nodes);
    put_number(out, count + plain);
    out.extend_from_slice(&nodes);
}

fn encode_set(set: &Set, out: &mut impl Sink) {
    if set.encoding() == "intset" {
        let integers: Vec<i64> = set.iter().filter_map(|member| member.as_int()).collect();
        let mut packed = Vec::new();
        intset::write(&integers, &mut packed);
        return put_bytes(out.buffer(), &packed);
    }
    put_number(out.buffer(), set.len() as u64);
    set.iter().for_each(|member| put_string(out.buffer(), member.as_bytes(&mut Digits::new())));
}

/// Whether any member that has not expired has a deadline.
fn expires(set: &Set) -> bool {
    set.deadlines().is_some_and(|deadlines| deadlines.len() > deadlines.expired())
}

/// A set with members that expire: each member with its deadline, or 0 for none.
fn encode_mortal_set(set: &Set, out: &mut impl Sink) {
    put_number(out.buffer(), set.len() as u64);
    for member in set.iter() {
        let mut digits = Digits::new();
        let (out, member) = (out.buffer(), member.as_bytes(&mut digits));
        put_string(out, member);
        let at_ms = set.deadlines().and_then(|deadlines| deadlines.at(member));
        put_number(out, at_ms.map_or(0, |at_ms| at_ms.max(1) as u64));
    }
}

fn is_small_zset(zset: &ZSet) -> bool {
    zset.encoding() == "listpack" && fits_listpack(zset.iter().map(|(member, _)| member.len()))
}

fn encode_zset(zset: &ZSet, out: &mut impl Sink) {
    if is_small_zset(zset) {
        let mut packed = listpack::Writer::new();
        let mut digits = Vec::new();
        for (member, score) in zset.iter() {
            digits.clear();
            format_f64(&mut digits, score);
            packed.push(member);
            packed.push(&digits);
        }
        return put_bytes(out.buffer(), &packed.finish());
    }
    put_number(out.buffer(), zset.len() as u64);
    // From the highest on, as Redis does: the reader then adds each member before all others.
    for (member, score) in zset.iter().rev() {
        let out = out.buffer();
        put_string(out, member);
        out.extend_from_slice(&score.to_le_bytes());
    }
}

fn is_small_hash(hash: &Hash) -> bool {
    let sizes = || hash.iter().map(|(field, value)| field.byte_len().saturating_add(value.byte_len()));
    hash.encoding() != "hashtable" && fits_listpack(sizes())
}

/// Whether any field that has not expired has a deadline.
fn has_deadlines(hash: &Hash) -> bool {
    hash.deadlines().is_some_and(|deadlines| deadlines.len() > deadlines.expired())
}

fn encode_hash(hash: &Hash, out: &mut impl Sink) {
    if has_deadlines(hash) {
        return encode_mortal_hash(hash, out);
    }
    if is_small_hash(hash) {
        let mut packed = listpack::Writer::new();
        for (field, value) in hash.iter() {
            packed.push_item(field);
            packed.push_item(value);
        }
        return put_bytes(out.buffer(), &packed.finish());
    }
    put_number(out.buffer(), hash.len() as u64);
    for (field, value) in hash.iter() {
        let out = out.buffer();
        put_string(out, field.as_bytes(&mut Digits::new()));
        put_string(out, value.as_bytes(&mut Digits::new()));
    }
}

/// A hash with fields that expire: the earliest deadline, then the fields with theirs.
fn encode_mortal_hash(hash: &Hash, out: &mut impl Sink) {
    let deadline = |field: Item<'_>| {
        let at_ms = hash.deadlines().and_then(|deadlines| deadlines.at(field.as_bytes(&mut Digits::new())));
        at_ms.map(|at_ms| at_ms.max(0) as u64)
    };
    let mut fields: Vec<_> = hash.iter().map(|(field, value)| (deadline(field), field, value)).collect();
    let earliest_ms = fields.iter().filter_map(|(at_ms, ..)| *at_ms).min().unwrap_or(0);
    out.buffer().extend_from_slice(&earliest_ms.to_le_bytes());
    if is_small_hash(hash) {
        // In the order of the deadlines; fields that never expire come last.
        fields.sort_by_key(|(at_ms, ..)| at_ms.unwrap_or(u64::MAX));
        let mut packed = listpack::Writer::new();
        for (at_ms, field, value) in fields {
            packed.push_item(field);
            packed.push_item(value);
            packed.push_int(at_ms.unwrap_or(0) as i64);
        }
        return put_bytes(out.buffer(), &packed.finish());
    }
    put_number(out.buffer(), fields.len() as u64);
    for (at_ms, field, value) in fields {
        let out = out.buffer();
        put_number(out, at_ms.map_or(0, |at_ms| at_ms - earliest_ms + 1));
        put_string(out, field.as_bytes(&mut Digits::new()));
        put_string(out, value.as_bytes(&mut Digits::new()));
    }
}

/// Whether elements of these sizes fit into one listpack, regardless of the limits.
fn fits_listpack(sizes: impl Iterator<Item = usize>) -> bool {
    const PER_ELEMENT: usize = 32;
    sizes.fold(0usize, |sum, size| sum.saturating_add(size).saturating_add(PER_ELEMENT)) < listpack::MAX_BYTES
}

fn decode_list(code: u8, input: &mut Input<'_>, limits: &ValueLimits) -> Result<List, Corrupt> {
    let mut list = List::new();
    let mut digits = Digits::new();
    let mut push = |items: &[Item<'_>]| {
        items.iter().for_each(|item| list.push_back(item.as_bytes(&mut digits), limits.list));
    };
    match code {
        LIST_ZIPLIST => push(&ziplist::read(&input.string()?)?),
        LIST => {
            for _ in 0..input.count()? {
                push(&[Item::Bytes(&input.string()?)]);
            }
        }
        LIST_QUICKLIST => {
            for _ in 0..input.count()? {
                let node = input.string()?;
                // Some versions of Redis left nodes without elements behind, and all versions skip them.
                if *node != ziplist::EMPTY {
                    push(&ziplist::read(&node)?);
                }
            }
        }
        _ => {
            for _ in 0..input.count()? {
                let (kind, node) = (input.number()?, input.string()?);
                match kind {
                    NODE_PLAIN if !node.is_empty() => push(&[Item::Bytes(&node)]),
                    NODE_PACKED if *node == listpack::EMPTY => {}
                    NODE_PACKED => push(&listpack::read(&node)?),
                    _ => return Err(Corrupt),
                }
            }
        }
    }
    if list.is_empty() { Err(Corrupt) } else { Ok(list) }
}

fn decode_set(code: u8, input: &mut Input<'_>, limits: &ValueLimits) -> Result<Set, Corrupt> {
    let mut set = Set::new();
    let mut digits = Digits::new();
    let mut insert = |member: Item<'_>| {
        let new = set.insert(member.as_bytes(&mut digits), &limits.set);
        if new { Ok(()) } else { Err(Corrupt) }
    };
    match code {
        SET => {
            for _ in 0..input.count()? {
                insert(Item::Bytes(&input.string()?))?;
            }
        }
        SET_METADATA => return decode_mortal_set(input, limits),
        SET_INTSET => intset::read(&input.string()?)?.try_for_each(|value| insert(Item::Int(value)))?,
        _ => listpack::read(&input.string()?)?.into_iter().try_for_each(insert)?,
    }
    if set.is_empty() { Err(Corrupt) } else { Ok(set) }
}

fn decode_mortal_set(input: &mut Input<'_>, limits: &ValueLimits) -> Result<Set, Corrupt> {
    let mut set = Set::new();
    for _ in 0..input.count()? {
        let (member, at_ms) = (input.string()?, input.number()?);
        if !set.insert(&member, &limits.set) {
            return Err(Corrupt);
        }
        if at_ms > 0 {
            let at_ms = i64::try_from(at_ms).ok().filter(|at_ms| *at_ms <= DEADLINE_MAX_MS).ok_or(Corrupt)?;
            set.set_deadline(&member, at_ms, &limits.set);
        }
    }
    if set.is_empty() { Err(Corrupt) } else { Ok(set) }
}

fn decode_zset(code: u8, input: &mut Input<'_>, limits: ZSetLimits) -> Result<ZSet, Corrupt> {
    let mut zset = ZSet::new();
    let mut insert = |member: &[u8], score: f64| {
        let sound = !score.is_nan() && zset.insert(member, score, limits).is_none();
        if sound { Ok(()) } else { Err(Corrupt) }
    };
    match code {
        ZSET | ZSET_2 => {
            for _ in 0..input.count()? {
                let member = input.string()?;
                let score = if code == ZSET { score_text(input)? } else { f64::from_le_bytes(input.array()?) };
                insert(&member, score)?;
            }
        }
        _ => {
            let packed = input.string()?;
            let items = if code == ZSET_ZIPLIST { ziplist::read(&packed)? } else { listpack::read(&packed)? };
            for [member, score] in pairs(&items)? {
                let score = match score {
                    Item::Int(score) => *score as f64,
                    Item::Bytes(text) => double(text)?,
                };
                insert(member.as_bytes(&mut Digits::new()), score)?;
            }
        }
    }
    if zset.is_empty() { Err(Corrupt) } else { Ok(zset) }
}

/// A score as text behind its length. The three largest lengths stand for values without text.
fn score_text(input: &mut Input<'_>) -> Result<f64, Corrupt> {
    match input.byte()? {
        253 => Err(Corrupt),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => double(input.take(usize::from(len))?),
    }
}

fn double(text: &[u8]) -> Result<f64, Corrupt> {
    let read = strtod(text);
    if read.used == text.len() && !text.is_empty() { Ok(read.value) } else { Err(Corrupt) }
}

fn decode_hash(code: u8, input: &mut Input<'_>, limits: &HashLimits) -> Result<Hash, Corrupt> {
    let mut hash = Hash::new();
    let mut insert = |field: &Item<'_>, value: &Item<'_>, expires_at_ms: Option<u64>| {
        let (mut field_digits, mut value_digits) = (Digits::new(), Digits::new());
        let (field, value) = (field.as_bytes(&mut field_digits), value.as_bytes(&mut value_digits));
        if !hash.insert(field, value, limits) {
            return Err(Corrupt);
        }
        if let Some(at_ms) = expires_at_ms {
            hash.set_deadline(
                field,
                i64::try_from(at_ms).ok().filter(|at_ms| *at_ms <= DEADLINE_MAX_MS).ok_or(Corrupt)?,
            );
        }
        Ok(())
    };
    match code {
        HASH => {
            for _ in 0..input.count()? {
                let (field, value) = (input.string()?, input.string()?);
                insert(&Item::Bytes(&field), &Item::Bytes(&value), None)?;
            }
        }
        HASH_METADATA | HASH_METADATA_PREVIEW => {
            // Deadlines count from one before the earliest, which the preview did not write; 0 means none.
            let earliest_ms = if code == HASH_METADATA { u64::from_le_bytes(input.array()?) } else { 1 };
            for _ in 0..input.count()? {
                let (time, field, value) = (input.number()?, input.string()?, input.string()?);
                let at_ms = time.checked_sub(1).map(|behind| earliest_ms.saturating_add(behind));
                insert(&Item::Bytes(&field), &Item::Bytes(&value), at_ms)?;
            }
        }
        VALKEY_HASH_2 => {
            for _ in 0..input.count()? {
                let (field, value, at_ms) = (input.string()?, input.string()?, i64::from_le_bytes(input.array()?));
                // A negative time means never.
                insert(&Item::Bytes(&field), &Item::Bytes(&value), u64::try_from(at_ms).ok())?;
            }
        }
        HASH_LISTPACK_EX | HASH_LISTPACK_EX_PREVIEW => {
            if code == HASH_LISTPACK_EX {
                let _earliest_ms: [u8; 8] = input.array()?;
            }
            let packed = input.string()?;
            for triple in exact_chunks(&listpack::read(&packed)?)? {
                let [field, value, time]: &[Item<'_>; 3] = triple;
                let at_ms = time.as_int().and_then(|time| u64::try_from(time).ok()).ok_or(Corrupt)?;
                insert(field, value, Some(at_ms).filter(|at_ms| *at_ms > 0))?;
            }
        }
        _ => {
            let packed: Cow<'_, [u8]> = input.string()?;
            let items = match code {
                HASH_ZIPMAP => ziplist::read_zipmap(&packed)?,
                HASH_ZIPLIST => ziplist::read(&packed)?,
                _ => listpack::read(&packed)?,
            };
            for [field, value] in pairs(&items)? {
                insert(field, value, None)?;
            }
        }
    }
    if hash.is_empty() { Err(Corrupt) } else { Ok(hash) }
}

fn pairs<'i, 'a>(items: &'i [Item<'a>]) -> Result<impl Iterator<Item = &'i [Item<'a>; 2]>, Corrupt> {
    exact_chunks(items)
}

/// The items in groups of `N`, with none left over.
fn exact_chunks<'i, 'a, const N: usize>(
    items: &'i [Item<'a>],
) -> Result<impl Iterator<Item = &'i [Item<'a>; N]>, Corrupt> {
    let (chunks, rest) = items.as_chunks::<N>();
    if rest.is_empty() { Ok(chunks.iter()) } else { Err(Corrupt) }
}
