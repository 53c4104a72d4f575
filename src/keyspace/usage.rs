//! When a key was used last, or how often: 32 bits in each entry's header, by which eviction chooses.
//!
//! What they mean follows from `maxmemory-policy`:
//!
//! ```text
//! LFU          | minutes, 24 bits | counter, 8 bits |    when the counter was looked at last, and how often the key was used
//! all others   | ticks of 64 ms, 32 bits            |    when it was used last, or with LRM, changed
//! ```
//!
//! Ticks and minutes go round, the former after 8.7 years; only differences count. The counter is that of Redis: it grows with the
//! logarithm of the uses, by chance, the less likely the larger it is (`lfu-log-factor`), and loses one for each so many minutes
//! that nobody used the key (`lfu-decay-time`). A new key begins with a few, lest it goes before it had a chance.
//!
//! When the policy changes from one meaning to the other, the bits mean nothing until a key is used again, as in Redis.

use crate::base::rng::Rng;
use crate::config::{Config, MaxmemoryPolicy, Ranking};

/// Milliseconds in a tick, as a power of two.
pub(super) const TICK_BITS: u32 = 6;

/// Uses that a new key begins with.
pub(super) const NEW_USES: u8 = 5;

/// Bits of the counter.
pub(super) const COUNTER_BITS: u32 = 8;

/// What is noted of a key that is looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Noting {
    /// When that was.
    #[default]
    Stamp,
    /// That it was once more.
    Count,
    /// Nothing: a change is noted, or the client has asked for that.
    Nothing,
}

/// How uses are noted, as the configuration says.
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
    /// What is noted where nobody asks for something else.
    pub(super) fn noting(&self) -> Noting {
        match self.policy.ranking() {
            Some(Ranking::Frequency) => Noting::Count,
            Some(Ranking::Change) => Noting::Nothing,
            _ => Noting::Stamp,
        }
    }

    /// The counter in `used`, less what it has lost until now.
    pub(super) fn counter(&self, used: u32, now_minutes: u32) -> u8 {
        let passed = now_minutes.wrapping_sub(used >> COUNTER_BITS) & (u32::MAX >> COUNTER_BITS);
        let lost = passed.checked_div(self.decay_minutes).unwrap_or(0);
        (used as u8).saturating_sub(u8::try_from(lost).unwrap_or(u8::MAX))
    }

    /// What `used` becomes by one more use.
    pub(super) fn counted(&self, used: u32, now_minutes: u32, rng: &mut Rng) -> u32 {
        let counter = self.counter(used, now_minutes);
        let above = f64::from(counter.saturating_sub(NEW_USES));
        let grows = counter < u8::MAX && rng.next_f64() * (above * f64::from(self.log_factor) + 1.0) < 1.0;
        now_minutes << COUNTER_BITS | u32::from(counter + u8::from(grows))
    }
}
