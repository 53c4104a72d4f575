//! The shutdown of the server, by SHUTDOWN or by a signal.
//!
//! A shutdown may need a snapshot, which takes a while. The snapshot is made in slices, as by BGSAVE. During it reads
//! are served and writes [paused](crate::session::pause), so that the snapshot holds the last change; the
//! client that asked for the shutdown waits. Then, or at once if there is nothing to save, [`Ending::shutdown`] is set,
//! and the network floor ends: it takes no more requests, sends the replies for up to `shutdown-timeout`, and closes.
//!
//! ```text
//! asked ----> snapshot ----> shutdown is set ----> replies are sent, the journal is closed
//!   |             | fails, or SHUTDOWN ABORT
//!   |             v
//!   |         goes on as before: writes go on, clients that asked get an error
//!   +---- nothing to save, NOW, a second signal ----> shutdown is set
//! ```
//!
//! Clients notice the shutdown by the end of their connections: there is no error that their libraries would take for
//! "come again".

use super::shutdown::{Awaited, Ending, Shutdown};
use crate::config::EndOptions;
use crate::engine::state::{Engine, ServerState};
use crate::keyspace::Keyspace;
use crate::persist::Persistence;
use crate::resp::reply::Reply;
use crate::session::Session;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;
use crate::wait::Wait;

/// The reply to clients whose requested shutdown does not happen.
const FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

/// Whether the server ends at once or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// At once: [`Ending::shutdown`] is set.
    Now,
    /// When the snapshot is complete.
    Later,
}

impl Engine {
    /// Begins the shutdown asked for by a signal of this name, with the configured options. A second signal does not
    /// wait for the snapshot that the first one began.
    pub fn end_by_signal(&mut self, signal: &'static str) -> Ends {
        let Engine { ks, server, .. } = self;
        let options = match signal {
            "SIGINT" => server.config.shutdown_on_sigint,
            _ => server.config.shutdown_on_sigterm,
        };
        if server.ending.awaited.is_some() {
            tracing::warn!("{signal} again: the server ends without the snapshot that it was making");
            server.ending.shutdown = Some(Shutdown { now: true, force: true });
            return Ends::Now;
        }
        match server.begin_to_end(ks, options, signal, None) {
            Ok(ends) => ends,
            Err(_) => Ends::Later,
        }
    }
}

impl Persistence {
    /// Whether a needed RDB file could not be written. Only SAVE needs it.
    fn lacks_rdb(&self, save: Option<bool>) -> bool {
        save == Some(true) && self.saving.has_export_failed
    }
}

impl Ending {
    /// How much longer the coming shutdown may take by `shutdown-timeout`, in ms; `None` if none is coming.
    pub fn ends_in_ms(&self, steady_ms: i64) -> Option<i64> {
        let ending = self.awaited.as_ref()?;
        Some((ending.until_ms - steady_ms).max(0))
    }
}

impl ServerState {
    /// Begins the SHUTDOWN of a client; returns a wait, if the client has to wait.
    pub fn end_for(
        &mut self,
        ks: &mut Keyspace,
        options: EndOptions,
        session: &mut Session,
        command: CommandId,
    ) -> Result<Option<Wait>, Error> {
        let overrules = options.now || options.save == Some(false);
        if let Some(ending) = self.ending.awaited.as_mut().filter(|_| !overrules) {
            ending.asked_by.push((session.key, command));
        } else {
            self.begin_to_end(ks, options, "SHUTDOWN", Some((session, command)))?;
        }
        if self.ending.shutdown.is_some() {
            self.connections().close_soon(session);
            return Ok(None);
        }
        let on_timeout = |reply: &mut Reply| reply.error(b"ERR SHUTDOWN continues in the background");
        Ok(Some(Wait::until(None, on_timeout)))
    }

    fn begin_to_end(
        &mut self,
        ks: &mut Keyspace,
        options: EndOptions,
        reason: &'static str,
        asked_by: Option<(&mut Session, CommandId)>,
    ) -> Result<Ends, Error> {
        let how = Shutdown { now: options.now, force: options.force };
        if !self.persistence.saves_at_end(&self.config, options.save) {
            self.ending.shutdown = Some(how);
            return Ok(Ends::Now);
        }
        if options.now {
            // A shutdown with NOW serves no other client before it.
            let is_saved = self.persist(ks, |persistence, ks, env| persistence.save_at_once(ks, env)).is_ok()
                && !self.persistence.lacks_rdb(options.save);
            if !is_saved && !options.force {
                log_failure(reason);
                return Err(Error::text(FAILED));
            }
            self.ending.shutdown = Some(how);
            return Ok(Ends::Now);
        }
        tracing::info!(reason, "the server ends when a snapshot is complete; until then reads go on, and writes wait");
        let until_ms = self.time.clock.steady_ms() + i64::from(self.config.shutdown_timeout_s) * 1_000;
        let concluded = self.persistence.saving.concluded + 1 + u64::from(self.persistence.saving.is_ending());
        let (current, waiting) = match asked_by {
            Some((session, command)) => {
                let waiting = vec![(session.key, command)];
                (Some(session), waiting)
            }
            None => (None, Vec::new()),
        };
        self.ending.awaited = Some(Awaited { how, save: options.save, reason, asked_by: waiting, until_ms, concluded });
        self.clients.pause_for_ending(true, current);
        self.persistence.saving.save_again(self.time.clock.steady_ms());
        Ok(Ends::Later)
    }

    /// Checks whether the snapshot that the shutdown waits for is finished. Called between two units.
    pub(in crate::engine) fn go_on_ending(&mut self, ks: &Keyspace) {
        let Some(ending) = &self.ending.awaited else { return };
        if self.persistence.saving.is_wanted() || self.ending.shutdown.is_some() {
            return;
        }
        let is_saved =
            self.persistence.saving.concluded >= ending.concluded && self.persistence.saving.failure.is_none();
        if (is_saved && !self.persistence.lacks_rdb(ending.save)) || ending.how.force {
            self.ending.shutdown = Some(ending.how);
            return;
        }
        log_failure(ending.reason);
        self.stop_ending(ks, None);
    }

    /// SHUTDOWN ABORT. Returns whether there was a shutdown to abort.
    pub fn abort_ending(&mut self, ks: &Keyspace, current: &mut Session) -> bool {
        if self.ending.awaited.is_none() || self.ending.shutdown.is_some() {
            return false;
        }
        tracing::warn!("the shutdown was called off");
        self.stop_ending(ks, Some(current));
        true
    }

    /// Returns to normal operation. `current` is the session whose command does this, if a command does.
    fn stop_ending(&mut self, ks: &Keyspace, current: Option<&mut Session>) {
        let Some(ending) = self.ending.awaited.take() else { return };
        self.clients.pause_for_ending(false, current);
        for (client, command) in ending.asked_by {
            self.answer_who_asked(ks, client, command);
        }
    }

    fn answer_who_asked(&mut self, ks: &Keyspace, client: SessionKey, command: CommandId) {
        if let Some(call) = self.waits.blocking_call(&self.clients.sessions, client, command) {
            self.meters.stats.count_error(FAILED.as_bytes());
            self.end_waiting(ks, call, |_, reply| reply.error(FAILED.as_bytes()));
        }
    }
}

fn log_failure(reason: &str) {
    tracing::error!("{reason}, but the data can't be saved: the server keeps running. SHUTDOWN NOSAVE ends it");
}
