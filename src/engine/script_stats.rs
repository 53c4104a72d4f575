//! What is known of the calls of scripts and functions: how many, how long, when the last; and the slowest of them.
//!
//! It is counted by the slot that a program has in the Lua state, so that a call finds its counters by an index. Slots are
//! used again: a serial number tells whose counts they are, so nobody need clear up when a script leaves.

use super::script_slow::SlowCalls;
use crate::base::histogram::Histogram;
use crate::script::Handle;

/// One program's calls.
#[derive(Clone, Debug, Default)]
pub struct CallStats {
    serial: u32,
    /// Calls that have ended.
    pub calls: u64,
    /// Those of them that answered an error.
    pub errors: u64,
    /// When the last one began, Unix ms.
    pub last_ms: i64,
    /// The longest, in ticks of the processor's clock.
    pub max_ticks: u64,
    /// What each took, in ticks.
    pub ticks: Histogram,
}

impl CallStats {
    /// What `percent` percent of the calls took at most, in ticks.
    pub fn percentile_ticks(&self, percent: f64) -> u64 {
        self.ticks.percentile(percent).min(self.max_ticks)
    }
}

/// One call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedCall {
    /// It answered an error.
    pub is_error: bool,
    /// It was ended from outside.
    pub is_killed: bool,
    /// What it took, in ticks of the processor's clock.
    pub ticks: u64,
    /// When it began, Unix ms.
    pub began_ms: i64,
}

/// The calls of all programs. See the module's header.
#[derive(Debug, Default)]
pub struct ScriptStats {
    /// By slot; those that were called.
    programs: Vec<Option<Box<CallStats>>>,
    /// Calls that have ended, also of programs that are gone.
    pub calls: u64,
    /// Those of them that answered an error.
    pub errors: u64,
    /// Those that were ended from outside.
    pub kills: u64,
    /// The slowest.
    pub slow: SlowCalls,
}

impl ScriptStats {
    /// Counts a call of a program.
    #[inline]
    pub fn count(&mut self, program: Handle, call: EndedCall) {
        self.calls += 1;
        self.errors += u64::from(call.is_error);
        self.kills += u64::from(call.is_killed);
        let stats = match self.programs.get_mut(program.slot()) {
            Some(Some(stats)) if stats.serial == program.serial() => stats,
            _ => self.begin(program),
        };
        stats.calls += 1;
        stats.errors += u64::from(call.is_error);
        stats.last_ms = call.began_ms;
        stats.max_ticks = stats.max_ticks.max(call.ticks);
        stats.ticks.add(call.ticks);
    }

    /// The calls of a program; `None` if there was none.
    pub fn of(&self, program: Handle) -> Option<&CallStats> {
        self.programs.get(program.slot())?.as_deref().filter(|stats| stats.serial == program.serial())
    }

    #[cold]
    fn begin(&mut self, program: Handle) -> &mut CallStats {
        let slot = program.slot();
        if self.programs.len() <= slot {
            self.programs.resize(slot + 1, None);
        }
        self.programs[slot].insert(Box::new(CallStats { serial: program.serial(), ..CallStats::default() }))
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&mut self) {
        *self = ScriptStats { slow: std::mem::take(&mut self.slow), ..ScriptStats::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_begins_anew_with_its_next_program() {
        let mut stats = ScriptStats::default();
        let (first, second, other) = (Handle::for_tests(3, 1), Handle::for_tests(3, 2), Handle::for_tests(1, 9));
        let call = EndedCall { is_error: false, is_killed: false, ticks: 1_000, began_ms: 5 };
        stats.count(first, call);
        stats.count(first, EndedCall { is_error: true, is_killed: true, ticks: 5_000, began_ms: 7 });
        let of = stats.of(first).unwrap();
        assert_eq!((of.calls, of.errors, of.last_ms, of.max_ticks), (2, 1, 7, 5_000));
        assert_eq!(of.percentile_ticks(99.0), 5_000, "no more than the longest");
        assert!(stats.of(second).is_none() && stats.of(other).is_none());
        stats.count(second, call);
        assert_eq!((stats.of(first).is_none(), stats.of(second).unwrap().calls), (true, 1));
        assert_eq!((stats.calls, stats.errors, stats.kills), (3, 1, 1));
    }
}
