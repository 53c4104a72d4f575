//! The log of a node, opened for writing.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mark::Mark;
use super::types::Index;
use super::write::Write;
use super::writer::EntryWriter;
use crate::log::appender::Stop;
use crate::log::group_commit::State;
use crate::log::shared::{Failure, Shared};
use crate::log::snapshot::arriving::ArrivingSnapshot;
use crate::log::snapshot::writer::{Begin, LogBeside, SnapshotWriter};
use crate::log::threads::Threads;
use crate::log::times::Times;

/// Takes writes, and says up to which one they are durable. Its threads are [started](EntryLog::start) by whoever does
/// not do their work.
pub(crate) struct EntryLog {
    shared: Arc<Shared>,
    writing: Arc<Writing>,
    threads: Threads,
}

/// What the threads need.
struct Writing {
    writer: Mutex<EntryWriter>,
    queue: Mutex<VecDeque<Write>>,
    /// The number of the last durable write.
    durable: AtomicU64,
}

impl Writing {
    fn writer(&self) -> MutexGuard<'_, EntryWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Write>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// See [`EntryLog::step`].
    fn step(&self, shared: &Shared) -> State {
        let mut writer = self.writer();
        let done = self.write_queued(shared, &mut writer);
        writer.out.publish_outcome(done)
    }

    fn write_queued(&self, shared: &Shared, writer: &mut EntryWriter) -> Result<(), Stop> {
        // A failed log writes nothing more, and says so even if nothing is queued.
        if shared.state() == State::Poisoned {
            return Err(Stop::Poisoned);
        }
        // Taken before the queue is: whoever queues later asks again.
        shared.take_wanted_sync();
        let mut taken = std::mem::take(&mut *self.queue());
        let mut last = None;
        let mut written = Ok(());
        while let Some(write) = taken.front_mut() {
            written = writer.write(write);
            if written.is_err() {
                break;
            }
            last = Some(write.number);
            taken.pop_front();
        }
        if written == Err(Stop::Poisoned) {
            return written;
        }
        // Others may have been queued in the meantime.
        let mut queue = self.queue();
        taken.append(&mut queue);
        *queue = taken;
        drop(queue);
        if let Some(number) = last {
            writer.out.sync()?;
            self.durable.store(number, Ordering::Release);
        }
        written
    }
}

impl EntryLog {
    pub(super) fn new(shared: Arc<Shared>, writer: EntryWriter) -> EntryLog {
        let writing = Writing { writer: Mutex::new(writer), queue: Mutex::default(), durable: AtomicU64::new(0) };
        EntryLog { shared, writing: Arc::new(writing), threads: Threads::default() }
    }

    /// Starts the threads: from here on each write is written, and `notify` is called when some are durable.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        let (shared, writing) = (Arc::clone(&self.shared), Arc::clone(&self.writing));
        self.threads.start(&self.shared, move || {
            let before = (writing.durable(), shared.state());
            let state = writing.step(&shared);
            (state, before != (writing.durable(), state))
        })
    }

    /// Queues a write behind all others. A log that has failed drops it.
    pub(crate) fn write(&self, write: Write) {
        if self.state() != State::Poisoned {
            self.writing.queue().push_back(write);
            self.shared.want_sync();
        }
    }

    /// Writes everything queued, in order, and makes it durable with one sync. What a full disk has no space for stays
    /// queued.
    pub(crate) fn step(&self) -> State {
        self.writing.step(&self.shared)
    }

    /// Returns the number of the last write that is durable, with all before it.
    pub(crate) fn durable(&self) -> u64 {
        self.writing.durable()
    }

    /// Returns whether the log takes writes.
    pub(crate) fn state(&self) -> State {
        self.shared.state()
    }

    /// Returns why the log takes no more writes, if it does not.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.shared.failure()
    }

    /// Retires the segments that nobody needs. A durable snapshot covers the entries up to `covered`; those behind
    /// `wanted` are for followers that lack them, as long as the log is not longer than `keep_bytes`. Returns the
    /// number of segments retired.
    pub(crate) fn retire(&self, covered: Index, wanted: Index, keep_bytes: u64) -> usize {
        self.shared.with_segments(|segments| segments.retire_through(covered, wanted, keep_bytes))
    }

    /// Returns the entry before the first one that the files still hold, if they hold any.
    pub(crate) fn begins_behind(&self) -> Option<Index> {
        self.shared.segments().begins_behind()
    }

    /// Begins a snapshot beside this log. It is abandoned while the log lacks space or has failed.
    pub(crate) fn snapshot(&self, begin: Begin) -> SnapshotWriter {
        // The log is kept for followers, so the snapshot does not cut it.
        let beside = LogBeside { is_well: self.is_well(), cut: Box::new(|_| {}) };
        SnapshotWriter::begin(Arc::clone(&self.shared.directory), beside, begin)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// See [`Times`].
    pub(crate) fn times(&self) -> &Arc<Times> {
        self.shared.times()
    }

    /// Begins to take a snapshot of another node, of so many bytes. It fails while the log lacks space or has failed.
    pub(crate) fn arriving(&self, mark: Mark, bytes: u64) -> ArrivingSnapshot {
        ArrivingSnapshot::begin(Arc::clone(&self.shared.directory), self.is_well(), mark, bytes)
    }

    fn is_well(&self) -> Box<dyn Fn() -> bool + Send> {
        let shared = Arc::clone(&self.shared);
        Box::new(move || shared.is_well())
    }

    /// Whether the log has a segment to write to: a start may have found no space for one.
    #[cfg(test)]
    pub(super) fn has_segment(&self) -> bool {
        self.writing.writer().out.has_segment()
    }

    /// Returns the number of segments.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> usize {
        self.shared.segments().count()
    }

    /// Does one round of preparing segments. Returns whether there was work and it succeeded.
    #[cfg(test)]
    pub(crate) fn do_chore(&self) -> bool {
        self.shared.do_chore()
    }

    /// Writes everything queued, marks the end of the log as clean, and ends the threads.
    pub(crate) fn close(mut self) -> State {
        self.threads.stop(&self.shared);
        let state = self.step();
        if state != State::Good {
            return state;
        }
        let mut writer = self.writing.writer();
        // Only the mark is missing if there is no space for it.
        match writer.mark_end().and_then(|()| writer.out.sync()) {
            Ok(()) => State::Good,
            Err(_) => self.shared.state(),
        }
    }
}

impl Drop for EntryLog {
    fn drop(&mut self) {
        self.threads.stop(&self.shared);
    }
}
