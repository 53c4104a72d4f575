//! Snapshots: files that hold all data up to an Lsn, so that the journal before it is no longer needed.
//!
//! A snapshot is a sequence of units that build the data from nothing, as opaque here as those of the journal. `format`
//! has the bytes, [`writer`] makes a file on a thread of its own, [`reader`] reads one back. docs/log-format.md is the
//! specification. The nodes of a group send each other their files as they are: [`departing`] and [`arriving`].

pub(crate) mod arriving;
pub(crate) mod departing;
mod format;
pub mod reader;
pub mod writer;

pub use format::SnapshotDamage;
