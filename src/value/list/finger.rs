//! A remembered position in a list.
//!
//! An index is found by walking over the counts of the nodes, starting at the nearest known place: an end, or the
//! **finger**, a node whose first element's index is known. Reading nodes puts the finger where the read began, and
//! changes elsewhere move it along. Reading a list of millions of nodes piece by piece, while the list keeps changing,
//! therefore does not walk over half of them each time.

use std::cell::Cell;

/// A node and the index of its first element. Both are 0 in a list of one node, and after the position was lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Finger(Cell<Place>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    node: u32,
    element: u32,
}

impl Finger {
    /// Points to a node. Loses the position if the numbers are too large to store.
    pub(super) fn set(&self, node: usize, element: usize) {
        if let (Ok(node), Ok(element)) = (node.try_into(), element.try_into()) {
            self.0.set(Place { node, element });
        } else {
            self.lose();
        }
    }

    /// Forgets the position, after a change that may have been anywhere.
    pub(super) fn lose(&self) {
        self.0.set(Place::default());
    }

    /// The node and the index of its first element.
    pub(super) fn place(&self) -> (usize, usize) {
        let Place { node, element } = self.0.get();
        (node as usize, element as usize)
    }

    /// Nodes with elements were added at the front, or elements to the first node.
    pub(super) fn follow_push_front(&self, nodes: usize, elements: usize) {
        let (node, element) = self.place();
        if nodes > 0 || node > 0 {
            self.set(node + nodes, element + elements);
        }
    }

    /// Nodes were removed at the front: `elements` counts their elements, and those removed from the node that is now
    /// the first.
    pub(super) fn follow_pop_front(&self, nodes: usize, elements: usize) {
        match self.place() {
            (node, element) if node > nodes => self.set(node - nodes, element - elements),
            _ => self.lose(),
        }
    }

    /// Nodes were removed at the back, and `left` nodes remain.
    pub(super) fn follow_pop_back(&self, left: usize) {
        if self.place().0 >= left {
            self.lose();
        }
    }

    /// A node was changed; elements may have moved to its neighbours, and nodes may have been added or removed there.
    pub(super) fn follow_change(&self, before: &Before, nodes: usize, elements: usize) {
        let (node, element) = self.place();
        if node > before.node + 1 {
            self.set(node + nodes - before.nodes, element + elements - before.elements);
        } else if node >= before.node {
            self.set(before.previous.0, before.previous.1);
        }
    }
}

/// The state of a list before a change of a node.
pub(super) struct Before {
    pub(super) node: usize,
    /// The node before it, and the index of that node's first element.
    pub(super) previous: (usize, usize),
    pub(super) nodes: usize,
    pub(super) elements: usize,
}
