//! Work that a thread of its own does ahead of the caller that needs the results.
//!
//! A [`Source`] makes pieces, one after another. While enough bytes of them lie ready, no more are made, and used
//! pieces come back to be filled again, so that neither memory nor the cache fills with the work. Without threads, each
//! piece is made when the caller asks for it, by the same code and in the same order.

use std::collections::VecDeque;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// A maker of pieces.
pub trait Source: Send + 'static {
    /// The pieces that it makes.
    type Piece: Piece;

    /// Fills the next piece, which is new or used; false if nothing is left.
    fn fill(&mut self, piece: &mut Self::Piece) -> bool;
}

/// A piece of work.
pub trait Piece: Default + Send + 'static {
    /// Returns the size of the piece in bytes, roughly and not 0. This alone bounds the amount that lies ready.
    fn weight(&self) -> usize;
}

/// The pieces of a source, made ahead. See the module's header.
pub struct Ahead<S: Source> {
    /// `None` while the thread has it.
    source: Option<S>,
    worker: Option<Worker<S>>,
    /// Used pieces, if there is no thread.
    spent: Vec<S::Piece>,
}

/// A thread that fills pieces.
struct Worker<S: Source> {
    queue: Arc<Queue<S::Piece>>,
    thread: JoinHandle<S>,
}

impl<S: Source> Ahead<S> {
    /// Makes each piece when the caller asks for it.
    pub fn here(source: S) -> Ahead<S> {
        Ahead { source: Some(source), worker: None, spent: Vec::new() }
    }

    /// Makes pieces on a thread of this name, and none while `max_bytes` bytes of them lie ready. Of pieces larger than
    /// that, one exists at a time beside the one in use. Fails if the system can't start a thread.
    pub fn on_thread(name: &str, max_bytes: usize, source: S) -> io::Result<Ahead<S>> {
        let queue = Arc::new(Queue::new(max_bytes));
        let filled = Arc::clone(&queue);
        let thread = Builder::new().name(name.to_owned()).spawn(move || fill_all(source, &filled))?;
        Ok(Ahead { source: None, worker: Some(Worker { queue, thread }), spent: Vec::new() })
    }

    /// Returns the next piece, and waits until it is ready; `None` if there are no more.
    pub fn next_piece(&mut self) -> Option<S::Piece> {
        match &self.worker {
            Some(worker) => worker.queue.take(),
            None => {
                let mut piece = self.spent.pop().unwrap_or_default();
                self.source().fill(&mut piece).then_some(piece)
            }
        }
    }

    /// Returns a used piece.
    pub fn give_back(&mut self, piece: S::Piece) {
        match &self.worker {
            Some(worker) => worker.queue.lock().spent.push(piece),
            None => self.spent.push(piece),
        }
    }

    /// Returns the source, behind the last piece that it has made. Pieces that lie ready are dropped, and the thread
    /// ends.
    pub fn source(&mut self) -> &mut S {
        if let Some(Worker { queue, thread }) = self.worker.take() {
            queue.give_up();
            self.source = Some(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        self.source.as_mut().expect("it is here when no thread has it")
    }

    /// Does the same as [`source`](Self::source), and returns the source for good.
    pub fn into_source(mut self) -> S {
        self.source();
        self.source.take().expect("it is here when no thread has it")
    }
}

/// Waits for the thread's end: it may hold a resource that is needed then, such as a lock.
impl<S: Source> Drop for Ahead<S> {
    fn drop(&mut self) {
        if let Some(Worker { queue, thread }) = self.worker.take() {
            queue.give_up();
            // A panic ends the server and is reported elsewhere, so this only matters in tests.
            let _ = thread.join();
        }
    }
}

fn fill_all<S: Source>(mut source: S, queue: &Queue<S::Piece>) -> S {
    let _end = End(queue);
    while let Some(mut piece) = queue.piece_to_fill() {
        if !source.fill(&mut piece) {
            break;
        }
        queue.put(piece);
    }
    source
}

/// Pieces on their way from the thread, and on their way back.
struct Queue<P> {
    max_bytes: usize,
    state: Mutex<State<P>>,
    /// Signals the other side that there is something to take, or room.
    moved: Condvar,
}

struct State<P> {
    ready: VecDeque<P>,
    /// Total size of the pieces that lie ready, in bytes.
    bytes: usize,
    spent: Vec<P>,
    /// Whether all pieces have been made.
    has_ended: bool,
    is_given_up: bool,
}

/// Declares, however the thread ends, that no more pieces will come.
struct End<'q, P: Piece>(&'q Queue<P>);

impl<P: Piece> Drop for End<'_, P> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.moved.notify_one();
    }
}

impl<P: Piece> Queue<P> {
    fn new(max_bytes: usize) -> Queue<P> {
        let state = State { ready: VecDeque::new(), bytes: 0, spent: Vec::new(), has_ended: false, is_given_up: false };
        Queue { max_bytes, state: Mutex::new(state), moved: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&self, state: MutexGuard<'q, State<P>>) -> MutexGuard<'q, State<P>> {
        self.moved.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a piece to be filled, once there is room for it; `None` if no more are wanted.
    fn piece_to_fill(&self) -> Option<P> {
        let mut state = self.lock();
        while !state.is_given_up && !state.ready.is_empty() && state.bytes >= self.max_bytes {
            state = self.wait(state);
        }
        (!state.is_given_up).then(|| state.spent.pop().unwrap_or_default())
    }

    /// Adds a piece, however large it has become.
    fn put(&self, piece: P) {
        let weight = piece.weight();
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_add(weight);
        state.ready.push_back(piece);
        self.moved.notify_one();
    }

    /// Takes the oldest piece; `None` at the end.
    fn take(&self) -> Option<P> {
        let mut state = self.lock();
        loop {
            if let Some(piece) = state.ready.pop_front() {
                state.bytes = state.bytes.saturating_sub(piece.weight());
                self.moved.notify_one();
                return Some(piece);
            }
            if state.has_ended {
                return None;
            }
            state = self.wait(state);
        }
    }

    fn give_up(&self) {
        self.lock().is_given_up = true;
        self.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::{sleep, yield_now};
    use std::time::Duration;

    use super::*;

    /// Counts up to `end`, in pieces of 10 bytes that remember their contents. From `large` on, pieces are large.
    struct Count {
        next: u64,
        end: u64,
        large: u64,
        filled: Arc<AtomicU64>,
    }

    #[derive(Debug, Default, PartialEq)]
    struct Numbers(Vec<u64>, usize);

    impl Piece for Numbers {
        fn weight(&self) -> usize {
            self.1
        }
    }

    impl Source for Count {
        type Piece = Numbers;

        fn fill(&mut self, piece: &mut Numbers) -> bool {
            if self.next == self.end {
                return false;
            }
            piece.0.push(self.next);
            piece.1 = if self.next >= self.large { 1_000 } else { 10 };
            self.next += 1;
            self.filled.fetch_add(1, Ordering::SeqCst);
            true
        }
    }

    fn count(end: u64) -> (Count, Arc<AtomicU64>) {
        let filled = Arc::new(AtomicU64::new(0));
        (Count { next: 0, end, large: u64::MAX, filled: Arc::clone(&filled) }, filled)
    }

    /// Waits until this many pieces are filled, and checks that no more are.
    fn assert_filled(filled: &AtomicU64, expected: u64) {
        while filled.load(Ordering::SeqCst) < expected {
            yield_now();
        }
        sleep(Duration::from_millis(1));
        assert_eq!(filled.load(Ordering::SeqCst), expected);
    }

    #[test]
    fn pieces_come_in_order_with_a_thread_and_without() {
        for mut ahead in [Ahead::here(count(100).0), Ahead::on_thread("ahead", 30, count(100).0).unwrap()] {
            for expected in 0..100 {
                assert_eq!(ahead.next_piece().and_then(|piece| piece.0.last().copied()), Some(expected));
            }
            assert_eq!(ahead.next_piece(), None);
            assert_eq!(ahead.source().next, 100);
            assert_eq!((ahead.next_piece(), ahead.into_source().next), (None, 100));
        }
    }

    #[test]
    fn no_more_bytes_are_ready_than_allowed() {
        let (source, filled) = count(100);
        let mut ahead = Ahead::on_thread("ahead", 40, source).unwrap();
        for taken in 1..=50 {
            ahead.next_piece().unwrap();
            assert_filled(&filled, taken + 4);
        }
    }

    #[test]
    fn one_large_piece_is_ready_or_made_beside_the_one_in_use() {
        let (mut source, filled) = count(100);
        source.large = 2;
        let mut ahead = Ahead::on_thread("ahead", 40, source).unwrap();
        // The first large piece is begun while two small ones leave room, and the next when it is taken.
        for expected in [3, 3, 3, 4, 5, 6] {
            assert_filled(&filled, expected);
            ahead.next_piece().unwrap();
        }
    }

    #[test]
    fn pieces_that_were_used_are_filled_again() {
        for mut ahead in [Ahead::here(count(100).0), Ahead::on_thread("ahead", 10, count(100).0).unwrap()] {
            let mut reused = 0;
            while let Some(piece) = ahead.next_piece() {
                reused += usize::from(piece.0.len() > 1);
                ahead.give_back(piece);
            }
            assert!(reused > 50, "{reused}");
        }
    }

    #[test]
    fn dropping_the_pieces_ends_the_thread() {
        let (source, filled) = count(u64::MAX);
        let mut ahead = Ahead::on_thread("ahead", 30, source).unwrap();
        ahead.next_piece();
        let source = ahead.into_source();
        assert_eq!(source.next, filled.load(Ordering::SeqCst));
        drop(source);
        assert_eq!(Arc::strong_count(&filled), 1);
        let (source, filled) = count(u64::MAX);
        drop(Ahead::on_thread("ahead", 30, source).unwrap());
        assert_eq!(Arc::strong_count(&filled), 1, "the thread has ended");
    }

    struct Fails;

    impl Source for Fails {
        type Piece = Numbers;

        fn fill(&mut self, _: &mut Numbers) -> bool {
            resume_unwind(Box::new("it fails"));
        }
    }

    #[test]
    fn a_failed_thread_is_not_waited_for() {
        let mut ahead = Ahead::on_thread("ahead", 30, Fails).unwrap();
        assert_eq!(ahead.next_piece(), None);
    }
}
