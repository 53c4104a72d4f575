//! Blocks: the unit of writing of group commit. Each write puts one block into a segment. docs/log-format.md is the
//! specification.
//!
//! A block has two parts. The *body* holds whole units and says nothing about this machine: the same bytes, with the
//! same checksum, can be an entry of a replicated log ([`replicated`](super::replicated)). The *frame* in front of it
//! binds the body to its place: directory, segment and offset. Thanks to this binding, neither the old blocks of a
//! recycled file nor bytes chosen by a client can be mistaken for a block.
//!
//! The frame also says what was durable when the block was written. A block that can't be read is a torn tail, which
//! may be cut off, unless a later frame says that its Lsn had been durable. In that case it was lost later, and nothing
//! may be cut.

use std::fmt;

use super::checksum::{crc32c, crc32c_append};
use super::identity::DirectoryId;
use super::planted::{self, Bug};
use super::replicated::members::MemberChange;
use super::replicated::types::{Ballot, Index, NodeId, Term};
use crate::base::lsn::Lsn;

/// Bytes that a buffer of units leaves free at its start for the frame and the head of the body.
pub const HEAD_BYTES: usize = 64;

/// Bytes in front of a unit's effects: format, origin and length.
pub const UNIT_HEAD_BYTES: usize = 8;

/// Blocks begin at multiples of this.
pub(super) const ALIGN: u64 = 8;

/// Bytes of a segment's header; the first block follows it.
pub(super) const HEADER_BYTES: u64 = 4096;

const MAGIC: [u8; 4] = *b"TGB1";
const FRAME_BYTES: usize = 40;

/// The frame of version 2 also says which entry was committed.
const REPLICATED_MAGIC: [u8; 4] = *b"TGB2";
pub(super) const REPLICATED_FRAME_BYTES: usize = 48;

/// The formats of bodies. Those behind the first one belong to the log of a group.
pub(super) mod format {
    /// Units of a single server; none of them: the mark of a clean end.
    pub(in crate::log) const UNITS: u8 = 1;
    pub(in crate::log) const BLOCK: u8 = 2;
    pub(in crate::log) const START: u8 = 3;
    pub(in crate::log) const CHANGE: u8 = 4;
    pub(in crate::log) const BALLOT: u8 = 5;

    /// Bytes before the units of a body that has some, and the whole length of the others.
    pub(in crate::log) const UNITS_HEAD_BYTES: usize = super::HEAD_BYTES - super::FRAME_BYTES;
    pub(crate) const BLOCK_BYTES: usize = 40;
    pub(in crate::log) const START_BYTES: usize = 32;
    /// Bytes before the change itself, whose length depends on its kind.
    pub(in crate::log) const CHANGE_HEAD_BYTES: usize = 32;
    pub(in crate::log) const BALLOT_BYTES: usize = 40;
}

/// The initial value of the checksum of every frame in a directory: the checksum of the directory's identity.
#[derive(Clone, Copy)]
pub(super) struct FrameSeed(u32);

impl FrameSeed {
    pub(super) fn of(directory: DirectoryId) -> FrameSeed {
        FrameSeed(crc32c(directory.as_bytes()))
    }
}

/// Like the identity itself, it must not appear in debugging output.
impl fmt::Debug for FrameSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameSeed(..)")
    }
}

/// The place of a block. A directory [makes](super::directory::Directory::place) its places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) seed: FrameSeed,
    pub(super) segment: u64,
    /// Bytes from the start of the file; a multiple of 8.
    pub(super) offset: u64,
}

impl Place {
    /// Returns the checksum of a frame at this place.
    fn crc_of(&self, frame: &[u8]) -> u32 {
        crc32c_append(self.seed.0, frame)
    }

    /// Returns the place in the form that a frame states it.
    fn stated(&self) -> [u8; 16] {
        let mut stated = [0; 16];
        stated[..8].copy_from_slice(&self.segment.to_le_bytes());
        stated[8..].copy_from_slice(&self.offset.to_le_bytes());
        stated
    }
}

/// Encodes the head of a unit whose effects have the format `format` and take `len` bytes.
pub fn unit_head(format: u8, origin: u8, len: u32) -> [u8; UNIT_HEAD_BYTES] {
    let [a, b, c, d] = len.to_le_bytes();
    [format, origin, 0, 0, a, b, c, d]
}

/// How far everything was durable when a frame or a header was written. Each version of the format states it in its own
/// way; the other one is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Durable {
    /// Version 1: the last unit.
    pub(super) lsn: Lsn,
    /// Version 2: the end of the last block in the same segment, or of its header; 0 if not even that was durable. A
    /// block need not have units there.
    pub(super) offset: u64,
}

impl Durable {
    pub(super) const fn lsn(lsn: Lsn) -> Durable {
        Durable { lsn, offset: 0 }
    }

    pub(super) const fn offset(offset: u64) -> Durable {
        Durable { lsn: Lsn::NONE, offset }
    }

    pub(super) fn max(self, other: Durable) -> Durable {
        Durable { lsn: self.lsn.max(other.lsn), offset: self.offset.max(other.offset) }
    }

    /// Whether the header of a segment was durable. `first_lsn` is its first unit.
    pub(super) fn covers_header(self, first_lsn: Lsn) -> bool {
        self.offset >= HEADER_BYTES || self.lsn >= first_lsn
    }

    /// Whether a block that begins at `offset`, and whose last unit is `lsn`, was durable.
    pub(super) fn covers(self, offset: u64, lsn: Lsn) -> bool {
        self.offset > offset || self.lsn >= lsn && self.lsn > Lsn::NONE
    }
}

/// What a body is in the log of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Nothing: a single server has written it.
    Units,
    /// An entry with units, and the checksum of the body of the block before.
    Block { term: Term, previous: u32 },
    /// Any other entry.
    Entry { term: Term },
    /// No entry.
    Ballot(Ballot),
}

/// The facts about units in the head of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// The Lsn of the first unit; without units, the Lsn of the unit that would come next.
    pub(super) first_lsn: Lsn,
    pub(super) units: u32,
    /// Wall clock of the server that made the units, in milliseconds since 1970. It may go backwards from block to
    /// block.
    pub(super) time_ms: i64,
    pub(super) record: Record,
}

impl Contents {
    /// Describes units of a single server.
    pub(super) fn units(first_lsn: Lsn, units: u32, time_ms: i64) -> Contents {
        Contents { first_lsn, units, time_ms, record: Record::Units }
    }

    /// Reads the head of a body. Returns the rest of the body, too.
    fn read(body: &[u8]) -> Result<(Contents, &[u8]), Damage> {
        let (common, units) = head_of::<{ format::UNITS_HEAD_BYTES }>(body)?;
        let (record, rest) = match common[0] {
            format::UNITS => (Record::Units, units),
            format::BLOCK => {
                let (head, rest) = head_of::<{ format::BLOCK_BYTES }>(body)?;
                (Record::Block { term: Term(u64_at(head, 24)), previous: u32_at(head, 32) }, rest)
            }
            format::START => {
                let (head, rest) = head_of::<{ format::START_BYTES }>(body)?;
                (Record::Entry { term: Term(u64_at(head, 24)) }, rest)
            }
            format::CHANGE => {
                let (head, change) = head_of::<{ format::CHANGE_HEAD_BYTES }>(body)?;
                MemberChange::read(change).ok_or(Damage::Units)?;
                (Record::Entry { term: Term(u64_at(head, 24)) }, &[][..])
            }
            format::BALLOT => {
                let (head, rest) = head_of::<{ format::BALLOT_BYTES }>(body)?;
                (Record::Ballot(Ballot { term: Term(u64_at(head, 24)), vote: NodeId::new(u64_at(head, 32)) }), rest)
            }
            unknown => return Err(Damage::Format(unknown)),
        };
        let (first_lsn, units) = (Lsn::new(u64_at(common, 8)), u32_at(common, 4));
        Ok((Contents { first_lsn, units, time_ms: u64_at(common, 16) as i64, record }, rest))
    }

    /// Whether this many units can be in such a body.
    fn is_sound(&self) -> bool {
        let has_units = self.units > 0;
        self.first_lsn > Lsn::NONE
            && match self.record {
                Record::Units => true,
                Record::Block { .. } => has_units,
                Record::Entry { .. } | Record::Ballot(_) => !has_units,
            }
    }

    /// Returns the Lsn behind the last unit of the block.
    pub(super) fn end(&self) -> Lsn {
        self.first_lsn.plus(u64::from(self.units))
    }
}

fn head_of<const BYTES: usize>(body: &[u8]) -> Result<(&[u8; BYTES], &[u8]), Damage> {
    body.split_first_chunk().ok_or(Damage::Units)
}

/// Turns `bytes` into a block. Its first [`HEAD_BYTES`] are free, and the units lie behind them. Returns the checksum
/// of the frame, which identifies the block.
pub(super) fn seal(bytes: &mut [u8], place: &Place, durable: Lsn, contents: Contents) -> u32 {
    let (frame, body) = bytes.split_at_mut(FRAME_BYTES);
    body[0..8].copy_from_slice(&[format::UNITS, 0, 0, 0, 0, 0, 0, 0]);
    body[4..8].copy_from_slice(&contents.units.to_le_bytes());
    body[8..16].copy_from_slice(&contents.first_lsn.get().to_le_bytes());
    body[16..24].copy_from_slice(&contents.time_ms.to_le_bytes());
    bind(frame, body, place, durable)
}

/// Binds the block of a segment to a new place: only its frame changes.
pub(super) fn rebind(bytes: &mut [u8], old: &Frame, place: &Place, durable: Durable) -> u32 {
    let (frame, body) = bytes.split_at_mut(old.head_bytes());
    match old.committed {
        Some(committed) => bind_replicated(frame, body, place, durable.offset, committed),
        None => bind(frame, body, place, durable.lsn),
    }
}

fn bind(frame: &mut [u8], body: &[u8], place: &Place, durable: Lsn) -> u32 {
    frame[32..40].copy_from_slice(&durable.get().to_le_bytes());
    bind_to(frame, body, place, MAGIC)
}

/// Turns `frame`, which has [`REPLICATED_FRAME_BYTES`], and `body` into a block of version 2. `durable` is the end of
/// the last durable block in the same segment.
pub(super) fn bind_replicated(frame: &mut [u8], body: &[u8], place: &Place, durable: u64, committed: Index) -> u32 {
    frame[32..40].copy_from_slice(&durable.to_le_bytes());
    frame[40..48].copy_from_slice(&committed.0.to_le_bytes());
    bind_to(frame, body, place, REPLICATED_MAGIC)
}

fn bind_to(frame: &mut [u8], body: &[u8], place: &Place, magic: [u8; 4]) -> u32 {
    frame[8..12].copy_from_slice(&crc32c(body).to_le_bytes());
    frame[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    frame[16..32].copy_from_slice(&place.stated());
    let crc = place.crc_of(&frame[8..]);
    frame[0..4].copy_from_slice(&magic);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Why there is no block at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// There is no frame of this place. This is normal at the end of the journal.
    #[error("no block begins here")]
    Frame,
    /// The frame is intact, but its body is not.
    #[error("the block's checksum does not match")]
    Body,
    /// The body has a format that this server does not know.
    #[error("the block has format {0}, which this version of Tidegate does not know")]
    Format(u8),
    /// The checksums match, but the units don't fill the body.
    #[error("the block is whole, but its units do not fill it")]
    Units,
    /// The block does not begin with the next unit.
    #[error("the block begins with Lsn {0}, which is not the expected one")]
    Order(Lsn),
    /// The block belongs to another history than the blocks before it.
    #[error("the block does not continue the log before it")]
    History,
    /// The next segment names another block as its predecessor.
    #[error("the next segment does not follow this block")]
    Chain,
    /// The header of a needed segment is damaged.
    #[error("the segment's header is damaged")]
    Header,
    /// The file is shorter than it was when it was made.
    #[error("the file ends here, but it had {0} bytes")]
    Short(u64),
}

impl Damage {
    /// Whether an interrupted write can leave this behind. Any other damage was once written as it is.
    pub(super) fn may_be_torn(self) -> bool {
        matches!(self, Damage::Frame | Damage::Body)
    }
}

/// A frame whose checksum matches its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The frame's own checksum, by which the next segment refers to its predecessor's last block.
    pub(super) crc: u32,
    pub(super) body_crc: u32,
    body_bytes: u32,
    /// What was durable when the block was written.
    pub(super) durable: Durable,
    /// The last entry that was known to be committed, in the log of a group.
    pub(super) committed: Option<Index>,
}

impl Frame {
    /// Reads the frame at the start of `bytes`, which lie at `place`.
    pub(super) fn read(bytes: &[u8], place: &Place) -> Option<Frame> {
        let frame = bytes.first_chunk::<FRAME_BYTES>()?;
        let durable = u64_at(frame, 32);
        let (whole, durable, committed) = match bytes.first_chunk::<REPLICATED_FRAME_BYTES>() {
            Some(long) if long.starts_with(&REPLICATED_MAGIC) => {
                (&long[..], Durable::offset(durable), Some(Index(u64_at(long, 40))))
            }
            _ if frame.starts_with(&MAGIC) => (&frame[..], Durable::lsn(Lsn::new(durable)), None),
            _ => return None,
        };
        let crc = u32_at(frame, 4);
        let is_valid = is_of(frame, place) && place.crc_of(&whole[8..]) == crc;
        let (body_crc, body_bytes) = (u32_at(frame, 8), u32_at(frame, 12));
        is_valid.then_some(Frame { crc, body_crc, body_bytes, durable, committed })
    }

    /// Whether the bytes at `place` look like the remnant of a frame, which is never how a segment ends. An old block
    /// of a recycled file does not count: it is whole at the place that it states.
    pub(super) fn is_remnant(bytes: &[u8], place: &Place) -> bool {
        let Some(frame) = bytes.first_chunk::<FRAME_BYTES>() else { return false };
        let older = Place { segment: u64_at(frame, 16), ..*place };
        let has_magic = [MAGIC, REPLICATED_MAGIC].iter().any(|magic| frame.starts_with(magic));
        (has_magic || frame[16..32] == place.stated()) && Frame::read(bytes, &older).is_none()
    }

    /// Returns the length of the block in bytes, frame and body.
    pub(super) fn len(&self) -> usize {
        self.head_bytes() + self.body_bytes as usize
    }

    /// Returns the bytes of the frame alone, after which the body begins.
    pub(super) fn head_bytes(&self) -> usize {
        if self.committed.is_some() { REPLICATED_FRAME_BYTES } else { FRAME_BYTES }
    }
}

/// Whether the frame states this place.
fn is_of(frame: &[u8; FRAME_BYTES], place: &Place) -> bool {
    let unchecked = if planted::is(Bug::NoSegmentNumber) { 8 } else { 0 };
    frame[16 + unchecked..32] == place.stated()[unchecked..]
}

/// The result of [`frames_from`].
pub(super) struct Found {
    pub(super) frames: u64,
    /// Everything that any of the frames calls durable.
    pub(super) durable: Durable,
}

/// Looks for frames in the bytes of a segment, from `place` on.
pub(super) fn frames_from(bytes: &[u8], mut place: Place) -> Found {
    let mut found = Found { frames: 0, durable: Durable::default() };
    while let Some(bytes) = bytes.get(place.offset as usize..).filter(|bytes| !bytes.is_empty()) {
        if let Some(frame) = Frame::read(bytes, &place) {
            found.frames += 1;
            found.durable = found.durable.max(frame.durable);
        }
        place.offset += ALIGN;
    }
    found
}

/// A block that was read: everything in it has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    pub(super) frame: Frame,
    pub(super) contents: Contents,
    /// The units that are not skipped, and the Lsn of the first of them.
    units: &'a [u8],
    first: Lsn,
}

impl<'a> Block<'a> {
    /// Reads the block at the start of `bytes`, which lie at `place` and reach to the end of the file. Nothing is
    /// believed before its checksum matches; that of the frame covers the length of the body and the body's checksum.
    pub(super) fn read(bytes: &'a [u8], place: &Place) -> Result<Block<'a>, Damage> {
        let frame = Frame::read(bytes, place).ok_or(Damage::Frame)?;
        let end = frame.head_bytes().checked_add(frame.body_bytes as usize).ok_or(Damage::Body)?;
        let body = bytes.get(frame.head_bytes()..end).ok_or(Damage::Body)?;
        if crc32c(body) != frame.body_crc {
            return Err(Damage::Body);
        }
        let (contents, units) = Contents::read(body)?;
        let block = Block { frame, contents, units, first: contents.first_lsn };
        block.units_fit().then_some(block).ok_or(Damage::Units)
    }

    /// Returns a block of a segment's `bytes` that was read and checked before.
    pub(super) fn of(bytes: &'a [u8], offset: u64, frame: Frame, contents: Contents) -> Block<'a> {
        let body = bytes.get(offset as usize..).and_then(|bytes| bytes.get(frame.head_bytes()..frame.len()));
        let units = body.and_then(|body| Contents::read(body).ok()).map_or(&[][..], |(_, units)| units);
        Block { frame, contents, units, first: contents.first_lsn }
    }

    /// Skips the units up to `lsn`.
    pub(super) fn after(mut self, lsn: Lsn) -> Block<'a> {
        while self.first <= lsn
            && let Some((_, rest)) = split_unit(self.units, self.first)
        {
            (self.units, self.first) = (rest, self.first.next());
        }
        self
    }

    /// Wall clock of the server that made the units, in milliseconds since 1970. It may go backwards from block to
    /// block.
    pub fn time_ms(&self) -> i64 {
        self.contents.time_ms
    }

    /// Returns the Lsn of the first unit.
    pub(crate) fn first_lsn(&self) -> Lsn {
        self.first
    }

    /// Returns the Lsn of the last unit.
    pub(crate) fn last_lsn(&self) -> Lsn {
        self.contents.end().previous()
    }

    /// Returns the bytes of the units, which lie one behind the other.
    pub(crate) fn unit_bytes(&self) -> &'a [u8] {
        self.units
    }

    /// Returns the units in order, each with its Lsn.
    pub fn units(&self) -> Units<'a> {
        units_in(self.units, self.first)
    }

    fn units_fit(&self) -> bool {
        let mut all = self.units();
        let found = all.by_ref().count();
        all.rest.is_empty() && found == self.contents.units as usize && self.contents.is_sound()
    }
}

/// Returns the distance from the start of a block of `len` bytes to the place of the next block.
pub(super) fn stride(len: usize) -> u64 {
    (len as u64).next_multiple_of(ALIGN)
}

/// A unit: the changes of a command, a transaction or a script, which happen as a whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Position in the journal.
    pub lsn: Lsn,
    /// Format of the effects.
    pub format: u8,
    /// Cause of the unit, in the numbers that the keyspace gives to origins.
    pub origin: u8,
    /// The encoded effects.
    pub effects: &'a [u8],
}

/// Units that lie one behind the other.
pub struct Units<'a> {
    rest: &'a [u8],
    /// The Lsn of the next unit, and whether the Lsns increase; in a snapshot all units have the same Lsn.
    next: Lsn,
    are_numbered: bool,
}

impl Units<'_> {
    /// Skips all units but those in the last `bytes` bytes, the first of which has the Lsn `first`. See
    /// [`bytes_left`](Self::bytes_left).
    pub(super) fn skip_to_last(mut self, bytes: usize, first: Lsn) -> Self {
        let passed = self.rest.len().saturating_sub(bytes);
        (self.rest, self.next) = (&self.rest[passed..], first);
        self
    }

    /// Returns the bytes of the units that are left, including their heads.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.rest
    }

    /// Returns how many bytes of units are left, including their heads.
    pub fn bytes_left(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Units<'a> {
    type Item = Unit<'a>;

    fn next(&mut self) -> Option<Unit<'a>> {
        let (unit, rest) = split_unit(self.rest, self.next)?;
        self.rest = rest;
        if self.are_numbered {
            self.next = self.next.next();
        }
        Some(unit)
    }
}

/// Reads `bytes` as units, each behind its [`unit_head`]; the first has the Lsn `first`.
pub fn units_in(bytes: &[u8], first: Lsn) -> Units<'_> {
    Units { rest: bytes, next: first, are_numbered: true }
}

/// Reads `bytes` as units of a snapshot up to `lsn`: all of them have that Lsn.
pub(super) fn units_up_to(bytes: &[u8], lsn: Lsn) -> Units<'_> {
    Units { rest: bytes, next: lsn, are_numbered: false }
}

/// Splits the first unit, which has this Lsn, off `bytes`. Returns `None` if it is not whole.
pub(super) fn split_unit(bytes: &[u8], lsn: Lsn) -> Option<(Unit<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<UNIT_HEAD_BYTES>()?;
    let (effects, rest) = rest.split_at_checked(u32_at(head, 4) as usize)?;
    Some((Unit { lsn, format: head[0], origin: head[1], effects }, rest))
}

/// Returns the number at `at`. All callers read from arrays, within their length.
pub(crate) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// Returns the number at `at`.
pub(crate) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a place in some directory.
    pub(in crate::log) fn place() -> Place {
        Place { seed: FrameSeed::of(DirectoryId::new([7; 16])), segment: 3, offset: 4096 }
    }

    /// Returns a sealed block of these units.
    pub(in crate::log) fn block(place: &Place, durable: u64, first_lsn: u64, units: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        for effects in units {
            bytes.extend_from_slice(&unit_head(1, 2, effects.len() as u32));
            bytes.extend_from_slice(effects);
        }
        let contents = Contents::units(Lsn::new(first_lsn), units.len() as u32, 1_700_000_000_123);
        seal(&mut bytes, place, Lsn::new(durable), contents);
        bytes
    }

    #[test]
    fn a_block_reads_back() {
        let bytes = block(&place(), 8, 9, &[b"one", b"", b"three"]);
        let read = Block::read(&bytes, &place()).unwrap();
        let units: Vec<_> = read.units().map(|unit| (unit.lsn.get(), unit.format, unit.origin, unit.effects)).collect();
        assert_eq!(units, [(9, 1, 2, &b"one"[..]), (10, 1, 2, b""), (11, 1, 2, b"three")]);
        assert_eq!(
            (read.time_ms(), read.frame.durable.lsn.get(), read.contents.end().get()),
            (1_700_000_000_123, 8, 12)
        );
        assert_eq!(read.frame.len(), bytes.len());
        assert_eq!(stride(bytes.len()), bytes.len().next_multiple_of(8) as u64);
        let rest: Vec<_> = read.after(Lsn::new(10)).units().map(|unit| unit.lsn.get()).collect();
        assert_eq!(rest, [11]);
        // Units that are left at any point and resumed there are read as without the interruption.
        let all: Vec<_> = read.units().collect();
        for passed in 0..=3 {
            let mut units = read.units();
            units.by_ref().take(passed).for_each(drop);
            let rest = read.units().skip_to_last(units.bytes_left(), Lsn::new(9 + passed as u64));
            assert_eq!(rest.collect::<Vec<_>>(), all[passed..]);
        }
    }

    #[test]
    fn a_block_is_valid_in_its_place_only() {
        let bytes = block(&place(), 0, 1, &[b"x"]);
        for other in [
            Place { segment: 4, ..place() },
            Place { offset: 4104, ..place() },
            Place { seed: FrameSeed::of(DirectoryId::new([8; 16])), ..place() },
        ] {
            assert_eq!(Block::read(&bytes, &other).err(), Some(Damage::Frame), "{other:?}");
        }
    }

    #[test]
    fn a_body_keeps_its_bytes_where_it_goes() {
        let mut bytes = block(&place(), 0, 1, &[b"x", b"y"]);
        let body = bytes[FRAME_BYTES..].to_vec();
        let elsewhere = Place { segment: 9, offset: 8192, ..place() };
        let frame = Frame::read(&bytes, &place()).unwrap();
        rebind(&mut bytes, &frame, &elsewhere, Durable::lsn(Lsn::new(5)));
        assert_eq!(bytes[FRAME_BYTES..], body);
        assert_eq!(Block::read(&bytes, &elsewhere).unwrap().frame.durable, Durable::lsn(Lsn::new(5)));
        assert_eq!(Block::read(&bytes, &place()).err(), Some(Damage::Frame));
    }

    #[test]
    fn units_that_do_not_fit_are_refused_although_the_checksums_do() {
        let sealed = |units: u32, first: u64, bytes: &[u8]| {
            let mut block = vec![0; HEAD_BYTES];
            block.extend_from_slice(bytes);
            let contents = Contents::units(Lsn::new(first), units, 0);
            seal(&mut block, &place(), Lsn::NONE, contents);
            Block::read(&block, &place()).err()
        };
        let unit = unit_head(1, 0, 0);
        assert_eq!(sealed(1, 1, &unit), None);
        assert_eq!(sealed(0, 1, b""), None, "the mark of a clean end");
        assert_eq!(sealed(2, 1, &unit), Some(Damage::Units), "too few");
        assert_eq!(sealed(0, 1, &unit), Some(Damage::Units), "too many");
        assert_eq!(sealed(1, 0, &unit), Some(Damage::Units), "no Lsn");
        assert_eq!(sealed(1, 1, &unit_head(1, 0, 1)), Some(Damage::Units), "longer than the block");
        assert_eq!(sealed(1, 1, &unit_head(1, 0, u32::MAX)), Some(Damage::Units));
        assert_eq!(sealed(1, 1, &[1, 2, 3]), Some(Damage::Units), "shorter than a head");
    }

    #[test]
    fn an_unknown_format_is_named() {
        let mut bytes = block(&place(), 0, 1, &[b"x"]);
        let frame = Frame::read(&bytes, &place()).unwrap();
        bytes[FRAME_BYTES] = 6;
        rebind(&mut bytes, &frame, &place(), Durable::default());
        assert_eq!(Block::read(&bytes, &place()).err(), Some(Damage::Format(6)));
        assert!(!Damage::Format(6).may_be_torn() && !Damage::Units.may_be_torn() && Damage::Body.may_be_torn());
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_seen() {
        let bytes = block(&place(), 8, 9, &[b"one", b"a longer one, of some words"]);
        for len in 0..bytes.len() {
            assert!(Block::read(&bytes[..len], &place()).is_err(), "cut to {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damage = Block::read(&bytes, &place()).map(|_| ()).unwrap_err();
            assert!(damage.may_be_torn(), "bit {bit}: {damage:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_block(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Block::read(&bytes, &place()).is_err());
        }

        #[test]
        fn sealed_blocks_read_back(
            units in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            first in 1u64..u64::MAX / 2,
            tail in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let units: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
            let mut bytes = block(&place(), 0, first, &units);
            bytes.extend_from_slice(&tail);
            let read = Block::read(&bytes, &place()).unwrap();
            prop_assert_eq!(read.units().map(|unit| unit.effects).collect::<Vec<_>>(), units);
        }
    }
}
