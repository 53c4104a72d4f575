//! The judge keeps what clients were told and what each node has applied, and compares the two.

use std::collections::BTreeMap;

use super::super::message::{Body, Message};
use super::node::{Data, Durable};
use crate::log::replicated::types::{Ballot, Index, NodeId, Position, Term};

/// A unit that a node has applied: its bytes, and the digest of all data behind it.
#[derive(Debug, PartialEq, Eq)]
struct Applied {
    effects: Vec<u8>,
    digest: u64,
}

/// A read whose result a client has got.
struct Read {
    lsn: u64,
    digest: u64,
}

/// The judge of one run. Each method panics when it finds a fault.
#[derive(Default)]
pub(super) struct Judge {
    /// By Lsn.
    units: BTreeMap<u64, Applied>,
    /// The block of each entry: its term and checksum.
    blocks: BTreeMap<Index, (Term, u32)>,
    /// Acknowledged writes by Lsn.
    acked: BTreeMap<u64, u64>,
    reads: Vec<Read>,
    /// The greatest Lsn that any client has been shown.
    shown: u64,
}

impl Judge {
    /// Returns what a call that begins now must see at least.
    pub(super) fn shown(&self) -> u64 {
        self.shown
    }

    pub(super) fn acked(&self) -> u64 {
        self.acked.len() as u64
    }

    /// Notes that a client was told that its write is done.
    pub(super) fn write_acked(&mut self, lsn: u64, id: u64, shown_before: u64) {
        assert!(lsn > shown_before, "write {id} at {lsn} lies before what a client had been shown: {shown_before}");
        let other = self.acked.insert(lsn, id);
        assert_eq!(other, None, "Lsn {lsn} was acknowledged twice, then for {id}");
        self.shown = self.shown.max(lsn);
    }

    /// Notes that a client was given the result of a read.
    pub(super) fn read_done(&mut self, lsn: u64, digest: u64, shown_before: u64) {
        assert!(lsn >= shown_before, "a stale read of {lsn}: a client had been shown {shown_before} before it began");
        self.reads.push(Read { lsn, digest });
        self.shown = self.shown.max(lsn);
    }

    /// Compares a block that a node has applied with what others have applied there.
    pub(super) fn block_applied(&mut self, node: NodeId, at: Position) {
        let block = (at.term, at.link.crc);
        let first = *self.blocks.entry(at.index).or_insert(block);
        assert_eq!(first, block, "node {node} applied another block at entry {}", at.index);
    }

    /// Compares a unit, and the data behind it, with what others have.
    pub(super) fn unit_applied(&mut self, node: NodeId, lsn: u64, effects: &[u8], data: &Data) {
        let applied = Applied { effects: effects.to_vec(), digest: data.digest() };
        match self.units.get(&lsn) {
            Some(first) => assert_eq!(*first, applied, "node {node} has other data at {lsn}"),
            None => {
                self.units.insert(lsn, applied);
            }
        }
    }

    /// Compares data that was loaded as of `lsn` with what others had there.
    pub(super) fn loaded(&self, node: NodeId, data: &Data) {
        if let Some(applied) = self.units.get(&data.lsn) {
            assert_eq!(applied.digest, data.digest(), "node {node} has loaded other data at {}", data.lsn);
        }
    }

    /// Judges a message by what its sender has on its disk.
    pub(super) fn sent(&self, message: &Message, disk: &Durable) {
        let Ballot { term, vote } = disk.ballot;
        let holds = match message.body {
            Body::Stand { pre: false, .. } => (term, vote) == (message.term, Some(message.from)),
            Body::Vote { pre: false, granted: true, .. } => (term, vote) == (message.term, Some(message.to)),
            Body::Appended { index, .. } => disk.last() >= index,
            Body::Heard { .. } => term >= message.term,
            _ => true,
        };
        assert!(holds, "sent before it was durable: {message:?}, on disk {:?} up to {}", disk.ballot, disk.last());
    }

    /// At the end: everything that clients were told is there.
    pub(super) fn finish(&self) {
        for (lsn, id) in &self.acked {
            let unit = self.units.get(lsn).unwrap_or_else(|| panic!("acknowledged write {id} at {lsn} is lost"));
            assert_eq!(Data::written_by(&unit.effects), Some(*id), "at {lsn} there is not the acknowledged write");
        }
        for read in &self.reads {
            let digest = self.units.get(&read.lsn).map(|unit| unit.digest);
            assert!(read.lsn == 0 || digest == Some(read.digest), "a read at {} saw what never happened", read.lsn);
        }
    }
}
