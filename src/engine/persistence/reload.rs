//! DEBUG RELOAD and DEBUG LOADAOF: read the data again from disk while the server runs, for tests.
//!
//! The data is read into a second engine, and replaces the present data once it is complete; so an unreadable file does
//! no harm. If both are equal, nothing has changed, and no client is notified. Otherwise the data comes in as ordinary
//! units, which the journal keeps and which watchers and waiters see.

use std::sync::Arc;

use super::recovery::{Loading, count_keys};
use crate::base::rng::Rng;
use crate::engine::Engine;
use crate::engine::limits::RECOVERY_SLICE_BYTES;
use crate::keyspace::effect::{EffectReader, EffectWriter};
use crate::persist::saving::{Home, Reload};
use crate::persist::snapshot_stream::SnapshotStream;
use crate::persist::tail::UnitOrigin;

impl Engine {
    /// Reads the data again for a client, and replies.
    pub(in crate::engine) fn reload(&mut self, reload: &Reload) {
        let done = self.read_again(reload);
        if let Err(error) = &done {
            tracing::error!("the data could not be read again: {error}");
        }
        let (client, command) = reload.client;
        if let Some(call) = self.server.waits.blocking_call(&self.server.clients.sessions, client, command) {
            self.server.end_waiting(&self.ks, call, |_, reply| match done {
                Ok(()) => reply.ok(),
                Err(_) => reply.error(reload.failed.as_bytes()),
            });
        }
    }

    fn read_again(&mut self, reload: &Reload) -> Result<(), String> {
        if self.server.persistence.journal.as_ref().is_some_and(|journal| journal.member().is_some()) {
            return Err("the data of a node is that of its group".to_owned());
        }
        if reload.save {
            self.server.persist(&mut self.ks, |persistence, ks, env| persistence.save_at_once(ks, env))?;
        }
        let is_on_disk = self.server.persist(&mut self.ks, |persistence, _, _| persistence.drain());
        if self.server.persistence.journal.is_some() && !is_on_disk {
            return Err("the journal accepts no changes".to_owned());
        }
        self.server.persistence.saving.await_ended_log();
        let mut fresh = self.beside()?;
        self.server.persistence.saving.loaded_keys = count_keys(&fresh);
        let is_same = reload.save || self.server.persistence.journal.is_some();
        if is_same && !reload.keep {
            // A snapshot in progress can't go on with other tables.
            self.server.persist(&mut self.ks, |persistence, _, _| persistence.cancel_save());
            self.ks.take_over(fresh.ks);
            self.server.programs.scripts.take_over(fresh.server.programs.scripts);
            // Scripts are counted by their places in a Lua state that is gone.
            self.server.meters.stats.scripts.reset();
            return Ok(());
        }
        if !reload.keep {
            self.empty();
        } else if !reload.merge && self.shares_names_with(&fresh) {
            return Err("the data that was read exists already".to_owned());
        }
        self.add_from(&mut fresh)
    }

    /// Makes a second engine with the data on disk.
    fn beside(&self) -> Result<Engine, String> {
        let Home::Open(directory) = &self.server.persistence.saving.home else {
            return Err("nothing was saved yet".to_owned());
        };
        let (config, clock) = (self.server.config.clone(), self.server.time.clock.clone());
        let fresh = Engine::new(config, self.server.table, clock, Rng::from_entropy());
        let mut fresh = fresh.map_err(|error| error.to_string())?;
        fresh.server.persistence.saving.platform = self.server.persistence.saving.platform.clone();
        let mut loading = Loading::begin(&mut fresh, Arc::clone(directory)).map_err(|error| error.to_string())?;
        while !loading.step(&mut fresh, usize::MAX).map_err(|error| error.to_string())?.is_complete {}
        fresh.begin_own_time();
        Ok(fresh)
    }

    /// Removes all data, as a unit.
    fn empty(&mut self) {
        let unit = self.begin(UnitOrigin::Command);
        for db in 0..self.ks.databases() {
            self.ks.flush(db, true);
        }
        self.server.programs.scripts.flush_libraries(&mut self.ks);
        self.commit(unit, &mut []);
    }

    fn shares_names_with(&self, other: &Engine) -> bool {
        let has_key = |db| other.ks.entries(db).any(|entry| self.ks.live(db, entry.key()).is_some());
        let libraries = self.server.programs.scripts.libraries();
        (0..self.ks.databases()).any(has_key)
            || other.server.programs.scripts.libraries().iter().any(|library| libraries.has(&library.name))
    }

    /// Adds the data of another engine in units. It replaces present keys of equal names.
    fn add_from(&mut self, other: &mut Engine) -> Result<(), String> {
        let mut stream = SnapshotStream::begin(&other.ks);
        let mut is_complete = false;
        let mut outcome = Ok(());
        while !is_complete && outcome.is_ok() {
            let (mut effects, scripts) = (EffectWriter::default(), &other.server.programs.scripts);
            is_complete = stream.copy_slice(&other.ks, scripts, RECOVERY_SLICE_BYTES, &mut effects);
            let unit = self.begin(UnitOrigin::Command);
            outcome = EffectReader::new(effects.as_bytes())
                .try_for_each(|(db, effect)| self.apply(db, &effect).map_err(|misfit| misfit.to_string()));
            self.commit(unit, &mut []);
            self.wake(None);
        }
        outcome
    }
}
