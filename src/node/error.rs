//! Why a node can't start, or has ended.

use std::io;

use super::founding::TooLate;
use super::link::error::StartError as LinkStartError;
use crate::consensus::output::StartError as CoreStartError;
use crate::log::error::LogError;
use crate::log::snapshot::writer::SnapshotError;

/// Why a node can't start, or has ended. The text says what to do where the operator can do something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Link(#[from] LinkStartError),
    #[error(transparent)]
    Core(#[from] CoreStartError),
    #[error(transparent)]
    TooLate(#[from] TooLate),
    #[error("the first snapshot of the group can't be written: {0}")]
    Snapshot(#[from] SnapshotError),
    #[error("the log can't be written any more: {0}")]
    Failed(String),
    #[error("{what} can't be started: {error}")]
    Thread { what: &'static str, error: io::Error },
}
