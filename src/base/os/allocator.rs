//! The allocator of the whole process, and the moments at which it returns memory to the system.
//!
//! mimalloc keeps freed pages and by default returns them a second later, all at once, when the thread frees something
//! again. A server with little to do would keep them for good, and returning 100 MiB takes some ten milliseconds. So
//! mimalloc is set to wait for a call ([`purge_on_demand_only`]), which is made on a thread of its own ([`Freed`]). If
//! much was freed, the call comes at once, or as soon as the freeing stops; if little, a second later; and if next to
//! nothing, not at all. Blocks of 64 MiB and more bypass mimalloc ([`Huge`](super::huge_blocks)).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::allocated::{Counting, allocated_bytes};
#[cfg(all(not(any(miri, sanitizer)), target_os = "linux"))]
use super::huge_blocks::Huge;
use super::priority::{give_way, run_when_idle};
use crate::base::limits::{
    GIVE_BACK_BYTES, GIVE_BACK_LEAST_BYTES, GIVE_BACK_LEAST_SHARE, GIVE_BACK_PATIENCE_MS, GIVE_BACK_PAUSE_MS,
    GIVE_BACK_SHARE,
};

/// The server allocates many small values of the same few sizes.
#[cfg(all(not(any(miri, sanitizer)), target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: Counting<Huge<mimalloc::Mimalloc>> = Counting(Huge(mimalloc::Mimalloc));

/// Mappings that grow without a copy are known to Linux alone.
#[cfg(not(any(miri, sanitizer, target_os = "linux")))]
#[global_allocator]
static ALLOCATOR: Counting<mimalloc::Mimalloc> = Counting(mimalloc::Mimalloc);

/// Miri can't run mimalloc's C code, and AddressSanitizer must see each block come and go: both need the system's
/// allocator.
#[cfg(any(miri, sanitizer))]
#[global_allocator]
static ALLOCATOR: Counting<std::alloc::System> = Counting(std::alloc::System);

#[cfg(not(any(miri, sanitizer)))]
mod mimalloc {
    use std::alloc::{GlobalAlloc, Layout};
    use std::ffi::{CStr, c_char, c_long, c_void};

    use libmimalloc_sys as mi;

    /// mimalloc's binding to Rust. The crate of that name always asks for an alignment, which takes twice the
    /// instructions, although nearly every block already has the alignment that it needs because of its size.
    pub(super) struct Mimalloc;

    /// Alignment of every block of at least this size (`MI_MAX_ALIGN_SIZE`).
    const NATURAL_ALIGN: usize = 16;

    /// Whether a block of this size has this alignment anyway.
    #[inline]
    const fn is_natural(size: usize, align: usize) -> bool {
        align <= NATURAL_ALIGN && align <= size
    }

    // SAFETY: mimalloc keeps the promises of an allocator on any thread, and returns null if it has no memory.
    unsafe impl GlobalAlloc for Mimalloc {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let (size, align) = (layout.size(), layout.align());
            // SAFETY: any size and any power of two are valid arguments.
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
            // SAFETY: the block was allocated here.
            unsafe { mi::mi_free(at.cast()) }
        }

        #[inline]
        unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            let (at, align) = (at.cast(), layout.align());
            // SAFETY: the block was allocated here.
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

    /// Number of mimalloc's option for the delay in ms after which it returns free pages by itself.
    const PURGE_DELAY: mi::mi_option_t = 15;

    /// A delay of weeks: longer than any page worth returning stays free. With a negative number, free pages would be
    /// forgotten for good.
    const LONG_MS: c_long = i32::MAX as c_long;

    /// Makes mimalloc return free pages only when it is told to collect them.
    pub(super) fn delay_purges() {
        // SAFETY: an option may be set at any time.
        unsafe { mi::mi_option_set(PURGE_DELAY, LONG_MS) };
    }

    /// Returns the report that mimalloc prints about itself.
    pub(super) fn report() -> String {
        unsafe extern "C" fn append(line: *const c_char, text: *mut c_void) {
            // SAFETY: mimalloc passes on a text that ends with 0, and the `Vec` that it was given below.
            let (line, text) = unsafe { (CStr::from_ptr(line), &mut *text.cast::<Vec<u8>>()) };
            text.extend_from_slice(line.to_bytes());
        }
        let mut text: Vec<u8> = Vec::new();
        // SAFETY: `append` is called only before this returns, with the text that it expects.
        unsafe { mi::mi_stats_print_out(Some(append), (&raw mut text).cast()) };
        String::from_utf8_lossy(&text).into_owned()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// The bindings lack the number of this option.
        #[test]
        fn the_delay_of_purges_is_known_by_its_default() {
            // SAFETY: the call only reads.
            assert_eq!(unsafe { mi::mi_option_get(PURGE_DELAY) }, 1_000);
        }

        /// Checks the assumption about mimalloc's alignments, and a block that needs another one.
        #[test]
        fn blocks_are_aligned_as_asked() {
            let mut blocks = Vec::new();
            for align in (0..=12).map(|power| 1usize << power) {
                for size in (1..=300).chain([1 << 12, (1 << 16) + 8, (1 << 20) + 24, 5 << 20]) {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    // SAFETY: the layout is not empty; blocks are freed below, with the size that they have then.
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
            // SAFETY: each block was allocated above with this layout.
            blocks.into_iter().for_each(|(at, layout)| unsafe { Mimalloc.dealloc(at, layout) });
        }
    }
}

/// Returns the allocator's report about itself, for people: pages, arenas, and the number of calls to the system.
pub(crate) fn report() -> String {
    #[cfg(any(miri, sanitizer))]
    return String::new();
    #[cfg(not(any(miri, sanitizer)))]
    mimalloc::report()
}

/// Leaves the return of free pages to [`Freed`] alone. Called once, when a server starts.
pub(crate) fn purge_on_demand_only() {
    #[cfg(not(any(miri, sanitizer)))]
    mimalloc::delay_purges();
}

/// Watches how much is freed, and returns memory to the system.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    /// Largest number of bytes allocated since memory was last returned.
    high_bytes: u64,
    /// When memory was last returned, by the steady clock, and how many bytes were allocated then.
    returned_ms: i64,
    left_bytes: u64,
    /// Number of bytes allocated at the last [`give_back`](Self::give_back).
    seen_bytes: u64,
    /// Since when each call of [`give_back`](Self::give_back) has found far fewer bytes than the one before.
    falls_since_ms: Option<i64>,
    /// Whether a thread is returning memory.
    is_busy: Arc<AtomicBool>,
    /// Whether memory must be returned again: the thread may already have passed pages that were freed since.
    is_wanted: bool,
}

impl Freed {
    /// Returns memory to the system if that is worthwhile. The engine's thread calls this now and then.
    pub(crate) fn give_back(&mut self, steady_ms: i64) {
        let allocated = allocated_bytes();
        if self.waits(allocated, steady_ms) {
            self.note_allocated();
        } else if self.is_due(allocated, steady_ms) {
            self.purge();
        }
    }

    /// Whether much was freed since the last call, so that more may follow. Waiting for more pays off, but not for
    /// ever.
    fn waits(&mut self, allocated: u64, steady_ms: i64) -> bool {
        let fell = self.seen_bytes.saturating_sub(allocated);
        self.seen_bytes = allocated;
        if fell < GIVE_BACK_LEAST_BYTES {
            self.falls_since_ms = None;
            return false;
        }
        let since_ms = *self.falls_since_ms.get_or_insert(steady_ms);
        steady_ms - since_ms < GIVE_BACK_PATIENCE_MS
    }

    /// Makes the next [`give_back`](Self::give_back) return all unallocated memory, however little was freed.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    fn purge(&mut self) {
        let is_asked = self.is_wanted;
        self.is_wanted = self.is_busy.swap(true, Ordering::Relaxed);
        if self.is_wanted {
            return;
        }
        retire_pages();
        let is_busy = Arc::clone(&self.is_busy);
        let purge = move || {
            // With one processor, a busy engine must not be held up by work that nobody waits for.
            if is_asked {
                give_way()
            } else {
                run_when_idle()
            }
            return_pages();
            is_busy.store(false, Ordering::Relaxed);
        };
        // If the system can't start a thread, the engine's own must do the work.
        if thread::Builder::new().name("purge".to_owned()).spawn(purge).is_err() {
            return_pages();
            self.is_busy.store(false, Ordering::Relaxed);
        }
    }

    /// Notes how much is allocated now. For callers that may free much of it before the next `give_back`.
    pub(crate) fn note_allocated(&mut self) {
        self.high_bytes = self.high_bytes.max(allocated_bytes());
    }

    fn is_due(&mut self, allocated: u64, steady_ms: i64) -> bool {
        self.high_bytes = self.high_bytes.max(allocated);
        let freed = self.high_bytes - allocated;
        // Growth frees pages, too: those of tables that became too small.
        let grown = self.high_bytes - self.left_bytes;
        let is_much = freed >= GIVE_BACK_BYTES.max(allocated / GIVE_BACK_SHARE);
        let least = GIVE_BACK_LEAST_BYTES.max(allocated / GIVE_BACK_LEAST_SHARE);
        let is_some = freed.max(grown) >= least && steady_ms - self.returned_ms >= GIVE_BACK_PAUSE_MS;
        let is_due = is_much || is_some || self.is_wanted;
        if is_due {
            (self.high_bytes, self.left_bytes, self.returned_ms) = (allocated, allocated, steady_ms);
        }
        is_due
    }
}

/// Releases the empty pages of this thread.
fn retire_pages() {
    #[cfg(not(any(miri, sanitizer)))]
    // SAFETY: this only tidies up what belongs to this thread.
    unsafe {
        libmimalloc_sys::mi_collect(false);
    }
}

/// Returns to the system the pages that all threads have released.
fn return_pages() {
    #[cfg(not(any(miri, sanitizer)))]
    // SAFETY: this only tidies up what belongs to this thread or to none.
    unsafe {
        // A thread that has allocated nothing could not collect.
        libmimalloc_sys::mi_thread_init();
        libmimalloc_sys::mi_collect(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_is_delayed_by_further_frees_but_not_forever() {
        let mut freed = Freed::default();
        let (much, patience) = (GIVE_BACK_LEAST_BYTES, GIVE_BACK_PATIENCE_MS);
        let looks = [
            (100 * much, 0, false),
            (99 * much, 1, true),
            (98 * much, patience, true),
            (97 * much, patience + 1, false),
            (97 * much, patience + 2, false),
            (96 * much, patience + 3, true),
            (95 * much + 1, patience + 4, false),
        ];
        for (allocated, steady_ms, expected) in looks {
            assert_eq!(freed.waits(allocated, steady_ms), expected, "{allocated} at {steady_ms}");
        }
    }

    #[test]
    fn large_amounts_are_returned_at_once_and_small_ones_a_second_later() {
        let mut freed = Freed::default();
        let much = GIVE_BACK_BYTES;
        let looks = [
            (100 * much, 0, false),
            (99 * much, 0, false),
            // This frees an eighth of the rest.
            (80 * much, 1, true),
            (79 * much, GIVE_BACK_PAUSE_MS, false),
            (79 * much, GIVE_BACK_PAUSE_MS + 1, true),
            (3 * much, GIVE_BACK_PAUSE_MS + 2, true),
            (2 * much + 1, GIVE_BACK_PAUSE_MS + 3, false),
            (2 * much, GIVE_BACK_PAUSE_MS + 4, true),
            (2 * much - GIVE_BACK_LEAST_BYTES + 1, 9 * GIVE_BACK_PAUSE_MS, false),
            (2 * much - GIVE_BACK_LEAST_BYTES, 9 * GIVE_BACK_PAUSE_MS, true),
            // Growth leaves pages behind.
            (2 * much - 1, 20 * GIVE_BACK_PAUSE_MS, false),
            (2 * much, 20 * GIVE_BACK_PAUSE_MS, true),
            (3 * much, 21 * GIVE_BACK_PAUSE_MS - 1, false),
        ];
        for (allocated, steady_ms, expected) in looks {
            assert_eq!(freed.is_due(allocated, steady_ms), expected, "{allocated} at {steady_ms}");
        }
    }
}
