//! A block of the group commit as an entry of the replicated log: body format 2 of docs/log-format.md.
//!
//! The body names the reign in which it was made and the checksum of the block before it. So a block of an old reign,
//! or one that continues another history, fits nowhere, even if the numbers of its units do.
//!
//! | Offset | Bytes | Field |
//! |--:|--:|---|
//! | 0 | 1 | format: 2 |
//! | 1 | 3 | zeros |
//! | 4 | 4 | number of units |
//! | 8 | 8 | Lsn of the first unit |
//! | 16 | 8 | wall clock of the leader: milliseconds since 1970, signed |
//! | 24 | 8 | term of the reign |
//! | 32 | 4 | checksum of the body of the block before this one; 0 in the first |
//! | 36 | 4 | zeros |
//! | 40 | | the units |

use bytes::Bytes;

use super::types::{Link, Term};
use crate::base::lsn::Lsn;
use crate::log::block::{format, u32_at, u64_at, units_in};
use crate::log::checksum::crc32c;

/// Bytes that lie before the units of a block.
pub(crate) const BLOCK_HEAD_BYTES: usize = format::BLOCK_BYTES;

/// A block whose head and units have been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The term of the reign in which it was made.
    pub(crate) reign: Term,
    pub(crate) first_lsn: Lsn,
    pub(crate) units: u32,
    /// Wall clock of the leader, in milliseconds since 1970.
    pub(crate) time_ms: i64,
    /// The checksum of the block before this one.
    pub(crate) previous: u32,
    body: Bytes,
    crc: u32,
}

/// Why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BlockError {
    #[error("the block is shorter than its head")]
    Short,
    #[error("the block has format {0}, which this version of Tidegate does not know")]
    Format(u8),
    #[error("the units do not fill the block")]
    Units,
}

impl Block {
    /// Seals a block. `body` has [`BLOCK_HEAD_BYTES`] free bytes, then whole units that follow `before`.
    #[cfg(test)]
    pub(crate) fn seal(
        body: Vec<u8>,
        reign: Term,
        before: Link,
        units: u32,
        time_ms: i64,
    ) -> Result<Block, BlockError> {
        Block::seal_behind(body, 0, reign, before, units, time_ms)
    }

    /// Does the same with a body that begins at `start` of a buffer.
    pub(crate) fn seal_behind(
        mut buffer: Vec<u8>,
        start: usize,
        reign: Term,
        before: Link,
        units: u32,
        time_ms: i64,
    ) -> Result<Block, BlockError> {
        let body = buffer.get_mut(start..).ok_or(BlockError::Short)?;
        let head = body.first_chunk_mut::<BLOCK_HEAD_BYTES>().ok_or(BlockError::Short)?;
        *head = [0; BLOCK_HEAD_BYTES];
        head[0] = format::BLOCK;
        head[4..8].copy_from_slice(&units.to_le_bytes());
        head[8..16].copy_from_slice(&before.lsn.next().get().to_le_bytes());
        head[16..24].copy_from_slice(&time_ms.to_le_bytes());
        head[24..32].copy_from_slice(&reign.0.to_le_bytes());
        head[32..36].copy_from_slice(&before.crc.to_le_bytes());
        Block::read(Bytes::from(buffer).slice(start..))
    }

    /// Reads a body and checks that its units fill it.
    pub(crate) fn read(body: Bytes) -> Result<Block, BlockError> {
        let (head, units) = body.split_first_chunk::<BLOCK_HEAD_BYTES>().ok_or(BlockError::Short)?;
        if head[0] != format::BLOCK {
            return Err(BlockError::Format(head[0]));
        }
        let first_lsn = Lsn::new(u64_at(head, 8));
        let count = u32_at(head, 4);
        let mut all = units_in(units, first_lsn);
        if all.by_ref().count() != count as usize || all.bytes_left() != 0 || count == 0 || first_lsn == Lsn::NONE {
            return Err(BlockError::Units);
        }
        Ok(Block {
            reign: Term(u64_at(head, 24)),
            first_lsn,
            units: count,
            time_ms: u64_at(head, 16) as i64,
            previous: u32_at(head, 32),
            crc: crc32c(&body),
            body,
        })
    }

    /// Returns the bytes that are stored and sent.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the units in order.
    pub(crate) fn units(&self) -> crate::log::block::Units<'_> {
        units_in(&self.body[BLOCK_HEAD_BYTES..], self.first_lsn)
    }

    /// Whether the block continues the chain that ends at `before`.
    pub(crate) fn follows(&self, before: Link) -> bool {
        self.first_lsn == before.lsn.next() && self.previous == before.crc
    }

    /// Returns the end of the chain behind this block.
    pub(crate) fn link(&self) -> Link {
        Link { lsn: self.first_lsn.plus(u64::from(self.units) - 1), crc: self.crc }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::log::block::unit_head;

    /// Returns a block of one unit for each of `effects`.
    pub(crate) fn block(reign: u64, before: Link, effects: &[&[u8]]) -> Block {
        let mut body = vec![0; BLOCK_HEAD_BYTES];
        for effect in effects {
            body.extend(unit_head(1, 1, effect.len() as u32));
            body.extend(*effect);
        }
        Block::seal(body, Term(reign), before, effects.len() as u32, 1_700_000_000_000).expect("the units fill it")
    }

    #[test]
    fn a_block_is_read_as_it_was_sealed() {
        let before = Link { lsn: Lsn::new(6), crc: 99 };
        let sealed = block(3, before, &[b"one", b""]);
        let read = Block::read(sealed.body().clone()).unwrap();
        assert_eq!(read, sealed);
        assert_eq!((read.reign, read.first_lsn, read.units, read.previous), (Term(3), Lsn::new(7), 2, 99));
        assert_eq!(read.link(), Link { lsn: Lsn::new(8), crc: crc32c(sealed.body()) });
        let units: Vec<_> = read.units().map(|unit| (unit.lsn.get(), unit.effects.to_vec())).collect();
        assert_eq!(units, [(7, b"one".to_vec()), (8, Vec::new())]);
    }

    #[test]
    fn a_block_follows_only_the_chain_it_was_sealed_behind() {
        let before = Link { lsn: Lsn::new(6), crc: 99 };
        let sealed = block(3, before, &[b"x"]);
        assert!(sealed.follows(before));
        assert!(!sealed.follows(Link { crc: 98, ..before }), "another history of the same length");
        assert!(!sealed.follows(Link { lsn: Lsn::new(5), ..before }));
    }

    #[test]
    fn bytes_that_are_no_block_are_refused() {
        let body = block(3, Link::default(), &[b"x"]).body().to_vec();
        let read = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut body = body.clone();
            change(&mut body);
            Block::read(body.into()).map(|_| ())
        };
        assert_eq!(read(&|body| body.truncate(39)), Err(BlockError::Short));
        assert_eq!(read(&|body| body[0] = 1), Err(BlockError::Format(1)));
        assert_eq!(read(&|body| body[4] = 2), Err(BlockError::Units), "fewer units than it says");
        assert_eq!(read(&|body| body.push(0)), Err(BlockError::Units), "bytes behind the last unit");
        assert_eq!(read(&|body| body[8] = 0), Err(BlockError::Units), "no unit has Lsn 0");
        let empty = |body: &mut Vec<u8>| {
            body[4] = 0;
            body.truncate(BLOCK_HEAD_BYTES);
        };
        assert_eq!(read(&empty), Err(BlockError::Units), "a block has a unit");
    }
}
