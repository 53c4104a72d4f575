//! Snapshots: files that hold the whole data up to an Lsn, so that the log before it is no longer needed.
//!
//! What a snapshot holds is a sequence of units that make the data of nothing, as opaque here as those of the log. `format` has
//! the bytes, [`writer`] makes a file on a thread of its own, [`reader`] reads one back. docs/log-format.md is the
//! specification.

mod format;
pub mod reader;
pub mod writer;

pub use format::SnapshotDamage;
