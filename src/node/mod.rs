//! A node of a group: the parts of the server that run the core of consensus.
//!
//! One [`thread`] has a tokio runtime and a `LocalSet`. The core of [`consensus`](crate::consensus) and the connections
//! to the other nodes ([`link`]) live on it, so nothing there is `Send`, and nothing is locked. The engine talks to it
//! through a [`door`]. A new group begins by [`founding`].

pub(crate) mod door;
pub(crate) mod error;
pub(crate) mod facts;
pub(crate) mod founding;
pub(crate) mod link;
#[cfg(test)]
pub(crate) mod loopback;
pub(crate) mod opening;
#[cfg(test)]
mod tests;
pub(crate) mod thread;
pub(crate) mod turns;
