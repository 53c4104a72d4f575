//! A node of a list: one buffer of entries, each readable from either end, with free space on *both* sides, so that
//! pushing and popping at either end touch only the entry. A change in the middle moves at most the bytes of one node.
//!
//! ```text
//! node = slack, entry*, spare capacity
//! ```
//!
//! The limits count the bytes that Redis' listpack would take (which packs integers), because OBJECT ENCODING shows
//! where a list changes its form.

use super::entries::{Ends, Run, entry_at, entry_before, entry_len};
use crate::base::fit::fit;
use crate::value::leb128::{number_len, put_bytes, put_number_reversed};
use crate::value::packed::Item;

/// The bounds on the size of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLimits {
    /// `list-max-listpack-size`: entries if positive (0 counts as 1), else -1 to -5 for 4, 8, 16, 32 or 64 KB.
    pub max_listpack_size: i32,
    /// The entry size in bytes from which an element gets a node of a deque to itself (DEBUG
    /// QUICKLIST-PACKED-THRESHOLD, for tests). It is stored neither in the journal nor in a snapshot, so the nodes of a
    /// list may differ after a restart.
    pub alone_bytes: u32,
}

impl Default for ListLimits {
    fn default() -> ListLimits {
        ListLimits { max_listpack_size: -2, alone_bytes: ALONE_BYTES }
    }
}

/// The default of Redis; no node is allowed as many bytes anyway.
pub(crate) const ALONE_BYTES: u32 = 1 << 30;

/// The most bytes of a node that is limited by entries.
pub(super) const SAFE_NODE_BYTES: usize = 8192;

impl ListLimits {
    /// The most bytes and the most entries of a node.
    pub(super) fn of_node(self) -> (usize, usize) {
        match usize::try_from(self.max_listpack_size) {
            Ok(entries) => (SAFE_NODE_BYTES, entries.max(1)),
            Err(_) => (2048 << self.max_listpack_size.unsigned_abs().min(5), usize::MAX),
        }
    }

    pub(super) fn admit(self, bytes: usize, entries: usize) -> bool {
        let (max_bytes, max_entries) = self.of_node();
        bytes <= max_bytes && entries <= max_entries
    }

    /// Whether the last remaining node of a deque may become the list's only node again. This is so only well below the
    /// limit, so that a list does not flip back and forth. With a limit by entries, Redis checks only those, and
    /// elements too large for any node, which it keeps apart.
    pub(super) fn admit_back(self, node: &Node) -> bool {
        let (max_bytes, max_entries) = self.of_node();
        if self.max_listpack_size < 0 {
            return node.listpack_bytes() <= max_bytes / 2;
        }
        node.len <= max_entries / 2 && (node.len > 1 || node.encoded <= SAFE_NODE_BYTES)
    }
}

/// A run of elements.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) bytes: Vec<u8>,
    /// Free bytes at the front.
    pub(super) start: usize,
    pub(super) len: usize,
    /// The bytes that the entries would take in a listpack.
    pub(super) encoded: usize,
}

impl Node {
    pub(super) fn of(value: &[u8]) -> Node {
        let mut node = Node::default();
        node.push_back(value);
        node
    }

    /// Frees the spare room, when the next push goes to another node.
    pub(super) fn close(&mut self) {
        self.bytes.drain(..self.start);
        self.start = 0;
        fit(&mut self.bytes);
    }

    /// The size of the listpack, including its header and end mark.
    pub(super) fn listpack_bytes(&self) -> usize {
        self.encoded + 7
    }

    /// Whether a deque's node takes one more element; an empty node takes any. A node counts as full somewhat below its
    /// limit: the allocator's pages of 64 KB hold nine blocks of 7 KB, but only seven of 8 KB.
    pub(super) fn has_room(&self, value: &[u8], limits: ListLimits) -> bool {
        let (max_bytes, max_entries) = limits.of_node();
        let held = self.bytes.len() - self.start;
        let more = entry_len(value);
        let (bytes, alone_bytes) = (held + more, limits.alone_bytes as usize);
        // The sum of both sizes rules this out for nearly all elements.
        let is_apart = || more >= alone_bytes || self.len == 1 && held >= alone_bytes;
        self.len == 0 || bytes <= max_bytes / 8 * 7 && self.len < max_entries && !(bytes >= alone_bytes && is_apart())
    }

    /// A node of `len` elements with these entries.
    pub(super) fn of_entries(bytes: &[u8], len: usize) -> Node {
        let mut node = Node { bytes: bytes.to_vec(), start: 0, len, encoded: 0 };
        node.encoded = node.elements().map(listpack_entry_len).sum();
        node
    }

    /// The entries, without the free space before and behind them.
    pub(super) fn entries(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The elements.
    pub(super) fn elements(&self) -> Run<'_> {
        Run::new(&self.bytes, self.start, self.bytes.len(), self.len)
    }

    /// The entry that begins at `place`, and the start of the next one.
    pub(super) fn entry_at(&self, place: usize) -> (&[u8], usize) {
        entry_at(&self.bytes, place)
    }

    /// The entry that ends at `place`, and its start.
    pub(super) fn entry_before(&self, place: usize) -> (&[u8], usize) {
        entry_before(&self.bytes, place)
    }

    /// The start of element `within`, found from the nearer end.
    pub(super) fn place(&self, within: usize) -> usize {
        if within <= self.len / 2 {
            (0..within).fold(self.start, |place, _| self.entry_at(place).1)
        } else {
            (within..self.len).fold(self.bytes.len(), |place, _| self.entry_before(place).1)
        }
    }

    pub(super) fn push_back(&mut self, value: &[u8]) {
        let used = self.bytes.len() - self.start;
        if self.start > used && self.bytes.capacity() - self.bytes.len() < entry_len(value) {
            // A queue drifts through its buffer: moving back its few bytes is better than growing.
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(used);
            self.start = 0;
        }
        self.reserve(entry_len(value));
        put_bytes(&mut self.bytes, value);
        put_number_reversed(&mut self.bytes, value.len() as u64);
        self.added(value);
    }

    /// Grows in steps that end where a deque's node is full (see [`has_room`](Self::has_room)), so that it never has a
    /// larger block on the way.
    fn reserve(&mut self, more: usize) {
        let wanted = self.bytes.len() + more;
        if wanted > self.bytes.capacity() {
            let step = wanted.div_ceil(7).next_power_of_two() * 7;
            self.bytes.reserve_exact(
                if step <= SAFE_NODE_BYTES { step } else { wanted.max(self.bytes.capacity() * 2) } - self.bytes.len(),
            );
        }
    }

    pub(super) fn push_front(&mut self, value: &[u8]) {
        let size = entry_len(value);
        if self.start < size {
            // Doubles the room, so that the moves amortize to a constant per push.
            let slack = size.max(self.bytes.len() - self.start);
            let mut bytes = Vec::with_capacity(slack + self.bytes.len() - self.start);
            bytes.resize(slack, 0);
            bytes.extend_from_slice(&self.bytes[self.start..]);
            self.bytes = bytes;
            self.start = slack;
        }
        self.start -= size;
        self.write(self.start, value);
        self.added(value);
    }

    pub(super) fn insert(&mut self, within: usize, value: &[u8]) {
        let place = self.place(within);
        let (size, tail) = (entry_len(value), self.bytes.len());
        self.bytes.resize(tail + size, 0);
        self.bytes.copy_within(place..tail, place + size);
        self.write(place, value);
        self.added(value);
    }

    pub(super) fn replace(&mut self, within: usize, value: &[u8]) {
        let place = self.place(within);
        let (old, _) = self.entry_at(place);
        if old.len() == value.len() {
            self.encoded -= listpack_entry_len(old);
            self.encoded += listpack_entry_len(value);
            self.write(place, value);
        } else {
            self.remove(within);
            self.insert(within, value);
        }
    }

    pub(super) fn remove(&mut self, within: usize) {
        let place = self.place(within);
        let (value, end) = self.entry_at(place);
        self.encoded -= listpack_entry_len(value);
        self.len -= 1;
        self.bytes.drain(place..end);
        self.tidy();
    }

    /// Removes the elements at these indexes, which must ascend.
    pub(super) fn remove_all(&mut self, withins: impl Iterator<Item = usize>) {
        let mut withins = withins.peekable();
        if withins.peek().is_none() {
            return;
        }
        let old = std::mem::take(self);
        let mut place = old.start;
        for within in 0..old.len {
            let (value, next) = old.entry_at(place);
            if withins.next_if_eq(&within).is_none() {
                self.push_back(value);
            }
            place = next;
        }
        self.close();
    }

    pub(super) fn remove_equal(&mut self, value: &[u8], count: usize, from_back: bool) -> usize {
        let mut places = Vec::new();
        let mut place = if from_back { self.bytes.len() } else { self.start };
        for _ in 0..self.len {
            if places.len() == count {
                break;
            }
            let (found, next) = if from_back { self.entry_before(place) } else { self.entry_at(place) };
            if found == value {
                places.push(if from_back { next } else { place });
            }
            place = next;
        }
        if places.is_empty() {
            return 0;
        }
        places.sort_unstable();
        self.cut(&places, entry_len(value));
        self.len -= places.len();
        self.encoded -= places.len() * listpack_entry_len(value);
        self.tidy();
        places.len()
    }

    /// Cuts the entries of `size` bytes at these ascending places out of the buffer, in one pass.
    fn cut(&mut self, places: &[usize], size: usize) {
        let mut to = places[0];
        for (i, place) in places.iter().enumerate() {
            let kept = place + size..places.get(i + 1).copied().unwrap_or(self.bytes.len());
            let kept_len = kept.len();
            self.bytes.copy_within(kept, to);
            to += kept_len;
        }
        self.bytes.truncate(to);
    }

    pub(super) fn drop_front(&mut self, count: usize) {
        for _ in 0..count {
            let (value, next) = self.entry_at(self.start);
            self.encoded -= listpack_entry_len(value);
            self.start = next;
        }
        self.len -= count;
        self.tidy();
    }

    pub(super) fn drop_back(&mut self, count: usize) {
        for _ in 0..count {
            let (value, begin) = self.entry_before(self.bytes.len());
            self.encoded -= listpack_entry_len(value);
            self.bytes.truncate(begin);
        }
        self.len -= count;
        self.tidy();
    }

    /// Splits the node before element `within` and returns the part from there on.
    pub(super) fn split_off(&mut self, within: usize) -> Node {
        let place = self.place(within);
        let right = Node::of_entries(&self.bytes[place..], self.len - within);
        self.bytes.truncate(place);
        self.len = within;
        self.encoded -= right.encoded;
        self.tidy();
        right
    }

    pub(super) fn append(&mut self, right: &Node) {
        self.bytes.extend_from_slice(&right.bytes[right.start..]);
        self.len += right.len;
        self.encoded += right.encoded;
    }

    fn added(&mut self, value: &[u8]) {
        self.len += 1;
        self.encoded += listpack_entry_len(value);
    }

    /// Writes an entry over existing bytes.
    fn write(&mut self, place: usize, value: &[u8]) {
        let ends = Ends::of(value);
        let entry = &mut self.bytes[place..place + entry_len(value)];
        let (before, rest) = entry.split_at_mut(ends.before().len());
        let (bytes, behind) = rest.split_at_mut(value.len());
        before.copy_from_slice(ends.before());
        bytes.copy_from_slice(value);
        behind.copy_from_slice(ends.behind());
    }

    /// Resets an empty node. A node that has become mostly slack or spare capacity frees memory.
    fn tidy(&mut self) {
        if self.len == 0 {
            *self = Node::default();
            return;
        }
        let used = self.bytes.len() - self.start;
        if self.bytes.capacity() > 256 && used < self.bytes.capacity() / 8 {
            let mut bytes = Vec::with_capacity(used * 2);
            bytes.extend_from_slice(&self.bytes[self.start..]);
            self.bytes = bytes;
            self.start = 0;
        }
    }
}

/// Bytes that Redis' listpack takes for an element: head, payload, and their length at the end.
pub(super) fn listpack_entry_len(value: &[u8]) -> usize {
    let body = match Item::of(value) {
        Item::Int(0..=127) => 1,
        Item::Int(-4096..=4095) => 2,
        Item::Int(-0x8000..=0x7fff) => 3,
        Item::Int(-0x80_0000..=0x7f_ffff) => 4,
        Item::Int(-0x8000_0000..=0x7fff_ffff) => 5,
        Item::Int(_) => 9,
        Item::Bytes(bytes) if bytes.len() < 64 => 1 + bytes.len(),
        Item::Bytes(bytes) if bytes.len() < 4096 => 2 + bytes.len(),
        Item::Bytes(bytes) => 5 + bytes.len(),
    };
    body + number_len(body as u64).min(5)
}
