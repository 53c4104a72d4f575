//! Reads the log of a node after a start, and opens it for writing.
//!
//! The log continues the newest snapshot if it has the snapshot's last entry. Otherwise the snapshot takes its place:
//! it came from another node, and a crash has left the old log beside it. The newest ballot stays in either case,
//! because a node votes once in a term whatever happens to its log.
//!
//! Entries that are known to be committed are not kept: the engine reads them from the files.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;

use super::body;
use super::entry::{Entry, Payload};
use super::log::EntryLog;
use super::mark::Mark;
use super::standing::Standing;
use super::types::{Ballot, Index, Position};
use super::write::{Recovered, Write};
use super::writer::{EntryWriter, Placed};
use crate::log::appender::Appender;
use crate::log::block::Damage;
use crate::log::directory::Directory;
use crate::log::disk::Clock;
use crate::log::error::LogError;
use crate::log::group_commit::{Options, State};
use crate::log::identity::Owner;
#[cfg(test)]
use crate::log::scan::End;
use crate::log::scan::{Passed, Recovery};
use crate::log::shared::Shared;
use crate::log::snapshot::reader::SnapshotReader;

/// See the module's header.
pub(crate) struct EntryRecovery {
    recovery: Recovery,
    snapshot: Mark,
    /// Whether the log has the last entry of the snapshot.
    continues_snapshot: bool,
    /// See [`Recovered`].
    committed: Mark,
    covered: Vec<Position>,
    entries: VecDeque<(Position, Entry)>,
    standing: Standing,
    /// The entry before the oldest segment, and those behind it.
    placed: VecDeque<Placed>,
}

/// Returns the newest snapshot in the directory of a node; `None` if it has none so far.
pub(crate) fn newest_snapshot(directory: &Directory) -> Result<Option<Mark>, LogError> {
    let Some(newest) = directory.snapshots()?.pop() else { return Ok(None) };
    Ok(SnapshotReader::open(directory, newest)?.end().mark.clone())
}

/// Returns the entry in the block read last, which lies at `index`.
pub(super) fn entry_of(recovery: &Recovery, passed: &Passed, index: Index) -> Result<Entry, LogError> {
    let entry = body::entry_in(recovery.body(passed), index).and_then(|entry| entry.ok_or(Damage::Units));
    entry.map_err(|damage| recovery.corrupt_block(passed, damage))
}

impl EntryRecovery {
    /// Reads the log in `directory`, which belongs to a node, and whose newest snapshot is `snapshot`.
    pub(crate) fn read(directory: impl Into<Arc<Directory>>, snapshot: Mark) -> Result<EntryRecovery, LogError> {
        let directory = directory.into();
        if directory.owner() == Owner::Server {
            let (found, wanted) = (Owner::Server.to_string(), "a node of a group".to_owned());
            return Err(LogError::Owner { path: directory.path().to_owned(), found, wanted });
        }
        let recovery = Recovery::open_all(directory, snapshot.at.link.lsn)?;
        let standing = Standing::behind(&snapshot, Ballot::default());
        let mut log = EntryRecovery {
            recovery,
            continues_snapshot: false,
            committed: snapshot.clone(),
            covered: Vec::new(),
            entries: VecDeque::new(),
            standing,
            placed: VecDeque::new(),
            snapshot,
        };
        log.begin()?;
        while let Some(passed) = log.recovery.advance()? {
            log.pass(&passed)?;
        }
        // Behind the last block, the header of a segment may say more.
        log.standing = log.recovery.standing().unwrap_or(log.standing);
        log.leave_committed();
        if log.continues_snapshot {
            // A snapshot has committed entries only, which must not be cut off behind it.
            log.standing.committed = log.standing.committed.max(log.snapshot.at.index);
        } else if log.recovery.oldest().is_some() && log.standing.committed >= log.snapshot.at.index {
            let path = log.recovery.directory().snapshot(log.snapshot.at.link.lsn);
            let lsn = log.snapshot.at.link.lsn;
            return Err(LogError::Corrupt { path, offset: 0, lsn, damage: Damage::History });
        }
        Ok(log)
    }

    /// Reads the log of a node that has no snapshot because it is about to found a group. A log that goes further than
    /// that has lost its snapshot.
    pub(crate) fn read_new(directory: impl Into<Arc<Directory>>, first: Mark) -> Result<EntryRecovery, LogError> {
        let (at, log) = (first.at, EntryRecovery::read(directory, first)?);
        if log.standing.at != at || log.standing.ballot.term > at.term {
            let path = log.recovery.directory().snapshot(at.link.lsn);
            return Err(LogError::Missing { path, lsn: at.link.lsn.next() });
        }
        Ok(log)
    }

    /// Takes the state before the oldest segment.
    fn begin(&mut self) -> Result<(), LogError> {
        let directory = Arc::clone(self.recovery.directory());
        let Some(oldest) = self.recovery.oldest().copied() else {
            // The first start of a node makes a segment before it can get a snapshot.
            return match self.snapshot.serial {
                0 => Ok(()),
                _ => Err(LogError::Missing { path: directory.segment(1), lsn: self.snapshot.at.link.lsn.next() }),
            };
        };
        let path = directory.segment(oldest.number);
        let Some(standing) = oldest.standing else {
            let owner = directory.owner().to_string();
            return Err(LogError::Foundling { path, owner });
        };
        let covered = self.snapshot.at;
        if standing.at.index > covered.index {
            let path = directory.segment(oldest.previous.max(1));
            return Err(LogError::Missing { path, lsn: covered.link.lsn.next() });
        }
        self.standing = standing;
        self.cover(standing.at);
        self.placed.push_back(Placed::before(&oldest, standing.at));
        self.meet(standing.at);
        Ok(())
    }

    fn meet(&mut self, at: Position) {
        self.continues_snapshot |= at == self.snapshot.at;
    }

    fn pass(&mut self, passed: &Passed) -> Result<(), LogError> {
        let Some(standing) = self.recovery.standing() else { return Ok(()) };
        let before = mem::replace(&mut self.standing, standing);
        if standing.at.index == before.at.index {
            return Ok(());
        }
        let entry = entry_of(&self.recovery, passed, standing.at.index)?;
        match entry.index > self.snapshot.at.index {
            true => self.entries.push_back((standing.at, entry)),
            false => self.cover(standing.at),
        }
        self.leave_committed();
        let segment = self.recovery.place_behind().0;
        self.placed.push_back(Placed { at: standing.at, segment, crc: passed.crc() });
        self.meet(standing.at);
        Ok(())
    }

    /// Notes an entry that is not kept, the next one behind those before.
    fn cover(&mut self, at: Position) {
        if self.covered.last().is_none_or(|last| last.term != at.term) {
            self.covered.push(at);
        }
    }

    /// Leaves the entries to the files that are known to be committed.
    fn leave_committed(&mut self) {
        let committed = self.standing.committed;
        while let Some((at, entry)) = self.entries.pop_front_if(|(at, _)| at.index <= committed) {
            self.cover(at);
            self.committed.at = at;
            if let Payload::Change(change) = &entry.payload {
                self.committed.members.make(change);
            }
        }
    }

    /// Takes the data that the node starts from. The entries are handed over once.
    pub(crate) fn take(&mut self) -> Recovered {
        let snapshot = self.snapshot.clone();
        if let Some(Standing { ballot, .. }) = self.replaced_by() {
            return Recovered::at(snapshot, ballot);
        }
        let (ballot, committed) = (self.standing.ballot, self.committed.clone());
        let entries = mem::take(&mut self.entries).into_iter().map(|(_, entry)| entry).collect();
        Recovered { ballot, snapshot, committed, covered: mem::take(&mut self.covered), entries }
    }

    /// Returns the state behind the snapshot, if that takes the place of the log.
    fn replaced_by(&self) -> Option<Standing> {
        (!self.continues_snapshot).then(|| Standing::behind(&self.snapshot, self.standing.ballot))
    }

    /// Returns how the log ends.
    #[cfg(test)]
    pub(crate) fn end(&self) -> Option<&End> {
        self.recovery.end()
    }

    /// Opens the log for writing. What was read is durable when this returns.
    pub(crate) fn finish(
        self,
        options: Options,
        clock: Arc<dyn Clock>,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<EntryLog, LogError> {
        let directory = Arc::clone(self.recovery.directory());
        let replaced_by = self.replaced_by();
        let is_new = self.recovery.oldest().is_none();
        let begins_at = replaced_by.filter(|_| is_new);
        // A new log needs its first segment before anything else: without one, it would look like a log that was lost.
        let options = Options { may_wait_for_space: options.may_wait_for_space && !is_new, ..options };
        let opened = self.recovery.open_for_writing(begins_at, options, clock, notify)?;
        let (standing, mut placed) = match begins_at {
            Some(standing) => (standing, VecDeque::from([Placed { at: standing.at, segment: 0, crc: 0 }])),
            None => (self.standing, self.placed),
        };
        for (placed, crc) in placed.iter_mut().rev().zip(opened.taken_over.iter().rev()) {
            (placed.segment, placed.crc) = (opened.current.number, *crc);
        }
        let shared = Arc::new(Shared::new(opened.opening));
        let out = Appender::new(Arc::clone(&shared), opened.current);
        let log = EntryLog::new(shared, EntryWriter::new(out, standing, placed));
        if replaced_by.is_some() && !is_new {
            // As a write it keeps the old log, with its vote, until the new one is durable, however full the disk is.
            let (committed, install) = (self.snapshot.at.index, Some(self.snapshot));
            log.write(Write { number: 0, ballot: None, install, entries: Vec::new(), committed });
            if let (State::Poisoned, Some(failure)) = (log.step(), log.failure()) {
                let source = io::Error::other(failure.to_string());
                return Err(LogError::Io { path: directory.path().to_owned(), source });
            }
        }
        Ok(log)
    }
}
