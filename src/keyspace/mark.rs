//! Marks the collection that is being copied in parts. Effects must name the elements they change of a marked list or
//! sorted set.
//!
//! The collection is identified by its address, which only a large collection has. The address stays the same when the
//! key is renamed or moved, and when a failed script is rolled back. If the collection is freed and another one gets
//! its address, effects on that one say more than they must, but never less.

use std::cell::Cell;
use std::rc::Rc;

/// Shared by a keyspace and the snapshot of it. See the module header.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    address: Rc<Cell<Option<usize>>>,
}

impl Mark {
    /// Whether the collection with this address is marked.
    #[inline]
    pub(super) fn is_on(&self, address: Option<usize>) -> bool {
        address.is_some() && self.address.get() == address
    }

    /// Marks the collection with this address.
    pub(super) fn put_on(&self, address: Option<usize>) {
        self.address.set(address);
    }

    /// Removes the mark.
    pub(super) fn take_off(&self) {
        self.address.set(None);
    }
}
