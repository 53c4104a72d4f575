//! Opens the log of a node: the one that is there, or that of a new group.
//!
//! Nothing here has a socket, so a simulation opens nodes as their thread does.

use std::sync::Arc;

use super::error::NodeError;
use crate::log::directory::Directory;
use crate::log::platform::Platform;
use crate::log::replicated::log::EntryLog;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::Members;
use crate::log::replicated::recovery::EntryRecovery;
use crate::log::replicated::write::Recovered;
use crate::log::snapshot::writer::{Begin, Sizes};

/// Called when writes have become durable.
pub(crate) type Notify = Box<dyn Fn() + Send + Sync>;

/// Opens the log behind the newest snapshot of a node; one that joins a group has none.
pub(crate) fn open(
    directory: &Arc<Directory>,
    snapshot: Option<Mark>,
    platform: &Platform,
    notify: Notify,
) -> Result<(Recovered, EntryLog), NodeError> {
    open_read(EntryRecovery::read(Arc::clone(directory), snapshot.unwrap_or_default())?, platform, notify)
}

/// Begins a group of these members. `serial` is a random number, and `time_ms` the wall clock.
pub(crate) fn found(
    directory: &Arc<Directory>,
    members: Members,
    platform: &Platform,
    notify: Notify,
    (serial, time_ms): (u64, i64),
) -> Result<(Recovered, EntryLog), NodeError> {
    let first = Mark::first(members);
    // The log first: a snapshot without a log would look as if the log were lost.
    let new = EntryRecovery::read_new(Arc::clone(directory), first.clone())?;
    let (recovered, log) = open_read(new, platform, notify)?;
    let begin = Begin { serial: serial.max(1), time_ms, sizes: Sizes::default(), notify: Box::new(|| {}) };
    let mut writer = log.snapshot(begin);
    writer.finish_at(first.at, first.members, time_ms);
    let done = loop {
        if let Some(outcome) = writer.outcome() {
            break outcome?;
        }
        writer.step();
    };
    Ok((Recovered::at(done.end.mark.unwrap_or_default(), recovered.ballot), log))
}

/// Opens a log that was read.
fn open_read(
    mut recovery: EntryRecovery,
    platform: &Platform,
    notify: Notify,
) -> Result<(Recovered, EntryLog), NodeError> {
    let recovered = recovery.take();
    let mut log = recovery.finish(platform.options, Arc::clone(&platform.clock), notify)?;
    if platform.has_threads {
        log.start().map_err(|error| NodeError::Thread { what: "the threads of the log", error })?;
    }
    Ok((recovered, log))
}
