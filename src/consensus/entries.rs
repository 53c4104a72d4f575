//! The log of entries as the crate `raft` reads it: the newest ones in memory, older ones in the files, and the newest
//! snapshot for nodes that need still older ones.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry as RaftEntry, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use super::fetch::{Fetch, Gone};
use super::fuse::{self, Fuse};
use super::limits::BYTES_PER_ENTRY;
use super::older::{Older, Wish, Wishes};
use crate::base::lsn::Lsn;
use crate::log::block::{u32_at, u64_at};
use crate::log::planted::{self, Bug};
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

impl Kept {
    /// Returns the bytes of memory that the entry takes.
    fn bytes(&self) -> u64 {
        (size_of::<Kept>() + self.entry.data.len() + self.entry.context.len()) as u64
    }
}

/// The log of a node, from some entry on.
pub(super) struct Entries {
    /// What the crate reads when it starts.
    initial: RaftState,
    /// The entry before the first one in memory.
    before: Position,
    /// The entries in memory, their bytes, and the bytes that they may take.
    kept: VecDeque<Kept>,
    kept_bytes: u64,
    memory_bytes: u64,
    /// The entries up to `before`, as far as they can be read.
    older: Older,
    wishes: RefCell<Wishes>,
    /// Older entries, while the crate is told that they were read.
    fetched: Vec<RaftEntry>,
    /// The newest snapshot, for nodes that lack older entries than those kept.
    snapshot: Mark,
    /// A node needs a newer snapshot than there is.
    wants_snapshot: Cell<bool>,
}

impl Entries {
    /// Makes the log of a node that starts, with no entries behind those that are known to be committed. Of these,
    /// `covered` says which the files hold. See [`Recovered`](crate::log::replicated::write::Recovered).
    pub(super) fn new(snapshot: Mark, committed: &Mark, covered: &[Position], memory_bytes: u64) -> Entries {
        let mut older = Older::new(*covered.first().unwrap_or(&committed.at));
        covered.iter().for_each(|at| older.push(*at));
        Entries {
            initial: RaftState {
                hard_state: HardState { commit: committed.at.index.0, ..HardState::default() },
                conf_state: conf_state(&committed.members),
            },
            before: committed.at,
            kept: VecDeque::new(),
            kept_bytes: 0,
            memory_bytes,
            older,
            wishes: RefCell::default(),
            fetched: Vec::new(),
            snapshot,
            wants_snapshot: Cell::new(false),
        }
    }

    /// Sets the ballot for the crate's start.
    pub(super) fn set_ballot(&mut self, ballot: Ballot) {
        self.initial.hard_state.term = ballot.term.0;
        self.initial.hard_state.vote = ballot.vote.map_or(0, NodeId::get);
    }

    /// Appends entries of the crate, behind an end that may be cut off first. Every block must continue the chain.
    pub(super) fn append(&mut self, entries: &[RaftEntry]) -> Result<Vec<Entry>, LogError> {
        if let Some(first) = entries.first() {
            let keep = first.index.checked_sub(self.before.index.0 + 1).map(|keep| keep as usize);
            let keep = keep.filter(|keep| *keep <= self.kept.len()).ok_or(LogError::Gap(Index(first.index)))?;
            self.kept_bytes -= self.kept.drain(keep..).map(|kept| kept.bytes()).sum::<u64>();
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
            let kept = Kept { entry: entry.clone(), link };
            self.kept_bytes += kept.bytes();
            self.kept.push_back(kept);
            appended.push(own);
        }
        Ok(appended)
    }

    /// Puts a snapshot in the place of all entries.
    pub(super) fn install(&mut self, mark: Mark) {
        self.kept.clear();
        self.kept_bytes = 0;
        self.before = mark.at;
        self.older = Older::new(mark.at);
        self.wishes.get_mut().clear();
        self.snapshot = mark;
    }

    /// Lets the oldest entries leave memory while they take more than they may, but none behind `index`.
    pub(super) fn trim(&mut self, index: Index) {
        while self.kept_bytes > self.memory_bytes
            && let Some(kept) = self.kept.pop_front_if(|kept| kept.entry.index <= index.0)
        {
            self.kept_bytes -= kept.bytes();
            self.before = position(&kept);
            self.older.push(self.before);
        }
    }

    /// Notes that the files no longer have the entries up to `index`.
    pub(super) fn cut(&mut self, index: Index) {
        self.older.cut(index);
    }

    /// Takes the fetches to begin.
    pub(super) fn take_fetches(&self) -> Vec<Fetch> {
        self.wishes.borrow_mut().take_new()
    }

    /// Takes the entries that a fetch has read. Returns the requests that waited for them, and keeps the entries until
    /// [`forget_fetched`](Self::forget_fetched).
    pub(super) fn fetched(&mut self, number: u64, read: Result<Vec<Entry>, Gone>) -> Vec<GetEntriesContext> {
        let Some(Wish { fetch, waiting }) = self.wishes.get_mut().take(number) else { return Vec::new() };
        let first = fetch.after.next();
        let (found, covered) = match read {
            Ok(entries) => (self.known(first, &entries), first),
            Err(Gone { covered }) => (Vec::new(), covered.max(first)),
        };
        // Without the first entry the crate has to ask in vain next time, so that it sends a snapshot.
        if found.is_empty() && !planted::is(Bug::GoneIsForgotten) {
            self.cut(covered);
        }
        self.fetched = found;
        waiting
    }

    /// Returns those entries from `first` on that belong to this log.
    fn known(&self, first: Index, entries: &[Entry]) -> Vec<RaftEntry> {
        let belongs =
            |(entry, index): &(&Entry, u64)| entry.index.0 == *index && self.term_of(entry.index) == Some(entry.term);
        entries.iter().zip(first.0..).take_while(belongs).map(|(entry, _)| foreign(entry)).collect()
    }

    /// Forgets the entries that a fetch has read.
    pub(super) fn forget_fetched(&mut self) {
        self.fetched = Vec::new();
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

    /// Returns the place of an entry, if it is in memory.
    pub(super) fn at(&self, index: Index) -> Option<Position> {
        if index == self.before.index {
            return Some(self.before);
        }
        self.kept.get(index.0.checked_sub(self.before.index.0 + 1)? as usize).map(position)
    }

    /// Returns the term of an entry, if the log has it or begins behind it.
    pub(super) fn term_of(&self, index: Index) -> Option<Term> {
        if index < self.begins_behind() {
            return None;
        }
        if index < self.before.index { self.older.term(index) } else { self.at(index).map(|at| at.term) }
    }

    /// Returns the entry before the first one that is in memory or in the files.
    fn begins_behind(&self) -> Index {
        self.older.cut_off().min(self.before.index)
    }

    /// Returns older entries if they were fetched, and otherwise wishes for them. The crate can wait when it sends
    /// entries to a follower. When it can't, it looks for entries that are not handed over to the engine, and those do
    /// not leave memory.
    fn older_entries(
        &self,
        low: u64,
        high: u64,
        max_bytes: Option<u64>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        let is_for_this = |first: &RaftEntry| first.index == low || planted::is(Bug::FetchedForAnyRequest);
        if self.fetched.first().is_some_and(is_for_this) {
            return Ok(fitting(self.fetched.iter().take((high - low) as usize), max_bytes));
        }
        fuse::check(Fuse::Memory, context.can_async(), || format!("entry {low}, memory behind {:?}", self.before));
        let last = Index(high - 1).min(self.before.index);
        self.wishes.borrow_mut().note(Index(low - 1), last, context);
        Err(StorageError::LogTemporarilyUnavailable.into())
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
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        if low <= self.begins_behind().0 {
            return Err(StorageError::Compacted.into());
        }
        let max_bytes = max_size.into();
        let Some(skip) = low.checked_sub(self.before.index.0 + 1) else {
            return self.older_entries(low, high, max_bytes, context);
        };
        let (skip, count) = (skip as usize, (high - low) as usize);
        if skip + count > self.kept.len() {
            return Err(StorageError::Unavailable.into());
        }
        Ok(fitting(self.kept.range(skip..skip + count).map(|kept| &kept.entry), max_bytes))
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.term_of(Index(index)) {
            Some(term) => Ok(term.0),
            None if index < self.begins_behind().0 => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.begins_behind().0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last().index.0)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let Mark { at, members, .. } = &self.snapshot;
        let is_new_enough = at.index.0 >= request_index.max(self.begins_behind().0).max(1);
        // A node takes no snapshot of a group that it does not belong to.
        if !is_new_enough || NodeId::new(to).is_none_or(|to| !members.contains(to)) {
            self.wants_snapshot.set(true);
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(snapshot_of(&self.snapshot))
    }
}

/// Returns the first of some entries, as many as fit into a message of `max_bytes`. One is always sent, however large.
fn fitting<'a>(entries: impl Iterator<Item = &'a RaftEntry>, max_bytes: Option<u64>) -> Vec<RaftEntry> {
    let max_bytes = max_bytes.unwrap_or(u64::MAX);
    let mut bytes = 0;
    let fit = entries.take_while(|entry| {
        let is_first = bytes == 0;
        bytes += (entry.data.len() + BYTES_PER_ENTRY) as u64;
        is_first || bytes <= max_bytes
    });
    fit.cloned().collect()
}

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
    use super::super::limits::{MEMORY_BYTES, MESSAGE_BYTES};
    use super::*;
    use crate::log::replicated::block::tests::block;
    use crate::log::replicated::members::tests::{joining, of_voters};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn entries() -> Entries {
        Entries::new(Mark::default(), &Mark::default(), &[], MEMORY_BYTES)
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

    /// Returns a log of which the entries 1 to 3 have left memory, and 4 and 5 have not.
    fn trimmed() -> Entries {
        let mut entries = Entries::new(Mark::default(), &Mark::default(), &[], 0);
        entries.append(&chain(5)).unwrap();
        entries.trim(Index(3));
        entries
    }

    fn ask(entries: &Entries, low: u64) -> raft::Result<Vec<RaftEntry>> {
        entries.entries(low, 6, None, GetEntriesContext::empty(true))
    }

    fn compacted<T>() -> raft::Result<T> {
        Err(StorageError::Compacted.into())
    }

    fn unavailable<T>() -> raft::Result<T> {
        Err(StorageError::LogTemporarilyUnavailable.into())
    }

    #[test]
    fn the_oldest_entries_leave_memory_when_they_take_too_much() {
        let mut entries = Entries::new(Mark::default(), &Mark::default(), &[], 0);
        entries.append(&chain(5)).unwrap();
        let all = entries.kept_bytes;
        entries.memory_bytes = all - 1;
        entries.trim(Index(5));
        assert_eq!((entries.before.index, entries.kept_bytes), (Index(1), all / 5 * 4));
        entries.memory_bytes = 0;
        entries.trim(Index(3));
        assert_eq!((entries.before.index, entries.kept_bytes), (Index(3), all / 5 * 2));
        assert_eq!(
            (entries.first_index(), entries.term(0), entries.term(2), entries.term(5)),
            (Ok(1), Ok(0), Ok(1), Ok(1))
        );
        entries.append(&[foreign(&Entry { index: Index(5), term: Term(2), payload: Payload::Start })]).unwrap();
        let bytes: u64 = entries.kept.iter().map(Kept::bytes).sum();
        assert_eq!(entries.kept_bytes, bytes);
    }

    #[test]
    fn older_entries_are_served_once_when_they_were_fetched() {
        let mut entries = trimmed();
        assert_eq!(
            (ask(&entries, 2), ask(&entries, 2), ask(&entries, 4).unwrap().len()),
            (unavailable(), unavailable(), 2)
        );
        let fetches = entries.take_fetches();
        let fetch = Fetch { number: 1, after: Index(1), last: Index(3), bytes: MESSAGE_BYTES };
        assert_eq!((fetches, entries.take_fetches()), (vec![fetch], vec![]));
        let read: Vec<Entry> = chain(3)[1..].iter().map(|entry| own(entry).unwrap()).collect();
        assert_eq!(entries.fetched(1, Ok(read.clone())).len(), 2);
        assert_eq!((ask(&entries, 2), ask(&entries, 3)), (Ok(chain(3)[1..].to_vec()), unavailable()));
        entries.forget_fetched();
        assert_eq!(ask(&entries, 2), unavailable());
        assert!(entries.fetched(1, Ok(read)).is_empty(), "the answer to an earlier fetch");
        assert_eq!(entries.take_fetches().len(), 2);
    }

    #[test]
    fn entries_that_are_gone_need_a_snapshot() {
        let mut entries = trimmed();
        assert_eq!(ask(&entries, 2), unavailable());
        assert_eq!(entries.fetched(1, Err(Gone { covered: Index(2) })).len(), 1);
        assert_eq!((ask(&entries, 2), entries.first_index(), ask(&entries, 3)), (compacted(), Ok(3), unavailable()));
        // More is gone than has left memory.
        entries.fetched(2, Err(Gone { covered: Index(4) }));
        assert_eq!((ask(&entries, 3), entries.first_index(), ask(&entries, 4).unwrap().len()), (compacted(), Ok(4), 2));
    }

    #[test]
    fn entries_of_another_history_are_not_served() {
        let other = |index, term| Entry { index: Index(index), term: Term(term), payload: Payload::Start };
        for read in [vec![], vec![other(2, 2)], vec![other(3, 1)]] {
            let mut entries = trimmed();
            assert_eq!(ask(&entries, 2), unavailable());
            entries.fetched(1, Ok(read));
            assert_eq!(ask(&entries, 2), compacted());
        }
        let mut entries = trimmed();
        assert_eq!(ask(&entries, 2), unavailable());
        entries.fetched(1, Ok(vec![other(2, 1), other(3, 2)]));
        assert_eq!(ask(&entries, 2).unwrap().len(), 1);
    }

    #[test]
    fn a_snapshot_in_the_place_of_the_log_ends_all_wishes() {
        let mut entries = trimmed();
        assert_eq!(ask(&entries, 2), unavailable());
        let at = Position { index: Index(9), term: Term(3), link: Link::default() };
        entries.install(Mark { at, ..Mark::default() });
        assert!(entries.take_fetches().is_empty() && entries.fetched(1, Ok(vec![])).is_empty());
        assert_eq!((entries.first_index(), entries.term(9), entries.term(8)), (Ok(10), Ok(3), compacted()));
    }

    #[test]
    #[should_panic(expected = "fuse Memory")]
    fn nothing_that_is_needed_at_once_has_left_memory() {
        let _ = trimmed().entries(2, 6, None, GetEntriesContext::empty(false));
    }

    #[test]
    fn a_cut_leaves_the_place_before_the_first_entry() {
        let mut entries = trimmed();
        let third = entries.at(Index(3)).unwrap();
        entries.cut(Index(3));
        assert_eq!((entries.first_index(), entries.term(3)), (Ok(4), Ok(1)));
        assert_eq!(entries.term(2), compacted());
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
