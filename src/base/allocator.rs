//! The allocator of the whole process, and when it gives memory back to the system.
//!
//! mimalloc keeps pages that were freed, and returns them when it next has something to do with their region. A server that
//! has freed much and then has little to do would keep them for good. So it is told to, once much was freed.

use super::allocated::{Counting, allocated_bytes};
use super::limits::{GIVE_BACK_BYTES, GIVE_BACK_SHARE};

/// The server allocates many small values of the same few sizes.
#[cfg(not(any(miri, sanitizer)))]
#[global_allocator]
static ALLOCATOR: Counting<mimalloc::Mimalloc> = Counting(mimalloc::Mimalloc);

/// Miri cannot run mimalloc's C code, and AddressSanitizer must see each block come and go: both need the system's allocator.
#[cfg(any(miri, sanitizer))]
#[global_allocator]
static ALLOCATOR: Counting<std::alloc::System> = Counting(std::alloc::System);

#[cfg(not(any(miri, sanitizer)))]
mod mimalloc {
    use std::alloc::{GlobalAlloc, Layout};

    use libmimalloc_sys as mi;

    /// mimalloc as Rust sees it. The crate of that name always asks for an alignment, which takes twice the instructions; and
    /// nearly every block needs no other than blocks of its size have anyway.
    pub(super) struct Mimalloc;

    /// What blocks are aligned to that are at least as large (`MI_MAX_ALIGN_SIZE`).
    const NATURAL_ALIGN: usize = 16;

    /// Whether a block of this size has this alignment anyway.
    #[inline]
    const fn is_natural(size: usize, align: usize) -> bool {
        align <= NATURAL_ALIGN && align <= size
    }

    // SAFETY: mimalloc keeps the promises of an allocator on any thread, and gives null where it has no memory.
    unsafe impl GlobalAlloc for Mimalloc {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let (size, align) = (layout.size(), layout.align());
            // SAFETY: any size and any power of two may be asked for.
            unsafe { if is_natural(size, align) { mi::mi_malloc(size) } else { mi::mi_malloc_aligned(size, align) } }
                .cast()
        }

        #[inline]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            let (size, align) = (layout.size(), layout.align());
            // SAFETY: as above.
            unsafe { if is_natural(size, align) { mi::mi_zalloc(size) } else { mi::mi_zalloc_aligned(size, align) } }
                .cast()
        }

        #[inline]
        unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
            // SAFETY: the caller had it from here.
            unsafe { mi::mi_free(at.cast()) }
        }

        #[inline]
        unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            let (at, align) = (at.cast(), layout.align());
            // SAFETY: the caller had it from here.
            unsafe {
                if is_natural(new_size, align) {
                    mi::mi_realloc(at, new_size)
                } else {
                    mi::mi_realloc_aligned(at, new_size, align)
                }
            }
            .cast()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// What mimalloc is taken at its word for, and what goes the other way.
        #[test]
        fn blocks_are_aligned_as_asked() {
            let mut blocks = Vec::new();
            for align in (0..=12).map(|power| 1usize << power) {
                for size in (1..=300).chain([1 << 12, (1 << 16) + 8, (1 << 20) + 24, 5 << 20]) {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    // SAFETY: the layout is not empty; blocks are freed below, with the size they then have.
                    unsafe {
                        let zeroed = Mimalloc.alloc_zeroed(layout);
                        assert_eq!((zeroed as usize % align, *zeroed, *zeroed.add(size - 1)), (0, 0, 0), "{layout:?}");
                        let grown = Mimalloc.realloc(Mimalloc.alloc(layout), layout, size + 9);
                        assert_eq!(grown as usize % align, 0, "{layout:?}");
                        blocks.push((zeroed, layout));
                        blocks.push((grown, Layout::from_size_align(size + 9, align).unwrap()));
                    }
                }
            }
            // SAFETY: each was allocated above with this layout.
            blocks.into_iter().for_each(|(at, layout)| unsafe { Mimalloc.dealloc(at, layout) });
        }
    }
}

/// Watches how much is freed.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    /// Most bytes that were allocated since memory was given back.
    high_bytes: u64,
}

impl Freed {
    /// Gives memory back to the system if much was freed since that was done. For the engine's thread, now and then; it takes
    /// time for each page that is in use.
    pub(crate) fn give_back(&mut self) {
        if self.is_much(allocated_bytes()) {
            #[cfg(not(any(miri, sanitizer)))]
            // SAFETY: it only tidies up what belongs to this thread and what nobody has allocated.
            unsafe {
                libmimalloc_sys::mi_collect(true);
            }
        }
    }

    /// Looks at how much is allocated now. For what may free much of it before the next `give_back`.
    pub(crate) fn look(&mut self) {
        self.high_bytes = self.high_bytes.max(allocated_bytes());
    }

    fn is_much(&mut self, allocated: u64) -> bool {
        self.high_bytes = self.high_bytes.max(allocated);
        let is_much = self.high_bytes - allocated >= GIVE_BACK_BYTES.max(allocated / GIVE_BACK_SHARE);
        if is_much {
            self.high_bytes = allocated;
        }
        is_much
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_a_share_of_what_is_left() {
        let mut freed = Freed::default();
        let looks = [
            (100 * GIVE_BACK_BYTES, false),
            (99 * GIVE_BACK_BYTES, false),
            (80 * GIVE_BACK_BYTES, true),
            (79 * GIVE_BACK_BYTES, false),
            (3 * GIVE_BACK_BYTES, true),
            (2 * GIVE_BACK_BYTES + 1, false),
            (2 * GIVE_BACK_BYTES, true),
        ];
        for (allocated, expected) in looks {
            assert_eq!(freed.is_much(allocated), expected, "{allocated}");
        }
    }
}
