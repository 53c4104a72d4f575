//! The end of the journal: the segment being written, and the way from it to the next one.
//!
//! It writes bytes that were sealed for their place and syncs them. What they are is up to its owner: blocks of units
//! ([`writer`](super::writer)), or entries of the log of a group ([`replicated`](super::replicated)).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::block::{Place, stride};
use super::disk::is_full;
use super::planted::{self, Bug};
use super::segment::{HEADER_BYTES, Header};
use super::segments::{Current, Prepared, Segments, make};
use super::shared::Shared;
use super::types::{State, SyncPolicy};
use crate::base::lsn::Lsn;
use crate::log::limits::LOG_EVERY_SEC;

/// See the module's header.
pub(super) struct Appender {
    pub(super) shared: Arc<Shared>,
    current: Current,
    /// The end of what is durable in the current segment; 0 while not even its header is.
    durable_to: u64,
    /// Whether a block was written since the last sync.
    is_dirty: bool,
    /// Whether segments are prepared ahead, which begins when the first one is half full.
    is_eager: bool,
    synced_at: Duration,
    /// When the file of the segment was last seen to exist.
    checked_at: Duration,
}

/// Why nothing can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The disk is full; the write may be tried again.
    Full,
    /// The journal has failed for good.
    Poisoned,
}

impl Appender {
    /// Continues in the segment `current`, everything in which is durable.
    pub(super) fn new(shared: Arc<Shared>, current: Current) -> Appender {
        let synced_at = shared.clock.monotonic();
        let has_segment = current.file.is_some();
        let durable_to = current.offset;
        let mut appender = Appender {
            shared,
            current,
            durable_to,
            is_dirty: false,
            is_eager: false,
            synced_at,
            checked_at: synced_at,
        };
        appender.publish_room();
        if !has_segment {
            appender.is_eager = true;
            appender.shared.with_segments(Segments::wait_for_space);
            appender.shared.judge_space();
        }
        appender
    }

    /// Whether there is a segment. A start may have found no space for one.
    pub(super) fn has_segment(&self) -> bool {
        self.current.file.is_some()
    }

    /// Returns the number of prefilled bytes left in the segment.
    pub(super) fn room(&self) -> u64 {
        self.current.room()
    }

    /// Whether a block of this length, behind others of `before` bytes that are not written yet, must go to the next
    /// segment.
    pub(super) fn is_too_long(&self, before: u64, bytes: u64) -> bool {
        let is_first = self.current.offset + before == HEADER_BYTES;
        !self.has_segment() || !is_first && self.room() < before + bytes
    }

    /// Returns the number of the segment.
    pub(super) fn segment(&self) -> u64 {
        self.current.number
    }

    /// Returns the place of the next block.
    pub(super) fn place(&self) -> Place {
        self.shared.directory.place(self.current.number, self.current.offset)
    }

    /// Returns the end of what is durable in the segment; 0 while not even its header is.
    pub(super) fn durable_to(&self) -> u64 {
        self.durable_to
    }

    /// Writes sealed blocks, up to the unit `last`, to the [`place`](Self::place) of the next one. May be called again
    /// after the disk was full, and then writes to the same place.
    pub(super) fn put(&mut self, blocks: &[u8], last: Lsn) -> Result<(), Stop> {
        let began = self.shared.clock.monotonic();
        let file = self.current.file.as_ref().ok_or(Stop::Full)?;
        self.is_dirty = true;
        if let Err(error) = file.write_at(blocks, self.current.offset) {
            return Err(self.failed(self.on_segment("write to"), &error));
        }
        self.shared.learn_write_time(self.shared.clock.monotonic().saturating_sub(began));
        // Under the other policies each sync does this.
        if self.shared.policy() == SyncPolicy::No && began.saturating_sub(self.checked_at) >= LOG_EVERY_SEC {
            self.check_file_exists(began)?;
        }
        self.current.offset += stride(blocks.len());
        self.shared.written_bytes.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        self.shared.written.store(last);
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

    /// Moves on to the next segment, for a block of this length. Everything written before is made durable first, so
    /// that only the last segment of a journal can have a torn tail. `header` gets the segment's number and capacity.
    pub(super) fn change_segment(&mut self, header: Header, block_bytes: u64) -> Result<(), Stop> {
        self.sync()?;
        let header = self.begin_segment(header, block_bytes)?;
        self.shared.with_segments(|segments| segments.push(&header));
        Ok(())
    }

    /// Moves on to a segment that follows another one than the current one, the segment `kept`. When this returns,
    /// later ones are no longer part of the journal, whatever happens.
    pub(super) fn replace_segments_behind(&mut self, kept: u64, header: Header) -> Result<(), Stop> {
        self.sync()?;
        let header = self.begin_segment(header, 0)?;
        if !planted::is(Bug::NoSyncOfTheCut) {
            self.is_dirty = true;
            self.sync()?;
        }
        self.shared.with_segments(|segments| {
            segments.retire_behind(kept);
            segments.push(&header);
        });
        Ok(())
    }

    fn begin_segment(&mut self, header: Header, block_bytes: u64) -> Result<Header, Stop> {
        let prepared = self.shared.segments().take_prepared();
        let prepared = match prepared {
            Some(prepared) => prepared,
            None => self.make_segment(block_bytes)?,
        };
        let header = Header { number: prepared.number, capacity: prepared.capacity, ..header };
        if let Err(error) = prepared.file.write_at(&header.encode(), 0) {
            let stop = self.failed("write the header of a segment".to_owned(), &error);
            self.shared.segments().give_back(prepared);
            return Err(stop);
        }
        self.durable_to = 0;
        self.current = Current {
            file: Some(prepared.file),
            number: header.number,
            offset: HEADER_BYTES,
            capacity: header.capacity,
        };
        self.shared.with_segments(Segments::be_eager);
        self.is_eager = true;
        Ok(header)
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

    /// Publishes the outcome of writes. Returns [`State::Full`] only if something could not be written.
    pub(super) fn publish_outcome(&self, done: Result<(), Stop>) -> State {
        self.shared.set_stuck(done == Err(Stop::Full));
        self.shared.judge_space();
        match done {
            Ok(()) => State::Good,
            Err(Stop::Full) => State::Full,
            Err(Stop::Poisoned) => State::Poisoned,
        }
    }

    /// Syncs if the policy wants that now.
    pub(super) fn sync_by_policy(&mut self) -> Result<(), Stop> {
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
    pub(super) fn sync(&mut self) -> Result<(), Stop> {
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
        self.durable_to = self.current.offset;
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

    pub(super) fn failed(&self, action: String, error: &io::Error) -> Stop {
        if is_full(error) {
            return Stop::Full;
        }
        self.shared.poison(action, error);
        Stop::Poisoned
    }

    fn on_segment(&self, action: &str) -> String {
        format!("{action} {}", self.shared.directory.segment(self.current.number).display())
    }
}
