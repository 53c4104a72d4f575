//! The generic cell rate algorithm (GCRA): a leaky bucket in a single number.
//!
//! Tokens should arrive one **emission interval** apart. The number stored is the **theoretical arrival time** (TAT):
//! the time at which the next token would arrive if all tokens so far had kept that distance. If it lies in the past,
//! the bucket is empty. A token that arrives early moves it further into the future. A token is refused if the TAT
//! would then lie more than the **tolerance** ahead of now; the tolerance is as many intervals as tokens may arrive at
//! once. Times are whole nanoseconds; nothing is rounded except the interval, once.
//!
//! Source: ITU-T I.371 (virtual scheduling); the command's shape is that of redis-cell.

/// Nanoseconds in a second.
const SECOND_NS: i128 = 1_000_000_000;

/// Nanoseconds in a millisecond.
const MS_NS: i128 = 1_000_000;

/// Nanoseconds in a microsecond.
const US_NS: i128 = 1_000;

/// The longest tolerance, 146 years: longer than anyone will wait, and short enough that no time overflows.
const MAX_TOLERANCE_NS: i128 = i64::MAX as i128 / 2;

/// The number of tokens that may arrive at once, and the rate at which they return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    interval_ns: i128,
    tolerance_ns: i128,
    limit: i64,
}

/// The fault of an invalid rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRate {
    /// No token would ever arrive, or infinitely many.
    Zero,
    /// All tokens would be available again only after more than 146 years.
    TooLong,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The new TAT, Unix ns; `None` if the request is refused.
    pub tat_ns: Option<i64>,
    /// The most tokens that may arrive at once.
    pub limit: i64,
    /// The tokens that may arrive now.
    pub remaining: i64,
    /// Nanoseconds until an equal request is granted; `None` if that is now, or never.
    pub retry_after_ns: Option<i64>,
    /// Nanoseconds until all tokens are available again.
    pub reset_after_ns: i64,
}

impl Rate {
    /// `count` tokens in `period_s` seconds, plus a burst of `max_burst`. No argument is negative.
    pub(crate) fn new(max_burst: i64, count: i64, period_s: i64) -> Result<Rate, BadRate> {
        Rate::build(i128::from(max_burst) + 1, count, i128::from(period_s) * SECOND_NS)
    }

    /// `count` tokens in `period_ms` milliseconds, and at most `burst` at once. No argument is negative.
    pub(crate) fn with_burst(burst: i64, count: i64, period_ms: i64) -> Result<Rate, BadRate> {
        Rate::build(burst.into(), count, i128::from(period_ms) * MS_NS)
    }

    /// One token every `interval_us` microseconds, at least 1, and at most `limit` at once. `None` if these together
    /// take more than 64 bits of microseconds. That allows longer times than other rates have, so
    /// [`decide`](Self::decide) must not be asked for more tokens than fit into that time.
    pub(crate) fn with_interval(limit: i64, interval_us: i64) -> Option<Rate> {
        let tolerance_ns = i128::from(limit.checked_mul(interval_us)?) * US_NS;
        Some(Rate { interval_ns: i128::from(interval_us) * US_NS, tolerance_ns, limit })
    }

    /// One token every `interval_ns` nanoseconds, and at most `limit` at once.
    pub(crate) fn with_interval_ns(limit: i64, interval_ns: i64) -> Result<Rate, BadRate> {
        if limit < 0 || interval_ns <= 0 { Err(BadRate::Zero) } else { Rate::checked(limit, interval_ns.into()) }
    }

    /// As many tokens in that time, and `more` of them at once.
    pub(crate) fn extended(&self, more: i64) -> Result<Rate, BadRate> {
        Rate::checked(self.limit.checked_add(more).ok_or(BadRate::TooLong)?, self.interval_ns)
    }

    /// The most tokens that may arrive at once.
    pub(crate) fn limit(&self) -> i64 {
        self.limit
    }

    fn build(limit: i128, count: i64, period_ns: i128) -> Result<Rate, BadRate> {
        let interval_ns = period_ns.checked_div(count.into()).unwrap_or(0);
        if interval_ns <= 0 {
            return Err(BadRate::Zero);
        }
        Rate::checked(i64::try_from(limit).map_err(|_| BadRate::TooLong)?, interval_ns)
    }

    fn checked(limit: i64, interval_ns: i128) -> Result<Rate, BadRate> {
        let tolerance_ns = interval_ns.checked_mul(limit.into()).ok_or(BadRate::TooLong)?;
        if interval_ns.max(tolerance_ns) > MAX_TOLERANCE_NS {
            return Err(BadRate::TooLong);
        }
        Ok(Rate { interval_ns, tolerance_ns, limit })
    }

    /// The time by which `quantity` tokens advance the TAT, in nanoseconds.
    pub(crate) fn cost_ns(&self, quantity: i64) -> i64 {
        clamp(self.interval_ns.saturating_mul(quantity.into()))
    }

    /// Decides on a request for `quantity` tokens at `now_ns`; 0 tokens only look. `tat_ns` is the TAT so far, or
    /// `None` without one.
    pub(crate) fn decide(&self, tat_ns: Option<i64>, now_ns: i64, quantity: i64) -> Decision {
        let now = i128::from(now_ns);
        let tat = tat_ns.map_or(now, |tat| i128::from(tat).max(now));
        let increment = self.interval_ns * i128::from(quantity.max(0));
        let wait = tat + increment - self.tolerance_ns - now;
        let granted = wait <= 0;
        let ahead = if granted { tat + increment - now } else { tat - now };
        let retries = !granted && increment <= self.tolerance_ns;
        Decision {
            tat_ns: granted.then(|| clamp(tat + increment)),
            limit: self.limit,
            remaining: clamp((self.tolerance_ns - ahead).max(0) / self.interval_ns),
            retry_after_ns: retries.then(|| clamp(wait)),
            reset_after_ns: clamp(ahead),
        }
    }
}

fn clamp(ns: i128) -> i64 {
    ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;
    const NOW: i64 = 1_800_000_000_000 * MS;

    #[test]
    fn the_published_cases_of_redis_cell_pass() {
        // (ms since the start, tokens; refused, remaining, reset ms, retry ms), five at once, one a second.
        let cases = [
            (0, 6, true, 5, 0, None),
            (0, 1, false, 4, 1_000, None),
            (0, 1, false, 3, 2_000, None),
            (0, 1, false, 2, 3_000, None),
            (0, 1, false, 1, 4_000, None),
            (0, 1, false, 0, 5_000, None),
            (0, 1, true, 0, 5_000, Some(1_000)),
            (3_000, 1, false, 2, 3_000, None),
            (3_100, 1, false, 1, 3_900, None),
            (4_000, 1, false, 1, 4_000, None),
            (8_000, 1, false, 4, 1_000, None),
            (9_500, 1, false, 4, 1_000, None),
            (9_500, 0, false, 4, 1_000, None),
            (9_500, 2, false, 2, 3_000, None),
            (9_500, 5, true, 2, 3_000, Some(3_000)),
        ];
        let rate = Rate::new(4, 1, 1).expect("a rate");
        let mut tat = None;
        for (index, (ms, quantity, refused, remaining, reset_ms, retry_ms)) in cases.into_iter().enumerate() {
            let decision = rate.decide(tat, NOW + ms * MS, quantity);
            let wanted = Decision {
                tat_ns: (!refused).then_some(NOW + (ms + reset_ms) * MS),
                limit: 5,
                remaining,
                retry_after_ns: retry_ms.map(|ms: i64| ms * MS),
                reset_after_ns: reset_ms * MS,
            };
            assert_eq!(decision, wanted, "case {index}");
            tat = decision.tat_ns.or(tat);
        }
    }

    #[test]
    fn invalid_rates_are_refused() {
        assert_eq!(Rate::new(1, 0, 1), Err(BadRate::Zero));
        assert_eq!(Rate::new(1, 1, 0), Err(BadRate::Zero));
        assert_eq!(Rate::new(1, i64::MAX, 1), Err(BadRate::Zero));
        assert_eq!(Rate::new(i64::MAX, 1, 1), Err(BadRate::TooLong));
        assert_eq!(Rate::new(0, 1, i64::MAX), Err(BadRate::TooLong));
        assert_eq!(Rate::new(i64::MAX - 1, 1, i64::MAX), Err(BadRate::TooLong));
        assert_eq!(Rate::with_burst(1, 1, i64::MAX), Err(BadRate::TooLong));
        assert_eq!(Rate::with_interval(2, i64::MAX / 2 + 1), None);
        assert_eq!(Rate::with_interval_ns(1, 0), Err(BadRate::Zero));
        assert_eq!(Rate::with_interval_ns(-1, 1), Err(BadRate::Zero));
        assert_eq!(Rate::with_interval_ns(3, i64::MAX / 4), Err(BadRate::TooLong));
        let rate = Rate::with_interval_ns(1, i64::MAX / 4).expect("a rate");
        assert_eq!(rate.extended(2), Err(BadRate::TooLong));
        assert_eq!(rate.extended(i64::MAX), Err(BadRate::TooLong));
        assert!(Rate::with_interval(2, i64::MAX / 2).is_some());
        assert!(Rate::new(0, 1, 4_000_000_000).is_ok());
        assert!(Rate::new(0, 1_000_000_000, 1).is_ok());
    }

    #[test]
    fn rates_in_different_units_are_equal() {
        assert_eq!(Rate::new(15, 30, 60), Rate::with_burst(16, 30, 60_000));
        assert_eq!(Rate::new(15, 30, 60).ok(), Rate::with_interval(16, 2_000_000));
        assert_eq!(Rate::new(15, 30, 60), Rate::with_interval_ns(16, 2_000_000_000));
        assert_eq!(Rate::new(15, 30, 60).and_then(|rate| rate.extended(4)), Rate::new(19, 30, 60));
        let none = Rate::with_burst(0, 1, 1).expect("a rate");
        let decision = none.decide(None, NOW, 1);
        assert_eq!((decision.tat_ns, decision.remaining, decision.retry_after_ns), (None, 0, None));
    }

    proptest! {
        /// A bucket that leaks continuously: its level in nanoseconds of leaking, and the room for one more token.
        #[test]
        fn equals_a_leaky_bucket(
            max_burst in 0..10i64, count in 1..20i64, period_s in 1..100i64,
            requests in proptest::collection::vec((0..20_000i64, 0..6i64), 1..40)
        ) {
            let rate = Rate::new(max_burst, count, period_s).expect("a rate");
            let interval = 1_000_000_000 * period_s / count;
            let capacity = interval * (max_burst + 1);
            let (mut tat, mut level, mut now) = (None, 0i64, NOW);
            for (pause_ms, quantity) in requests {
                now += pause_ms * MS;
                level = (level - pause_ms * MS).max(0);
                let fits = level + quantity * interval <= capacity;
                let missing = level + quantity * interval - capacity;
                if fits {
                    level += quantity * interval;
                }
                let decision = rate.decide(tat, now, quantity);
                prop_assert_eq!(decision.tat_ns.is_some(), fits);
                prop_assert_eq!(decision.remaining, (capacity - level) / interval);
                prop_assert_eq!(decision.reset_after_ns, level);
                let can_ever = quantity <= max_burst + 1;
                prop_assert_eq!(decision.retry_after_ns, (!fits && can_ever).then_some(missing));
                tat = decision.tat_ns.or(tat);
            }
        }

        #[test]
        fn decides_for_any_state_and_request(
            max_burst in 0..=i64::MAX, count in 0..=i64::MAX, period_s in 0..=i64::MAX, small in 1..1_000i64,
            tat: Option<i64>, quantity in 0..=i64::MAX
        ) {
            let none_at_once = [Rate::with_burst(0, count, period_s), Rate::with_burst(0, 1, i64::MAX / small)];
            let some = [
                Rate::new(max_burst, count, period_s),
                Rate::new(small, small, period_s),
                Rate::new(small, 7, small),
            ];
            for rate in none_at_once.into_iter().chain(some) {
                let Ok(rate) = rate else { continue };
                let decision = rate.decide(tat, NOW, quantity);
                prop_assert!(decision.remaining >= 0 && decision.remaining <= decision.limit);
                prop_assert!(decision.tat_ns.is_none() || quantity <= decision.limit);
                prop_assert!(decision.reset_after_ns >= 0);
                // A caller that waits for the time it was given is served.
                if let Some(wait) = decision.retry_after_ns.filter(|wait| *wait < i64::MAX - NOW) {
                    prop_assert!(rate.decide(tat, NOW + wait, quantity).tat_ns.is_some());
                    prop_assert!(rate.decide(tat, NOW + wait - 1, quantity).tat_ns.is_none());
                }
            }
        }
    }
}
