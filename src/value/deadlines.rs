//! The deadlines of the elements of a hash or a set: fields and members alike, because expiry works the same for both.
//!
//! A hash or set has no deadlines until one of its elements gets one. The deadlines are a sorted set of the elements,
//! scored by Unix milliseconds (exact in a double up to 2^53). Small ones cost a few bytes, the deadline of an element
//! is found by its name, the next element to expire is the first, and the expired ones are a range of ranks.
//!
//! # Expired elements
//! A value has no clock. Code that has one reports the time ([`advance`](Deadlines::advance)), and all elements with
//! deadlines up to then have *expired*: they are still stored, but the hash or set behaves as if they were gone. If a
//! million fields expire together, the next reader pays only for a lookup in a tree, while the fields are
//! [removed](Deadlines::first_expired) slice by slice.

use super::packed::Item;
use super::zset::{ScoreBound, ZSet, ZSetLimits};

/// The number of random draws among elements of which some have expired, before a hash or set walks over all elements
/// instead.
pub(super) const DRAWS: usize = 32;

/// The deadlines of one hash or set. See the module's header.
#[derive(Clone, Default)]
pub struct Deadlines {
    /// The elements that expire, in the order of their deadlines.
    order: ZSet,
    /// The number of elements that have expired: the first ones.
    expired: usize,
    /// The time reported last, Unix ms.
    now_ms: i64,
    /// See [`timer_ms`](Self::timer_ms).
    timer_ms: Option<i64>,
}

impl Deadlines {
    /// The number of elements with a deadline, including expired ones that have not been removed.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no element has a deadline.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The deadline of an element, Unix ms; `None` if it never expires.
    pub fn at(&self, element: &[u8]) -> Option<i64> {
        self.order.score(element).map(|score| score as i64)
    }

    /// The earliest deadline, Unix ms.
    pub fn first_ms(&self) -> Option<i64> {
        self.order.by_rank(0).map(|(_, score)| score as i64)
    }

    /// The latest deadline, Unix ms.
    pub fn last_ms(&self) -> Option<i64> {
        self.order.by_rank(self.len().checked_sub(1)?).map(|(_, score)| score as i64)
    }

    /// Sets the deadline of an element, Unix ms.
    pub fn set(&mut self, element: &[u8], at_ms: i64) {
        let old = self.order.insert(element, at_ms as f64, ZSetLimits::default());
        self.expired -= usize::from(old.is_some_and(|old| old as i64 <= self.now_ms));
        self.expired += usize::from(at_ms <= self.now_ms);
    }

    /// Removes the deadline of an element. Returns whether it had one.
    pub fn remove(&mut self, element: &[u8]) -> bool {
        let Some(old) = self.order.remove(element) else { return false };
        self.expired -= usize::from(old as i64 <= self.now_ms);
        if self.order.is_empty() {
            // Frees the memory of many deadlines.
            self.order = ZSet::new();
            self.timer_ms = None;
        }
        true
    }

    /// Reports the time, Unix ms.
    pub fn advance(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        let all = ScoreBound { score: f64::NEG_INFINITY, exclusive: false };
        self.expired = self.order.by_score(all, ScoreBound { score: now_ms as f64, exclusive: false }).end;
    }

    /// The number of elements that have expired.
    #[inline]
    pub fn expired(&self) -> usize {
        self.expired
    }

    /// Whether an element has expired.
    #[inline]
    pub fn is_expired(&self, element: &[u8]) -> bool {
        self.expired > 0 && self.at(element).is_some_and(|at_ms| at_ms <= self.now_ms)
    }

    /// Like [`is_expired`](Self::is_expired), for an element as it is stored.
    pub fn is_expired_item(&self, element: Item<'_>) -> bool {
        self.expired > 0 && self.is_expired(element.as_bytes(&mut itoa::Buffer::new()))
    }

    /// The element that expired first.
    pub fn first_expired(&self) -> Option<&[u8]> {
        let first = (self.expired > 0).then(|| self.order.by_rank(0)).flatten();
        first.map(|(element, _)| element)
    }

    /// The time by which the deadlines will be checked, Unix ms. `None` if no check is planned.
    #[inline]
    pub fn timer_ms(&self) -> Option<i64> {
        self.timer_ms
    }

    /// Sets the time by which the deadlines will be checked.
    pub fn set_timer_ms(&mut self, timer_ms: Option<i64>) {
        self.timer_ms = timer_ms;
    }

    /// Whether an element expires before the next check.
    pub fn need_timer(&self) -> bool {
        self.first_ms().is_some_and(|first_ms| self.timer_ms.is_none_or(|timer_ms| first_ms < timer_ms))
    }

    /// Puts the check off to the first deadline, if that is later.
    pub fn put_off_timer(&mut self) {
        self.timer_ms = self.timer_ms.max(self.first_ms().filter(|_| self.timer_ms.is_some()));
    }

    /// Bytes allocated; see [`ZSet::mem_bytes`] for `samples`.
    pub fn mem_bytes(&self, samples: usize) -> usize {
        self.order.mem_bytes(samples)
    }
}

impl std::fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.order.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// After any changes, counts and order equal those of a plain map in which the deadlines up to now have passed.
        #[test]
        fn equal_to_a_map(steps in proptest::collection::vec((0..4u8, 0..12u8, 0..50i64), 0..300)) {
            let mut deadlines = Deadlines::default();
            let mut model: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
            let mut now_ms = 0;
            for (step, element, ms) in steps {
                let element = vec![b'e'; usize::from(element) * 9];
                match step {
                    0 | 1 => {
                        deadlines.set(&element, ms);
                        model.insert(element.clone(), ms);
                    }
                    2 => prop_assert_eq!(deadlines.remove(&element), model.remove(&element).is_some()),
                    _ => {
                        now_ms = ms;
                        deadlines.advance(now_ms);
                    }
                }
                let expired = |at_ms: &&i64| **at_ms <= now_ms;
                prop_assert_eq!(deadlines.expired(), model.values().filter(expired).count());
                prop_assert_eq!(deadlines.is_expired(&element), model.get(&element).filter(expired).is_some());
                prop_assert_eq!(deadlines.at(&element), model.get(&element).copied());
                prop_assert_eq!(deadlines.first_ms(), model.values().min().copied());
                prop_assert_eq!(deadlines.last_ms(), model.values().max().copied());
                prop_assert_eq!((deadlines.len(), deadlines.is_empty()), (model.len(), model.is_empty()));
                let gone = model.iter().filter(|(_, at_ms)| expired(at_ms));
                let first = gone.map(|(element, at_ms)| (at_ms, element)).min();
                prop_assert_eq!(deadlines.first_expired(), first.map(|(_, element)| element.as_slice()));
            }
        }
    }
}
