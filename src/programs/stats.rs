//! Statistics of the calls of scripts and functions: counts, durations, the time of the last call, and the slowest
//! calls.
//!
//! Counters are indexed by the program's slot in the Lua state, so that a call finds them by an index. Slots are
//! reused. A serial number tells which program the counters belong to, so removing a program costs nothing here.
//! Counters of removed programs are dropped now and then ([`ScriptStats::forget_gone`]).

use super::slow::SlowCalls;
use crate::base::histogram::Histogram;
use crate::script::Handle;

/// One program's calls.
#[derive(Clone, Debug, Default)]
pub struct CallStats {
    serial: u32,
    /// Finished calls.
    pub calls: u64,
    /// Finished calls that returned an error.
    pub errors: u64,
    /// When the last call began, Unix ms.
    pub last_ms: i64,
    /// Longest duration, in ticks of the processor's clock.
    pub max_ticks: u64,
    /// Distribution of durations, in ticks.
    pub ticks: Histogram,
}

impl CallStats {
    /// Returns the duration within which `percent` percent of the calls finished, in ticks.
    pub fn percentile_ticks(&self, percent: f64) -> u64 {
        self.ticks.percentile(percent).min(self.max_ticks)
    }
}

/// The calls of all programs. See the module's header.
#[derive(Debug, Default)]
pub struct ScriptStats {
    /// Counters of called programs, by slot.
    programs: Vec<Option<Box<CallStats>>>,
    /// Number of slots in use.
    held: usize,
    /// Calls of removed programs, and errors among them.
    gone: (u64, u64),
    /// Calls killed from outside.
    pub kills: u64,
    /// Calls rolled back because they failed or were killed.
    pub rollbacks: u64,
    /// The slowest calls.
    pub slow: SlowCalls,
}

impl ScriptStats {
    /// Counts a call with its duration in ticks of the processor's clock; it began at `began_ms`, Unix ms.
    #[inline]
    pub fn count(&mut self, program: Handle, ticks: u64, began_ms: i64) {
        let stats = self.entry(program);
        stats.calls += 1;
        stats.last_ms = began_ms;
        stats.max_ticks = stats.max_ticks.max(ticks);
        stats.ticks.add(ticks);
    }

    /// Counts the error of a call that is itself counted, whether it was killed, and whether it was rolled back.
    #[cold]
    pub fn count_error(&mut self, program: Handle, is_killed: bool, is_rolled_back: bool) {
        self.entry(program).errors += 1;
        self.kills += u64::from(is_killed);
        self.rollbacks += u64::from(is_rolled_back);
    }

    /// Returns the finished calls and the errors among them, including those of removed programs.
    pub fn totals(&self) -> (u64, u64) {
        let programs = self.programs.iter().flatten();
        programs.fold(self.gone, |(calls, errors), stats| (calls + stats.calls, errors + stats.errors))
    }

    #[inline]
    fn entry(&mut self, program: Handle) -> &mut CallStats {
        let slot = program.slot();
        match self.programs.get(slot) {
            Some(Some(stats)) if stats.serial == program.serial() => {}
            _ => self.begin(program),
        }
        self.programs[slot].as_mut().expect("it is there by now")
    }

    /// Returns the statistics of a program; `None` if it was never called.
    pub fn of(&self, program: Handle) -> Option<&CallStats> {
        self.programs.get(program.slot())?.as_deref().filter(|stats| stats.serial == program.serial())
    }

    #[cold]
    fn begin(&mut self, program: Handle) {
        let slot = program.slot();
        if self.programs.len() <= slot {
            self.programs.resize(slot + 1, None);
        }
        let fresh = Box::new(CallStats { serial: program.serial(), ..CallStats::default() });
        match self.programs[slot].replace(fresh) {
            Some(old) => self.add_to_gone(&old),
            None => self.held += 1,
        }
    }

    /// Drops the counters of removed programs if counters are held for more programs than exist. `programs` yields the
    /// `count` existing programs.
    pub fn forget_gone(&mut self, count: usize, programs: impl Iterator<Item = Handle>) {
        if self.held <= count {
            return;
        }
        let mut old = std::mem::take(&mut self.programs);
        self.held = 0;
        for program in programs {
            let slot = program.slot();
            let stats = old.get_mut(slot).and_then(|stats| stats.take_if(|stats| stats.serial == program.serial()));
            if stats.is_some() {
                if self.programs.len() <= slot {
                    self.programs.resize(slot + 1, None);
                }
                self.programs[slot] = stats;
                self.held += 1;
            }
        }
        old.iter().flatten().for_each(|stats| self.add_to_gone(stats));
    }

    fn add_to_gone(&mut self, stats: &CallStats) {
        self.gone = (self.gone.0 + stats.calls, self.gone.1 + stats.errors);
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
    fn a_slot_starts_from_zero_with_its_next_program() {
        let mut stats = ScriptStats::default();
        let (first, second, other) = (Handle::for_tests(3, 1), Handle::for_tests(3, 2), Handle::for_tests(1, 9));
        stats.count(first, 1_000, 5);
        stats.count_error(first, true, false);
        stats.count(first, 5_000, 7);
        let of = stats.of(first).unwrap();
        assert_eq!((of.calls, of.errors, of.last_ms, of.max_ticks), (2, 1, 7, 5_000));
        assert_eq!(of.percentile_ticks(99.0), 5_000, "no more than the longest");
        assert!(stats.of(second).is_none() && stats.of(other).is_none());
        stats.count(second, 1_000, 9);
        assert_eq!((stats.of(first).is_none(), stats.of(second).unwrap().calls), (true, 1));
        assert_eq!(
            (stats.totals(), stats.kills, stats.rollbacks),
            ((3, 1), 1, 0),
            "the totals include programs that are gone"
        );
        stats.reset();
        assert_eq!((stats.totals(), stats.of(second).is_none()), ((0, 0), true));
    }

    #[test]
    fn statistics_of_gone_programs_are_bounded_by_the_number_of_programs() {
        let mut stats = ScriptStats::default();
        let programs = [5, 900, 7].map(|slot| Handle::for_tests(slot, 1));
        programs.iter().for_each(|&program| stats.count(program, 1_000, 5));
        stats.forget_gone(3, programs[..1].iter().copied());
        assert!(programs.iter().all(|&program| stats.of(program).is_some()), "each program has statistics");
        let left = [Handle::for_tests(5, 1), Handle::for_tests(7, 2)];
        stats.forget_gone(left.len(), left.into_iter());
        assert_eq!(programs.map(|program| stats.of(program).map(|of| of.calls)), [Some(1), None, None]);
        assert_eq!((stats.totals(), stats.held, stats.programs.len()), ((3, 0), 1, 6));
    }
}
