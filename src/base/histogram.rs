//! A histogram of durations: it takes 1,280 bytes and a handful of instructions for each value, and has quantiles to
//! within a quarter.
//!
//! Each power of two is cut into four buckets of the same width, as in HdrHistogram with two significant bits.

/// Buckets in each power of two, as a number of bits.
const PART_BITS: u32 = 2;
const PARTS: usize = 1 << PART_BITS;

/// Powers of two that are distinguished: values from about 2^41 on share the last bucket. With a clock of 3 GHz that is
/// 12 minutes.
const POWERS: usize = 40;
const BUCKETS: usize = POWERS * PARTS;

/// Counts of values by magnitude. See the module's header.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts one value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
    }

    /// Returns the number of values counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the largest value of each bucket that is not empty, and the number of values in it, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, count)| (last_of(bucket), *count))
    }

    /// Returns an upper bound of the smallest `percent` percent of the values; 0 when none was counted.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.total() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return last_of(bucket);
            }
        }
        0
    }
}

/// Returns the bucket of a value. Adding `PARTS` lets small values take the same path as large ones.
#[inline]
fn bucket_of(value: u64) -> usize {
    let value = value.saturating_add(PARTS as u64);
    // The lowest bit does not matter here, and setting it tells the compiler that the number is not 0.
    let power = (value | 1).ilog2() - PART_BITS;
    let bucket = power as usize * PARTS + (value >> power) as usize - PARTS;
    bucket.min(BUCKETS - 1)
}

/// Returns the largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let next = bucket + 1;
    if next == BUCKETS { u64::MAX } else { (((PARTS + next % PARTS) as u64) << (next / PARTS)) - PARTS as u64 - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut before = 0;
        for bucket in 0..BUCKETS {
            let last = last_of(bucket);
            assert_eq!(bucket_of(last), bucket);
            assert!(bucket == 0 || bucket_of(before + 1) == bucket, "{bucket}");
            let first = if bucket == 0 { 0 } else { before + 1 };
            assert!(last - first <= first / 4 || bucket == BUCKETS - 1, "{bucket} is wide");
            before = last;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_near() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(50.0), 0);
        (1..=1000).for_each(|value| histogram.add(value));
        for (percent, exact) in [(0.0, 1), (50.0, 500), (99.0, 990), (100.0, 1000)] {
            let found = histogram.percentile(percent);
            assert!((exact..=exact + exact / 4).contains(&found), "{percent}: {found}");
        }
        assert_eq!(histogram.total(), 1_000);
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!((buckets[2], buckets[3]), ((3, 1), (5, 2)), "the smallest values have a bucket each");
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 1_000);
        assert!(buckets.is_sorted() && buckets.last().is_some_and(|(last, _)| *last >= 1_000));
    }
}
