//! The allocator of the whole process, and when it gives memory back to the system.
//!
//! mimalloc keeps pages that were freed, and returns them when it next has something to do with their region. A server that
//! has freed much and then has little to do would keep them for good. So it is told to, once much was freed.

use super::allocated::{Counting, allocated_bytes};
use super::limits::{GIVE_BACK_BYTES, GIVE_BACK_SHARE};

/// The server allocates many small values of the same few sizes.
#[cfg(not(any(miri, sanitizer)))]
#[global_allocator]
static ALLOCATOR: Counting<mimalloc::MiMalloc> = Counting(mimalloc::MiMalloc);

/// Miri cannot run mimalloc's C code, and AddressSanitizer must see each block come and go: both need the system's allocator.
#[cfg(any(miri, sanitizer))]
#[global_allocator]
static ALLOCATOR: Counting<std::alloc::System> = Counting(std::alloc::System);

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
