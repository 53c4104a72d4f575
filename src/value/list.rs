//! Lists: a deque of packed nodes, each of about 8 KB.
//!
//! One node while that is enough (`listpack`), a deque of them beyond (`quicklist`). A node is one buffer of entries, each
//! readable from both ends, with free space at *both* sides: pushing and popping at either end of the list touches only
//! the entry. A change in the middle moves at most the bytes of one node; an index is found by walking over the counts of
//! the nodes from the nearer end, or from a place that is known ([`finger`]).

mod finger;
mod node;
mod piece;

use std::collections::VecDeque;
use std::ops::Range;

use finger::{Before, Finger};
pub(crate) use node::ListLimits;
use node::{Node, SAFE_NODE_BYTES};
pub(crate) use piece::ListPiece;

/// A list.
#[derive(Clone, Debug)]
pub struct List {
    shape: Shape,
    len: usize,
    finger: Finger,
}

#[derive(Clone, Debug)]
enum Shape {
    One(Node),
    /// At least one node; none is empty unless the list is.
    Many(VecDeque<Node>),
}

impl Default for List {
    fn default() -> List {
        List::new()
    }
}

impl List {
    /// An empty list.
    pub fn new() -> List {
        List { shape: Shape::One(Node::default()), len: 0, finger: Finger::default() }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element (such a list must not stay in the keyspace).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The name that OBJECT ENCODING shows: `listpack` or `quicklist`.
    pub fn encoding(&self) -> &'static str {
        match self.shape {
            Shape::One(_) => "listpack",
            Shape::Many(_) => "quicklist",
        }
    }

    /// The first element.
    pub fn front(&self) -> Option<&[u8]> {
        self.range(0..1).next()
    }

    /// The last element.
    pub fn back(&self) -> Option<&[u8]> {
        self.range(0..self.len).next_back()
    }

    /// The element at `index`.
    pub fn at(&self, index: usize) -> Option<&[u8]> {
        self.range(index..index.saturating_add(1)).next()
    }

    /// The elements of a range of indexes (cut to the list); `.rev()` walks it from its end.
    pub fn range(&self, indexes: Range<usize>) -> Elements<'_> {
        let end = indexes.end.min(self.len);
        Elements { list: self, start: indexes.start.min(end), end, front: None, back: None }
    }

    /// All elements, first to last.
    pub fn iter(&self) -> Elements<'_> {
        self.range(0..self.len)
    }

    /// Changes to the large form if so many more elements, of so many bytes in all, would not fit one node. Redis asks
    /// this once per command, before it adds several elements.
    pub fn grow_for(&mut self, elements: usize, bytes: usize, limits: ListLimits) {
        if let Shape::One(node) = &mut self.shape
            && !limits.admit(node.listpack_bytes().saturating_add(bytes), node.len.saturating_add(elements))
        {
            self.shape = Shape::Many(VecDeque::from([std::mem::take(node)]));
        }
    }

    /// Adds an element before the first.
    pub fn push_front(&mut self, value: &[u8], limits: ListLimits) {
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
    pub fn push_back(&mut self, value: &[u8], limits: ListLimits) {
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

    /// Adds a node of its own with these elements after the last, whatever the limits; without elements nothing. The list takes
    /// its large form.
    pub fn push_node<'a>(&mut self, elements: impl Iterator<Item = &'a [u8]>) {
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

    /// The elements of each node, first to last.
    pub fn nodes(&self) -> impl Iterator<Item = impl ExactSizeIterator<Item = &[u8]>> {
        self.nodes_from(0)
    }

    /// The elements of each node from the one that begins with this element on.
    pub fn nodes_from(&self, index: usize) -> impl Iterator<Item = impl ExactSizeIterator<Item = &[u8]>> {
        let (first, within) = if index < self.len { self.point_to(index) } else { (self.node_count(), 0) };
        debug_assert_eq!(within, 0, "a node begins there");
        (first..self.node_count()).map(|at| self.node_elements(at))
    }

    /// The elements of one node.
    fn node_elements(&self, at: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let node = self.node(at);
        let mut place = node.start;
        (0..node.len).map(move |_| {
            let (value, next) = node.entry_at(place);
            place = next;
            value
        })
    }

    /// Removes up to `count` elements at the front. Returns how many.
    pub fn drop_front(&mut self, count: usize, limits: ListLimits) -> usize {
        let count = count.min(self.len);
        self.cut_front(count);
        self.removed(count, limits)
    }

    fn cut_front(&mut self, count: usize) {
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
    pub fn drop_back(&mut self, count: usize, limits: ListLimits) -> usize {
        let count = count.min(self.len);
        self.cut_back(count);
        self.removed(count, limits)
    }

    fn cut_back(&mut self, count: usize) {
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

    /// Moves the element at one end to an end.
    pub fn rotate(&mut self, from_front: bool, to_front: bool, limits: ListLimits) {
        let moved = if from_front { self.front() } else { self.back() };
        let Some(moved) = moved.map(<[u8]>::to_vec) else { return };
        if from_front != to_front {
            // The way back to the small form is looked at when the element is in again.
            if from_front {
                self.cut_front(1);
                self.len -= 1;
                self.push_back(&moved, limits);
            } else {
                self.cut_back(1);
                self.len -= 1;
                self.push_front(&moved, limits);
            }
        }
        self.shrink(limits);
    }

    /// Adds an element before the one at `index`, or at the end where `index` is the length. Answers whether it is the first of
    /// its node; `None` past the end.
    pub fn insert(&mut self, index: usize, value: &[u8], limits: ListLimits) -> Option<bool> {
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

    /// Replaces the element at `index`. Answers whether it is the first of its node; `None` where there is none.
    pub fn set(&mut self, index: usize, value: &[u8], limits: ListLimits) -> Option<bool> {
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
            // With a limit by entries the node may stay one, whatever its bytes.
            Shape::Many(nodes)
                if nodes.len() == 1 && limits.max_listpack_size >= 0 && value.len() <= SAFE_NODE_BYTES =>
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

    /// Removes the elements at these indexes, which ascend. False, and nothing is removed, where there is none.
    pub fn remove_at(&mut self, indexes: &[usize], limits: ListLimits) -> bool {
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

    /// The indexes of up to `count` elements equal to `value`, which ascend: of the first ones, or the last ones if `from_back`.
    pub fn indexes_of(&self, value: &[u8], count: usize, from_back: bool) -> Vec<usize> {
        let equal = |(index, element): (usize, &[u8])| (element == value).then_some(index);
        if !from_back {
            return self.iter().enumerate().filter_map(equal).take(count).collect();
        }
        let mut indexes: Vec<usize> = self.iter().enumerate().rev().filter_map(equal).take(count).collect();
        indexes.reverse();
        indexes
    }

    /// Removes up to `count` elements equal to `value`, the first ones, or the last ones if `from_back`. Returns how many.
    pub fn remove_equal(&mut self, value: &[u8], count: usize, from_back: bool, limits: ListLimits) -> usize {
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

    /// Takes out the nodes that have lost all their elements.
    fn drop_empty_nodes(&mut self) {
        self.finger.lose();
        if let Shape::Many(nodes) = &mut self.shape {
            nodes.retain(|node| node.len > 0);
            if nodes.is_empty() {
                nodes.push_back(Node::default());
            }
        }
    }

    /// Whether it is one node.
    pub fn is_compact(&self) -> bool {
        matches!(self.shape, Shape::One(_))
    }

    /// Bytes of the compact form; `None` in the large one.
    pub fn compact_bytes(&self) -> Option<usize> {
        match &self.shape {
            Shape::One(node) => Some(node.bytes.len()),
            Shape::Many(_) => None,
        }
    }

    /// Gives it the compact or the large form, whatever the limits say.
    pub fn take_form(&mut self, compact: bool) {
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
    pub fn mem_bytes(&self) -> usize {
        match &self.shape {
            Shape::One(node) => node.bytes.capacity(),
            Shape::Many(nodes) => {
                let buffers: usize = nodes.iter().map(|node| node.bytes.capacity()).sum();
                nodes.capacity() * size_of::<Node>() + buffers
            }
        }
    }

    fn node_count(&self) -> usize {
        match &self.shape {
            Shape::One(_) => 1,
            Shape::Many(nodes) => nodes.len(),
        }
    }

    fn node(&self, at: usize) -> &Node {
        match &self.shape {
            Shape::One(node) => node,
            Shape::Many(nodes) => &nodes[at],
        }
    }

    fn node_mut(&mut self, at: usize) -> &mut Node {
        match &mut self.shape {
            Shape::One(node) => node,
            Shape::Many(nodes) => &mut nodes[at],
        }
    }

    /// The node that holds `index`, which must be below the length, and where in it.
    fn locate(&self, index: usize) -> (usize, usize) {
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

    /// As [`locate`](Self::locate), and lets the finger point to that node.
    fn point_to(&self, index: usize) -> (usize, usize) {
        let (at, within) = self.locate(index);
        self.finger.set(at, index - within);
        (at, within)
    }

    /// An element of this node, which begins with the element `begin`, is about to be added or replaced.
    fn before_change(&self, node: usize, begin: usize) -> Before {
        let previous = node.checked_sub(1).map_or((0, 0), |previous| (previous, begin - self.node(previous).len));
        Before { node, previous, nodes: self.node_count(), elements: self.len }
    }

    fn after_change(&self, before: &Before) {
        self.finger.follow_change(before, self.node_count(), self.len);
    }

    /// What ends every removal: the length, and the way back to the small form.
    fn removed(&mut self, count: usize, limits: ListLimits) -> usize {
        self.len -= count;
        self.shrink(limits);
        count
    }

    fn shrink(&mut self, limits: ListLimits) {
        if let Shape::Many(nodes) = &mut self.shape
            && nodes.len() == 1
            && limits.admit_back(&nodes[0])
        {
            self.finger.lose();
            self.shape = Shape::One(std::mem::take(&mut nodes[0]));
        }
    }
}

/// Inserts into node `at` before its element `within`. A full node is cut there, so that no element is moved twice. Answers whether
/// the new one is the first of its node.
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

/// The elements of a range of indexes. Both ends can be taken from.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    list: &'a List,
    start: usize,
    end: usize,
    /// Where the next element from the front is: the node, and the place in its buffer. Found when first needed.
    front: Option<(usize, usize)>,
    /// Where the next element from the back ends.
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

#[cfg(test)]
mod tests {
    use super::node::listpack_entry_len;
    use super::*;
    use proptest::prelude::*;

    const ENTRIES_3: ListLimits = ListLimits { max_listpack_size: 3 };

    #[derive(Clone, Debug)]
    enum Step {
        PushFront(Vec<u8>),
        PushBack(Vec<u8>),
        DropFront(usize),
        DropBack(usize),
        Insert(usize, Vec<u8>),
        Set(usize, Vec<u8>),
        RemoveEqual(Vec<u8>, usize, bool),
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0u8..4).prop_map(|digit| vec![b'0' + digit]),
            2 => proptest::collection::vec(any::<u8>(), 0..20),
            1 => (0usize..5000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
            1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => value().prop_map(Step::PushFront),
            5 => value().prop_map(Step::PushBack),
            1 => (0usize..6).prop_map(Step::DropFront),
            1 => (0usize..6).prop_map(Step::DropBack),
            3 => (any::<usize>(), value()).prop_map(|(at, value)| Step::Insert(at, value)),
            2 => (any::<usize>(), value()).prop_map(|(at, value)| Step::Set(at, value)),
            1 => (value(), 1usize..4, any::<bool>()).prop_map(|(value, n, back)| Step::RemoveEqual(value, n, back)),
        ]
    }

    fn remove_equal(model: &mut Vec<Vec<u8>>, value: &[u8], count: usize, from_back: bool) -> usize {
        let mut found: Vec<usize> = (0..model.len()).filter(|&i| model[i] == value).collect();
        if from_back {
            found.reverse();
        }
        found.truncate(count);
        found.sort_unstable();
        found.iter().rev().for_each(|&i| {
            model.remove(i);
        });
        found.len()
    }

    fn check(list: &List) {
        let mut total = 0;
        for at in 0..list.node_count() {
            let node = list.node(at);
            let values: Vec<&[u8]> = (0..node.len).map(|within| node.entry_at(node.place(within)).0).collect();
            assert_eq!(node.encoded, values.iter().map(|value| listpack_entry_len(value)).sum::<usize>());
            assert!(node.len > 0 || list.is_empty());
            total += node.len;
        }
        assert_eq!(total, list.len());
        let (at, begin) = list.finger.place();
        assert_eq!((0..at).map(|at| list.node(at).len).sum::<usize>(), begin, "the finger");
        // Some node, another one each time.
        let node = (list.len() * 7 + list.node(0).len) % list.node_count();
        list.point_to((0..node).map(|at| list.node(at).len).sum());
    }

    proptest! {
        #[test]
        fn follows_a_vector(
            steps in proptest::collection::vec(step(), 1..150),
            limit in prop_oneof![-6i32..6, Just(-1), Just(i32::MIN), Just(i32::MAX)],
            cuts in proptest::collection::vec((0usize..160, 0usize..160), 3),
        ) {
            let limits = ListLimits { max_listpack_size: limit };
            let mut list = List::new();
            let mut model: Vec<Vec<u8>> = Vec::new();
            for step in steps {
                let len = model.len();
                match step {
                    Step::PushFront(value) => {
                        list.push_front(&value, limits);
                        model.insert(0, value);
                    }
                    Step::PushBack(value) => {
                        list.push_back(&value, limits);
                        model.push(value);
                    }
                    Step::DropFront(count) => {
                        prop_assert_eq!(list.drop_front(count, limits), count.min(len));
                        model.drain(..count.min(len));
                    }
                    Step::DropBack(count) => {
                        prop_assert_eq!(list.drop_back(count, limits), count.min(len));
                        model.truncate(len - count.min(len));
                    }
                    Step::Insert(at, value) => {
                        let at = at % (len + 2);
                        prop_assert_eq!(list.insert(at, &value, limits).is_some(), at <= len);
                        if at <= len {
                            model.insert(at, value);
                        }
                    }
                    Step::Set(at, value) => {
                        let at = at % (len + 1);
                        prop_assert_eq!(list.set(at, &value, limits).is_some(), at < len);
                        if at < len {
                            model[at] = value;
                        }
                    }
                    Step::RemoveEqual(value, count, from_back) => {
                        let expected = remove_equal(&mut model, &value, count, from_back);
                        if from_back {
                            prop_assert_eq!(list.remove_equal(&value, count, true, limits), expected);
                        } else {
                            let indexes = list.indexes_of(&value, count, false);
                            prop_assert_eq!((list.remove_at(&indexes, limits), indexes.len()), (expected > 0, expected));
                        }
                    }
                }
                check(&list);
            }
            prop_assert!(list.iter().eq(model.iter().map(Vec::as_slice)));
            prop_assert!(list.iter().rev().eq(model.iter().rev().map(Vec::as_slice)));
            prop_assert_eq!(list.front(), model.first().map(Vec::as_slice));
            prop_assert_eq!(list.back(), model.last().map(Vec::as_slice));
            for (a, b) in cuts {
                let (start, end) = (a.min(model.len()), b.min(model.len()).max(a.min(model.len())));
                prop_assert!(list.range(a..b).eq(model[start..end].iter().map(Vec::as_slice)));
                prop_assert!(list.range(a..b).rev().eq(model[start..end].iter().rev().map(Vec::as_slice)));
                prop_assert_eq!(list.at(a), model.get(a).map(Vec::as_slice));
                prop_assert_eq!(list.iter().nth(a), model.get(a).map(Vec::as_slice));
            }
        }
    }

    #[test]
    fn forms_change_where_redis_changes_them() {
        let mut list = List::new();
        (0..3).for_each(|_| list.push_back(b"x", ENTRIES_3));
        assert_eq!(list.encoding(), "listpack");
        list.push_back(b"x", ENTRIES_3);
        assert_eq!((list.encoding(), list.node_count()), ("quicklist", 2));
        list.drop_back(2, ENTRIES_3);
        assert_eq!((list.encoding(), list.node_count()), ("quicklist", 1));
        list.drop_front(1, ENTRIES_3);
        assert_eq!(list.encoding(), "listpack");
        list.grow_for(5, 5, ENTRIES_3);
        assert_eq!(list.encoding(), "quicklist");

        let limits = ListLimits::default();
        let mut list = List::new();
        list.push_back(&[b'x'; 8185], limits);
        assert_eq!(list.encoding(), "listpack");
        list.push_back(b"x", limits);
        assert_eq!(list.encoding(), "quicklist");
        let mut list = List::new();
        list.push_back(&[b'x'; 8186], limits);
        assert_eq!(list.encoding(), "quicklist");
    }

    #[test]
    fn a_queue_stays_small_whichever_way_it_runs() {
        let limits = ListLimits::default();
        let (mut right, mut left) = (List::new(), List::new());
        for number in 0..100_000u32 {
            let value = number.to_string();
            right.push_back(value.as_bytes(), limits);
            left.push_front(value.as_bytes(), limits);
            if number >= 100 {
                assert_eq!(right.front(), Some((number - 100).to_string().as_bytes()));
                assert_eq!(right.drop_front(1, limits), 1);
                assert_eq!(
                    left.back(),
                    right.front().map(|_| (number - 100).to_string()).as_deref().map(str::as_bytes)
                );
                assert_eq!(left.drop_back(1, limits), 1);
            }
        }
        assert!(right.mem_bytes() < 8192 && left.mem_bytes() < 8192, "{} {}", right.mem_bytes(), left.mem_bytes());
    }

    #[test]
    fn a_long_list_has_nodes_of_the_limit() {
        let limits = ListLimits::default();
        let mut list = List::new();
        (0..100_000u32).for_each(|number| list.push_back(number.to_string().as_bytes(), limits));
        assert!((50..100).contains(&list.node_count()), "{}", list.node_count());
        assert_eq!(list.at(77_777), Some(&b"77777"[..]));
    }
}
