//! The log: units of effects on disk, in the order in which they happened.
//!
//! It moves bytes and knows nothing of keys. The engine encodes units and commits them ([`group_commit`]); `writer` makes blocks
//! of them ([`block`]) in segments (`segment` has the bytes, `segments` the files); after a restart [`scan`] reads them back.
//! docs/log-format.md specifies the format. All files are reached through [`disk`], so that `sim` can stand in for it.

pub mod block;
pub mod directory;
pub mod disk;
pub mod error;
pub mod group_commit;
pub mod planted;
pub mod scan;
mod segment;
mod segments;
mod shared;
#[cfg(test)]
pub mod sim;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod version_1;
mod writer;
