//! Log sequence numbers: the position of a unit in the journal.
//!
//! Units are numbered from 1 without a gap, in the order in which they were executed. So one number can state
//! "everything up to Lsn n", and the fences of replies, WAITAOF, snapshots and recovery are such statements.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a unit in the journal. [`Lsn::NONE`] comes before all units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// Before the first unit: the durable position of an empty journal, and the fence of bytes that may leave at any
    /// time.
    pub const NONE: Lsn = Lsn(0);

    /// The first unit.
    pub const FIRST: Lsn = Lsn(1);

    /// Behind all units: a position that no journal ever reaches.
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// Makes an Lsn of the stored number.
    pub const fn new(number: u64) -> Lsn {
        Lsn(number)
    }

    /// Returns the stored number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the unit after this one.
    pub const fn next(self) -> Lsn {
        self.plus(1)
    }

    /// Returns the unit before this one; [`Lsn::NONE`] has none and stays.
    pub const fn previous(self) -> Lsn {
        Lsn(self.0.saturating_sub(1))
    }

    /// Returns the unit `count` units further on. Saturates: at a billion units a second it would take 500 years to get
    /// there.
    pub const fn plus(self, count: u64) -> Lsn {
        Lsn(self.0.saturating_add(count))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An Lsn that one thread advances and others read. A thread that sees a value also sees everything done before it was
/// stored.
#[derive(Debug, Default)]
pub struct AtomicLsn(AtomicU64);

impl AtomicLsn {
    /// Makes a counter with the value `lsn`.
    pub const fn new(lsn: Lsn) -> AtomicLsn {
        AtomicLsn(AtomicU64::new(lsn.0))
    }

    /// Returns the counter's value.
    #[inline]
    pub fn load(&self) -> Lsn {
        Lsn(self.0.load(Ordering::Acquire))
    }

    /// Sets the counter.
    pub fn store(&self, lsn: Lsn) {
        self.0.store(lsn.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other_and_never_wrap() {
        assert_eq!(Lsn::NONE.next(), Lsn::FIRST);
        assert_eq!((Lsn::FIRST.previous(), Lsn::NONE.previous()), (Lsn::NONE, Lsn::NONE));
        assert_eq!(Lsn::new(u64::MAX).next(), Lsn::new(u64::MAX));
        assert!(Lsn::new(2).plus(3) > Lsn::new(4));
    }
}
