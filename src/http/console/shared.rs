//! What the requests to the console share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::super::limits::{SIGN_INS_AT_A_TIME, VIEWERS_MAX};
use super::brakes::Brakes;
use super::guard::Guard;
use super::sessions::Sessions;
use super::watch::Watches;
use crate::config::Config;
use crate::net::inside::Inside;
use crate::session::registry::Registry;

/// See the file's header.
pub(super) struct Console {
    /// The way to the engine.
    pub(super) inside: Arc<Inside>,
    /// What the engine has noted for other threads.
    pub(super) registry: Arc<Registry>,
    pub(super) guard: Guard,
    pub(super) sessions: Arc<Sessions>,
    pub(super) brakes: Brakes,
    pub(super) watches: Arc<Watches>,
    /// Sign-ins at a time.
    pub(super) signing_in: Semaphore,
    /// Pages that are shown the state.
    pub(super) viewers: Arc<Semaphore>,
}

impl Console {
    pub(super) fn new(inside: Arc<Inside>, registry: Arc<Registry>, config: &Config) -> Console {
        Console {
            watches: Watches::new(Arc::clone(&inside)),
            inside,
            registry,
            guard: Guard::new(&config.console_hosts),
            sessions: Sessions::new(config.console_port),
            brakes: Brakes::default(),
            signing_in: Semaphore::new(SIGN_INS_AT_A_TIME),
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
        }
    }
}
