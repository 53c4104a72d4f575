//! A node of a group: the parts of the server that run the core of consensus.
//!
//! One thread has a tokio runtime and a `LocalSet`. The core of [`consensus`](crate::consensus) and the connections to
//! the other nodes ([`link`]) live on it, so nothing here is `Send`, and nothing is locked.

pub(crate) mod link;
