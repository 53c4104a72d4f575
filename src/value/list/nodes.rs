//! A large list: packed nodes of about 8 KB each.
//!
//! The list is one node while that is enough, and a deque of nodes beyond. A node is one buffer of entries with free
//! space on *both* sides, so that pushing and popping at either end of the list touch only the entry. A change in the
//! middle moves at most the bytes of one node. An index is found by walking over the counts of the nodes from the
//! nearer end, or from a known place ([`finger`](super::finger)).

use std::collections::VecDeque;
use std::ops::Range;

use super::entries::Run;
use super::finger::{Before, Finger};
use super::node::{ListLimits, Node, SAFE_NODE_BYTES};

/// The nodes of a large list.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    pub(super) shape: Shape,
    pub(super) len: usize,
    pub(super) finger: Finger,
}

#[derive(Clone, Debug)]
pub(super) enum Shape {
    One(Node),
    /// At least one node; none is empty unless the list is.
    Many(VecDeque<Node>),
}

impl Nodes {
    /// A list of one node.
    pub(super) fn of(node: Node) -> Nodes {
        Nodes { len: node.len, shape: Shape::One(node), finger: Finger::default() }
    }

    /// The elements in a range of indexes, which must not extend past the end.
    pub(super) fn range(&self, indexes: Range<usize>) -> Elements<'_> {
        Elements { list: self, start: indexes.start, end: indexes.end, front: None, back: None }
    }

    /// Changes to the large form if `elements` more elements, of `bytes` bytes in all, would not fit into one node.
    /// Redis checks this once per command, before it adds several elements.
    pub(super) fn grow_for(&mut self, elements: usize, bytes: usize, limits: ListLimits) {
        if let Shape::One(node) = &mut self.shape
            && !limits.admit(node.listpack_bytes().saturating_add(bytes), node.len.saturating_add(elements))
        {
            self.shape = Shape::Many(VecDeque::from([std::mem::take(node)]));
        }
    }

    /// Adds an element before the first.
    pub(super) fn push_front(&mut self, value: &[u8], limits: ListLimits) {
        self.grow_for(1, value.len(), limits);
        self.len += 1;
        match &mut self.shape {
            Shape::One(node) => node.push_front(value),
            Shape::Many(nodes) => match nodes.front_mut().filter(|node| node.has_room(value, limits)) {
                Some(node) => {
                    node.push_front(value);
                    self.finger.follow_push_front(0, 1);
                }
                None => {
                    nodes.front_mut().into_iter().for_each(Node::close);
                    nodes.push_front(Node::of(value));
                    self.finger.follow_push_front(1, 1);
                }
            },
        }
    }

    /// Adds an element after the last.
    pub(super) fn push_back(&mut self, value: &[u8], limits: ListLimits) {
        self.grow_for(1, value.len(), limits);
        self.len += 1;
        match &mut self.shape {
            Shape::One(node) => node.push_back(value),
            Shape::Many(nodes) => match nodes.back_mut().filter(|node| node.has_room(value, limits)) {
                Some(node) => node.push_back(value),
                None => {
                    nodes.back_mut().into_iter().for_each(Node::close);
                    nodes.push_back(Node::of(value));
                }
            },
        }
    }

    /// Adds a separate node with these elements after the last node, regardless of the limits, so that the list takes
    /// its large form. Without elements, adds no node.
    pub(super) fn push_node<'a>(&mut self, elements: impl Iterator<Item = &'a [u8]>) {
        let mut node = Node::default();
        elements.for_each(|element| node.push_back(element));
        node.close();
        self.take_form(false);
        if let Shape::Many(nodes) = &mut self.shape
            && node.len > 0
        {
            // A list without elements has an empty node.
            if nodes.back().is_some_and(|last| last.len == 0) {
                nodes.pop_back();
            }
            self.len += node.len;
            nodes.push_back(node);
        }
    }

    /// The elements of each node, beginning with the node that starts at element `index`.
    pub(super) fn nodes_from(&self, index: usize) -> impl Iterator<Item = Run<'_>> {
        let (first, within) = if index < self.len { self.point_to(index) } else { (self.node_count(), 0) };
        debug_assert_eq!(within, 0, "a node begins there");
        (first..self.node_count()).map(|at| self.node(at).elements())
    }

    /// Removes up to `count` elements at the front. Returns how many.
    pub(super) fn drop_front(&mut self, count: usize, limits: ListLimits) -> usize {
        let count = count.min(self.len);
        self.cut_front(count);
        self.removed(count, limits)
    }

    pub(super) fn cut_front(&mut self, count: usize) {
        let nodes_before = self.node_count();
        let mut left = count;
        if let Shape::Many(nodes) = &mut self.shape {
            while nodes.len() > 1 && nodes[0].len <= left {
                left -= nodes[0].len;
                nodes.pop_front();
            }
        }
        self.node_mut(0).drop_front(left);
        self.finger.follow_pop_front(nodes_before - self.node_count(), count);
    }

    /// Removes up to `count` elements at the back. Returns how many.
    pub(super) fn drop_back(&mut self, count: usize, limits: ListLimits) -> usize {
        let count = count.min(self.len);
        self.cut_back(count);
        self.removed(count, limits)
    }

    pub(super) fn cut_back(&mut self, count: usize) {
        let mut left = count;
        if let Shape::Many(nodes) = &mut self.shape {
            while nodes.len() > 1 && nodes[nodes.len() - 1].len <= left {
                left -= nodes[nodes.len() - 1].len;
                nodes.pop_back();
            }
        }
        self.node_mut(self.node_count() - 1).drop_back(left);
        self.finger.follow_pop_back(self.node_count());
    }

    /// Removes the element at one end. Even if the list now fits into one node, it does not become one.
    pub(super) fn take_off(&mut self, front: bool) {
        if front {
            self.cut_front(1);
        } else {
            self.cut_back(1);
        }
        self.len -= 1;
    }

    /// Adds an element before the one at `index`, or at the end if `index` is the length. Returns whether the new
    /// element is the first of its node; `None` past the end.
    pub(super) fn insert(&mut self, index: usize, value: &[u8], limits: ListLimits) -> Option<bool> {
        if index > self.len {
            return None;
        }
        if index == self.len {
            self.push_back(value, limits);
            return Some(self.node(self.node_count() - 1).len == 1);
        }
        self.grow_for(1, value.len(), limits);
        let (at, within) = self.locate(index);
        let before = self.before_change(at, index - within);
        self.len += 1;
        let is_first = match &mut self.shape {
            Shape::One(node) => {
                node.insert(within, value);
                within == 0
            }
            Shape::Many(nodes) => insert_into(nodes, at, within, value, limits),
        };
        self.after_change(&before);
        Some(is_first)
    }

    /// Replaces the element at `index`. Returns whether it is the first of its node; `None` if there is no such
    /// element.
    pub(super) fn set(&mut self, index: usize, value: &[u8], limits: ListLimits) -> Option<bool> {
        if index >= self.len {
            return None;
        }
        self.grow_for(1, value.len(), limits);
        let (at, within) = self.locate(index);
        let before = self.before_change(at, index - within);
        let is_first = match &mut self.shape {
            Shape::One(node) => {
                node.replace(within, value);
                within == 0
            }
            // With a limit by entries, the single node may stay whatever its bytes.
            Shape::Many(nodes)
                if nodes.len() == 1
                    && limits.max_listpack_size >= 0
                    && value.len() <= SAFE_NODE_BYTES.min(limits.alone_bytes as usize) =>
            {
                nodes[0].replace(within, value);
                within == 0
            }
            Shape::Many(nodes) => {
                nodes[at].remove(within);
                if nodes[at].len == 0 {
                    nodes[at] = Node::of(value);
                    true
                } else {
                    insert_into(nodes, at, within, value, limits)
                }
            }
        };
        self.after_change(&before);
        self.shrink(limits);
        Some(is_first)
    }

    /// Removes the elements at `indexes`, which must ascend. Returns false, and removes nothing, if an index is out of
    /// range.
    pub(super) fn remove_at(&mut self, indexes: &[usize], limits: ListLimits) -> bool {
        if indexes.last().is_none_or(|&last| last >= self.len) {
            return false;
        }
        let (mut left, mut begin) = (indexes, 0);
        for at in 0..self.node_count() {
            let node = self.node_mut(at);
            let end = begin + node.len;
            let (here, others) = left.split_at(left.partition_point(|&index| index < end));
            node.remove_all(here.iter().map(|index| index - begin));
            (left, begin) = (others, end);
            if left.is_empty() {
                break;
            }
        }
        self.drop_empty_nodes();
        self.removed(indexes.len(), limits);
        true
    }

    /// Removes up to `count` elements equal to `value`: the first ones, or the last ones if `from_back`. Returns how
    /// many were removed.
    pub(super) fn remove_equal(&mut self, value: &[u8], count: usize, from_back: bool, limits: ListLimits) -> usize {
        let mut removed = 0;
        let nodes = self.node_count();
        for step in 0..nodes {
            let at = if from_back { nodes - 1 - step } else { step };
            removed += self.node_mut(at).remove_equal(value, count - removed, from_back);
            if removed == count {
                break;
            }
        }
        if removed == 0 {
            return 0;
        }
        self.drop_empty_nodes();
        self.removed(removed, limits)
    }

    /// Removes the nodes that have lost all their elements.
    fn drop_empty_nodes(&mut self) {
        self.finger.lose();
        if let Shape::Many(nodes) = &mut self.shape {
            nodes.retain(|node| node.len > 0);
            if nodes.is_empty() {
                nodes.push_back(Node::default());
            }
        }
    }

    /// Whether the list is one node.
    pub(super) fn is_compact(&self) -> bool {
        matches!(self.shape, Shape::One(_))
    }

    /// Bytes of the compact form; `None` for the large form.
    pub(super) fn compact_bytes(&self) -> Option<usize> {
        match &self.shape {
            Shape::One(node) => Some(node.bytes.len()),
            Shape::Many(_) => None,
        }
    }

    /// Takes the compact or the large form, regardless of the limits.
    pub(super) fn take_form(&mut self, compact: bool) {
        match &mut self.shape {
            Shape::One(node) if !compact => self.shape = Shape::Many(VecDeque::from([std::mem::take(node)])),
            Shape::Many(nodes) if compact => {
                let mut nodes = std::mem::take(nodes).into_iter();
                let mut one = nodes.next().unwrap_or_default();
                nodes.for_each(|node| one.append(&node));
                self.shape = Shape::One(one);
                self.finger.lose();
            }
            _ => {}
        }
    }

    /// An estimate of the heap memory held, in bytes.
    pub(super) fn mem_bytes(&self) -> usize {
        match &self.shape {
            Shape::One(node) => node.bytes.capacity(),
            Shape::Many(nodes) => {
                let buffers: usize = nodes.iter().map(|node| node.bytes.capacity()).sum();
                nodes.capacity() * size_of::<Node>() + buffers
            }
        }
    }

    pub(super) fn node_count(&self) -> usize {
        match &self.shape {
            Shape::One(_) => 1,
            Shape::Many(nodes) => nodes.len(),
        }
    }

    pub(super) fn node(&self, at: usize) -> &Node {
        match &self.shape {
            Shape::One(node) => node,
            Shape::Many(nodes) => &nodes[at],
        }
    }

    pub(super) fn node_mut(&mut self, at: usize) -> &mut Node {
        match &mut self.shape {
            Shape::One(node) => node,
            Shape::Many(nodes) => &mut nodes[at],
        }
    }

    /// The node that holds element `index`, which must be below the length, and the element's index in that node.
    pub(super) fn locate(&self, index: usize) -> (usize, usize) {
        let Shape::Many(nodes) = &self.shape else { return (0, index) };
        let known = [(0, 0), self.finger.place(), (nodes.len(), self.len)];
        let (mut at, mut begin) = known.into_iter().min_by_key(|(_, begin)| begin.abs_diff(index)).unwrap_or_default();
        while begin > index {
            at -= 1;
            begin -= nodes[at].len;
        }
        while index - begin >= nodes[at].len {
            begin += nodes[at].len;
            at += 1;
        }
        (at, index - begin)
    }

    /// Like [`locate`](Self::locate), and moves the finger to that node.
    pub(super) fn point_to(&self, index: usize) -> (usize, usize) {
        let (at, within) = self.locate(index);
        self.finger.set(at, index - within);
        (at, within)
    }

    /// Records the state before an element is added or replaced in this node, whose first element has the index
    /// `begin`.
    fn before_change(&self, node: usize, begin: usize) -> Before {
        let previous = node.checked_sub(1).map_or((0, 0), |previous| (previous, begin - self.node(previous).len));
        Before { node, previous, nodes: self.node_count(), elements: self.len }
    }

    fn after_change(&self, before: &Before) {
        self.finger.follow_change(before, self.node_count(), self.len);
    }

    /// Completes a removal: updates the length and, if possible, returns to the compact form.
    fn removed(&mut self, count: usize, limits: ListLimits) -> usize {
        self.len -= count;
        self.shrink(limits);
        count
    }

    pub(super) fn shrink(&mut self, limits: ListLimits) {
        if let Shape::Many(nodes) = &mut self.shape
            && nodes.len() == 1
            && limits.admit_back(&nodes[0])
        {
            self.finger.lose();
            self.shape = Shape::One(std::mem::take(&mut nodes[0]));
        }
    }
}

/// Inserts into node `at` before its element `within`. A full node is split there, so that no element is moved twice.
/// Returns whether the new element is the first of its node.
fn insert_into(nodes: &mut VecDeque<Node>, at: usize, within: usize, value: &[u8], limits: ListLimits) -> bool {
    if nodes[at].has_room(value, limits) {
        nodes[at].insert(within, value);
        return within == 0;
    }
    let right = nodes[at].split_off(within);
    let mut next = at + 1;
    if right.len > 0 {
        nodes.insert(next, right);
    }
    if nodes[at].len == 0 {
        nodes.remove(at);
        next = at;
    }
    if next > 0 && nodes[next - 1].has_room(value, limits) {
        nodes[next - 1].push_back(value);
        return false;
    }
    if next < nodes.len() && nodes[next].has_room(value, limits) {
        nodes[next].push_front(value);
    } else {
        nodes.insert(next, Node::of(value));
    }
    true
}

/// The elements in a range of indexes. Can be taken from both ends.
#[derive(Clone, Debug)]
pub(super) struct Elements<'a> {
    list: &'a Nodes,
    start: usize,
    end: usize,
    /// The position of the next element from the front: the node, and the offset in its buffer. Found when first
    /// needed.
    front: Option<(usize, usize)>,
    /// The end of the next element from the back, likewise.
    back: Option<(usize, usize)>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.start >= self.end {
            return None;
        }
        let (mut at, mut place) = self.front.unwrap_or_else(|| {
            let (at, within) = self.list.locate(self.start);
            (at, self.list.node(at).place(within))
        });
        if place >= self.list.node(at).bytes.len() {
            at += 1;
            place = self.list.node(at).start;
        }
        let (value, next) = self.list.node(at).entry_at(place);
        self.start += 1;
        self.front = Some((at, next));
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.start, Some(self.end - self.start))
    }

    fn nth(&mut self, n: usize) -> Option<&'a [u8]> {
        if n > 0 {
            self.start = self.start.saturating_add(n).min(self.end);
            self.front = None;
        }
        self.next()
    }
}

impl DoubleEndedIterator for Elements<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.start >= self.end {
            return None;
        }
        let (mut at, mut place) = self.back.unwrap_or_else(|| {
            let (at, within) = self.list.locate(self.end - 1);
            (at, self.list.node(at).place(within + 1))
        });
        if place <= self.list.node(at).start {
            at -= 1;
            place = self.list.node(at).bytes.len();
        }
        let (value, begin) = self.list.node(at).entry_before(place);
        self.end -= 1;
        self.back = Some((at, begin));
        Some(value)
    }
}

impl ExactSizeIterator for Elements<'_> {}
