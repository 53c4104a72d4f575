//! Runs commands, from the bytes that a client has sent to its replies, and the periodic work between commands.

pub(crate) mod admit;
pub(crate) mod busy;
pub(crate) mod command_observers;
pub(crate) mod connections;
pub(crate) mod debugging;
pub(crate) mod dispatch;
pub mod ending;
mod explain;
pub(crate) mod feed;
pub(crate) mod inner_call;
pub(crate) mod pipeline;
pub(crate) mod postpone;
mod redirect;
pub(crate) mod script_host;
pub(crate) mod scripting;
pub(crate) mod send_past;
pub(crate) mod shutdown;
pub(crate) mod tick;
pub(crate) mod unit;
pub(crate) mod waiters;
