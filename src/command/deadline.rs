//! Deadlines: the four ways to specify when a key expires.
//!
//! SET, GETEX, SETEX and the EXPIRE family count in seconds or milliseconds, from now or from 1970. All of them are
//! stored as a point in time in Unix milliseconds.

use crate::keyspace::NEVER;

/// The unit and start of a time argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
    /// Unix time in seconds.
    UnixSeconds,
    /// Unix time in milliseconds.
    UnixMilliseconds,
}

impl Count {
    /// The length of the unit in ms.
    pub(super) fn unit_ms(self) -> i64 {
        match self {
            Count::Seconds | Count::UnixSeconds => 1_000,
            Count::Milliseconds | Count::UnixMilliseconds => 1,
        }
    }

    /// Returns the time `n` units away, in Unix ms, which may lie in the past; `None` if it does not fit in 64 bits.
    pub(super) fn deadline(self, n: i64, now_ms: i64) -> Option<i64> {
        let ms = n.checked_mul(self.unit_ms())?;
        let base_ms = if matches!(self, Count::Seconds | Count::Milliseconds) { now_ms } else { 0 };
        // The last value means "never". It is 292 million years away, and a deadline one millisecond sooner is as good.
        // The first value counts as expired even while expiry is held; no deadline may.
        ms.checked_add(base_ms).map(|at_ms| at_ms.clamp(i64::MIN + 1, NEVER - 1))
    }

    /// The inverse: how far away a time in Unix ms is, rounded up; 0 if it has passed.
    pub(super) fn until(self, at_ms: i64, now_ms: i64) -> i64 {
        let base_ms = if matches!(self, Count::Seconds | Count::Milliseconds) { now_ms } else { 0 };
        let ms = at_ms.saturating_sub(base_ms).max(0);
        if self.unit_ms() == 1 { ms } else { ms.saturating_add(999) / 1_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_forms_count_up_to_a_moment() {
        assert_eq!(Count::Seconds.until(2_500, 500), 2);
        assert_eq!(Count::Seconds.until(2_501, 500), 3);
        assert_eq!(Count::Milliseconds.until(2_501, 500), 2_001);
        assert_eq!(Count::UnixSeconds.until(2_001, 500), 3);
        assert_eq!(Count::UnixMilliseconds.until(2_001, 500), 2_001);
    }

    #[test]
    fn all_four_forms_give_unix_milliseconds_or_overflow() {
        assert_eq!(Count::Seconds.deadline(2, 500), Some(2_500));
        assert_eq!(Count::Milliseconds.deadline(2, 500), Some(502));
        assert_eq!(Count::UnixSeconds.deadline(2, 500), Some(2_000));
        assert_eq!(Count::UnixMilliseconds.deadline(-2, 500), Some(-2));
        assert_eq!(Count::UnixMilliseconds.deadline(i64::MAX, 500), Some(NEVER - 1));
        assert_eq!(Count::Milliseconds.deadline(i64::MAX - 499, 500), None);
        assert_eq!(Count::Milliseconds.deadline(i64::MIN, 500), Some(i64::MIN + 500));
        assert_eq!(Count::UnixMilliseconds.deadline(i64::MIN, 500), Some(i64::MIN + 1));
        assert_eq!(Count::Seconds.deadline(i64::MAX / 1_000 + 1, 0), None);
        assert_eq!(Count::Seconds.deadline(i64::MIN, 0), None);
    }
}
