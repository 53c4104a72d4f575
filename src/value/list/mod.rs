//! Lists, in one of two forms behind one word:
//!
//! - *Small*: entries in one block ([`small`]), up to about a kilobyte. Nearly all lists are small.
//! - *Large*: nodes of about 8 KB ([`nodes`]). A large list never becomes small again, because a copy in progress
//!   identifies it by its address.
//!
//! Clients see another boundary: a list is called a `listpack` while it is small or has one node, and a `quicklist`
//! otherwise. Both forms consist of [entries] that can be read from either end.

mod entries;
mod finger;
mod node;
mod nodes;
mod pre_image;
mod small;
mod undo;

use std::ops::Range;

use entries::Run;
pub(crate) use node::{ALONE_BYTES, ListLimits};
use nodes::Nodes;
pub(crate) use pre_image::ListPreImage;
use small::Small;

use crate::value::block::{Block, InBlock};
use crate::value::one_word::{Held, HeldMut, OneWord};

/// A list.
#[derive(Clone, Debug, Default)]
pub struct List(OneWord<Nodes>);

/// The form of a list.
enum Form<'a> {
    Small(&'a Small),
    Large(&'a Nodes),
}

/// The form of a list, for changing it.
enum FormMut<'a> {
    Small(&'a mut Small),
    Large(&'a mut Nodes),
}

impl List {
    /// An empty list, without allocation.
    pub fn new() -> List {
        List(OneWord::new())
    }

    /// The block, if the list is small.
    pub(crate) fn block(&self) -> Option<&Block> {
        self.0.as_small()
    }

    /// The block of a small list, for moving it.
    pub(crate) fn block_mut(&mut self) -> Option<&mut Block> {
        self.0.as_small_mut()
    }

    /// Makes a small list as short as possible, until it is changed.
    pub(crate) fn pack(&mut self) {
        if let HeldMut::Small(block) = self.0.held_mut() {
            Small::of_mut(block).pack();
        }
    }

    /// The address of the large form, which stays the same wherever the list is moved. A small list has none.
    pub fn address(&self) -> Option<usize> {
        self.0.as_large().map(|nodes| std::ptr::from_ref(nodes).addr())
    }

    /// The number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self.form() {
            Form::Small(small) => small.len(),
            Form::Large(nodes) => nodes.len,
        }
    }

    /// Whether there are no elements. Such a list must not stay in the keyspace.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name in OBJECT ENCODING: `listpack` or `quicklist`.
    pub fn encoding(&self) -> &'static str {
        if self.is_compact() { "listpack" } else { "quicklist" }
    }

    /// Whether the list is one block or node.
    pub fn is_compact(&self) -> bool {
        self.0.as_large().is_none_or(Nodes::is_compact)
    }

    /// Bytes of the compact form; `None` for the large form.
    pub fn compact_bytes(&self) -> Option<usize> {
        match self.form() {
            Form::Small(small) => Some(small.bytes()),
            Form::Large(nodes) => nodes.compact_bytes(),
        }
    }

    /// An estimate of the heap memory held, in bytes.
    pub fn mem_bytes(&self) -> usize {
        match self.form() {
            Form::Small(small) => small.heap_bytes(),
            Form::Large(nodes) => size_of::<Nodes>() + nodes.mem_bytes(),
        }
    }

    /// The first element.
    pub fn front(&self) -> Option<&[u8]> {
        self.range(0..1).next()
    }

    /// The last element.
    pub fn back(&self) -> Option<&[u8]> {
        match self.form() {
            Form::Small(small) => small.back(),
            Form::Large(nodes) => nodes.range(0..nodes.len).next_back(),
        }
    }

    /// The element at `index`.
    pub fn at(&self, index: usize) -> Option<&[u8]> {
        self.range(index..index.saturating_add(1)).next()
    }

    /// The elements in a range of indexes, clamped to the list; `.rev()` walks the range backwards.
    pub fn range(&self, indexes: Range<usize>) -> Elements<'_> {
        let end = indexes.end.min(self.len());
        let indexes = indexes.start.min(end)..end;
        Elements(match self.form() {
            Form::Small(small) => Walk::Small(small.range(indexes)),
            Form::Large(nodes) => Walk::Large(nodes.range(indexes)),
        })
    }

    /// All elements, first to last.
    pub fn iter(&self) -> Elements<'_> {
        self.range(0..self.len())
    }

    /// The elements of each node, first to last. A small list counts as one node.
    pub fn nodes(&self) -> impl Iterator<Item = Run<'_>> {
        self.nodes_from(0)
    }

    /// The elements of each node, beginning with the node that starts at element `index`.
    pub fn nodes_from(&self, index: usize) -> impl Iterator<Item = Run<'_>> {
        let (small, large) = match self.form() {
            Form::Small(small) => ((index < small.len()).then(|| small.range(index..small.len())), None),
            Form::Large(nodes) => (None, Some(nodes)),
        };
        small.into_iter().chain(large.into_iter().flat_map(move |nodes| nodes.nodes_from(index)))
    }

    /// Changes to the large form if `elements` more elements, of `bytes` bytes in all, would not fit into one node.
    /// Redis checks this once per command, before it adds several elements.
    pub fn grow_for(&mut self, elements: usize, bytes: usize, limits: ListLimits) {
        if let FormMut::Large(nodes) = self.with_room(elements, bytes, limits) {
            nodes.grow_for(elements, bytes, limits);
        }
    }

    /// Adds an element before the first.
    pub fn push_front(&mut self, value: &[u8], limits: ListLimits) {
        match self.with_room(1, value.len(), limits) {
            FormMut::Small(small) => small.insert(0, value),
            FormMut::Large(nodes) => nodes.push_front(value, limits),
        }
    }

    /// Adds an element after the last.
    pub fn push_back(&mut self, value: &[u8], limits: ListLimits) {
        match self.with_room(1, value.len(), limits) {
            FormMut::Small(small) => small.insert(small.len(), value),
            FormMut::Large(nodes) => nodes.push_back(value, limits),
        }
    }

    /// Adds a separate node with these elements after the last node, regardless of the limits, so that the list takes
    /// its large form. Without elements, adds no node.
    pub fn push_node<'a>(&mut self, elements: impl Iterator<Item = &'a [u8]>) {
        self.enlarged().push_node(elements);
    }

    /// Removes up to `count` elements at the front. Returns how many.
    pub fn drop_front(&mut self, count: usize, limits: ListLimits) -> usize {
        let count = count.min(self.len());
        match self.form_mut() {
            FormMut::Small(small) => small.remove(0..count),
            FormMut::Large(nodes) => _ = nodes.drop_front(count, limits),
        }
        count
    }

    /// Removes up to `count` elements at the back. Returns how many.
    pub fn drop_back(&mut self, count: usize, limits: ListLimits) -> usize {
        let count = count.min(self.len());
        match self.form_mut() {
            FormMut::Small(small) => small.remove(small.len() - count..small.len()),
            FormMut::Large(nodes) => _ = nodes.drop_back(count, limits),
        }
        count
    }

    /// Moves the element at one end to the other end, or back to the same one.
    pub fn rotate(&mut self, from_front: bool, to_front: bool, limits: ListLimits) {
        let moved = if from_front { self.front() } else { self.back() };
        let Some(moved) = moved.map(<[u8]>::to_vec) else { return };
        if from_front != to_front {
            match self.form_mut() {
                FormMut::Small(_) if from_front => _ = self.drop_front(1, limits),
                FormMut::Small(_) => _ = self.drop_back(1, limits),
                // Whether to return to one node is decided when the element is in the list again.
                FormMut::Large(nodes) => nodes.take_off(from_front),
            }
            if from_front {
                self.push_back(&moved, limits);
            } else {
                self.push_front(&moved, limits);
            }
        }
        if let FormMut::Large(nodes) = self.form_mut() {
            nodes.shrink(limits);
        }
    }

    /// Adds an element before the one at `index`, or at the end if `index` is the length. Returns whether the new
    /// element is the first of its node; `None` past the end.
    pub fn insert(&mut self, index: usize, value: &[u8], limits: ListLimits) -> Option<bool> {
        if index > self.len() {
            return None;
        }
        match self.with_room(1, value.len(), limits) {
            FormMut::Small(small) => {
                small.insert(index, value);
                Some(index == 0)
            }
            FormMut::Large(nodes) => nodes.insert(index, value, limits),
        }
    }

    /// Replaces the element at `index`. Returns whether it is the first of its node; `None` if there is no such
    /// element.
    pub fn set(&mut self, index: usize, value: &[u8], limits: ListLimits) -> Option<bool> {
        if index >= self.len() {
            return None;
        }
        match self.with_room(1, value.len(), limits) {
            FormMut::Small(small) => {
                small.replace(index, value);
                Some(index == 0)
            }
            FormMut::Large(nodes) => nodes.set(index, value, limits),
        }
    }

    /// Removes the elements at `indexes`, which must ascend. Returns false, and removes nothing, if an index is out of
    /// range.
    pub fn remove_at(&mut self, indexes: &[usize], limits: ListLimits) -> bool {
        match self.form_mut() {
            FormMut::Small(small) if indexes.last().is_some_and(|&last| last < small.len()) => {
                indexes.iter().rev().for_each(|&index| small.remove(index..index + 1));
                true
            }
            FormMut::Small(_) => false,
            FormMut::Large(nodes) => nodes.remove_at(indexes, limits),
        }
    }

    /// The ascending indexes of up to `count` elements equal to `value`: the first ones, or the last ones if
    /// `from_back`.
    pub fn indexes_of(&self, value: &[u8], count: usize, from_back: bool) -> Vec<usize> {
        let equal = |(index, element): (usize, &[u8])| (element == value).then_some(index);
        if !from_back {
            return self.iter().enumerate().filter_map(equal).take(count).collect();
        }
        let mut indexes: Vec<usize> = self.iter().enumerate().rev().filter_map(equal).take(count).collect();
        indexes.reverse();
        indexes
    }

    /// Removes up to `count` elements equal to `value`: the first ones, or the last ones if `from_back`. Returns how
    /// many were removed.
    pub fn remove_equal(&mut self, value: &[u8], count: usize, from_back: bool, limits: ListLimits) -> usize {
        if let FormMut::Large(nodes) = self.form_mut() {
            return nodes.remove_equal(value, count, from_back, limits);
        }
        let indexes = self.indexes_of(value, count, from_back);
        self.remove_at(&indexes, limits);
        indexes.len()
    }

    /// Takes the compact or the large form, regardless of the limits.
    pub fn take_form(&mut self, compact: bool) {
        if self.is_compact() != compact {
            self.enlarged().take_form(compact);
        }
    }

    #[inline]
    fn form(&self) -> Form<'_> {
        match self.0.held() {
            Held::Small(block) => Form::Small(Small::of(block)),
            Held::Large(nodes) => Form::Large(nodes),
        }
    }

    /// The form, for changing it. Unpacks a packed list.
    #[inline]
    fn form_mut(&mut self) -> FormMut<'_> {
        if let HeldMut::Small(block) = self.0.held_mut() {
            Small::of_mut(block).unpack();
        }
        self.unpacked_form_mut()
    }

    #[inline]
    fn unpacked_form_mut(&mut self) -> FormMut<'_> {
        match self.0.held_mut() {
            HeldMut::Small(block) => FormMut::Small(Small::of_mut(block)),
            HeldMut::Large(nodes) => FormMut::Large(nodes),
        }
    }

    /// The form after making room: it becomes large if a small one could not take `elements` more elements, of `bytes`
    /// bytes in all.
    #[inline]
    fn with_room(&mut self, elements: usize, bytes: usize, limits: ListLimits) -> FormMut<'_> {
        if matches!(self.form_mut(), FormMut::Small(small) if !small.has_room(elements, bytes, limits)) {
            self.enlarged();
        }
        self.unpacked_form_mut()
    }

    /// Converts the list to the large form and returns it.
    fn enlarged(&mut self) -> &mut Nodes {
        self.0.make_large(|block: Block| Nodes::of(Small::of(&block).to_node()))
    }
}

/// The elements in a range of indexes. Can be taken from both ends.
#[derive(Clone, Debug)]
pub struct Elements<'a>(Walk<'a>);

#[derive(Clone, Debug)]
enum Walk<'a> {
    Small(Run<'a>),
    Large(nodes::Elements<'a>),
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match &mut self.0 {
            Walk::Small(run) => run.next(),
            Walk::Large(elements) => elements.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Walk::Small(run) => run.size_hint(),
            Walk::Large(elements) => elements.size_hint(),
        }
    }

    fn nth(&mut self, n: usize) -> Option<&'a [u8]> {
        match &mut self.0 {
            Walk::Small(run) => run.nth(n),
            Walk::Large(elements) => elements.nth(n),
        }
    }
}

impl DoubleEndedIterator for Elements<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Walk::Small(run) => run.next_back(),
            Walk::Large(elements) => elements.next_back(),
        }
    }
}

impl ExactSizeIterator for Elements<'_> {}

#[cfg(test)]
mod tests {
    use super::node::listpack_entry_len;
    use super::*;
    use proptest::prelude::*;

    const ENTRIES_3: ListLimits = ListLimits { max_listpack_size: 3, alone_bytes: ALONE_BYTES };

    #[derive(Clone, Debug)]
    enum Step {
        PushFront(Vec<u8>),
        PushBack(Vec<u8>),
        DropFront(usize),
        DropBack(usize),
        Insert(usize, Vec<u8>),
        Set(usize, Vec<u8>),
        RemoveEqual(Vec<u8>, usize, bool),
        Pack,
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
            2 => Just(Step::Pack),
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
        let list = match list.form() {
            Form::Small(small) => return assert!(small.bytes() <= small::SMALL_BYTES),
            Form::Large(nodes) => nodes,
        };
        let mut total = 0;
        for at in 0..list.node_count() {
            let node = list.node(at);
            let values: Vec<&[u8]> = (0..node.len).map(|within| node.entry_at(node.place(within)).0).collect();
            assert_eq!(node.encoded, values.iter().map(|value| listpack_entry_len(value)).sum::<usize>());
            assert!(node.len > 0 || list.len == 0);
            total += node.len;
        }
        assert_eq!(total, list.len);
        let (at, begin) = list.finger.place();
        assert_eq!((0..at).map(|at| list.node(at).len).sum::<usize>(), begin, "the finger");
        // A different node each time.
        let node = (list.len * 7 + list.node(0).len) % list.node_count();
        list.point_to((0..node).map(|at| list.node(at).len).sum());
    }

    proptest! {
        #[test]
        fn follows_a_vector(
            steps in proptest::collection::vec(step(), 1..150),
            limit in prop_oneof![-6i32..6, Just(-1), Just(i32::MIN), Just(i32::MAX)],
            alone_bytes in prop_oneof![2 => Just(ALONE_BYTES), 1 => 1u32..30],
            cuts in proptest::collection::vec((0usize..160, 0usize..160), 3),
        ) {
            let limits = ListLimits { max_listpack_size: limit, alone_bytes };
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
                    Step::Pack => list.pack(),
                    Step::RemoveEqual(value, count, from_back) => {
                        let expected = remove_equal(&mut model, &value, count, from_back);
                        if from_back {
                            prop_assert_eq!(list.remove_equal(&value, count, true, limits), expected);
                        } else {
                            let indexes = list.indexes_of(&value, count, false);
                            let is_removed = list.remove_at(&indexes, limits);
                            prop_assert_eq!((is_removed, indexes.len()), (expected > 0, expected));
                        }
                    }
                }
                check(&list);
            }
            prop_assert!(list.iter().eq(model.iter().map(Vec::as_slice)));
            prop_assert!(list.iter().rev().eq(model.iter().rev().map(Vec::as_slice)));
            let mut ends = list.iter();
            for (at, front) in model.iter().enumerate().take(model.len() / 2) {
                let back = model.get(model.len() - 1 - at).map(Vec::as_slice);
                prop_assert_eq!((ends.next(), ends.next_back()), (Some(&front[..]), back));
            }
            prop_assert_eq!(ends.len(), model.len() % 2);
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
    fn long_elements_may_have_nodes_of_their_own() {
        let limits = ListLimits { max_listpack_size: 3, alone_bytes: 10 };
        let mut list = List::new();
        for value in ["a", "b", "c", "d", "longer than that", "e", "f"] {
            list.push_back(value.as_bytes(), limits);
        }
        // a b c, d, longer than that, e f
        assert_eq!(list.node_count(), 4);
        list.set(1, b"longer than that", limits);
        // a, longer than that, c
        assert_eq!(list.node_count(), 6);
        list.set(1, b"b", limits);
        list.push_front(b"longer than that", limits);
        list.push_front(b"z", limits);
        assert_eq!(list.len(), 9);
        assert!(
            list.iter()
                .eq(["z", "longer than that", "a", "b", "c", "d", "longer than that", "e", "f"].map(str::as_bytes))
        );
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
