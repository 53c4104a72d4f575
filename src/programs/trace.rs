//! SCRIPT TRACE: records each command of a script, with its reply, its cost and its effects.
//!
//! While [`Programs::trace`](crate::programs::Programs) is set, the running script is traced: commands are recorded
//! here instead of in the trail of a slow call.

use crate::programs::limits::SCRIPT_TRACE_MAX_BYTES;
use crate::resp::request::{Argv, OwnedArgv};

/// The record of a script's run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The calls, in order.
    pub steps: Vec<Step>,
    /// Calls left out for lack of room.
    pub omitted: u64,
    /// Duration of the whole script, in ticks of the processor's clock.
    pub ticks: u64,
    /// Its changes were rolled back.
    pub rolled_back: bool,
    bytes: usize,
    /// Bytes of the unit's effects covered by the steps so far.
    covered_effects: usize,
}

/// A command that a traced script called.
#[derive(Debug)]
pub(crate) struct Step {
    /// The command.
    pub command: OwnedArgv,
    /// The reply, as a [tape](crate::resp::tape).
    pub reply: Box<[u8]>,
    /// Duration, in ticks of the processor's clock.
    pub ticks: u64,
    /// Its changes, as a stream of [effects](crate::keyspace::effect).
    pub effects: Box<[u8]>,
}

impl Trace {
    /// Records a call. `reply` is a tape; `effects` are those the unit has recorded so far, and only commands add
    /// effects. Returns whether there was room; after the first call without room, effects need not be recorded.
    pub(crate) fn note(&mut self, argv: Argv<'_>, reply: &[u8], ticks: u64, effects: &[u8]) -> bool {
        let fresh = effects.get(self.covered_effects..).unwrap_or_default();
        self.covered_effects = effects.len();
        let bytes = size_of::<Step>() + argv.bytes() + reply.len() + fresh.len();
        if self.omitted > 0 || bytes > SCRIPT_TRACE_MAX_BYTES - self.bytes {
            self.omitted += 1;
            return false;
        }
        self.bytes += bytes;
        let command = OwnedArgv::from_argv(argv);
        self.steps.push(Step { command, reply: reply.into(), ticks, effects: fresh.into() });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_bounded() {
        let mut trace = Trace::default();
        let mut command = OwnedArgv::default();
        command.push(b"GET");
        let reply = vec![0; SCRIPT_TRACE_MAX_BYTES / 2];
        for _ in 0..3 {
            trace.note(command.as_argv(), &reply, 1, b"");
        }
        trace.note(command.as_argv(), b"", 1, b"");
        assert!(!trace.note(command.as_argv(), b"", 1, b""), "later entries find no room either");
        assert_eq!((trace.steps.len(), trace.omitted), (1, 4), "nothing is left out from the middle");
    }

    #[test]
    fn each_effect_belongs_to_one_step() {
        let mut trace = Trace::default();
        for effects in ["ab", "ab", "abc", "a", "ad"] {
            trace.note(Argv::new(&[], &[]), b"", 1, effects.as_bytes());
        }
        let told: Vec<&[u8]> = trace.steps.iter().map(|step| &*step.effects).collect();
        // The missing effects were rolled back inside the script.
        assert_eq!(told, [&b"ab"[..], b"", b"c", b"", b"d"]);
    }
}
