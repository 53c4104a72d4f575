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
    Manual(Arc<Manual>),
    Node(Arc<Node>),
}

/// The two times of a manual clock.
#[derive(Debug)]
struct Manual {
    wall_us: AtomicI64,
    steady_us: AtomicI64,
}

/// A clock whose wall time never goes back, whatever its source does.
#[derive(Debug)]
struct Node {
    source: Clock,
    floor: Floor,
}

/// The earliest time that a wall clock may show: it begins at what was shown last, and rises at half the speed of the
/// steady clock. So leases that are measured by a clock that was ahead end late, but they do end, and the clock meets
/// its source again.
///
/// The value is the floor's height above half the steady clock, in microseconds: of two floors the higher one stays so.
#[derive(Debug)]
struct Floor(AtomicI64);

impl Floor {
    fn none() -> Floor {
        Floor(AtomicI64::new(i64::MIN))
    }

    fn begin(&self, at_us: i64, steady_us: i64) {
        self.0.store(at_us.saturating_sub(steady_us / 2), Ordering::Relaxed);
    }

    fn raise(&self, to_us: i64, steady_us: i64) {
        self.0.fetch_max(to_us.saturating_sub(steady_us / 2), Ordering::Relaxed);
    }

    /// Returns the time to show when the source shows `wall_us`.
    fn show(&self, wall_us: i64, steady_us: i64) -> i64 {
        let shown = wall_us.max(self.0.load(Ordering::Relaxed).saturating_add(steady_us / 2));
        self.raise(shown, steady_us);
        shown
    }
}

// Out of line, so that a clock without a floor stays small enough to be read in line.
impl Node {
    #[inline(never)]
    fn now_us(&self) -> i64 {
        self.floor.show(self.source.now_us(), self.source.steady_us())
    }

    #[inline(never)]
    fn manual_source(&self) -> Option<&Manual> {
        self.source.manual_source()
    }
}

/// The origin of the system's steady clock.
static STEADY_ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// Returns the system's clock.
    pub const fn system() -> Clock {
        Clock(Source::System)
    }

    /// Returns the system's clock for a node of a group. Its wall clock never shows a time before one that it has
    /// shown, or that another node's changes have. Otherwise the time of a leader whose clock is set right after it was
    /// ahead would go back, and leases that it then grants would end early on the next leader, which keeps to the later
    /// time of earlier changes. While its source is behind, the clock goes at half speed.
    pub fn of_node() -> Clock {
        Clock::system().with_floor()
    }

    fn with_floor(self) -> Clock {
        Clock(Source::Node(Arc::new(Node { source: self, floor: Floor::none() })))
    }

    /// Lets the wall clock of a node show no time before this one from here on, in Unix ms. Other clocks are not
    /// affected.
    pub fn not_before(&self, ms: i64) {
        if let Some(floor) = self.floor() {
            floor.raise(ms.saturating_mul(1_000), self.steady_us());
        }
    }

    fn floor(&self) -> Option<&Floor> {
        match &self.0 {
            Source::System | Source::Manual(_) => None,
            Source::Node(node) => Some(&node.floor),
        }
    }

    #[inline]
    fn manual_source(&self) -> Option<&Manual> {
        match &self.0 {
            Source::System => None,
            Source::Manual(manual) => Some(manual),
            Source::Node(node) => node.manual_source(),
        }
    }

    /// Lets the wall clock of a node go on from the time `ms` of the group's last change, or from its source if that is
    /// later. What it has shown before a reign does not count: it may have been wrong, and no change has that time.
    pub fn begin_at(&self, ms: i64) {
        if let Some(floor) = self.floor() {
            floor.begin(ms.saturating_mul(1_000), self.steady_us());
        }
    }

    /// Makes a clock that stands at `now_ms` until a test moves it.
    pub fn manual(now_ms: i64) -> Clock {
        let wall_us = AtomicI64::new(now_ms.saturating_mul(1_000));
        Clock(Source::Manual(Arc::new(Manual { wall_us, steady_us: AtomicI64::new(0) })))
    }

    /// Makes a manual clock of a node.
    pub fn manual_of_node(now_ms: i64) -> Clock {
        Clock::manual(now_ms).with_floor()
    }

    /// Whether this is a manual clock.
    pub fn is_manual(&self) -> bool {
        self.manual_source().is_some()
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
            Source::Manual(manual) => manual.wall_us.load(Ordering::Relaxed),
            Source::Node(node) => node.now_us(),
        }
    }

    /// Returns the time since a fixed moment, by a clock that setting the wall clock does not affect.
    #[inline]
    pub fn steady(&self) -> Duration {
        match self.manual_source() {
            None => STEADY_ORIGIN.elapsed(),
            Some(manual) => Duration::from_micros(manual.steady_us.load(Ordering::Relaxed).max(0) as u64),
        }
    }

    /// Returns milliseconds since a fixed moment, by a clock that setting the wall clock does not affect.
    #[inline]
    pub fn steady_ms(&self) -> i64 {
        self.steady_us() / 1_000
    }

    #[inline]
    fn steady_us(&self) -> i64 {
        match self.manual_source() {
            None => STEADY_ORIGIN.elapsed().as_micros() as i64,
            Some(manual) => manual.steady_us.load(Ordering::Relaxed),
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
        if let Some(manual) = self.manual_source() {
            manual.steady_us.fetch_add(us, Ordering::Relaxed);
            manual.wall_us.fetch_add(us, Ordering::Relaxed);
        }
    }

    /// Sets the wall time of a manual clock forward by `ms`, or back, as an administrator does: no time passes.
    pub fn set_wall_by_ms(&self, ms: i64) {
        if let Some(manual) = self.manual_source() {
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
    fn the_clock_of_a_node_never_goes_back_and_meets_its_source_again() {
        let clock = Clock::manual_of_node(1_000);
        clock.clone().not_before(500);
        assert_eq!(clock.now_ms(), 1_000);
        // Another node has shown a later time.
        clock.not_before(1_400);
        assert_eq!(clock.now_ms(), 1_400);
        clock.advance_ms(200);
        assert_eq!(clock.now_ms(), 1_500);
        clock.advance_ms(600);
        assert_eq!((clock.now_ms(), clock.steady_ms()), (1_800, 800));
        clock.advance_ms(50);
        assert_eq!(clock.now_ms(), 1_850, "it has met its source");
        // It is set back.
        clock.set_wall_by_ms(-1_000);
        assert_eq!(clock.now_ms(), 1_850);
        clock.advance_ms(100);
        assert_eq!(clock.now_ms(), 1_900);
        clock.set_wall_by_ms(5_000);
        assert_eq!(clock.now_ms(), 5_950);
        // That was wrong, and before it leads.
        clock.set_wall_by_ms(-5_000);
        clock.begin_at(2_000);
        assert_eq!(clock.now_ms(), 2_000);
        clock.begin_at(500);
        assert_eq!(clock.now_ms(), 950);
    }

    #[test]
    fn the_system_clock_of_a_node_does_so_too() {
        let clock = Clock::of_node();
        let later = Clock::system().now_ms() + 3_600_000;
        clock.not_before(later);
        let shown = clock.now_ms();
        assert!((later..later + 1_800_000).contains(&shown), "{shown}");
        assert!(clock.now_ms() >= shown);
    }

    #[test]
    fn the_system_clock_lies_in_this_century() {
        assert!(Clock::system().now_ms() > 1_700_000_000_000);
    }
}
