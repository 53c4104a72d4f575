//! A histogram of durations: 1,280 bytes, a handful of instructions to count one, quantiles to within a quarter.
//!
//! Each power of two is cut into four buckets of the same width, as in HdrHistogram with two significant bits.

/// Buckets that each power of two is cut into, as a number of bits.
const PART_BITS: u32 = 2;
const PARTS: usize = 1 << PART_BITS;

/// Powers of two that are told apart: values from 2^41 on share the last bucket. By a clock of 3 GHz that is 12 minutes.
const POWERS: usize = 40;
const BUCKETS: usize = POWERS * PARTS;

/// How often values of each magnitude were seen. See the module's header.
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

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The largest value of each bucket that is not empty, and how many values it holds, from the smallest on.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, count)| (last_of(bucket), *count))
    }

    /// The largest value that the `percent` percent of the smallest values may have; 0 when none was counted.
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

#[inline]
fn bucket_of(value: u64) -> usize {
    let Some(power) = value.checked_ilog2().filter(|&power| power >= PART_BITS) else { return value as usize };
    let part = (value >> (power - PART_BITS)) as usize % PARTS;
    ((power - PART_BITS + 1) as usize * PARTS + part).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    match bucket / PARTS {
        0 => bucket as u64,
        _ if bucket == BUCKETS - 1 => u64::MAX,
        power => (((PARTS + bucket % PARTS + 1) as u64) << (power - 1)) - 1,
    }
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
            assert!(last - before <= before / 4 + 1 || bucket == BUCKETS - 1, "{bucket} is wide");
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
        assert_eq!((buckets[0], buckets[5]), ((1, 1), (6, 1)), "small values have a bucket each");
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 1_000);
        assert!(buckets.is_sorted() && buckets.last().is_some_and(|(last, _)| *last >= 1_000));
    }
}
