//! Where in a list an element lies.
//!
//! An index is found by walking over the counts of the nodes, from whatever is nearest: an end, or the **finger**, a node of which is
//! known with which element it begins. Reading nodes puts the finger where that began, and changes elsewhere move it along. So
//! whoever reads a list of millions of nodes piece by piece, while it goes on changing, does not walk over half of them each time.

use std::cell::Cell;

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
    pub(super) fn set(&self, node: usize, element: usize) {
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

    /// The node, and the element with which it begins.
    pub(super) fn place(&self) -> (usize, usize) {
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

    /// A node was changed, and elements may have moved to its neighbours, and nodes been added or removed there.
    pub(super) fn follow_change(&self, before: &Before, nodes: usize, elements: usize) {
        let (node, element) = self.place();
        if node > before.node + 1 {
            self.set(node + nodes - before.nodes, element + elements - before.elements);
        } else if node >= before.node {
            self.set(before.previous.0, before.previous.1);
        }
    }
}

/// What a list was before a change of a node.
pub(super) struct Before {
    pub(super) node: usize,
    /// The node before it, and with which element that begins.
    pub(super) previous: (usize, usize),
    pub(super) nodes: usize,
    pub(super) elements: usize,
}
