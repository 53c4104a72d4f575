//! A sliding window of two counts: the units of the current window, and those of the window before. The older count is
//! weighted by the share of its window that lies less than a window's length back. A million units take no more memory
//! than one. The estimate is right if units come evenly; if all units of a window came in its last moment, nearly twice
//! the limit may pass within the time of one window.
//!
//! Source: the approximation that Cloudflare described in "How we built rate limiting capable of scaling to millions of
//! domains" (2017). Here windows begin with a key's first unit, so that not all keys change windows at the same moment.

/// The two counts at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    /// When the current window began, Unix ms.
    pub start_ms: i64,
    /// The units of the window before.
    pub before: i64,
    /// The units of the current window.
    pub count: i64,
}

impl Buckets {
    /// No units; a window begins now.
    pub(super) fn empty(now_ms: i64) -> Buckets {
        Buckets { start_ms: now_ms, before: 0, count: 0 }
    }

    /// The counts as of now. A clock that stepped back changes nothing.
    pub(super) fn at(self, now_ms: i64, window_ms: i64) -> Buckets {
        let age_ms = now_ms.saturating_sub(self.start_ms);
        if age_ms < window_ms {
            self
        } else if age_ms - window_ms < window_ms {
            Buckets { start_ms: self.start_ms + window_ms, before: self.count, count: 0 }
        } else {
            Buckets::empty(now_ms)
        }
    }

    /// The units that count now, rounded up. The counts must be [those of now](Self::at).
    pub(super) fn used(&self, now_ms: i64, window_ms: i64) -> i64 {
        if self.before == 0 {
            return self.count;
        }
        let left_ms = self.start_ms.saturating_add(window_ms).saturating_sub(now_ms).clamp(0, window_ms);
        let product = i128::from(self.before) * i128::from(left_ms);
        let window = i128::from(window_ms);
        // At most `before`, so the cast is exact.
        let share = ((product + window - 1) / window) as i64;
        self.count.saturating_add(share)
    }

    /// When `units`, at most `max`, that are refused now will be granted if no other call takes any, Unix ms.
    pub(super) fn frees_ms(&self, max: i64, units: i64, window_ms: i64) -> i64 {
        let free = max - units;
        let ends_ms = self.start_ms.saturating_add(window_ms);
        match free.checked_sub(self.count) {
            // The units fit once the share of the window before is small enough.
            Some(room) if room >= 0 => ends_ms - part(room, window_ms, self.before),
            // The units fit only once the current window is the one before, and its share is small enough.
            _ => ends_ms.saturating_add(window_ms - part(free, window_ms, self.count)),
        }
    }

    /// When no unit counts any more.
    pub(super) fn ends_ms(&self, window_ms: i64) -> i64 {
        match (self.count, self.before) {
            (0, 0) => i64::MIN,
            (0, _) => self.start_ms.saturating_add(window_ms),
            _ => self.start_ms.saturating_add(2 * window_ms),
        }
    }
}

/// How many ms of a window, over which `count` units are spread evenly, hold at most `room` of them.
fn part(room: i64, window_ms: i64, count: i64) -> i64 {
    if room >= count {
        return window_ms;
    }
    (i128::from(room) * i128::from(window_ms) / i128::from(count)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The model remembers every unit with its window.
        #[test]
        fn equals_a_list_of_units(
            max in 0..12i64, window_ms in 1..50i64,
            steps in proptest::collection::vec((-30..60i64, 1..6i64), 1..60)
        ) {
            let (mut now, mut buckets) = (1_000i64, Buckets::empty(1_000));
            // When the current window began, and for each unit when its window began.
            let (mut began, mut units): (i64, Vec<i64>) = (1_000, Vec::new());
            for (pause_ms, wanted) in steps {
                now += pause_ms;
                while now - began >= window_ms {
                    // A window too old to count leaves none behind.
                    began = if now - began >= 2 * window_ms { now } else { began + window_ms };
                }
                units.retain(|start| began - start <= window_ms);
                let of_this = units.iter().filter(|start| **start == began).count() as i64;
                let of_last = units.iter().filter(|start| **start == began - window_ms).count() as i64;
                prop_assert_eq!(of_this + of_last, units.len() as i64);
                let elapsed = (now - began).max(0);
                let estimate = of_this * window_ms + of_last * (window_ms - elapsed);
                buckets = buckets.at(now, window_ms);
                let used = buckets.used(now, window_ms);
                prop_assert_eq!(used, (estimate + window_ms - 1) / window_ms);
                if used + wanted <= max {
                    buckets.count += wanted;
                    units.extend((0..wanted).map(|_| began));
                } else if wanted <= max {
                    let frees_ms = buckets.frees_ms(max, wanted, window_ms);
                    let fits = |at_ms| buckets.at(at_ms, window_ms).used(at_ms, window_ms) + wanted <= max;
                    prop_assert!(frees_ms > now && fits(frees_ms) && !fits(frees_ms - 1));
                }
                let ends_ms = buckets.ends_ms(window_ms);
                prop_assert_eq!(buckets.at(ends_ms.max(now), window_ms).used(ends_ms.max(now), window_ms), 0);
            }
        }

        #[test]
        fn any_stored_state_gets_a_reply(
            start_ms: i64, before in 0..=i64::MAX, count in 0..=i64::MAX, max in 1..=i64::MAX,
            window_ms in 1..1i64 << 40, now_ms in 0..1i64 << 50
        ) {
            let buckets = Buckets { start_ms, before, count }.at(now_ms, window_ms);
            prop_assert!(buckets.used(now_ms, window_ms) >= buckets.count);
            buckets.frees_ms(max, 1, window_ms);
            buckets.ends_ms(window_ms);
        }
    }
}
