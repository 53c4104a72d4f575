//! Which list or sorted set is being copied in parts, so that effects must say which of its elements they change.
//!
//! It is known by its address, which stays the same while its key is renamed or moved, and when a script that fails gives it back.
//! If it is freed and another one gets its address, effects on that one say more than they must, and no less.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

/// Shared by a keyspace and the snapshot that is made of it. See the module's header.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    /// 0 for none.
    address: Rc<Cell<usize>>,
}

impl Mark {
    /// Whether it is this one.
    #[inline]
    pub(super) fn is_on<T>(&self, collection: &T) -> bool {
        self.address.get() == ptr::from_ref(collection).addr()
    }

    /// It is this one from here on.
    pub(super) fn put_on<T>(&self, collection: &T) {
        self.address.set(ptr::from_ref(collection).addr());
    }

    /// It is none from here on.
    pub(super) fn take_off(&self) {
        self.address.set(0);
    }
}
