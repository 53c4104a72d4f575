//! Reads the journal from an Lsn while it is being written.
//!
//! A reader sees the units up to where its owner lets it go, and no others: the blocks behind them may be half written,
//! and units that could still be lost must be shown to nobody. It reads the same files by the same rules as a recovery
//! ([`scan`](super::scan)), and it holds nothing up: a snapshot may retire segments that it has not read yet. Then it
//! ends with [`ReadError::Gone`], and its owner begins again with that snapshot.
//!
//! A reader that has read everything goes on later, where it was, and reads only what was written since then. Whatever
//! it can't read so it looks for among the files as they are by then: more was written than it has read at once, or the
//! journal has moved on to another segment.
//!
//! In the log of a group, units that are not committed can be cut off: the log goes on in another segment, while they
//! stay in the file where they were, and in the memory of a reader. Therefore a reader believes nothing beyond the
//! units that it was let read when it looked at the files last, and looks at them again before it reads further.

use std::sync::Arc;

use super::block::Block;
use super::directory::Directory;
use super::error::LogError;
use super::group_commit::Log;
use super::scan::Recovery;
use super::shared::Shared;
use crate::base::lsn::Lsn;

/// How often a reader that does not find a block looks at the files again: for more of the segment, then for another.
const MISSES_MAX: usize = 2;

/// Why units can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A snapshot has taken the place of the units.
    #[error("the journal begins behind Lsn {covered}: a snapshot has taken the place of earlier units")]
    Gone {
        /// The last unit that is no longer in the journal.
        covered: Lsn,
    },
    /// The files can't be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The files in which units are read, on any thread.
#[derive(Clone)]
pub struct UnitSource {
    directory: Arc<Directory>,
    /// `None` in the directory of a node, whose log does not say which units are durable.
    shared: Option<Arc<Shared>>,
}

impl Log {
    /// Returns the journal as a source of units.
    pub(crate) fn source(&self) -> UnitSource {
        UnitSource { directory: Arc::clone(&self.shared().directory), shared: Some(Arc::clone(self.shared())) }
    }
}

impl UnitSource {
    /// Makes the source of a node's units. Readers must not be let beyond the units that the group has committed and
    /// the node has on disk.
    pub(crate) fn of_node(directory: Arc<Directory>) -> UnitSource {
        UnitSource { directory, shared: None }
    }

    /// Whether both are the same files, written by the same journal. One that was turned off ends where it was.
    pub(crate) fn is_same(&self, other: &UnitSource) -> bool {
        let logs = (self.shared.as_ref(), other.shared.as_ref());
        Arc::ptr_eq(&self.directory, &other.directory)
            && match logs {
                (Some(own), Some(other)) => Arc::ptr_eq(own, other),
                (own, other) => own.is_none() && other.is_none(),
            }
    }

    /// Returns the directory.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Returns the last unit up to `until` that is durable, as far as that is known.
    pub(crate) fn durable_until(&self, until: Lsn) -> Lsn {
        self.shared.as_ref().map_or(until, |shared| until.min(shared.durable.load()))
    }

    /// Reads the units after `lsn` up to `until`, as far as they are durable now.
    pub(crate) fn read_after(&self, lsn: Lsn, until: Lsn) -> Result<UnitReader, ReadError> {
        // Segments that hold units up to here exist already. None of them can appear later.
        let until = self.durable_until(until);
        let recovery = self.open(lsn)?;
        Ok(UnitReader { source: self.clone(), recovery, written: until, until })
    }

    fn open(&self, lsn: Lsn) -> Result<Recovery, ReadError> {
        Recovery::open(Arc::clone(&self.directory), lsn).map_err(|error| self.explain(lsn, error))
    }

    /// Tells units that were retired from damage. `read` is the last unit that was read.
    fn explain(&self, read: Lsn, error: LogError) -> ReadError {
        let first_lsn = match &self.shared {
            // Without a segment the journal begins behind what is durable.
            Some(shared) => Some(shared.segments().first_lsn().unwrap_or_else(|| shared.durable.load().next())),
            None => Recovery::first_lsn(Arc::clone(&self.directory)).ok().flatten(),
        };
        match first_lsn.map(Lsn::previous) {
            Some(covered) if covered > read => ReadError::Gone { covered },
            _ => ReadError::Log(error),
        }
    }
}

/// Reads units in order. See the module's header.
pub struct UnitReader {
    source: UnitSource,
    recovery: Recovery,
    /// The units up to this one had been written when the recovery read from the files last.
    written: Lsn,
    until: Lsn,
}

impl UnitReader {
    /// Returns the last unit that the reader will reach.
    pub fn until(&self) -> Lsn {
        self.until
    }

    /// Returns the files that are read.
    pub(crate) fn source(&self) -> &UnitSource {
        &self.source
    }

    /// Lets the reader go on up to `until`, as far as that is durable now.
    pub(crate) fn go_on_until(&mut self, until: Lsn) {
        self.until = self.source.durable_until(until).max(self.until);
    }

    /// Returns the next units, as many as were written at once; `None` after the last.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        let (mut misses, mut must_look) = (0, false);
        while self.recovery.last_lsn() < self.until {
            let looked = match must_look || self.recovery.last_lsn() >= self.written {
                true => self.look(misses == MISSES_MAX),
                false => Ok(()),
            };
            must_look = false;
            match looked.and_then(|()| self.recovery.advance()) {
                Ok(Some(passed)) if self.recovery.needs(&passed) => return Ok(Some(self.recovery.block(&passed))),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) if misses < MISSES_MAX => (misses, must_look) = (misses + 1, true),
                Ok(None) => {
                    let (path, lsn) = (self.recovery.position().0, self.recovery.last_lsn().next());
                    return Err(self.source.explain(lsn.previous(), LogError::Missing { path, lsn }));
                }
                Err(error) => return Err(self.source.explain(self.recovery.last_lsn(), error)),
            }
        }
        Ok(None)
    }

    /// Looks at the files again: at what was written behind the block read last, or `anew`, for where that is.
    fn look(&mut self, anew: bool) -> Result<(), LogError> {
        self.written = self.until;
        if anew || !self.recovery.read_on()? {
            self.recovery.begin_again()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use super::*;
    use crate::base::rng::Rng;
    use crate::log::directory::DirectoryId;
    use crate::log::disk::{Clock, RealClock, RealDisk};
    use crate::log::group_commit::{Commit, Options, SyncPolicy, tail};
    use crate::log::replicated::block::tests::block;
    use crate::log::replicated::entry::{Entry, Payload};
    use crate::log::replicated::log::EntryLog;
    use crate::log::replicated::mark::Mark;
    use crate::log::replicated::members::Members;
    use crate::log::replicated::recovery::EntryRecovery;
    use crate::log::replicated::types::{Ballot, Index, Link, NodeId, Position, Term, some_owner};
    use crate::log::replicated::write::Write;
    use crate::log::sim::SimDisk;

    const ID: DirectoryId = DirectoryId::new([3; 16]);

    /// Small segments, so that a test passes many of them.
    const OPTIONS: Options = Options {
        policy: SyncPolicy::Always,
        segment_bytes: 32 * 1024,
        first_segment_bytes: 16 * 1024,
        prepared_segments: 1,
        reserve_bytes: 8 * 1024,
        may_wait_for_space: true,
    };

    /// Effects that tell units of one Lsn apart: of the term that made them, and of a length that follows from both.
    fn effects(lsn: u64, term: u64) -> Vec<u8> {
        let len = match lsn % 40 {
            0 => 6_000,
            _ => 1 + (lsn * 37 + term) % 400,
        };
        [lsn.to_le_bytes(), term.to_le_bytes()].concat().into_iter().cycle().take(16 + len as usize).collect()
    }

    /// Follows a journal as it is let, and compares what it reads.
    struct Follower {
        source: UnitSource,
        reader: Option<UnitReader>,
        /// The unit read last.
        last: Lsn,
        gone: u64,
    }

    impl Follower {
        fn new(source: UnitSource) -> Follower {
            Follower { source, reader: None, last: Lsn::NONE, gone: 0 }
        }

        /// Reads up to `until`, or for fewer blocks. Units must have the effects of the term that `term_of` gives.
        fn read(&mut self, until: Lsn, blocks: u64, term_of: impl Fn(Lsn) -> u64) {
            match self.try_read(until, blocks, term_of) {
                Ok(()) => {}
                Err(ReadError::Gone { covered }) => {
                    assert!(self.last < covered, "{covered} behind {}", self.last);
                    (self.reader, self.last) = (None, covered);
                    self.gone += 1;
                }
                Err(error) => panic!("after {} until {until}: {error}", self.last),
            }
        }

        fn try_read(&mut self, until: Lsn, blocks: u64, term_of: impl Fn(Lsn) -> u64) -> Result<(), ReadError> {
            let reader = match &mut self.reader {
                Some(reader) => {
                    reader.go_on_until(until);
                    reader
                }
                None => self.reader.insert(self.source.read_after(self.last, until)?),
            };
            for _ in 0..blocks {
                let Some(block) = reader.next_block()? else {
                    assert_eq!(self.last, reader.until().max(self.last), "the reader reaches its end");
                    break;
                };
                assert_eq!(block.first_lsn(), self.last.next(), "units come in order");
                for unit in block.units() {
                    assert!(unit.effects == effects(unit.lsn.get(), term_of(unit.lsn)), "unit {}", unit.lsn);
                    self.last = unit.lsn;
                }
                assert_eq!(self.last, block.last_lsn());
            }
            Ok(())
        }
    }

    fn open(disk: &SimDisk) -> Log {
        let directory = Directory::open(Arc::new(disk.clone()), Path::new("/log"), ID).unwrap();
        Recovery::open(directory, Lsn::NONE).unwrap().finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {})).unwrap()
    }

    fn append(log: &Log, first: u64, units: u64) {
        let effects: Vec<_> = (first..first + units).map(|lsn| effects(lsn, 0)).collect();
        log.commit(tail(log.buffer(), Lsn::new(first), &effects), Commit::InPlace);
    }

    #[test]
    fn a_reader_goes_on_with_what_is_appended_later() {
        let (mut gone, mut segments) = (0, 0);
        for seed in 0..30 {
            let (mut rng, disk) = (Rng::seeded(seed), SimDisk::new(seed));
            let log = open(&disk);
            let (mut follower, mut last) = (Follower::new(log.source()), 0);
            for _ in 0..150 {
                match rng.below(8) {
                    // Sometimes many blocks come between two looks, more than are read at once.
                    0 => (0..rng.below(60)).for_each(|_| {
                        append(&log, last + 1, 1);
                        last += 1;
                    }),
                    1 if rng.below(4) == 0 => _ = log.cut(Lsn::new(last - rng.below(last.min(100) + 1))),
                    2 | 3 => while log.do_chore() {},
                    4..=6 => follower.read(Lsn::MAX, [1, 3, u64::MAX][rng.below(3) as usize], |_| 0),
                    _ => {
                        let units = 1 + rng.below(4);
                        append(&log, last + 1, units);
                        last += units;
                    }
                }
            }
            while follower.last.get() < last {
                follower.read(Lsn::MAX, u64::MAX, |_| 0);
            }
            (gone, segments) = (gone + follower.gone, segments + log.segments());
        }
        assert!(gone > 5 && segments > 50, "{gone} times gone, {segments} segments");
    }

    /// A unit that is written and not yet durable could be lost.
    #[test]
    fn a_reader_is_not_let_beyond_what_is_durable() {
        let disk = SimDisk::new(1);
        let log = open(&disk);
        append(&log, 1, 1);
        let mut follower = Follower::new(log.source());
        follower.read(Lsn::MAX, u64::MAX, |_| 0);
        log.set_policy(SyncPolicy::No).unwrap();
        append(&log, 2, 1);
        assert_eq!((log.written(), log.durable()), (Lsn::new(2), Lsn::new(1)));
        follower.read(Lsn::MAX, u64::MAX, |_| 0);
        assert_eq!(follower.last, Lsn::new(1));
        log.begin_sync();
        follower.read(Lsn::MAX, u64::MAX, |_| 0);
        assert_eq!(follower.last, Lsn::new(2));
    }

    #[test]
    fn what_is_read_beside_a_writer_is_what_was_appended() {
        const LAST: u64 = 4_000;
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(Arc::new(RealDisk), dir.path(), ID).unwrap();
        let recovery = Recovery::open(directory, Lsn::NONE).unwrap();
        let mut log = recovery.finish(OPTIONS, Arc::new(RealClock::default()), Box::new(|| {})).unwrap();
        log.start().unwrap();
        let read = |seed: u64| {
            let (mut rng, mut follower) = (Rng::seeded(seed), Follower::new(log.source()));
            while follower.last < Lsn::new(LAST) {
                follower.read(Lsn::MAX, 1 + rng.below(100), |_| 0);
                thread::yield_now();
            }
            follower.gone
        };
        let gone = thread::scope(|scope| {
            let readers = [1, 2].map(|seed| scope.spawn(move || read(seed)));
            let mut rng = Rng::seeded(9);
            for lsn in 1..=LAST {
                let tail = tail(log.buffer(), Lsn::new(lsn), &[effects(lsn, 0)]);
                log.commit(tail, if rng.below(4) == 0 { Commit::HandOver } else { Commit::InPlace });
                if rng.below(200) == 0 {
                    log.cut(log.durable());
                }
            }
            log.drain().unwrap();
            readers.map(|reader| reader.join().unwrap())
        });
        println!("times gone: {gone:?}");
    }

    /// The log of a node whose uncommitted ends are cut off now and then.
    struct Node {
        log: EntryLog,
        source: UnitSource,
        rng: Rng,
        /// The entries, behind the first of which the log begins.
        entries: Vec<Position>,
        /// The term that made each unit, by its Lsn; 0 for units that a snapshot has brought.
        terms: Arc<Vec<AtomicU64>>,
        term: u64,
        writes: u64,
        committed: Position,
        cuts: u64,
    }

    /// The most units that a test writes to the log of a node.
    const UNITS_MAX: usize = 6_000;

    impl Node {
        fn begin(seed: u64, directory: Directory, clock: Arc<dyn Clock>) -> Node {
            let directory = Arc::new(directory);
            let recovery = EntryRecovery::read(Arc::clone(&directory), first_mark()).unwrap();
            let log = recovery.finish(OPTIONS, clock, Box::new(|| {})).unwrap();
            let first = Position { index: Index(1), term: Term(1), link: Link::default() };
            Node {
                log,
                source: UnitSource::of_node(directory),
                rng: Rng::seeded(seed),
                entries: vec![first],
                terms: Arc::new((0..UNITS_MAX).map(|_| AtomicU64::new(0)).collect()),
                term: 1,
                writes: 0,
                committed: first,
                cuts: 0,
            }
        }

        fn last(&self) -> Position {
            self.entries[self.entries.len() - 1]
        }

        fn is_full(&self) -> bool {
            self.last().link.lsn.get() as usize + 100 > UNITS_MAX
        }

        /// Returns the write that appends some entries, sometimes in the place of some that are not committed.
        fn next_write(&mut self) -> Write {
            let uncommitted = self.last().index.0 - self.committed.index.0;
            let is_cut = uncommitted > 0 && self.rng.below(4) == 0;
            if is_cut {
                let stay = self.entries.len() as u64 - 1 - self.rng.below(uncommitted);
                self.entries.truncate(stay as usize);
                self.cuts += 1;
            }
            self.term += u64::from(is_cut || self.rng.below(8) == 0);
            let mut entries = Vec::new();
            for _ in 0..1 + self.rng.below(12) {
                let before = self.last();
                let index = before.index.next();
                let (payload, link) = if self.rng.below(5) == 0 {
                    (Payload::Start, before.link)
                } else {
                    let first = before.link.lsn.get() + 1;
                    let units: Vec<Vec<u8>> =
                        (first..=first + self.rng.below(4)).map(|lsn| effects(lsn, self.term)).collect();
                    let block = block(self.term, before.link, &units.iter().map(Vec::as_slice).collect::<Vec<_>>());
                    for lsn in first..first + units.len() as u64 {
                        self.terms[lsn as usize].store(self.term, Ordering::Release);
                    }
                    let link = block.link();
                    (Payload::Block(block), link)
                };
                let term = Term(self.term);
                entries.push(Entry { index, term, payload });
                self.entries.push(Position { index, term, link });
            }
            self.writes += 1;
            let ballot = Some(Ballot { term: Term(self.term), vote: NodeId::new(1) });
            Write { number: self.writes, ballot, install: None, entries, committed: self.committed.index }
        }

        /// Commits some of the entries that are on disk.
        fn commit(&mut self) {
            let first = self.entries[0].index.0;
            let uncommitted = self.last().index.0 - self.committed.index.0;
            let index = self.committed.index.0 + self.rng.below(uncommitted + 1);
            self.committed = self.entries[(index - first) as usize];
        }

        /// Lets a snapshot of another node take the place of the log.
        fn install(&mut self) {
            let last = self.last();
            let link = Link { lsn: last.link.lsn.plus(20), crc: 7 };
            let at = Position { index: Index(last.index.0 + 30), term: Term(self.term), link };
            (self.entries, self.committed) = (vec![at], at);
            self.writes += 1;
            let mark = Mark { at, members: Members::default(), serial: self.writes };
            let (install, committed) = (Some(mark), at.index);
            self.log.write(Write { number: self.writes, ballot: None, install, entries: Vec::new(), committed });
        }

        fn retire(&self) {
            self.log.retire(Index(self.committed.index.0.saturating_sub(100)), self.committed.index, u64::MAX);
        }
    }

    fn first_mark() -> Mark {
        let at = Position { index: Index(1), term: Term(1), link: Link::default() };
        Mark { at, members: Members::default(), serial: 0 }
    }

    fn node_on(disk: &SimDisk, seed: u64) -> Node {
        let directory = Directory::open_as(some_owner(), Arc::new(disk.clone()), Path::new("/log"), ID).unwrap();
        Node::begin(seed, directory, Arc::new(disk.clone()))
    }

    /// A block that was cut off stays in its file and in the memory of a reader, and looks whole.
    #[test]
    fn a_reader_sees_nothing_of_an_uncommitted_tail_that_was_cut_off() {
        let (mut gone, mut cuts, mut read) = (0, 0, 0);
        for seed in 0..30 {
            let disk = SimDisk::new(seed);
            let mut node = node_on(&disk, seed);
            let terms = Arc::clone(&node.terms);
            let term_of = |lsn: Lsn| terms[lsn.get() as usize].load(Ordering::Acquire);
            let mut follower = Follower::new(node.source.clone());
            for _ in 0..150 {
                match node.rng.below(10) {
                    0..4 => {
                        let write = node.next_write();
                        node.log.write(write);
                        node.log.step();
                    }
                    4 | 5 => node.commit(),
                    6 if node.rng.below(4) == 0 => node.retire(),
                    6 if node.rng.below(20) == 0 => {
                        node.install();
                        node.log.step();
                    }
                    7 => while node.log.do_chore() {},
                    _ => {
                        let blocks = [1, 3, u64::MAX][node.rng.below(3) as usize];
                        follower.read(node.committed.link.lsn, blocks, term_of);
                    }
                }
            }
            while follower.last < node.committed.link.lsn {
                follower.read(node.committed.link.lsn, u64::MAX, term_of);
            }
            (gone, cuts, read) = (gone + follower.gone, cuts + node.cuts, read + follower.last.get());
        }
        assert!(gone > 5 && cuts > 100 && read > 2_500, "{gone} times gone, {cuts} cuts, up to {read} units read");
    }

    #[test]
    fn what_is_read_beside_the_writer_of_a_node_is_what_was_committed() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open_as(some_owner(), Arc::new(RealDisk), dir.path(), ID).unwrap();
        let mut node = Node::begin(5, directory, Arc::new(RealClock::default()));
        node.log.start().unwrap();
        let (committed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (source, terms) = (node.source.clone(), Arc::clone(&node.terms));
        let read = |seed: u64| {
            let (mut rng, mut follower) = (Rng::seeded(seed), Follower::new(source.clone()));
            loop {
                let is_last = is_over.load(Ordering::Acquire);
                let until = Lsn::new(committed.load(Ordering::Acquire));
                let blocks = if is_last { u64::MAX } else { 1 + rng.below(20) };
                follower.read(until, blocks, |lsn| terms[lsn.get() as usize].load(Ordering::Acquire));
                if is_last && follower.last == until {
                    return follower.gone;
                }
                thread::yield_now();
            }
        };
        let gone = thread::scope(|scope| {
            let readers = [1, 2].map(|seed| {
                let read = &read;
                scope.spawn(move || read(seed))
            });
            while !node.is_full() {
                let write = node.next_write();
                let number = write.number;
                node.log.write(write);
                while node.log.durable() < number {
                    thread::yield_now();
                }
                node.commit();
                committed.store(node.committed.link.lsn.get(), Ordering::Release);
                if node.rng.below(30) == 0 {
                    node.retire();
                }
            }
            is_over.store(true, Ordering::Release);
            readers.map(|reader| reader.join().unwrap())
        });
        assert!(node.cuts > 20, "{}", node.cuts);
        println!("times gone: {gone:?}");
    }
}
