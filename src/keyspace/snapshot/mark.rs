//! Which list or sorted set is being copied in parts, so that effects must say which of its elements they change.
//!
//! It is known by its address, which stays the same while its key is renamed or moved, and when a script that fails gives it back.
//! If it is freed and another one gets its address, effects on that one say more than they must, and no less.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use crate::keyspace::entry::Value;

/// Shared by a keyspace and the snapshot that is made of it. See the module's header.
#[derive(Clone, Debug, Default)]
pub(in crate::keyspace) struct Mark {
    /// 0 for none.
    address: Rc<Cell<usize>>,
}

impl Mark {
    /// Whether it is this one.
    #[inline]
    pub(in crate::keyspace) fn is_on<T>(&self, collection: &T) -> bool {
        self.address.get() == ptr::from_ref(collection).addr()
    }

    /// It is this value from here on, if effects can say less of it.
    pub(super) fn put_on(&self, value: &Value) {
        self.address.set(match value {
            Value::List(list) => ptr::from_ref(&**list).addr(),
            Value::ZSet(zset) => ptr::from_ref(&**zset).addr(),
            _ => 0,
        });
    }

    /// It is none from here on.
    pub(super) fn take_off(&self) {
        self.address.set(0);
    }
}
