//! Segments: the files that hold the blocks, one after the other. docs/log-format.md is the specification.
//!
//! Each begins with a header of 4 KiB. Its fields lie in the first 512 bytes, which disks write as a whole. So after a
//! crash during a write, the header is either the old or the new one. A segment is prepared ahead, with an unused
//! header, and gets its final one when the journal moves on to it. That header names the segment before it and that
//! segment's last block. So the journal is a chain from the newest segment backwards: a segment that no header leads to
//! is not part of it, and a segment ends where its successor begins.

pub(super) use super::block::HEADER_BYTES;
use super::block::{Durable, u32_at, u64_at};
use super::checksum::crc32c;
use super::identity::DirectoryId;
use super::replicated::standing::Standing;
use super::replicated::types::{Ballot, Index, Link, NodeId, Position, Term};
use crate::base::lsn::Lsn;
use crate::log::limits::LOG_BLOCK_MAX_BYTES;

/// Largest size of a segment in bytes: one block, the header before it and the mark of a clean end behind it. A segment
/// of several blocks is smaller.
pub(super) const SEGMENT_MAX_BYTES: u64 = HEADER_BYTES + LOG_BLOCK_MAX_BYTES as u64 + HEADER_BYTES;

/// Bytes of the header that are in use, in any version of the format.
pub(super) const FIELD_BYTES: usize = 132;

const MAGIC: [u8; 8] = *b"TIDEGATE";
/// The version of a single server's journal, and that of the log of a group, which has more fields behind the checksum
/// of the others and a checksum of all of them.
const VERSION: u32 = 1;
const REPLICATED_VERSION: u32 = 2;
/// Every version has the checksum of its first fields here, so that an older server can name the version.
const CRC_AT: usize = 76;
const REPLICATED_CRC_AT: usize = 128;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) directory: DirectoryId,
    /// Never used twice: a recycled file gets a new number.
    pub(super) number: u64,
    /// The Lsn of the first unit; [`Lsn::NONE`] in a segment that is prepared and not used yet.
    pub(super) first_lsn: Lsn,
    /// What was durable before the segment became part of the journal. It may be in this segment, if recovery copied it
    /// here.
    pub(super) durable: Durable,
    /// The number of the segment before this one; 0 in the first.
    pub(super) previous: u64,
    /// The checksum of the last block before this segment; 0 if there is none.
    pub(super) previous_crc: u32,
    /// The length that the file was filled to before it was used. The file never gets shorter.
    pub(super) capacity: u64,
    /// The state of the log of a group before this segment; [`None`] in the journal of a single server.
    pub(super) standing: Option<Standing>,
}

/// Why a header can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// The checksum or the magic does not match.
    Damaged,
    /// A version of the format that this server does not know.
    Version(u32),
    /// The header belongs to another directory.
    Foreign,
}

impl Header {
    /// Returns the header of a segment that is ready for use.
    pub(super) fn prepared(directory: DirectoryId, number: u64, capacity: u64) -> Header {
        Header {
            directory,
            number,
            first_lsn: Lsn::NONE,
            durable: Durable::default(),
            previous: 0,
            previous_crc: 0,
            capacity,
            standing: None,
        }
    }

    /// Encodes the fields as they lie at the start of the file; zeros fill the rest of the header.
    pub(super) fn encode(&self) -> [u8; FIELD_BYTES] {
        let mut bytes = [0; FIELD_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        let (version, durable) = match self.standing {
            None => (VERSION, self.durable.lsn.get()),
            Some(_) => (REPLICATED_VERSION, self.durable.offset),
        };
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(self.directory.as_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_lsn.get().to_le_bytes());
        bytes[48..56].copy_from_slice(&durable.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.previous.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[72..76].copy_from_slice(&self.previous_crc.to_le_bytes());
        let crc = crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        if let Some(Standing { at, ballot, committed }) = self.standing {
            bytes[80..88].copy_from_slice(&at.index.0.to_le_bytes());
            bytes[88..96].copy_from_slice(&at.term.0.to_le_bytes());
            bytes[96..100].copy_from_slice(&at.link.crc.to_le_bytes());
            bytes[104..112].copy_from_slice(&ballot.term.0.to_le_bytes());
            bytes[112..120].copy_from_slice(&ballot.vote.map_or(0, NodeId::get).to_le_bytes());
            bytes[120..128].copy_from_slice(&committed.0.to_le_bytes());
            let crc = crc32c(&bytes[..REPLICATED_CRC_AT]);
            bytes[REPLICATED_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    }

    /// Reads the header of segment `number` of `directory`.
    pub(super) fn read(bytes: &[u8], directory: DirectoryId, number: u64) -> Result<Header, BadHeader> {
        let fields = bytes.first_chunk::<FIELD_BYTES>().ok_or(BadHeader::Damaged)?;
        let is_whole = |crc_at: usize| crc32c(&fields[..crc_at]) == u32_at(fields, crc_at);
        if fields[0..8] != MAGIC || !is_whole(CRC_AT) {
            return Err(BadHeader::Damaged);
        }
        let version = u32_at(fields, 8);
        if version == REPLICATED_VERSION && !is_whole(REPLICATED_CRC_AT) {
            return Err(BadHeader::Damaged);
        }
        if !matches!(version, VERSION | REPLICATED_VERSION) {
            return Err(BadHeader::Version(version));
        }
        if fields[16..32] != *directory.as_bytes() {
            return Err(BadHeader::Foreign);
        }
        // A recycled file may have lost its new name in a crash. Its old name does not match, and nothing refers to it
        // any more.
        if u64_at(fields, 32) != number || u32_at(fields, 12) != HEADER_BYTES as u32 {
            return Err(BadHeader::Damaged);
        }
        if u64_at(fields, 64) > SEGMENT_MAX_BYTES {
            return Err(BadHeader::Damaged);
        }
        let (first_lsn, durable) = (Lsn::new(u64_at(fields, 40)), u64_at(fields, 48));
        let standing = (version == REPLICATED_VERSION).then(|| Standing {
            at: Position {
                index: Index(u64_at(fields, 80)),
                term: Term(u64_at(fields, 88)),
                link: Link { lsn: first_lsn.previous(), crc: u32_at(fields, 96) },
            },
            ballot: Ballot { term: Term(u64_at(fields, 104)), vote: NodeId::new(u64_at(fields, 112)) },
            committed: Index(u64_at(fields, 120)),
        });
        if standing.is_some_and(|standing| standing.committed > standing.at.index) {
            return Err(BadHeader::Damaged);
        }
        Ok(Header {
            directory,
            number,
            first_lsn,
            durable: if standing.is_some() { Durable::offset(durable) } else { Durable::lsn(Lsn::new(durable)) },
            standing,
            previous: u64_at(fields, 56),
            capacity: u64_at(fields, 64),
            previous_crc: u32_at(fields, 72),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: DirectoryId = DirectoryId::new([7; 16]);

    fn headers() -> [Header; 2] {
        let header = Header {
            first_lsn: Lsn::new(100),
            durable: Durable::lsn(Lsn::new(99)),
            previous: 4,
            previous_crc: 0xdead_beef,
            ..Header::prepared(DIRECTORY, 5, 65_536)
        };
        let at = Position { index: Index(70), term: Term(3), link: Link { lsn: Lsn::new(99), crc: 0x1234_5678 } };
        let ballot = Ballot { term: Term(4), vote: NodeId::new(2) };
        let standing = Some(Standing { at, ballot, committed: Index(60) });
        [header, Header { durable: Durable::offset(8192), standing, ..header }]
    }

    #[test]
    fn a_header_reads_back_in_its_file_only() {
        for header in headers() {
            let bytes = header.encode();
            assert_eq!(Header::read(&bytes, DIRECTORY, 5), Ok(header));
            assert_eq!(Header::read(&bytes, DIRECTORY, 6), Err(BadHeader::Damaged));
            assert_eq!(Header::read(&bytes, DirectoryId::new([8; 16]), 5), Err(BadHeader::Foreign));
        }
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_seen() {
        for (header, used) in headers().into_iter().zip([CRC_AT + 4, FIELD_BYTES]) {
            let bytes = header.encode();
            for len in 0..bytes.len() {
                assert_eq!(Header::read(&bytes[..len], DIRECTORY, 5), Err(BadHeader::Damaged), "cut to {len}");
            }
            for bit in 0..used * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Header::read(&bytes, DIRECTORY, 5), Err(BadHeader::Damaged), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_later_version_is_named() {
        for header in headers() {
            let mut bytes = header.encode();
            bytes[8] = 3;
            let crc = crc32c(&bytes[..CRC_AT]);
            bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Header::read(&bytes, DIRECTORY, 5), Err(BadHeader::Version(3)));
        }
    }
}
