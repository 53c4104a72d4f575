//! A small list: its [entries](super::entries) in one block, which counts them. A change moves the bytes behind it, of
//! which there are few. A [packed](Small::pack) list is shorter, and is unpacked before it is changed.

use std::ops::Range;

use super::entries::{Ending, Ends, Run, entry_at, entry_before, entry_len, entry_with_ending_at};
use super::node::{ListLimits, Node};
use crate::value::block::{Block, InBlock};

/// The most bytes of a small list. Beyond this, moving the bytes costs more than a node with room at both ends.
pub(super) const SMALL_BYTES: usize = 1024;

/// The overhead of an entry of less than 16 KB, in bytes.
const ENDS_BYTES: usize = 4;

/// The kind of a block whose entries have no endings.
const PACKED: u8 = 1;

/// A small list.
#[derive(Clone, Debug, Default)]
#[repr(transparent)]
pub(super) struct Small(Block);

// SAFETY: the struct is transparent over one `Block`.
unsafe impl InBlock for Small {}

impl Small {
    /// A copy of the elements of a node, or `None` if it has too many bytes.
    pub(super) fn of_node(node: &Node) -> Option<Small> {
        let bytes = node.entries();
        if bytes.len() > SMALL_BYTES {
            return None;
        }
        let mut small = Small::default();
        small.0.splice(0, 0, &[bytes]);
        small.0.set_count(node.len);
        Some(small)
    }

    pub(super) fn into_block(self) -> Block {
        self.0
    }

    pub(super) fn to_node(&self) -> Node {
        if self.is_packed() {
            return self.unpacked().to_node();
        }
        Node::of_entries(self.0.bytes(), self.len())
    }

    #[inline]
    fn is_packed(&self) -> bool {
        self.0.kind() == PACKED
    }

    /// Drops the endings of the entries.
    pub(super) fn pack(&mut self) {
        if self.is_packed() {
            return;
        }
        let mut bytes = Vec::with_capacity(self.bytes());
        for value in self.range(0..self.len()) {
            bytes.extend_from_slice(Ends::of(value).before());
            bytes.extend_from_slice(value);
        }
        let mut packed = Small(Block::of_kind(PACKED));
        packed.0.splice(0, 0, &[&bytes]);
        packed.0.set_count(self.len());
        *self = packed;
    }

    /// Restores the endings of the entries.
    #[inline]
    pub(super) fn unpack(&mut self) {
        if self.is_packed() {
            *self = self.unpacked();
        }
    }

    #[cold]
    fn unpacked(&self) -> Small {
        let mut all = Small::default();
        self.range(0..self.len()).for_each(|value| all.insert(all.len(), value));
        all
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.count()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// Whether the list stays small with `elements` more elements, of `bytes` bytes in all. They then fit into one
    /// node, too, since limits by bytes are far larger.
    #[inline]
    pub(super) fn has_room(&self, elements: usize, bytes: usize, limits: ListLimits) -> bool {
        let more = elements.saturating_mul(ENDS_BYTES).saturating_add(bytes);
        self.bytes().saturating_add(more) <= SMALL_BYTES && self.len().saturating_add(elements) <= limits.of_node().1
    }

    /// The last element.
    #[inline]
    pub(super) fn back(&self) -> Option<&[u8]> {
        let bytes = self.0.bytes();
        if bytes.is_empty() || self.is_packed() {
            return self.packed_range(0..self.len()).next_back();
        }
        Some(entry_before(bytes, bytes.len()).0)
    }

    /// The elements in a range of indexes, which must not extend past the end.
    #[inline]
    pub(super) fn range(&self, indexes: Range<usize>) -> Run<'_> {
        if self.is_packed() {
            return self.packed_range(indexes);
        }
        Run::new(self.0.bytes(), self.place(indexes.start), self.place(indexes.end), indexes.len())
    }

    /// The start of element `index`, found from the nearer end.
    #[inline]
    fn place(&self, index: usize) -> usize {
        let (bytes, len) = (self.0.bytes(), self.len());
        if index <= len / 2 {
            (0..index).fold(0, |place, _| entry_at(bytes, place).1)
        } else {
            (index..len).fold(bytes.len(), |place, _| entry_before(bytes, place).1)
        }
    }

    #[cold]
    fn packed_range(&self, indexes: Range<usize>) -> Run<'_> {
        let bytes = self.0.bytes();
        let next = |place, _| entry_with_ending_at(bytes, place, Ending::None).1;
        Run::without_endings(bytes, (0..indexes.start).fold(0, next), indexes.len())
    }

    /// Adds an element before the one at `index`, or after the last. There must [be room](Self::has_room).
    #[inline]
    pub(super) fn insert(&mut self, index: usize, value: &[u8]) {
        self.put(index, 0, value);
        self.0.set_count(self.len() + 1);
    }

    /// Replaces the element at `index`. There must be room.
    pub(super) fn replace(&mut self, index: usize, value: &[u8]) {
        let old = self.range(index..index + 1).next().map_or(0, entry_len);
        self.put(index, old, value);
    }

    #[inline]
    fn put(&mut self, index: usize, removed: usize, value: &[u8]) {
        let ends = Ends::of(value);
        self.0.splice(self.place(index), removed, &[ends.before(), value, ends.behind()]);
    }

    /// Removes the elements in a range of indexes.
    #[inline]
    pub(super) fn remove(&mut self, indexes: Range<usize>) {
        let (begin, end) = (self.place(indexes.start), self.place(indexes.end));
        self.0.splice(begin, end - begin, &[]);
        self.0.set_count(self.len() - indexes.len());
    }
}
