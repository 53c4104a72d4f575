//! The log of a node, opened for writing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::types::Index;
use super::write::Write;
use super::writer::EntryWriter;
use crate::log::appender::Stop;
use crate::log::group_commit::State;
use crate::log::shared::{Failure, Shared};

/// Takes writes, and says up to which one they are durable. It has no thread of its own.
pub(crate) struct EntryLog {
    shared: Arc<Shared>,
    writer: Mutex<EntryWriter>,
    queue: Mutex<VecDeque<Write>>,
    /// The number of the last durable write.
    durable: AtomicU64,
}

impl EntryLog {
    pub(super) fn new(shared: Arc<Shared>, writer: EntryWriter) -> EntryLog {
        EntryLog { shared, writer: Mutex::new(writer), queue: Mutex::default(), durable: AtomicU64::new(0) }
    }

    /// Queues a write behind all others. A log that has failed drops it.
    pub(crate) fn write(&self, write: Write) {
        if self.state() != State::Poisoned {
            self.queue().push_back(write);
        }
    }

    /// Writes everything queued, in order, and makes it durable with one sync. What a full disk has no space for stays
    /// queued.
    pub(crate) fn step(&self) -> State {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.write_queued(&mut writer);
        writer.out.publish_outcome(done)
    }

    fn write_queued(&self, writer: &mut EntryWriter) -> Result<(), Stop> {
        // A failed log writes nothing more, and says so even if nothing is queued.
        if self.shared.state() == State::Poisoned {
            return Err(Stop::Poisoned);
        }
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

    fn queue(&self) -> MutexGuard<'_, VecDeque<Write>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the last write that is durable, with all before it.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns whether the log takes writes.
    pub(crate) fn state(&self) -> State {
        self.shared.state()
    }

    /// Returns why the log takes no more writes, if it does not.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.shared.failure()
    }

    /// Retires the segments that hold nothing behind this entry, which a durable snapshot covers. Returns their number.
    pub(crate) fn retire_through(&self, index: Index) -> usize {
        self.shared.with_segments(|segments| segments.retire_through(index))
    }

    /// Whether the log has a segment to write to: a start may have found no space for one.
    #[cfg(test)]
    pub(super) fn has_segment(&self) -> bool {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).out.has_segment()
    }

    /// Returns the number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.shared.segments().count()
    }

    /// Does one round of preparing segments. Returns whether there was work and it succeeded.
    pub(crate) fn do_chore(&self) -> bool {
        self.shared.do_chore()
    }

    /// Writes everything queued, and marks the end of the log as clean.
    pub(crate) fn close(self) -> State {
        let state = self.step();
        if state != State::Good {
            return state;
        }
        let mut writer = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Only the mark is missing if there is no space for it.
        match writer.mark_end().and_then(|()| writer.out.sync()) {
            Ok(()) => State::Good,
            Err(_) => self.shared.state(),
        }
    }
}
