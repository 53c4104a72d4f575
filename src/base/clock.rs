//! Time as an input.
//!
//! Wall time decides when keys expire, and stamps stored data; the engine reads it and hands it down to each unit. The
//! wall clock can be set, so waiting times are measured by a steady clock, which can't. Tests replace both by clocks
//! that they set.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time: the system, or a test. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    /// The system, but never earlier than this time of the wall clock, in microseconds.
    Floored(Arc<AtomicI64>),
    Manual(Arc<Manual>),
}

/// The two times of a manual clock.
#[derive(Debug)]
struct Manual {
    wall_us: AtomicI64,
    /// The wall clock shows no earlier time.
    floor_us: AtomicI64,
    steady_us: AtomicI64,
}

/// The origin of the system's steady clock.
static STEADY_ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// Returns the system's clock.
    pub const fn system() -> Clock {
        Clock(Source::System)
    }

    /// Returns the system's clock for a node of a group, which must not show a time before that of another node's
    /// changes: what expires would live longer.
    pub fn of_node() -> Clock {
        Clock(Source::Floored(Arc::new(AtomicI64::new(0))))
    }

    /// Lets the wall clock of a node, or one of a test, show no time before this one from here on, in Unix ms. It
    /// stands until its source is there. The clock of a single server is not affected.
    pub fn not_before(&self, ms: i64) {
        let floor_us = match &self.0 {
            Source::System => return,
            Source::Floored(floor_us) => floor_us,
            Source::Manual(manual) => &manual.floor_us,
        };
        floor_us.fetch_max(ms.saturating_mul(1_000), Ordering::Relaxed);
    }

    /// Makes a clock that stands at `now_ms` until a test moves it.
    pub fn manual(now_ms: i64) -> Clock {
        let wall_us = AtomicI64::new(now_ms.saturating_mul(1_000));
        let (floor_us, steady_us) = (AtomicI64::new(i64::MIN), AtomicI64::new(0));
        Clock(Source::Manual(Arc::new(Manual { wall_us, floor_us, steady_us })))
    }

    /// Whether this is a manual clock.
    pub fn is_manual(&self) -> bool {
        matches!(self.0, Source::Manual(_))
    }

    /// Returns milliseconds since 1970, UTC.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.now_us() / 1_000
    }

    /// Returns microseconds since 1970, UTC.
    #[inline]
    pub fn now_us(&self) -> i64 {
        match &self.0 {
            Source::System => now_us(),
            Source::Floored(floor) => now_us().max(floor.load(Ordering::Relaxed)),
            Source::Manual(manual) => {
                manual.wall_us.load(Ordering::Relaxed).max(manual.floor_us.load(Ordering::Relaxed))
            }
        }
    }

    /// Returns the time since a fixed moment, by a clock that setting the wall clock does not affect.
    #[inline]
    pub fn steady(&self) -> Duration {
        match &self.0 {
            Source::System | Source::Floored(_) => STEADY_ORIGIN.elapsed(),
            Source::Manual(manual) => Duration::from_micros(manual.steady_us.load(Ordering::Relaxed).max(0) as u64),
        }
    }

    /// Returns milliseconds since a fixed moment, by a clock that setting the wall clock does not affect.
    #[inline]
    pub fn steady_ms(&self) -> i64 {
        match &self.0 {
            Source::System | Source::Floored(_) => STEADY_ORIGIN.elapsed().as_millis() as i64,
            Source::Manual(manual) => manual.steady_us.load(Ordering::Relaxed) / 1_000,
        }
    }

    /// Returns the time of the [steady](Clock::steady_ms) clock at a time of the wall clock, in Unix ms, provided that
    /// the wall clock, which shows `now_ms`, is not set in between.
    pub fn steady_at_ms(&self, at_ms: i64, now_ms: i64) -> i64 {
        self.steady_ms().saturating_add(at_ms.saturating_sub(now_ms))
    }

    /// Moves a manual clock forward by `ms`. A system clock can't be moved and stays as it is.
    pub fn advance_ms(&self, ms: i64) {
        self.advance_us(ms.saturating_mul(1_000));
    }

    /// Moves a manual clock forward by `us` microseconds.
    pub fn advance_us(&self, us: i64) {
        if let Source::Manual(manual) = &self.0 {
            manual.steady_us.fetch_add(us, Ordering::Relaxed);
            manual.wall_us.fetch_add(us, Ordering::Relaxed);
        }
    }

    /// Sets the wall time of a manual clock forward by `ms`, or back, as an administrator does: no time passes.
    pub fn set_wall_by_ms(&self, ms: i64) {
        if let Source::Manual(manual) = &self.0 {
            manual.wall_us.fetch_add(ms.saturating_mul(1_000), Ordering::Relaxed);
        }
    }
}

/// Returns the system's wall clock in microseconds since 1970, UTC; 0 when it is set to before 1970.
#[inline]
pub fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(5);
        let other = clock.clone();
        assert_eq!(clock.now_ms(), 5);
        other.advance_ms(10);
        assert_eq!((clock.now_ms(), clock.now_us(), clock.steady_ms()), (15, 15_000, 10));
        other.set_wall_by_ms(-12);
        assert_eq!((clock.now_ms(), clock.steady_ms(), clock.steady_at_ms(8, 3)), (3, 10, 15));
    }

    #[test]
    fn the_clock_of_a_node_stands_until_the_system_is_there() {
        let clock = Clock::of_node();
        let other = clock.clone();
        let later = Clock::system().now_ms() + 3_600_000;
        other.not_before(later);
        other.not_before(5);
        assert_eq!(clock.now_ms(), later);
    }

    #[test]
    fn the_system_clock_lies_in_this_century() {
        assert!(Clock::system().now_ms() > 1_700_000_000_000);
    }
}
