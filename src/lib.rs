//! Tidegate: a coordination server that speaks the Redis protocol.
//!
//! `ARCHITECTURE.md` has the floor map and the walk of a request.

pub mod base;
pub mod config;
pub mod engine;
pub mod keyspace;
pub mod resp;
pub mod value;
