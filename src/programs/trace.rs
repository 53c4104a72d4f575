//! SCRIPT TRACE: what a script does, command by command, each with its reply, its cost and its effects.
//!
//! While [`Programs::trace`](crate::programs::Programs) is there, the script that runs is traced: it is noted here instead of in the trail
//! of a slow call.

use crate::base::limits::SCRIPT_TRACE_MAX_BYTES;
use crate::resp::request::{Argv, OwnedArgv};

/// What a script did.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// What it called, in order.
    pub steps: Vec<Step>,
    /// How many further calls there was no room for.
    pub omitted: u64,
    /// What the whole script took, in ticks of the processor's clock.
    pub ticks: u64,
    /// Its changes were taken back.
    pub rolled_back: bool,
    bytes: usize,
    /// Bytes of the unit's effects that the steps so far account for.
    told_effects: usize,
}

/// A command that a traced script called.
#[derive(Debug)]
pub(crate) struct Step {
    /// What was called.
    pub command: OwnedArgv,
    /// What it answered, as a [tape](crate::resp::tape).
    pub reply: Box<[u8]>,
    /// What it took, in ticks of the processor's clock.
    pub ticks: u64,
    /// What it changed, as a stream of [effects](crate::keyspace::effect).
    pub effects: Box<[u8]>,
}

impl Trace {
    /// Notes a call. `reply` is a tape, `effects` what the unit has recorded up to now: nothing but commands changes keys.
    /// Answers whether there was room for it; effects need not be recorded once there was none.
    pub(crate) fn note(&mut self, argv: Argv<'_>, reply: &[u8], ticks: u64, effects: &[u8]) -> bool {
        let fresh = effects.get(self.told_effects..).unwrap_or_default();
        self.told_effects = effects.len();
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
        assert!(!trace.note(command.as_argv(), b"", 1, b""), "nor is there room for what comes later");
        assert_eq!((trace.steps.len(), trace.omitted), (1, 4), "nothing is left out from the middle");
    }

    #[test]
    fn each_effect_belongs_to_one_step() {
        let mut trace = Trace::default();
        for effects in ["ab", "ab", "abc", "a", "ad"] {
            trace.note(Argv::new(&[], &[]), b"", 1, effects.as_bytes());
        }
        let told: Vec<&[u8]> = trace.steps.iter().map(|step| &*step.effects).collect();
        // What was cut off was taken back inside the script.
        assert_eq!(told, [&b"ab"[..], b"", b"c", b"", b"d"]);
    }
}
