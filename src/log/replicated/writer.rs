//! Writes the log of a node: entries and ballots, behind each other, or in the place of an uncommitted end.
//!
//! Nothing is cut off in place. The log is cut by a new segment, which follows the last entry that stays, so a crash
//! leaves the old end or the new one. A snapshot takes the place of the whole log in the same way.

use std::collections::VecDeque;
use std::io;

use super::body;
use super::entry::{Entry, Payload};
use super::standing::Standing;
use super::types::{Ballot, Index, Position};
use super::write::Write;
use crate::base::lsn::Lsn;
use crate::log::appender::{Appender, Stop};
use crate::log::block::{ALIGN, Place, REPLICATED_FRAME_BYTES, bind_replicated, stride};
use crate::log::limits::LOG_BLOCK_MAX_BYTES;
use crate::log::planted::{self, Bug};
use crate::log::segment::Header;

/// An entry that a new segment may have to follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) at: Position,
    /// The segment that it is in.
    pub(super) segment: u64,
    /// The checksum of its frame.
    pub(super) crc: u32,
}

impl Placed {
    /// Returns the entry before the first segment of a log.
    pub(super) fn before(first: &Header, at: Position) -> Placed {
        Placed { at, segment: first.previous, crc: first.previous_crc }
    }
}

/// See the module's header.
pub(super) struct EntryWriter {
    pub(super) out: Appender,
    standing: Standing,
    /// The last committed entry and those behind it, oldest first.
    placed: VecDeque<Placed>,
    staged: Staged,
}

/// Blocks that are sealed and not written yet.
#[derive(Default)]
struct Staged {
    bytes: Vec<u8>,
    /// The state behind them.
    standing: Standing,
    placed: Vec<Placed>,
    has_ballot: bool,
}

impl EntryWriter {
    /// Continues a log that ends at `standing`. `placed` has the last committed entry and those behind it.
    pub(super) fn new(out: Appender, standing: Standing, placed: VecDeque<Placed>) -> EntryWriter {
        let mut writer = EntryWriter { out, standing, placed, staged: Staged::default() };
        writer.forget_committed();
        writer
    }

    /// Forgets the places of entries that are committed, but for the last one: no segment will follow them.
    fn forget_committed(&mut self) {
        while self.placed.get(1).is_some_and(|second| second.at.index <= self.standing.committed) {
            self.placed.pop_front();
        }
    }

    /// Does what a write asks for. What is done is taken out of it, so that it can go on after the disk was full.
    pub(super) fn write(&mut self, write: &mut Write) -> Result<(), Stop> {
        if write.ballot.is_some_and(|ballot| !ballot.may_follow(self.standing.ballot)) {
            return Err(self.refuse(self.standing.at.index.next(), "the ballot with it contradicts an earlier one"));
        }
        if let Some(mark) = &write.install {
            if mark.at.index <= self.standing.committed && !planted::is(Bug::InstallOverNewerLog) {
                return Err(self.refuse(mark.at.index, "a snapshot would replace committed ones"));
            }
            let standing = Standing::behind(mark, write.ballot.unwrap_or(self.standing.ballot));
            self.begin_behind(Placed { at: mark.at, segment: 0, crc: 0 }, standing)?;
            (write.install, write.ballot) = (None, None);
        }
        if let Some(first) = write.entries.first().map(|first| first.index)
            && first <= self.standing.at.index
        {
            let stays = self.placed.iter().rfind(|placed| placed.at.index < first).copied();
            let Some(stays) = stays.filter(|stays| stays.at.index.next() == first) else {
                return Err(self.refuse(first, "it would replace a committed one"));
            };
            let ballot = write.ballot.unwrap_or(self.standing.ballot);
            self.begin_behind(stays, Standing { at: stays.at, ballot, ..self.standing })?;
            write.ballot = None;
        }
        self.append(write)
    }

    /// Marks the end of the log as clean: nothing can be missing before it.
    pub(super) fn mark_end(&mut self) -> Result<(), Stop> {
        let next = self.standing.at.link.lsn.next();
        let body = body::of_end(next);
        self.staged = Staged { standing: self.standing, ..Staged::default() };
        self.stage(&body);
        self.out.put(&self.staged.bytes, next.previous())
    }

    /// Goes on in a new segment behind an entry. What followed that entry is no longer part of the log.
    fn begin_behind(&mut self, last: Placed, standing: Standing) -> Result<(), Stop> {
        self.out.replace_segments_behind(last.segment, self.header(last, standing))?;
        let shared = &self.out.shared;
        for lsn in [&shared.written, &shared.durable] {
            lsn.store(standing.at.link.lsn);
        }
        self.standing = standing;
        // Behind a snapshot, no entry before it is there.
        self.placed.retain(|placed| placed.at.index < last.at.index && last.segment > 0);
        self.placed.push_back(last);
        Ok(())
    }

    /// Returns the header of a segment behind an entry. It can't say of itself that it is durable: a start may see it
    /// before it is.
    fn header(&self, last: Placed, mut standing: Standing) -> Header {
        if planted::is(Bug::NoBallotInTheHeader) {
            standing.ballot = Ballot::default();
        }
        Header {
            first_lsn: standing.at.link.lsn.next(),
            previous: last.segment,
            previous_crc: last.crc,
            standing: Some(standing),
            ..Header::prepared(self.out.shared.directory.id(), 0, 0)
        }
    }

    fn append(&mut self, write: &mut Write) -> Result<(), Stop> {
        let known = self.standing.committed.max(write.committed.min(self.standing.at.index));
        self.staged = Staged { standing: Standing { committed: known, ..self.standing }, ..Staged::default() };
        if let Some(ballot) = write.ballot {
            let body = body::of_ballot(ballot, self.next_lsn());
            self.make_room(write, body.len())?;
            self.staged.standing.ballot = ballot;
            self.staged.has_ballot = true;
            self.stage(&body);
        }
        // Entries that are written leave the list.
        while let Some(entry) = write.entries.get(self.staged.placed.len()) {
            let index = entry.index;
            let Some(standing) = self.staged.standing.with(entry, write.committed) else {
                return Err(self.refuse(index, "it does not continue the log"));
            };
            let body = body::of_entry(entry, self.next_lsn());
            if self.make_room(write, body.len())? {
                continue;
            }
            self.staged.standing = standing;
            let crc = self.stage(&body);
            self.staged.placed.push(Placed { at: standing.at, segment: self.out.segment(), crc });
        }
        self.flush(write)
    }

    fn next_lsn(&self) -> Lsn {
        self.staged.standing.at.link.lsn.next()
    }

    /// Moves on to the next segment if a body does not fit into this one. Returns whether it did: what was staged
    /// before is written then.
    fn make_room(&mut self, write: &mut Write, body_bytes: usize) -> Result<bool, Stop> {
        let bytes = stride(REPLICATED_FRAME_BYTES + body_bytes);
        if bytes > LOG_BLOCK_MAX_BYTES as u64 {
            return Err(self.refuse(self.staged.standing.at.index.next(), "it is too long"));
        }
        if !self.out.is_too_long(self.staged.bytes.len() as u64, bytes) {
            return Ok(false);
        }
        self.flush(write)?;
        let last = self.placed.back().copied();
        let Some(last) = last.filter(|last| last.at == self.standing.at) else {
            return Err(self.refuse(self.standing.at.index, "its place is not known"));
        };
        self.out.change_segment(self.header(last, self.standing), bytes)?;
        Ok(true)
    }

    /// Turns a body into the next block. Returns the checksum of its frame.
    fn stage(&mut self, body: &[u8]) -> u32 {
        let place = self.out.place();
        let bytes = &mut self.staged.bytes;
        let start = bytes.len();
        bytes.resize(start + REPLICATED_FRAME_BYTES, 0);
        bytes.extend_from_slice(body);
        let place = Place { offset: place.offset + start as u64, ..place };
        let (frame, body) = bytes[start..].split_at_mut(REPLICATED_FRAME_BYTES);
        let committed = if planted::is(Bug::NothingCommitted) { Index(0) } else { self.staged.standing.committed };
        let crc = bind_replicated(frame, body, &place, self.out.durable_to(), committed);
        bytes.resize(bytes.len().next_multiple_of(ALIGN as usize), 0);
        crc
    }

    /// Writes what is staged, and takes it out of the write.
    fn flush(&mut self, write: &mut Write) -> Result<(), Stop> {
        if !self.staged.bytes.is_empty() {
            self.out.put(&self.staged.bytes, self.staged.standing.at.link.lsn)?;
        }
        self.standing = self.staged.standing;
        write.entries.drain(..self.staged.placed.len());
        if std::mem::take(&mut self.staged.has_ballot) {
            write.ballot = None;
        }
        self.placed.extend(self.staged.placed.drain(..));
        self.staged.bytes.clear();
        self.forget_committed();
        Ok(())
    }

    /// Refuses an entry that no sound core hands over: the log takes nothing more.
    fn refuse(&self, index: Index, why: &str) -> Stop {
        self.out.failed(format!("write entry {index}: {why}"), &io::ErrorKind::InvalidInput.into())
    }
}

impl Standing {
    /// Returns the state behind an entry that follows, when `committed` is known to be committed.
    fn with(self, entry: &Entry, committed: Index) -> Option<Standing> {
        let link = match &entry.payload {
            Payload::Block(block) if block.follows(self.at.link) && block.reign == entry.term => block.link(),
            Payload::Block(_) => return None,
            Payload::Start | Payload::Change(_) => self.at.link,
        };
        let follows =
            entry.index == self.at.index.next() && entry.term >= self.at.term && entry.term <= self.ballot.term;
        let at = Position { index: entry.index, term: entry.term, link };
        follows.then(|| Standing { at, committed: self.committed.max(committed.min(at.index)), ..self })
    }
}
