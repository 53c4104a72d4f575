//! The journal as the log of a group of nodes: version 2 of the format (docs/log-format.md).
//!
//! Here are the terms in which consensus and the journal talk, from the numbers of entries ([`types`]) to what a disk
//! is given ([`mod@write`]). [`recovery`] reads the log after a start, [`log`] takes it from there, and [`reader`]
//! reads entries from the files beside it.

pub(crate) mod block;
mod body;
pub(crate) mod entry;
pub(crate) mod log;
pub(crate) mod mark;
pub(crate) mod members;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod standing;
pub(crate) mod types;
pub(crate) mod write;
mod writer;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
