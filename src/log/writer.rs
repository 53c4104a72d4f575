//! The writer: puts queued units into blocks, writes them, syncs, and moves from segment to segment.
//!
//! It is a state machine without a thread: [`Writer::step`] does the work at hand. The journal's thread calls it in a
//! loop, the engine calls it to commit in place, and the simulation calls it whenever it likes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::block::{Contents, HEAD_BYTES, seal, stride};
use super::disk::is_full;
use super::planted::{self, Bug};
use super::segment::{HEADER_BYTES, Header};
use super::segments::{Current, Prepared, Segments, make};
use super::shared::{Shared, emptied};
use super::types::{State, SyncPolicy, Tail};
use crate::base::lsn::Lsn;
use crate::log::limits::{LOG_BLOCK_MAX_BYTES, LOG_EVERY_SEC};

/// See the module's header.
pub(super) struct Writer {
    shared: Arc<Shared>,
    current: Current,
    /// Units taken from the queue that are not written yet. There are some only while the disk is full.
    pending: VecDeque<Tail>,
    /// Whether a block was written since the last sync.
    is_dirty: bool,
    /// Whether segments are prepared ahead, which begins when the first one is half full.
    is_eager: bool,
    synced_at: Duration,
    /// When the writer last checked that the segment's file still exists.
    checked_at: Duration,
}

/// Why the writer can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The disk is full; the write may be tried again.
    Full,
    /// The journal has failed for good.
    Poisoned,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, current: Current) -> Writer {
        let synced_at = shared.clock.monotonic();
        let has_segment = current.file.is_some();
        let mut writer = Writer {
            shared,
            current,
            pending: VecDeque::new(),
            is_dirty: false,
            is_eager: false,
            synced_at,
            checked_at: synced_at,
        };
        writer.publish_room();
        if !has_segment {
            writer.is_eager = true;
            writer.shared.with_segments(Segments::wait_for_space);
            writer.shared.judge_space();
        }
        writer
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
            self.publish_outcome(done);
        }
        if tail.bytes.is_empty() { self.shared.spare() } else { emptied(tail.bytes) }
    }

    fn write_and_sync(&mut self, write: impl FnOnce(&mut Writer) -> Result<(), Stop>) -> State {
        // Read before the queue is taken: the units that this sync is wanted for were queued earlier.
        let is_sync_wanted = self.shared.take_wanted_sync();
        let done = write(self).and_then(|()| if is_sync_wanted { self.sync() } else { self.sync_by_policy() });
        if is_sync_wanted && done == Err(Stop::Full) {
            self.shared.want_sync();
        }
        self.publish_outcome(done)
    }

    /// Whether `tail` and everything queued fit into the current segment. A change of segments begins with a sync.
    pub(super) fn has_room(&self, tail: &Tail) -> bool {
        let queue = self.shared.queue();
        let bytes: u64 =
            self.pending.iter().chain(&queue.tails).chain([tail]).map(|tail| stride(tail.bytes.len())).sum();
        bytes <= self.current.room()
    }

    /// Writes everything queued, and leaves syncs to the journal's thread.
    pub(super) fn write_all(&mut self) -> State {
        let done = self.write_queued();
        self.publish_outcome(done)
    }

    /// Writes and syncs everything, whatever the policy.
    pub(super) fn flush(&mut self) -> State {
        let done = self.write_queued().and_then(|()| self.sync());
        self.publish_outcome(done)
    }

    /// Publishes the outcome. Returns [`State::Full`] only if something could not be written.
    fn publish_outcome(&self, done: Result<(), Stop>) -> State {
        self.shared.set_stuck(done == Err(Stop::Full));
        self.shared.judge_space();
        match done {
            Ok(()) => State::Good,
            Err(Stop::Full) => State::Full,
            Err(Stop::Poisoned) => State::Poisoned,
        }
    }

    /// Flushes, and marks the journal as closed: a reader then knows that nothing is missing at its end.
    pub(super) fn close(&mut self) -> State {
        let state = self.flush();
        // Without a segment nothing was written, and the journal ends where it did before.
        if state != State::Good || self.current.file.is_none() {
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
            return Err(self.failed(what, &io::ErrorKind::InvalidInput.into()));
        }
        let is_first = self.current.offset == HEADER_BYTES;
        if self.current.file.is_none() || !is_first && self.current.room() < tail.bytes.len() as u64 {
            self.change_segment(tail.bytes.len() as u64)?;
        }
        self.write_block(tail)
    }

    /// Writes a block where the next one belongs. It may be called again after the disk was full, and then writes to
    /// the same place.
    fn write_block(&mut self, tail: &mut Tail) -> Result<(), Stop> {
        let place = self.shared.directory.place(self.current.number, self.current.offset);
        let contents = Contents { first_lsn: tail.first_lsn, units: tail.units, time_ms: tail.time_ms };
        let crc = seal(&mut tail.bytes, &place, self.shared.durable.load(), contents);
        let began = self.shared.clock.monotonic();
        let file = self.current.file.as_ref().ok_or(Stop::Full)?;
        self.is_dirty = true;
        if let Err(error) = file.write_at(&tail.bytes, place.offset) {
            return Err(self.failed(self.on_segment("write to"), &error));
        }
        self.shared.learn_write_time(self.shared.clock.monotonic().saturating_sub(began));
        // Under the other policies each sync does this.
        if self.shared.policy() == SyncPolicy::No && began.saturating_sub(self.checked_at) >= LOG_EVERY_SEC {
            self.check_file_exists(began)?;
        }
        self.current.offset += stride(tail.bytes.len());
        self.current.last_crc = crc;
        self.shared.written_bytes.fetch_add(tail.bytes.len() as u64, Ordering::Relaxed);
        self.shared.written.store(contents.end().previous());
        self.publish_room();
        Ok(())
    }

    /// Publishes how much room is left in the current segment, and requests further segments when it is half full.
    fn publish_room(&mut self) {
        self.shared.set_room(self.current.room());
        if !self.is_eager && self.current.is_half_full() {
            self.is_eager = true;
            self.shared.with_segments(Segments::be_eager);
        }
    }

    /// Moves on to the next segment. Everything written before is made durable first, so that only the last segment of
    /// a journal can have a torn tail.
    fn change_segment(&mut self, block_bytes: u64) -> Result<(), Stop> {
        self.sync()?;
        let prepared = self.shared.segments().take_prepared();
        let prepared = match prepared {
            Some(prepared) => prepared,
            None => self.make_segment(block_bytes)?,
        };
        let header = Header {
            first_lsn: self.end(),
            durable: self.shared.durable.load(),
            previous: self.current.number,
            previous_crc: self.current.last_crc,
            ..Header::prepared(self.shared.directory.id(), prepared.number, prepared.capacity)
        };
        if let Err(error) = prepared.file.write_at(&header.encode(), 0) {
            let stop = self.failed("write the header of a segment".to_owned(), &error);
            self.shared.segments().give_back(prepared);
            return Err(stop);
        }
        self.current = Current {
            file: Some(prepared.file),
            number: prepared.number,
            offset: HEADER_BYTES,
            capacity: prepared.capacity,
            last_crc: self.current.last_crc,
        };
        self.shared.with_segments(|segments| {
            segments.push(&header);
            segments.be_eager();
        });
        self.is_eager = true;
        Ok(())
    }

    /// Makes a short segment when none lies ready, because units arrive faster than the disk can be filled with zeros.
    fn make_segment(&mut self, block_bytes: u64) -> Result<Prepared, Stop> {
        let number = self.shared.segments().take_number();
        let capacity = self.shared.options.first_segment_bytes.max(HEADER_BYTES + block_bytes);
        let made = make(&self.shared.directory, number, capacity);
        made.map_err(|error| {
            if is_full(&error) {
                self.shared.segments().is_short = true;
            }
            self.failed("make a segment".to_owned(), &error)
        })
    }

    fn sync_by_policy(&mut self) -> Result<(), Stop> {
        match self.shared.policy() {
            SyncPolicy::Always => self.sync(),
            // If the clock has gone back, the time since the last sync is unknown.
            SyncPolicy::EverySec
                if self
                    .shared
                    .clock
                    .monotonic()
                    .checked_sub(self.synced_at)
                    .is_none_or(|since| since >= LOG_EVERY_SEC) =>
            {
                self.sync()
            }
            SyncPolicy::EverySec | SyncPolicy::No => Ok(()),
        }
    }

    /// Makes all written blocks durable. A failed sync is never repeated, not even when the disk is full: the system
    /// may have dropped the pages that it could not write.
    fn sync(&mut self) -> Result<(), Stop> {
        if !self.is_dirty {
            return Ok(());
        }
        let began = self.shared.clock.monotonic();
        self.synced_at = began;
        let synced = match &self.current.file {
            Some(file) if !planted::is(Bug::NoSync) => file.sync_data(),
            _ => Ok(()),
        };
        if let Err(error) = synced {
            self.shared.poison(self.on_segment("sync"), &error);
            return Err(Stop::Poisoned);
        }
        self.check_file_exists(began)?;
        self.shared.learn_sync_time(self.shared.clock.monotonic().saturating_sub(began));
        self.is_dirty = false;
        self.shared.durable.store(self.shared.written.load());
        Ok(())
    }

    /// Checks, at time `now`, that the file of the current segment has not been removed, also together with its folder.
    /// The units in a removed file would be gone after a restart.
    fn check_file_exists(&mut self, now: Duration) -> Result<(), Stop> {
        self.checked_at = now;
        let found = self.current.file.as_ref().map_or(Ok(true), |file| file.has_name());
        let error = match found {
            Ok(true) => return Ok(()),
            Ok(false) => io::Error::new(io::ErrorKind::NotFound, "it was removed while the server was writing to it"),
            Err(error) => error,
        };
        self.shared.poison(self.on_segment("keep"), &error);
        Err(Stop::Poisoned)
    }

    fn failed(&self, action: String, error: &io::Error) -> Stop {
        if is_full(error) {
            return Stop::Full;
        }
        self.shared.poison(action, error);
        Stop::Poisoned
    }

    fn on_segment(&self, action: &str) -> String {
        format!("{action} {}", self.shared.directory.segment(self.current.number).display())
    }

    /// Returns the Lsn of the next unit.
    fn end(&self) -> Lsn {
        self.shared.written.load().next()
    }
}
