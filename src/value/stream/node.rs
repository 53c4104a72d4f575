//! Nodes: runs of packed entries.
//!
//! A node stores the field names of its first entry (the *master* fields); an entry with equal names stores only its
//! values. Ids are stored as differences from the node's first id. Layout of a node's buffer:
//!
//! ```text
//! node   = count, count * (length, field name), entry*
//! entry  = size, flags, ms - first.ms, seq (- first.seq where the ms are equal), content, size backwards
//! content = values * (length, bytes)                       with SAME_FIELDS
//!         | pairs, pairs * (length, field, length, value)  otherwise
//! ```
//!
//! All numbers are LEB128. `size` counts from the flags to the end of the content and is repeated with its bytes
//! reversed, so that a node can be read from either end. Deleting an entry only sets its flag; a node without live
//! entries is dropped.

use std::collections::btree_map::{self, BTreeMap};

use super::id::StreamId;
use crate::value::leb128::{Reader, bytes_len, number_before, number_len, put_bytes, put_number, put_number_reversed};

/// The bounds at which a node is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// The most entries of a node, including deleted ones (`stream-node-max-entries`); 0: no limit.
    pub node_max_entries: usize,
    /// The most bytes of a node (`stream-node-max-bytes`); 0: no limit. A single larger entry gets its own node.
    pub node_max_bytes: usize,
}

impl Default for StreamLimits {
    fn default() -> StreamLimits {
        StreamLimits { node_max_entries: 100, node_max_bytes: 4096 }
    }
}

/// The limit on a node's bytes even with "no limit": deleting from a node and reading its middle take time in
/// proportion to its bytes.
const NODE_BYTES_MAX: usize = 1 << 20;

/// An entry of a stream.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The entry's id.
    pub id: StreamId,
    /// The field-value pairs, in the order in which they were given.
    pub pairs: Pairs<'a>,
}

/// The field-value pairs of an entry.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    left: usize,
    /// The rest of the master fields, if the entry has equal fields.
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

impl<'a> Pairs<'a> {
    /// The pairs in a buffer that begins with their number.
    pub(super) fn counted(packed: &'a [u8]) -> Pairs<'a> {
        let mut content = Reader::new(packed);
        let left = content.number() as usize;
        Pairs { left, master: None, content }
    }
}

/// The entries of a range of ids, oldest first.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    nodes: btree_map::Range<'a, StreamId, Node>,
    node: Option<NodeEntries<'a>>,
    start: StreamId,
    /// `None` if the range is empty.
    end: Option<StreamId>,
}

impl<'a> Entries<'a> {
    /// The entries of `nodes` from `start` to `end`, both inclusive.
    pub(super) fn new(nodes: &'a BTreeMap<StreamId, Node>, start: StreamId, end: StreamId) -> Entries<'a> {
        // A reversed range would make the B-tree panic.
        let end = if start <= end { end } else { StreamId::MIN };
        let start = start.min(end);
        let first = nodes.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let empty = end == StreamId::MIN;
        Entries { nodes: nodes.range(first..=end), node: None, start, end: if empty { None } else { Some(end) } }
    }

    /// Returns these entries, newest first.
    pub fn rev(self) -> EntriesRev<'a> {
        EntriesRev { entries: self }
    }
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

/// A run of entries; see the module's header for the layout. Its first id is its key in the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) bytes: Vec<u8>,
    /// The start of the entries, behind the master fields.
    entries_at: usize,
    /// Number of entries, including deleted ones.
    pub(super) total: u32,
    pub(super) live: u32,
}

impl Node {
    pub(super) fn with_master<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Node {
        let mut bytes = Vec::new();
        put_number(&mut bytes, pairs.clone().count() as u64);
        pairs.for_each(|(field, _)| put_bytes(&mut bytes, field));
        Node { entries_at: bytes.len(), bytes, total: 0, live: 0 }
    }

    pub(super) fn has_room(&self, content: usize, limits: StreamLimits) -> bool {
        let max_bytes = if limits.node_max_bytes == 0 { NODE_BYTES_MAX } else { limits.node_max_bytes };
        let max_entries = if limits.node_max_entries == 0 { usize::MAX } else { limits.node_max_entries };
        self.bytes.len().saturating_add(content) < max_bytes.min(NODE_BYTES_MAX) && (self.total as usize) < max_entries
    }

    pub(super) fn push<'a>(
        &mut self,
        first: StreamId,
        id: StreamId,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) {
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

    pub(super) fn mark_deleted(&mut self, flags_at: usize) {
        self.bytes[flags_at] |= DELETED;
        self.live -= 1;
    }

    pub(super) fn mark_live(&mut self, flags_at: usize) {
        self.bytes[flags_at] &= !DELETED;
        self.live += 1;
    }

    /// Deletes the entries up to and including `last`. Returns how many were deleted.
    pub(super) fn delete_through(&mut self, first: StreamId, last: StreamId) -> u64 {
        let mut at = self.entries_at;
        let before = self.live;
        loop {
            let mut entries = NodeEntries { at, ..NodeEntries::new(first, self) };
            let Some(raw) = entries.next().filter(|raw| raw.id <= last) else { break };
            at = entries.at;
            if !raw.deleted {
                self.mark_deleted(raw.flags_at);
            }
        }
        u64::from(before - self.live)
    }

    /// The id of the last entry, deleted or not.
    pub(super) fn last_id(&self, first: StreamId) -> StreamId {
        NodeEntries::new(first, self).next_back().map_or(first, |raw| raw.id)
    }
}

#[derive(Clone, Copy, Debug)]
/// An entry as it is stored in its node.
pub(super) struct RawEntry {
    pub(super) id: StreamId,
    pub(super) deleted: bool,
    same_fields: bool,
    pub(super) flags_at: usize,
    content_at: usize,
}

/// Walks a node's entries from either end, including deleted ones.
#[derive(Clone, Debug)]
pub(super) struct NodeEntries<'a> {
    node: &'a Node,
    first: StreamId,
    at: usize,
    end: usize,
}

impl<'a> NodeEntries<'a> {
    pub(super) fn new(first: StreamId, node: &'a Node) -> NodeEntries<'a> {
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
