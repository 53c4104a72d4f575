//! The turns of the event loop: from the moment when something wakes the thread to the moment when it has nothing left
//! to do.
//!
//! The runtime reports both moments; INFO and metrics show the number of turns and their duration.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The turns that have ended. See the module's header.
#[derive(Debug)]
pub struct Turns {
    origin: Instant,
    /// When the current turn began, ns since `origin`.
    began_ns: AtomicU64,
    count: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for Turns {
    fn default() -> Turns {
        let zero = || AtomicU64::new(0);
        Turns { origin: Instant::now(), began_ns: zero(), count: zero(), sum_ns: zero(), max_ns: zero() }
    }
}

impl Turns {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes that the thread wakes.
    pub fn begin(&self) {
        self.began_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    /// Notes that the thread is about to sleep.
    pub fn end(&self) {
        let took_ns = self.now_ns().saturating_sub(self.began_ns.load(Ordering::Relaxed));
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(took_ns, Ordering::Relaxed);
        self.max_ns.fetch_max(took_ns, Ordering::Relaxed);
    }

    /// The number of turns.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The total duration of all turns, us.
    pub fn sum_us(&self) -> u64 {
        self.sum_ns.load(Ordering::Relaxed) / 1_000
    }

    /// The duration of the longest turn, us.
    pub fn max_us(&self) -> u64 {
        self.max_ns.load(Ordering::Relaxed) / 1_000
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        [&self.count, &self.sum_ns, &self.max_ns].into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_as_they_end() {
        let turns = Turns::default();
        turns.begin();
        assert_eq!(turns.count(), 0);
        turns.end();
        turns.begin();
        std::hint::black_box((0..100_000).fold(0_u64, |sum, n| sum.wrapping_add(n)));
        turns.end();
        assert_eq!(turns.count(), 2);
        assert!(turns.max_us() <= turns.sum_us());
        turns.reset();
        assert_eq!((turns.count(), turns.sum_us(), turns.max_us()), (0, 0, 0));
    }
}
