//! Tidegate: a coordination server that speaks the Redis protocol.
//!
//! `ARCHITECTURE.md` has the floor map and the walk of a request.

pub mod acl;
pub mod backup;
pub mod base;
pub mod check;
pub mod client;
pub mod client_tls;
pub mod command;
pub mod config;
pub(crate) mod consensus;
pub mod engine;
pub mod export;
pub mod feed;
pub(crate) mod http;
pub mod import;
pub mod keyspace;
pub mod lint;
pub mod log;
pub mod membership;
pub mod meters;
pub(crate) mod net;
pub(crate) mod node;
pub mod persist;
pub mod ping;
pub mod programs;
pub mod rdb;
pub mod resp;
pub mod script;
pub mod server;
pub mod session;
pub mod spec;
pub mod value;
pub mod wait;
