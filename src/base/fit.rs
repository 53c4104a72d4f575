//! Giving back what a vector has reserved.

/// Moves the bytes to an allocation of their size. `shrink_to_fit` does not: it asks the allocator to resize, which leaves
/// the block where it is as long as half of it is used. For what will not grow any more.
pub fn fit(bytes: &mut Vec<u8>) {
    if bytes.len() < bytes.capacity() {
        *bytes = bytes.as_slice().to_vec();
    }
}
