//! The hash of a key or member: keyed per process, so that nobody outside can choose colliding keys.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

use ahash::RandomState;

static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of `bytes` in this process.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = STATE.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}
