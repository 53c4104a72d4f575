//! The network: the only floor that knows tokio and sockets.

pub(crate) mod conn;
pub(crate) mod listener;
pub(crate) mod raw_poller;
pub(crate) mod serve;
pub(crate) mod socket;
pub(crate) mod socket_table;
pub(crate) mod transport;
