//! Streams: an append-only sequence of entries by id, and consumer groups that read it.
//!
//! # Entries
//! Entries lie packed in *nodes* of some 100 entries or 4 KB, in a B-tree by each node's first id: appending touches the
//! last node, a range by id starts with one lookup, trimming drops whole nodes.
//!
//! A node remembers the field names of its first entry (the *master* fields); an entry with the same names stores only
//! values. Ids are stored as differences to the node's first id. Layout of a node's buffer:
//!
//! ```text
//! node   = count, count * (length, field name), entry*
//! entry  = size, flags, ms - first.ms, seq (- first.seq where the ms are equal), content, size backwards
//! content = values * (length, bytes)                       with SAME_FIELDS
//!         | pairs, pairs * (length, field, length, value)  otherwise
//! ```
//!
//! All numbers are LEB128; `size` counts from the flags to the content's end and is repeated with its bytes reversed, so
//! that a node reads from either end. A deleted entry only gets its flag set; a node without live entries is dropped.
//!
//! # Groups
//! A group keeps its pending entries by id; each consumer keeps the ids that it owns. Both are ordered, as every reply is.
//!
//! # Changes
//! Each `&mut` method is one deterministic step on plain arguments, without clock or choice, so that whoever logs the steps can
//! repeat them. What needs a decision (the next id, what to trim, the read counter) is a `&self` method that gives the
//! argument of a step.

use std::collections::btree_map::{self, BTreeMap};
use std::collections::btree_set::{self, BTreeSet};
use std::fmt;
use std::io::Write;

use slab::Slab;

use crate::value::leb128::{Reader, bytes_len, number_before, number_len, put_bytes, put_number, put_number_reversed};

/// The id of an entry: a time in ms and a number within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since the Unix epoch, if ids are made by the server.
    pub ms: u64,
    /// Counts entries of the same ms.
    pub seq: u64,
}

impl StreamId {
    /// `0-0`: before every entry; never the id of one.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The id right after, `None` after the highest.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The id right before, `None` before `0-0`.
    pub fn prev(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Reads `ms-seq`, or `ms` alone with the sequence number that the caller's command takes then.
    pub fn parse(text: &[u8], missing_seq: u64) -> Option<StreamId> {
        match text.iter().position(|&byte| byte == b'-') {
            None => Some(StreamId { ms: parse_u64(text)?, seq: missing_seq }),
            Some(dash) => Some(StreamId { ms: parse_u64(&text[..dash])?, seq: parse_u64(&text[dash + 1..])? }),
        }
    }

    /// Like [`StreamId::parse`], and `-` is the lowest id, `+` the highest.
    pub fn parse_or_edge(text: &[u8], missing_seq: u64) -> Option<StreamId> {
        match text {
            b"-" => Some(StreamId::MIN),
            b"+" => Some(StreamId::MAX),
            _ => StreamId::parse(text, missing_seq),
        }
    }

    /// One end of a range: like [`StreamId::parse_or_edge`], or `(id` with the id itself outside (then `true`; `-` and
    /// `+` can't be excluded).
    pub fn parse_bound(text: &[u8], missing_seq: u64) -> Option<(StreamId, bool)> {
        match text.split_first() {
            Some((b'(', rest)) if !rest.is_empty() => Some((StreamId::parse(rest, missing_seq)?, true)),
            _ => Some((StreamId::parse_or_edge(text, missing_seq)?, false)),
        }
    }

    /// The id as text.
    pub fn to_text(self) -> IdText {
        let mut text = IdText { bytes: [0; ID_TEXT_MAX], len: 0 };
        let mut rest = text.bytes.as_mut_slice();
        write!(rest, "{self}").expect("two u64 and a dash fit");
        let left = rest.len();
        text.len = (ID_TEXT_MAX - left) as u8;
        text
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
        f.write_str(ms.format(self.ms))?;
        f.write_str("-")?;
        f.write_str(seq.format(self.seq))
    }
}

const ID_TEXT_MAX: usize = 41;

/// An id as text, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct IdText {
    bytes: [u8; ID_TEXT_MAX],
    len: u8,
}

impl IdText {
    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Decimal; leading spaces, a plus sign and leading zeros allowed, as Redis takes numbers in ids.
fn parse_u64(text: &[u8]) -> Option<u64> {
    let spaces = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let text = &text[spaces..];
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// The id that an append asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// `*`: the time, or right after the last id where the clock is behind it.
    Auto,
    /// `ms-*`: the next sequence number within `ms`.
    AutoSeq(u64),
    /// This very id.
    Exact(StreamId),
}

impl NewId {
    /// Reads `*`, `ms-*`, `ms-seq` or `ms` (which means `ms-0`).
    pub fn parse(text: &[u8]) -> Option<NewId> {
        if text == b"*" {
            return Some(NewId::Auto);
        }
        match text.strip_suffix(b"-*") {
            Some(ms) => parse_u64(ms).map(NewId::AutoSeq),
            None => StreamId::parse(text, 0).map(NewId::Exact),
        }
    }
}

/// Why no id can be given to a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewIdError {
    /// The asked id, or any that the request allows, is not above the last one.
    #[error("the id is not above the stream's last id")]
    NotAboveLast,
    /// The last id is the highest there is.
    #[error("the stream has used the highest id")]
    Exhausted,
}

/// When a node is full.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Most entries of a node, deleted ones included (`stream-node-max-entries`); 0: no limit.
    pub node_max_entries: usize,
    /// Most bytes of a node (`stream-node-max-bytes`); 0: no limit. A single larger entry has its node.
    pub node_max_bytes: usize,
}

impl Default for StreamLimits {
    fn default() -> StreamLimits {
        StreamLimits { node_max_entries: 100, node_max_bytes: 4096 }
    }
}

/// Where "no limit" ends: deleting from a node and reading its middle take time in proportion to its bytes.
const NODE_BYTES_MAX: usize = 1 << 20;

/// What a trim keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest so many entries (`MAXLEN`).
    Newest(u64),
    /// Entries from this id on (`MINID`).
    From(StreamId),
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    nodes: BTreeMap<StreamId, Node>,
    len: u64,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    groups: BTreeMap<Box<[u8]>, Group>,
}

impl Stream {
    /// An empty stream that has never had an entry.
    pub fn new() -> Stream {
        Stream::default()
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no entry (a stream without entries stays).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The highest id ever appended or set; `0-0` before that.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The highest id ever deleted, trims left out; `0-0` before that.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// How many entries were ever appended.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// How many nodes hold the entries.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The oldest entry.
    pub fn first(&self) -> Option<Entry<'_>> {
        self.range(StreamId::MIN, StreamId::MAX).next()
    }

    /// The newest entry.
    pub fn last(&self) -> Option<Entry<'_>> {
        self.range_rev(StreamId::MIN, StreamId::MAX).next()
    }

    /// The id of the oldest entry, `0-0` where there is none.
    pub fn first_id(&self) -> StreamId {
        self.first().map_or(StreamId::MIN, |entry| entry.id)
    }

    /// The entry with this id.
    pub fn entry(&self, id: StreamId) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    /// The entries from `start` to `end`, both included, oldest first.
    pub fn range(&self, start: StreamId, end: StreamId) -> Entries<'_> {
        // A range that is upside down would make the B-tree panic.
        let end = if start <= end { end } else { StreamId::MIN };
        let start = start.min(end);
        let first = self.nodes.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let empty = end == StreamId::MIN;
        Entries { nodes: self.nodes.range(first..=end), node: None, start, end: if empty { None } else { Some(end) } }
    }

    /// The entries from `start` to `end`, both included, newest first.
    pub fn range_rev(&self, start: StreamId, end: StreamId) -> EntriesRev<'_> {
        EntriesRev { entries: self.range(start, end) }
    }

    /// The id that an appended entry gets. `now_ms` is the time of the unit.
    pub fn next_id(&self, wanted: NewId, now_ms: u64) -> Result<StreamId, NewIdError> {
        let exhausted = self.last_id == StreamId::MAX;
        let id = match wanted {
            _ if exhausted => return Err(NewIdError::Exhausted),
            NewId::Auto if now_ms > self.last_id.ms => StreamId { ms: now_ms, seq: 0 },
            NewId::Auto => self.last_id.next().ok_or(NewIdError::Exhausted)?,
            NewId::AutoSeq(ms) if ms == self.last_id.ms => {
                let seq = self.last_id.seq.checked_add(1).ok_or(NewIdError::NotAboveLast)?;
                StreamId { ms, seq }
            }
            NewId::AutoSeq(ms) => StreamId { ms, seq: 0 },
            NewId::Exact(id) => id,
        };
        if id > self.last_id { Ok(id) } else { Err(NewIdError::NotAboveLast) }
    }

    /// What [`Stream::trim_through`] must be given to keep `keep`, or `None` where nothing is to be removed.
    ///
    /// Exact, or (`whole_nodes`, the `~` of commands) only as many of the oldest nodes as go entirely; then at most `limit`
    /// entries (0: no limit).
    pub fn plan_trim(&self, keep: Keep, whole_nodes: bool, limit: u64) -> Option<StreamId> {
        let mut removed = 0;
        let mut through = None;
        for (&first, node) in &self.nodes {
            let live = u64::from(node.live);
            let done = match keep {
                Keep::Newest(count) => self.len - removed <= count,
                Keep::From(id) => first >= id,
            };
            if done || (limit != 0 && removed + live > limit) {
                break;
            }
            let last = node.last_id(first);
            let goes_entirely = match keep {
                Keep::Newest(count) => self.len - removed - live >= count,
                Keep::From(id) => last < id,
            };
            if goes_entirely {
                removed += live;
                through = Some(last);
                continue;
            }
            if !whole_nodes {
                let part = NodeEntries::new(first, node).filter(|raw| !raw.deleted);
                let goes = part.map(|raw| raw.id).take_while(|&id| {
                    let goes = match keep {
                        Keep::Newest(count) => self.len - removed > count,
                        Keep::From(bound) => id < bound,
                    };
                    removed += u64::from(goes);
                    goes
                });
                through = goes.last().or(through);
            }
            break;
        }
        through
    }

    /// Appends an entry, which must have at least one pair. Returns false and changes nothing unless `id` is above the
    /// last one.
    pub fn append<'a>(
        &mut self,
        id: StreamId,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        limits: StreamLimits,
    ) -> bool {
        if id <= self.last_id {
            return false;
        }
        let content: usize = pairs.clone().map(|(field, value)| field.len() + value.len()).sum();
        let open = self.nodes.last_entry().filter(|node| node.get().has_room(content, limits));
        match open {
            Some(mut node) => {
                let first = *node.key();
                node.get_mut().push(first, id, pairs);
            }
            None => {
                if let Some(mut full) = self.nodes.last_entry() {
                    full.get_mut().bytes.shrink_to_fit();
                }
                let mut node = Node::with_master(pairs.clone());
                node.push(id, id, pairs);
                self.nodes.insert(id, node);
            }
        }
        self.len += 1;
        self.entries_added = self.entries_added.saturating_add(1);
        self.last_id = id;
        true
    }

    /// Deletes the entry with this id; false where there is none.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some((&first, node)) = self.nodes.range_mut(..=id).next_back() else { return false };
        let found = NodeEntries::new(first, node).find(|raw| raw.id >= id);
        let Some(raw) = found.filter(|raw| raw.id == id && !raw.deleted) else { return false };
        node.mark_deleted(raw.flags_at);
        if node.live == 0 {
            self.nodes.remove(&first);
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }

    /// Removes all entries up to `last` and with it. Returns how many. Unlike [`Stream::delete`] it leaves no trace in
    /// `max_deleted_id`: nothing is missing between those that stay.
    pub fn trim_through(&mut self, last: StreamId) -> u64 {
        let before = self.len;
        while let Some(mut oldest) = self.nodes.first_entry() {
            let first = *oldest.key();
            if first > last {
                break;
            }
            let node = oldest.get_mut();
            if node.last_id(first) <= last {
                self.len -= u64::from(node.live);
                oldest.remove();
                continue;
            }
            let mut at = node.entries_at;
            loop {
                let mut entries = NodeEntries { at, ..NodeEntries::new(first, node) };
                let Some(raw) = entries.next().filter(|raw| raw.id <= last) else { break };
                at = entries.at;
                if !raw.deleted {
                    node.mark_deleted(raw.flags_at);
                    self.len -= 1;
                }
            }
            if node.live == 0 {
                oldest.remove();
            }
            break;
        }
        before - self.len
    }

    /// Sets what XSETID sets. The caller has checked it against the entries.
    pub fn set_counters(&mut self, last_id: StreamId, entries_added: Option<u64>, max_deleted_id: Option<StreamId>) {
        self.last_id = last_id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        self.max_deleted_id = max_deleted_id.unwrap_or(self.max_deleted_id);
    }

    /// An estimate of the heap memory held, in bytes.
    pub fn mem_bytes(&self) -> usize {
        let node = size_of::<StreamId>() + size_of::<Node>();
        let nodes: usize = self.nodes.values().map(|n| node + n.bytes.capacity()).sum();
        nodes + self.groups.iter().map(|(name, group)| name.len() + group.mem_bytes()).sum::<usize>()
    }
}

/// Consumer groups.
impl Stream {
    /// The groups by name, in byte order.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// The group of this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// How many entries the group has not been given yet; `None` where deleted entries make that unknown.
    pub fn lag(&self, group: &Group) -> Option<u64> {
        if self.entries_added == 0 || self.len == 0 {
            return Some(0);
        }
        let first = self.first_id();
        if group.last_delivered < first && self.max_deleted_id < first {
            return Some(self.len);
        }
        let read = match group.entries_read {
            Some(read) if !self.may_miss_entries_from(group.last_delivered) => read,
            _ => self.entries_read_at(group.last_delivered)?,
        };
        Some(self.entries_added.saturating_sub(read))
    }

    /// How many entries were ever appended up to `id` and with it; `None` where deleted entries make that unknown.
    pub fn entries_read_at(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if (self.len == 0 && id <= self.last_id) || id == self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id || (id != StreamId::MIN && id < self.max_deleted_id) {
            return None;
        }
        let first = self.first_id();
        if self.max_deleted_id != StreamId::MIN && self.max_deleted_id >= first {
            return None;
        }
        let before_first = self.entries_added.saturating_sub(self.len);
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(before_first),
            std::cmp::Ordering::Equal => Some(before_first + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// The read counter of a group at (`last_delivered`, `entries_read`) after it is given the entry `id`, which is the
    /// next one it had not seen. Applied for each entry of a read in turn.
    pub fn entries_read_after(&self, last_delivered: StreamId, entries_read: Option<u64>, id: StreamId) -> Option<u64> {
        match entries_read {
            Some(read) if last_delivered >= self.first_id() && !self.may_miss_entries_from(last_delivered) => {
                Some(read.saturating_add(1))
            }
            _ if self.entries_added > 0 => self.entries_read_at(id),
            _ => entries_read,
        }
    }

    /// Whether an entry at or after `id` may have been deleted.
    fn may_miss_entries_from(&self, id: StreamId) -> bool {
        self.len > 0 && self.max_deleted_id != StreamId::MIN && id <= self.max_deleted_id
    }

    /// Creates a group that was given the entries up to `last_delivered`; false where the name is taken.
    pub fn group_create(&mut self, name: &[u8], last_delivered: StreamId, entries_read: Option<u64>) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        let group = Group { last_delivered, entries_read, ..Group::default() };
        self.groups.insert(name.into(), group);
        true
    }

    /// Removes a group with its consumers and pending entries; false where there is none.
    pub fn group_destroy(&mut self, name: &[u8]) -> bool {
        self.groups.remove(name).is_some()
    }

    /// Moves a group's position; false where there is no such group.
    pub fn group_set_id(&mut self, name: &[u8], last_delivered: StreamId, entries_read: Option<u64>) -> bool {
        let Some(group) = self.groups.get_mut(name) else { return false };
        group.last_delivered = last_delivered;
        group.entries_read = entries_read;
        true
    }

    /// Creates a consumer last seen at `now_ms` that was never active; false where the group is missing or the name taken.
    pub fn consumer_create(&mut self, group: &[u8], consumer: &[u8], now_ms: u64) -> bool {
        self.groups.get_mut(group).is_some_and(|group| group.create_consumer(consumer, now_ms))
    }

    /// Removes a consumer and what it has pending. Returns how many entries that were, `None` where there was no such
    /// consumer.
    pub fn consumer_delete(&mut self, group: &[u8], consumer: &[u8]) -> Option<usize> {
        self.groups.get_mut(group)?.delete_consumer(consumer)
    }

    /// Notes that a consumer asked (`seen`), and whether it also got something (`active`). False where it is missing.
    pub fn consumer_seen(&mut self, group: &[u8], consumer: &[u8], now_ms: u64, active: bool) -> bool {
        let Some(consumer) = self.groups.get_mut(group).and_then(|group| group.consumer_mut(consumer)) else {
            return false;
        };
        consumer.seen_ms = now_ms;
        if active {
            consumer.active_ms = Some(now_ms);
        }
        true
    }

    /// Makes entry `id` pending for a consumer, taking it from the one that has it. The entry itself need not be there.
    /// False where group or consumer are missing.
    pub fn pending_set(&mut self, group: &[u8], id: StreamId, consumer: &[u8], time_ms: u64, deliveries: u64) -> bool {
        self.groups.get_mut(group).is_some_and(|group| group.set_pending(id, consumer, time_ms, deliveries))
    }

    /// Ends the pending state of entry `id`; false where it was not pending.
    pub fn pending_ack(&mut self, group: &[u8], id: StreamId) -> bool {
        self.groups.get_mut(group).is_some_and(|group| group.ack(id))
    }
}

/// A consumer group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    last_delivered: StreamId,
    entries_read: Option<u64>,
    pending: BTreeMap<StreamId, Nack>,
    consumers: Slab<Consumer>,
    by_name: BTreeMap<Box<[u8]>, usize>,
}

/// A delivery that was not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Nack {
    consumer: usize,
    time_ms: u64,
    deliveries: u64,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending<'a> {
    /// The entry; it may have been deleted from the stream since.
    pub id: StreamId,
    /// Who has it.
    pub consumer: &'a [u8],
    /// When it was last delivered, ms since the Unix epoch.
    pub time_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// A member of a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    seen_ms: u64,
    active_ms: Option<u64>,
    pending: BTreeSet<StreamId>,
}

impl Group {
    /// The last entry that was given to a consumer.
    pub fn last_delivered(&self) -> StreamId {
        self.last_delivered
    }

    /// How many entries up to `last_delivered` were ever appended, where known.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// How many entries are pending.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// The lowest and the highest pending id.
    pub fn pending_edges(&self) -> Option<(StreamId, StreamId)> {
        Some((*self.pending.first_key_value()?.0, *self.pending.last_key_value()?.0))
    }

    /// The delivery of one entry.
    pub fn pending(&self, id: StreamId) -> Option<Pending<'_>> {
        self.pending.get(&id).map(|nack| self.resolve(id, nack))
    }

    /// The pending entries from `start` to `end`, both included.
    pub fn pending_range(&self, start: StreamId, end: StreamId) -> impl Iterator<Item = Pending<'_>> {
        let range = (start <= end).then(|| self.pending.range(start..=end));
        range.into_iter().flatten().map(|(&id, nack)| self.resolve(id, nack))
    }

    /// The consumers by name, in byte order.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> {
        self.by_name.values().map(|&number| &self.consumers[number])
    }

    /// The consumer of this name.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.by_name.get(name).map(|&number| &self.consumers[number])
    }

    fn resolve(&self, id: StreamId, nack: &Nack) -> Pending<'_> {
        let consumer = &self.consumers[nack.consumer].name;
        Pending { id, consumer, time_ms: nack.time_ms, deliveries: nack.deliveries }
    }

    fn consumer_mut(&mut self, name: &[u8]) -> Option<&mut Consumer> {
        self.consumers.get_mut(*self.by_name.get(name)?)
    }

    fn create_consumer(&mut self, name: &[u8], now_ms: u64) -> bool {
        if self.by_name.contains_key(name) {
            return false;
        }
        let consumer = Consumer { name: name.into(), seen_ms: now_ms, active_ms: None, pending: BTreeSet::new() };
        self.by_name.insert(name.into(), self.consumers.insert(consumer));
        true
    }

    fn delete_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(self.by_name.remove(name)?);
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    fn set_pending(&mut self, id: StreamId, consumer: &[u8], time_ms: u64, deliveries: u64) -> bool {
        let Some(&consumer) = self.by_name.get(consumer) else { return false };
        let old = self.pending.insert(id, Nack { consumer, time_ms, deliveries });
        if old.is_some_and(|old| old.consumer == consumer) {
            return true;
        }
        if let Some(old) = old {
            self.consumers[old.consumer].pending.remove(&id);
        }
        self.consumers[consumer].pending.insert(id);
        true
    }

    fn ack(&mut self, id: StreamId) -> bool {
        let Some(nack) = self.pending.remove(&id) else { return false };
        self.consumers[nack.consumer].pending.remove(&id);
        true
    }

    fn mem_bytes(&self) -> usize {
        // Each pending entry is in two B-trees, whose nodes are about two thirds full.
        let pending = self.pending.len() * (size_of::<StreamId>() * 2 + size_of::<Nack>()) * 3 / 2;
        let names: usize = self.by_name.keys().map(|name| 2 * name.len()).sum();
        size_of::<Group>() + pending + names + self.consumers.capacity() * size_of::<Consumer>()
    }
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// When it last asked, ms since the Unix epoch.
    pub fn seen_ms(&self) -> u64 {
        self.seen_ms
    }

    /// When it last got something, ms since the Unix epoch.
    pub fn active_ms(&self) -> Option<u64> {
        self.active_ms
    }

    /// How many entries it has pending.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// The ids of the entries it has pending, from `start` to `end`, both included.
    pub fn pending_range(&self, start: StreamId, end: StreamId) -> impl Iterator<Item = StreamId> {
        let range: Option<btree_set::Range<'_, StreamId>> = (start <= end).then(|| self.pending.range(start..=end));
        range.into_iter().flatten().copied()
    }
}

/// An entry of a stream.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its id.
    pub id: StreamId,
    /// Its field-value pairs, in the order in which they were given.
    pub pairs: Pairs<'a>,
}

/// The field-value pairs of an entry.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    left: usize,
    /// The rest of the master fields, where the entry has the same.
    master: Option<Reader<'a>>,
    content: Reader<'a>,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let field = match &mut self.master {
            Some(master) => master.bytes(),
            None => self.content.bytes(),
        };
        Some((field, self.content.bytes()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

/// The entries of a range of ids, oldest first.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    nodes: btree_map::Range<'a, StreamId, Node>,
    node: Option<NodeEntries<'a>>,
    start: StreamId,
    /// `None` where the range holds nothing.
    end: Option<StreamId>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let end = self.end?;
        loop {
            let Some(node) = &mut self.node else {
                let (&first, node) = self.nodes.next()?;
                self.node = Some(NodeEntries::new(first, node));
                continue;
            };
            match node.next() {
                None => self.node = None,
                Some(raw) if raw.id > end => {
                    self.end = None;
                    return None;
                }
                Some(raw) if raw.deleted || raw.id < self.start => {}
                Some(raw) => return Some(node.entry(&raw)),
            }
        }
    }
}

/// The entries of a range of ids, newest first.
#[derive(Clone, Debug)]
pub struct EntriesRev<'a> {
    entries: Entries<'a>,
}

impl<'a> Iterator for EntriesRev<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let Entries { nodes, node: current, start, end } = &mut self.entries;
        let last = (*end)?;
        loop {
            let Some(node) = current else {
                let (&first, node) = nodes.next_back()?;
                *current = Some(NodeEntries::new(first, node));
                continue;
            };
            match node.next_back() {
                None => *current = None,
                Some(raw) if raw.id < *start => {
                    *end = None;
                    return None;
                }
                Some(raw) if raw.deleted || raw.id > last => {}
                Some(raw) => return Some(node.entry(&raw)),
            }
        }
    }
}

const DELETED: u8 = 1;
const SAME_FIELDS: u8 = 2;

/// A run of entries; see the top of the file for the layout. Its first id is its key in the stream.
#[derive(Clone, Debug, Default)]
struct Node {
    bytes: Vec<u8>,
    /// Where the entries begin, behind the master fields.
    entries_at: usize,
    /// Entries, deleted ones included.
    total: u32,
    live: u32,
}

impl Node {
    fn with_master<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Node {
        let mut bytes = Vec::new();
        put_number(&mut bytes, pairs.clone().count() as u64);
        pairs.for_each(|(field, _)| put_bytes(&mut bytes, field));
        Node { entries_at: bytes.len(), bytes, total: 0, live: 0 }
    }

    fn has_room(&self, content: usize, limits: StreamLimits) -> bool {
        let max_bytes = if limits.node_max_bytes == 0 { NODE_BYTES_MAX } else { limits.node_max_bytes };
        let max_entries = if limits.node_max_entries == 0 { usize::MAX } else { limits.node_max_entries };
        self.bytes.len().saturating_add(content) < max_bytes.min(NODE_BYTES_MAX) && (self.total as usize) < max_entries
    }

    fn push<'a>(&mut self, first: StreamId, id: StreamId, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) {
        let mut master = Reader::new(&self.bytes[..self.entries_at]);
        let fields = master.number();
        let mut count = 0;
        let mut same = true;
        let mut content = 0;
        for (field, value) in pairs.clone() {
            same = same && count < fields && master.bytes() == field;
            count += 1;
            content += bytes_len(value);
        }
        same = same && count == fields;
        if !same {
            content += number_len(count) + pairs.clone().map(|(field, _)| bytes_len(field)).sum::<usize>();
        }
        let ms = id.ms - first.ms;
        let seq = if ms == 0 { id.seq - first.seq } else { id.seq };
        let size = (1 + number_len(ms) + number_len(seq) + content) as u64;
        let bytes = &mut self.bytes;
        bytes.reserve(size as usize + 2 * number_len(size));
        put_number(bytes, size);
        bytes.push(if same { SAME_FIELDS } else { 0 });
        put_number(bytes, ms);
        put_number(bytes, seq);
        if !same {
            put_number(bytes, count);
        }
        for (field, value) in pairs {
            if !same {
                put_bytes(bytes, field);
            }
            put_bytes(bytes, value);
        }
        put_number_reversed(bytes, size);
        self.total += 1;
        self.live += 1;
    }

    fn mark_deleted(&mut self, flags_at: usize) {
        self.bytes[flags_at] |= DELETED;
        self.live -= 1;
    }

    /// The id of the last entry, deleted or not.
    fn last_id(&self, first: StreamId) -> StreamId {
        NodeEntries::new(first, self).next_back().map_or(first, |raw| raw.id)
    }
}

#[derive(Clone, Copy, Debug)]
struct RawEntry {
    id: StreamId,
    deleted: bool,
    same_fields: bool,
    flags_at: usize,
    content_at: usize,
}

/// Walks a node's entries from either end, deleted ones included.
#[derive(Clone, Debug)]
struct NodeEntries<'a> {
    node: &'a Node,
    first: StreamId,
    at: usize,
    end: usize,
}

impl<'a> NodeEntries<'a> {
    fn new(first: StreamId, node: &'a Node) -> NodeEntries<'a> {
        NodeEntries { node, first, at: node.entries_at, end: node.bytes.len() }
    }

    fn raw(&self, flags_at: usize) -> RawEntry {
        let flags = self.node.bytes[flags_at];
        let mut reader = Reader { bytes: &self.node.bytes, at: flags_at + 1 };
        let ms = reader.number();
        let seq = reader.number();
        let seq = if ms == 0 { self.first.seq + seq } else { seq };
        RawEntry {
            id: StreamId { ms: self.first.ms + ms, seq },
            deleted: flags & DELETED != 0,
            same_fields: flags & SAME_FIELDS != 0,
            flags_at,
            content_at: reader.at,
        }
    }

    fn entry(&self, raw: &RawEntry) -> Entry<'a> {
        let node = self.node;
        let mut content = Reader { bytes: &node.bytes, at: raw.content_at };
        let mut master = raw.same_fields.then(|| Reader::new(&node.bytes[..node.entries_at]));
        let left = match &mut master {
            Some(master) => master.number(),
            None => content.number(),
        };
        Entry { id: raw.id, pairs: Pairs { left: left as usize, master, content } }
    }
}

impl Iterator for NodeEntries<'_> {
    type Item = RawEntry;

    fn next(&mut self) -> Option<RawEntry> {
        if self.at >= self.end {
            return None;
        }
        let mut reader = Reader { bytes: &self.node.bytes, at: self.at };
        let size = reader.number();
        let raw = self.raw(reader.at);
        self.at = reader.at + size as usize + number_len(size);
        Some(raw)
    }
}

impl DoubleEndedIterator for NodeEntries<'_> {
    fn next_back(&mut self) -> Option<RawEntry> {
        if self.at >= self.end {
            return None;
        }
        let size = number_before(&self.node.bytes, self.end);
        let ends = number_len(size);
        let flags_at = self.end - ends - size as usize;
        self.end = flags_at - ends;
        Some(self.raw(flags_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn ids_are_read_and_written() {
        assert_eq!(StreamId::parse(b"5-7", 0), Some(id(5, 7)));
        assert_eq!(StreamId::parse(b"5", 9), Some(id(5, 9)));
        assert_eq!(StreamId::parse(b"007-01", 9), Some(id(7, 1)));
        assert_eq!(StreamId::parse(b" 5- +7", 9), Some(id(5, 7)));
        assert_eq!(StreamId::parse(b"18446744073709551615-18446744073709551615", 0), Some(StreamId::MAX));
        for wrong in ["", "-", "+", "5-", "-5", "a", "5-6-7", "18446744073709551616", "5-*", "5 ", "*"] {
            assert_eq!(StreamId::parse(wrong.as_bytes(), 0), None, "{wrong}");
        }
        assert_eq!(StreamId::parse_bound(b"-", 0), Some((StreamId::MIN, false)));
        assert_eq!(StreamId::parse_bound(b"+", 0), Some((StreamId::MAX, false)));
        assert_eq!(StreamId::parse_bound(b"(5-1", 0), Some((id(5, 1), true)));
        assert_eq!(StreamId::parse_bound(b"(+", 0), None);
        assert_eq!(StreamId::parse_bound(b"(", 0), None);
        assert_eq!(NewId::parse(b"*"), Some(NewId::Auto));
        assert_eq!(NewId::parse(b"12-*"), Some(NewId::AutoSeq(12)));
        assert_eq!(NewId::parse(b"12"), Some(NewId::Exact(id(12, 0))));
        assert_eq!(NewId::parse(b"-*"), None);
        assert_eq!(StreamId::MAX.to_text().as_bytes(), b"18446744073709551615-18446744073709551615");
        assert_eq!(id(1, 2).to_text().as_bytes(), b"1-2");
    }

    #[test]
    fn neighbours_of_ids() {
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).prev(), Some(id(1, u64::MAX)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::MIN.prev(), None);
    }

    #[test]
    fn next_ids() {
        let mut stream = Stream::new();
        assert_eq!(stream.next_id(NewId::Auto, 5), Ok(id(5, 0)));
        assert_eq!(stream.next_id(NewId::AutoSeq(0), 5), Ok(id(0, 1)));
        assert_eq!(stream.next_id(NewId::Exact(id(0, 0)), 5), Err(NewIdError::NotAboveLast));
        stream.set_counters(id(9, u64::MAX), None, None);
        assert_eq!(stream.next_id(NewId::Auto, 5), Ok(id(10, 0)));
        assert_eq!(stream.next_id(NewId::AutoSeq(9), 5), Err(NewIdError::NotAboveLast));
        assert_eq!(stream.next_id(NewId::AutoSeq(8), 5), Err(NewIdError::NotAboveLast));
        stream.set_counters(StreamId::MAX, None, None);
        assert_eq!(stream.next_id(NewId::Auto, 5), Err(NewIdError::Exhausted));
    }

    type Pair = (Vec<u8>, Vec<u8>);

    fn append(stream: &mut Stream, id: StreamId, pairs: &[Pair], limits: StreamLimits) -> bool {
        stream.append(id, pairs.iter().map(|(field, value)| (field.as_slice(), value.as_slice())), limits)
    }

    fn numbered(count: u64) -> Stream {
        let mut stream = Stream::new();
        for n in 1..=count {
            assert!(append(&mut stream, id(n, 0), &[(b"f".to_vec(), vec![b'v'])], StreamLimits::default()));
        }
        stream
    }

    #[test]
    fn trims_by_whole_nodes() {
        let mut stream = numbered(1000);
        assert_eq!(stream.node_count(), 10);
        assert_eq!(stream.plan_trim(Keep::Newest(950), true, 0), None);
        assert_eq!(stream.plan_trim(Keep::Newest(550), true, 0), Some(id(400, 0)));
        assert_eq!(stream.plan_trim(Keep::Newest(550), true, 250), Some(id(200, 0)));
        assert_eq!(stream.plan_trim(Keep::From(id(301, 0)), true, 0), Some(id(300, 0)));
        assert_eq!(stream.plan_trim(Keep::From(id(399, 0)), true, 0), Some(id(300, 0)));
        assert_eq!(stream.plan_trim(Keep::Newest(0), false, 0), Some(id(1000, 0)));
        let through = stream.plan_trim(Keep::Newest(555), false, 0).expect("there is something to trim");
        assert_eq!(stream.trim_through(through), 445);
        assert_eq!((stream.len(), stream.first_id(), stream.entries_added()), (555, id(446, 0), 1000));
        assert_eq!(stream.max_deleted_id(), StreamId::MIN);
    }

    /// The rules of Redis 8 for what is known of a group's position.
    #[test]
    fn lag_and_read_counter() {
        let mut stream = numbered(5);
        assert!(stream.group_create(b"g", StreamId::MIN, None));
        let lag = |stream: &Stream| stream.lag(stream.group(b"g").expect("it was created"));
        assert_eq!(lag(&stream), Some(5));
        assert_eq!(stream.entries_read_after(StreamId::MIN, None, id(1, 0)), Some(1));
        assert_eq!(stream.entries_read_after(id(1, 0), Some(1), id(2, 0)), Some(2));
        assert_eq!(stream.entries_read_after(id(1, 0), None, id(2, 0)), None);
        assert!(stream.group_set_id(b"g", id(2, 0), Some(2)));
        assert_eq!(lag(&stream), Some(3));
        assert!(stream.delete(id(4, 0)));
        assert_eq!(lag(&stream), None);
        assert!(stream.group_set_id(b"g", id(5, 0), None));
        assert_eq!(lag(&stream), Some(0));
        assert!(stream.group_set_id(b"g", id(1, 0), Some(1)));
        stream.trim_through(id(4, 0));
        assert_eq!(lag(&stream), Some(1));
        assert!(!stream.group_set_id(b"none", id(1, 0), None));
    }

    #[test]
    fn pending_entries_move_and_end() {
        let mut stream = numbered(3);
        stream.group_create(b"g", StreamId::MIN, None);
        assert!(!stream.group_create(b"g", StreamId::MAX, None));
        assert!(stream.consumer_create(b"g", b"bob", 10) && stream.consumer_create(b"g", b"ann", 10));
        assert!(!stream.consumer_create(b"g", b"ann", 11) && !stream.consumer_create(b"x", b"ann", 11));
        for n in 1..=3 {
            assert!(stream.pending_set(b"g", id(n, 0), b"ann", 20, 1));
        }
        assert!(stream.pending_set(b"g", id(2, 0), b"bob", 30, 2));
        assert!(!stream.pending_set(b"g", id(2, 0), b"eve", 30, 2));
        assert!(stream.consumer_seen(b"g", b"bob", 30, true));
        let group = stream.group(b"g").expect("it was created");
        let names: Vec<_> = group.consumers().map(|c| (c.name(), c.pending_len(), c.active_ms())).collect();
        assert_eq!(names, [(&b"ann"[..], 2, None), (&b"bob"[..], 1, Some(30))]);
        assert_eq!(group.pending_edges(), Some((id(1, 0), id(3, 0))));
        let second = Pending { id: id(2, 0), consumer: b"bob", time_ms: 30, deliveries: 2 };
        assert_eq!(group.pending(id(2, 0)), Some(second));
        assert_eq!(group.pending_range(id(2, 0), id(2, 5)).collect::<Vec<_>>(), [second]);
        assert_eq!(group.pending_range(id(3, 0), id(2, 5)).count(), 0);
        let ann = group.consumer(b"ann").expect("it was created");
        assert_eq!(ann.pending_range(StreamId::MIN, StreamId::MAX).collect::<Vec<_>>(), [id(1, 0), id(3, 0)]);
        assert!(stream.pending_ack(b"g", id(1, 0)) && !stream.pending_ack(b"g", id(1, 0)));
        assert_eq!(stream.consumer_delete(b"g", b"ann"), Some(1));
        assert_eq!(stream.consumer_delete(b"g", b"ann"), None);
        assert_eq!(stream.group(b"g").map(Group::pending_len), Some(1));
        assert!(stream.group_destroy(b"g") && !stream.group_destroy(b"g"));
        assert!(stream.mem_bytes() > 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(StreamId, Vec<Pair>),
        Delete(usize),
        Trim(Keep, bool, u64),
    }

    fn pairs() -> impl Strategy<Value = Vec<Pair>> {
        let fixed = (any::<u8>(), 0usize..300)
            .prop_map(|(byte, len)| vec![(b"order".to_vec(), vec![byte]), (b"user".to_vec(), vec![byte; len])]);
        let text = || proptest::collection::vec(any::<u8>(), 0..4);
        prop_oneof![3 => fixed, 1 => proptest::collection::vec((text(), text()), 1..4)]
    }

    fn any_id() -> impl Strategy<Value = StreamId> {
        prop_oneof![
            (0u64..60, 0u64..3).prop_map(|(ms, seq)| id(ms, seq)),
            Just(StreamId::MAX),
            Just(id(1 << 40, u64::MAX)),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let keep = prop_oneof![(0u64..40).prop_map(Keep::Newest), any_id().prop_map(Keep::From)];
        prop_oneof![
            12 => ((0u64..3, 0u64..3), pairs()).prop_map(|((ms, seq), pairs)| Step::Append(id(ms, seq), pairs)),
            3 => any::<usize>().prop_map(Step::Delete),
            1 => (keep, any::<bool>(), 0u64..10).prop_map(|(keep, nodes, limit)| Step::Trim(keep, nodes, limit)),
        ]
    }

    fn owned(entry: Entry<'_>) -> (StreamId, Vec<Pair>) {
        (entry.id, entry.pairs.map(|(field, value)| (field.to_vec(), value.to_vec())).collect())
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in proptest::collection::vec(prop_oneof![Just(b'-'), Just(b'9'), any::<u8>()], 0..45)) {
            StreamId::parse_bound(&text, 0);
            NewId::parse(&text);
        }

        #[test]
        fn follows_a_vector(
            steps in proptest::collection::vec(step(), 1..120),
            entries in prop_oneof![Just(0usize), 1usize..8],
            bytes in prop_oneof![Just(0usize), 1usize..600],
            ranges in proptest::collection::vec((any_id(), any_id()), 6),
        ) {
            let limits = StreamLimits { node_max_entries: entries, node_max_bytes: bytes };
            let mut stream = Stream::new();
            let mut model: Vec<(StreamId, Vec<Pair>)> = Vec::new();
            let (mut last, mut max_deleted, mut added) = (StreamId::MIN, StreamId::MIN, 0);
            for step in steps {
                match step {
                    Step::Append(by, pairs) => {
                        let id = if by.ms == 0 { id(last.ms, last.seq + by.seq) } else { id(last.ms + by.ms, by.seq) };
                        prop_assert_eq!(append(&mut stream, id, &pairs, limits), id > last);
                        if id > last {
                            model.push((id, pairs));
                            last = id;
                            added += 1;
                        }
                    }
                    Step::Delete(at) => {
                        let at = at % (model.len() + 1);
                        let id = model.get(at).map_or(id(1, 77), |entry| entry.0);
                        prop_assert_eq!(stream.delete(id), at < model.len());
                        if at < model.len() {
                            model.remove(at);
                            max_deleted = max_deleted.max(id);
                        }
                        prop_assert!(!stream.delete(id));
                    }
                    Step::Trim(keep, nodes, limit) => {
                        let extra = match keep {
                            Keep::Newest(count) => model.len().saturating_sub(count as usize),
                            Keep::From(id) => model.iter().filter(|entry| entry.0 < id).count(),
                        };
                        let limit = if nodes { limit } else { 0 };
                        let plan = stream.plan_trim(keep, nodes, limit);
                        let removed = plan.map_or(0, |last| stream.trim_through(last)) as usize;
                        if nodes {
                            prop_assert!(removed <= extra && (limit == 0 || removed <= limit as usize));
                        } else {
                            prop_assert_eq!(removed, extra);
                        }
                        prop_assert_eq!(plan.is_some(), removed > 0);
                        model.drain(..removed);
                    }
                }
                prop_assert_eq!(stream.len(), model.len() as u64);
                prop_assert_eq!(stream.first_id(), model.first().map_or(StreamId::MIN, |entry| entry.0));
            }
            prop_assert_eq!(stream.last_id(), last);
            prop_assert_eq!(stream.max_deleted_id(), max_deleted);
            prop_assert_eq!(stream.entries_added(), added);
            for (start, end) in ranges.into_iter().chain([(StreamId::MIN, StreamId::MAX)]) {
                let mut expected: Vec<_> =
                    model.iter().filter(|entry| entry.0 >= start && entry.0 <= end).cloned().collect();
                prop_assert_eq!(&stream.range(start, end).map(owned).collect::<Vec<_>>(), &expected);
                expected.reverse();
                prop_assert_eq!(&stream.range_rev(start, end).map(owned).collect::<Vec<_>>(), &expected);
            }
            for node in stream.nodes.values() {
                prop_assert!(node.live > 0 && (entries == 0 || node.total as usize <= entries));
            }
        }
    }
}
