//! Eviction: frees memory before a command runs that may need some.
//!
//! While there is a limit, each client command begins with a look at the allocated memory. If it is too much, keys are
//! evicted, as `maxmemory-policy` says ([`Keyspace::evict`](crate::keyspace::Keyspace::evict)), until it fits, until no
//! key is left that may go, or until the time allowed by `maxmemory-eviction-tenacity` is over. Then the command runs,
//! and the rest is evicted in slices between commands. Only if no key may go any more is memory *full*, and commands
//! that may need memory are refused.
//!
//! Keys are evicted in units of their own, of up to 128 keys, or 16 in a slice: the journal, WATCH, waiting calls and a
//! running snapshot see them as any change. Nothing is evicted inside a unit: EXEC and scripts keep the keys they found
//! at their beginning, and an undo finds all data. Their own writes may exceed the limit.
//!
//! The consequences of eviction must not cause more eviction. So bytes that wait for the journal, or to be freed on
//! another thread, do not count; both shrink by themselves. And the amount to evict is fixed when eviction begins:
//! messages to clients about evicted keys take memory until they are read, which may be more than the keys took.

use std::time::Duration;

use crate::config::Config;
use crate::engine::limits::{EVICTION_SLICE, EVICTION_SLICE_KEYS, EVICTION_UNIT_BYTES, EVICTION_UNIT_KEYS};
use crate::engine::memory::Memory;
use crate::engine::memory::limit::{counted_bytes, is_over_limit};
use crate::engine::state::{Engine, ServerState};
use crate::keyspace::UnitMode;
use crate::meters::stats::Stats;
use crate::persist::tail::UnitOrigin;
use crate::session::Session;

/// Up to this tenacity the time grows linearly.
const LINEAR_TENACITY: u32 = 10;

/// Microseconds that each linear step adds, and the factor by which the time grows at each later step.
const STEP_US: u32 = 50;
const STEP_FACTOR: f64 = 1.15;

/// The tenacity at which eviction has no time limit.
const ENDLESS_TENACITY: u32 = 100;

/// How eviction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evicted {
    /// There is enough memory.
    Enough,
    /// Time is over.
    TooLate,
    /// No key is left that may go.
    Everything,
}

impl Engine {
    /// Frees memory for a client's command that is about to run, if there is too little. The result holds for the whole
    /// command.
    pub(in crate::engine) fn make_memory(&mut self, session: &mut Session) {
        self.server.memory.is_full = false;
        if !self.is_over_limit() {
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
        self.server.memory.is_full = evicted == Evicted::Everything && self.is_over_limit_for_good();
        self.server.memory.note_evicted(&mut self.server.meters.stats, self.server.time.clock.steady_ms(), evicted);
        // A reply that does not show the evicted keys need not wait for their eviction.
        self.begin_fence_behind(session);
    }

    #[inline]
    fn is_over_limit(&mut self) -> bool {
        let ServerState { config, programs, persistence, .. } = &mut self.server;
        is_over_limit(config, programs, persistence, &self.ks)
    }

    /// Whether memory is over the limit where no key may go: the buffers of scripts are freed first, too.
    fn is_over_limit_for_good(&mut self) -> bool {
        self.server.programs.scripts.give_back_scratch();
        self.is_over_limit()
    }

    /// Continues an eviction that took too long before its command. Returns whether there is more to evict.
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

    /// Whether keys may be removed now: not while the data is paused or still loading.
    fn may_evict(&self) -> bool {
        let server = &self.server;
        server.config.maxmemory > 0
            && server.persistence.loading.is_none()
            && !server.persistence.is_unlogged(&server.config)
            && !server.clients.pause.is_on()
    }

    /// Evicts keys for at most `most`. `session` is out of the registry.
    fn evict(&mut self, most: Option<Duration>, mut session: Option<&mut Session>) -> Evicted {
        let (policy, samples) = (self.server.config.maxmemory_policy, self.server.config.maxmemory_samples as usize);
        let began = self.server.meters.stats.clock.raw();
        let mut left = counted_bytes(&self.server.persistence, &self.ks).saturating_sub(self.server.config.maxmemory);
        let keys = if session.is_some() { EVICTION_UNIT_KEYS } else { EVICTION_SLICE_KEYS };
        loop {
            let unit = self.begin_behind(UnitOrigin::Eviction, UnitMode::empty());
            let (mut gone, mut has_more) = (0, true);
            while left > 0 && has_more && gone < keys && self.ks.effects().as_bytes().len() < EVICTION_UNIT_BYTES {
                let before = counted_bytes(&self.server.persistence, &self.ks);
                has_more = self.ks.evict(policy, samples);
                gone += 1;
                left = left.saturating_sub(before.saturating_sub(counted_bytes(&self.server.persistence, &self.ks)));
            }
            let has_changed = match session.as_deref_mut() {
                Some(session) => self.commit(unit, &mut [session]),
                None => self.commit(unit, &mut []),
            };
            if has_changed {
                self.wake(session.as_deref_mut());
            }
            if left == 0 || !self.is_over_limit() {
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

/// How long eviction may hold up one command; `None` for as long as it takes. The times are Redis'.
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

    /// Counts how long there has been too little memory.
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
    fn the_time_slice_grows_with_the_tenacity() {
        let us = |tenacity| {
            let config = Config { maxmemory_eviction_tenacity: tenacity, ..Config::default() };
            time_for(&config).map(|time| time.as_micros())
        };
        assert_eq!([us(0), us(1), us(10), us(11), us(100)], [Some(0), Some(50), Some(500), Some(575), None]);
        assert!(us(99) > Some(120_000_000) && us(99) < Some(180_000_000));
    }
}
