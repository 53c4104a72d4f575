//! The writer of a single server's journal: puts queued units into blocks, and has them written and synced.
//!
//! It is a state machine without a thread: [`Writer::step`] does the work at hand. The journal's thread calls it in a
//! loop, the engine calls it to commit in place, and the simulation calls it whenever it likes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::appender::{Appender, Stop};
use super::block::{Contents, Durable, HEAD_BYTES, seal, stride};
use super::segment::Header;
use super::segments::Current;
use super::shared::{Shared, emptied};
use super::types::{State, Tail};
use crate::base::lsn::Lsn;
use crate::log::limits::LOG_BLOCK_MAX_BYTES;

/// See the module's header.
pub(super) struct Writer {
    shared: Arc<Shared>,
    out: Appender,
    /// The checksum of the last block.
    last_crc: u32,
    /// Units taken from the queue that are not written yet. There are some only while the disk is full.
    pending: VecDeque<Tail>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, current: Current, last_crc: u32) -> Writer {
        let out = Appender::new(Arc::clone(&shared), current);
        Writer { shared, out, last_crc, pending: VecDeque::new() }
    }

    /// Writes everything queued, and syncs it if the policy wants that now.
    pub(super) fn step(&mut self) -> State {
        self.write_and_sync(Writer::write_queued)
    }

    /// Writes units behind everything queued, and if `syncs`, also syncs as [`step`](Self::step) does. Returns an empty
    /// buffer, with head room.
    pub(super) fn commit(&mut self, mut tail: Tail, syncs: bool) -> Vec<u8> {
        let mut write = |writer: &mut Writer| writer.write_behind_queue(&mut tail);
        if syncs {
            self.write_and_sync(write);
        } else {
            let done = write(self);
            self.out.publish_outcome(done);
        }
        if tail.bytes.is_empty() { self.shared.spare() } else { emptied(tail.bytes) }
    }

    fn write_and_sync(&mut self, write: impl FnOnce(&mut Writer) -> Result<(), Stop>) -> State {
        // Read before the queue is taken: the units that this sync is wanted for were queued earlier.
        let is_sync_wanted = self.shared.take_wanted_sync();
        let done = write(self).and_then(|()| if is_sync_wanted { self.out.sync() } else { self.out.sync_by_policy() });
        if is_sync_wanted && done == Err(Stop::Full) {
            self.shared.want_sync();
        }
        self.out.publish_outcome(done)
    }

    /// Whether `tail` and everything queued fit into the current segment. A change of segments begins with a sync.
    pub(super) fn has_room(&self, tail: &Tail) -> bool {
        let queue = self.shared.queue();
        let bytes: u64 =
            self.pending.iter().chain(&queue.tails).chain([tail]).map(|tail| stride(tail.bytes.len())).sum();
        bytes <= self.out.room()
    }

    /// Writes everything queued, and leaves syncs to the journal's thread.
    pub(super) fn write_all(&mut self) -> State {
        let done = self.write_queued();
        self.out.publish_outcome(done)
    }

    /// Writes and syncs everything, whatever the policy.
    pub(super) fn flush(&mut self) -> State {
        let done = self.write_queued().and_then(|()| self.out.sync());
        self.out.publish_outcome(done)
    }

    /// Flushes, and marks the journal as closed: a reader then knows that nothing is missing at its end.
    pub(super) fn close(&mut self) -> State {
        let state = self.flush();
        // Without a segment nothing was written, and the journal ends where it did before.
        if state != State::Good || !self.out.has_segment() {
            return state;
        }
        let mut mark = Tail { bytes: self.shared.spare(), first_lsn: self.end(), units: 0, time_ms: 0 };
        // The mark gets no segment of its own. A file can usually grow by 64 bytes; if not, only the mark is missing.
        match self.write_block(&mut mark) {
            Ok(()) => self.flush(),
            Err(_) => self.shared.state(),
        }
    }

    /// Writes units. They are taken out of `tail` and queued only if others are queued before them, or if the disk is
    /// full.
    fn write_behind_queue(&mut self, tail: &mut Tail) -> Result<(), Stop> {
        if self.shared.backlog_bytes() > 0 {
            self.shared.enqueue(tail.take());
            return self.write_queued();
        }
        // The thread that prepares segments may just have found that the disk fails.
        if self.shared.state() == State::Poisoned {
            return Err(Stop::Poisoned);
        }
        let written = self.write(tail);
        if written == Err(Stop::Full) {
            self.shared.enqueue(tail.take());
        }
        written
    }

    fn write_queued(&mut self) -> Result<(), Stop> {
        self.pending.append(&mut self.shared.queue().tails);
        while let Some(mut tail) = self.pending.pop_front() {
            let written = match self.shared.state() {
                State::Poisoned => Err(Stop::Poisoned),
                _ => self.write(&mut tail),
            };
            match written {
                Err(Stop::Full) => {
                    self.pending.push_front(tail);
                    return Err(Stop::Full);
                }
                // A failed journal drops the units that it is given, since it acknowledges nothing any more.
                Ok(()) | Err(Stop::Poisoned) => self.shared.done_with(tail),
            }
        }
        match self.shared.state() {
            State::Poisoned => Err(Stop::Poisoned),
            _ => Ok(()),
        }
    }

    fn write(&mut self, tail: &mut Tail) -> Result<(), Stop> {
        let is_sound = (HEAD_BYTES..=LOG_BLOCK_MAX_BYTES).contains(&tail.bytes.len());
        if tail.first_lsn != self.end() || !is_sound {
            let what = format!("units of {} bytes from Lsn {} on", tail.bytes.len(), tail.first_lsn);
            return Err(self.out.failed(what, &io::ErrorKind::InvalidInput.into()));
        }
        let bytes = tail.bytes.len() as u64;
        if self.out.is_too_long(0, bytes) {
            let header = Header {
                first_lsn: self.end(),
                durable: Durable::lsn(self.end().previous()),
                previous: self.out.segment(),
                previous_crc: self.last_crc,
                ..Header::prepared(self.shared.directory.id(), 0, 0)
            };
            self.out.change_segment(header, bytes)?;
        }
        self.write_block(tail)
    }

    /// Writes a block where the next one belongs. It may be called again after the disk was full, and then writes to
    /// the same place.
    fn write_block(&mut self, tail: &mut Tail) -> Result<(), Stop> {
        let contents = Contents::units(tail.first_lsn, tail.units, tail.time_ms);
        let crc = seal(&mut tail.bytes, &self.out.place(), self.shared.durable.load(), contents);
        self.out.put(&tail.bytes, contents.end().previous())?;
        self.last_crc = crc;
        Ok(())
    }

    /// Returns the Lsn of the next unit.
    fn end(&self) -> Lsn {
        self.shared.written.load().next()
    }
}
