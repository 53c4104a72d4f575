//! The commands that stood out lately because they took long, or because their request or reply was large. SLOWLOG and
//! COMMANDLOG show them.
//!
//! A command that does not stand out costs three comparisons, which also serve to [look at every
//! command](CommandLog::attend_to_all) if needed. Recorded commands are kept abridged and without passwords.

use std::collections::VecDeque;

use quanta::Clock;

use crate::base::ticks::ticks_of_micros;
use crate::config::Config;
use crate::programs::limits::COMMAND_LOG_MAX_ARG_BYTES;
use crate::resp::request::{Argv, OwnedArgv, abridge};

/// How a command stood out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// It took long.
    Slow,
    /// Its request was large.
    LargeRequest,
    /// Its reply was large.
    LargeReply,
}

/// A command that stood out.
#[derive(Debug)]
pub struct Noted {
    /// Serial number among the records of its log since the server started.
    pub id: u64,
    /// When it ended, Unix s.
    pub at_s: i64,
    /// Microseconds that it took, or bytes of the request or reply.
    pub amount: u64,
    /// The command, abridged.
    pub command: OwnedArgv,
    /// The client's address.
    pub address: Box<str>,
    /// The client's name, abridged.
    pub name: Box<[u8]>,
}

/// The commands that stood out in one respect.
#[derive(Debug, Default)]
pub struct Log {
    /// The newest first.
    notes: VecDeque<Noted>,
    next_id: u64,
    max_len: usize,
}

impl Log {
    /// The recorded commands, the newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Noted> {
        self.notes.iter()
    }

    /// Returns the number of recorded commands.
    pub fn len(&self) -> usize {
        self.notes.len()
    }

    /// Whether no command is recorded.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Forgets all recorded commands.
    pub fn clear(&mut self) {
        self.notes = VecDeque::new();
    }

    fn mem_bytes(&self) -> usize {
        let texts = |noted: &Noted| noted.command.bytes() + noted.address.len() + noted.name.len();
        self.notes.capacity() * size_of::<Noted>() + self.notes.iter().map(texts).sum::<usize>()
    }

    fn push(&mut self, note: impl FnOnce(u64) -> Noted) {
        self.notes.truncate(self.max_len.saturating_sub(1));
        self.notes.push_front(note(self.next_id));
        self.next_id += 1;
    }
}

/// The logs, and the thresholds from which a command stands out.
#[derive(Debug)]
pub struct CommandLog {
    least_ticks: u64,
    /// Duration in ticks from which a command is slow, for the log of slow commands or for the latency monitor.
    attention_ticks: u64,
    /// Whether every command must be looked at.
    attends_to_all: bool,
    least_request_bytes: usize,
    least_reply_bytes: usize,
    slow: Log,
    large_requests: Log,
    large_replies: Log,
}

impl CommandLog {
    /// Bytes that the logs hold.
    pub(crate) fn mem_bytes(&self) -> usize {
        [&self.slow, &self.large_requests, &self.large_replies].map(Log::mem_bytes).iter().sum()
    }

    /// Empty logs, under this configuration.
    pub(crate) fn new(config: &Config, clock: &Clock) -> CommandLog {
        let mut log = CommandLog {
            least_ticks: 0,
            attention_ticks: 0,
            attends_to_all: false,
            least_request_bytes: 0,
            least_reply_bytes: 0,
            slow: Log::default(),
            large_requests: Log::default(),
            large_replies: Log::default(),
        };
        log.configure(config, clock);
        log
    }

    /// Applies the parameters. A log that became shorter drops its excess when something is added to it.
    pub fn configure(&mut self, config: &Config, clock: &Clock) {
        self.slow.max_len = config.slowlog_max_len;
        self.large_requests.max_len = config.commandlog_large_request_max_len;
        self.large_replies.max_len = config.commandlog_large_reply_max_len;
        // A negative threshold lets nothing stand out, nor does a log that keeps nothing.
        let least = |least: i64, log: &Log| u64::try_from(least).ok().filter(|_| log.max_len > 0);
        self.least_ticks = least(config.slowlog_log_slower_than_us, &self.slow)
            .map_or(u64::MAX, |micros| ticks_of_micros(clock, micros));
        let monitored = config.latency_monitor_threshold_ms.saturating_mul(1_000);
        let monitored = if monitored == 0 { u64::MAX } else { ticks_of_micros(clock, monitored) };
        self.attention_ticks = if self.attends_to_all { 0 } else { self.least_ticks.min(monitored) };
        let bytes = |bytes: Option<u64>| bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
        self.least_request_bytes = bytes(least(config.commandlog_request_larger_than_bytes, &self.large_requests));
        self.least_reply_bytes = bytes(least(config.commandlog_reply_larger_than_bytes, &self.large_replies));
    }

    /// Makes every command [stand out potentially](Self::may_stand_out) from now on, or ends that. Records do not
    /// change.
    pub(crate) fn attend_to_all(&mut self, is_wanted: bool, config: &Config, clock: &Clock) {
        self.attends_to_all = is_wanted;
        self.configure(config, clock);
    }

    /// The log of one trait.
    pub fn of(&self, what: Trait) -> &Log {
        match what {
            Trait::Slow => &self.slow,
            Trait::LargeRequest => &self.large_requests,
            Trait::LargeReply => &self.large_replies,
        }
    }

    /// Returns the log of one trait, to be cleared.
    pub fn of_mut(&mut self, what: Trait) -> &mut Log {
        match what {
            Trait::Slow => &mut self.slow,
            Trait::LargeRequest => &mut self.large_requests,
            Trait::LargeReply => &mut self.large_replies,
        }
    }

    /// Whether a command may stand out. Also true for a few that do not, since the exact length of a request takes time
    /// to compute.
    #[inline]
    pub(crate) fn may_stand_out(&self, ticks: u64, argv: Argv<'_>, reply_bytes: usize) -> bool {
        ticks >= self.attention_ticks
            || reply_bytes >= self.least_reply_bytes
            || argv.may_take(self.least_request_bytes)
    }

    /// Records a command that [may stand out](Self::may_stand_out) in each log whose threshold it reaches. `by` holds
    /// the client's address and name; `abridged` makes the version to keep.
    pub(crate) fn note(
        &mut self,
        argv: Argv<'_>,
        ended: Ended,
        (address, name): (&str, &[u8]),
        abridged: impl Fn() -> OwnedArgv,
    ) {
        let request_bytes = argv.encoded_bytes();
        let Ended { at_s, ticks, micros, reply_bytes } = ended;
        for (what, stands_out, amount) in [
            (Trait::Slow, ticks >= self.least_ticks, micros),
            (Trait::LargeRequest, request_bytes >= self.least_request_bytes, request_bytes as u64),
            (Trait::LargeReply, reply_bytes >= self.least_reply_bytes, reply_bytes as u64),
        ] {
            if stands_out {
                let name = abridge(name, COMMAND_LOG_MAX_ARG_BYTES).into();
                let (command, address) = (abridged(), address.into());
                self.of_mut(what).push(|id| Noted { id, at_s, amount, command, address, name });
            }
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    /// When it ended, Unix s.
    pub(crate) at_s: i64,
    /// How long it took, in ticks of the processor's clock.
    pub(crate) ticks: u64,
    /// How long it took, us.
    pub(crate) micros: u64,
    /// The length of its reply.
    pub(crate) reply_bytes: usize,
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

    #[test]
    fn the_counted_memory_equals_the_memory_held() {
        let (clock, command) = (Clock::new(), argv(&["SET", "a", "b"]));
        let config = Config { slowlog_log_slower_than_us: 0, slowlog_max_len: 100, ..Config::default() };
        apart(|| {
            let mut log = CommandLog::new(&config, &clock);
            for ticks in 0..65 {
                let ended = Ended { at_s: 7, ticks, micros: 0, reply_bytes: 0 };
                log.note(command.as_argv(), ended, ("127.0.0.1:1", b"ann"), || {
                    OwnedArgv::abridged(command.as_argv(), 2, 100)
                });
            }
            assert_eq!((log.of(Trait::Slow).len(), log.mem_bytes() as isize), (65, apart_bytes()));
        });
    }

    #[test]
    fn each_log_keeps_its_own_newest_entries() {
        let clock = Clock::new();
        let mut config = Config {
            slowlog_log_slower_than_us: 1_000,
            slowlog_max_len: 2,
            commandlog_request_larger_than_bytes: 31,
            commandlog_reply_larger_than_bytes: -1,
            ..Config::default()
        };
        let mut log = CommandLog::new(&config, &clock);
        let (long, get) = (ticks_of_micros(&clock, 1_000), argv(&["GET", "0123456789"]));
        let ended = |log: &mut CommandLog, ticks, reply_bytes| {
            let micros = clock.delta_as_nanos(0, ticks) / 1_000;
            let by = ("127.0.0.1:1", b"ann".as_slice());
            log.note(get.as_argv(), Ended { at_s: 7, ticks, micros, reply_bytes }, by, || {
                OwnedArgv::from_argv(get.as_argv())
            });
        };
        assert!(log.may_stand_out(long, get.as_argv(), 0) && !get.as_argv().may_take(1 << 20));
        ended(&mut log, long - 1, usize::MAX - 1);
        assert!(log.of(Trait::Slow).is_empty() && log.of(Trait::LargeReply).is_empty());
        (0..3).for_each(|more| ended(&mut log, long + more, 0));
        let ids = |what, log: &CommandLog| log.of(what).iter().map(|noted| noted.id).collect::<Vec<_>>();
        assert_eq!(ids(Trait::Slow, &log), [2, 1]);
        // "*2", "$3", "GET", "$10", and ten bytes, each with its line end.
        assert_eq!(get.as_argv().encoded_bytes(), 4 + 4 + 5 + 5 + 12);
        assert_eq!(log.of(Trait::LargeRequest).len(), 0, "a request of 30 bytes does not exceed 30");
        config.commandlog_request_larger_than_bytes = 30;
        config.slowlog_max_len = 0;
        log.configure(&config, &clock);
        ended(&mut log, long, 0);
        let noted = log.of(Trait::LargeRequest).iter().next().expect("it is large enough now");
        assert_eq!(
            (noted.id, noted.at_s, noted.amount, &*noted.address, &*noted.name),
            (0, 7, 30, "127.0.0.1:1", b"ann".as_slice())
        );
        assert_eq!(
            ids(Trait::Slow, &log),
            [2, 1],
            "a log of no length notes nothing, and keeps what it has until it is cleared"
        );
        log.of_mut(Trait::Slow).clear();
        config.slowlog_max_len = 1;
        log.configure(&config, &clock);
        ended(&mut log, long, 0);
        assert_eq!(ids(Trait::Slow, &log), [3], "numbers go on");
    }
}
