//! The sockets of clients, on the engine's thread; in `tls` and `tls_files`, rustls.

pub(crate) mod conn;
pub(crate) mod inside;
pub(crate) mod io_threads;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod raw_poller;
pub(crate) mod reconfigure;
mod relay;
pub(crate) mod serve;
mod sign_in;
pub(crate) mod socket;
pub(crate) mod socket_table;
mod system_call;
mod tls;
mod tls_client_certificates;
mod tls_files;
mod tls_sessions;
pub(crate) mod transport;
