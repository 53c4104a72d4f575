//! SCRIPT SLOW: the slowest calls of scripts and functions, each with the trail of commands that it ran.
//!
//! It keeps the slowest calls instead of the latest, so that a bad minute at night is still there in the morning. Most
//! calls are fast and must not pay for the slow ones. A trail therefore begins once a call has taken a tenth of
//! `script-slow-threshold`, and the commands it misses took less than that in total. When a trail is full, the slowest
//! commands stay.
//!
//! The time of a command begins where the previous command ended. This saves a clock reading but includes the Lua code
//! in between, and a slow loop would be blamed on the GET that follows it. The clock is therefore also read before a
//! command that is not flagged as fast, and before every command once the trail has begun. The cost stays unknown only
//! for a fast command that starts the trail.

use quanta::Clock;

use crate::base::ticks::ticks_of_micros;
use crate::config::Config;
use crate::programs::limits::{
    COMMAND_LOG_MAX_ARG_BYTES, COMMAND_LOG_MAX_ARGS, SCRIPT_TRAIL_MAX_ARG_BYTES, SCRIPT_TRAIL_MAX_ARGS,
    SCRIPT_TRAIL_MAX_STEPS,
};
use crate::resp::request::{Argv, OwnedArgv, abridge};

/// The share of `script-slow-threshold` after which a trail begins.
const TRAIL_SHARE: u64 = 10;

/// A slow call.
#[derive(Debug)]
pub struct SlowCall {
    /// Sequence number among the calls kept since the server started.
    pub id: u64,
    /// When it began, Unix ms.
    pub began_ms: i64,
    /// Duration, in ticks of the processor's clock.
    pub ticks: u64,
    /// The script's SHA1 or the function's name.
    pub name: Box<[u8]>,
    /// The client's command, abridged.
    pub command: OwnedArgv,
    /// The client's address, and its name, abridged.
    pub client: (Box<str>, Box<[u8]>),
    /// The commands that it ran.
    pub trail: Trail,
}

/// The commands of a call since it began to look slow.
#[derive(Debug, Default)]
pub struct Trail {
    /// In execution order.
    pub steps: Vec<Step>,
    /// Commands left out, each faster than those kept.
    pub omitted: u64,
}

/// A command of a trail. Times are ticks of the processor's clock.
#[derive(Debug)]
pub struct Step {
    /// Time since the script began, taken when the command began, or when the previous one ended if its duration is
    /// unknown.
    pub at_ticks: u64,
    /// Duration, if known.
    pub ticks: Option<u64>,
    /// The command, abridged.
    pub command: OwnedArgv,
}

impl Trail {
    fn mem_bytes(&self) -> usize {
        let commands: usize = self.steps.iter().map(|step| step.command.bytes()).sum();
        self.steps.capacity() * size_of::<Step>() + commands
    }

    fn note(&mut self, argv: Argv<'_>, at_ticks: u64, ticks: Option<u64>) {
        let duration = |ticks: Option<u64>| ticks.unwrap_or(u64::MAX);
        if self.steps.len() == SCRIPT_TRAIL_MAX_STEPS {
            self.omitted += 1;
            let steps = self.steps.iter().map(|step| duration(step.ticks)).enumerate();
            let (fastest, least) = steps.min_by_key(|(_, ticks)| *ticks).expect("it is full");
            if least >= duration(ticks) {
                return;
            }
            self.steps.remove(fastest);
        }
        let command = OwnedArgv::abridged(argv, SCRIPT_TRAIL_MAX_ARGS, SCRIPT_TRAIL_MAX_ARG_BYTES);
        self.steps.push(Step { at_ticks, ticks, command });
    }
}

/// The slowest calls. See the module's header.
#[derive(Debug)]
pub struct SlowCalls {
    /// Slowest first.
    calls: Vec<SlowCall>,
    /// The trail of the running call.
    trail: Trail,
    /// Maximum number of calls kept.
    max_len: usize,
    /// Minimum duration of a call that is kept.
    threshold_ticks: u64,
    /// Running time after which a call's trail begins.
    pub(crate) trail_after_ticks: u64,
    next_id: u64,
}

impl Default for SlowCalls {
    /// Returns a list that keeps nothing.
    fn default() -> SlowCalls {
        let never = u64::MAX;
        let (calls, trail) = (Vec::new(), Trail::default());
        SlowCalls { calls, trail, max_len: 0, threshold_ticks: never, trail_after_ticks: never, next_id: 0 }
    }
}

impl SlowCalls {
    /// Returns the bytes that the calls hold.
    pub(crate) fn mem_bytes(&self) -> usize {
        let texts =
            |call: &SlowCall| call.name.len() + call.command.bytes() + call.client.0.len() + call.client.1.len();
        let beside: usize = self.calls.iter().map(|call| texts(call) + call.trail.mem_bytes()).sum();
        self.calls.capacity() * size_of::<SlowCall>() + beside + self.trail.mem_bytes()
    }

    /// Applies `script-slow-threshold` and `script-slow-max-len`.
    pub fn configure(&mut self, config: &Config, clock: &Clock) {
        self.max_len = config.script_slow_max_len;
        self.calls.truncate(self.max_len);
        self.calls.shrink_to_fit();
        let threshold_us = u64::try_from(config.script_slow_threshold_us).ok().filter(|_| self.max_len > 0);
        self.threshold_ticks = threshold_us.map_or(u64::MAX, |us| ticks_of_micros(clock, us));
        self.trail_after_ticks = threshold_us.map_or(u64::MAX, |_| self.threshold_ticks / TRAIL_SHARE);
    }

    /// Iterates over the calls, slowest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SlowCall> {
        self.calls.iter()
    }

    /// Returns the number of calls kept.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns whether no calls are kept.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Drops all calls and frees their memory.
    pub fn clear(&mut self) {
        self.calls = Vec::new();
    }

    /// Records a command of the running call, which may become slow.
    #[cold]
    pub(crate) fn note_step(&mut self, argv: Argv<'_>, at_ticks: u64, ticks: Option<u64>) {
        self.trail.note(argv, at_ticks, ticks);
    }

    /// Records the end, after `ticks`, of a call that has a trail. `describe` supplies the name, the command, and the
    /// client's address and name if the call is kept.
    #[cold]
    pub(crate) fn end<'a>(
        &mut self,
        ticks: u64,
        began_ms: i64,
        describe: impl FnOnce() -> (&'a [u8], Argv<'a>, (Box<str>, Box<[u8]>)),
    ) {
        let trail = std::mem::take(&mut self.trail);
        let place = self.calls.partition_point(|call| call.ticks >= ticks);
        if ticks < self.threshold_ticks || place >= self.max_len {
            return;
        }
        let (name, command, (address, of_client)) = describe();
        let client = (address, abridge(&of_client, COMMAND_LOG_MAX_ARG_BYTES).into());
        let command = OwnedArgv::abridged(command, COMMAND_LOG_MAX_ARGS, COMMAND_LOG_MAX_ARG_BYTES);
        self.calls.truncate(self.max_len - 1);
        let id = self.next_id;
        self.next_id += 1;
        self.calls.insert(place, SlowCall { id, began_ms, ticks, name: name.into(), command, client, trail });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::os::allocated::{apart, apart_bytes};

    fn argv(words: &[&str]) -> OwnedArgv {
        let mut owned = OwnedArgv::default();
        words.iter().for_each(|word| owned.push(word.as_bytes()));
        owned
    }

    fn slow(threshold_us: i64, max_len: usize) -> SlowCalls {
        let mut slow = SlowCalls::default();
        let config =
            Config { script_slow_threshold_us: threshold_us, script_slow_max_len: max_len, ..Config::default() };
        slow.configure(&config, &Clock::new());
        slow
    }

    fn end(slow: &mut SlowCalls, ticks: u64) {
        let command = argv(&["EVAL", "return 1", "0"]);
        slow.end(ticks, 0, || (b"name", command.as_argv(), Default::default()));
    }

    #[test]
    fn the_slowest_calls_stay() {
        let mut slow = slow(0, 3);
        for ticks in [5, 9, 1, 7, 3, 9] {
            end(&mut slow, ticks);
        }
        let kept = |slow: &SlowCalls| slow.iter().map(|call| (call.ticks, call.id)).collect::<Vec<_>>();
        assert_eq!(kept(&slow), [(9, 1), (9, 4), (7, 3)], "of equal ones the older first");
        let config = Config { script_slow_max_len: 1, ..Config::default() };
        slow.configure(&config, &Clock::new());
        assert_eq!(kept(&slow), [(9, 1)]);
        slow.clear();
        assert!(slow.is_empty());
    }

    #[test]
    fn the_counted_memory_equals_the_memory_held_and_is_given_back() {
        let (step, mut clock_is_set) = (argv(&["GET", "a", "b"]), slow(0, 100));
        end(&mut clock_is_set, 1);
        apart(|| {
            let mut slow = slow(0, 100);
            let before = apart_bytes();
            for ticks in 0..65 {
                (0..5).for_each(|at| slow.note_step(step.as_argv(), at, Some(at)));
                end(&mut slow, ticks);
            }
            // A step of the running call.
            slow.note_step(step.as_argv(), 1, Some(1));
            assert_eq!(slow.mem_bytes() as isize, apart_bytes() - before);
            let config = Config { script_slow_max_len: 1, ..Config::default() };
            slow.configure(&config, &Clock::new());
            drop(config);
            assert_eq!(slow.mem_bytes() as isize, apart_bytes() - before);
            assert!(slow.mem_bytes() < 9 * size_of::<SlowCall>(), "{}", slow.mem_bytes());
            end(&mut slow, 1);
            slow.clear();
            assert_eq!((slow.mem_bytes() as isize, apart_bytes() - before), (0, 0));
        });
    }

    #[test]
    fn thresholds_are_in_microseconds() {
        let clock = Clock::new();
        let mut slow = slow(1_000, 3);
        assert!((999..=1_001).contains(&(clock.delta_as_nanos(0, slow.threshold_ticks) / 1_000)));
        assert_eq!(slow.trail_after_ticks, slow.threshold_ticks / TRAIL_SHARE);
        let least = slow.threshold_ticks;
        end(&mut slow, least - 1);
        assert_eq!(slow.len(), 0);
        end(&mut slow, least);
        assert_eq!(slow.len(), 1);
        for off in [self::slow(-1, 3), self::slow(0, 0)] {
            assert_eq!((off.threshold_ticks, off.trail_after_ticks), (u64::MAX, u64::MAX));
        }
    }

    #[test]
    fn a_trail_keeps_the_slowest_commands_in_order() {
        let mut slow = slow(0, 1);
        let most = SCRIPT_TRAIL_MAX_STEPS as u64;
        for i in 0..most + 8 {
            slow.note_step(
                argv(&["GET", &"k".repeat(100), "a", "b", "c", "d", "e"]).as_argv(),
                i,
                (i != 9).then_some(100 + i),
            );
        }
        slow.note_step(argv(&["PING"]).as_argv(), 1_000, Some(1));
        end(&mut slow, 10);
        let trail = &slow.iter().next().unwrap().trail;
        let at: Vec<u64> = trail.steps.iter().map(|step| step.at_ticks).collect();
        assert_eq!((at, trail.omitted), ((8..most + 8).collect(), 9));
        let first = trail.steps[0].command.as_argv();
        let abridged = format!("{}... (36 more bytes)", "k".repeat(64));
        assert_eq!(
            first.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>(),
            ["GET", &abridged, "a", "b", "c", "... (2 more arguments)"]
        );
        assert!(slow.trail.steps.is_empty(), "the next call has its own");
    }

    #[test]
    fn a_long_client_name_is_kept_abridged() {
        let mut slow = slow(0, 4);
        let command = argv(&["FCALL", "f", "0"]);
        slow.end(u64::MAX, 0, || (b"f", command.as_argv(), ("".into(), vec![b'n'; 1_000_000].into())));
        let kept: Vec<usize> = slow.iter().map(|call| call.client.1.len()).collect();
        assert!(kept.len() == 1 && kept[0] < 2 * COMMAND_LOG_MAX_ARG_BYTES, "{kept:?}");
    }
}
