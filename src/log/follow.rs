//! Reads the journal from an Lsn while it is being written.
//!
//! A reader sees the units that are durable when it begins, and no others: the blocks behind them may be half written,
//! and units that could still be lost must be shown to nobody. It reads the same files by the same rules as a recovery
//! ([`scan`](super::scan)), and it holds nothing up: a snapshot may retire segments that it has not read yet. Then it
//! ends with [`ReadError::Gone`], and its owner begins again with that snapshot.

use std::sync::Arc;

use super::block::Block;
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

/// Reads units in order. See the module's header.
pub struct UnitReader {
    shared: Arc<Shared>,
    recovery: Recovery,
    until: Lsn,
}

impl Log {
    /// Reads the units after `lsn`, as far as they are durable now.
    pub fn read_after(&self, lsn: Lsn) -> Result<UnitReader, ReadError> {
        UnitReader::begin(self.shared(), lsn)
    }
}

impl UnitReader {
    fn begin(shared: &Arc<Shared>, lsn: Lsn) -> Result<UnitReader, ReadError> {
        // Segments that hold units up to here exist already. None of them can appear later.
        let until = shared.durable.load();
        match Recovery::open(Arc::clone(&shared.directory), lsn) {
            Ok(recovery) => Ok(UnitReader { shared: Arc::clone(shared), recovery, until }),
            Err(error) => Err(explain(shared, lsn, error)),
        }
    }

    /// Returns the last unit that the reader will reach.
    pub fn until(&self) -> Lsn {
        self.until
    }

    /// Returns the next units, as many as were written at once; `None` after the last.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        while self.recovery.last_lsn() < self.until {
            match self.recovery.advance() {
                Ok(Some(passed)) if self.recovery.needs(&passed) => return Ok(Some(self.recovery.block(&passed))),
                Ok(Some(_)) => {}
                Ok(None) => {
                    let (path, lsn) = (self.recovery.position().0, self.recovery.last_lsn().next());
                    return Err(explain(&self.shared, lsn.previous(), LogError::Missing { path, lsn }));
                }
                Err(error) => return Err(explain(&self.shared, self.recovery.last_lsn(), error)),
            }
        }
        Ok(None)
    }
}

/// Tells units that were retired from damage. `read` is the last unit that was read.
fn explain(shared: &Shared, read: Lsn, error: LogError) -> ReadError {
    // Without a segment the journal begins behind what is durable.
    let first_lsn = shared.segments().first_lsn();
    match first_lsn.map_or_else(|| shared.durable.load(), Lsn::previous) {
        covered if covered > read => ReadError::Gone { covered },
        _ => ReadError::Log(error),
    }
}
