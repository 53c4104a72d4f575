//! Time as an input.
//!
//! Wall time decides when keys expire and stamps what is stored; the engine reads it once per unit and hands it down. Tests
//! replace the wall clock by one that they set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where wall time comes from: the system, or a test. Clones of a manual clock show the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    manual_us: Option<Arc<AtomicI64>>,
}

impl Clock {
    /// The system's wall clock.
    pub const fn system() -> Clock {
        Clock { manual_us: None }
    }

    /// A clock that stands at `now_ms` until somebody moves it.
    pub fn manual(now_ms: i64) -> Clock {
        Clock { manual_us: Some(Arc::new(AtomicI64::new(now_ms.saturating_mul(1_000)))) }
    }

    /// Milliseconds since 1970, UTC.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.now_us() / 1_000
    }

    /// Microseconds since 1970, UTC.
    #[inline]
    pub fn now_us(&self) -> i64 {
        match &self.manual_us {
            None => now_us(),
            Some(us) => us.load(Ordering::Relaxed),
        }
    }

    /// Moves a manual clock forward by `ms`; a system clock can't be moved and stays as it is.
    pub fn advance_ms(&self, ms: i64) {
        if let Some(us) = &self.manual_us {
            us.fetch_add(ms.saturating_mul(1_000), Ordering::Relaxed);
        }
    }
}

/// The system's wall clock in microseconds since 1970, UTC; 0 when it is set to before 1970.
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
        assert_eq!((clock.now_ms(), clock.now_us()), (15, 15_000));
    }

    #[test]
    fn the_system_clock_is_of_this_century() {
        assert!(Clock::system().now_ms() > 1_700_000_000_000);
    }
}
