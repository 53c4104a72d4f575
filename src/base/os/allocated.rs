//! The number of bytes that are allocated now. It is exact and known at any moment, unlike the resident size that the
//! system reports, which falls long after the last byte was freed.
//!
//! A structure may keep allocated but unused blocks, to reuse them. It sets them aside ([`set_aside`]): they do not
//! count, just as the free blocks inside the allocator's pages do not.
//!
//! One thread allocates and frees nearly all memory, and counts without locking the memory bus
//! ([`count_for_this_thread`]). All other threads share a second counter.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Written by one thread only.
static BY_OWNER: AtomicIsize = AtomicIsize::new(0);
static BY_OTHERS: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static IS_OWNER: Cell<bool> = const { Cell::new(false) };
    /// Bytes that the thread has allocated and not freed since it began to work [`apart`].
    static APART: Cell<Option<isize>> = const { Cell::new(None) };
}

/// An allocator that counts the bytes allocated by another one.
pub(crate) struct Counting<A>(pub A);

/// Returns the number of bytes allocated now, without those set aside; 0 in a program whose allocator does not count.
pub(crate) fn allocated_bytes() -> u64 {
    let sum = BY_OWNER.load(Ordering::Relaxed).wrapping_add(BY_OTHERS.load(Ordering::Relaxed));
    // Another thread may see the two counters out of step for a moment.
    sum.max(0) as u64
}

/// Makes counting cheap for the calling thread, which must be the engine's. A second such thread would lose counts.
pub(crate) fn count_for_this_thread() {
    IS_OWNER.set(true);
}

/// Does `work` without counting its allocations, because they must not count against the limits of clients. `work` must
/// be the only work of its thread, and free there what it has allocated there. Only its result counts, from then on.
pub(crate) fn apart<A>(work: impl FnOnce() -> A) -> A {
    APART.set(Some(0));
    let answer = work();
    count(APART.take().unwrap_or(0));
    answer
}

/// Returns the bytes that this thread has allocated and not freed since it began to work [`apart`].
#[cfg(test)]
pub(crate) fn apart_bytes() -> isize {
    APART.get().expect("it works apart")
}

/// Takes `bytes` that are allocated but unused out of the count; a negative number puts them back. The caller puts
/// bytes back before they are used or freed.
#[inline]
pub(crate) fn set_aside(bytes: isize) {
    count(-bytes);
}

#[inline]
fn count(bytes: isize) {
    if IS_OWNER.get() {
        BY_OWNER.store(BY_OWNER.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    } else if let Some(sum) = APART.get() {
        APART.set(Some(sum.wrapping_add(bytes)));
    } else {
        BY_OTHERS.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed unchanged to the inner allocator, and counting allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.dealloc(at, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.realloc(at, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Lets only one test at a time allocate much.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn a_result_allocated_apart_counts_once_it_is_returned() {
        let _turn = TURN.lock();
        let added_since = |before: u64| allocated_bytes() as i64 - before as i64;
        let half = MUCH as i64 / 2;
        let before = allocated_bytes();
        let work = move || {
            let (own, answer) = apart(|| {
                let _gone = std::hint::black_box(Vec::<u8>::with_capacity(MUCH));
                let answer = std::hint::black_box(Vec::<u8>::with_capacity(MUCH));
                (added_since(before), answer)
            });
            (own, added_since(before), answer)
        };
        let (own, then, answer) = std::thread::spawn(work).join().expect("it does not panic");
        assert!(own < half, "{own}");
        assert!((half..3 * half).contains(&then), "{then}");
        drop(answer);
        assert!(added_since(before) < half);
    }

    /// Large enough that allocations of other tests in this process do not matter. No page of it is touched.
    const MUCH: usize = 1 << 30;

    #[test]
    fn allocated_bytes_count_until_they_are_freed() {
        let _turn = TURN.lock();
        let block = || std::hint::black_box(Vec::<u8>::with_capacity(MUCH));
        let added_since = |before: u64| allocated_bytes() as i64 - before as i64;
        let half = MUCH as i64 / 2;
        let both_ways = || {
            let before = allocated_bytes();
            let mut block = block();
            assert!(added_since(before) > half);
            block.shrink_to(1);
            assert!(added_since(before) < half);
        };
        both_ways();
        count_for_this_thread();
        both_ways();
        // The block is freed by another thread than the one that allocated it.
        let before = allocated_bytes();
        let block = block();
        assert!(added_since(before) > half);
        std::thread::spawn(move || drop(block)).join().expect("dropping does not panic");
        assert!(added_since(before) < half);
    }
}
