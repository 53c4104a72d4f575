//! Nodes: runs of packed entries.
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

use std::collections::btree_map::{self, BTreeMap};

use super::id::StreamId;
use crate::value::leb128::{Reader, bytes_len, number_before, number_len, put_bytes, put_number, put_number_reversed};

/// When a node is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl<'a> Pairs<'a> {
    /// Those that are packed by themselves, behind their number.
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
    /// `None` where the range holds nothing.
    end: Option<StreamId>,
}

impl<'a> Entries<'a> {
    /// The entries of `nodes` from `start` to `end`, both included.
    pub(super) fn new(nodes: &'a BTreeMap<StreamId, Node>, start: StreamId, end: StreamId) -> Entries<'a> {
        // A range that is upside down would make the B-tree panic.
        let end = if start <= end { end } else { StreamId::MIN };
        let start = start.min(end);
        let first = nodes.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let empty = end == StreamId::MIN;
        Entries { nodes: nodes.range(first..=end), node: None, start, end: if empty { None } else { Some(end) } }
    }

    /// The same, newest first.
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

/// A run of entries; see the top of the file for the layout. Its first id is its key in the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) bytes: Vec<u8>,
    /// Where the entries begin, behind the master fields.
    entries_at: usize,
    /// Entries, deleted ones included.
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

    /// Deletes the entries up to `last` and with it. Returns how many.
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
/// An entry as it stands in its node.
pub(super) struct RawEntry {
    pub(super) id: StreamId,
    pub(super) deleted: bool,
    same_fields: bool,
    pub(super) flags_at: usize,
    content_at: usize,
}

/// Walks a node's entries from either end, deleted ones included.
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
