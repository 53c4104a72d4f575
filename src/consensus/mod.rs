//! Consensus: the group of nodes agrees on one log of blocks, so that an acknowledged write survives the loss of any
//! minority. docs/internals/consensus.md explains the design.
//!
//! The algorithm is Raft, by the crate `raft`, which is named in this folder only. This folder adds the rules by which
//! an engine may execute first and answer when the group has the block ([`core`]), and the [fuses](fuse) that stop a
//! node before it can do harm.

pub(crate) mod codec;
pub(crate) mod core;
mod entries;
pub(crate) mod fetch;
pub(crate) mod freshness;
pub(crate) mod fuse;
pub(crate) mod limits;
mod logger;
pub(crate) mod message;
mod older;
pub(crate) mod output;
mod reign;

#[cfg(test)]
mod simulation;
