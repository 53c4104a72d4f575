//! When or how often a key was used: 32 bits in each entry's header, by which eviction chooses its victims.
//!
//! Their meaning depends on `maxmemory-policy`:
//!
//! ```text
//! LFU          | minutes, 24 bits | counter, 8 bits |    when the counter was last looked at, and a count of uses
//! all others   | ticks of 64 ms, 32 bits            |    when the key was last used, or with LRM, changed
//! ```
//!
//! Ticks and minutes wrap around, ticks after 8.7 years; only differences count. The counter is that of Redis. It grows
//! with the logarithm of the uses, at random, and less likely the larger it is (`lfu-log-factor`). It loses one for
//! each period of `lfu-decay-time` minutes without a use. A new key starts with a few uses, so that it is not evicted
//! before it had a chance.
//!
//! When the policy changes from one meaning to the other, the bits are meaningless until a key is used again, as in
//! Redis.

use crate::base::rng::Rng;
use crate::config::{Config, MaxmemoryPolicy, Ranking};

/// Milliseconds in a tick, as a power of two.
pub(super) const TICK_BITS: u32 = 6;

/// Uses that a new key starts with.
pub(super) const NEW_USES: u8 = 5;

/// Bits of the counter.
pub(super) const COUNTER_BITS: u32 = 8;

/// The note that a lookup makes about its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Noting {
    /// The time of the use.
    #[default]
    Stamp,
    /// One more use.
    Count,
    /// Nothing: the policy ranks keys by changes, or the client has asked not to touch keys.
    Nothing,
}

/// How uses are noted, according to the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub(super) policy: MaxmemoryPolicy,
    /// `lfu-log-factor`.
    pub(super) log_factor: u32,
    /// `lfu-decay-time`.
    pub(super) decay_minutes: u32,
}

impl From<&Config> for Usage {
    fn from(config: &Config) -> Usage {
        Usage {
            policy: config.maxmemory_policy,
            log_factor: config.lfu_log_factor,
            decay_minutes: config.lfu_decay_time,
        }
    }
}

impl Usage {
    /// The note that lookups make unless a client asks otherwise.
    pub(super) fn noting(&self) -> Noting {
        match self.policy.ranking() {
            Some(Ranking::Frequency) => Noting::Count,
            Some(Ranking::Change) => Noting::Nothing,
            _ => Noting::Stamp,
        }
    }

    /// The counter in `used`, less its decay until now.
    pub(super) fn counter(&self, used: u32, now_minutes: u32) -> u8 {
        let passed = now_minutes.wrapping_sub(used >> COUNTER_BITS) & (u32::MAX >> COUNTER_BITS);
        let lost = passed.checked_div(self.decay_minutes).unwrap_or(0);
        (used as u8).saturating_sub(u8::try_from(lost).unwrap_or(u8::MAX))
    }

    /// The new value of `used` after one more use.
    pub(super) fn counted(&self, used: u32, now_minutes: u32, rng: &mut Rng) -> u32 {
        let counter = self.counter(used, now_minutes);
        let above = f64::from(counter.saturating_sub(NEW_USES));
        let grows = counter < u8::MAX && rng.next_f64() * (above * f64::from(self.log_factor) + 1.0) < 1.0;
        now_minutes << COUNTER_BITS | u32::from(counter + u8::from(grows))
    }
}
