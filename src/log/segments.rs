//! The files of the journal: live segments, prepared segments, and segments that are no longer needed.
//!
//! A thread of its own prepares segments. It recycles an old file, or fills a new one with zeros. It fills in pieces,
//! with pauses, because the same disk has to sync the journal. It syncs the file under another name, renames it and
//! syncs the directory. Only then may the writer take the segment, so that a sync of the journal has data to write
//! and no metadata. Old blocks in a recycled file do no harm: their frames state the file's earlier number.

use std::collections::VecDeque;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::sync::Arc;

use super::directory::Directory;
use super::disk::{DiskFile, write_zeros};
use super::names;
use super::replicated::types::Index;
use super::segment::{HEADER_BYTES, Header};
use crate::base::lsn::Lsn;
use crate::log::limits::{LOG_FILL_BYTES, LOG_PREPARED_MAX_SEGMENTS, LOG_SEGMENT_GROWTH};

/// The segment being written.
pub(super) struct Current {
    /// `None` if a start found no space for a segment: the journal then goes on in the next segment that can be made,
    /// as the successor of this one.
    pub(super) file: Option<Arc<dyn DiskFile>>,
    pub(super) number: u64,
    /// Where the next block goes.
    pub(super) offset: u64,
    /// The file's prefilled length.
    pub(super) capacity: u64,
}

impl Current {
    /// Makes a placeholder for a segment that does not exist yet. The last block of the journal is in segment `number`.
    pub(super) fn none(number: u64) -> Current {
        Current { file: None, number, offset: 0, capacity: 0 }
    }

    /// Returns the number of prefilled bytes left.
    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.offset)
    }

    /// Whether the segment is half full.
    pub(super) fn is_half_full(&self) -> bool {
        self.room() < self.capacity.saturating_sub(HEADER_BYTES) / 2
    }
}

/// A segment that is part of the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    number: u64,
    first_lsn: Lsn,
    /// In the log of a group, the entry before the segment.
    after: Index,
    /// The length of the file when its use began.
    bytes: u64,
}

impl Live {
    pub(super) fn of(header: &Header) -> Live {
        let after = header.standing.map_or(Index(0), |standing| standing.at.index);
        Live { number: header.number, first_lsn: header.first_lsn, after, bytes: header.capacity }
    }
}

/// A prepared segment, which is not part of the journal yet.
pub(super) struct Prepared {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) number: u64,
    pub(super) capacity: u64,
}

/// A segment under construction: its file, under a temporary name, is filled with zeros piece by piece. It gets its
/// number and its header with the last piece. In the meantime the journal may move on to other segments, whose numbers
/// must not be higher.
pub(super) struct Filling {
    file: Arc<dyn DiskFile>,
    /// The number in its temporary name.
    temporary: u64,
    capacity: u64,
    /// The offset up to which the file is filled and synced.
    filled: u64,
}

/// A task that concerns the files.
pub(super) enum Task {
    /// Recycle the file of the first segment under the second number, if its length is in the range.
    Recycle(u64, u64, Range<u64>),
    /// Create a file, with the first number in its temporary name and the second as its length.
    Make(u64, u64),
    /// Fill the next piece of a file.
    Fill(Filling),
    /// Remove the file of this segment.
    Remove(u64),
}

/// See the module's header.
pub(super) struct Segments {
    /// Oldest first. The last one is being written.
    live: VecDeque<Live>,
    prepared: VecDeque<Prepared>,
    filling: Option<Filling>,
    /// Length of the segment to be prepared next; 0 before the first. The lengths grow, so that the first segments are
    /// ready soon.
    next_bytes: u64,
    /// Oldest first.
    retired: VecDeque<u64>,
    /// Retired segments whose files could be neither removed nor recycled. They are tried again when others are
    /// retired.
    left_behind: Vec<u64>,
    next_number: u64,
    /// Whether segments are prepared ahead. A server that is rarely written to does without.
    is_eager: bool,
    /// Whether the last attempt to make a segment failed because the disk is full.
    pub(super) is_short: bool,
}

impl Segments {
    pub(super) fn new(live: VecDeque<Live>, mut retired: Vec<u64>, next_number: u64) -> Segments {
        retired.sort_unstable();
        Segments {
            live,
            prepared: VecDeque::new(),
            filling: None,
            next_bytes: 0,
            retired: retired.into(),
            left_behind: Vec::new(),
            next_number,
            is_eager: false,
            is_short: false,
        }
    }

    /// Returns the first unit that the journal still holds; `None` without a segment.
    pub(super) fn first_lsn(&self) -> Option<Lsn> {
        self.live.front().map(|oldest| oldest.first_lsn)
    }

    /// Returns the entry before the first one that the log of a group still holds; `None` without a segment.
    pub(super) fn begins_behind(&self) -> Option<Index> {
        self.live.front().map(|oldest| oldest.after)
    }

    /// Begins to prepare segments ahead.
    pub(super) fn be_eager(&mut self) {
        self.is_eager = true;
    }

    /// Requests the next segment as soon as there is space, after there was none.
    pub(super) fn wait_for_space(&mut self) {
        self.is_eager = true;
        self.is_short = true;
    }

    /// Whether [`Segments::task`] would return a task.
    pub(super) fn has_task(&self, wanted: usize) -> bool {
        !self.retired.is_empty() || self.filling.is_some() || (self.is_eager && self.prepared.len() < wanted)
    }

    /// Returns the next task, if any, so that `wanted` segments lie ready, whose lengths grow within `lengths`. A task
    /// to [fill](Task::Fill) is taken out; [`go_on_with`](Self::go_on_with) puts it back.
    pub(super) fn task(&mut self, wanted: usize, lengths: RangeInclusive<u64>) -> Option<Task> {
        if !self.has_task(wanted) {
            return None;
        }
        let bytes = self.next_bytes.max(*lengths.start()).min(*lengths.end());
        match self.retired.pop_front() {
            Some(old) if self.is_eager && self.prepared.len() < LOG_PREPARED_MAX_SEGMENTS => {
                Some(Task::Recycle(old, self.take_number(), bytes..lengths.end().saturating_mul(2)))
            }
            Some(old) => Some(Task::Remove(old)),
            None => Some(match self.filling.take() {
                Some(filling) => Task::Fill(filling),
                None => Task::Make(self.take_number(), bytes),
            }),
        }
    }

    /// Puts back a file that still lacks some pieces.
    pub(super) fn go_on_with(&mut self, filling: Filling) {
        self.filling = Some(filling);
    }

    /// Whether a segment lies ready, so that there is time to make the next.
    pub(super) fn has_prepared(&self) -> bool {
        !self.prepared.is_empty()
    }

    pub(super) fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Adds a prepared segment. Numbers ascend along the journal, so a segment that was overtaken while it was made is
    /// useless.
    pub(super) fn add_prepared(&mut self, prepared: Prepared) {
        match self.live.back() {
            Some(newest) if newest.number > prepared.number => self.retired.push_back(prepared.number),
            _ => {
                self.next_bytes = self.next_bytes.max(prepared.capacity.saturating_mul(LOG_SEGMENT_GROWTH));
                self.prepared.push_back(prepared);
            }
        }
    }

    /// Takes a prepared segment, if there is one.
    pub(super) fn take_prepared(&mut self) -> Option<Prepared> {
        self.prepared.pop_front()
    }

    /// Puts back a segment that could not be used yet.
    pub(super) fn give_back(&mut self, prepared: Prepared) {
        self.prepared.push_front(prepared);
    }

    /// Moves on to a segment.
    pub(super) fn push(&mut self, header: &Header) {
        self.live.push_back(Live::of(header));
        while let Some(overtaken) = self.prepared.pop_front_if(|prepared| prepared.number < header.number) {
            self.retired.push_back(overtaken.number);
        }
    }

    /// Notes that the file of a retired segment could be neither removed nor recycled.
    pub(super) fn leave_behind(&mut self, number: u64) {
        self.left_behind.push(number);
    }

    /// Returns the number of prefilled bytes in prepared segments.
    pub(super) fn prepared_bytes(&self) -> u64 {
        self.prepared.iter().map(|prepared| prepared.capacity.saturating_sub(HEADER_BYTES)).sum()
    }

    /// Retires the segments all of whose units come before `first_needed`. Returns their number.
    pub(super) fn retire_before(&mut self, first_needed: Lsn) -> usize {
        self.retire_while(|_, next| next.first_lsn <= first_needed)
    }

    /// Does the same in the log of a group with the segments all of whose entries are covered, and either not wanted or
    /// too much beside the others.
    pub(super) fn retire_through(&mut self, covered: Index, wanted: Index, keep_bytes: u64) -> usize {
        let mut bytes: u64 = self.live.iter().map(|segment| segment.bytes).sum();
        self.retire_while(|oldest, next| {
            let goes = next.after <= covered && (next.after <= wanted || bytes > keep_bytes);
            bytes -= if goes { oldest.bytes } else { 0 };
            goes
        })
    }

    /// Retires the oldest segment as long as `goes` says that the next one has everything that is needed.
    fn retire_while(&mut self, mut goes: impl FnMut(&Live, &Live) -> bool) -> usize {
        let mut retired = 0;
        while let (Some(oldest), Some(next)) = (self.live.front(), self.live.get(1))
            && goes(oldest, next)
        {
            self.retired.push_back(oldest.number);
            self.live.pop_front();
            retired += 1;
        }
        if retired > 0 {
            self.retired.extend(self.left_behind.drain(..));
        }
        retired
    }

    /// Retires all segments behind the one of this number: they are no longer part of the journal.
    pub(super) fn retire_behind(&mut self, number: u64) {
        while let Some(replaced) = self.live.pop_back_if(|newest| newest.number > number) {
            self.retired.push_back(replaced.number);
        }
    }

    /// Returns the number of live segments.
    pub(super) fn count(&self) -> usize {
        self.live.len()
    }
}

/// Makes the file of a segment from these blocks, with zeros up to its capacity. The file and its name are durable.
pub(super) fn new_file(directory: &Directory, header: &Header, blocks: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
    Filling::begin(directory, header.number, header.capacity)?.complete(directory, header, blocks)
}

/// Does the same as [`new_file`] in the file of the prepared segment `ready`, whose length must be the header's
/// capacity. This takes no space. After an error the file is gone.
pub(super) fn file_in_ready(
    directory: &Directory,
    ready: u64,
    header: &Header,
    blocks: &[u8],
) -> io::Result<Arc<dyn DiskFile>> {
    let (old, temporary) = (directory.segment(ready), directory.file(&names::temporary_segment(header.number)));
    let file = match directory.disk().rename(&old, &temporary) {
        Ok(()) => directory.disk().open(&temporary),
        Err(error) => {
            directory.disk().remove(&old)?;
            return Err(error);
        }
    };
    // The file is already filled. Blocks in it state an earlier number.
    let filling = file.map(|file| Filling {
        file,
        temporary: header.number,
        capacity: header.capacity,
        filled: header.capacity,
    })?;
    filling.complete(directory, header, blocks)
}

/// Prepares a segment under a new number.
pub(super) fn make(directory: &Directory, number: u64, capacity: u64) -> io::Result<Prepared> {
    let file = new_file(directory, &Header::prepared(directory.id(), number, capacity), &[])?;
    Ok(Prepared { file, number, capacity })
}

/// Result of one step.
pub(super) enum Filled {
    /// The segment is ready.
    Whole(Prepared),
    /// More pieces remain to be filled.
    InPart(Filling),
}

impl Filling {
    /// Creates the file of a segment.
    pub(super) fn begin(directory: &Directory, temporary: u64, capacity: u64) -> io::Result<Filling> {
        let file = directory.disk().create(&directory.file(&names::temporary_segment(temporary)))?;
        Ok(Filling { file, temporary, capacity, filled: 0 })
    }

    /// Fills the next piece and syncs it, so that a sync of the journal never has to wait for more than one piece. The
    /// last piece turns the file into a segment, whose number is taken from `number` only then.
    pub(super) fn step(mut self, directory: &Directory, number: impl FnOnce() -> u64) -> io::Result<Filled> {
        let end = self.filled + LOG_FILL_BYTES;
        if end < self.capacity {
            self.write(directory, |file, filled| write_zeros(file, filled, end))?;
            self.filled = end;
            return Ok(Filled::InPart(self));
        }
        let (number, capacity) = (number(), self.capacity);
        let file = self.complete(directory, &Header::prepared(directory.id(), number, capacity), &[])?;
        Ok(Filled::Whole(Prepared { file, number, capacity }))
    }

    /// Writes a header, the blocks and the remaining zeros, and gives the file its name, durably.
    fn complete(self, directory: &Directory, header: &Header, blocks: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
        let mut page = [0; HEADER_BYTES as usize];
        let fields = header.encode();
        page[..fields.len()].copy_from_slice(&fields);
        self.write(directory, |file, filled| {
            file.write_at(&page, 0)?;
            file.write_at(blocks, HEADER_BYTES)?;
            write_zeros(file, filled.max(HEADER_BYTES + blocks.len() as u64), self.capacity)
        })?;
        directory.disk().rename(&self.temporary_file(directory), &directory.segment(header.number))?;
        directory.sync()?;
        Ok(self.file)
    }

    /// Writes to the file and syncs it. `write` gets the offset up to which it is filled. After an error the file is
    /// gone.
    fn write(&self, directory: &Directory, write: impl FnOnce(&dyn DiskFile, u64) -> io::Result<()>) -> io::Result<()> {
        let written = write(&*self.file, self.filled).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // If this fails, the next start removes the file.
            let _ = directory.disk().remove(&self.temporary_file(directory));
        }
        written
    }

    fn temporary_file(&self, directory: &Directory) -> PathBuf {
        directory.file(&names::temporary_segment(self.temporary))
    }
}

/// Prepares a segment in the file of an old one. The new name is not durable before the directory is synced. A file
/// whose length is not in `lengths` is removed instead: it is short, or a single large block has made it much longer.
/// An error loses nothing that the journal needs.
pub(super) fn recycle(
    directory: &Directory,
    old: u64,
    number: u64,
    lengths: &Range<u64>,
) -> io::Result<Option<Prepared>> {
    let file = match directory.open_segment(old) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let size = file.size()?;
    if !lengths.contains(&size) {
        return remove(directory, old).map(|()| None);
    }
    let temporary = directory.file(&names::temporary_segment(number));
    directory.disk().rename(&directory.segment(old), &temporary)?;
    let header = Header::prepared(directory.id(), number, size);
    // After a failed sync, the system may show a length that the disk does not have: the sync has to cover the end,
    // too.
    let reused = file
        .write_at(&header.encode(), 0)
        .and_then(|()| file.write_at(&[0], size.saturating_sub(1)))
        .and_then(|()| file.sync_data())
        .and_then(|()| directory.disk().rename(&temporary, &directory.segment(number)));
    if let Err(error) = reused {
        // If this fails, the next start removes the file.
        let _ = directory.disk().remove(&temporary);
        return Err(error);
    }
    Ok(Some(Prepared { file, number, capacity: size }))
}

/// Removes the file of a segment that is no longer needed. It may be gone already.
pub(super) fn remove(directory: &Directory, number: u64) -> io::Result<()> {
    match directory.disk().remove(&directory.segment(number)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
