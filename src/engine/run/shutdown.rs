//! The end of the server, and how it was asked for: see [`super::ending`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// The end of the server.
#[derive(Debug, Default)]
pub struct Ending {
    /// Set when the server ends now.
    pub shutdown: Option<Shutdown>,
    /// The end that was asked for and waits for a snapshot.
    pub(in crate::engine) awaited: Option<Awaited>,
    /// A signal asked the server to stop: ends a script that holds the thread.
    pub stop_signal: Arc<AtomicBool>,
}

/// An end of the server that waits for a snapshot; see [`ending`](super::run::ending).
#[derive(Debug)]
pub(in crate::engine) struct Awaited {
    pub(in crate::engine) how: Shutdown,
    /// Whether SAVE or NOSAVE was said.
    pub(in crate::engine) save: Option<bool>,
    /// What asked for it, for people.
    pub(in crate::engine) reason: &'static str,
    /// Who waits for it.
    pub(in crate::engine) asked_by: Vec<(SessionKey, CommandId)>,
    /// When it should be over by `shutdown-timeout`, by the steady clock.
    pub(in crate::engine) until_ms: i64,
    /// How many snapshots must have ended for the one to be among them that it waits for.
    pub(in crate::engine) concluded: u64,
}

/// How the server is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Do not wait until what was answered is sent.
    pub now: bool,
    /// Stop even if something could not be saved.
    pub force: bool,
}
