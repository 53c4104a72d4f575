//! Which list or sorted set is being copied in parts, so that effects must say which of its elements they change.
//!
//! It is known by its address (only a large one has one), which stays the same while its key is renamed or moved, and when a script that fails gives it back.
//! If it is freed and another one gets its address, effects on that one say more than they must, and no less.

use std::cell::Cell;
use std::rc::Rc;

/// Shared by a keyspace and the snapshot that is made of it. See the module's header.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    address: Rc<Cell<Option<usize>>>,
}

impl Mark {
    /// Whether it is the collection with this address.
    #[inline]
    pub(super) fn is_on(&self, address: Option<usize>) -> bool {
        address.is_some() && self.address.get() == address
    }

    /// It is the collection with this address from here on.
    pub(super) fn put_on(&self, address: Option<usize>) {
        self.address.set(address);
    }

    /// It is none from here on.
    pub(super) fn take_off(&self) {
        self.address.set(None);
    }
}
