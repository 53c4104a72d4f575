//! Counters for INFO.

use quanta::Clock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::coordination_stats::CoordinationStats;
use super::turns::Turns;
use crate::base::histogram::Histogram;
use crate::meters::limits::{ERROR_CODE_MAX_BYTES, ERROR_CODES_MAX};
use crate::programs::stats::ScriptStats;
use crate::spec::table::CommandId;

/// One command's counters.
#[derive(Clone, Debug, Default)]
pub struct CommandStats {
    /// Times it ran.
    pub calls: u64,
    /// Time it took, in ticks of the processor's clock; see [`Stats::micros`].
    pub ticks: u64,
    /// Times it was refused before it ran.
    pub rejected: u64,
    /// Times it ran and replied with an error.
    pub failed: u64,
    /// The durations of its counted runs, in ticks.
    pub(crate) latencies: Option<Box<Histogram>>,
}

/// Counters of one thread that receives from clients and sends to them.
#[derive(Debug, Default)]
pub struct IoThreadStats {
    /// Clients that it serves now.
    pub clients: AtomicUsize,
    /// Times it received something.
    pub reads: AtomicU64,
    /// Times it sent something.
    pub writes: AtomicU64,
}

/// The server's counters.
pub struct Stats {
    /// The processor's clock: a few ns to read.
    pub clock: Clock,
    /// By the command's id.
    pub commands: Vec<CommandStats>,
    /// Whether the latencies of commands are counted (`latency-tracking`).
    tracks_latencies: bool,
    /// The latencies counted before that was turned off.
    latencies_before: Vec<Option<Box<Histogram>>>,
    /// By script and function.
    pub scripts: ScriptStats,
    /// Counters of grants and refusals.
    pub coordination: CoordinationStats,
    /// Error replies by their code.
    pub errors: HashMap<String, u64>,
    /// Error replies.
    pub error_replies: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused by `maxclients`.
    pub rejected_connections: u64,
    /// Refusals to users, by [`Reason`](crate::acl::log::Reason).
    pub refusals: [u64; 6],
    /// Bytes read from clients.
    pub bytes_in: u64,
    /// Bytes written to clients.
    pub bytes_out: u64,
    /// The threads that receive and send, the engine's first; empty if the engine's thread does it alone.
    pub io_threads: Vec<Arc<IoThreadStats>>,
    /// Times something was read from a client.
    pub reads: u64,
    /// Times something was written to a client.
    pub writes: u64,
    /// Commands processed.
    pub processed: u64,
    /// Total time of clients' commands, in ticks.
    pub command_ticks: u64,
    /// Time of the periodic work, in ticks.
    pub tick_ticks: u64,
    /// Time that removing expired keys took, in ticks.
    pub expire_ticks: u64,
    /// Times that more keys had expired than are removed in one slice.
    pub expire_more: u64,
    /// Payloads of RESTORE that were checked.
    pub payloads_checked: u64,
    /// Clients closed because they did not read their replies.
    pub output_limit_disconnections: u64,
    /// Clients closed because all together held too much.
    pub evicted_clients: u64,
    /// Clients closed because a command was too large.
    pub query_limit_disconnections: u64,
    /// Since when memory has been over the limit in spite of eviction, by the steady clock, if it is.
    pub over_limit_since_ms: Option<i64>,
    /// How long memory was over the limit before that, ms.
    pub over_limit_ms: i64,
    /// Snapshots whose sending to a replica was begun.
    pub full_syncs: u64,
    /// Messages published.
    pub published: u64,
    /// Commands per second over the last seconds.
    pub ops_per_second: Rate,
    /// Bytes per second read.
    pub in_per_second: Rate,
    /// Bytes per second written.
    pub out_per_second: Rate,
    /// Turns of the event loop per second.
    pub turns_per_second: Rate,
    /// Microseconds of each second that the turns take.
    pub turn_us_per_second: Rate,
}

impl Stats {
    /// All zero, for `commands` commands.
    pub fn new(commands: usize) -> Stats {
        Stats {
            clock: Clock::new(),
            commands: vec![CommandStats::default(); commands],
            tracks_latencies: true,
            latencies_before: Vec::new(),
            scripts: ScriptStats::default(),
            coordination: CoordinationStats::default(),
            errors: HashMap::new(),
            error_replies: 0,
            connections: 0,
            rejected_connections: 0,
            refusals: [0; 6],
            bytes_in: 0,
            bytes_out: 0,
            io_threads: Vec::new(),
            reads: 0,
            writes: 0,
            command_ticks: 0,
            tick_ticks: 0,
            expire_ticks: 0,
            expire_more: 0,
            payloads_checked: 0,
            processed: 0,
            output_limit_disconnections: 0,
            evicted_clients: 0,
            query_limit_disconnections: 0,
            over_limit_since_ms: None,
            over_limit_ms: 0,
            full_syncs: 0,
            published: 0,
            ops_per_second: Rate::default(),
            in_per_second: Rate::default(),
            out_per_second: Rate::default(),
            turns_per_second: Rate::default(),
            turn_us_per_second: Rate::default(),
        }
    }

    /// Ticks as nanoseconds.
    pub fn nanos(&self, ticks: u64) -> u64 {
        self.clock.delta_as_nanos(0, ticks)
    }

    /// Ticks as microseconds.
    pub fn micros(&self, ticks: u64) -> u64 {
        self.nanos(ticks) / 1_000
    }

    /// Counts the first latency of a command, if latencies are counted; later ones find the histogram.
    #[cold]
    pub(crate) fn begin_latencies(&mut self, command: CommandId, ticks: u64) {
        if self.tracks_latencies {
            self.commands[command.index()].latencies.get_or_insert_default().add(ticks);
        }
    }

    /// The durations of a command's runs, in ticks; `None` if none was counted.
    pub fn latencies(&self, command: CommandId) -> Option<&Histogram> {
        let before = self.latencies_before.get(command.index()).and_then(Option::as_deref);
        self.commands[command.index()].latencies.as_deref().or(before)
    }

    /// `latency-tracking`: starts or stops counting latencies. Earlier counts stay and are continued.
    pub fn track_latencies(&mut self, on: bool) {
        if on == self.tracks_latencies {
            return;
        }
        self.tracks_latencies = on;
        if on {
            let before = std::mem::take(&mut self.latencies_before);
            self.commands.iter_mut().zip(before).for_each(|(stats, before)| stats.latencies = before);
        } else {
            // Without histograms to find, calls need not check whether latencies are counted.
            self.latencies_before = self.commands.iter_mut().map(|stats| stats.latencies.take()).collect();
        }
    }

    /// Counts an error reply under its code, the first word. As in Redis, an error without a short code counts as ERR.
    #[cold]
    pub fn count_error(&mut self, text: &[u8]) {
        self.error_replies += 1;
        let code = memchr::memchr(b' ', &text[..text.len().min(ERROR_CODE_MAX_BYTES + 1)]).map(|end| &text[..end]);
        let code: String = code.unwrap_or(b"ERR").iter().map(|byte| plain(*byte)).collect();
        if self.errors.len() >= ERROR_CODES_MAX && !self.errors.contains_key(&code) {
            return;
        }
        *self.errors.entry(code).or_default() += 1;
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&mut self) {
        self.scripts.reset();
        self.coordination.reset();
        let (scripts, coordination) = (std::mem::take(&mut self.scripts), std::mem::take(&mut self.coordination));
        let (tracks_latencies, io_threads) = (self.tracks_latencies, std::mem::take(&mut self.io_threads));
        for thread in &io_threads {
            thread.reads.store(0, Ordering::Relaxed);
            thread.writes.store(0, Ordering::Relaxed);
        }
        *self = Stats {
            clock: self.clock.clone(),
            tracks_latencies,
            scripts,
            coordination,
            io_threads,
            ..Stats::new(self.commands.len())
        };
    }

    /// Counts a read from a client.
    #[inline]
    pub fn received(&mut self, bytes: u64) {
        self.bytes_in += bytes;
        self.reads += 1;
    }

    /// Counts a write to a client.
    #[inline]
    pub fn sent(&mut self, bytes: u64) {
        self.bytes_out += bytes;
        self.writes += 1;
    }

    /// Reads and writes of the engine's thread, then those of the other I/O threads together.
    pub fn reads_and_writes(&self) -> [(u64, u64); 2] {
        let count =
            |thread: &Arc<IoThreadStats>| (thread.reads.load(Ordering::Relaxed), thread.writes.load(Ordering::Relaxed));
        match self.io_threads.split_first() {
            None => [(self.reads, self.writes), (0, 0)],
            Some((own, others)) => {
                let sum = |sum: (u64, u64), (reads, writes)| (sum.0 + reads, sum.1 + writes);
                [count(own), others.iter().map(count).fold((0, 0), sum)]
            }
        }
    }

    /// Takes a sample of the rates, at this time of the steady clock; called at every tick.
    pub fn sample(&mut self, steady_ms: i64, turns: &Turns) {
        self.turns_per_second.sample(steady_ms, turns.count());
        self.turn_us_per_second.sample(steady_ms, turns.sum_us());
        self.ops_per_second.sample(steady_ms, self.processed);
        self.in_per_second.sample(steady_ms, self.bytes_in);
        self.out_per_second.sample(steady_ms, self.bytes_out);
    }
}

/// A rate per second, smoothed over [`Rate::SAMPLES`] samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    samples: [u64; Rate::SAMPLES],
    next: usize,
    last_ms: i64,
    last_count: u64,
}

impl Rate {
    /// The number of samples in the mean.
    pub const SAMPLES: usize = 16;

    fn sample(&mut self, now_ms: i64, count: u64) {
        let elapsed_ms = (now_ms - self.last_ms).max(1) as u64;
        let delta = count.saturating_sub(self.last_count);
        if self.last_ms > 0 {
            self.samples[self.next] = delta * 1_000 / elapsed_ms;
            self.next = (self.next + 1) % Rate::SAMPLES;
        }
        self.last_ms = now_ms;
        self.last_count = count;
    }

    /// The rate per second.
    pub fn per_second(&self) -> u64 {
        self.samples.iter().sum::<u64>() / Rate::SAMPLES as u64
    }
}

/// Replaces a character of an error's code that INFO can't show by an underscore, as Redis does: scripts make codes up,
/// and the lines of INFO have separators of their own.
fn plain(byte: u8) -> char {
    match byte {
        b'#' | b':' | b',' | b'=' => '_',
        b'!'..=b'~' => byte as char,
        _ => '_',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes are those that redis-server 7.0 counts.
    #[test]
    fn only_short_error_codes_are_counted_separately() {
        let mut stats = Stats::new(0);
        let (longest, too_long) = ("y".repeat(ERROR_CODE_MAX_BYTES), "z".repeat(ERROR_CODE_MAX_BYTES + 1));
        for text in ["ERR no", "MYCODE no", "nocode", "", &format!("{longest} no"), &format!("{too_long} no")] {
            stats.count_error(text.as_bytes());
        }
        let mut counted: Vec<_> = stats.errors.iter().map(|(code, count)| (code.as_str(), *count)).collect();
        counted.sort_unstable();
        assert_eq!(counted, [("ERR", 4), ("MYCODE", 1), (&*longest, 1)]);
    }
}
