//! Lines on their way to the thread that writes them.
//!
//! Adding a line never waits: neither a pipe without a reader nor a hanging disk may hold up the server. If there is no
//! room, the line is lost and counted. Only the end of the process waits, and only while lines are being written.
//!
//! `tracing-appender` is not used for this. It bounds lines instead of bytes, can't be flushed before a panic ends the
//! process, does not tell the system's log how severe a line is, and at the end may itself print to the output that has
//! no reader.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Size in bytes of a place in the queue, without the contents of its entry.
const ENTRY_BYTES: usize = 64;

/// Entries that one thread takes in order.
#[derive(Debug)]
pub(super) struct Queue<T> {
    max_bytes: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    entries: VecDeque<(T, usize)>,
    bytes: usize,
    /// Number of entries that were taken and dealt with.
    done: u64,
    /// Whether the thread is busy with the entries that it has taken.
    is_busy: bool,
    /// Number of entries lost for lack of room since the last [`Queue::take_lost`].
    lost: u64,
    /// When [`Queue::take`] must return even if no entry comes.
    wake_at: Option<Instant>,
}

impl<T> Queue<T> {
    pub(super) fn new(max_bytes: usize) -> Queue<T> {
        let state = State { entries: VecDeque::new(), bytes: 0, done: 0, is_busy: false, lost: 0, wake_at: None };
        Queue { max_bytes, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry that holds `bytes`. Returns whether there was room.
    pub(super) fn push(&self, entry: T, bytes: usize) -> bool {
        let mut state = self.state();
        if state.bytes + bytes + ENTRY_BYTES > self.max_bytes {
            state.lost += 1;
            return false;
        }
        state.bytes += bytes + ENTRY_BYTES;
        state.entries.push_back((entry, bytes + ENTRY_BYTES));
        self.changed.notify_all();
        true
    }

    /// Makes [`Queue::take`] return at `at`, or earlier if that was requested before.
    pub(super) fn wake_at(&self, at: Instant) {
        let mut state = self.state();
        if state.wake_at.is_none_or(|other| at < other) {
            state.wake_at = Some(at);
            self.changed.notify_all();
        }
    }

    /// Declares the entries taken before as dealt with, and waits for the next one. Returns `None` at the time set by
    /// [`Queue::wake_at`].
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.state();
        state.is_busy = false;
        self.changed.notify_all();
        loop {
            state.is_busy = true;
            if let Some((entry, bytes)) = state.entries.pop_front() {
                state.bytes -= bytes;
                state.done += 1;
                return Some(entry);
            }
            let patience = state.wake_at.map(|at| at.saturating_duration_since(Instant::now()));
            if patience.is_some_and(|patience| patience.is_zero()) {
                state.wake_at = None;
                return None;
            }
            state.is_busy = false;
            state = match patience {
                Some(patience) => {
                    let waited = self.changed.wait_timeout(state, patience);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Returns the number of entries lost since the last call, provided that no entry waits: only then does the report
    /// stand where they are missing.
    pub(super) fn take_lost(&self) -> u64 {
        let mut state = self.state();
        if state.entries.is_empty() { std::mem::take(&mut state.lost) } else { 0 }
    }

    /// Waits until the thread has dealt with all entries, or was busy with one of them for `patience`.
    pub(super) fn drain(&self, patience: Duration) {
        let mut state = self.state();
        let (mut done, mut until) = (state.done, Instant::now() + patience);
        while state.is_busy || !state.entries.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            if state.done != done {
                (done, until) = (state.done, Instant::now() + patience);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn entries_that_do_not_fit_are_counted() {
        let queue = Queue::new(2 * (ENTRY_BYTES + 10));
        assert!(queue.push('a', 10) && queue.push('b', 10));
        assert!(!queue.push('c', 0) && !queue.push('d', 1_000));
        assert_eq!(queue.take_lost(), 0, "other entries wait in front of the lost ones");
        assert_eq!(queue.take(), Some('a'));
        assert!(queue.push('e', 10));
        assert_eq!((queue.take(), queue.take()), (Some('b'), Some('e')));
        assert_eq!((queue.take_lost(), queue.take_lost()), (2, 0));
        queue.wake_at(Instant::now());
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn the_end_waits_only_while_lines_are_being_written() {
        let queue = Arc::new(Queue::new(10_000));
        queue.drain(Duration::from_secs(60));
        queue.push('a', 10);
        queue.push('b', 10);
        // No thread takes entries here.
        queue.drain(Duration::ZERO);
        let (taker, (say, said)) = (Arc::clone(&queue), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            while let Some(entry) = taker.take() {
                say.send(entry).expect("the test waits for it");
            }
        });
        queue.drain(Duration::from_secs(60));
        assert_eq!(said.try_iter().collect::<String>(), "ab");
        queue.wake_at(Instant::now());
    }
}
