//! Eviction: making memory before a command runs that may need some.
//!
//! While there is a limit, each command of a client begins with a look at what is allocated. If that is too much, keys are evicted, as
//! `maxmemory-policy` says ([`Keyspace::evict`](crate::keyspace::Keyspace::evict)), until it is not, until nothing is left that may go,
//! or until that has taken as long as `maxmemory-eviction-tenacity` allows. Then the command runs, and the rest is done in slices
//! between others. Only where nothing may go any more is memory *full*, and commands are refused that may need some.
//!
//! Evicted keys go in units of their own, of up to 128 keys, or 16 in a slice: the log, WATCH, those who wait and a snapshot under way learn of them as of
//! any change. Nothing is evicted inside of a unit: EXEC and scripts find at their end what they found at their begin, and what is undone
//! is all there. They may go beyond the limit by what they write.
//!
//! What follows upon eviction must not cause more of it. So what waits to be written to the log does not count, nor what waits to be
//! freed on another thread; both become less by themselves. And how much has to go is fixed when eviction begins: what clients are
//! told of evicted keys takes memory until they have read it, which may be more than the keys took.

use std::time::Duration;

use crate::base::limits::{EVICTION_SLICE, EVICTION_SLICE_KEYS, EVICTION_UNIT_BYTES, EVICTION_UNIT_KEYS};
use crate::config::Config;
use crate::engine::memory::Memory;
use crate::engine::meters::stats::Stats;
use crate::engine::session::Session;
use crate::engine::state::Engine;
use crate::persist::tail::UnitOrigin;

/// Up to this tenacity the time grows by as much at each step.
const LINEAR_TENACITY: u32 = 10;

/// Microseconds that each of those steps adds, and by what factor the time grows at those behind them.
const STEP_US: u32 = 50;
const STEP_FACTOR: f64 = 1.15;

/// The tenacity that ends only when there is memory enough.
const ENDLESS_TENACITY: u32 = 100;

/// How eviction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evicted {
    /// There is memory enough.
    Enough,
    /// Time is over.
    TooLate,
    /// Nothing is left that may go.
    Everything,
}

impl Engine {
    /// Makes memory for a client's command that is about to run, if there is too little. What it found holds for the whole command.
    pub(in crate::engine) fn make_memory(&mut self, session: &mut Session) {
        self.server.memory.is_full = false;
        if !self.server.is_over_limit(&self.ks) {
            if self.server.meters.stats.over_limit_since_ms.is_some() || self.server.memory.eviction_is_behind {
                self.server.memory.note_evicted(
                    &mut self.server.meters.stats,
                    self.server.time.clock.steady_ms(),
                    Evicted::Enough,
                );
            }
            return;
        }
        if !self.may_evict() {
            return;
        }
        let most = time_for(&self.server.config);
        let evicted = self.evict(most, Some(session));
        self.server.memory.is_full = evicted == Evicted::Everything && self.server.is_over_limit_for_good(&self.ks);
        self.server.memory.note_evicted(&mut self.server.meters.stats, self.server.time.clock.steady_ms(), evicted);
        // What was evicted is no news to who does not ask for it.
        self.begin_fence_behind(session);
    }

    /// Goes on with eviction that took too long for the command that it began before. Answers whether there is more to evict.
    pub(in crate::engine) fn evict_slice(&mut self) -> bool {
        if !self.server.memory.eviction_is_behind {
            return false;
        }
        if !self.may_evict() {
            self.server.memory.eviction_is_behind = false;
            return false;
        }
        self.ks.set_now_ms(self.server.time.clock.now_ms());
        self.begin_fence(crate::base::lsn::Lsn::NONE);
        let evicted = self.evict(Some(EVICTION_SLICE), None);
        self.server.memory.note_evicted(&mut self.server.meters.stats, self.server.time.clock.steady_ms(), evicted);
        self.server.memory.eviction_is_behind
    }

    /// Whether keys may be removed now at all: not while the data stands still, or is not there yet.
    fn may_evict(&self) -> bool {
        let server = &self.server;
        server.config.maxmemory > 0
            && server.persistence.loading.is_none()
            && !server.persistence.is_unlogged(&server.config)
            && !server.clients.pause.is_on()
    }

    /// Evicts keys for no longer than `most`. `session` is out of the registry.
    fn evict(&mut self, most: Option<Duration>, mut session: Option<&mut Session>) -> Evicted {
        let (policy, samples) = (self.server.config.maxmemory_policy, self.server.config.maxmemory_samples as usize);
        let began = self.server.meters.stats.clock.raw();
        let mut left = self.server.counted_bytes(&self.ks).saturating_sub(self.server.config.maxmemory);
        let keys = if session.is_some() { EVICTION_UNIT_KEYS } else { EVICTION_SLICE_KEYS };
        loop {
            let unit = self.begin_behind(UnitOrigin::Eviction);
            let (mut gone, mut has_more) = (0, true);
            while left > 0 && has_more && gone < keys && self.ks.effects().as_bytes().len() < EVICTION_UNIT_BYTES {
                let before = self.server.counted_bytes(&self.ks);
                has_more = self.ks.evict(policy, samples);
                gone += 1;
                left = left.saturating_sub(before.saturating_sub(self.server.counted_bytes(&self.ks)));
            }
            let has_changed = match session.as_deref_mut() {
                Some(session) => self.commit(unit, &mut [session]),
                None => self.commit(unit, &mut []),
            };
            if has_changed {
                self.wake(session.as_deref_mut());
            }
            if left == 0 || !self.server.is_over_limit(&self.ks) {
                return Evicted::Enough;
            }
            if !has_more {
                return Evicted::Everything;
            }
            let took = self.server.meters.stats.clock.delta(began, self.server.meters.stats.clock.raw());
            if most.is_some_and(|most| took >= most) {
                return Evicted::TooLate;
            }
        }
    }
}

/// How long one command may be held up by eviction; `None`: as long as it takes. The times are Redis'.
fn time_for(config: &Config) -> Option<Duration> {
    let tenacity = config.maxmemory_eviction_tenacity;
    let base = f64::from(STEP_US * tenacity.min(LINEAR_TENACITY));
    let us = base * STEP_FACTOR.powi(tenacity.saturating_sub(LINEAR_TENACITY) as i32);
    (tenacity < ENDLESS_TENACITY).then(|| Duration::from_micros(us as u64))
}

impl Memory {
    /// Whether there is more to evict than one command has waited for.
    #[inline]
    pub fn is_evicting(&self) -> bool {
        self.eviction_is_behind
    }

    /// Counts for how long there was too little memory.
    fn note_evicted(&mut self, stats: &mut Stats, steady_ms: i64, evicted: Evicted) {
        self.eviction_is_behind = evicted == Evicted::TooLate;
        match (evicted, stats.over_limit_since_ms) {
            (Evicted::Enough, Some(since_ms)) => {
                stats.over_limit_ms += steady_ms - since_ms;
                stats.over_limit_since_ms = None;
            }
            (Evicted::TooLate | Evicted::Everything, None) => {
                stats.over_limit_since_ms = Some(steady_ms);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_grows_with_the_tenacity() {
        let us = |tenacity| {
            let config = Config { maxmemory_eviction_tenacity: tenacity, ..Config::default() };
            time_for(&config).map(|time| time.as_micros())
        };
        assert_eq!([us(0), us(1), us(10), us(11), us(100)], [Some(0), Some(50), Some(500), Some(575), None]);
        assert!(us(99) > Some(120_000_000) && us(99) < Some(180_000_000));
    }
}
