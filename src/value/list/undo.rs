//! Undoing changes of a list.
//!
//! Undoing a change restores not only the elements but also the nodes. The later layout of the list depends on the
//! nodes, and an undone change must leave no trace.

use std::collections::VecDeque;

use super::entries::Run;
use super::node::Node;
use super::nodes::{Nodes, Shape};
use super::pre_image::{Around, Change, ListPreImage, Place};
use super::small::Small;
use super::{Form, List};
use crate::value::one_word::OneWord;
use crate::value::small_bytes::SmallBytes;

/// Called before a change.
impl List {
    fn piece(&self, change: Change) -> ListPreImage {
        ListPreImage { was_small: self.address().is_none(), was_compact: self.is_compact(), change }
    }

    /// Before the list may change to the large form or back.
    pub fn before_form(&self) -> ListPreImage {
        self.piece(Change::Form)
    }

    /// Before an element is added at an end.
    pub fn before_push(&self, front: bool) -> ListPreImage {
        self.piece(Change::Pushed { front })
    }

    /// Before up to `count` elements are removed at an end.
    pub fn before_drop(&self, front: bool, count: usize) -> ListPreImage {
        let count = count.min(self.len());
        let range = if front { 0..count } else { self.len() - count..self.len() };
        let elements = self.range(range).map(SmallBytes::new).collect();
        // The last node stays, even if it is then empty.
        let (others, mut left) = (self.node_count() - 1, count);
        let goes = |len: &usize| {
            let goes = *len <= left;
            left -= if goes { *len } else { 0 };
            goes
        };
        let len = |step| self.node_elements(if front { step } else { others - step }).len();
        let nodes = (0..others).map(len).take_while(goes).collect();
        self.piece(Change::Popped { front, elements, nodes })
    }

    /// Before the element at `index` is replaced. `None` if there is no such element.
    pub fn before_set(&self, index: usize) -> Option<ListPreImage> {
        let element = SmallBytes::new(self.at(index)?);
        Some(self.piece(Change::Replaced { index, element, around: Box::new(self.around(index)) }))
    }

    /// Before an element is added in front of the one at `index`.
    pub fn before_insert(&self, index: usize) -> ListPreImage {
        self.piece(Change::Inserted { index, around: Box::new(self.around(index)) })
    }

    /// Before up to `count` elements equal to `value` are removed, counted from the front or back.
    pub fn before_remove_equal(&self, value: &[u8], count: usize, from_back: bool) -> ListPreImage {
        let in_node = |at: usize| {
            let equal = self.node_elements(at).enumerate().filter(|(_, element)| *element == value);
            equal.map(move |(within, _)| (at as u32, within as u32))
        };
        let mut places: Vec<Place> = (0..self.node_count()).flat_map(in_node).collect();
        let others = places.len().saturating_sub(count);
        if from_back {
            places.drain(..others);
        } else {
            places.truncate(count);
        }
        let of_nodes = places.chunk_by(|one, next| one.0 == next.0);
        let emptied = of_nodes.filter(|places| places.len() == self.node_elements(places[0].0 as usize).len());
        let emptied = emptied.map(|places| places[0].0).collect();
        self.piece(Change::Removed { element: SmallBytes::new(value), places: places.into(), emptied })
    }

    /// Before the element at one end moves to an end.
    pub fn before_rotate(&self, from_front: bool, to_front: bool) -> ListPreImage {
        if from_front == to_front || self.is_empty() {
            return self.before_form();
        }
        let last = self.node_count() - 1;
        let was_alone = last > 0 && self.node_elements(if from_front { 0 } else { last }).len() == 1;
        self.piece(Change::Rotated { from_front, was_alone })
    }

    fn around(&self, index: usize) -> Around {
        let count = self.node_count();
        let at = match self.form() {
            Form::Large(nodes) if index < self.len() => nodes.locate(index).0,
            _ => count - 1,
        };
        let first = at.saturating_sub(1);
        let lens: Box<[usize]> = (first..count.min(at + 2)).map(|at| self.node_elements(at).len()).collect();
        Around { first, others: count - lens.len(), lens }
    }

    /// The number of nodes; a small list counts as one.
    pub(super) fn node_count(&self) -> usize {
        self.0.as_large().map_or(1, Nodes::node_count)
    }

    fn node_elements(&self, at: usize) -> Run<'_> {
        match self.form() {
            Form::Small(small) => small.range(0..small.len()),
            Form::Large(nodes) => nodes.node(at).elements(),
        }
    }
}

/// Called after a change.
impl List {
    /// Restores the list to its former state, regardless of the limits.
    pub fn put_back(&mut self, piece: ListPreImage) {
        let was_small = piece.was_small;
        let nodes = self.enlarged();
        nodes.put_back(piece);
        if was_small
            && let Shape::One(node) = &nodes.shape
            && let Some(small) = Small::of_node(node)
        {
            self.0 = OneWord::small(small.into_block());
        }
    }
}

impl Nodes {
    fn put_back(&mut self, piece: ListPreImage) {
        if !piece.was_compact {
            self.take_form(false);
        }
        self.finger.lose();
        match piece.change {
            Change::Form => {}
            Change::Pushed { front } => self.take_off(front),
            Change::Popped { front, elements, nodes } => self.put_at_end(front, &elements, &nodes),
            Change::Replaced { index, element, around } => {
                let (at, within) = self.locate(index);
                self.node_mut(at).replace(within, &element);
                self.recut(&around);
            }
            Change::Inserted { index, around } => {
                let (at, within) = self.locate(index);
                self.node_mut(at).remove(within);
                self.len -= 1;
                self.recut(&around);
            }
            Change::Removed { element, places, emptied } => {
                self.put_emptied(&emptied);
                for places in places.chunk_by(|one, next| one.0 == next.0) {
                    let withins = places.iter().map(|&(_, within)| within as usize);
                    self.node_mut(places[0].0 as usize).put_equal(withins, &element);
                }
                self.len += places.len();
            }
            Change::Rotated { from_front, was_alone } => {
                let moved = if from_front { self.range(self.len - 1..self.len) } else { self.range(0..1) };
                let moved = moved.map(SmallBytes::new).next();
                self.take_off(!from_front);
                let alone: &[usize] = if was_alone { &[1] } else { &[] };
                self.put_at_end(from_front, moved.as_slice(), alone);
            }
        }
        self.take_form(piece.was_compact);
    }

    /// Puts elements back at an end. The outer ones form nodes of the given lengths, listed from the end inwards.
    fn put_at_end(&mut self, front: bool, elements: &[SmallBytes], nodes: &[usize]) {
        self.len += elements.len();
        let in_nodes = nodes.iter().sum::<usize>();
        let node_of = |elements: &[SmallBytes]| {
            let mut node = Node::default();
            elements.iter().for_each(|element| node.push_back(element));
            node.close();
            node
        };
        if front {
            let (mut outer, inner) = elements.split_at(in_nodes);
            inner.iter().rev().for_each(|element| self.node_mut(0).push_front(element));
            for &len in nodes.iter().rev() {
                let (others, node) = outer.split_at(outer.len() - len);
                self.many().push_front(node_of(node));
                outer = others;
            }
        } else {
            let (inner, mut outer) = elements.split_at(elements.len() - in_nodes);
            let last = self.node_count() - 1;
            inner.iter().for_each(|element| self.node_mut(last).push_back(element));
            for &len in nodes.iter().rev() {
                let (node, others) = outer.split_at(len);
                self.many().push_back(node_of(node));
                outer = others;
            }
        }
    }

    /// Restores nodes that had lost all their elements. They are still empty.
    fn put_emptied(&mut self, emptied: &[u32]) {
        let is_empty = self.len == 0;
        if let Shape::Many(nodes) = &mut self.shape
            && !emptied.is_empty()
        {
            if is_empty {
                nodes.clear();
            }
            let count = nodes.len() + emptied.len();
            let (mut kept, mut emptied) = (std::mem::take(nodes).into_iter(), emptied.iter().peekable());
            let node = |at: usize| match emptied.next_if(|&&next| next as usize == at) {
                Some(_) => Node::default(),
                None => kept.next().unwrap_or_default(),
            };
            *nodes = (0..count).map(node).collect();
        }
    }

    /// Splits the nodes as they were before. Their elements are already complete.
    fn recut(&mut self, was: &Around) {
        let Shape::Many(nodes) = &mut self.shape else { return };
        let (mut first, mut end) = (was.first, was.first + nodes.len() - was.others);
        let mut lens = &was.lens[..];
        // Usually they already match.
        while let [len, others @ ..] = lens
            && first < end
            && nodes[first].len == *len
        {
            (first, lens) = (first + 1, others);
        }
        while let [others @ .., len] = lens
            && first < end
            && nodes[end - 1].len == *len
        {
            (end, lens) = (end - 1, others);
        }
        let mut all = Node::default();
        nodes.drain(first..end).for_each(|node| all.append(&node));
        for len in lens.iter().rev() {
            let node = all.split_off(all.len - len);
            nodes.insert(first, node);
        }
    }

    /// The nodes of the large form, which the list takes if necessary.
    fn many(&mut self) -> &mut VecDeque<Node> {
        self.take_form(false);
        match &mut self.shape {
            Shape::Many(nodes) => nodes,
            Shape::One(_) => unreachable!("it has the large form"),
        }
    }
}

impl Node {
    /// Inserts an equal element at each of these ascending indexes.
    fn put_equal(&mut self, withins: impl Iterator<Item = usize>, element: &[u8]) {
        let old = std::mem::take(self);
        let mut others = old.elements();
        for within in withins {
            others.by_ref().take(within - self.len).for_each(|other| self.push_back(other));
            self.push_back(element);
        }
        others.for_each(|other| self.push_back(other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::list::ListLimits;
    use proptest::prelude::*;

    fn elements_of_nodes(list: &List) -> (bool, Vec<Vec<Vec<u8>>>) {
        (list.is_compact(), list.nodes().map(|node| node.map(<[u8]>::to_vec).collect()).collect())
    }

    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0u8..3).prop_map(|digit| vec![digit]),
            2 => (0usize..100, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
            1 => (0usize..5000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        ]
    }

    proptest! {
        #[test]
        fn undo_restores_the_nodes_of_lists(
            steps in proptest::collection::vec((0u8..12, any::<(bool, bool, usize)>(), element()), 1..120),
            limits in proptest::collection::vec(prop_oneof![1i32..6, Just(-2), Just(-1)], 1..4),
        ) {
            let mut list = List::new();
            let mut changes = Vec::new();
            for (number, (choice, (front, back, at), value)) in steps.into_iter().enumerate() {
                let max_listpack_size = limits[number * limits.len() / 120];
                let limits = ListLimits { max_listpack_size, ..ListLimits::default() };
                let (before, index) = (elements_of_nodes(&list), at % (list.len() + 1));
                let piece = match choice {
                    0 => list.before_drop(front, index / 2),
                    1 if index < list.len() => list.before_set(index).expect("it is there"),
                    2 | 3 => list.before_insert(index),
                    4 => list.before_remove_equal(&value, 1 + at % 9, front),
                    5 => list.before_rotate(front, back),
                    6 => list.before_form(),
                    _ => list.before_push(front),
                };
                match choice {
                    0 if front => _ = list.drop_front(index / 2, limits),
                    0 => _ = list.drop_back(index / 2, limits),
                    1 if index < list.len() => _ = list.set(index, &value, limits),
                    2 | 3 => _ = list.insert(index, &value, limits),
                    4 if back => _ = list.remove_equal(&value, 1 + at % 9, front, limits),
                    // Equal to what replaying the change does.
                    4 => _ = list.remove_at(&list.indexes_of(&value, 1 + at % 9, front), limits),
                    5 => list.rotate(front, back, limits),
                    6 => list.grow_for(at % 4, value.len(), limits),
                    _ if front => list.push_front(&value, limits),
                    _ => list.push_back(&value, limits),
                }
                changes.push((piece, before));
            }
            for (piece, before) in changes.into_iter().rev() {
                list.put_back(piece);
                prop_assert_eq!(list.len(), before.1.iter().map(Vec::len).sum::<usize>());
                prop_assert_eq!(elements_of_nodes(&list), before);
            }
        }
    }

    #[test]
    fn pre_images_of_large_lists_are_small() {
        let mut list = List::new();
        (0..10_000u32).for_each(|number| list.push_back(&number.to_be_bytes(), ListLimits::default()));
        let pieces = [list.before_set(5_000).expect("it is there"), list.before_insert(5_000), list.before_push(true)];
        for piece in pieces.into_iter().chain([list.before_drop(true, 3), list.before_remove_equal(b"x", 9, true)]) {
            assert!(piece.heap_bytes() < 200, "{} bytes", piece.heap_bytes());
        }
    }
}
