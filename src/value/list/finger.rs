//! Where in a list an element lies.
//!
//! An index is found by walking over the counts of the nodes, from whatever is nearest: an end, or the **finger**, a node of which is
//! known with which element it begins. [`List::nodes_from`] puts the finger where it began, and changes elsewhere move it along. So
//! whoever reads a list of millions of nodes piece by piece, while it goes on changing, does not walk over half of them each time.

use std::cell::Cell;

use super::{List, Shape};

/// A node and the element with which it begins. Both are 0 in a list of one node, and where it was lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Finger(Cell<Place>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    node: u32,
    element: u32,
}

impl Finger {
    /// Points to a node. Not if that is too far away to be noted.
    fn set(&self, node: usize, element: usize) {
        if let (Ok(node), Ok(element)) = (node.try_into(), element.try_into()) {
            self.0.set(Place { node, element });
        } else {
            self.lose();
        }
    }

    /// Forgets the place, after a change that may have been anywhere.
    pub(super) fn lose(&self) {
        self.0.set(Place::default());
    }

    fn place(&self) -> (usize, usize) {
        let Place { node, element } = self.0.get();
        (node as usize, element as usize)
    }

    /// Nodes with elements came to the front, or elements to the first node.
    pub(super) fn follow_push_front(&self, nodes: usize, elements: usize) {
        let (node, element) = self.place();
        if nodes > 0 || node > 0 {
            self.set(node + nodes, element + elements);
        }
    }

    /// Nodes went at the front, and elements with them and of the node that is the first now.
    pub(super) fn follow_pop_front(&self, nodes: usize, elements: usize) {
        match self.place() {
            (node, element) if node > nodes => self.set(node - nodes, element - elements),
            _ => self.lose(),
        }
    }

    /// Nodes went at the back, and so many are left.
    pub(super) fn follow_pop_back(&self, left: usize) {
        if self.place().0 >= left {
            self.lose();
        }
    }
}

/// What a list was before a change of a node, which may move elements to its neighbours, and add or remove nodes there.
pub(super) struct Before {
    node: usize,
    /// The node before it, and with which element that begins.
    previous: (usize, usize),
    nodes: usize,
    elements: usize,
}

impl List {
    /// An element of this node is about to be added, replaced or removed; the node begins with the element `begin`.
    pub(super) fn before_change(&self, node: usize, begin: usize) -> Before {
        let previous = node.checked_sub(1).map_or((0, 0), |previous| (previous, begin - self.node(previous).len));
        Before { node, previous, nodes: self.node_count(), elements: self.len }
    }

    /// That was done.
    pub(super) fn after_change(&self, before: &Before) {
        let (node, element) = self.finger.place();
        if node > before.node + 1 {
            let (nodes, elements) = (node + self.node_count(), element + self.len);
            self.finger.set(nodes - before.nodes, elements - before.elements);
        } else if node >= before.node {
            self.finger.set(before.previous.0, before.previous.1);
        }
    }

    /// The node that holds `index`, which must be below the length, and where in it.
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

    /// As [`locate`](Self::locate), where a node should begin; the finger is there then.
    pub(super) fn point_to(&self, index: usize) -> (usize, usize) {
        let (at, within) = self.locate(index);
        self.finger.set(at, index - within);
        (at, within)
    }
}

/// Whether the finger tells the truth, for tests.
#[cfg(test)]
pub(super) fn is_right(list: &List) -> bool {
    let (node, element) = list.finger.place();
    let begin =
        |nodes: &std::collections::VecDeque<super::Node>| nodes.iter().take(node).map(|node| node.len).sum::<usize>();
    match &list.shape {
        Shape::One(_) => (node, element) == (0, 0),
        Shape::Many(nodes) => node < nodes.len() && begin(nodes) == element,
    }
}
