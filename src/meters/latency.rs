//! Recent events that held clients up, with their durations: the samples that LATENCY shows.
//!
//! An event is a kind of work during which no other client is served, or for which replies wait: a command, a slice of
//! expiry, a write or a sync of the journal. An event that takes `latency-monitor-threshold` or longer leaves a sample;
//! of the samples in one second the longest stays. This needs no extra measurements: commands are timed anyway (one
//! check serves this threshold and the slow log's, see [`CommandLog`](super::command_log::CommandLog)), and the rest
//! happens a few times a second.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::meters::limits::LATENCY_SAMPLES_MAX;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command that is not declared to be fast.
    Command,
    /// A command that is declared to be fast.
    FastCommand,
    /// A command that waited, when it was dispatched again.
    CommandUnblocking,
    /// A slice of removing expired keys.
    ExpireCycle,
    /// Writing the journal.
    LogWrite,
    /// Syncing the journal while replies wait for it.
    LogSyncAlways,
    /// Syncing the journal otherwise.
    LogSync,
}

impl Event {
    /// All events.
    pub const ALL: [Event; 7] = [
        Event::Command,
        Event::FastCommand,
        Event::CommandUnblocking,
        Event::ExpireCycle,
        Event::LogWrite,
        Event::LogSyncAlways,
        Event::LogSync,
    ];

    /// Its name: Redis', where Redis has the event.
    pub fn name(self) -> &'static str {
        match self {
            Event::Command => "command",
            Event::FastCommand => "fast-command",
            Event::CommandUnblocking => "command-unblocking",
            Event::ExpireCycle => "expire-cycle",
            Event::LogWrite => "aof-write",
            Event::LogSyncAlways => "aof-fsync-always",
            Event::LogSync => "aof-fsync",
        }
    }
}

/// One second in which an event was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Unix s.
    pub at_s: i64,
    /// How long the longest event took, ms.
    pub took_ms: u64,
}

/// The samples of one event.
#[derive(Debug, Default)]
pub struct Series {
    samples: VecDeque<Sample>,
    /// The longest since the server started, or since LATENCY RESET, ms.
    pub max_ms: u64,
}

impl Series {
    /// The samples that are kept, from the oldest on.
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = &Sample> + ExactSizeIterator {
        self.samples.iter()
    }

    fn add(&mut self, sample: Sample) {
        self.max_ms = self.max_ms.max(sample.took_ms);
        match self.samples.back_mut() {
            Some(last) if last.at_s == sample.at_s => last.took_ms = last.took_ms.max(sample.took_ms),
            _ => {
                if self.samples.len() == LATENCY_SAMPLES_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back(sample);
            }
        }
    }
}

/// The samples of all events. See the module's header.
#[derive(Debug, Default)]
pub struct LatencyMonitor {
    threshold_ms: u64,
    series: [Series; Event::ALL.len()],
}

impl LatencyMonitor {
    /// Applies `latency-monitor-threshold`; 0 stops the monitor and keeps its samples.
    pub fn set_threshold_ms(&mut self, threshold_ms: u64) {
        self.threshold_ms = threshold_ms;
    }

    /// Records an event if it took long enough.
    #[inline]
    pub(crate) fn note(&mut self, event: Event, took: Duration, clock: &Clock) {
        let took_ms = took.as_millis() as u64;
        if self.threshold_ms > 0 && took_ms >= self.threshold_ms {
            self.series[event as usize].add(Sample { at_s: clock.now_ms() / 1_000, took_ms });
        }
    }

    /// Bytes that the samples take.
    pub(crate) fn mem_bytes(&self) -> usize {
        self.series.iter().map(|series| series.samples.capacity() * size_of::<Sample>()).sum()
    }

    /// The events that have samples.
    pub fn seen(&self) -> impl Iterator<Item = (Event, &Series)> {
        Event::ALL.into_iter().zip(&self.series).filter(|(_, series)| !series.samples.is_empty())
    }

    /// The samples of the event of this name, if there are any.
    pub fn named(&self, name: &[u8]) -> Option<(Event, &Series)> {
        self.seen().find(|(event, _)| event.name().as_bytes() == name)
    }

    /// Forgets the samples of the events whose names `wanted` accepts. Returns how many of these events had samples.
    pub fn reset(&mut self, wanted: impl Fn(&str) -> bool) -> usize {
        let all = Event::ALL.into_iter().zip(&mut self.series);
        let forgotten = all.filter(|(event, series)| !series.samples.is_empty() && wanted(event.name()));
        forgotten.map(|(_, series)| *series = Series::default()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::os::allocated::{apart, apart_bytes};

    #[test]
    fn the_counted_memory_equals_the_memory_held_until_a_reset() {
        apart(|| {
            let mut monitor = LatencyMonitor::default();
            (0..65).for_each(|at_s| monitor.series[1].add(Sample { at_s, took_ms: 1 }));
            assert!(apart_bytes() >= 65 * size_of::<Sample>() as isize);
            assert_eq!(monitor.mem_bytes() as isize, apart_bytes());
            monitor.reset(|_| true);
            assert_eq!((monitor.mem_bytes(), apart_bytes()), (0, 0));
        });
    }

    #[test]
    fn each_second_has_one_sample_and_the_oldest_are_dropped() {
        let mut series = Series::default();
        for (at_s, took_ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            series.add(Sample { at_s, took_ms });
        }
        let all = |series: &Series| series.samples().map(|sample| (sample.at_s, sample.took_ms)).collect::<Vec<_>>();
        assert_eq!((all(&series), series.max_ms), (vec![(1, 9), (2, 3)], 9));
        (3..=LATENCY_SAMPLES_MAX as i64 + 1).for_each(|at_s| series.add(Sample { at_s, took_ms: 1 }));
        assert_eq!((series.samples().len(), all(&series)[0], series.max_ms), (LATENCY_SAMPLES_MAX, (2, 3), 9));
    }

    #[test]
    fn events_are_distinguished_by_their_position() {
        assert!(Event::ALL.iter().enumerate().all(|(place, event)| *event as usize == place));
        let mut monitor = LatencyMonitor::default();
        monitor.series[Event::ExpireCycle as usize].add(Sample { at_s: 1, took_ms: 2 });
        assert_eq!(monitor.seen().map(|(event, _)| event.name()).collect::<Vec<_>>(), ["expire-cycle"]);
        assert!(monitor.named(b"expire-cycle").is_some() && monitor.named(b"command").is_none());
        assert_eq!((monitor.reset(|_| false), monitor.reset(|_| true), monitor.reset(|_| true)), (0, 1, 0));
    }
}
