//! The log of entries as the crate `raft` reads it: those in memory, and the newest snapshot for nodes that need older
//! ones.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry as RaftEntry, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::base::lsn::Lsn;
use crate::log::block::{u32_at, u64_at};
use crate::log::replicated::block::{Block, BlockError};
use crate::log::replicated::entry::{Entry, Payload};
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::{MemberChange, Members};
use crate::log::replicated::types::{Ballot, Index, Link, NodeId, Position, Term};

/// An entry and the end of the chain of blocks behind it.
struct Kept {
    entry: RaftEntry,
    link: Link,
}

/// The log of a node, from some entry on.
pub(super) struct Entries {
    initial: (Ballot, Index),
    /// The entry before the first one kept.
    before: Position,
    kept: VecDeque<Kept>,
    /// The newest snapshot, for nodes that lack older entries than those kept.
    snapshot: Mark,
    /// A node needs a newer snapshot than there is.
    wants_snapshot: Cell<bool>,
}

impl Entries {
    /// Makes the log of a node that starts, with no entries behind `before`.
    pub(super) fn new(snapshot: Mark, before: Position) -> Entries {
        let (initial, kept, wants_snapshot) = Default::default();
        Entries { initial, before, kept, snapshot, wants_snapshot }
    }

    /// Sets the ballot and the last committed entry, which the crate reads when it starts.
    pub(super) fn set_initial(&mut self, ballot: Ballot, committed: Index) {
        self.initial = (ballot, committed);
    }

    /// Appends entries of the crate, behind an end that may be cut off first. Every block must continue the chain.
    pub(super) fn append(&mut self, entries: &[RaftEntry]) -> Result<Vec<Entry>, LogError> {
        if let Some(first) = entries.first() {
            let keep = first.index.checked_sub(self.before.index.0 + 1).map(|keep| keep as usize);
            let keep = keep.filter(|keep| *keep <= self.kept.len()).ok_or(LogError::Gap(Index(first.index)))?;
            self.kept.truncate(keep);
        }
        let mut appended = Vec::with_capacity(entries.len());
        for entry in entries {
            let (own, mut link) = (own(entry)?, self.last().link);
            if let Payload::Block(block) = &own.payload {
                if !block.follows(link) || block.reign != own.term {
                    return Err(LogError::Chain { index: own.index, term: own.term, reign: block.reign });
                }
                link = block.link();
            }
            self.kept.push_back(Kept { entry: entry.clone(), link });
            appended.push(own);
        }
        Ok(appended)
    }

    /// Puts a snapshot in the place of all entries.
    pub(super) fn install(&mut self, mark: Mark) {
        self.kept.clear();
        self.before = mark.at;
        self.snapshot = mark;
    }

    /// Drops the entries up to `index`, which a snapshot covers.
    pub(super) fn cut(&mut self, index: Index) {
        while self.before.index < index
            && let Some(kept) = self.kept.pop_front()
        {
            self.before = position(&kept);
        }
    }

    pub(super) fn newest_snapshot(&self) -> &Mark {
        &self.snapshot
    }

    /// Sets the newest snapshot.
    pub(super) fn set_snapshot(&mut self, mark: Mark) {
        self.snapshot = mark;
    }

    /// Whether a node needs a newer snapshot than there was since this was last asked.
    pub(super) fn take_wants_snapshot(&self) -> bool {
        self.wants_snapshot.take()
    }

    /// Returns the last entry.
    pub(super) fn last(&self) -> Position {
        self.kept.back().map_or(self.before, position)
    }

    /// Returns the entry before the first one kept.
    pub(super) fn before(&self) -> Position {
        self.before
    }

    /// Returns the place of an entry, if it is kept.
    pub(super) fn at(&self, index: Index) -> Option<Position> {
        if index == self.before.index {
            return Some(self.before);
        }
        self.kept.get(index.0.checked_sub(self.before.index.0 + 1)? as usize).map(position)
    }
}

/// Why entries don't continue a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogError {
    #[error("entry {0} leaves a gap")]
    Gap(Index),
    #[error("the block of entry {index}, of term {term}, does not continue the log: it was made in reign {reign}")]
    Chain { index: Index, term: Term, reign: Term },
    #[error(transparent)]
    Block(#[from] BlockError),
}

fn position(kept: &Kept) -> Position {
    Position { index: Index(kept.entry.index), term: Term(kept.entry.term), link: kept.link }
}

impl Storage for Entries {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let (ballot, committed) = self.initial;
        let hard_state = HardState {
            term: ballot.term.0,
            vote: ballot.vote.map_or(0, NodeId::get),
            commit: committed.0,
            ..HardState::default()
        };
        Ok(RaftState { hard_state, conf_state: conf_state(&self.snapshot.members) })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        let skip = low.checked_sub(self.before.index.0 + 1).ok_or(StorageError::Compacted)? as usize;
        let count = (high - low) as usize;
        if skip + count > self.kept.len() {
            return Err(StorageError::Unavailable.into());
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let mut size = 0;
        // One entry is always sent, however large.
        let fit = self.kept.range(skip..skip + count).take_while(|kept| {
            let is_first = size == 0;
            size += (kept.entry.data.len() + BYTES_PER_ENTRY) as u64;
            is_first || size <= max_size
        });
        Ok(fit.map(|kept| kept.entry.clone()).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.at(Index(index)) {
            Some(at) => Ok(at.term.0),
            None if index < self.before.index.0 => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.index.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last().index.0)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let Mark { at, members, .. } = &self.snapshot;
        let is_new_enough = at.index.0 >= request_index.max(self.before.index.0).max(1);
        // A node takes no snapshot of a group that it does not belong to.
        if !is_new_enough || NodeId::new(to).is_none_or(|to| !members.contains(to)) {
            self.wants_snapshot.set(true);
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(snapshot_of(&self.snapshot))
    }
}

/// Bytes that an entry counts beside its data when the size of a message is bounded.
const BYTES_PER_ENTRY: usize = 24;

/// Returns the entry in our own form.
pub(super) fn own(entry: &RaftEntry) -> Result<Entry, BlockError> {
    let payload = match entry.entry_type {
        EntryType::EntryNormal if entry.data.is_empty() => Payload::Start,
        EntryType::EntryNormal => Payload::Block(Block::read(entry.data.clone())?),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
            Payload::Change(MemberChange::read(&entry.context).ok_or(BlockError::Short)?)
        }
    };
    Ok(Entry { index: Index(entry.index), term: Term(entry.term), payload })
}

/// Returns the entry in the form of the crate.
pub(super) fn foreign(entry: &Entry) -> RaftEntry {
    let mut foreign = RaftEntry { index: entry.index.0, term: entry.term.0, ..RaftEntry::default() };
    match &entry.payload {
        Payload::Start => {}
        Payload::Block(block) => foreign.data = block.body().clone(),
        Payload::Change(change) => {
            foreign.entry_type = EntryType::EntryConfChange;
            foreign.context = change_bytes(change);
        }
    }
    foreign
}

/// Returns the bytes of a change. The crate carries them as the context of its own message, so that nobody needs to
/// read that message again.
pub(super) fn change_bytes(change: &MemberChange) -> Bytes {
    let mut bytes = Vec::new();
    change.encode(&mut bytes);
    bytes.into()
}

pub(super) fn conf_state(members: &Members) -> ConfState {
    let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.get()).collect();
    ConfState { voters: numbers(&members.voters), learners: numbers(&members.learners), ..ConfState::default() }
}

/// Takes over who votes and who follows.
pub(super) fn set_members(members: &mut Members, state: &ConfState) {
    let nodes = |numbers: &[u64]| {
        let mut nodes: Vec<_> = numbers.iter().filter_map(|number| NodeId::new(*number)).collect();
        nodes.sort_unstable();
        nodes
    };
    (members.voters, members.learners) = (nodes(&state.voters), nodes(&state.learners));
}

/// Returns a snapshot in the form of the crate: the fields that the crate does not know are its data.
pub(super) fn snapshot_of(mark: &Mark) -> Snapshot {
    let mut data = mark.serial.to_le_bytes().to_vec();
    data.extend(mark.at.link.lsn.get().to_le_bytes());
    data.extend(mark.at.link.crc.to_le_bytes());
    mark.members.encode(&mut data);
    let mut snapshot = Snapshot { data: data.into(), ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    metadata.index = mark.at.index.0;
    metadata.term = mark.at.term.0;
    metadata.set_conf_state(conf_state(&mark.members));
    snapshot
}

/// Reads a snapshot that [`snapshot_of`] has made; `None` for any other.
pub(super) fn mark_of(snapshot: &Snapshot) -> Option<Mark> {
    let metadata = snapshot.get_metadata();
    let (numbers, mut members) = snapshot.data.split_first_chunk::<20>()?;
    let at = Position {
        index: Index(metadata.index),
        term: Term(metadata.term),
        link: Link { lsn: Lsn::new(u64_at(numbers, 8)), crc: u32_at(numbers, 16) },
    };
    Some(Mark { at, members: Members::take(&mut members)?, serial: u64_at(numbers, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::replicated::block::tests::block;
    use crate::log::replicated::members::tests::{joining, of_voters};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn entries() -> Entries {
        Entries::new(Mark::default(), Position::default())
    }

    /// Returns `count` entries of term 1, each with a block of one unit.
    fn chain(count: u64) -> Vec<RaftEntry> {
        let mut link = Link::default();
        let entry = |index| {
            let block = block(1, link, &[b"unit"]);
            link = block.link();
            foreign(&Entry { index: Index(index), term: Term(1), payload: Payload::Block(block) })
        };
        (1..=count).map(entry).collect()
    }

    #[test]
    fn entries_keep_their_form_both_ways() {
        let block = block(4, Link { lsn: Lsn::new(5), crc: 3 }, &[b"unit"]);
        let mut payloads = vec![Payload::Start, Payload::Block(block)];
        let changes = [joining(node(9)), MemberChange::Promote(node(9)), MemberChange::Remove(node(9))];
        payloads.extend(changes.map(Payload::Change));
        for payload in payloads {
            let entry = Entry { index: Index(7), term: Term(4), payload };
            assert_eq!(own(&foreign(&entry)), Ok(entry));
        }
    }

    #[test]
    fn a_snapshot_keeps_its_form_both_ways() {
        let at = Position { index: Index(7), term: Term(2), link: Link { lsn: Lsn::new(70), crc: 71 } };
        let mark =
            Mark { at, members: Members { learners: vec![node(5)], ..of_voters(&[node(1), node(2)]) }, serial: 33 };
        assert_eq!(mark_of(&snapshot_of(&mark)), Some(mark));
    }

    #[test]
    fn messages_are_bounded_by_bytes_but_never_empty() {
        let mut entries = entries();
        entries.append(&chain(5)).unwrap();
        let one = (chain(1)[0].data.len() + BYTES_PER_ENTRY) as u64;
        let count = |max| entries.entries(2, 6, Some(max), GetEntriesContext::empty(false)).unwrap().len();
        assert_eq!((count(0), count(one), count(2 * one), count(u64::MAX)), (1, 1, 2, 4));
        assert!(entries.entries(3, 7, None, GetEntriesContext::empty(false)).is_err());
    }

    #[test]
    fn an_append_cuts_off_what_it_replaces() {
        let mut entries = entries();
        entries.append(&chain(5)).unwrap();
        let start = foreign(&Entry { index: Index(3), term: Term(2), payload: Payload::Start });
        entries.append(&[start]).unwrap();
        let last = entries.last();
        assert_eq!((last.index, last.term, last.link.lsn), (Index(3), Term(2), Lsn::new(2)));
    }

    #[test]
    fn a_cut_leaves_the_place_before_the_first_entry() {
        let mut entries = entries();
        entries.append(&chain(5)).unwrap();
        let third = entries.at(Index(3)).unwrap();
        entries.cut(Index(3));
        assert_eq!((entries.before(), entries.first_index().unwrap()), (third, 4));
        assert_eq!(entries.term(2), Err(StorageError::Compacted.into()));
        assert_eq!(entries.term(6), Err(StorageError::Unavailable.into()));
        assert_eq!(entries.snapshot(0, 2), Err(StorageError::SnapshotTemporarilyUnavailable.into()));
        assert!(entries.take_wants_snapshot() && !entries.take_wants_snapshot());
        let members = of_voters(&[node(1), node(2)]);
        entries.set_snapshot(Mark { at: third, members, serial: 5 });
        assert!(entries.snapshot(0, 2).is_ok() && !entries.take_wants_snapshot());
        // A node that joined later needs a snapshot that knows it.
        assert!(entries.snapshot(0, 3).is_err() && entries.take_wants_snapshot());
    }

    #[test]
    fn a_block_of_another_history_is_refused() {
        let mut entries = entries();
        entries.append(&chain(2)).unwrap();
        let other = block(1, Link { lsn: Lsn::new(2), crc: 1 }, &[b"unit"]);
        let entry = Entry { index: Index(3), term: Term(1), payload: Payload::Block(other) };
        let refused = LogError::Chain { index: Index(3), term: Term(1), reign: Term(1) };
        assert_eq!(entries.append(&[foreign(&entry)]), Err(refused));
    }

    #[test]
    fn a_block_of_another_reign_is_refused() {
        let payload = Payload::Block(block(1, Link::default(), &[b"unit"]));
        let entry = Entry { index: Index(1), term: Term(2), payload };
        let refused = LogError::Chain { index: Index(1), term: Term(2), reign: Term(1) };
        assert_eq!(entries().append(&[foreign(&entry)]), Err(refused));
    }

    #[test]
    fn a_gap_is_refused() {
        assert_eq!(entries().append(&chain(2)[1..]), Err(LogError::Gap(Index(2))));
    }
}
