//! Recovery: reads the journal from an Lsn to its end, tells a torn tail from damage, and opens the journal for
//! writing.
//!
//! The chain of segments is followed backwards from the newest; each ends where its successor begins. Only the last one
//! may end in a torn tail, because the journal moves to a new segment only when the old one is durable. Where its
//! blocks end, the rest of the file is searched for frames that were written later. If one of them says that the
//! missing Lsn had been durable, the tail is not torn but damaged.
//!
//! Reading changes nothing. [`Recovery::finish`] then begins a new segment, and copies into it those blocks that are
//! not known to be durable. After `kill -9` or a failed sync, the page cache shows bytes that no disk has, and data
//! that a client has read must not vanish. The torn tail needs no cutting: the new segment begins before it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::block::{ALIGN, Block, Contents, Damage, Durable, Frame, Place, Record, Units, frames_from, rebind, stride};
use super::directory::Directory;
use super::disk::{Clock, DiskFile, is_full, read_all, read_up_to};
use super::error::LogError;
use super::group_commit::{Log, Options};
use super::identity::Owner;
use super::names;
use super::planted::{self, Bug};
use super::replicated::standing::Standing;
use super::replicated::types::Index;
use super::segment::{BadHeader, FIELD_BYTES, HEADER_BYTES, Header, SEGMENT_MAX_BYTES};
use super::segments::{Current, Live, Segments, file_in_ready, new_file};
use super::shared::Opening;
use crate::base::lsn::Lsn;
use crate::log::limits::LOG_READ_ON_BYTES;

/// The filling of a new segment.
const ZEROS: [u8; 4096] = [0; 4096];

/// Reads the journal of a directory. See the module's header.
pub struct Recovery {
    directory: Arc<Directory>,
    /// The Lsn that the snapshot covers: none of its units can be missing.
    covered: Lsn,
    /// The units up to this one are passed over.
    from: Lsn,
    /// The segments of the journal, oldest first.
    chain: Vec<Header>,
    /// Numbers of the segments that are not part of the journal.
    strays: Vec<u64>,
    /// Numbers of those strays that were prepared but never used.
    ready: Vec<u64>,
    /// Numbers of those strays that are newer than the chain and have an unreadable header.
    damaged: Vec<u64>,
    last_number: u64,
    /// Names of files that were being made.
    unfinished: Vec<String>,
    /// Index of the segment that is being read, and whether it has been loaded.
    at: usize,
    is_loaded: bool,
    bytes: Vec<u8>,
    offset: u64,
    /// The unit that must come next.
    next: Lsn,
    /// What is known to be durable.
    proven: Durable,
    /// The checksum of the last block.
    last_crc: u32,
    /// The checksum of the last block known to be durable.
    proven_crc: u32,
    /// The state of the log of a group behind the block read last, and behind the last one known to be durable. `None`
    /// in the journal of a single server.
    standing: Option<Standing>,
    proven_standing: Option<Standing>,
    /// Blocks of this segment that may not be durable.
    unproven: VecDeque<Passed>,
    end: Option<End>,
    read_bytes: u64,
    total_bytes: u64,
}

/// A block that was read.
#[derive(Clone, Copy)]
pub(super) struct Passed {
    offset: u64,
    frame: Frame,
    contents: Contents,
}

impl Passed {
    /// Returns the checksum of the block's frame.
    pub(super) fn crc(&self) -> u32 {
        self.frame.crc
    }

    /// Whether this is the mark of a clean end.
    fn is_end(&self) -> bool {
        self.contents.record == Record::Units && self.contents.units == 0
    }

    /// Whether a segment that follows may name this block as the last one before it. Neither a ballot nor the mark of a
    /// clean end is what a reader is looking for at the end of a segment.
    fn is_in_chain(&self) -> bool {
        !self.is_end() && !matches!(self.contents.record, Record::Ballot(_))
    }

    /// Returns the last unit up to the end of the block.
    fn last(&self) -> Lsn {
        self.contents.end().previous()
    }

    /// Returns the state behind this block.
    fn after(&self, before: Option<Standing>) -> Result<Option<Standing>, Damage> {
        match before {
            Some(before) => before.after(&self.frame, &self.contents).map(Some),
            None if self.contents.record == Record::Units && self.frame.committed.is_none() => Ok(None),
            None => Err(Damage::History),
        }
    }
}

/// A journal that can be written.
pub(super) struct Opened {
    pub(super) opening: Opening,
    pub(super) current: Current,
    /// The checksum of the last block.
    pub(super) last_crc: u32,
    /// The checksums that the last blocks have in the new segment, which has taken them over.
    pub(super) taken_over: Vec<u32>,
}

/// The end of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The last unit; the `from` of [`Recovery::open`] if there is no later one.
    pub lsn: Lsn,
    /// Whether the journal was closed, so that nothing can be missing.
    pub is_clean: bool,
    /// Remains of writes that a crash interrupted.
    pub torn: Option<TornTail>,
}

/// Blocks whose writes a crash interrupted. None of them had been durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub path: PathBuf,
    /// Where the first of the blocks begins.
    pub offset: u64,
    /// Number of intact frames behind the first torn block: blocks that reached the disk out of order.
    pub later_frames: u64,
}

impl Recovery {
    /// Finds the segments that hold the units after `from`, the Lsn that a snapshot covers.
    pub fn open(directory: impl Into<Arc<Directory>>, from: Lsn) -> Result<Recovery, LogError> {
        Recovery::find(directory.into(), from, u64::MAX)
    }

    /// Does the same as [`Recovery::open`], but also reads the units before `from`, as far as the chain goes back.
    pub fn open_all(directory: impl Into<Arc<Directory>>, from: Lsn) -> Result<Recovery, LogError> {
        let mut recovery = Recovery::open(directory, from)?;
        if let Some(oldest) = recovery.chain.first() {
            recovery.from = from.min(oldest.first_lsn.previous());
            recovery.at = 0;
            recovery.next = oldest.first_lsn;
        }
        Ok(recovery)
    }

    /// Returns the first unit that the segments of a directory may hold; `None` without a segment.
    pub(super) fn first_lsn(directory: Arc<Directory>) -> Result<Option<Lsn>, LogError> {
        let (mut recovery, numbers) = Recovery::list(directory, Lsn::NONE)?;
        recovery.link_chain(&numbers, u64::MAX)?;
        Ok(recovery.oldest().map(|header| header.first_lsn))
    }

    /// Does the same as [`Recovery::open`], but ignores segments from number `before` on.
    pub(super) fn find(directory: Arc<Directory>, from: Lsn, before: u64) -> Result<Recovery, LogError> {
        let (mut recovery, numbers) = Recovery::list(directory, from)?;
        recovery.find_chain(&numbers, before)?;
        Ok(recovery)
    }

    /// Finds the segments that hold the entries after `index` in the log of a group. [`Recovery::standing`] is then the
    /// state before the first of them; it lies behind `index` if older segments are gone.
    pub(super) fn open_after(directory: Arc<Directory>, index: Index) -> Result<Recovery, LogError> {
        let (mut recovery, numbers) = Recovery::list(directory, Lsn::NONE)?;
        let lens = recovery.link_chain(&numbers, u64::MAX)?.0;
        let is_before = |header: &Header| header.standing.is_some_and(|standing| standing.at.index <= index);
        recovery.begin_at(recovery.chain.partition_point(is_before).saturating_sub(1), &lens);
        recovery.standing = recovery.chain.get(recovery.at).and_then(|header| header.standing);
        Ok(recovery)
    }

    /// Lists the files, and returns the numbers of the segments in ascending order.
    fn list(directory: Arc<Directory>, from: Lsn) -> Result<(Recovery, Vec<u64>), LogError> {
        let io = |source| LogError::Io { path: directory.path().to_owned(), source };
        let names = directory.disk().list(directory.path()).map_err(io)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| names::segment_number(name)).collect();
        numbers.sort_unstable();
        let recovery = Recovery {
            directory,
            unfinished: names.into_iter().filter(|name| names::is_temporary(name)).collect(),
            covered: from,
            from,
            chain: Vec::new(),
            strays: Vec::new(),
            ready: Vec::new(),
            damaged: Vec::new(),
            last_number: numbers.last().copied().unwrap_or(0),
            at: 0,
            is_loaded: false,
            bytes: Vec::new(),
            offset: 0,
            next: from.next(),
            proven: Durable::default(),
            last_crc: 0,
            proven_crc: 0,
            standing: None,
            proven_standing: None,
            unproven: VecDeque::new(),
            end: None,
            read_bytes: 0,
            total_bytes: 0,
        };
        Ok((recovery, numbers))
    }

    /// Returns the directory that is read.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Returns the bytes of segments read so far, and their total.
    pub fn progress(&self) -> (u64, u64) {
        (self.read_bytes + self.read_to(), self.total_bytes)
    }

    /// Returns how far the segment that is being read has been read. A segment in the last space of a disk may end
    /// within the padding of its last block.
    fn read_to(&self) -> u64 {
        self.offset.min(self.bytes.len() as u64)
    }

    /// Returns the number of unread bytes of segments, without the zeros at the end of the one being read.
    pub(super) fn unread_bytes(&self) -> u64 {
        let here = self.bytes.get(self.offset as usize..).filter(|_| self.is_loaded).unwrap_or_default();
        let zeros: usize =
            here.rchunks(ZEROS.len()).take_while(|chunk| ZEROS.starts_with(chunk)).map(<[u8]>::len).sum();
        let (read, all) = self.progress();
        all.saturating_sub(read + zeros as u64)
    }

    /// Returns how the journal ends, once [`Recovery::next_block`] has returned `None`.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Returns the segments of the journal, oldest first: the path of each, and the Lsn of its first unit.
    pub fn chain(&self) -> impl Iterator<Item = (PathBuf, Lsn)> {
        self.chain.iter().map(|header| (self.directory.segment(header.number), header.first_lsn))
    }

    /// Returns the header of the oldest segment.
    pub(super) fn oldest(&self) -> Option<&Header> {
        self.chain.first()
    }

    /// Returns the state of the log of a group behind the block read last.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.standing
    }

    /// Returns the body of the block found last.
    pub(super) fn body(&self, passed: &Passed) -> &[u8] {
        let start = passed.offset as usize;
        self.bytes.get(start + passed.frame.head_bytes()..start + passed.frame.len()).unwrap_or_default()
    }

    /// Returns the error for the block found last, the contents of which are damaged although its checksum fits.
    pub(super) fn corrupt_block(&self, passed: &Passed, damage: Damage) -> LogError {
        let path = self.position().0;
        LogError::Corrupt { path, offset: passed.offset, lsn: passed.contents.first_lsn, damage }
    }

    /// Returns the segments of the journal before the one read last.
    pub(super) fn read_before(&self) -> impl Iterator<Item = u64> {
        self.chain.iter().take(self.at).map(|header| header.number)
    }

    /// Declares that the journal ends behind the block read last. Later segments leave the chain.
    pub(super) fn end_here(&mut self) {
        let later = self.chain.split_off((self.at + 1).min(self.chain.len()));
        self.strays.extend(later.iter().map(|header| header.number));
        self.end = Some(End { lsn: self.last_lsn().max(self.from), is_clean: false, torn: None });
    }

    /// Returns the path of the block read last, and the offset behind it: for errors about its units.
    pub fn position(&self) -> (PathBuf, u64) {
        let (segment, offset) = self.place_behind();
        (self.directory.segment(segment), offset)
    }

    /// Returns the segment number of the block read last, and the offset behind it.
    pub(super) fn place_behind(&self) -> (u64, u64) {
        (self.chain.get(self.at).map_or(0, |header| header.number), self.offset)
    }

    /// Follows the chain from the newest segment below number `before`. Returns the lengths of its files, and the
    /// number of the segment before the oldest one.
    fn link_chain(&mut self, numbers: &[u64], before: u64) -> Result<(VecDeque<u64>, u64), LogError> {
        let mut headers = BTreeMap::new();
        for &number in numbers.iter().take_while(|number| **number < before) {
            let io = |source| LogError::Io { path: self.directory.segment(number), source };
            let file = match self.directory.open_segment(number) {
                // A writer has retired it since the files were listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(io)?,
            };
            let mut fields = [0; FIELD_BYTES];
            let read = file.read_at(&mut fields, 0).map_err(io)?;
            let path = || self.directory.segment(number);
            match Header::read(&fields[..read], self.directory.id(), number) {
                Ok(header) if header.first_lsn > Lsn::NONE => {
                    if header.standing.is_some() != (self.directory.owner() != Owner::Server) {
                        let owner = self.directory.owner().to_string();
                        return Err(LogError::Foundling { path: path(), owner });
                    }
                    headers.insert(number, (header, file.size().map_err(io)?));
                    self.damaged.clear();
                }
                Ok(_) => self.ready.push(number),
                Err(BadHeader::Damaged) => self.damaged.push(number),
                Err(BadHeader::Version(version)) => return Err(LogError::Version { path: path(), version }),
                Err(BadHeader::Foreign) => return Err(LogError::Foreign { path: path() }),
            }
        }
        let mut link = headers.keys().next_back().copied().unwrap_or(0);
        let mut lens = VecDeque::new();
        while let Some((header, len)) = headers.remove(&link) {
            link = header.previous;
            self.chain.push(header);
            lens.push_front(len);
        }
        self.chain.reverse();
        let in_chain = |number: &u64| self.chain.iter().any(|header| header.number == *number);
        self.strays = numbers.iter().copied().filter(|number| !in_chain(number)).collect();
        Ok((lens, link))
    }

    fn find_chain(&mut self, numbers: &[u64], before: u64) -> Result<(), LogError> {
        let (lens, link) = self.link_chain(numbers, before)?;
        let Some(oldest) = self.chain.first() else { return Ok(()) };
        let needed = self.covered.next();
        if oldest.first_lsn > needed {
            return Err(if numbers.contains(&link) {
                self.corrupt_header(link, needed)
            } else if self.covered > Lsn::NONE {
                LogError::Gap {
                    snapshot: self.directory.snapshot(self.covered),
                    lsn: self.covered,
                    segment: self.directory.segment(oldest.number),
                    first_lsn: oldest.first_lsn,
                }
            } else {
                LogError::Missing { path: self.directory.segment(link.max(1)), lsn: needed }
            });
        }
        // This is the last segment that begins no later than the needed unit; older ones hold no needed units.
        self.begin_at(self.chain.partition_point(|header| header.first_lsn <= needed).saturating_sub(1), &lens);
        Ok(())
    }

    /// Begins to read with the segment at this place of the chain, if there is one.
    fn begin_at(&mut self, at: usize, lens: &VecDeque<u64>) {
        let Some(header) = self.chain.get(at) else { return };
        (self.at, self.next) = (at, header.first_lsn);
        self.total_bytes = lens.range(at..).sum();
    }

    /// Judges unreadable headers behind the journal's end. A crash has interrupted writing them, unless blocks in their
    /// segments say that they had been durable.
    fn judge_damaged(&self) -> Result<Option<TornTail>, LogError> {
        // Segments with units that the snapshot covers may be gone, so the chain may end before the snapshot does.
        let needed = self.next.max(self.covered.next());
        let mut bytes = Vec::new();
        let mut torn = None;
        for &number in &self.damaged {
            self.read_segment(number, &mut bytes)?;
            let place = self.directory.place(number, HEADER_BYTES);
            if (bytes.len() as u64) < HEADER_BYTES {
                let place = Place { offset: bytes.len() as u64, ..place };
                return Err(self.corrupt(&place, Damage::Short(HEADER_BYTES)));
            }
            let found = frames_from(&bytes, place);
            if found.durable.covers_header(needed) {
                return Err(self.corrupt_header(number, needed));
            }
            if found.frames > 0 {
                torn = Some(TornTail { path: self.directory.segment(number), offset: 0, later_frames: found.frames });
            }
        }
        Ok(torn)
    }

    fn corrupt_header(&self, number: u64, lsn: Lsn) -> LogError {
        LogError::Corrupt { path: self.directory.segment(number), offset: 0, lsn, damage: Damage::Header }
    }

    /// Returns the next block with needed units; `None` at the journal's end.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, LogError> {
        let found = self.find_block()?;
        Ok(found.map(|passed| self.block(&passed)))
    }

    /// Reads past the next block with needed units.
    pub(super) fn find_block(&mut self) -> Result<Option<Passed>, LogError> {
        while let Some(passed) = self.advance()? {
            if self.needs(&passed) {
                return Ok(Some(passed));
            }
        }
        Ok(None)
    }

    /// Whether the block has needed units.
    pub(super) fn needs(&self, passed: &Passed) -> bool {
        passed.contents.end() > self.from.next() && passed.contents.units > 0
    }

    /// Returns the block found last.
    pub(super) fn block(&self, passed: &Passed) -> Block<'_> {
        Block::of(&self.bytes, passed.offset, passed.frame, passed.contents).after(self.from)
    }

    /// Returns units of the block found last: see [`Units::skip_to_last`].
    pub(super) fn last_units(&self, passed: &Passed, bytes: usize, first: Lsn) -> Units<'_> {
        Block::of(&self.bytes, passed.offset, passed.frame, passed.contents).units().skip_to_last(bytes, first)
    }

    /// Whether the journal begins with the very first unit.
    pub(super) fn is_whole(&self) -> bool {
        self.chain.first().is_some_and(|oldest| oldest.first_lsn == Lsn::FIRST)
    }

    /// Reads one block and checks that it is the one that comes next.
    pub(super) fn advance(&mut self) -> Result<Option<Passed>, LogError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let successor = loop {
            let Some(&header) = self.chain.get(self.at) else {
                return self.end_reading(false, None);
            };
            if !self.is_loaded {
                self.begin_segment(header)?;
            }
            match self.chain.get(self.at + 1).copied() {
                Some(successor) if self.is_followed_by(&successor) => self.end_segment(successor)?,
                successor => break successor,
            }
        };
        let place = self.place();
        let block = match Block::read(self.bytes.get(place.offset as usize..).unwrap_or_default(), &place) {
            Ok(block) => block,
            Err(damage) => {
                let torn = self.judge(&place, damage, successor.is_some())?;
                return self.end_reading(false, torn);
            }
        };
        let passed = Passed { offset: place.offset, frame: block.frame, contents: block.contents };
        if passed.contents.first_lsn != self.next {
            return Err(self.corrupt(&place, Damage::Order(passed.contents.first_lsn)));
        }
        if successor.is_some_and(|successor| passed.contents.end() > successor.first_lsn) {
            return Err(self.corrupt(&place, Damage::Chain));
        }
        self.pass(passed).map_err(|damage| self.corrupt(&place, damage))?;
        if passed.is_end() && successor.is_none() {
            return self.end_reading(true, None);
        }
        Ok(Some(passed))
    }

    /// Whether the journal goes on in this segment, behind the block read last.
    fn is_followed_by(&self, successor: &Header) -> bool {
        match (self.standing, successor.standing) {
            // Entries without units have no Lsn.
            (Some(own), Some(next)) => own.at.index == next.at.index,
            _ => successor.first_lsn == self.next,
        }
    }

    fn begin_segment(&mut self, header: Header) -> Result<(), LogError> {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.read_segment(header.number, &mut bytes)?;
        self.bytes = bytes;
        self.is_loaded = true;
        self.offset = HEADER_BYTES;
        // Everything before this segment was durable before it was used.
        self.proven = match header.standing {
            None => Durable::lsn(self.proven.lsn.max(header.first_lsn.previous())).max(header.durable),
            Some(_) => header.durable,
        };
        self.unproven.clear();
        self.last_crc = header.previous_crc;
        self.proven_crc = header.previous_crc;
        // The newest ballot is in the header, even if the end of the segment before was not read.
        self.standing = header.standing;
        self.proven_standing = header.standing;
        if (self.bytes.len() as u64) < header.capacity {
            let place = Place { offset: self.bytes.len() as u64, ..self.place() };
            return Err(self.corrupt(&place, Damage::Short(header.capacity)));
        }
        Ok(())
    }

    /// Checks the end of a segment that was read completely against its successor.
    fn end_segment(&mut self, successor: Header) -> Result<(), LogError> {
        let is_next = match (self.standing, successor.standing) {
            (Some(own), Some(next)) => own.at == next.at && next.ballot.may_follow(own.ballot),
            (own, next) => own == next,
        };
        if successor.previous_crc != self.last_crc || !is_next {
            return Err(self.corrupt(&self.place(), Damage::Chain));
        }
        self.read_bytes += self.bytes.len() as u64;
        self.offset = 0;
        self.at += 1;
        self.is_loaded = false;
        Ok(())
    }

    fn pass(&mut self, passed: Passed) -> Result<(), Damage> {
        if !passed.is_end() {
            self.standing = passed.after(self.standing)?;
        }
        self.offset += stride(passed.frame.len());
        self.next = passed.contents.end();
        self.proven = self.proven.max(passed.frame.durable);
        if planted::is(Bug::NoCopyOfTheTail) {
            self.proven = Durable { lsn: self.last_lsn(), offset: self.offset };
        }
        if passed.is_in_chain() {
            self.last_crc = passed.frame.crc;
        }
        // The next block follows the units before the mark of a clean end.
        if !passed.is_end() {
            self.unproven.push_back(passed);
        }
        while let Some(proven) = self.unproven.pop_front_if(|oldest| self.proven.covers(oldest.offset, oldest.last())) {
            if proven.is_in_chain() {
                self.proven_crc = proven.frame.crc;
            }
            self.proven_standing = proven.after(self.proven_standing)?;
        }
        Ok(())
    }

    fn end_reading(&mut self, is_clean: bool, torn: Option<TornTail>) -> Result<Option<Passed>, LogError> {
        let damaged = self.judge_damaged()?;
        self.end = Some(End { lsn: self.last_lsn().max(self.from), is_clean, torn: torn.or(damaged) });
        Ok(None)
    }

    /// Judges the place where no block could be read: it is the end of the journal, a torn tail, or damage.
    fn judge(&self, place: &Place, damage: Damage, has_successor: bool) -> Result<Option<TornTail>, LogError> {
        let found = frames_from(&self.bytes, Place { offset: place.offset + ALIGN, ..*place });
        if has_successor || !damage.may_be_torn() || found.durable.max(self.proven).covers(place.offset, self.next) {
            return Err(self.corrupt(place, damage));
        }
        let rest = self.bytes.get(place.offset as usize..).unwrap_or_default();
        let is_torn = damage == Damage::Body || found.frames > 0 || Frame::is_remnant(rest, place);
        Ok(is_torn.then(|| TornTail {
            path: self.directory.segment(place.segment),
            offset: place.offset,
            later_frames: found.frames,
        }))
    }

    fn corrupt(&self, place: &Place, damage: Damage) -> LogError {
        LogError::Corrupt { path: self.directory.segment(place.segment), offset: place.offset, lsn: self.next, damage }
    }

    /// Returns the place where the next block should be.
    fn place(&self) -> Place {
        let (segment, offset) = self.place_behind();
        self.directory.place(segment, offset)
    }

    /// Returns the last unit that was passed.
    pub(super) fn last_lsn(&self) -> Lsn {
        self.next.previous()
    }

    /// Reads some of what was written behind the block read last since its segment was loaded. Returns false if that
    /// segment is not loaded, or is no longer part of the log of a group: then the rest must be looked for anew.
    pub(super) fn read_on(&mut self) -> Result<bool, LogError> {
        self.end = None;
        let Some(header) = self.chain.get(self.at).copied().filter(|_| self.is_loaded) else { return Ok(false) };
        // In the log of a group, what lies behind the block may have been cut off, and is still in the file.
        if header.standing.is_some() && !self.find_chain_anew(header.number)? {
            return Ok(false);
        }
        let path = self.directory.segment(header.number);
        let from = self.bytes.len().min(self.offset as usize);
        let to = self.bytes.len().min(from + LOG_READ_ON_BYTES);
        let file = self.directory.open_segment(header.number);
        let read = file.and_then(|file| read_up_to(&*file, &mut self.bytes[from..to], from as u64));
        read.map(|_| true).map_err(|source| LogError::Io { path, source })
    }

    /// Begins again behind the last unit read, with the files as they are by now.
    pub(super) fn begin_again(&mut self) -> Result<(), LogError> {
        let opened = Recovery::open(Arc::clone(&self.directory), self.last_lsn())?;
        // The old buffer is used again: with a second one a reader would take the memory of two segments.
        *self = Recovery { bytes: std::mem::take(&mut self.bytes), ..opened };
        Ok(())
    }

    /// Looks which segments there are by now. Returns whether the one that is being read, of this number, is among
    /// them.
    fn find_chain_anew(&mut self, number: u64) -> Result<bool, LogError> {
        let (mut now, numbers) = Recovery::list(Arc::clone(&self.directory), Lsn::NONE)?;
        now.link_chain(&numbers, u64::MAX)?;
        let Some(at) = now.chain.iter().position(|header| header.number == number) else { return Ok(false) };
        (self.chain, self.at) = (now.chain, at);
        Ok(true)
    }

    fn read_segment(&self, number: u64, bytes: &mut Vec<u8>) -> Result<(), LogError> {
        let read = self.directory.open_segment(number).and_then(|file| read_all(&*file, bytes, SEGMENT_MAX_BYTES));
        read.map_err(|source| LogError::Io { path: self.directory.segment(number), source })
    }

    /// Opens the journal for writing, behind its last unit, after reading any blocks that [`Recovery::next_block`] has
    /// not read yet. The recovered units are durable when this returns.
    ///
    /// `notify` is called when the journal's thread has advanced [`Log::durable`] or [`Log::written`]. It is also
    /// called on the thread that has changed [`Log::state`], which may be inside of [`Log::commit`]. It should wake the
    /// engine and return.
    pub fn finish(
        mut self,
        options: Options,
        clock: Arc<dyn Clock>,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Log, LogError> {
        while self.advance()?.is_some() {}
        let opened = self.open_for_writing(None, options, clock, notify)?;
        Ok(Log::new(opened.opening, opened.current, opened.last_crc))
    }

    /// Begins the segment in which the journal goes on behind the block read last, or behind a snapshot that takes its
    /// place.
    pub(super) fn open_for_writing(
        mut self,
        replaced_by: Option<Standing>,
        options: Options,
        clock: Arc<dyn Clock>,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Opened, LogError> {
        self.remove_unfinished()?;
        let number = self.last_number + 1;
        let before = self.chain.clone();
        let own_end = if self.is_behind_snapshot(&before) { self.covered } else { self.last_lsn() };
        let end = replaced_by.map_or(own_end, |standing| standing.at.link.lsn);
        let mut header = self.successor(number, options.first_segment_bytes, replaced_by);
        let begun = self.begin_in_remaining_space(&mut header);
        let begun = begun.map_err(|source| LogError::Io { path: self.directory.segment(number), source })?;
        let (current, taken_over, newest) = match begun {
            Some((current, taken_over)) => (current, taken_over, Some(header)),
            None if options.may_wait_for_space => (self.wait_for_space(before, replaced_by)?, Vec::new(), None),
            None => {
                let source = io::ErrorKind::StorageFull.into();
                return Err(LogError::Io { path: self.directory.segment(number), source });
            }
        };
        let last_crc =
            taken_over.last().copied().unwrap_or(if newest.is_some() { header.previous_crc } else { self.last_crc });
        let live = self.chain.iter().chain(&newest).map(Live::of).collect();
        let segments = Segments::new(live, self.strays, number + 1);
        let opening = Opening { directory: self.directory, options, clock, notify, segments, end };
        Ok(Opened { opening, current, last_crc, taken_over })
    }

    /// Removes files that were being made when the server ended.
    pub(super) fn remove_unfinished(&self) -> Result<(), LogError> {
        for name in &self.unfinished {
            let path = self.directory.file(name);
            match self.directory.disk().remove(&path) {
                // Their maker gave up and removed the file in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(|source| LogError::Io { path, source })?,
            }
        }
        Ok(())
    }

    /// Whether a snapshot covers more than the whole journal, or there is no journal.
    fn is_behind_snapshot(&self, chain: &[Header]) -> bool {
        chain.is_empty() || self.last_lsn() < self.covered
    }

    /// Returns the header of the segment that continues the journal. That segment takes over the blocks that may not be
    /// durable. Segments from which it takes over everything leave the chain.
    fn successor(&mut self, number: u64, least_bytes: u64, replaced_by: Option<Standing>) -> Header {
        let taken_over: u64 = self.unproven.iter().map(|passed| stride(passed.frame.len())).sum();
        let capacity = least_bytes.max(HEADER_BYTES + taken_over);
        let prepared = Header::prepared(self.directory.id(), number, capacity);
        if let Some(standing) = replaced_by {
            self.strays.extend(self.chain.drain(..).map(|header| header.number));
            self.unproven.clear();
            let first_lsn = standing.at.link.lsn.next();
            return Header { first_lsn, durable: Durable::offset(HEADER_BYTES), standing: Some(standing), ..prepared };
        }
        if self.standing.is_none() && self.is_behind_snapshot(&self.chain) {
            self.strays.extend(self.chain.drain(..).map(|header| header.number));
            self.unproven.clear();
            return Header { first_lsn: self.covered.next(), durable: Durable::lsn(self.covered), ..prepared };
        }
        let first_lsn = self.unproven.front().map_or(self.next, |oldest| oldest.contents.first_lsn);
        let standing = self.proven_standing;
        let is_replaced = |last: &Header| match (last.standing, standing) {
            (Some(last), Some(own)) => last.at.index >= own.at.index,
            _ => last.first_lsn >= first_lsn,
        };
        let mut previous = 0;
        while let Some(last) = self.chain.pop_if(|last| is_replaced(last)) {
            self.strays.push(last.number);
            previous = last.previous;
        }
        let previous = self.chain.last().map_or(previous, |last| last.number);
        let durable = match standing {
            Some(_) => Durable::offset(HEADER_BYTES + taken_over),
            None => Durable::lsn(self.last_lsn()),
        };
        Header { first_lsn, durable, previous, previous_crc: self.proven_crc, standing, ..prepared }
    }

    /// Writes the segment that continues the journal, on a disk that may be full: in the file of a prepared segment, or
    /// shorter than planned. Returns it with the checksums of the blocks taken over; `None` if there is no space at
    /// all.
    fn begin_in_remaining_space(&mut self, header: &mut Header) -> io::Result<Option<(Current, Vec<u32>)>> {
        let taken_over: u64 = self.unproven.iter().map(|passed| stride(passed.frame.len())).sum();
        let least = HEADER_BYTES + taken_over;
        loop {
            let (blocks, taken_over) = self.blocks_to_take_over(header);
            let begun = match new_file(&self.directory, header, &blocks) {
                Err(error) if is_full(&error) => match self.ready.pop() {
                    Some(ready) => self.begin_in_ready(ready, header, least, &blocks),
                    None if header.capacity > least => {
                        header.capacity = least.max(header.capacity / 2 / ALIGN * ALIGN);
                        continue;
                    }
                    None => return Ok(None),
                },
                begun => begun,
            };
            match begun {
                // The space freed by the removed file may suffice.
                Err(error) if is_full(&error) => {}
                begun => {
                    let file = Some(begun?);
                    let Header { number, capacity, .. } = *header;
                    let offset = HEADER_BYTES + blocks.len() as u64;
                    return Ok(Some((Current { file, number, offset, capacity }, taken_over)));
                }
            }
        }
    }

    /// Writes the segment that continues the journal into the file of a prepared one. If that fails, the file is gone.
    fn begin_in_ready(
        &mut self,
        ready: u64,
        header: &mut Header,
        least: u64,
        blocks: &[u8],
    ) -> io::Result<Arc<dyn DiskFile>> {
        self.strays.retain(|stray| *stray != ready);
        let size = self.directory.open_segment(ready)?.size()?;
        if !(least..=SEGMENT_MAX_BYTES).contains(&size) {
            self.directory.disk().remove(&self.directory.segment(ready))?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        file_in_ready(&self.directory, ready, &Header { capacity: size, ..*header }, blocks)
            .inspect(|_| header.capacity = size)
    }

    /// Returns the blocks not known to be durable, bound to the segment of this header, and the checksums of those that
    /// a later segment may follow.
    fn blocks_to_take_over(&self, header: &Header) -> (Vec<u8>, Vec<u32>) {
        let mut place = self.directory.place(header.number, HEADER_BYTES);
        let (mut blocks, mut taken_over) = (Vec::new(), Vec::new());
        for passed in &self.unproven {
            let start = blocks.len();
            blocks.extend_from_slice(&self.bytes[passed.offset as usize..][..passed.frame.len()]);
            let crc = rebind(&mut blocks[start..], &passed.frame, &place, header.durable);
            if passed.is_in_chain() {
                taken_over.push(crc);
            }
            blocks.resize(start + stride(passed.frame.len()) as usize, 0);
            place.offset = HEADER_BYTES + blocks.len() as u64;
        }
        (blocks, taken_over)
    }

    /// Without space for a segment, returns a placeholder until there is some. The journal stays as it was read, in the
    /// segments `chain`.
    fn wait_for_space(&mut self, chain: Vec<Header>, replaced_by: Option<Standing>) -> Result<Current, LogError> {
        if replaced_by.is_some() || self.standing.is_none() && self.is_behind_snapshot(&chain) {
            self.last_crc = 0;
            return Ok(Current::none(0));
        }
        self.strays.retain(|stray| !chain.iter().any(|header| header.number == *stray));
        self.chain = chain;
        self.secure_in_place()?;
        Ok(Current::none(self.place().segment))
    }

    /// Makes durable, in place, what is not known to be, on a disk without space for a copy: the last blocks, and the
    /// header of their segment, which later segments refer to. Their own bytes are written over them, because after a
    /// failed sync the system takes its cached pages for written. A crash during this leaves nothing that a crash could
    /// not have left before.
    fn secure_in_place(&mut self) -> Result<(), LogError> {
        let Some(header) = self.chain.get(self.at) else { return Ok(()) };
        // A header is synced with the first block behind it, or with the blocks that recovery copied into its segment.
        let is_header_durable = self.proven.covers_header(header.first_lsn);
        let first_unproven = self.unproven.front().map(|first| first.offset);
        let Some(from) = (if is_header_durable { first_unproven } else { Some(0) }) else { return Ok(()) };
        let number = header.number;
        let to = self.read_to();
        let written = self.directory.open_segment(number).and_then(|file| {
            file.write_at(&self.bytes[from as usize..to as usize], from)?;
            file.sync_data()
        });
        written.map_err(|source| LogError::Io { path: self.directory.segment(number), source })?;
        self.unproven.clear();
        self.proven_crc = self.last_crc;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::reached::seeds;
    use super::*;
    use crate::base::rng::Rng;
    use crate::log::checksum::crc32c;
    use crate::log::directory::DirectoryId;
    use crate::log::disk::Disk;
    use crate::log::group_commit::{Commit, State, SyncPolicy, tail};
    use crate::log::sim::{Faults, SimDisk};

    const DIRECTORY: &str = "/log";
    const ID: DirectoryId = DirectoryId::new([0x11; 16]);
    const OPTIONS: Options = Options {
        policy: SyncPolicy::Always,
        segment_bytes: 6 * 1024,
        first_segment_bytes: 5 * 1024,
        prepared_segments: 1,
        reserve_bytes: 0,
        may_wait_for_space: true,
    };

    fn recovery(disk: &SimDisk, from: u64) -> Result<Recovery, LogError> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Recovery::open(Directory::open(disk, Path::new(DIRECTORY), ID)?, Lsn::new(from))
    }

    fn open(disk: &SimDisk, options: Options) -> Log {
        recovery(disk, 0).unwrap().finish(options, Arc::new(disk.clone()), Box::new(|| {})).unwrap()
    }

    /// Returns the effects of the units after `from`, and how the journal ends.
    fn read(disk: &SimDisk, from: u64) -> Result<(Vec<Vec<u8>>, End), LogError> {
        let mut recovery = recovery(disk, from)?;
        let mut units = Vec::new();
        while let Some(block) = recovery.next_block()? {
            units.extend(block.units().map(|unit| unit.effects.to_vec()));
        }
        let end = recovery.end().unwrap().clone();
        assert_eq!(end.lsn.get(), from + units.len() as u64);
        let (read, total) = recovery.progress();
        assert!(read <= total, "{read} of {total}");
        Ok((units, end))
    }

    fn unit(lsn: u64) -> Vec<u8> {
        format!("unit {lsn} ").repeat(lsn as usize % 20 + 1).into_bytes()
    }

    /// Appends units of these Lsns, each in a block of its own.
    fn append(log: &Log, lsns: std::ops::RangeInclusive<u64>) {
        for lsn in lsns {
            log.commit(tail(log.buffer(), Lsn::new(lsn), &[unit(lsn)]), Commit::InPlace);
            while log.do_chore() {}
        }
    }

    /// Returns a disk with a journal of `units` units in several segments.
    fn written(units: u64) -> SimDisk {
        let disk = SimDisk::new(units);
        let log = open(&disk, OPTIONS);
        append(&log, 1..=units);
        assert_eq!(log.durable().get(), units);
        drop(log);
        disk
    }

    fn segment_path(number: u64) -> PathBuf {
        Path::new(DIRECTORY).join(names::segment(number))
    }

    #[test]
    fn a_log_is_read_from_where_it_is_needed() {
        let disk = written(100);
        let (all, end) = read(&disk, 0).unwrap();
        assert_eq!(all, (1..=100).map(unit).collect::<Vec<_>>());
        assert_eq!(end, End { lsn: Lsn::new(100), is_clean: false, torn: None });
        assert_eq!(read(&disk, 57).unwrap().0, (58..=100).map(unit).collect::<Vec<_>>());
        assert_eq!(read(&disk, 100).unwrap().0, Vec::<Vec<u8>>::new());
    }

    #[test]
    fn units_of_one_block_are_passed_over_one_by_one() {
        let disk = SimDisk::new(1);
        let log = open(&disk, OPTIONS);
        log.commit(tail(log.buffer(), Lsn::FIRST, &[unit(1), unit(2), unit(3)]), Commit::InPlace);
        drop(log);
        assert_eq!(read(&disk, 1).unwrap().0, [unit(2), unit(3)]);
    }

    #[test]
    fn a_cut_log_is_read_from_its_snapshot_and_not_before() {
        let disk = SimDisk::new(1);
        let log = open(&disk, OPTIONS);
        append(&log, 1..=100);
        let before = log.segments();
        assert!(log.cut(Lsn::new(60)) > 3 && log.segments() < before);
        assert_eq!(log.cut(Lsn::new(60)), 0);
        while log.do_chore() {}
        drop(log);
        assert_eq!(read(&disk, 60).unwrap().0.len(), 40);
        assert!(matches!(read(&disk, 0), Err(LogError::Missing { lsn: Lsn::FIRST, .. })));
    }

    #[test]
    fn a_missing_segment_is_named() {
        let disk = written(100);
        disk.remove(&segment_path(3)).unwrap();
        match read(&disk, 0) {
            Err(LogError::Missing { path, .. }) => assert_eq!(path, segment_path(3)),
            other => panic!("{other:?}"),
        }
        assert_eq!(read(&disk, 99).unwrap().0, [unit(100)]);
    }

    #[test]
    fn a_log_behind_its_snapshot_is_replaced() {
        let disk = written(10);
        assert_eq!(read(&disk, 50).unwrap().1.lsn.get(), 50);
        let recovered = recovery(&disk, 50).unwrap();
        let log = recovered.finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {})).unwrap();
        assert_eq!((log.durable().get(), log.segments()), (50, 1));
        append(&log, 51..=52);
        drop(log);
        assert_eq!(read(&disk, 50).unwrap().0, [unit(51), unit(52)]);
    }

    /// A cut has removed the segments before the newest one. A crash brought back the oldest, and tore the header of
    /// the newest.
    #[test]
    fn a_torn_header_is_no_damage_if_the_snapshot_covers_what_had_been_durable() {
        let disk = SimDisk::new(1);
        let log = open(&disk, Options { policy: SyncPolicy::No, ..OPTIONS });
        append(&log, 1..=100);
        drop(log);
        let chain: Vec<_> = recovery(&disk, 0).unwrap().chain().collect();
        let (newest, first_lsn) = chain.last().unwrap();
        chain[1..chain.len() - 1].iter().for_each(|(path, _)| disk.remove(path).unwrap());
        disk.flip(newest, 20, 1);
        let snapshot = first_lsn.previous();
        let (units, end) = read(&disk, snapshot.get()).unwrap();
        assert!(units.is_empty() && end.torn.is_some_and(|torn| torn.later_frames > 0));
        // A check, which also reads what the snapshot covers, judges alike.
        let directory = Directory::open(Arc::new(disk.clone()), Path::new(DIRECTORY), ID).unwrap();
        let mut all = Recovery::open_all(directory, snapshot).unwrap();
        let mut read_units = 0;
        while let Some(block) = all.next_block().unwrap() {
            read_units += block.units().count();
        }
        assert!(read_units > 0 && all.end().is_some_and(|end| end.torn.is_some()));
        drop(all);
        // Without the snapshot, units are missing that had been durable.
        assert!(matches!(read(&disk, 0), Err(LogError::Corrupt { damage: Damage::Header, .. })));
    }

    #[test]
    fn starts_without_writes_leave_nothing_behind() {
        let disk = written(10);
        let files_after_a_start = || {
            let log = open(&disk, OPTIONS);
            while log.do_chore() {}
            log.close().unwrap();
            disk.list(Path::new(DIRECTORY)).unwrap().len()
        };
        // The first start takes over the blocks not known to be durable, and its segment stays.
        files_after_a_start();
        let files = files_after_a_start();
        for _ in 0..10 {
            assert_eq!(files_after_a_start(), files);
        }
        let (units, end) = read(&disk, 0).unwrap();
        assert_eq!((units.len(), end.is_clean), (10, true));
    }

    #[test]
    fn a_block_that_is_torn_is_cut_unless_it_had_been_durable() {
        // Without syncs no later block proves that this one was durable; with them, the next one does.
        for (policy, is_damage) in [(SyncPolicy::No, false), (SyncPolicy::Always, true)] {
            let disk = SimDisk::new(3);
            let log = open(&disk, Options { policy, first_segment_bytes: 16 * 1024, ..OPTIONS });
            append(&log, 1..=5);
            drop(log);
            let first = 64 + 8 + unit(1).len();
            let offset = HEADER_BYTES + stride(first);
            disk.flip(&segment_path(1), offset + 80, 1);
            match read(&disk, 0) {
                Ok((units, end)) if !is_damage => {
                    assert_eq!(units, [unit(1)]);
                    assert_eq!(end.torn, Some(TornTail { path: segment_path(1), offset, later_frames: 3 }));
                }
                Err(LogError::Corrupt { path, offset: at, lsn, damage }) if is_damage => {
                    assert_eq!((path, at, lsn.get(), damage), (segment_path(1), offset, 2, Damage::Body));
                }
                other => panic!("{policy:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn after_a_cut_nothing_of_the_torn_tail_comes_back() {
        let disk = SimDisk::new(3);
        let log = open(&disk, Options { policy: SyncPolicy::No, ..OPTIONS });
        append(&log, 1..=4);
        drop(log);
        disk.flip(&segment_path(1), HEADER_BYTES + stride(64 + 8 + unit(1).len()), 1);
        let log = open(&disk, OPTIONS);
        assert_eq!(log.durable().get(), 1);
        log.commit(tail(log.buffer(), Lsn::new(2), &[b"another"]), Commit::InPlace);
        drop(log);
        disk.crash();
        assert_eq!(read(&disk, 0).unwrap().0, [unit(1), b"another".to_vec()]);
    }

    #[test]
    fn any_damage_gives_a_prefix_with_a_note_or_a_refusal_with_a_file() {
        let mut refusals = 0;
        let mut cuts = 0;
        for seed in 0..2_000 {
            let mut rng = Rng::seeded(seed);
            let disk = SimDisk::new(seed);
            let log = open(&disk, OPTIONS);
            append(&log, 1..=30);
            if seed % 3 == 0 {
                log.close().unwrap();
            } else {
                drop(log);
            }
            let names = disk.list(Path::new(DIRECTORY)).unwrap();
            let segments: Vec<_> = names.iter().filter(|name| names::segment_number(name).is_some()).collect();
            let path = Path::new(DIRECTORY).join(segments[rng.below(segments.len() as u64) as usize]);
            let len = disk.open(&path).unwrap().size().unwrap();
            if seed % 2 == 0 {
                disk.truncate(&path, rng.below(len));
            } else {
                let at = if rng.below(4) == 0 { rng.below(80) } else { HEADER_BYTES + rng.below(len - HEADER_BYTES) };
                disk.flip(&path, at, 1 << rng.below(8));
            }
            match read(&disk, 0) {
                Ok((units, end)) => {
                    assert_eq!(units, (1..=units.len() as u64).map(unit).collect::<Vec<_>>(), "{seed}");
                    assert!(units.len() == 30 || end.torn.is_some(), "{seed}: nothing was reported about {path:?}");
                    cuts += u64::from(units.len() < 30);
                }
                Err(error) => {
                    assert!(error.to_string().contains(DIRECTORY), "{seed}: {error}");
                    refusals += 1;
                }
            }
        }
        assert!(refusals > 500 && cuts > 10, "{refusals} refusals, {cuts} cuts");
    }

    #[test]
    fn a_segment_of_another_directory_and_of_a_later_version_are_refused() {
        let disk = written(1);
        let file = disk.open(&segment_path(1)).unwrap();
        let foreign = Header { first_lsn: Lsn::FIRST, ..Header::prepared(DirectoryId::new([2; 16]), 1, 0) };
        file.write_at(&foreign.encode(), 0).unwrap();
        assert!(matches!(read(&disk, 0), Err(LogError::Foreign { .. })));
        let mut later = Header::prepared(ID, 1, 0).encode();
        later[8] = 9;
        let crc = crc32c(&later[..76]);
        later[76..80].copy_from_slice(&crc.to_le_bytes());
        file.write_at(&later, 0).unwrap();
        assert!(matches!(read(&disk, 0), Err(LogError::Version { version: 9, .. })));
    }

    #[test]
    fn on_a_full_disk_the_journal_continues_in_a_prepared_or_a_short_segment() {
        // Either a prepared segment takes all the space, or less than a segment is left.
        for (ready_bytes, left_bytes) in [(OPTIONS.first_segment_bytes, 0), (0, OPTIONS.first_segment_bytes - ALIGN)] {
            let disk = written(3);
            let directory = Directory::open(Arc::new(disk.clone()), Path::new(DIRECTORY), ID).unwrap();
            if ready_bytes > 0 {
                crate::log::segments::make(&directory, 9, ready_bytes).unwrap();
            }
            drop(directory);
            disk.set_faults(Faults { capacity: Some(disk.used_bytes() + left_bytes), ..Faults::default() });
            let log = recovery(&disk, 0).unwrap().finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {}));
            drop(log.unwrap_or_else(|error| panic!("{ready_bytes} {left_bytes}: {error}")));
            assert_eq!(read(&disk, 0).unwrap().0.len(), 3, "{ready_bytes} {left_bytes}");
        }
    }

    /// With no space at all, recovered units must not be lost any more, and new ones wait for space.
    #[test]
    fn without_any_space_the_journal_waits_behind_its_last_unit() {
        const SPACELESS: Options = Options { reserve_bytes: ALIGN, ..OPTIONS };
        for seed in 0..300 {
            let mut rng = Rng::seeded(seed);
            let disk = SimDisk::new(seed);
            let policy = if seed % 3 == 0 { SyncPolicy::Always } else { SyncPolicy::No };
            let log = open(&disk, Options { policy, first_segment_bytes: 16 * 1024, ..OPTIONS });
            append(&log, 1..=1 + rng.below(20));
            match seed % 4 {
                0 => log.close().unwrap(),
                1 => {
                    // The system believes that the pages that it failed to sync are on the disk.
                    disk.set_faults(Faults { fail_at: Some(disk.operations()), ..Faults::default() });
                    log.begin_sync();
                    disk.set_faults(Faults::default());
                    drop(log);
                }
                2 => {
                    drop(log);
                    disk.crash();
                }
                _ => drop(log),
            }
            let (units, end) = read(&disk, 0).unwrap();
            disk.set_faults(Faults { capacity: Some(disk.used_bytes()), ..Faults::default() });
            let recovered = recovery(&disk, 0).unwrap();
            let log = recovered.finish(SPACELESS, Arc::new(disk.clone()), Box::new(|| {})).unwrap();
            assert_eq!((log.state(), log.durable()), (State::Full, end.lsn), "{seed}");
            while log.do_chore() {}
            if seed % 5 == 0 {
                // A restart finds the same units.
                log.close().unwrap();
                disk.crash();
                assert_eq!(read(&disk, 0).unwrap().0, units, "{seed}");
                continue;
            }
            let next = end.lsn.get() + 1;
            append(&log, next..=next);
            assert_eq!((log.state(), log.written()), (State::Full, end.lsn), "{seed}");
            if seed % 5 == 1 {
                drop(log);
                disk.crash();
                assert_eq!(read(&disk, 0).unwrap().0, units, "{seed}");
                continue;
            }
            disk.set_capacity(None);
            log.nudge();
            while log.do_chore() {}
            assert_eq!((log.state(), log.durable().get()), (State::Good, next), "{seed}");
            append(&log, next + 1..=next + 30);
            drop(log);
            disk.crash();
            let all: Vec<_> = units.into_iter().chain((next..=next + 30).map(unit)).collect();
            assert_eq!(read(&disk, 0).unwrap().0, all, "{seed}");
        }
    }

    /// The process may end at any time, also between the header of a segment and its first block.
    #[test]
    fn later_segments_refer_to_no_segment_that_a_crash_can_take_away() {
        for seed in 0..3 {
            for operation in 0.. {
                let disk = SimDisk::new(seed);
                let log = open(&disk, OPTIONS);
                let ends_at = disk.operations() + operation;
                disk.set_faults(Faults { crash_at: Some(ends_at), ..Faults::default() });
                append(&log, 1..=20);
                drop(log);
                if !disk.is_off() {
                    break;
                }
                disk.kill();
                let (mut units, end) = read(&disk, 0).unwrap();
                disk.set_faults(Faults { capacity: Some(disk.used_bytes()), ..Faults::default() });
                let log = open(&disk, OPTIONS);
                disk.set_capacity(None);
                log.nudge();
                while log.do_chore() {}
                let next = end.lsn.get() + 1;
                append(&log, next..=next + 30);
                drop(log);
                disk.crash();
                units.extend((next..=next + 30).map(unit));
                let found = read(&disk, 0).map_err(|error| format!("{seed} {operation}: {error}"));
                assert_eq!(found.unwrap().0, units, "{seed} {operation}");
            }
        }
    }

    /// A journal that lives several times on a disk that may be full when it starts.
    struct Lives {
        rng: Rng,
        disk: SimDisk,
        /// The Lsn that the last snapshot covers.
        snapshot: u64,
        /// The last unit that was durable at some time.
        durable: u64,
    }

    impl Lives {
        /// Checks that the journal gives each unit behind the snapshot, up to the last durable one at least.
        fn check(&self) -> Result<(), String> {
            let (units, end) = read(&self.disk, self.snapshot).map_err(|error| error.to_string())?;
            if end.lsn.get() < self.durable {
                return Err(format!("it ends at {}, although {} was durable", end.lsn, self.durable));
            }
            let expected = (self.snapshot + 1..=end.lsn.get()).map(unit);
            if expected.eq(units) { Ok(()) } else { Err("it holds other units".to_owned()) }
        }

        /// Starts the journal and writes to it, until the process or the power ends.
        fn live(&mut self) {
            let is_full = self.rng.below(2) == 0;
            let left_bytes = [0, 0, 4_096, 5_000, 9_000][self.rng.below(5) as usize];
            let mut faults =
                Faults { capacity: is_full.then(|| self.disk.used_bytes() + left_bytes), ..Faults::default() };
            let within = |rng: &mut Rng, operations| Some(self.disk.operations() + rng.below(operations));
            match self.rng.below(4) {
                0 => faults.crash_at = within(&mut self.rng, 25),
                1 => faults.crash_at = within(&mut self.rng, 200),
                2 => faults.fail_at = within(&mut self.rng, 120),
                _ => {}
            }
            self.disk.set_faults(faults);
            let policy = if self.rng.below(3) == 0 { SyncPolicy::No } else { SyncPolicy::Always };
            let options = Options { policy, reserve_bytes: ALIGN, ..OPTIONS };
            let opened = recovery(&self.disk, self.snapshot)
                .and_then(|recovered| recovered.finish(options, Arc::new(self.disk.clone()), Box::new(|| {})));
            if let Ok(log) = opened {
                self.write(&log);
                if self.rng.below(4) == 0 {
                    // A journal that can't be closed has failed.
                    let _ = log.close();
                }
            }
            self.disk.set_faults(Faults::default());
            if self.rng.below(2) == 0 { self.disk.kill() } else { self.disk.crash() }
        }

        fn write(&mut self, log: &Log) {
            self.durable = self.durable.max(log.durable().get());
            let mut next = log.written().get() + 1;
            for _ in 0..self.rng.below(40) {
                match self.rng.below(12) {
                    0 if log.state() != State::Poisoned && !self.disk.is_off() => {
                        self.snapshot += self.rng.below(log.written().get() - self.snapshot + 1);
                        self.durable = self.durable.max(self.snapshot);
                        log.cut(Lsn::new(self.snapshot));
                    }
                    1 => {
                        self.disk.set_capacity(None);
                        log.nudge();
                    }
                    2 => {
                        log.begin_sync();
                        log.step();
                    }
                    3 => while log.do_chore() {},
                    4 => _ = log.do_chore(),
                    _ => {
                        log.commit(tail(log.buffer(), Lsn::new(next), &[unit(next)]), Commit::InPlace);
                        next += 1;
                    }
                }
                self.durable = self.durable.max(log.durable().get());
            }
        }
    }

    /// `SUITE_ROUNDS` says how many seeds to run, from `SUITE_SEED` on.
    #[test]
    fn starts_on_full_disks_keep_what_was_durable() {
        for seed in seeds(2_000) {
            let disk = SimDisk::new(seed);
            let mut lives = Lives { rng: Rng::seeded(seed), disk, snapshot: 0, durable: 0 };
            // The directory is there before the disk can be full.
            lives.check().unwrap();
            for life in 1..=6 {
                lives.live();
                lives.check().unwrap_or_else(|error| panic!("seed {seed}, after life {life}: {error}"));
            }
        }
    }

    #[test]
    fn progress_does_not_exceed_a_segment_that_ends_within_padding() {
        let disk = SimDisk::new(1);
        let block = 64 + 8 + unit(1).len();
        let capacity = HEADER_BYTES + block as u64;
        assert!(stride(block) > block as u64);
        let log = open(&disk, Options { first_segment_bytes: capacity, ..OPTIONS });
        append(&log, 1..=1);
        drop(log);
        let mut recovery = recovery(&disk, 0).unwrap();
        while recovery.next_block().unwrap().is_some() {}
        assert_eq!(recovery.progress(), (capacity, capacity));
        assert_eq!(recovery.unread_bytes(), 0);
    }

    #[test]
    fn a_snapshot_needs_no_space_for_a_segment_behind_it() {
        let disk = written(10);
        disk.set_faults(Faults { capacity: Some(disk.used_bytes()), ..Faults::default() });
        let recovered = recovery(&disk, 50).unwrap();
        let log = recovered.finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {})).unwrap();
        log.commit(tail(log.buffer(), Lsn::new(51), &[unit(51)]), Commit::InPlace);
        disk.set_capacity(None);
        log.nudge();
        assert_eq!(log.durable().get(), 51);
        while log.do_chore() {}
        drop(log);
        assert_eq!(read(&disk, 50).unwrap().0, [unit(51)]);
    }

    #[test]
    fn recovery_that_cannot_write_says_so_and_changes_nothing() {
        let disk = written(3);
        for operation in 0..10 {
            disk.set_faults(Faults { fail_at: Some(disk.operations() + operation), ..Faults::default() });
            let refused = recovery(&disk, 0)
                .and_then(|recovered| recovered.finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {})));
            disk.set_faults(Faults::default());
            assert!(matches!(refused.map(|_| ()), Err(LogError::Io { .. })), "{operation}");
            assert_eq!(read(&disk, 0).unwrap().0.len(), 3, "{operation}");
        }
    }
}
