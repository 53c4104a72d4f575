//! Huge blocks come from the system itself, and go back to it at once.
//!
//! An allocator that keeps freed memory for later is right for small blocks and wrong for replies and strings of
//! hundreds of megabytes. These seldom come in the same sizes, so a freed block does not fit the next one, and the
//! process grows to several times the memory that it uses. And a block that grows here moves its pages instead of its
//! bytes, so that doubling 256 MiB never takes 768.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

use crate::base::limits::HUGE_BLOCK_BYTES;

/// Alignment of every mapping: no page is smaller.
const PAGE_BYTES: usize = 4096;

/// An allocator that leaves all but the huge blocks to another one.
pub(crate) struct Huge<A>(pub A);

const _: () = assert!(HUGE_BLOCK_BYTES.is_power_of_two(), "two sizes are compared with it at once");

/// Returns a mapping full of zeros, or null if there is no memory.
#[cold]
fn map(size: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the system's choice touches no other memory.
    let at = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
    if at == libc::MAP_FAILED { ptr::null_mut() } else { at.cast() }
}

/// Ends a mapping.
///
/// # Safety
/// It was made by [`map`] or [`remap`] with this size, and nobody uses it any more.
#[cold]
unsafe fn unmap(at: *mut u8, size: usize) {
    // SAFETY: by the promise above.
    let result = unsafe { libc::munmap(at.cast(), size) };
    debug_assert_eq!(result, 0, "the mapping is whole");
}

/// Changes the size of a mapping, which may move. Returns null if there is no memory; then it stays as it was.
///
/// # Safety
/// As for [`unmap`], if the result is not null.
#[cold]
unsafe fn remap(at: *mut u8, size: usize, new_size: usize) -> *mut u8 {
    // SAFETY: by the promise above.
    let at = unsafe { libc::mremap(at.cast(), size, new_size, libc::MREMAP_MAYMOVE) };
    if at == libc::MAP_FAILED { ptr::null_mut() } else { at.cast() }
}

// The checks on the common way are one comparison each, so that allocations stay inlined where they are made.
//
// SAFETY: a block belongs to the system or to the other allocator by its layout alone, which the caller tells each
// time; mappings are aligned to pages and full of zeros.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Huge<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { if layout.size() >= HUGE_BLOCK_BYTES { self.alloc_huge(layout) } else { self.0.alloc(layout) } }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { if layout.size() >= HUGE_BLOCK_BYTES { self.alloc_huge(layout) } else { self.0.alloc_zeroed(layout) } }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            if layout.size() >= HUGE_BLOCK_BYTES { self.dealloc_huge(at, layout) } else { self.0.dealloc(at, layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            if layout.size() | new_size >= HUGE_BLOCK_BYTES {
                self.realloc_huge(at, layout, new_size)
            } else {
                self.0.realloc(at, layout, new_size)
            }
        }
    }
}

/// The calls of the trait for blocks that are huge now or will be. A block that needs a larger alignment than that of a
/// page is left to the other allocator.
impl<A: GlobalAlloc> Huge<A> {
    /// # Safety
    /// As for [`GlobalAlloc::alloc_zeroed`].
    #[cold]
    #[inline(never)]
    unsafe fn alloc_huge(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= PAGE_BYTES {
            return map(layout.size());
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    /// # Safety
    /// As for [`GlobalAlloc::dealloc`].
    #[cold]
    #[inline(never)]
    unsafe fn dealloc_huge(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on; a mapping was made with this size.
        unsafe { if layout.align() <= PAGE_BYTES { unmap(at, layout.size()) } else { self.0.dealloc(at, layout) } }
    }

    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    #[cold]
    #[inline(never)]
    unsafe fn realloc_huge(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on; a block that crosses the bound is copied from one allocator to
        // the other, and freed only once it was copied.
        unsafe {
            if layout.align() > PAGE_BYTES {
                return self.0.realloc(at, layout, new_size);
            }
            if layout.size().min(new_size) >= HUGE_BLOCK_BYTES {
                return remap(at, layout.size(), new_size);
            }
            let to = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !to.is_null() {
                ptr::copy_nonoverlapping(at, to, layout.size().min(new_size));
                self.dealloc(at, layout);
            }
            to
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn blocks_keep_their_bytes_across_the_bound_and_are_zeroed_on_request() {
        let huge = Huge(System);
        let layout = |size: usize| Layout::from_size_align(size, 8).unwrap();
        let sizes = [100, HUGE_BLOCK_BYTES - 1, HUGE_BLOCK_BYTES, 4 * HUGE_BLOCK_BYTES + 5, HUGE_BLOCK_BYTES, 100];
        // SAFETY: each block is used within its size and freed with its layout.
        unsafe {
            let mut at = huge.alloc_zeroed(layout(sizes[0]));
            assert_eq!(*at.add(99), 0);
            *at.add(50) = 7;
            for pair in sizes.windows(2) {
                at = huge.realloc(at, layout(pair[0]), pair[1]);
                assert_eq!(*at.add(50), 7, "{pair:?}");
                *at.add(pair[1] - 1) = 9;
            }
            huge.dealloc(at, layout(100));
            let zeroed = huge.alloc_zeroed(layout(2 * HUGE_BLOCK_BYTES));
            assert_eq!((zeroed as usize % PAGE_BYTES, *zeroed.add(2 * HUGE_BLOCK_BYTES - 1)), (0, 0));
            huge.dealloc(zeroed, layout(2 * HUGE_BLOCK_BYTES));
        }
    }

    #[test]
    fn an_impossible_block_is_null_and_leaves_the_old_one() {
        let huge = Huge(System);
        let layout = |size: usize| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: each block is used within its size and freed with its layout.
        unsafe {
            assert!(huge.alloc(layout(1 << 60)).is_null());
            let at = huge.alloc(layout(HUGE_BLOCK_BYTES));
            *at = 5;
            assert!(huge.realloc(at, layout(HUGE_BLOCK_BYTES), 1 << 60).is_null());
            assert_eq!(*at, 5);
            huge.dealloc(at, layout(HUGE_BLOCK_BYTES));
        }
    }
}
