//! The state of a shutdown and how it was requested; see [`super::ending`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// The state of a shutdown.
#[derive(Debug, Default)]
pub struct Ending {
    /// Set when the server must end now.
    pub shutdown: Option<Shutdown>,
    /// A requested shutdown that waits for a snapshot.
    pub(in crate::engine) awaited: Option<Awaited>,
    /// Set when a signal asked the server to stop; ends a script that holds the thread.
    pub stop_signal: Arc<AtomicBool>,
}

/// A shutdown that waits for a snapshot; see [`ending`](super::ending).
#[derive(Debug)]
pub(in crate::engine) struct Awaited {
    pub(in crate::engine) how: Shutdown,
    /// Whether SAVE or NOSAVE was said.
    pub(in crate::engine) save: Option<bool>,
    /// The cause of the shutdown, for people.
    pub(in crate::engine) reason: &'static str,
    /// The clients that wait for it, with their command.
    pub(in crate::engine) asked_by: Vec<(SessionKey, CommandId)>,
    /// When it must be over because of `shutdown-timeout`, by the steady clock.
    pub(in crate::engine) until_ms: i64,
    /// The count of ended snapshots at which the awaited one has ended.
    pub(in crate::engine) concluded: u64,
}

/// Options of a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Do not wait until replies are sent.
    pub now: bool,
    /// Stop even if something could not be saved.
    pub force: bool,
}
