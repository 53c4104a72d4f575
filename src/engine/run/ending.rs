//! The end of the server: SHUTDOWN, and signals.
//!
//! What is asked for may take a while: a snapshot. It is made in slices, as BGSAVE makes one, and meanwhile reads are served and writes
//! [paused](crate::engine::session::pause), so that the snapshot holds the last change. Whoever asked waits. Then, or at once where nothing is to be
//! saved, [`ServerState::shutdown`] is set, and the network floor ends: it takes no more requests, sends what was answered, for no longer
//! than `shutdown-timeout`, and closes.
//!
//! ```text
//! asked ----> snapshot ----> shutdown is set ----> replies are sent, the log is closed
//!   |             | fails, or SHUTDOWN ABORT
//!   |             v
//!   |         goes on as before: writes go on, those who asked are answered an error
//!   +---- nothing is to be saved, NOW, a second signal ----> shutdown is set
//! ```
//!
//! Clients hear of the end by the end of their connections: there is no error that their libraries would take for "come again".

use crate::config::EndOptions;
use crate::engine::session::Session;
use crate::engine::state::{Ending, Engine, ServerState, Shutdown};
use crate::engine::wait::Wait;
use crate::keyspace::Keyspace;
use crate::resp::reply::Reply;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// What those are answered who asked for an end that does not come.
const FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

/// Whether the server ends at once, or when something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// At once: [`ServerState::shutdown`] is set.
    Now,
    /// When the snapshot is complete.
    Later,
}

impl Engine {
    /// A signal of this name asks the server to end, as its options say. The second one does not wait for what the first one began.
    pub fn end_by_signal(&mut self, signal: &'static str) -> Ends {
        let Engine { ks, server, .. } = self;
        let options = match signal {
            "SIGINT" => server.config.shutdown_on_sigint,
            _ => server.config.shutdown_on_sigterm,
        };
        if server.ending.is_some() {
            tracing::warn!("{signal} again: the server ends without the snapshot that it was making");
            server.shutdown = Some(Shutdown { now: true, force: true });
            return Ends::Now;
        }
        match server.begin_to_end(ks, options, signal, None) {
            Ok(ends) => ends,
            Err(_) => Ends::Later,
        }
    }
}

impl ServerState {
    /// SHUTDOWN of a client: answers what it is to wait for, if it has to.
    pub fn end_for(
        &mut self,
        ks: &mut Keyspace,
        options: EndOptions,
        session: &mut Session,
        command: CommandId,
    ) -> Result<Option<Wait>, Error> {
        let overrules = options.now || options.save == Some(false);
        if let Some(ending) = self.ending.as_mut().filter(|_| !overrules) {
            ending.asked_by.push((session.key, command));
        } else {
            self.begin_to_end(ks, options, "SHUTDOWN", Some((session, command)))?;
        }
        if self.shutdown.is_some() {
            self.close_soon(session);
            return Ok(None);
        }
        let on_timeout = |reply: &mut Reply| reply.error(b"ERR SHUTDOWN goes on in the background");
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
        if !self.saves_at_end(options.save) {
            self.shutdown = Some(how);
            return Ok(Ends::Now);
        }
        if options.now {
            // Whoever is in a hurry has nobody else served meanwhile.
            let is_saved = self.save_at_once(ks).is_ok() && !self.lacks_rdb(options.save);
            if !is_saved && !options.force {
                tell_of_failure(reason);
                return Err(Error::text(FAILED));
            }
            self.shutdown = Some(how);
            return Ok(Ends::Now);
        }
        tracing::info!(reason, "the server ends when a snapshot is made; until then it is read from, and writes wait");
        let until_ms = self.clock.steady_ms() + i64::from(self.config.shutdown_timeout_s) * 1_000;
        let concluded = self.saving.concluded + 1 + u64::from(self.saving.is_ending());
        let (current, waiting) = match asked_by {
            Some((session, command)) => {
                let waiting = vec![(session.key, command)];
                (Some(session), waiting)
            }
            None => (None, Vec::new()),
        };
        self.ending = Some(Ending { how, save: options.save, reason, asked_by: waiting, until_ms, concluded });
        self.pause_for_ending(true, current);
        self.saving.save_again(self.clock.steady_ms());
        Ok(Ends::Later)
    }

    /// Whether somebody counts on a file for Redis that could not be written: who says SAVE.
    fn lacks_rdb(&self, save: Option<bool>) -> bool {
        save == Some(true) && self.saving.has_export_failed
    }

    /// Looks whether the snapshot is made that the end waits for. Called between two units.
    pub(in crate::engine) fn go_on_ending(&mut self, ks: &Keyspace) {
        let Some(ending) = &self.ending else { return };
        if self.saving.is_wanted() || self.shutdown.is_some() {
            return;
        }
        let is_saved = self.saving.concluded >= ending.concluded && self.saving.failure.is_none();
        if (is_saved && !self.lacks_rdb(ending.save)) || ending.how.force {
            self.shutdown = Some(ending.how);
            return;
        }
        tell_of_failure(ending.reason);
        self.stop_ending(ks, None);
    }

    /// SHUTDOWN ABORT. Answers whether there was anything to end.
    pub fn abort_ending(&mut self, ks: &Keyspace, current: &mut Session) -> bool {
        if self.ending.is_none() || self.shutdown.is_some() {
            return false;
        }
        tracing::warn!("the end of the server was called off");
        self.stop_ending(ks, Some(current));
        true
    }

    /// All goes on as before. `current` is the session whose command that is, if it is one.
    fn stop_ending(&mut self, ks: &Keyspace, current: Option<&mut Session>) {
        let Some(ending) = self.ending.take() else { return };
        self.pause_for_ending(false, current);
        for (client, command) in ending.asked_by {
            self.answer_who_asked(ks, client, command);
        }
    }

    fn answer_who_asked(&mut self, ks: &Keyspace, client: SessionKey, command: CommandId) {
        if let Some(call) = self.blocking_call(client, command) {
            self.stats.count_error(FAILED.as_bytes());
            self.end_waiting(ks, call, |_, reply| reply.error(FAILED.as_bytes()));
        }
    }

    /// How long the end that is coming may take by `shutdown-timeout`, in ms; `None` where none is coming.
    pub fn ends_in_ms(&self) -> Option<i64> {
        let ending = self.ending.as_ref()?;
        Some((ending.until_ms - self.clock.steady_ms()).max(0))
    }
}

fn tell_of_failure(reason: &str) {
    tracing::error!("{reason}, and the data can't be saved: the server goes on. SHUTDOWN NOSAVE ends it all the same");
}
