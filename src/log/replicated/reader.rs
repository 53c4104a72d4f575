//! Reads entries from the files while the log is being written.
//!
//! As the [reader of units](crate::log::follow), it reads the same files by the same rules as a start, and holds
//! nothing up. But it can meet more than retired segments: a cut moves the end of the chain, and a snapshot takes the
//! place of all of it. Then the segments that it has found are no longer the log. So whatever it can't read it looks
//! for again, among the files as they are by then; only what it still can't find is damage.

use std::sync::Arc;

use super::entry::Entry;
use super::log::EntryLog;
use super::recovery::entry_of;
use super::types::Index;
use crate::log::error::LogError;
use crate::log::scan::Recovery;
use crate::log::shared::Shared;

/// How often a reader looks for the segments again. Each time it was overtaken by a cut, which is rare, and followed by
/// a sync.
const TRIES: usize = 5;

/// Why entries can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// A snapshot has taken the place of the entries.
    #[error("the log begins behind entry {covered}: a snapshot has taken the place of earlier ones")]
    Gone {
        /// The last entry that is no longer in the log.
        covered: Index,
    },
    /// The files can't be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Reads entries in order. See the module's header.
pub(crate) struct EntryReader {
    shared: Arc<Shared>,
    /// `None` until the segments were looked for.
    recovery: Option<Recovery>,
    /// The entry read last.
    read: Index,
    until: Index,
}

impl EntryLog {
    /// Reads the entries after `index` up to `until`. All of them must be durable and committed: others could be cut
    /// off in the meantime, which looks like damage to the reader.
    pub(crate) fn read_after(&self, index: Index, until: Index) -> EntryReader {
        EntryReader { shared: Arc::clone(self.shared()), recovery: None, read: index, until }
    }
}

impl EntryReader {
    /// Returns the next entry; `None` after the last.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.read >= self.until {
            return Ok(None);
        }
        let mut tries = 0..TRIES;
        loop {
            match self.advance() {
                Ok(entry) => {
                    self.read = entry.index;
                    return Ok(Some(entry));
                }
                Err(ReadError::Log(_)) if tries.next().is_some() => self.recovery = None,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the entry that was read last.
    #[cfg(test)]
    pub(crate) fn read(&self) -> Index {
        self.read
    }

    /// Lets the reader go on up to `until`, on the same condition as [`EntryLog::read_after`].
    pub(crate) fn go_on_until(&mut self, until: Index) {
        self.until = until;
    }

    fn advance(&mut self) -> Result<Entry, ReadError> {
        let EntryReader { shared, recovery, read, .. } = self;
        let recovery = match recovery {
            Some(recovery) => recovery,
            none => none.insert(find(shared, *read)?),
        };
        entry_at(recovery, read.next()).map_err(|error| explain(shared, *read, error))
    }
}

/// Reads up to the entry at `index`.
fn entry_at(recovery: &mut Recovery, index: Index) -> Result<Entry, LogError> {
    while let Some(passed) = recovery.advance()? {
        // The first block behind which the log ends at this entry is the entry itself; ballots may follow it.
        if recovery.standing().is_some_and(|standing| standing.at.index == index) {
            return entry_of(recovery, &passed, index);
        }
    }
    Err(missing(recovery))
}

/// Finds the segments with the entries after `read`.
fn find(shared: &Shared, read: Index) -> Result<Recovery, ReadError> {
    let recovery = Recovery::open_after(Arc::clone(&shared.directory), read);
    let recovery = recovery.map_err(|error| explain(shared, read, error))?;
    match recovery.oldest().zip(recovery.standing()) {
        Some((_, standing)) if standing.at.index <= read => Ok(recovery),
        // A segment without one before it follows a snapshot. The writer notes that only when the segment is durable.
        Some((oldest, standing)) if oldest.previous == 0 => Err(ReadError::Gone { covered: standing.at.index }),
        _ => Err(explain(shared, read, missing(&recovery))),
    }
}

fn missing(recovery: &Recovery) -> LogError {
    let (path, lsn) = (recovery.position().0, recovery.last_lsn().next());
    LogError::Missing { path, lsn }
}

/// Tells entries that were retired from damage. `read` is the last entry that was read.
fn explain(shared: &Shared, read: Index, error: LogError) -> ReadError {
    match shared.segments().begins_behind() {
        Some(covered) if covered > read => ReadError::Gone { covered },
        _ => ReadError::Log(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;
    use crate::base::rng::Rng;
    use crate::log::directory::{Directory, DirectoryId};
    use crate::log::disk::{Disk, RealClock, RealDisk};
    use crate::log::group_commit::State;
    use crate::log::names;
    use crate::log::replicated::entry::Payload;
    use crate::log::replicated::mark::Mark;
    use crate::log::replicated::members::Members;
    use crate::log::replicated::recovery::EntryRecovery;
    use crate::log::replicated::simulation::OPTIONS;
    use crate::log::replicated::types::{Ballot, Link, NodeId, Position, Term, some_owner};
    use crate::log::replicated::write::Write;
    use crate::log::segment::HEADER_BYTES;
    use crate::log::sim::SimDisk;

    pub(crate) const DIRECTORY: &str = "/data";

    fn mark(index: u64, term: u64) -> Mark {
        let at = Position { index: Index(index), term: Term(term), link: Link::default() };
        Mark { at, members: Members::default(), serial: index }
    }

    fn open(disk: &SimDisk) -> EntryLog {
        let id = DirectoryId::new([9; 16]);
        let directory = Directory::open_as(some_owner(), Arc::new(disk.clone()), Path::new(DIRECTORY), id).unwrap();
        let recovery = EntryRecovery::read(directory, Mark { serial: 0, ..mark(1, 1) }).unwrap();
        recovery.finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {})).unwrap()
    }

    pub(crate) fn starts(indices: std::ops::RangeInclusive<u64>, term: u64) -> Vec<Entry> {
        let start = |index| Entry { index: Index(index), term: Term(term), payload: Payload::Start };
        indices.map(start).collect()
    }

    fn ballot(term: u64) -> Option<Ballot> {
        Some(Ballot { term: Term(term), vote: NodeId::new(1) })
    }

    fn append(log: &EntryLog, entries: Vec<Entry>) {
        let (first, last) = (&entries[0], &entries[entries.len() - 1]);
        let (number, ballot, committed) = (last.index.0, ballot(first.term.0), last.index);
        log.write(Write { number, ballot, install: None, entries, committed });
        assert_eq!(log.step(), State::Good);
        while log.do_chore() {}
    }

    /// Returns a log of several segments with the entries 2 to 600, and a ballot before every tenth.
    pub(crate) fn written() -> (SimDisk, EntryLog) {
        let disk = SimDisk::new(1);
        let log = open(&disk);
        for tens in 0..60 {
            append(&log, starts((tens * 10).max(2)..=tens * 10 + 9, 3 + tens));
        }
        append(&log, starts(600..=600, 70));
        assert!(log.segments() > 4);
        (disk, log)
    }

    fn read(log: &EntryLog, after: u64, until: u64) -> Result<Vec<Entry>, ReadError> {
        let mut reader = log.read_after(Index(after), Index(until));
        let mut entries = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    #[test]
    fn any_range_is_read() {
        let (_, log) = written();
        let all = read(&log, 1, 600).unwrap();
        assert_eq!((all.len(), all[0].index, all[598].term), (599, Index(2), Term(70)));
        for after in 1..=600 {
            let until = (after + 1 + after % 90).min(600);
            let some = &all[after as usize - 1..until as usize - 1];
            assert_eq!(read(&log, after, until).unwrap(), some, "{after} to {until}");
        }
    }

    #[test]
    fn a_reader_goes_on_with_what_is_written_later() {
        let (_, log) = written();
        let mut reader = log.read_after(Index(590), Index(600));
        while reader.next_entry().unwrap().is_some() {}
        append(&log, starts(601..=900, 71));
        reader.go_on_until(Index(900));
        for index in 601..=900 {
            assert_eq!(reader.next_entry().unwrap(), starts(index..=index, 71).pop());
        }
        assert_eq!(reader.next_entry().unwrap(), None);
        assert_eq!(reader.read(), Index(900));
    }

    #[test]
    fn retired_entries_are_gone_also_for_a_reader_that_has_begun() {
        let (_, log) = written();
        let mut reader = log.read_after(Index(1), Index(600));
        assert!(reader.next_entry().unwrap().is_some());
        assert!(log.retire(Index(600), Index(600), u64::MAX) > 0);
        while log.do_chore() {}
        let begins = log.begins_behind().unwrap();
        let gone = loop {
            match reader.next_entry() {
                Ok(entry) => assert!(entry.is_some()),
                Err(error) => break error,
            }
        };
        assert!(matches!(gone, ReadError::Gone { covered } if covered == begins), "{gone}");
        let error = read(&log, begins.0 - 1, 600).unwrap_err();
        assert!(matches!(error, ReadError::Gone { covered } if covered == begins), "{error}");
        assert_eq!(read(&log, begins.0, 600).unwrap().len() as u64, 600 - begins.0);
    }

    #[test]
    fn entries_that_a_snapshot_replaces_are_gone() {
        let (_, log) = written();
        let mut reader = log.read_after(Index(1), Index(600));
        let (install, committed) = (Some(mark(700, 70)), Index(700));
        log.write(Write { number: 700, ballot: None, install, entries: starts(701..=705, 70), committed });
        assert_eq!(log.step(), State::Good);
        while log.do_chore() {}
        let gone = loop {
            match reader.next_entry() {
                Ok(entry) => assert!(entry.is_some()),
                Err(error) => break error,
            }
        };
        assert!(matches!(gone, ReadError::Gone { covered: Index(700) }), "{gone}");
        assert_eq!(read(&log, 700, 705).unwrap(), starts(701..=705, 70));
    }

    #[test]
    fn damage_is_not_taken_for_a_cut() {
        let (disk, log) = written();
        let first = Path::new(DIRECTORY).join(names::segment(1));
        disk.flip(&first, HEADER_BYTES + 200, 1);
        let error = read(&log, 1, 600).unwrap_err();
        assert!(matches!(error, ReadError::Log(LogError::Corrupt { .. })), "{error}");
        disk.flip(&first, 60, 1);
        let error = read(&log, 1, 600).unwrap_err();
        assert!(matches!(error, ReadError::Log(LogError::Missing { .. })), "{error}");
        disk.remove(&first).unwrap();
        let error = read(&log, 1, 600).unwrap_err();
        assert!(matches!(error, ReadError::Log(LogError::Missing { .. })), "{error}");
    }

    /// The last entry of a log that is written and read at the same time.
    const LAST: u64 = 6_000;

    /// A log that is written and read at the same time.
    struct Busy {
        log: EntryLog,
        /// The term of each entry that is committed, by index.
        terms: Vec<AtomicU64>,
        committed: AtomicU64,
    }

    impl Busy {
        /// Appends entries, cuts off ends that are not committed, and retires segments.
        fn write_all(&self, durable: &Receiver<()>) {
            let (mut rng, mut last, mut term) = (Rng::seeded(7), 1, 1);
            for number in 1.. {
                let safe = self.committed.load(Ordering::Acquire);
                let first = if rng.below(4) == 0 { safe + 1 + rng.below(last - safe + 1) } else { last + 1 };
                term += u64::from(first <= last || rng.below(8) == 0);
                last = (first + rng.below(60)).min(LAST);
                for index in first..=last {
                    self.terms[index as usize].store(term, Ordering::Release);
                }
                let (ballot, entries) = (ballot(term), starts(first..=last, term));
                self.log.write(Write { number, ballot, install: None, entries, committed: Index(safe) });
                while self.log.durable() < number {
                    durable.recv().unwrap();
                }
                if last == LAST {
                    self.committed.store(LAST, Ordering::Release);
                    return;
                }
                self.committed.store(safe + rng.below(last - safe + 1), Ordering::Release);
                if rng.below(8) == 0 {
                    self.log.retire(Index(safe.saturating_sub(1_000)), Index(safe), u64::MAX);
                }
            }
        }

        /// Reads committed entries until all are. Returns how many were read, and how often they were gone.
        fn read_all(&self, seed: u64) -> (u64, u64) {
            let (mut rng, mut read, mut gone, mut until) = (Rng::seeded(seed), 0, 0, 0);
            while until < LAST {
                until = self.committed.load(Ordering::Acquire);
                let after = until - rng.below(until.min(3_000));
                let mut reader = self.log.read_after(Index(after), Index(until));
                let end = loop {
                    match reader.next_entry() {
                        Ok(Some(entry)) => {
                            let term = self.terms[entry.index.0 as usize].load(Ordering::Acquire);
                            assert_eq!(entry.term, Term(term), "entry {}", entry.index);
                            read += 1;
                        }
                        end => break end,
                    }
                };
                match end {
                    Ok(_) => assert_eq!(reader.read(), Index(until)),
                    Err(ReadError::Gone { covered }) => {
                        assert!(covered > reader.read());
                        gone += 1;
                    }
                    Err(error) => panic!("after {after} to {until}: {error}"),
                }
            }
            (read, gone)
        }
    }

    #[test]
    fn what_is_read_beside_a_writer_is_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let id = DirectoryId::new([9; 16]);
        let directory = Directory::open_as(some_owner(), Arc::new(RealDisk), dir.path(), id).unwrap();
        let recovery = EntryRecovery::read(directory, Mark { serial: 0, ..mark(1, 1) }).unwrap();
        let (sender, durable) = channel();
        let notify = Box::new(move || {
            let _ = sender.send(());
        });
        let mut log = recovery.finish(OPTIONS, Arc::new(RealClock::default()), notify).unwrap();
        log.start().unwrap();
        let terms = (0..=LAST).map(|_| AtomicU64::new(0)).collect();
        let busy = Busy { log, terms, committed: AtomicU64::new(1) };
        let counts = thread::scope(|scope| {
            let readers = [1, 2].map(|seed| {
                scope.spawn({
                    let busy = &busy;
                    move || busy.read_all(seed)
                })
            });
            busy.write_all(&durable);
            readers.map(|reader| reader.join().unwrap())
        });
        println!("entries read, and times gone: {counts:?}");
        assert!(counts.iter().all(|(read, _)| *read > 0) && busy.log.state() == State::Good);
    }
}
