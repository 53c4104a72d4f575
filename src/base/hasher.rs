//! The hash of names in tables: ahash, keyed once per process so that clients cannot choose names that collide.

use std::sync::LazyLock;

use ahash::RandomState;

static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of a key, field or member.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    STATE.hash_one(bytes)
}
