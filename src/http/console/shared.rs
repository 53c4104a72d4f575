//! What the requests to the console share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::super::limits::SIGN_INS_AT_A_TIME;
use super::brakes::Brakes;
use super::browsers::Browsers;
use super::guard::Guard;
use super::line::Lines;
use super::sessions::Sessions;
use super::viewers::Viewers;
use super::watch::Watches;
use crate::config::Config;
use crate::net::inside::Inside;
use crate::session::registry::Registry;

/// See the file's header.
pub(super) struct Console {
    /// The way to the engine.
    pub(super) lines: Arc<Lines>,
    /// What the engine has noted for other threads.
    pub(super) registry: Arc<Registry>,
    pub(super) guard: Guard,
    pub(super) sessions: Arc<Sessions>,
    pub(super) brakes: Brakes,
    pub(super) browsers: Browsers,
    pub(super) watches: Arc<Watches>,
    /// Sign-ins at a time.
    pub(super) signing_in: Semaphore,
    pub(super) viewers: Arc<Viewers>,
}

impl Console {
    pub(super) fn new(inside: Arc<Inside>, registry: Arc<Registry>, config: &Config) -> Console {
        let lines = Arc::new(Lines::new(inside));
        Console {
            watches: Watches::new(Arc::clone(&lines)),
            registry,
            guard: Guard::new(&config.console_hosts),
            sessions: Sessions::new(config.console_port, Arc::clone(&lines)),
            lines,
            brakes: Brakes::default(),
            browsers: Browsers::new(config.console_port),
            signing_in: Semaphore::new(SIGN_INS_AT_A_TIME),
            viewers: Arc::default(),
        }
    }
}
