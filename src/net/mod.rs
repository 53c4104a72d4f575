//! The network: the only floor that knows tokio and sockets.

pub mod conn;
pub mod listener;
pub mod lookout;
pub mod serve;
