//! The state, before a change, of the part of a list that the change touches. [`undo`](super::undo) takes and restores
//! it.

use crate::value::small_bytes::SmallBytes;

/// The part of a list that a change is about to touch. It must be put [back](super::List::put_back) only after all
/// later changes have been undone.
pub struct ListPreImage {
    pub(super) was_small: bool,
    pub(super) was_compact: bool,
    pub(super) change: Change,
}

pub(super) enum Change {
    /// Only the form may change.
    Form,
    /// An element is added at an end.
    Pushed { front: bool },
    /// These elements, in their order, are removed at an end. `nodes` gives the lengths of the whole nodes that go with
    /// them, in the order of their removal.
    Popped { front: bool, elements: Box<[SmallBytes]>, nodes: Box<[usize]> },
    /// The element at `index` is replaced.
    Replaced { index: usize, element: SmallBytes, around: Box<Around> },
    /// An element is added at `index`.
    Inserted { index: usize, around: Box<Around> },
    /// Equal elements are removed at these ascending places, and with them these nodes.
    Removed { element: SmallBytes, places: Box<[Place]>, emptied: Box<[u32]> },
    /// The element at one end moves to the other. `was_alone`: it was the only element of its node, but not of the
    /// list.
    Rotated { from_front: bool, was_alone: bool },
}

/// The index of a node and of an element in it.
pub(super) type Place = (u32, u32);

/// The node at which a change is made, and its neighbours, which the change may split or fill.
pub(super) struct Around {
    /// The index of the first of these nodes.
    pub(super) first: usize,
    /// The number of elements of each.
    pub(super) lens: Box<[usize]>,
    /// The number of the list's other nodes.
    pub(super) others: usize,
}

impl ListPreImage {
    /// Bytes outside the struct, approximately.
    pub fn heap_bytes(&self) -> usize {
        let text = |element: &SmallBytes| size_of::<SmallBytes>() + element.heap_bytes();
        let around = |around: &Around| size_of::<Around>() + size_of_val(&*around.lens);
        match &self.change {
            Change::Form | Change::Pushed { .. } | Change::Rotated { .. } => 0,
            Change::Popped { elements, nodes, .. } => elements.iter().map(text).sum::<usize>() + size_of_val(&**nodes),
            Change::Replaced { element, around: nodes, .. } => element.heap_bytes() + around(nodes),
            Change::Inserted { around: nodes, .. } => around(nodes),
            Change::Removed { element, places, emptied } => {
                element.heap_bytes() + size_of_val(&**places) + size_of_val(&**emptied)
            }
        }
    }
}
