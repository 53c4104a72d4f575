//! The journal: units of effects on disk, in the order in which they happened.
//!
//! It moves bytes and knows nothing of keys. Comments and texts call it the *journal*; the *log* is the text that
//! people read. The names of types, files and parameters are older and say `log`.
//!
//! The engine encodes units and commits them ([`group_commit`]). `writer` packs them into blocks ([`block`]) and writes
//! these to segments (`segment` has the bytes, `segments` the files). After a restart, [`scan`] reads them back;
//! [`follow`] reads them meanwhile. A
//! [`snapshot`] takes the place of the journal before it; [`restore`] reads the newest one and the journal behind it.
//! [`replacement`] writes other files with the same care; [`copy_file`] is a copy of everything in one file.
//! docs/log-format.md specifies the formats. All other files are reached through [`disk`], so that `sim` can stand in
//! for it.

mod appender;
pub mod block;
pub(crate) mod checksum;
pub mod copy_file;
pub mod directory;
pub mod disk;
pub mod error;
pub mod follow;
pub mod group_commit;
pub(crate) mod identity;
pub mod limits;
mod names;
pub mod planted;
pub mod platform;
#[cfg(test)]
pub(crate) mod reached;
pub mod repair;
pub mod replacement;
pub(crate) mod replicated;
pub mod restore;
pub mod scan;
mod segment;
mod segments;
mod shared;
#[cfg(test)]
pub mod sim;
#[cfg(test)]
mod simulation;
pub mod snapshot;
mod threads;
pub(crate) mod times;
mod types;
#[cfg(test)]
mod version_1;
#[cfg(test)]
mod version_2;
mod writer;
