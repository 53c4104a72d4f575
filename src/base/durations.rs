//! A histogram of durations with fixed bounds, for several threads: one counts, another reports.
//!
//! The bounds are those of a disk, from flash memory to one that hangs. [`Histogram`](super::histogram::Histogram)
//! is finer, and for one thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The bounds of the buckets, in us, ascending. Longer durations have a bucket of their own.
const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// The durations counted so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counted {
    /// Each bound in seconds, and the number of durations up to it.
    pub(crate) up_to: Vec<(f64, u64)>,
    /// The number of all durations.
    pub(crate) total: u64,
    /// Their sum.
    pub(crate) sum: Duration,
}

impl Durations {
    /// Counts one duration.
    pub(crate) fn add(&self, took: Duration) {
        let bucket = BOUNDS_US.partition_point(|bound| Duration::from_micros(*bound) < took);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns what was counted. The sum may have a duration more than the counts.
    pub(crate) fn counted(&self) -> Counted {
        let mut total = 0;
        let mut add = |count: &AtomicU64| {
            total += count.load(Relaxed);
            total
        };
        let up_to =
            BOUNDS_US.iter().zip(&self.counts).map(|(bound, count)| (*bound as f64 / 1e6, add(count))).collect();
        let total = self.counts.last().map_or(0, add);
        Counted { up_to, total, sum: self.sum() }
    }

    /// Returns the sum of all durations.
    pub(crate) fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let durations = Durations::default();
        for took_us in [0, 50, 51, 1_000, 60_000_000] {
            durations.add(Duration::from_micros(took_us));
        }
        let counted = durations.counted();
        let up_to = |seconds: f64| counted.up_to.iter().find(|(bound, _)| *bound == seconds).map(|(_, count)| *count);
        assert_eq!([0.000_05, 0.000_1, 0.000_5, 0.001, 10.0].map(up_to), [2, 3, 3, 4, 4].map(Some));
        assert_eq!((counted.total, counted.sum), (5, Duration::from_micros(60_001_101)));
        assert!(counted.up_to.is_sorted());
    }
}
