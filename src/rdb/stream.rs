//! Streams: their entries in listpacks, followed by their counters and their groups.
//!
//! ```text
//! stream   = listpacks, (first id, listpack)*, counters, groups, group* [, requests]
//! counters = length, last id [, first id, largest deleted id, entries ever added]
//! group    = name, last delivered id [, entries read], pending, (id, time, deliveries)*, consumers, consumer*
//!            [, released, id*]
//! consumer = name, last seen [, last active], pending, id*
//! requests = seconds, most of each producer, producers, (name, requests, (iid, id)*)*, ever added, repeated
//! ```
//!
//! The parts in brackets were added later: by the second version, except for the time of activity (third version), the
//! requests of idempotent producers (fourth version), and the entries given back to their group (fifth version).
//! Counts, and the ids of counters, groups and requests, are RDB lengths. Other ids are 16 bytes, most significant
//! first, and times are milliseconds in 8 bytes, least significant first.
//!
//! A DUMP payload in this server's own format begins with the policies of groups as one string. If there are delayed
//! messages, they follow as another string:
//!
//! ```text
//! policies = groups, (name, idle, deliveries, key of the dead letters, first backoff, longest backoff)*
//! delayed  = last ticket, messages, (due, ticket, pairs, (field, value)*)*
//! ```
//!
//! A stream that one server of this kind sends to another is a stream of the fifth version behind three such strings:
//! policies, delayed messages, and the entries that were given back and are not due at once.
//!
//! A listpack begins with a master entry, whose fields the following entries may share:
//!
//! ```text
//! master = entries, deleted entries, fields, field*, 0
//! entry  = flags, ms and seq as differences to the listpack's first id, content, items of this entry
//! content = value*                                     with SAME_FIELDS
//!         | fields, (field, value)*                    otherwise
//! ```

use std::collections::BTreeMap;

use super::listpack::{self, Writer};
use super::wire::{Corrupt, Input, put_bytes, put_number};
use crate::rdb::limits::RDB_PACKED_MAX_ITEMS;
use crate::value::packed::Item;
use crate::value::stream::{Entry, Group, Policy, Stream, StreamId, StreamLimits};
use crate::value::string::Digits;

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// Entries and bytes of each listpack written: Redis' defaults.
const NODE_ENTRIES: usize = 100;
const NODE_BYTES: usize = 4096;

/// The time of a consumer that has never received anything.
const NEVER_ACTIVE: u64 = u64::MAX;

/// The value for an unknown number of entries.
const UNKNOWN_COUNT: u64 = u64::MAX;

/// The consumer that owns, in a payload, the entries that were given back to their group (XNACK), since this version
/// has no pending entries without an owner. Their time of delivery is 0, so that any consumer may claim them.
const RELEASED: &[u8] = b"released";

/// Appends a stream in this version: the second, which is Redis 7.0's, or the fifth.
pub(super) fn encode(stream: &Stream, version: u8, out: &mut Vec<u8>) {
    encode_entries(stream, out);
    put_number(out, stream.len());
    put_id(out, stream.last_id());
    put_id(out, stream.first_id());
    put_id(out, stream.max_deleted_id());
    put_number(out, stream.entries_added());
    put_number(out, stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        put_bytes(out, name);
        encode_group(group, version, out);
    }
    if version >= 4 {
        encode_requests(stream, out);
    }
}

fn encode_entries(stream: &Stream, out: &mut Vec<u8>) {
    let mut nodes = Vec::new();
    let mut count = 0;
    let mut entries = stream.range(StreamId::MIN, StreamId::MAX).peekable();
    let mut node: Vec<Entry<'_>> = Vec::new();
    let mut bytes = 0;
    while let Some(entry) = entries.next() {
        bytes += entry.pairs.clone().map(|(field, value)| field.len() + value.len()).sum::<usize>();
        node.push(entry);
        if node.len() >= NODE_ENTRIES || bytes >= NODE_BYTES || entries.peek().is_none() {
            encode_node(&node, &mut nodes);
            node.clear();
            bytes = 0;
            count += 1;
        }
    }
    put_number(out, count);
    out.extend_from_slice(&nodes);
}

/// Appends one listpack with these entries.
fn encode_node(entries: &[Entry<'_>], out: &mut Vec<u8>) {
    let Some(first) = entries.first() else { return };
    let mut node = Writer::new();
    node.push_int(entries.len() as i64);
    node.push_int(0);
    node.push_int(first.pairs.len() as i64);
    first.pairs.clone().for_each(|(field, _)| node.push(field));
    node.push_int(0);
    for entry in entries {
        let (id, pairs) = (entry.id, &entry.pairs);
        let fields = |entry: &Entry<'_>| entry.pairs.clone().map(|(field, _)| field.to_vec()).collect::<Vec<_>>();
        let same = fields(entry) == fields(first);
        node.push_int(if same { SAME_FIELDS } else { 0 });
        node.push_int(id.ms.wrapping_sub(first.id.ms) as i64);
        node.push_int(id.seq.wrapping_sub(first.id.seq) as i64);
        if same {
            pairs.clone().for_each(|(_, value)| node.push(value));
            node.push_int(pairs.len() as i64 + 3);
        } else {
            node.push_int(pairs.len() as i64);
            for (field, value) in pairs.clone() {
                node.push(field);
                node.push(value);
            }
            node.push_int(pairs.len() as i64 * 2 + 4);
        }
    }
    put_bytes(out, &raw_id(first.id));
    put_bytes(out, &node.finish());
}

fn encode_group(group: &Group, version: u8, out: &mut Vec<u8>) {
    put_id(out, group.last_delivered());
    put_number(out, group.entries_read().unwrap_or(UNKNOWN_COUNT));
    put_number(out, group.pending_len() as u64);
    for pending in group.pending_range(StreamId::MIN, StreamId::MAX) {
        out.extend_from_slice(&raw_id(pending.id));
        out.extend_from_slice(&pending.time_ms.to_le_bytes());
        put_number(out, pending.deliveries);
    }
    let released: Vec<StreamId> = group
        .pending_range(StreamId::MIN, StreamId::MAX)
        .filter_map(|pending| pending.consumer.is_none().then_some(pending.id))
        .collect();
    if version >= 5 {
        put_number(out, group.consumers().len() as u64);
        for consumer in group.consumers() {
            let times_ms = [consumer.seen_ms(), consumer.active_ms().unwrap_or(NEVER_ACTIVE)];
            encode_consumer(consumer.name(), &times_ms, consumer.pending_range(StreamId::MIN, StreamId::MAX), out);
        }
        // The next reader gets them in the order in which they were given back.
        let in_turn: Vec<StreamId> = group.released_from(0).map(|(_, pending)| pending.id).collect();
        return put_raw_ids(out, &in_turn);
    }
    let is_extra = !released.is_empty() && group.consumer(RELEASED).is_none();
    put_number(out, group.consumers().len() as u64 + u64::from(is_extra));
    for consumer in group.consumers() {
        let released: &[_] = if consumer.name() == RELEASED { &released } else { &[] };
        let ids = consumer.pending_range(StreamId::MIN, StreamId::MAX).chain(released.iter().copied());
        encode_consumer(consumer.name(), &[consumer.seen_ms()], ids, out);
    }
    if is_extra {
        encode_consumer(RELEASED, &[0], released.into_iter(), out);
    }
}

fn encode_consumer(name: &[u8], times_ms: &[u64], pending: impl Iterator<Item = StreamId>, out: &mut Vec<u8>) {
    put_bytes(out, name);
    times_ms.iter().for_each(|time_ms| out.extend_from_slice(&time_ms.to_le_bytes()));
    put_raw_ids(out, &pending.collect::<Vec<_>>());
}

fn put_raw_ids(out: &mut Vec<u8>, ids: &[StreamId]) {
    put_number(out, ids.len() as u64);
    ids.iter().for_each(|id| out.extend_from_slice(&raw_id(*id)));
}

/// Appends the requests of idempotent producers.
fn encode_requests(stream: &Stream, out: &mut Vec<u8>) {
    let Some(memory) = stream.idempotency() else {
        let (duration_s, max_iids) = DEFAULT_REQUEST_LIMITS;
        return [duration_s, max_iids, 0, 0, 0].into_iter().for_each(|number| put_number(out, number));
    };
    put_number(out, memory.duration_s.into());
    put_number(out, memory.max_iids.into());
    let requests: Vec<_> = memory.requests().collect();
    let producers = || requests.chunk_by(|(one, ..), (next, ..)| one == next);
    put_number(out, producers().count() as u64);
    for of_producer in producers() {
        put_bytes(out, of_producer[0].0);
        put_number(out, of_producer.len() as u64);
        for (_, iid, id) in of_producer {
            put_bytes(out, iid);
            put_id(out, *id);
        }
    }
    put_number(out, memory.added());
    put_number(out, memory.duplicates());
}

/// Appends the complete stream.
pub(super) fn encode_whole(stream: &Stream, out: &mut Vec<u8>) {
    let mut part = Vec::new();
    for encode_part in [encode_policies, encode_delayed, encode_held] {
        part.clear();
        encode_part(stream, &mut part);
        put_bytes(out, &part);
    }
    encode(stream, 5, out);
}

/// Reads the output of [`encode_whole`].
pub(super) fn decode_whole(input: &mut Input<'_>, limits: StreamLimits) -> Result<Stream, Corrupt> {
    let [policies, delayed, held] =
        [input.string()?.into_owned(), input.string()?.into_owned(), input.string()?.into_owned()];
    let mut stream = decode(5, input, limits)?;
    decode_policies(&mut stream, &policies, true)?;
    decode_delayed(&mut stream, &delayed, true)?;
    decode_held(&mut stream, &held)?;
    Ok(stream)
}

/// Appends the entries that were given back and are not due at once: groups, (name, entries, (id, due)*)*.
fn encode_held(stream: &Stream, out: &mut Vec<u8>) {
    let held_of = |group: &Group| -> Vec<(StreamId, u64)> {
        let pending = group.pending_range(StreamId::MIN, StreamId::MAX);
        pending.filter_map(|pending| Some((pending.id, group.held_until_ms(pending.id)?))).collect()
    };
    let groups: Vec<_> =
        stream.groups().map(|(name, group)| (name, held_of(group))).filter(|(_, held)| !held.is_empty()).collect();
    put_number(out, groups.len() as u64);
    for (name, held) in groups {
        put_bytes(out, name);
        put_number(out, held.len() as u64);
        for (id, until_ms) in held {
            put_id(out, id);
            put_number(out, until_ms);
        }
    }
}

/// Reads the output of [`encode_held`].
fn decode_held(stream: &mut Stream, held: &[u8]) -> Result<(), Corrupt> {
    let mut input = Input::new(held, 0);
    for _ in 0..input.count()? {
        let group = input.string()?;
        for _ in 0..input.count()? {
            let (id, until_ms) = (take_id(&mut input)?, input.number()?);
            sound(stream.pending_hold(&group, id, until_ms))?;
        }
    }
    sound(input.is_empty())
}

/// Appends the policies of all groups that have one.
pub(super) fn encode_policies(stream: &Stream, out: &mut Vec<u8>) {
    put_number(out, stream.policies().count() as u64);
    for (group, _, policy) in stream.policies() {
        let Policy { idle_ms, max_deliveries, dead_letters, backoff_base_ms, backoff_max_ms } = policy;
        put_bytes(out, group);
        [idle_ms, max_deliveries].into_iter().for_each(|number| put_number(out, *number));
        put_bytes(out, dead_letters);
        [backoff_base_ms, backoff_max_ms].into_iter().for_each(|number| put_number(out, *number));
    }
}

/// Sets the policies written by [`encode_policies`] in the groups of a stream. There must be at least one, unless
/// `may_be_none`.
pub(super) fn decode_policies(stream: &mut Stream, policies: &[u8], may_be_none: bool) -> Result<(), Corrupt> {
    let mut input = Input::new(policies, policies.len());
    let count = input.count()?;
    for _ in 0..count {
        let group = input.string()?;
        let (idle_ms, max_deliveries) = (input.number()?, input.number()?);
        let dead_letters = (*input.string()?).into();
        let (backoff_base_ms, backoff_max_ms) = (input.number()?, input.number()?);
        let policy = Policy { idle_ms, max_deliveries, dead_letters, backoff_base_ms, backoff_max_ms };
        sound(policy.is_sound() && stream.group(&group).is_some_and(|group| group.policy().is_none()))?;
        stream.group_set_policy(&group, Some(policy));
    }
    sound((count > 0 || may_be_none) && input.is_empty())
}

/// Appends the delayed messages.
pub(super) fn encode_delayed(stream: &Stream, out: &mut Vec<u8>) {
    put_number(out, stream.delay_tickets());
    put_number(out, stream.delayed_len() as u64);
    for message in stream.delayed_from(StreamId::MIN) {
        put_id(out, message.id);
        put_number(out, message.pairs.len() as u64);
        message.pairs.flat_map(|(field, value)| [field, value]).for_each(|text| put_bytes(out, text));
    }
}

/// Adds the delayed messages written by [`encode_delayed`] to a stream. There must be at least one, unless
/// `may_be_none`.
pub(super) fn decode_delayed(stream: &mut Stream, delayed: &[u8], may_be_none: bool) -> Result<(), Corrupt> {
    // Nothing in it is packed again.
    let mut input = Input::new(delayed, 0);
    let (tickets, count) = (input.number()?, input.count()?);
    let mut texts = Vec::new();
    for _ in 0..count {
        let id = take_id(&mut input)?;
        texts.clear();
        let pairs = input.count()?;
        // Zeros may encode very many empty texts, each of which takes tens of bytes here. No more are allowed than an
        // entry could have.
        sound(pairs <= RDB_PACKED_MAX_ITEMS / 2)?;
        for _ in 0..pairs {
            texts.push((input.string()?, input.string()?));
        }
        sound(id.seq <= tickets && stream.delay(id, texts.iter().map(|(field, value)| (&**field, &**value))))?;
    }
    stream.set_delay_tickets(tickets);
    sound((count > 0 || may_be_none) && input.is_empty())
}

/// Reads a stream of versions 1 to 5.
pub(super) fn decode(version: u8, input: &mut Input<'_>, limits: StreamLimits) -> Result<Stream, Corrupt> {
    let mut stream = Stream::new();
    for _ in 0..input.count()? {
        let (first, node) = (input.string()?, input.string()?);
        let first = id_of(<[u8; 16]>::try_from(&*first).map_err(|_| Corrupt)?);
        decode_node(&mut stream, first, &listpack::read(&node)?, input, limits)?;
    }
    let (len, last_id) = (input.number()?, take_id(input)?);
    if len != stream.len() || last_id < stream.last_id() {
        return Err(Corrupt);
    }
    let (mut max_deleted, mut added) = (StreamId::MIN, len);
    if version >= 2 {
        let _first = take_id(input)?;
        (max_deleted, added) = (take_id(input)?, input.number()?);
    }
    stream.set_counters(last_id, Some(added), Some(max_deleted));
    for _ in 0..input.count()? {
        decode_group(&mut stream, version, input)?;
    }
    if version >= 4 {
        decode_requests(&mut stream, input)?;
    }
    Ok(stream)
}

/// The items of a listpack, read one after another.
struct Items<'i, 'a>(std::slice::Iter<'i, Item<'a>>);

impl<'a> Items<'_, 'a> {
    fn item(&mut self) -> Result<Item<'a>, Corrupt> {
        self.0.next().copied().ok_or(Corrupt)
    }

    fn int(&mut self) -> Result<i64, Corrupt> {
        self.item()?.as_int().ok_or(Corrupt)
    }

    /// The number of items, or of pairs, that follow.
    fn count(&mut self) -> Result<usize, Corrupt> {
        let count = usize::try_from(self.int()?).map_err(|_| Corrupt)?;
        if count <= self.0.len() { Ok(count) } else { Err(Corrupt) }
    }
}

/// The texts of an entry, fields and values alternating.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, item: Item<'_>) {
        self.bytes.extend_from_slice(item.as_bytes(&mut Digits::new()));
        self.ends.push(self.bytes.len());
    }

    fn at(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        (0..self.ends.len() / 2).map(|pair| (self.at(2 * pair), self.at(2 * pair + 1)))
    }
}

fn decode_node(
    stream: &mut Stream,
    first: StreamId,
    items: &[Item<'_>],
    input: &mut Input<'_>,
    limits: StreamLimits,
) -> Result<(), Corrupt> {
    let mut items = Items(items.iter());
    let (live, deleted) = (items.int()?, items.int()?);
    let fields = items.count()?;
    let master = items.0.as_slice().get(..fields).ok_or(Corrupt)?;
    items.0 = items.0.as_slice()[fields..].iter();
    if items.int()? != 0 {
        return Err(Corrupt);
    }
    let (mut live_seen, mut deleted_seen) = (0, 0);
    let mut texts = Texts::default();
    while items.0.len() > 0 {
        let before = items.0.len();
        let (flags, ms, seq) = (items.int()?, items.int()?, items.int()?);
        let id = StreamId { ms: first.ms.wrapping_add(ms as u64), seq: first.seq.wrapping_add(seq as u64) };
        texts.clear();
        if flags & SAME_FIELDS != 0 {
            // Names that are written once may be repeated endlessly.
            input.unpack(master.iter().map(Item::byte_len).sum())?;
            for field in master {
                texts.push(*field);
                texts.push(items.item()?);
            }
        } else {
            for _ in 0..items.count()?.checked_mul(2).ok_or(Corrupt)? {
                texts.push(items.item()?);
            }
        }
        let taken = before - items.0.len();
        if items.int()? != taken as i64 || texts.ends.is_empty() {
            return Err(Corrupt);
        }
        if flags & DELETED != 0 {
            deleted_seen += 1;
            continue;
        }
        live_seen += 1;
        if !stream.append(id, texts.pairs(), limits) {
            return Err(Corrupt);
        }
    }
    if (live, deleted) == (live_seen, deleted_seen) { Ok(()) } else { Err(Corrupt) }
}

fn decode_group(stream: &mut Stream, version: u8, input: &mut Input<'_>) -> Result<(), Corrupt> {
    let (name, last_delivered) = (input.string()?, take_id(input)?);
    let entries_read = match version {
        1 => stream.entries_read_at(last_delivered),
        _ => Some(input.number()?).filter(|read| *read != UNKNOWN_COUNT),
    };
    let mut group = Group::new(last_delivered, entries_read);
    let mut pending = BTreeMap::new();
    for _ in 0..input.count()? {
        let id = id_of(input.array()?);
        let (time_ms, deliveries) = (u64::from_le_bytes(input.array()?), input.number()?);
        sound(pending.insert(id, (time_ms, deliveries)).is_none())?;
    }
    for _ in 0..input.count()? {
        let (consumer, seen_ms) = (input.string()?, u64::from_le_bytes(input.array()?));
        // Versions before the third did not record it: a consumer that was seen counts as active.
        let active_ms = if version >= 3 { u64::from_le_bytes(input.array()?) } else { seen_ms };
        let mut own = Vec::new();
        for _ in 0..input.count()? {
            let id = id_of(input.array()?);
            let (time_ms, deliveries) = pending.remove(&id).ok_or(Corrupt)?;
            own.push((id, time_ms, deliveries));
        }
        let active_ms = Some(active_ms).filter(|active_ms| *active_ms != NEVER_ACTIVE);
        sound(group.add_consumer(&consumer, seen_ms, active_ms, own))?;
    }
    if version >= 5 {
        for _ in 0..input.count()? {
            let id = id_of(input.array()?);
            let (_, deliveries) = pending.remove(&id).ok_or(Corrupt)?;
            group.release(id, deliveries);
        }
    }
    sound(stream.group_insert(&name, group))?;
    // Each delivery has an owner or was given back.
    sound(pending.is_empty())
}

/// The values that Redis records for a stream without idempotent producers, unless configured otherwise: seconds, and
/// requests per producer.
const DEFAULT_REQUEST_LIMITS: (u64, u64) = (100, 100);

fn decode_requests(stream: &mut Stream, input: &mut Input<'_>) -> Result<(), Corrupt> {
    let (duration_s, max_iids) = (input.number()?, input.number()?);
    sound(duration_s > 0 && max_iids > 0)?;
    let producers = input.count()?;
    if producers > 0 || (duration_s, max_iids) != DEFAULT_REQUEST_LIMITS {
        let limit = |number: u64| u32::try_from(number).map_err(|_| Corrupt);
        stream.idempotency_configure(limit(duration_s)?, limit(max_iids)?);
    }
    for _ in 0..producers {
        let producer = input.string()?;
        for _ in 0..input.count()? {
            let (iid, id) = (input.string()?, take_id(input)?);
            sound(!iid.is_empty())?;
            stream.idempotency_add(&producer, &iid, id);
        }
    }
    let (added, repeated) = (input.number()?, input.number()?);
    if (added, repeated) != (0, 0) && stream.idempotency().is_none() {
        stream.idempotency_configure(DEFAULT_REQUEST_LIMITS.0 as u32, DEFAULT_REQUEST_LIMITS.1 as u32);
    }
    stream.idempotency_counters(added, repeated);
    Ok(())
}

fn sound(holds: bool) -> Result<(), Corrupt> {
    if holds { Ok(()) } else { Err(Corrupt) }
}

fn put_id(out: &mut Vec<u8>, id: StreamId) {
    put_number(out, id.ms);
    put_number(out, id.seq);
}

fn take_id(input: &mut Input<'_>) -> Result<StreamId, Corrupt> {
    Ok(StreamId { ms: input.number()?, seq: input.number()? })
}

fn raw_id(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}

fn id_of(raw: [u8; 16]) -> StreamId {
    let both = u128::from_be_bytes(raw);
    StreamId { ms: (both >> 64) as u64, seq: both as u64 }
}
