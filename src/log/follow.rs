//! Reads the journal from an Lsn while it is being written.
//!
//! A reader sees the units up to where its owner lets it go, and no others: the blocks behind them may be half written,
//! and units that could still be lost must be shown to nobody. It reads the same files by the same rules as a recovery
//! ([`scan`](super::scan)), and it holds nothing up: a snapshot may retire segments that it has not read yet. Then it
//! ends with [`ReadError::Gone`], and its owner begins again with that snapshot.
//!
//! A reader that has read everything goes on later, where it was, and reads only what was written since then. Whatever
//! it can't read so it looks for once more among the files as they are by then: the journal has moved on to another
//! segment, or more was written than it has read at once.

use std::sync::Arc;

use super::block::Block;
use super::directory::Directory;
use super::error::LogError;
use super::group_commit::Log;
use super::scan::Recovery;
use super::shared::Shared;
use crate::base::lsn::Lsn;

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

    /// Reads the units after `lsn`, as far as they are durable now.
    pub fn read_after(&self, lsn: Lsn) -> Result<UnitReader, ReadError> {
        self.source().read_after(lsn, Lsn::MAX)
    }
}

impl UnitSource {
    /// Makes the source of a node's units. Readers must not be let beyond what the group has committed, and end early
    /// if the node has not written all of that yet.
    pub(crate) fn of_node(directory: Arc<Directory>) -> UnitSource {
        UnitSource { directory, shared: None }
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

    /// Lets the reader go on up to `until`, as far as that is durable now.
    pub(crate) fn go_on_until(&mut self, until: Lsn) {
        self.until = self.source.durable_until(until).max(self.until);
    }

    /// Returns the next units, as many as were written at once; `None` after the last.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        let mut has_looked_again = false;
        while self.recovery.last_lsn() < self.until {
            let mut read_on = Ok(());
            if self.recovery.last_lsn() >= self.written {
                self.written = self.until;
                read_on = self.recovery.read_on();
            }
            match read_on.and_then(|()| self.recovery.advance()) {
                Ok(Some(passed)) if self.recovery.needs(&passed) => return Ok(Some(self.recovery.block(&passed))),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) if !has_looked_again => {
                    has_looked_again = true;
                    self.written = self.until;
                    self.recovery = self.source.open(self.recovery.last_lsn())?;
                }
                // A node's own disk may be behind the group.
                Ok(None) if self.source.shared.is_none() => return Ok(None),
                Ok(None) => {
                    let (path, lsn) = (self.recovery.position().0, self.recovery.last_lsn().next());
                    return Err(self.source.explain(lsn.previous(), LogError::Missing { path, lsn }));
                }
                Err(error) => return Err(self.source.explain(self.recovery.last_lsn(), error)),
            }
        }
        Ok(None)
    }
}
